"""Sums over all past links, computed for ranges of nodes at once: each fits in a cache, and all cores share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import Snapshot, distinct
from dysat.features.link_memory import Snapshots, entry_times, past_entries
from dysat.system.parallel.process import in_threads

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
ENTRIES_AT_ONCE = 1 << 23  # of past links in both directions, held in memory at once
ENTRIES_OF_RANGE = 1 << 18  # that one thread reads
LEAST_PIECE = 1 << 12  # entries of a range in one snapshot, on average


class Entries(NamedTuple):
    """Past links in both directions, in order of the steps, then of the receivers; no self-loops.

    Shapes:
        receivers, neighbours, weights, steps [2E]: weights are at least 0; ages [2E]: time from the last event of a
        link in its window to the end of the last window, in lengths of the last window, or none unless asked for
    """

    receivers: Ids
    neighbours: Ids
    weights: Reals
    steps: Ids
    ages: Reals

    def once(self) -> Ids:
        """Return the entries that are links u < v, so that each counts once.  # [E]"""
        return np.flatnonzero(self.receivers < self.neighbours)

    def rows(self) -> Ids:
        """Return the first entry of each node in each step.  # [R]"""
        begins = np.ones(len(self.steps), dtype=np.bool_)
        begins[1:] = (self.receivers[1:] != self.receivers[:-1]) | (self.steps[1:] != self.steps[:-1])
        return np.flatnonzero(begins)

    def at_rows(self, rows: Ids) -> tuple[Ids, Ids, Ids]:
        """Return the node and step of these rows, and the number of links of the node there.  # each [R]"""
        return self.receivers[rows], self.steps[rows], np.diff(rows, append=len(self.steps))

    def keys(self, which: Ids, num_nodes: int) -> Ids:
        """Return u · N + v of some entries.  # [B] → [B]"""
        return self.receivers[which] * num_nodes + self.neighbours[which]


class NodeRange(NamedTuple):
    """A range of nodes, and the links u < v whose u is in it.

    Shapes: keys [e]: u · N + v of these links, sorted
    """

    snapshots: Snapshots  # with the rows of these nodes alone
    nodes: slice
    links: slice  # into the keys of all links
    keys: Ids
    num_nodes: int  # N of all nodes

    def entries(self, *, ages: bool = False) -> Iterator[tuple[Entries, Ids, Ids]]:
        """Yield past entries, those that are links u < v, and these as indices into `keys`.  # [2E], [E], [E]"""
        for entries in some_past_entries(self.snapshots, ages=ages):
            once = entries.once()
            yield entries, once, np.searchsorted(self.keys, entries.keys(once, self.num_nodes))


class NodeRanges:
    """All past links u < v, each once, by ranges of u.

    Shapes: keys [E]: u · N + v, sorted
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self.snapshots, self.num_nodes = snapshots, snapshots[-1].num_nodes
        self.ranges = node_ranges(snapshots)
        keys = list(in_threads(self._keys_of, self.ranges))
        self.stops = np.cumsum([0, *map(len, keys)]).tolist()
        self.keys: Ids = np.concatenate(keys)

    def _keys_of(self, nodes: tuple[int, int]) -> Ids:
        some = some_past_entries(rows_of(self.snapshots, *nodes))
        return distinct(np.concatenate([entries.keys(entries.once(), self.num_nodes) for entries in some]))

    def add(self, work: Callable[[NodeRange], None]) -> None:
        """Do the work of each range, which has nodes and links of its own, on all cores."""

        def of_range(number: int) -> None:
            nodes, links = self.ranges[number], slice(*self.stops[number : number + 2])
            work(NodeRange(rows_of(self.snapshots, *nodes), slice(*nodes), links, self.keys[links], self.num_nodes))

        list(in_threads(of_range, range(len(self.ranges))))


def some_past_entries(snapshots: Sequence[Snapshot], *, ages: bool = False) -> Iterator[Entries]:
    """Yield the entries of some snapshots at a time; at least once, even without links.

    With `ages`, all snapshots must have times.
    """
    end, length = snapshots[-1].stop, snapshots[-1].stop - snapshots[-1].start
    for first, stop in _runs(snapshots):
        part, since = snapshots[first:stop], np.empty(0)
        u, v, weights, steps = past_entries(part)
        if ages:
            left = [(1 - entry_times(each).astype(np.float64)) * (each.stop - each.start) for each in part]
            until = [end - each.stop + own for each, own in zip(part, left, strict=True)]
            since = np.concatenate(until) / length
        yield Entries(u, v, np.maximum(weights, 0.0), steps + first, since)


def _runs(snapshots: Sequence[Snapshot]) -> Iterator[tuple[int, int]]:
    """Yield runs [first, stop) of snapshots with about `ENTRIES_AT_ONCE` entries, at least one."""
    first, size = 0, 0
    for stop, snapshot in enumerate(snapshots, 1):
        size += len(snapshot.neighbours)
        if size >= ENTRIES_AT_ONCE or stop == len(snapshots):
            yield first, stop
            first, size = stop, 0


def node_ranges(snapshots: Sequence[Snapshot]) -> list[tuple[int, int]]:
    """Cut the nodes into ranges [low, high) with about equal numbers of entries.

    A range has at least `LEAST_PIECE` entries of a snapshot on average, so a log of many small snapshots is one range.
    """
    n, total = snapshots[-1].num_nodes, sum(len(snapshot.neighbours) for snapshot in snapshots)
    number = max(1, min(total // ENTRIES_OF_RANGE, total // (LEAST_PIECE * len(snapshots))))
    goals = total * np.arange(1, number) // number
    low, high = np.zeros_like(goals), np.full_like(goals, n)
    while (low < high).any():  # the first node before which there are as many entries
        middle = (low + high) // 2
        enough = sum(_entries_before(snapshot, middle) for snapshot in snapshots) >= goals
        low, high = np.where(enough, low, middle + 1), np.where(enough, middle, high)
    return list(pairwise([0, *np.setdiff1d(low, [0, n]).tolist(), n]))


def _entries_before(snapshot: Snapshot, nodes: Ids) -> Ids:
    """Return the number of entries in rows of smaller nodes than each of these.  # [B] → [B]"""
    rows, offsets = snapshot.rows.cpu().numpy(), snapshot.offsets.cpu().numpy()
    return np.asarray(offsets[np.searchsorted(rows, nodes)], dtype=np.int64)


def rows_of(snapshots: Snapshots, low: int, high: int) -> Snapshots:
    """Return snapshots with the rows of the nodes [low, high) alone; they share the arrays."""
    if (low, high) == (0, snapshots[-1].num_nodes):
        return snapshots
    return tuple(_rows_of(snapshot, low, high) for snapshot in snapshots)


def _rows_of(snapshot: Snapshot, low: int, high: int) -> Snapshot:
    first, stop = np.searchsorted(snapshot.rows.cpu().numpy(), (low, high)).tolist()
    offsets = snapshot.offsets[first : stop + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    parts: dict[str, Any] = {name: tensor[begin:end] for name, tensor in snapshot.tensors().items()}
    return replace(snapshot, **{**parts, "rows": snapshot.rows[first:stop], "offsets": offsets - begin})
