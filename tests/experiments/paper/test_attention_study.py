"""Temporal attention for the heat maps, against the weights of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_study import make_graph, shorten

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.evaluation.probe import validation_auc
from dysat.evaluation.protocols import link_split
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.paper.attention_study import attention_facts, measure_attention
from dysat.experiments.paper.records import Results

SMALL = {
    "structural_heads": (2,), "structural_features": (8,), "temporal_heads": (2,), "temporal_features": (8,),
    "epochs": 3, "walks_per_node": 2, "patience": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return make_graph(6)


def facts_of(graph: DynamicGraph, **options: Any) -> dict[str, Any]:
    return attention_facts(Contender("dysat", "program", {**SMALL, **options}), graph, Request(), "cpu")


def test_weights_are_those_of_the_model(graph: DynamicGraph) -> None:
    found = facts_of(graph)
    split = link_split(graph, 4)
    model = dysat.DySAT.from_preset("program", **SMALL, device="cpu")
    model.fit(graph[:5], validate=lambda m: validation_auc(m.embed(), split))
    assert found["steps"] == [0, 1, 2, 3, 4]
    assert found["best_epoch"] == model.epochs_[-1].best
    for step in range(5):
        weights = model.attention(step).double()  # [known, step + 1]
        assert len(weights) == graph.known[step]
        mean = sum(weights) / len(weights)
        variance = sum((row - mean) ** 2 for row in weights) / len(weights)
        kept = {which: torch.tensor(found[which][step][: step + 1]).double() for which in ("mean", "sd")}
        torch.testing.assert_close(kept["mean"], mean, atol=1e-6, rtol=0)
        torch.testing.assert_close(kept["sd"], variance.sqrt(), atol=1e-6, rtol=0)


def test_rows_sum_to_one_and_exclude_later_steps(graph: DynamicGraph) -> None:
    found = facts_of(graph)
    for which in ("mean", "sd"):
        assert [[value is None for value in row] for row in found[which]] == [
            [j > i for j in range(5)] for i in range(5)
        ]
    assert [sum(row[: i + 1]) for i, row in enumerate(found["mean"])] == pytest.approx([1.0] * 5, abs=1e-5)
    assert found["sd"][0][0] == 0  # with a single step the weight is 1


def test_history_limits_the_steps(graph: DynamicGraph) -> None:
    found = facts_of(graph, history=2)
    assert found["steps"] == [3, 4]
    assert found["mean"][0][1] is None and sum(found["mean"][1]) == pytest.approx(1.0, abs=1e-5)


def test_model_without_temporal_attention_raises(graph: DynamicGraph) -> None:
    with pytest.raises(ModelError, match="gcn-ae has no temporal attention"):
        attention_facts(Contender("gcn-ae"), graph, Request(), "cpu")


def test_attention_is_measured_again_only_after_a_change(
    graph: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    progress: list[tuple[int, int, str]] = []

    def measure(graph: DynamicGraph, slug: str = "dysat", seed: int = 0) -> Any:
        progress.clear()
        measure_attention(slug, graph, "uci", Results(tmp_path), "cpu", seed, lambda *words: progress.append(words))
        return Results(tmp_path).facts("attention", "uci", slug)

    first = measure(graph)
    assert progress == [(done, 1, "attention of dysat:program on uci") for done in (0, 1)]
    assert first["about"]["graph"]["fingerprint"] == graph.fingerprint and first["options"]["epochs"] == 1
    assert measure(graph) == first and progress == []
    assert measure(graph, seed=1)["key"] != first["key"] and progress
    assert measure(graph[:5])["steps"] == [0, 1, 2, 3] and progress
