"""What the past says of a pair of nodes: activity, earlier links, paths, low-rank scores, ages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.eigenvectors import Spectrum, leading, low_rank_scores, scaled_by_degree
from dysat.features.link_memory import Snapshots, links_among, past_links
from dysat.sampling.pairs import unlinked_pairs
from dysat.system.compiled import native

if TYPE_CHECKING:
    import scipy.sparse as sp

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Met = tuple[Ids, Ids, Ids, Ids]

FACTORS = (0.0, 0.3, 0.6, 0.9, 1.0)  # what a snapshot counts less than the one after it
TWO_STEP = (0.0, 0.6, 1.0)
LOW_RANK = (1.0,)  # 0.6 beside it takes as long again and gains boosting at most 0.15 of AUC on any of the four
MOST_NODES = 7_000  # for three-step paths, that reach nearly all nodes
DENSE = 1 << 22  # numbers in a dense part of the two-step paths
AT_ONCE = 1 << 14  # pairs whose paths are held at once


def pair_features(graph: DynamicGraph, step: int, pairs: Ids, *, low_rank: bool) -> Reals:
    """Features of pairs of nodes known at a step, from the snapshots up to it alone.  # [B, 2] → [B, F]

    Counts, weights and paths are logarithms log(1 + x). The order of the two nodes does not matter.
    """
    pairs = sorted_ends(pairs, graph.known[step])
    columns = pair_history(graph.snapshots[: step + 1], low_rank).features(pairs, _is_small(graph))
    return np.column_stack([columns, differ_in_kind(graph, pairs)])


def transition_examples(
    graph: DynamicGraph, transitions: int, *, low_rank: bool, seed: int
) -> tuple[Reals, NDArray[np.bool_]]:
    """Features before a transition t' → t' + 1 and whether a link came of it, of the last transitions.  # [B, F], [B]

    Positives are the links of t' + 1 between nodes known at t', negatives as many uniform pairs not linked then.
    """
    features, labels = [np.empty((0, 0))], [np.empty(0, dtype=bool)]
    for before in range(max(0, len(graph) - 1 - transitions), len(graph) - 1):
        pairs, linked, columns = _examples(graph.snapshots[: before + 2], low_rank, _is_small(graph), seed)
        features.append(np.column_stack([columns, differ_in_kind(graph, pairs)]))
        labels.append(linked)
    return np.concatenate(features[1:] or features), np.concatenate(labels)


# The models of an evaluation, one for each step, have most of their examples in common.
@lru_cache(maxsize=16)
def _examples(snapshots: Snapshots, low_rank: bool, far: bool, seed: int) -> tuple[Ids, NDArray[np.bool_], Reals]:
    """The examples of the last transition: pairs, labels, features.  # [B, 2], [B], [B, F]"""
    known = snapshots[-2].num_nodes
    links = links_among(snapshots[-1], known)
    others = unlinked_pairs(known, links, len(links), np.random.default_rng([seed, len(snapshots)]))
    pairs = np.concatenate([links, others])
    columns = pair_history(snapshots[:-1], low_rank).features(pairs, far)
    return pairs, np.arange(len(pairs)) < len(links), columns


