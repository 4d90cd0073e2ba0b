"""DySAT with forecasting objectives: degenerate graphs, options, positions in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from other_processor import choose_other_eigenvectors
from run_folders import quick
from small import FORECASTING, QUICK, all_pairs, make_graph, meetings
from torch.testing import assert_close

from dysat import DynamicGraph, DySAT, ModelError
from dysat.models.dysat import ORIENTED

__all__ = ["quick"]


def forecaster(**changes: Any) -> DySAT:
    return DySAT.from_preset("text", **{**FORECASTING, **changes})


def with_windows(graph: DynamicGraph, widths: Sequence[int]) -> DynamicGraph:
    edges = np.cumsum([0, *widths]).tolist()
    moved = [replace(s, start=a, stop=b) for s, a, b in zip(graph, edges, edges[1:], strict=False)]
    return replace(graph, snapshots=tuple(moved), nodes=graph.nodes.copy())


DEGENERATE = {
    "one snapshot": make_graph([3], [[(0, 1), (1, 2)]]),
    "one node": make_graph([1, 1], [[(0, 0)], [(0, 0)]]),
    "two snapshots": make_graph([4, 4], [[(0, 1), (1, 2)], [(0, 2), (2, 3)]]),
    "no node twice": make_graph([2, 4, 6], [[(0, 1)], [(2, 3)], [(4, 5)]]),
    "no nodes at first": make_graph([0, 3, 3, 3], [[], [(0, 1), (1, 2)], [(0, 1)], [(0, 2)]]),
    "empty at the end": make_graph([4, 4, 4], [[(0, 1), (1, 2)], [(0, 3)], []]),
    "only self-loops": make_graph([2, 2], [[(0, 0), (1, 1)], [(1, 1)]]),
    "complete": make_graph([3, 3], [[(0, 1), (0, 2), (1, 2)]] * 2),
    "many snapshots": make_graph([4] * 20, [[(t % 4, (t + 1) % 4)] for t in range(20)]),
}
NOTHING_TO_LEARN = {"one node", "only self-loops"}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_graphs(name: str) -> None:
    """Without links between known nodes the model learns from the other links, and without those from walks."""
    graph = DEGENERATE[name]
    model = forecaster(walk_weight=0.0).fit(graph)
    assert model.finished_ and (model.score_ is not None) == (name not in NOTHING_TO_LEARN)
    for step in {0, len(graph) // 2, len(graph) - 1}:
        e = model.embed(step)
        assert e.shape == (graph.known[step], 8) and bool(e.isfinite().all())
        pairs = all_pairs(graph.known[step])
        assert model.pair_scores(pairs, step).shape == (len(pairs),)
        assert bool(model.pair_scores(pairs, step).isfinite().all())
    assert all(epoch.loss == epoch.loss for epoch in model.epochs_)
    assert len(model.top_links(99)) == graph.num_nodes * (graph.num_nodes - 1) // 2


@pytest.mark.parametrize("name", ["two snapshots", "one snapshot"])
def test_save_and_load(name: str, tmp_path: Path) -> None:
    model = forecaster().fit(DEGENERATE[name])
    model.save(tmp_path / "model")
    loaded, pairs = DySAT.load(tmp_path / "model", device="cpu"), all_pairs(model.graph_.num_nodes)
    assert loaded.get_params() == model.get_params()
    for step in model.steps():
        assert torch.equal(loaded.embed(step), model.embed(step))
        assert torch.equal(loaded.pair_scores(pairs, step), model.pair_scores(pairs, step))
    assert loaded.top_links(9) == model.top_links(9)
    assert loaded._state().keys() == model._state().keys()


def test_another_processor_computes_the_same_embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a saved model, although eigenvectors are found again; those of earlier versions depend on the processor."""
    model, options = DySAT(**QUICK, spectrum=4).fit(meetings()), {"atol": 1e-5, "rtol": 1e-5}
    model.save(tmp_path / "new")
    model._oriented = False
    model.save(tmp_path / "old")  # its embeddings are those of weights that were learned with other coordinates
    old = DySAT.load(tmp_path / "old", device="cpu").embed()
    choose_other_eigenvectors(monkeypatch)
    loaded = DySAT.load(tmp_path / "new", device="cpu")
    assert_close(loaded.embed(), model.embed(), **options)
    assert loaded._state().keys() - DySAT.load(tmp_path / "old", device="cpu")._state().keys() == {ORIENTED}
    assert not torch.allclose(DySAT.load(tmp_path / "old", device="cpu").embed(), old, atol=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"matched": 1.5}, r"^matched=1\.5 must lie in \[0, 1\]$"),
        ({"matched": -0.1}, r"^matched=-0\.1 must lie in \[0, 1\]$"),
        ({"matched": float("nan")}, r"^matched=nan must lie in \[0, 1\]$"),
        (
            {"walk_weight": 0.0, "future_weight": 0.0, "agreement": 0.0},
            r"^walk_weight=0, future_weight=0 and agreement=0: there is nothing to learn from$",
        ),
        ({"spectrum": -1}, r"^spectrum=-1 must not be negative$"),
        ({"future_weight": -1.0}, r"^future_weight=-1\.0 must not be negative$"),
        ({"walk_weight": float("inf")}, r"^walk_weight=inf must be a finite number$"),
        ({"agreement": float("nan")}, r"^agreement=nan must be a finite number$"),
        ({"future_negatives": 0}, r"^future_negatives=0 must be at least 1$"),
        ({"transitions": 0}, r"^transitions=0 must be at least 1$"),
        ({"positions": "nowhere"}, r"positions"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        DySAT.from_preset("text", **{**QUICK, **options})


@pytest.mark.parametrize("history", [None, 3])
def test_positions_in_time_equal_steps_only_for_even_windows(history: int | None) -> None:
    for widths, same in (([86_400_000_000] * 5, True), ([10, 10, 10, 70, 10], False)):
        graph = with_windows(meetings(), widths)
        options = {"history": history, "pair_score": False, "epochs": 1}
        by_steps, by_time = (forecaster(positions=kind, **options).fit(graph) for kind in ("relative", "time"))
        assert torch.equal(by_steps.embed(), by_time.embed()) == same
        assert torch.equal(by_steps.attention(), by_time.attention()) == same
    assert by_time._times().tolist() == ([0, 1, 2, 9, 10] if history is None else [0, 7, 8])


@pytest.mark.parametrize("positions", ["absolute", "relative", "time"])
def test_history_of_one_step(positions: str) -> None:
    model = forecaster(positions=positions, history=1, pair_score=False).fit(meetings())
    assert model.steps() == range(4, 5) and bool(model.embed().isfinite().all())
    assert_close(model.attention(), torch.ones(8, 1))
