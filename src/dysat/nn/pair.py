"""Features of a pair of nodes from their embeddings."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

PairFeature = Literal["product", "distance"]


def pair_features(e_u: Tensor, e_v: Tensor, kind: PairFeature = "product") -> Tensor:
    """Return e_u ⊙ e_v or |e_u − e_v|; both are symmetric in u and v.  # two [..., d] → [..., d]"""
    return e_u * e_v if kind == "product" else (e_u - e_v).abs()


def weighted_sums(e: Tensor, others: Tensor, weights: Tensor, kind: PairFeature = "product") -> Tensor:
    """Return `pair_features(e_i, e_j) · weights` for all i and j, without storing the features.

    Shapes: e [b, d], others [N, d], weights [d] → [b, N].
    """
    if kind == "product":
        return (e * weights) @ others.mT
    parts = []
    for sign, used in ((1, weights > 0), (-1, weights < 0)):  # w |x − y| = ± |w x − w y|
        w = weights[used]
        parts.append(sign * torch.cdist(e[:, used] * w, others[:, used] * w, p=1))
    return parts[0] + parts[1]
