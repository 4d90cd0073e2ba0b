"""Log-odds of a link from the past of a pair, learned from past transitions and calibrated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.pair_attributes import with_attributes
from dysat.features.pair_history import chunks, pair_history, sorted_ends
from dysat.models.forecast.boosting import boosted_trees
from dysat.models.forecast.examples import (
    Examples,
    examples_of,
    forget_histories,
    random_halves,
    recent_transitions,
    same_time_transitions,
    training_transitions,
)
from dysat.nn.logistic import fit_logistic
from dysat.nn.trees import Trees
from dysat.system.parallel.process import few_blas_threads, in_threads, side_by_side
from dysat.system.parallel.ranks import ranks
from dysat.system.progress import report

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
REPEAT_PENALTY = 0.45  # a larger one ranks better among pairs linked before, and worse among all pairs
RECURRING_SHARE = 0.5  # of the recurring model, with many repeated links
EVEN_REPEATS = 100  # repeated links with which it has half of this share
ORDER_WEIGHT = 2 / 3  # in the trees, of a pair that should rank below a link, relative to an example
SPLIT_ROWS = 0.5  # of all rows, that a tree learns from: as good as all of them, in less time
EVEN_LINKS = 4_000  # links from which the trees count as much as the logistic regression
L2 = 300.0, 30.0  # of both regressions, on standardised features: many features are nearly the same
ATTRIBUTE_L2 = 30.0  # of the first regression, on columns of attributes: they are few, and have no ranks beside them
MAX_DEVIATIONS = 10.0  # standard deviations; features far outside the training range are clamped
MIN_CLASS = 10  # links, and other pairs, that a calibration of new pairs or of pairs linked before needs
MIN_SLOPE = 0.1  # before the square root: one transition that contradicts all others must not reverse the order
SMALL_LINKS = 20_000  # graphs with at most these prepare several transitions at once, each on one core
MANY_LINKS = 20_000_000  # and with more, there may not be enough memory for several at once
THREE_STEP_NODES = 32_768  # graphs with fewer nodes have three-step paths among their features
# Stored names: do not change.
TREES = ("feature", "threshold", "left", "right", "value", "baseline")
LOGISTIC = ("means", "scales", "weights", "bias")
NUMBERS = ("tree_share", "recurring_share", "recurring_shift", "slope", "shift")  # in this order
BY_CLASS = "calibration_by_class"


@dataclass(frozen=True, eq=False)
class PairScore:
    """Log-odds of a link, slope · s + shift, where s = (1 − tree_share) · logistic regression + tree_share · trees.

    Both parts learn from the last transitions t → t + 1 of a graph: links of t + 1 between nodes known at t, against
    uniform pairs that are not linked in t + 1, all with their features at t. Few uniform pairs were linked before, so
    some dropped pairs (linked up to t, not in t + 1) are added as negatives. For ranking, both parts also learn that a
    link (u, v) scores more than pairs (u, w) without a link, by the logistic loss of the difference. The regression
    also sees the rank of each feature among uniform pairs of the same step, which stays comparable as a graph grows.
    The more links there are, the larger is the share of the trees.

    A pair that was linked before has the score (1 − recurring_share) · s + recurring_share · r + recurring_shift. The
    recurring model r is a regression that learns only from pairs linked before which of them are linked again; its
    share grows with the number of repeated links. Adding dropped pairs lowers s by L, the logarithm of the factor by
    which they outnumber those among the uniform pairs. The shift gives back (1 − recurring_share) · L and subtracts
    `REPEAT_PENALTY` · L, because pairs linked before would otherwise rank above all new links.

    Slope and shift are fitted to the last transition, or to the latest one at the next window's time of day or week,
    as predicted by a score learned from earlier transitions. One transition is only a sample, so the calibration moves
    halfway.

    Probabilities have a slope and a shift for each of two classes, new pairs and pairs linked before, fitted to the
    same transition. A probability of 0.8 then means that about four in five are linked in a balanced mix of links and
    uniform pairs, in either class. They keep the order within a class, but have no repeat penalty, so they can order
    pairs of different classes differently from `log_odds`.

    Shapes:
        means, scales [2F − K], weights [2, 2F − K], bias [2]: of both regressions, on features and the ranks of all
        but the K columns of kinds and attributes (`with_attributes`);
        by_class [2, 2]: slope and shift of new pairs, and of pairs linked before; None in files of earlier versions,
        whose probabilities are those of `log_odds`
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
    by_class: Tensor | None = None

    def log_odds(self, graph: DynamicGraph, step: int, pairs: Tensor) -> Tensor:
        """Return the log-odds that rank pairs known at a step, from the snapshots up to it, on the CPU.

        Shapes: [B, 2] → [B]
        """
        return self.slope * self._scores(graph, step, pairs)[0] + self.shift

    def class_log_odds(self, graph: DynamicGraph, step: int, pairs: Tensor) -> Tensor:
        """Return log-odds calibrated for new pairs and for pairs linked before, on the CPU.  # [B, 2] → [B]"""
        scores, linked_before = self._scores(graph, step, pairs)
        if self.by_class is None:
            return self.slope * scores + self.shift
        slope, shift = self.by_class[linked_before.long()].unbind(1)
        return slope * scores + shift

    def _scores(self, graph: DynamicGraph, step: int, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores that are not calibrated, and whether pairs were linked before.  # [B, 2] → [B], [B]"""
        if not 0 <= step < len(graph):
            raise ModelError(f"step={step} of a graph with {len(graph)} snapshots")
        ends = sorted_ends(pairs.cpu().numpy(), graph.known[step], directed=graph.directed)
        order = np.argsort(ends[:, 0], kind="stable")  # paths from a node are then followed once per chunk
        scores, known = np.zeros(len(ends)), np.zeros(len(ends), dtype=np.bool_)
        with few_blas_threads(graph.known[step]):
            history = pair_history(graph.snapshots[: step + 1], self.three_step)
            history.prepare()
            _ = history.uniform_features

            def score(rows: Ids) -> None:
                columns, linked_before = history.features(ends[rows])
                features = with_attributes(columns, graph, step, ends[rows])
                scores[rows] = self.raw(features, history.ranks(columns), linked_before)
                known[rows] = linked_before

            report("scoring pairs: part", 0, len(parts := ranks().share(chunks(order))))
            for number, _ in enumerate(in_threads(score, parts), 1):
                report("scoring pairs: part", number, len(parts))
        return ranks().merged(torch.from_numpy(scores)), ranks().merged(torch.from_numpy(known))

    def raw(self, features: Reals, ranks: Reals, linked_before: Bools) -> Reals:
        """Return scores that are not calibrated.  # [B, F], [B, F − K], [B] → [B]"""
        logistic, recurring = (self.standard(features, ranks) @ self.weights.mT + self.bias).numpy().T
        with np.errstate(over="ignore", invalid="ignore"):  # of a hostile file; the caller refuses what is not finite
            score: Reals = (1 - self.tree_share) * logistic + self.tree_share * self.trees.sum(features)
            repeated = (1 - self.recurring_share) * score + self.recurring_share * recurring + self.recurring_shift
        return np.where(linked_before, repeated, score)

    def standard(self, features: Reals, ranks: Reals) -> Tensor:
        """Return what both regressions multiply with their weights.  # [B, F], [B, F − K] → [B, 2F − K]"""
        columns = np.column_stack([features, ranks])
        if columns.shape[1] != len(self.means):
            counts = f"{len(self.means)} columns, and there are {columns.shape[1]} now"
            raise ModelError(f"the pair score was learned from {counts}; fit the model again")
        return ((torch.from_numpy(columns) - self.means) / self.scales).clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS)

    @classmethod
    def learn(
        cls,
        graph: DynamicGraph,
        *,
        transitions: int = 6,
        negatives: int = 2,
        seed: int = 0,
        on_trees: Callable[[], object] = lambda: None,
    ) -> PairScore | None:
        """Learn from the last transitions of a graph; None if it has no link, or no pair without a link.

        The transitions are the last `transitions` with links, and older ones until there are `ENOUGH_LINKS`; if windows
        have a time of day or week, also those into windows at the next window's time, which count more. A graph without
        any transition learns from two random halves of its links.
        """
        for name, value in (("transitions", transitions), ("negatives", negatives)):
            if value < 1:
                raise ModelError(f"{name}={value} must be at least 1")
        three_step, snapshots = graph.num_nodes < THREE_STEP_NODES, graph.snapshots

        examples = dict[int, Examples]()

        def of_transition(target: int) -> Examples:
            return examples_of(graph, snapshots[: target + 1], three_step, negatives, seed)

        def gathered(targets: Sequence[int]) -> list[Examples]:
            """The examples of some transitions; every rank computes its share of those that are missing."""
            missing = [target for target in dict.fromkeys(targets) if target not in examples]
            own = ranks().share(missing)
            links = sum(snapshot.num_links for snapshot in snapshots)
            every = in_threads if links <= SMALL_LINKS else side_by_side if links <= MANY_LINKS else map
            report("pair score: transition", 0, len(missing))
            for number, found in enumerate(every(of_transition, own)):
                examples[own[number]] = found
                report("pair score: transition", min(len(missing), (number + 1) * ranks().size), len(missing))
            if ranks().size > 1:
                forget_histories()  # so that a rank needs less memory than one process alone
                examples.update({t: _sent_by(i % ranks().size, examples.get(t)) for i, t in enumerate(missing)})
            return [examples[target] for target in targets]

        def learned(*several: Sequence[Examples]) -> list[PairScore]:
            """The scores of some lists of examples; every rank learns its share."""
            report("pair score: regression and trees")
            on_trees()
            own = list(side_by_side(lambda past: _learn(past, three_step, seed), ranks().share(several)))
            if ranks().size == 1:
                return own
            every = ranks().gathered(
                None, {f"{i}/{n}": t for i, score in enumerate(own) for n, t in score.tensors().items()}
            )
            found = list[PairScore]()
            for number in range(len(several)):
                place, tensors = f"{number // ranks().size}/", every[number % ranks().size][1]
                found.append(cls.of({n.removeprefix(place): t for n, t in tensors.items() if n.startswith(place)}))
            return found

        recent = recent_transitions(snapshots, transitions)
        with few_blas_threads(graph.num_nodes):
            if not recent:
                halves = examples_of(
                    graph, random_halves(graph.aggregate(), seed), three_step, negatives, seed, step=len(graph) - 1
                )
                return learned([halves])[0] if 0 < halves.num_links < halves.num_uniform else None
            same_time = same_time_transitions(snapshots)
            training = training_transitions(recent, same_time)
            past = gathered(training)
            for target in (*same_time[-1:], recent[-1]):
                earlier = [step for step in training if step < target]
                if earlier := earlier or recent_transitions(snapshots[:target], transitions):
                    score, before = learned(past, gathered(earlier))
                    return _calibrated(score, before, *gathered([target]))
            return learned(past)[0]

    def tensors(self) -> dict[str, Tensor]:
        """Return everything learned as named tensors, for a file."""
        logistic = {name: getattr(self, name) for name in LOGISTIC}
        trees = {f"tree_{name}": getattr(self.trees, name) for name in TREES}
        numbers = torch.tensor([getattr(self, name) for name in NUMBERS], dtype=torch.float64)
        classes = {} if self.by_class is None else {BY_CLASS: self.by_class}
        return {**logistic, **trees, "calibration": numbers, "far": torch.tensor(self.three_step), **classes}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> PairScore:
        """Build a score from the tensors that `tensors` returned, and load the libraries that scoring needs."""
        import scipy.sparse.linalg  # noqa: F401 - 0.2 s that a forecast should not take

        wanted = [*LOGISTIC, *(f"tree_{name}" for name in TREES), "calibration", "far"]
        missing = [name for name in wanted if name not in tensors]
        if missing:
            raise ModelError(f"the tensors do not fit a pair score: {missing[0]} is missing")
        shapes = {name: tuple(tensors[name].shape) for name in wanted}
        features, tables = shapes["means"], shapes["tree_feature"]
        expected = {"means": features, "scales": features, "weights": (2, *features), "bias": (2,)}
        expected |= {"calibration": (len(NUMBERS),), "far": ()}
        expected |= {f"tree_{name}": tables for name in TREES} | {"tree_baseline": ()}
        if BY_CLASS in tensors:
            shapes[BY_CLASS], expected[BY_CLASS] = tuple(tensors[BY_CLASS].shape), (2, 2)
        for name, shape in expected.items():
            if shapes[name] != shape or len(features) != 1 or len(tables) != 2:
                problem = f"{name} has shape {shapes[name]}"
                raise ModelError(f"the tensors do not fit a pair score: {problem}; fit the model again")
        for name in (*LOGISTIC, "calibration", *(BY_CLASS,) * (BY_CLASS in tensors)):
            if tensors[name].dtype != torch.float64 or not tensors[name].isfinite().all():
                raise ModelError(f"the tensors do not fit a pair score: {name} is not finite in float64")
        if tensors["far"].dtype != torch.bool or not (tensors["scales"] > 0).all():
            raise ModelError("the tensors do not fit a pair score: far is no truth value, or a scale is not above 0")
        numbers = dict(zip(NUMBERS, tensors["calibration"].tolist(), strict=True))
        trees = Trees(**{name: tensors[f"tree_{name}"] for name in TREES})
        parts: dict[str, Any] = {name: tensors[name] for name in LOGISTIC} | {"trees": trees} | numbers
        return cls(**parts, three_step=bool(tensors["far"]), by_class=tensors.get(BY_CLASS))


