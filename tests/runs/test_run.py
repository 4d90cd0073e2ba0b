"""A run folder: created atomically, opened or refused in one line, trained to the end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest
import torch
from run_folders import RESULTS, RING, graph_of, history, names, quick, small_graph, small_model, unseal

import dysat
from dysat.errors import DysatError, ModelError
from dysat.runs import backtest as backtests
from dysat.runs import newest
from dysat.runs.run import Run, Watch
from dysat.training import Epoch

__all__ = ["quick"]


def start(folder: Path, graph: dysat.DynamicGraph | None = None, *, backtest: bool = True, **options: Any) -> Run:
    return Run.start(folder / "run", graph or small_graph(), small_model(**options), backtest=backtest, source="x")


def identities(folder: Path) -> list[tuple[Path, int, int, int, int]]:
    """What is stored below a folder, without the times of access: reading sets those."""
    stats = [(file, file.lstat()) for file in sorted(folder.rglob("*"))]
    return [(file, s.st_ino, s.st_mode, s.st_size, s.st_mtime_ns) for file, s in stats]


# Start and open


def test_start_writes_config_and_graph(tmp_path: Path) -> None:
    source = 'a "quoted"\n\\ [x] = é\x7f.csv'
    run = Run.start(tmp_path / "new" / "run", small_graph(), small_model(patience=3), backtest=False, source=source)
    assert names(run.folder) == {"config.toml", "graph"} and names(tmp_path / "new") == {"run"}
    config = tomllib.loads((run.folder / "config.toml").read_text())
    options = {
        name: list(v) if isinstance(v, tuple) else v for name, v in small_model(patience=3).plain_params().items()
    }
    assert config["options"] == {name: "none" if v is None else v for name, v in options.items()}
    fingerprint = small_graph().fingerprint
    assert (config["dysat"], config["source"], config["method"]) == (dysat.__version__, source, "dysat")
    assert (config["backtest"], config["graph"]) == (False, fingerprint)
    assert run.graph().fingerprint == fingerprint and not run.finished
    assert dysat.DySAT.with_options(run.config["options"]).plain_params() == small_model(patience=3).plain_params()


@pytest.mark.parametrize("what", ["file", "folder", "link", "run"])
def test_start_refuses_an_existing_path(tmp_path: Path, what: str) -> None:
    path = tmp_path / "run"
    if what == "file":
        path.write_text("mine")
    elif what == "folder":
        path.mkdir()
    elif what == "link":
        path.symlink_to(tmp_path / "nowhere")
    else:
        start(tmp_path)
    before = identities(tmp_path)
    with pytest.raises(ModelError, match="run: exists already") as problem:
        start(tmp_path)
    assert ("--resume" in str(problem.value)) == (what == "run")
    assert identities(tmp_path) == before


@pytest.mark.parametrize("name", ["file/run", "a" * 300, "/proc/no/run"], ids=["in a file", "too long", "in /proc"])
def test_start_where_no_folder_can_be_created(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot be written"):
        Run.start(tmp_path / name, small_graph(), small_model())
    assert names(tmp_path) == {"file"}


def test_start_on_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(DysatError, match="No space left on device"):
        start(tmp_path)
    assert names(tmp_path) == set()


def test_the_folder_respects_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert start(tmp_path).folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


def test_a_damaged_config_is_refused_in_one_line(tmp_path: Path) -> None:
    cases: list[tuple[Callable[[str], str], str]] = [
        (lambda text: text[:-9], "config.toml: damaged: "),
        (lambda text: text + "\n\xff", "config.toml: damaged: 'utf-8' codec"),
        (lambda text: "x = " + "[" * 100_000, "config.toml: damaged: "),
        (lambda text: "", "damaged: no method"),
        (lambda text: text.replace("graph =", "g ="), "damaged: no graph"),
        (lambda text: text.replace("backtest = 3", ""), "damaged: no backtest"),
        (lambda text: text.replace("backtest = 3", "backtest = 'x'"), "damaged: no backtest"),
        (lambda text: text.replace("[options]", "[o]"), "damaged: no options"),
        (lambda text: text.replace('"dysat"', '"x"'), "no method 'x'; there are dysat"),
    ]
    file = start(tmp_path).folder / "config.toml"
    text = file.read_text()
    for change, message in cases:
        file.write_bytes(change(text).encode("latin-1"))
        with pytest.raises(ModelError) as problem:
            Run.open(tmp_path / "run")
        assert message in str(problem.value) and "\n" not in str(problem.value)
    file.unlink()
    with pytest.raises(ModelError, match=r"run: not a run folder \(it has no config\.toml\)"):
        Run.open(tmp_path / "run")


def test_open_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere: no such folder"):
        Run.open(tmp_path / "nowhere")


def test_options_changed_by_hand_are_checked(tmp_path: Path) -> None:
    file = unseal(start(tmp_path).folder)
    text = file.read_text()
    for old, new, message in (
        ("epochs = 4", "epochs = 'x'", "[options] epochs = 'x' is not a whole number"),
        ("epochs = 4", "epoch = 4", "no option 'epoch'; did you mean 'epochs'?"),
        ("seed = 0", "seed = 'x'", "[options] seed = 'x' is not a whole number"),
    ):
        file.write_text(text.replace(old, new))
        with pytest.raises(ModelError, match=re.escape(message)):
            Run.open(tmp_path / "run").train()


# Train


def test_results_of_a_run(tmp_path: Path) -> None:
    run, graph, seen = start(tmp_path), small_graph(), []
    with pytest.raises(ModelError, match=f"not trained yet; dysat fit --resume {run.folder} continues"):
        run.model()
    with pytest.raises(ModelError, match="cannot be read"):
        run.metrics()
    assert run.train(Watch(on_stage=lambda *stage: seen.append(stage), on_epoch=seen.append), keep_every=0)
    assert names(run.folder) == RESULTS and run.finished

    metrics, backtest = run.metrics(), run.metrics()["backtest"]
    u, v, _ = graph[-1].links()
    assert backtest["links"] == int(((v < graph.known[-2]) & (u != v)).sum()) and backtest["step"] == 3
    assert 0 <= backtest["auc"] <= 1 and 0 <= backtest["average_precision"] <= 1 and backtest["auc_sd"] > 0
    assert (metrics["nodes"], metrics["snapshots"], metrics["device"]) == (40, 5, "cpu")

    first = [epoch for epoch in seen[1:5] if isinstance(epoch, Epoch)]
    scores = [epoch.score or 0.0 for epoch in first]
    best = 1 + scores.index(max(scores))
    stages = [stage for stage in seen if not isinstance(stage, Epoch)]
    assert stages == [("backtest", 4), ("heuristics", 0)] * 3 + [("final", best), ("writing", 0)]
    assert backtest["heuristic"]["name"] in backtests.OPPONENTS and backtest["heuristic"]["auc"] > 0.5
    assert (backtest["best_epoch"], backtest["validation_auc"], backtest["epochs"]) == (best, max(scores), 4)
    rows = history(run.folder)
    assert [(r["stage"], r["number"]) for r in rows] == [
        *((stage, str(n)) for stage in ("backtest", "backtest 3", "backtest 2") for n in (1, 2, 3, 4)),
        *(("final", str(n)) for n in range(1, best + 1)),
    ]
    assert [float(r["loss"]) for r in rows] == [epoch.loss for epoch in seen if isinstance(epoch, Epoch)]
    assert metrics["epochs"] == best and metrics["loss"] == float(rows[-1]["loss"]) and metrics["seconds"] > 0

    table, model = pl.read_parquet(run.folder / "embeddings.parquet"), run.model("cpu")
    assert table.columns == ["node", "step", "embedding"] and len(table) == sum(graph.known)
    for step in range(5):
        rows_of = table.filter(pl.col("step") == step)
        assert rows_of["node"].to_list() == graph.nodes[: graph.known[step]].tolist()
        torch.testing.assert_close(torch.tensor(rows_of["embedding"].to_numpy()), model.embed(step), rtol=0, atol=0)
    assert len(model.graph_) == 5


def test_a_trained_model_is_not_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.start(tmp_path / "run", small_graph(), small_model(), backtest=False)
    assert run.train()
    links, embeddings = run.model().top_links(5), run.model().embed()
    with monkeypatch.context() as patch:
        patch.setattr(Run, "model", lambda *_: pytest.fail("it was loaded"))
        assert list(run.forecasts(5)) == list(links) and torch.equal(run.model_at_hand().embed(), embeddings)
    (run.folder / "metrics.json").write_bytes((run.folder / "metrics.json").read_bytes())  # as after an update
    assert run.model_at_hand() is run.model_at_hand() and list(run.forecasts(5)) == list(links)


def test_embeddings_of_a_large_graph_are_those_of_the_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model().fit(graph := small_graph())
    for limit, steps in ((sum(graph.known), range(len(graph))), (sum(graph.known) - 1, [len(graph) - 1])):
        monkeypatch.setattr(newest, "MAX_ROWS", limit)
        newest.write_embeddings(model, tmp_path / f"{limit}.parquet")
        table = pl.read_parquet(tmp_path / f"{limit}.parquet")
        assert table["step"].unique().sort().to_list() == list(steps)
        assert table.filter(pl.col("step") == len(graph) - 1)["node"].to_list() == graph.nodes.tolist()


@pytest.mark.parametrize(
    ("links", "note"),
    [
        pytest.param(RING, "no backtest: the graph has only one snapshot", id="one snapshot"),
        pytest.param([*RING, (5, 6, 1)], "no backtest: step 0: snapshot 1 has no link", id="new nodes only"),
        pytest.param([*RING, (0, 2, 1)], "", id="one link to predict"),
        pytest.param([*RING, (0, 2, 1), (1, 3, 1)], "", id="two links to predict"),
    ],
)
def test_few_links_to_predict(tmp_path: Path, links: list[tuple[int, int, int]], note: str) -> None:
    run, notes = start(tmp_path, graph_of(links)), []
    assert run.train(Watch(on_note=notes.append)) and run.finished and names(run.folder) == RESULTS
    assert len(notes) == bool(note) and "".join(notes).startswith(note)
    if note:
        assert run.metrics()["backtest"] is None and run.metrics()["epochs"] == 4
    json.loads((run.folder / "metrics.json").read_text(), parse_constant=pytest.fail)  # NaN is not JSON
    assert run.model("cpu").top_links(1)


def test_first_checkpoint_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(tmp_path)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(ModelError, match="cannot be written: No space left on device") as problem:
        run.train(keep_every=0)
    assert names(run.folder) == {"config.toml", "graph"} and "previous checkpoint is kept" not in str(problem.value)


def test_without_unlinked_pairs_all_epochs_are_run(tmp_path: Path) -> None:
    run = start(tmp_path, graph_of([*RING, *((u, v, 1) for v in range(5) for u in range(v))]))
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


def test_a_replaced_graph_is_refused(tmp_path: Path) -> None:
    run = start(tmp_path)
    graph_of(RING).save(run.folder / "graph", overwrite=True)
    with pytest.raises(ModelError, match="graph: not the graph that the run was started with"):
        run.train()


MODEL = """
import sys
import run_folders as r
r.be_quick()
assert r.Run.start(sys.argv[1], r.small_graph(), r.small_model(), backtest=1).train()
"""


@pytest.mark.slow
def test_two_identical_runs_have_the_same_model_file(tmp_path: Path) -> None:
    """In two processes: the order of a hash map differs between them."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for name in "ab":
        subprocess.run([sys.executable, "-c", MODEL, str(tmp_path / name)], check=True, env=environment)
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in "ab")
    assert first == second
    assert (tmp_path / "a" / "run.json").read_bytes() == (tmp_path / "b" / "run.json").read_bytes()
