"""Weights of the parts of the pair score: the rule, what moves them, and the floor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small import two_blocks

from dysat.features.pair_history import PLAIN_COLUMNS, pair_history
from dysat.models.forecast import mixture
from dysat.models.forecast.examples import Examples
from dysat.models.forecast.mixture import learned_weights, rule
from dysat.models.forecast.parts import CONSTANT, NUM_EXPERTS, PLAIN, REGRESSION, REPEATED, TREE_SUM

Reals = np.ndarray[Any, np.dtype[np.float64]]


def window(links: int, seed: int = 0, **helpful: float) -> tuple[Reals, Examples]:
    """Experts of noise, and a window of links, two pairs without a link for each, and one to rank below each.

    `helpful` names experts with their mean score of links, "all" or "old" pairs; half of all pairs were linked before.
    """
    rng, size = np.random.default_rng(seed), 4 * links
    experts, link = rng.normal(size=(size, NUM_EXPERTS)), np.arange(size) < links
    experts[:, CONSTANT] = 1.0
    before = rng.random(size) < 0.5
    for name, mean in helpful.items():
        expert, which = name.split("_")
        experts[:, int(expert[1:])] += mean * link * (before if which == "old" else 1)
    numbers = {"num_links": links, "num_uniform": 3 * links, "num_added": 0, "num_dropped": 9, "num_unlinked": 999}
    last = Examples(np.empty((size, 0)), np.empty((size, 0)), before, above=np.arange(links), **numbers)
    return experts, last


def loss(experts: Reals, last: Examples, weights: Reals) -> float:
    held = mixture._Windows.of([last])
    return held.losses(experts, held.scaled(experts, weights)).mean


def test_rule_gives_all_weight_to_the_parts() -> None:
    few, many = rule(100), rule(100_000)
    for weights in (few, many):
        assert weights.sum(1).tolist() == pytest.approx([1, 1])
        assert weights[0, REPEATED] == 0 and weights[1, REPEATED] == pytest.approx(1 / 3)
        assert not weights[:, PLAIN].any() and not weights[:, CONSTANT].any()
    assert (few[:, TREE_SUM] < few[:, REGRESSION]).all() and (many[:, TREE_SUM] > many[:, REGRESSION]).all()
    assert rule(4_000)[0, TREE_SUM] == 0.5


@pytest.mark.parametrize("expert", [REGRESSION, TREE_SUM, PLAIN.start, PLAIN.stop - 1])
def test_weights_move_to_the_expert_that_ranked_the_window_best(expert: int) -> None:
    helpful = {f"e{REGRESSION}_all": 1.0, f"e{expert}_all": 2.0}
    experts, last = window(4_000, **helpful)
    start = rule(4_000)
    found = learned_weights([experts], [last], start, floor=False)
    assert (found[:, expert] > start[:, expert] + 0.05).all()
    assert loss(experts, last, found) < loss(experts, last, start) - 0.01
    new = window(4_000, seed=1, **helpful)
    assert loss(*new, found) < loss(*new, start) - 0.01


def test_pairs_linked_before_have_weights_of_their_own() -> None:
    helpful = {f"e{REGRESSION}_all": 1.0, f"e{PLAIN.start}_old": 2.0, f"e{REPEATED}_old": 2.0}
    experts, last = window(4_000, **helpful)
    start = rule(4_000)
    moved = learned_weights([experts], [last], start, floor=False) - start
    assert moved[1, PLAIN.start] > 0.1 > abs(moved[0, PLAIN.start])
    assert moved[1, REPEATED] > 0.1 and moved[0, REPEATED] == 0


def halves(experts: Reals, last: Examples) -> tuple[list[Reals], list[Examples]]:
    """The same rows as two windows: every link with its pair to rank below, and half of the uniform pairs."""
    links, scores, windows = last.num_links, list[Reals](), list[Examples]()
    for rows in (np.arange(links // 3), np.arange(links // 3, links)):
        uniform = links + np.concatenate([2 * rows, 2 * rows + 1])
        chosen = np.concatenate([rows, uniform, 3 * links + rows])
        scores.append(experts[chosen])
        numbers = {"num_links": len(rows), "num_uniform": 3 * len(rows)}
        arrays = {name: getattr(last, name)[chosen] for name in ("features", "ranks", "linked_before")}
        windows.append(replace(last, **arrays, **numbers, above=np.arange(len(rows))))
    return scores, windows


@pytest.mark.parametrize("floor", [False, True])
def test_several_windows_count_as_one_with_all_of_their_pairs(floor: bool) -> None:
    helpful = {f"e{REGRESSION}_all": 0.5, f"e{PLAIN.start}_all": 3.0, f"e{REPEATED}_old": 1.0}
    experts, last = window(600, **helpful)
    whole, parts = mixture._Windows.of([last]), mixture._Windows.of(halves(experts, last)[1])
    assert not np.array_equal(whole.linked, parts.linked) and whole.linked.sum() == parts.linked.sum()
    expected = learned_weights([experts], [last], rule(600), floor=floor)
    found = learned_weights(*halves(experts, last), rule(600), floor=floor)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert not np.allclose(found, rule(600), atol=0.01)
    one = learned_weights(*(part[:1] for part in halves(experts, last)), rule(600), floor=floor)
    assert not np.allclose(found, one, atol=0.01)


def test_few_windows_with_few_links_have_no_floor_but_many_have() -> None:
    every = [window(20, seed, **{f"e{REGRESSION}_all": 0.3, f"e{PLAIN.start}_all": 9.0}) for seed in range(2)]
    for some in (every[:1], every):
        free, held = (
            learned_weights(*map(list, zip(*some, strict=True)), rule(20), floor=floor) for floor in (False, True)
        )
        assert np.array_equal(free, held) == (len(some) == 1)


def test_few_links_change_little() -> None:
    start, moved = rule(30), []
    for seed in range(5):
        experts, last = window(30, seed, **{f"e{REGRESSION}_all": 1.0})
        moved.append(np.abs(learned_weights([experts], [last], start, floor=False) - start).max())
    assert max(moved) < 0.1


def test_a_window_that_contradicts_all_others_changes_nothing() -> None:
    experts, last = window(500, **{f"e{REGRESSION}_all": -2.0, f"e{TREE_SUM}_all": -2.0, f"e{REPEATED}_all": -2.0})
    start = rule(500)
    assert np.array_equal(learned_weights([experts], [last], start, floor=False), start)


def test_floor_is_the_best_expert_of_the_window() -> None:
    """With few links the penalty holds the weights near the rule, although degrees alone rank far better."""
    experts, last = window(200, **{f"e{REGRESSION}_all": 0.3, f"e{PLAIN.start}_all": 3.0})
    start, alone = rule(200), np.zeros((2, NUM_EXPERTS))
    alone[:, PLAIN.start] = 1.0
    free, held = (learned_weights([experts], [last], start, floor=floor) for floor in (False, True))
    best = loss(experts, last, alone)
    assert loss(experts, last, free) > best + 0.05
    assert loss(experts, last, held) < best + 0.05


def test_floor_does_nothing_where_no_expert_is_better() -> None:
    helpful = {f"e{expert}_all": 1.0 for expert in (REGRESSION, TREE_SUM, REPEATED)}
    experts, last = window(500, **helpful)
    free, held = (learned_weights([experts], [last], rule(500), floor=floor) for floor in (False, True))
    assert np.array_equal(free, held)


def test_a_window_with_few_links_has_no_floor() -> None:
    for links, floor in ((29, False), (30, True)):
        experts, last = window(links, **{f"e{REGRESSION}_all": 0.3, f"e{PLAIN.start}_all": 9.0})
        free, held = (learned_weights([experts], [last], rule(links), floor=floor) for floor in (False, True))
        assert np.array_equal(free, held) != floor


def test_best_expert_is_used_alone_if_no_penalty_is_small_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture, "PENALTIES", (1e12,))
    experts, last = window(500, **{f"e{PLAIN.start}_all": 3.0})
    found = learned_weights([experts], [last], rule(500), floor=True)
    others = np.delete(found, [PLAIN.start, CONSTANT], axis=1)
    assert not others.any() and (found[:, PLAIN.start] > 1).all() and found[0, CONSTANT] == found[1, CONSTANT] < 0


def test_slopes_of_a_sample_are_nearly_as_good_as_those_of_all_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    experts, last = window(8_000, **{f"e{REGRESSION}_all": 1.0})
    held = mixture._Windows.of([last])
    some = [held.scaled(experts, weights) for weights in mixture._experts_alone()]
    monkeypatch.setattr(mixture, "SLOPE_ROWS", len(experts))
    for weights, sampled in zip(mixture._experts_alone(), some, strict=True):
        every = held.scaled(experts, weights)
        assert not np.array_equal(every, sampled)
        assert held.losses(experts, sampled).mean < held.losses(experts, every).mean + 0.002


def test_directions_keep_the_sum_of_regressions_and_trees() -> None:
    start, *ways = mixture._directions(rule(2_000))
    assert len(ways) == 4 + 2 * len(PLAIN_COLUMNS) and np.array_equal(start, rule(2_000))
    for way in ways:
        parts = way[:, [REGRESSION, REPEATED, TREE_SUM]]
        assert parts.sum() == pytest.approx(0) and np.abs(way).max() == 1


def test_plain_columns_are_degrees_memory_and_common_neighbours() -> None:
    graph = two_blocks(steps=3)
    history = pair_history(graph.snapshots, True)
    pairs = np.stack(np.triu_indices(graph.num_nodes, 1), axis=1)
    features, _ = history.features(pairs)
    size = graph.num_nodes
    near, far = np.zeros((size, size)), np.zeros((size, size))  # decayed weights of both decays
    degrees = np.zeros(size)
    for age, snapshot in enumerate(reversed(graph.snapshots)):
        u, v, weights = (part.numpy() for part in snapshot.links())
        for a, b in ((u, v), (v, u)):
            near[a, b] += 0.6**age * weights
            far[a, b] += 0.9**age * weights
            np.add.at(degrees, a, 0.9**age)
    found = {name: features[:, list(columns)] for name, columns in PLAIN_COLUMNS.items()}
    ends = np.sort(np.log1p(degrees)[pairs], axis=1)
    assert np.allclose(found["degrees"], ends)
    assert np.allclose(found["memory of the link"][:, 0], np.log1p(far)[pairs[:, 0], pairs[:, 1]])
    damped = np.log1p(near) * history.damping[2] @ np.log1p(near)
    assert np.allclose(found["common neighbours"][:, 0], np.log1p(damped)[pairs[:, 0], pairs[:, 1]])
