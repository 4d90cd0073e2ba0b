"""Updates of a run: what they report, what they refuse, and that they are atomic."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from run_folders import GUARD, be_quick, die_at, forks, in_process, quick
from safetensors.torch import load as load_tensors
from weekly import (
    contents,
    copy,
    day,
    fitted,
    new_model,
    read_log,
    state,
    take_in,
    updates,
    week,
    weeks,
    write_log,
)

import dysat
from dysat.data.windows import write_moment
from dysat.errors import DysatError, ModelError
from dysat.models.base.link_model import MODEL_FILE
from dysat.runs.feed import EventFile, check_file
from dysat.runs.newest import METRICS
from dysat.runs.run import Run, Watch
from dysat.runs.stream import STATE, UPDATES, Stream
from dysat.runs.update import LIKELIEST, StoppedUpdate, updating

__all__ = ["quick"]

KILLS = 50
PARTS = 24  # every n-th write is tried in one test
METHODS = ["incsat", "dysat:program", "dysat"]


@pytest.fixture(scope="module", params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run on three weeks for each method."""
    return {name: fitted(tmp_path_factory.mktemp("run"), weeks(0, 3), name).folder for name in METHODS}


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Path:
    return copy(runs["incsat"], tmp_path / "run")


# What an update reports


def test_update_of_a_run_without_embeddings(tmp_path: Path) -> None:
    """It learns from all snapshots, as a fit on both logs together does."""
    folder = fitted(tmp_path / "a", weeks(0, 3), "dysat", embeddings=False).folder
    (update,) = take_in(folder, write_log(tmp_path / "log.csv", week(3)))
    assert (update.epochs, update.loss, update.nodes) == (0, None, 16) and update.auc is not None
    assert not list(folder.rglob("*.parquet"))
    updated, whole = (
        Run.open(each).model("cpu")
        for each in (folder, fitted(tmp_path / "b", weeks(0, 4), "dysat", embeddings=False).folder)
    )
    assert list(updated.top_links(20)) == list(whole.top_links(20)) and len(updated.graph_) == 4
    with pytest.raises(ModelError, match=r"^epochs=3 has no effect with embeddings=False$"):
        take_in(folder, write_log(tmp_path / "log.csv", week(4)), epochs=3)


def test_figures_of_an_update(run: Path, tmp_path: Path) -> None:
    before = Run.open(run).model("cpu")
    rows = [*week(3), *week(3)[:4]]  # with a self-loop and repeated events
    (update,) = take_in(run, write_log(tmp_path / "log.csv", rows))
    assert (update.step, update.start, update.stop) == (3, day(3), day(4))
    assert (update.events, update.links, update.nodes, update.new_nodes) == (19, 15, 16, 2)
    assert update.epochs == 1 and update.loss is not None and update.seconds > 0

    likeliest = before.top_links(LIKELIEST)
    came = {frozenset(row[:2]) for row in rows}
    expected = [(i, u, v, round(score, 9)) for i, (u, v, score, _) in enumerate(likeliest, 1) if {u, v} in came]
    assert [tuple(link) for link in update.came_true] == expected and expected
    assert update.likeliest == len(likeliest) == 91  # all pairs
    came = {"came": len(update.came_true), "came_true": [link._asdict() for link in update.came_true[:10]]}
    assert {**asdict(update), **came} == update.facts()
    assert Stream.open(run).updates == [update.facts()]


def auc_by_hand(model: dysat.DySAT, links: set[frozenset[Any]]) -> float:
    """AUC over all links between known nodes and all other pairs (of two kinds)."""
    graph, kinds = model.graph_, model.graph_.kinds
    ids = range(graph.num_nodes)
    pairs = [(a, b) for b in ids for a in range(b) if kinds is None or kinds[a] != kinds[b]]
    here = [{graph.nodes[a], graph.nodes[b]} in links for a, b in pairs]
    scores, linked = model.pair_scores(torch.tensor(pairs)).double(), torch.tensor(here)
    assert (~linked).sum() <= linked.sum(), "otherwise not all of the pairs are drawn"
    ours, theirs = scores[linked], scores[~linked]
    return float(((ours[:, None] > theirs).double() + (ours[:, None] == theirs).double() / 2).mean())


