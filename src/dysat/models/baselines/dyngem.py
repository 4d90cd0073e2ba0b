"""DynGEM: a deep autoencoder of adjacency rows, warm-started at every step and growing with the graph."""

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
from dysat.models.base.memory import GraphSize
from dysat.models.base.stepwise import StepwiseModel, step_seed
from dysat.models.base.trained import Task
from dysat.nn.device import choose_device
from dysat.nn.rows import Rows
from dysat.system.tensors import check_tensors
from dysat.training import Progress

Output = Literal["linear", "relu"]
EMBEDDINGS = "embeddings/"  # prefix of stored tensors
NOISE = 0.01  # relative noise on copied weights: identical units would stay identical in training
BLOCK = 4096  # rows encoded at once during inference
MAX_WEIGHT = 1e15  # squares of such weights stay far below the float32 limit of 3e38


@dataclass(kw_only=True, eq=False)
class DynGEM(StepwiseModel):
    """Deep autoencoder of adjacency rows, trained on one snapshot after the other.

    Layers ReLU(x W + b) encode row x of the adjacency matrix S as an embedding y and decode it as x̂. A step minimises

        Σ_i ‖(x̂_i − x_i) ⊙ b_i‖² + α Σ_ij s_ij ‖y_i − y_j‖² + ν1 Σ |W| + ν2 Σ ‖W‖²,   b = β at links, 1 elsewhere

    in batches of the nodes with links: the mean over a batch, with the penalty divided by the number of these nodes.

    A step starts with the network of the step before. New nodes widen its input and output. PropSize requires that a
    layer has at least `ratio` times the units of the layer before: hidden layers that are too small are widened, and
    layers are inserted before an embedding that is too small. Neither changes the output of the network, except for a
    little noise on copied units.

    `embed` of an earlier step returns what was stored when that step was trained. A node without links has the
    embedding of an empty row.

    Attributes:
        graph_: The snapshots so far.
        network_: The current `DeepAutoencoder`.
        embeddings_: For each step, the embeddings of the nodes known at that step.
        epochs_: Loss, validation score and seconds of every epoch of the last step.
        finished_: Whether all epochs ran.

    Example:
        >>> import dysat
        >>> from dysat.models import DynGEM
        >>> graph = dysat.load_dataset("uci")
        >>> model = DynGEM(hidden=(64,), epochs=1).fit(graph[:2])
        >>> model.network_.sizes  # 975 nodes, a hidden layer widened to a tenth of that, the embedding
        (975, 98, 128)
        >>> model.take_in(graph).embed().shape
        torch.Size([1223, 128])

    References:
        Goyal, Kamra, He, Liu: DynGEM: Deep Embedding Method for Dynamic Graphs, IJCAI Workshop on Representation
        Learning for Graphs 2017.
    """

    method: ClassVar[str] = "dyngem"
    about: ClassVar[str] = "deep autoencoder that grows with the graph, step by step"
    settled: ClassVar[bool] = True
    warm: ClassVar[bool] = True

    features: Annotated[int, "Embedding size"] = 128
    hidden: Annotated[tuple[int, ...], "Initial number of units of each hidden layer of the encoder"] = (256,)
    ratio: Annotated[float, "PropSize: minimum size of a layer relative to the layer before; 0 turns growth off"] = 0.1
    alpha: Annotated[float, "α: weight of the distance between linked nodes"] = 1e-5
    beta: Annotated[float, "β: factor of the reconstruction error at links"] = 5.0
    nu1: Annotated[float, "ν1: weight of the L1 penalty Σ |W|"] = 1e-6
    nu2: Annotated[float, "ν2: weight of the L2 penalty Σ ‖W‖²"] = 1e-6
    rows: Annotated[Literal["snapshot", "so-far"], "Input rows: of the snapshot, or of the sum of all so far"] = (
        "snapshot"
    )
    link_weights: Annotated[
        Literal["raw", "normalized", "binary"], "Entries of a row: link weights, divided by the largest, or 1 per link"
    ] = "binary"
    # Paper: ReLU in all layers. An output unit that is 0 for every node has no gradient, and most units end up there.
    output: Annotated[Output, "Last layer of the decoder: x W + b, or ReLU(x W + b)"] = "linear"
    learning_rate: Annotated[float, "Learning rate of Adam"] = 2e-3
    batch_size: Annotated[int, "Number of nodes per batch"] = 64
    epochs: Annotated[int, "Maximum number of passes over the nodes of each snapshot"] = 20
    patience: Annotated[int | None, "Stop after this many epochs without a better validation score"] = None
    seed: Annotated[int, "Random seed"] = 0
    device: Annotated[str, "Device: cpu, cuda, cuda:1, …; auto uses CUDA if available"] = "auto"

    network_: DeepAutoencoder = field(init=False, repr=False)
    embeddings_: list[Tensor] = field(init=False, repr=False)
    rows_: Rows = field(init=False, repr=False)  # input rows of the newest step

    def check(self) -> None:
        if any(size < 1 for size in self.hidden):
            raise ModelError(f"hidden={self.hidden}: every layer must have at least 1 unit")
        self._at_least_one("features")
        if not 0 <= self.ratio < 1:
            raise ModelError(f"ratio={self.ratio} must lie in [0, 1)")
        self._not_negative("alpha", "beta", "nu1", "nu2")
        super().check()

    def check_graph(self, graph: DynamicGraph) -> None:
        super().check_graph(graph)
        if self.link_weights == "raw" and (total := sum(s.total_weight for s in graph)) > MAX_WEIGHT:
            raise ModelError(
                f"link_weights='raw': a total weight of {total:.3g} is too large; use 'binary' or 'normalized'"
            )

    def _least_memory(self, size: GraphSize) -> float:
        # With `ratio` the first hidden layer grows with the nodes, so the weights grow with their square.
        layers = prop_size((size.nodes, *self.hidden, self.features), self.ratio)
        weights = 2 * sum(a * b for a, b in pairwise(layers))  # of encoder and decoder
        return float(self._bytes_per_weight * weights) + 4 * self.features * size.rows()  # and embeddings of all steps

    @property
    def _sizes(self) -> tuple[str, ...]:
        return ("hidden", "features", "ratio")

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self.network_ = self._warm_start().to(device)
        self.scorer_ = torch.ones(self.features), torch.zeros(())  # e_u · e_v
        self.rows_ = self._rows()
        items = self.rows_.offsets.diff().nonzero()[:, 0]  # nodes with links
        return Task(self.loss(self.rows_, len(items)), dict(self.network_.named_parameters()), items)

    def loss(self, rows: Rows, num_items: int) -> Callable[[Tensor, torch.Generator], Tensor]:
        """Return the loss of a batch of nodes (−1 is padding); `num_items` is the number of nodes with links."""

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            value = self.network_.loss(rows, batch[batch >= 0], alpha=self.alpha, beta=self.beta)
            return value + self.network_.penalty(self.nu1, self.nu2) / num_items

        return loss

    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order, as stored at that step.  # [known, d]"""
        self._must_be_fitted()
        at = self._check_step(step)
        if at == len(self.embeddings_):  # the step in training
            return self.network_.encode_all(self.rows_)
        return self.embeddings_[at].clone()

    def _warm_start(self) -> DeepAutoencoder:
        """The network of the step before, grown to the current nodes; a new one at the first step."""
        num_nodes, step = self.graph_.known[-1], len(self.graph_) - 1
        generator = torch.Generator().manual_seed(step_seed(self.seed, step))  # the same on every device
        if hasattr(self, "network_"):
            return self.network_.grown(num_nodes, self.ratio, generator)
        sizes = prop_size((num_nodes, *self.hidden, self.features), self.ratio)
        return DeepAutoencoder(first_layers(sizes, generator), self.output)

    def _rows(self) -> Rows:
        """The input rows of the newest step, for all known nodes."""
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
        if now:  # the step in training: its network has grown already
            self.network_ = DeepAutoencoder.of(now, self.output)

    def _stored(self) -> dict[str, Tensor]:
        return {f"{EMBEDDINGS}{step}": e for step, e in enumerate(self.embeddings_)}

    def weights(self) -> dict[str, Tensor]:
        """The parameters of the network, without the stored embeddings."""
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
        """The stored embeddings, by step."""
        embeddings: list[Tensor] = []
        device = choose_device(self.device)
        while (e := tensors.get(f"{EMBEDDINGS}{len(embeddings)}")) is not None:
            embeddings.append(e.to(device))
        return embeddings


