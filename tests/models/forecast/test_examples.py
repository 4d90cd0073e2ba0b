"""Training examples of the pair score: which transitions, which pairs, and with which features."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from by_time import mornings_and_evenings
from event_times import with_times
from small import all_pairs, make_graph, two_blocks

import dysat
from dysat.features.pair_history import PairHistory, history_bytes, history_of, pair_history
from dysat.models.forecast import examples as module
from dysat.models.forecast.examples import (
    Plan,
    Windows,
    examples_of,
    planned,
    random_halves,
    recent_transitions,
    same_time_transitions,
    training_transitions,
)
from dysat.models.forecast.pair_score import PairScore


@pytest.fixture
def no_cache() -> Iterator[None]:
    module._examples.cache_clear()
    pair_history.cache_clear()
    yield
    module._examples.cache_clear()


def test_recent_transitions_skip_those_without_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    links = [[(0, 1)], [(0, 1)], [(1, 2)], [], [(3, 3)], [(0, 2)], []]
    snapshots = make_graph([4] * 7, links).snapshots
    monkeypatch.setattr(module, "ENOUGH_LINKS", 1)
    assert recent_transitions(snapshots, 2) == [2, 5]
    monkeypatch.setattr(module, "ENOUGH_LINKS", 3)
    assert recent_transitions(snapshots, 2) == [1, 2, 5]
    monkeypatch.setattr(module, "MAX_TRANSITIONS", 2)
    assert recent_transitions(snapshots, 2) == [2, 5]
    assert recent_transitions(snapshots, 3) == [1, 2, 5]
    complete = make_graph([2, 2], [[(0, 1)], [(0, 1)]])
    assert recent_transitions(complete.snapshots, 1) == []  # no pair without a link


def test_transitions_at_the_same_time_of_day_count_three_times() -> None:
    snapshots = mornings_and_evenings().snapshots[:21]  # the next is the noon of day 5
    assert same_time_transitions(snapshots) == [9, 13, 17]
    assert sorted(training_transitions([13, 19], [9, 13, 17])) == [9] * 3 + [13] * 3 + [17] * 3 + [19]
    assert same_time_transitions(snapshots[:20]) == []  # no links in the evening
    assert training_transitions([1, 2], []) == [1, 2]


def test_older_windows_weigh_the_parts_until_they_have_enough_links(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = make_graph([5] * 9, [[(0, 1), (2, 3)]] * 9).snapshots
    training, last = [1, 2, 3, 4, 5, 6, 7, 8], Windows([8], [1, 2, 3, 4, 5, 6, 7])
    assert planned(snapshots, 2) == Plan(training, (last, Windows([7, 6, 5, 4, 3], [1, 2])))
    assert planned(snapshots, 6) == Plan(training, (last, Windows([7], [1, 2, 3, 4, 5, 6])))
    assert planned(snapshots, 7) == Plan(training, (last,))  # as many transitions are left to learn from
    monkeypatch.setattr(module, "WINDOWS", 3)
    assert planned(snapshots, 2) == Plan(training, (last, Windows([7, 6], [1, 2, 3, 4, 5])))
    monkeypatch.setattr(module, "WINDOW_LINKS", 4)
    assert planned(snapshots, 2) == Plan(training, (last, Windows([7], [1, 2, 3, 4, 5, 6])))
    monkeypatch.setattr(module, "WINDOW_LINKS", 5)
    assert planned(snapshots, 2) == Plan(training, (last, Windows([7, 6], [1, 2, 3, 4, 5])))


def test_a_window_that_is_learned_alone_is_preceded_by_others() -> None:
    snapshots = make_graph([5] * 4, [[(0, 1)]] * 4).snapshots
    assert planned(snapshots, 2) == Plan([1, 2, 3], (Windows([3], [1, 2]),))
    assert planned(snapshots[:2], 2) == Plan([1])  # nothing before the only transition
    assert planned(snapshots[:1], 2) is None


def test_a_window_at_the_same_time_of_day_is_alone_and_has_no_floor() -> None:
    plan = planned(mornings_and_evenings().snapshots[:21], 3)
    assert plan is not None and len(plan.windows) == 1 and not plan.floor
    assert plan.windows[0].targets == [17] and set(plan.windows[0].earlier) == {t for t in plan.training if t < 17}


def test_examples_are_links_uniform_pairs_and_dropped_pairs() -> None:
    graph = two_blocks(steps=3)
    pairs, found = module._examples(graph.snapshots, True, 1, 0)
    links = graph[2].num_links
    assert found.num_links == links
    assert len(found.features) == len(found.ranks) == len(found.linked_before) == len(pairs)
    keys = pairs @ [30, 1]
    linked, dropped = keys[:links], keys[found.dropped]
    assert found.num_added == math.ceil(0.04 * links) and not np.isin(keys[links:], linked).any()
    assert found.num_uniform == links + min(links, 435 - links)
    before = np.concatenate([u.numpy() * 30 + v.numpy() for u, v, _ in (s.links() for s in graph.snapshots[:2])])
    assert found.linked_before.tolist() == np.isin(keys, before).tolist()
    expected = np.setdiff1d(before, linked)
    assert sorted(dropped) == expected.tolist()
    assert (found.num_dropped, found.num_unlinked) == (len(expected), 435 - links)
    x, again = found.recurring()
    rows = np.concatenate([np.flatnonzero(np.isin(linked, before)), np.arange(len(keys))[found.dropped]])
    assert x.tolist() == np.column_stack([found.features, found.ranks])[rows].tolist()
    assert again.sum() == np.isin(linked, before).sum() == len(again) - len(expected)


@pytest.mark.parametrize("kinds", [None, [0, 1] * 15])
def test_links_rank_above_pairs_with_another_second_node(kinds: list[int] | None) -> None:
    graph = two_blocks(steps=3)
    known = None if kinds is None else np.array(kinds, dtype=np.uint8).tobytes()
    pairs, found = module._examples(graph.snapshots, True, 1, 0, known)
    links, below = pairs[: found.num_links], pairs[len(pairs) - len(found.above) :]
    above = links[found.above]
    assert len(below) > 50 and np.bincount(found.above).max() == 2
    other = below.sum(axis=1) - above[:, 0]  # one of the two nodes is u
    assert ((below == above[:, :1]).any(axis=1) & (other != above[:, 0])).all()
    assert not np.isin(below @ [30, 1], links @ [30, 1]).any()
    same_kind = other % 2 == above[:, 1] % 2
    assert same_kind.all() == (kinds is not None)


def test_features_end_before_the_links() -> None:
    graph = two_blocks(steps=3)
    pairs, found = module._examples(graph.snapshots, True, 1, 0)
    past = PairHistory(graph.snapshots[:2], True)
    features, _ = past.features(pairs)
    assert np.array_equal(found.features, features) and np.array_equal(found.ranks, past.ranks(features))
    with_kinds = examples_of(graph.with_kinds([0, 1] * 15, ["a", "b"]), graph.snapshots, True, 1, 0)
    labelled = slice(len(pairs) - len(found.above))  # the others depend on kinds
    by_kind, _ = PairHistory(graph.snapshots[:2], True, bytes([0, 1] * 15)).features(pairs)
    assert np.array_equal(with_kinds.features[labelled, :-1], by_kind[labelled])
    assert np.array_equal(with_kinds.features[labelled, -1], pairs[labelled].sum(axis=1) % 2)
    assert (examples_of(graph, graph.snapshots, True, 1, 0).features[:, -1] == 1).all()


def test_number_of_uniform_pairs_is_limited(no_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = two_blocks(steps=3).snapshots
    _, every = module._examples(snapshots, True, 1, 0)
    module._examples.cache_clear()
    monkeypatch.setattr(module, "MAX_UNIFORM", every.num_links - 5)
    _, found = module._examples(snapshots, True, 1, 0)
    assert every.num_uniform == 2 * every.num_links and found.num_uniform == every.num_uniform - 5


def test_number_of_dropped_pairs_is_limited(no_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DROPPED_PAIRS", 20)
    _, found = module._examples(two_blocks(steps=3).snapshots, True, 1, 0)
    assert len(found.features[found.dropped]) == 20 < found.num_dropped


def test_dropped_pairs_of_many_are_drawn_one_by_one(no_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DROPPED_PAIRS", 20)
    monkeypatch.setattr(module, "MAX_SHUFFLED", 10)
    snapshots = two_blocks(steps=3).snapshots
    pairs, found = module._examples(snapshots, True, 1, 0)
    keys = pairs[found.dropped] @ [30, 1]
    past = PairHistory(snapshots[:2], True).keys
    last = snapshots[2].links()[0] * 30 + snapshots[2].links()[1]
    assert len(set(keys)) == len(keys) == 20 and set(keys) <= set(past) - set(last.tolist())


def test_consecutive_models_share_histories_and_examples(no_cache: None) -> None:
    graph = two_blocks(steps=4)
    for _ in range(2):
        examples_of(graph, graph.snapshots[:3], True, 1, 0)
    assert module._examples.cache_info().misses == 1 and pair_history.cache_info().misses == 1
    history_of(graph, 2, True)  # a model scores step 2, the next one learns from it
    examples_of(graph, graph.snapshots, True, 1, 0)
    assert pair_history.cache_info().misses == 2


@pytest.mark.parametrize("wide", [False, True])
def test_the_history_of_a_large_graph_is_freed_when_its_examples_are_made(
    wide: bool, no_cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dysat.features.pair_history.WIDE_LINKS", 0 if wide else 10**6)
    examples_of(two_blocks(), two_blocks().snapshots, True, 2, 0)
    assert pair_history.cache_info().currsize == (0 if wide else 1)


@pytest.mark.parametrize(
    ("cores", "transitions", "fit", "at_once"), [(16, 3, 2.5, 2), (16, 3, 0.1, 1), (16, 9, 8, 4), (4, 3, 9, 1)]
)
def test_as_many_transitions_are_prepared_at_once_as_cores_and_memory_allow(
    cores: int, transitions: int, fit: float, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = two_blocks().snapshots
    free = fit * history_bytes(snapshots) / module.FREE_SHARE
    monkeypatch.setattr(module, "free_memory", lambda: free)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(cores)
        assert module.transitions_at_once(snapshots, transitions) == at_once
    finally:
        torch.set_num_threads(before)


def test_random_halves_keep_every_link_with_probability_one_half() -> None:
    graph = dysat.load_dataset("uci")
    past, then = random_halves(graph[0], 0)
    links = graph[0].num_links
    assert past.num_nodes == then.num_nodes == graph.known[0]
    assert all(0.4 < half.num_links / links < 0.6 for half in (past, then))
    both = np.isin(*((u * 10**6 + v).numpy() for u, v, _ in (half.links() for half in (past, then))))
    assert 0.15 < both.sum() / links < 0.35


def test_random_halves_keep_the_times_of_their_links() -> None:
    """So that a score learned from halves has the features of the graph that it scores."""
    graph = with_times(two_blocks(steps=1))

    def times(snapshot: dysat.Snapshot) -> set[tuple[int, int, float]]:
        found = snapshot.link_times()
        assert found is not None
        u, v, _ = snapshot.links()
        return set(zip(u.tolist(), v.tolist(), found.tolist(), strict=True))

    for half in random_halves(graph[0], 0):
        assert times(half) < times(graph[0])
    score = PairScore.learn(graph)
    assert score is not None and len(score.log_odds(graph, 0, all_pairs(30))) == 435
