"""Graph autoencoders: GCN or GAT layers embed the nodes, inner products reconstruct the links."""

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
from dysat.models.base.memory import GraphSize
from dysat.models.base.trained import Task, TrainedModel, load_weights
from dysat.nn.device import choose_device
from dysat.nn.dropout import dropout
from dysat.nn.initial import glorot_
from dysat.nn.pair import reconstruction_loss
from dysat.sampling.pairs import UnlinkedPairs
from dysat.training import Settings

Sizes = tuple[int, ...]


@dataclass(kw_only=True, eq=False)
class GraphAutoencoder(TrainedModel):
    """Base class: E = encoder(X, A), and the log-odds of a link uv are e_u · e_v.

    A is the sum of the adjacency matrices of all snapshots so far, without self-loops (e_v · e_v is never negative);
    every node is its own neighbour. The loss is the mean over the links uv of a batch of

        −log σ(e_u · e_v) − Σ_q log σ(−e_a · e_b),   q ≤ `negatives`, ab a random pair without a link

    with new negative pairs in every training step.

    The product X W of the first layer is a row of a table per node for identities (a one-hot X is never built), F W for
    node features F, or the sum of both. `embed` of an earlier step applies the trained encoder to the links up to it.

    Attributes:
        graph_: The training graph.
        encoder_: The trained `Encoder`.
        epochs_: Loss, validation score and seconds of every epoch.
        finished_: Whether all epochs ran.
    """

    activation: ClassVar[type[nn.Module]]  # between layers

    features: Annotated[Sizes, "Output features of each layer; the last is the embedding size"] = (256, 128)
    inputs: Annotated[
        Literal["identity", "features", "both"], "Input of the first layer: node identity, node features, or both"
    ] = "identity"
    dropout: Annotated[float, "Dropout rate on the input of each layer"] = 0.0
    negatives: Annotated[int, "Number of negative pairs per link"] = 1
    l2: Annotated[float, "L2 penalty: weight of ½ Σ p² over all parameters"] = 0.0
    learning_rate: Annotated[float, "Learning rate of Adam"] = 0.01
    batch_size: Annotated[int, "Number of links per batch"] = 1 << 16
    epochs: Annotated[int, "Maximum number of passes over all links"] = 200
    patience: Annotated[int | None, "Stop after this many epochs without a better validation score"] = None
    seed: Annotated[int, "Random seed"] = 0
    device: Annotated[str, "Device: cpu, cuda, cuda:1, …; auto uses CUDA if available"] = "auto"

    def check(self) -> None:
        if not self.features or min(self.features) < 1:
            raise ModelError(f"features={self.features} must have one positive number per layer")
        if not 0 <= self.dropout < 1:
            raise ModelError(f"dropout={self.dropout} must lie in [0, 1)")
        self._at_least_one("negatives")
        self._not_negative("l2")
        super().check()

    def check_inputs(self, graph: DynamicGraph) -> None:
        if self.inputs != "identity":
            check_features(graph, self.inputs)

    def _least_memory(self, size: GraphSize) -> float:
        # A layer holds what each entry of A + I sends, before and after it is weighted.
        table = 0.0 if self.inputs == "features" else float(size.nodes * self.features[0])
        sent = 8.0 * (size.nodes + 2 * size.pairs) * max(self.features) if self.epochs else 0.0
        return max(self._bytes_per_weight * table, 4 * table + sent)

    @property
    def _sizes(self) -> tuple[str, ...]:
        return ("features",)

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self._build(device)
        self.scorer_ = torch.ones(self.features[-1]), torch.zeros(())  # e_u · e_v
        neighbours = self._neighbours(len(self.graph_) - 1)
        items = torch.arange(len(neighbours.links()), device=device)
        parameters = dict(self.encoder_.named_parameters())
        return Task(self.loss(neighbours), parameters, items, frozenset(parameters))

    def loss(self, neighbours: Neighbours) -> Callable[[Tensor, torch.Generator], Tensor]:
        """Return the loss of a batch of link indices (−1 is padding); the encoder sees all links."""
        links, unlinked = neighbours.links(), UnlinkedPairs(neighbours.keys, neighbours.num_nodes)
        encode = self._encode(neighbours, len(self.graph_) - 1)

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            negatives = unlinked.draw(len(batch) * self.negatives, generator)  # [B Q, 2]
            return reconstruction_loss(encode(generator), links[batch.clamp(min=0)], negatives, batch >= 0)

        return loss

    @torch.no_grad()
    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order.  # [known, d]"""
        self._must_be_fitted()
        at = self._check_step(step)
        return self._encode(self._neighbours(at), at)()

    def _encode(self, neighbours: Neighbours, step: int) -> Callable[..., Tensor]:
        """Return a function that encodes all nodes of a step, with dropout if it is given a generator.  # → [N, d]"""
        index, weights, features = neighbours.index, self._weights(neighbours), self._features(step)
        weights = None if weights is None else weights.to(torch.get_default_dtype())
        return lambda generator=None: self.encoder_(index, weights, neighbours.num_nodes, features, generator=generator)

    @abstractmethod
    def _layer(self, number: int, in_features: int) -> nn.Module:
        """A PyG layer, called with vectors, index and weights; `lin` is its product X W."""

    @abstractmethod
    def _weights(self, neighbours: Neighbours) -> Tensor | None:
        """The weight of each entry, as the layers expect it.  # [E']"""

    def _settings(self, num_items: int) -> Settings:
        return replace(super()._settings(num_items), l2=self.l2)

    def _build(self, device: torch.device) -> None:
        """Create the encoder; its initial weights are the same on every device."""
        features = self._features(0)
        with torch.random.fork_rng(devices=[]):  # PyG's layers draw initial weights from the global generator
            layers = [self._layer(i, size) for i, size in enumerate((1, *self.features[:-1]))]
        self.encoder_ = Encoder(
            layers,
            self.features[0],
            num_nodes=self.graph_.num_nodes if self.inputs != "features" else 0,
            num_features=0 if features is None else features.shape[1],
            activation=self.activation(),
            rate=self.dropout,
            generator=torch.Generator().manual_seed(int(self.seed)),
        ).to(device)

    def _neighbours(self, step: int) -> Neighbours:
        """Neighbours in the graph aggregated up to a step."""
        device = choose_device(self.device)
        return Neighbours.of(self.graph_[: step + 1].aggregate().to(device))

    def _features(self, step: int) -> Tensor | None:
        """The features of the nodes known at a step, or None if the model does not use them.  # [N, F]"""
        return None if self.inputs == "identity" else features_at(self.graph_, step, choose_device(self.device))

    def _learned(self) -> dict[str, Tensor]:
        return dict(self.encoder_.state_dict())

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._build(choose_device(self.device))
        load_weights(self.encoder_, tensors)


