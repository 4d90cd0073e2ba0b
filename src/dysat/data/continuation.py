"""The next snapshots of a graph, from events that came after it was built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import Snapshot
from dysat.data.events import Events
from dysat.data.graph import DynamicGraph
from dysat.data.grid import Grid
from dysat.data.growth import labels_like
from dysat.data.labels import Labels
from dysat.data.snapshots import coverage_note, cut_snapshots, read_boundaries, renumber
from dysat.data.windows import Moment, as_moment, check_edges, write_moment
from dysat.errors import SnapshotsError


@dataclass(frozen=True, eq=False)
class NextSnapshot:
    """One more snapshot, with the labels [new] and kinds [new] of the nodes that are new in it."""

    snapshot: Snapshot
    nodes: Labels
    kinds: NDArray[np.uint8] | None
    events: int  # without self-loops that were dropped


@dataclass(frozen=True, eq=False)
class Continuation:
    """The next snapshots of a graph, and what became of the events.

    `late` ones lie before the end of the graph: they are counted, never merged. Those `left` lie after the last new
    window and wait for the next time. `self_loops` counts them inside the new windows, kept or not.
    """

    steps: tuple[NextSnapshot, ...]
    used: int
    late: int
    left: int
    self_loops: int
    late_range: tuple[int, int] | None
    notes: tuple[str, ...]


def continue_snapshots(
    graph: DynamicGraph,
    events: Events,
    *,
    grid: Grid | None = None,
    boundaries: Sequence[Moment] | None = None,
    until: Moment | None = None,
    self_loops: Literal["keep", "drop"] = "drop",
) -> Continuation:
    """Cut events into the snapshots that follow a graph's, numbered as if all events had been there from the start.

    Parameters:
        grid: how the windows go on; told from the graph's own where it is left out.
        boundaries: instead, where the next windows stop; the graph's last boundary may stand before them.
        until: make only windows that end by then. Without, the last window is the one that holds the last event.
        self_loops: as in `build_snapshots`.

    Without any event in the new windows there are no steps.

    Example:
        >>> from dysat import build_snapshots, read_events
        >>> first = read_events((["ann", "bob"], ["bob", "cy"], ["2024-01-01", "2024-01-09"]))
        >>> graph = build_snapshots(first, every="1w")
        >>> more = read_events((["cy"], ["dee"], ["2024-01-20"]), at_least=1)
        >>> for step in continue_snapshots(graph, more).steps:
        ...     graph = graph.extended(step.snapshot, step.nodes, step.kinds)
        >>> graph.known
        (2, 3, 4)
    """
    _check(graph, events, self_loops)
    if grid is not None and boundaries is not None:
        raise SnapshotsError("give one of grid= and boundaries=, not both")
    edges = _next_edges(graph, events, grid, boundaries, until)
    cuts = np.searchsorted(events.time, np.array(edges))
    late, stop = int(cuts[0]), int(cuts[-1])
    steps, loops = _steps(graph, events, edges, cuts, keep=self_loops == "keep") if stop > late else ((), 0)
    return Continuation(
        steps=steps,
        used=sum(step.events for step in steps),
        late=late,
        left=len(events) - stop,
        self_loops=loops,
        late_range=(int(events.time[0]), int(events.time[late - 1])) if late else None,
        notes=(*events.notes, *(coverage_note(events, edges, "until=") if steps and until is None else ())),
    )


def _check(graph: DynamicGraph, events: Events, self_loops: str) -> None:
    if self_loops not in ("keep", "drop"):
        raise SnapshotsError(f"self_loops={self_loops!r} is neither 'keep' nor 'drop'")
    if events.clock != graph.clock:
        means = {"utc": "have dates", "step": "are numbered by step"}
        raise SnapshotsError(f"the events {means[events.clock]}, but the windows of the graph {means[graph.clock]}")
    ours, theirs = _kind_names(graph), _kind_names(events)
    if ours != theirs:
        texts = [" and ".join(names) or "none" for names in (theirs, ours)]
        raise SnapshotsError(f"the kinds of the events ({texts[0]}) are not those of the graph ({texts[1]})")


def _kind_names(of: DynamicGraph | Events) -> tuple[str, ...]:
    return () if of.kinds is None else of.kind_names


def _next_edges(
    graph: DynamicGraph,
    events: Events,
    grid: Grid | None,
    boundaries: Sequence[Moment] | None,
    until: Moment | None,
) -> list[int]:
    """The graph's last boundary, and the edges of the windows after it."""
    last, clock = graph.snapshots[-1].stop, graph.clock
    end = None if until is None else as_moment(until, clock, "until")
    if boundaries is not None:
        edges = read_boundaries(boundaries, clock)
        if edges and edges[0] < last:
            first, stop = write_moment(edges[0], clock), write_moment(last, clock)
            raise SnapshotsError(f"boundaries must lie after the graph, which ends at {stop}, but the first is {first}")
        edges = edges if edges[:1] == [last] else [last, *edges]
        check_edges(edges, clock)
        return [last, *(edge for edge in edges[1:] if end is None or edge <= end)]
    if not len(events) or events.time[-1] < last:
        return [last]
    grid = grid or Grid.of(graph.boundaries, clock)
    return grid.edges_until(last, int(events.time[-1]) if end is None else end, whole=end is not None)


def _steps(
    graph: DynamicGraph, events: Events, edges: list[int], cuts: NDArray[np.int64], *, keep: bool
) -> tuple[tuple[NextSnapshot, ...], int]:
    """A snapshot for each window, and how many self-loops are in them."""
    here = slice(int(cuts[0]), int(cuts[-1]))
    cuts = cuts - cuts[0]
    loops = np.flatnonzero(events.src[here] == events.dst[here])
    dropped = loops[:0] if keep else loops
    events = replace(events, labels=labels_like(events.labels, graph.nodes, SnapshotsError))
    src, dst, nodes = renumber(events, here, dropped)
    ids, new = _ids(graph, events, nodes)
    ids = np.append(ids, np.int32(-1))  # the end of an event that is dropped stays −1
    weight = None if events.weight is None else events.weight[here]
    start = graph.num_nodes
    snapshots = cut_snapshots(ids[src], ids[dst], weight, edges, cuts, known=start, self_loops=keep)

    counts = np.diff(cuts) - np.diff(np.searchsorted(dropped, cuts))
    tops = [start, *(snapshot.num_nodes for snapshot in snapshots)]
    parts = [new[a - start : b - start] for a, b in pairwise(tops)]
    steps = (
        NextSnapshot(snapshot, events.labels[part], None if events.kinds is None else events.kinds[part], int(count))
        for snapshot, part, count in zip(snapshots, parts, counts, strict=True)
    )
    return tuple(steps), len(loops)


def _ids(graph: DynamicGraph, events: Events, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Ids for nodes of the events, those new to the graph after all it has, in order; and which are new."""
    ids = np.full(len(nodes), -1, dtype=np.int32)
    kinds = np.zeros(len(nodes), dtype=np.uint8) if events.kinds is None else events.kinds[nodes]
    for kind in np.unique(kinds):
        there = np.arange(graph.num_nodes) if graph.kinds is None else np.flatnonzero(graph.kinds == kind)
        known = dict(zip(graph.nodes[there].tolist(), there.tolist(), strict=True))
        here = kinds == kind
        ids[here] = [known.get(label, -1) for label in events.labels[nodes[here]].tolist()]
    new = ids < 0
    ids[new] = np.arange(graph.num_nodes, graph.num_nodes + new.sum())
    return ids, nodes[new]
