"""A score of pairs: what it learns from, what it does not see, what its chances mean."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small import make_graph, meetings, two_blocks
from torch import Tensor
from torch.testing import assert_close

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.evaluation.probe import auc
from dysat.evaluation.protocols import link_split
from dysat.features import pair_history as pair_features
from dysat.features.pair_columns import coarse, more_history, pair_columns, standing, uniform_columns
from dysat.features.pair_history import pair_history, were_linked
from dysat.models.forecast import examples as pair_examples
from dysat.models.forecast import pair_score
from dysat.models.forecast.pair_score import PairScore
from dysat.nn.logistic import fit_logistic
from dysat.system.compiled import native


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    pair_history.cache_clear()
    more_history.cache_clear()
    uniform_columns.cache_clear()
    pair_examples._examples.cache_clear()
    yield


def all_pairs(size: int) -> Tensor:
    return torch.tensor(list(combinations(range(size), 2)))


def learned(graph: DynamicGraph, **options: int) -> PairScore:
    score = PairScore.learn(graph, **options)
    assert score is not None
    return score


def faithful_pairs(seed: int = 0, size: int = 60, steps: int = 6) -> DynamicGraph:
    """Every node has one faithful partner, met three times in four; all other links are drawn anew."""
    rng = np.random.default_rng(seed)
    partner = rng.permutation(size).reshape(-1, 2)
    links = []
    for _ in range(steps):
        some = partner[rng.random(len(partner)) < 0.75]
        others = rng.integers(0, size, (size // 2, 2))
        links.append([(int(u), int(v)) for u, v in np.concatenate([some, others]) if u != v])
    return make_graph([size] * steps, links)


def test_memory_of_a_pair_decides_where_nothing_else_does() -> None:
    graph = faithful_pairs()
    score = learned(graph[:-1])
    pairs = all_pairs(graph.num_nodes)
    u, v, _ = graph[-1].links()
    linked = torch.isin(pairs[:, 0] * 60 + pairs[:, 1], u * 60 + v)
    history = more_history(graph.snapshots[:-1])
    again = torch.isin(pairs[:, 0] * 60 + pairs[:, 1], torch.from_numpy(history.base.keys[history.times >= 3]))
    scores = score.log_odds(graph, len(graph) - 2, pairs)
    assert 15 < int(again.sum()) <= 30
    assert scores[again].min() > scores[~again].quantile(0.99)
    assert auc(scores, linked) > 0.6  # half of all links are drawn at random


@pytest.mark.parametrize("step", [1, 3])
def test_nothing_after_the_step_matters(step: int) -> None:
    graph, other = two_blocks(steps=5), two_blocks(steps=5, seed=1)
    changed = replace(graph, snapshots=(*graph.snapshots[: step + 1], *other.snapshots[step + 1 :]))
    score, pairs = learned(graph), all_pairs(30)
    one, two, cut = (score.log_odds(g, step, pairs) for g in (graph, changed, graph[: step + 1]))
    assert torch.equal(one, two) and torch.equal(one, cut)
    assert not torch.equal(score.log_odds(graph, 4, pairs), score.log_odds(changed, 4, pairs))


def test_a_graph_that_grows_past_three_step_paths_is_scored_as_it_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, pairs = meetings(), all_pairs(6)
    score = learned(graph[:2])
    before = score.log_odds(graph, 1, pairs)
    monkeypatch.setattr(pair_score, "MOST_NODES", 8)
    assert torch.equal(score.log_odds(graph, 1, pairs), before)
    assert not learned(graph).far and learned(graph[:2]).far


def test_examples_are_the_last_transitions_seen_from_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = two_blocks(steps=6)
    seen: list[tuple[int, int]] = []
    original = pair_examples.pair_columns

    def spy(snapshots: pair_features.Snapshots, pairs: NDArray[np.int64], far: bool) -> NDArray[np.float64]:
        seen.append((len(snapshots), len(pairs)))
        return original(snapshots, pairs, far)

    monkeypatch.setattr(pair_examples, "pair_columns", spy)
    monkeypatch.setattr(pair_examples, "ENOUGH", 1)
    learned(graph, transitions=2, negatives=1)
    assert [number for number, _ in seen] == [4, 5]  # the links of snapshots 4 and 5
    links = [graph[step].num_links for step in (4, 5)]
    free = [30 * 29 // 2 - number for number in links]
    for (_, number), linked, unlinked in zip(seen, links, free, strict=True):
        uniform = linked + min(linked, unlinked)
        assert uniform < number <= uniform + unlinked  # and pairs that were linked
    seen.clear()
    monkeypatch.setattr(pair_examples, "ENOUGH", 10**9)
    pair_examples._examples.cache_clear()
    learned(graph, transitions=2, negatives=1)
    assert [number for number, _ in seen] == [1, 2, 3, 4, 5]


def test_pairs_that_were_linked_and_are_not_next_are_added() -> None:
    graph = two_blocks(steps=3)
    pairs, found = pair_examples._examples(graph.snapshots, True, 1, 0)
    links = graph[2].num_links
    assert found.links == links and len(found.features) == len(found.standings) == len(found.once) == len(pairs)
    keys = pairs @ [30, 1]
    linked, once = keys[:links], keys[found.uniform :]
    assert found.added == math.ceil(0.04 * links) and not np.isin(keys[links:], linked).any()
    before = np.concatenate([u.numpy() * 30 + v.numpy() for u, v, _ in (s.links() for s in graph.snapshots[:2])])
    assert found.once.tolist() == np.isin(keys, before).tolist() and found.once[found.uniform :].all()
    left = np.setdiff1d(before, linked)
    assert sorted(once) == left.tolist() and (found.left, found.unlinked) == (len(left), 435 - links)
    assert found.expected == pytest.approx((found.uniform - links) * len(left) / (435 - links))
    x, again = found.of_once()
    rows = np.concatenate([np.flatnonzero(np.isin(linked, before)), np.arange(found.uniform, len(keys))])
    assert x.tolist() == np.column_stack([found.features, found.standings])[rows].tolist()
    assert again.sum() == np.isin(linked, before).sum() == len(again) - len(left)


def test_no_more_of_them_than_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = two_blocks(steps=3)
    monkeypatch.setattr(pair_examples, "ONCE", 20)
    pair_examples._examples.cache_clear()
    _, found = pair_examples._examples(graph.snapshots, True, 1, 0)
    pair_examples._examples.cache_clear()
    assert len(found.features) - found.uniform == 20 < found.left


def test_pairs_that_were_linked_have_a_regression_of_their_own_and_are_held_down() -> None:
    graph, pairs = faithful_pairs(), all_pairs(60)
    score = learned(graph)
    once = torch.from_numpy(were_linked(graph.snapshots, pairs.numpy()))
    more = score.log_odds(graph, 5, pairs) - replace(score, lift=score.lift - 1).log_odds(graph, 5, pairs)
    assert_close(more, score.slope * once.double())
    found = [pair_examples._examples(graph.snapshots[: last + 1], True, 3, 0)[1] for last in range(1, 6)]
    repeats = sum(int(each.once[: each.links].sum()) for each in found)
    added, expected = sum(each.added for each in found), sum(each.expected for each in found)
    assert repeats > 50 and score.again == pytest.approx(repeats / (repeats + 100))
    assert added > 0
    assert score.lift == pytest.approx((1 - score.again - 0.45) * math.log((expected + added) / expected))


@pytest.mark.parametrize("shown", [10**6, 10])
def test_the_regression_of_pairs_that_were_linked_has_the_odds_of_uniform_pairs(
    shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no weight on any feature it says how many times as likely they are, among as many links as uniform pairs."""
    monkeypatch.setattr(pair_examples, "ONCE", shown)
    pair_examples._examples.cache_clear()
    graph = faithful_pairs()
    found = [pair_examples.examples_of(graph, graph.snapshots[: last + 1], True, 3, 0) for last in range(1, 6)]
    pair_examples._examples.cache_clear()
    columns = found[0].features.shape[1] + found[0].standings.shape[1]
    means, scales = torch.zeros(columns, dtype=torch.float64), torch.full((columns,), torch.inf, dtype=torch.float64)
    (weights, bias), repeats = pair_score._learn_once(found, means, scales)
    links, left = sum(each.links for each in found), sum(each.left for each in found)
    unlinked, rows = sum(each.unlinked for each in found), sum(len(each.once) - each.uniform for each in found)
    assert not weights.any() and (rows == left if shown > left else rows < left)
    assert float(bias) == pytest.approx(math.log(repeats / left) + math.log(unlinked / links))


