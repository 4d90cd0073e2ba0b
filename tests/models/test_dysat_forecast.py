"""DySAT with forecasting objectives: no data leakage, unseen nodes, scores, training."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import quick
from small import FORECASTING, QUICK, all_pairs, make_graph, meetings, two_blocks
from torch.testing import assert_close

from dysat import DynamicGraph, DySAT, ModelError
from dysat.models.forecast.pair_score import PairScore
from dysat.training import Progress

__all__ = ["quick"]


def forecaster(**changes: Any) -> DySAT:
    return DySAT.from_preset("text", **{**FORECASTING, **changes})


def changed_after(graph: DynamicGraph, step: int) -> DynamicGraph:
    """The same graph up to a step, with other links and more nodes afterwards."""
    size = graph.num_nodes + 3
    links = [(0, size - 1), (1, 4), (size - 2, size - 1), (2, 2), (0, 5)]
    later = make_graph([size], [links], weights=[[9.0] * len(links)])[0]
    moved = [replace(later, start=s.start, stop=s.stop) for s in graph.snapshots[step + 1 :]]
    return replace(graph, snapshots=(*graph.snapshots[: step + 1], *moved), nodes=np.arange(size))


class TestNoFutureLeakage:
    @pytest.mark.parametrize("t", [1, 3])
    @pytest.mark.parametrize("walk_weight", [0.0, 1.0])
    def test_fit_does_not_depend_on_later_snapshots(self, t: int, walk_weight: float) -> None:
        graph = meetings()
        other = changed_after(graph, t)
        assert not torch.equal(graph[t + 1].neighbours, other[t + 1].neighbours)
        one, two = (forecaster(walk_weight=walk_weight).fit(g[: t + 1]) for g in (graph, other))
        assert len(one.graph_) == len(two.graph_) == t + 1 and two.graph_.num_nodes == graph.known[t]
        for step in range(t + 1):
            assert torch.equal(one.embed(step), two.embed(step))
            pairs = all_pairs(graph.known[step])
            assert torch.equal(one.pair_scores(pairs, step), two.pair_scores(pairs, step))
        assert one.top_links(99) == two.top_links(99)
        assert one._state().keys() == two._state().keys()
        assert all(torch.equal(value, two._state()[name]) for name, value in one._state().items())

    def test_model_keeps_no_reference_to_later_snapshots(self) -> None:
        graph = meetings()
        later, now = [weakref.ref(graph[t]) for t in (3, 4)], weakref.ref(graph[2])
        model = forecaster().fit(graph[:3])
        assert model.graph_.num_nodes == 8 and model.graph_.nodes.base is None
        del graph
        gc.collect()
        assert [snapshot() for snapshot in later] == [None, None] and now() is not None

    @pytest.mark.parametrize("t", [1, 3])
    def test_results_of_a_step_do_not_depend_on_later_snapshots(self, t: int) -> None:
        """A model trained on all snapshots uses nothing after a step to embed and score at that step."""
        graph = meetings()
        model, twin = forecaster().fit(graph), forecaster()
        later = make_graph(graph.known[t + 1 :], [[(0, 4), (1, 5), (2, 3)]] * (4 - t))
        moved = [replace(s, start=s.start + t + 1, stop=s.stop + t + 1) for s in later]
        twin.graph_ = replace(graph, snapshots=(*graph.snapshots[: t + 1], *moved), nodes=graph.nodes.copy())
        twin._take_state(model._state())
        for step in range(t + 1):
            pairs = all_pairs(graph.known[step])
            assert_close(twin.embed(step), model.embed(step), atol=1e-6, rtol=1e-6)
            assert_close(twin.pair_scores(pairs, step), model.pair_scores(pairs, step), atol=1e-6, rtol=1e-6)
        pairs = all_pairs(8)
        assert (twin.embed(t + 1) - model.embed(t + 1)).abs().max() > 1e-3
        assert (twin.pair_scores(pairs, t + 1) - model.pair_scores(pairs, t + 1)).abs().max() > 1e-3

    def test_transitions_limits_the_training_examples(self) -> None:
        plain = {**QUICK, "walk_weight": 0.0, "future_weight": 1.0}
        one, all_four, more = (
            DySAT.from_preset("text", **plain, transitions=n).fit(meetings()).embed() for n in (1, 4, 9)
        )
        assert torch.equal(all_four, more) and not torch.equal(one, more)


class TestUnseenNodes:
    """With inputs="features" a model has no parameters of single nodes."""

    @staticmethod
    def grown() -> DynamicGraph:
        """One more snapshot; nodes 8 and 9 link to the same nodes, 10 to another."""
        more = make_graph([11], [[(0, 8), (2, 8), (0, 9), (2, 9), (3, 10), (1, 7)]])[0]
        return meetings().extended(replace(more, start=5, stop=6), nodes=[8, 9, 10])

    @pytest.mark.parametrize(
        ("spectrum", "positions", "history"),
        [(0, "relative", None), (2, "relative", None), (0, "time", None), (0, "relative", 3), (0, "absolute", 3)],
    )
    def test_embedded_without_training(self, spectrum: int, positions: str, history: int | None) -> None:
        options = {"inputs": "features", "spectrum": spectrum, "positions": positions, "history": history}
        model = forecaster(**options).fit(meetings())
        later = model.applied_to(self.grown())
        e = later.embed()
        assert e.shape == (11, 8) and bool(e.isfinite().all())
        assert all(torch.equal(value, later._state()[name]) for name, value in model._state().items())
        assert_close(e[8], e[9], atol=1e-5, rtol=1e-5)  # they have the same links
        assert (e[8] - e[10]).abs().max() > 1e-3
        pairs = all_pairs(11)
        assert bool(later.pair_scores(pairs).isfinite().all()) and len(later.top_links(99)) == len(pairs)
        for step in (3, 4) if history is None else ():  # earlier steps do not change
            assert_close(later.embed(step), model.embed(step), atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize(
        ("changes", "name"),
        [({"inputs": "identity"}, "table"), ({"inputs": "features", "positions": "absolute"}, "position")],
    )
    def test_refused_with_identity_inputs_or_absolute_positions(self, changes: dict[str, Any], name: str) -> None:
        model, later = forecaster(**changes).fit(meetings()), forecaster(**changes)
        later.graph_ = self.grown()
        with pytest.raises(ModelError, match=rf"(?s)^the weights do not fit the model: .*{name}"):
            later._take_state(model._state())


@pytest.mark.parametrize("axes", [{}, {"axes": torch.eye(7)}, {"axes": torch.ones(8)}])
def test_state_without_valid_axes_is_refused(axes: dict[str, torch.Tensor]) -> None:
    model, other = forecaster().fit(meetings()), forecaster()
    other.graph_ = meetings()
    state = {name: value for name, value in model._state().items() if name != "axes"}
    with pytest.raises(ModelError, match=r"^the weights do not fit the model: axes, 8 wide, are needed$"):
        other._take_state({**state, **axes})


def test_applied_to_refuses_identity_inputs() -> None:
    with pytest.raises(
        ModelError, match=r"^inputs='identity': only a model with inputs='features' can embed unseen nodes"
    ):
        forecaster().fit(meetings()).applied_to(meetings())


@pytest.mark.parametrize("node", range(8))
def test_requested_node_comes_first(node: int) -> None:
    found = forecaster().fit(meetings()).top_links(9, node=node)
    assert len(found) == 7 and all(link.u == node != link.v for link in found)


def test_pair_score_changes_scores_but_not_embeddings() -> None:
    graph, pairs = meetings(), all_pairs(8)
    with_it, without = (forecaster(pair_score=on).fit(graph) for on in (True, False))
    assert torch.equal(with_it.embed(), without.embed())
    assert (with_it.pair_scores(pairs) - without.pair_scores(pairs)).abs().max() > 0.01
    pair_score = PairScore.learn(graph, transitions=2, seed=0)
    assert pair_score is not None
    assert_close(with_it.pair_scores(pairs), pair_score.log_odds(graph, 4, pairs))


def test_embeddings_reproduce_the_learned_scores() -> None:
    """Embeddings are rotated to the axes of the score, and give the same scores."""
    model, pairs = forecaster(pair_score=False).fit(meetings()), all_pairs(8)
    x = super(DySAT, model).embed()
    assert model.score_ is not None
    with torch.no_grad():
        learned = model.score_(x[pairs[:, 0]], x[pairs[:, 1]])
    assert_close(model.pair_scores(pairs), learned, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module", params=[(False, False), (False, True), (True, False), (True, True)], ids=str)
def scored(request: pytest.FixtureRequest) -> DySAT:
    """With and without kinds, with and without a pair score."""
    kinds, pair_score = request.param
    graph = meetings().with_kinds([0, 1] * 4, ["user", "item"]) if kinds else meetings()
    return forecaster(pair_score=pair_score).fit(graph)


@pytest.mark.parametrize("choice", [{}, {"known": "exclude"}, {"node": 3}])
def test_top_links_equal_brute_force(choice: dict[str, Any], scored: DySAT) -> None:
    model, graph = scored, scored.graph_
    linked = {(u, v) for s in graph for u, v in zip(*(part.tolist() for part in s.links()[:2]), strict=True)}
    pairs = [
        (u, v)
        for u, v in combinations(range(8), 2)
        if (graph.kinds is None or (u + v) % 2) and choice.get("node", u) in (u, v)
        if "known" not in choice or (u, v) not in linked
    ]
    scores = model.score_links(pairs, ids=True).tolist()
    best = sorted(zip(scores, pairs, strict=True), reverse=True)
    for k in (3, 99):
        found = model.top_links(k, **choice)
        assert len(found) == min(k, len(pairs))
        assert [link.score for link in found] == pytest.approx([score for score, _ in best[:k]], abs=1e-6)
        for link in found:
            pair = min(link.u, link.v), max(link.u, link.v)
            assert link.score == pytest.approx(scores[pairs.index(pair)], abs=1e-6)
            assert link.known == (pair in linked)
        assert len({frozenset((link.u, link.v)) for link in found}) == len(found)


@pytest.mark.parametrize("walk_weight", [0.0, 0.5])
def test_resume_reaches_the_same_result(walk_weight: float) -> None:
    graph, kept = meetings(), []
    options: dict[str, Any] = {"epochs": 4, "batch_size": 3, "walk_weight": walk_weight, "structural_dropout": 0.2}
    whole = forecaster(**options).fit(graph)

    def keep(now: Progress) -> None:
        kept.append(Progress.restore(now.facts(), {name: tensor.clone() for name, tensor in now.tensors.items()}))

    part = forecaster(**options).fit(graph, stop=lambda: True, keep=keep)
    assert not part.finished_ and len(part.epochs_) == 1 and "now/score/weights" in kept[0].tensors
    done = forecaster(**options).fit(graph, progress=kept[0])
    assert done.finished_ and [epoch.loss for epoch in done.epochs_] == [epoch.loss for epoch in whole.epochs_]
    assert not torch.equal(part.embed(), whole.embed())
    assert all(torch.equal(value, done._state()[name]) for name, value in whole._state().items())
    assert torch.equal(done.embed(), whole.embed()) and done.top_links(99) == whole.top_links(99)


def test_best_epoch_restores_the_score_weights() -> None:
    """Validation keeps the weights of the product score together with those of the network."""
    graph, seen, given = meetings(), [], [0.1, 0.9, 0.3]

    def validate(model: DySAT) -> float:
        seen.append(model.embed())
        return given[len(seen) - 1]

    model = forecaster(epochs=3).fit(graph, validate=validate)
    assert torch.equal(model.embed(), seen[1]) and not torch.equal(seen[1], seen[2])
    short = forecaster(epochs=2).fit(graph)
    assert all(torch.equal(value, short._state()[name]) for name, value in model._state().items())


def test_next_snapshot_is_learned() -> None:
    """The loss falls, and links of the next snapshot score higher than other pairs by the embeddings alone."""
    graph = two_blocks(20, 5)
    options = {"epochs": 60, "walk_weight": 0.0, "agreement": 0.0, "pair_score": False, "transitions": 3}
    model = forecaster(**options).fit(graph[:-1])
    assert model.epochs_[-1].loss < 0.8 * model.epochs_[0].loss
    pairs = all_pairs(20)
    u, v, _ = graph[-1].links()
    linked = torch.isin(pairs[:, 0] * 20 + pairs[:, 1], u * 20 + v)
    scores = model.score_links(pairs, ids=True)
    above = scores[linked][:, None] - scores[~linked]
    assert ((above > 0).float() + 0.5 * (above == 0)).mean() > 0.8


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("walk_weight", [0.0, 1.0])
def test_learns_on_cuda_and_loads_on_cpu(walk_weight: float, tmp_path: Path) -> None:
    graph = two_blocks(20, 5)
    model = forecaster(device="cuda", epochs=40, walk_weight=walk_weight).fit(graph)
    assert model.embed().is_cuda and model.epochs_[-1].loss < model.epochs_[0].loss
    model.save(tmp_path / "model")
    there, pairs = DySAT.load(tmp_path / "model", device="cpu"), all_pairs(20)
    assert_close(there.embed(), model.embed().cpu(), atol=1e-3, rtol=1e-2)
    assert_close(there.pair_scores(pairs), model.pair_scores(pairs), atol=1e-3, rtol=1e-2)


def test_keep_epoch_last_ignores_validation() -> None:
    graph, found = meetings(), {}
    for choice in ("best", "last"):
        scores = iter([0.9, 0.5, 0.4, 0.8])
        model = forecaster(epochs=4, patience=2, keep_epoch=choice)
        found[choice] = model.fit(graph, validate=lambda _, s=scores: next(s))
    best, last = found.values()
    assert [epoch.number for epoch in best.epochs_] == [1, 2, 3] and best.epochs_[-1].best == 1
    assert [epoch.number for epoch in last.epochs_] == [1, 2, 3, 4] and last.epochs_[-1].best == 4
    assert torch.equal(last.embed(), forecaster(epochs=4).fit(graph).embed())
    assert torch.equal(best.embed(), forecaster(epochs=1).fit(graph).embed())


def test_a_model_from_before_features_were_used_is_refused() -> None:
    graph = meetings()
    old = forecaster(spectrum=2).fit(graph)
    new = forecaster(spectrum=2).fit(graph.with_features(torch.ones(graph.num_nodes, 2)))
    with pytest.raises(ModelError, match=r"earlier versions did not use the node features of the graph; fit the model"):
        new._take_state(old._state())
