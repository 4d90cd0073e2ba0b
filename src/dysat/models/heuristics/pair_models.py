"""Logistic regression and gradient boosting on features of node pairs from the past."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.link_memory import Snapshots, links_among
from dysat.features.pair_attributes import with_attributes
from dysat.features.pair_history import history_of, kinds_at, pair_history, sorted_ends
from dysat.features.rounding import row_products
from dysat.models.base.link_model import LinkModel
from dysat.models.base.memory import GraphSize
from dysat.nn.logistic import fit_logistic
from dysat.nn.trees import Trees
from dysat.sampling.pairs import unlinked_pairs
from dysat.system.tensors import check_finite, check_tensors

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
BATCH = 1 << 16  # pairs whose features are held in memory at once
LEAST_COLUMNS = 33  # of the features of a pair, without low ranks and three-step paths
THREE_STEP_NODES = 7_000  # graphs with fewer nodes have three-step paths among their features


@dataclass(kw_only=True, eq=False)
class PairModel(LinkModel):
    """Log-odds of a link from features of the pair, learned from the last transitions inside the graph.

    The examples of a transition t → t + 1 are the links of t + 1 between nodes known at t and as many uniform pairs
    without one, with their features at t. A score of 0 means even odds in such a balanced mix, not among all pairs.
    """

    uses_direction = True

    transitions: Annotated[int, "Number of past transitions to learn from"] = 6
    low_rank: Annotated[bool, "Add features from low-rank approximations of the adjacency matrix"] = True
    seed: Annotated[int, "Random seed"] = 0

    def check(self) -> None:
        if self.transitions < 1:
            raise ModelError(f"transitions={self.transitions} must be at least 1")
        if not 0 <= self.seed < 2**32:
            raise ModelError(f"seed={self.seed} must lie in [0, 2^32)")

    def _least_memory(self, size: GraphSize) -> float:
        # Features of links and as many other pairs, by transition and joined, in float64. There is no limit on links.
        return 2 * 2 * 8.0 * LEAST_COLUMNS * sum(size.repeats[-self.transitions :])

    @property
    def _sizes(self) -> tuple[str, ...]:
        return ("transitions",)

    def fit(self, graph: DynamicGraph) -> Self:
        self.check_graph(graph)
        if len(graph) < 2:
            raise ModelError(f"{self.method} learns from transitions: it needs two snapshots, and the graph has one")
        x, y = transition_examples(graph, self.transitions, low_rank=self.low_rank, seed=self.seed)
        if y.all() or not y.any():
            missing = "pair without a link" if len(y) else "link between nodes known before it"
            raise ModelError(f"{self.method} has nothing to learn from: no {missing} in the last snapshots")
        self._learn(x, y)
        self.graph_ = graph
        return self

    def pair_scores(self, pairs: Tensor, step: int = -1) -> Tensor:
        """Return the log-odds of a link, in a balanced mix of links and non-links.  # [B, 2] → [B]"""
        at = self._check_step(step)
        parts = []
        for part in torch.split(pairs, BATCH):
            x = history_features(self.graph_, at, part.cpu().numpy(), low_rank=self.low_rank)
            parts.append(torch.from_numpy(self._log_odds(x)))
        return torch.cat(parts)

    def _chances(self, scores: Tensor) -> Tensor:
        return torch.sigmoid(scores)

    @abstractmethod
    def _learn(self, x: Reals, y: Bools) -> None:
        """Learn from features and labels.  # [B, F], [B]"""

    @abstractmethod
    def _log_odds(self, x: Reals) -> Reals:
        """Return the log-odds for features.  # [B, F] → [B]"""


def history_features(graph: DynamicGraph, step: int, pairs: Ids, *, low_rank: bool) -> Reals:
    """Return features of pairs of nodes known at a step, from the snapshots up to it alone.  # [B, 2] → [B, F]

    Counts, weights and paths are given as log(1 + x). The order of the two nodes matters in a directed graph only.
    """
    pairs = sorted_ends(pairs, graph.known[step], directed=graph.directed)
    history = history_of(graph, step, _has_three_steps(graph))
    return with_attributes(history.basic_features(pairs, low_rank=low_rank), graph, step, pairs)


def transition_examples(graph: DynamicGraph, transitions: int, *, low_rank: bool, seed: int) -> tuple[Reals, Bools]:
    """Return features and labels of the examples of the last transitions.  # [B, F], [B]"""
    features, labels = [np.empty((0, 0))], [np.empty(0, dtype=bool)]
    for before in range(max(0, len(graph) - 1 - transitions), len(graph) - 1):
        past = graph.snapshots[: before + 2], low_rank, _has_three_steps(graph), seed, kinds_at(graph, before)
        pairs, linked, columns = _examples(*past)
        features.append(with_attributes(columns, graph, before, pairs))
        labels.append(linked)
    return np.concatenate(features[1:] or features), np.concatenate(labels)


# An evaluation fits one model per step, and consecutive models share most of their transitions.
@lru_cache(maxsize=16)
def _examples(
    snapshots: Snapshots, low_rank: bool, three_step: bool, seed: int, kinds: bytes | None
) -> tuple[Ids, Bools, Reals]:
    """Return pairs, labels and features of the transition into the last snapshot.  # [B, 2], [B], [B, F]"""
    known = snapshots[-2].num_nodes
    links = links_among(snapshots[-1], known)
    rng = np.random.default_rng([seed, len(snapshots)])
    others = unlinked_pairs(known, links, len(links), rng, directed=snapshots[-1].directed)
    pairs = np.concatenate([links, others])
    features = pair_history(snapshots[:-1], three_step, kinds).basic_features(pairs, low_rank=low_rank)
    return pairs, np.arange(len(pairs)) < len(links), features


