"""Slots: numbers for the labels of two columns, the same for equal labels, in no order and with gaps.

Columns are handled in chunks: what a chunk needs stays in the cache, and no column of hashes or 64-bit indices is
ever held whole. Fresh memory costs more than hashing a text again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dysat.errors import GraphError

if TYPE_CHECKING:
    import polars as pl

Result = TypeVar("Result")

CHUNK = 1 << 16  # rows whose keys stay in the cache
MIX = 0x9E3779B97F4A7C15


def slots_of(sides: Sequence[pl.Series], *, separate: bool) -> tuple[list[NDArray[np.int32]], int]:
    """A slot for every label of each column, equal labels the same one; and how many slots there are."""
    import polars as pl

    if separate:
        ((left,), size_left), ((right,), size_right) = (slots_of([side], separate=False) for side in sides)
        return [left, right + np.int32(size_left)], size_left + size_right
    if sides[0].dtype == pl.String:
        return assign_slots([TextKeys(side) for side in sides])
    numbers = [side.to_numpy() for side in sides]
    low, high = min(int(n.min()) for n in numbers), max(int(n.max()) for n in numbers)
    if high - low < max(1 << 16, 2 * sum(map(len, numbers))):  # so dense that they are their own slots
        return _in_threads(partial(_subtract, low), numbers), high - low + 1
    return assign_slots([IntegerKeys(n) for n in numbers])


def appearances(
    slots: Sequence[NDArray[np.int32]], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """The slots of events that are in order of time: where each appears first (event and column), in that order."""
    first = _first_endpoints(slots, size)
    ends = np.sort(first[first < 2 * len(slots[0])]).astype(np.int64)
    event, column = ends >> 1, ends & 1
    return event, column, np.where(column == 0, slots[0][event], slots[1][event])


def number_slots(slots: Sequence[NDArray[np.int32]], size: int, order: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Write over every slot its place in `order`; −1 over those that have none."""
    rank = np.full(size, -1, dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return _in_threads(partial(_look_up, rank), slots)


class TextKeys:
    """Texts as keys of 128 bits: two hashes. That two of a billion texts share both has a chance of 10^-21."""

    def __init__(self, column: pl.Series) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, part: slice) -> NDArray[np.complex128]:
        texts = self.column.slice(part.start, part.stop - part.start)
        return _as_keys(texts.hash(seed=0).to_numpy(), texts.hash(seed=1).to_numpy())


class IntegerKeys:
    """Whole numbers as keys of 128 bits."""

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, part: slice) -> NDArray[np.complex128]:
        return _as_keys(self.numbers[part].view(np.uint64), 1)  # no key is zero


Keys = TextKeys | IntegerKeys | NDArray[np.complex128]


def _as_keys(high: NDArray[np.uint64], low: NDArray[np.uint64] | int) -> NDArray[np.complex128]:
    """Pairs of 64 bits as one number of 128, which NumPy moves as a whole. Nothing is ever computed with it."""
    pairs = np.empty((len(high), 2), dtype=np.uint64)
    pairs[:, 0], pairs[:, 1] = high, low
    return pairs.view(np.complex128)[:, 0]


def assign_slots(keys: Sequence[Keys]) -> tuple[list[NDArray[np.int32]], int]:
    """A slot for every key of the columns, equal keys the same and different keys different ones; and how many.

    A hash table filled in rounds: a key takes its slot if that is free, and those that find another key
    there go on to the next, smaller table.
    """
    slots = [np.empty(len(column), dtype=np.int32) for column in keys]
    rows: list[NDArray[np.int64] | None] = [None] * len(keys)  # rows still without a slot; None: all
    size, factor = 0, MIX
    while left := sum(map(len, keys)):
        bits = min(22, max(10, left.bit_length()))
        table = np.zeros(1 << bits, dtype=np.complex128)
        homeless: list[list[NDArray[np.complex128]]] = [[] for _ in keys]
        missed: list[list[NDArray[np.int64]]] = [[] for _ in keys]
        for column, part, key in _ahead(keys):
            slot = (key.view(np.uint64)[::2] * np.uint64(factor) >> np.uint64(64 - bits)).view(np.int64)
            lost = _take_slots(table, slot, key)
            here = rows[column]
            slots[column][part if here is None else here[part]] = slot + size
            homeless[column].append(key[lost])
            missed[column].append(lost + part.start if here is None else here[part][lost])
        keys = [np.concatenate(found) if found else np.empty(0, dtype=np.complex128) for found in homeless]
        rows = [np.concatenate(found) if found else np.empty(0, dtype=np.int64) for found in missed]
        size, factor = size + (1 << bits), factor * MIX % 2**64 | 1
        if size > np.iinfo(np.int32).max:
            raise GraphError("more distinct nodes than a graph can hold")
    return slots, size


