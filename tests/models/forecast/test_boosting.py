"""Boosted trees: against values by hand and scikit-learn, with and without compiled functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dysat.models.forecast import boosting
from dysat.models.forecast.boosting import boosted_trees
from dysat.nn import trees
from dysat.nn.trees import Trees
from dysat.system.compiled import native

Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]


def checkers(number: int = 4_000, seed: int = 0) -> tuple[Reals, Bools]:
    """Log-odds of ±2 by the product of the signs of two features; the other features are noise or constant."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(number, 6)).round(2)
    x[:, 3] = 1.5
    x[:, 4] = rng.random(number) < 0.01
    chance = 1 / (1 + np.exp(-2 * np.sign(x[:, 0] * x[:, 1])))
    return x, rng.random(number) < chance


def auc(scores: Reals, labels: Bools) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(labels, scores))


def loss(scores: Reals, labels: Bools) -> float:
    return float(np.logaddexp(0, np.where(labels, -scores, scores)).mean())


def same(one: Trees, two: Trees) -> bool:
    return all(torch.equal(value, vars(two)[name]) for name, value in vars(one).items())


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_as_good_as_scikit_learn_on_an_interaction() -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, y = checkers()
    fresh, labels = checkers(seed=1)
    theirs = HistGradientBoostingClassifier(max_iter=200, max_leaf_nodes=15, early_stopping=False, random_state=0)
    expected = theirs.fit(x, y).decision_function(fresh)
    found = boosted_trees(x, y, seed=0).sum(fresh)
    assert auc(found, labels) > auc(expected, labels) - 0.01
    assert loss(found, labels) < loss(expected, labels) + 0.01


def test_one_split_by_hand() -> None:
    x = np.array([[0.0]] * 60 + [[1.0]] * 40)
    y = np.concatenate([np.arange(60) < 12, np.arange(40) < 30])
    found = boosted_trees(x, y, rounds=1, depth=1, learning_rate=0.5, l2=3.0, seed=0)
    chance = 42 / 100
    each = chance * (1 - chance)
    left, right = -0.5 * (60 * chance - 12) / (60 * each + 3), -0.5 * (40 * chance - 30) / (40 * each + 3)
    assert found.threshold.tolist() == [[0.5, np.inf, np.inf]]
    assert found.sum(np.array([[0.5], [0.51]])) == pytest.approx(np.log(42 / 58) + np.array([left, right]))


def test_one_split_by_an_order_of_rows_by_hand() -> None:
    """Half of all rows have a label that says nothing; the others should score less than rows with the feature."""
    x = np.array([[0.0], [1.0]] * 40 + [[0.0]] * 40)
    y = np.arange(80) % 4 < 2
    order = np.stack([2 * np.arange(40) + 1, 80 + np.arange(40)], axis=1)
    found = boosted_trees(x, y, rounds=1, depth=1, learning_rate=0.5, l2=3.0, seed=0, order=order, order_weight=2.0)
    left, right = -0.5 * (40 * 2 * 0.5) / (40 * 0.25 + 40 * 2 * 0.25 + 3), 0.5 * 40 / (40 * 0.25 + 40 * 2 * 0.25 + 3)
    assert found.threshold.tolist() == [[0.5, np.inf, np.inf]]
    assert found.sum(np.array([[0.0], [1.0]])) == pytest.approx([left, right])


def test_an_order_within_groups_is_learned() -> None:
    """A label depends on the group alone, and the order within a group on a feature alone."""
    rng = np.random.default_rng(0)
    group = np.repeat(rng.normal(size=500), 2)
    x = np.column_stack([group, rng.normal(size=1_000)])
    better = np.where(x[::2, 1] > x[1::2, 1], 0, 1) + 2 * np.arange(500)
    order = np.stack([better, better + 1 - 2 * (better % 2)], axis=1)
    plain, ranked = (
        boosted_trees(x, group > 0, rounds=30, l2=10.0, tree_features=1.0, seed=0, order=o) for o in (None, order)
    )
    right = [(found.sum(x)[order[:, 0]] > found.sum(x)[order[:, 1]]).mean() for found in (plain, ranked)]
    assert right[0] < 0.6 and right[1] > 0.9
    assert auc(ranked.sum(x), group > 0) > 0.97


def test_every_round_lowers_the_training_loss() -> None:
    x, y = checkers(1_000)
    losses = [loss(boosted_trees(x, y, rounds=rounds, tree_features=1.0, seed=0).sum(x), y) for rounds in range(8)]
    assert (np.diff(losses) < 0).all()


def test_tables_reproduce_the_training_leaves() -> None:
    """The last tree of a longer run has the leaf values that follow from the scores of the shorter run."""
    x, y = checkers(500)
    short, long = (boosted_trees(x, y, rounds=rounds, seed=0) for rounds in (5, 6))
    chance = 1 / (1 + np.exp(-short.sum(x)))
    last = Trees(**{n: t[5:] if t.dim() else torch.zeros_like(t) for n, t in vars(long).items()})
    values = last.sum(x)
    for value in np.unique(values):
        rows = values == value
        expected = -0.1 * (chance - y)[rows].sum() / ((chance * (1 - chance))[rows].sum() + 30)
        assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("compiled", [True, False])