def test_auc_measures_the_forecast_before_learning(run: Path, tmp_path: Path) -> None:
    pairs = [(f"p{i}", f"p{j}") for j in range(14) for i in range(j) if (i + j) % 3]
    strangers = [("new", "p1"), ("new", "other")]
    before = Run.open(run).model("cpu")
    (update,) = take_in(run, write_log(tmp_path / "log.csv", [(u, v, day(3)) for u, v in [*pairs, *strangers]]))
    expected = auc_by_hand(before, {frozenset(pair) for pair in pairs})
    assert update.auc == pytest.approx(expected, abs=1e-12) and update.forecast_links == len(pairs)
    assert auc_by_hand(before, {frozenset(pair) for pair in pairs[1:]}) != pytest.approx(expected, abs=1e-12)


def test_auc_of_bipartite_data_uses_pairs_of_the_same_kinds(tmp_path: Path) -> None:
    def read(file: Path) -> dysat.Events:
        return read_log(file, kinds=("user", "film"))

    rows = [(f"u{i}", f"f{(i + n) % 6}", day(n, i)) for n in range(3) for i in range(7)]
    graph = dysat.build_snapshots(read(write_log(tmp_path / "base.csv", rows)), every="1w")
    run = Run.start(tmp_path / "run", graph, new_model(), backtest=False)
    assert run.train()
    before, pairs = run.model("cpu"), [(f"u{i}", f"f{j}") for i in range(7) for j in range(6) if (i + j) % 3]
    log = write_log(tmp_path / "log.csv", [(u, v, day(3)) for u, v in pairs])
    (update,) = take_in(run.folder, log, read=read)
    assert update.auc == pytest.approx(auc_by_hand(before, {frozenset(pair) for pair in pairs}), abs=1e-12)


def test_without_links_between_known_nodes_there_is_no_auc(run: Path, tmp_path: Path) -> None:
    (update,) = take_in(run, write_log(tmp_path / "log.csv", [("x", "y", day(3)), ("x", "p1", day(3))]))
    assert (update.auc, update.forecast_links, update.came_true, update.new_nodes) == (None, 0, (), 2)


# Windows


def test_two_windows_in_one_file_are_two_updates(run: Path, tmp_path: Path) -> None:
    one = copy(run, tmp_path / "one")
    done = take_in(run, write_log(tmp_path / "both.csv", weeks(3, 5)))
    for number in (3, 4):
        take_in(one, write_log(tmp_path / f"{number}.csv", week(number)))
    assert [update.step for update in done] == [3, 4]
    assert state(run)[:4] == state(one)[:4]


def test_a_gap_becomes_empty_snapshots(run: Path, tmp_path: Path) -> None:
    done = take_in(run, write_log(tmp_path / "log.csv", week(6)))
    assert [(update.step, update.links) for update in done] == [(3, 0), (4, 0), (5, 0), (6, 21)]
    rows = [*weeks(0, 3), *week(6)]
    expected = dysat.build_snapshots(read_log(write_log(tmp_path / "all.csv", rows)), every="1w")
    assert Run.open(run).model("cpu").graph_.equals(expected) and expected[4].num_links == 0


def test_until_leaves_later_windows_for_the_next_update(run: Path, tmp_path: Path) -> None:
    whole = copy(run, tmp_path / "whole")
    log = write_log(tmp_path / "log.csv", weeks(3, 6))
    take_in(whole, log)
    assert [update.step for update in take_in(run, log, until=day(5))] == [3, 4]
    assert take_in(run, log, until=day(5, 6)) == []  # the window is not over by then
    (update,) = take_in(run, log)
    assert update.step == 5 and state(run)[:4] == state(whole)[:4]
    assert len(Stream.open(run).files) == 1


def test_uneven_windows_need_boundaries(tmp_path: Path) -> None:
    edges = [day(0), day(1), day(1, 3), day(3)]
    run = fitted(tmp_path, weeks(0, 3), how={"boundaries": edges}).folder
    log = write_log(tmp_path / "log.csv", week(3))
    with pytest.raises(DysatError, match=r"windows are uneven.*boundaries="):
        take_in(run, log)
    more = [day(3, 2), day(4, 1)]
    assert [update.stop for update in take_in(run, log, boundaries=more)] == more
    events = read_log(write_log(tmp_path / "all.csv", weeks(0, 4)))
    assert Run.open(run).model("cpu").graph_.equals(dysat.build_snapshots(events, boundaries=[*edges, *more]))


