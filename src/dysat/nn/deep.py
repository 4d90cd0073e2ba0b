"""A deep autoencoder of adjacency rows that grows with the graph, and its loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from dysat.nn.rows import Rows

NOISE = 0.01  # on copied weights, against their spread: two equal units would learn the same for ever
BLOCK = 4096  # rows encoded at once where nothing is learned


class Layer(NamedTuple):
    """ReLU(x W + b).  Shapes: weight [in, out], bias [out]."""

    weight: Tensor
    bias: Tensor


Layers = list[Layer]
Output = Literal["linear", "relu"]


class DeepAutoencoder(nn.Module):
    """y = encoder(x) and x̂ = decoder(y), in layers ReLU(x W + b) whose sizes go from N down to d, and back to N.

    With a ReLU after the embedding as well, y ≥ 0, so that a new layer can be the identity exactly. The last layer is
    x W + b alone where the output is linear.
    """

    def __init__(self, layers: Layers, output: Output = "linear") -> None:
        super().__init__()
        self.output = output
        self.weights = nn.ParameterList([nn.Parameter(layer.weight) for layer in layers])
        self.biases = nn.ParameterList([nn.Parameter(layer.bias) for layer in layers])

    @classmethod
    def of(cls, state: Mapping[str, Tensor], output: Output = "linear") -> DeepAutoencoder:
        """From what `state_dict` gave."""
        number = sum(name.startswith("weights.") for name in state)
        layers = [Layer(state[f"weights.{i}"].clone(), state[f"biases.{i}"].clone()) for i in range(number)]
        return cls(layers, output)

    @property
    def depth(self) -> int:
        """Layers of the encoder; the decoder has as many."""
        return len(self.weights) // 2

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the input, the hidden layers and the embedding."""
        return (*(len(weight) for weight in self.weights[: self.depth]), len(self.weights[self.depth]))

    def layers(self) -> Layers:
        """Copies of what it has learned."""
        pairs = zip(self.weights, self.biases, strict=True)
        return [Layer(weight.detach().clone(), bias.detach().clone()) for weight, bias in pairs]

    def encode(self, x: Rows) -> Tensor:
        """Rows → [B, d]."""
        y = relu(x.times(self.weights[0]) + self.biases[0])  # [B, size of the layer]
        return self._through(y, 1, self.depth)

    def decode(self, y: Tensor) -> Tensor:
        """[B, d] → [B, N]."""
        last = 2 * self.depth - 1
        x = torch.addmm(self.biases[last], self._through(y, self.depth, last), self.weights[last])
        return relu(x) if self.output == "relu" else x

    def _through(self, x: Tensor, first: int, stop: int) -> Tensor:
        for i in range(first, stop):
            x = relu(torch.addmm(self.biases[i], x, self.weights[i]))
        return x

    @torch.no_grad()
    def encode_all(self, x: Rows) -> Tensor:
        """All rows, some at a time.  # → [N, d]"""
        nodes = torch.arange(len(x), device=x.columns.device)
        return torch.cat([self.encode(x.take(some)) for some in torch.split(nodes, BLOCK)])

    def loss(self, rows: Rows, batch: Tensor, *, alpha: float, beta: float) -> Tensor:
        """Mean over the nodes i of a batch of ‖(x̂_i − x_i) ⊙ b_i‖² + α Σ_j s_ij ‖y_i − y_j‖².  # rows of all nodes, [B]

        b is β at links and 1 elsewhere, and s_ij what stands in the rows.
        """
        x = rows.take(batch)
        touched, at = torch.unique(torch.cat([batch, x.columns]), return_inverse=True)
        y = self.encode(rows.take(touched))
        own, near = at[: len(batch)], at[len(batch) :]
        apart = (y[own[x.owners]] - y[near]).square().sum(1)  # [K]
        second = x.squared_error(self.decode(y[own]), beta).sum()
        return (second + alpha * (x.values * apart).sum()) / len(batch)

    def penalty(self, nu1: float, nu2: float) -> Tensor:
        """ν1 Σ |W| + ν2 Σ ‖W‖², over all layers, without biases."""
        parts = [nu1 * weight.abs().sum() + nu2 * weight.square().sum() for weight in self.weights]
        return torch.stack(parts).sum()

    def grown(self, num_nodes: int, ratio: float, generator: torch.Generator, noise: float = NOISE) -> DeepAutoencoder:
        """Another one for so many nodes, of the sizes that `prop_size` asks for; without noise, with the same y and x̂.

        A node that is new has random weights; x̂ of the others and y of rows without it are as before.
        """
        layers, sizes = with_nodes(self.layers(), num_nodes, generator), prop_size((num_nodes, *self.sizes[1:]), ratio)
        for i in range(1, len(sizes) - 1):
            if i == len(layers) // 2:  # where the embedding is: a new layer after it, and one before the decoder
                layers = deeper(deeper(layers, i), i)
            for units in (i, len(layers) - i):
                layers = wider(layers, units, sizes[i], generator, noise)
        return DeepAutoencoder(layers, self.output)


