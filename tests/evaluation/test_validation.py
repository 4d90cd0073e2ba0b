"""The tuning metrics: cross-validated probes on validation examples only."""

from __future__ import annotations

from dataclasses import replace
from math import isnan

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import dysat
from dysat.evaluation.probe import auc, pair_features
from dysat.evaluation.protocols import LinkSplit, link_split
from dysat.evaluation.validation import can_tune, tuning_auc, tuning_mrr, validation_only, validation_ranking
from dysat.nn.logistic import fit_logistic
from dysat.nn.pair import PairFeature


@pytest.fixture(scope="module")
def split() -> LinkSplit:
    return link_split(dysat.load_dataset("uci"), 8)


def normal(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_validation(positives: int, negatives: int, nodes: int = 12) -> LinkSplit:
    """Return a split with the given numbers of validation examples, and three other examples of each class."""
    number = positives + negatives + 6
    pairs = torch.randint(nodes, (number, 2), generator=torch.Generator().manual_seed(number))
    labels = torch.tensor([True] * (positives + 3) + [False] * (negatives + 3))
    validation = torch.tensor([True] * positives + [False] * 3 + [True] * negatives + [False] * 3)
    train = torch.zeros(1, number, dtype=torch.bool)
    train[0, [positives, positives + 3 + negatives]] = True
    return LinkSplit(pairs, labels, validation, train, ~train & ~validation, step=0, target=1)


@pytest.mark.parametrize("feature", ["product", "distance"])
def test_tuning_auc_is_the_mean_over_cross_validated_folds(split: LinkSplit, feature: PairFeature) -> None:
    e = normal(1809, 6)
    folds: dict[int, list[int]] = {fold: [] for fold in range(5)}
    for label in (True, False):
        mine = [i for i in range(len(split.labels)) if split.validation[i] and split.labels[i] == label]
        for place, example in enumerate(mine):
            folds[place % 5].append(example)
    areas = []
    for fold in range(5):
        others = [example for other in range(5) if other != fold for example in folds[other]]
        weights, bias = fit_logistic(pair_features(e, split.pairs[others], feature), split.labels[others])
        scores = pair_features(e, split.pairs[folds[fold]], feature) @ weights + bias
        areas.append(auc(scores, split.labels[folds[fold]]))
    assert tuning_auc(e, split, feature=feature) == pytest.approx(sum(areas) / 5, abs=1e-9)


@pytest.mark.parametrize("feature", ["product", "distance"])
def test_tuning_mrr_scores_a_link_and_its_candidates_by_one_probe(split: LinkSplit, feature: PairFeature) -> None:
    """By a probe trained on the four folds that the link is not in."""
    graph, e = dysat.load_dataset("uci")[:9], normal(1809, 6)
    ranking = validation_ranking(graph, split)  # the graph ends before the predicted snapshot
    assert ranking is not None and split.target == 9
    mine = validation_only(split)
    reciprocals = []
    places = {row: place for place, row in enumerate(mine.labels.nonzero().flatten().tolist())}
    others = {row: place for place, row in enumerate((~mine.labels).nonzero().flatten().tolist())}
    for row, nodes in zip(*(part.tolist() for part in ranking), strict=True):
        train = [at for at, place in (places | others).items() if place % 5 != places[row] % 5]
        weights, bias = fit_logistic(pair_features(e, mine.pairs[train], feature), mine.labels[train])
        u, v = mine.pairs[row].tolist()
        pairs = torch.tensor([[u, v], *([u, w] for w in nodes)])
        scores = (pair_features(e, pairs, feature) @ weights + bias).tolist()
        reciprocals.append(1 / (1 + sum(score > scores[0] for score in scores[1:])))
    assert len(reciprocals) == min(200, int(mine.labels.sum())) and len(nodes) == 100
    assert tuning_mrr(e, split, ranking, feature=feature) == pytest.approx(sum(reciprocals) / len(reciprocals))


def test_tuning_mrr_of_equal_embeddings_is_that_of_ties(split: LinkSplit) -> None:
    ranking = validation_ranking(dysat.load_dataset("uci")[:9], split)
    assert ranking is not None
    assert tuning_mrr(torch.ones(1809, 4), split, ranking) == pytest.approx(1 / 51)  # the middle of 101 places
    few = with_validation(positives=1, negatives=9)
    assert isnan(tuning_mrr(normal(12, 3), few, (torch.tensor([0]), torch.tensor([[5, 6]]))))


def test_noise_has_auc_one_half_with_more_features_than_examples(split: LinkSplit) -> None:
    """A probe that had seen the examples it scores would separate them perfectly."""
    number, aucs = int(split.validation.sum()), []
    for seed in range(6):
        chosen = torch.randperm(number, generator=torch.Generator().manual_seed(seed))[:100]
        kept = split.validation.nonzero().flatten()[chosen]
        small = replace(split, validation=torch.zeros_like(split.validation).index_fill(0, kept, True))
        aucs.append(tuning_auc(normal(1809, 128, seed), small))
    assert sum(aucs) / 6 == pytest.approx(0.5, abs=0.08)


def test_informative_embeddings_have_a_high_auc(split: LinkSplit) -> None:
    linked = split.pairs[split.labels].flatten().bincount(minlength=1809)
    assert tuning_auc(torch.cat([(1.0 + linked).log().unsqueeze(1), normal(1809, 3)], 1), split) > 0.9


@given(st.randoms(use_true_random=False))
@settings(max_examples=5, deadline=None)
def test_only_validation_examples_count(split: LinkSplit, random: object) -> None:
    """Different pairs, labels and masks of all other examples do not change a bit."""
    generator = torch.Generator().manual_seed(random.getrandbits(32))  # type: ignore[attr-defined]
    rest = ~split.validation
    other = replace(
        split,
        pairs=torch.where(rest.unsqueeze(1), torch.randint(1809, split.pairs.shape, generator=generator), split.pairs),
        labels=torch.where(rest, torch.rand(len(rest), generator=generator) < 0.5, split.labels),
        train=torch.rand(split.train.shape, generator=generator) < 0.5,
    )
    e = normal(1809, 4)
    assert tuning_auc(e, other) == tuning_auc(e, split)


def test_validation_only_keeps_validation_examples(split: LinkSplit) -> None:
    left = validation_only(split)
    assert torch.equal(left.pairs, split.pairs[split.validation])
    assert torch.equal(left.labels, split.labels[split.validation])
    assert left.validation.all() and left.train.numel() == left.test.numel() == left.num_repeats == 0
    assert (left.step, left.target) == (8, 9)
    outside = {tuple(pair) for pair in split.pairs[~split.validation].tolist()}
    assert not outside & {tuple(pair) for pair in left.pairs.tolist()}
    again = validation_only(left)
    assert torch.equal(again.pairs, left.pairs) and tuning_auc(normal(1809, 4), left) == tuning_auc(
        normal(1809, 4), split
    )


@pytest.mark.parametrize(
    ("positives", "negatives", "enough"), [(2, 2, True), (3, 9, True), (1, 5, False), (4, 1, False)]
)
def test_few_examples_have_fewer_folds_or_no_auc(positives: int, negatives: int, enough: bool) -> None:
    few = with_validation(positives, negatives)
    assert can_tune(few) is enough
    assert isnan(tuning_auc(normal(12, 3), few)) is not enough


def test_nan_embeddings_have_no_auc(split: LinkSplit) -> None:
    assert isnan(tuning_auc(torch.full((1809, 2), torch.nan), split))
