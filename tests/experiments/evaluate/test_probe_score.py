"""Evaluation of a model's own scores, which do not depend on the predicted snapshot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from run_folders import quick
from small_study import make_graph

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError
from dysat.evaluation.hard_negatives import with_negatives
from dysat.evaluation.probe import evaluate_scores
from dysat.evaluation.protocols import link_split
from dysat.experiments.evaluate.evaluate import as_contender, evaluate
from dysat.experiments.evaluate.job import GRAPH, STEPS, Job, Worker
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.versions import content_key

__all__ = ["quick"]

SMALL: dict[str, Any] = {
    "structural_heads": (2,), "structural_features": (8,), "temporal_heads": (2,), "temporal_features": (8,),
    "epochs": 3, "walks_per_node": 2, "device": "cpu",
}  # fmt: skip
AHEAD = {**SMALL, "activity": True, "positions": "relative", "walk_weight": 0.0, "future_weight": 0.5, "agreement": 1.0}
LEARNERS = {
    "pair score": dysat.DySAT(**AHEAD, pair_score=True),
    "paper": dysat.DySAT.from_preset("program", **SMALL),
    "incremental": dysat.IncSAT(**SMALL),
}


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return make_graph(6)


def other_target(graph: DynamicGraph, target: int) -> DynamicGraph:
    """Return the graph with other links in one snapshot: both ends are shifted by one id."""
    u, v, weight = (part.numpy() for part in graph[target].links())
    known = graph.known[target]
    old = graph[target]
    moved = dysat.Snapshot.from_links(
        (u + 1) % known, (v + 1) % known, weight, num_nodes=known, start=old.start, stop=old.stop
    )
    return replace(graph, snapshots=(*graph.snapshots[:target], moved, *graph.snapshots[target + 1 :]))


def fitted(graph: DynamicGraph, folder: Path, model: dysat.LinkModel, request: Request, step: int) -> Any:
    (folder / STEPS).mkdir(parents=True)
    graph.save(folder / GRAPH)
    return Worker().run(Job(folder, as_contender(model), request, step, (step + 1,), "cpu"))


@pytest.mark.parametrize("name", LEARNERS)
def test_scores_do_not_depend_on_the_predicted_snapshot(name: str, graph: DynamicGraph, tmp_path: Path) -> None:
    step, request = 4, Request(probe="score")
    changed = other_target(graph, step + 1)
    assert changed.fingerprint != graph.fingerprint and changed.known == graph.known
    one, other = (
        fitted(each, tmp_path / str(number), LEARNERS[name], request, step)
        for number, each in enumerate((graph, changed))
    )
    known = graph.known[step]
    pairs = torch.combinations(torch.arange(known))
    assert torch.equal(one.pair_scores(pairs), other.pair_scores(pairs))
    assert one.has_embeddings == (name != "pair score")  # which does not depend on embeddings, so none are learned
    assert len(one.epochs_) == 3 * one.has_embeddings and all(epoch.score is None for epoch in one.epochs_)
    if one.has_embeddings:
        assert torch.equal(one.embed(), other.embed())


@pytest.mark.parametrize("probe", ["score", "present", "past"])
def test_a_model_without_embeddings_is_measured_by_its_own_score(probe: str, graph: DynamicGraph) -> None:
    models = [dysat.DySAT(**AHEAD, embeddings=embeddings) for embeddings in (True, False)]
    found = [
        evaluate(model, graph, opponents=("edgebank",), device="cpu", only=(5,), repeats=2, probe=probe)
        for model in models
    ]
    whole, forecast_only = (next(figures for figures in each.figures if figures.method == "dysat") for each in found)
    assert {result.probe for result in forecast_only.results} == {"score" if probe == "score" else "none"}
    if probe == "score":
        assert [each.facts() for each in whole.results] == [each.facts() for each in forecast_only.results]


@pytest.mark.parametrize("name", ["pair score", "incremental"])
def test_results_equal_a_manual_evaluation_of_scores(name: str, graph: DynamicGraph, tmp_path: Path) -> None:
    model, kinds = LEARNERS[name], ("uniform", "historical")
    found = evaluate(
        model, graph, tmp_path / "e", opponents=("edgebank", "svd"), device="cpu", only=(4, 5), repeats=2,
        negatives=kinds, probe="score", candidates=3,
    )  # fmt: skip
    asked, bank, svd = found.figures
    assert [figures.probes() for figures in found.figures] == [["score"], ["none"], ["score"]]
    by_hand = type(model)(**model.get_params()).fit(graph[:5])
    for kind in kinds:
        split = link_split(graph, 4, repeats=2)
        split = split if kind == "uniform" else with_negatives(split, graph, kind, 0)
        result = next(step.result for step in asked.of(kind, "score") if step.result.target == 5)
        assert result.aucs == evaluate_scores(by_hand.pair_scores(split.pairs), split).aucs
    assert asked.ranking()["mrr"] is not None
    best = found.best_opponent(asked)
    assert best is not None and found.gap(asked, best) == pytest.approx(
        asked.means("uniform", "score").macro_auc - best.means("uniform", "score").macro_auc  # type: ignore[union-attr]
    )
    assert bank.means("uniform", "score") is not None and svd.means("uniform", "score") is not None


def test_folder_and_key_belong_to_one_probe(graph: DynamicGraph, tmp_path: Path) -> None:
    model = Contender("dysat", options=SMALL)
    keys = {content_key(graph, model, Request(probe=probe)) for probe in ("present", "past", "score")}
    assert len(keys) == 3
    evaluate("svd", graph, tmp_path / "e", opponents=(), only=(5,), probe="score")
    with pytest.raises(dysat.ModelError, match=r"an evaluation with another probe \(score\)"):
        evaluate("svd", graph, tmp_path / "e", opponents=(), only=(5,))


def test_unknown_probe_raises_with_a_hint() -> None:
    with pytest.raises(
        GraphError, match=r"^no probe 'scores'; there are present, past, score; did you mean 'score'\?$"
    ):
        Request(probe="scores")  # type: ignore[arg-type]