def first_layers(sizes: Sequence[int], generator: torch.Generator) -> Layers:
    """Encoder and decoder with their first weights: Glorot and Bengio 2010; biases are 0."""
    both = [*sizes, *sizes[-2::-1]]
    return [Layer(_glorot(n, m, generator), torch.zeros(m)) for n, m in pairwise(both)]


def prop_size(sizes: Sequence[int], ratio: float) -> tuple[int, ...]:
    """PropSize: no layer is smaller than `ratio` times the one before it, from the input to the embedding.

    Hidden layers that are too small become larger. The embedding keeps its size: if it is too small, there are more
    layers before it. (If the smallest layer that would do is no smaller than the one before it, none is added.)
    """
    found = list(sizes)
    for i in range(1, len(found) - 1):
        found[i] = max(found[i], _least(found[i - 1], ratio))
    while found[-1] < (least := _least(found[-2], ratio)) < found[-2]:
        found.insert(-1, least)
    return tuple(found)


def with_nodes(layers: Layers, num_nodes: int, generator: torch.Generator) -> Layers:
    """The same with inputs and outputs for so many nodes."""
    first, last = layers[0], layers[-1]
    new, size = num_nodes - len(first.weight), len(first.bias)  # the last layer has as many inputs
    into, out_of = (_glorot(num_nodes, size, generator, rows=new).to(first.weight) for _ in range(2))
    first = Layer(torch.cat([first.weight, into]), first.bias)
    last = Layer(torch.cat([last.weight, out_of.T], 1), torch.cat([last.bias, last.bias.new_zeros(new)]))
    return [first, *layers[1:-1], last]


def wider(layers: Layers, units: int, size: int, generator: torch.Generator, noise: float = NOISE) -> Layers:
    """Net2WiderNet: the units between the layers `units` − 1 and `units` become `size`.

    Each new one is a copy of one that is there, drawn at random; what goes out of it is divided among the copies.
    Noise, so many times the spread of the weights, tells copies apart.

    Reference: Chen, Goodfellow, Shlens: Net2Net: Accelerating Learning via Knowledge Transfer, ICLR 2016.
    """
    before, after = layers[units - 1], layers[units]
    old = len(before.bias)
    if size <= old:
        return layers
    device = before.bias.device
    copied = torch.randint(old, (size - old,), generator=generator)
    share = 1 / (1 + torch.bincount(copied, minlength=old)).to(device, before.bias.dtype)  # [old]
    source = torch.cat([torch.arange(old), copied]).to(device)  # [size]
    weight = before.weight[:, source]  # [in, size]
    shift = torch.randn(len(weight), size - old, generator=generator).to(weight)
    spread = weight.std() if weight.numel() > 1 else weight.abs().sum()
    weight[:, old:] += noise * spread * shift
    return [
        *layers[: units - 1],
        Layer(weight, before.bias[source]),
        Layer((after.weight * share[:, None])[source], after.bias),
        *layers[units + 1 :],
    ]


def deeper(layers: Layers, units: int) -> Layers:
    """Net2DeeperNet: a layer that is the identity, after the layer `units` − 1; ReLU(y) = y, for y ≥ 0 already."""
    bias = torch.zeros_like(layers[units - 1].bias)
    return [*layers[:units], Layer(torch.diag(bias + 1), bias), *layers[units:]]


def _least(size: int, ratio: float) -> int:
    return math.ceil(ratio * size - 1e-9)  # 0.3 · 10 is a little more than 3


def _glorot(n: int, m: int, generator: torch.Generator, *, rows: int | None = None) -> Tensor:
    """First weights of a layer, or some rows of them.  # [rows, m]"""
    bound = math.sqrt(6 / (n + m))
    return torch.empty(n if rows is None else rows, m).uniform_(-bound, bound, generator=generator)
