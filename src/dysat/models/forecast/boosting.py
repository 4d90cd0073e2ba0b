"""Histogram-based boosted trees, grown level by level.

Every fit learns a pair score, and importing scikit-learn alone takes longer than growing these trees.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.nn.trees import Trees
from dysat.system.compiled import native
from dysat.system.parallel.process import in_threads

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
BINS = 64
BIN_ROWS = 20_000  # rows from which the bin edges are computed
MIN_CURVATURE = 2.0  # minimum sum of p (1 − p) on either side of a split
TINY = 2.0**-40  # smaller gains count as none


def boosted_trees(
    x: Reals,
    y: NDArray[np.bool_],
    *,
    rounds: int = 120,
    depth: int = 4,
    learning_rate: float = 0.1,
    l2: float = 10.0,
    split_features: float = 0.2,
    split_rows: float = 1.0,
    seed: int,
    order: Ids | None = None,
    order_weight: float = 1.0,
) -> Trees:
    """Grow trees whose sum is the log-odds of y, which must contain both classes.  # [B, F], [≤ B]

    `order` names pairs of rows (a, b) of which a should have the larger sum: each adds `order_weight` · log(1 + exp(b −
    a)) to the loss. Rows beyond the length of y have no label and count in such pairs alone.  # [P, 2]

    Every tree has `depth` levels and learns from a random fraction `split_rows` of all rows. All nodes of a level
    choose their split among the same random features, a fraction `split_features` of those that are not constant. The
    same input and seed give the same trees on any number of threads.
    """
    rng = np.random.default_rng(seed)
    used = math.ceil(split_rows * len(x))
    # Rows that follow each other in a random order are a random sample; the first row follows the last.
    place = rng.permutation(len(x)) if used < len(x) else np.arange(len(x))
    labelled, order = place[: len(y)], None if order is None else np.ascontiguousarray(place[order].T)
    edges, bins = list[Reals](), np.empty(x.shape[::-1], dtype=np.uint8)
    for column, (cuts, found) in zip(bins, in_threads(_binned, list(x.T)), strict=True):
        edges.append(cuts)
        column[place] = found
    varying = np.flatnonzero([len(cuts) > 0 for cuts in edges])
    number = math.ceil(split_features * len(varying))
    baseline = math.log(y.sum() / (~y).sum())
    raw = np.full(len(x), baseline)
    size = (rounds if number else 0, 2 ** (depth + 1) - 1)
    feature, threshold, value = np.zeros(size, np.int64), np.full(size, np.inf), np.zeros(size)
    at_cut = np.full((len(edges), BINS + 1), np.inf)  # the threshold of every feature and bin
    for row, cuts in zip(at_cut, edges, strict=True):
        row[: len(cuts)] = cuts
    for r in range(size[0]):
        both = _derivatives(raw, labelled, y, order, order_weight)
        choices = np.array([rng.choice(varying, number, replace=False) for _ in range(depth)])
        first = int(rng.integers(len(x))) if used < len(x) else 0
        both *= len(x) / used  # the sums are then those expected of all rows
        inner = slice(0, 2**depth - 1)
        leaf, feature[r, inner], cut = _grow(bins, choices, both, first, used, l2)
        threshold[r, inner] = at_cut[feature[r, inner], cut]
        rows = _sample(first, used, len(x))
        total, weight = (np.bincount(leaf[rows], v, minlength=2**depth) for v in both[rows].T)
        leaves = -learning_rate * total / np.maximum(weight + l2, TINY)  # an empty leaf has the value 0
        value[r, 2**depth - 1 :] = leaves
        raw += leaves[leaf]
    own = np.arange(size[1])
    inner = own < 2**depth - 1
    left, right = (np.tile(np.where(inner, 2 * own + side, own), (size[0], 1)) for side in (1, 2))
    tables = {"feature": feature, "threshold": threshold, "left": left, "right": right, "value": value}
    parts = {name: torch.from_numpy(table) for name, table in tables.items()}
    return Trees(**parts, baseline=torch.tensor(baseline, dtype=torch.float64))


def _sample(first: int, used: int, number: int) -> Ids:
    """Return rows that follow each other, where the first row follows the last.  # [used]"""
    return np.arange(first, first + used) % number


def _derivatives(raw: Reals, labelled: Ids, y: NDArray[np.bool_], order: Ids | None, order_weight: float) -> Reals:
    """Return slope and curvature of the loss at the scores of all rows.  # [B], [L], [L], [2, P] → [B, 2]"""
    both = np.zeros((len(raw), 2))
    chance = 1 / (1 + np.exp(-raw[labelled]))
    both[labelled, 0], both[labelled, 1] = chance - y, chance * (1 - chance)
    if order is not None:
        above, below = order
        wrong = 1 / (1 + np.exp(raw[above] - raw[below]))  # probability of the other order
        push, bend = order_weight * wrong, order_weight * wrong * (1 - wrong)
        for rows, sign in ((above, -1), (below, 1)):
            np.add.at(both[:, 0], rows, sign * push)
            np.add.at(both[:, 1], rows, bend)
    return both