class Layer(NamedTuple):
    """ReLU(x W + b).  Shapes: weight [in, out], bias [out]."""

    weight: Tensor
    bias: Tensor


Layers = list[Layer]


class DeepAutoencoder(nn.Module):
    """y = encoder(x) and x̂ = decoder(y), with layers ReLU(x W + b) of sizes N … d and d … N.

    The embedding has a ReLU too: with y ≥ 0 an inserted layer can be exactly the identity. The last layer is x W + b if
    the output is linear.
    """

    def __init__(self, layers: Layers, output: Output = "linear") -> None:
        super().__init__()
        self.output = output
        self.weights = nn.ParameterList([nn.Parameter(layer.weight) for layer in layers])
        self.biases = nn.ParameterList([nn.Parameter(layer.bias) for layer in layers])

    @classmethod
    def of(cls, state: Mapping[str, Tensor], output: Output = "linear") -> DeepAutoencoder:
        """Rebuild a network from its `state_dict`."""
        number = sum(name.startswith("weights.") for name in state)
        shapes = [tuple(state[f"weights.{i}"].shape) for i in range(number)]
        if number % 2 or any(len(shape) != 2 for shape in shapes) or any(a[1] != b[0] for a, b in pairwise(shapes)):
            raise ModelError(f"the weights do not fit the model: layers of shapes {shapes}")
        check_tensors(state, {f"biases.{i}": (torch.float32, shape[1:]) for i, shape in enumerate(shapes)}, ModelError)
        layers = [Layer(state[f"weights.{i}"].clone(), state[f"biases.{i}"].clone()) for i in range(number)]
        return cls(layers, output)

    @property
    def depth(self) -> int:
        """Number of encoder layers; the decoder has as many."""
        return len(self.weights) // 2

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the input, the hidden layers and the embedding."""
        return (*(len(weight) for weight in self.weights[: self.depth]), len(self.weights[self.depth]))

    def layers(self) -> Layers:
        """Copies of all layers."""
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
        """Encode all rows, block by block.  # → [N, d]"""
        nodes = torch.arange(len(x), device=x.columns.device)
        return torch.cat([self.encode(x.take(block)) for block in torch.split(nodes, BLOCK)])

    def loss(self, rows: Rows, batch: Tensor, *, alpha: float, beta: float) -> Tensor:
        """Mean over a batch of nodes i of ‖(x̂_i − x_i) ⊙ b_i‖² + α Σ_j s_ij ‖y_i − y_j‖².

        b is β at links and 1 elsewhere; s_ij are the entries of `rows`, which holds the rows of all nodes.  # batch [B]
        """
        x = rows.take(batch)
        nodes, position = torch.unique(torch.cat([batch, x.columns]), return_inverse=True)
        y = self.encode(rows.take(nodes))
        own, neighbours = position[: len(batch)], position[len(batch) :]
        distance = (y[own[x.owners]] - y[neighbours]).square().sum(1)  # [K]
        reconstruction = x.squared_error(self.decode(y[own]), beta).sum()
        return (reconstruction + alpha * (x.values * distance).sum()) / len(batch)

    def penalty(self, nu1: float, nu2: float) -> Tensor:
        """ν1 Σ |W| + ν2 Σ ‖W‖² over the weights of all layers, without biases."""
        parts = [nu1 * weight.abs().sum() + nu2 * weight.square().sum() for weight in self.weights]
        return torch.stack(parts).sum()

    def grown(self, num_nodes: int, ratio: float, generator: torch.Generator, noise: float = NOISE) -> DeepAutoencoder:
        """A larger copy for `num_nodes` nodes, with sizes by `prop_size`; without noise it computes the same y and x̂.

        New nodes get random weights, which change neither x̂ at old nodes nor y of rows without new nodes.
        """
        layers, sizes = with_nodes(self.layers(), num_nodes, generator), prop_size((num_nodes, *self.sizes[1:]), ratio)
        for i in range(1, len(sizes) - 1):
            if i == len(layers) // 2:  # at the embedding: insert one layer into the encoder, one into the decoder
                layers = deeper(deeper(layers, i), i)
            for units in (i, len(layers) - i):
                layers = wider(layers, units, sizes[i], generator, noise)
        return DeepAutoencoder(layers, self.output)


