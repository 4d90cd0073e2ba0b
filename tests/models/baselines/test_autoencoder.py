"""Encoders and loss against dense float64 formulas; training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import make_graph, meetings, two_blocks
from torch import Tensor
from torch.testing import assert_close

from dysat import DynamicGraph, ModelError
from dysat.models.baselines.autoencoder import (
    GATAutoencoder,
    GCNAutoencoder,
    GraphAutoencoder,
    Neighbours,
    reconstruction_loss,
)
from dysat.sampling.pairs import UnlinkedPairs

SMALL: dict[str, Any] = {"features": (8, 4), "epochs": 3, "batch_size": 4, "device": "cpu"}
KINDS: dict[type[GraphAutoencoder], dict[str, Any]] = {
    GCNAutoencoder: SMALL,
    GATAutoencoder: SMALL | {"heads": (4, 2)},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def quick(kind: type[GraphAutoencoder], **changes: Any) -> GraphAutoencoder:
    return kind(**{**KINDS[kind], **changes})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def adjacency(graph: DynamicGraph, step: int) -> Tensor:
    """A + I, where A sums all snapshots up to a step, without self-loops."""
    size = graph.known[step]
    a = torch.eye(size, dtype=torch.float64)
    for snapshot in graph.snapshots[: step + 1]:
        for u, v, weight in zip(*(part.tolist() for part in snapshot.links()), strict=True):
            if u != v:
                a[u, v] += weight
                a[v, u] += weight
    return a


def dense_gcn(x: Tensor, a: Tensor, weight: Tensor, learned: dict[str, Tensor]) -> Tensor:
    """D^-½ (A + I) D^-½ X W + b."""
    d = torch.diag(a.sum(1) ** -0.5)
    return d @ a @ d @ x @ weight + learned["bias"]


def dense_gat(x: Tensor, a: Tensor, weight: Tensor, learned: dict[str, Tensor]) -> Tensor:
    """Σ_u α_uv W x_u + b, α_uv = softmax_u LeakyReLU_0.2(aᵀ W x_u + a'ᵀ W x_v); heads concatenated."""
    _, heads, size = learned["att_src"].shape
    parts = []
    for h in range(heads):
        z = x @ weight[:, h * size : (h + 1) * size]
        logits = torch.zeros_like(a)
        for v in range(len(a)):
            for u in range(len(a)):
                s = float(learned["att_src"][0, h] @ z[u] + learned["att_dst"][0, h] @ z[v])
                logits[v, u] = (s if s > 0 else 0.2 * s) if a[v, u] > 0 else -math.inf
        parts.append(torch.softmax(logits, 1) @ z)
    return torch.cat(parts, 1) + learned["bias"]


def by_hand(model: GraphAutoencoder, step: int) -> Tensor:
    """Apply all layers to a dense X."""
    graph, known = model.graph_, model.graph_.known[step]
    learned = {name: tensor.double() for name, tensor in model._learned().items()}
    parts = []
    if model.inputs != "features":
        parts.append((torch.eye(graph.num_nodes, dtype=torch.float64)[:known], learned["input.table"]))
    if model.inputs != "identity":
        features = graph.features[step] if isinstance(graph.features, tuple) else graph.features
        parts.append((features[:known].double(), learned["input.weight"]))
    x, weight = torch.cat([x for x, _ in parts], 1), torch.cat([w for _, w in parts])
    for number in range(len(model.features)):
        prefix = f"layers.{number}."
        own = {name.removeprefix(prefix): tensor for name, tensor in learned.items() if name.startswith(prefix)}
        if number:
            weight = own["lin.weight"].T
            x = x.clamp(min=0) if isinstance(model, GCNAutoencoder) else torch.where(x > 0, x, x.exp() - 1)
        x = (dense_gcn if isinstance(model, GCNAutoencoder) else dense_gat)(x, adjacency(graph, step), weight, own)
    return x


@each_kind
@pytest.mark.parametrize("inputs", ["identity", "both", "features of each step"])
def test_embeddings_match_the_formula(kind: type[GraphAutoencoder], inputs: str) -> None:
    graph, rng = meetings(), np.random.default_rng(0)
    each = [rng.normal(size=(known, 3)) for known in graph.known]
    graph = graph.with_features(each if "step" in inputs else each[-1])
    model = quick(kind, inputs=inputs.split()[0]).fit(graph)
    generator = seeded(1)
    with torch.no_grad():
        for p in model.encoder_.parameters():  # biases too
            p.normal_(0, 0.5, generator=generator)
    for step in range(len(graph)):
        wanted = by_hand(model, step)
        assert wanted.shape == (graph.known[step], 4)
        assert_close(model.embed(step), wanted.float(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("layers", [1, 3])
@each_kind
def test_other_numbers_of_layers_match_the_formula(kind: type[GraphAutoencoder], layers: int) -> None:
    heads = {"heads": (2,) * layers} if kind is GATAutoencoder else {}
    model = quick(kind, features=(4,) * layers, **heads).fit(meetings())
    assert_close(model.embed(), by_hand(model, 4).float(), atol=1e-5, rtol=1e-4)


def test_zero_and_huge_weights_give_finite_embeddings() -> None:
    graph = make_graph([4], [[(0, 1), (1, 2), (2, 3)]], weights=[[0.0, 1e300, 1e-300]])
    assert quick(GCNAutoencoder).fit(graph).embed().isfinite().all()


@pytest.mark.parametrize("negatives", [0, 1, 3])
def test_the_loss_matches_its_formula(negatives: int) -> None:
    e = torch.randn(6, 4, generator=seeded(), dtype=torch.float64, requires_grad=True)
    links = torch.tensor([[0, 1], [2, 5], [3, 3], [4, 1]])
    counted = torch.tensor([True, True, False, True])
    others = torch.randint(6, (4 * negatives, 2), generator=seeded())

    def log_sigmoid(x: Tensor) -> float:
        return -math.log1p(math.exp(-x.item()))

    wanted = 0.0
    for i in (0, 1, 3):
        wanted -= log_sigmoid(e[links[i, 0]] @ e[links[i, 1]]) / 3
        for a, b in others[i * negatives : (i + 1) * negatives].tolist():
            wanted -= log_sigmoid(-e[a] @ e[b]) / 3
    loss = reconstruction_loss(e, links, others, counted)
    assert_close(loss.item(), wanted)
    torch.autograd.gradcheck(lambda x: reconstruction_loss(x, links, others, counted), (e,))


@each_kind
def test_a_batch_has_each_link_once_and_new_negatives_in_every_step(kind: type[GraphAutoencoder]) -> None:
    """Self-loops are left out; −1 is padding."""
    graph = meetings()
    model = quick(kind, negatives=2).fit(graph)
    whole = Neighbours.of(graph.aggregate())
    pairs = {(u, v) for s in graph for u, v in zip(*(x.tolist() for x in s.links()[:2]), strict=True) if u != v}
    assert [tuple(pair) for pair in whole.links().tolist()] == sorted(pairs)
    loss, batch, generator = model.loss(whole), torch.tensor([3, 0, 7, -1]), seeded()
    values = [loss(batch, generator).item() for _ in range(2)]
    assert values[0] != values[1]
    others = UnlinkedPairs(whole.keys, whole.num_nodes).draw(8, seeded())
    assert not {(min(pair), max(pair)) for pair in others.tolist()} & pairs
    wanted = reconstruction_loss(model.embed(), whole.links()[[3, 0, 7]], others[:6], torch.ones(3, dtype=torch.bool))
    assert_close(values[0], wanted.item())


@each_kind
def test_dropout_is_used_in_training_only_and_comes_from_the_generator(kind: type[GraphAutoencoder]) -> None:
    graph = meetings()
    model = quick(kind, dropout=0.5).fit(graph)
    loss, batch = model.loss(Neighbours.of(graph.aggregate())), torch.arange(4)
    assert loss(batch, seeded(1)).item() == loss(batch, seeded(1)).item()
    assert torch.equal(model.embed(), model.embed())
    assert_close(model.embed(), by_hand(model, 4).float(), atol=1e-5, rtol=1e-4)


@each_kind
def test_links_score_higher_than_other_pairs(kind: type[GraphAutoencoder]) -> None:
    graph = two_blocks(20, 1)
    model = quick(kind, features=(32, 16), epochs=100, batch_size=256, learning_rate=0.02).fit(graph)
    e, a = model.embed(), adjacency(graph, 0)
    products, upper = e @ e.T, torch.triu(torch.ones_like(a), 1) > 0
    assert products[upper & (a > 0)].mean() > 1 and products[upper & (a == 0)].mean() < -1
    assert model.epochs_[-1].loss < 0.7 * model.epochs_[0].loss


@each_kind
def test_invalid_options_and_weights_are_refused(kind: type[GraphAutoencoder]) -> None:
    for options, message in [
        ({"features": ()}, r"features=\(\) must have one positive number per layer"),
        ({"features": (8, 0)}, r"features=\(8, 0\) must have one positive number per layer"),
        ({"dropout": 1.0}, r"dropout=1.0 must lie in \[0, 1\)"),
        ({"dropout": math.nan}, "dropout=nan must lie"),
        ({"negatives": 0}, "negatives=0 must be at least 1"),
        ({"l2": math.inf}, "l2=inf must be a finite number"),
        ({"inputs": "colour"}, "inputs='colour' is not one of identity, features, both"),
    ]:
        with pytest.raises(ModelError, match=message):
            quick(kind, **options)
    with pytest.raises(ModelError, match="inputs='features', but the graph has no features"):
        quick(kind, inputs="features").fit(meetings())
    model = quick(kind).fit(meetings())
    with pytest.raises(ModelError, match="the weights do not fit the model"):
        model._restore({})


def test_heads_must_divide_features() -> None:
    with pytest.raises(ModelError, match=r"heads=\(2,\) and features=\(8, 4\) must have one number per layer each"):
        GATAutoencoder(features=(8, 4), heads=(2,))
    for heads in (3, 0):
        with pytest.raises(ModelError, match=f"heads={heads} does not divide features=8"):
            GATAutoencoder(features=(8, 4), heads=(heads, 1))


@each_kind
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_model_trained_on_cuda_runs_on_the_cpu(kind: type[GraphAutoencoder], tmp_path: Path) -> None:
    model = quick(kind, device="cuda", epochs=20, dropout=0.1).fit(meetings())
    assert model.embed().is_cuda and model.epochs_[-1].loss < model.epochs_[0].loss
    model.save(tmp_path)
    there = kind.load(tmp_path, device="cpu")
    assert_close(there.embed(), model.embed().cpu(), atol=1e-4, rtol=1e-3)
    assert_close(there.embed(), by_hand(there, 4).float(), atol=1e-4, rtol=1e-3)
