"""A graph continued with new events equals the graph of all events."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import dysat
from dysat.data.continuation import Continuation, Grid, continue_snapshots
from dysat.data.csr import Snapshot
from dysat.data.windows import DAY, SECOND, Width, as_moment

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WIDTHS = ("10d", "30d", "1mo", "2mo", "1q", timedelta(hours=100), timedelta(days=40, microseconds=1))
Row = tuple[Any, Any, int, float | None]


def at(text: str) -> int:
    return as_moment(text, "utc", "at")


def grow(graph: dysat.DynamicGraph, more: Continuation) -> dysat.DynamicGraph:
    for step in more.steps:
        graph = graph.extended(step.snapshot, step.nodes, step.kinds)
    return graph


def mail(*rows: tuple[Any, Any, str], **how: Any) -> dysat.Events:
    src, dst, when = map(list, zip(*rows, strict=True))
    return dysat.read_events((src, dst, when), at_least=1, **how)


def steps(*rows: tuple[Any, Any, int], **how: Any) -> dysat.Events:
    src, dst, when = map(list, zip(*rows, strict=True))
    return dysat.read_events((src, dst, when), time_unit="step", at_least=1, **how)


@pytest.fixture
def weeks(mails: dysat.Events) -> dysat.DynamicGraph:
    """Five weeks from 2024-01-01 on; ann, bob, cy, dee and eve."""
    return dysat.build_snapshots(mails, every="1w")


# --- properties: a log cut at any edge and continued gives the whole ---


def labels_of(column: tuple[Any, ...]) -> np.ndarray:
    array = np.array(column, dtype=np.int64) if isinstance(column[0], int) else np.empty(len(column), dtype=object)
    array[:] = column
    return array


def read(rows: list[Row], **how: Any) -> dysat.Events:
    src, dst, when, weight = zip(*rows, strict=True)
    clock = how.get("time_unit")
    times = np.array(when) if clock else np.array(when, dtype="datetime64[us]")
    parts = (labels_of(src), labels_of(dst), times)
    return dysat.read_events(parts if weight[0] is None else (*parts, np.array(weight)), at_least=1, **how)


@st.composite
def logs(draw: Any, moments: st.SearchStrategy[int] | None = None) -> list[Row]:
    """Few labels and moments, so that ties, links and self-loops repeat; texts that look like numbers among texts."""
    texts = st.sampled_from(["a", "b", "B", "c", "7", "10", "9", "007", "-1", "é", "z z"])
    names = draw(st.lists(draw(st.sampled_from([texts, st.integers(-3, 12)])), min_size=2, max_size=7, unique=True))
    first = at("2019-01-31")
    when = st.one_of(st.integers(0, 400).map(lambda d: first + d * DAY), st.integers(first, first + 400 * DAY))
    stamps = draw(st.lists(when if moments is None else moments, min_size=2, max_size=12))
    weight = st.sampled_from([0.1, 0.7, 1e9, 3.0]) if draw(st.booleans()) else st.none()
    row = st.tuples(st.sampled_from(names), st.sampled_from(names), st.sampled_from(stamps), weight)
    return draw(st.lists(row, min_size=2, max_size=16))


def check_cut(rows: list[Row], whole: dysat.DynamicGraph, grid: Grid | None, edge: int, **how: Any) -> None:
    """Build a graph from the events before an edge and continue it with the others, at once and window by window."""
    self_loops = how.pop("self_loops")
    before, after = ([row for row in rows if (row[2] < edge) == early] for early in (True, False))
    assume(before and after)
    old, new = read(before, **how), read(after, **how)
    assume(old.labels.dtype == whole.nodes.dtype)  # "7" alone is a number, with "a" it is a text
    edges = [e for e in whole.boundaries if e <= edge]
    try:
        graph = dysat.build_snapshots(old, boundaries=edges, self_loops=self_loops)
    except dysat.SnapshotsError:  # nothing but self-loops
        assume(False)
    options = {"self_loops": self_loops} | ({"boundaries": whole.boundaries[len(edges) - 1 :]} if grid is None else {})
    more = continue_snapshots(graph, new, grid=grid, **options)
    inside = [row for row in after if row[2] < whole.boundaries[-1]]
    loops = sum(u == v for u, v, *_ in inside) if "kinds" not in how else 0
    assert (more.late, more.left, more.self_loops) == (0, len(after) - len(inside), loops)
    assert more.used == sum(step.events for step in more.steps) == len(inside) - loops * (self_loops == "drop")
    if not inside:
        assert more.steps == ()
        return
    grown = grow(graph, more)
    assert grown.equals(whole) and grown.nodes.tolist() == whole.nodes.tolist()
    assert grown.nodes.dtype == whole.nodes.dtype and (grown.report, grown.notes) == (None, ())
    if grid is not None:
        for stop in whole.boundaries[len(edges) :]:  # earlier events are late, later ones are left
            part = continue_snapshots(graph, new, grid=grid, until=stop, self_loops=self_loops)
            graph = grow(graph, part)
            assert part.late + part.used + part.left + (part.self_loops if self_loops == "drop" else 0) == len(new)
        assert graph.equals(whole)


PROFILE = settings(
    max_examples=min(50, settings.default.max_examples),
    derandomize=True,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


@PROFILE
@given(logs(), st.sampled_from(WIDTHS), st.sampled_from(["keep", "drop"]), st.booleans(), st.booleans(), st.data())
def test_continuing_a_log_gives_the_whole_log(
    rows: list[Row], every: Any, self_loops: Any, with_kinds: bool, late_start: bool, data: st.DataObject
) -> None:
    how: dict[str, Any] = {"kinds": ("user", "item")} if with_kinds else {}
    start = EPOCH + timedelta(microseconds=sorted(row[2] for row in rows)[len(rows) // 3]) if late_start else None
    try:
        whole = dysat.build_snapshots(read(rows, **how), every=every, start=start, self_loops=self_loops)
    except dysat.SnapshotsError:
        assume(False)
    edge = data.draw(st.sampled_from(whole.boundaries[1:-1]))
    grid = Grid.of(whole.boundaries, "utc", every=every)
    check_cut([row for row in rows if row[2] >= whole.boundaries[0]], whole, grid, edge, self_loops=self_loops, **how)


@PROFILE
@given(logs(st.integers(-20, 20)), st.integers(1, 6), st.sampled_from(["keep", "drop"]), st.data())
def test_continuing_steps_gives_all_steps(rows: list[Row], every: int, self_loops: Any, data: st.DataObject) -> None:
    try:
        whole = dysat.build_snapshots(read(rows, time_unit="step"), every=every, self_loops=self_loops)
    except dysat.SnapshotsError:
        assume(False)
    edge = data.draw(st.sampled_from(whole.boundaries[1:-1]))
    grid = Grid.of(whole.boundaries, "step", every=every)
    check_cut(rows, whole, grid, edge, self_loops=self_loops, time_unit="step")


@PROFILE
@given(logs(), st.lists(st.integers(0, 400), min_size=3, max_size=8, unique=True), st.data())
def test_continuing_with_boundaries_gives_the_whole(rows: list[Row], days: list[int], data: st.DataObject) -> None:
    edges = [at("2019-01-31") + day * DAY for day in sorted(days)]
    try:
        whole = dysat.build_snapshots(read(rows), boundaries=edges, self_loops="keep")
    except dysat.SnapshotsError:
        assume(False)
    edge = data.draw(st.sampled_from(edges[1:-1]))
    check_cut([row for row in rows if row[2] >= edges[0]], whole, None, edge, self_loops="keep")


@PROFILE
@given(st.integers(-(10**15), 10**15), st.sampled_from(WIDTHS), st.integers(0, 30), st.integers(-(10**13), 10**14))
def test_grid_edges_match_the_formula(start: int, every: Any, last: int, ahead: int) -> None:
    width = Width.parse(every, "utc")
    grid = Grid.of([start, width.edge(start, 1)], "utc", every=every)
    stop = width.edge(start, last)
    expected = [width.edge(start, k) for k in range(last, last + 400)]
    assert expected[-1] > stop + ahead
    until = [edge for edge in expected if edge <= max(stop, stop + ahead)]
    assert grid.edges_until(stop, stop + ahead, whole=True) == until
    covers = [*until, expected[len(until)]] if ahead >= 0 else until
    assert grid.edges_until(stop, stop + ahead, whole=False) == covers


# --- grids ---


@pytest.mark.parametrize(
    ("edges", "options", "moment", "expected", "text"),
    [
        (["2024-01-01", "2024-01-31"], {"every": "30d"}, "2024-03-01", ["2024-03-01", "2024-03-31"], "every 30d"),
        (["2024-01-31", "2024-02-29"], {"every": "1mo"}, "2024-04-29", ["2024-03-31", "2024-04-30"], "every 1mo"),
        (["2024-01-01", "2024-01-20"], {"every": "30d"}, "2024-01-30", ["2024-01-31"], "every 30d"),  # cut by stop=
        (["2024-01-01", "2024-02-10"], {"every": "1mo"}, "2024-02-10", ["2024-03-01"], "every 1mo"),
        (["2024-01-01", "2024-01-11"], {"every": timedelta(hours=240)}, "2024-01-20", ["2024-01-21"], "every 10d"),
        (
            ["2024-01-01", "2024-01-05", "2024-01-09"],
            {"count": 2},
            "2024-01-14",
            ["2024-01-13", "2024-01-17"],
            "2 equal windows of 4 days",
        ),
        (["2024-01-01", "2024-01-31", "2024-03-01"], {}, "2024-03-01", ["2024-03-31"], "every 30d, as so far"),
        (["2024-01-31", "2024-02-29", "2024-03-31"], {}, "2024-04-29", ["2024-04-30"], "every 1mo, as so far"),
        (["2024-01-01", "2024-04-01", "2024-07-01"], {}, "2024-09-30", ["2024-10-01"], "every 1q, as so far"),
        (["2020-01-01", "2021-01-01", "2022-01-01"], {}, "2022-06-01", ["2023-01-01"], "every 1y, as so far"),
        (["2023-07-01", "2023-08-01", "2023-09-01"], {}, "2023-09-01", ["2023-10-01"], "every 1mo, as so far"),
        (["2023-07-03", "2023-08-03", "2023-09-03"], {}, "2023-09-03", ["2023-10-04"], "every 31d, as so far"),
        (["2024-01-01", "2024-01-08", "2024-01-15"], {}, "2024-01-15", ["2024-01-22"], "every 1w, as so far"),
    ],
)
def test_next_windows_of_a_grid(
    edges: list[str], options: dict[str, Any], moment: str, expected: list[str], text: str
) -> None:
    boundaries = [at(edge) for edge in edges]
    grid = Grid.of(boundaries, "utc", **options)
    assert str(grid) == text
    assert grid.edges_until(boundaries[-1], at(moment), whole=False) == [boundaries[-1], *map(at, expected)]
    whole = [edge for edge in map(at, expected) if edge <= at(moment)]
    assert grid.edges_until(boundaries[-1], at(moment), whole=True) == [boundaries[-1], *whole]


def test_a_moment_before_the_end_needs_no_window() -> None:
    grid = Grid.of([0, 5, 10], "step")
    assert grid.edges_until(10, 9, whole=False) == grid.edges_until(10, -99, whole=True) == [10]
    assert grid.edges_until(10, 10, whole=False) == [10, 15] and grid.edges_until(10, 10, whole=True) == [10]
    assert str(grid) == "every 5 steps, as so far" and str(Grid.of([0, 1], "step", every=1)) == "every 1 step"


def test_grid_of_count_keeps_its_formula() -> None:
    start, span, count = at("2024-01-01"), 10 * DAY + 1, 3
    formula = [start + span * k // count for k in range(12)]
    assert len({b - a for a, b in pairwise(formula)}) == 2  # to the microsecond
    grid = Grid.of(formula[:4], "utc", count=3)
    assert str(grid) == "3 equal windows of 3.3 days"
    assert grid.edges_until(formula[3], formula[10], whole=True) == formula[3:11]
    again = Grid.of(formula[:9], "utc", count=3)  # count= made the first three
    assert again.edges_until(formula[8], formula[11], whole=True) == formula[8:]
    recognised = Grid.of(formula[:9], "utc")
    assert recognised.edges_until(formula[8], formula[11], whole=True) == formula[8:]
    steps = Grid.of([0, 3, 6, 10], "step", count=3)
    assert steps.edges_until(10, 20, whole=True) == [10, 13, 16, 20]


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        ((0, 3), {}, "one window does not say how long the next are; boundaries= must say where they end"),
        ((0, 3, 6, 10), {}, r"the windows are uneven \(3 steps, 4 steps\), so boundaries= must say where the next end"),
        ((0, 3, 6), {"count": 3}, "count=3, but the graph has 2 windows"),
        ((0, 3, 6), {"count": 0}, "count=0"),
        ((0, 3, 6), {"count": 2, "every": 3}, "give one of every= and count=, not both"),
        ((0, 3, 6), {"every": "1w"}, "numbered by step"),
    ],
)
def test_invalid_grids_are_refused(edges: tuple[int, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(dysat.SnapshotsError, match=message):
        Grid.of(edges, "step", **options)


def test_uneven_windows_are_named() -> None:
    edges = [at(day) for day in ("2024-01-01", "2024-01-08", "2024-01-15", "2024-01-18")]
    with pytest.raises(dysat.SnapshotsError, match=r"uneven \(7 days, 3 days\)"):
        Grid.of(edges, "utc")


def test_an_event_far_in_the_future_is_refused_at_once(weeks: dysat.DynamicGraph) -> None:
    far = mail(("ann", "bob", "2024-02-06"), ("ann", "cy", "2400-01-01"))
    grid = Grid.of(weeks.boundaries, "utc", every="1min")
    started = time.perf_counter()
    message = r"every 1min: the event of 2400-01-01 would make 197,\d{3},\d{3} more snapshots, more than 10,000; until="
    with pytest.raises(dysat.SnapshotsError, match=message):
        continue_snapshots(weeks, far, grid=grid)
    message = "until=2399-01-01 would make 197,180,640 more snapshots, more than 10,000$"
    with pytest.raises(dysat.SnapshotsError, match=message):
        continue_snapshots(weeks, far, grid=grid, until="2399-01-01")
    assert time.perf_counter() - started < 1
    years = Grid.of(weeks.boundaries, "utc", every="1y")
    for beyond in (at("9999-12-31"), 10**18):
        with pytest.raises(dysat.SnapshotsError, match="past the year 9999"):
            years.edges_until(weeks.boundaries[-1], beyond, whole=False)
    more = continue_snapshots(weeks, far, until="2024-02-12")
    assert (more.used, more.left, len(more.steps)) == (1, 1, 1)


# --- continuations ---


def test_gaps_are_empty_snapshots(weeks: dysat.DynamicGraph) -> None:
    more = continue_snapshots(weeks, mail(("zoe", "ann", "2024-02-07"), ("amy", "zoe", "2024-02-27T12:00")))
    assert [step.snapshot.num_links for step in more.steps] == [1, 0, 0, 1]
    assert [step.nodes.tolist() for step in more.steps] == [["zoe"], [], [], ["amy"]]
    assert [step.events for step in more.steps] == [1, 0, 0, 1] and more.used == 2
    assert more.steps[0].kinds is None and more.late_range is None
    assert more.notes == ("the events end 21% into the last window; until= can leave it out",)
    grown = grow(weeks, more)
    assert grown.known == (3, 3, 3, 3, 5, 6, 6, 6, 7) and grown.summary()[-1].stop == "2024-03-04"


def test_late_events_are_counted_and_not_merged(weeks: dysat.DynamicGraph) -> None:
    late = [("ann", "dee", "2023-12-01"), ("xi", "dee", "2024-02-04T23:59")]
    more = continue_snapshots(weeks, mail(*late, ("ann", "yu", "2024-02-05")))
    assert (more.late, more.used, more.left) == (2, 1, 0)
    assert more.late_range == (at("2023-12-01"), at("2024-02-04T23:59"))
    assert [step.nodes.tolist() for step in more.steps] == [["yu"]]  # xi has late events only
    nothing = continue_snapshots(weeks, mail(*late))
    assert (nothing.steps, nothing.late, nothing.used, nothing.left, nothing.notes) == ((), 2, 0, 0, ())


def test_until_makes_whole_windows_only(weeks: dysat.DynamicGraph) -> None:
    events = mail(("ann", "yu", "2024-02-05"), ("ann", "bob", "2024-02-12"), ("ann", "bob", "2024-02-19"))
    for until, made, left in (("2024-02-18", 1, 2), ("2024-02-19", 2, 1), ("2024-03-04", 4, 0), ("2020-01-01", 0, 3)):
        more = continue_snapshots(weeks, events, until=until)
        assert (len(more.steps), more.left, more.used) == (made, left, 3 - left) and more.notes == ()
    assert continue_snapshots(weeks, events, until="2024-02-11T23:59:59").left == 3
    assert continue_snapshots(weeks, events.between("2024-02-12"), until="2024-02-12").steps == ()


def test_boundaries_are_stops(weeks: dysat.DynamicGraph) -> None:
    events = mail(("ann", "yu", "2024-02-05"), ("ann", "bob", "2024-02-12"), ("ann", "bob", "2024-02-19"))
    stops = ["2024-02-06", datetime(2024, 2, 16, tzinfo=UTC)]
    for edges in (stops, ["2024-02-05", *stops]):
        more = continue_snapshots(weeks, events, boundaries=edges)
        windows = [(step.snapshot.start, step.snapshot.stop) for step in more.steps]
        assert windows == list(pairwise(map(at, ["2024-02-05", "2024-02-06", "2024-02-16"]))) and more.left == 1
    assert len(continue_snapshots(weeks, events, boundaries=stops, until="2024-02-15").steps) == 1
    assert continue_snapshots(weeks, events, boundaries=stops, until="2024-01-15").left == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"boundaries": ["2024-02-01"]}, "after the graph, which ends at 2024-02-05, but the first is 2024-02-01"),
        ({"boundaries": ["2024-02-07", "2024-02-06"]}, "must increase, but 2024-02-06 follows 2024-02-07"),
        ({"boundaries": ["2024-02-05"]}, "at least two"),
        ({"boundaries": []}, "at least two"),
        ({"boundaries": "2024-02-07"}, "not a list of dates"),
        ({"boundaries": ["soon"]}, r"boundaries\[0\]='soon'"),
        ({"until": "soon"}, "until='soon'"),
        ({"self_loops": "maybe"}, "neither 'keep' nor 'drop'"),
        ({"boundaries": ["2024-02-07"], "grid": Grid(0, Width(span=1), 1, "utc", "")}, "one of grid= and boundaries="),
    ],
)
def test_invalid_windows_are_refused(weeks: dysat.DynamicGraph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(dysat.SnapshotsError, match=message):
        continue_snapshots(weeks, mail(("ann", "bob", "2024-02-06")), **options)


def test_self_loops(weeks: dysat.DynamicGraph) -> None:
    rows = [("xi", "xi", "2024-02-05"), ("yu", "ann", "2024-02-06"), ("xi", "yu", "2024-02-13")]
    drop = continue_snapshots(weeks, mail(*rows))
    assert [step.nodes.tolist() for step in drop.steps] == [["yu"], ["xi"]]
    assert (drop.used, drop.self_loops, [step.events for step in drop.steps]) == (2, 1, [1, 1])
    keep = continue_snapshots(weeks, mail(*rows), self_loops="keep")
    assert [step.nodes.tolist() for step in keep.steps] == [["xi", "yu"], []]
    assert (keep.used, keep.self_loops, keep.steps[0].snapshot.num_self_loops) == (3, 1, 1)
    loops = continue_snapshots(weeks, mail(rows[0]))  # the window exists, though no event is left
    assert (len(loops.steps), loops.used, loops.self_loops) == (1, 0, 1) and len(loops.steps[0].nodes) == 0


def test_kinds_separate_equal_labels() -> None:
    kinds = ("user", "item")
    graph = dysat.build_snapshots(steps((1, 1, 0), (2, 1, 1), kinds=kinds), every=1)
    more = continue_snapshots(graph, steps((1, 2, 2), (3, 3, 2), (2, 2, 3), kinds=kinds))
    first, second = more.steps
    assert first.kinds is not None and second.kinds is not None
    assert list(zip(first.kinds.tolist(), first.nodes.tolist(), strict=True)) == [(0, 3), (1, 2), (1, 3)]
    assert len(second.nodes) == 0 and more.self_loops == 0
    grown = grow(graph, more)
    assert grown.kind_counts == {"user": 3, "item": 3}
    ends = (grown.ids([2], "user")[0], grown.ids([2], "item")[0])
    assert [part.tolist() for part in grown[-1].links()[:2]] == [[min(ends)], [max(ends)]]


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        (("user", "item"), None, r"the kinds of the events \(none\) are not those of the graph \(user and item\)"),
        (None, ("user", "item"), r"events \(user and item\) are not those of the graph \(none\)"),
        (("user", "item"), ("item", "user"), r"events \(item and user\) are not those of the graph \(user and item\)"),
    ],
)
def test_other_kinds_are_refused(ours: Any, theirs: Any, message: str) -> None:
    graph = dysat.build_snapshots(steps((1, 1, 0), (2, 1, 1), kinds=ours), every=1, self_loops="keep")
    with pytest.raises(dysat.SnapshotsError, match=message):
        continue_snapshots(graph, steps((1, 1, 2), kinds=theirs))


def test_another_clock_is_refused(weeks: dysat.DynamicGraph) -> None:
    with pytest.raises(dysat.SnapshotsError, match="are numbered by step, but the windows of the graph have dates"):
        continue_snapshots(weeks, steps(("ann", "bob", 2)))


def test_numbers_become_texts_in_a_graph_of_texts() -> None:
    graph = dysat.build_snapshots(steps(("a", "9", 0), ("a", "b", 1)), every=1)
    events = steps((10, 9, 2), (8, 9, 2))
    assert events.labels.dtype == np.int64
    (step,) = continue_snapshots(graph, events).steps
    assert step.nodes.tolist() == ["10", "8"]  # in the order of texts, as all would have been
    assert step.snapshot.num_nodes == 5


def test_texts_in_a_graph_of_numbers() -> None:
    graph = dysat.build_snapshots(steps((1, 2, 0), (2, 3, 1)), every=1)
    with pytest.raises(dysat.SnapshotsError, match="node '007' is not a whole number, but the nodes of the graph are"):
        continue_snapshots(graph, steps((1, "007", 2)))
    with pytest.raises(dysat.SnapshotsError, match="node '9223372036854775808' is not a"):
        continue_snapshots(graph, steps(("1", str(2**63), 2)))
    log = steps(("1", "12", 2), ("9", "1", 2), ("x", "1", 5))
    numbers = dysat.Events(log.src[:2], log.dst[:2], log.time[:2], None, log.labels[:3], "step")
    assert numbers.labels.tolist() == ["1", "12", "9"]  # texts that are numbers
    (step,) = continue_snapshots(graph, numbers).steps
    assert step.nodes.tolist() == [9, 12] and step.nodes.dtype == np.int64


def test_weights_add_up(weeks: dysat.DynamicGraph) -> None:
    source = (["ann", "bob", "ann"], ["bob", "ann", "zoe"], ["2024-02-05", "2024-02-06", "2024-02-06"], [0.5, 2.0, 4.0])
    (step,) = continue_snapshots(weeks, dysat.read_events(source)).steps
    u, v, weights = step.snapshot.links()
    assert (u.tolist(), v.tolist()) == ([0, 0], [1, 5])
    torch.testing.assert_close(weights, torch.tensor([2.5, 4.0], dtype=torch.float64))


def test_no_events(weeks: dysat.DynamicGraph, mails: dysat.Events) -> None:
    none = mails.between(stop="2020-01-01")
    more = continue_snapshots(weeks, none)
    assert (more.steps, more.used, more.late, more.left, more.late_range) == ((), 0, 0, 0, None)
    assert continue_snapshots(weeks, none, until="2025-01-01").steps == ()


def test_many_windows_take_seconds() -> None:
    rng = np.random.default_rng(0)
    number, nodes, days = 150_000, 40_000, 1_000
    src, dst = (np.array([f"n{i}" for i in range(nodes)], dtype=object)[rng.integers(0, nodes, number)] for _ in "ab")
    when = np.datetime64("2020-01-01", "us") + np.sort(rng.integers(0, days, number)) * np.timedelta64(1, "D")
    events = dysat.read_events((src, dst, when))
    whole = dysat.build_snapshots(events, every="1d")
    graph = dysat.build_snapshots(events.between(stop="2020-01-11"), every="1d")
    started = time.perf_counter()
    more = continue_snapshots(graph, events.between("2020-01-11"))
    assert time.perf_counter() - started < 10  # a fraction of a second on a free core
    assert grow(graph, Continuation(more.steps[:3], 0, 0, 0, 0, None, ())).equals(whole[:13])
    assert more.steps[-1].snapshot.num_nodes == whole.num_nodes and len(more.steps) == days - 10


def test_files_of_one_event_and_of_none(write: Callable[[str, str], Path]) -> None:
    path = write("one.csv", "src,dst,time\nann,bob,2024-02-06\n")
    with pytest.raises(dysat.EventsError, match="only one event; at least two are needed"):
        dysat.read_events(path)
    assert len(dysat.read_events(path, at_least=1)) == 1
    with pytest.raises(dysat.EventsError, match="has no events; at least one is needed"):
        dysat.read_events(write("none.csv", "src,dst,time\n"), at_least=1)
    with pytest.raises(dysat.EventsError, match="at_least=0 is neither 1 nor 2"):
        dysat.read_events(path, at_least=0)  # type: ignore[arg-type]


# --- one more snapshot ---


def link(u: int, v: int, known: int, start: int, stop: int) -> Snapshot:
    return Snapshot.from_links(np.array([u]), np.array([v]), None, num_nodes=known, start=start, stop=stop)


@pytest.fixture
def graph() -> dysat.DynamicGraph:
    """Nodes 0, 1 and 2 in two steps."""
    return dysat.build_snapshots(steps((0, 1, 0), (1, 2, 1)), every=1)


def test_extended_shares_earlier_snapshots(graph: dysat.DynamicGraph) -> None:
    before = graph.fingerprint
    more = graph.extended(link(0, 3, 4, 2, 3))
    assert more.nodes.tolist() == [0, 1, 2, 3] and more.known == (2, 3, 4) and more.boundaries == (0, 1, 2, 3)
    assert more[0] is graph[0] and (more.report, more.notes) == (None, ()) and graph.report is not None
    assert more[:2].equals(graph) and graph.num_nodes == 3
    assert graph.extended(link(0, 2, 3, 2, 9)).nodes is graph.nodes
    assert dysat.DynamicGraph(graph.nodes, graph.snapshots, "step").fingerprint == before
    named = graph.extended(link(0, 3, 4, 2, 3), nodes=[70]).extended(link(0, 4, 5, 3, 4), nodes=["-1"])
    assert named.nodes.tolist() == [0, 1, 2, 70, -1] and named.nodes.dtype == np.int64


def test_extended_labels(weeks: dysat.DynamicGraph) -> None:
    start, stop = weeks.boundaries[-1], weeks.boundaries[-1] + DAY
    more = weeks.extended(link(0, 6, 7, start, stop), nodes=["zoe", 7])
    assert more.nodes[5:].tolist() == ["zoe", "7"] and more.ids(["7"]).tolist() == [6]
    with pytest.raises(ValueError, match="read-only"):
        more.nodes[0] = "x"


@pytest.mark.parametrize(
    ("snapshot", "options", "message"),
    [
        (link(0, 1, 3, 3, 4), {}, "the new snapshot begins at 3, but the last one ends at 2"),
        (link(0, 1, 2, 2, 3), {}, "the new snapshot has 2 nodes, fewer than the 3 of the graph"),
        (link(0, 3, 4, 2, 3), {"nodes": [8, 9]}, "2 labels for 1 new nodes"),
        (link(0, 1, 3, 2, 3), {"nodes": [8]}, "1 labels for 0 new nodes"),
        (link(0, 3, 4, 2, 3), {"nodes": [2]}, "node 2 is not new: the graph already has it"),
        (link(0, 3, 5, 2, 3), {"nodes": [8, 8]}, "node 8 occurs twice among the new nodes"),
        (link(0, 3, 4, 2, 3), {"nodes": ["x"]}, "node 'x' is not a whole number, but the nodes of the graph are"),
        (link(0, 3, 4, 2, 3), {"nodes": [1.5]}, "node 1.5 is neither text nor a whole number"),
        (link(0, 3, 4, 2, 3), {"nodes": [None]}, "node None is neither"),
        (link(0, 3, 4, 2, 3), {"kinds": [0]}, "kinds of new nodes, but the nodes of the graph have none"),
        (link(0, 3, 4, 2, 3), {"features": [[1.0]]}, "features of a new snapshot, but the graph has none"),
    ],
)
def test_invalid_extensions_are_refused(
    graph: dysat.DynamicGraph, snapshot: Snapshot, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(dysat.GraphError, match=message):
        graph.extended(snapshot, **options)


def test_new_nodes_need_labels_unless_labels_count_up(weeks: dysat.DynamicGraph) -> None:
    start = weeks.boundaries[-1]
    with pytest.raises(dysat.GraphError, match="no labels for 2 new nodes; nodes= gives them"):
        weeks.extended(link(0, 6, 7, start, start + DAY))
    with pytest.raises(dysat.GraphError, match=r"begins at 2024-02-05 00:00:01, but the last one ends at 2024-02-05$"):
        weeks.extended(link(0, 1, 5, start + SECOND, start + DAY))


def test_extended_kinds() -> None:
    graph = dysat.build_snapshots(steps((1, 1, 0), (2, 1, 1), kinds=("user", "item")), every=1)
    more = graph.extended(link(0, 3, 4, 2, 3), nodes=[2], kinds=[1])  # another 2, of the other kind
    assert more.kinds is not None and more.kinds.tolist() == [0, 1, 0, 1] and more.kinds.dtype == np.uint8
    assert graph.extended(link(0, 1, 3, 2, 3)).kind_counts == graph.kind_counts
    for options, message in (
        ({}, r"no kinds for 1 new nodes; kinds= gives them \(user, item\)"),
        ({"kinds": [0]}, "node 2 is not new"),
        ({"kinds": [2]}, "a node of kind 2, but only 2 kinds have names"),
        ({"kinds": [0, 1]}, "2 kinds for 1 new nodes"),
        ({"kinds": [0.5]}, "whole numbers"),
    ):
        with pytest.raises(dysat.GraphError, match=message):
            graph.extended(link(0, 3, 4, 2, 3), nodes=[2], **options)  # type: ignore[arg-type]


def test_extended_features(graph: dysat.DynamicGraph) -> None:
    one = graph.with_features(np.arange(6.0).reshape(3, 2))
    more = one.extended(link(0, 3, 4, 2, 3), features=[[6.0, 7.0]])
    torch.testing.assert_close(more.features, torch.arange(8.0).reshape(4, 2))
    assert one.extended(link(0, 1, 3, 2, 3)).features is one.features
    each = graph.with_features([np.ones((known, 2)) for known in graph.known])
    longer = each.extended(link(0, 3, 4, 2, 3), features=torch.zeros(4, 2, dtype=torch.float64))
    assert isinstance(longer.features, tuple) and isinstance(each.features, tuple)
    assert longer.features[0] is each.features[0] and longer.features[2].dtype == torch.get_default_dtype()
    assert longer.features[2].shape == (4, 2)
    for start, options, message in (
        (one, {}, "no features for 1 nodes of the new snapshot; features= gives them"),
        (each, {}, "no features for 4 nodes of the new snapshot"),
        (one, {"features": np.ones((4, 2))}, r"shape \[4, 2\], expected \[1, 2\]"),
        (each, {"features": np.ones((4, 3))}, r"shape \[4, 3\], expected \[4, 2\]"),
        (one, {"features": [[1.0, np.nan]]}, "features of the new snapshot: node 3 has a value that is not a finite"),
        (one, {"features": [["x", "y"]]}, "must be numbers"),
    ):
        with pytest.raises(dysat.GraphError, match=message):
            start.extended(link(0, 3, 4, 2, 3), **options)  # type: ignore[arg-type]
