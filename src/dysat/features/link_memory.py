"""Links of past snapshots, as arrays and as a matrix of decayed sums.

A past window counts by its age, or by its time of day and week.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.data.csr import Snapshot, distinct
from dysat.data.windows import DAY
from dysat.errors import GraphError
from dysat.features.matrix import SparseMatrix
from dysat.system.compiled import native

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Snapshots = tuple[Snapshot, ...]
PastLinks = tuple[Ids, Ids, Reals, Ids]
PERIODS = (DAY, 7 * DAY)
PERIOD_DECAY = 0.6  # weight of a day, or a week, relative to the one after it
MAX_PERIODS = 8  # days and weeks to look back: 0.6⁸ is 2 %
TRAINING_PERIODS = 3  # days and weeks to look back for training examples
MIN_OVERLAP = 0.5  # of two windows at the same time of day or week

# A fit on an hourly log reads thousands of small snapshots again and again: keep their arrays as long as they exist.
SMALL_SNAPSHOT = 20_000  # entries; reading a larger one takes no longer than everything that is done with it
_kept_entries: WeakKeyDictionary[Snapshot, tuple[Ids, Ids, Reals]] = WeakKeyDictionary()
_kept_arcs: WeakKeyDictionary[Snapshot, tuple[Ids, Ids, Reals]] = WeakKeyDictionary()


def past_links(snapshots: Sequence[Snapshot]) -> PastLinks:
    """Return u, v, weight and step of all links u < v, in order of the steps; self-loops are left out.  # each [ΣE]"""
    u, v, weights, steps = past_entries(snapshots)
    once = u < v
    return u[once], v[once], weights[once], steps[once]


def past_entries(snapshots: Sequence[Snapshot]) -> PastLinks:
    """Return the same of all links in both directions, also in order of u.  # each [2ΣE]"""
    return _joined([_entries_of(snapshot) for snapshot in snapshots])


def past_arcs(snapshots: Sequence[Snapshot]) -> PastLinks:
    """Return u, v, weight and step of all arcs u → v of directed snapshots, likewise.  # each [ΣA]"""
    return _joined([_arcs_of(snapshot) for snapshot in snapshots])


def _joined(parts: list[tuple[Ids, Ids, Reals]]) -> PastLinks:
    u, v, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    return u, v, weights, np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])


def _entries_of(snapshot: Snapshot) -> tuple[Ids, Ids, Reals]:
    """Return receiver, neighbour and weight of the entries of one snapshot, without self-loops.  # each [2E]"""
    if (entries := _kept_entries.get(snapshot)) is None:
        receivers, neighbours, weights = (part.cpu().numpy() for part in snapshot.entries())
        entries = receivers, neighbours, weights
        if (other := receivers != neighbours).sum() < len(other):
            entries = receivers[other], neighbours[other], weights[other]
        if len(neighbours) <= SMALL_SNAPSHOT:
            _kept_entries[snapshot] = entries
    return entries


def entry_times(snapshot: Snapshot) -> NDArray[np.float32]:
    """Return the times of the same entries of one snapshot.  # [2E]"""
    if snapshot.latest is None:
        raise GraphError("the snapshot does not know when the last event of a link happened")
    times: NDArray[np.float32] = snapshot.latest.cpu().numpy()
    if len(_entries_of(snapshot)[0]) < len(times):
        receivers, neighbours, _ = snapshot.entries()
        times = times[(receivers != neighbours).cpu().numpy()]
    return times


def _arcs_of(snapshot: Snapshot) -> tuple[Ids, Ids, Reals]:
    """Return u, v and weight of the arcs u → v of one snapshot, without self-loops.  # each [A]"""
    if (arcs := _kept_arcs.get(snapshot)) is None:
        u, v, weights = (part.cpu().numpy() for part in snapshot.arcs())
        arcs = u[u != v], v[u != v], weights[u != v]
        if len(u) <= SMALL_SNAPSHOT:
            _kept_arcs[snapshot] = arcs
    return arcs


def links_among(snapshot: Snapshot, known: int) -> Ids:
    """Return the links u < v of a snapshot between its first `known` nodes; with direction, its arcs.  # [L, 2]"""
    u, v, _ = (part.cpu().numpy() for part in snapshot.pairs())
    links: Ids = np.stack([u, v], axis=1)[(np.maximum(u, v) < known) & (u != v)]
    return links


class Links(NamedTuple):
    """A symmetric sparse matrix with an empty diagonal; every link is stored once, sorted by key.

    With `directed` the matrix is not symmetric, and every arc u → v is stored.

    Shapes:
        keys [E]: u · N + v with u < v, values [E]
    """

    keys: Ids
    values: Reals
    num_nodes: int
    directed: bool = False

    def look_up(self, u: Ids, v: Ids) -> Reals:
        """Return the values of pairs, 0 for pairs that are not linked; shapes broadcast."""
        low, high = (u, v) if self.directed else (np.minimum(u, v), np.maximum(u, v))
        wanted = low * self.num_nodes + high
        if not len(self.keys):
            return np.zeros(wanted.shape)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.values[at], 0.0)

    def degrees(self) -> Reals:
        """Return the sum of each node's values.  # [N]"""
        ends = np.concatenate(np.divmod(self.keys, max(1, self.num_nodes)))
        return np.bincount(ends, np.tile(self.values, 2), self.num_nodes).astype(np.float64)

    def sent_and_received(self) -> tuple[Reals, Reals]:
        """Return the sums of the values that each node sent and received; both are `degrees` without direction."""
        if not self.directed:
            return (degrees := self.degrees()), degrees
        u, v = np.divmod(self.keys, max(1, self.num_nodes))
        sent, received = (np.bincount(ends, self.values, self.num_nodes).astype(np.float64) for ends in (u, v))
        return sent, received

    def matrix(self) -> SparseMatrix:
        """Return both directions as compressed sparse rows.  # [N, N]"""
        integer = np.int32 if 2 * len(self.keys) < 2**31 else np.int64  # SciPy would convert them
        offsets, neighbours, links = rows_of_both_ends(self.keys, self.num_nodes, integer)
        return SparseMatrix(self.values[links], neighbours, offsets, (self.num_nodes,) * 2)