def test_the_regression_of_pairs_that_were_linked_is_held_back_less() -> None:
    graph = faithful_pairs()
    found = [pair_examples.examples_of(graph, graph.snapshots[: last + 1], True, 3, 0) for last in range(1, 6)]
    score = pair_score._learn(found, True, 0)
    x, y = (torch.from_numpy(np.concatenate(part)) for part in zip(*(each.of_once() for each in found), strict=True))
    weights, _ = fit_logistic(((x - score.means) / score.scales).clamp(-10, 10), y, l2=30.0)
    assert_close(score.weights[1], weights)


def test_slope_and_shift_suit_what_an_earlier_score_says_also_of_pairs_that_were_linked() -> None:
    graph = faithful_pairs()
    found = [pair_examples.examples_of(graph, graph.snapshots[: last + 1], True, 3, 0) for last in range(1, 6)]
    score, before, last = pair_score._learn(found, True, 0), pair_score._learn(found[:-1], True, 0), found[-1]
    found_one = pair_score._calibrated(score, before, last)
    rows = slice(last.uniform)
    raw = replace(before, mix=score.mix).raw(last.features[rows], last.standings[rows], last.once[rows])
    linked, weights = (torch.from_numpy(part) for part in last.labels(last.uniform))
    slope, shift = fit_logistic(torch.from_numpy(raw).unsqueeze(1), linked, sample_weight=weights)
    assert last.once[rows].sum() > 20
    assert (found_one.slope, found_one.shift) == pytest.approx((math.sqrt(float(slope)), float(shift) / 2))  # halfway


