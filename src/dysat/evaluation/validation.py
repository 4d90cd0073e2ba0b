"""The tuning metrics: AUC and MRR on validation examples only."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.evaluation.probe import fit_repeats, masked_auc, pair_features
from dysat.evaluation.protocols import LinkSplit
from dysat.evaluation.ranking import candidate_pairs, drawn_ranking, mrr, pair_numbers, ranks
from dysat.nn.pair import PairFeature

FOLDS = 5


def validation_only(split: LinkSplit) -> LinkSplit:
    """Return the split reduced to its validation examples, so that no training or test example is accessible."""
    kept = split.validation
    none = torch.zeros(0, int(kept.sum()), dtype=torch.bool, device=kept.device)  # no repeats
    return replace(
        split, pairs=split.pairs[kept], labels=split.labels[kept], validation=kept[kept], train=none, test=none
    )


def can_tune(split: LinkSplit) -> bool:
    """Return whether each class has two validation examples: one to train a probe on and one to test it."""
    return min(int((split.labels[split.validation] == label).sum()) for label in (True, False)) >= 2


@torch.no_grad()
def tuning_auc(embeddings: Tensor, split: LinkSplit, *, feature: PairFeature = "product") -> float:
    """Return the cross-validated AUC of a probe on the validation examples; NaN with fewer than two of a class.

    `validation_auc` trains its probe on examples that other repeats use for testing; this function uses validation
    examples only. They are divided into five folds (fewer if a class has fewer examples), stratified and by position,
    so the folds are deterministic. Each fold is scored by a probe trained on the others. The result is the mean AUC of
    the folds, not the AUC of pooled scores: log-odds of different probes differ in offset and scale.
    """
    split = validation_only(split).to(embeddings.device)
    if not can_tune(split):
        return float("nan")
    folds, x, weights, bias = _probes(embeddings, split, feature)
    return fmean(masked_auc(weights @ x.mT + bias.unsqueeze(-1), split.labels, folds).tolist())


def validation_ranking(graph: DynamicGraph, split: LinkSplit) -> tuple[Tensor, Tensor] | None:
    """Return rows of validation links and the nodes that each is ranked among, as `drawn_ranking`.  # [P], [P, K]

    Only validation links are excluded from the candidates. Other links of the predicted snapshot are test examples,
    which must not be known here, so a candidate can be one of them by chance. The graph need not have that snapshot.
    """
    split = validation_only(split)
    return drawn_ranking(graph, split, np.sort(pair_numbers(split.pairs[split.labels], graph.directed)))


@torch.no_grad()
def tuning_mrr(
    embeddings: Tensor, split: LinkSplit, ranking: tuple[Tensor, Tensor], *, feature: PairFeature = "product"
) -> float:
    """Return the MRR of validation links by cross-validated probes; NaN with fewer than two examples of a class.

    The folds and probes are those of `tuning_auc`. A link and its candidates, from `validation_ranking`, are scored by
    the probe that was trained without the link.
    """
    split = validation_only(split).to(embeddings.device)
    if not can_tune(split):
        return float("nan")
    folds, _, weights, bias = _probes(embeddings, split, feature)
    rows, others = (part.to(embeddings.device) for part in ranking)
    links, fold = split.pairs[rows], folds[:, rows].int().argmax(0)  # [P, 2], [P]
    nodes = torch.cat([links[:, 1:], others], 1)  # [P, 1 + K]
    x = pair_features(embeddings, candidate_pairs(links, nodes), feature).view(*nodes.shape, -1)
    scores = (x * weights[fold].unsqueeze(1)).sum(-1) + bias[fold].unsqueeze(1)  # [P, 1 + K]
    return mrr(ranks(scores[:, 0], scores[:, 1:]))


def _probes(embeddings: Tensor, split: LinkSplit, feature: PairFeature) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return folds, features of the examples, and a probe for each fold, trained on the others.

    Shapes:
        folds [K, B], features [B, d], weights [K, d], biases [K]
    """
    folds = _folds(split.labels)
    x = pair_features(embeddings, split.pairs, feature)
    return folds, x, *fit_repeats(x, replace(split, train=~folds))


def _folds(labels: Tensor) -> Tensor:
    """Return the fold masks.  # [B] → [K, B]"""
    rank = torch.where(labels, labels.cumsum(0), (~labels).cumsum(0)) - 1  # within the class
    number = min(FOLDS, *(int((labels == label).sum()) for label in (True, False)))
    return rank % number == torch.arange(number, device=labels.device).unsqueeze(-1)
