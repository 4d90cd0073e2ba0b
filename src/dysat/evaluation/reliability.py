"""Whether scores mean what they say: of the pairs with a score of 0.8, are four in five linked?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dysat.errors import ModelError


def reliability(scores: Tensor, labels: Tensor, bins: int = 10) -> list[dict[str, Any]]:
    """Of scores between 0 and 1, for each of equal ranges: how many pairs, their mean score, which part is linked.

    A range is half-open, [from, to), but for the last, which has 1. One without pairs has no mean and no part: None.
    Scores that are calibrated have both equal, but for chance.  # [B], [B]
    """
    if bins < 1:
        raise ModelError(f"bins={bins} must be at least 1")
    if scores.dim() != 1 or scores.shape != labels.shape:
        raise ModelError(f"scores and labels have shapes {tuple(scores.shape)} and {tuple(labels.shape)}, expected [B]")
    scores, labels = scores.double().cpu(), labels.double().cpu()
    if not ((scores >= 0) & (scores <= 1)).all():
        raise ModelError("reliability is that of scores between 0 and 1")
    edges = torch.arange(bins + 1, dtype=torch.float64) / bins
    at = torch.searchsorted(edges, scores, right=True).sub(1).clamp(max=bins - 1)
    sums = [torch.zeros(bins, dtype=torch.float64).index_add_(0, at, part) for part in (scores, labels)]
    found = []
    for number, pairs in enumerate(torch.bincount(at, minlength=bins).tolist()):
        mean, linked = (float(part[number]) / pairs if pairs else None for part in sums)
        ends = {"from": float(edges[number]), "to": float(edges[number + 1])}
        found.append({**ends, "pairs": pairs, "mean_score": mean, "linked": linked})
    return found


def mean_gap(curve: Sequence[dict[str, Any]]) -> float | None:
    """How far mean score and linked part of a range lie apart, in the mean over all pairs; None without any."""
    there = [part for part in curve if part["pairs"]]
    if not there:
        return None
    gaps = sum(part["pairs"] * abs(part["mean_score"] - part["linked"]) for part in there)
    return float(gaps / sum(part["pairs"] for part in there))