def test_nodes_that_are_not_known_are_refused_and_other_whole_numbers_taken() -> None:
    graph, pairs = two_blocks(steps=3), all_pairs(30)
    score = learned(graph)
    assert torch.equal(score.log_odds(graph, 2, pairs.int()), score.log_odds(graph, 2, pairs))
    for wrong in (-1, 30):
        with pytest.raises(ModelError, match=rf"^nodes {min(wrong, 0)} to {max(wrong, 0)}, where 0 to 29 are known$"):
            score.log_odds(graph, 2, torch.tensor([[0, wrong]]))


def test_standings_are_the_part_of_uniform_pairs_below() -> None:
    ordered = np.array([[1, 0], [2, 0], [2, 0], [5, 7]], dtype=np.float32)
    found = standing(np.array([[2.0, 0.0], [0.0, 8.0]]), ordered)
    assert found.tolist() == [[0.5, 0.375], [0.0, 1.0]]
    assert standing(np.array([[np.nan, 1.0]]), ordered).tolist() == [[1.0, 0.75]]
    assert standing(np.ones((2, 3)), np.empty((0, 3), dtype=np.float32)).tolist() == [[0.5] * 3] * 2
    few = uniform_columns(two_blocks(steps=2).snapshots, True)
    assert len(few) == 435 and (np.diff(few, axis=0) >= 0).all()
    wide = make_graph([100], [[(i, i + 1) for i in range(99)]])
    assert 1_900 < len(uniform_columns(wide.snapshots, True)) < 2_000


def test_of_one_snapshot_its_halves_are_learned_from() -> None:
    graph = dysat.load_dataset("uci")
    score = learned(graph[:1])
    split = link_split(graph, 0)
    assert auc(score.log_odds(graph, 0, split.pairs), split.labels) > 0.75
    assert (score.slope, score.shift) == (1.0, 0.0)
    past, then = pair_examples.halves(graph[0], 0)
    links = graph[0].num_links
    assert past.num_nodes == then.num_nodes == graph.known[0]
    assert all(0.4 < half.num_links / links < 0.6 for half in (past, then))
    both = np.isin(*((u * 10**6 + v).numpy() for u, v, _ in (half.links() for half in (past, then))))
    assert 0.15 < both.sum() / links < 0.35


def test_the_order_of_the_two_nodes_does_not_matter_nor_that_of_the_pairs() -> None:
    graph = two_blocks(steps=3)
    score, pairs = learned(graph), all_pairs(30)
    scores = score.log_odds(graph, 2, pairs)
    assert scores.dtype == torch.float64 and scores.shape == (435,) and scores.isfinite().all()
    assert torch.equal(score.log_odds(graph, 2, pairs.flip(1)), scores)
    assert_close(score.log_odds(graph, 2, pairs.flip(0)), scores.flip(0), rtol=0, atol=1e-12)
    assert score.log_odds(graph, 2, pairs[:0]).shape == (0,)


