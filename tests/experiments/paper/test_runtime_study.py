"""Seconds per epoch by the length of the history: which fits are timed, and what is stored."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest
from small_study import make_graph

import dysat
from dysat.data.graph import DynamicGraph
from dysat.experiments.paper import runtime_study as module
from dysat.experiments.paper.records import Results
from dysat.experiments.paper.runtime_study import METHODS, WINDOWS, measure_windows, time_windows
from dysat.models.baselines.dynaernn import DynAERNN


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return make_graph(3)


def test_windows_are_those_of_the_paper() -> None:
    assert tuple(range(1, 11)) == WINDOWS
    assert METHODS == ("dysat", "dynaernn")


def test_medians_leave_out_the_first_epoch_of_each_fit(graph: DynamicGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[tuple[str, int], list[float]] = {}
    fits = {kind: kind.fit for kind in (dysat.DySAT, DynAERNN)}
    for kind in fits:

        def fit(self: Any, graph: DynamicGraph, kind: Any = kind, **more: Any) -> Any:
            fits[kind](self, graph, **more)
            assert len(self.epochs_) == 3 and self.patience is None
            seen.setdefault((self.method, self.history), []).extend(epoch.seconds for epoch in self.epochs_[1:])
            return self

        monkeypatch.setattr(kind, "fit", fit)
    progress: list[tuple[int, int, str]] = []
    found = time_windows(
        graph, epochs=2, rounds=2, device="cpu", batch_size=64, on_progress=lambda *words: progress.append(words)
    )
    assert [one["window"] for one in found] == [1, 2, 3]  # at most the length of the graph
    for one in found:
        for method in METHODS:
            seconds = seen[method, one["window"]]
            assert one[method]["seconds"] == seconds and len(seconds) == 2 * 2
            assert one[method]["epoch_seconds"] == median(seconds)
            assert one[method]["fastest_epoch_seconds"] == min(seconds)
            assert one[method]["batch_size"] == 64
    assert [words[:2] for words in progress] == [(n, 12) for n in range(1, 13)]
    assert progress[0][2] == "dysat:program, window 1" and progress[-1][2] == "DynAERNN, window 3"


def test_items_of_an_epoch(graph: DynamicGraph) -> None:
    (found,) = time_windows(graph, [2], epochs=1, device="cpu")
    active = {int(node) for snapshot in graph[1:] for end in snapshot.links()[:2] for node in end}
    assert found["dysat"]["items"] == len(active)
    assert found["dynaernn"]["items"] == graph.known[0] + graph.known[1]


def test_times_are_stored_by_graph_version_and_machine(
    graph: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress: list[tuple[int, int, str]] = []

    def measure(graph: DynamicGraph) -> Any:
        progress.clear()
        measure_windows(graph, "ml-10m", Results(tmp_path), "cpu", True, lambda *words: progress.append(words))
        return Results(tmp_path).facts("runtime", "ml-10m", "windows")

    first = measure(graph[:2])
    assert [one["window"] for one in first["timings"]] == [1, 2]
    assert (first["device"], first["epochs"], first["rounds"]) == ("cpu", 1, 1)
    assert all(len(one[method]["seconds"]) == 1 for one in first["timings"] for method in METHODS)
    assert measure(graph[:2]) == first and progress == []
    monkeypatch.setattr(module, "hardware", lambda: {"cpu": "another"})
    other = measure(graph[:2])
    assert other["key"] != first["key"] and other["hardware"] == {"cpu": "another"} and progress
    assert measure(graph)["key"] != other["key"] and progress
