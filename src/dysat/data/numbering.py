"""Short texts numbered in order of first appearance, a block at a time, while the next block is still being read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dysat.data.slots import MIX, differ
from dysat.errors import GraphError

Words = NDArray[np.uint64]
Keys = NDArray[np.complex128]  # two words as one number of 128 bits, with which nothing is ever computed
Index = NDArray[np.int64]


class Numbering:
    """Numbers for texts of at most 16 bytes, each in two words that are not both zero.

    A hash table with linear probing that takes in all texts of a block at once. It holds numbers from 1 on, and 0
    where nothing is yet; while a block is taken in, −n for its n-th text without a number.
    """

    def __init__(self, bits: int = 17) -> None:
        self.bits = bits
        self.table = np.zeros(1 << bits, dtype=np.int32)
        self.keys = np.zeros((1 << bits - 2) + 1, dtype=np.complex128)  # by number; that of 0 equals no text
        self.size = self.seen = 0
        self._firsts = [np.zeros(0, dtype=np.int64)]

    def add(self, words: Words) -> NDArray[np.int32]:
        """The numbers, from 0 on, of a block of texts.  # [B, 2] → [B]"""
        keys = np.ascontiguousarray(words).view(np.complex128)[:, 0]
        numbers, new, place = self._look_up(keys)
        if len(new):
            if self.size + len(new) >= len(self.keys):
                self._grow(self.size + len(new))
                place = self._free(self._places(keys[new]))
            numbers[new] = self._take(keys[new], new, place)
        self.seen += len(keys)
        numbers -= 1
        return numbers

    @property
    def texts(self) -> NDArray[np.bytes_]:
        """The text of every number.  # [N]"""
        return self.keys[1 : self.size + 1].view("S16")

    @property
    def firsts(self) -> Index:
        """Where each text appeared first, counted over all blocks.  # [N]"""
        return np.concatenate(self._firsts)

    def _places(self, keys: Keys) -> Index:
        """Where the search for each key begins."""
        pairs = keys.view(np.uint64).reshape(-1, 2)
        mixed = pairs[:, 1] * np.uint64(MIX)
        mixed ^= pairs[:, 0]
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(MIX)
        mixed >>= np.uint64(64 - self.bits)
        return mixed.view(np.int64)

    def _look_up(self, keys: Keys) -> tuple[NDArray[np.int32], Index, Index]:
        """The numbers of keys that have one; which keys have none, in order, and the free place each has found."""
        place = self._places(keys)
        numbers = self.table.take(place)
        left = np.flatnonzero(differ(self.keys.take(numbers), keys))
        place = place[left]
        new = [(left[:0], left[:0])]
        while len(left):
            free = numbers[left] == 0
            new.append((left[free], place[free]))
            left, place = left[~free], self._next(place[~free])
            numbers[left] = found = self.table.take(place)
            wrong = differ(self.keys.take(found), keys[left])
            left, place = left[wrong], place[wrong]
        which, place = (np.concatenate(parts) for parts in zip(*new, strict=True))
        order = np.argsort(which)
        return numbers, which[order], place[order]

    def _take(self, keys: Keys, at: Index, place: Index) -> NDArray[np.int32]:
        """Numbers for keys that have none yet. Equal ones search the same way; the first of them takes the place."""
        first = np.empty(len(keys), dtype=np.int64)  # of the same key
        taken = np.empty(len(keys), dtype=np.int64)
        left = np.arange(len(keys))
        while len(left):
            self.table[place[::-1]] = -1 - left[::-1]  # of those that want a place the one written last stays
            there = -1 - self.table.take(place).astype(np.int64)
            same = ~differ(keys[there], keys[left])
            first[left[same]], taken[left[same]] = there[same], place[same]
            left, place = left[~same], self._free(self._next(place[~same]))
        own = np.flatnonzero(first == np.arange(len(keys)))
        numbers = np.empty(len(keys), dtype=np.int32)
        numbers[own] = np.arange(self.size + 1, self.size + 1 + len(own))
        self.table[taken[own]] = numbers[own]
        self.keys[self.size + 1 : self.size + 1 + len(own)] = keys[own]
        self.size += len(own)
        self._firsts.append(self.seen + at[own])
        return numbers[first]

    def _grow(self, size: int) -> None:
        """Room for so many numbers: a table of which they fill at most a quarter, so that few keys find another."""
        while size > 1 << self.bits - 2:
            self.bits += 2
        if self.bits > 33:
            raise GraphError("more distinct nodes than a graph can hold")
        keys = np.zeros((1 << self.bits - 2) + 1, dtype=np.complex128)
        keys[: self.size + 1] = self.keys[: self.size + 1]
        self.keys, self.table = keys, np.zeros(1 << self.bits, dtype=np.int32)
        left = np.arange(1, self.size + 1, dtype=np.int32)
        place = self._places(keys[left])
        while len(left):
            place = self._free(place)
            self.table[place] = left
            lost = self.table.take(place) != left
            left, place = left[lost], place[lost]

    def _free(self, place: Index) -> Index:
        """The first free place from each on."""
        search = np.flatnonzero(self.table.take(place))
        while len(search):
            place[search] = self._next(place[search])
            search = search[self.table.take(place[search]) != 0]
        return place

    def _next(self, place: Index) -> Index:
        return place + 1 & len(self.table) - 1
