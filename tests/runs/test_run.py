"""A run folder: made whole or not at all, opened or refused in one line, trained to the end from wherever it stands."""

from __future__ import annotations

import csv
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

import dysat
from dysat.errors import DysatError, ModelError
from dysat.models import OPPONENTS
from dysat.runs.checkpoints import CHECKPOINT_VERSION
from dysat.runs.run import Run, Watch
from dysat.system.locks import LOCK_FILE
from dysat.system.tensors import read_tensors
from dysat.training import Epoch

SMALL: dict[str, Any] = {
    "structural_heads": (2,),
    "structural_features": (8,),
    "temporal_heads": (2,),
    "temporal_features": (8,),
    "walks_per_node": 2,
    "learning_rate": 0.05,  # so that the best epoch is not the last
    "epochs": 4,
    "device": "cpu",
}
RESULTS = {"config.toml", "graph", "model.safetensors", "embeddings.parquet", "metrics.json", "history.csv"}
FIRST = [(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 4, 0), (0, 4, 0)]  # a ring of five


def small_graph() -> dysat.DynamicGraph:
    """Five snapshots over 40 nodes, of which some are known later than others."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(0, 5, 500))
    u, v = (rng.integers(0, 20 + 5 * times) for _ in range(2))
    return dysat.build_snapshots(dysat.read_events((u, v, times), time_unit="step"), every=1)


def graph_of(links: list[tuple[int, int, int]]) -> dysat.DynamicGraph:
    columns = tuple(map(list, zip(*links, strict=True)))
    edges = [0, *range(1, 2 + max(columns[2]))]
    return dysat.build_snapshots(dysat.read_events(columns, time_unit="step"), boundaries=edges)  # type: ignore[arg-type]


def small_model(**options: Any) -> dysat.DySAT:
    return dysat.DySAT.from_preset("program", **SMALL | options)


def start(folder: Path, graph: dysat.DynamicGraph | None = None, *, backtest: bool = True, **options: Any) -> Run:
    return Run.start(folder / "run", graph or small_graph(), small_model(**options), backtest=backtest, source="x")


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()} - {LOCK_FILE}


def history(folder: Path) -> list[dict[str, str]]:
    """The rows of history.csv without their seconds."""
    with open(folder / "history.csv", newline="") as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def held(checkpoint: Path) -> tuple[str, int]:
    """The stage of a checkpoint and how many epochs of it are done."""
    facts, _ = read_tensors(checkpoint, "checkpoint", CHECKPOINT_VERSION, error=ModelError)
    return facts["stage"], len(facts["progress"]["history"])


def assert_same(folder: Path, other: Path) -> None:
    """Two finished runs with the same results, but for seconds (and for what a killed write left)."""
    there = {name for name in names(folder) if not name.startswith(".")}
    assert there - {"stream"} == RESULTS and Run.open(folder).finished
    ours, theirs = (load_file(f / "model.safetensors") for f in (folder, other))
    assert ours.keys() == theirs.keys()
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == []
    assert pl.read_parquet(folder / "embeddings.parquet").equals(pl.read_parquet(other / "embeddings.parquet"))
    facts, expected = (Run.open(f).metrics() for f in (folder, other))
    assert {**facts, "seconds": 0} == {**expected, "seconds": 0}
    assert history(folder) == history(other)


def stop_after(run: Run, epochs: int) -> None:
    """Train and stop after so many epochs of both stages together, with a checkpoint after each."""
    seen: list[Epoch] = []
    assert not run.train(Watch(on_epoch=seen.append, stop=lambda: len(seen) == epochs), keep_every=0)
    assert len(seen) == epochs


# Start and open


def test_start_writes_what_was_asked_for(tmp_path: Path) -> None:
    source = 'a "quoted"\n\\ [x] = é\x7f.csv'
    run = Run.start(tmp_path / "new" / "run", small_graph(), small_model(patience=3), backtest=False, source=source)
    assert names(run.folder) == {"config.toml", "graph"} and names(tmp_path / "new") == {"run"}
    config = tomllib.loads((run.folder / "config.toml").read_text())
    options = {name: list(v) if isinstance(v, tuple) else v for name, v in small_model(patience=3).values().items()}
    assert config["options"] == {name: "none" if v is None else v for name, v in options.items()}
    fingerprint = small_graph().fingerprint
    assert (config["dysat"], config["source"], config["method"]) == (dysat.__version__, source, "dysat")
    assert (config["backtest"], config["graph"]) == (False, fingerprint)
    assert run.graph().fingerprint == fingerprint and not run.finished
    assert dysat.DySAT.with_options(run.config["options"]).values() == small_model(patience=3).values()


@pytest.mark.parametrize("what", ["file", "folder", "link", "run"])
def test_what_exists_is_refused_and_untouched(tmp_path: Path, what: str) -> None:
    path = tmp_path / "run"
    if what == "file":
        path.write_text("mine")
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to(tmp_path / "nowhere")
    else:
        start(tmp_path)
    before = [(file, file.lstat()) for file in sorted(tmp_path.rglob("*"))]
    with pytest.raises(ModelError, match="run: exists already") as problem:
        start(tmp_path)
    assert ("--resume" in str(problem.value)) == (what == "run")
    assert [(file, file.lstat()) for file in sorted(tmp_path.rglob("*"))] == before


@pytest.mark.parametrize("name", ["file/run", "a" * 300, "/proc/no/run"], ids=["in a file", "too long", "in /proc"])
def test_where_no_folder_can_be(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot be written"):
        Run.start(tmp_path / name, small_graph(), small_model())
    assert names(tmp_path) == {"file"}


def test_a_full_disk_leaves_no_half_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(DysatError, match="No space left on device"):
        start(tmp_path)
    assert names(tmp_path) == set()


def test_the_folder_is_as_private_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert start(tmp_path).folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda text: None, "not a run folder (it has no config.toml)", id="none"),
        pytest.param(lambda text: text[:-9], "config.toml: damaged: ", id="cut"),
        pytest.param(lambda text: text + "\n\xff", "config.toml: damaged: 'utf-8' codec", id="bytes"),
        pytest.param(lambda text: "x = " + "[" * 100_000, "config.toml: damaged: ", id="deep"),
        pytest.param(lambda text: "", "damaged: no method", id="empty"),
        pytest.param(lambda text: text.replace("graph =", "g ="), "damaged: no graph", id="graph"),
        pytest.param(lambda text: text.replace("backtest = true", ""), "damaged: no backtest", id="backtest"),
        pytest.param(lambda text: text.replace("= true", "= 1", 1), "damaged: no backtest", id="backtest is 1"),
        pytest.param(lambda text: text.replace("[options]", "[o]"), "damaged: no options", id="options"),
        pytest.param(lambda text: text.replace('"dysat"', '"x"'), "no method 'x'; there are dysat", id="method"),
    ],
)
def test_a_config_that_says_nothing(tmp_path: Path, change: Callable[[str], str | None], message: str) -> None:
    file = start(tmp_path).folder / "config.toml"
    text = change(file.read_text())
    file.unlink()
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError) as problem:
        Run.open(tmp_path / "run")
    assert message in str(problem.value) and "\n" not in str(problem.value)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere: no such folder"):
        Run.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param("epochs = 4", "epochs = 'x'", "epochs='x' is not a whole number", id="value"),
        pytest.param("epochs = 4", "epoch = 4", "no option 'epoch'; did you mean 'epochs'?", id="name"),
        pytest.param("seed = 0", "seed = 'x'", "seed='x' is not a whole number", id="seed"),
    ],
)
def test_options_that_were_changed_by_hand(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = start(tmp_path).folder / "config.toml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ModelError) as problem:
        Run.open(tmp_path / "run").train()
    assert message in str(problem.value)


# Train


def test_what_a_run_leaves(tmp_path: Path) -> None:
    run, graph, told = start(tmp_path), small_graph(), []
    with pytest.raises(ModelError, match=f"not trained yet; dysat fit --resume {run.folder} goes on"):
        run.model()
    with pytest.raises(ModelError, match="cannot be read"):
        run.metrics()
    assert run.train(Watch(on_stage=lambda *stage: told.append(stage), on_epoch=told.append), keep_every=0)
    assert names(run.folder) == RESULTS and run.finished

    metrics, backtest = run.metrics(), run.metrics()["backtest"]
    u, v, _ = graph[-1].links()
    assert backtest["links"] == int(((v < graph.known[-2]) & (u != v)).sum()) and backtest["step"] == 3
    assert 0 <= backtest["auc"] <= 1 and 0 <= backtest["average_precision"] <= 1 and backtest["auc_sd"] > 0
    assert (metrics["nodes"], metrics["snapshots"], metrics["device"]) == (40, 5, "cpu")

    first = [epoch for epoch in told[1:5] if isinstance(epoch, Epoch)]
    scores = [epoch.score or 0.0 for epoch in first]
    best = 1 + scores.index(max(scores))
    assert told[0] == ("backtest", 4) and told[5:7] == [("heuristics", 0), ("final", best)]
    assert backtest["heuristic"]["name"] in OPPONENTS and backtest["heuristic"]["auc"] > 0.5
    assert (backtest["best_epoch"], backtest["validation_auc"], backtest["epochs"]) == (best, max(scores), 4)
    rows = history(run.folder)
    assert [(r["stage"], r["number"]) for r in rows] == [
        *(("backtest", str(n)) for n in (1, 2, 3, 4)),
        *(("final", str(n)) for n in range(1, best + 1)),
    ]
    assert [float(r["loss"]) for r in rows] == [epoch.loss for epoch in told if isinstance(epoch, Epoch)]
    assert metrics["epochs"] == best and metrics["loss"] == float(rows[-1]["loss"]) and metrics["seconds"] > 0

    table, model = pl.read_parquet(run.folder / "embeddings.parquet"), run.model("cpu")
    assert table.columns == ["node", "step", "embedding"] and len(table) == sum(graph.known)
    for step in range(5):
        rows_of = table.filter(pl.col("step") == step)
        assert rows_of["node"].to_list() == graph.nodes[: graph.known[step]].tolist()
        torch.testing.assert_close(torch.tensor(rows_of["embedding"].to_numpy()), model.embed(step), rtol=0, atol=0)
    assert len(model.graph_) == 5


@pytest.mark.parametrize(
    ("links", "note"),
    [
        pytest.param(FIRST, "one snapshot only: nothing to predict it from, so there is no", id="one snapshot"),
        pytest.param([*FIRST, (5, 6, 1)], "no backtest: step 0: snapshot 1 has no link", id="new nodes only"),
        pytest.param([*FIRST, (0, 2, 1)], "", id="one link to predict"),
        pytest.param([*FIRST, (0, 2, 1), (1, 3, 1)], "", id="two links to predict"),
    ],
)
def test_little_to_predict(tmp_path: Path, links: list[tuple[int, int, int]], note: str) -> None:
    run, notes = start(tmp_path, graph_of(links)), []
    assert run.train(Watch(on_note=notes.append)) and run.finished and names(run.folder) == RESULTS
    assert len(notes) == bool(note) and "".join(notes).startswith(note)
    if note:
        assert run.metrics()["backtest"] is None and run.metrics()["epochs"] == 4
    json.loads((run.folder / "metrics.json").read_text(), parse_constant=pytest.fail)  # NaN is not JSON
    assert run.model("cpu").top_links(1)


def test_no_room_for_the_first_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(tmp_path)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(ModelError, match="cannot be written: No space left on device") as problem:
        run.train(keep_every=0)
    assert names(run.folder) == {"config.toml", "graph"} and "before is kept" not in str(problem.value)


def test_no_pair_without_a_link_says_nothing_of_when_to_stop(tmp_path: Path) -> None:
    run = start(tmp_path, graph_of([*FIRST, *((u, v, 1) for v in range(5) for u in range(v))]))
    assert run.train() and run.metrics()["backtest"]["auc"] is None
    assert run.metrics()["epochs"] == 4


def test_without_a_backtest_all_epochs_are_run_on_all_snapshots(tmp_path: Path) -> None:
    run = start(tmp_path, backtest=False)
    assert run.train() and run.metrics()["backtest"] is None
    assert [row["stage"] for row in history(run.folder)] == ["final"] * 4
    alone = small_model().fit(small_graph())
    torch.testing.assert_close(run.model("cpu").embed(), alone.embed(), rtol=0, atol=0)


@pytest.mark.parametrize("backtest", [True, False], ids=["backtest", "no backtest"])
def test_no_epochs(tmp_path: Path, backtest: bool) -> None:
    run = start(tmp_path, backtest=backtest, epochs=0)
    assert run.train() and run.finished and run.metrics()["loss"] is None and history(run.folder) == []


def test_another_graph_in_its_place(tmp_path: Path) -> None:
    run = start(tmp_path)
    graph_of(FIRST).save(run.folder / "graph", overwrite=True)
    with pytest.raises(ModelError, match=r"graph: not the graph that config\.toml speaks of"):
        run.train()
