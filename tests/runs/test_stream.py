"""The stream folder of a run: graph and model after updates, in files that only grow."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hostile import edit_record
from memory_maps import memory_map
from run_folders import quick
from weekly import (
    MODEL,
    Row,
    bits,
    contents,
    copy,
    day,
    fitted,
    new_model,
    read_log,
    state,
    take_in,
    week,
    weeks,
    write_log,
)

import dysat
from dysat.errors import ModelError
from dysat.runs.run import Run
from dysat.runs.stream import FORMAT_VERSION, STATE, Stream
from dysat.runs.update import updating
from dysat.system.tensors import read_tensors, write_tensors

__all__ = ["quick"]

FILES = {"base", "state.safetensors", "snapshots.bin", "summary.bin", "updates.json"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on three weeks, without updates."""
    return fitted(tmp_path_factory.mktemp("base"), weeks(0, 3)).folder


@pytest.fixture(scope="module")
def grown(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run after two updates."""
    folder = tmp_path_factory.mktemp("grown")
    copy(base, folder / "run")
    for number in (3, 4):
        take_in(folder / "run", write_log(folder / f"{number}.csv", week(number)))
    return folder / "run"


def whole_graph(weeks_: int = 5) -> dysat.DynamicGraph:
    rows = tuple(map(list, zip(*weeks(0, weeks_), strict=True)))
    return dysat.build_snapshots(dysat.read_events(rows), every="1w")  # type: ignore[arg-type]


# The same as one fit


def test_updated_graph_equals_that_of_one_log(grown: Path) -> None:
    graph = Run.open(grown).model("cpu").graph_
    assert graph.equals(whole_graph()) and graph.fingerprint == whole_graph().fingerprint
    assert not graph.equals(whole_graph(4))


def test_a_graph_with_a_snapshot_without_times_has_none(grown: Path, tmp_path: Path) -> None:
    run = copy(grown, tmp_path / "run")
    assert Run.open(run).model("cpu").graph_.timed
    edit_record(run / "stream", "snapshots", 0, lambda arrays: arrays.pop("latest"))
    assert Run.open(run).model("cpu").graph_.equals(whole_graph().without_times())


@pytest.mark.parametrize(
    "options", [{}, pytest.param({"history": 3}, marks=pytest.mark.slow), {"carry": False}, {"epochs": 0}], ids=str
)
def test_updated_model_equals_partial_fit(tmp_path: Path, options: dict[str, Any]) -> None:
    run, graph = fitted(tmp_path, weeks(0, 3), **options), whole_graph()
    model = dysat.IncSAT(**MODEL | options).fit(graph[:3])
    for step in (3, 4):
        model.partial_fit(graph[step], graph.nodes[graph.known[step - 1] : graph.known[step]])
        take_in(run.folder, write_log(tmp_path / f"{step}.csv", week(step)))
        found = run.model("cpu")
        assert bits(found) == bits(model) and found.top_links(9) == model.top_links(9)
    weights = [dict(sorted(m.weights().items())) for m in (found, model)]  # type: ignore[union-attr]
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_a_run_of_dysat_program_continues_as_incsat(tmp_path: Path) -> None:
    run, graph = fitted(tmp_path, weeks(0, 3), "dysat:program"), whole_graph()
    before = bits(run.model("cpu"))
    model = dysat.IncSAT.continuing(run.model("cpu"))
    summary = [np.array(rows) for rows in model.summary_]
    model.partial_fit(graph[3], graph.nodes[graph.known[2] : graph.known[3]])
    take_in(run.folder, write_log(tmp_path / "3.csv", week(3)))
    found = Run.open(run.folder).model("cpu")
    assert isinstance(found, dysat.IncSAT) and bits(found) == bits(model) and bits(found)[:3] != before
    for rows, expected in zip(found.summary_, summary, strict=False):
        np.testing.assert_array_equal(np.array(rows), expected)


def test_a_run_of_the_default_dysat_is_trained_again_on_all_snapshots(tmp_path: Path) -> None:
    """After each update the model equals, bit for bit, one trained on the whole log."""
    run = fitted(tmp_path, weeks(0, 3), "dysat")
    for step in (3, 4):
        before, graph = run.model("cpu"), whole_graph(step + 1)
        (update,) = take_in(run.folder, write_log(tmp_path / f"{step}.csv", week(step)))
        found, expected = Run.open(run.folder).model("cpu"), new_model("dysat").fit(graph)
        assert type(found) is dysat.DySAT and found.get_params() == expected.get_params()
        assert found.graph_.fingerprint == graph.fingerprint
        assert bits(found) == bits(expected) and found.top_links(9) == expected.top_links(9)
        pairs = torch.combinations(torch.arange(graph.known[-1]))
        assert torch.equal(found.pair_scores(pairs), expected.pair_scores(pairs))
        u, v, _ = graph[step].links()
        links = torch.stack([u, v], 1)[(v < graph.known[step - 1]) & (u != v)]
        came = {frozenset(graph.nodes[pair].tolist()) for pair in links.numpy()}
        likely = {frozenset((link.u, link.v)) for link in before.top_links(100)}
        assert len(update.came_true) == len(came & likely) and update.auc is not None
    files = {file.name for file in (run.folder / "stream").iterdir()}
    assert files == {*FILES - {"summary.bin"}, "embeddings-00003.parquet", "embeddings-00004.parquet"}


@pytest.mark.parametrize(("name", "value"), [("pair_score", True), ("activity", True), ("positions", "relative")])
def test_options_that_incsat_lacks_do_not_continue(name: str, value: Any) -> None:
    model = dysat.DySAT.from_preset("program", **MODEL | {name: value}).fit(whole_graph(3))
    with pytest.raises(ModelError, match=rf"^{name}={value!r}: .*IncSAT"):
        dysat.IncSAT.continuing(model)
    assert dysat.IncSAT.beyond(model) == [name] and dysat.IncSAT.beyond(dysat.DySAT.from_preset("program")) == []


def test_snapshots_are_verified_before_training_again(tmp_path: Path) -> None:
    run = fitted(tmp_path, weeks(0, 3), "dysat").folder
    take_in(run, write_log(tmp_path / "3.csv", week(3)))
    file = run / "stream/snapshots.bin"
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(bytes(data))
    before = contents(run)
    with pytest.raises(ModelError, match=r"snapshots\.bin: damaged"):
        take_in(run, write_log(tmp_path / "4.csv", week(4)))
    assert contents(run) == before


# The folder


def test_the_summary_is_memory_mapped_with_rows_of_known_nodes(grown: Path) -> None:
    model = Run.open(grown).model("cpu")
    assert isinstance(model, dysat.IncSAT)
    assert [memory_map(rows).filename for rows in model.summary_] == [grown / "stream/summary.bin"] * 5
    assert [rows.shape for rows in model.summary_ if rows is not None] == [(n, 8) for n in model.graph_.known]
    assert model.graph_.known == (10, 12, 14, 16, 18)


def test_the_summary_is_memory_mapped_while_it_grows(base: Path, tmp_path: Path) -> None:
    run = copy(base, tmp_path / "run")
    with updating(Run.open(run), device="cpu") as updater:
        for number in (3, 4):
            events = read_log(write_log(tmp_path / "log.csv", week(number)))
            assert len(list(updater.take_in(updater.plan(events)))) == 1
            assert len({id(memory_map(rows)) for rows in updater.model.summary_}) == 1


def test_files_only_grow(base: Path, tmp_path: Path) -> None:
    run = copy(base, tmp_path / "run")
    before = {"snapshots.bin": b"", "summary.bin": (run / "stream/summary.bin").read_bytes()}
    for number in (3, 4):
        take_in(run, write_log(tmp_path / f"{number}.csv", week(number)))
        now = {name: (run / "stream" / name).read_bytes() for name in before}
        assert all(now[name].startswith(before[name]) and len(now[name]) > len(before[name]) for name in before)
        before = now


def test_the_first_graph_and_metrics_are_kept(base: Path, grown: Path) -> None:
    for name in ("config.toml", "history.csv"):
        assert (grown / name).read_bytes() == (base / name).read_bytes()
    kept = {file: data for file, data in contents(base).items() if file.startswith("graph/") or file == "metrics.json"}
    assert contents(grown / "stream/base") == kept and "graph/graph.json" in kept


def test_content_of_the_folder(grown: Path) -> None:
    tables = {f"embeddings-0000{step}.parquet" for step in (3, 4)}
    assert {file.name for file in (grown / "stream").iterdir()} == FILES | tables
    model, table = Run.open(grown).model("cpu"), pl.read_parquet(grown / "stream/embeddings-00004.parquet")
    assert table["node"].to_list() == model.graph_.nodes.tolist() and set(table["step"]) == {4}
    torch.testing.assert_close(torch.tensor(table["embedding"].to_numpy()), model.embed(), rtol=0, atol=0)
    assert json.loads((grown / "stream/updates.json").read_text()) == Stream.open(grown).updates
    assert [facts["step"] for facts in Stream.open(grown).updates] == [3, 4]


def test_a_run_of_incsat_starts_with_a_summary(base: Path) -> None:
    stream = Stream.open(base)
    assert stream.updates == stream.files == [] and len(stream.summary.records) == 3
    assert {file.name for file in (base / "stream").iterdir()} == {"state.safetensors", "summary.bin"}


def test_steps_beyond_the_history_have_no_rows(tmp_path: Path) -> None:
    run = fitted(tmp_path, weeks(0, 4), history=2)
    take_in(run.folder, write_log(tmp_path / "4.csv", week(4)))
    model = run.model("cpu")
    assert isinstance(model, dysat.IncSAT) and [rows is not None for rows in model.summary_] == [0, 0, 0, 1, 1]
    assert model.steps() == range(3, 5)


# Labels and kinds


@pytest.mark.parametrize("people", [[10, 12, 14, 16], [10, 10, 10, 10]], ids=["new nodes", "no new nodes"])
def test_whole_numbers_as_labels(tmp_path: Path, people: list[int]) -> None:
    rows = [row for number in range(4) for row in week(number, people[number], name=lambda i: 100 - i)]
    run = fitted(tmp_path, [row for row in rows if row[2] < day(3)])
    later = take_in(run.folder, write_log(tmp_path / "3.csv", [row for row in rows if row[2] >= day(3)]))
    graph = run.model("cpu").graph_
    expected = dysat.build_snapshots(read_log(write_log(tmp_path / "all.csv", rows)), every="1w")
    assert graph.equals(expected) and graph.nodes.dtype == np.int64
    assert later[0].new_nodes == people[3] - people[2]
    assert json.loads((run.folder / "stream/updates.json").read_text())[0]["came_true"]


def bipartite(start: int, stop: int) -> list[Row]:
    """Users and films, some with equal names."""
    return [(f"x{i}", f"x{(i + n) % 5 + n}", day(n, i % 7)) for n in range(start, stop) for i in range(6 + n)]


def test_bipartite_graphs_continue(tmp_path: Path) -> None:
    def read(file: Path) -> dysat.Events:
        return read_log(file, kinds=("user", "film"))

    graph = dysat.build_snapshots(read(write_log(tmp_path / "base.csv", bipartite(0, 3))), every="1w")
    run = Run.start(tmp_path / "run", graph, new_model(), backtest=False)
    assert run.train()
    done = take_in(run.folder, write_log(tmp_path / "3.csv", bipartite(3, 5)), read=read)
    expected = dysat.build_snapshots(read(write_log(tmp_path / "all.csv", bipartite(0, 5))), every="1w")
    graph = run.model("cpu").graph_
    assert graph.equals(expected) and graph.kind_names == ("user", "film") and len(graph) == 5
    assert [update.new_nodes for update in done] == [2, 2] and done[0].came_true
    tables = pl.read_parquet(run.folder / "stream/embeddings-00004.parquet")
    assert set(tables["kind"]) == {"user", "film"}


# Damage


def cut(share: float) -> Callable[[Path], None]:
    return lambda file: os.truncate(file, int(share * file.stat().st_size))


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[8 if file.suffix == ".bin" else -1] ^= 1
    file.write_bytes(data)


DAMAGE = {"gone": Path.unlink, "half": cut(0.5), "one bit": flip}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, how) for name in ("snapshots.bin", "summary.bin") for how in DAMAGE),
        *((STATE, how) for how in DAMAGE if how != "gone"),  # without a state there is no stream
    ],
)
def test_damage_is_reported_in_one_line(grown: Path, tmp_path: Path, name: str, how: str) -> None:
    run = copy(grown, tmp_path / "run")
    DAMAGE[how](run / "stream" / name)
    with pytest.raises(ModelError) as problem:
        Run.open(run).model("cpu")
    assert str(problem.value).startswith(f"{run / 'stream' / name}: damaged") and "\n" not in str(problem.value)
    if (name, how) == ("snapshots.bin", "one bit"):
        return  # an update does not read old snapshots
    before = contents(run)
    with pytest.raises(ModelError) as problem:
        take_in(run, write_log(tmp_path / "5.csv", week(5)))
    assert str(problem.value).startswith(f"{run / 'stream' / name}: damaged")
    assert contents(run) == before


def test_leftovers_of_a_killed_update_are_removed(grown: Path, tmp_path: Path) -> None:
    run, other = copy(grown, tmp_path / "run"), copy(grown, tmp_path / "other")
    for name in ("snapshots.bin", "summary.bin"):
        with open(run / "stream" / name, "ab") as file:
            file.write(b"orphan" * 1000)
    for name in (".state.safetensors.x", ".updates.json.x", "embeddings-00005.parquet", "embeddings-00006.parquet"):
        (run / "stream" / name).write_text("half")
    (run / "stream/updates.json").write_text("[]")
    assert state(run) == state(other)  # readers do not see it
    with updating(Run.open(run), device="cpu"):
        pass
    assert contents(run) == contents(other)


@pytest.mark.parametrize("left", [(), ("summary.bin",)], ids=["nothing", "half a summary"])
def test_a_fit_killed_before_its_stream_was_complete(
    base: Path, grown: Path, tmp_path: Path, left: tuple[str, ...]
) -> None:
    run = copy(base, tmp_path / "run")
    for file in (run / "stream").iterdir():
        file.write_bytes(b"half") if file.name in left else file.unlink()
    assert state(run) == state(base)
    for number in (3, 4):
        take_in(run, write_log(tmp_path / f"{number}.csv", week(number)))
    assert state(run) == state(grown)


def test_a_newer_format_is_refused(grown: Path, tmp_path: Path) -> None:
    file = copy(grown, tmp_path / "run") / "stream" / STATE
    facts, tensors = read_tensors(file, "stream", FORMAT_VERSION, error=ModelError)
    facts.pop("version")
    write_tensors(file, "stream", FORMAT_VERSION + 1, facts, tensors, error=ModelError)
    with pytest.raises(ModelError, match="written by a newer dysat"):
        Run.open(tmp_path / "run").model("cpu")


def test_the_stream_of_another_run_is_refused(base: Path, tmp_path: Path) -> None:
    other = fitted(tmp_path, weeks(0, 2)).folder
    shutil.rmtree(other / "stream")
    shutil.copytree(base / "stream", other / "stream")
    with pytest.raises(ModelError, match="stream: belongs to another run"), updating(Run.open(other)):
        pass
