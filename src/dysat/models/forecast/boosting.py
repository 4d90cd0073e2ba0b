"""Histogram-based boosted trees, grown level by level.

Every fit learns a pair score, and importing scikit-learn alone takes longer than growing these trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.features.rounding import rounded
from dysat.nn.trees import Trees
from dysat.system.compiled import TREE_THREADS, native
from dysat.system.parallel.process import in_threads

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
BINS = 64
BIN_ROWS = 20_000  # rows from which the bin edges are computed
COLUMNS_AT_ONCE = 8  # that one thread orders
SAME_GAIN = 1 + 2.0**-30  # a gain that is larger by less is the same: rounding must not decide which split is chosen
MIN_CURVATURE = 2.0  # minimum sum of p (1 − p) on either side of a split
UNLABELLED = 2  # label of a row that counts in pairs alone; others have 0 or 1
TINY = 2.0**-40  # smaller gains count as none
EXACT_BITS = 52  # of a float64, that sums of slopes need


def boosted_trees(x: Reals, y: NDArray[np.bool_], **options: Any) -> Trees:
    """Grow the trees of `tree_grower` at once."""
    return tree_grower(x, y, **options)()


def tree_grower(
    x: Reals,
    y: NDArray[np.bool_],
    *,
    rounds: int = 120,
    depth: int = 6,
    learning_rate: float = 0.1,
    l2: float = 30.0,
    tree_features: float = 0.5,
    seed: int,
    order: Ids | None = None,
    order_weight: float = 1.0,
) -> Callable[[], Trees]:
    """Return a function that grows trees whose sum is the log-odds of y, and no longer needs x.  # [B, F], [≤ B]

    y must contain both classes.

    `order` names pairs of rows (a, b) of which a should have the larger sum: each adds `order_weight` · log(1 + exp(b −
    a)) to the loss. Rows beyond the length of y have no label and count in such pairs alone.  # [P, 2]

    Every tree has `depth` levels and chooses its splits among random features, a fraction `tree_features` of those that
    are not constant. The same input and seed give the same trees on any number of threads.
    """
    rows = len(x)
    labels = np.full(rows, UNLABELLED, dtype=np.uint8)
    labels[: len(y)] = y
    pairs = _Pairs.of(np.empty((0, 2), dtype=np.int64) if order is None else order, rows)
    edges = _bin_edges(x)
    bins = _binned(x, edges)

    def grow() -> Trees:
        rng, varying = np.random.default_rng(seed), np.flatnonzero(edges[:, 0] < np.inf)
        number = math.ceil(tree_features * len(varying))
        trees, baseline = rounds if number else 0, math.log(y.sum() / (~y).sum())
        choices = np.empty((trees, number), dtype=np.int64)
        for chosen in choices:
            chosen[:] = rng.choice(varying, number, replace=False)
        growing = _Growing(bins, labels, pairs, order_weight, l2, learning_rate, np.full(rows, baseline))
        split, cut, leaves = growing.trees(choices, depth)
        size = (trees, 2 ** (depth + 1) - 1)
        feature, threshold, value = np.zeros(size, np.int64), np.full(size, np.inf), np.zeros(size)
        inner = 2**depth - 1
        feature[:, :inner], threshold[:, :inner], value[:, inner:] = split, edges[split, cut], leaves
        own = np.arange(size[1])
        left, right = (np.tile(np.where(own < inner, 2 * own + side, own), (trees, 1)) for side in (1, 2))
        tables = {"feature": feature, "threshold": threshold, "left": left, "right": right, "value": value}
        parts = {name: torch.from_numpy(table) for name, table in tables.items()}
        return Trees(**parts, baseline=torch.tensor(baseline, dtype=torch.float64))

    return grow


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of rows of which the first should have the larger sum.

    Shapes:
        above, below [P]: rows; offsets [B + 1] and entries [2P]: for each row, those it should be above, then B + those
        it should be below
    """

    above: Ids
    below: Ids
    offsets: Ids
    entries: Ids

    @classmethod
    def of(cls, order: Ids, number: int) -> _Pairs:
        above, below = order.T
        rows, others = np.concatenate([above, below]), np.concatenate([below, number + above])
        by_row = np.argsort(rows, kind="stable")
        offsets = np.searchsorted(rows[by_row], np.arange(number + 1))
        return cls(above, below, offsets, others[by_row])


