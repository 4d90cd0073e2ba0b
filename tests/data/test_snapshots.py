"""Events cut into snapshots."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import torch

import dysat
from dysat.data.summary import Report


def test_windows_links_and_weights(mails: dysat.Events) -> None:
    graph = dysat.build_snapshots(mails, every="1w")
    assert graph.nodes.tolist() == ["ann", "bob", "cy", "dee", "eve"]
    assert graph.known == (3, 3, 3, 3, 5)
    assert [s.num_links for s in graph] == [2, 1, 1, 0, 1]  # the fourth week is empty and kept
    assert graph.report == Report(
        events=6, used=5, before=0, after=0, self_loops=1, self_loops_kept=False, covered=0.2857
    )


def test_kept_self_loops_are_stored_once(mails: dysat.Events) -> None:
    graph = dysat.build_snapshots(mails, every=timedelta(weeks=1), self_loops="keep")
    second = graph[1]
    assert (second.num_links, second.num_self_loops, second.num_active) == (2, 1, 3)
    assert [part.tolist() for part in second.links()] == [[0, 2], [1, 2], [1.0, 1.0]]
    assert graph.report and graph.report.self_loops_kept and graph.report.used == 6


def test_nodes_with_self_loops_only_are_dropped_with_them() -> None:
    events = dysat.read_events((["a", "b", "a"], ["a", "c", "b"], ["2024-01-01", "2024-01-02", "2024-01-09"]))
    assert dysat.build_snapshots(events, every="1w").nodes.tolist() == ["b", "c", "a"]
    assert dysat.build_snapshots(events, every="1w", self_loops="keep").nodes.tolist() == ["a", "b", "c"]


def test_weights_add_up_in_either_direction() -> None:
    events = dysat.read_events(
        (["a", "b", "a", "a"], ["b", "a", "c", "b"], ["2024-01-01"] * 3 + ["2024-02-01"], [1.5, 2, 4, 8])
    )
    u, v, weights = dysat.build_snapshots(events, every="1w")[0].links()
    assert (u.tolist(), v.tolist()) == ([0, 0], [1, 2])
    torch.testing.assert_close(weights, torch.tensor([3.5, 4.0], dtype=torch.float64))


def test_half_open_windows() -> None:
    events = dysat.read_events((["a", "c", "e"], ["b", "d", "f"], ["2024-01-01", "2024-01-02", "2024-01-03"]))
    graph = dysat.build_snapshots(events, boundaries=["2024-01-01", "2024-01-02", "2024-01-03"])
    assert [s.num_links for s in graph] == [1, 1] and graph.nodes.tolist() == ["a", "b", "c", "d"]
    assert graph.report and graph.report.after == 1


def test_start_and_stop_leave_events_out_and_count_them(mails: dysat.Events) -> None:
    graph = dysat.build_snapshots(mails, every="1w", start="2024-01-02", stop="2024-01-20")
    assert graph.report == Report(events=6, used=3, before=1, after=1, self_loops=1, self_loops_kept=False, covered=1.0)
    assert graph.nodes.tolist() == ["bob", "cy", "ann"]  # ann's first mail lies before the start
    assert graph.summary()[-1].stop == "2024-01-20"


def test_count_covers_first_to_last(mails: dysat.Events) -> None:
    graph = dysat.build_snapshots(mails, count=2)
    assert graph.boundaries[0] == mails.time[0] and graph.boundaries[-1] == mails.time[-1] + 1
    assert [s.num_links for s in graph] == [3, 1]


def test_calendar_months(mails: dysat.Events) -> None:
    events = dysat.read_events((["a", "b"], ["b", "c"], ["2024-01-31T23:59:59", "2024-03-01"]))
    graph = dysat.build_snapshots(events, every="1mo")
    assert [(row.start, row.links) for row in graph.summary()] == [
        ("2024-01-01", 1),
        ("2024-02-01", 0),
        ("2024-03-01", 1),
    ]


def test_steps() -> None:
    events = dysat.read_events((["a", "b", "a"], ["b", "c", "c"], [3, 5, 5]), time_unit="step")
    graph = dysat.build_snapshots(events, every=1)
    assert graph.clock == "step" and graph.boundaries == (3, 4, 5, 6) and [s.num_links for s in graph] == [1, 0, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"give one of every=, count= and boundaries=; the events span 30 days, so every='1d' might do"),
        ({"every": "1w", "count": 3}, "not every and count"),
        ({"every": "1y"}, r"all 6 events fall in one window.*try every='1d'"),
        ({"every": "1s"}, r"every='1s' would make about 2,592,000 snapshots, more than 10,000; .* try every='1d'"),
        ({"count": 10_001}, "not between 1 and 10,000"),
        ({"count": 1}, "one window"),
        ({"count": 2.5}, "not between 1 and 10,000"),
        ({"boundaries": 5}, "not a list of dates"),
        (
            {"every": "1w", "start": "2025-01-01"},
            "no event is left with start=2025-01-01; the events run from 2024-01-01 to",
        ),
        ({"every": "1w", "start": "2024-02-01", "stop": "2024-01-01"}, "is not before"),
        ({"boundaries": ["2024-01-01"]}, "at least two"),
        ({"boundaries": ["2024-01-02", "2024-01-01"]}, "2024-01-01 follows 2024-01-02"),
        ({"boundaries": ["2025-01-01", "2026-01-01"]}, r"no event lies in \[2025-01-01, 2026-01-01\)"),
        ({"boundaries": ["2024-01-01", "soon"]}, r"boundaries\[1\]='soon'"),
        ({"boundaries": ["2024-01-01", "2024-02-01"], "start": "2024-01-01"}, "leave start= and stop= out"),
        ({"every": "1w", "self_loops": "maybe"}, "neither 'keep' nor 'drop'"),
    ],
)
def test_bad_windows(mails: dysat.Events, options: dict[str, object], message: str) -> None:
    with pytest.raises(dysat.SnapshotsError, match=message):
        dysat.build_snapshots(mails, **options)  # type: ignore[arg-type]


def test_boundaries_of_a_graph_can_be_reused(mails: dysat.Events) -> None:
    graph = dysat.build_snapshots(mails, every="1w")
    assert dysat.build_snapshots(mails, boundaries=graph.boundaries).equals(graph)


def test_only_self_loops() -> None:
    events = dysat.read_events((["a", "b"], ["a", "b"], ["2024-01-01", "2024-02-01"]))
    with pytest.raises(dysat.SnapshotsError, match="all 2 events are self-loops; self_loops='keep' keeps them"):
        dysat.build_snapshots(events, every="1w")


def test_no_events_to_cut(mails: dysat.Events) -> None:
    with pytest.raises(dysat.SnapshotsError, match="no events to cut"):
        dysat.build_snapshots(mails.between(stop="2020-01-01"), every="1w")


def test_weights_beyond_float64_are_refused() -> None:
    events = dysat.read_events(
        (["a", "a", "a"], ["b", "b", "c"], ["2024-01-01", "2024-01-01", "2024-03-01"], [1e308, 1e308, 1])
    )
    with pytest.raises(dysat.GraphError, match="more than a float64 can hold"):
        dysat.build_snapshots(events, every="1w")


def test_a_last_window_with_few_events_is_noted(mails: dysat.Events) -> None:
    graph = dysat.build_snapshots(mails, every="29d")
    assert graph.notes == ("the events end 3% into the last window; stop= can leave it out",)
    assert graph.report is not None and graph.report.covered == 0.0345 and not graph.report.complete


@pytest.mark.parametrize(("last", "covered", "complete"), [("2024-01-17", 0.2857, False), ("2024-01-21", 0.8571, True)])
def test_how_much_of_the_last_window_is_covered(last: str, covered: float, complete: bool, tmp_path: Path) -> None:
    events = dysat.read_events((["a", "b", "c"], ["b", "c", "a"], ["2024-01-01", "2024-01-08", last]))
    graph = dysat.build_snapshots(events, every="1w")
    assert graph.report is not None and (graph.report.covered, graph.report.complete) == (covered, complete)
    assert bool(graph.notes) is not complete
    graph.save(tmp_path / "graph")
    assert dysat.DynamicGraph.load(tmp_path / "graph").report == graph.report


def test_numbered_steps_and_old_folders_do_not_say_how_much_is_covered() -> None:
    graph = dysat.build_snapshots(dysat.read_events((["a", "b"], ["b", "c"], [0, 5]), time_unit="step"), every=2)
    assert graph.report is not None and graph.report.covered is None and graph.report.complete
    old = {"events": 6, "used": 3, "before": 1, "after": 1, "self_loops": 1, "self_loops_kept": False}
    assert Report(**old).covered is None  # type: ignore[arg-type]