def _sent_by(rank: int, examples: Examples | None) -> Examples:
    """The examples that one rank has computed, on all ranks."""
    if examples is not None:
        ranks().sent_by(rank, examples.numbers(), {n: torch.from_numpy(a) for n, a in examples.arrays().items()})
        return examples
    numbers, tensors = ranks().sent_by(rank)
    return Examples(**{name: tensor.numpy() for name, tensor in tensors.items()}, **numbers)


def _learn(past: Sequence[Examples], three_step: bool, seed: int) -> PairScore:
    """Learn all parts of a score, not calibrated."""
    labels = [examples.labels(examples.num_training) for examples in past]
    y, weights = (np.concatenate(part) for part in zip(*labels, strict=True))
    columns, order = _stacked(past)
    width, ranked = past[0].features.shape[1], past[0].ranks.shape[1]
    # The trees learn without weights: shift their odds to those of balanced classes.
    trees = boosted_trees(
        columns[:, :width], y, split_rows=SPLIT_ROWS, seed=seed, order=order, order_weight=ORDER_WEIGHT
    )
    trees = replace(trees, baseline=trees.baseline + np.log((~y).sum() / y.sum()))
    every = torch.from_numpy(columns)
    means, deviation = every[: len(y)].mean(0), every[: len(y)].std(0, correction=0)
    scales = torch.where(deviation > 0, deviation, 1.0)
    penalty = torch.full_like(means, L2[0])
    penalty[ranked + 1 : width] = ATTRIBUTE_L2  # the first of these columns is the kind
    every.sub_(means).div_(scales)
    above, below = torch.from_numpy(_first_of_each(order)).unbind(1)
    logistic = fit_logistic(
        every[: len(y)],
        torch.from_numpy(y),
        l2=penalty,
        sample_weight=torch.from_numpy(weights),
        differences=every[above] - every[below],
    )
    recurring, repeats = _learn_recurring(past, means, scales)
    links = int(y.sum())
    expected = max(1.0, sum(each.expected_dropped for each in past))
    lowered = math.log1p(sum(each.num_added for each in past) / expected)  # L
    recurring_share = RECURRING_SHARE * repeats / (repeats + EVEN_REPEATS)
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


