"""Directed graphs: random ones, and one in which direction can be predicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import dysat
from dysat import DynamicGraph, Snapshot

Arcs = dict[tuple[int, int], float]


def directed_graph(known: Sequence[int], arcs: Sequence[Arcs]) -> DynamicGraph:
    """A directed graph from the number of known nodes and the arcs of each snapshot."""
    snapshots = []
    for t, (number, pairs) in enumerate(zip(known, arcs, strict=True)):
        u, v = np.array(list(pairs), dtype=np.int64).reshape(-1, 2).T
        weights = np.array(list(pairs.values()), dtype=np.float64)
        snapshots.append(Snapshot.from_links(u, v, weights, num_nodes=number, start=t, stop=t + 1, directed=True))
    return DynamicGraph(np.arange(known[-1]), tuple(snapshots), clock="step")


def random_arcs(num_nodes: int, number: int, steps: int, seed: int = 0) -> list[Arcs]:
    """Random arcs with random weights, self-loops among them."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, num_nodes, (steps, number, 2)).tolist()
    return [{(u, v): float(rng.integers(1, 5)) for u, v in part} for part in pairs]


def payments(steps: int = 6, seed: int = 0) -> DynamicGraph:
    """12 companies pay 60 people; one payment in ten goes the other way. Who pays whom changes all the time."""
    rng = np.random.default_rng(seed)
    src, dst, times = [], [], []
    for step in range(steps):
        for company, person in zip(rng.integers(0, 12, 120), rng.integers(0, 60, 120), strict=True):
            pair = [f"company {company}", f"person {person}"]
            one, two = pair if rng.random() < 0.9 else pair[::-1]
            src.append(one)
            dst.append(two)
            times.append(step)
    return dysat.build_snapshots(dysat.read_events((src, dst, times), time_unit="step"), every=1, directed=True)