def first_layers(sizes: Sequence[int], generator: torch.Generator) -> Layers:
    """Initial layers of encoder and decoder: weights by Glorot and Bengio 2010, biases 0."""
    both = [*sizes, *sizes[-2::-1]]
    return [Layer(_glorot(n, m, generator), torch.zeros(m)) for n, m in pairwise(both)]


def prop_size(sizes: Sequence[int], ratio: float) -> tuple[int, ...]:
    """PropSize: from input to embedding, no layer is smaller than `ratio` times the layer before.

    Hidden layers that are too small are widened. The embedding keeps its size: if it is too small, layers are inserted
    before it, as long as each is smaller than the layer before.
    """
    grown = list(sizes)
    for i in range(1, len(grown) - 1):
        grown[i] = max(grown[i], _min_size(grown[i - 1], ratio))
    while grown[-1] < (size := _min_size(grown[-2], ratio)) < grown[-2]:
        grown.insert(-1, size)
    return tuple(grown)


def with_nodes(layers: Layers, num_nodes: int, generator: torch.Generator) -> Layers:
    """Extend the input and the output to `num_nodes` nodes."""
    first, last = layers[0], layers[-1]
    new, size = num_nodes - len(first.weight), len(first.bias)  # the last layer has as many inputs
    inputs, outputs = (_glorot(num_nodes, size, generator, rows=new).to(first.weight) for _ in range(2))
    first = Layer(torch.cat([first.weight, inputs]), first.bias)
    last = Layer(torch.cat([last.weight, outputs.T], 1), torch.cat([last.bias, last.bias.new_zeros(new)]))
    return [first, *layers[1:-1], last]


