"""What is told of a graph: what became of its events, and a row of counts per snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import Snapshot
from dysat.data.windows import Clock, write_moment


@dataclass(frozen=True)
class Report:
    """What became of the events a graph was built from; self-loops are counted inside the windows."""

    events: int
    used: int
    before: int
    after: int
    self_loops: int
    self_loops_kept: bool


@dataclass(frozen=True)
class SnapshotSummary:
    """One row of `DynamicGraph.summary()`; `new_links` are those absent from the snapshot before."""

    step: int
    start: str
    stop: str
    known: int
    active: int
    new_nodes: int
    links: int
    new_links: int
    self_loops: int
    weight: float


def summarize(snapshots: Sequence[Snapshot], clock: Clock) -> list[SnapshotSummary]:
    """One row per snapshot: its window, and how many nodes and links are there and are new."""
    rows = []
    before, known = np.empty(0, dtype=np.int64), 0
    for step, s in enumerate(snapshots):
        keys = link_keys(s)
        new = int(np.isin(keys, before, assume_unique=True, invert=True).sum())
        window = (write_moment(s.start, clock), write_moment(s.stop, clock))
        counts = (s.num_nodes, s.num_active, s.num_nodes - known, s.num_links, new, s.num_self_loops)
        rows.append(SnapshotSummary(step, *window, *counts, s.total_weight))
        before, known = keys, s.num_nodes
    return rows


def link_keys(snapshot: Snapshot) -> NDArray[np.int64]:
    """Each link as one number, in order."""
    u, v, _ = snapshot.links()
    return (u << 32 | v).cpu().numpy()


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of small bars."""
    top = max(values, default=0) or 1
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * value / top))] for value in values)
