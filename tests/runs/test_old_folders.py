"""Run folders written by version 0.1.0, before the code was reorganised, still load, forecast, update and resume.

`tests/fixtures/old_runs` has three runs on a made-up graph and what that version computed from them: the embeddings of
the last step (`NAME.npy`), the ten most likely links (`forecasts.json`), and the embeddings after an update with
`next.csv` (`incsat-program-updated.npy`). `dysat-forecast` was made with the preset that is now the default.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import RESULTS, names

import dysat
from dysat.features.spectrum import _both_ends
from dysat.runs import backtest
from dysat.runs.run import Run

Cli = Callable[..., tuple[int, str, str]]
OLD = Path(__file__).resolve().parents[1] / "fixtures" / "old_runs"
RUNS = ["dysat-program", "incsat-program", "dysat-forecast"]
RETRAINED = [*RUNS[:2], pytest.param(RUNS[2], marks=pytest.mark.slow)]


def stored(name: str) -> torch.Tensor:
    return torch.from_numpy(np.load(OLD / f"{name}.npy", allow_pickle=False))


@pytest.fixture(autouse=True)
def as_on_the_processor_that_trained_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first eigenvector of the first snapshot has positive entries, which others make negative."""

    def both_ends(matrix: Any, number: int, before: Any = None, **options: Any) -> Any:
        positive, negative = _both_ends(matrix, number, before, **options)
        if before is None and positive[:, 0].sum() < 0:
            positive[:, 0] *= -1
        return positive, negative

    monkeypatch.setattr("dysat.features.spectrum._both_ends", both_ends)


@pytest.mark.parametrize("name", RUNS)
def test_an_old_run_has_the_same_embeddings_and_forecasts(name: str) -> None:
    run = Run.open(OLD / name)
    model = run.model("cpu")
    assert run.finished and type(model) is (dysat.IncSAT if name.startswith("incsat") else dysat.DySAT)
    torch.testing.assert_close(model.embed(), stored(name), rtol=1e-5, atol=1e-6)  # processors round differently
    expected = json.loads((OLD / "forecasts.json").read_text())[name]
    found = model.top_links(10)
    assert [[link.u, link.v, link.known] for link in found] == [[u, v, known] for u, v, _, known in expected]
    assert [link.score for link in found] == pytest.approx([score for _, _, score, _ in expected], abs=1e-6)


def test_an_old_run_can_be_updated(cli: Cli, tmp_path: Path) -> None:
    run = Path(shutil.copytree(OLD / "incsat-program", tmp_path / "run"))
    code, out, err = cli("update", run, OLD / "next.csv", "--device", "cpu", "--json")
    assert code == 0, err
    (update,) = json.loads(out)["updates"]
    assert (update["step"], update["events"], update["links"], update["nodes"]) == (6, 8, 7, 41)
    assert update["auc"] == pytest.approx(0.8055555555555556)
    model = Run.open(run).model("cpu")
    assert len(model.graph_) == 7 and "new" in model.graph_.nodes and not model.graph_.timed
    torch.testing.assert_close(model.embed(), stored("incsat-program-updated"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", RETRAINED)
def test_an_old_run_without_results_reaches_them_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its config and its graph alone; the options are stored in full, so the preset need not exist."""
    monkeypatch.setattr(backtest, "OPPONENTS", ("edgebank",))
    run = Run.open(shutil.copytree(OLD / name, tmp_path / "run"))
    metrics = run.metrics()
    for file in ("model.safetensors", "embeddings.parquet", "metrics.json", "history.csv"):
        (run.folder / file).unlink()
    shutil.rmtree(run.folder / "stream", ignore_errors=True)
    assert not run.finished and run.train() and names(run.folder) >= RESULTS
    model, again = run.model("cpu"), run.metrics()
    assert again["epochs"] == metrics["epochs"] and model.embed().shape == stored(name).shape
    if model.version > 1:  # the method has changed since: the run reaches what a new fit reaches
        fresh = type(model).with_options(model.plain_params()).fit(model.graph_)
        torch.testing.assert_close(model.embed(), fresh.embed(), rtol=1e-4, atol=1e-5)
        return
    torch.testing.assert_close(model.embed(), stored(name), rtol=1e-4, atol=1e-5)
    assert again["loss"] == pytest.approx(metrics["loss"], rel=1e-4)
    assert again["backtest"]["auc"] == pytest.approx(metrics["backtest"]["auc"], abs=1e-3)