def _ahead(keys: Sequence[Keys]) -> Iterator[tuple[int, slice, NDArray[np.complex128]]]:
    """All chunks of all columns; the next is made in a thread while this one is used."""
    parts = [(column, part) for column, of in enumerate(keys) for part in _chunks(len(of))]
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(keys[parts[0][0]].__getitem__, parts[0][1])
        for (column, part), following in zip_longest(parts, parts[1:]):
            key = coming.result()
            if following:
                coming = pool.submit(keys[following[0]].__getitem__, following[1])
            yield column, part, key


def _take_slots(
    table: NDArray[np.complex128], slot: NDArray[np.int64], keys: NDArray[np.complex128]
) -> NDArray[np.int64]:
    """Write keys to slots that are free, the last one wins; return which keys do not stand in theirs."""
    found = table[slot]
    lost = np.flatnonzero(differ(found, keys))
    free = lost[~differ(found[lost], np.zeros(len(lost), dtype=np.complex128))]
    table[slot[free]] = keys[free]
    return lost[differ(table[slot[lost]], keys[lost])]


def differ(some: NDArray[np.complex128], others: NDArray[np.complex128]) -> NDArray[np.bool_]:
    """Where two arrays of keys differ, bit for bit."""
    halves = some.view(np.uint64) != others.view(np.uint64)
    return np.asarray(halves.view(np.uint16) != 0)  # either half


def _first_endpoints(slots: Sequence[NDArray[np.int32]], size: int) -> NDArray[np.integer[Any]]:
    """For each slot the endpoint that comes first, 2 · event + column; beyond all of them if there is none."""
    num_events = len(slots[0])
    dtype = np.int32 if 2 * num_events < 2**31 else np.int64  # the smaller, the more of it the cache holds

    def first(slot: NDArray[np.int32], column: int) -> NDArray[np.integer[Any]]:
        ends = np.full(size, 2 * num_events, dtype=dtype)
        for part in reversed(list(_chunks(num_events))):  # backwards, so that the first comes last and stays
            places = np.arange(2 * part.stop - 2 + column, 2 * part.start - 1 + column, -2, dtype=dtype)
            ends[slot[part][::-1]] = places
        return np.asarray(ends)

    left, right = _in_threads(first, slots, (0, 1))
    return np.asarray(np.minimum(left, right, out=left))


def _subtract(low: int, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
    """`numbers - low`, which fits into 32 bits."""
    slots = np.empty(len(numbers), dtype=np.int32)
    for part in _chunks(len(numbers)):
        slots[part] = numbers[part] - low
    return slots


def _look_up(table: NDArray[np.int32], slots: NDArray[np.int32]) -> NDArray[np.int32]:
    """`table[slots]`, written over the slots."""
    for part in _chunks(len(slots)):
        slots[part] = table.take(slots[part])
    return slots


def _chunks(length: int) -> Iterator[slice]:
    return (slice(i, min(i + CHUNK, length)) for i in range(0, length, CHUNK))


def _in_threads(work: Callable[..., Result], *columns: Sequence[Any]) -> list[Result]:
    """One thread a column; small columns are not worth starting one."""
    if max(map(len, columns[0])) <= CHUNK:
        return list(map(work, *columns))
    with ThreadPoolExecutor(len(columns[0])) as pool:
        return list(pool.map(work, *columns))
