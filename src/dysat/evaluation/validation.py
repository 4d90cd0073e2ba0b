"""The tuning metric: AUC on validation examples only."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from dysat.evaluation.probe import fit_repeats, masked_auc, pair_features
from dysat.evaluation.protocols import LinkSplit
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
    folds = _folds(split.labels)
    x = pair_features(embeddings, split.pairs, feature)  # [B, d]
    weights, bias = fit_repeats(x, replace(split, train=~folds))  # [K, d], [K]
    return fmean(masked_auc(weights @ x.mT + bias.unsqueeze(-1), split.labels, folds).tolist())


def _folds(labels: Tensor) -> Tensor:
    """Return the fold masks.  # [B] → [K, B]"""
    rank = torch.where(labels, labels.cumsum(0), (~labels).cumsum(0)) - 1  # within the class
    number = min(FOLDS, *(int((labels == label).sum()) for label in (True, False)))
    return rank % number == torch.arange(number, device=labels.device).unsqueeze(-1)
