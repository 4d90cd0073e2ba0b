"""Number labels in order of first appearance, one block at a time, with lookups in several threads.

`Numbering.find` looks up the labels that are known already: any thread may call it at any time. `Numbering.add` gives
numbers to the new ones and must be called block by block, in order.
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
CHUNK = 1 << 16  # rows whose keys fit into the cache
MIX = 0x9E3779B97F4A7C15  # odd multiplier of a multiplicative hash
Words = NDArray[np.uint64]
Keys = NDArray[np.complex128]  # two words stored as one 128-bit value; never used in arithmetic
Index = NDArray[np.int64]
Numbers = NDArray[np.int32]


def dense_slots(sides: Sequence[pl.Series]) -> tuple[list[NDArray[np.int32]], int] | None:
    """Slots of whole numbers in a narrow range, counted from the smallest, and the size of that range.

    None if the labels are not whole numbers, or if the range is too wide for a table.
    """
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
    """Return the event and the column where each slot appears first, and the slot, in order of appearance.

    `slots` are both ends of events that are sorted by time.
    """
    first = _first_endpoints(slots, size)
    ends = np.sort(first[first < 2 * len(slots[0])]).astype(np.int64)
    event, column = ends >> 1, ends & 1
    return event, column, np.where(column == 0, slots[0][event], slots[1][event])


def number_slots(slots: Sequence[NDArray[np.int32]], size: int, order: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Replace every slot, in place, by its position in `order`, or by −1 if it is not there."""
    rank = np.full(size, -1, dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return _in_threads(partial(_look_up, rank), slots)


def _first_endpoints(slots: Sequence[NDArray[np.int32]], size: int) -> NDArray[np.integer[Any]]:
    """Return the first endpoint of each slot, 2 · event + column; 2 · num_events if a slot does not occur."""
    num_events = len(slots[0])
    dtype = np.int32 if 2 * num_events < 2**31 else np.int64  # the smaller type makes better use of the cache

    def first(slot: NDArray[np.int32], column: int) -> NDArray[np.integer[Any]]:
        ends = np.full(size, 2 * num_events, dtype=dtype)
        for part in reversed(list(chunks(num_events))):  # backwards, so that the first endpoint is written last
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
    """`slots = table[slots]`, in place."""
    for part in chunks(len(slots)):
        slots[part] = table.take(slots[part])
    return slots


def chunks(length: int, size: int = CHUNK) -> Iterator[slice]:
    """Consecutive slices of at most `size` rows."""
    return (slice(i, min(i + size, length)) for i in range(0, length, size))


def _in_threads(work: Callable[..., Result], *columns: Sequence[Any]) -> list[Result]:
    """Process each column in a thread of its own; columns of one chunk are not worth a thread."""
    if max(map(len, columns[0])) <= CHUNK:
        return list(map(work, *columns))
    with ThreadPoolExecutor(len(columns[0])) as pool:
        return list(pool.map(work, *columns))


class Found(NamedTuple):
    """A block of keys, the numbers (from 1) of the known ones, and the indices of the others."""

    keys: Keys
    numbers: Numbers
    left: Index


class Table(NamedTuple):
    """A hash table with linear probing.

    `places` holds the numbers (from 1) of the keys, 0 where it is free; `keys[n]` is the key with number n. While keys
    are added, −1 − i marks the place that the i-th of them claims.
    """

    places: Numbers
    keys: Keys

    @classmethod
    def empty(cls, bits: int) -> Table:
        """At most a quarter of the places is ever filled, so that few keys collide."""
        return cls(np.zeros(1 << bits, dtype=np.int32), np.zeros((1 << bits - 2) + 1, dtype=np.complex128))


class Numbering:
    """Numbers for keys of two words that are not both zero.

    Attributes:
        size: number of distinct keys; seen: number of keys added.
    """

    def __init__(self, bits: int = 17) -> None:
        self.table = Table.empty(bits)
        self.size = self.seen = 0
        self._firsts = [np.zeros(0, dtype=np.int64)]
        self._taken = 0

    def find(self, words: Words) -> Found:
        """Look up a block of keys, in any thread.  # [B, 2]"""
        keys = np.ascontiguousarray(words).view(np.complex128)[:, 0]
        numbers, left, _ = self._look_up(self.table, keys)
        return Found(keys, numbers, left)

    def add(self, found: Found) -> Numbers:
        """Return the numbers, from 0, of the next block.  # [B]"""
        if len(found.left):
            keys, left = found.keys[found.left], found.left
            numbers, new, place = self._look_up(self.table, keys)
            if self.size + len(new) >= len(self.table.keys):
                self._grow(self.size + len(new))
                place = _free(self.table, _places(self.table, keys[new]))
            numbers[new] = self._insert(keys[new], left[new], place)
            found.numbers[left] = numbers
        self.seen += len(found.keys)
        found.numbers[...] -= 1
        return found.numbers

    @property
    def firsts(self) -> Index:
        """The position where each key appeared first, counted over all blocks.  # [N]"""
        return np.concatenate(self._firsts)

    def new_firsts(self) -> Index:
        """The positions of `firsts` since the last call."""
        found = np.concatenate([self._firsts[0][:0], *self._firsts[self._taken :]])
        self._taken = len(self._firsts)
        return found

    def _look_up(self, table: Table, keys: Keys) -> tuple[Numbers, Index, Index]:
        """Return the numbers of known keys, and the indices of unknown keys with the free place each may take."""
        place = _places(table, keys)
        numbers = table.places.take(place)
        left = np.flatnonzero(differ(table.keys.take(numbers, mode="clip"), keys))
        place = place[left]
        new = [(left[:0], left[:0])]
        while len(left):
            free = numbers[left] <= 0
            new.append((left[free], place[free]))
            left, place = left[~free], _next(table, place[~free])
            numbers[left] = found = table.places.take(place)
            wrong = differ(table.keys.take(found, mode="clip"), keys[left])
            left, place = left[wrong], place[wrong]
        which, place = (np.concatenate(parts) for parts in zip(*new, strict=True))
        order = np.argsort(which)
        return numbers, which[order], place[order]

    def _insert(self, keys: Keys, at: Index, place: Index) -> Numbers:
        """Number new keys. Equal keys probe the same places, and the first of them takes the place."""
        first = np.empty(len(keys), dtype=np.int64)  # index of the first equal key
        taken = np.empty(len(keys), dtype=np.int64)
        left = np.arange(len(keys))
        while len(left):
            winner = _claim(self.table, place, left)
            same = ~differ(keys[winner], keys[left])
            first[left[same]], taken[left[same]] = winner[same], place[same]
            left, place = left[~same], _free(self.table, _next(self.table, place[~same]))
        own = np.flatnonzero(first == np.arange(len(keys)))
        numbers = np.empty(len(keys), dtype=np.int32)
        numbers[own] = np.arange(self.size + 1, self.size + 1 + len(own))
        # Keys before places: a thread that reads a number must find its key.
        self.table.keys[self.size + 1 : self.size + 1 + len(own)] = keys[own]
        self.table.places[taken[own]] = numbers[own]
        self.size += len(own)
        self._firsts.append(self.seen + at[own])
        return numbers[first]

    def _grow(self, size: int) -> None:
        bits = len(self.table.places).bit_length() - 1
        while size > 1 << bits - 2:
            bits += 2
        if bits > 33:
            raise GraphError("more distinct nodes than a graph can hold")
        table = Table.empty(bits)
        table.keys[: self.size + 1] = self.table.keys[: self.size + 1]
        left = np.arange(1, self.size + 1, dtype=np.int32)
        place = _places(table, table.keys[left])
        while len(left):
            place = _free(table, place)
            table.places[place] = left
            lost = table.places.take(place) != left
            left, place = left[lost], place[lost]
        self.table = table


def differ(keys: Keys, others: Keys) -> NDArray[np.bool_]:
    """Whether two keys differ in any bit."""
    halves = keys.view(np.uint64) != others.view(np.uint64)
    return np.asarray(halves.view(np.uint16) != 0)  # either half


def as_words(values: Index) -> Words:
    """Whole numbers as two words each.  # [B] → [B, 2]"""
    words = np.ones((len(values), 2), dtype=np.uint64)  # the second word keeps the key of 0 from being zero
    words[:, 0] = values.view(np.uint64)
    return words


def _places(table: Table, keys: Keys) -> Index:
    """The place where the probing for each key begins."""
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
    """The first free place at or after each place."""
    search = np.flatnonzero(table.places.take(place))
    while len(search):
        place[search] = _next(table, place[search])
        search = search[table.places.take(place[search]) != 0]
    return place


def _claim(table: Table, place: Index, claimants: Index) -> Index:
    """Return, for every claimant, the first claimant of the same place."""
    table.places[place[::-1]] = -1 - claimants[::-1]  # the value written last stays
    return -1 - table.places.take(place).astype(np.int64)
