"""Log-odds of a link from what the past says of a pair, learned from past transitions and calibrated."""

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
from dysat.features.pair_columns import pair_columns, standing, uniform_columns
from dysat.features.pair_history import differ_in_kind, in_parts, sorted_ends, were_linked
from dysat.models.forecast.boosting import boosted_trees
from dysat.models.forecast.examples import Examples, examples_of, halves, recent_transitions, same_time, teaching
from dysat.nn.logistic import fit_logistic
from dysat.nn.trees import Trees
from dysat.system.process import few_blas_threads

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
HELD_DOWN = 0.45  # of what these cost pairs that were linked: nothing for ranks among any pairs, more among such
FEW = 100  # links that came again, from which that regression counts as much as the score of any pairs
L2 = 300.0, 30.0  # of both regressions, on standardised features: many of them say nearly the same
FURTHEST = 10.0  # standard deviations; a feature far beyond all examples counts no more
EVEN = 4_000  # links from which trees learn as well as the logistic regression: their part is links / (links + EVEN)
LEAST_SLOPE = (
    0.1  # of which half the way is taken; a last transition that contradicts all others does not turn the order around
)
MOST_NODES = 32_768  # for three-step paths
TREES = ("feature", "threshold", "left", "right", "value", "baseline")
LOGISTIC = ("means", "scales", "weights", "bias")
NUMBERS = ("mix", "again", "lift", "slope", "shift")


@dataclass(frozen=True, eq=False)
class PairScore:
    """Log-odds of a link, slope · s + shift, where s = (1 − mix) · logistic regression + mix · boosted trees.

    Both parts learn from the last transitions t' → t' + 1 of a graph: links of t' + 1 between nodes known at t' against
    uniform pairs without one, all seen as at t'. Few of these were linked before, so that a few such pairs are added to
    tell them apart from those that are linked again. The regression also sees where each feature stands among
    uniform pairs of the same step, which means the same when a graph has grown. The more links, the more the trees
    count.

    Of a pair that was linked before s is (1 − again) · s + again · another regression + lift. That one learns which of
    such pairs are linked again, from nothing else, and counts the more the more came again. With L, the logarithm of
    how many times as many such pairs there are with the added ones, `lift` is (1 − again) · L, which those took from
    s, less `HELD_DOWN` · L: a pair that was linked ends that far below its odds, or once linked pairs would stand
    above all new links.

    Slope and shift come from the last transition, or the latest one at the next window's time of day or of the week,
    predicted by what was learned from those before it; so 0.8 means about four in five among as many links and uniform
    pairs without one. One transition is not every other, so that it moves them half the way.

    Shapes:
        means, scales [2F − 1], weights [2, 2F − 1], bias [2]: of both regressions, on features and standings
    """

    means: Tensor
    scales: Tensor
    weights: Tensor
    bias: Tensor
    trees: Trees
    far: bool  # whether three-step paths are among the features
    mix: float  # the trees' part
    again: float  # the part of the regression of pairs that were linked
    lift: float
    slope: float = 1.0
    shift: float = 0.0

    @classmethod
    def learn(cls, graph: DynamicGraph, *, transitions: int = 6, negatives: int = 3, seed: int = 0) -> PairScore | None:
        """What the last transitions inside a graph teach, or None where there is no link or no other pair.

        They are the last `transitions` of which links came, and some before them while there are fewer than `ENOUGH`
        links; and, where windows have a time of day or of the week, those into windows that lie as the next one does,
        which count more. Without any, half of all links stands for the past and another half for what came of it.
        """
        for name, value in (("transitions", transitions), ("negatives", negatives)):
            if value < 1:
                raise ModelError(f"{name}={value} must be at least 1")
        far, snapshots = graph.num_nodes < MOST_NODES, graph.snapshots

        @cache
        def examples(last: int) -> Examples:
            return examples_of(graph, snapshots[: last + 1], far, negatives, seed)

        recent = recent_transitions(snapshots, transitions)
        if not recent:
            with few_blas_threads(graph.num_nodes):
                found = examples_of(graph, halves(graph.aggregate(), seed), far, negatives, seed)
                return _learn([found], far, seed) if 0 < found.links < found.uniform else None

        def learned(steps: Sequence[int]) -> PairScore:
            with few_blas_threads(graph.num_nodes):
                return _learn([examples(last) for last in steps], far, seed)

        same = same_time(snapshots)
        taught = teaching(recent, same)
        score = learned(taught)
        for last in (*same[-1:], recent[-1]):
            if earlier := [step for step in taught if step < last] or recent_transitions(snapshots[:last], transitions):
                return _calibrated(score, learned(earlier), examples(last))
        return score

    def log_odds(self, graph: DynamicGraph, step: int, pairs: Tensor) -> Tensor:
        """Of pairs of nodes known at a step, from the snapshots up to it alone, on the CPU.  # [B, 2] → [B] float64"""
        if not 0 <= step < len(graph):
            raise ModelError(f"step={step} of a graph with {len(graph)} snapshots")
        snapshots = graph.snapshots[: step + 1]
        ends = sorted_ends(pairs.cpu().numpy(), graph.known[step])
        order = np.argsort(ends[:, 0], kind="stable")  # paths from a node are then looked for once
        found = np.empty(len(ends))
        with few_blas_threads(graph.known[step]):
            for some in in_parts(order):
                columns = pair_columns(snapshots, ends[some], self.far)
                standings = standing(columns, uniform_columns(snapshots, self.far))
                features = np.column_stack([columns, differ_in_kind(graph, ends[some])])
                found[some] = self.raw(features, standings, were_linked(snapshots, ends[some]))
        return torch.from_numpy(self.slope * found + self.shift)

    def raw(self, features: Reals, standings: Reals, once: Bools) -> Reals:
        """What regressions and trees say together, not calibrated.  # [B, F], [B, F − 1], [B] → [B]"""
        columns = np.column_stack([features, standings])
        if columns.shape[1] != len(self.means):
            given = f"{len(self.means)} columns, and there are {columns.shape[1]} now"
            raise ModelError(f"the pair score was learned from {given}; fit the model anew")
        standard = (torch.from_numpy(columns) - self.means) / self.scales
        of_any, of_once = (standard.clamp(-FURTHEST, FURTHEST) @ self.weights.mT + self.bias).numpy().T
        mixed: Reals = (1 - self.mix) * of_any + self.mix * self.trees.sum(features)
        return np.where(once, (1 - self.again) * mixed + self.again * of_once + self.lift, mixed)

    def tensors(self) -> dict[str, Tensor]:
        """All of it as plain tensors."""
        found = {name: getattr(self, name) for name in LOGISTIC}
        found |= {f"tree_{name}": getattr(self.trees, name) for name in TREES}
        calibration = torch.tensor([getattr(self, name) for name in NUMBERS], dtype=torch.float64)
        return {**found, "calibration": calibration, "far": torch.tensor(self.far)}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> PairScore:
        """What `tensors` gave."""
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
                raise ModelError(f"the tensors do not fit a pair score: {name} has shape {shapes[name]}; fit it anew")
        numbers = dict(zip(NUMBERS, tensors["calibration"].tolist(), strict=True))
        trees = Trees(**{name: tensors[f"tree_{name}"] for name in TREES})
        parts: dict[str, Any] = {name: tensors[name] for name in LOGISTIC} | {"trees": trees} | numbers
        return cls(**parts, far=bool(tensors["far"]))


