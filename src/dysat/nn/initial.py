"""Initial weights of a network, drawn from a given generator."""

from __future__ import annotations

import math

import torch
from torch import nn


def glorot_(network: nn.Module, generator: torch.Generator) -> None:
    """Initialize weights as in Glorot and Bengio (2010) and PyG's layers; biases start at 0."""
    for p in network.parameters():
        bound = math.sqrt(6 / (p.shape[-2] + p.shape[-1])) if p.ndim > 1 else 0.0
        nn.init.uniform_(p, -bound, bound, generator=generator)
