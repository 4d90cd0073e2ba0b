"""The backtest of a run: the forecast score beside the probe, on examples that chose nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_run import FIRST, SMALL, graph_of, small_graph, stop_after

import dysat
from dysat.evaluation.probe import auc, average_precision, validation_auc
from dysat.evaluation.protocols import single_step
from dysat.evaluation.reliability import reliability
from dysat.models import MODELS, OPPONENTS
from dysat.runs.backtest import forecast_facts, strongest_opponents, untouched
from dysat.runs.run import Run

Cli = Callable[..., tuple[int, str, str]]
AHEAD: dict[str, Any] = {
    **SMALL, "activity": True, "positions": "relative", "walk_weight": 0.0, "future_weight": 0.5, "agreement": 1.0,
    "pair_score": True, "transitions": 3, "learning_rate": 0.005,
}  # fmt: skip


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run.start(tmp_path_factory.mktemp("ended") / "run", small_graph(), dysat.DySAT(**AHEAD))
    assert run.train()
    return run


def test_the_forecast_is_that_of_the_models_own_scores_where_no_label_was_used(ended: Run) -> None:
    graph, found = small_graph(), ended.metrics()["backtest"]["forecast"]
    split = single_step(graph, 3)
    model = dysat.DySAT(**AHEAD).fit(graph[:-1], validate=lambda model: validation_auc(model.embed(), split))
    pairs, labels = split.pairs[split.test[0]], split.labels[split.test[0]]
    scores = model.pair_scores(pairs)
    assert found["auc"] == auc(scores, labels)
    assert found["average_precision"] == average_precision(scores, labels)
    assert found["reliability"] == reliability(model.score_links(pairs), labels)
    assert sum(part["pairs"] for part in found["reliability"]) == len(labels) < len(split.labels)


def test_no_tested_label_chooses_the_epoch() -> None:
    split = single_step(small_graph(), 3)
    tested = untouched(split)
    flipped = replace(split, labels=split.labels ^ tested)
    model = dysat.DySAT(**AHEAD).fit(small_graph()[:-1])
    assert tested.any() and validation_auc(model.embed(), split) == validation_auc(model.embed(), flipped)


def test_the_heuristic_beside_it_is_measured_alike(ended: Run) -> None:
    graph, split = small_graph(), single_step(small_graph(), 3)
    pairs, labels = split.pairs[split.test[0]], split.labels[split.test[0]]
    own = {name: auc(MODELS[name]().fit(graph[:-1]).pair_scores(pairs), labels) for name in OPPONENTS}
    best = max(own, key=lambda name: own[name])
    found = ended.metrics()["backtest"]
    assert found["forecast"]["heuristic"] == {"name": best, "auc": own[best]}
    assert found["heuristic"] == strongest_opponents(graph[:-1], split)[0]


def test_without_a_pair_score_there_is_no_forecast(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "run", small_graph(), dysat.DySAT(**SMALL))
    assert run.train() and "forecast" not in run.metrics()["backtest"]


def test_one_snapshot_before_the_last_gives_a_forecast_and_too_few_examples_no_figure(tmp_path: Path) -> None:
    little = graph_of([*FIRST, (0, 2, 1)])
    model = dysat.DySAT(**AHEAD | {"walk_weight": 1.0}).fit(little[:-1])
    assert model.pair_score_ is not None
    found = forecast_facts(model, single_step(little, 0))
    assert found is not None and found["auc"] is None and sum(row["pairs"] for row in found["reliability"]) == 0
    run = Run.start(tmp_path / "little", little, dysat.DySAT(**AHEAD | {"walk_weight": 1.0}))
    assert run.train() and run.metrics()["backtest"]["forecast"]["auc"] is None


def test_a_stop_between_changes_nothing(tmp_path: Path) -> None:
    """What the backtest found waits in the checkpoint."""
    for seed in range(10):  # until the second stage has two epochs at least
        model = dysat.DySAT(**AHEAD, seed=seed)
        whole = Run.start(tmp_path / f"whole-{seed}", small_graph(), model)
        assert whole.train()
        backtest = whole.metrics()["backtest"]
        if backtest["best_epoch"] > 1:
            break
    run = Run.start(tmp_path / "run", small_graph(), model)
    stop_after(run, 5)  # in the middle of it
    assert Run.open(run.folder).train()
    assert Run.open(run.folder).metrics()["backtest"] == backtest
    json.loads((run.folder / "metrics.json").read_text(), parse_constant=pytest.fail)  # NaN is not JSON


def test_the_command_shows_it(cli: Cli, tmp_path: Path) -> None:
    small_graph().save(tmp_path / "graph")
    words = [f"--{side}-{what}=4" for side in ("structural", "temporal") for what in ("heads", "features")]
    words += ["--preset=program", "--epochs=1", "--device=cpu", "--pair-score", "--future-weight=1"]
    code, out, err = cli("fit", tmp_path / "graph", "-o", tmp_path / "run", *words)
    assert code == 0, err
    found, text = Run.open(tmp_path / "run").metrics()["backtest"]["forecast"], " ".join(out.split())
    assert f"forecast score, no probe {found['auc']:.4f} AUC" in text and "embeddings with a probe, AUC 0." in text
    word = "beats" if found["auc"] > found["heuristic"]["auc"] else "does not beat"
    assert f"The forecast score {word} the strongest heuristic here, {found['heuristic']['name']} (AUC" in text
    part = next(part for part in found["reliability"] if part["pairs"])
    share = f"{100 * part['linked']:.0f} % of {part['pairs']} pairs"
    assert f"Scores of {part['from']:.1f}–{part['to']:.1f} came true in {share}" in text
