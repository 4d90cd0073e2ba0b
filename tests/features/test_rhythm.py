"""Windows with a time of day or of the week: which of them lie as the next one does, and what they teach."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from small import make_graph, two_blocks

import dysat
from dysat.data.graph import DynamicGraph
from dysat.data.windows import DAY
from dysat.errors import ModelError
from dysat.evaluation.probe import auc
from dysat.features.pair_columns import more_history, pair_columns
from dysat.features.rhythm import like_the_next, recurrence, shares
from dysat.models.forecast import examples as pair_examples
from dysat.models.forecast.examples import recent_transitions, same_time, teaching
from dysat.models.forecast.pair_score import PairScore

HOUR = DAY // 24


def at_hours(graph: DynamicGraph, hours: Sequence[int] | int) -> DynamicGraph:
    """A graph whose windows begin at these hours after 1970, or are all so many hours wide."""
    edges = [hours * k for k in range(len(graph) + 1)] if isinstance(hours, int) else list(hours)
    snapshots = [
        dysat.Snapshot(s.rows, s.offsets, s.neighbours, s.weights, s.num_nodes, edges[k] * HOUR, edges[k + 1] * HOUR)
        for k, s in enumerate(graph)
    ]
    return DynamicGraph(graph.nodes, tuple(snapshots), clock="utc")


def quiet(number: int, hours: Sequence[int] | int) -> tuple[dysat.Snapshot, ...]:
    return at_hours(make_graph([2] * number, [[(0, 1)]] * number), hours).snapshots


def mornings_and_evenings(days: int = 6, size: int = 40, seed: int = 0) -> DynamicGraph:
    """Four windows a day. Pairs of one kind meet in the morning, of another at noon, some of any kind at night."""
    rng = np.random.default_rng(seed)
    nodes = rng.permutation(size)
    early, late = nodes.reshape(-1, 2), np.roll(nodes, 1).reshape(-1, 2)
    links = []
    for _ in range(days):
        drawn = [kind[rng.random(len(kind)) < 0.8] for kind in (early, late)]
        links += [[(int(u), int(v)) for u, v in some] for some in drawn]
        links += [[(int(u), int(v)) for u, v in rng.integers(0, size, (4, 2)) if u != v], []]
    everyone = [(k, k + 1) for k in range(0, size, 2)]
    return at_hours(make_graph([size] * (4 * days + 1), [everyone, *links]), 6)


def test_shares_by_hand() -> None:
    found = shares(quiet(5, 6))  # 0, 6, 12, 18, 24 o'clock; the next begins at 30 and is 6 hours wide
    assert found.shape == (2, 8, 5)
    assert_array_equal(found[0, 0], [0, 1, 0, 0, 0])  # yesterday's 6 o'clock
    assert not found[0, 1:].any() and not found[1].any()
    uneven = shares(quiet(4, [0, 4, 10, 26, 32]))  # the next one is 32 to 38, the day before 8 to 14
    assert_allclose(uneven[0, 0], [0, 2 / 6, 4 / 16, 0])  # of the wider of the two


def test_older_days_count_less_and_weeks_have_a_row_of_their_own() -> None:
    found = recurrence(quiet(10, 12))  # half-days; the next one is the morning of day 5
    assert_allclose(found[0], [0.6**4, 0, 0.6**3, 0, 0.6**2, 0, 0.6, 0, 1, 0])
    daily = recurrence(quiet(15, 24))  # whole days have no time of day, but one of the week
    assert not daily[0].any()
    assert_allclose(daily[1], [0, 0.6, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    assert not recurrence(quiet(15, 24 * 7)).any()


def test_steps_without_dates_have_no_rhythm() -> None:
    graph = make_graph([2] * 40, [[(0, 1)]] * 40)
    assert not recurrence(quiet(10, [0] * 11)).any()  # nor windows without width
    assert not recurrence(graph.snapshots).any()
    assert like_the_next(graph.snapshots) == []


def test_windows_that_teach_lie_as_the_next_one_does_at_most_three_days_or_weeks_before() -> None:
    assert like_the_next(quiet(21, 6)) == [9, 13, 17]  # the next is number 21, at 6 o'clock
    assert like_the_next(quiet(35, 24)) == [14, 21, 28]
    assert like_the_next(quiet(4, [0, 6, 12, 26, 32])) == [1]  # 8 to 12 are more than half of it
    assert like_the_next(quiet(4, [0, 4, 10, 26, 32])) == []  # a window much wider than the next one is not like it
    assert like_the_next(quiet(60, 12)) == [18, 32, 46, 54, 56, 58]


def test_what_a_pair_did_at_this_time_of_day_is_among_its_features() -> None:
    graph = at_hours(make_graph([4] * 5, [[(0, 1)], [(0, 1), (1, 2)], [(0, 1)], [(0, 2)], [(0, 3)]]), 6)
    history = more_history(graph.snapshots)  # the next begins at 30 o'clock: yesterday's was snapshot 1
    assert history.base.keys.tolist() == [1, 2, 3, 6]
    assert_allclose(history.same, np.log1p([[1, 0, 0, 1], [0] * 4, [1, 0, 0, 1], [0] * 4]))
    pairs = np.array([[0, 1], [0, 2], [1, 2], [2, 3]])
    before = pair_columns(graph.snapshots, pairs, True)
    moved = pair_columns(at_hours(graph, [0, 6, 12, 18, 24, 31]).snapshots, pairs, True)
    steps = pair_columns(at_hours(graph, 24 * 7).snapshots, pairs, True)
    assert before.shape == moved.shape == steps.shape
    assert not np.array_equal(before, moved) and not np.array_equal(before, steps)


def test_empty_windows_do_not_count_among_the_last_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [[(0, 1)], [(0, 1)], [(1, 2)], [], [(3, 3)], [(0, 2)], []]
    graph = make_graph([4] * 7, links)
    monkeypatch.setattr(pair_examples, "ENOUGH", 1)
    assert recent_transitions(graph.snapshots, 2) == [2, 5]
    monkeypatch.setattr(pair_examples, "ENOUGH", 3)
    assert recent_transitions(graph.snapshots, 2) == [1, 2, 5]
    monkeypatch.setattr(pair_examples, "MOST_TRANSITIONS", 2)
    assert recent_transitions(graph.snapshots, 2) == [2, 5]
    assert recent_transitions(graph.snapshots, 3) == [1, 2, 5]
    full = make_graph([2, 2], [[(0, 1)], [(0, 1)]])
    assert recent_transitions(full.snapshots, 1) == []  # there is no other pair to tell it from


def test_transitions_at_the_same_time_of_day_count_thrice() -> None:
    graph = mornings_and_evenings()
    snapshots = graph.snapshots[:21]  # the next is the noon of day 5
    assert same_time(snapshots) == [9, 13, 17]
    assert sorted(teaching([13, 19], same_time(snapshots))) == [9] * 3 + [13] * 3 + [17] * 3 + [19]
    assert same_time(snapshots[:20]) == []  # nobody meets in the evening
    assert teaching([1, 2], []) == [1, 2]


def test_who_meets_at_which_hour_is_learned_where_windows_have_one() -> None:
    graph = mornings_and_evenings()
    early, late = (torch.cat([torch.stack(graph[step].links()[:2], 1) for step in range(k, 21, 4)]) for k in (1, 2))
    pairs = torch.unique(torch.cat([early, late]), dim=0)
    meet_now = torch.isin(pairs[:, 0] * 40 + pairs[:, 1], early[:, 0] * 40 + early[:, 1])
    found = []
    for past in (graph[:21], at_hours(graph[:21], 24 * 7)):  # the next is a morning; by weeks there is no hour
        score = PairScore.learn(past, transitions=3)
        assert score is not None
        found.append(auc(score.log_odds(past, 20, pairs), meet_now))
    assert found[0] > 0.98 and found[1] < 0.9


def test_chances_come_from_the_same_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mornings_and_evenings()[:21]
    asked: list[int] = []
    original = pair_examples.examples_of
    monkeypatch.setattr(
        "dysat.models.forecast.pair_score.examples_of",
        lambda graph, snapshots, *options: asked.append(len(snapshots) - 1) or original(graph, snapshots, *options),
    )
    seen: list[int] = []
    calibrated = dysat.models.forecast.pair_score._calibrated
    monkeypatch.setattr(
        "dysat.models.forecast.pair_score._calibrated",
        lambda score, before, last: seen.append(last.links) or calibrated(score, before, last),
    )
    assert PairScore.learn(graph, transitions=3) is not None
    assert seen == [graph[17].num_links]
    assert len(asked) == len(set(asked))  # each is looked at once, however often it counts


def test_a_score_of_other_features_says_so() -> None:
    graph = two_blocks(steps=3)
    score = PairScore.learn(graph)
    assert score is not None
    tensors = score.tensors()
    fewer = {name: tensors[name][..., :-2] for name in ("means", "scales", "weights")}
    old = PairScore.of({**tensors, **fewer})
    with pytest.raises(ModelError, match=r"was learned from \d+ columns, and there are \d+ now; fit the model anew"):
        old.log_odds(graph, 2, torch.tensor([[0, 1]]))