def test_new_numbers_for_the_nodes_give_the_same_scores() -> None:
    graph, pairs = two_blocks(steps=3), all_pairs(30)
    score = learned(graph)
    number = torch.from_numpy(np.random.default_rng(0).permutation(30))
    links = [[(int(number[u]), int(number[v])) for u, v in zip(*s.links()[:2], strict=True)] for s in graph]
    other = score.log_odds(make_graph([30] * 3, links), 2, number[pairs])
    # Vectors of equal eigenvalues may turn, and a tree jumps where a feature is at its threshold.
    close = (other - score.log_odds(graph, 2, pairs)).abs() < 1e-3
    assert close.double().mean() > 0.98


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    graph, pairs = two_blocks(steps=3), all_pairs(30)
    once = learned(graph).log_odds(graph, 2, pairs)
    nothing_remembered = replace(graph, snapshots=tuple(replace(snapshot) for snapshot in graph))
    assert torch.equal(learned(nothing_remembered).log_odds(graph, 2, pairs), once)
    assert not torch.equal(learned(graph, seed=1, negatives=1).log_odds(graph, 2, pairs), once)


def test_tensors_and_back_bit_for_bit() -> None:
    graph, pairs = two_blocks(steps=4), all_pairs(30)
    score = learned(graph)
    tensors = score.tensors()
    assert all(isinstance(tensor, Tensor) for tensor in tensors.values())
    back = PairScore.of({name: tensor.clone() for name, tensor in tensors.items()})
    assert torch.equal(back.log_odds(graph, 3, pairs), score.log_odds(graph, 3, pairs))
    for name in ("mix", "again", "lift", "slope", "shift"):
        assert getattr(back, name) == getattr(score, name)


def test_the_score_is_the_mix_of_its_parts() -> None:
    graph, pairs = two_blocks(steps=3), all_pairs(30)
    score = replace(learned(graph), mix=0.25, again=0.4, slope=2.0, shift=-1.0, lift=0.5)
    columns = pair_columns(graph.snapshots, pairs.numpy(), True)
    features = np.column_stack([columns, np.ones(len(pairs))])
    standings = standing(columns, np.sort(coarse(columns), axis=0))  # all pairs there are
    standard = (torch.from_numpy(np.column_stack([features, standings])) - score.means) / score.scales
    of_any, of_once = (standard.clamp(-10, 10) @ w + b for w, b in zip(score.weights, score.bias, strict=True))
    once = torch.from_numpy(were_linked(graph.snapshots, pairs.numpy()))
    mixed = 0.75 * of_any + 0.25 * torch.from_numpy(score.trees.sum(features))
    mixed[once] = (0.6 * mixed + 0.4 * of_once + 0.5)[once]
    assert 0 < once.sum() < len(once)
    assert_close(score.log_odds(graph, 2, pairs), 2 * mixed - 1)


def test_chances_on_uci_are_as_often_right_as_they_say() -> None:
    graph = dysat.load_dataset("uci")
    chances, labels = [], []
    for target in (9, 12):
        score = learned(graph[:target], negatives=2)
        split = link_split(graph, target - 1)
        chances.append(torch.sigmoid(score.log_odds(graph, target - 1, split.pairs)))
        labels.append(split.labels)
        assert auc(chances[-1], labels[-1]) > 0.93
    chance, linked = torch.cat(chances), torch.cat(labels).double()
    bins = (chance * 5).long().clamp(max=4)
    gaps = torch.stack([(linked[bins == b].mean() - chance[bins == b].mean()).abs() for b in range(5)])
    sizes = torch.bincount(bins, minlength=5)
    assert float((gaps * sizes).sum() / sizes.sum()) < 0.06


def test_the_more_links_the_more_the_trees_count() -> None:
    graph = two_blocks(steps=2)
    links = graph[1].num_links
    assert learned(graph).mix == links / (links + 4_000)


def test_one_transition_is_not_calibrated() -> None:
    score = learned(two_blocks(steps=2))
    assert (score.slope, score.shift) == (1.0, 0.0)
    assert learned(two_blocks(steps=3)).slope != 1.0


