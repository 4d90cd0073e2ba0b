"""Summaries of a graph: how its events were used, and counts per snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.data.csr import Snapshot, distinct
from dysat.data.windows import Clock, write_moment

AT_ONCE = 1 << 24  # entries whose links are compared together
COMPLETE = 0.8  # a window whose events end earlier counts as incomplete


@dataclass(frozen=True)
class Report:
    """How the events of a graph were used; `self_loops` counts those inside the windows.

    `covered` is the fraction of the last window up to the last event; None if events are numbered by step.
    """

    events: int
    used: int
    before: int
    after: int
    self_loops: int
    self_loops_kept: bool
    covered: float | None = None  # also None in graphs stored by earlier versions

    @property
    def complete(self) -> bool:
        """Whether the last window counts as complete."""
        return self.covered is None or self.covered >= COMPLETE


@dataclass(frozen=True)
class SnapshotSummary:
    """One row of `DynamicGraph.summary()`; `new_links` counts links absent from the previous snapshot."""

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
    """Return one row per snapshot: its exact window, and the numbers of its nodes and links, all and new."""
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
    """Return each link as one number, sorted."""
    u, v, _ = snapshot.links()
    return (u << 32 | v).cpu().numpy()


def link_origins(snapshots: Sequence[Snapshot]) -> NDArray[np.int64]:
    """Count the links of each snapshot: linked before, new between known nodes, and with a new node.  # [T, 3]"""
    counts = np.zeros((len(snapshots), 3), dtype=np.int64)
    past, known = np.empty(0, dtype=np.int64), 0
    for step, snapshot in enumerate(snapshots):
        keys = link_keys(snapshot)
        with_new = int((keys & 0xFFFFFFFF >= known).sum())  # the higher of the two ends
        recurring = int(np.isin(keys, past, assume_unique=True).sum())
        counts[step] = recurring, len(keys) - recurring - with_new, with_new
        past, known = distinct(np.concatenate([past, keys])), snapshot.num_nodes
    return counts


def count_distinct_links(snapshots: Sequence[Snapshot], low: int, high: int) -> int:
    """Count the pairs (u, v), u ≤ v, with u in [low, high), that are linked in any snapshot.

    Ranges of nodes with many entries are halved, so that memory does not grow with the graph.
    """
    parts = [_rows_between(s, low, high) for s in snapshots]
    if sum(stop - start for start, stop, _, _ in parts) > AT_ONCE and high - low > 1:
        middle = (low + high) // 2
        return count_distinct_links(snapshots, low, middle) + count_distinct_links(snapshots, middle, high)
    keys = []
    for s, (start, stop, first, last) in zip(snapshots, parts, strict=True):
        u = torch.repeat_interleave(s.rows[first:last], s.offsets[first : last + 1].diff())
        v = s.neighbours[start:stop]
        once = u <= v
        keys.append((u[once] << 32 | v[once]).cpu().numpy())
    return len(distinct(np.concatenate(keys)))


def _rows_between(snapshot: Snapshot, low: int, high: int) -> tuple[int, int, int, int]:
    """The entries [start, stop) and the rows [first, last) of the nodes [low, high)."""
    first, last = torch.searchsorted(snapshot.rows, torch.tensor([low, high], device=snapshot.rows.device)).tolist()
    start, stop = snapshot.offsets[[first, last]].tolist()
    return start, stop, first, last


def target_keys(snapshot: Snapshot) -> NDArray[np.int64]:
    """Return each of `snapshot.pairs()` as one number, sorted: its arcs if it has direction, else its links."""
    u, v, _ = snapshot.pairs()
    return (u << 32 | v).cpu().numpy()


def sparkline(values: Sequence[float]) -> str:
    """Draw values as a row of small bars."""
    top = max(values, default=0) or 1
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * value / top))] for value in values)
