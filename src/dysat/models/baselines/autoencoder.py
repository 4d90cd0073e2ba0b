"""Graph autoencoders: layers over the links so far make vectors, whose inner products make the links again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.inputs import check_features, features_at
from dysat.models.base.trained import Task, TrainedModel, load_weights
from dysat.nn.device import choose_device
from dysat.nn.dropout import dropout
from dysat.nn.initial import glorot_
from dysat.nn.reconstruction import reconstruction_loss
from dysat.sampling.pairs import UnlinkedPairs
from dysat.training import Settings

Sizes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Who has whom as a neighbour, every node itself too, in order of receiver and sender: the entries of A + I.

    Shapes:
        numbers [E'] (receiver · N + sender), index [2, E'] (senders, receivers), weights [E'] (float64).
    """

    num_nodes: int
    numbers: Tensor
    weights: Tensor

    @classmethod
    def of(cls, snapshot: Snapshot) -> Neighbours:
        """Of all nodes of a snapshot; its self-loops are replaced."""
        receivers, senders, weights = snapshot.entries()
        size, other = snapshot.num_nodes, receivers != senders
        itself = torch.arange(size, device=receivers.device) * (size + 1)
        numbers, order = torch.cat([(receivers * size + senders)[other], itself]).sort()
        return cls(size, numbers, torch.cat([weights[other], weights.new_ones(size)])[order])

    @property
    def index(self) -> Tensor:
        return torch.stack([self.numbers % self.num_nodes, self.numbers // self.num_nodes])

    def pairs(self) -> Tensor:
        """Every link u < v once.  # [E, 2]"""
        senders, receivers = self.index
        return torch.stack([receivers, senders], 1)[receivers < senders]

    def normalized(self) -> Tensor:
        """The entries of D^-½ (A + I) D^-½.  # [E']"""
        senders, receivers = self.index
        scale = self.weights.new_zeros(self.num_nodes).index_add_(0, receivers, self.weights).rsqrt()
        return scale[receivers] * self.weights * scale[senders]


class Encoder(nn.Module):
    """Layers one after the other, an activation between them.

    The product X W of the first layer is made here, for X may be one-hot: it is a row of `table` for each node,
    F W for features F, or the sum of both. So the first layer's own `lin` is taken out.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        width: int,  # of the first layer
        *,
        num_nodes: int,
        num_features: int,
        activation: nn.Module,
        rate: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        layers[0].lin = nn.Identity()
        self.input = nn.ParameterDict()
        for name, rows in (("table", num_nodes), ("weight", num_features)):
            if rows:
                self.input[name] = nn.Parameter(torch.empty(rows, width))
        self.layers, self.activation, self.rate = nn.ModuleList(layers), activation, rate
        glorot_(self, generator)

    def forward(
        self,
        index: Tensor,
        weights: Tensor | None,
        num_nodes: int,
        features: Tensor | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The vectors of the first so many nodes; with a generator, values are dropped.  # [2, E'], [E'] → [N, d]"""
        x = self._first(num_nodes, features, generator)
        for number, layer in enumerate(self.layers):
            if number:
                x = dropout(self.activation(x), self.rate, generator)
            x = layer(x, index, weights)  # [N, d of the layer]
        return x

    def _first(self, num_nodes: int, features: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """X W, with values of X dropped.  # [N, width]"""
        parts = []
        if "table" in self.input:
            table = self.input["table"][:num_nodes]
            ones = dropout(table.new_ones(num_nodes, 1), self.rate, generator)  # all of X that is not 0
            parts.append(ones * table)
        if features is not None:
            parts.append(dropout(features, self.rate, generator) @ self.input["weight"])
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


@dataclass(kw_only=True, eq=False)
class GraphAutoencoder(TrainedModel):
    """E = encoder(X, A), and e_u · e_v is the log-odds of a link; A has the weights of all snapshots so far, added up.

    The loss is the mean over a batch's links uv of −log σ(e_u · e_v) − Σ_q log σ(−e_a · e_b) with `negatives` pairs ab,
    drawn anew in every step from all pairs that are not linked. Every node is also its own neighbour; self-loops of
    the graph are left out, for e_v · e_v is never negative.

    X W of the first layer is a table for identities (X is one-hot and never built), F W for node features F, or the sum
    of both. The embeddings at an earlier step are what the encoder, as learned from all snapshots, makes of the links
    up to that step.

    Attributes:
        graph_: the graph it was given.
        epochs_: loss, validation score and seconds of every epoch; finished_: whether all were run.
    """

    activation: ClassVar[type[nn.Module]]  # between layers

    features: Annotated[Sizes, "features of each layer; the last is the embedding's"] = (256, 128)
    inputs: Annotated[
        Literal["identity", "features", "both"], "what a node begins with: its identity, its features, or both"
    ] = "identity"
    dropout: Annotated[float, "on the input of each layer"] = 0.0
    negatives: Annotated[int, "pairs without a link for each link"] = 1
    l2: Annotated[float, "weight of ½ Σ p² in the loss"] = 0.0
    learning_rate: Annotated[float, "of Adam"] = 0.01
    batch_size: Annotated[int, "links in a batch"] = 1 << 16
    epochs: Annotated[int, "passes over all links, at most"] = 200
    patience: Annotated[int | None, "stop after so many epochs without a better validation score"] = None
    seed: Annotated[int, "of everything random"] = 0
    device: Annotated[str, "cpu, cuda, cuda:1, …; auto takes CUDA where there is one"] = "auto"

    def check(self) -> None:
        if not self.features or min(self.features) < 1:
            raise ModelError(f"features={self.features}: one number above 0 for every layer")
        if not 0 <= self.dropout < 1:
            raise ModelError(f"dropout={self.dropout} must lie in [0, 1)")
        self._at_least_one("negatives")
        self._not_negative("l2")
        super().check()

    def check_graph(self, graph: DynamicGraph) -> None:
        super().check_graph(graph)
        if self.inputs != "identity":
            check_features(graph, self.inputs)

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self._build(device)
        self.scorer_ = torch.ones(self.features[-1]), torch.zeros(())  # e_u · e_v
        whole = self._neighbours(len(self.graph_) - 1)
        items = torch.arange(len(whole.pairs()), device=device)
        parameters = dict(self.encoder_.named_parameters())
        return Task(self.loss(whole), parameters, items, frozenset(parameters))

    @torch.no_grad()
    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order.  # [known, d]"""
        self._must_be_fitted()
        at = self._check_step(step)
        return self._encode(self._neighbours(at), at)()

    def loss(self, whole: Neighbours) -> Callable[[Tensor, torch.Generator], Tensor]:
        """The loss of a batch of links, given by their numbers; the encoder sees all of them."""
        links, free = whole.pairs(), UnlinkedPairs(whole.numbers, whole.num_nodes)
        encode = self._encode(whole, len(self.graph_) - 1)

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            others = free.draw(len(batch) * self.negatives, generator)  # [B Q, 2]
            return reconstruction_loss(encode(generator), links[batch.clamp(min=0)], others, batch >= 0)

        return loss

    def _encode(self, neighbours: Neighbours, step: int) -> Callable[..., Tensor]:
        """What gives the vectors of all nodes of a step, again and again.  # → [N, d]"""
        index, weights, features = neighbours.index, self._weights(neighbours), self._features(step)
        weights = None if weights is None else weights.to(torch.get_default_dtype())
        return lambda generator=None: self.encoder_(index, weights, neighbours.num_nodes, features, generator=generator)

    @abstractmethod
    def _layer(self, number: int, in_features: int) -> nn.Module:
        """A layer that is called with vectors, an index and weights; X W of its input X is its `lin`."""

    @abstractmethod
    def _weights(self, neighbours: Neighbours) -> Tensor | None:
        """What the layers are given beside each entry.  # [E']"""

    def _settings(self, num_items: int) -> Settings:
        return replace(super()._settings(num_items), l2=self.l2)

    def _build(self, device: torch.device) -> None:
        """An encoder with its first weights, the same on every device."""
        features = self._features(0)
        with torch.random.fork_rng(devices=[]):  # PyG's layers draw first weights of their own
            layers = [self._layer(i, size) for i, size in enumerate((1, *self.features[:-1]))]
        self.encoder_ = Encoder(
            layers,
            self.features[0],
            num_nodes=self.graph_.num_nodes if self.inputs != "features" else 0,
            num_features=0 if features is None else features.shape[1],
            activation=self.activation(),
            rate=self.dropout,
            generator=torch.Generator().manual_seed(self.seed),
        ).to(device)

    def _neighbours(self, step: int) -> Neighbours:
        """In the graph aggregated up to a step."""
        device = choose_device(self.device)
        return Neighbours.of(self.graph_[: step + 1].aggregate().to(device))

    def _features(self, step: int) -> Tensor | None:
        """Of the nodes known at a step, where they are asked for.  # [N, F]"""
        return None if self.inputs == "identity" else features_at(self.graph_, step, choose_device(self.device))

    def _learned(self) -> dict[str, Tensor]:
        return dict(self.encoder_.state_dict())

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._build(choose_device(self.device))
        load_weights(self.encoder_, tensors)


@dataclass(kw_only=True, eq=False)
class GCNAutoencoder(GraphAutoencoder):
    """Graph autoencoder with graph convolutions: a layer is D^-½ (A + I) D^-½ X W + b, with ReLU between layers.

    The loss, and what is learned from: see `GraphAutoencoder`.

    Example:
        >>> import dysat
        >>> model = dysat.MODELS["gcn-ae"](epochs=1).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 128])

    References: Kipf, Welling: Variational Graph Auto-Encoders, NIPS Workshop on Bayesian Deep Learning 2016; its
    layer: Kipf, Welling: Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017.
    """

    method: ClassVar[str] = "gcn-ae"
    activation: ClassVar[type[nn.Module]] = nn.ReLU

    def _layer(self, number: int, in_features: int) -> nn.Module:
        from torch_geometric.nn import GCNConv

        layer: nn.Module = GCNConv(in_features, self.features[number], normalize=False)  # done once, not in every step
        return layer

    def _weights(self, neighbours: Neighbours) -> Tensor | None:
        return neighbours.normalized()


@dataclass(kw_only=True, eq=False)
class GATAutoencoder(GraphAutoencoder):
    """Graph autoencoder with graph attention, with ELU between layers.

    A head of a layer is z_v = Σ_u α_uv W x_u + b over the neighbours u of v and v itself, with the softmax over u of
    LeakyReLU_0.2(aᵀ W x_u + a'ᵀ W x_v) as α; heads are concatenated. The weights of links are not looked at.
    The loss, and what is learned from: see `GraphAutoencoder`.

    Example:
        >>> import dysat
        >>> model = dysat.MODELS["gat-ae"](epochs=1).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 128])

    References: Kipf, Welling: Variational Graph Auto-Encoders, NIPS Workshop on Bayesian Deep Learning 2016; its
    layer: Veličković, Cucurull, Casanova, Romero, Liò, Bengio: Graph Attention Networks, ICLR 2018.
    """

    method: ClassVar[str] = "gat-ae"
    activation: ClassVar[type[nn.Module]] = nn.ELU

    heads: Annotated[Sizes, "heads of each layer"] = (8, 8)

    def check(self) -> None:
        super().check()
        if len(self.heads) != len(self.features):
            raise ModelError(f"heads={self.heads} and features={self.features}: one of each for every layer")
        for h, f in zip(self.heads, self.features, strict=True):
            if h < 1 or f % h:
                raise ModelError(f"heads={h} does not divide features={f}")

    def _layer(self, number: int, in_features: int) -> nn.Module:
        from torch_geometric.nn import GATConv

        heads = self.heads[number]
        layer: nn.Module = GATConv(in_features, self.features[number] // heads, heads, add_self_loops=False)
        return layer

    def _weights(self, neighbours: Neighbours) -> Tensor | None:
        return None
