"""Log-odds of a link from the past of a pair, learned from past transitions and calibrated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.pair_history import chunks, differ_in_kind, pair_history, sorted_ends
from dysat.models.forecast.boosting import boosted_trees
from dysat.models.forecast.examples import (
    Examples,
    examples_of,
    random_halves,
    recent_transitions,
    same_time_transitions,
    training_transitions,
)
from dysat.nn.logistic import fit_logistic
from dysat.nn.trees import Trees
from dysat.system.process import few_blas_threads

Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
REPEAT_PENALTY = 0.45  # a larger one ranks better among pairs linked before, and worse among all pairs
EVEN_REPEATS = 100  # repeated links from which the recurring model counts as much as the score of all pairs
EVEN_LINKS = 4_000  # links from which the trees count as much as the logistic regression
L2 = 300.0, 30.0  # of both regressions, on standardised features: many features are nearly the same
MAX_DEVIATIONS = 10.0  # standard deviations; features far outside the training range are clamped
MIN_SLOPE = 0.1  # before the square root: one transition that contradicts all others must not reverse the order
THREE_STEP_NODES = 32_768  # graphs with fewer nodes have three-step paths among their features
# Stored names: do not change.
TREES = ("feature", "threshold", "left", "right", "value", "baseline")
LOGISTIC = ("means", "scales", "weights", "bias")
NUMBERS = ("tree_share", "recurring_share", "recurring_shift", "slope", "shift")  # in this order


@dataclass(frozen=True, eq=False)
class PairScore:
    """Log-odds of a link, slope · s + shift, where s = (1 − tree_share) · logistic regression + tree_share · trees.

    Both parts learn from the last transitions t → t + 1 of a graph: links of t + 1 between nodes known at t, against
    uniform pairs that are not linked in t + 1, all with their features at t. Few uniform pairs were linked before, so
    some dropped pairs (linked up to t, not in t + 1) are added as negatives. The regression also sees the rank of each
    feature among uniform pairs of the same step, which stays comparable as a graph grows. The more links there are,
    the larger is the share of the trees.

    A pair that was linked before has the score (1 − recurring_share) · s + recurring_share · r + recurring_shift. The
    recurring model r is a regression that learns only from pairs linked before which of them are linked again; its
    share grows with the number of repeated links. Adding dropped pairs lowers s by L, the logarithm of the factor by
    which they outnumber those among the uniform pairs. The shift gives back (1 − recurring_share) · L and subtracts
    `REPEAT_PENALTY` · L, because pairs linked before would otherwise rank above all new links.

    Slope and shift are fitted to the last transition, or to the latest one at the next window's time of day or week,
    as predicted by a score learned from earlier transitions. A probability of 0.8 then means that about four in five
    are linked in a balanced mix of links and uniform pairs. One transition is only a sample, so the calibration moves
    halfway.

    Shapes:
        means, scales [2F − 1], weights [2, 2F − 1], bias [2]: of both regressions, on features and ranks
    """

    means: Tensor
    scales: Tensor
    weights: Tensor
    bias: Tensor
    trees: Trees
    three_step: bool  # whether three-step paths are among the features
    tree_share: float
    recurring_share: float
    recurring_shift: float
    slope: float = 1.0
    shift: float = 0.0

    def log_odds(self, graph: DynamicGraph, step: int, pairs: Tensor) -> Tensor:
        """Return the log-odds of pairs known at a step, from the snapshots up to it, on the CPU.  # [B, 2] → [B]"""
        if not 0 <= step < len(graph):
            raise ModelError(f"step={step} of a graph with {len(graph)} snapshots")
        ends = sorted_ends(pairs.cpu().numpy(), graph.known[step], directed=graph.directed)
        order = np.argsort(ends[:, 0], kind="stable")  # paths from a node are then followed once per chunk
        scores = np.empty(len(ends))
        with few_blas_threads(graph.known[step]):
            history = pair_history(graph.snapshots[: step + 1], self.three_step)
            for rows in chunks(order):
                columns, linked_before = history.features(ends[rows])
                features = np.column_stack([columns, differ_in_kind(graph, ends[rows])])
                scores[rows] = self.raw(features, history.ranks(columns), linked_before)
        return torch.from_numpy(self.slope * scores + self.shift)

    def raw(self, features: Reals, ranks: Reals, linked_before: Bools) -> Reals:
        """Return scores that are not calibrated.  # [B, F], [B, F − 1], [B] → [B]"""
        columns = np.column_stack([features, ranks])
        if columns.shape[1] != len(self.means):
            counts = f"{len(self.means)} columns, and there are {columns.shape[1]} now"
            raise ModelError(f"the pair score was learned from {counts}; fit the model again")
        standard = ((torch.from_numpy(columns) - self.means) / self.scales).clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS)
        logistic, recurring = (standard @ self.weights.mT + self.bias).numpy().T
        score: Reals = (1 - self.tree_share) * logistic + self.tree_share * self.trees.sum(features)
        repeated = (1 - self.recurring_share) * score + self.recurring_share * recurring + self.recurring_shift
        return np.where(linked_before, repeated, score)

    @classmethod
    def learn(cls, graph: DynamicGraph, *, transitions: int = 6, negatives: int = 3, seed: int = 0) -> PairScore | None:
        """Learn from the last transitions of a graph; None if it has no link, or no pair without a link.

        The transitions are the last `transitions` with links, and older ones until there are `ENOUGH_LINKS`; if windows
        have a time of day or week, also those into windows at the next window's time, which count more. A graph without
        any transition learns from two random halves of its links.
        """
        for name, value in (("transitions", transitions), ("negatives", negatives)):
            if value < 1:
                raise ModelError(f"{name}={value} must be at least 1")
        three_step, snapshots = graph.num_nodes < THREE_STEP_NODES, graph.snapshots

        @cache
        def examples(target: int) -> Examples:
            return examples_of(graph, snapshots[: target + 1], three_step, negatives, seed)

        def learned(targets: Sequence[int]) -> PairScore:
            with few_blas_threads(graph.num_nodes):
                return _learn([examples(target) for target in targets], three_step, seed)

        recent = recent_transitions(snapshots, transitions)
        if not recent:
            with few_blas_threads(graph.num_nodes):
                halves = examples_of(graph, random_halves(graph.aggregate(), seed), three_step, negatives, seed)
                return _learn([halves], three_step, seed) if 0 < halves.num_links < halves.num_uniform else None
        same_time = same_time_transitions(snapshots)
        training = training_transitions(recent, same_time)
        score = learned(training)
        for target in (*same_time[-1:], recent[-1]):
            earlier = [step for step in training if step < target]
            if earlier := earlier or recent_transitions(snapshots[:target], transitions):
                return _calibrated(score, learned(earlier), examples(target))
        return score

    def tensors(self) -> dict[str, Tensor]:
        """Return everything learned as named tensors, for a file."""
        logistic = {name: getattr(self, name) for name in LOGISTIC}
        trees = {f"tree_{name}": getattr(self.trees, name) for name in TREES}
        numbers = torch.tensor([getattr(self, name) for name in NUMBERS], dtype=torch.float64)
        return {**logistic, **trees, "calibration": numbers, "far": torch.tensor(self.three_step)}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> PairScore:
        """Build a score from the tensors that `tensors` returned."""
        wanted = [*LOGISTIC, *(f"tree_{name}" for name in TREES), "calibration", "far"]
        missing = [name for name in wanted if name not in tensors]
        if missing:
            raise ModelError(f"the tensors do not fit a pair score: {missing[0]} is missing")
        shapes = {name: tuple(tensors[name].shape) for name in wanted}
        features, tables = shapes["means"], shapes["tree_feature"]
        expected = {"means": features, "scales": features, "weights": (2, *features), "bias": (2,)}
        expected |= {"calibration": (len(NUMBERS),), "far": ()}
        expected |= {f"tree_{name}": tables for name in TREES} | {"tree_baseline": ()}
        for name, shape in expected.items():
            if shapes[name] != shape or len(features) != 1 or len(tables) != 2:
                problem = f"{name} has shape {shapes[name]}"
                raise ModelError(f"the tensors do not fit a pair score: {problem}; fit the model again")
        numbers = dict(zip(NUMBERS, tensors["calibration"].tolist(), strict=True))
        trees = Trees(**{name: tensors[f"tree_{name}"] for name in TREES})
        parts: dict[str, Any] = {name: tensors[name] for name in LOGISTIC} | {"trees": trees} | numbers
        return cls(**parts, three_step=bool(tensors["far"]))