def decayed_links(
    snapshots: Sequence[Snapshot], decay: float, *, weighted: bool = True, directed: bool = False
) -> Links:
    """Return m_uv = Σ_k decay^(t−k) w_uv^k with t the last step, or the same with 1 for each weight.

    Pairs with the same history have the same sum to the last bit, whatever the order of the nodes. With `directed`,
    w_uv is what u sent to v.
    """
    past = past_arcs(snapshots) if directed else past_links(snapshots)
    sums = _decayed_sums(past, len(snapshots), snapshots[-1].num_nodes, decay, weighted)
    return sums._replace(directed=directed)


def decayed_links_by_step(snapshots: Sequence[Snapshot], decay: float) -> Iterator[Links]:
    """Yield `decayed_links` of the first snapshot, of the first two, and so on; each snapshot is read once."""
    u, v, weights, steps = past_links(snapshots)
    for step, snapshot in enumerate(snapshots):
        stop = int(np.searchsorted(steps, step, side="right"))
        links = u[:stop], v[:stop], weights[:stop], steps[:stop]
        yield _decayed_sums(links, step + 1, snapshot.num_nodes, decay, True)


def _decayed_sums(links: PastLinks, num_snapshots: int, num_nodes: int, decay: float, weighted: bool) -> Links:
    factors = np.array([decay**age for age in reversed(range(num_snapshots))])  # 0⁰ is 1: the last snapshot counts
    u, v, weights, steps = links
    if not factors.all():
        counts = factors[steps] > 0
        u, v, weights, steps = u[counts], v[counts], weights[counts], steps[counts]
    all_keys = u * num_nodes + v
    keys = distinct(all_keys)
    terms = factors[steps] * weights if weighted else factors[steps]
    sums = np.bincount(np.searchsorted(keys, all_keys)[::-1], terms[::-1], len(keys))  # the newest first
    return Links(keys, sums.astype(np.float64), num_nodes)


def rows_of_both_ends(keys: Ids, num_nodes: int, integer: type[np.signedinteger[Any]]) -> tuple[Ids, Ids, Ids]:
    """Return links u < v, given as sorted u · N + v, as CSR with both ends.  # [E] → [N + 1], [2E], [2E]

    The result is offsets, neighbours in rising order, and for each entry the index of its link.
    """
    if (call := native()) is not None:
        offsets, (neighbours, links) = np.empty(num_nodes + 1, np.int64), np.empty((2, 2 * len(keys)), integer)
        name = "both_ends_narrow" if integer is np.int32 else "both_ends"
        call(name, *map(torch.from_numpy, (keys, offsets, neighbours, links)), len(keys), num_nodes)
        return offsets, neighbours, links
    from scipy.sparse import csr_array

    low, high = np.divmod(keys, max(1, num_nodes))
    starts = np.searchsorted(low, np.arange(num_nodes + 1))
    upper = csr_array((np.arange(len(keys), dtype=integer), high, starts), shape=(num_nodes,) * 2)
    lower = upper.tocsc()  # for each node, its links to smaller nodes
    count = np.stack([np.diff(lower.indptr), np.diff(starts)], axis=1)  # the smaller neighbours of a node come first
    offsets = np.concatenate([[0], np.cumsum(count.sum(axis=1))])
    is_upper = np.repeat(np.tile([False, True], num_nodes), count.ravel())
    neighbours, links = np.empty((2, len(is_upper)), dtype=integer)
    neighbours[~is_upper], links[~is_upper] = lower.indices, lower.data
    neighbours[is_upper], links[is_upper] = high, np.arange(len(keys))
    return offsets, neighbours, links


def recurrence(snapshots: Snapshots) -> Reals:
    """Return the weight of each window for the next one, by time of day and by time of week.  # [periods, T]"""
    weights: Reals = np.einsum("pbt,b->pt", overlaps(snapshots), np.power(PERIOD_DECAY, np.arange(MAX_PERIODS)))
    return weights


def windows_like_next(snapshots: Snapshots) -> list[int]:
    """Return the steps whose windows share at least half with the next one, moved back by 1 to 3 days or weeks."""
    return np.flatnonzero((overlaps(snapshots)[:, :TRAINING_PERIODS] >= MIN_OVERLAP).any(axis=(0, 1))).tolist()


def overlaps(snapshots: Snapshots) -> Reals:
    """Return the overlap of each window with the next one, moved back by 1, 2, … days or weeks.  # [periods, back, T]

    The overlap is a fraction of the wider of the two windows. The next window begins where the last one ends and has
    the same width. Windows wider than half a period have no rhythm of that period, and numbered steps have none at all.
    """
    now = snapshots[-1].stop
    starts, stops = (np.array([getattr(s, end) - now for s in snapshots]) for end in ("start", "stop"))
    width = -starts[-1]
    fractions = np.zeros((len(PERIODS), MAX_PERIODS, len(snapshots)))
    for period, part in zip(PERIODS, fractions, strict=True):
        if 0 < 2 * width <= period:
            begin = -period * np.arange(1, MAX_PERIODS + 1)[:, None]
            both = np.minimum(begin + width, stops) - np.maximum(begin, starts)
            part[:] = np.maximum(both, 0) / np.maximum(width, stops - starts)
    return fractions
