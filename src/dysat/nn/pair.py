"""Pairs of embeddings: features of a pair, and the loss of reconstructing links from inner products."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

PairFeature = Literal["product", "distance"]


def pair_features(e_u: Tensor, e_v: Tensor, kind: PairFeature = "product") -> Tensor:
    """Return e_u ⊙ e_v or |e_u − e_v|; both are symmetric in u and v.  # two [..., d] → [..., d]"""
    return e_u * e_v if kind == "product" else (e_u - e_v).abs()


def both_ends(e: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors of u and of v; with two roles, u as a source and v as a target.  # two [B, d]

    Shapes: e [N, d], or [N, 2, d] with the roles source and target; pairs [B, 2].
    """
    u, v = pairs.unbind(-1)
    return (e[u], e[v]) if e.dim() == 2 else (e[u, 0], e[v, 1])


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


def reconstruction_loss(e: Tensor, links: Tensor, others: Tensor, counted: Tensor) -> Tensor:
    """Return the mean of −log σ(e_u · e_v) − Σ log σ(−e_a · e_b) over the counted links (u, v).

    Each link has Q negative pairs (a, b), where Q may be 0.

    Shapes:
        e [N, d], links [B, 2], others [B · Q, 2], counted [B] (bool).
    """
    losses = softplus(-_products(e, links)) + softplus(_products(e, others)).view(len(links), -1).sum(1)  # [B]
    return (losses * counted).sum() / counted.sum()


def _products(e: Tensor, pairs: Tensor) -> Tensor:
    """e_u · e_v.  # [B, 2] → [B]"""
    u, v = (e.index_select(0, ends) for ends in pairs.unbind(1))
    return (u * v).sum(1)