@dataclass(kw_only=True, eq=False)
class GCNAutoencoder(GraphAutoencoder):
    """Graph autoencoder with graph convolutions: a layer is D^-½ (A + I) D^-½ X W + b, with ReLU between layers.

    Loss, inputs and attributes: see `GraphAutoencoder`.

    Example:
        >>> import dysat
        >>> from dysat.models import GCNAutoencoder
        >>> model = GCNAutoencoder(epochs=1).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 128])

    References:
        Kipf, Welling: Variational Graph Auto-Encoders, NIPS Workshop on Bayesian Deep Learning 2016.
        Kipf, Welling: Semi-Supervised Classification with Graph Convolutional Networks, ICLR 2017.
    """

    method: ClassVar[str] = "gcn-ae"
    about: ClassVar[str] = "graph autoencoder with graph convolutions"
    requires: ClassVar[tuple[str, ...]] = ("torch_geometric",)
    activation: ClassVar[type[nn.Module]] = nn.ReLU

    def _layer(self, number: int, in_features: int) -> nn.Module:
        from torch_geometric.nn import GCNConv

        layer: nn.Module = GCNConv(in_features, self.features[number], normalize=False)  # normalized once, in _weights
        return layer

    def _weights(self, neighbours: Neighbours) -> Tensor | None:
        return neighbours.normalized()


