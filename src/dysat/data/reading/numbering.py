"""Labels numbered in order of first appearance, a block at a time: other threads parse the next blocks meanwhile.

A block is taken in twice. `find` looks up what is known already, in any thread and while others write; `add` gives
numbers to the rest, block by block in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dysat.errors import GraphError

if TYPE_CHECKING:
    import polars as pl

Result = TypeVar("Result")
CHUNK = 1 << 16  # rows whose keys stay in the cache
MIX = 0x9E3779B97F4A7C15
DENSE = 1 << 24  # whole numbers below it are their own places in a table
Words = NDArray[np.uint64]
Keys = NDArray[np.complex128]  # two words as one number of 128 bits, with which nothing is ever computed
Index = NDArray[np.int64]
Numbers = NDArray[np.int32]


def dense_slots(sides: Sequence[pl.Series]) -> tuple[list[NDArray[np.int32]], int] | None:
    """Whole numbers that lie so dense that they are their own slots, counted from the least; and how many there are."""
    if not all(side.dtype.is_integer() for side in sides):
        return None
    numbers = [side.to_numpy() for side in sides]
    low, high = min(int(n.min()) for n in numbers), max(int(n.max()) for n in numbers)
    if high - low >= max(1 << 16, 2 * sum(map(len, numbers))):
        return None
    return _in_threads(partial(_subtract, low), numbers), high - low + 1


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


def _first_endpoints(slots: Sequence[NDArray[np.int32]], size: int) -> NDArray[np.integer[Any]]:
    """For each slot the endpoint that comes first, 2 · event + column; beyond all of them if there is none."""
    num_events = len(slots[0])
    dtype = np.int32 if 2 * num_events < 2**31 else np.int64  # the smaller, the more of it the cache holds

    def first(slot: NDArray[np.int32], column: int) -> NDArray[np.integer[Any]]:
        ends = np.full(size, 2 * num_events, dtype=dtype)
        for part in reversed(list(chunks(num_events))):  # backwards, so that the first comes last and stays
            places = np.arange(2 * part.stop - 2 + column, 2 * part.start - 1 + column, -2, dtype=dtype)
            ends[slot[part][::-1]] = places
        return np.asarray(ends)

    left, right = _in_threads(first, slots, (0, 1))
    return np.asarray(np.minimum(left, right, out=left))


def _subtract(low: int, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
    """`numbers - low`, which fits into 32 bits."""
    slots = np.empty(len(numbers), dtype=np.int32)
    for part in chunks(len(numbers)):
        slots[part] = numbers[part] - low
    return slots


def _look_up(table: NDArray[np.int32], slots: NDArray[np.int32]) -> NDArray[np.int32]:
    """`table[slots]`, written over the slots."""
    for part in chunks(len(slots)):
        slots[part] = table.take(slots[part])
    return slots


def chunks(length: int, size: int = CHUNK) -> Iterator[slice]:
    """Consecutive parts of something."""
    return (slice(i, min(i + size, length)) for i in range(0, length, size))


def _in_threads(work: Callable[..., Result], *columns: Sequence[Any]) -> list[Result]:
    """One thread a column; small columns are not worth starting one."""
    if max(map(len, columns[0])) <= CHUNK:
        return list(map(work, *columns))
    with ThreadPoolExecutor(len(columns[0])) as pool:
        return list(pool.map(work, *columns))


class Found(NamedTuple):
    """Labels of a block, the numbers (from 1 on) of those that have one, and which are left."""

    labels: NDArray[Any]  # Keys or Index
    numbers: Numbers
    left: Index


class Table(NamedTuple):
    """Numbers from 1 on at the places of their labels, 0 where none is yet; and the label of every number.

    While labels are added, −n stands where the n-th of them wants to be.
    """

    places: Numbers
    labels: NDArray[Any]

    @classmethod
    def empty(cls, bits: int, labels: int, dtype: type) -> Table:
        return cls(np.zeros(1 << bits, dtype=np.int32), np.zeros(labels + 1, dtype=dtype))


class _Numbering:
    """What numbers of both kinds have in common.

    Attributes:
        size: how many different labels there are; seen: how many there were in all.
    """

    table: Table

    def __init__(self) -> None:
        self.size = self.seen = 0
        self._firsts = [np.zeros(0, dtype=np.int64)]

    @property
    def firsts(self) -> Index:
        """Where each label appeared first, counted over all blocks.  # [N]"""
        return np.concatenate(self._firsts)

    def _settle(self, labels: NDArray[Any], at: Index, first: Index, taken: Index) -> Numbers:
        """Number labels that are the first of their kind, and write them where they have taken a place."""
        own = np.flatnonzero(first == np.arange(len(labels)))
        numbers = np.empty(len(labels), dtype=np.int32)
        numbers[own] = np.arange(self.size + 1, self.size + 1 + len(own))
        # Who reads at the same time must find the label of every number.
        self.table.labels[self.size + 1 : self.size + 1 + len(own)] = labels[own]
        self.table.places[taken[own]] = numbers[own]
        self.size += len(own)
        self._firsts.append(self.seen + at[own])
        return numbers[first]

    def _finish(self, found: Found) -> Numbers:
        self.seen += len(found.labels)
        found.numbers[...] -= 1
        return found.numbers


