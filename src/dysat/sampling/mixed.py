"""Pairs of nodes of all kinds: linked before, as active as linked ones, any."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.sampling.pairs import distinct_pairs

LATELY = 3  # snapshots


def mixed_pairs(graph: DynamicGraph, number: int, seed: int) -> Tensor:
    """At most `number` pairs of each kind, each pair once, of the nodes known in the end.  # [B, 2], u < v

    The kinds: linked in any snapshot, the latest first; two ends of links of the last three snapshots; one such end and
    any node; any two nodes.
    """
    rng, known = np.random.default_rng([seed, len(graph)]), graph.known[-1]
    links = [np.stack([part.cpu().numpy() for part in s.links()[:2]], 1) for s in reversed(graph.snapshots)]
    before = np.concatenate(links)
    _, first = np.unique(before[:, 0] * known + before[:, 1], return_index=True)
    before = before[np.sort(first)[:number]]
    ends = np.concatenate(links[:LATELY]).ravel()
    anyone = rng.integers(0, max(1, known), (3, number if known else 0))
    parts = [before, anyone[:2].T]
    if len(ends):
        parts += [rng.choice(ends, (number, 2)), np.stack([rng.choice(ends, number), anyone[2]], 1)]
    return torch.from_numpy(distinct_pairs(np.concatenate(parts), known))
