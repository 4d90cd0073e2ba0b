"""The files of a run are those of its newest state, `Run.open` reads that state, and older files are refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from run_folders import be_quick, die_at, in_process, quick
from weekly import bits, contents, copy, fitted, take_in, week, weeks, write_log

import dysat
from dysat.errors import DysatError, GraphError, ModelError
from dysat.runs import newest
from dysat.runs.run import Run, Watch
from dysat.runs.stream import Stream
from dysat.runs.update import RARELY, updating

__all__ = ["quick"]

METHODS = {"incsat": dysat.IncSAT, "dysat:program": dysat.IncSAT, "dysat": dysat.DySAT}
SHOWN = ("graph", "model.safetensors", "embeddings.parquet", "metrics.json")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(tmp_path_factory.mktemp("base"), weeks(0, 3)).folder


@pytest.fixture
def run(base: Path, tmp_path: Path) -> Path:
    return copy(base, tmp_path / "run")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "3.csv", week(3))


def as_before_this_layout(run: Path, base: Path) -> Path:
    """An updated run as earlier versions left it: the files are those that `fit` wrote."""
    shutil.rmtree(run / "stream/base")
    for name in SHOWN:
        place = run / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        shutil.copytree(base / name, place) if (base / name).is_dir() else shutil.copy(base / name, place)
    return run


def shows_newest(folder: Path) -> None:
    """All files of an updated run show the state that `Run.open` reads."""
    run = Run.open(folder)
    model, graph = run.model("cpu"), run.graph()
    assert graph.equals(model.graph_) and dysat.DynamicGraph.load(folder / "graph").equals(graph)
    loaded = type(model).load(folder, device="cpu")
    assert bits(loaded) == bits(model) and loaded.top_links(9) == model.top_links(9)  # type: ignore[arg-type]
    assert loaded.get_params() == model.get_params()
    table = pl.read_parquet(folder / "embeddings.parquet")
    assert sorted(set(table["step"])) == list(model.steps())
    last = table.filter(pl.col("step") == len(graph) - 1)
    assert last["node"].to_list() == graph.nodes.tolist()
    torch.testing.assert_close(torch.tensor(last["embedding"].to_numpy()), model.embed(), rtol=0, atol=0)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics == run.metrics() and metrics["updates"] == Stream.open(folder).updates
    assert (metrics["nodes"], metrics["snapshots"]) == (graph.num_nodes, len(graph))


# The newest state


@pytest.mark.parametrize("method", METHODS)
def test_files_show_the_newest_state(tmp_path: Path, method: str) -> None:
    run = fitted(tmp_path, weeks(0, 3), method)
    assert run.metrics()["updates"] == [] and len(run.graph()) == 3
    for number in (3, 4):
        take_in(run.folder, write_log(tmp_path / f"{number}.csv", week(number)), epochs=2)
        shows_newest(run.folder)
        assert type(run.model("cpu")) is METHODS[method] and len(run.graph()) == number + 1
    assert run.metrics()["backtest"] is None and run.metrics()["epochs"] == 2


def test_forecasts_are_those_of_the_newest_model(run: Path, log: Path) -> None:
    opened = Run.open(run)
    before = opened.forecasts(9, device="cpu")
    assert before == opened.model("cpu").top_links(9) == opened.forecasts(9, device="cpu")
    take_in(run, log)
    after = opened.forecasts(9, device="cpu")
    assert after == opened.model("cpu").top_links(9) != before
    assert opened.forecasts(3, node="p1", known="exclude") == opened.model("cpu").top_links(
        3, node="p1", known="exclude"
    )
    assert repr(opened) == f"Run({str(run)!r}): incsat, 1 update"


def test_run_is_public() -> None:
    assert dysat.Run is Run and "Run" in dir(dysat) and "Run" in dysat.__all__


def test_a_backtest_is_kept(tmp_path: Path, base: Path) -> None:
    run = Run.start(tmp_path / "run", Run.open(base).graph(), Run.open(base).new_model())
    assert run.train()
    backtest = run.metrics()["backtest"]
    take_in(run.folder, write_log(tmp_path / "3.csv", week(3)))
    assert run.metrics()["backtest"] == backtest is not None


# What is stale


def test_files_of_an_earlier_version_are_refused(run: Path, base: Path, log: Path) -> None:
    take_in(run, log)
    expected = Run.open(run).model("cpu")
    as_before_this_layout(run, base)
    with pytest.raises(ModelError) as problem:
        dysat.IncSAT.load(run)
    file, advice = run / "model.safetensors", f"use dysat.Run.open({str(run)!r})"
    assert str(problem.value) == f"{file}: older than the last update; {advice}.model()"
    with pytest.raises(GraphError) as wrong:
        dysat.DynamicGraph.load(run / "graph")
    assert str(wrong.value) == f"{run / 'graph'}: older than the last update; {advice}.graph()"
    opened = Run.open(run)
    assert bits(opened.model("cpu")) == bits(expected) and len(opened.graph()) == 4  # type: ignore[arg-type]
    assert opened.finished and opened.metrics()["snapshots"] == 4
    with pytest.raises(ModelError, match="already taken in"):  # any update, even a refused one, writes the files
        take_in(run, log)
    shows_newest(run)
    take_in(run, write_log(log.with_name("4.csv"), week(4)))
    shows_newest(run)


def test_missing_files_are_refused_with_advice(run: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("dysat.runs.update.write_newest", lambda *args: None)
        take_in(run, log)
    assert not any((run / name).exists() for name in SHOWN)
    with pytest.raises(ModelError, match=r"a run folder without model\.safetensors; use dysat\.Run\.open\("):
        dysat.IncSAT.load(run)
    with pytest.raises(GraphError, match=r"graph: no such folder; use dysat\.Run\.open\(.*\)\.graph\(\)"):
        dysat.DynamicGraph.load(run / "graph")
    with pytest.raises(GraphError, match=r"run: a run folder; use dysat\.Run\.open\(.*\)\.graph\(\)"):
        dysat.DynamicGraph.load(run)
    assert len(Run.open(run).graph()) == 4 and Run.open(run).finished


def test_another_method_is_refused_with_advice(tmp_path: Path, log: Path) -> None:
    run = fitted(tmp_path, weeks(0, 3), "dysat:program").folder
    take_in(run, log)  # continues as an IncSAT
    with pytest.raises(ModelError, match=r"a model of 'incsat', not of 'dysat'; dysat\.Run\.open\("):
        dysat.DySAT.load(run)


def test_a_damaged_run_is_found(run: Path, tmp_path: Path) -> None:
    assert Run.find(tmp_path) is None and Run.find(run / "graph") is None and Run.find(tmp_path / "nowhere") is None
    assert isinstance(Run.find(run), Run)
    (run / "config.toml").unlink()
    with pytest.raises(ModelError, match=r"run: a damaged run folder \(it has no config\.toml\)"):
        Run.find(run)


# Failures


def without_links(source: Any, target: Any) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def test_without_links_files_are_copied(run: Path, base: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", without_links)
    take_in(run, log)
    shows_newest(run)
    kept = {name: data for name, data in contents(base).items() if name.startswith("graph/") or name == "metrics.json"}
    assert contents(run / "stream/base") == kept


@pytest.mark.parametrize("links", [True, False])
def test_a_failed_state_puts_the_files_back(run: Path, log: Path, links: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(run)

    def fail(*args: Any) -> None:
        raise ModelError("full")

    if not links:
        monkeypatch.setattr(os, "link", without_links)
    monkeypatch.setattr(Stream, "_write_state", fail)
    with pytest.raises(ModelError, match="full"):
        take_in(run, log)
    now = contents(run)
    assert {name: now[name] for name in before if not name.endswith(".bin")} == {
        name: data for name, data in before.items() if not name.endswith(".bin")
    }
    assert not (run / "stream/base").exists() and not list((run / "stream").glob(".*"))


def test_files_that_cannot_be_written_are_written_later(run: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **how: Any) -> None:
        raise GraphError("graph: cannot be written: No space left on device")

    notes: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(dysat.DynamicGraph, "save", full)
        assert len(take_in(run, log, watch=Watch(on_note=notes.append))) == 1
    problem = "graph: cannot be written: No space left on device"
    assert notes == [f"the updates are stored, but {problem}; the next update writes the files of the run"]
    assert not (run / "metrics.json").exists() and len(Run.open(run).graph()) == 4
    with updating(Run.open(run), device="cpu"):
        pass
    shows_newest(run)


def test_a_closed_output_does_not_keep_files_from_being_written(run: Path, log: Path) -> None:
    with pytest.raises(SystemExit), updating(Run.open(run), device="cpu") as updater:
        list(updater.take_in(updater.plan(dysat.read_events(log, at_least=1))))
        raise SystemExit(1)
    shows_newest(run)


def test_a_feed_writes_files_rarely(run: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    written: list[int] = []

    def write(folder: Path, model: Any, updates: Any) -> None:
        written.append(len(model.graph_))
        now[0] += 10  # seconds it takes

    monkeypatch.setattr("dysat.runs.update.write_newest", write)
    with updating(Run.open(run), device="cpu") as updater:
        updater.write_files(rarely=True)
        assert written == []  # nothing was taken in
        list(updater.take_in(updater.plan(dysat.read_events(log, at_least=1))))
        updater.write_files(rarely=True)
        updater.write_files(rarely=True)
        now[0] += 10 * RARELY - 1
        updater.write_files(rarely=True)
        assert written == [4]
        now[0] += 2
        updater.write_files(rarely=True)
        assert written == [4, 4]  # the replaced function has left no files
    assert written == [4, 4, 4]


def test_reading_again_when_files_move(run: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes in an update between two reads of a reader."""
    opened, real, tried = Run.open(run), Run.first_graph, []

    def moved_meanwhile(self: Run, **how: Any) -> dysat.DynamicGraph:
        tried.append(1)
        if len(tried) == 1:
            monkeypatch.setattr(Run, "first_graph", real)
            take_in(run, log)
            monkeypatch.setattr(Run, "first_graph", moved_meanwhile)
            raise ModelError("moved")
        return real(self, **how)

    monkeypatch.setattr(Run, "first_graph", moved_meanwhile)
    assert len(opened.graph()) == 4 and len(tried) == 2
    monkeypatch.setattr(Run, "first_graph", lambda self, **how: newest.read_metrics(run / "nowhere"))
    with pytest.raises(DysatError, match="cannot be read"):
        opened.graph()


