"""DynGEM: training snapshot by snapshot, warm starts and growth. The network: test_dyngem_network.py."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import make_graph, meetings
from torch import Tensor
from torch.testing import assert_close

import dysat
from dysat.errors import GraphError, ModelError
from dysat.models.base.link_model import Incremental
from dysat.models.baselines.dyngem import DynGEM, prop_size
from dysat.training import Progress

GROWING: dict[str, Any] = {"features": 3, "hidden": (4,), "ratio": 0.7}


def quick(**changes: Any) -> DynGEM:
    options = {"features": 4, "hidden": (6,), "epochs": 3, "batch_size": 4, "device": "cpu"}
    return DynGEM(**{**options, **changes})


def state(model: DynGEM) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model._state().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def one_by_one(model: DynGEM, graph: dysat.DynamicGraph) -> DynGEM:
    before = 0
    for snapshot in graph:
        model.partial_fit(snapshot, graph.nodes[before : snapshot.num_nodes])
        before = snapshot.num_nodes
    return model


def adjacency(graph: dysat.DynamicGraph, steps: range, link_weights: str) -> Tensor:
    s = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    for step in steps:
        for u, v, weight in zip(*(part.tolist() for part in graph[step].links()), strict=True):
            s[u, v] += weight
            if u != v:
                s[v, u] += weight
    if link_weights == "binary":
        return (s > 0).double()
    return s / s.max() if link_weights == "normalized" else s


@pytest.mark.parametrize(
    ("rows", "link_weights", "output"),
    [
        ("snapshot", "raw", "relu"),
        ("snapshot", "binary", "linear"),
        ("so-far", "raw", "linear"),
        ("so-far", "normalized", "relu"),
        ("so-far", "binary", "relu"),
    ],
)
def test_loss_and_embeddings_match_their_formulas(rows: str, link_weights: str, output: str) -> None:
    options = {"alpha": 0.3, "beta": 2.0, "nu1": 0.2, "nu2": 0.1, **GROWING}
    graph = meetings()[:2]
    model = quick(rows=rows, link_weights=link_weights, output=output, **options).fit(graph)
    steps = range(1, 2) if rows == "snapshot" else range(2)
    s = adjacency(graph, steps, link_weights)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.network_.parameters():  # biases too
            p.uniform_(-0.3, 0.6, generator=generator)
    learned = {name: value.double() for name, value in model.weights().items()}
    number = len(model.network_.weights)
    layers = [(learned[f"weights.{i}"], learned[f"biases.{i}"]) for i in range(number)]
    between = [s]
    for weight, bias in layers:
        z = between[-1] @ weight + bias
        between.append(z if output == "linear" and len(between) == number else z.clamp(min=0))
    y, made = between[number // 2], between[-1]
    model.embeddings_.pop()  # the step is encoded, as during training
    assert_close(model.embed(), y.float(), atol=1e-5, rtol=1e-4)
    assert y.abs().max() > 0.1

    active = [i for i in range(7) if s[i].any()]
    batch, penalty = active[1:4], 0.0
    for weight, _ in layers:
        for w in weight.flatten().tolist():
            penalty += 0.2 * abs(w) + 0.1 * w * w
    wanted = 0.0
    for i in batch:
        for j in range(7):
            b = 2.0 if s[i, j] > 0 else 1.0
            wanted += (b * (made[i, j] - s[i, j]).item()) ** 2
            wanted += 0.3 * s[i, j].item() * (y[i] - y[j]).square().sum().item()
    loss = model.loss(model.rows_, len(active))(torch.tensor([*batch, -1]), torch.Generator())
    assert_close(loss.item(), wanted / 3 + penalty / len(active), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("options", [pytest.param({}, marks=pytest.mark.slow), GROWING | {"rows": "so-far"}])
def test_fit_equals_a_loop_over_partial_fit(options: dict[str, Any]) -> None:
    graph = meetings(np.array(list("abcdefgh"), dtype=object))
    whole = quick(**options).fit(graph)
    parts = one_by_one(quick(**options), graph)
    assert_same(state(whole), state(parts))
    assert whole.top_links(99) == parts.top_links(99)
    chain = quick(**options)
    for number, _ in enumerate(graph, 1):
        chain.take_in(graph)
        assert_same(state(chain), state(quick(**options).fit(graph[:number])))
    with pytest.raises(ModelError, match="seen all 5"):
        chain.take_in(graph)
    assert isinstance(chain, Incremental)


def test_a_step_starts_with_the_weights_of_the_step_before() -> None:
    graph = meetings()
    model = quick(ratio=0.0).fit(graph[:2])
    before, e = model.weights(), model.embed()
    before = {name: value.clone() for name, value in before.items()}
    model.epochs = 0
    model.partial_fit(graph[2])
    after = model.weights()
    assert after["weights.0"].shape == (8, 6) and after["weights.3"].shape == (6, 8)
    assert torch.equal(after["weights.0"][:7], before["weights.0"])
    assert torch.equal(after["weights.3"][:, :7], before["weights.3"])
    for name in ("biases.0", "weights.1", "biases.1", "weights.2", "biases.2"):
        assert torch.equal(after[name], before[name])
    assert torch.equal(model.embed(1), e) and model.embed().shape == (8, 4)


def test_the_network_grows_by_prop_size_and_keeps_learning() -> None:
    known = [6, 10, 40, 40]
    rng = np.random.default_rng(0)
    links = [sorted({(i, int(rng.integers(i))) for i in range(1, number)}) for number in known]
    graph, sizes = make_graph(known, links), (6, 4, 3)
    model = quick(**GROWING | {"ratio": 0.5})
    for number in known:
        model.take_in(graph)
        sizes = prop_size((number, *sizes[1:]), 0.5)
        assert model.network_.sizes == sizes
    assert sizes == (40, 20, 10, 5, 3)
    assert [len(e) for e in model.embeddings_] == known and model.embed().isfinite().all()
    longer = quick(**GROWING | {"ratio": 0.5, "epochs": 20, "batch_size": 10, "learning_rate": 5e-3}).fit(graph)
    assert longer.network_.sizes == sizes and longer.epochs_[-1].loss < 0.9 * longer.epochs_[0].loss


def test_embeddings_of_earlier_steps_are_kept() -> None:
    graph = meetings()
    model = quick().fit(graph[:3])
    before = [model.embed(step) for step in range(3)]
    model.partial_fit(graph[3])
    assert all(torch.equal(model.embed(step), e) for step, e in enumerate(before))
    assert [len(model.embed(step)) for step in model.steps()] == [6, 7, 8, 8]
    model.embed(1).zero_()
    assert torch.equal(model.embed(1), before[1])  # embed returns a copy


def test_a_node_without_links_has_the_embedding_of_an_empty_row() -> None:
    links = [[(0, 1), (1, 2), (2, 3), (3, 4)], [(0, 1)], []]
    graph = make_graph([5, 5, 5], links)
    model = quick().fit(graph)
    one = model.embed(1)
    assert torch.equal(one[2], one[3]) and torch.equal(one[2], one[4]) and not torch.equal(one[0], one[2])
    empty = model.embed(2)
    assert (empty == empty[0]).all() and model.epochs_ == [] and model.finished_
    assert_close(empty[0], one[2])  # nothing to train on
    past = quick(rows="so-far").fit(graph)
    assert not torch.isclose(past.embed(1)[2], past.embed(1)[3]).all()
    # The rows equal those of the step before, and training continues on them.
    assert len(past.epochs_) == 3 and not torch.equal(past.embed(1), past.embed(2))


def test_growth_without_hidden_layers_on_small_graphs(tmp_path: Path) -> None:
    graphs: list[tuple[list[int], list[Any]]] = [
        ([3], [[]]),
        ([1, 2], [[(0, 0)], [(0, 1)]]),
        ([4, 6], [[], [(0, 5)]]),
        ([5], [[(0, 1), (2, 3)]]),
        ([3, 3, 3], [[(0, 1), (1, 2)], [], []]),
    ]
    for number, (known, links) in enumerate(graphs):
        model = quick(hidden=(), ratio=0.5, features=1).fit(make_graph(known, links))
        for step, size in enumerate(known):
            assert model.embed(step).shape == (size, 1) and model.embed(step).isfinite().all()
        assert len(model.top_links(99)) == known[-1] * (known[-1] - 1) // 2
        model.save(tmp_path / str(number))
        assert_same(state(DynGEM.load(tmp_path / str(number), device="cpu")), state(model))


def test_zero_and_huge_weights_give_finite_embeddings() -> None:
    graph = make_graph([4], [[(0, 1), (1, 2), (2, 3)]], weights=[[0.0, 1e300, 1e-300]])
    for link_weights in ("normalized", "binary"):
        assert quick(link_weights=link_weights).fit(graph).embed().isfinite().all()
    with pytest.raises(ModelError, match=r"link_weights='raw': a total weight of 1e\+300 is too large"):
        quick(link_weights="raw").fit(graph)
    nothing = make_graph([2], [[(0, 1)]], weights=[[0.0]])
    assert quick(link_weights="normalized").fit(nothing).embed().isfinite().all()


def fails(epoch: Any) -> None:
    raise KeyboardInterrupt


def test_a_failed_update_changes_nothing() -> None:
    graph, options = meetings(), {**GROWING, "ratio": 0.8}
    model = quick(**options).fit(graph[:4])
    before = state(model)
    for update, error in [
        (lambda: model.partial_fit(replace(graph[4], start=9, stop=10)), GraphError),
        (lambda: model.partial_fit(graph[4], [8]), GraphError),
        (lambda: model.partial_fit(graph[4], on_epoch=fails), KeyboardInterrupt),
        (lambda: model.take_in(graph, validate=fails), KeyboardInterrupt),
        (lambda: model.take_in(graph[:4]), ModelError),
    ]:
        with pytest.raises(error):
            update()
        assert_same(state(model), before)
        assert len(model.graph_) == 4
    assert_same(state(model.take_in(graph)), state(quick(**options).fit(graph)))


def test_a_stopped_fit_resumes_and_reaches_the_same_bits() -> None:
    graph = meetings()
    whole = quick(**GROWING).fit(graph)
    for stop_at in (1, 3, 4, 11, 14):  # 3 epochs for each of 5 steps
        kept: list[Progress] = []
        asked = iter([False] * (stop_at - 1) + [True] * 99)
        stopped = quick(**GROWING).fit(graph, stop=lambda asked=asked: next(asked), keep=kept.append, keep_every=1e9)
        assert not stopped.finished_
        again = Progress.restore(kept[-1].facts(), kept[-1].tensors)
        assert_same(state(quick(**GROWING).fit(graph, progress=again)), state(whole))


def test_a_stopped_update_keeps_what_it_learned() -> None:
    graph = meetings()
    model = quick().fit(graph[:4]).partial_fit(graph[4], stop=lambda: True)
    assert not model.finished_ and len(model.epochs_) == 1 and len(model.embeddings_) == 5
    assert model.embed().isfinite().all()


def test_epochs_are_numbered_across_steps() -> None:
    seen: list[tuple[int, int]] = []
    quick(epochs=2).fit(meetings(), on_epoch=lambda epoch: seen.append((epoch.number, epoch.best)))
    assert seen == [(i, i) for i in range(1, 11)]


@pytest.mark.parametrize("probe", ["present", "past"])
def test_only_the_present_probe_chooses_epochs(probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier embeddings are stored, so the past probe cannot compare epochs: the last epoch is kept."""
    validated: list[bool] = []
    original = DynGEM.take_in

    def take_in(self: DynGEM, graph: dysat.DynamicGraph, *, validate: Any = None) -> DynGEM:
        validated.append(validate is not None)
        return original(self, graph, validate=validate)

    monkeypatch.setattr(DynGEM, "take_in", take_in)
    graph = make_graph([12] * 4, [[(i, (i * k + 1) % 12) for i in range(12)] for k in (1, 5, 7, 11)])
    found = dysat.evaluate(quick(), graph, opponents=(), probe=probe, repeats=2)
    assert validated == [probe == "present"] * 3
    assert all(math.isfinite(r.result.auc) for r in found.figures[0].of())