def wider(layers: Layers, units: int, size: int, generator: torch.Generator, noise: float = NOISE) -> Layers:
    """Net2WiderNet: widen the units between layers `units` − 1 and `units` to `size`.

    Each new unit copies a random existing one; outgoing weights are divided among the copies. Noise, relative to the
    standard deviation of the weights, makes copies differ.

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
    normal = torch.randn(len(weight), size - old, generator=generator).to(weight)
    spread = weight.std() if weight.numel() > 1 else weight.abs().sum()
    weight[:, old:] += noise * spread * normal
    return [
        *layers[: units - 1],
        Layer(weight, before.bias[source]),
        Layer((after.weight * share[:, None])[source], after.bias),
        *layers[units + 1 :],
    ]


def deeper(layers: Layers, units: int) -> Layers:
    """Net2DeeperNet: insert the identity after layer `units` − 1, whose output y = ReLU(y) is not negative."""
    bias = torch.zeros_like(layers[units - 1].bias)
    return [*layers[:units], Layer(torch.diag(bias + 1), bias), *layers[units:]]


def _min_size(size: int, ratio: float) -> int:
    return math.ceil(ratio * size - 1e-9)  # 0.3 · 10 is slightly above 3 in floating point


def _glorot(n: int, m: int, generator: torch.Generator, *, rows: int | None = None) -> Tensor:
    """Initial weights of an n × m layer, or only `rows` rows of it.  # [rows, m]"""
    bound = math.sqrt(6 / (n + m))
    return torch.empty(n if rows is None else rows, m).uniform_(-bound, bound, generator=generator)
