"""Graphs, models and results as notebooks show them, and results as tables."""

from __future__ import annotations

import numpy as np
import pytest
from run_folders import quick

import dysat
from dysat.data.csr import Snapshot
from dysat.experiments.evaluate.outcome import RANKING, Evaluation

__all__ = ["quick"]


@pytest.fixture(scope="module")
def graph() -> dysat.DynamicGraph:
    return dysat.load_dataset("uci")[:4]


@pytest.fixture(scope="module")
def evaluation(graph: dysat.DynamicGraph) -> Evaluation:
    return dysat.evaluate(["svd", "edge-memory"], graph, opponents=(), first=2, candidates=20)


def test_a_graph_shows_its_snapshots(graph: dysat.DynamicGraph) -> None:
    page = graph._repr_html_()
    assert page.count("<tr>") == 1 + len(graph)
    assert f"{graph[3].num_links:,}</td>" in page
    assert "DynamicGraph: 1,5" in page


def test_a_long_graph_shows_its_first_and_last_snapshots() -> None:
    u, v = np.array([0]), np.array([1])
    steps = [Snapshot.from_links(u, v, None, num_nodes=2, start=t, stop=t + 1) for t in range(100)]
    page = dysat.DynamicGraph(np.array(["<b>", "c"], object), tuple(steps), clock="step")._repr_html_()
    assert page.count("<tr>") == 1 + 8 + 1 + 8
    assert ">99</td>" in page


def test_a_model_shows_what_differs_from_the_default(graph: dysat.DynamicGraph) -> None:
    model = dysat.DySAT(epochs=1, seed=3, history=2, spectrum=2)
    page = model._repr_html_()
    assert "not fitted yet" in page
    assert [name for name in ("epochs", "seed", "history", "walk_length") if f">{name}</td>" in page] == [
        "epochs",
        "seed",
        "history",
    ]
    assert "all options have their default" in dysat.DySAT()._repr_html_()
    fitted = dysat.MODELS["svd"](features=4).fit(graph)._repr_html_()
    assert "DynamicGraph: " in fitted


def test_an_evaluation_is_a_table(evaluation: Evaluation) -> None:
    table = evaluation.to_polars()
    assert table.height == sum(len(figures.results) for figures in evaluation.figures)
    for figures in evaluation.figures:
        for step in figures.of():
            row = table.filter(model=figures.name, snapshot=step.result.target, probe=step.probe).row(0, named=True)
            assert row["auc"] == step.result.auc
            assert all(row[name] == getattr(step, name) for name in RANKING) and row["mrr"] > 0
    assert evaluation.to_pandas().columns.tolist() == table.columns
    page = evaluation._repr_html_()
    assert page.count("<tr>") == 2 + len(list(evaluation.rows())) + len(list(evaluation.ranking_rows()))
    assert ">Hits@10<" in page


def test_a_tuning_is_a_table(graph: dysat.DynamicGraph) -> None:
    pytest.importorskip("optuna")
    found = dysat.tune("svd", graph, space={"decay": [0.1, 0.9], "features": [4]}, steps=[2])
    table = found.to_polars()
    assert table["value"].to_list() == [trial.value for trial in found.trials]
    assert table["decay"].to_list() == [trial.options["decay"] for trial in found.trials]
    assert found.to_pandas().columns.tolist() == table.columns
    assert found._repr_html_().count("<tr>") == 3
