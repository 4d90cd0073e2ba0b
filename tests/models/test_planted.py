"""Methods succeed and fail on planted structure as theory predicts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import dysat
from dysat.evaluation.probe import auc

Ids = NDArray[np.int64]

SIDE = 6
NODES = SIDE * SIDE
PAIRS = np.array(list(combinations(range(NODES), 2)))
SAME_ROW = PAIRS[:, 0] // SIDE == PAIRS[:, 1] // SIDE
SAME_COLUMN = PAIRS[:, 0] % SIDE == PAIRS[:, 1] % SIDE

SMALL: dict[str, dict[str, Any]] = {
    "node2vec": {"walks_per_node": 20, "walk_length": 20, "window": 3, "epochs": 3, "features": 16},
    "graphsage": {"features": (32, 16), "fan_out": (10, 10), "batch_size": 256, "device": "cpu"},
    "gcn-ae": {"features": (32, 16), "epochs": 60, "device": "cpu"},
    "gat-ae": {"features": (32, 16), "epochs": 60, "device": "cpu"},
    "dynamic-triad": {"features": 16, "batch_size": 256, "epochs": 50, "device": "cpu"},
    "dyngem": {"features": 16, "hidden": (32,), "epochs": 15, "batch_size": 16, "device": "cpu"},
    "dynaernn": {"encoder": (64,), "recurrent": (32, 32), "epochs": 40, "learning_rate": 0.01, "batch_size": NODES}
    | {"device": "cpu"},
    "pair-logistic": {},
    "last-snapshot": {},
    "edge-memory": {},
}
AGGREGATED = ("node2vec", "graphsage", "gcn-ae", "gat-ae")  # see the sum of all snapshots


def graph_of(steps: int, links_at: Callable[[int], Ids]) -> dysat.DynamicGraph:
    def snapshot(t: int) -> dysat.Snapshot:
        u, v = links_at(t).T
        return dysat.Snapshot.from_links(u, v, None, num_nodes=NODES, start=t, stop=t + 1)

    return dysat.DynamicGraph(np.arange(NODES), tuple(map(snapshot, range(steps))), clock="step")


def communities() -> dysat.DynamicGraph:
    """Rows are communities; each of six snapshots links some pairs of a row and very few others."""
    rng = np.random.default_rng(0)
    chance = np.where(SAME_ROW, 0.15, 0.004)
    return graph_of(6, lambda _: PAIRS[rng.random(len(PAIRS)) < chance])


def recurrence() -> dysat.DynamicGraph:
    """Even snapshots (0, 2, …, 8) link all pairs of a column, odd ones all pairs of a row; the next one is odd."""
    return graph_of(9, lambda t: PAIRS[SAME_COLUMN if t % 2 == 0 else SAME_ROW])


@cache
def scores(planted: Callable[[], dysat.DynamicGraph], method: str) -> torch.Tensor:
    """Scores of all pairs for the next snapshot."""
    model = dysat.MODELS[method](**SMALL[method]).fit(planted())
    return model.pair_scores(torch.from_numpy(PAIRS))


def planted_auc(planted: Callable[[], dysat.DynamicGraph], method: str, positives: Any, negatives: Any) -> float:
    chosen = torch.from_numpy(positives | negatives)
    return auc(scores(planted, method)[chosen], torch.from_numpy(positives)[chosen])


@pytest.mark.parametrize("method", AGGREGATED)
def test_aggregated_snapshots_show_communities(method: str) -> None:
    value = planted_auc(communities, method, SAME_ROW, ~SAME_ROW)
    assert value > 0.85
    for narrow in ("last-snapshot", "edge-memory", "dyngem"):  # one snapshot, or direct links only
        assert value > planted_auc(communities, narrow, SAME_ROW, ~SAME_ROW) + 0.1


@pytest.mark.parametrize("method", AGGREGATED)
def test_aggregated_snapshots_do_not_show_alternation(method: str) -> None:
    assert planted_auc(recurrence, method, SAME_ROW, SAME_COLUMN) < 0.65


@pytest.mark.parametrize("method", ["last-snapshot", "edge-memory", "dynamic-triad"])
def test_methods_that_repeat_the_last_snapshot_fail_on_alternation(method: str) -> None:
    assert planted_auc(recurrence, method, SAME_ROW, SAME_COLUMN) < 0.2


@pytest.mark.parametrize("method", [pytest.param("dynaernn", marks=pytest.mark.slow), "pair-logistic"])
def test_methods_that_learn_from_transitions_predict_alternation(method: str) -> None:
    value = planted_auc(recurrence, method, SAME_ROW, SAME_COLUMN)
    assert value > 0.85
    assert planted_auc(recurrence, method, SAME_ROW, ~SAME_ROW & ~SAME_COLUMN) > 0.85
    for other in (*AGGREGATED, "dynamic-triad", "dyngem"):
        assert value > planted_auc(recurrence, other, SAME_ROW, SAME_COLUMN) + 0.2


def test_every_baseline_of_the_paper_is_covered() -> None:
    paper = {"node2vec", "graphsage", "gcn-ae", "gat-ae", "dynamic-triad", "dyngem", "dynaernn"}
    assert paper <= SMALL.keys() and paper <= dysat.MODELS.keys()