def _has_three_steps(graph: DynamicGraph) -> bool:
    """Decide by the whole graph, not step by step, so that all steps have the same features."""
    return graph.num_nodes < THREE_STEP_NODES


@dataclass(kw_only=True, eq=False)
class PairLogistic(PairModel):
    """Logistic regression on standardised pair features.

    Attributes:
        weights_, bias_: of the regression on standardised features; means_, scales_: of the training features.
            # [F], [], [F], [F]

    Example:
        >>> import dysat
        >>> graph = dysat.load_dataset("uci")
        >>> model = PairLogistic(low_rank=False).fit(graph[:2])
        >>> model.score_links([[0, 1]], ids=True).shape
        torch.Size([1])
    """

    method: ClassVar[str] = "pair-logistic"
    about: ClassVar[str] = "logistic regression on pair features of past transitions"

    l2: Annotated[float, "L2 penalty: weight of ½ w² in the loss, on standardised features"] = 1.0

    weights_: Tensor = field(init=False, repr=False)
    bias_: Tensor = field(init=False, repr=False)
    means_: Tensor = field(init=False, repr=False)
    scales_: Tensor = field(init=False, repr=False)

    def check(self) -> None:
        super().check()
        if not 0 <= self.l2 < math.inf:
            raise ModelError(f"l2={self.l2} must be a number that is not negative")

    def _learn(self, x: Reals, y: Bools) -> None:
        features = torch.from_numpy(x)
        self.means_ = features.mean(0)
        deviation = features.std(0, correction=0)
        self.scales_ = torch.where(deviation > 0, deviation, 1.0)
        self.weights_, self.bias_ = fit_logistic(self._standardized(features), torch.from_numpy(y), l2=self.l2)

    def _standardized(self, features: Tensor) -> Tensor:
        return (features - self.means_) / self.scales_

    def _log_odds(self, x: Reals) -> Reals:
        if x.shape[1] != len(self.means_):
            counts = f"{len(self.means_)} columns, and there are {x.shape[1]} now"
            raise ModelError(f"{self.method} was learned from {counts}; fit the model again")
        standard = self._standardized(torch.from_numpy(x)).numpy()
        scores: Reals = row_products(standard, self.weights_.numpy()) + self.bias_.numpy()
        return scores

    def _learned(self) -> dict[str, Tensor]:
        return {name: getattr(self, f"{name}_") for name in ("weights", "bias", "means", "scales")}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        try:
            self.weights_, self.bias_, self.means_, self.scales_ = (
                tensors[name] for name in ("weights", "bias", "means", "scales")
            )
        except KeyError as name:
            raise ModelError(f"the weights do not fit the model: {name} is missing") from None
        shapes = {**dict.fromkeys(("weights", "means", "scales"), tuple(self.weights_.shape)), "bias": ()}
        check_tensors(tensors, {name: (torch.float64, shape) for name, shape in shapes.items()}, ModelError)
        check_finite(tensors, ModelError)
        if self.weights_.ndim != 1 or not (self.scales_ > 0).all():
            raise ModelError("the weights do not fit the model: a scale is not above 0")


@dataclass(kw_only=True, eq=False)
class PairBoosting(PairModel):
    """Gradient-boosted trees on pair features. Training needs scikit-learn; scoring does not.

    A small learning rate, few features per split and `l2` regularise the trees: macro-AUC on each of the paper's
    datasets is higher than with scikit-learn's defaults (0.1, all, 0), by up to half a point.

    Attributes:
        trees_: the fitted trees, as tables.
    """

    method: ClassVar[str] = "pair-boosting"
    about: ClassVar[str] = "boosted trees on pair features of past transitions"

    rounds: Annotated[int, "Number of trees"] = 200
    leaves: Annotated[int, "Maximum number of leaves per tree"] = 15
    learning_rate: Annotated[float, "Learning rate: factor on the values of each tree"] = 0.05
    l2: Annotated[float, "L2 penalty on the values of leaves"] = 10.0
    split_features: Annotated[float, "Fraction of features that each split may choose from"] = 0.2

    trees_: Trees = field(init=False, repr=False)

    def check(self) -> None:
        super().check()
        for name, least in (("rounds", 1), ("leaves", 2)):
            if getattr(self, name) < least:
                raise ModelError(f"{name}={getattr(self, name)} must be at least {least}")
        if not 0 < self.learning_rate < math.inf:
            raise ModelError(f"learning_rate={self.learning_rate} must be a number above 0")
        if not 0 <= self.l2 < math.inf:
            raise ModelError(f"l2={self.l2} must be a number that is not negative")
        if not 0 < self.split_features <= 1:
            raise ModelError(f"split_features={self.split_features} must lie in (0, 1]")

    def _learn(self, x: Reals, y: Bools) -> None:
        names = ("rounds", "leaves", "learning_rate", "l2", "split_features", "seed")
        self.trees_ = Trees.grown(x, y, **{name: getattr(self, name) for name in names})

    def _log_odds(self, x: Reals) -> Reals:
        return self.trees_.sum(x)

    def _learned(self) -> dict[str, Tensor]:
        return dict(vars(self.trees_))

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        try:
            self.trees_ = Trees(**tensors)
        except TypeError:
            raise ModelError(f"the trees do not fit the model: {', '.join(sorted(tensors))}") from None
