"""What a logistic regression sees of a pair of nodes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

PairFeature = Literal["product", "distance"]


def pair_features(e_u: Tensor, e_v: Tensor, kind: PairFeature = "product") -> Tensor:
    """e_u ⊙ e_v, or |e_u − e_v|, number by number; the same whichever comes first.  # two [..., d] → [..., d]"""
    return e_u * e_v if kind == "product" else (e_u - e_v).abs()


def weighted_sums(e: Tensor, others: Tensor, weights: Tensor, kind: PairFeature = "product") -> Tensor:
    """`pair_features` of all with all, weighted and added up, but never held.  # [b, d], [N, d], [d] → [b, N]"""
    if kind == "product":
        return (e * weights) @ others.mT
    parts = []
    for sign, some in ((1, weights > 0), (-1, weights < 0)):  # w |x − y| = ± |w x − w y|
        w = weights[some]
        parts.append(sign * torch.cdist(e[:, some] * w, others[:, some] * w, p=1))
    return parts[0] + parts[1]
