"""Estimates of a fit: all phases are there and positive, samples are real subgraphs, and nothing is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import quick, small_graph
from small import FORECASTING, two_blocks

from dysat import DySAT
from dysat.runs import estimate as module
from dysat.runs.estimate import estimate, sampled

__all__ = ["quick"]
SCORE, TRAINING, CHECKED = {"reading", "pair score", "writing", "ranking"}, {"training"}, {"heuristics"}


@pytest.mark.parametrize(
    ("options", "windows", "phases"),
    [
        ({}, 1, SCORE | TRAINING | CHECKED),
        pytest.param({}, 0, SCORE | TRAINING, marks=pytest.mark.slow),
        ({"embeddings": False}, 1, SCORE | CHECKED),
        ({"pair_score": False, "agreement": 0.0}, 1, SCORE - {"pair score"} | TRAINING | CHECKED),
    ],
)
def test_phases_are_positive_and_add_up(options: dict[str, Any], windows: int, phases: set[str]) -> None:
    found = estimate(small_graph(), DySAT(**FORECASTING | options), windows=windows, reading=0.5)
    assert found.phases.keys() == phases and all(seconds > 0 for seconds in found.phases.values())
    assert found.seconds == sum(found.phases.values()) and found.phases["reading"] == 0.5
    assert found.range[0] < found.seconds < found.range[1] and found.memory > 0
    assert (found.device, found.gpu_memory) == ("cpu", None)


def test_epochs_count() -> None:
    few, many = (estimate(small_graph(), DySAT(**FORECASTING | {"epochs": n})) for n in (1, 1_000))
    assert many.phases["training"] > 20 * few.phases["training"]


def test_large_graphs_are_measured_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("EIGENVECTOR_NODES", 20), ("EPOCH_CELLS", 20), ("SAMPLE_NODES", 12)):
        monkeypatch.setattr(module, name, value)
    found = estimate(small_graph(), DySAT(**FORECASTING))
    assert all(seconds >= 0 for seconds in found.phases.values()) and found.phases["training"] > 0


@pytest.mark.parametrize("number", [1, 7, 30, 99])
def test_a_sample_is_the_graph_of_some_nodes(number: int) -> None:
    graph = two_blocks()
    part = sampled(graph, number)
    assert part.num_nodes == min(number, 30) and len(part) == len(graph)
    for whole, small in zip(graph, part, strict=True):
        u, v, weights = (column.numpy() for column in whole.links())
        inside = np.isin(u, part.nodes) & np.isin(v, part.nodes)
        expected = {(int(a), int(b), float(w)) for a, b, w in zip(u[inside], v[inside], weights[inside], strict=True)}
        u, v, weights = (column.numpy() for column in small.links())
        found = zip(part.nodes[u], part.nodes[v], weights, strict=True)
        assert {(int(a), int(b), float(w)) for a, b, w in found} == expected


def test_no_more_examples_than_a_fit_learns_from(monkeypatch: pytest.MonkeyPatch) -> None:
    model = DySAT(**FORECASTING)
    every = module._PairWork.measure(small_graph(), model, 0)
    monkeypatch.setattr(module, "MAX_LINKS", 3)
    few = module._PairWork.measure(small_graph(), model, 0)
    assert few.transitions == every.transitions
    assert few.examples == few.transitions * (3 * (1 + module.NEGATIVES) + module.DROPPED_PAIRS) < every.examples


def test_transitions_prepared_at_once_need_less_time_and_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model, before = DySAT(**FORECASTING), torch.get_num_threads()
    try:
        monkeypatch.setattr("dysat.system.parallel.process.CORES_EACH", 1)
        torch.set_num_threads(2)
        two = module._PairWork.measure(small_graph(), model, 0)
        monkeypatch.setattr("dysat.models.forecast.examples.free_memory", lambda: 0.0)
        one = module._PairWork.measure(small_graph(), model, 0)
    finally:
        torch.set_num_threads(before)
    assert (two.at_once, one.at_once) == (2, 1) and two.transitions > 1
    work = replace(two, grown=1.0, history=1.0)
    assert replace(work, at_once=1).memory() == work.memory() - 1
    assert replace(work, at_once=1).learning() > work.learning() + 0.9
