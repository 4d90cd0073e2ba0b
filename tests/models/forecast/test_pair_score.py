"""The pair score: what it learns, what it does not see, and what its probabilities mean."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from by_time import at_hours, mornings_and_evenings
from numpy.typing import NDArray
from small import all_pairs, make_graph, meetings, two_blocks
from torch import Tensor
from torch.testing import assert_close

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.evaluation.probe import auc
from dysat.evaluation.protocols import link_split
from dysat.features.pair_history import PairHistory, pair_history
from dysat.models.forecast import examples as pair_examples
from dysat.models.forecast import pair_score
from dysat.models.forecast import parts as pair_parts
from dysat.models.forecast.boosting import tree_grower
from dysat.models.forecast.examples import Examples, examples_of
from dysat.models.forecast.mixture import learned_weights, rule
from dysat.models.forecast.pair_score import FLAGS, PairScore
from dysat.models.forecast.parts import CONSTANT, REGRESSION, REPEATED, TREE_SUM, Parts, learn_parts
from dysat.nn.logistic import fit_logistic
from dysat.system.parallel.matrices import matrices_on

BLOCKS = two_blocks(steps=3)
PAIRS = all_pairs(30)


def learned(graph: DynamicGraph, **options: int) -> PairScore:
    score = PairScore.learn(graph, **options)
    assert score is not None
    return score


@pytest.fixture(scope="module")
def score() -> PairScore:
    return learned(BLOCKS)


def loyal_pairs(seed: int = 0, size: int = 60, steps: int = 6) -> DynamicGraph:
    """Every node has one fixed partner, linked in three of four snapshots; all other links are random."""
    rng = np.random.default_rng(seed)
    partners = rng.permutation(size).reshape(-1, 2)
    links = []
    for _ in range(steps):
        repeated = partners[rng.random(len(partners)) < 0.75]
        others = rng.integers(0, size, (size // 2, 2))
        links.append([(int(u), int(v)) for u, v in np.concatenate([repeated, others]) if u != v])
    return make_graph([size] * steps, links)


LOYAL = loyal_pairs()


@pytest.fixture(scope="module")
def loyal_examples() -> list[Examples]:
    return [examples_of(LOYAL, LOYAL.snapshots[: target + 1], True, 3, 0) for target in range(1, 6)]


@pytest.fixture(scope="module")
def loyal_parts(loyal_examples: list[Examples]) -> Parts:
    """Learned from all transitions."""
    return learn_parts(loyal_examples, 0)


@pytest.fixture(scope="module")
def loyal_score(loyal_parts: Parts) -> PairScore:
    """Mixed by the rule, not calibrated."""
    return PairScore.mixed(loyal_parts, rule(loyal_parts.num_links), True)


@pytest.fixture(scope="module")
def earlier_score(loyal_examples: list[Examples], loyal_parts: Parts) -> PairScore:
    """The same, learned from all but the last transition."""
    return PairScore.mixed(learn_parts(loyal_examples[:-1], 0), rule(loyal_parts.num_links), True)


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_parts, "tree_grower", partial(tree_grower, rounds=2))


def linked_before(graph: DynamicGraph, pairs: Tensor) -> Tensor:
    every = torch.cat([u * graph.num_nodes + v for u, v, _ in (snapshot.links() for snapshot in graph)])
    return torch.isin(pairs[:, 0] * graph.num_nodes + pairs[:, 1], every)


def record_targets(targets: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Append the target step of every transition whose examples are computed."""

    def recording(graph: DynamicGraph, snapshots: tuple[dysat.Snapshot, ...], *options: int) -> Examples:
        targets.append(len(snapshots) - 1)
        return examples_of(graph, snapshots, *options)  # type: ignore[arg-type]

    monkeypatch.setattr(pair_score, "examples_of", recording)


def test_loyal_pairs_rank_first() -> None:
    score, pairs = learned(LOYAL[:-1]), all_pairs(60)
    u, v, _ = LOYAL[-1].links()
    linked = torch.isin(pairs[:, 0] * 60 + pairs[:, 1], u * 60 + v)
    history = pair_history(LOYAL.snapshots[:-1], True)
    loyal = torch.from_numpy(history.keys[history.extended.num_links >= 3])
    loyal = torch.isin(pairs[:, 0] * 60 + pairs[:, 1], loyal)
    scores = score.log_odds(LOYAL, len(LOYAL) - 2, pairs)
    assert 15 < int(loyal.sum()) <= 30
    assert scores[loyal].min() > scores[~loyal].quantile(0.99)
    assert auc(scores, linked) > 0.6  # half of all links are random