def test_bin_edges_separate_rare_values(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(boosting, "native", lambda: None)
    rare = np.concatenate([np.zeros(9_990), np.arange(1, 11)])
    assert boosting._bin_edges(rare[:, None])[0].tolist() == [*(i + 0.5 for i in range(10)), *[np.inf] * 54]
    assert boosting._bin_edges(np.full((50, 1), 3.0))[0].tolist() == [np.inf] * 64
    many = boosting._bin_edges(np.random.default_rng(0).normal(size=(100_000, 1)))[0]
    assert 40 < np.isfinite(many).sum() <= 63 and (np.diff(many[np.isfinite(many)]) > 0).all()


def test_compiled_bin_edges_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 31, 32, 33, 64, 65, 1_000, 50_000):
        normal = rng.normal(size=size)
        columns = (normal, rng.integers(0, 3, size), np.zeros(size), np.exp(5 * normal).round(2), -normal.round(1))
        x = np.column_stack(columns).astype(np.float64)
        before = x.copy()
        found = boosting._bin_edges(x)
        assert np.array_equal(x, before)
        with monkeypatch.context() as patch:
            patch.setattr(boosting, "native", lambda: None)
            assert np.array_equal(boosting._bin_edges(x), found)
    assert boosting._bin_edges(np.empty((5, 0))).shape == (0, boosting.BINS)


def test_a_tree_uses_few_of_the_features() -> None:
    """Each tree has its own three of twelve features, and all of them are used by some tree."""
    x = np.random.default_rng(0).normal(size=(2_000, 12))
    y = x.sum(axis=1) > 0
    found = boosted_trees(x, y, rounds=30, tree_features=0.25, seed=0)
    used = [
        set(features[cuts.isfinite()].tolist()) for features, cuts in zip(found.feature, found.threshold, strict=True)
    ]
    assert max(map(len, used)) == 3 and len(set(map(frozenset, used))) > 20
    assert set().union(*used) == set(range(12))


def test_constant_features_give_the_baseline_only() -> None:
    y = np.arange(10) < 3
    found = boosted_trees(np.ones((10, 2)), y, seed=0)
    assert found.feature.shape == (0, 127)
    assert found.sum(np.zeros((2, 2))) == pytest.approx(np.log(3 / 7))


def test_splits_need_a_minimum_curvature() -> None:
    """Seven rows with p (1 − p) = ¼ each are too few to split off, even if all have the same label."""
    x, y = np.zeros((1_000, 1)), np.arange(1_000) % 2 == 0
    x[:14:2] = 1.0  # all labelled true
    assert boosted_trees(x, y, rounds=1, depth=1, l2=0.0, seed=0).threshold.tolist() == [[np.inf] * 3]
    x[:20:2] = 1.0
    assert boosted_trees(x, y, rounds=1, depth=1, l2=0.0, seed=0).threshold[0, 0] == 0.5


@pytest.mark.parametrize("l2", [10.0, 0.1, 0.0])
def test_compiled_trees_have_the_same_bits_on_any_number_of_threads(l2: float, threads: None) -> None:
    if native() is None:
        pytest.skip("no C compiler")
    x, y = checkers(30_000)
    order = np.random.default_rng(0).integers(0, len(x), (20_000, 2))
    options: dict[str, Any] = {"rounds": 10, "l2": l2, "tree_features": 0.7, "order": order}
    found = []
    for number in (1, 2, 5):
        torch.set_num_threads(number)
        found.append(boosted_trees(x, y[:25_000], **options, seed=0))
    assert same(found[0], found[1]) and same(found[0], found[2])
    assert not same(found[0], boosted_trees(x, y[:25_000], **options, seed=1))


@pytest.mark.parametrize("l2", [10.0, 0.1, 0.0])
def test_compiled_trees_equal_those_of_numpy(l2: float, monkeypatch: pytest.MonkeyPatch) -> None:
    if native() is None:
        pytest.skip("no C compiler")
    x, y = checkers()
    order = np.random.default_rng(0).integers(0, len(x), (3_000, 2))  # a row is above some rows and below others
    options: dict[str, Any] = {"rounds": 20, "l2": l2, "order": order, "order_weight": 0.5}
    found = boosted_trees(x, y[:3_500], **options, seed=0)
    scores = found.sum(x)
    for module in (boosting, trees):
        monkeypatch.setattr(module, "native", lambda: None)
    plain = boosted_trees(x, y[:3_500], **options, seed=0)
    assert found.feature.equal(plain.feature) and found.threshold.equal(plain.threshold)
    assert found.threshold.isfinite().sum() > 100
    # Exponentials are rounded differently, so a slope may be the next multiple of 2⁻³⁹; sums are exact.
    torch.testing.assert_close(found.value, plain.value, rtol=0, atol=1e-13)
    np.testing.assert_allclose(scores, plain.sum(x), rtol=0, atol=1e-12)


def test_sums_of_slopes_are_exact_in_any_order() -> None:
    x, y = checkers(3_000)
    order = np.random.default_rng(0).integers(0, len(x), (9_000, 2))
    pairs = boosting._Pairs.of(order, len(x))
    raw = np.random.default_rng(1).normal(size=len(x), scale=30)  # some rows have nearly the largest slope there is
    growing = boosting._Growing(np.empty((0, 0), np.uint8), y.astype(np.uint8), pairs, 5.0, 10.0, 0.1, raw)
    both = growing._derivatives()
    assert np.abs(both).sum() > 1_000 and np.array_equal(both * growing.fine, np.rint(both * growing.fine))
    backwards, exact = both[::-1].cumsum(axis=0)[-1], np.array([math.fsum(column) for column in both.T])
    assert np.array_equal(both.cumsum(axis=0)[-1], exact) and np.array_equal(backwards, exact)
    assert np.abs(both).sum() * growing.fine < 2**53