def _learn(past: Sequence[Examples], three_step: bool, seed: int) -> PairScore:
    """Learn all parts of a score, not calibrated."""
    labels = [examples.labels(examples.num_training) for examples in past]
    y, weights = (np.concatenate(part) for part in zip(*labels, strict=True))
    x = np.concatenate([each.features[: each.num_training] for each in past])
    ranks = np.concatenate([each.ranks[: each.num_training] for each in past])
    features = torch.from_numpy(np.column_stack([x, ranks]))
    means, deviation = features.mean(0), features.std(0, correction=0)
    scales = torch.where(deviation > 0, deviation, 1.0)
    logistic = fit_logistic(
        (features - means) / scales, torch.from_numpy(y), l2=L2[0], sample_weight=torch.from_numpy(weights)
    )
    recurring, repeats = _learn_recurring(past, means, scales)
    # The trees learn without weights: shift their odds to those of balanced classes.
    trees = boosted_trees(x, y, seed=seed)
    trees = replace(trees, baseline=trees.baseline + np.log((~y).sum() / y.sum()))
    links = int(y.sum())
    expected = max(1.0, sum(each.expected_dropped for each in past))
    lowered = math.log1p(sum(each.num_added for each in past) / expected)  # L
    recurring_share = repeats / (repeats + EVEN_REPEATS)
    return PairScore(
        means=means,
        scales=scales,
        weights=torch.stack([logistic[0], recurring[0]]),
        bias=torch.stack([logistic[1], recurring[1]]),
        trees=trees,
        three_step=three_step,
        tree_share=links / (links + EVEN_LINKS),
        recurring_share=recurring_share,
        recurring_shift=(1 - recurring_share - REPEAT_PENALTY) * lowered,
    )


