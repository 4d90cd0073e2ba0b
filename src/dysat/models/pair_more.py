"""More that the past says of a pair: rhythm of contacts, shares, standing among all nodes, normalised paths."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dysat.models.pair_features import (
    AT_ONCE,
    FACTORS,
    PairHistory,
    Snapshots,
    _links,
    _low_and_high,
    _normalized,
    expand,
    pair_history,
)

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
PATHS = (0.6, 1.0)  # what a snapshot counts less than the one after it, in normalised paths
EARLIER = 3  # snapshots whose links are counted one by one


def pair_columns(snapshots: Snapshots, pairs: Ids, far: bool) -> Reals:
    """All features of pairs u ≤ v but their kinds, from these snapshots alone.  # [B, 2] → [B, F]"""
    more = more_history(snapshots)
    parts = [pairs[i : i + AT_ONCE] for i in range(0, max(1, len(pairs)), AT_ONCE)]
    beside = np.concatenate([more.features(part, far) for part in parts])
    return np.concatenate([more.base.features(pairs, far), beside], axis=1)


@dataclass(frozen=True, eq=False)
class MoreHistory:
    """Sums beside those of a `PairHistory`.

    Shapes:
        nodes [k, N]: values of each node; times and first [E]: in how many snapshots a pair was linked, and the first
        of them; normalized [paths, 2E]: weights divided by the root of both degrees, in the order of the CSR.
    """

    base: PairHistory
    nodes: Reals
    times: Reals
    first: Ids
    normalized: Reals

    def features(self, pairs: Ids, far: bool) -> Reals:
        """More features of pairs u ≤ v, with three-step paths if `far`.  # [B, 2] → [B, F]"""
        base = self.base
        found = base._find(pairs)
        columns: list[Reals] = []
        for values in self.nodes:
            columns += _low_and_high(values, pairs)
        times = np.append(self.times, 0.0)[found]
        first, last = (np.append(steps, base.now)[found] for steps in (self.first, base.last))
        gap = (last - first) / np.maximum(times - 1, 1)
        columns += [np.log1p(times), base.now - first, gap, (base.now - last) - gap]
        columns += self._shares(pairs, found)
        for values in self.normalized:
            columns.append(self._two_steps(pairs, values))
            if far:
                columns.append(self._three_steps(pairs, values))
        columns.append(self._overlap(pairs))
        for values, vectors in base.spectra[1:]:
            products = (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).astype(np.float64)
            columns.append(products @ values**3)
        return np.column_stack(columns)

    def _shares(self, pairs: Ids, found: Ids) -> list[Reals]:
        """What part of either node's decayed weight lies on the pair."""
        columns: list[Reals] = []
        for factor in (0.0, 0.6, 1.0):
            f = FACTORS.index(factor)
            weight = np.expm1(np.append(self.base.weights[f], 0.0)[found])
            total = np.expm1(self.base.strengths[f])[pairs]
            share = np.divide(weight[:, None], total, out=np.zeros(total.shape), where=total > 0)
            columns += [share.min(axis=1), share.max(axis=1)]
        return columns

    def _met(self, pairs: Ids) -> tuple[Ids, Ids, Ids]:
        """All two-step paths: which pair, and the entries of the CSR of both links."""
        base = self.base
        count = np.diff(base.offsets)
        fewer = np.argmin(count[pairs], axis=1)
        here, there = np.take_along_axis(pairs, np.stack([fewer, 1 - fewer], axis=1), axis=1).T
        which, entries = expand(base.offsets, here)
        slots = base._find(np.sort(np.stack([base.neighbours[entries], there[which]], axis=1), axis=1))
        hit = slots < len(base.keys)
        return which[hit], base.slots[entries[hit]], slots[hit]

    def _two_steps(self, pairs: Ids, values: Reals) -> Reals:
        which, one, two = self._met(pairs)
        return np.log1p(self.base.num_nodes * np.bincount(which, values[one] * values[two], minlength=len(pairs)))

    def _overlap(self, pairs: Ids) -> Reals:
        """Common partners among all partners of either."""
        which, _, _ = self._met(pairs)
        common = np.bincount(which, minlength=len(pairs))
        count = np.diff(self.base.offsets)[pairs].sum(axis=1)
        overlap: Reals = common / np.maximum(count - common, 1)
        return overlap

    def _three_steps(self, pairs: Ids, values: Reals) -> Reals:
        values = values[self.base.slots]
        paths: Reals = np.expm1(self.base._three_steps(pairs, values, values))
        scaled: Reals = np.log1p(self.base.num_nodes * paths)
        return scaled


@lru_cache(maxsize=2)
def more_history(snapshots: Snapshots) -> MoreHistory:
    """Those sums, from the snapshots up to a step."""
    base = pair_history(snapshots, True)
    n, now = base.num_nodes, base.now
    u, v, _, steps = _links(snapshots)
    which = np.searchsorted(base.keys, u * n + v)
    times = np.bincount(which, minlength=len(base.keys)).astype(np.float64)
    first = np.full(len(base.keys), now)
    np.minimum.at(first, which, steps)
    both = np.concatenate([u, v])
    at = np.concatenate([steps, steps])
    counts = np.zeros((now + 1, n))
    np.add.at(counts, (at, both), 1.0)
    total = counts.sum(0)
    active = (counts > 0).sum(0)
    partners = np.diff(base.offsets).astype(np.float64)
    new = np.concatenate([base.keys // n, base.keys % n])[np.concatenate([first, first]) == now]
    fresh = np.bincount(new, minlength=n).astype(np.float64)
    f = FACTORS.index(0.6)
    matrix = base._matrix(np.expm1(base.weights[f])[base.slots])
    theirs = (matrix @ base.strengths[f]) / np.maximum(np.asarray(matrix.sum(axis=1)), 1e-12)
    theirs1 = (base._matrix(np.ones(len(base.slots))) @ base.degrees[f]) / np.maximum(partners, 1)
    nodes = [np.log1p(active), active / (now - base.first + 1), np.log1p(partners)]
    nodes += [1 - partners / np.maximum(total, 1), np.log1p(fresh), theirs, theirs1]
    nodes += [np.log1p(counts[now - k]) if k <= now else np.zeros(n) for k in range(1, EARLIER)]
    nodes += [_standing(base.degrees[FACTORS.index(factor)]) for factor in (0.0, 0.6, 1.0)]
    normalized = []
    for factor in PATHS:
        scaled = _normalized(base._matrix(base.weights[FACTORS.index(factor)][base.slots])).data
        values = np.zeros(len(base.keys))
        values[base.slots] = scaled
        normalized.append(values)
    return MoreHistory(base, np.array(nodes), times, first, np.array(normalized))


def _standing(values: Reals) -> Reals:
    """The part of all nodes that have less, half of those that have as much counted.  # [N]"""
    order = np.sort(values)
    below, above = np.searchsorted(order, values, "left"), np.searchsorted(order, values, "right")
    standing: Reals = (below + above) / (2 * len(values))
    return standing