def _binned(column: Reals) -> tuple[Reals, NDArray[np.uint8]]:
    """Return the edges of the bins of a column, and the bin of each value.  # [B] → [≤ BINS − 1], [B]"""
    column = np.ascontiguousarray(column)
    edges = _bin_edges(column)
    return edges, np.searchsorted(edges, column).astype(np.uint8)


def _bin_edges(column: Reals) -> Reals:
    """Return at most BINS − 1 edges between values of a column: half at equal ranks, half among distinct values."""
    ordered = np.sort(column[:: -(-len(column) // BIN_ROWS)])
    values = ordered[np.flatnonzero(np.diff(ordered, prepend=-np.inf))]
    half = np.arange(BINS // 2)
    below = np.searchsorted(values, ordered[half[1:] * len(ordered) // (BINS // 2)])
    below = np.unique(np.concatenate([below, (2 * half + 1) * len(values) // BINS]))
    below = below[below < len(values) - 1]
    edges: Reals = (values[below] + values[below + 1]) / 2
    return edges


def _grow(
    bins: NDArray[np.uint8], choices: Ids, both: Reals, first: int, used: int, l2: float
) -> tuple[NDArray[np.int32], Ids, Ids]:
    """Grow one tree whose levels choose among these features; returns the leaf of each row, and features and cuts.

    Splits are chosen by slope and curvature of `used` rows from `first` on. A cut is the last bin on the left; it is
    BINS if no split gains.

    Shapes: bins [F, B], choices [depth, K], slope and curvature [B, 2] → [B], [2^depth − 1], [2^depth − 1].
    """
    depth, number = choices.shape
    leaf = np.zeros(len(both), dtype=np.int32)
    feature, cut = np.empty((2, 2**depth - 1), dtype=np.int64)
    if (call := native()) is not None:
        sums = np.empty((2 ** (depth - 1), number, BINS, 2))
        arrays = (bins, choices, both, sums, leaf, feature, cut)
        sizes = (len(leaf), first, used, number, BINS, depth)
        call("grow_tree", *map(torch.from_numpy, arrays), *sizes, l2, MIN_CURVATURE, TINY)
        return leaf, feature, cut
    rows = _sample(first, used, len(leaf))
    for level in range(depth):
        here = slice(2**level - 1, 2 ** (level + 1) - 1)
        sums = _histograms(bins[:, rows], choices[level], leaf[rows], both[rows], 2**level)
        which, cut[here] = _best_splits(sums, l2)
        feature[here] = choices[level][which]
        leaf = 2 * leaf + (bins[feature[here][leaf], np.arange(len(leaf))] > cut[here][leaf])
    return leaf, feature, cut


def _histograms(bins: NDArray[np.uint8], choices: Ids, leaf: NDArray[np.int32], both: Reals, n: int) -> Reals:
    """Return sums of slope and curvature over the rows of each leaf, feature and bin.  # [n, K, BINS, 2]"""
    sums = np.zeros((n, len(choices), BINS, 2))
    for k, f in enumerate(choices):
        at = leaf.astype(np.int64) * BINS + bins[f]
        for which, values in enumerate(both.T):
            sums[:, k, :, which] = np.bincount(at, values, minlength=n * BINS).reshape(n, BINS)
    return sums


def _best_splits(sums: Reals, l2: float) -> tuple[Ids, Ids]:
    """Return feature and last left bin of the best split of each leaf; 0 and BINS if no split gains.  # [n], [n]"""
    slope, curvature = np.moveaxis(sums.cumsum(axis=2), 3, 0)  # [n, K, BINS], of the left side
    whole, weight = slope[:, :, -1:], curvature[:, :, -1:]
    slope_right, curvature_right = whole - slope, weight - curvature
    with np.errstate(divide="ignore", invalid="ignore"):  # an empty side, which is not chosen
        gain = slope**2 / (curvature + l2) + slope_right**2 / (curvature_right + l2) - whole**2 / (weight + l2)
    gain[(curvature < MIN_CURVATURE) | (curvature_right < MIN_CURVATURE)] = 0.0
    flat = gain.reshape(len(gain), -1)
    best = flat.argmax(axis=1)
    gains = np.take_along_axis(flat, best[:, None], axis=1)[:, 0]
    return np.where(gains > TINY, best // BINS, 0), np.where(gains > TINY, best % BINS, BINS)
