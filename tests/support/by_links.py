"""Graphs from weighted links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dysat import DynamicGraph, Snapshot

Links = dict[tuple[int, int], float]


def graph_of(known: Sequence[int], links: Sequence[Links]) -> DynamicGraph:
    """A graph from the number of known nodes and the links of each snapshot."""
    snapshots = []
    for t, (number, pairs) in enumerate(zip(known, links, strict=True)):
        u, v = np.array(list(pairs), dtype=np.int64).reshape(-1, 2).T
        weights = np.array(list(pairs.values()), dtype=np.float64)
        snapshots.append(Snapshot.from_links(u, v, weights, num_nodes=number, start=t, stop=t + 1))
    return DynamicGraph(np.arange(known[-1]), tuple(snapshots), clock="step")