def test_kinds_are_learned_from() -> None:
    rng = np.random.default_rng(0)
    drawn = [np.stack([rng.integers(0, 15, 40), rng.integers(15, 30, 40)], 1) for _ in range(4)]
    graph = make_graph([30] * 4, [[(int(u), int(v)) for u, v in links] for links in drawn])
    graph = graph.with_kinds([0] * 15 + [1] * 15, ["user", "item"])
    pairs = all_pairs(30)
    across = (pairs[:, 0] < 15) & (pairs[:, 1] >= 15)
    scores = learned(graph).log_odds(graph, 3, pairs)
    assert auc(scores, across) > 0.95


def test_nothing_to_learn_from_is_none() -> None:
    assert PairScore.learn(make_graph([2], [[(0, 1)]])) is None
    assert PairScore.learn(make_graph([2], [[(0, 0)]])) is None
    assert PairScore.learn(make_graph([2, 2], [[(0, 1)], [(0, 1)]])) is None


def test_what_does_not_fit_gets_one_line() -> None:
    graph = two_blocks(steps=2)
    for option in ("transitions", "negatives"):
        with pytest.raises(ModelError, match=f"{option}=0 must be at least 1"):
            PairScore.learn(graph, **{option: 0})
    score = learned(graph)
    with pytest.raises(ModelError, match="step=2 of a graph with 2 snapshots"):
        score.log_odds(graph, 2, all_pairs(3))
    tensors = score.tensors()
    with pytest.raises(ModelError, match="do not fit a pair score: means is missing"):
        PairScore.of({})
    with pytest.raises(ModelError, match=r"do not fit a pair score: scales has shape \(3,\)"):
        PairScore.of({**tensors, "scales": torch.ones(3)})
    with pytest.raises(ModelError, match=r"do not fit a pair score: tree_left has shape"):
        PairScore.of({**tensors, "tree_left": tensors["tree_left"][:1]})


def test_more_features_by_hand() -> None:
    graph = make_graph([4, 4, 4], [[(0, 1), (1, 2)], [(0, 1)], [(1, 2), (2, 3)]], weights=[[3, 1], [1], [2, 2]])
    more = more_history(graph.snapshots)
    assert more.times.tolist() == [2, 2, 1] and more.first.tolist() == [0, 0, 2]  # of 01, 12, 23
    assert np.expm1(more.nodes[0]).round(9).tolist() == [2, 3, 2, 1]  # snapshots with a link
    assert np.expm1(more.nodes[2]).round(9).tolist() == [1, 2, 2, 1]  # partners
    assert np.expm1(more.nodes[4]).round(9).tolist() == [0, 0, 1, 1]  # new ones in the last snapshot
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    columns = np.column_stack(more.columns(pairs, True, more.base.meet(pairs)))
    rhythm = columns[:, 2 * len(more.nodes) :]
    assert np.expm1(rhythm[:, 0]).round(9).tolist() == [2, 0, 2]
    assert rhythm[:, 1:4].tolist() == [[2, 1, 0], [0, 0, 0], [2, 2, -2]]  # since the first, gap, what is overdue
    assert rhythm[:, 4:6].round(9).tolist() == [[0, 0], [0, 0], [0.5, 1]]  # of what both ends did in the last snapshot
    assert (rhythm[:, 8:10] * [7, 1]).round(9).tolist() == [[4, 1], [0, 0], [3, 0.6]]  # in all
    overlap = rhythm[:, -2]
    assert overlap.tolist() == [0, 0.5, 0]  # 0 and 2 have 1 in common; all partners: 1, 3


@pytest.mark.parametrize("far", [True, False])
def test_compiled_or_not_features_and_standings_have_the_same_bits(far: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if native() is None:
        pytest.skip("no C compiler")
    graph, rng = dysat.load_dataset("uci")[:3], np.random.default_rng(0)
    pairs = np.sort(rng.integers(0, graph.num_nodes, (3_000, 2)), axis=1)
    columns = pair_columns(graph.snapshots, pairs, far)
    ordered = np.sort(coarse(columns[:500]), axis=0)
    standings = standing(columns, ordered)
    monkeypatch.setattr(pair_features, "native", lambda: None)
    monkeypatch.setattr("dysat.features.pair_columns.native", lambda: None)
    monkeypatch.setattr(pair_features, "DENSE", 100 * graph.num_nodes)  # several parts
    assert np.array_equal(columns, pair_columns(graph.snapshots, pairs, far))
    assert np.array_equal(standings, standing(columns, ordered))
