"""DySAT: degenerate graphs, features, history, attention, training."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from small import QUICK, make_graph, meetings
from torch.testing import assert_close

from dysat import DySAT, ModelError
from dysat.training import Epoch, Progress, minimize

each_preset = pytest.mark.parametrize("preset", ["text", "program"])


def quick(preset: str = "text", **changes: Any) -> DySAT:
    return DySAT.from_preset(preset, **{**QUICK, **changes})


DEGENERATE = {
    "one snapshot": make_graph([3], [[(0, 1), (1, 2)]]),
    "one node": make_graph([1], [[(0, 0)]]),
    "one node, then two": make_graph([1, 2], [[(0, 0)], [(0, 1)]]),
    "one link": make_graph([2, 2], [[(0, 1)], [(0, 1)]]),
    "empty at first": make_graph([0, 2, 2], [[], [(0, 1)], [(0, 1)]]),
    "empty in the middle": make_graph([3, 3, 3], [[(0, 1), (1, 2)], [], [(0, 2)]]),
    "empty at the end": make_graph([3, 4, 4], [[(0, 1), (1, 2)], [(0, 3)], []]),
    "never linked": make_graph([4, 4], [[(0, 1), (1, 2)], [(0, 2)]]),  # node 3
    "only self-loops": make_graph([2, 3], [[(0, 0), (1, 1)], [(2, 2)]]),
    "without links": make_graph([3, 3], [[], []]),
    "complete": make_graph([3, 3], [[(0, 1), (0, 2), (1, 2)]] * 2),
    "200 snapshots": make_graph([4] * 200, [[(t % 4, (t + 1) % 4)] for t in range(200)]),
    "heavy": make_graph([3, 3], [[(0, 1), (1, 2)], [(0, 2)]], weights=[[1e9, 1.0], [1e9]]),
    "light": make_graph([3, 3], [[(0, 1), (1, 2)], [(0, 2)]], weights=[[1e-9, 1.0], [0.0]]),
}


@each_preset
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_graphs(name: str, preset: str) -> None:
    graph = DEGENERATE[name]
    model = quick(preset).fit(graph)
    assert model.finished_
    for step in {0, len(graph) // 2, len(graph) - 1}:
        e = model.embed(step)
        assert e.shape == (graph.known[step], 8) and e.isfinite().all()
        assert torch.equal(e, model.embed(step - len(graph)))
        weights = model.attention(step) if len(e) else torch.zeros(0, step + 1)
        assert weights.shape == (graph.known[step], step + 1) and (weights >= 0).all()
        assert_close(weights.sum(1), torch.ones(len(weights)))
    pairs = graph.num_nodes * (graph.num_nodes - 1) // 2
    assert len(model.top_links(1000)) == pairs
    assert all(0 <= link.score <= 1 for link in model.top_links(1000))


@each_preset
def test_graph_without_nodes_is_refused(preset: str) -> None:
    with pytest.raises(ModelError, match=r"^the graph has no nodes to learn from$"):
        quick(preset).fit(make_graph([0], [[]]))


def test_attention_without_known_nodes() -> None:
    assert quick().fit(DEGENERATE["empty at first"]).attention(0).shape == (0, 1)


@each_preset
@pytest.mark.parametrize("inputs", ["features", "both"])
@pytest.mark.parametrize("per_snapshot", [False, True])
def test_features(preset: str, inputs: str, per_snapshot: bool) -> None:
    rng = np.random.default_rng(0)
    graph = meetings()
    parts = [rng.normal(size=(known, 3)) for known in graph.known]
    graph = graph.with_features(parts if per_snapshot else parts[-1])
    model = quick(preset, inputs=inputs).fit(graph)
    assert [model.embed(step).shape for step in range(5)] == [(known, 8) for known in graph.known]
    with torch.no_grad():  # embeddings depend on the features
        before = model.embed()
        model.inputs_ = dataclasses.replace(model.inputs_, values=2 * model.inputs_.values)
        assert not torch.equal(model.embed(), before)
    part = parts[:2] if per_snapshot else parts[-1][: graph.known[1]]
    twin = quick(preset, inputs=inputs).fit(meetings()[:2].with_features(part))
    assert torch.equal(twin.embed(), quick(preset, inputs=inputs).fit(graph[:2]).embed())


def test_missing_or_non_finite_features() -> None:
    for inputs in ("features", "both"):
        with pytest.raises(ModelError, match=f"^inputs='{inputs}', but the graph has no features"):
            quick(inputs=inputs).fit(meetings())
    graph = meetings(np.array(list("abcdefgh"), dtype=object))
    values = torch.ones(8, 2)
    values[3, 1] = torch.nan
    with pytest.raises(ModelError, match=r"^features: node 'd' has a value that is not a finite number$"):
        quick(inputs="features").fit(dataclasses.replace(graph, features=values))
    assert quick().fit(dataclasses.replace(graph, features=values)).embed().isfinite().all()  # features are not used
    parts = tuple(torch.ones(known, 2) for known in graph.known)
    parts[3][7, 0] = torch.inf
    with pytest.raises(ModelError, match=r"^features: node 'h' has a value in snapshot 3 that is not a finite"):
        quick(inputs="both").fit(dataclasses.replace(graph, features=parts))


def test_bad_feature_names_the_snapshot_of_the_graph() -> None:
    graph = meetings()
    parts = tuple(torch.ones(known, 2) for known in graph.known)
    parts[4][7, 0] = torch.inf
    with pytest.raises(ModelError, match="in snapshot 4"):
        quick(inputs="both", history=2).fit(dataclasses.replace(graph, features=parts))


def test_bad_feature_names_the_node_label() -> None:
    values = torch.full((8, 2), torch.nan)
    with pytest.raises(ModelError, match="node 0 has"):
        quick(inputs="features").fit(dataclasses.replace(meetings(), features=values))


def test_features_of_any_dtype_are_converted() -> None:
    expected = quick(inputs="features").fit(dataclasses.replace(meetings(), features=torch.ones(8, 2))).embed()
    for dtype in (torch.float64, torch.int64):
        graph = dataclasses.replace(meetings(), features=torch.ones(8, 2, dtype=dtype))
        assert torch.equal(quick(inputs="features").fit(graph).embed(), expected)


def test_features_without_columns_are_refused() -> None:
    graph = dataclasses.replace(meetings(), features=torch.ones(8, 0))
    with pytest.raises(ModelError, match=r"^inputs='features', but the features of the graph have no columns$"):
        quick(inputs="features").fit(graph)


@each_preset
@pytest.mark.parametrize("history", [1, 2, 4, 5, 99])
def test_history_limits_training_to_the_last_snapshots(preset: str, history: int) -> None:
    graph = meetings()
    model = quick(preset, history=history).fit(graph)
    twin = quick(preset).fit(graph[-min(history, 5) :])
    assert model.steps() == range(max(0, 5 - history), 5) and model.graph_ is graph
    for step in range(-len(model.steps()), 0):
        assert torch.equal(model.embed(step), twin.embed(step))
        assert torch.equal(model.attention(step), twin.attention(step))
    if history < 5:
        for step in (4 - history, -history - 1):
            with pytest.raises(ModelError, match=rf"^step {step}: the model knows steps {5 - history} to 4$"):
                model.embed(step)


def test_steps_out_of_range() -> None:
    model = quick().fit(meetings())
    for step in (5, -6, 10**9):
        for method in (model.embed, model.attention, lambda step: model.score_links([[0, 1]], step, ids=True)):
            with pytest.raises(ModelError, match=rf"^step {step}: the model knows steps 0 to 4$"):
                method(step)


@each_preset
def test_blocks(preset: str) -> None:
    graph = meetings()
    structural = quick(preset, blocks="structural", temporal_features=(16,)).fit(graph)
    assert structural.embed().shape == (8, 8) and not list(structural.network_.temporal)
    with pytest.raises(ModelError, match=r"^blocks='structural': there is no temporal attention"):
        structural.attention()
    # Without temporal attention, snapshots with the same links have the same embeddings.
    twice = make_graph([8, 8], [[(0, 1), (2, 3), (1, 2)], [(0, 1), (2, 3), (1, 2)]])
    alone = quick(preset, blocks="structural").fit(twice)
    assert_close(alone.embed(0), alone.embed(1))
    # Without structural attention, links enter only through the loss: an untrained network does not depend on them.
    temporal = quick(preset, blocks="temporal", epochs=0)
    other = make_graph(graph.known, [[(0, 1)]] * 5)
    assert torch.equal(temporal.fit(graph).embed(), quick(preset, blocks="temporal", epochs=0).fit(other).embed())
    assert not list(temporal.network_.structural)


def test_attention_is_zero_where_a_node_was_not_known() -> None:
    graph = meetings()
    for unknown, seen in (("masked", False), ("zero", True)):
        model = quick(unknown=unknown).fit(graph)
        for step in range(5):
            known = torch.arange(graph.known[step])[:, None] < torch.tensor(graph.known[: step + 1])
            assert torch.equal(model.attention(step) > 0, known | seen)


def test_epochs_are_reported() -> None:
    """Stopping and resuming are tested in test_conformance.py."""
    seen: list[Epoch] = []
    model = quick("program", epochs=4, batch_size=3).fit(meetings(), on_epoch=seen.append)
    assert model.finished_ and seen == model.epochs_ and [epoch.number for epoch in seen] == [1, 2, 3, 4]
    assert all(isinstance(epoch, Epoch) and epoch.score is None and epoch.seconds >= 0 for epoch in seen)
    assert quick(epochs=0).fit(meetings()).finished_


def test_seed_determines_weights_and_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [quick(seed=seed, epochs=0).fit(meetings()).network_.state_dict() for seed in (0, 1)]
    assert not any(torch.equal(first[0][name], first[1][name]) for name in first[0] if not name.endswith("_bias"))
    seeds: list[int] = []

    def watch(*given: Any, generator: torch.Generator, **options: Any) -> Progress:
        seeds.append(generator.initial_seed())
        return minimize(*given, generator=generator, **options)

    monkeypatch.setattr("dysat.models.base.trained.minimize", watch)
    for seed in (3, 2**63):
        quick(seed=seed).fit(meetings())
    assert seeds == [3, 2**63]


def test_validation_selects_the_epoch_and_patience_stops() -> None:
    graph, seen = meetings(), []
    given = [0.1, 0.9, 0.3, 0.2, 0.1]

    def validate(model: DySAT) -> float:
        seen.append(model.embed())
        return given[len(seen) - 1]

    model = quick(epochs=5).fit(graph, validate=validate)
    assert torch.equal(model.embed(), seen[1]) and not torch.equal(seen[1], seen[4])
    assert torch.equal(model.embed(), quick(epochs=2).fit(graph).embed())
    assert [epoch.score for epoch in model.epochs_] == given and model.epochs_[-1].best == 2
    seen.clear()
    patient = quick(epochs=5, patience=2).fit(graph, validate=validate)
    assert len(patient.epochs_) == 4 and patient.finished_ and torch.equal(patient.embed(), model.embed())


def test_validation_may_score_links() -> None:
    model = quick().fit(meetings(), validate=lambda model: float(model.score_links([[0, 1]], ids=True)[0]))
    assert all(epoch.score is not None and 0 < epoch.score < 1 for epoch in model.epochs_)


@pytest.mark.parametrize("method", ["embed", "attention", "top_links"])
def test_unfitted_model_raises(method: str) -> None:
    with pytest.raises(ModelError, match=r"^the model has learned nothing yet; call fit\(graph\) first$"):
        getattr(quick(), method)()