@dataclass(frozen=True, eq=False)
class _Growing:
    """What trees are grown from; each is chosen by slope and curvature of the loss, and added to the scores.

    Shapes: bins [F, B], labels, raw [B]
    """

    bins: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    pairs: _Pairs
    order_weight: float
    l2: float
    rate: float
    raw: Reals

    def trees(self, choices: Ids, depth: int) -> tuple[Ids, Ids, Reals]:
        """Grow trees of `depth` levels that choose among these features.

        Returns features and cuts of the splits, and the values of the leaves. A cut is the last bin on the left; it is
        the last of all if no split gains.

        Shapes: [R, K] → 2 × [R, 2^depth − 1], [R, 2^depth]
        """
        (trees, number), rows = choices.shape, len(self.raw)
        feature, cut = np.empty((2, trees, 2**depth - 1), dtype=np.int64)
        leaves = np.empty((trees, 2**depth))
        if (call := native()) is not None:
            sums, own = (np.empty((some, 2 ** (depth - 1), number, BINS, 2)) for some in (2, TREE_THREADS))
            space = np.empty((rows, 2)), sums, own, *np.empty((2, rows), dtype=np.int32)
            arrays = (self.bins, choices, self.labels, self.pairs.offsets, self.pairs.entries, *space)
            sizes, rates = (rows, number, BINS, depth, trees), (self.l2, MIN_CURVATURE, TINY, SAME_GAIN)
            arrays += (self.raw, feature, cut, leaves)
            call("grow_trees", *map(torch.from_numpy, arrays), *sizes, *rates, self.rate, self.order_weight, self.fine)
            return feature, cut, leaves
        for r in range(trees):
            leaves[r] = self._tree(choices[r], depth, feature[r], cut[r])
        return feature, cut, leaves

    @property
    def fine(self) -> float:
        """Slopes and curvatures are multiples of its inverse, so that all their sums are exact in float64."""
        most = len(self.raw) + 2 * self.order_weight * len(self.pairs.above)
        return 2.0 ** (EXACT_BITS - math.ceil(math.log2(most)))

    def _tree(self, features: Ids, depth: int, feature: Ids, cut: Ids) -> Reals:
        """Grow one tree, and write its splits; returns its leaves.  # [K]"""
        both, leaf = self._derivatives(), np.zeros(len(self.raw), dtype=np.int64)
        for level in range(depth):
            here = slice(2**level - 1, 2 ** (level + 1) - 1)
            which, cut[here] = _best_splits(_histograms(self.bins, features, leaf, both, 2**level), self.l2)
            feature[here] = features[which]
            leaf = 2 * leaf + (self.bins[feature[here][leaf], np.arange(len(leaf))] > cut[here][leaf])
        total, weight = (np.bincount(leaf, values, minlength=2**depth) for values in both.T)
        leaves: Reals = -self.rate * total / np.maximum(weight + self.l2, TINY)  # an empty leaf has the value 0
        self.raw[:] += leaves[leaf]
        return leaves

    def _derivatives(self) -> Reals:
        """Return slope and curvature of the loss.  # [B, 2]"""
        both, chance = np.zeros((len(self.raw), 2)), 1 / (1 + np.exp(-self.raw))
        above, below = self.pairs.above, self.pairs.below
        wrong = 1 / (1 + np.exp(self.raw[above] - self.raw[below]))  # probability of the other order
        known = self.labels != UNLABELLED
        both[known, 0], both[known, 1] = chance[known] - self.labels[known], (chance * (1 - chance))[known]
        push = self.order_weight * wrong
        for rows, sign in ((above, -1), (below, 1)):
            np.add.at(both[:, 0], rows, sign * push)
            np.add.at(both[:, 1], rows, push * (1 - wrong))
        multiples: Reals = np.rint(both * self.fine) / self.fine
        return multiples