class TextNumbering(_Numbering):
    """Numbers for texts of at most 16 bytes, each in two words that are not both zero.

    A hash table with linear probing. At most a quarter of it is filled, so that few keys find another in their place.
    """

    def __init__(self, bits: int = 17) -> None:
        super().__init__()
        self.table = Table.empty(bits, 1 << bits - 2, np.complex128)

    def find(self, words: Words) -> Found:
        """Any thread, any time.  # [B, 2]"""
        keys = np.ascontiguousarray(words).view(np.complex128)[:, 0]
        numbers, left, _ = self._look_up(self.table, keys)
        return Found(keys, numbers, left)

    def add(self, found: Found) -> Numbers:
        """The numbers, from 0 on, of the next block.  # [B]"""
        if len(found.left):
            keys, left = found.labels[found.left], found.left
            numbers, new, place = self._look_up(self.table, keys)
            if self.size + len(new) >= len(self.table.labels):
                self._grow(self.size + len(new))
                place = _free(self.table, _places(self.table, keys[new]))
            numbers[new] = self._take(keys[new], left[new], place)
            found.numbers[left] = numbers
        return self._finish(found)

    @property
    def labels(self) -> NDArray[np.bytes_]:
        """The text of every number.  # [N]"""
        return self.table.labels[1 : self.size + 1].view("S16")

    def _look_up(self, table: Table, keys: Keys) -> tuple[Numbers, Index, Index]:
        """The numbers of keys that have one; which keys have none, in order, and the free place each has found."""
        place = _places(table, keys)
        numbers = table.places.take(place)
        left = np.flatnonzero(differ(table.labels.take(numbers, mode="clip"), keys))
        place = place[left]
        new = [(left[:0], left[:0])]
        while len(left):
            free = numbers[left] <= 0
            new.append((left[free], place[free]))
            left, place = left[~free], _next(table, place[~free])
            numbers[left] = found = table.places.take(place)
            wrong = differ(table.labels.take(found, mode="clip"), keys[left])
            left, place = left[wrong], place[wrong]
        which, place = (np.concatenate(parts) for parts in zip(*new, strict=True))
        order = np.argsort(which)
        return numbers, which[order], place[order]

    def _take(self, keys: Keys, at: Index, place: Index) -> Numbers:
        """Numbers for keys that have none yet. Equal ones search the same way; the first of them takes the place."""
        first = np.empty(len(keys), dtype=np.int64)  # of the same key
        taken = np.empty(len(keys), dtype=np.int64)
        left = np.arange(len(keys))
        while len(left):
            there = _claim(self.table, place, left)
            same = ~differ(keys[there], keys[left])
            first[left[same]], taken[left[same]] = there[same], place[same]
            left, place = left[~same], _free(self.table, _next(self.table, place[~same]))
        return self._settle(keys, at, first, taken)

    def _grow(self, size: int) -> None:
        bits = len(self.table.places).bit_length() - 1
        while size > 1 << bits - 2:
            bits += 2
        if bits > 33:
            raise GraphError("more distinct nodes than a graph can hold")
        table = Table.empty(bits, 1 << bits - 2, np.complex128)
        table.labels[: self.size + 1] = self.table.labels[: self.size + 1]
        left = np.arange(1, self.size + 1, dtype=np.int32)
        place = _places(table, table.labels[left])
        while len(left):
            place = _free(table, place)
            table.places[place] = left
            lost = table.places.take(place) != left
            left, place = left[lost], place[lost]
        self.table = table