@dataclass(kw_only=True, eq=False)
class GATAutoencoder(GraphAutoencoder):
    """Graph autoencoder with graph attention, with ELU between layers.

    A head of a layer is

        z_v = Σ_u α_uv W x_u + b,   α_uv = softmax_u LeakyReLU_0.2(aᵀ W x_u + a'ᵀ W x_v)

    over the neighbours u of v and v itself; heads are concatenated. Link weights are ignored.
    Loss, inputs and attributes: see `GraphAutoencoder`.

    Example:
        >>> import dysat
        >>> from dysat.models import GATAutoencoder
        >>> model = GATAutoencoder(epochs=1).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 128])

    References:
        Kipf, Welling: Variational Graph Auto-Encoders, NIPS Workshop on Bayesian Deep Learning 2016.
        Veličković, Cucurull, Casanova, Romero, Liò, Bengio: Graph Attention Networks, ICLR 2018.
    """

    method: ClassVar[str] = "gat-ae"
    about: ClassVar[str] = "graph autoencoder with graph attention"
    requires: ClassVar[tuple[str, ...]] = ("torch_geometric",)
    activation: ClassVar[type[nn.Module]] = nn.ELU

    heads: Annotated[Sizes, "Number of attention heads of each layer"] = (8, 8)

    def check(self) -> None:
        super().check()
        if len(self.heads) != len(self.features):
            raise ModelError(f"heads={self.heads} and features={self.features} must have one number per layer each")
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


class Encoder(nn.Module):
    """PyG layers in sequence, with dropout on the input of each and an activation between them.

    X may be one-hot, so the product X W of the first layer is computed here, and the layer's own `lin` is removed.
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
        """Embed the first `num_nodes` nodes; a generator turns dropout on.  # [2, E'], [E'] → [N, d]"""
        x = self._first(num_nodes, features, generator)
        for number, layer in enumerate(self.layers):
            if number:
                x = dropout(self.activation(x), self.rate, generator)
            x = layer(x, index, weights)  # [N, d of the layer]
        return x

    def _first(self, num_nodes: int, features: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """X W, with dropout on X.  # [N, width]"""
        parts = []
        if "table" in self.input:
            table = self.input["table"][:num_nodes]
            ones = dropout(table.new_ones(num_nodes, 1), self.rate, generator)  # the non-zero entries of a one-hot X
            parts.append(ones * table)
        if features is not None:
            parts.append(dropout(features, self.rate, generator) @ self.input["weight"])
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The entries of A + I, sorted by receiver and sender.

    Shapes:
        keys [E'] (receiver · N + sender), index [2, E'] (senders, receivers), weights [E'] (float64).
    """

    num_nodes: int
    keys: Tensor
    weights: Tensor

    @classmethod
    def of(cls, snapshot: Snapshot) -> Neighbours:
        """The neighbours of all nodes of a snapshot; its self-loops are replaced by I."""
        receivers, senders, weights = snapshot.entries()
        size, other = snapshot.num_nodes, receivers != senders
        diagonal = torch.arange(size, device=receivers.device) * (size + 1)
        keys, order = torch.cat([(receivers * size + senders)[other], diagonal]).sort()
        return cls(size, keys, torch.cat([weights[other], weights.new_ones(size)])[order])

    @property
    def index(self) -> Tensor:
        return torch.stack([self.keys % self.num_nodes, self.keys // self.num_nodes])

    def links(self) -> Tensor:
        """Every link u < v once.  # [E, 2]"""
        senders, receivers = self.index
        return torch.stack([receivers, senders], 1)[receivers < senders]

    def normalized(self) -> Tensor:
        """The entries of D^-½ (A + I) D^-½.  # [E']"""
        senders, receivers = self.index
        scale = self.weights.new_zeros(self.num_nodes).index_add_(0, receivers, self.weights).rsqrt()
        return scale[receivers] * self.weights * scale[senders]