@pytest.mark.parametrize("step", [0, 1])
def test_later_snapshots_do_not_matter(step: int, score: PairScore) -> None:
    other = two_blocks(steps=3, seed=1)
    changed = replace(BLOCKS, snapshots=(*BLOCKS.snapshots[: step + 1], *other.snapshots[step + 1 :]))
    one, two, cut = (score.log_odds(graph, step, PAIRS) for graph in (BLOCKS, changed, BLOCKS[: step + 1]))
    assert torch.equal(one, two) and torch.equal(one, cut)
    assert not torch.equal(score.log_odds(BLOCKS, 2, PAIRS), score.log_odds(changed, 2, PAIRS))


def test_size_of_the_training_graph_decides_about_three_step_paths(
    few_trees: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, pairs = meetings(), all_pairs(6)
    score = learned(graph[:2])
    before = score.log_odds(graph, 1, pairs)
    monkeypatch.setattr(pair_score, "THREE_STEP_NODES", 8)
    assert torch.equal(score.log_odds(graph, 1, pairs), before)
    assert not learned(graph).three_step and score.three_step


def test_learns_from_the_last_transitions(few_trees: None, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = two_blocks(steps=6)
    targets: list[int] = []
    record_targets(targets, monkeypatch)
    monkeypatch.setattr(pair_examples, "ENOUGH_LINKS", 1)
    learned(graph, transitions=2, negatives=1)
    assert targets == [4, 5]
    targets.clear()
    monkeypatch.setattr(pair_examples, "ENOUGH_LINKS", 10**9)
    learned(graph, transitions=2, negatives=1)
    assert targets == [1, 2, 3, 4, 5]


def calibrated(score: PairScore, earlier: NDArray[np.float64], last: Examples) -> PairScore:
    return replace(score, **vars(pair_score._Calibration.of(earlier, last)))


def test_time_of_day_is_learned_if_windows_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = mornings_and_evenings()
    early, late = (torch.cat([torch.stack(graph[step].links()[:2], 1) for step in range(k, 21, 4)]) for k in (1, 2))
    pairs = torch.unique(torch.cat([early, late]), dim=0)
    in_the_morning = torch.isin(pairs[:, 0] * 40 + pairs[:, 1], early[:, 0] * 40 + early[:, 1])
    targets: list[int] = []
    calibrated_on: list[int] = []
    calibration = pair_score._Calibration.of
    record_targets(targets, monkeypatch)
    monkeypatch.setattr(
        pair_score._Calibration,
        "of",
        lambda earlier, last: calibrated_on.append(last.num_links) or calibration(earlier, last),
    )
    aucs = []
    for past in (graph[:21], at_hours(graph[:21], 24 * 7)):  # the next window is a morning; weeks have no time of day
        score = learned(past, transitions=3)
        assert len(targets) == len(set(targets))  # each transition is computed once, however much it counts
        targets.clear()
        aucs.append(auc(score.log_odds(past, 20, pairs), in_the_morning))
    assert aucs[0] > 0.98 and aucs[1] < 0.9
    assert calibrated_on[0] == graph[17].num_links  # yesterday morning, not the last snapshot


def test_shift_of_pairs_linked_before(loyal_parts: Parts, loyal_score: PairScore) -> None:
    pairs, weights = all_pairs(60), rule(loyal_parts.num_links)
    weights[1, CONSTANT] -= 1
    lower = PairScore.mixed(loyal_parts, weights, True)
    difference = loyal_score.log_odds(LOYAL, 5, pairs) - lower.log_odds(LOYAL, 5, pairs)
    assert_close(difference, linked_before(LOYAL, pairs).double())


@pytest.mark.parametrize("sampled", [10**6, 10])
def test_regression_of_pairs_linked_before_has_odds_among_uniform_pairs(
    sampled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With infinite scales all weights are 0, and the bias alone must give the odds of pairs linked before."""
    monkeypatch.setattr(pair_examples, "DROPPED_PAIRS", sampled)
    pair_examples._examples.cache_clear()
    found = [examples_of(LOYAL, LOYAL.snapshots[: target + 1], False, 1, 0) for target in range(1, 6)]
    pair_examples._examples.cache_clear()
    columns = found[0].features.shape[1] + found[0].ranks.shape[1]
    means, scales = torch.zeros(columns, dtype=torch.float64), torch.full((columns,), torch.inf, dtype=torch.float64)
    weights, bias = pair_parts._learn_repeated(found, means, scales)
    repeats = sum(int(each.linked_before[: each.num_links].sum()) for each in found)
    links, dropped = sum(each.num_links for each in found), sum(each.num_dropped for each in found)
    unlinked = sum(each.num_unlinked for each in found)
    rows = sum(len(each.linked_before[each.dropped]) for each in found)
    assert not weights.any() and (rows == dropped if sampled > dropped else rows < dropped)
    assert float(bias) == pytest.approx(math.log(repeats / dropped) + math.log(unlinked / links))


def test_its_weights_are_learned_from_pairs_linked_before(loyal_examples: list[Examples], loyal_parts: Parts) -> None:
    parts = zip(*(each.recurring() for each in loyal_examples), strict=True)
    x, y = (torch.from_numpy(np.concatenate(part)) for part in parts)
    weights, _ = fit_logistic(((x - loyal_parts.means) / loyal_parts.scales).clamp(-10, 10), y, l2=30.0)
    assert_close(loyal_parts.weights[1], weights)


def test_columns_of_links_and_of_pairs_below_them(loyal_examples: list[Examples]) -> None:
    past = [*loyal_examples[:2], loyal_examples[0]]  # a transition at the next window's time counts several times
    columns, order = pair_parts._stacked(past)
    both = [np.column_stack([each.features, each.ranks]) for each in past]
    labelled = np.concatenate([part[: each.num_training] for part, each in zip(both, past, strict=True)])
    assert np.array_equal(columns[: len(labelled)], labelled)
    below = [part[len(part) - len(each.above) :] for part, each in zip(both, past, strict=True)]
    above = [part[each.above] for part, each in zip(both, past, strict=True)]
    assert np.array_equal(columns[order[:, 0]], np.concatenate(above))
    assert np.array_equal(columns[order[:, 1]], np.concatenate(below))
    first = pair_parts.first_of_each(order)
    assert len(np.unique(order[:, 0])) == len(first) < len(order) and np.isin(first[:, 1], order[:, 1]).all()
    assert first[:, 0].tolist() == np.unique(order[:, 0]).tolist()


def test_pairs_of_the_same_node_are_ranked(few_trees: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends is easy to tell from uniform pairs; whom it is sent to is learned from pairs of the same sender."""
    rng, snapshots = np.random.default_rng(0), []
    for _ in range(6):
        busy = rng.choice(40, 6, replace=False)  # they write to many, and mostly to the same ten
        snapshots.append(
            {(int(u), int(40 + v)) for u in busy for v in (*rng.choice(10, 4, replace=False), 10 + rng.integers(50))}
        )
    graph = make_graph([100] * 6, [sorted(links) for links in snapshots])
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40, 100))
    popular = pairs[:, 1] < 50
    found = []
    for replaced in (2, 0):
        monkeypatch.setattr(pair_examples, "REPLACED_PER_LINK", replaced)
        pair_examples._examples.cache_clear()
        scores = learned(graph, transitions=3, negatives=2).log_odds(graph, 5, pairs).view(40, 60)
        found.append((scores[:, :10].mean(1) - scores[:, 10:].mean(1)).mean() / scores.std())
    pair_examples._examples.cache_clear()
    assert popular.any() and found[0] > found[1]


def test_calibration_moves_halfway_to_an_earlier_score(
    loyal_examples: list[Examples], loyal_score: PairScore, earlier_score: PairScore
) -> None:
    last = loyal_examples[-1]
    raw, rows = earlier_score.raw(last.features, last.ranks, last.linked_before), slice(last.num_uniform)
    found = calibrated(loyal_score, raw, last)
    linked, weights = (torch.from_numpy(part) for part in last.labels(last.num_uniform))
    slope, shift = fit_logistic(torch.from_numpy(raw[rows]).unsqueeze(1), linked, sample_weight=weights)
    assert last.linked_before[rows].sum() > 20
    assert (found.slope, found.shift) == pytest.approx((math.sqrt(float(slope)), float(shift) / 2))


def test_unknown_nodes_are_refused_and_any_integers_accepted(score: PairScore) -> None:
    assert torch.equal(score.log_odds(BLOCKS, 2, PAIRS.int()), score.log_odds(BLOCKS, 2, PAIRS))
    for wrong in (-1, 30):
        with pytest.raises(ModelError, match=rf"^nodes {min(wrong, 0)} to {max(wrong, 0)}, where 0 to 29 are known$"):
            score.log_odds(BLOCKS, 2, torch.tensor([[0, wrong]]))


def test_one_snapshot_is_learned_from_its_halves() -> None:
    graph = dysat.load_dataset("uci")
    score = learned(graph[:1], negatives=1)
    split = link_split(graph, 0)
    assert auc(score.log_odds(graph, 0, split.pairs), split.labels) > 0.75
    assert (score.slope, score.shift) == (1.0, 0.0)


def test_order_of_nodes_and_pairs_does_not_matter(score: PairScore) -> None:
    scores = score.log_odds(BLOCKS, 2, PAIRS)
    assert scores.dtype == torch.float64 and scores.shape == (435,) and scores.isfinite().all()
    assert torch.equal(score.log_odds(BLOCKS, 2, PAIRS.flip(1)), scores)
    assert_close(score.log_odds(BLOCKS, 2, PAIRS.flip(0)), scores.flip(0), rtol=0, atol=1e-12)
    assert score.log_odds(BLOCKS, 2, PAIRS[:0]).shape == (0,)


def test_renumbered_nodes_have_the_same_scores(score: PairScore) -> None:
    number = torch.from_numpy(np.random.default_rng(0).permutation(30))
    links = [[(int(number[u]), int(number[v])) for u, v in zip(*s.links()[:2], strict=True)] for s in BLOCKS]
    other = score.log_odds(make_graph([30] * 3, links), 2, number[PAIRS])
    # Vectors of equal eigenvalues may rotate, and a tree jumps if a feature is at its threshold.
    close = (other - score.log_odds(BLOCKS, 2, PAIRS)).abs() < 1e-3
    assert close.double().mean() > 0.98


def test_same_seed_gives_the_same_bits(score: PairScore) -> None:
    not_cached = replace(BLOCKS, snapshots=tuple(replace(snapshot) for snapshot in BLOCKS))
    again = learned(not_cached).tensors()
    assert all(torch.equal(tensor, again[name]) for name, tensor in score.tensors().items())


def test_rounding_does_not_change_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors round differently: features that differ in the last digits must give the same trees and weights."""
    plain, found = PairHistory._columns, [learned(BLOCKS)]
    for seed in (1, 2):
        noise = np.random.default_rng(seed)

        def noisy(self: PairHistory, *args: Any, noise: np.random.Generator = noise) -> list[Any]:
            return [(f, x * (1 + 1e-14 * noise.standard_normal(len(x)))) for f, x in plain(self, *args)]

        monkeypatch.setattr(PairHistory, "_columns", noisy)
        pair_examples.forget_histories()
        found.append(learned(BLOCKS))
    pair_examples.forget_histories()
    for other in found[1:]:
        assert torch.equal(other.trees.feature, found[0].trees.feature)
        assert_close(other.weights, found[0].weights, rtol=1e-6, atol=1e-6)
        assert_close(other.tree_weights, found[0].tree_weights, rtol=1e-6, atol=1e-6)


def test_another_seed_gives_another_score(few_trees: None) -> None:
    one, two = (learned(BLOCKS, seed=seed, negatives=1) for seed in (0, 1))
    assert not torch.equal(one.weights, two.weights)
    assert not torch.equal(one.trees.feature, two.trees.feature)


def test_tensors_restore_the_same_bits(score: PairScore) -> None:
    tensors = score.tensors()
    names = {"means", "scales", "weights", "bias", "tree_weights", "calibration", "far", "steady", "by_kind"}
    names |= {"calibration_by_class"}
    names |= {f"tree_{name}" for name in ("feature", "threshold", "left", "right", "value", "baseline")}
    assert set(tensors) == names  # stored in files
    assert tensors["calibration"].tolist() == [score.slope, score.shift]
    back = PairScore.of({name: tensor.clone() for name, tensor in tensors.items()})
    assert torch.equal(back.log_odds(BLOCKS, 2, PAIRS), score.log_odds(BLOCKS, 2, PAIRS))
    assert torch.equal(back.class_log_odds(BLOCKS, 2, PAIRS), score.class_log_odds(BLOCKS, 2, PAIRS))
    assert back.three_step == score.three_step
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in back.tensors().items())


def test_a_file_without_calibration_by_class_keeps_its_probabilities(score: PairScore) -> None:
    tensors = {name: tensor for name, tensor in score.tensors().items() if name != "calibration_by_class"}
    old = PairScore.of(tensors)
    assert old.by_class is None and old.tensors().keys() == tensors.keys()
    assert torch.equal(old.class_log_odds(BLOCKS, 2, PAIRS), score.log_odds(BLOCKS, 2, PAIRS))
    with pytest.raises(ModelError, match=r"calibration_by_class has shape \(2,\); fit the model again"):
        PairScore.of({**tensors, "calibration_by_class": torch.zeros(2)})


def test_each_class_is_calibrated_on_its_own_links(
    loyal_examples: list[Examples], loyal_score: PairScore, earlier_score: PairScore
) -> None:
    last = loyal_examples[-1]
    raw = earlier_score.raw(last.features, last.ranks, last.linked_before)
    found = calibrated(loyal_score, raw, last)
    repeats = sum(bool(linked) for linked in last.linked_before[: last.num_links])
    dropped = range(len(raw))[last.dropped]
    uniform = [row for row in range(last.num_links, last.num_uniform) if not last.linked_before[row]]
    assert found.by_class is not None
    for known, others, pool in ((0, uniform, last.num_unlinked - last.num_dropped), (1, dropped, last.num_dropped)):
        links = [row for row in range(last.num_links) if last.linked_before[row] == known]
        assert min(len(links), len(others)) >= pair_score.MIN_CLASS
        weights = torch.tensor([1.0] * len(links) + [len(links) / len(others)] * len(others), dtype=torch.float64)
        labels = torch.arange(len(weights)) < len(links)
        scores = torch.tensor([[raw[row]] for row in (*links, *others)])
        slope, shift = fit_logistic(scores, labels, sample_weight=weights)
        # Odds in a balanced mix of all links and all other pairs, not of those of the class.
        share = (repeats if known else last.num_links - repeats) / last.num_links
        expected = float(shift) + math.log(share) - math.log(pool / last.num_unlinked)
        assert found.by_class[known].tolist() == pytest.approx([math.sqrt(max(0.1, float(slope))), expected / 2])


def test_classes_keep_their_order(
    loyal_examples: list[Examples], loyal_score: PairScore, earlier_score: PairScore
) -> None:
    last = loyal_examples[-1]
    raw = earlier_score.raw(last.features, last.ranks, last.linked_before)
    score = calibrated(loyal_score, raw, last)
    pairs = all_pairs(60)
    ranked, shown = score.log_odds(LOYAL, 5, pairs), score.class_log_odds(LOYAL, 5, pairs)
    before = linked_before(LOYAL, pairs)
    for rows in (before, ~before):
        order = ranked[rows].argsort()
        assert (shown[rows][order].diff() >= -1e-9).all()
    assert not torch.equal(ranked.argsort(), shown.argsort())


def test_a_class_with_few_links_has_the_calibration_of_all_pairs(
    loyal_examples: list[Examples], loyal_score: PairScore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_score, "MIN_CLASS", 10_000)
    last = loyal_examples[-1]
    raw = loyal_score.raw(last.features, last.ranks, last.linked_before)
    found = calibrated(loyal_score, raw, last)
    assert found.by_class is not None and found.by_class.tolist() == [[found.slope, found.shift]] * 2


def test_score_mixes_its_parts() -> None:
    parts = learn_parts([examples_of(BLOCKS, BLOCKS.snapshots, True, 2, 0)], 0)
    weights = np.random.default_rng(0).normal(size=rule(1).shape)
    score = replace(PairScore.mixed(parts, weights, True), slope=2.0, shift=-1.0)
    history = pair_history(BLOCKS.snapshots, True)
    columns, _ = history.features(PAIRS.numpy())
    features = np.column_stack([columns, np.ones(len(PAIRS))])
    standard = torch.from_numpy(np.column_stack([features, history.ranks(columns)]))
    standard = ((standard - parts.means) / parts.scales).clamp(-10, 10)
    regressions = [standard @ w + b for w, b in zip(parts.weights, parts.bias, strict=True)]
    degrees, memory, neighbours = (standard[:, 16] + standard[:, 17]) / 2, standard[:, 27], standard[:, 31]
    trees = torch.from_numpy(parts.trees.sum(features))
    experts = torch.stack([*regressions, degrees, memory, neighbours, torch.ones_like(degrees), trees])
    assert_close(torch.from_numpy(parts.experts(features, history.ranks(columns))).mT, experts)
    repeated = linked_before(BLOCKS, PAIRS)
    mixed = (torch.from_numpy(weights)[repeated.long()].mT * experts).sum(0)
    assert 0 < repeated.sum() < len(repeated)
    assert_close(score.log_odds(BLOCKS, 2, PAIRS), 2 * mixed - 1)


def test_files_of_earlier_versions_keep_their_scores(loyal_examples: list[Examples], loyal_parts: Parts) -> None:
    """They stored both regressions, and as numbers the shares of trees and regressions, a shift, and a calibration."""
    score = PairScore.mixed(loyal_parts, rule(1), True)
    old = {name: tensor for name, tensor in score.tensors().items() if name not in ("tree_weights", *FLAGS)}
    old |= {"weights": loyal_parts.weights, "bias": loyal_parts.bias}
    old["calibration"] = torch.tensor([0.3, 0.4, 0.5, 1.5, -0.25], dtype=torch.float64)
    found, last = PairScore.of(old), loyal_examples[-1]
    experts = loyal_parts.experts(last.features, last.ranks)
    new = 0.7 * experts[:, REGRESSION] + 0.3 * experts[:, TREE_SUM]
    repeated = 0.6 * new + 0.4 * experts[:, REPEATED] + 0.5
    raw = found.raw(last.features, last.ranks, last.linked_before)
    assert np.allclose(raw, np.where(last.linked_before, repeated, new), rtol=1e-9)
    assert (found.slope, found.shift, found.by_class) == (1.5, -0.25, None)
    for name in FLAGS:
        assert not getattr(found, name)
        assert not getattr(PairScore.of(found.tensors()), name) and getattr(PairScore.of(score.tensors()), name)
    with pytest.raises(ModelError, match=r"calibration has shape \(2,\); fit the model again"):
        PairScore.of({**old, "calibration": old["calibration"][:2]})


@pytest.mark.slow
def test_probabilities_on_uci_are_calibrated() -> None:
    graph = dysat.load_dataset("uci")[:10]
    score = learned(graph[:9], transitions=2, negatives=2)
    split = link_split(graph, 8)
    probability, linked = torch.sigmoid(score.log_odds(graph, 8, split.pairs)), split.labels.double()
    assert auc(probability, split.labels) > 0.93
    bins = (probability * 5).long().clamp(max=4)
    gaps = torch.stack([(linked[bins == b].mean() - probability[bins == b].mean()).abs() for b in range(5)])
    sizes = torch.bincount(bins, minlength=5)
    assert float((gaps * sizes).sum() / sizes.sum()) < 0.06


def test_one_transition_is_mixed_by_the_rule_and_not_calibrated(score: PairScore) -> None:
    one, links = learned(BLOCKS[:2]), BLOCKS[1].num_links
    assert one.tree_weights.tolist() == rule(links)[:, TREE_SUM].tolist()
    assert (one.slope, one.shift, one.by_class) == (1.0, 0.0, None)
    assert score.slope != 1.0 and score.by_class is not None
    assert score.tree_weights.tolist() != rule(links + BLOCKS[2].num_links)[:, TREE_SUM].tolist()


def test_weights_are_learned_from_windows_that_earlier_parts_have_not_seen(
    loyal_examples: list[Examples], loyal_parts: Parts, earlier_score: PairScore
) -> None:
    found = learned(LOYAL, transitions=3, negatives=3)
    earlier, last = learn_parts(loyal_examples[:-1], 0), loyal_examples[-1]
    experts = earlier.experts(last.features, last.ranks)
    before, older = learn_parts(loyal_examples[:-2], 0), loyal_examples[-2]
    scores = [experts, before.experts(older.features, older.ranks)]
    weights = learned_weights(scores, [last, older], rule(loyal_parts.num_links), floor=True)
    assert not np.allclose(weights, learned_weights([experts], [last], rule(loyal_parts.num_links), floor=True))
    expected = PairScore.mixed(loyal_parts, weights, True)
    assert_close(found.weights, expected.weights)
    assert_close(found.tree_weights, expected.tree_weights)
    assert not np.allclose(weights, rule(loyal_parts.num_links))
    raw = PairScore.mixed(earlier, weights, True).raw(last.features, last.ranks, last.linked_before)
    expected = calibrated(expected, raw, last)
    assert (found.slope, found.shift) == pytest.approx((expected.slope, expected.shift))


def test_a_gpu_learns_the_same_regressions(
    loyal_examples: list[Examples], loyal_parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    monkeypatch.setattr(pair_parts, "LARGE_REGRESSION", 0)
    with matrices_on(torch.device("cuda")):
        found = learn_parts(loyal_examples, 0)
    for name, value in found.tensors().items():
        assert value.is_cpu
        assert_close(value, loyal_parts.tensors()[name], rtol=1e-6, atol=1e-6)


def test_files_of_earlier_versions_see_no_order_of_kinds(score: PairScore) -> None:
    graph = BLOCKS.with_kinds([1, 0] * 15, ["user", "item"])
    old = PairScore.of({name: tensor for name, tensor in score.tensors().items() if name != "by_kind"})
    history = pair_history(BLOCKS.snapshots, score.three_step)
    columns, before = history.features(PAIRS.numpy())
    features = np.column_stack([columns, PAIRS.sum(1).numpy() % 2])  # the last says whether both differ in kind
    expected = score.slope * score.raw(features, history.ranks(columns), before) + score.shift
    assert_close(old.log_odds(graph, 2, PAIRS), torch.from_numpy(expected), rtol=1e-12, atol=0)
    assert not torch.equal(score.log_odds(graph, 2, PAIRS), old.log_odds(graph, 2, PAIRS))


def test_kinds_are_a_feature() -> None:
    rng = np.random.default_rng(0)
    drawn = [np.stack([rng.integers(0, 15, 40), rng.integers(15, 30, 40)], 1) for _ in range(4)]
    graph = make_graph([30] * 4, [[(int(u), int(v)) for u, v in links] for links in drawn])
    graph = graph.with_kinds([0] * 15 + [1] * 15, ["user", "item"])
    across = (PAIRS[:, 0] < 15) & (PAIRS[:, 1] >= 15)
    assert auc(learned(graph).log_odds(graph, 3, PAIRS), across) > 0.95


def test_nothing_to_learn_from_gives_none() -> None:
    assert PairScore.learn(make_graph([2], [[(0, 1)]])) is None
    assert PairScore.learn(make_graph([2], [[(0, 0)]])) is None
    assert PairScore.learn(make_graph([2, 2], [[(0, 1)], [(0, 1)]])) is None


def test_wrong_options_steps_and_tensors_are_refused(score: PairScore) -> None:
    for option in ("transitions", "negatives"):
        with pytest.raises(ModelError, match=f"{option}=0 must be at least 1"):
            PairScore.learn(BLOCKS, **{option: 0})
    with pytest.raises(ModelError, match="step=3 of a graph with 3 snapshots"):
        score.log_odds(BLOCKS, 3, all_pairs(3))
    tensors = score.tensors()
    with pytest.raises(ModelError, match="do not fit a pair score: means is missing"):
        PairScore.of({})
    with pytest.raises(ModelError, match=r"do not fit a pair score: scales has shape \(3,\); fit the model again"):
        PairScore.of({**tensors, "scales": torch.ones(3)})
    with pytest.raises(ModelError, match=r"do not fit a pair score: tree_left has shape"):
        PairScore.of({**tensors, "tree_left": tensors["tree_left"][:1]})
    fewer = {name: tensors[name][..., :-2] for name in ("means", "scales", "weights")}
    old = PairScore.of({**tensors, **fewer})
    with pytest.raises(ModelError, match=r"was learned from \d+ columns, and there are \d+ now; fit the model again"):
        old.log_odds(BLOCKS, 2, torch.tensor([[0, 1]]))


def test_many_links_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = dysat.load_dataset("uci")[:5]
    every = examples_of(graph, graph.snapshots, False, 3, 0)
    monkeypatch.setattr("dysat.models.forecast.examples.MAX_LINKS", 300)
    pair_examples._examples.cache_clear()
    some = examples_of(graph, graph.snapshots, False, 3, 0)
    pair_examples._examples.cache_clear()
    assert every.num_links > 1_000 and some.num_links == 300 and some.num_uniform == 4 * 300
    assert (some.num_dropped, some.num_unlinked) == (every.num_dropped, every.num_unlinked)
    links = {row.tobytes() for row in every.features[: every.num_links]}
    assert all(row.tobytes() in links for row in some.features[: some.num_links])