class IntegerNumbering(_Numbering):
    """Numbers for whole numbers that are not negative: a table while they are below `DENSE`, else as two words."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table.empty(16, 1 << 16, np.int64)
        self.hashed: TextNumbering | None = None

    def find(self, values: Index) -> Found:
        """Any thread, any time.  # [B]"""
        if self.hashed is not None:
            return self.hashed.find(as_words(values))
        places = self.table.places
        numbers = places.take(values, mode="clip")
        left = np.flatnonzero((numbers <= 0) | (values >= len(places)))
        return Found(values, numbers, left)

    def add(self, found: Found) -> Numbers:
        """The numbers, from 0 on, of the next block.  # [B]"""
        if self.hashed is None and len(found.left):
            values, left = found.labels[found.left], found.left
            top = int(values.max())
            if top < DENSE:
                self._grow(top, self.size + len(left))
                numbers = self.table.places.take(values)
                new = np.flatnonzero(numbers == 0)
                first = _claim(self.table, values[new], np.arange(len(new)))
                numbers[new] = self._settle(values[new], left[new], first, values[new])
                found.numbers[left] = numbers
            else:
                self._hash()
        if self.hashed is None:
            return self._finish(found)
        if found.labels.dtype != np.complex128:  # found before the first large number came
            found = self.hashed.find(as_words(found.labels))
        numbers = self.hashed.add(found)
        self.size, self.seen, self._firsts = self.hashed.size, self.hashed.seen, self.hashed._firsts
        return numbers

    @property
    def labels(self) -> Index:
        """The label of every number.  # [N]"""
        if self.hashed is not None:
            return self.hashed.labels.view(np.int64)[::2]
        return self.table.labels[1 : self.size + 1]

    def _grow(self, top: int, size: int) -> None:
        places, labels = self.table
        if top >= len(places):
            places = np.zeros(1 << top.bit_length(), dtype=np.int32)
            places[: len(self.table.places)] = self.table.places
        if size >= len(labels):
            labels = np.zeros(2 * size, dtype=np.int64)
            labels[: len(self.table.labels)] = self.table.labels
        self.table = Table(places, labels)

    def _hash(self) -> None:
        """The same numbers in a hash table."""
        hashed = TextNumbering()
        hashed.add(hashed.find(as_words(self.labels)))
        hashed.seen, hashed._firsts = self.seen, self._firsts
        self.hashed = hashed


Numbering = TextNumbering | IntegerNumbering


def differ(some: Keys, others: Keys) -> NDArray[np.bool_]:
    """Where two arrays of keys differ, bit for bit."""
    halves = some.view(np.uint64) != others.view(np.uint64)
    return np.asarray(halves.view(np.uint16) != 0)  # either half


def as_words(values: Index) -> Words:
    """Whole numbers as two words each.  # [B] → [B, 2]"""
    words = np.ones((len(values), 2), dtype=np.uint64)  # no two are both zero
    words[:, 0] = values.view(np.uint64)
    return words


def _places(table: Table, keys: Keys) -> Index:
    """Where the search for each key begins."""
    pairs = keys.view(np.uint64).reshape(-1, 2)
    mixed = pairs[:, 1] * np.uint64(MIX)
    mixed ^= pairs[:, 0]
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(MIX)
    mixed >>= np.uint64(65 - len(table.places).bit_length())
    return mixed.view(np.int64)


def _next(table: Table, place: Index) -> Index:
    return place + 1 & len(table.places) - 1


def _free(table: Table, place: Index) -> Index:
    """The first free place from each on."""
    search = np.flatnonzero(table.places.take(place))
    while len(search):
        place[search] = _next(table, place[search])
        search = search[table.places.take(place[search]) != 0]
    return place


def _claim(table: Table, place: Index, who: Index) -> Index:
    """Who gets each place, of those that want it: the first."""
    table.places[place[::-1]] = -1 - who[::-1]  # the one written last stays
    return -1 - table.places.take(place).astype(np.int64)
