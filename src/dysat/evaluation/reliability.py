"""Calibration of scores: of the pairs with a score of 0.8, are four in five linked?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dysat.errors import ModelError


def reliability(scores: Tensor, labels: Tensor, bins: int = 10) -> list[dict[str, Any]]:
    """Return the reliability curve of scores in [0, 1]: per bin, pairs, mean score and fraction linked.  # [B], [B]

    Bins have equal width and are half-open, [from, to), except for the last, which includes 1. An empty bin has None
    for both values. For calibrated scores the two values agree, up to chance.
    """
    if bins < 1:
        raise ModelError(f"bins={bins} must be at least 1")
    if scores.dim() != 1 or scores.shape != labels.shape:
        raise ModelError(f"scores and labels have shapes {tuple(scores.shape)} and {tuple(labels.shape)}, expected [B]")
    scores, labels = scores.double().cpu(), labels.double().cpu()
    if not ((scores >= 0) & (scores <= 1)).all():
        raise ModelError("reliability needs scores between 0 and 1")
    edges = torch.arange(bins + 1, dtype=torch.float64) / bins
    bin_of = torch.searchsorted(edges, scores, right=True).sub(1).clamp(max=bins - 1)
    sums = [torch.zeros(bins, dtype=torch.float64).index_add_(0, bin_of, part) for part in (scores, labels)]
    curve = []
    for number, pairs in enumerate(torch.bincount(bin_of, minlength=bins).tolist()):
        mean, linked = (float(part[number]) / pairs if pairs else None for part in sums)
        ends = {"from": float(edges[number]), "to": float(edges[number + 1])}
        curve.append({**ends, "pairs": pairs, "mean_score": mean, "linked": linked})
    return curve


def mean_gap(curve: Sequence[dict[str, Any]]) -> float | None:
    """Return the expected calibration error: |mean score − fraction linked|, averaged over all pairs."""
    filled = [part for part in curve if part["pairs"]]
    if not filled:
        return None
    gaps = sum(part["pairs"] * abs(part["mean_score"] - part["linked"]) for part in filled)
    return float(gaps / sum(part["pairs"] for part in filled))


def pooled(curves: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the reliability curve of the pairs of several curves together; all must have the same bins."""
    found = []
    for parts in zip(*curves, strict=True):
        pairs = sum(part["pairs"] for part in parts)
        means = {
            name: sum(part["pairs"] * part[name] for part in parts if part["pairs"]) / pairs if pairs else None
            for name in ("mean_score", "linked")
        }
        found.append({"from": parts[0]["from"], "to": parts[0]["to"], "pairs": pairs, **means})
    return found
