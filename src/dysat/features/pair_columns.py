"""More that the past says of a pair: rhythm, shares, standing among all nodes, normalised paths, time of day."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.features.eigenvectors import scaled_by_degree
from dysat.features.link_memory import Snapshots, past_links
from dysat.features.pair_history import FACTORS, Met, PairHistory, in_parts, low_and_high, pair_history
from dysat.features.rhythm import recurrence
from dysat.system.compiled import native

Reals = NDArray[np.float64]
Ids = NDArray[np.int64]
PATHS = (0.6, 1.0)  # what a snapshot counts less than the one after it, in normalised paths
SHARES = (0.0, 0.6, 1.0)  # the same, in shares and standings
TINY = 1e-12  # a sum of weights that is none
UNIFORM = 2_000  # pairs that features are compared with
EARLIER = 3  # snapshots whose links are counted one by one


def standing(values: Reals, ordered: NDArray[np.float32]) -> Reals:
    """What part of a column's ordered values is smaller, half of the equal ones counted.  # [B, F], [B', F] → [B, F]

    Values count as `coarse` has them, and so must the others be.
    """
    if not len(ordered):
        return np.full(values.shape, 0.5)
    own, others = (torch.from_numpy(np.ascontiguousarray(part.T)) for part in (coarse(values), ordered))
    if (call := native()) is not None:
        found = torch.empty(values.shape, dtype=torch.float64)
        call("standings", own, others, found, *own.shape, len(ordered))
        return found.numpy()
    below = torch.searchsorted(others, own) + torch.searchsorted(others, own, right=True)
    return np.ascontiguousarray((below.double() / (2 * len(ordered))).numpy().T)


def coarse(values: Reals) -> NDArray[np.float32]:
    """Values that are the same when they were added up in another order."""
    return np.round(values, 9).astype(np.float32)


def pair_columns(snapshots: Snapshots, pairs: Ids, far: bool) -> Reals:
    """All features of pairs u ≤ v but their kinds, from these snapshots alone.  # [B, 2] → [B, F]"""
    more = more_history(snapshots)
    found = []
    for part in in_parts(pairs):
        met = more.base.meet(part)
        found.append(np.column_stack(more.base.columns(part, far, met) + more.columns(part, far, met)))
    return np.concatenate(found)


# A step is scored in parts, and the next model learns from it again.
@lru_cache(maxsize=4)
def uniform_columns(snapshots: Snapshots, far: bool) -> NDArray[np.float32]:
    """Those of uniform pairs of nodes, each column by itself in order: what `standing` compares with.  # [B', F]"""
    n = snapshots[-1].num_nodes
    if n * (n - 1) // 2 <= UNIFORM:
        pairs = np.stack(np.triu_indices(n, 1), axis=1)
    else:
        drawn = np.random.default_rng([n, len(snapshots)]).integers(0, n, (UNIFORM, 2))
        pairs = np.sort(drawn[drawn[:, 0] != drawn[:, 1]], axis=1)
    return np.sort(coarse(pair_columns(snapshots, pairs, far)), axis=0)


@dataclass(frozen=True, eq=False)
class MoreHistory:
    """Sums beside those of a `PairHistory`.

    Shapes:
        nodes [k, N]: values of each node; times and first [E]: in how many snapshots a pair was linked, and the first
        of them; normalized [paths, E]: weights divided by the root of both degrees; same [2 · periods, E]: weights and
        links of windows at the next one's time of day, and of the week, as log(1 + x).
    """

    base: PairHistory
    nodes: Reals
    times: Reals
    first: Ids
    normalized: Reals
    same: Reals

    def columns(self, pairs: Ids, far: bool, met: Met) -> list[Reals]:
        """More features of pairs u ≤ v whose two-step paths are known, with three-step paths if `far`.  # [B, 2]"""
        base = self.base
        found = base.find(pairs)
        columns: list[Reals] = []
        for values in self.nodes:
            columns += low_and_high(values, pairs)
        times = np.append(self.times, 0.0)[found]
        first, last = (np.append(steps, base.now)[found] for steps in (self.first, base.last))
        gap = (last - first) / np.maximum(times - 1, 1)
        columns += [np.log1p(times), base.now - first, gap, (base.now - last) - gap]
        columns += self._shares(pairs, found)
        columns += [np.append(values, 0.0)[found] for values in self.same]
        for values in self.normalized:
            columns.append(self._two_steps(len(pairs), met, values))
            if far:
                columns.append(self._three_steps(pairs, values) if values.any() else np.zeros(len(pairs)))
        columns.append(self._overlap(pairs, met))
        for values, vectors in base.spectra[1:]:
            products = (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).astype(np.float64)
            columns.append(products @ values**3)
        return columns

    def _shares(self, pairs: Ids, found: Ids) -> list[Reals]:
        """What part of either node's decayed weight lies on the pair."""
        columns: list[Reals] = []
        for factor in SHARES:
            f = FACTORS.index(factor)
            weight = np.expm1(np.append(self.base.weights[f], 0.0)[found])
            total = np.expm1(self.base.strengths[f])[pairs]
            share = np.divide(weight[:, None], total, out=np.zeros(total.shape), where=total > 0)
            columns += [share.min(axis=1), share.max(axis=1)]
        return columns

    def _two_steps(self, number: int, met: Met, values: Reals) -> Reals:
        """log(1 + N Σ_z a_uz a_zv): what one in N would be counts as 1.  # [E] → [B]"""
        which, _, one, two = met
        return np.log1p(self.base.num_nodes * np.bincount(which, values[one] * values[two], minlength=number))

    def _overlap(self, pairs: Ids, met: Met) -> Reals:
        """Common partners among all partners of either."""
        common = np.bincount(met[0], minlength=len(pairs))
        count = np.diff(self.base.offsets)[pairs].sum(axis=1)
        overlap: Reals = common / np.maximum(count - common, 1)
        return overlap

    def _three_steps(self, pairs: Ids, values: Reals) -> Reals:
        """log(1 + N Σ_zy a_uz a_zy a_yv).  # [B, 2], [E] → [B]"""
        values = values[self.base.slots]
        paths: Reals = np.expm1(self.base.three_steps(pairs, values, values))
        scaled: Reals = np.log1p(self.base.num_nodes * paths)
        return scaled


