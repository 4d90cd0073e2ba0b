"""Cut events into snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.data.csr import Snapshot, fractions
from dysat.data.events import Events
from dysat.data.graph import TWO_KINDS, DynamicGraph
from dysat.data.reading.labels import Labels, break_ties
from dysat.data.reading.numbering import appearances, number_slots
from dysat.data.summary import COMPLETE, Report
from dysat.data.windows import (
    MAX_SNAPSHOTS,
    Clock,
    Every,
    Moment,
    Width,
    as_moment,
    check_edges,
    edges_count,
    edges_every,
    suggest_width,
    write_moment,
    write_span,
)
from dysat.errors import SnapshotsError

if TYPE_CHECKING:
    import polars as pl


def build_snapshots(
    events: Events,
    *,
    every: Every | None = None,
    boundaries: Sequence[Moment] | None = None,
    count: int | None = None,
    start: Moment | None = None,
    stop: Moment | None = None,
    self_loops: Literal["keep", "drop"] = "drop",
    directed: bool = False,
) -> DynamicGraph:
    """Cut events into half-open windows `[start, stop)` in UTC, each a weighted snapshot.

    The weight of a link is the number of its events, or the sum of their weights. Empty windows are kept.

    Parameters:
        events: what `read_events` returned. Give one of `every`, `count` and `boundaries` with it.
        every: width of a window: "12h", "10d", "1w"; calendar widths "1mo", "1q", "1y"; a whole number if events are
            numbered by step. The first window begins at `start`, or else at the first event (calendar widths: at the
            start of its month, quarter or year).
        boundaries: the window edges, T + 1 for T windows.
        count: number of windows of equal width, from the first event to the last.
        start, stop: events before `start`, or at or after `stop`, are left out (and counted in the report).
            With `every`, the last window ends at `stop`.
        self_loops: "keep" or "drop" events of a node with itself; the report counts them either way.
        directed: keep who sent a link, from src to dst. By default links have no direction.

    Example:
        >>> from dysat import read_events
        >>> events = read_events((["ann", "bob"], ["bob", "cy"], ["2024-01-01", "2024-01-09"]))
        >>> build_snapshots(events, every="1w").known
        (2, 3)
    """
    check_self_loops(self_loops)
    if not len(events):
        raise SnapshotsError("there are no events to cut into snapshots")
    if directed and events.kinds is not None:
        raise SnapshotsError(TWO_KINDS)
    edges = window_edges(events.time, events.clock, every, boundaries, count, start, stop)
    cuts = np.searchsorted(events.time, np.array(edges))
    first, last = int(cuts[0]), int(cuts[-1])
    check_covered(events.time, events.clock, edges, cuts, chosen=boundaries is not None)

    src, dst = events.src[first:last], events.dst[first:last]
    weight = None if events.weight is None else events.weight[first:last]
    cuts -= first
    loops = np.flatnonzero(src == dst)
    dropped = loops if self_loops == "drop" else loops[:0]
    if len(dropped) == len(src):
        raise SnapshotsError(only_loops(len(loops)))
    nodes = np.arange(events.num_nodes)
    if len(dropped) or len(src) < len(events) or events.is_part:
        src, dst, nodes = renumber(events, slice(first, last), dropped)
    time = events.time[first:last] if events.clock == "utc" else None
    snapshots = cut_snapshots(src, dst, weight, time, edges, cuts, self_loops=self_loops == "keep", directed=directed)
    return DynamicGraph(
        nodes=events.labels[nodes],
        snapshots=snapshots,
        clock=events.clock,
        kinds=None if events.kinds is None else events.kinds[nodes],
        kind_names=events.kind_names,
        report=Report(
            events=len(events),
            used=len(src) - len(dropped),
            before=first,
            after=len(events) - last,
            self_loops=len(loops),
            self_loops_kept=self_loops == "keep",
            covered=coverage(int(events.time[-1]), events.clock, edges),
        ),
        notes=(*events.notes, *coverage_note(int(events.time[-1]), events.clock, edges, "stop=")),
    )


def check_self_loops(choice: object) -> None:
    """Refuse anything but the two choices."""
    if choice not in ("keep", "drop"):
        raise SnapshotsError(f"self_loops={choice!r} is neither 'keep' nor 'drop'")


def only_loops(number: int) -> str:
    """The message if no other events are left."""
    return f"all {number:,} events are self-loops; self_loops='keep' keeps them"


def window_edges(
    time: NDArray[np.int64],
    clock: Clock,
    every: Every | None,
    boundaries: Sequence[Moment] | None,
    count: int | None,
    start: Moment | None,
    stop: Moment | None,
) -> list[int]:
    """Return the window edges that the options of `build_snapshots` give.

    `time` is sorted. Only the first and the last event matter, of all and of those between `start` and `stop`.
    """
    given = [
        name for name, value in (("every", every), ("boundaries", boundaries), ("count", count)) if value is not None
    ]
    span = int(time[-1] - time[0])
    if len(given) != 1:
        what = "give one of every=, count= and boundaries=" + f", not {' and '.join(given)}" * bool(given)
        raise SnapshotsError(f"{what}; {_span_text(span, clock)}, so every={suggest_width(span, clock)!r} might do")
    if boundaries is not None:
        if start is not None or stop is not None:
            raise SnapshotsError("boundaries= already say where windows start and stop; leave start= and stop= out")
        edges = read_boundaries(boundaries, clock)
        check_edges(edges, clock)
        return edges
    first = as_moment(start, clock, "start") if start is not None else None
    last = as_moment(stop, clock, "stop") if stop is not None else None
    if first is not None and last is not None and first >= last:
        raise SnapshotsError(f"start={start} is not before stop={stop}")
    inside = time[slice(*np.searchsorted(time, [_or(first, time[0]), _or(last, time[-1] + 1)]))]
    if not len(inside):
        asked = [f"{name}={value}" for name, value in (("start", start), ("stop", stop)) if value is not None]
        raise SnapshotsError(f"no event is left with {' and '.join(asked)}; {_range_text(time, clock)}")
    end = _or(last, inside[-1] + 1)
    if count is not None:
        return edges_count(count, _or(first, inside[0]), end)
    width = Width.parse(every, clock)  # type: ignore[arg-type]
    begin = first if first is not None else width.floor(int(inside[0]))
    number = (end - begin) / width.typical
    if number > MAX_SNAPSHOTS:
        raise SnapshotsError(
            f"every={every!r} would make about {number:,.0f} snapshots, more than {MAX_SNAPSHOTS:,}; "
            f"{_span_text(span, clock)}, try every={suggest_width(end - begin, clock)!r}"
        )
    edges = edges_every(width, begin, end, cut=last is not None)
    check_edges(edges, clock, f"every={every!r}")
    return edges


def read_boundaries(boundaries: Sequence[Moment], clock: Clock) -> list[int]:
    """Parse the moments given by a user."""
    if isinstance(boundaries, str) or not isinstance(boundaries, Iterable):
        raise SnapshotsError(f"boundaries={boundaries!r} is not a list of dates")
    return [as_moment(edge, clock, f"boundaries[{i}]") for i, edge in enumerate(boundaries)]


def _or(value: int | None, default: int | np.int64) -> int:
    return int(default) if value is None else value


def check_covered(
    time: NDArray[np.int64], clock: Clock, edges: Sequence[int], cuts: NDArray[np.int64], *, chosen: bool
) -> None:
    """Refuse windows without events, and a single window with all events unless its edges were given."""
    if cuts[-1] == cuts[0]:
        window = f"[{write_moment(edges[0], clock)}, {write_moment(edges[-1], clock)})"
        raise SnapshotsError(f"no event lies in {window}; {_range_text(time, clock)}")
    if not chosen and np.count_nonzero(np.diff(cuts)) < 2:
        span = int(time[-1] - time[0])
        hint = f"; {_span_text(span, clock)}, try every={suggest_width(span, clock)!r}" if span else ""
        raise SnapshotsError(f"all {cuts[-1] - cuts[0]:,} events fall in one window, which leaves no history{hint}")


def renumber(
    events: Events, here: slice, dropped: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
    """Number the nodes of the events `here` by first appearance, kind and label, as if there were no other events.

    Returns both ends of these events (−1 if dropped), and for each new node its index in `events`.
    """
    ends = [events.src[here].copy(), events.dst[here].copy()]
    for end in ends:
        end[dropped] = events.num_nodes  # a placeholder node
    event, _, node = appearances(ends, events.num_nodes + 1)
    event, node = event[node < events.num_nodes], node[node < events.num_nodes]
    kinds = np.zeros(len(node), dtype=np.uint8) if events.kinds is None else events.kinds[node]
    nodes = node[break_ties(events.time[here][event], kinds, lambda tied: _series(events.labels[node[tied]]))]
    src, dst = number_slots(ends, events.num_nodes + 1, nodes)
    return src, dst, nodes.astype(np.int64)


def cut_snapshots(
    src: NDArray[np.int32],
    dst: NDArray[np.int32],
    weight: NDArray[np.float64] | None,
    time: NDArray[np.int64] | None,
    edges: Sequence[int],
    cuts: NDArray[np.int64],
    *,
    known: int = 0,
    self_loops: bool,
    directed: bool = False,
) -> tuple[Snapshot, ...]:
    """Build a snapshot from the events of each window, `cuts[t]` to `cuts[t + 1]`.

    Nodes are numbered by first appearance, after the `known` ones of earlier windows. Without the times of events, the
    snapshots have none.
    """
    tops = np.maximum.accumulate([known, *(max(_top(src[a:b]), _top(dst[a:b])) for a, b in pairwise(cuts))])

    def snapshot(t: int) -> Snapshot:
        here = slice(int(cuts[t]), int(cuts[t + 1]))
        part = None if weight is None else weight[here]
        window = {"start": edges[t], "stop": edges[t + 1], "num_nodes": int(tops[t + 1])}
        latest = None if time is None else fractions(time[here], edges[t], edges[t + 1])
        return Snapshot.from_links(
            src[here], dst[here], part, **window, self_loops=self_loops, directed=directed, latest=latest
        )

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:  # sorting releases the GIL
        return tuple(pool.map(snapshot, range(len(edges) - 1)))


def _series(labels: Labels) -> pl.Series:
    import polars as pl

    return pl.Series(labels.tolist() if labels.dtype == object else labels)


def _top(ids: NDArray[np.int32]) -> int:
    return int(ids.max()) + 1 if len(ids) else 0


def coverage(last: int, clock: Clock, edges: Sequence[int]) -> float | None:
    """Return the fraction of the last window up to the last event; None if events are numbered by step."""
    if clock == "step":
        return None
    covered = (last - edges[-2]) / (edges[-1] - edges[-2])
    return round(min(1.0, max(0.0, covered)), 4)


def coverage_note(last: int, clock: Clock, edges: Sequence[int], option: str) -> list[str]:
    """Note that the events end early in the last window, whose snapshot is therefore incomplete."""
    covered = coverage(last, clock, edges)
    if covered is None or covered >= COMPLETE:
        return []
    return [f"the events end {covered:.0%} into the last window; {option} can leave it out"]


def _span_text(span: int, clock: Clock) -> str:
    return f"the events span {write_span(span, clock)}"


def _range_text(time: NDArray[np.int64], clock: Clock) -> str:
    first, last = (write_moment(int(time[i]), clock) for i in (0, -1))
    return f"the events run from {first} to {last}"
