"""GraphSAGE: every aggregator and the loss against float64 loops of their formulas; training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from small import make_graph, meetings, two_blocks
from torch import Tensor
from torch.testing import assert_close

from dysat import ModelError
from dysat.models.baselines.graphsage import Aggregator, GraphSAGE
from dysat.sampling.neighbourhoods import Neighbourhoods

AGGREGATORS: tuple[str, ...] = get_args(Aggregator)
SMALL: dict[str, Any] = {
    "features": (8, 4),
    "fan_out": (3, 2),
    "heads": (4, 2),
    "rounds": 2,
    "walks_per_node": 2,
    "epochs": 3,
    "batch_size": 16,
    "device": "cpu",
}
each_aggregator = pytest.mark.parametrize("aggregator", AGGREGATORS)


def quick(aggregator: str, **changes: Any) -> GraphSAGE:
    return GraphSAGE(**{"aggregator": aggregator, **SMALL, **changes})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def lstm(inputs: list[Tensor], own: dict[str, Tensor]) -> Tensor:
    """The last output of an LSTM (Hochreiter and Schmidhuber 1997, with a forget gate)."""
    h = c = torch.zeros(len(inputs[0]), dtype=torch.float64)
    for x in inputs:
        gates = own["weight_ih_l0"] @ x + own["bias_ih_l0"] + own["weight_hh_l0"] @ h + own["bias_hh_l0"]
        i, f, g, o = gates.chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h


def attention(x_v: Tensor, senders: list[Tensor], own: dict[str, Tensor]) -> Tensor:
    _, heads, size = own["att_src"].shape
    parts = []
    for h in range(heads):
        weight = own["lin.weight"][h * size : (h + 1) * size]
        z = [weight @ x for x in senders]
        scores = [float(own["att_src"][0, h] @ z_u + own["att_dst"][0, h] @ (weight @ x_v)) for z_u in z]
        powers = [math.exp(s if s > 0 else 0.2 * s) for s in scores]
        parts.append(sum(p / sum(powers) * z_u for p, z_u in zip(powers, z, strict=True)))
    return torch.cat(parts) + own["bias"]


def receive(aggregator: str, x_v: Tensor, neighbours: list[Tensor], own: dict[str, Tensor]) -> Tensor:
    """Apply one layer to one node."""
    if aggregator == "gat":
        return attention(x_v, [x_v, *neighbours], own)
    if aggregator == "gcn":
        mean = sum([x_v, *neighbours]) / (len(neighbours) + 1)
        return own["lin_l.weight"] @ mean + own["lin_l.bias"]
    if aggregator == "lstm":
        prefix = "aggr_module.lstm."
        message = lstm(neighbours, {n.removeprefix(prefix): t for n, t in own.items() if n.startswith(prefix)})
    else:
        projected = torch.stack([(own["lin.weight"] @ x + own["lin.bias"]).clamp(min=0) for x in neighbours])
        message = projected.mean(0) if aggregator == "mean-pool" else projected.max(0).values
    return own["lin_l.weight"] @ message + own["lin_l.bias"] + own["lin_r.weight"] @ x_v


def by_hand(model: GraphSAGE, step: int, nodes: Tensor, generator: torch.Generator) -> Tensor:
    """Apply all layers node by node, with neighbours drawn from a generator."""
    learned = {name: tensor.double() for name, tensor in model._learned().items()}
    features = model.graph_.features
    needed, hops = neighbourhoods(model, step).draw(nodes, model.fan_out, generator)
    vectors = []
    for node in needed.tolist():
        x = torch.zeros(model.features[0], dtype=torch.float64)
        if model.inputs != "features":
            x = x + learned["input.table"][node]
        if model.inputs != "identity":
            row = (features[step] if isinstance(features, tuple) else features)[node].double()
            x = x + row @ learned["input.weight"]
        vectors.append(x)
    for number, hop in enumerate(hops):
        prefix = f"layers.{number}."
        own = {name.removeprefix(prefix): tensor for name, tensor in learned.items() if name.startswith(prefix)}
        made = []
        for receiver, senders in zip(hop.receivers.tolist(), hop.senders.tolist(), strict=True):
            x = receive(model.aggregator, vectors[receiver], [vectors[sender] for sender in senders], own)
            if number < len(hops) - 1:
                x = x.clamp(min=0)
            made.append(x / max(x.norm(), 1e-12) if model.normalize else x)
        vectors = made
    return torch.stack(vectors)


def neighbourhoods(model: GraphSAGE, step: int) -> Neighbourhoods:
    past = model.graph_[: step + 1].aggregate()
    return Neighbourhoods.of(past, weighted=model.sampling == "weighted")


def randomized(model: GraphSAGE) -> GraphSAGE:
    """The model with random weights and biases."""
    generator = seeded(1)
    with torch.no_grad():
        for p in model.network_.parameters():
            p.normal_(0, 0.5, generator=generator)
    return model


@pytest.mark.parametrize(
    ("aggregator", "inputs"),
    [*((name, "both") for name in AGGREGATORS), ("gcn", "identity"), ("gcn", "features"), ("gcn", "features per step")],
)
def test_embeddings_are_means_over_rounds_of_the_formula(aggregator: str, inputs: str) -> None:
    graph, rng = meetings(), np.random.default_rng(0)
    each = [rng.normal(size=(known, 3)) for known in graph.known]
    graph = graph.with_features(each if "step" in inputs else each[-1])
    model = randomized(quick(aggregator, inputs=inputs.split()[0], epochs=0, seed=3).fit(graph))
    for step in (0, 1, 4):
        generator, nodes = seeded(3), torch.arange(graph.known[step])
        wanted = torch.stack([by_hand(model, step, nodes, generator) for _ in range(2)]).mean(0)
        assert wanted.shape == (graph.known[step], 4)
        assert_close(model.embed(step), wanted.float(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("aggregator", "layers"), [*((name, 3) for name in AGGREGATORS), ("gcn", 1)])
def test_other_numbers_of_layers_and_normalized_vectors(aggregator: str, layers: int) -> None:
    options = {
        "features": (4,) * layers,
        "heads": (2,) * layers,
        "fan_out": (2, 3, 1)[:layers],
        "normalize": True,
        "rounds": 1,
    }
    model = randomized(quick(aggregator, **options, sampling="weighted", epochs=0).fit(meetings()))
    assert_close(model.embed(), by_hand(model, 4, torch.arange(8), seeded()).float(), atol=1e-5, rtol=1e-4)
    assert_close(model.embed().norm(dim=1), torch.ones(8))


def test_embedding_in_blocks_gives_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    model = quick("max-pool").fit(meetings())
    whole = model.embed()
    monkeypatch.setattr("dysat.models.baselines.graphsage.BLOCK", 3)
    assert_close(model.embed(), whole)


@pytest.mark.parametrize(("aggregator", "negatives"), [*((name, 3) for name in AGGREGATORS), ("gcn", 1)])
def test_the_loss_matches_its_formula(aggregator: str, negatives: int) -> None:
    """Negatives are drawn first, then the neighbours of all nodes of the batch, in node order; −1 is padding."""
    model = randomized(quick(aggregator, negatives=negatives, epochs=0).fit(meetings()))
    whole = neighbourhoods(model, 4)
    pairs = torch.tensor([[0, 2], [1, 7], [3, 5], [6, 1], [4, 0]], dtype=torch.int32)
    batch, generator = torch.tensor([3, 0, 4, -1]), seeded(5)
    others = whole.negatives().draw(torch.zeros(4, negatives, dtype=torch.int64), generator=generator)
    chosen = pairs[[3, 0, 4, 0]].long()  # padding is the first pair and is not counted
    asked = torch.cat([chosen.flatten(), others.flatten()]).unique()
    z = dict(zip(asked.tolist(), by_hand(model, 4, asked, generator), strict=True))

    def log_sigmoid(x: Tensor) -> float:
        return -math.log1p(math.exp(-x.item()))

    wanted = 0.0
    for (u, v), drawn in zip(chosen[:3].tolist(), others[:3].tolist(), strict=True):
        wanted -= log_sigmoid(z[u] @ z[v]) / 3
        wanted -= sum(log_sigmoid(-z[u] @ z[n]) for n in drawn) / 3
    loss = model.loss(whole, pairs)
    assert_close(loss(batch, seeded(5)).item(), wanted, atol=1e-5, rtol=1e-4)
    assert loss(batch, seeded(6)).item() != loss(batch, seeded(5)).item()


@each_aggregator
def test_nodes_that_meet_on_walks_score_higher_than_others(aggregator: str) -> None:
    """On walks of two nodes, nodes that meet are linked."""
    graph = two_blocks(20, 1)
    options = {"features": (32, 16), "fan_out": (6, 6), "walks_per_node": 5, "walk_length": 2, "batch_size": 64}
    model = quick(aggregator, **options, epochs=12, learning_rate=0.03, rounds=5).fit(graph)
    e, same = model.embed(), torch.arange(20)[:, None] % 2 == torch.arange(20) % 2
    products, off = e @ e.T, ~torch.eye(20, dtype=torch.bool)
    assert products[same & off].mean() > products[~same].mean() + 1
    assert model.epochs_[-1].loss < model.epochs_[0].loss


@pytest.mark.parametrize("sampling", ["uniform", "weighted"])
def test_zero_and_huge_weights_give_finite_embeddings(sampling: str) -> None:
    graph = make_graph([4], [[(0, 1), (1, 2), (2, 3)]], weights=[[0.0, 1e300, 1e-300]])
    assert quick("gcn", sampling=sampling).fit(graph).embed().isfinite().all()


def test_invalid_options_and_weights_are_refused() -> None:
    for options, message in [
        ({"aggregator": "sum"}, "aggregator='sum' is not one of gcn, mean-pool, max-pool, lstm, gat"),
        ({"features": ()}, r"features=\(\) must have one positive number per layer"),
        ({"features": (8, 0)}, r"features=\(8, 0\) must have one positive number per layer"),
        ({"fan_out": (3, 0)}, r"fan_out=\(3, 0\) must have one positive number per layer"),
        ({"fan_out": (3,)}, r"fan_out=\(3,\) and features=\(8, 4\) must have one number per layer each"),
        ({"aggregator": "gat", "heads": (2, 3)}, "heads=3 does not divide features=4"),
        ({"aggregator": "gat", "heads": (0, 2)}, "heads=0 does not divide features=8"),
        (
            {"aggregator": "gat", "heads": (2,)},
            r"heads=\(2,\) and features=\(8, 4\) must have one number",
        ),
        ({"rounds": 0}, "rounds=0 must be at least 1"),
        ({"walks_per_node": 0}, "walks_per_node=0 must be at least 1"),
        ({"walk_length": 1}, "walk_length=1 must be at least 2"),
        ({"negatives": 0}, "negatives=0 must be at least 1"),
        ({"inputs": "colour"}, "inputs='colour' is not one of identity, features, both"),
        ({"sampling": "all"}, "sampling='all' is not one of uniform, weighted"),
    ]:
        with pytest.raises(ModelError, match=message):
            quick(**{"aggregator": "gcn", **options})
    assert quick("gcn", heads=(3,)).heads == (3,)  # ignored by gcn
    with pytest.raises(ModelError, match="inputs='features', but the graph has no features"):
        quick("gcn", inputs="features").fit(meetings())
    model = quick("gcn").fit(meetings())
    with pytest.raises(ModelError, match="the weights do not fit the model"):
        quick("lstm").fit(meetings())._restore(model._learned())


@each_aggregator
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_model_trained_on_cuda_runs_on_the_cpu(aggregator: str, tmp_path: Path) -> None:
    model = quick(aggregator, device="cuda", epochs=20).fit(meetings())
    assert model.embed().is_cuda and model.epochs_[-1].loss < model.epochs_[0].loss
    model.save(tmp_path)
    there = GraphSAGE.load(tmp_path, device="cpu")  # samples other neighbours
    generator = seeded()
    wanted = torch.stack([by_hand(there, 4, torch.arange(8), generator) for _ in range(2)]).mean(0)
    assert_close(there.embed(), wanted.float(), atol=1e-4, rtol=1e-3)


def test_the_preset_takes_another_aggregator() -> None:
    assert GraphSAGE.from_preset("paper", aggregator="lstm").aggregator == "lstm"
