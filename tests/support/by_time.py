"""Graphs whose windows have a time of day."""

from __future__ import annotations

import numpy as np
from small import make_graph

import dysat
from dysat.data.graph import DynamicGraph
from dysat.data.windows import DAY

HOUR = DAY // 24


def at_hours(graph: DynamicGraph, width: int) -> DynamicGraph:
    """The same graph with windows of this width in hours, from 1970 on."""
    snapshots = [
        dysat.Snapshot(
            s.rows, s.offsets, s.neighbours, s.weights, s.num_nodes, k * width * HOUR, (k + 1) * width * HOUR
        )
        for k, s in enumerate(graph)
    ]
    return DynamicGraph(graph.nodes, tuple(snapshots), clock="utc")


def mornings_and_evenings(days: int = 6, size: int = 40, seed: int = 0) -> DynamicGraph:
    """Four windows a day: some pairs are linked in the morning, others at noon, random pairs at night."""
    rng = np.random.default_rng(seed)
    nodes = rng.permutation(size)
    early, late = nodes.reshape(-1, 2), np.roll(nodes, 1).reshape(-1, 2)
    links = []
    for _ in range(days):
        drawn = [pairs[rng.random(len(pairs)) < 0.8] for pairs in (early, late)]
        links += [[(int(u), int(v)) for u, v in pairs] for pairs in drawn]
        links += [[(int(u), int(v)) for u, v in rng.integers(0, size, (4, 2)) if u != v], []]
    everyone = [(k, k + 1) for k in range(0, size, 2)]
    return at_hours(make_graph([size] * (4 * days + 1), [everyone, *links]), 6)
