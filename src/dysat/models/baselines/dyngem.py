"""DynGEM: a deep autoencoder of adjacency rows that goes on from step to step and grows with the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.stepwise import StepwiseModel, step_seed
from dysat.models.base.trained import Task
from dysat.nn.device import choose_device
from dysat.nn.rows import Rows
from dysat.training import Progress

NOISE = 0.01  # on copied weights, against their spread: two equal units would learn the same for ever
BLOCK = 4096  # rows encoded at once where nothing is learned
Output = Literal["linear", "relu"]
EMBEDDINGS = "embeddings/"
LARGEST = 1e15  # float32 ends at 3e38


class Layer(NamedTuple):
    """ReLU(x W + b).  Shapes: weight [in, out], bias [out]."""

    weight: Tensor
    bias: Tensor


Layers = list[Layer]


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


@dataclass(kw_only=True, eq=False)
class DynGEM(StepwiseModel):
    """Deep embedding method for dynamic graphs.

    An autoencoder of layers ReLU(x W + b) makes of a node's row x of the adjacency matrix S an embedding y, and of that
    the row again, x̂. At every step

        Σ_i ‖(x̂_i − x_i) ⊙ b_i‖² + α Σ_ij s_ij ‖y_i − y_j‖² + ν1 Σ |W| + ν2 Σ ‖W‖²,  b = β at links and 1 elsewhere

    is minimised, in batches of the nodes with links: the mean over a batch, and the penalty divided by the number of
    nodes. The network begins as the one of the step before. New nodes widen its input and output. PropSize: a layer
    must have at least `ratio` times the units of the one before; hidden layers that are too small become wider, and
    where the embedding is too small for the layer before it, layers come between. Neither changes what the network
    computes, but for a little noise on units that are copies.

    `embed` gives for an earlier step what was stored when it was learned. A node without links has the embedding of an
    empty row.

    Attributes:
        graph_: the graph so far; network_: the autoencoder as it is now.
        embeddings_: for each step those of the nodes known then.
        epochs_: loss, validation score and seconds of every epoch of the last step; finished_: whether all were run.

    Example:
        >>> import dysat
        >>> graph = dysat.load_dataset("uci")
        >>> model = dysat.MODELS["dyngem"](hidden=(64,), epochs=1).fit(graph[:2])
        >>> model.network_.sizes  # 975 nodes, a tenth of that, the embedding
        (975, 98, 128)
        >>> model.take_in(graph).embed().shape
        torch.Size([1223, 128])

    Reference: Goyal, Kamra, He, Liu: DynGEM: Deep Embedding Method for Dynamic Graphs, IJCAI Workshop on Representation
    Learning for Graphs 2017.
    """

    method: ClassVar[str] = "dyngem"
    settled: ClassVar[bool] = True
    warm: ClassVar[bool] = True

    features: Annotated[int, "width of the embedding"] = 128
    hidden: Annotated[tuple[int, ...], "units of the hidden layers at first, from the input on"] = (256,)
    ratio: Annotated[float, "PropSize: least size of a layer against the one before it; 0 never grows"] = 0.1
    alpha: Annotated[float, "weight of the distance of linked nodes"] = 1e-5
    beta: Annotated[float, "weight of links in a row, against 1"] = 5.0
    nu1: Annotated[float, "weight of Σ |W|"] = 1e-6
    nu2: Annotated[float, "weight of Σ W²"] = 1e-6
    rows: Annotated[Literal["snapshot", "so-far"], "of what graph the rows are: the snapshot, or all so far"] = (
        "snapshot"
    )
    link_weights: Annotated[
        Literal["raw", "normalized", "binary"], "in the rows: as they are, divided by the largest, or 1"
    ] = "binary"
    # Paper: ReLU in all layers. An output that is 0 for every node then learns nothing any more, and most become so.
    output: Annotated[Output, "last layer of the decoder: x W + b, or its ReLU"] = "linear"
    learning_rate: Annotated[float, "of Adam"] = 2e-3
    batch_size: Annotated[int, "nodes in a batch"] = 64
    epochs: Annotated[int, "passes over the nodes of each snapshot, at most"] = 20
    patience: Annotated[int | None, "stop after so many epochs without a better validation score"] = None
    seed: Annotated[int, "of everything random"] = 0
    device: Annotated[str, "cpu, cuda, cuda:1, …; auto takes CUDA where there is one"] = "auto"

    network_: DeepAutoencoder = field(init=False, repr=False)
    embeddings_: list[Tensor] = field(init=False, repr=False)
    given_: Rows = field(init=False, repr=False)  # what the network is given at the newest step

    def check(self) -> None:
        if any(size < 1 for size in self.hidden):
            raise ModelError(f"hidden={self.hidden}: each must be at least 1")
        self._at_least_one("features")
        if not 0 <= self.ratio < 1:
            raise ModelError(f"ratio={self.ratio} must lie in [0, 1)")
        self._not_negative("alpha", "beta", "nu1", "nu2")
        super().check()

    def check_graph(self, graph: DynamicGraph) -> None:
        super().check_graph(graph)
        if self.link_weights == "raw" and (total := sum(s.total_weight for s in graph)) > LARGEST:
            raise ModelError(f"link_weights='raw': weights of {total:.3g} in all are too large to be squared")

    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order, as learned then.  # [known, d]"""
        self._must_be_fitted()
        at = self._check_step(step)
        if at == len(self.embeddings_):  # the step that is being learned
            return self.network_.encode_all(self.given_)
        return self.embeddings_[at].clone()

    def loss(self, rows: Rows, num_items: int) -> Callable[[Tensor, torch.Generator], Tensor]:
        """The loss of a batch of the nodes to learn from, of which there are so many; −1 fills a batch up."""

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            value = self.network_.loss(rows, batch[batch >= 0], alpha=self.alpha, beta=self.beta)
            return value + self.network_.penalty(self.nu1, self.nu2) / num_items

        return loss

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self.network_ = self._going_on().to(device)
        self.scorer_ = torch.ones(self.features), torch.zeros(())  # e_u · e_v
        self.given_ = self._rows()
        items = self.given_.offsets.diff().nonzero()[:, 0]  # nodes with links
        return Task(self.loss(self.given_, len(items)), dict(self.network_.named_parameters()), items)

    def _going_on(self) -> DeepAutoencoder:
        """A network for the nodes there are now; what the one before has learned goes on in it."""
        num_nodes, step = self.graph_.known[-1], len(self.graph_) - 1
        generator = torch.Generator().manual_seed(step_seed(self.seed, step))  # the same on every device
        if hasattr(self, "network_"):
            return self.network_.grown(num_nodes, self.ratio, generator)
        sizes = prop_size((num_nodes, *self.hidden, self.features), self.ratio)
        return DeepAutoencoder(first_layers(sizes, generator), self.output)

    def _rows(self) -> Rows:
        """What the newest step gives the network, for all known nodes."""
        newest = self.graph_[-1] if self.rows == "snapshot" else self.graph_.aggregate()
        rows = Rows.of(newest.to(choose_device(self.device)))
        if self.link_weights == "binary":
            return replace(rows, values=torch.ones_like(rows.values))
        if self.link_weights == "normalized" and len(newest.weights):
            largest = newest.weights.max().clamp(min=torch.finfo(torch.float64).tiny)
            return replace(rows, values=(newest.weights / largest).to(rows.values))
        return rows

    def _store(self) -> None:
        self.embeddings_ = [*self.embeddings_, self.embed()]

    def _stored_steps(self) -> int:
        return len(self.embeddings_)

    def _forget(self) -> None:
        self.embeddings_ = []
        vars(self).pop("network_", None)

    def _take_up(self, progress: Progress) -> None:
        self.embeddings_ = self._embeddings_of(progress.tensors)
        now = {name.removeprefix("now/"): t for name, t in progress.tensors.items() if name.startswith("now/")}
        if now:  # of the step that was being learned: it has the size it needs
            self.network_ = DeepAutoencoder.of(now, self.output)

    def _stored(self) -> dict[str, Tensor]:
        return {f"{EMBEDDINGS}{step}": e for step, e in enumerate(self.embeddings_)}

    def weights(self) -> dict[str, Tensor]:
        """What was learned, without the stored embeddings."""
        return dict(self.network_.state_dict())

    def _learned(self) -> dict[str, Tensor]:
        return {**self.weights(), **self._stored()}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.embeddings_ = self._embeddings_of(tensors)
        self._must_be_whole()
        network = {name: t for name, t in tensors.items() if not name.startswith(EMBEDDINGS)}
        shapes = [tuple(e.shape) for e in self.embeddings_]
        if not network or shapes != [(known, self.features) for known in self.graph_.known]:
            raise ModelError("the weights do not fit the model: not its nodes, or not its features")
        self.network_ = DeepAutoencoder.of(network, self.output).to(choose_device(self.device))

    def _embeddings_of(self, tensors: Mapping[str, Tensor]) -> list[Tensor]:
        """By step, as far as they are there."""
        found: list[Tensor] = []
        device = choose_device(self.device)
        while (e := tensors.get(f"{EMBEDDINGS}{len(found)}")) is not None:
            found.append(e.to(device))
        return found
