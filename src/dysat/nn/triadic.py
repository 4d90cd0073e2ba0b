"""The three losses of DynamicTriad: linked nodes are near, vectors move little, open triads close or stay open."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import softplus


def homophily(u: Tensor, links: Tensor, others: Tensor, weights: Tensor, margin: float) -> Tensor:
    """Σ w_ij [‖u_i − u_j‖² − ‖u_i − u_k‖² + margin]_+ over links (i, j) and all of their own k.

    Shapes: u [R, d], links [B, 2], others [B, Q], weights [B, Q] (0: not counted).
    """
    rows = torch.cat([links, others], 1)  # [B, 2 + Q]
    e = u.index_select(0, rows.flatten()).view(*rows.shape, -1)  # [B, 2 + Q, d]
    square = (e[:, :1] - e[:, 1:]).square().sum(2)  # [B, 1 + Q]
    return (weights * torch.relu(square[:, :1] - square[:, 1:] + margin)).sum()


def roughness(u: Tensor, known: Sequence[int]) -> Tensor:
    """Σ_t Σ_i ‖u_i^t − u_i^(t−1)‖², over nodes i known at t − 1.

    Shapes: u [R, d] with R = Σ known, step after step.
    """
    steps = torch.split(u, list(known))
    total = u.new_zeros(())
    for before, now in pairwise(steps):
        total = total + (now[: len(before)] - before).square().sum()
    return total


def closing_loss(z: Tensor, pairs: Tensor, number: int) -> Tensor:
    """−log(1 − Π_k (1 − σ(z_k))) of each pair of nodes, over its triads; in order of pair.  # [B], [B] → [number]

    With a = Σ_k log(1 + e^z_k) it is −log(1 − e^−a); float64 tells a from 0 down to z = −700, and the sum from 1.
    """
    a = torch.zeros(number, dtype=torch.float64, device=z.device)
    a = a.index_add(0, pairs, softplus(z.double().clamp(min=-700)))
    return -torch.log(-torch.expm1(-a)).to(z.dtype)
