"""Small graphs, and options of small models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import dysat

Links = Sequence[tuple[int, int]]
# Options of a small, fast DySAT.
QUICK: dict[str, Any] = {
    "structural_heads": (2,),
    "structural_features": (8,),
    "temporal_heads": (2,),
    "temporal_features": (8,),
    "walks_per_node": 2,
    "walk_length": 5,
    "epochs": 2,
    "device": "cpu",
}
# A small network beside the default's other options.
SMALL: dict[str, Any] = {
    "structural_heads": (2,),
    "structural_features": (8,),
    "temporal_heads": (2,),
    "temporal_features": (8,),
    "spectrum": 4,
    "device": "cpu",
}
# QUICK with all parts of the default model that the paper's model does not have.
FORECASTING: dict[str, Any] = {
    **QUICK,
    "activity": True,
    "spectrum": 2,
    "positions": "relative",
    "future_weight": 0.5,
    "agreement": 0.5,
    "pair_score": True,
    "transitions": 2,
    "learning_rate": 0.01,
}


def make_graph(
    known: Sequence[int],
    links: Sequence[Links],
    *,
    weights: Sequence[Sequence[float]] | None = None,
    nodes: NDArray[Any] | None = None,
) -> dysat.DynamicGraph:
    """A graph from its known nodes and links, snapshot by snapshot."""
    snapshots = []
    for t, (number, pairs) in enumerate(zip(known, links, strict=True)):
        u, v = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        weight = None if weights is None else np.array(weights[t], dtype=np.float64)
        snapshots.append(dysat.Snapshot.from_links(u, v, weight, num_nodes=number, start=t, stop=t + 1))
    labels = np.arange(known[-1]) if nodes is None else nodes
    return dysat.DynamicGraph(labels, tuple(snapshots), clock="step")


def meetings(nodes: NDArray[Any] | None = None) -> dysat.DynamicGraph:
    """Five snapshots over eight nodes with weighted links; two nodes appear later, and one is inactive for a while."""
    links: list[Links] = [
        [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)],
        [(0, 2), (1, 2), (3, 5), (6, 3), (6, 5), (4, 4)],
        [(0, 1), (0, 6), (1, 7), (7, 2), (3, 4), (5, 6)],
        [(0, 7), (1, 2), (2, 7), (3, 6), (4, 5), (4, 6)],
        [(0, 2), (1, 7), (3, 5), (3, 4), (5, 6)],
    ]
    weights = [[1.0 + (3 * u + v + t) % 3 for u, v in pairs] for t, pairs in enumerate(links)]
    return make_graph([6, 7, 8, 8, 8], links, weights=weights, nodes=nodes)


def two_blocks(size: int = 30, steps: int = 5, seed: int = 0) -> dysat.DynamicGraph:
    """Each snapshot links nodes of equal parity with probability 4/5, and others with probability 1/30."""
    rng = np.random.default_rng(seed)
    u, v = np.triu_indices(size, 1)
    chance = np.where((u + v) % 2, 1 / 30, 4 / 5)
    drawn = [rng.random(len(u)) < chance for _ in range(steps)]
    links = [list(zip(u[linked].tolist(), v[linked].tolist(), strict=True)) for linked in drawn]
    return make_graph([size] * steps, links)


def all_pairs(size: int) -> torch.Tensor:
    return torch.tensor(list(combinations(range(size), 2)), dtype=torch.int64).view(-1, 2)
