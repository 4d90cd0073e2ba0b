"""IncSAT: learns one snapshot at a time, from stored summaries of earlier ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import QUICK, make_graph, meetings
from torch import Tensor
from torch.testing import assert_close

import dysat
from dysat.errors import GraphError, ModelError
from dysat.models.base.link_model import Incremental
from dysat.models.incsat import IncSAT
from dysat.training import Progress

PRESETS = ["text", "program"]
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def quick(preset: str = "text", **changes: Any) -> IncSAT:
    return IncSAT.from_preset(preset, **{**QUICK, "batch_size": 4, "l2": 0.05, **changes})


def take_in_one_by_one(model: IncSAT, graph: dysat.DynamicGraph) -> IncSAT:
    before = 0
    for snapshot in graph:
        model.partial_fit(snapshot, graph.nodes[before : snapshot.num_nodes])
        before = snapshot.num_nodes
    return model


def state(model: IncSAT) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model._state().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize(
    ("preset", "history"),
    [
        pytest.param(preset, history, marks=() if (preset == "text") == (history is None) else pytest.mark.slow)
        for preset in PRESETS
        for history in (None, 2)
    ],
)
def test_fit_equals_repeated_partial_fit(preset: str, history: int | None) -> None:
    graph = meetings(np.array(list("abcdefgh"), dtype=object))
    whole = quick(preset, history=history).fit(graph)
    parts = take_in_one_by_one(quick(preset, history=history), graph)
    assert_same(state(whole), state(parts))
    assert whole.top_links(99) == parts.top_links(99)
    chain = quick(preset, history=history)
    for _ in graph:
        chain.take_in(graph)
    assert_same(state(whole), state(chain))
    with pytest.raises(ModelError, match="seen all 5"):
        chain.take_in(graph)
    assert isinstance(chain, Incremental) and not isinstance(dysat.DySAT(), Incremental)


@pytest.mark.parametrize("preset", PRESETS)
def test_update_does_not_read_earlier_snapshots(preset: str) -> None:
    graph = meetings()
    model, blind = quick(preset).fit(graph[:4]), quick(preset).fit(graph[:4])
    other = make_graph(graph.known[:4], [[(0, 5)]] * 4)
    blind.graph_ = replace(other, nodes=graph.nodes[:8].copy())
    for one in (model, blind):
        one.partial_fit(graph[4])
    assert_same(state(model), state(blind))


def test_stored_steps_do_not_change() -> None:
    graph = meetings()
    model = quick().fit(graph[:3])
    before = [rows.copy() for rows in model.summary_ if rows is not None]
    model.partial_fit(graph[3])
    assert [len(rows) for rows in model.summary_ if rows is not None] == [6, 7, 8, 8]
    assert all(np.array_equal(a, b) for a, b in zip(before, model.summary_, strict=False))  # type: ignore[arg-type]


def test_loss_on_one_snapshot_equals_dysat() -> None:
    graph = meetings()[:1]
    options = {**QUICK, "l2": 0.0, "structural_dropout": 0.0, "temporal_dropout": 0.0}
    one, other = (kind.from_preset("text", **options).fit(graph) for kind in (dysat.DySAT, dysat.IncSAT))
    other.network_.load_state_dict(one.network_.state_dict())
    other.summary_ = []  # the step is computed, as during training
    losses = []
    for model in (one, other):
        sampler = model.sampler(torch.Generator().manual_seed(1))
        losses.append(model.loss(sampler)(torch.arange(6), torch.Generator().manual_seed(2)))
    assert_close(losses[0], losses[1])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"history": 2},
        {"blocks": "structural"},
        {"blocks": "temporal"},
        {"temporal_heads": (2, 2), "temporal_features": (8, 8)},
        {"residual": True, "add_self_loops": True, "unknown": "zero", "scale": "steps"},
        {"unknown": "zero"},
    ],
)
def test_continuing_a_trained_dysat(options: dict[str, Any]) -> None:
    graph = meetings()
    model = dysat.DySAT.from_preset("text", **{**QUICK, **options}).fit(graph[:4])
    expected = [model.embed(step) for step in model.steps()]
    continued = IncSAT.continuing(model)
    assert continued.steps() == model.steps() and continued.top_links(9) == model.top_links(9)
    for step, e in zip(model.steps(), expected, strict=True):
        assert torch.equal(continued.embed(step), e)
    if options.get("blocks") != "structural":
        assert torch.equal(continued.attention(), model.attention())
    continued.partial_fit(graph[4])
    assert len(continued.graph_) == 5 and continued.embed().isfinite().all()
    assert torch.equal(model.embed(), expected[-1])  # unchanged


def test_new_nodes_get_rows_and_absent_ones_keep_theirs() -> None:
    links = [[(0, 1), (1, 2), (2, 3), (3, 0)], [(0, 1), (1, 4), (4, 0)]]
    graph = make_graph([4, 5], links)
    model = quick(structural_dropout=0.0).fit(graph[:1])
    before = {name: value.clone() for name, value in model.weights().items()}
    model.partial_fit(graph[1])
    table = next(name for name in before if name.endswith("table"))
    after = model.weights()[table]
    assert before[table].shape == (4, 8) and after.shape == (5, 8)
    assert torch.equal(after[2:4], before[table][2:])  # nodes 2 and 3 are absent, and not penalised either
    assert not torch.isclose(after[:2], before[table][:2]).any()
    assert len(model.weights()["position"]) == 2
    e = model.embed()
    assert len(e) == 5 and e.isfinite().all() and not torch.equal(e[2], e[3])  # their histories differ


@pytest.mark.parametrize("carry", [True, False])
def test_carry_keeps_or_resets_the_weights(carry: bool) -> None:
    graph = meetings()
    model = quick(carry=carry).fit(graph[:2])
    before = {name: value.clone() for name, value in model.weights().items()}
    model.epochs = 0
    model.partial_fit(graph[2])
    assert all(torch.equal(model.weights()[name][: len(old)], old) for name, old in before.items()) is carry
    if not carry:
        fresh = quick(carry=False, epochs=0).fit(graph[:3])
        assert_same(model.weights(), fresh.weights())


def test_history_drops_older_steps() -> None:
    graph = meetings()
    model = quick(history=2).fit(graph)
    assert [rows is None for rows in model.summary_] == [True, True, True, False, False]
    assert model.steps() == range(3, 5) and len(model.weights()["position"]) == 2
    with pytest.raises(ModelError, match="knows steps 3 to 4"):
        model.embed(2)
    short, long = quick(history=5).fit(graph), quick(history=None).fit(graph)
    assert_same(state(short), state(long))  # no effect with fewer steps
    assert not torch.equal(model.embed(), long.embed())


def test_snapshot_without_links() -> None:
    graph = make_graph([3, 3, 3, 4], [[(0, 1), (1, 2)], [], [], [(0, 3)]])
    model = quick().fit(graph)
    assert len(model.summary_) == 4 and not np.any(model.summary_[1])
    assert model.embed().shape == (4, 8) and model.attention().shape == (4, 4)
    assert_same(state(model), state(take_in_one_by_one(quick(), graph)))


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda m: m.partial_fit(replace(meetings()[4], start=9, stop=10)), "begins at 9, but the last one ends at 4"),
        (
            lambda m: m.partial_fit(replace(meetings()[0], start=4, stop=5)),
            "has 6 nodes, fewer than the 8 of the graph",
        ),
        (lambda m: m.partial_fit(meetings()[4], ["new"]), "not a whole number"),
        (lambda m: m.partial_fit(meetings()[4], [8]), "1 labels for 0 new nodes"),
    ],
)
def test_failed_update_changes_nothing(give: Callable[[IncSAT], Any], message: str) -> None:
    model = quick().fit(meetings()[:4])
    before = state(model)
    with pytest.raises(GraphError, match=message):
        give(model)
    assert_same(state(model), before)
    assert len(model.graph_) == 4


def test_error_during_an_update_changes_nothing() -> None:
    model, graph = quick().fit(meetings()[:4]), meetings()

    def fails(epoch: Any) -> None:
        raise KeyboardInterrupt

    before = state(model)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(graph[4], on_epoch=fails)
    assert_same(state(model), before)
    assert_same(state(model.partial_fit(graph[4])), state(quick().fit(graph)))


def test_resume_reaches_the_same_result_from_every_epoch() -> None:
    graph = meetings()[:3]
    whole = quick(epochs=2).fit(graph)
    for stop_at in range(1, 6):  # in the middle and at the end of each snapshot
        kept: list[Progress] = []
        answers = iter([False] * (stop_at - 1) + [True] * 99)
        stopped = quick(epochs=2).fit(graph, stop=partial(next, answers), keep=kept.append, keep_every=1e9)
        assert not stopped.finished_
        progress = Progress.restore(kept[-1].facts(), kept[-1].tensors)
        assert_same(state(quick(epochs=2).fit(graph, progress=progress)), state(whole))


def test_stopped_update_keeps_its_epochs() -> None:
    graph = meetings()
    model = quick(epochs=5).fit(graph[:4])
    model.partial_fit(graph[4], stop=lambda: True)
    assert not model.finished_ and len(model.epochs_) == 1 and len(model.summary_) == 5
    assert model.embed().isfinite().all()


def test_epochs_are_numbered_across_snapshots() -> None:
    seen: list[tuple[int, int]] = []
    quick(epochs=2).fit(meetings(), on_epoch=lambda epoch: seen.append((epoch.number, epoch.best)))
    assert seen == [(i, i) for i in range(1, 11)]


def test_best_epoch_of_the_last_snapshot_is_kept() -> None:
    scores, seen = iter([1.0, 3.0, 2.0]), list[Tensor]()

    def validate(model: IncSAT) -> float:
        seen.append(model.embed())
        return next(scores)

    model = quick(epochs=3).fit(meetings(), validate=validate)
    assert [epoch.score for epoch in model.epochs_] == [1.0, 3.0, 2.0] and model.epochs_[-1].best == 2
    assert_close(model.embed(), seen[1])
    assert not torch.isclose(seen[1], seen[2]).all()


def test_partial_fit_without_fit() -> None:
    graph = meetings()
    model = quick().partial_fit(graph[0])
    assert model.graph_.nodes.tolist() == list(range(6)) and model.graph_.clock == "step"
    model.partial_fit(graph[1])  # integer labels continue automatically
    assert model.graph_.num_nodes == 7
    named = quick().partial_fit(graph[0], list("abcdef"))
    with pytest.raises(GraphError, match="no labels"):
        named.partial_fit(graph[1])
    named.partial_fit(graph[1], ["g"])
    assert named.top_links(1)[0].u in "abcdefg"


def test_partial_fit_with_features() -> None:
    values = np.random.default_rng(0).normal(size=(8, 3))
    graph = meetings().with_features(values)
    whole = quick(inputs="features").fit(graph)
    parts = quick(inputs="features").fit(graph[:2])
    parts.partial_fit(graph[2], features=values[7:])
    parts.partial_fit(graph[3]).partial_fit(graph[4])
    assert_same(state(whole), state(parts))
    with pytest.raises(ModelError, match="no features"):
        quick(inputs="features").fit(meetings())


def test_loaded_model_continues_identically(tmp_path: Path) -> None:
    graph = meetings()
    quick().fit(graph[:4]).save(tmp_path / "model")
    loaded = IncSAT.load(tmp_path / "model", device="cpu")
    assert_same(state(loaded.partial_fit(graph[4])), state(quick().fit(graph)))


@cuda
def test_on_cuda() -> None:
    graph = meetings()
    model = quick(device="cuda").fit(graph[:3])
    for snapshot in (graph[3], graph[4]):
        model.partial_fit(snapshot)
    assert model.embed().is_cuda and model.embed().isfinite().all()
    assert_close(model.attention().sum(1).cpu(), torch.ones(8))