def _learn(past: Sequence[Examples], far: bool, seed: int) -> PairScore:
    """All parts, mixed by numbers of links, not calibrated."""
    labels = [examples.labels(examples.taught) for examples in past]
    y, weights = (np.concatenate(part) for part in zip(*labels, strict=True))
    x = np.concatenate([each.features[: each.taught] for each in past])
    standings = np.concatenate([each.standings[: each.taught] for each in past])
    features = torch.from_numpy(np.column_stack([x, standings]))
    means, deviation = features.mean(0), features.std(0, correction=0)
    scales = torch.where(deviation > 0, deviation, 1.0)
    of_any = fit_logistic(
        (features - means) / scales, torch.from_numpy(y), l2=L2[0], sample_weight=torch.from_numpy(weights)
    )
    of_once, repeats = _learn_once(past, means, scales)
    # Without weights the odds are those among all examples.
    trees = boosted_trees(x, y, seed=seed)
    trees = replace(trees, baseline=trees.baseline + np.log((~y).sum() / y.sum()))
    links = int(y.sum())
    lift = math.log1p(sum(each.added for each in past) / max(1.0, sum(each.expected for each in past)))
    again = repeats / (repeats + FEW)
    return PairScore(
        means=means,
        scales=scales,
        weights=torch.stack([of_any[0], of_once[0]]),
        bias=torch.stack([of_any[1], of_once[1]]),
        trees=trees,
        far=far,
        mix=links / (links + EVEN),
        again=again,
        lift=(1 - again - HELD_DOWN) * lift,
    )


def _learn_once(past: Sequence[Examples], means: Tensor, scales: Tensor) -> tuple[tuple[Tensor, Tensor], int]:
    """The regression of pairs that were linked: log-odds among as many links and uniform pairs; how many came again."""
    parts = [each.of_once() for each in past]
    x, y = (torch.from_numpy(np.concatenate(part)) for part in zip(*parts, strict=True))
    weights, bias = fit_logistic(((x - means) / scales).clamp(-FURTHEST, FURTHEST), y, l2=L2[1])
    left, shown = sum(each.left for each in past), int((~y).sum())
    unlinked, links = sum(each.unlinked for each in past), sum(each.links for each in past)
    shift = math.log(max(1, shown) / max(1, left)) + math.log(max(1, unlinked) / max(1, links))
    return (weights, bias + shift), int(y.sum())


def _calibrated(score: PairScore, before: PairScore, last: Examples) -> PairScore:
    """A score halfway to the slope and shift that suit an earlier one best on a transition it has not seen (Platt)."""
    some = slice(last.uniform)
    raw = replace(before, mix=score.mix).raw(last.features[some], last.standings[some], last.once[some])
    linked, weights = (torch.from_numpy(part) for part in last.labels(last.uniform))
    slope, shift = fit_logistic(torch.from_numpy(raw).unsqueeze(1), linked, sample_weight=weights)
    return replace(score, slope=math.sqrt(max(LEAST_SLOPE, float(slope))), shift=float(shift) / 2)
