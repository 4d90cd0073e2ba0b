"""Trees as tables against scikit-learn, which grew them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dysat.errors import ModelError
from dysat.nn.trees import Trees


@pytest.mark.parametrize("leaves", [2, 31])
def test_sums_match_scikit_learn(leaves: int) -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = np.random.default_rng(0)
    x = rng.normal(size=(2_000, 6)).round(1)
    y = x[:, 0] * x[:, 1] + rng.normal(size=2_000) > 0.5
    estimator = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=leaves, random_state=0).fit(x, y)
    trees = Trees.from_sklearn(estimator)
    on_thresholds = rng.choice(trees.threshold[trees.threshold.isfinite()].numpy(), (2_000, 6))
    fresh = np.concatenate([rng.normal(size=(500, 6)) * 2, x[:500], on_thresholds])
    np.testing.assert_allclose(trees.sum(fresh), estimator.decision_function(fresh), rtol=0, atol=1e-12)


def test_one_tree_by_hand() -> None:
    one = {"feature": [[1, 0, 0]], "left": [[1, 1, 2]], "right": [[2, 1, 2]]}
    table = {name: torch.tensor(values) for name, values in one.items()}
    split = torch.tensor([[0.5, torch.inf, torch.inf]], dtype=torch.float64)
    value = torch.tensor([[9.0, -1.0, 2.0]], dtype=torch.float64)
    trees = Trees(**table, threshold=split, value=value, baseline=torch.tensor(10.0))
    assert trees.sum(np.array([[7.0, 0.5], [7.0, 0.6]])).tolist() == [9.0, 12.0]
    assert trees.sum(np.zeros((0, 2))).tolist() == []


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("feature", -1, "feature is negative"),
        ("left", -1, "left points before its own node or beyond the last one"),
        ("left", 3, "left points before its own node or beyond the last one"),
        ("right", 10**10, "right points before its own node or beyond the last one"),
    ],
)
def test_tables_with_wrong_indices_are_refused(name: str, value: int, problem: str) -> None:
    one = {"feature": [[0, 0, 0]], "left": [[1, 1, 2]], "right": [[2, 1, 2]]}
    tables = {key: torch.tensor(values) for key, values in one.items()}
    numbers = {key: torch.zeros(1, 3, dtype=torch.float64) for key in ("threshold", "value")}
    tables[name][0, 0] = value
    with pytest.raises(ModelError, match=f"^no trees: {problem}"):
        Trees(**tables, **numbers, baseline=torch.tensor(0.0))


def test_wrong_shapes_types_and_too_few_features_are_refused() -> None:
    tables = {key: torch.zeros(1, 1, dtype=torch.int64) for key in ("feature", "left", "right")}
    numbers = {key: torch.zeros(1, 1, dtype=torch.float64) for key in ("threshold", "value")}
    baseline = torch.tensor(0.0)
    with pytest.raises(ModelError, match=r"^no trees: value is torch.float32 of shape \(1, 1\)$"):
        Trees(**tables, **{**numbers, "value": torch.zeros(1, 1)}, baseline=baseline)
    with pytest.raises(ModelError, match=r"^no trees: left is torch.int64 of shape \(1, 2\)$"):
        Trees(**{**tables, "left": torch.zeros(1, 2, dtype=torch.int64)}, **numbers, baseline=baseline)
    tables["feature"] += 2
    trees = Trees(**tables, **numbers, baseline=baseline)
    with pytest.raises(ModelError, match=r"^2 features given, but the trees use feature 2$"):
        trees.sum(np.zeros((5, 2)))
    assert trees.sum(np.zeros((5, 3), dtype=np.float32)[::-1]).tolist() == [0.0] * 5


def some_trees() -> tuple[Trees, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 5)).round(1)
    y = x[:, 0] * x[:, 1] + x[:, 2] + rng.normal(size=600) > 0.5
    return Trees.grown(x, y, rounds=12, leaves=8, seed=0), x


def leaf_values(trees: Trees, r: int, node: int, x: np.ndarray) -> list[float]:
    """The values of the leaves that rows reach from a node."""
    left, right = int(trees.left[r, node]), int(trees.right[r, node])
    if left == right == node:
        return [float(trees.value[r, node])] * len(x)
    smaller = x[:, int(trees.feature[r, node])] <= float(trees.threshold[r, node])
    return leaf_values(trees, r, left, x[smaller]) + leaf_values(trees, r, right, x[~smaller])


def expected_at(trees: Trees, r: int, node: int, x: np.ndarray) -> float:
    """The mean over rows that reach a node; without any, the mean of both children."""
    if len(x):
        return float(np.mean(leaf_values(trees, r, node, x)))
    left, right = int(trees.left[r, node]), int(trees.right[r, node])
    if left == right == node:
        return float(trees.value[r, node])
    return (expected_at(trees, r, left, x) + expected_at(trees, r, right, x)) / 2


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_expected_values_and_effects_along_paths(rows: int) -> None:
    """Against a walk from the root to the leaf, one row and one tree at a time; rows=1 leaves most nodes unreached."""
    trees, x = some_trees()
    background, fresh, groups = x[:rows], x[100:140] * 1.5, np.array([0, 1, 1, 2, 0])
    expected = trees.expected(background)
    found = trees.path_effects(fresh, expected, groups, 4)
    for b, row in enumerate(fresh):
        effects = np.zeros(4)
        for r in range(len(trees.feature)):
            node, reached = 0, background
            while int(trees.left[r, node]) != node:
                feature, threshold = int(trees.feature[r, node]), float(trees.threshold[r, node])
                smaller = bool(row[feature] <= threshold)
                child = int((trees.left if smaller else trees.right)[r, node])
                below = reached[(reached[:, feature] <= threshold) == smaller]
                change = expected_at(trees, r, child, below) - expected_at(trees, r, node, reached)
                effects[groups[feature]] += change
                node, reached = child, below
        np.testing.assert_allclose(found[b], effects, rtol=0, atol=1e-12)
    total = float(trees.baseline) + expected[:, 0].sum() + found.sum(1)
    np.testing.assert_allclose(total, trees.sum(fresh), rtol=0, atol=1e-12)
    if rows > 1:
        mean = float(trees.baseline) + expected[:, 0].sum()
        np.testing.assert_allclose(mean, trees.sum(background).mean(), rtol=0, atol=1e-12)


def test_no_trees_have_no_effects() -> None:
    tables = {key: torch.zeros(0, 3, dtype=torch.int64) for key in ("feature", "left", "right")}
    numbers = {key: torch.zeros(0, 3, dtype=torch.float64) for key in ("threshold", "value")}
    trees, x = Trees(**tables, **numbers, baseline=torch.tensor(0.5)), np.ones((2, 3))
    assert trees.expected(x).shape == (0, 3)
    assert trees.path_effects(x, trees.expected(x), np.zeros(3, dtype=np.int64), 1).tolist() == [[0.0], [0.0]]