@pytest.mark.parametrize("how", [{"every": "1mo"}, {"count": 3}, {"every": "5d", "start": day(0, 2)}], ids=str)
def test_other_windows_continue(tmp_path: Path, how: dict[str, Any]) -> None:
    rows = sorted(weeks(0, 12), key=lambda row: row[2])
    run = fitted(tmp_path, [row for row in rows if row[2] < "2024-03-01"], how=how)
    graph = run.graph()
    edge = write_moment(graph.boundaries[-1], "utc")
    take_in(run.folder, write_log(tmp_path / "log.csv", [row for row in rows if row[2] >= edge]))
    found = run.model("cpu").graph_
    assert len(found) > len(graph) and found.boundaries[: len(graph) + 1] == graph.boundaries
    events = read_log(write_log(tmp_path / "all.csv", [r for r in rows if r[2] < "2024-03-01" or r[2] >= edge]))
    edges = [write_moment(edge, "utc") for edge in found.boundaries]
    assert found.equals(dysat.build_snapshots(events, boundaries=edges))
    if "count" not in how:
        assert found.equals(dysat.build_snapshots(events, **how))


# What is refused


def test_the_same_file_twice_is_refused(run: Path, tmp_path: Path) -> None:
    log, copied = (write_log(tmp_path / name, week(3)) for name in ("log.csv", "copy.csv"))
    take_in(run, log)
    before = contents(run)
    for file in (log, copied):
        with pytest.raises(ModelError) as problem:
            take_in(run, file)
        assert str(problem.value) == f"{file}: its events were already taken in (as log.csv), up to {day(4)}"
    assert contents(run) == before


def test_the_same_window_twice_is_refused(run: Path, tmp_path: Path) -> None:
    take_in(run, write_log(tmp_path / "log.csv", week(3)))
    before = contents(run)
    with pytest.raises(ModelError) as problem:
        take_in(run, write_log(tmp_path / "other.csv", week(3)[:5]))
    assert str(problem.value) == (
        f"{tmp_path}/other.csv: all 5 events lie before {day(4)}, where the last window of {run} ends; "
        "a window is taken in only once"
    )
    assert contents(run) == before


def test_late_events_are_counted_and_ignored(run: Path, tmp_path: Path) -> None:
    plain = copy(run, tmp_path / "plain")
    take_in(plain, write_log(tmp_path / "plain.csv", week(3)))
    late = [("p1", "late", day(2, 6)), ("p2", "p3", day(0))]
    take_in(run, write_log(tmp_path / "log.csv", [*late, *week(3)]))
    assert state(run)[:4] == state(plain)[:4]
    assert [(file["events"], file["late"]) for file in Stream.open(run).files] == [(18, 2)]


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    graph = dysat.build_snapshots(read_log(write_log(tmp_path / "base.csv", weeks(0, 3))), every="1w")
    run = Run.start(tmp_path / "run", graph, new_model())
    with pytest.raises(ModelError) as problem:
        take_in(run.folder, write_log(tmp_path / "log.csv", week(3)))
    assert str(problem.value) == f"{run.folder}: not fully trained yet; dysat fit --resume {run.folder} continues"


def test_a_run_that_needs_features_is_refused(tmp_path: Path, method: str) -> None:
    graph = dysat.build_snapshots(read_log(write_log(tmp_path / "base.csv", weeks(0, 3))), every="1w")
    graph, model = graph.with_features(torch.eye(graph.num_nodes)), new_model(method, inputs="features")
    run = Run.start(tmp_path / "run", graph, model, backtest=False)
    assert run.train()
    with pytest.raises(ModelError) as problem:
        take_in(run.folder, write_log(tmp_path / "log.csv", week(3)))
    reason = "inputs='features': the model needs node features, which a log of events does not have"
    assert str(problem.value) == f"{run.folder}: {reason}" and not Stream.exists(run.folder)