# Killed


def killed_at(run: Path, log: Path, number: int) -> None:
    be_quick()
    die_at(number, str(run))
    take_in(run, log)


@pytest.mark.parametrize("stride", [45, pytest.param(5, marks=pytest.mark.slow)])
def test_killed_while_files_are_replaced(base: Path, tmp_path: Path, stride: int) -> None:
    """At some writes of a second update: what loads is the old state or the new one, never a mixture."""
    logs = [write_log(tmp_path / f"{number}.csv", week(number)) for number in (3, 4)]
    start = copy(base, tmp_path / "start")
    take_in(start, logs[0])
    whole = copy(start, tmp_path / "whole")
    take_in(whole, logs[1])
    states = {len(Run.open(f).graph()): bits(Run.open(f).model("cpu")) for f in (start, whole)}  # type: ignore[arg-type]
    reached, number = list[int](), 3
    while True:
        run = copy(start, tmp_path / str(number))
        code = in_process(killed_at, run, logs[1], number)
        opened = Run.open(run)
        size = len(opened.graph())
        assert bits(opened.model("cpu")) == states[size]  # type: ignore[arg-type]
        assert opened.metrics()["snapshots"] == size and opened.finished
        reached.append(size)
        readers: list[tuple[Any, Path]] = [(dysat.IncSAT.load, run), (dysat.DynamicGraph.load, run / "graph")]
        for read, place in readers:
            try:
                found = read(place)
                assert len(getattr(found, "graph_", found)) == size
            except DysatError as problem:
                assert "dysat.Run.open" in str(problem)
        if (run / "metrics.json").exists():
            assert json.loads((run / "metrics.json").read_text())["snapshots"] == size
        if (run / "embeddings.parquet").exists():
            assert pl.read_parquet(run / "embeddings.parquet")["step"].max() == size - 1
        with updating(opened, device="cpu"):
            pass
        shows_newest(run)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        number += stride
    assert set(reached) == {4, 5} and reached == sorted(reached) and reached.count(5) > 2