def _stacked(past: Sequence[Examples]) -> tuple[Reals, Ids]:
    """Return features and ranks of all examples with a label, then of pairs that should rank below a link.

    The second array has the rows of both: a link, and a pair that should rank below it.

    Shapes: [B + C, 2F − K], [C, 2]
    """
    width = past[0].features.shape[1]
    number = [each.num_training for each in past] + [len(each.above) for each in past]
    columns = np.empty((sum(number), width + past[0].ranks.shape[1]))
    parts = np.split(columns, np.cumsum(number)[:-1])
    first, order = 0, list[Ids]()
    for each, labelled, below in zip(past, parts[: len(past)], parts[len(past) :], strict=True):
        for rows, at in ((labelled, slice(len(labelled))), (below, slice(len(each.features) - len(below), None))):
            rows[:, :width], rows[:, width:] = each.features[at], each.ranks[at]
        order.append(first + each.above)
        first += len(labelled)
    above = np.concatenate(order)
    return columns, np.stack([above, first + np.arange(len(above))], axis=1)


def _first_of_each(order: Ids) -> Ids:
    """Return the first pair of every link; the pairs of a link follow each other.  # [C, 2] → [≤ C, 2]"""
    return order[np.flatnonzero(np.diff(order[:, 0], prepend=-1))]


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
    earlier = replace(earlier, tree_share=score.tree_share)
    raw = torch.from_numpy(earlier.raw(last.features, last.ranks, last.linked_before))
    linked, weights = (torch.from_numpy(part) for part in last.labels(last.num_uniform))
    slope, shift = _halfway(raw[: last.num_uniform], linked, weights)
    classes = [_class_calibration(raw, last, known) or (slope, shift) for known in (False, True)]
    return replace(score, slope=slope, shift=shift, by_class=torch.tensor(classes, dtype=torch.float64))