def _binned(x: Reals, edges: Reals) -> NDArray[np.uint8]:
    """Return the bins of all features.  # [B, F], [F, BINS] → [F, B]"""
    bins = np.empty(x.shape[::-1], dtype=np.uint8)
    if (call := native()) is not None:
        call("bin_rows", *map(torch.from_numpy, (x, edges, bins)), *x.shape, BINS)
        return bins
    for cuts, column, found in zip(edges, x.T, bins, strict=True):
        found[:] = np.searchsorted(cuts, column)
    return bins


def _bin_edges(x: Reals) -> Reals:
    """Return edges between rounded values of each column: half at equal ranks, half among distinct values.

    There are at most BINS − 1 of a column; the rest are infinite.

    Shapes: [B, F] → [F, BINS]
    """
    some = x[:: -(-len(x) // BIN_ROWS)]
    edges, ordered = np.full((x.shape[1], BINS), np.inf), np.empty(some.shape[::-1])

    def order(first: int) -> None:
        part = slice(first, first + COLUMNS_AT_ONCE)
        ordered[part] = rounded(some[:, part].T)
        ordered[part].sort(axis=1)

    list(in_threads(order, range(0, x.shape[1], COLUMNS_AT_ONCE)))
    if (call := native()) is not None:
        call("bin_edges", torch.from_numpy(ordered), torch.from_numpy(edges), *ordered.shape, BINS)
        return edges
    half = np.arange(BINS // 2)
    for column, found in zip(ordered, edges, strict=True):
        values = column[np.flatnonzero(np.diff(column, prepend=-np.inf))]
        below = np.searchsorted(values, column[half[1:] * len(column) // (BINS // 2)])
        below = np.unique(np.concatenate([below, (2 * half + 1) * len(values) // BINS]))
        below = below[below < len(values) - 1]
        found[: len(below)] = (values[below] + values[below + 1]) / 2
    return edges


def _histograms(bins: NDArray[np.uint8], choices: Ids, leaf: Ids, both: Reals, n: int) -> Reals:
    """Return sums of slope and curvature over the rows of each leaf, feature and bin.  # [n, K, BINS, 2]"""
    sums = np.zeros((n, len(choices), BINS, 2))
    for k, f in enumerate(choices):
        at = leaf * BINS + bins[f]
        for which, values in enumerate(both.T):
            sums[:, k, :, which] = np.bincount(at, values, minlength=n * BINS).reshape(n, BINS)
    return sums


def _best_splits(sums: Reals, l2: float) -> tuple[Ids, Ids]:
    """Return feature and last left bin of the best split of each leaf; the last bin if no split gains.  # [n], [n]"""
    slope, curvature = np.moveaxis(sums.cumsum(axis=2), 3, 0)  # [n, K, BINS], of the left side
    whole, weight = slope[:, :, -1:], curvature[:, :, -1:]
    slope_right, curvature_right = whole - slope, weight - curvature
    with np.errstate(divide="ignore", invalid="ignore"):  # an empty side, which is not chosen
        gain = slope**2 / (curvature + l2) + slope_right**2 / (curvature_right + l2) - whole**2 / (weight + l2)
    gain[(curvature < MIN_CURVATURE) | (curvature_right < MIN_CURVATURE)] = 0.0
    best = np.array([_first_of_the_largest(row) for row in gain.reshape(len(gain), -1)])
    return np.where(best < 0, 0, best // BINS), np.where(best < 0, BINS - 1, best % BINS)


def _first_of_the_largest(gains: Reals) -> int:
    """Return the place of the largest gain; −1 without any, and the first of those that are the same.  # [K · BINS]"""
    found, largest = -1, TINY
    for place in np.flatnonzero(np.diff(np.maximum.accumulate(gains), prepend=-np.inf)).tolist():
        if gains[place] > largest * SAME_GAIN:
            found, largest = place, gains[place]
    return found
