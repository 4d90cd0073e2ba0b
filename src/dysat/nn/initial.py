"""The first weights of a network, from a generator that is given."""

from __future__ import annotations

import math

import torch
from torch import nn


def glorot_(network: nn.Module, generator: torch.Generator) -> None:
    """Glorot and Bengio 2010, as PyG's layers have it; biases begin at 0."""
    for p in network.parameters():
        bound = math.sqrt(6 / (p.shape[-2] + p.shape[-1])) if p.ndim > 1 else 0.0
        nn.init.uniform_(p, -bound, bound, generator=generator)
