"""Continue a graph with snapshots of new events."""

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
from dysat.data.growth import labels_like
from dysat.data.reading.labels import Labels
from dysat.data.snapshots import coverage_note, cut_snapshots, read_boundaries, renumber
from dysat.data.windows import (
    CALENDAR_UNITS,
    FIXED_UNITS,
    MAX_SNAPSHOTS,
    Clock,
    Every,
    Moment,
    Width,
    as_datetime,
    as_moment,
    check_edges,
    write_moment,
    write_span,
)
from dysat.errors import SnapshotsError


@dataclass(frozen=True)
class Grid:
    """The rule for the next windows: edge k is `start + k · width / count`, or k calendar widths after `start`.

    Example:
        >>> grid = Grid.of([0, 3, 6], "step")
        >>> print(grid, grid.edges_until(6, 10, whole=False), grid.edges_until(6, 10, whole=True))
        every 3 steps, as so far [6, 9, 12] [6, 9]
    """

    start: int
    width: Width  # total of `count` windows
    count: int
    clock: Clock
    text: str

    @classmethod
    def of(
        cls, boundaries: Sequence[int], clock: Clock, *, every: Every | None = None, count: int | None = None
    ) -> Grid:
        """Derive the grid from the `every` or `count` a graph was cut with, or else from its boundaries."""
        edges = [int(edge) for edge in boundaries]
        if every is not None and count is not None:
            raise SnapshotsError("give one of every= and count=, not both")
        if every is not None:
            width = Width.parse(every, clock)
            text = every.strip() if isinstance(every, str) and clock == "utc" else _write_width(width, clock)
            return cls(edges[0], width, 1, clock, f"every {text}")
        if count is not None:
            if not isinstance(count, int) or not 1 <= count < len(edges):
                raise SnapshotsError(f"count={count}, but the graph has {len(edges) - 1:,} windows")
            return cls._equal(edges[: count + 1], clock)  # later windows followed the same grid
        return _recognised(edges, clock)

    @classmethod
    def _equal(cls, edges: list[int], clock: Clock) -> Grid:
        count, span = len(edges) - 1, edges[-1] - edges[0]
        text = f"{count} equal windows of {write_span(span / count, clock)}"
        return cls(edges[0], Width(span=span), count, clock, text)

    def edge(self, k: int) -> int:
        """Return the start of window `k`, counted from the first window of the graph."""
        if self.width.months:
            return self.width.edge(self.start, k)
        return self.start + self.width.span * k // self.count

    def edges_until(self, last: int, moment: int, *, whole: bool) -> list[int]:
        """Return `last` and the next edges, up to the window of `moment` or, if `whole`, up to the last one by then."""
        first, beyond = self._after(last), self._after(moment)
        number = max(0, beyond - first + (not whole)) if moment >= last else 0
        if number > MAX_SNAPSHOTS:
            at = write_moment(moment, self.clock)
            cause = f"until={at}" if whole else f"the event of {at}"
            hint = "" if whole else "; until= leaves it for later"
            most = f"{number:,} more snapshots, more than {MAX_SNAPSHOTS:,}"
            raise SnapshotsError(f"{self}: {cause} would make {most}{hint}")
        return [last, *(self.edge(k) for k in range(first, first + number))]

    def _after(self, moment: int) -> int:
        """Return the number of the first edge after a moment."""
        if self.width.months:
            k = (_month(moment) - _month(self.start)) // self.width.months - 1
        else:
            k = (moment - self.start) * self.count // self.width.span
        k = max(0, k)
        while self.edge(k) <= moment:
            k += 1
        return k

    def __str__(self) -> str:
        return self.text


def next_window(boundaries: Sequence[int], clock: Clock) -> tuple[int, int]:
    """Return start and end of the window after the last one, on the same grid or else as long as the last one.

    Example:
        >>> next_window([0, 3, 6], "step")
        (6, 9)
    """
    edges = [int(edge) for edge in boundaries]
    try:
        if len(edges) > 2:
            return edges[-1], Grid.of(edges, clock).edge(len(edges))
        width = _calendar(edges) if clock == "utc" else None
        if width is not None and width.floor(edges[0]) == edges[0]:  # one window: a month, a quarter or a year
            return edges[-1], width.edge(edges[0], 2)
    except SnapshotsError:  # uneven windows, or the year 10,000
        pass
    return edges[-1], 2 * edges[-1] - edges[-2]


