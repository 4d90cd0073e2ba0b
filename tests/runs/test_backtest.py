"""The backtest of a run: forecast score, probe and heuristics, on examples that did not choose the epoch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_folders import RING, SMALL, graph_of, quick, small_graph, stop_after

import dysat
from dysat.evaluation.probe import auc, average_precision, evaluate_probe, evaluate_scores, validation_auc
from dysat.evaluation.protocols import single_step
from dysat.evaluation.reliability import reliability
from dysat.models import MODELS
from dysat.models.base.embedding import EmbeddingModel
from dysat.runs import backtest
from dysat.runs.run import Run

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
FORECAST: dict[str, Any] = {**SMALL, "spectrum": 2, "learning_rate": 0.005}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run.start(tmp_path_factory.mktemp("ended") / "run", small_graph(), dysat.DySAT(**FORECAST))
    assert run.train()
    return run


def test_forecast_figures_are_those_of_the_pair_score_on_the_first_test_set(ended: Run) -> None:
    graph, found = small_graph(), ended.metrics()["backtest"]["forecast"]
    split = single_step(graph, 3)
    model = dysat.DySAT(**FORECAST).fit(graph[:-1], validate=lambda model: validation_auc(model.embed(), split))
    pairs, labels = split.pairs[split.test[0]], split.labels[split.test[0]]
    scores = model.pair_scores(pairs)
    assert found["auc"] == auc(scores, labels)
    assert found["average_precision"] == average_precision(scores, labels)
    assert found["reliability"] == reliability(model.score_links(pairs, ids=True), labels)
    assert sum(part["pairs"] for part in found["reliability"]) == len(labels) < len(split.labels)


def test_no_tested_label_chooses_the_epoch() -> None:
    split = single_step(small_graph(), 3)
    flipped = replace(split, labels=split.labels ^ split.test[0])
    model = dysat.DySAT(**FORECAST).fit(small_graph()[:-1])
    assert split.test[0].any() and validation_auc(model.embed(), split) == validation_auc(model.embed(), flipped)


def test_heuristics_are_measured_on_the_same_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtest, "OPPONENTS", ("edgebank", "common-neighbours", "svd", "pair-logistic"))
    run = Run.start(tmp_path / "run", small_graph(), dysat.DySAT(**FORECAST | {"epochs": 0}))
    assert run.train()
    graph, split = small_graph(), single_step(small_graph(), 3)
    pairs, labels = split.pairs[split.test[0]], split.labels[split.test[0]]
    own = {name: auc(MODELS[name]().fit(graph[:-1]).pair_scores(pairs), labels) for name in backtest.OPPONENTS}
    best = max(own, key=lambda name: own[name])
    found = run.metrics()["backtest"]
    assert found["forecast"]["heuristic"] == {"name": best, "auc": own[best]}

    probed = {}
    for name in backtest.OPPONENTS:
        model = MODELS[name]().fit(graph[:-1])
        probed[name] = evaluate_scores(model.pair_scores(split.pairs), split).auc
        if isinstance(model, EmbeddingModel):
            probed[name] = evaluate_probe(model.embed(), split, feature=model.pair_feature).auc
    best = max(probed, key=lambda name: probed[name])
    assert found["heuristic"] == {"name": best, "auc": probed[best]}


def test_without_a_pair_score_there_is_no_forecast(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", small_graph(), dysat.DySAT.from_preset("program", **SMALL | {"epochs": 1}))
    assert run.train() and "forecast" not in run.metrics()["backtest"]


def test_too_few_examples_give_no_figure(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", graph_of([*RING, (0, 2, 1)]), dysat.DySAT(**FORECAST | {"walk_weight": 1.0}))
    assert run.train()
    found = run.metrics()["backtest"]["forecast"]
    assert found["auc"] is None and sum(row["pairs"] for row in found["reliability"]) == 0
    json.loads((run.folder / "metrics.json").read_text(), parse_constant=pytest.fail)  # NaN is not JSON


def test_a_stop_after_the_backtest_keeps_its_figures(ended: Run, tmp_path: Path) -> None:
    expected = ended.metrics()["backtest"]
    assert expected["best_epoch"] > 1  # otherwise there is no epoch to stop after
    run = Run.start(tmp_path / "run", small_graph(), dysat.DySAT(**FORECAST))
    stop_after(run, 5)  # in the final stage
    assert Run.open(run.folder).train()
    assert Run.open(run.folder).metrics()["backtest"] == expected


def test_fit_shows_the_backtest(cli: Cli, ended: Run, tmp_path: Path) -> None:
    run = Run.open(shutil.copytree(ended.folder, tmp_path / "run"))
    (run.folder / "metrics.json").rename(tmp_path / "metrics.json")  # resumed: only the results are written again
    code, out, err = cli("fit", "--resume", run.folder)
    assert code == 0, err
    found, text = run.metrics()["backtest"]["forecast"], " ".join(out.split())
    assert f"forecast score, AUC {found['auc']:.4f}" in text and "embeddings and probe, AUC 0." in text
    word = "beats" if found["auc"] > found["heuristic"]["auc"] else "does not beat"
    assert f"The forecast score {word} the strongest heuristic, {found['heuristic']['name']} (AUC" in text
    part = next(part for part in found["reliability"] if part["pairs"])
    share = f"{100 * part['linked']:.0f} % of {part['pairs']} pairs"
    assert f"scores of {part['from']:.1f}–{part['to']:.1f} came true for {share}" in text
