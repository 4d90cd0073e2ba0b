"""GraphSAGE: layers over neighbours drawn at random make vectors that are near where nodes meet on walks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.inputs import check_features, features_at
from dysat.models.base.trained import Task, TrainedModel, load_weights
from dysat.nn.device import choose_device
from dysat.nn.initial import glorot_
from dysat.nn.reconstruction import reconstruction_loss
from dysat.sampling.neighbourhoods import Hop, Neighbourhoods

Aggregator = Literal["gcn", "mean-pool", "max-pool", "lstm", "gat"]
BLOCK = 1 << 14  # nodes whose neighbours' vectors are held at once where no gradient is wanted
Sizes = tuple[int, ...]


class Sage(nn.Module):
    """Layers one after the other, ReLU between them; x_v is a row of a table, F W of features F, or the sum.

    With S the neighbours drawn for v, and W, b of each layer its own, a layer gives

        gcn        W · mean of x_u over u ∈ S and v itself + b
        mean-pool  W · mean of relu(P x_u + p) over u ∈ S + W' x_v + b
        max-pool   W · largest of relu(P x_u + p) over u ∈ S, feature by feature + W' x_v + b
        lstm       W · last output of an LSTM over x_u, u ∈ S in the order drawn + W' x_v + b
        gat        Σ α_uv W x_u + b over u ∈ S and v itself, heads side by side, with the softmax over u of
                   LeakyReLU_0.2(aᵀ W x_u + a'ᵀ W x_v) as α

    W [m, x_v] of the paper is W m + W' x_v. Paper: σ after the last layer too. Authors' program: not, and neither
    here, for without negative numbers no product of two vectors is below 0. GAT's own activation is ELU; as an
    aggregator it has GraphSAGE's, with which it is much better on UCI (validation).
    """

    def __init__(
        self,
        aggregator: Aggregator,
        features: Sequence[int],
        *,
        heads: Sequence[int],  # for gat
        normalize: bool,
        num_nodes: int,
        num_features: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.input = nn.ParameterDict()
        for name, rows in (("table", num_nodes), ("weight", num_features)):
            if rows:
                self.input[name] = nn.Parameter(torch.empty(rows, features[0]))
        heads = heads if aggregator == "gat" else (1,) * len(features)
        sizes = zip((features[0], *features[:-1]), features, heads, strict=True)
        with torch.random.fork_rng(devices=[]):  # PyG's layers draw first weights of their own
            self.layers = nn.ModuleList(_layer(aggregator, *size) for size in sizes)
        self.with_itself = aggregator in ("gcn", "gat")
        self.normalize = normalize
        glorot_(self, generator)

    def forward(self, nodes: Tensor, hops: Sequence[Hop], features: Tensor | None = None) -> Tensor:
        """The vectors of the last hop's receivers, from those of nodes.  # [n], features [N, F] → [b, d]"""
        x = self._first(nodes, features)  # [n, d of the first layer]
        for number, (layer, hop) in enumerate(zip(self.layers, hops, strict=True)):
            parts = zip(torch.split(hop.receivers, BLOCK), torch.split(hop.senders, BLOCK), strict=True)
            x = torch.cat([self._receive(layer, x, *part) for part in parts])  # [b, d of the layer]
            if number < len(self.layers) - 1:
                x = relu(x)
            if self.normalize:
                x = normalize(x)
        return x

    def _receive(self, layer: nn.Module, x: Tensor, receivers: Tensor, senders: Tensor) -> Tensor:
        if self.with_itself:
            senders = torch.cat([receivers[:, None], senders], 1)  # [b, k + 1]
        into = torch.arange(len(receivers), device=x.device).repeat_interleave(senders.shape[1])
        found: Tensor = layer((x, x.index_select(0, receivers)), torch.stack([senders.flatten(), into]))
        return found

    def _first(self, nodes: Tensor, features: Tensor | None) -> Tensor:
        parts = []
        if "table" in self.input:
            parts.append(self.input["table"].index_select(0, nodes))
        if features is not None:
            parts.append(features.index_select(0, nodes) @ self.input["weight"])
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def _layer(aggregator: Aggregator, in_features: int, out_features: int, heads: int) -> nn.Module:
    from torch_geometric.nn import GATConv, SAGEConv

    layer: nn.Module
    if aggregator == "gat":
        layer = GATConv(in_features, out_features // heads, heads, add_self_loops=False)
    elif aggregator == "gcn":
        layer = SAGEConv(in_features, out_features, aggr="mean", root_weight=False)
    elif aggregator == "lstm":
        layer = SAGEConv(in_features, out_features, aggr="lstm")
    else:
        layer = SAGEConv(in_features, out_features, aggr=aggregator.removesuffix("-pool"), project=True)
    return layer


@dataclass(kw_only=True, eq=False)
class GraphSAGE(TrainedModel):
    """A layer makes z_v of x_v and the x_u of a few neighbours u of v, drawn with replacement; `aggregator` says how.

    The links are those of all snapshots so far, weights added up, without self-loops. The loss, unsupervised, is the
    mean over pairs uv of

        −log σ(z_u · z_v) − Σ_{q ≤ negatives} log σ(−z_u · z_{n_q}),  n_q drawn by (neighbours of n)^¾

    where v is met on a short random walk from u. Neighbours are drawn anew in every step; for `embed` they are drawn
    `rounds` times from the seed, and the vectors of the rounds averaged: the same every time. A node without links has
    itself for a neighbour. The layers: see `Sage`; `aggregator="gat"` is GraphSAGE + GAT.

    Example:
        >>> import dysat
        >>> options = {"aggregator": "max-pool", "epochs": 1, "walks_per_node": 1}
        >>> model = dysat.MODELS["graphsage"](**options).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 128])

    Attributes:
        graph_: the graph it was given.
        epochs_: loss, validation score and seconds of every epoch; finished_: whether all were run.

    References: Hamilton, Ying, Leskovec: Inductive Representation Learning on Large Graphs, NIPS 2017; for "gat":
        Veličković, Cucurull, Casanova, Romero, Liò, Bengio: Graph Attention Networks, ICLR 2018.
    """

    method: ClassVar[str] = "graphsage"

    aggregator: Annotated[Aggregator, "what makes one vector of the neighbours'"] = "gcn"
    features: Annotated[Sizes, "features of each layer; the last is the embedding's"] = (128, 128)
    fan_out: Annotated[Sizes, "neighbours drawn for a node in each layer, the first layer first"] = (25, 10)
    heads: Annotated[Sizes, "heads of each layer, for gat"] = (8, 8)
    inputs: Annotated[
        Literal["identity", "features", "both"], "what a node begins with: its identity, its features, or both"
    ] = "identity"
    sampling: Annotated[
        Literal["uniform", "weighted"], "draw neighbours, and steps of walks, all alike or by the weights of links"
    ] = "uniform"
    normalize: Annotated[bool, "give every vector that a layer makes length 1"] = True
    rounds: Annotated[int, "samples of neighbours whose vectors are averaged in an embedding"] = 10
    walks_per_node: Annotated[int, "random walks from each node"] = 10
    walk_length: Annotated[int, "nodes on a walk"] = 5
    negatives: Annotated[int, "negatives for each pair"] = 1
    learning_rate: Annotated[float, "of Adam"] = 1e-3
    batch_size: Annotated[int, "pairs in a batch"] = 1 << 16
    epochs: Annotated[int, "passes over all pairs, at most"] = 10
    patience: Annotated[int | None, "stop after so many epochs without a better validation score"] = None
    seed: Annotated[int, "of everything random"] = 0
    device: Annotated[str, "cpu, cuda, cuda:1, …; auto takes CUDA where there is one"] = "auto"

    def check(self) -> None:
        for name in ("features", "fan_out"):
            if not (value := getattr(self, name)) or min(value) < 1:
                raise ModelError(f"{name}={value}: one number above 0 for every layer")
        if len(self.fan_out) != len(self.features):
            raise ModelError(f"fan_out={self.fan_out} and features={self.features}: one of each for every layer")
        self._at_least_one("rounds", "walks_per_node", "negatives")
        if self.aggregator == "gat" and len(self.heads) != len(self.features):
            raise ModelError(f"heads={self.heads} and features={self.features}: one of each for every layer")
        for h, f in zip(self.heads, self.features, strict=True) if self.aggregator == "gat" else ():
            if h < 1 or f % h:
                raise ModelError(f"heads={h} does not divide features={f}")
        if self.walk_length < 2:
            raise ModelError(f"walk_length={self.walk_length} must be at least 2")
        super().check()

    def check_graph(self, graph: DynamicGraph) -> None:
        super().check_graph(graph)
        if self.inputs != "identity":
            check_features(graph, self.inputs)

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self._build(device)
        self.scorer_ = torch.ones(self.features[-1]), torch.zeros(())  # z_u · z_v
        whole = self._neighbourhoods(len(self.graph_) - 1)
        pairs = whole.walk_pairs(self.walks_per_node, self.walk_length, generator)
        items = torch.arange(len(pairs), device=device)
        return Task(self.loss(whole, pairs), dict(self.network_.named_parameters()), items)

    @torch.no_grad()
    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order.  # [known, d]"""
        self._must_be_fitted()
        at = self._check_step(step)
        whole, features = self._neighbourhoods(at), self._features(at)
        nodes = torch.arange(whole.num_nodes, device=whole.offsets.device)
        if not len(nodes):  # of which PyG's LSTM makes nothing
            return torch.zeros(0, self.features[-1], device=nodes.device)
        generator = torch.Generator(nodes.device).manual_seed(self.seed)
        total = torch.zeros((), device=nodes.device)
        for _ in range(self.rounds):
            total = total + self.network_(*whole.draw(nodes, self.fan_out, generator), features)
        return total / self.rounds

    def loss(self, whole: Neighbourhoods, pairs: Tensor) -> Callable[[Tensor, torch.Generator], Tensor]:
        """The loss of a batch of pairs, given by their numbers."""
        negatives, features = whole.negatives(), self._features(len(self.graph_) - 1)

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            chosen = pairs[batch.clamp(min=0)].long()  # [B, 2]
            group = chosen.new_zeros(len(batch), self.negatives)
            others = negatives.draw(group, generator=generator)  # [B, Q]
            asked = torch.zeros(whole.num_nodes, dtype=torch.bool, device=batch.device)
            asked[chosen] = True
            asked[others] = True
            number = asked.cumsum(0) - 1
            z = self.network_(*whole.draw(asked.nonzero()[:, 0], self.fan_out, generator), features)
            against = torch.stack([chosen[:, :1].expand_as(others), others], 2).flatten(0, 1)  # [B Q, 2]
            return reconstruction_loss(z, number[chosen], number[against], batch >= 0)

        return loss

    def _build(self, device: torch.device) -> None:
        """A network with its first weights, the same on every device."""
        features = self._features(0)
        self.network_ = Sage(
            self.aggregator,
            self.features,
            heads=self.heads,
            normalize=self.normalize,
            num_nodes=self.graph_.num_nodes if self.inputs != "features" else 0,
            num_features=0 if features is None else features.shape[1],
            generator=torch.Generator().manual_seed(self.seed),
        ).to(device)

    def _neighbourhoods(self, step: int) -> Neighbourhoods:
        """In the graph aggregated up to a step."""
        past = self.graph_[: step + 1].aggregate().to(choose_device(self.device))
        return Neighbourhoods.of(past, weighted=self.sampling == "weighted")

    def _features(self, step: int) -> Tensor | None:
        """Of the nodes known at a step, where they are asked for.  # [N, F]"""
        return None if self.inputs == "identity" else features_at(self.graph_, step, choose_device(self.device))

    def _learned(self) -> dict[str, Tensor]:
        return dict(self.network_.state_dict())

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._build(choose_device(self.device))
        load_weights(self.network_, tensors)