def _recognised(edges: list[int], clock: Clock) -> Grid:
    """Recognise windows of equal length, or of calendar months, quarters or years."""
    widths = [after - before for before, after in pairwise(edges)]
    if len(widths) < 2:
        raise SnapshotsError("one window does not say how long the next are; boundaries= must say where they end")
    width = _calendar(edges) if clock == "utc" else None
    # July and August are equally long; if the windows begin on the first of a month, they are calendar months.
    if len(set(widths)) == 1 and (width is None or width.floor(edges[0]) != edges[0]):
        width = Width(span=widths[0])
    if width is not None:
        return Grid(edges[0], width, 1, clock, f"every {_write_width(width, clock)}, as so far")
    if clock == "utc" and max(widths) - min(widths) <= 1:  # made by count=, or the first of them were
        for count in range(len(widths), 1, -1):
            equal = Grid._equal(edges[: count + 1], clock)
            if all(equal.edge(k) == edge for k, edge in enumerate(edges)):
                return equal
    other = next(width for width in widths if width != widths[0])
    texts = [write_span(width, clock) for width in (widths[0], other)]
    raise SnapshotsError(f"the windows are uneven ({texts[0]}, {texts[1]}), so boundaries= must say where the next end")


def _calendar(edges: list[int]) -> Width | None:
    """Return the number of months between all edges, if it is constant."""
    try:
        months = _month(edges[1]) - _month(edges[0])
        width = Width(months=months)
        fits = months > 0 and all(width.edge(edges[0], k) == edge for k, edge in enumerate(edges))
    except SnapshotsError:
        return None
    return width if fits else None


def _month(moment: int) -> int:
    """Months since the year 0."""
    try:
        at = as_datetime(moment)
    except OverflowError:
        raise SnapshotsError("windows would run past the year 9999") from None
    return at.year * 12 + at.month


def _write_width(width: Width, clock: Clock) -> str:
    """Write a width as a user gives it: `30d`, `1q`; or `3 steps`."""
    if clock == "step":
        return write_span(width.span, clock)
    units, length = (CALENDAR_UNITS, width.months) if width.months else (FIXED_UNITS, width.span)
    unit = max((unit for unit, size in units.items() if length % size == 0), key=lambda unit: units[unit])
    return f"{length // units[unit]}{unit}"


@dataclass(frozen=True, eq=False)
class NextSnapshot:
    """A new snapshot, with the labels [new] and kinds [new] of its new nodes."""

    snapshot: Snapshot
    nodes: Labels
    kinds: NDArray[np.uint8] | None
    events: int  # without dropped self-loops


@dataclass(frozen=True, eq=False)
class Continuation:
    """The next snapshots of a graph, and how the events were used.

    `late` events lie before the end of the graph; they are counted, never merged. `left` events lie after the last
    new window and wait for the next update. `self_loops` counts those inside the new windows, kept or dropped.
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
    """Cut new events into the next snapshots of a graph; nodes are numbered as if it were built from all events.

    The new snapshots have direction if the graph has, and times if it has.

    Parameters:
        grid: rule for the next windows; by default recognised from those of the graph.
        boundaries: stops of the next windows, instead of a grid; the graph's last boundary may come first.
        until: only make windows that end by then. By default the last window is that of the last event.
        self_loops: as in `build_snapshots`.

    If no event lies in the new windows, there are no steps.

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
        notes=(
            *events.notes,
            *(coverage_note(int(events.time[-1]), events.clock, edges, "until=") if steps and until is None else ()),
        ),
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
    """Return the last boundary of the graph and the edges of the next windows."""
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
    """Build a snapshot for each window, and count the self-loops in them."""
    here = slice(int(cuts[0]), int(cuts[-1]))
    cuts = cuts - cuts[0]
    loops = np.flatnonzero(events.src[here] == events.dst[here])
    dropped = loops[:0] if keep else loops
    events = replace(events, labels=labels_like(events.labels, graph.nodes, SnapshotsError))
    src, dst, nodes = renumber(events, here, dropped)
    ids, new = _ids(graph, events, nodes)
    ids = np.append(ids, np.int32(-1))  # dropped events keep −1
    weight = None if events.weight is None else events.weight[here]
    time = events.time[here] if graph.timed else None
    start = graph.num_nodes
    snapshots = cut_snapshots(
        ids[src], ids[dst], weight, time, edges, cuts, known=start, self_loops=keep, directed=graph.directed
    )

    counts = np.diff(cuts) - np.diff(np.searchsorted(dropped, cuts))
    tops = [start, *(snapshot.num_nodes for snapshot in snapshots)]
    parts = [new[a - start : b - start] for a, b in pairwise(tops)]
    steps = (
        NextSnapshot(snapshot, events.labels[part], None if events.kinds is None else events.kinds[part], int(count))
        for snapshot, part, count in zip(snapshots, parts, counts, strict=True)
    )
    return tuple(steps), len(loops)


def _ids(graph: DynamicGraph, events: Events, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return ids for the nodes of events, new ones after those of the graph, and the nodes that are new."""
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
