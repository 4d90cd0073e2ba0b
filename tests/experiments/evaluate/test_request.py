"""Requests: selected snapshots, and evaluation without the past probe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_study import make_graph

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError
from dysat.experiments.evaluate.evaluate import evaluate
from dysat.experiments.evaluate.request import Contender, Request


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return make_graph(6)


def figures(graph: DynamicGraph, folder: Path, **request: Any) -> list[dict[str, Any]]:
    """Return the results of every step, kind of negatives and probe."""
    model = Contender("gcn-ae", options={"epochs": 3})
    found = evaluate([model, "edgebank"], graph, folder, opponents=(), device="cpu", repeats=2, **request)
    return [{"model": one.method, **step.facts()} for one in found.figures for step in one.results]


def test_only_selects_targets() -> None:
    pairs = [(0, 1), (1, 2), (2, 3), (2, 4)]
    assert Request().steps(pairs) == pairs
    assert Request(only=(4, 2)).steps(pairs) == [(1, 2), (2, 4)]
    assert Request(only=()).steps(pairs) == []


def test_impossible_targets_raise(graph: DynamicGraph, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"^snapshot 9 cannot be predicted; choose from 1, 2, 3, 4, 5$"):
        figures(graph, tmp_path / "e", only=(1, 9))
    with pytest.raises(GraphError, match=r"^snapshot 2 cannot be predicted; choose from 3, 4, 5$"):
        figures(graph, tmp_path / "e", only=(2,), first=3)
    assert not (tmp_path / "e").exists()


def test_only_does_not_change_results(graph: DynamicGraph, tmp_path: Path) -> None:
    every = figures(graph, tmp_path / "every", negatives=("uniform", "historical"))
    selected = figures(graph, tmp_path / "selected", negatives=("uniform", "historical"), only=(2, 5))
    assert selected == [one for one in every if one["target"] in (2, 5)]
    assert {one["target"] for one in selected} == {2, 5}


def test_leaving_out_the_past_probe_changes_nothing_else(graph: DynamicGraph, tmp_path: Path) -> None:
    both = figures(graph, tmp_path / "both", negatives=("uniform", "historical"))
    present = figures(graph, tmp_path / "present", negatives=("uniform", "historical"), past_probe=False)
    assert {one["probe"] for one in both} == {"present", "past", "none"}
    assert present == [one for one in both if one["probe"] != "past"]


def test_past_probe_stays_if_it_selects_the_epoch(graph: DynamicGraph, tmp_path: Path) -> None:
    shown = figures(graph, tmp_path / "shown", probe="past", only=(4,))
    asked = figures(graph, tmp_path / "asked", probe="past", only=(4,), past_probe=False)
    assert asked == shown and any(one["probe"] == "past" for one in asked)


@pytest.mark.parametrize(
    ("model", "name", "options"),
    [
        (dysat.DySAT(), "dysat", {}),
        (dysat.DySAT(epochs=2, device="cpu"), "dysat", {"epochs": 2, "device": "cpu"}),
        (dysat.DySAT.from_preset("program"), "dysat:program", {}),
        (dysat.DySAT.from_preset("text", epochs=3), "dysat:text", {"epochs": 3}),
        (dysat.DySAT.from_preset("sankar2019_uci"), "dysat:sankar2019_uci", {}),
        (dysat.IncSAT(), "incsat", {}),
        (dysat.MODELS["edgebank"](window=2), "edgebank", {"window": 2}),
        ("dysat:program", "dysat:program", {}),
    ],
)
def test_name_of_a_model_says_which_preset_it_is(model: Any, name: str, options: dict[str, Any]) -> None:
    contender = Contender.of(model)
    assert contender.name == name and contender.options == options
    if not isinstance(model, str):
        assert contender.build().get_params() == model.get_params()


def test_models_of_one_name_are_told_apart_by_their_options() -> None:
    graph = make_graph()
    models = ["edgebank", dysat.MODELS["edgebank"](window=2), dysat.MODELS["edgebank"](window=3)]
    found = dysat.evaluate(models, graph, opponents=[], first=len(graph) - 1)
    assert [figures.name for figures in found.asked()] == ["edgebank", "edgebank (window=2)", "edgebank (window=3)"]