@dataclass(frozen=True, eq=False)
class PairHistory:
    """All that features are looked up in: links of t snapshots, each pair once, and sums over them.

    Shapes:
        keys [E]: u · N + v with u < v, in order; weights [factors, E] and last [E], the step of a pair's latest link;
        strengths and degrees [factors, N], decayed sums of weights and counts of links; first and active [N], the
        steps a node came and was last linked; offsets [N + 1], neighbours and slots [2E]: all links as CSR, with
        indices into keys; spectra: eigenvalues [k] and eigenvectors [N, k]. Sums are log(1 + x) of them.
    """

    now: int
    keys: Ids
    weights: Reals
    last: Ids
    strengths: Reals
    degrees: Reals
    first: Ids
    active: Ids
    offsets: Ids
    neighbours: Ids
    slots: Ids
    spectra: tuple[Spectrum, ...]

    @property
    def num_nodes(self) -> int:
        return len(self.first)

    def features(self, pairs: Ids, far: bool) -> Reals:
        """Features of pairs u ≤ v, with three-step paths if `far`.  # [B, 2] → [B, F]"""
        return np.concatenate([np.column_stack(self.columns(part, far, self.meet(part))) for part in in_parts(pairs)])

    def columns(self, pairs: Ids, far: bool, met: Met) -> list[Reals]:
        """Those of pairs that are few enough, whose two-step paths are known."""
        found = self.find(pairs)
        columns: list[Reals] = []
        for values in (*self.strengths, *self.degrees, self.now - self.first, self.now - self.active):
            columns += low_and_high(values, pairs)
        columns += [np.append(weights, 0.0)[found] for weights in self.weights]
        columns.append(np.append(self.now - self.last, self.now + 1)[found])
        columns += self._two_steps(len(pairs), met)
        if far:
            damped = self.weights[-1][self.slots] * self._damping(-1)[self.neighbours]
            columns.append(self.three_steps(pairs, damped, self.weights[-1][self.slots]))
        for values, vectors in self.spectra:
            scores, norms = low_rank_scores(values, vectors, pairs)
            columns += scores + low_and_high(norms, pairs)
        return columns

    def find(self, pairs: Ids) -> Ids:
        """Where pairs u ≤ v stand among the keys; those never linked after the last.  # [B, 2] → [B]"""
        wanted = pairs[:, 0] * self.num_nodes + pairs[:, 1]
        at = np.searchsorted(self.keys, wanted)
        found = np.append(self.keys, -1)[at] == wanted
        return np.where(found, at, len(self.keys))

    def meet(self, pairs: Ids) -> Met:
        """All two-step paths between both ends of pairs: which pair, the middle node, and where both links stand."""
        count = np.diff(self.offsets)
        fewer = np.argmin(count[pairs], axis=1)  # the end with fewer neighbours, whose are looked up at the other
        here, there = np.take_along_axis(pairs, np.stack([fewer, 1 - fewer], axis=1), axis=1).T
        which, entries = expand(self.offsets, here)
        middle = self.neighbours[entries]
        slots = self.find(np.sort(np.stack([middle, there[which]], axis=1), axis=1))
        hit = slots < len(self.keys)
        return which[hit], middle[hit], self.slots[entries[hit]], slots[hit]

    def _two_steps(self, number: int, met: Met) -> list[Reals]:
        """Σ_z a_uz a_zv / log(2 + degree of z), for each factor.  # factors × [B]"""
        which, middle, one, two = met
        sums = []
        for factor in TWO_STEP:
            f = FACTORS.index(factor)
            terms = self.weights[f, one] * self.weights[f, two] * self._damping(f)[middle]
            sums.append(np.log1p(np.bincount(which, terms, minlength=number)))
        return sums

    def three_steps(self, pairs: Ids, values: Reals, last: Reals) -> Reals:
        """Σ_zy b_uz b_zy a_yv of matrices b and a with these entries in the CSR.  # [B, 2], [2E], [2E] → [B]

        With all of the past alike and b_uz = a_uz / log(2 + degree of z): both middle nodes divided.
        """
        order = np.argsort(pairs[:, 0], kind="stable")
        nodes, starts = np.unique(pairs[order, 0], return_index=True)
        ends = pairs[order, 1]
        found = np.empty(len(pairs))
        found[order] = np.log1p(self._three_steps(nodes, np.append(starts, len(order)), ends, values, last))
        return found

    def _three_steps(self, nodes: Ids, starts: Ids, ends: Ids, values: Reals, last: Reals) -> Reals:
        """Those sums for pairs in order of their first nodes, whose second ends begin at `starts`.  # [B]"""
        sums, n = np.zeros(len(ends)), self.num_nodes
        if (call := native()) is not None:
            given = (self.offsets, self.neighbours, values, last, nodes, starts, ends, sums)
            call("three_steps", *map(torch.from_numpy, given), len(nodes), n)
            return sums
        matrix = self.matrix(values)
        for first in range(0, len(nodes), max(1, DENSE // max(1, n))):
            part = slice(first, first + max(1, DENSE // n))
            paths = (matrix[nodes[part]] @ matrix).toarray()  # [b, N]
            begin, stop = starts[first], starts[min(part.stop, len(nodes))]
            which, entries = expand(self.offsets, ends[begin:stop])
            row = np.repeat(np.arange(len(paths)), np.diff(starts[first : part.stop + 1]))[which]
            terms = paths[row, self.neighbours[entries]] * last[entries]
            sums[begin:stop] = np.bincount(which, terms, minlength=stop - begin)
        return sums

    def _damping(self, factor: int) -> Reals:
        damping: Reals = 1 / np.log(2 + np.expm1(self.degrees[factor]))
        return damping

    def matrix(self, values: Reals) -> sp.csr_array[np.float64]:
        from scipy.sparse import csr_array

        return csr_array((values, self.neighbours, self.offsets), shape=(self.num_nodes,) * 2)


# Two, because a model is asked about the step that the next one learns from.
@lru_cache(maxsize=2)
def pair_history(snapshots: Snapshots, low_rank: bool) -> PairHistory:
    """What the features of a step are looked up in, from the snapshots up to it; self-loops are left out."""
    n, now = snapshots[-1].num_nodes, len(snapshots) - 1
    u, v, weights, steps = past_links(snapshots)
    weights = np.maximum(weights, 0.0)
    keys, which = np.unique(u * n + v, return_inverse=True)
    low, high = keys // n, keys % n
    age = now - steps
    last = np.full(len(keys), -1)
    np.maximum.at(last, which, steps)
    known = [snapshot.num_nodes for snapshot in snapshots]
    first = np.searchsorted(known, np.arange(n), side="right")
    active = first - 1  # before it came, for those that only ever linked to themselves
    np.maximum.at(active, np.concatenate([u, v]), np.concatenate([steps, steps]))
    order = np.lexsort((np.concatenate([high, low]), np.concatenate([low, high])))
    slots = np.concatenate([np.arange(len(keys))] * 2)[order]
    offsets = np.searchsorted(np.concatenate([low, high])[order], np.arange(n + 1))
    sums, strengths, degrees = [], [], []
    for factor in FACTORS:
        decay = np.power(factor, age, dtype=np.float64)  # 0⁰ = 1
        sums.append(np.bincount(which, decay * weights, minlength=len(keys)))
        strengths.append(_at_both_ends(u, v, decay * weights, n))
        degrees.append(_at_both_ends(u, v, decay, n))
    history = PairHistory(
        now=now,
        keys=keys,
        weights=np.log1p(sums),
        last=last,
        strengths=np.log1p(strengths),
        degrees=np.log1p(degrees),
        first=first,
        active=active,
        offsets=offsets,
        neighbours=np.concatenate([high, low])[order],
        slots=slots,
        spectra=(),
    )
    if not low_rank:
        return history
    spectra = []
    for factor in LOW_RANK:
        matrix = history.matrix(history.weights[FACTORS.index(factor)][slots])
        spectra += [leading(matrix), leading(scaled_by_degree(matrix))]
    return PairHistory(**{**vars(history), "spectra": tuple(spectra)})


def sorted_ends(pairs: NDArray[Any], known: int) -> Ids:
    """Pairs as u ≤ v, both of them known nodes.  # [B, 2]"""
    ends = np.sort(pairs.astype(np.int64), axis=1)
    if len(ends) and not (ends[:, 0].min() >= 0 and ends[:, 1].max() < known):
        raise ModelError(f"nodes {ends[:, 0].min()} to {ends[:, 1].max()}, where 0 to {known - 1} are known")
    return ends


def in_parts(pairs: Ids) -> list[Ids]:
    """Pairs, few enough at a time; one part without any where there are none."""
    return [pairs[i : i + AT_ONCE] for i in range(0, max(1, len(pairs)), AT_ONCE)]


def _at_both_ends(u: Ids, v: Ids, values: Reals, num_nodes: int) -> Reals:
    sums = np.bincount(u, values, minlength=num_nodes) + np.bincount(v, values, minlength=num_nodes)
    return sums.astype(np.float64)


def low_and_high(values: NDArray[Any], pairs: Ids) -> list[Reals]:
    """The smaller and the larger of the two nodes' values."""
    one, two = values[pairs[:, 0]], values[pairs[:, 1]]
    return [np.minimum(one, two), np.maximum(one, two)]


def were_linked(snapshots: Snapshots, pairs: Ids) -> NDArray[np.bool_]:
    """Whether pairs u ≤ v were ever linked.  # [B, 2] → [B]"""
    history = pair_history(snapshots, True)
    linked: NDArray[np.bool_] = history.find(pairs) < len(history.keys)
    return linked


def expand(offsets: Ids, rows: Ids) -> tuple[Ids, Ids]:
    """All entries of some rows of a CSR: which of the rows, and where."""
    count = np.diff(offsets)[rows]
    which = np.repeat(np.arange(len(rows)), count)
    within = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    return which, offsets[rows][which] + within


def _is_small(graph: DynamicGraph) -> bool:
    """Whether there are three-step paths: at all steps of a graph, or at none, so that all features mean the same."""
    return graph.num_nodes < MOST_NODES


def differ_in_kind(graph: DynamicGraph, pairs: Ids) -> Reals:
    """1 where nodes of two kinds meet, or where there are no kinds."""
    if graph.kinds is None:
        return np.ones(len(pairs))
    kinds = graph.kinds[pairs]
    return np.where(kinds[:, 0] != kinds[:, 1], 1.0, 0.0)
