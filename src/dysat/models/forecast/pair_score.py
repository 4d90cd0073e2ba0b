"""Log-odds of a link from the past of a pair, learned from past transitions and calibrated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.pair_attributes import with_attributes
from dysat.features.pair_history import chunks, history_of, sorted_ends
from dysat.features.rounding import row_products
from dysat.models.forecast.examples import (
    UNIFORM_PER_LINK,
    Examples,
    Plan,
    examples_of,
    forget_histories,
    planned,
    random_halves,
    transitions_at_once,
)
from dysat.models.forecast.mixture import MIN_SLOPE, learned_weights, mixed, rule
from dysat.models.forecast.parts import LINEAR, TREE_SUM, TREES, Parts, learned_by_ranks, standardised
from dysat.nn.logistic import fit_logistic
from dysat.nn.trees import Trees
from dysat.system.parallel.process import few_blas_threads, in_threads, side_by_side
from dysat.system.parallel.ranks import ranks
from dysat.system.progress import report

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
MIN_CLASS = 10  # links, and other pairs, that a calibration of new pairs or of pairs linked before needs
SMALL_LINKS = 20_000  # graphs with at most these prepare several transitions at once, each on one core
THREE_STEP_NODES = 32_768  # graphs with fewer nodes have three-step paths among their features
# Stored names: do not change.
TREE_WEIGHTS = "tree_weights"
FLAGS = ("steady", "by_kind")  # of this version; earlier ones lack them
NUMBERS = ("slope", "shift")  # in this order
OLD_NUMBERS = ("tree_share", "recurring_share", "recurring_shift", *NUMBERS)  # of earlier versions
BY_CLASS = "calibration_by_class"


@dataclass(frozen=True, eq=False)
class PairScore:
    """Log-odds of a link, slope · s + shift, where s = w · z + b + tree weight · trees, on standardised features z.

    New pairs and pairs linked before have weights of their own. They are mixed from `Parts` and a few plain features:
    at first by a rule, and then by how well the parts ranked the last windows of this log (`mixture`): the last one as
    learned from the windows before it, and if it has few links, older ones as learned from the windows before all of
    them. If there is a window at the next window's time of day or week, it is the latest such window alone.

    Slope and shift are fitted to the last window. It is only a sample, so the calibration moves halfway.

    Probabilities have a slope and a shift for each of two classes, new pairs and pairs linked before, fitted to the
    same window. A probability of 0.8 then means that about four in five are linked in a balanced mix of links and
    uniform pairs, in either class. They keep the order within a class, but can order pairs of different classes
    differently from `log_odds`.

    Shapes:
        means, scales [2F − K]: of features and the ranks of all but the K columns of kinds and attributes
        (`with_attributes`); weights [2, 2F − K], bias, tree_weights [2]: of new pairs, and of pairs linked before;
        by_class [2, 2]: slope and shift of both; None in files of earlier versions, whose probabilities are those of
        `log_odds`
    """

    means: Tensor
    scales: Tensor
    weights: Tensor
    bias: Tensor
    tree_weights: Tensor
    trees: Trees
    three_step: bool  # whether three-step paths are among the features
    steady: bool = True  # whether features have no noise; False for scores of earlier versions
    by_kind: bool = True  # whether kinds order the features of both nodes; False for scores of earlier versions
    slope: float = 1.0
    shift: float = 0.0
    by_class: Tensor | None = None

    @classmethod
    def mixed(cls, parts: Parts, mixture: Reals, three_step: bool) -> PairScore:
        """Return a score of these parts that is not calibrated.  # [2, X]"""
        every, (weights, bias) = torch.from_numpy(mixture), parts.linear()
        return cls(
            means=parts.means,
            scales=parts.scales,
            weights=every[:, :TREE_SUM] @ weights,
            bias=every[:, :TREE_SUM] @ bias,
            tree_weights=every[:, TREE_SUM],
            trees=parts.trees,
            three_step=three_step,
        )

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
            history = history_of(graph, step, self.three_step).prepared(steady=self.steady, by_kind=self.by_kind)
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
        of_class = linked_before.astype(np.intp)
        linear = row_products(self.standard(features, ranks).numpy(), self.weights.numpy().T) + self.bias.numpy()
        with np.errstate(over="ignore", invalid="ignore"):  # of a hostile file; the caller refuses what is not finite
            trees = self.tree_weights.numpy()[of_class] * self.trees.sum(features)
            score: Reals = np.take_along_axis(linear, of_class[:, None], axis=1)[:, 0] + trees
        return score

    def standard(self, features: Reals, ranks: Reals) -> Tensor:
        """Return what is multiplied with the weights.  # [B, F], [B, F − K] → [B, 2F − K]"""
        return standardised(features, ranks, self.means, self.scales)

    @classmethod
    def learn(
        cls,
        graph: DynamicGraph,
        *,
        transitions: int = 6,
        negatives: int = UNIFORM_PER_LINK,
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
            if links <= SMALL_LINKS:
                every = in_threads(of_transition, own)
            else:
                every = side_by_side(of_transition, own, most=transitions_at_once(snapshots, max(1, len(own))))
            report("pair score: transition", 0, len(missing))
            for number, found in enumerate(every):
                examples[own[number]] = found
                report("pair score: transition", min(len(missing), (number + 1) * ranks().size), len(missing))
            if ranks().size > 1:
                forget_histories()  # so that a rank needs less memory than one process alone
                examples.update({t: _sent_by(i % ranks().size, examples.get(t)) for i, t in enumerate(missing)})
            return [examples[target] for target in targets]

        def begin() -> None:
            report("pair score: regression and trees")
            on_trees()

        def by_rule(past: Sequence[Examples]) -> PairScore:
            begin()
            (parts,) = learned_by_ranks([past], seed)
            return cls.mixed(parts, rule(parts.num_links), three_step)

        def by_windows(past: Sequence[Examples], plan: Plan) -> PairScore:
            """A score of all examples, mixed and calibrated as it would have been best for past windows."""
            windows, earlier = ([gathered(steps) for steps in part] for part in zip(*plan.windows, strict=True))
            begin()
            start = rule(sum(each.num_links for each in past))
            learned = learned_by_ranks([*earlier, past], seed)
            before = list(islice(learned, len(windows)))
            scores = [
                parts.experts(own.features, own.ranks)
                for parts, some in zip(before, windows, strict=True)
                for own in some
            ]
            every, last = list(chain(*windows)), windows[0][0]
            weights = learned_weights(scores, every, start, floor=plan.floor)
            calibration = _Calibration.of(mixed(scores[0], weights, last.linked_before), last)
            (parts,) = learned  # after weights and calibration, to learn at the same time
            return replace(cls.mixed(parts, weights, three_step), **vars(calibration))

        plan = planned(snapshots, transitions)
        with few_blas_threads(graph.num_nodes):
            if plan is None:
                halves = examples_of(
                    graph, random_halves(graph.aggregate(), seed), three_step, negatives, seed, step=len(graph) - 1
                )
                return by_rule([halves]) if 0 < halves.num_links < halves.num_uniform else None
            past = gathered(plan.training)
            return by_windows(past, plan) if plan.windows else by_rule(past)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything learned as named tensors, for a file."""
        linear = {name: getattr(self, name) for name in (*LINEAR, TREE_WEIGHTS)}
        trees = {f"tree_{name}": getattr(self.trees, name) for name in TREES}
        numbers = torch.tensor([getattr(self, name) for name in NUMBERS], dtype=torch.float64)
        classes = {} if self.by_class is None else {BY_CLASS: self.by_class}
        flags = {"far": torch.tensor(self.three_step)}
        flags |= {name: torch.tensor(True) for name in FLAGS if getattr(self, name)}
        return {**linear, **trees, "calibration": numbers, **flags, **classes}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> PairScore:
        """Build a score from the tensors that `tensors` returned."""
        old = TREE_WEIGHTS not in tensors
        linear = LINEAR if old else (*LINEAR, TREE_WEIGHTS)
        wanted = [*linear, *(f"tree_{name}" for name in TREES), "calibration", "far"]
        missing = [name for name in wanted if name not in tensors]
        if missing:
            raise ModelError(f"the tensors do not fit a pair score: {missing[0]} is missing")
        shapes = {name: tuple(tensors[name].shape) for name in wanted}
        features, tables = shapes["means"], shapes["tree_feature"]
        expected = {"means": features, "scales": features, "weights": (2, *features), "bias": (2,)}
        expected |= {"calibration": (len(OLD_NUMBERS if old else NUMBERS),), "far": ()}
        expected |= {f"tree_{name}": tables for name in TREES} | {"tree_baseline": ()}
        expected |= {} if old else {TREE_WEIGHTS: (2,)}
        if BY_CLASS in tensors:
            shapes[BY_CLASS], expected[BY_CLASS] = tuple(tensors[BY_CLASS].shape), (2, 2)
        for name, shape in expected.items():
            if shapes[name] != shape or len(features) != 1 or len(tables) != 2:
                problem = f"{name} has shape {shapes[name]}"
                raise ModelError(f"the tensors do not fit a pair score: {problem}; fit the model again")
        for name in (*linear, "calibration", *(BY_CLASS,) * (BY_CLASS in tensors)):
            if tensors[name].dtype != torch.float64 or not tensors[name].isfinite().all():
                raise ModelError(f"the tensors do not fit a pair score: {name} is not finite in float64")
        if tensors["far"].dtype != torch.bool or not (tensors["scales"] > 0).all():
            raise ModelError("the tensors do not fit a pair score: far is no truth value, or a scale is not above 0")
        trees = Trees(**{name: tensors[f"tree_{name}"] for name in TREES})
        parts: dict[str, Any] = {name: tensors[name] for name in linear} | (_mixed_as_before(tensors) if old else {})
        numbers = dict(zip(NUMBERS, tensors["calibration"].tolist()[-len(NUMBERS) :], strict=True))
        parts |= {"trees": trees, "three_step": bool(tensors["far"])}
        parts |= {name: name in tensors for name in FLAGS}
        return cls(**parts, **numbers, by_class=tensors.get(BY_CLASS))


def _mixed_as_before(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights, bias and tree weights of a file of earlier versions, which kept two regressions and their shares."""
    trees, repeated, shift, *_ = tensors["calibration"].tolist()
    rows = [[1 - trees, 0.0], [(1 - repeated) * (1 - trees), repeated]]
    mixture = torch.tensor(rows, dtype=torch.float64)
    shifts = mixture.new_tensor([0.0, shift])
    return {
        "weights": mixture @ tensors["weights"],
        "bias": mixture @ tensors["bias"] + shifts,
        TREE_WEIGHTS: mixture.new_tensor([trees, (1 - repeated) * trees]),
    }


def _sent_by(rank: int, examples: Examples | None) -> Examples:
    """The examples that one rank has computed, on all ranks."""
    if examples is not None:
        ranks().sent_by(rank, examples.numbers(), {n: torch.from_numpy(a) for n, a in examples.arrays().items()})
        return examples
    numbers, tensors = ranks().sent_by(rank)
    return Examples(**{name: tensor.numpy() for name, tensor in tensors.items()}, **numbers)


@dataclass(frozen=True)
class _Calibration:
    """Slope and shift of a score, and of new pairs and pairs linked before."""

    slope: float
    shift: float
    by_class: Tensor

    @classmethod
    def of(cls, earlier: Reals, last: Examples) -> _Calibration:
        """Move halfway to the slope and shift that fit earlier scores to later links (Platt).  # [B]"""
        raw = torch.from_numpy(earlier)
        linked, weights = (torch.from_numpy(part) for part in last.labels(last.num_uniform))
        slope, shift = _halfway(raw[: last.num_uniform], linked, weights)
        classes = [_class_calibration(raw, last, known) or (slope, shift) for known in (False, True)]
        return cls(slope, shift, by_class=torch.tensor(classes, dtype=torch.float64))


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
