"""Boosted regression trees stored as tables, so that predicting does not need the library that grew them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.errors import ModelError
from dysat.system.compiled import native

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
SKLEARN_NAMES = {"feature": "feature_idx", "threshold": "num_threshold", "left": "left", "right": "right"}


@dataclass(frozen=True, eq=False)
class Trees:
    """R regression trees of at most M nodes as tables; both children of a leaf are the leaf itself.

    Shapes:
        feature, left, right [R, M] (int64), threshold, value [R, M] (float64), baseline []
    """

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    baseline: Tensor

    def __post_init__(self) -> None:
        tables = {name: getattr(self, name) for name in ("feature", "left", "right", "threshold", "value")}
        for name, table in tables.items():
            kind = torch.float64 if name in ("threshold", "value") else torch.int64
            if table.dim() != 2 or table.shape != self.feature.shape or table.dtype != kind:
                raise ModelError(f"no trees: {name} is {table.dtype} of shape {tuple(table.shape)}")
        if not self.feature.shape[1] and len(self.feature):
            raise ModelError("no trees: a tree has no nodes")
        if not self.baseline.is_floating_point() or self.baseline.dim():
            raise ModelError(f"no trees: baseline is {self.baseline.dtype} of shape {tuple(self.baseline.shape)}")
        if self.threshold.isnan().any() or not (self.value.isfinite().all() and self.baseline.isfinite()):
            raise ModelError("no trees: a threshold or a value is not a number")
        own = torch.arange(self.feature.shape[1])
        for name in ("left", "right"):  # children come after their parents, so every walk ends
            if ((tables[name] < own) | (tables[name] >= len(own))).any():
                raise ModelError(f"no trees: {name} points before its own node or beyond the last one")
        if (self.feature < 0).any():
            raise ModelError("no trees: feature is negative")

    @classmethod
    def grown(
        cls,
        x: Reals,
        y: NDArray[np.bool_],
        *,
        rounds: int = 200,
        leaves: int = 15,
        learning_rate: float = 0.05,
        l2: float = 10.0,
        split_features: float = 0.2,
        seed: int,
    ) -> Self:
        """Grow boosted trees whose sum is the log-odds of y, with scikit-learn."""
        try:
            from sklearn.ensemble import HistGradientBoostingClassifier
        except ImportError:
            raise ModelError("boosted trees need scikit-learn; install it with: pip install scikit-learn") from None
        estimator = HistGradientBoostingClassifier(
            max_iter=rounds,
            max_leaf_nodes=leaves,
            learning_rate=learning_rate,
            l2_regularization=l2,
            max_features=split_features,
            early_stopping=False,
            random_state=seed,
        )
        return cls.from_sklearn(estimator.fit(x, y))

    @classmethod
    def from_sklearn(cls, estimator: Any) -> Self:
        """Convert a fitted HistGradientBoostingClassifier with two classes, trained without missing values."""
        tables = [predictors[0].nodes for predictors in estimator._predictors]
        most = max((len(nodes) for nodes in tables), default=1)
        size = len(tables), most
        own = np.tile(np.arange(most), (size[0], 1))
        parts = {"feature": np.zeros(size, np.int64), "threshold": np.full(size, np.inf)}
        parts |= {"left": own, "right": own.copy(), "value": np.zeros(size)}
        for r, nodes in enumerate(tables):
            inner = np.flatnonzero(nodes["is_leaf"] == 0)
            for name, column in SKLEARN_NAMES.items():
                parts[name][r, inner] = nodes[column][inner]
            parts["value"][r, : len(nodes)] = nodes["value"]
        baseline = torch.tensor(float(estimator._baseline_prediction.item()), dtype=torch.float64)
        return cls(**{name: torch.from_numpy(part) for name, part in parts.items()}, baseline=baseline)

    def sum(self, x: Reals) -> Reals:
        """Return the baseline plus the values of all trees, added in order.  # [B, F] → [B]"""
        self._check_width(x)
        x, total = np.ascontiguousarray(x, dtype=np.float64), np.full(len(x), float(self.baseline))
        if (call := native()) is not None:
            tables = (self.feature, self.left, self.right, self.threshold, self.value)
            call("tree_sums", torch.from_numpy(x), *tables, torch.from_numpy(total), *x.shape, *self.feature.shape)
            return total
        columns, value = np.ascontiguousarray(x.T), self.value.numpy()
        for r in range(len(value)):
            total += value[r][self._path(columns, r)[-1]]
        return total

    def expected(self, x: Reals) -> Reals:
        """Return the value expected at each node: the mean of the leaves that the rows of x below it reach.

        Below a node that no row reaches, both children count the same.

        Shapes: [B, F] → [R, M]
        """
        self._check_width(x)
        columns, size = np.ascontiguousarray(x.T), tuple(self.value.shape)
        value, left, right = self.value.numpy().copy(), self.left.numpy(), self.right.numpy()
        count = np.zeros(size)
        for r in range(size[0]):
            count[r] = np.bincount(self._path(columns, r)[-1], minlength=size[1])
        every = np.arange(size[0])
        for node in reversed(range(size[1])):  # children come after their parents
            one, two = left[:, node], right[:, node]
            inner = (one != node) | (two != node)
            rows = np.stack([count[every, one], count[every, two]])
            weights = np.where(rows.sum(0) > 0, rows, 1.0)
            mean = (weights[0] * value[every, one] + weights[1] * value[every, two]) / weights.sum(0)
            value[inner, node], count[inner, node] = mean[inner], rows.sum(0)[inner]
        return value

    def path_effects(self, x: Reals, expected: Reals, groups: Ids, number: int) -> Reals:
        """Return by how much splits on each group of features change the value expected on the path of each row.

        The effects of a row and the values expected at all roots add up to its sum without the baseline.

        Shapes: x [B, F], expected [R, M], groups [F] below `number` → [B, number]
        """
        self._check_width(x)
        columns, rows, size = np.ascontiguousarray(x.T), np.arange(len(x)), len(x)
        effects = np.zeros(number * size)
        for r, feature in enumerate(self.feature.numpy()):
            place = groups[feature] * size if len(groups) else feature
            for at, child in pairwise(self._path(columns, r)):
                effects[place[at] + rows] += expected[r][child] - expected[r][at]
        return effects.reshape(number, size).T

    def _path(self, columns: Reals, tree: int) -> list[Ids]:
        """Return the nodes of one tree that rows pass, level by level; a row stays at its leaf.  # [F, B] → [B] each"""
        size = columns.shape[1]
        values, rows = columns.ravel(), np.arange(size)  # feature f of row b at f · B + b
        feature, threshold = self.feature[tree].numpy() * size, self.threshold[tree].numpy()
        left, right = self.left[tree].numpy(), self.right[tree].numpy()
        nodes = [np.zeros(size, dtype=np.int64)]
        while True:
            at = nodes[-1]
            child = np.where(values[feature[at] + rows] <= threshold[at], left[at], right[at])
            if np.array_equal(child, at):
                return nodes
            nodes.append(child)

    def _check_width(self, x: Reals) -> None:
        if self.feature.numel() and x.shape[1] <= int(self.feature.max()):
            raise ModelError(f"{x.shape[1]} features given, but the trees use feature {int(self.feature.max())}")