def _class_calibration(raw: Tensor, last: Examples, known: bool) -> tuple[float, float] | None:
    """Return slope and shift of new pairs, or of pairs linked before; None with too few examples.  # [B]

    They are fitted to links and non-links of the class, with equal weights of both. The shift then adds the logarithm
    of how much more frequent the class is among all links than among all pairs without a link, which gives the odds in
    a balanced mix. Few uniform pairs were linked before, so the non-links of that class are the dropped pairs.
    """
    rows, before = np.arange(len(raw)), last.linked_before
    link = (rows < last.num_links) & (before == known)
    other = (rows >= last.num_links) & (rows < last.num_uniform) & ~before
    if known:
        other = np.isin(rows, rows[last.dropped])
    links, others = int(link.sum()), int(other.sum())
    if min(links, others) < MIN_CLASS:
        return None
    used, weights = link | other, np.where(link, 1.0, links / others)
    among_links = links / last.num_links
    among_others = (last.num_dropped if known else last.num_unlinked - last.num_dropped) / last.num_unlinked
    frequency = math.log(among_links / among_others)
    return _halfway(raw[used], torch.from_numpy(link[used]), torch.from_numpy(weights[used]), frequency)


def _halfway(raw: Tensor, linked: Tensor, weights: Tensor, frequency: float = 0.0) -> tuple[float, float]:
    """Return the slope and shift halfway to those that fit scores to labels.  # [B], [B], [B]"""
    slope, shift = fit_logistic(raw.unsqueeze(1), linked, sample_weight=weights)
    return math.sqrt(max(MIN_SLOPE, float(slope))), (float(shift) + frequency) / 2