def test_invalid_options_and_weights_are_refused() -> None:
    for options, message in [
        ({"hidden": (8, 0)}, r"hidden=\(8, 0\): every layer must have at least 1 unit"),
        ({"features": 0}, "features=0 must be at least 1"),
        ({"ratio": 1.0}, r"ratio=1.0 must lie in \[0, 1\)"),
        ({"ratio": math.nan}, "ratio=nan must lie"),
        ({"alpha": -1.0}, "alpha=-1.0 must not be negative"),
        ({"beta": math.nan}, "beta=nan must be a finite number"),
        ({"nu1": math.inf}, "nu1=inf must be a finite number"),
        ({"nu2": -1e-9}, "nu2=-1e-09 must not be negative"),
        ({"rows": "week"}, "rows='week' is not one of snapshot, so-far"),
        ({"link_weights": "log"}, "link_weights='log' is not one of raw, normalized, binary"),
    ]:
        with pytest.raises(ModelError, match=message):
            quick(**options)
    model = quick().fit(meetings())
    with pytest.raises(ModelError, match="the weights do not fit the model"):
        quick(features=3).fit(meetings())._restore(model._learned())
    with pytest.raises(ModelError, match="0 stored steps for 5 snapshots"):
        model._restore({})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_model_trained_on_cuda_runs_on_the_cpu(tmp_path: Path) -> None:
    model = quick(device="cuda", epochs=20, **GROWING).fit(meetings())
    assert model.embed().is_cuda and model.epochs_[-1].loss < model.epochs_[0].loss
    model.save(tmp_path)
    there = DynGEM.load(tmp_path, device="cpu")
    assert_close(there.embed(), model.embed().cpu())
    assert there.partial_fit(replace(meetings()[4], start=5, stop=6)).embed().isfinite().all()
