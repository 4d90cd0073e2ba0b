"""Columns of a pair from the attributes of its nodes, against slow loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from run_folders import small_graph
from small import meetings

import dysat
from dysat.features.pair_attributes import (
    MAX_COLUMNS,
    MAX_WIDTH,
    PRODUCTS,
    SIDE_AXES,
    Axes,
    differ_in_kind,
    with_attributes,
)

NAMES = ("team=a", "team=b", "team=other", "age", "age missing", "size")
# a, b, pooled, missing, a, pooled, b, a; ages of nodes 2 and 5 are missing
TEAMS = [0, 1, 2, None, 0, 2, 1, 0]
AGES = [1.0, -0.5, 0.0, 2.0, -1.5, 0.0, 0.25, 0.75]
MISSING = [0, 0, 1, 0, 0, 1, 0, 0]
SIZES = [0.1 * node for node in range(8)]


def features() -> torch.Tensor:
    rows = []
    for team, age, missing, size in zip(TEAMS, AGES, MISSING, SIZES, strict=True):
        rows.append([*(float(team == value) for value in range(3)), age, float(missing), size])
    return torch.tensor(rows)


def all_pairs(number: int) -> np.ndarray:
    return np.stack(np.triu_indices(number, 1), axis=1)


def attributes_of(graph: dysat.DynamicGraph, step: int, pairs: np.ndarray) -> np.ndarray:
    """The columns of kinds and attributes alone."""
    return with_attributes(np.empty((len(pairs), 0)), graph, step, pairs)


def test_named_attributes_by_hand() -> None:
    graph = meetings().with_features(features(), names=NAMES)
    pairs = all_pairs(8)
    found = attributes_of(graph, len(graph) - 1, pairs)
    for row, (u, v) in zip(found, pairs.tolist(), strict=True):
        both = TEAMS[u] is not None and TEAMS[v] is not None
        same = both and TEAMS[u] == TEAMS[v] and TEAMS[u] != 2
        ages = not MISSING[u] and not MISSING[v]
        expected = [1.0, float(same), float(both)]
        expected += [abs(AGES[u] - AGES[v]) * ages, min(AGES[u], AGES[v]), max(AGES[u], AGES[v]), float(ages)]
        expected += [abs(SIZES[u] - SIZES[v]), min(SIZES[u], SIZES[v]), max(SIZES[u], SIZES[v])]
        np.testing.assert_allclose(row, expected, rtol=1e-6, atol=1e-7)


def test_a_graph_without_features_has_the_kind_alone() -> None:
    for graph in (meetings(), meetings().with_kinds([0, 1] * 4, ["user", "item"])):
        pairs = all_pairs(graph.num_nodes)
        assert np.array_equal(attributes_of(graph, 0, pairs), differ_in_kind(graph, pairs)[:, None])


def test_values_are_those_of_the_step() -> None:
    graph = meetings()
    parts = [features()[:known] * (step + 1.0) for step, known in enumerate(graph.known)]
    graph = graph.with_features(parts, names=NAMES)
    for step, known in enumerate(graph.known):
        pairs = all_pairs(known)
        alone = graph[step : step + 1]
        assert np.array_equal(attributes_of(graph, step, pairs), attributes_of(alone, 0, pairs))


@pytest.mark.parametrize("width", [3, 40, MAX_WIDTH + 1])
def test_unnamed_features_have_few_columns(width: int) -> None:
    """Nodes with equal features have cosine 1 and distance 0, whatever the width."""
    values = np.random.default_rng(0).normal(size=(8, width))
    values[5] = values[2]
    graph = meetings().with_features(values)
    found = attributes_of(graph, len(graph) - 1, np.array([[2, 5], [2, 3], [3, 2]]))
    assert found.shape == (3, 1 + 2 + min(PRODUCTS, width))
    np.testing.assert_allclose(found[0, 1:3], [1, 0], atol=1e-6)
    assert found[1, 2] > 0.1 and np.array_equal(found[1], found[2])


def test_many_named_attributes_are_bounded() -> None:
    values = np.random.default_rng(0).normal(size=(8, 200))
    graph = meetings().with_features(values, names=[f"x{i}" for i in range(200)])
    assert attributes_of(graph, 0, all_pairs(graph.known[0])).shape[1] < MAX_COLUMNS


def test_principal_axes() -> None:
    """Coordinates are uncorrelated, sorted by variance, and keep distances if all axes are kept."""
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 6)) @ np.diag([1, 2, 3, 4, 5, 6.0]) + 7)
    z = Axes.of(x, 6)(x)
    covariance = z.T @ z / 50
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-10)
    assert (np.diff(np.diag(covariance)) <= 1e-12).all()
    standard = ((x - x.mean(0)) / x.std(0, correction=0)).numpy()
    np.testing.assert_allclose(np.linalg.norm(z[3] - z[8]), np.linalg.norm(standard[3] - standard[8]))


def test_the_two_sides_of_bipartite_data_meet_in_products() -> None:
    graph = meetings().with_kinds([0, 1] * 4, ["user", "item"]).with_features(features(), names=NAMES)
    step, pairs = len(graph) - 1, all_pairs(8)
    found = attributes_of(graph, step, pairs)
    products = found[:, 10:]
    assert products.shape[1] == SIDE_AXES**2
    across = graph.kinds[pairs[:, 0]] != graph.kinds[pairs[:, 1]]  # type: ignore[index]
    assert (products[~across] == 0).all() and (products[across] != 0).any(1).all()
    assert np.array_equal(found, attributes_of(graph, step, pairs[:, ::-1].copy()))


def test_a_score_of_other_attributes_is_refused() -> None:
    graph = small_graph()
    model = dysat.DySAT(epochs=1, device="cpu", inputs="features").fit(graph)
    other = graph.with_features(np.ones((graph.num_nodes, 2)))
    pairs = torch.tensor([[0, 1]])
    with pytest.raises(dysat.ModelError, match=r"^the pair score was learned from \d+ columns, and there are \d+ now"):
        model._pair_score().log_odds(other, 1, pairs)
    logistic = dysat.MODELS["pair-logistic"]().fit(graph)
    logistic.graph_ = other
    with pytest.raises(dysat.ModelError, match=r"^pair-logistic was learned from \d+ columns, and there are \d+ now"):
        logistic.pair_scores(pairs)
