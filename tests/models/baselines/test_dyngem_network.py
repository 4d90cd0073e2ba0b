"""DynGEM: the autoencoder and its loss against float64 loops; growth keeps the function."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from dysat import Snapshot
from dysat.models.baselines.dyngem import (
    DeepAutoencoder,
    Layer,
    Layers,
    Output,
    deeper,
    first_layers,
    prop_size,
    wider,
    with_nodes,
)
from dysat.nn.rows import Rows

SIZES = (7, 5, 4, 3)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_layers(sizes: tuple[int, ...] = SIZES, seed: int = 0) -> Layers:
    """Random weights and biases; most units are positive."""
    generator = seeded(seed)
    layers = first_layers(sizes, generator)
    return [
        Layer(layer.weight + 0.3, torch.empty_like(layer.bias).uniform_(-0.2, 0.5, generator=generator))
        for layer in layers
    ]


def weighted_rows() -> tuple[Rows, Tensor]:
    """Rows of seven nodes, one without links, one with a self-loop; and the dense matrix."""
    u, v = np.array([0, 0, 1, 2, 3, 4, 4]), np.array([1, 2, 4, 3, 5, 4, 5])
    weights = np.array([1.0, 2.0, 0.5, 3.0, 1.0, 1.5, 0.25])
    rows = Rows.of(Snapshot.from_links(u, v, weights, num_nodes=7, start=0, stop=1))
    dense = torch.zeros(7, 7, dtype=torch.float64)
    for a, b, w in zip(u.tolist(), v.tolist(), weights.tolist(), strict=True):
        dense[a, b] = dense[b, a] = w
    return rows, dense


def passes(layers: Layers, x: Tensor, output: Output = "linear") -> list[Tensor]:
    """The output of each layer for a row, by loops."""
    found = [x.double()]
    for number, (weight, bias) in enumerate(layers, 1):
        plain = number == len(layers) and output == "linear"
        out = torch.zeros(len(bias), dtype=torch.float64)
        for j in range(len(bias)):
            z = float(bias[j]) + sum(float(found[-1][i]) * float(weight[i, j]) for i in range(len(weight)))
            out[j] = z if plain else max(z, 0.0)
        found.append(out)
    return found


@pytest.mark.parametrize("output", ["linear", "relu"])
def test_encoder_and_decoder_match_their_equations(output: Output) -> None:
    layers, (rows, dense) = random_layers(), weighted_rows()
    layers[-1] = Layer(layers[-1].weight - 0.5, layers[-1].bias)  # some outputs are negative
    network = DeepAutoencoder(layers, output)
    assert network.sizes == SIZES and network.depth == 3
    y = network.encode_all(rows)
    made = network.decode(y)
    for i in range(7):
        wanted = passes(layers, dense[i], output)
        assert_close(y[i].double(), wanted[3], atol=1e-5, rtol=1e-5)
        assert_close(made[i].double(), wanted[-1], atol=1e-5, rtol=1e-5)
    assert (y > 0).any(1).all() and (made > 0).any(1).all()  # not everything is 0
    assert (made < 0).any() == (output == "linear")


@pytest.mark.parametrize(
    ("alpha", "beta", "batch"), [(0.0, 1.0, [4, 0, 2]), (0.7, 5.0, [3]), (2.0, 0.5, list(range(7)))]
)
def test_the_loss_matches_its_formula(alpha: float, beta: float, batch: list[int]) -> None:
    layers, (rows, dense) = random_layers(), weighted_rows()
    y, made = zip(*((p[3], p[-1]) for p in (passes(layers, x) for x in dense)), strict=True)
    wanted = 0.0
    for i in batch:
        for j in range(7):
            b = beta if dense[i, j] else 1.0
            wanted += ((float(made[i][j]) - float(dense[i, j])) * b) ** 2
            wanted += (
                alpha * float(dense[i, j]) * sum((float(a) - float(c)) ** 2 for a, c in zip(y[i], y[j], strict=True))
            )
    loss = DeepAutoencoder(layers).loss(rows, torch.tensor(batch), alpha=alpha, beta=beta)
    assert_close(loss.item(), wanted / len(batch), atol=1e-4, rtol=1e-5)


def test_the_gradient_matches_a_dense_loss() -> None:
    rows, dense = weighted_rows()
    rows = Rows(rows.offsets, rows.columns, rows.values.double())
    network = DeepAutoencoder(random_layers()).double()
    batch = torch.tensor([0, 4, 6])
    network.loss(rows, batch, alpha=0.5, beta=2.0).backward()  # type: ignore[no-untyped-call]
    found = [p.grad.clone() for p in network.parameters() if p.grad is not None]
    network.zero_grad()
    y = dense
    between = []
    for weight, bias in zip(network.weights, network.biases, strict=True):
        y = y @ weight + bias
        y = torch.relu(y) if len(between) < 5 else y
        between.append(y)
    b = torch.where(dense > 0, 2.0, 1.0)
    second = ((between[-1] - dense) * b).square()[batch].sum()
    first = (dense[batch] * torch.cdist(between[2][batch], between[2]).square()).sum()
    ((second + 0.5 * first) / 3).backward()  # type: ignore[no-untyped-call]
    for one, p in zip(found, network.parameters(), strict=True):
        assert_close(one, p.grad)


def test_the_penalty_covers_weights_only() -> None:
    layers = random_layers()
    values = [w for layer in layers for w in layer.weight.flatten().tolist()]
    wanted = 0.3 * sum(abs(w) for w in values) + 0.7 * sum(w * w for w in values)
    assert_close(DeepAutoencoder(layers).penalty(0.3, 0.7).item(), wanted, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "ratio", "wanted"),
    [
        ((10, 3, 1), 0.3, (10, 3, 1)),  # 0.3 · 10 is 3, though not in floating point
        ((100, 20, 5), 0.3, (100, 30, 9, 5)),
        ((100, 20, 8, 5), 0.3, (100, 30, 9, 5)),
        ((1000, 50, 10), 0.5, (1000, 500, 250, 125, 63, 32, 16, 10)),
        ((100, 5), 0.3, (100, 30, 9, 5)),
        ((100, 5), 0.0, (100, 5)),
        ((1, 8, 4), 0.3, (1, 8, 4)),
        ((6, 4, 2), 0.9, (6, 6, 2)),  # 0.9 · 6 leaves no smaller layer
    ],
)
def test_prop_size(sizes: tuple[int, ...], ratio: float, wanted: tuple[int, ...]) -> None:
    assert prop_size(sizes, ratio) == wanted
    assert prop_size(wanted, ratio) == wanted
    if ratio < 0.9:
        assert all(after >= ratio * before - 1e-9 for before, after in pairwise(wanted))


def outputs(layers: Layers, rows: Rows) -> tuple[Tensor, Tensor]:
    network = DeepAutoencoder(layers)
    with torch.no_grad():
        y = network.encode(rows)
        return y, network.decode(y)


def assert_same_function(one: Layers, other: Layers) -> None:
    rows, _ = weighted_rows()
    for a, b in zip(outputs(one, rows), outputs(other, rows), strict=True):
        assert a.abs().max() > 0.1
        assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("units", [1, 2, 4, 5])
@pytest.mark.parametrize("size", [5, 6, 23])
def test_widening_keeps_the_function(units: int, size: int) -> None:
    layers = random_layers()
    wide = wider(layers, units, size, seeded(), noise=0.0)
    assert len(wide[units - 1].bias) == len(wide[units].weight) == size
    assert_same_function(layers, wide)
    noisy = wider(layers, units, size, seeded(), noise=0.5)
    old = len(layers[units - 1].bias)
    assert torch.equal(noisy[units - 1].weight[:, :old], wide[units - 1].weight[:, :old])
    assert (noisy[units - 1].weight[:, old:] != wide[units - 1].weight[:, old:]).all()
    assert wider(layers, units, 2, seeded()) is layers  # never smaller


@pytest.mark.parametrize("units", [1, 2, 3, 4, 5])
def test_deepening_keeps_the_function(units: int) -> None:
    layers = random_layers()
    deep = deeper(layers, units)
    assert len(deep) == 7
    rows, _ = weighted_rows()
    x = rows.times(layers[0].weight)
    y = x = torch.relu(x + layers[0].bias)
    for weight, bias in layers[1:]:
        x = torch.relu(x @ weight + bias)
    if units == 1:
        y = torch.relu(y @ deep[1].weight + deep[1].bias)
    for weight, bias in deep[1 if units > 1 else 2 :]:
        y = torch.relu(y @ weight + bias)
    assert x.abs().max() > 0.1
    assert_close(x, y, atol=1e-5, rtol=1e-5)


def test_new_nodes_do_not_affect_old_ones() -> None:
    layers, (rows, _) = random_layers(), weighted_rows()
    more = with_nodes(layers, 9, seeded())
    assert more[0].weight.shape == (9, 5) and more[-1].weight.shape == (5, 9) and len(more[-1].bias) == 9
    (y, made), (y_more, made_more) = outputs(layers, rows), outputs(more, rows)
    assert torch.equal(y, y_more) and made_more.shape == (7, 9)
    assert_close(made_more[:, :7], made, atol=1e-6, rtol=1e-6)
    bound = math.sqrt(6 / (9 + 5))
    for new in (more[0].weight[7:], more[-1].weight[:, 7:]):
        assert new.abs().min() > 0 and new.abs().max() < bound and new.std() > bound / 4


@pytest.mark.parametrize("ratio", [0.0, 0.5, 0.6, 0.8])
@pytest.mark.parametrize("num_nodes", [7, 8, 40])
def test_growth_follows_prop_size_and_keeps_the_function(ratio: float, num_nodes: int) -> None:
    layers, (rows, _) = random_layers(), weighted_rows()
    network = DeepAutoencoder(layers)
    grown = network.grown(num_nodes, ratio, seeded(), noise=0.0)
    assert grown.output == "linear" and DeepAutoencoder(layers, "relu").grown(8, 0.5, seeded()).output == "relu"
    assert grown.sizes == prop_size((num_nodes, *SIZES[1:]), ratio) and grown.sizes[-1] == 3
    assert [len(w) for w in grown.weights] == [*grown.sizes, *grown.sizes[-2:0:-1]]  # the decoder mirrors the encoder
    (y, made), (y_now, made_now) = outputs(layers, rows), outputs(grown.layers(), rows)
    assert_close(y_now, y, atol=1e-5, rtol=1e-5)
    assert_close(made_now[:, :7], made, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        grown.weights[0].zero_()
    assert network.weights[0].abs().min() > 0  # grown is a copy
    if grown.sizes[1:] != SIZES[1:]:
        assert not torch.equal(outputs(network.grown(num_nodes, ratio, seeded()).layers(), rows)[0], y_now)  # noise


def test_initial_weights_come_from_the_generator() -> None:
    one, other, third = (first_layers(SIZES, seeded(seed)) for seed in (1, 1, 2))
    assert [tuple(layer.weight.shape) for layer in one] == [(7, 5), (5, 4), (4, 3), (3, 4), (4, 5), (5, 7)]
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(one, other, strict=True))
    assert not any(torch.equal(a.weight, b.weight) for a, b in zip(one, third, strict=True))
    assert not any(layer.bias.any() for layer in one)


def test_a_network_is_rebuilt_from_its_state() -> None:
    network = DeepAutoencoder(random_layers())
    again = DeepAutoencoder.of(network.state_dict(), "relu")
    assert again.sizes == SIZES and again.output == "relu"
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))
