"""What settings are chosen by: validation examples, and nothing else."""

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
    """The split with its validation examples alone: no example that trains or tests a probe is within reach."""
    mine = split.validation
    nothing = torch.zeros(0, int(mine.sum()), dtype=torch.bool, device=mine.device)  # not one repeat
    return replace(
        split, pairs=split.pairs[mine], labels=split.labels[mine], validation=mine[mine], train=nothing, test=nothing
    )


def can_tune(split: LinkSplit) -> bool:
    """Whether there are two validation examples of each class: one to train a probe on, one to try it."""
    return min(int((split.labels[split.validation] == label).sum()) for label in (True, False)) >= 2


@torch.no_grad()
def tuning_auc(embeddings: Tensor, split: LinkSplit, *, feature: PairFeature = "product") -> float:
    """How well a probe tells the validation examples apart that it has not seen; NaN with less than two of a class.

    `validation_auc` trains its probe on examples that other repeats test with. Here the validation examples are
    divided into five folds (fewer where a class has fewer), each class evenly and by its order, so always alike; each
    fold is scored by a probe trained on the others. It is the mean of the folds' AUC, not that of all scores pooled:
    the log-odds of different probes have different zeros and scales.
    """
    split = validation_only(split).to(embeddings.device)
    if not can_tune(split):
        return float("nan")
    folds = _folds(split.labels)
    x = pair_features(embeddings, split.pairs, feature)  # [B, d]
    weights, bias = fit_repeats(x, replace(split, train=~folds))  # [K, d], [K]
    return fmean(masked_auc(weights @ x.mT + bias.unsqueeze(-1), split.labels, folds).tolist())


def _folds(labels: Tensor) -> Tensor:
    """Which examples belong to which fold.  # [B] → [K, B]"""
    rank = torch.where(labels, labels.cumsum(0), (~labels).cumsum(0)) - 1  # within the class
    number = min(FOLDS, *(int((labels == label).sum()) for label in (True, False)))
    return rank % number == torch.arange(number, device=labels.device).unsqueeze(-1)
