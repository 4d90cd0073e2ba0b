"""The probe and its metrics against scikit-learn and known results."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

import dysat
from dysat.evaluation import probe
from dysat.evaluation.hard_negatives import with_negatives
from dysat.evaluation.probe import (
    auc,
    average_precision,
    evaluate_probe,
    evaluate_scores,
    macro_auc,
    masked_auc,
    masked_average_precision,
    means,
    micro_auc,
    pair_features,
    validation_auc,
)
from dysat.evaluation.protocols import LinkSplit, single_step
from dysat.nn.logistic import fit_logistic


@pytest.fixture(scope="module")
def split() -> LinkSplit:
    return single_step(dysat.load_dataset("uci"), 6)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def brute_auc(scores: list[float], labels: list[bool]) -> float:
    pairs = [
        (p, n) for p, a in zip(scores, labels, strict=True) if a for n, b in zip(scores, labels, strict=True) if not b
    ]
    wins = sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs)
    return wins / len(pairs) if pairs else math.nan


def brute_average_precision(scores: list[float], labels: list[bool]) -> float:
    precisions = []
    for score, label in zip(scores, labels, strict=True):
        if label:
            as_high = [b for s, b in zip(scores, labels, strict=True) if s >= score]
            precisions.append(sum(as_high) / len(as_high))
    return sum(precisions) / len(precisions) if precisions and not all(labels) else math.nan


# Few values, so that ties are common; both infinities.
VALUES = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([math.inf, -math.inf]), st.floats(allow_nan=False))


@given(st.lists(st.tuples(VALUES, st.booleans(), st.booleans()), max_size=30))
@settings(max_examples=min(80, settings.default.max_examples), deadline=None)
def test_metrics_equal_a_loop(rows: list[tuple[float, bool, bool]]) -> None:
    scores = torch.tensor([row[0] for row in rows], dtype=torch.float64)
    labels, mask = (torch.tensor([row[i] for row in rows], dtype=torch.bool) for i in (1, 2))
    chosen = scores[mask].tolist(), labels[mask].tolist()
    for fast, alone, brute in (
        (masked_auc, auc, brute_auc),
        (masked_average_precision, average_precision, brute_average_precision),
    ):
        expected = pytest.approx(brute(*chosen), abs=1e-12, nan_ok=True)
        assert float(fast(scores, labels, mask)) == expected
        assert alone(scores[mask], labels[mask]) == expected
        hidden = torch.where(mask, scores, torch.nan)  # masked values do not count
        assert float(fast(hidden, labels, mask)) == expected


@pytest.mark.parametrize("ties", [False, True])
def test_metrics_equal_scikit_learn(ties: bool) -> None:
    scores, labels = normal(3000), normal(3000, seed=1) > 0.5
    scores = (2 * (scores + labels)).round() if ties else scores + labels
    assert auc(scores, labels) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores), abs=1e-12)
    assert auc(scores, labels.float()) == auc(scores, labels.long()) == auc(scores, labels)


def test_batched_masks_equal_single_masks() -> None:
    scores, labels, masks = normal(4, 50).round(), normal(50, seed=1) > 0, normal(4, 50, seed=2) > 0
    for many, one in ((masked_auc, auc), (masked_average_precision, average_precision)):
        expected = [one(s[m], labels[m]) for s, m in zip(scores, masks, strict=True)]
        assert many(scores, labels, masks).tolist() == pytest.approx(expected, abs=1e-12)
        expected = [one(scores[0][m], labels[m]) for m in masks]
        assert many(scores[0], labels, masks).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("measure", [auc, average_precision])
def test_undefined_metrics_are_nan(measure: object) -> None:
    assert callable(measure)
    for labels in ([], [True, True], [False]):
        assert math.isnan(measure(torch.zeros(len(labels)), torch.tensor(labels, dtype=torch.bool)))
    assert math.isnan(measure(torch.tensor([1.0, math.nan, 0.0]), torch.tensor([True, False, False])))


def test_pair_features_are_products() -> None:
    embeddings = torch.tensor([[1.0, 2.0], [3.0, -4.0], [0.5, 0.0]])
    features = pair_features(embeddings, torch.tensor([[0, 1], [2, 2], [1, 0]]))
    assert features.tolist() == [[3, -8], [0.25, 0], [3, -8]] and features.dtype == torch.float64
    assert pair_features(embeddings, torch.empty(0, 2, dtype=torch.int64)).shape == (0, 2)


def test_pair_features_can_be_distances() -> None:
    embeddings = torch.tensor([[1.0, 2.0], [3.0, -4.0], [0.5, 0.0]])
    features = pair_features(embeddings, torch.tensor([[0, 1], [2, 2], [1, 0]]), "distance")
    assert features.tolist() == [[2, 6], [0, 0], [2, 6]] and features.dtype == torch.float64


def test_probe_on_distances_equals_scikit_learn(split: LinkSplit) -> None:
    """Labels, examples and regression are the same; only the pair feature differs."""
    embeddings, before = normal(1809, 6).double(), normal(1809, 6, seed=1).double()
    x, y = (embeddings[split.pairs[:, 0]] - embeddings[split.pairs[:, 1]]).abs().numpy(), split.labels.numpy()
    train = split.train[0].numpy()
    model = LogisticRegression(tol=1e-10, max_iter=10_000).fit(x[train], y[train])
    scores = torch.from_numpy(model.decision_function(x))
    result = evaluate_probe(embeddings, split, feature="distance")
    torch.testing.assert_close(result.scores[0], scores, rtol=1e-4, atol=1e-4)
    found = validation_auc(embeddings, split, feature="distance")
    assert found == pytest.approx(auc(scores[split.validation], split.labels[split.validation]), abs=1e-4)
    assert found != validation_auc(embeddings, split)
    past = dataclasses.replace(split, target=split.step)
    x_before = (before[split.pairs[:, 0]] - before[split.pairs[:, 1]]).abs().numpy()
    model = LogisticRegression(tol=1e-10, max_iter=10_000).fit(x_before, y)
    result = evaluate_probe(embeddings, split, past=(before, past), feature="distance")
    torch.testing.assert_close(result.scores[0], torch.from_numpy(model.decision_function(x)), rtol=1e-4, atol=1e-4)


def test_probe_equals_scikit_learn(split: LinkSplit) -> None:
    embeddings = normal(1809, 128)
    result = evaluate_probe(embeddings, split)
    x, y = pair_features(embeddings, split.pairs).numpy(), split.labels.numpy()
    for repeat, (train, test) in enumerate(zip(split.train.numpy(), split.test.numpy(), strict=True)):
        model = LogisticRegression(tol=1e-10, max_iter=10_000).fit(x[train], y[train])
        scores = model.decision_function(x)
        torch.testing.assert_close(result.scores[repeat], torch.from_numpy(scores), rtol=1e-4, atol=1e-4)
        assert result.aucs[repeat] == pytest.approx(roc_auc_score(y[test], scores[test]), abs=1e-4)
        expected = average_precision_score(y[test], scores[test])
        assert result.average_precisions[repeat] == pytest.approx(expected, abs=1e-4)
        if repeat == 0:
            chosen = split.validation.numpy()
            assert result.validation_auc == pytest.approx(roc_auc_score(y[chosen], scores[chosen]), abs=1e-4)
    assert validation_auc(embeddings, split) == pytest.approx(result.validation_auc, abs=1e-9)
    assert result.auc == pytest.approx(np.mean(result.aucs)) and len(result.aucs) == 10
    assert result.auc_sd == pytest.approx(np.std(result.aucs, ddof=1)) and result.auc_sd > 0
    assert result.average_precision == pytest.approx(np.mean(result.average_precisions))
    assert result.average_precision_sd == pytest.approx(np.std(result.average_precisions, ddof=1))


def test_batches_of_repeats_give_the_same_probes(split: LinkSplit, monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings = normal(1809, 16)
    expected = evaluate_probe(embeddings, split).scores
    train = split.train.clone()
    train[1, train[1].nonzero()[:5]] = False  # repeats may differ in size
    uneven = dataclasses.replace(split, train=train)
    for limit in (1, 3 * 16 * int(train[0].sum())):
        monkeypatch.setattr(probe, "CPU_BATCH", limit)
        torch.testing.assert_close(evaluate_probe(embeddings, split).scores, expected, rtol=1e-6, atol=1e-8)
        scores = evaluate_probe(embeddings, uneven).scores
        torch.testing.assert_close(scores[2:], expected[2:], rtol=1e-6, atol=1e-8)
        x = pair_features(embeddings, split.pairs)
        weights, bias = fit_logistic(x[train[1]], split.labels[train[1]])
        torch.testing.assert_close(scores[1], x @ weights + bias, rtol=1e-6, atol=1e-8)


def planted(split: LinkSplit, num_nodes: int) -> tuple[Tensor, LinkSplit]:
    """Return nodes of two groups, and labels of whether both nodes are in one group."""
    group = torch.arange(num_nodes) % 2
    labels = group[split.pairs[:, 0]] == group[split.pairs[:, 1]]
    return group, dataclasses.replace(split, labels=labels)


def test_test_labels_do_not_affect_validation_auc(split: LinkSplit) -> None:
    embeddings = normal(1809, 16)
    used = split.train[0] | split.validation
    assert (split.test[0] & ~used).any()
    other = dataclasses.replace(split, labels=torch.where(used, split.labels, ~split.labels))
    assert validation_auc(embeddings, other) == validation_auc(embeddings, split)


def test_validation_auc_is_nan_without_both_classes(split: LinkSplit) -> None:
    links = dataclasses.replace(split, validation=split.validation & split.labels)
    assert math.isnan(validation_auc(normal(1809, 16), links))


def test_perfect_embeddings_have_auc_one(split: LinkSplit) -> None:
    group, known = planted(split, 1809)
    one_hot = torch.nn.functional.one_hot(group, 2).float()
    result = evaluate_probe(one_hot, known)
    assert result.aucs == result.average_precisions == (1.0,) * 10
    assert result.validation_auc == validation_auc(one_hot, known) == 1.0
    assert result.auc == 1.0 and result.auc_sd == 0.0


def test_uninformative_embeddings_have_auc_one_half(split: LinkSplit) -> None:
    result = evaluate_probe(normal(1809, 8), split)
    assert 0.4 < result.auc < 0.6 and 0.4 < result.validation_auc < 0.6
    constant = evaluate_probe(torch.ones(1809, 8), split)
    assert constant.aucs == (0.5,) * 10 and constant.validation_auc == 0.5


def test_other_nodes_may_have_nan_embeddings(split: LinkSplit) -> None:
    embeddings = normal(1809, 8)
    others = torch.ones(1809, dtype=torch.bool)
    others[split.pairs.flatten()] = False
    assert others.any()
    hidden = embeddings.masked_fill(others.unsqueeze(1), torch.nan)
    assert evaluate_probe(hidden, split).aucs == evaluate_probe(embeddings, split).aucs
    tested = split.pairs[split.test[0]].flatten()
    chosen = split.pairs[split.validation | split.train[0]].flatten()
    others[tested] = True
    others[chosen] = False  # test examples do not select the epoch
    hidden = embeddings.masked_fill(others.unsqueeze(1), torch.nan)
    assert validation_auc(hidden, split) == validation_auc(embeddings, split)


def test_validation_auc_of_nan_embeddings_is_nan(split: LinkSplit) -> None:
    assert math.isnan(validation_auc(torch.full((1809, 8), torch.nan), split))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_values_raise(split: LinkSplit, value: float) -> None:
    embeddings, node = normal(1809, 8), int(split.pairs[7, 1])
    embeddings[node, 3] = value
    with pytest.raises(
        dysat.DysatError, match=rf"^the embedding of node {node} has a value that is not a finite number$"
    ):
        evaluate_probe(embeddings, split)
    scores = normal(len(split.labels))
    scores[7] = value
    u, v = split.pairs[7].tolist()
    with pytest.raises(dysat.DysatError, match=rf"^the score of pair \({u}, {v}\) is {value}, not a finite number$"):
        evaluate_scores(scores, split)


def test_wrong_shapes_raise(split: LinkSplit) -> None:
    highest = int(split.pairs.max())
    message = f"^embeddings have {highest:,} rows, but none for node {highest} of the examples$"
    with pytest.raises(dysat.DysatError, match=message):
        evaluate_probe(normal(highest, 4), split)
    evaluate_probe(normal(highest + 1, 4), split)
    for shape in ((1809,), (1809, 3, 2)):
        with pytest.raises(dysat.DysatError, match=r"^embeddings have shape \(1809,.*expected \[N, d\]"):
            evaluate_probe(normal(*shape), split)
    for length in (3, len(split.labels) + 1):
        with pytest.raises(
            dysat.DysatError, match=rf"^scores have shape \({length},\), expected \[{len(split.labels)}\]"
        ):
            evaluate_scores(normal(length), split)


def test_past_probe_uses_no_label_of_the_target(split: LinkSplit) -> None:
    graph = dysat.load_dataset("uci")
    before, now, earlier = normal(1809, 6, seed=1), normal(1809, 6, seed=2), single_step(graph, 5, seed=3)
    result = evaluate_probe(now, split, past=(before, earlier))
    x, y = pair_features(before, earlier.pairs), earlier.labels  # all of them
    model = LogisticRegression(tol=1e-10, max_iter=10_000).fit(x.numpy(), y.numpy())
    expected = torch.from_numpy(model.decision_function(pair_features(now, split.pairs).numpy()))
    torch.testing.assert_close(result.scores, expected.expand(10, -1), rtol=1e-4, atol=1e-5)
    assert result.aucs == evaluate_scores(result.scores[0], split).aucs  # tested on the same examples
    flipped = dataclasses.replace(split, labels=~split.labels)
    assert torch.equal(evaluate_probe(now, flipped, past=(before, earlier)).scores, result.scores)
    assert not torch.equal(evaluate_probe(now, flipped).scores, evaluate_probe(now, split).scores)


def test_invalid_past_raises(split: LinkSplit) -> None:
    graph = dysat.load_dataset("uci")
    embeddings, earlier = normal(1809, 6), single_step(graph, 5)
    for later in (split, single_step(graph, 7)):
        with pytest.raises(dysat.DysatError, match=f"^a probe on the past of step 6 cannot use .* {later.target}$"):
            evaluate_probe(embeddings, split, past=(embeddings, later))
    with pytest.raises(dysat.DysatError, match=r"^past embeddings have 5 dimensions, present ones 6"):
        evaluate_probe(embeddings, split, past=(normal(1809, 5), earlier))
    with pytest.raises(dysat.DysatError, match=r"^embeddings have 3 rows"):
        evaluate_probe(embeddings, split, past=(normal(3, 6), earlier))
    hard = with_negatives(earlier, graph, "historical")
    with pytest.raises(dysat.DysatError, match=r"^a probe is trained on uniform negatives, not on historical ones$"):
        evaluate_probe(embeddings, split, past=(embeddings, hard))


def test_means_leave_out_steps_without_a_value(split: LinkSplit) -> None:
    graph = dysat.load_dataset("uci")
    splits = [single_step(graph, step, repeats=3) for step in (6, 9)]
    results = [evaluate_scores(normal(len(s.labels), seed=s.step) + s.labels, s) for s in splits]
    empty = dataclasses.replace(splits[0], target=8, test=torch.zeros_like(splits[0].test))
    nothing = evaluate_scores(normal(len(empty.labels)), empty)
    found = means([results[0], nothing, results[1]])
    assert found.targets == (7, 10) and found.left_out == (8,)
    assert found == dataclasses.replace(means(results), left_out=(8,))
    assert found.macro_auc == pytest.approx(macro_auc(results)) and found.micro_auc == pytest.approx(micro_auc(results))
    per_repeat = [np.mean(values) for values in zip(*(r.aucs for r in results), strict=True)]
    assert found.macro_auc_sd == pytest.approx(np.std(per_repeat, ddof=1)) and found.macro_auc_sd > 0
    scores, labels, test = (torch.cat([getattr(r, name) for r in results], -1) for name in ("scores", "labels", "test"))
    pooled = [average_precision_score(labels[t], s[t]) for s, t in zip(scores, test, strict=True)]
    assert found.micro_average_precision == pytest.approx(np.mean(pooled))
    assert found.micro_average_precision_sd == pytest.approx(np.std(pooled, ddof=1))
    expected = (results[0].average_precision + results[1].average_precision) / 2
    assert found.macro_average_precision == pytest.approx(expected)
    none = means([nothing])
    assert none.targets == () and none.left_out == (8,) and math.isnan(none.macro_auc) and math.isnan(none.micro_auc_sd)


def test_evaluate_scores_equals_auc_of_each_repeat(split: LinkSplit) -> None:
    scores = normal(len(split.labels)) + split.labels
    result = evaluate_scores(scores, split)
    assert result.aucs == tuple(auc(scores[test], split.labels[test]) for test in split.test)
    expected = [average_precision(scores[test], split.labels[test]) for test in split.test]
    assert result.average_precisions == pytest.approx(expected, abs=1e-12)
    assert result.validation_auc == auc(scores[split.validation], split.labels[split.validation])
    assert result.step == 6 and 0.6 < result.auc < 0.9


def test_macro_and_micro() -> None:
    graph = dysat.load_dataset("uci")
    splits = [single_step(graph, step, repeats=3) for step in (6, 9)]
    results = [evaluate_probe(normal(1809, 8, seed=split.step), split) for split in splits]
    assert macro_auc(results) == pytest.approx((results[0].auc + results[1].auc) / 2)
    pooled = []
    for repeat in range(3):
        scores = torch.cat([r.scores[repeat][s.test[repeat]] for r, s in zip(results, splits, strict=True)])
        labels = torch.cat([s.labels[s.test[repeat]] for s in splits])
        pooled.append(roc_auc_score(labels, scores))
    assert micro_auc(results) == pytest.approx(np.mean(pooled))
    assert micro_auc(results[:1]) == pytest.approx(macro_auc(results[:1]))
    # Two steps that are perfect separately, but on different scales.
    right = [evaluate_scores(split.labels.double() + 10 * i, split) for i, split in enumerate(splits)]
    assert macro_auc(right) == 1.0 and micro_auc(right) < 0.9


def test_very_few_examples(split: LinkSplit) -> None:
    few = dataclasses.replace(
        split,
        pairs=torch.tensor([[0, 1], [1, 2]]),
        labels=torch.tensor([True, False]),
        validation=torch.tensor([True, True]),
        train=torch.zeros(1, 2, dtype=torch.bool),
        test=torch.zeros(1, 2, dtype=torch.bool),
    )
    result = evaluate_probe(normal(3, 4), few)
    assert math.isnan(result.auc) and math.isnan(result.auc_sd) and math.isnan(result.average_precision)
    assert result.validation_auc == validation_auc(normal(3, 4), few) == 0.5  # an untrained probe


def test_gradients_and_random_state_are_untouched(split: LinkSplit) -> None:
    state = torch.get_rng_state()
    embeddings = normal(1809, 4).requires_grad_()
    result = evaluate_probe(embeddings, split)
    assert not result.scores.requires_grad and embeddings.grad is None
    validation_auc(embeddings, split)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_equals_cpu(split: LinkSplit) -> None:
    embeddings = normal(1809, 32)
    here, there = evaluate_probe(embeddings, split), evaluate_probe(embeddings.cuda(), split)
    assert there.scores.is_cuda
    assert there.aucs == pytest.approx(here.aucs, abs=1e-4)
    assert validation_auc(embeddings.cuda(), split) == pytest.approx(validation_auc(embeddings, split), abs=1e-4)