def test_unused_features_are_ignored(tmp_path: Path, method: str) -> None:
    """The default uses features of any graph, so it cannot go on without those of new nodes."""
    graph = dysat.build_snapshots(read_log(write_log(tmp_path / "base.csv", weeks(0, 3))), every="1w")
    run = Run.start(
        tmp_path / "run", graph.with_features(torch.eye(graph.num_nodes)), new_model(method), backtest=False
    )
    assert run.train()
    log = write_log(tmp_path / "log.csv", week(3))
    if method == "dysat":
        with pytest.raises(
            ModelError, match=r"run: the model uses node features, which a log of events does not have$"
        ):
            take_in(run.folder, log)
    else:
        assert take_in(run.folder, log) and len(run.model("cpu").graph_) == 4


@pytest.mark.parametrize(
    "method", ["incsat", pytest.param("dysat:program", marks=pytest.mark.slow), "dysat"], indirect=True
)
@pytest.mark.parametrize("per_window", [False, True], ids=["static", "per window"])
def test_new_nodes_have_missing_attributes(tmp_path: Path, method: str, per_window: bool) -> None:
    """The run goes on with the attributes it had; a second update starts from the stored first one."""
    graph = dysat.build_snapshots(read_log(write_log(tmp_path / "base.csv", weeks(0, 3))), every="1w")
    people = [f"p{i}" for i in range(12)]
    since = {"since": [day(0)] * 12, "age": [*range(20, 32)]} if not per_window else {"since": [day(1, 3)] * 12}
    columns = {"id": people, "team": ["red", "blue"] * 6, **since}
    graph = graph.with_attributes(dysat.read_nodes(columns, time="since"))
    assert isinstance(graph.features, tuple) == per_window
    run = Run.start(tmp_path / "run", graph, new_model(method), backtest=False)
    assert run.train()
    notes: list[str] = []
    for number in (3, 4):
        log = write_log(tmp_path / f"log{number}.csv", week(number))
        take_in(run.folder, log, watch=Watch(on_note=notes.append))
    after = run.model("cpu").graph_
    if method != "dysat":
        assert after.features is None and not notes
        return
    assert notes == ["new nodes without attributes: 2; fit again to add them"] * 2
    assert after.feature_names == graph.feature_names and len(after) == 5
    last = after.features[-1] if isinstance(after.features, tuple) else after.features
    before = graph.features[-1] if isinstance(graph.features, tuple) else graph.features
    assert torch.equal(last[: graph.num_nodes], before)
    assert last[graph.num_nodes :].tolist() == [[0.0, 0.0] if per_window else [0.0, 0.0, 0.0, 1.0]] * 4


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"every": "2w"}, "every='2w' does not match the windows of {} (every 1w"),
        ({"count": 9}, "count=9, but the graph has 3 windows"),
        ({"self_loops": "keep"}, "self_loops='keep', but {} was made with self_loops='drop'"),
    ],
    ids=str,
)
def test_wrong_windows_of_a_graph_are_refused(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    run = of_a_graph(tmp_path, weeks(0, 3), every="1w")
    with pytest.raises(DysatError) as problem:
        take_in(run.folder, write_log(tmp_path / "log.csv", week(3)), made=how)
    assert str(problem.value).startswith(message.format(run.folder))


@pytest.mark.parametrize("how", [{"every": "7d", "self_loops": "drop"}, {"count": 3}], ids=str)
def test_given_windows_of_a_graph_continue(tmp_path: Path, how: dict[str, Any]) -> None:
    run = of_a_graph(tmp_path, weeks(0, 3), every="1w")
    take_in(run.folder, write_log(tmp_path / "log.csv", week(3)), made=how)
    everything = read_log(write_log(tmp_path / "all.csv", weeks(0, 4)))
    assert run.model("cpu").graph_.equals(dysat.build_snapshots(everything, every="1w"))


def test_a_graph_of_one_window_needs_a_width(tmp_path: Path) -> None:
    run = of_a_graph(tmp_path, week(0), boundaries=[day(0), day(1)])
    log = write_log(tmp_path / "log.csv", week(1))
    with pytest.raises(DysatError, match=r"one window .*boundaries="):
        take_in(run.folder, log)
    take_in(run.folder, log, made={"every": "1w"})
    everything = read_log(write_log(tmp_path / "all.csv", weeks(0, 2)))
    assert run.model("cpu").graph_.equals(dysat.build_snapshots(everything, every="1w"))


def of_a_graph(folder: Path, rows: list[Any], **how: Any) -> Run:
    """A run that does not record the log of its graph."""
    graph = dysat.build_snapshots(read_log(write_log(folder / "base.csv", rows)), **how)
    run = Run.start(folder / "run", graph, new_model(), backtest=False)
    assert run.train()
    return run


@pytest.mark.parametrize("loops", ["keep", "drop"])
def test_self_loops_are_treated_as_before(tmp_path: Path, loops: Any) -> None:
    rows = [*weeks(0, 3), ("p1", "p1", day(1)), *week(3), ("p2", "p2", day(3))]
    events = read_log(write_log(tmp_path / "all.csv", rows))
    first = read_log(write_log(tmp_path / "base.csv", [row for row in rows if row[2] < day(3)]))
    graph = dysat.build_snapshots(first, every="1w", self_loops=loops)
    run = Run.start(tmp_path / "run", graph, new_model(), backtest=False)
    assert run.train()
    take_in(run.folder, write_log(tmp_path / "log.csv", [row for row in rows if row[2] >= day(3)]))
    assert run.model("cpu").graph_.equals(dysat.build_snapshots(events, every="1w", self_loops=loops))


def test_events_of_other_kinds_and_missing_files_are_refused(run: Path, tmp_path: Path) -> None:
    before = contents(run)
    log = write_log(tmp_path / "log.csv", week(3))
    with pytest.raises(DysatError, match=r"kinds.*\(a and b\).*\(none\)"):
        take_in(run, log, read=lambda file: read_log(file, kinds=("a", "b")))
    with pytest.raises(DysatError, match="no such file"):
        take_in(run, tmp_path / "nowhere.csv")
    assert contents(run) == before


def test_a_file_that_changes_while_it_is_read_is_refused(run: Path, tmp_path: Path) -> None:
    def read(file: Path) -> dysat.Events:
        events = read_log(file)
        write_log(file, week(3))
        return events

    with pytest.raises(ModelError, match=r"log\.csv: changed while it was read; try again"):
        take_in(run, write_log(tmp_path / "log.csv", week(3)[:3]), read=read)


# Epochs


def test_epochs_can_be_set_for_one_update(run: Path, tmp_path: Path) -> None:
    seen: list[Any] = []
    watch = Watch(on_epoch=seen.append)
    (first,) = take_in(run, write_log(tmp_path / "3.csv", week(3)), epochs=3, watch=watch)
    (second,) = take_in(run, write_log(tmp_path / "4.csv", week(4)), watch=watch)
    assert (first.epochs, second.epochs, len(seen)) == (3, 1, 4)  # the option of one update is not stored
    with pytest.raises(ModelError, match="epochs=-1 must not be negative"):
        take_in(run, write_log(tmp_path / "5.csv", week(5)), epochs=-1)


def test_epochs_default_to_the_best_of_the_backtest(tmp_path: Path) -> None:
    graph = dysat.build_snapshots(read_log(write_log(tmp_path / "base.csv", weeks(0, 3))), every="1w")
    run = Run.start(tmp_path / "run", graph, new_model(epochs=5))
    assert run.train()
    (update,) = take_in(run.folder, write_log(tmp_path / "log.csv", week(3)))
    assert update.epochs == run.metrics()["backtest"]["best_epoch"]


# Stopped and out of disk


def test_a_stop_leaves_out_the_window(run: Path, tmp_path: Path) -> None:
    one = copy(run, tmp_path / "one")
    take_in(one, write_log(tmp_path / "3.csv", week(3)), epochs=2)
    seen: list[Any] = []
    watch = Watch(on_epoch=seen.append, stop=lambda: len(seen) == 3)  # in the second window
    log = write_log(tmp_path / "log.csv", weeks(3, 5))
    with pytest.raises(StoppedUpdate) as stopped:
        take_in(run, log, epochs=2, watch=watch)
    assert str(stopped.value) == f"stopped; {run} has not taken in {day(4)} … {day(5)}"
    assert state(run)[:4] == state(one)[:4]
    assert [update.step for update in take_in(run, log, epochs=2)] == [4]


def test_a_stop_while_waiting_for_another(run: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    watch = Watch(on_note=notes.append, stop=lambda: len(notes) > 0)
    with updating(Run.open(run)), pytest.raises(StoppedUpdate, match="stopped; nothing was taken into"):
        take_in(run, write_log(tmp_path / "log.csv", week(3)), wait=True, watch=watch)
    assert notes == [f"waiting for another process to finish with {run}"]


# The same files are written by every method, so one is enough for every day.
@pytest.mark.parametrize(
    "method", ["incsat", *(pytest.param(name, marks=pytest.mark.slow) for name in METHODS[1:])], indirect=True
)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_run_unchanged(
    runs: dict[str, Path], method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    whole, log = copy(runs[method], tmp_path / "whole"), write_log(tmp_path / "log.csv", week(3))
    take_in(whole, log)
    run, before, after = copy(runs[method], tmp_path / "run"), state(runs[method]), state(whole)
    calls, failed, real = 0, 0, getattr(os, call)

    def full(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == failed:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args)

    monkeypatch.setattr(os, call, full)
    found = []
    while state(run) == before:
        calls, failed = 0, failed + 1
        try:
            take_in(run, log)
        except DysatError as problem:
            assert "cannot be written: No space left on device" in str(problem)
            assert state(run) == before and not list((run / "stream").glob(".*"))
            found.append(str(problem).split(":")[0].rpartition("/")[2])
    assert state(run) == after and {"state.safetensors", "embeddings-00003.parquet"} <= set(found)


def test_an_updater_continues_after_a_full_disk(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, log = copy(run, tmp_path / "whole"), write_log(tmp_path / "log.csv", weeks(3, 5))
    take_in(whole, log)

    def full(*args: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with updating(Run.open(run), device="cpu") as updater:
        file = EventFile.read(log, read_log)
        for call in ("fsync", "replace"):
            with monkeypatch.context() as patch, pytest.raises(DysatError, match="No space left"):
                patch.setattr(os, call, full)
                list(updater.take_in(updater.plan(file.events)))
            assert len(updater.graph) == 3 and updater.stream.updates == []
        facts, _ = check_file(updater, file)
        assert len(list(updater.take_in(updater.plan(file.events), [facts]))) == 2
    assert state(run) == state(whole)


# Two processes


def held_open(run: Path, log: Path, ready: Any, done: Any) -> None:
    """An update that waits in its first epoch."""
    be_quick()

    def wait(epoch: Any) -> None:
        ready.set()
        done.wait(GUARD)

    take_in(run, log, watch=Watch(on_epoch=wait))


def test_a_second_update_is_refused_or_waits(run: Path, tmp_path: Path) -> None:
    logs = [write_log(tmp_path / f"{number}.csv", week(number)) for number in (3, 4)]
    one, before = copy(run, tmp_path / "one"), state(run)
    for log in logs:
        take_in(one, log)
    ready, done = forks.Event(), forks.Event()
    first = forks.Process(target=held_open, args=(run, logs[0], ready, done))
    first.start()
    assert ready.wait(GUARD)
    with pytest.raises(ModelError, match="another process"):
        take_in(run, logs[1])
    with pytest.raises(ModelError, match="another process"):
        (run / "metrics.json").rename(tmp_path / "m.json")  # so that it counts as unfinished
        Run.open(run).train()
    (tmp_path / "m.json").rename(run / "metrics.json")
    assert state(run) == before  # it can be read meanwhile
    watch = Watch(on_note=lambda note: done.set())  # once it waits
    (update,) = take_in(run, logs[1], wait=True, watch=watch)
    first.join(GUARD)
    assert first.exitcode == 0 and update.step == 4 and state(run) == state(one)


# Killed


def updated(run: Path, log: Path, sign: Path, reading: bool) -> None:
    """An update to be killed; it creates the file `sign` when it starts to read, or else to learn."""
    be_quick()
    if reading:
        sign.touch()
    take_in(run, log, watch=Watch(on_stage=lambda *stage: sign.touch()))


class Whole:
    """The states of a run before and after each window of an undisturbed update."""

    def __init__(self, base: Path, folder: Path, windows: int) -> None:
        self.base, self.windows, self.states = base, windows, [state(base)]
        self.log = write_log(folder / "log.csv", weeks(3, 3 + windows))
        for number in range(4, 4 + windows):
            run = copy(base, folder / str(number))
            take_in(run, self.log, until=day(number))
            self.states.append(state(run))
        self.contents = contents(run)
        self.folder, self.measured = folder, dict[bool, float]()

    def seconds(self, reading: bool) -> float:
        """How long the update takes in a process of its own."""
        if reading not in self.measured:
            self.measured[reading] = self.kill(self.folder / f"{reading}", None, reading)
        return self.measured[reading]

    def kill(self, run: Path, share: float | None, reading: bool) -> float:
        """Update a copy in a process that is killed after a share of its usual time; return its seconds."""
        limit = GUARD if share is None else share * self.seconds(reading)
        sign = run.with_suffix(".begun")
        process = forks.Process(target=updated, args=(copy(self.base, run), self.log, sign, reading))
        process.start()
        begin = time.monotonic()
        while not sign.exists() and time.monotonic() < begin + GUARD:
            time.sleep(0.0005)
        begin = time.monotonic()
        process.join(limit)
        process.kill()
        process.join()
        assert process.exitcode in ((0,) if share is None else (0, -signal.SIGKILL))
        return time.monotonic() - begin

    def check(self, run: Path) -> int:
        """The window that a killed run has reached; the same update then leads to the same state."""
        reached = self.states.index(state(run))
        if reached < self.windows:
            take_in(run, self.log)
        else:
            with pytest.raises(ModelError, match="already taken in"):
                take_in(run, self.log)
        assert state(run) == self.states[-1]
        assert _without_seconds(contents(run)) == _without_seconds(self.contents)
        return reached


def _without_seconds(files: dict[str, bytes]) -> dict[str, Any]:
    """The files without those that hold seconds; the model as tensors, because its metadata has no fixed order."""
    found: dict[str, Any] = {
        name: b"" if name.endswith((STATE, UPDATES, METRICS)) else data for name, data in files.items()
    }
    tensors = load_tensors(files[MODEL_FILE])
    return found | {MODEL_FILE: {name: tensor.numpy().tobytes() for name, tensor in sorted(tensors.items())}}


@pytest.fixture(scope="module")
def whole(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Whole]:
    """The undisturbed update of a method, computed at its first use."""
    computed: dict[tuple[str, int], Whole] = {}

    def get(method: str, windows: int = 2) -> Whole:
        if (method, windows) not in computed:
            computed[method, windows] = Whole(runs[method], tmp_path_factory.mktemp("whole"), windows)
        return computed[method, windows]

    return get


@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_any_moment(whole: Callable[..., Whole], tmp_path: Path, number: int) -> None:
    undisturbed = whole(METHODS[number % len(METHODS)])
    share = (number + random.Random(number).random()) / KILLS
    undisturbed.kill(tmp_path / "run", share, reading=number % 5 == 0)
    undisturbed.check(tmp_path / "run")


def killed_at(run: Path, log: Path, number: int) -> None:
    be_quick()
    die_at(number, str(run))
    take_in(run, log)


@pytest.mark.slow  # test_newest.py kills an update at some writes in `make test` as well
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_a_write(whole: Callable[..., Whole], tmp_path: Path, name: str, part: int) -> None:
    undisturbed, number, found = whole(name, 1), part + 1, []
    while True:
        run = copy(undisturbed.base, tmp_path / str(number))
        code = in_process(killed_at, run, undisturbed.log, number)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        found.append(undisturbed.check(run))
        number += PARTS
    assert len(found) > 30 / PARTS and set(found) == {0, 1} and found == sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_killed_again_and_again(whole: Callable[..., Whole], tmp_path: Path, name: str) -> None:
    """Each time at a later write, with the leftovers of the kills before."""
    undisturbed = whole(name)
    run = copy(undisturbed.base, tmp_path / "run")
    for number in range(5, 50, 10):
        in_process(killed_at, run, undisturbed.log, number)
        assert state(run) in undisturbed.states
        if updates(run) == undisturbed.states[-1][3]:
            break
    undisturbed.check(run)
