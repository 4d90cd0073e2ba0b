"""Loss of reconstructing links from inner products."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus


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
