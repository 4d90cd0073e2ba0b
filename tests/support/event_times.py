"""Graphs that know the times of events."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from dysat import DynamicGraph


def with_times(graph: DynamicGraph, seed: int = 0) -> DynamicGraph:
    """The same graph with a random time for each link, a multiple of 1/16."""
    rng = np.random.default_rng(seed)
    snapshots = []
    for snapshot in graph:
        drawn = torch.from_numpy(rng.integers(0, 17, (graph.num_nodes,) * 2)) / 16
        receivers, neighbours, _ = snapshot.entries()
        ends = torch.minimum(receivers, neighbours), torch.maximum(receivers, neighbours)
        snapshots.append(replace(snapshot, latest=drawn[ends].float()))
    return replace(graph, snapshots=tuple(snapshots))