def _learn_recurring(past: Sequence[Examples], means: Tensor, scales: Tensor) -> tuple[tuple[Tensor, Tensor], int]:
    """Return weights and bias of the recurring model, and the number of repeated links.

    The bias is shifted from the odds among pairs linked before to those in a balanced mix of links and uniform pairs.
    """
    parts = [each.recurring() for each in past]
    x, y = (torch.from_numpy(np.concatenate(part)) for part in zip(*parts, strict=True))
    standard = ((x - means) / scales).clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS)
    weights, bias = fit_logistic(standard, y, l2=L2[1])
    dropped, sampled = sum(each.num_dropped for each in past), int((~y).sum())
    unlinked, links = sum(each.num_unlinked for each in past), sum(each.num_links for each in past)
    shift = math.log(max(1, sampled) / max(1, dropped)) + math.log(max(1, unlinked) / max(1, links))
    return (weights, bias + shift), int(y.sum())


def _calibrated(score: PairScore, earlier: PairScore, last: Examples) -> PairScore:
    """Return a score moved halfway to the slope and shift that fit an earlier score to a later transition (Platt)."""
    rows = slice(last.num_uniform)
    earlier = replace(earlier, tree_share=score.tree_share)
    raw = earlier.raw(last.features[rows], last.ranks[rows], last.linked_before[rows])
    linked, weights = (torch.from_numpy(part) for part in last.labels(last.num_uniform))
    slope, shift = fit_logistic(torch.from_numpy(raw).unsqueeze(1), linked, sample_weight=weights)
    return replace(score, slope=math.sqrt(max(MIN_SLOPE, float(slope))), shift=float(shift) / 2)
