"""DynAERNN: the loss against dense float64 rows, and training. Windows and network: test_dynaernn_network.py."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small import Links, make_graph, meetings, two_blocks
from torch import Tensor
from torch.testing import assert_close

from dysat import DynamicGraph, ModelError
from dysat.models.baselines.dynaernn import DynAERNN

SMALL: dict[str, Any] = {"encoder": (6, 5), "recurrent": (5, 4), "epochs": 3, "batch_size": 4, "device": "cpu"}


def quick(**changes: Any) -> DynAERNN:
    return DynAERNN(**{**SMALL, **changes})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def adjacency(graph: DynamicGraph, step: int, link_weights: str) -> Tensor:
    """A snapshot as a dense matrix over all nodes."""
    a = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    for u, v, weight in zip(*(part.tolist() for part in graph[step].links()), strict=True):
        a[u, v] = a[v, u] = 1.0 if link_weights == "binary" else weight
    if link_weights != "normalized":
        return a
    degree = a.sum(1)
    return torch.where(a > 0, a / (degree[:, None] * degree).sqrt(), 0.0)


def loss_by_hand(model: DynAERNN, graph: DynamicGraph, cells: list[tuple[int, int]]) -> float:
    """The loss from the embeddings, with a dense decoder output."""
    learned = {name: tensor.double() for name, tensor in model._learned().items()}
    total = 0.0
    for v, t in cells:
        x, layer = model.embed(t)[v].double(), 0
        while f"decoder.{layer}.weight" in learned:
            x = (learned[f"decoder.{layer}.weight"] @ x + learned[f"decoder.{layer}.bias"]).clamp(min=0)
            layer += 1
        made = learned["output.weight"] @ x + learned["output.bias"]
        for j, y in enumerate(adjacency(graph, t + 1, model.link_weights)[v].tolist()):
            b = model.beta if y else 1.0
            total += (b * (made[j].item() - y)) ** 2 / len(cells)
    matrices = [tensor for tensor in learned.values() if tensor.ndim == 2]
    absolute = sum(tensor.abs().sum().item() for tensor in matrices)
    squares = sum(tensor.square().sum().item() for tensor in matrices)
    return total + model.nu1 * absolute + model.nu2 * squares


@pytest.mark.parametrize(
    ("link_weights", "options"),
    [
        ("binary", {"beta": 5.0}),
        ("raw", {"beta": 0.1, "nu1": 0.03, "nu2": 0.2}),
        ("normalized", {"nu1": 0.0, "nu2": 0.0}),
    ],
)
def test_the_loss_matches_its_formula(link_weights: str, options: dict[str, float]) -> None:
    """−1 is padding; the target of a step is the row of the next step, including nodes that are new there."""
    graph = meetings()
    model = quick(link_weights=link_weights, history=2, **options).fit(graph)
    with torch.no_grad():
        for p in model.network_.parameters():  # biases too
            p.copy_(0.5 * torch.randn(p.shape, generator=seeded(1)))
    cells = [(v, t) for t in range(4) for v in range(graph.known[t])]
    targets = model.windows_.targets()
    assert len(targets) == len(cells) == 6 + 7 + 8 + 8
    batch = [3, 28, 11, 12, 0]
    loss = model.loss(targets)(torch.tensor([*batch, -1, -1]), seeded())
    assert_close(loss.item(), loss_by_hand(model, graph, [cells[i] for i in batch]), rtol=1e-4, atol=1e-4)


def test_an_epoch_visits_every_node_of_every_step_but_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    given = DynAERNN.loss

    def loss(self: DynAERNN, targets: Tensor) -> Any:
        inner = given(self, targets)

        def watched(batch: Tensor, generator: torch.Generator) -> Tensor:
            seen.extend(batch[batch >= 0].tolist())
            return inner(batch, generator)

        return watched

    monkeypatch.setattr(DynAERNN, "loss", loss)
    quick(epochs=1).fit(meetings())
    assert sorted(seen) == list(range(6 + 7 + 8 + 8)) and seen != sorted(seen)


def test_links_before_the_window_do_not_matter() -> None:
    graph = meetings()
    other = make_graph(graph.known, [[(0, 5), (1, 4)], *(_links(graph, t) for t in range(1, 5))])
    model = quick(history=2, link_weights="binary").fit(graph)
    twin = quick(history=2, link_weights="binary")
    twin.graph_ = other
    twin._restore(model._learned())
    for step in range(5):
        difference = (twin.embed(step) - model.embed(step)).abs().max()
        assert difference > 1e-4 if step < 2 else difference < 1e-6


def _links(graph: DynamicGraph, step: int) -> Links:
    u, v, _ = graph[step].links()
    return list(zip(u.tolist(), v.tolist(), strict=True))


def test_a_window_longer_than_the_past_covers_the_past() -> None:
    graph = meetings()
    long, longer = (quick(history=history).fit(graph) for history in (5, 99))
    assert torch.equal(long.embed(), longer.embed())
    assert not torch.equal(long.embed(), quick(history=4).fit(graph).embed())


def test_a_single_snapshot_is_reconstructed() -> None:
    graph = two_blocks(20, 1)
    model = quick(encoder=(32,), recurrent=(16,), epochs=120, batch_size=20, learning_rate=0.03).fit(graph)
    assert model.epochs_[-1].loss < 0.3 * model.epochs_[0].loss
    network = model.network_
    with torch.no_grad():
        made = network.output(network.decode(model.embed()))
    a = adjacency(graph, 0, "binary")
    assert made[a > 0].mean() > 0.8 and made[a == 0].mean() < 0.4


def test_the_next_snapshot_is_predicted_from_the_window() -> None:
    """Two kinds of snapshots alternate in pairs: the next kind depends on the last two."""
    pairs = {0: [(0, 1), (2, 3), (4, 5)], 1: [(0, 2), (2, 4), (4, 0), (1, 3), (3, 5), (5, 1)]}
    steps = [0, 0, 1, 1] * 3  # a 0 is followed by 0 or 1
    graph = make_graph([6] * 12, [pairs[kind] for kind in steps])
    options: dict[str, Any] = {"encoder": (16,), "recurrent": (16,), "epochs": 120, "learning_rate": 0.03, "beta": 1.0}
    long, short = (quick(history=history, batch_size=66, **options).fit(graph) for history in (2, 1))
    assert long.epochs_[-1].loss < 0.05 < 0.3 < short.epochs_[-1].loss
    network = long.network_
    with torch.no_grad():
        made = network.output(network.decode(long.embed()))  # 1, 1 → 0
    assert_close(made, adjacency(graph, 0, "binary").float(), atol=0.3, rtol=0.0)


def test_zero_and_huge_weights_give_finite_embeddings() -> None:
    graph = make_graph([5, 5], [[(0, 1), (1, 2), (2, 3)], [(3, 4)]], weights=[[0.0, 1e300, 1e-300], [0.0]])
    for link_weights in ("binary", "normalized"):
        model = quick(link_weights=link_weights).fit(graph)
        assert model.embed().isfinite().all() and math.isfinite(model.epochs_[-1].loss)
    with pytest.raises(ModelError, match=r"link_weights='raw': a link has weight 1e\+300, above 1e\+15"):
        quick(link_weights="raw").fit(graph)


def test_invalid_options_and_weights_are_refused() -> None:
    for options, message in [
        ({"encoder": ()}, r"encoder=\(\) must have one positive number per layer"),
        ({"recurrent": (8, 0)}, r"recurrent=\(8, 0\) must have one positive number per layer"),
        ({"history": 0}, "history=0 must be at least 1"),
        ({"beta": 0.0}, "beta=0.0 must be a finite number above 0"),
        ({"beta": math.nan}, "beta=nan must be a finite number above 0"),
        ({"nu1": -1e-6}, "nu1=-1e-06 must not be negative"),
        ({"nu2": math.inf}, "nu2=inf must be a finite number"),
        ({"link_weights": "heavy"}, "link_weights='heavy' is not one of raw, binary, normalized"),
    ]:
        with pytest.raises(ModelError, match=message):
            quick(**options)
    model = quick().fit(meetings())
    with pytest.raises(ModelError, match="the weights do not fit the model"):
        model._restore({})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_model_trained_on_cuda_runs_on_the_cpu(tmp_path: Path) -> None:
    model = quick(device="cuda", epochs=20).fit(meetings())
    assert model.embed().is_cuda and model.epochs_[-1].loss < model.epochs_[0].loss
    model.save(tmp_path)
    there = DynAERNN.load(tmp_path, device="cpu")
    assert_close(there.embed(), model.embed().cpu(), atol=1e-3, rtol=1e-2)
