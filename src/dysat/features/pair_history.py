"""Features of node pairs from the past: activity, earlier links, paths, low-rank scores, rhythm.

`pair_history` returns the `PairHistory` of a step. Its `features` are read from sums over all links up to that step;
its `ranks` compare them with the features of random pairs. In a directed graph a pair (u, v) means u → v: it has the
features of the pair without direction, and those of `pair_direction`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from copy import copy
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features import facts
from dysat.features.eigenvectors import (
    BASIS,
    BLOCK_NODES,
    Spectrum,
    degree_scale,
    leading_eigenvectors,
    num_eigenvectors,
    scaled_by_degree,
)
from dysat.features.facts import Column, columns_of, stacked
from dysat.features.link_memory import Snapshots, recurrence, rows_of_both_ends
from dysat.features.longer_paths import LongerPaths
from dysat.features.lookup import (
    Ends,
    TwoStepPaths,
    add_at,
    at_links,
    expand,
    in_order,
    low_and_high,
    taken,
)
from dysat.features.matrix import SparseMatrix, row_sums, times
from dysat.features.node_ranges import NodeRange, NodeRanges
from dysat.features.pair_direction import DirectedPaths, PairDirection
from dysat.features.pair_times import PairTimes
from dysat.features.positions import norms_of, position_columns
from dysat.features.rounding import fractional_ranks, narrow
from dysat.system.parallel.matrices import on_gpu
from dysat.system.parallel.process import CORES_EACH, in_threads, meanwhile

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]

DECAYS = (0.0, 0.3, 0.6, 0.9, 1.0)  # weight of a snapshot relative to the one after it
TWO_STEP_DECAYS = (0.0, 0.6, 1.0)
SHARE_DECAYS = (0.0, 0.6, 1.0)  # of shares, and of the ranks of nodes
PATH_DECAYS = (0.6, 1.0)  # of degree-normalised paths
SPECTRUM_DECAYS = (1.0,)  # adding 0.6 doubles the time and gains boosting at most 0.15 of AUC on any of the four
CHUNK = 1 << 13  # pairs whose paths are held in memory at once
SMALL_SPECTRUM = 50_000  # nodes; with more, all cores or a GPU find the eigenvectors
UNIFORM_PAIRS = 2_000  # random pairs that features are compared with
RECENT_SNAPSHOTS = 3  # snapshots whose links are counted separately
LINKS_AT_ONCE = 1 << 18  # of which one thread computes a value
WIDE_LINKS = 4_000_000  # links of larger graphs are kept in 32 bits each, to save memory
# Memory at the peak, rounded up from four made-up logs of 5 and 10 million events, with and without times.
BYTES_PER_LINK, BYTES_PER_NODE = 100, 600  # per link of a snapshot, and per node without eigenvectors
TINY = 1e-12  # avoids a division by zero
# Columns of `features` that rank pairs on their own: `_basic_columns` has them in this order.
_NODES = 2 * len(DECAYS)  # columns of strengths, and of degrees
PLAIN_COLUMNS = {
    "degrees": tuple(_NODES + 2 * DECAYS.index(0.9) + end for end in (0, 1)),
    "memory of the link": (2 * _NODES + 4 + DECAYS.index(0.9),),
    "common neighbours": (2 * _NODES + 4 + len(DECAYS) + 1 + TWO_STEP_DECAYS.index(0.6),),
}


# Two, because a model scores the step that the next model of an evaluation learns from.
@lru_cache(maxsize=2)
def pair_history(snapshots: Snapshots, three_step: bool, kinds: bytes | None = None) -> PairHistory:
    """Return the history of the last of these snapshots, with three-step paths or without; kinds are a byte a node."""
    forget_large(snapshots)
    return PairHistory(snapshots, three_step, kinds)


def forget_large(snapshots: Snapshots) -> None:
    """Free what is kept if there may not be enough memory for another history as large as that of these snapshots."""
    if sum(snapshot.num_links for snapshot in snapshots) > WIDE_LINKS:
        pair_history.cache_clear()


def history_bytes(snapshots: Snapshots) -> int:
    """Return about how much memory the history of these snapshots takes at its peak."""
    links, nodes = sum(snapshot.num_links for snapshot in snapshots), snapshots[-1].num_nodes
    basis = 0 if on_gpu() else 4 * BASIS  # of the search for eigenvectors
    return (
        BYTES_PER_LINK * (1 if links > WIDE_LINKS else 2) * links
        + (BYTES_PER_NODE + (8 + basis) * num_eigenvectors(nodes)) * nodes
    )


def history_of(graph: DynamicGraph, step: int, three_step: bool) -> PairHistory:
    """Return the history of a graph up to a step."""
    return pair_history(graph.snapshots[: step + 1], three_step, kinds_at(graph, step))


def kinds_at(graph: DynamicGraph, step: int) -> bytes | None:
    """Return the kinds of the nodes known at a step; None if nodes have none."""
    return None if graph.kinds is None else graph.kinds[: graph.known[step]].tobytes()


def chunks(rows: Ids) -> list[Ids]:
    """Split rows into chunks that fit in memory; no rows are one empty chunk."""
    return [rows[i : i + CHUNK] for i in range(0, max(1, len(rows)), CHUNK)]


class Begun(NamedTuple):
    """Features of a chunk of pairs, but for those that need eigenvectors.

    Shapes: linked_before [B]; columns of [B]
    """

    ends: Ends
    linked_before: Bools
    basic: list[Column]
    extended: list[Column]
    others: list[Column]


class ExtendedSums(NamedTuple):
    """Sums behind the extended features.

    Shapes:
        node_values [k, N], with the facts of all k; num_links and first_link [E]: number of snapshots in which a pair
        is linked, and the first of them; normalized, one [E] per path: weights divided by the root of both degrees;
        same_time, two [E] per period: weights and counts of links in windows at the next window's time of day and
        week, as log(1 + x)
    """

    node_values: Reals
    node_facts: tuple[str, ...]
    num_links: Ids
    first_link: Ids
    normalized: list[Reals]
    same_time: list[Reals]


class PairHistory:
    """All links up to a step, each pair once, and the sums that pair features are read from; no self-loops.

    All sums x are stored as log(1 + x). What not every caller needs is computed on first use. Features that both nodes
    of a pair have are ordered by the kinds of the nodes, if they have two, and otherwise by size.

    Shapes:
        keys [E]: u · N + v with u < v, sorted; weights [decays, E]; last_link [E]: step of a pair's latest link;
        strengths and degrees [decays, N]: sums of weights and counts of links; first_seen and last_active [N]: steps;
        offsets [N + 1], neighbours and entry_links [2E]: all links as CSR, with indices into keys
    """

    def __init__(self, snapshots: Snapshots, three_step: bool, kinds: bytes | None = None) -> None:
        self.snapshots, self.three_step, self.steady = snapshots, three_step, True
        self.kinds = None if kinds is None else np.frombuffer(kinds, dtype=np.uint8)
        self.now = len(snapshots) - 1
        self.num_nodes = n = snapshots[-1].num_nodes
        self.ranges = NodeRanges(snapshots)
        self.keys = self.ranges.keys
        self._narrow = len(self.keys) > WIDE_LINKS and not three_step
        self.last_link = np.zeros(len(self.keys), dtype=self._integer)
        known = [snapshot.num_nodes for snapshot in snapshots]
        self.first_seen = np.searchsorted(known, np.arange(n), side="right")
        self.last_active = self.first_seen - 1  # one step before a node is known, if it is never linked to another
        self.weights: Reals = np.zeros((len(DECAYS), len(self.keys)), dtype=self._real)
        self.strengths, self.degrees = np.zeros((2, len(DECAYS), n))
        self.ranges.add(self._add_decayed)
        self.damping: Reals = 1 / np.log(2 + np.expm1(self.degrees))  # of paths through a node
        self.offsets, self.neighbours, self.entry_links = rows_of_both_ends(self.keys, n, self._integer)
        self.num_neighbours: Ids = np.diff(self.offsets)

    def _add_decayed(self, part: NodeRange) -> None:
        """Add up weights and numbers of links, with each decay, and find the last step of each link and node."""
        factors = np.power(np.array(DECAYS)[:, None], self.now - np.arange(len(self.snapshots)))  # 0⁰ = 1
        for entries, once, which in part.entries():
            weights, steps = entries.weights[once], entries.steps[once]
            self.last_link[part.links][which] = steps  # in order of the steps, so the last of a pair stays
            for row, factor in zip(self.weights, factors, strict=True):
                add_at(row[part.links], which, factor[steps] * weights)
            rows = entries.rows()
            nodes, steps, counts = entries.at_rows(rows)
            weights = np.add.reduceat(entries.weights, rows)
            self.last_active[nodes] = np.maximum(self.last_active[nodes], steps)  # likewise
            for strengths, degrees, factor in zip(self.strengths, self.degrees, factors, strict=True):
                add_at(strengths, nodes, factor[steps] * weights)
                add_at(degrees, nodes, factor[steps] * counts)
        for totals, place in ((self.weights, part.links), (self.strengths, part.nodes), (self.degrees, part.nodes)):
            np.log1p(totals[:, place], out=totals[:, place])

    @property
    def _integer(self) -> type[np.signedinteger[Any]]:
        return np.int32 if self._narrow else np.int64

    @property
    def _real(self) -> type[np.floating[Any]]:
        return np.float32 if self._narrow else np.float64

    def features(self, pairs: Ids) -> tuple[Reals, Bools]:
        """Return the features of a chunk of pairs u ≤ v, and whether each was linked before.  # [B, 2] → [B, F], [B]

        In a directed graph pairs are u → v, in any order, and "before" means that u has sent to v.
        """
        return self.finished(self.begun(pairs))

    def begun(self, pairs: Ids) -> Begun:
        """Compute the features that need no eigenvectors."""
        ordered = self._sorted(pairs)
        links, paths = self.find(ordered), self.two_step_paths(ordered)
        before = links < len(self.keys) if self.direction is None else self.direction.linked(pairs, links)
        three_steps, ends = self._longer_paths.sums(ordered), Ends.of(ordered, self.kinds)
        basic = self._basic_columns(ends, links, paths, three_steps[:1])
        extended = self._extended_columns(ends, links, paths, three_steps[1:])
        others = self._ordered_columns(pairs, links, paths)
        if self.times is not None:
            others += self.times.columns(ends, links, paths, self.damping[-1])
        return Begun(ends, before, basic, extended, others)

    def finished(self, begun: Begun) -> tuple[Reals, Bools]:
        """Add the others, and return what `features` returns."""
        return stacked(self._columns(begun), len(begun.linked_before)), begun.linked_before

    def begun_in_parts(self, pairs: Ids) -> list[Begun]:
        """Begin with the features of any number of pairs, and of the uniform pairs.  # [B, 2]"""
        uniform: list[Callable[[], Begun]] = [lambda: self.begun_uniform]
        tasks = uniform + [partial(self.begun, part) for part in chunks(pairs)]
        return list(in_threads(lambda task: task(), tasks))[1:]

    def finished_parts(self, parts: Sequence[Begun]) -> tuple[Reals, Reals, Bools]:
        """Return the features of all these pairs, their ranks, and whether each was linked before.

        Shapes: [B, F], [B, F], [B]
        """
        stops = np.cumsum([len(part.linked_before) for part in parts])
        features, found_ranks = np.empty((2, stops[-1], len(self.column_facts)))
        _ = self.uniform_features

        def fill(number: int) -> None:
            rows = slice(stops[number] - len(parts[number].linked_before), stops[number])
            features[rows], _ = self.finished(parts[number])
            found_ranks[rows] = self.ranks(features[rows])

        list(in_threads(fill, range(len(parts))))
        return features, found_ranks, np.concatenate([part.linked_before for part in parts])

    @cached_property
    def column_facts(self) -> tuple[str, ...]:
        """The fact that each feature belongs to.  # F"""
        return tuple(fact for fact, _ in self._columns(self.begun(np.empty((0, 2), dtype=np.int64))))

    def _columns(self, begun: Begun) -> list[Column]:
        positions, cubes = position_columns(self.spectra, self.norms, begun.ends, steady=self.steady)
        return [*begun.basic, *positions, *begun.extended, *cubes, *begun.others]

    def basic_features(self, pairs: Ids, *, low_rank: bool) -> Reals:
        """Return the first of these features alone, without the order of kinds, for any number of pairs.

        Shapes: [B, 2] → [B, F']
        """

        def of_part(part: Ids) -> Reals:
            ends = Ends(self._sorted(part))
            links, paths = self.find(ends.pairs), self.two_step_paths(ends.pairs)
            columns = self._basic_columns(ends, links, paths, self._basic_paths.sums(ends.pairs))
            if low_rank:
                columns += position_columns(self.spectra, self.norms, ends, steady=False)[0]
            return stacked(columns + self._ordered_columns(part, links, paths), len(part))

        self.prepare(low_rank=low_rank, extended=False)
        _ = self._basic_paths
        return np.concatenate(list(in_threads(of_part, chunks(pairs))))

    def prepare(self, *, low_rank: bool = True, extended: bool = True) -> None:
        """Compute what is shared by all pairs, so that features can be read by several threads."""
        _ = self.direction
        if low_rank:
            self._find_positions()
        if extended:
            _ = self.extended, self.times, self._longer_paths

    def _find_positions(self) -> None:
        _ = self.spectra, self.norms

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Prepare everything; eigenvectors are ready at the end, or at the beginning if they need all cores."""
        if torch.get_num_threads() == 1 or not (self._one_core_each or on_gpu()):
            self.prepare()
            yield
            return
        with meanwhile(partial(copy_context().run, self._find_positions)):
            self.prepare(low_rank=False)
            yield

    def prepared(self, *, steady: bool = True, by_kind: bool = True) -> PairHistory:
        """Prepare everything, and return this, or with features as earlier versions had them.

        Without `steady` they have noise, and without `by_kind` they are in no order of kinds.
        """
        self.prepare()
        if steady and (by_kind or self.kinds is None):
            return self
        earlier = copy(self)  # shares what was computed
        for name in ("begun_uniform", "uniform_features"):
            vars(earlier).pop(name, None)
        earlier.steady, earlier.kinds = steady, self.kinds if by_kind else None
        return earlier

    @cached_property
    def direction(self) -> PairDirection | None:
        """What is known of ordered pairs; None without direction."""
        return PairDirection(self.snapshots, self.keys) if self.snapshots[-1].directed else None

    @property
    def past_keys(self) -> Ids:
        """Return u · N + v of all pairs linked before, sorted: links u < v, or arcs u → v.  # [E]"""
        return self.keys if self.direction is None else self.direction.arc_keys

    def _sorted(self, pairs: Ids) -> Ids:
        """Return pairs as u ≤ v.  # [B, 2]"""
        return pairs if self.direction is None else np.sort(pairs, axis=1)

    def _ordered_columns(self, pairs: Ids, links: Ids, paths: TwoStepPaths) -> list[Column]:
        if self.direction is None:
            return []
        return self.direction.columns(pairs, links, self.directed_paths(pairs, paths))

    def directed_paths(self, pairs: Ids, paths: TwoStepPaths) -> DirectedPaths:
        """Return the two-step paths of ordered pairs, with the link of each end."""
        first = paths.first  # a path starts at either end
        starts = self.keys[first] // self.num_nodes + self.keys[first] % self.num_nodes - paths.middle
        at_u = starts == pairs[paths.pair, 0]
        u_link, v_link = np.where(at_u, first, paths.second), np.where(at_u, paths.second, first)
        return DirectedPaths(paths.pair, paths.middle, u_link, v_link)

    def ranks(self, features: Reals) -> Reals:
        """Return the rank of each feature among random pairs of the same step, in [0, 1].  # [B, F] → [B, F]"""
        return fractional_ranks(features, self.uniform_features)

    @cached_property
    def uniform_features(self) -> NDArray[np.float32]:
        """Features of uniformly drawn pairs, rounded; each column is sorted by itself.  # [B', F]"""
        return np.sort(narrow(self.finished(self.begun_uniform)[0]), axis=0)

    @cached_property
    def begun_uniform(self) -> Begun:
        """The same features without those that need eigenvectors."""
        return self.begun(self.uniform_pairs)

    @cached_property
    def uniform_pairs(self) -> Ids:
        """Uniformly drawn pairs of different nodes; all of them if they are few.  # [B', 2]"""
        n = self.num_nodes
        if n * (n - 1) // 2 <= UNIFORM_PAIRS:
            pairs = np.stack(np.triu_indices(n, 1), axis=1)
            return pairs if self.direction is None else np.concatenate([pairs, pairs[:, ::-1]])
        drawn = np.random.default_rng([n, len(self.snapshots)]).integers(0, n, (UNIFORM_PAIRS, 2))
        pairs = drawn[drawn[:, 0] != drawn[:, 1]]
        return np.sort(pairs, axis=1) if self.direction is None else pairs

    def find(self, pairs: Ids) -> Ids:
        """Return the indices of pairs u ≤ v into `keys`, E for pairs that were never linked.  # [B, 2] → [B]"""
        wanted = pairs[:, 0] * self.num_nodes + pairs[:, 1]
        at = np.searchsorted(self.keys, wanted)
        found = at < len(self.keys)
        found[found] = self.keys[at[found]] == wanted[found]
        return np.where(found, at, len(self.keys))

    def two_step_paths(self, pairs: Ids) -> TwoStepPaths:
        """Return all two-step paths between the ends of pairs."""
        fewer = np.argmin(self.num_neighbours[pairs], axis=1)  # start at the end with fewer neighbours
        start, end = np.take_along_axis(pairs, np.stack([fewer, 1 - fewer], axis=1), axis=1).T
        pair, entries = expand(self.offsets, start)
        middle = self.neighbours[entries]
        second = self.find(np.sort(np.stack([middle, end[pair]], axis=1), axis=1))
        linked = second < len(self.keys)
        return TwoStepPaths(pair[linked], middle[linked], self.entry_links[entries[linked]], second[linked])

    # ---- basic features ----

    def _basic_columns(self, ends: Ends, links: Ids, paths: TwoStepPaths, three_steps: Reals) -> list[Column]:
        columns: list[Column] = []
        for values in (*self.strengths, *self.degrees):
            columns += columns_of(facts.ACTIVITY, low_and_high(values, ends))
        columns += columns_of(facts.TIME_KNOWN, low_and_high(self.now - self.first_seen, ends))
        columns += columns_of(facts.LAST_ACTIVE, low_and_high(self.now - self.last_active, ends))
        columns += columns_of(facts.PAST_LINKS, [at_links(weights, links) for weights in self.weights])
        columns.append((facts.LAST_CONTACT, self.now - at_links(self.last_link, links, -1)))
        for decay in TWO_STEP_DECAYS:  # Σ_z a_uz a_zv / log(2 + degree of z)
            f = DECAYS.index(decay)
            terms = self.weights[f, paths.first] * self.weights[f, paths.second] * self.damping[f, paths.middle]
            sums = np.log1p(np.bincount(paths.pair, terms, minlength=len(links)))
            columns.append((facts.COMMON_NEIGHBOURS, sums))
        columns += columns_of(facts.LONGER_PATHS, np.log1p(three_steps))
        return columns

    @cached_property
    def spectra(self) -> tuple[Spectrum, ...]:
        """Leading eigenvalues [k] and eigenvectors [N, k] of the weights, as they are and scaled by degree."""

        def eigenvectors(part: tuple[float, bool]) -> Spectrum:
            decay, scaled = part
            matrix = self.symmetric(self.weights[DECAYS.index(decay)])
            if scaled:
                matrix = scaled_by_degree(matrix)  # frees the other one
            return leading_eigenvectors(matrix)

        parts = [(decay, scaled) for decay in SPECTRUM_DECAYS for scaled in (False, True)]
        return tuple((in_threads if self._one_core_each else map)(eigenvectors, parts))

    @property
    def _one_core_each(self) -> bool:
        """Whether a core computes each spectrum: that of a small graph takes less time than a GPU to load libraries."""
        few_cores = on_gpu() and torch.get_num_threads() < CORES_EACH
        return BLOCK_NODES < self.num_nodes <= SMALL_SPECTRUM and not few_cores

    @cached_property
    def norms(self) -> list[Reals]:
        """Norms of √σ x of each node, for each of `spectra`.  # [N] each"""
        return norms_of(self.spectra, self.num_nodes)

    @cached_property
    def _basic_paths(self) -> LongerPaths:
        return self._paths(extended=False)

    @cached_property
    def _longer_paths(self) -> LongerPaths:
        return self._paths(extended=True)

    def _paths(self, *, extended: bool) -> LongerPaths:
        """Three-step paths with b_uz = a_uz / log(2 + degree of z), so that both middle nodes are damped.

        With `extended`, also those of the normalized weights, which are not damped.
        """
        links = self.offsets, self.neighbours
        if not self.three_step:
            return LongerPaths.of(*links, [])
        weights = taken(self.weights[-1], self.entry_links)
        others = [taken(values, self.entry_links) for values in self.extended.normalized] if extended else []
        every = [(weights * self.damping[-1][self.neighbours], weights), *zip(others, others, strict=True)]
        return LongerPaths.of(*links, every)

    def matrix(self, entries: Reals) -> SparseMatrix:
        """Return a symmetric matrix with these CSR entries.  # [2E] → [N, N]"""
        return SparseMatrix(entries, self.neighbours, self.offsets, (self.num_nodes,) * 2)

    def symmetric(self, values: NDArray[Any]) -> SparseMatrix:
        """Return the matrix of these values of links, in both directions.  # [E] → [N, N]"""
        return self.matrix(taken(values, self.entry_links))

    # ---- extended features ----

    def _extended_columns(self, ends: Ends, links: Ids, paths: TwoStepPaths, three_steps: Reals) -> list[Column]:
        n, sums = self.num_nodes, self.extended
        columns: list[Column] = []
        for fact, values in zip(sums.node_facts, sums.node_values, strict=True):
            columns += columns_of(fact, low_and_high(values, ends))
        num_links = at_links(sums.num_links, links)
        first, last = (at_links(steps, links, self.now) for steps in (sums.first_link, self.last_link))
        gap = (last - first) / np.maximum(num_links - 1, 1)  # mean number of steps between two links
        columns += columns_of(facts.PAST_LINKS, [np.log1p(num_links), self.now - first, gap])
        columns.append((facts.LAST_CONTACT, (self.now - last) - gap))
        columns += columns_of(facts.SHARES, self._shares(ends, links))
        columns += columns_of(facts.RHYTHM, [at_links(values, links) for values in sums.same_time])
        for number, values in enumerate(sums.normalized):  # times N: a product of 1 / N counts as 1
            by_age = number < len(PATH_DECAYS)
            two_steps = np.bincount(paths.pair, values[paths.first] * values[paths.second], minlength=len(links))
            columns.append((facts.COMMON_NEIGHBOURS if by_age else facts.RHYTHM, np.log1p(n * two_steps)))
            if self.three_step:
                columns.append((facts.LONGER_PATHS if by_age else facts.RHYTHM, np.log1p(n * three_steps[number])))
        common = np.bincount(paths.pair, minlength=len(links))  # common neighbours, relative to all neighbours of both
        fraction = common / np.maximum(self.num_neighbours[ends.pairs].sum(axis=1) - common, 1)
        columns.append((facts.COMMON_NEIGHBOURS, fraction))
        return columns

    def _shares(self, ends: Ends, links: Ids) -> list[Reals]:
        """Return the fraction of either node's decayed weight that lies on the pair."""
        columns: list[Reals] = []
        for decay in SHARE_DECAYS:
            f = DECAYS.index(decay)
            weight = np.expm1(at_links(self.weights[f], links))
            total = np.expm1(self.strengths[f][ends.pairs])
            share = np.divide(weight[:, None], total, out=np.zeros(total.shape), where=total > 0)
            columns += in_order(share[:, 0], share[:, 1], ends)
        return columns

    @cached_property
    def extended(self) -> ExtendedSums:
        """The sums behind the extended features."""
        n, size = self.num_nodes, len(self.keys)
        num_links = np.zeros(size, dtype=self._integer)
        first_link = np.full(size, self.now, dtype=self._integer)
        at_step = np.zeros((RECENT_SNAPSHOTS, n), dtype=np.int64)  # links of a node in the latest steps
        links, active = np.zeros((2, n), dtype=np.int64)  # of a node: links, and snapshots with a link
        counts = recurrence(self.snapshots)  # [periods, T]
        rhythm = [period for period, row in enumerate(counts) if row.any()]  # some past window counts for the next one
        sums = {period: np.zeros((2, size)) for period in rhythm}

        def add(part: NodeRange) -> None:
            for entries, once, which in part.entries():
                weights, steps = entries.weights[once], entries.steps[once]
                add_at(num_links[part.links], which, np.ones(len(which)))
                first = first_link[part.links]
                first[which[::-1]] = np.minimum(first[which], steps)[::-1]  # of several steps the first stays
                for period, (summed, counted) in sums.items():
                    add_at(summed[part.links], which, counts[period][steps] * weights)
                    add_at(counted[part.links], which, counts[period][steps])
                rows = entries.rows()
                nodes, steps, numbers = (
                    entries.receivers[rows],
                    entries.steps[rows],
                    np.diff(rows, append=len(entries.steps)),
                )
                add_at(links, nodes, numbers)
                add_at(active, nodes, np.ones(len(nodes)))
                for age, row in enumerate(at_step):
                    latest = steps == self.now - age
                    row[nodes[latest]] = numbers[latest]

        self.ranges.add(add)
        none = np.broadcast_to(np.float64(0), size)  # without any memory
        ordered = [sums[period][row] if period in sums else none for row in (0, 1) for period in range(len(counts))]
        same_time = [none if values is none else np.log1p(values) for values in ordered]
        at_nodes = np.zeros((len(ordered), n))
        for number, values in enumerate(ordered):
            if values is not none:
                at_nodes[number] = row_sums(self.symmetric(values))
        paths = [*(self.weights[DECAYS.index(decay)] for decay in PATH_DECAYS), *same_time[: len(counts)]]
        normalized = [self._normalized(path) if path.any() else none for path in paths]
        own = self._node_values(links, active, at_step, first_link) + columns_of(facts.RHYTHM, np.log1p(at_nodes))
        node_facts, node_values = zip(*own, strict=True)
        return ExtendedSums(np.array(node_values), node_facts, num_links, first_link, normalized, same_time)

    def _normalized(self, values: Reals) -> Reals:
        """Return values of links divided by the root of both degrees.  # [E] → [E]"""
        scale, normalized = degree_scale(self.symmetric(values)), np.empty_like(values)

        def normalize(first: int) -> None:
            part = slice(first, first + LINKS_AT_ONCE)
            low, high = np.divmod(self.keys[part], max(1, self.num_nodes))
            normalized[part] = values[part] * scale[high] * scale[low]

        list(in_threads(normalize, range(0, len(values), LINKS_AT_ONCE)))
        return normalized

    def _node_values(self, links: Ids, active: Ids, at_step: Ids, first_link: Ids) -> list[Column]:
        """Return values of each node.  # [N], [N], [latest steps, N], [E] → k times [N]"""
        n, now, f, neighbours = self.num_nodes, self.now, DECAYS.index(0.6), self.num_neighbours
        new = self.keys[first_link == now]
        recent = self.symmetric(np.expm1(self.weights[f]))
        ever = self.matrix(np.broadcast_to(1.0, len(self.entry_links)))
        degrees = self.degrees[[DECAYS.index(decay) for decay in SHARE_DECAYS]].T
        partners = [
            np.log1p(neighbours),
            1 - neighbours / np.maximum(links, 1),  # fraction of links that repeat an earlier one
            np.log1p(np.bincount(np.concatenate([new // n, new % n]), minlength=n)),  # neighbours new in this step
        ]
        around = [
            times(recent, self.strengths[f]) / np.maximum(row_sums(recent), TINY),  # mean over neighbours
            times(ever, self.degrees[f]) / np.maximum(neighbours, 1),
        ]
        ranks = fractional_ranks(degrees, np.sort(narrow(degrees), axis=0)).T
        return [
            *columns_of(facts.REGULARITY, [np.log1p(active), active / (now - self.first_seen + 1)]),
            *columns_of(facts.PARTNERS, partners),
            *columns_of(facts.AROUND, around),
            *columns_of(facts.ACTIVITY, [*np.log1p(at_step[1:]), *ranks]),
        ]

    @cached_property
    def times(self) -> PairTimes | None:
        """What the times of events inside windows say; None if they are not known."""
        known = all(snapshot.timed for snapshot in self.snapshots)
        return PairTimes.of(self.ranges, self._real) if known else None


def sorted_ends(pairs: NDArray[Any], known: int, *, directed: bool = False) -> Ids:
    """Return pairs as u ≤ v, or as they are with direction; raise unless all nodes are below `known`.  # [B, 2]"""
    ends = pairs.astype(np.int64)
    if len(ends) and not (ends.min() >= 0 and ends.max() < known):
        raise ModelError(f"nodes {ends.min()} to {ends.max()}, where 0 to {known - 1} are known")
    return ends if directed else np.sort(ends, axis=1)