@lru_cache(maxsize=2)
def more_history(snapshots: Snapshots) -> MoreHistory:
    """Those sums, from the snapshots up to a step."""
    base = pair_history(snapshots, True)
    u, v, weights, steps = past_links(snapshots)
    weights = np.maximum(weights, 0.0)
    which = np.searchsorted(base.keys, u * base.num_nodes + v)
    times = np.bincount(which, minlength=len(base.keys)).astype(np.float64)
    first = np.full(len(base.keys), base.now)
    np.minimum.at(first, which, steps)
    nodes = _of_nodes(base, np.concatenate([u, v]), np.concatenate([steps, steps]), first)
    counts = recurrence(snapshots)[:, steps]  # [periods, ΣE]
    sums = np.array([np.bincount(which, count, len(base.keys)) for count in (*(counts * weights), *counts)])
    same = np.log1p(sums)
    nodes = np.concatenate([nodes, np.log1p([base.matrix(values[base.slots]).sum(axis=1) for values in sums])])
    paths = [*(base.weights[FACTORS.index(factor)] for factor in PATHS), *same[: len(counts)]]
    normalized = np.zeros((len(paths), len(base.keys)))
    for values, path in zip(normalized, paths, strict=True):
        if path.any():
            values[base.slots] = scaled_by_degree(base.matrix(path[base.slots])).data
    return MoreHistory(base, nodes, times, first, normalized, same)


def _of_nodes(base: PairHistory, ends: Ids, steps: Ids, first: Ids) -> Reals:
    """What is known of each node, from both ends of all links and their steps.  # [2ΣE], [2ΣE], [E] → [k, N]

    In how many snapshots it had links, and in what part since it came; partners; the part of its links that were not
    the first; partners new in the last snapshot; how active its partners are, by weight and by number; links in each
    of the snapshots before the last; its standing among all nodes.
    """
    n, now, f = base.num_nodes, base.now, FACTORS.index(0.6)
    active = np.bincount(np.unique(steps * n + ends) % n, minlength=n)
    links, partners = np.bincount(ends, minlength=n), np.diff(base.offsets)
    new = base.keys[first == now]
    fresh = np.bincount(np.concatenate([new // n, new % n]), minlength=n)
    recent = base.matrix(np.expm1(base.weights[f])[base.slots])
    ever = base.matrix(np.ones(len(base.slots)))
    nodes = [np.log1p(active), active / (now - base.first + 1), np.log1p(partners)]
    nodes += [1 - partners / np.maximum(links, 1), np.log1p(fresh)]
    nodes.append((recent @ base.strengths[f]) / np.maximum(np.asarray(recent.sum(axis=1)), TINY))
    nodes.append((ever @ base.degrees[f]) / np.maximum(partners, 1))
    nodes += [np.log1p(np.bincount(ends[steps == now - k], minlength=n)) for k in range(1, EARLIER)]
    degrees = base.degrees[[FACTORS.index(factor) for factor in SHARES]].T
    nodes += list(standing(degrees, np.sort(coarse(degrees), axis=0)).T)
    return np.array(nodes)
