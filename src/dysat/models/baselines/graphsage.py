"""GraphSAGE: layers that aggregate sampled neighbours, trained on pairs of nodes that meet on random walks."""

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
from dysat.models.base.memory import GraphSize
from dysat.models.base.trained import Task, TrainedModel, load_weights
from dysat.nn.device import choose_device
from dysat.nn.initial import glorot_
from dysat.nn.pair import reconstruction_loss
from dysat.sampling.neighbourhoods import Hop, Neighbourhoods

Aggregator = Literal["gcn", "mean-pool", "max-pool", "lstm", "gat"]
Sizes = tuple[int, ...]
BLOCK = 1 << 14  # receivers per layer call: bounds the memory of their neighbours' vectors during inference


@dataclass(kw_only=True, eq=False)
class GraphSAGE(TrainedModel):
    """Node embeddings z_v from x_v and the x_u of a few neighbours u, sampled with replacement.

    The graph is the sum of all snapshots so far, without self-loops. The unsupervised loss is the mean over pairs uv of

        −log σ(z_u · z_v) − Σ_{q ≤ negatives} log σ(−z_u · z_{n_q}),   P(n_q = n) ∝ (number of neighbours of n)^¾

    where v occurs on a short random walk from u. Neighbours are sampled again in every training step. `embed` samples
    them `rounds` times from the seed and averages the vectors, so its result is deterministic. A node without links is
    its own neighbour. The aggregators are defined in `Sage`; `aggregator="gat"` is GraphSAGE + GAT.

    Attributes:
        graph_: The training graph.
        network_: The trained `Sage`.
        epochs_: Loss, validation score and seconds of every epoch.
        finished_: Whether all epochs ran.

    Example:
        >>> import dysat
        >>> from dysat.models import GraphSAGE
        >>> model = GraphSAGE(aggregator="max-pool", epochs=1, walks_per_node=1).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 128])

    References:
        Hamilton, Ying, Leskovec: Inductive Representation Learning on Large Graphs, NIPS 2017.
        Veličković, Cucurull, Casanova, Romero, Liò, Bengio: Graph Attention Networks, ICLR 2018 (for "gat").
    """

    method: ClassVar[str] = "graphsage"
    about: ClassVar[str] = "aggregated features of sampled neighbours, five aggregators"
    requires: ClassVar[tuple[str, ...]] = ("torch_geometric",)

    aggregator: Annotated[Aggregator, "How the vectors of the neighbours are combined"] = "gcn"
    features: Annotated[Sizes, "Output features of each layer; the last is the embedding size"] = (128, 128)
    fan_out: Annotated[Sizes, "Number of neighbours sampled per node in each layer, first layer first"] = (25, 10)
    heads: Annotated[Sizes, "Number of attention heads of each layer, for aggregator=gat"] = (8, 8)
    inputs: Annotated[
        Literal["identity", "features", "both"], "Input of the first layer: node identity, node features, or both"
    ] = "identity"
    sampling: Annotated[
        Literal["uniform", "weighted"], "How neighbours and walk steps are sampled: uniformly, or by link weight"
    ] = "uniform"
    normalize: Annotated[bool, "Scale the output vectors of every layer to length 1"] = True
    rounds: Annotated[int, "Number of neighbour samples averaged in an embedding"] = 10
    walks_per_node: Annotated[int, "Number of random walks per node"] = 10
    walk_length: Annotated[int, "Number of nodes on a walk"] = 5
    negatives: Annotated[int, "Number of negative samples per pair"] = 1
    learning_rate: Annotated[float, "Learning rate of Adam"] = 1e-3
    batch_size: Annotated[int, "Number of pairs per batch"] = 1 << 16
    epochs: Annotated[int, "Maximum number of passes over all pairs"] = 10
    patience: Annotated[int | None, "Stop after this many epochs without a better validation score"] = None
    seed: Annotated[int, "Random seed"] = 0
    device: Annotated[str, "Device: cpu, cuda, cuda:1, …; auto uses CUDA if available"] = "auto"

    def check(self) -> None:
        for name in ("features", "fan_out"):
            if not (value := getattr(self, name)) or min(value) < 1:
                raise ModelError(f"{name}={value} must have one positive number per layer")
        if len(self.fan_out) != len(self.features):
            raise ModelError(f"fan_out={self.fan_out} and features={self.features} must have one number per layer each")
        self._at_least_one("rounds", "walks_per_node", "negatives")
        if self.aggregator == "gat" and len(self.heads) != len(self.features):
            raise ModelError(f"heads={self.heads} and features={self.features} must have one number per layer each")
        for h, f in zip(self.heads, self.features, strict=True) if self.aggregator == "gat" else ():
            if h < 1 or f % h:
                raise ModelError(f"heads={h} does not divide features={f}")
        if self.walk_length < 2:
            raise ModelError(f"walk_length={self.walk_length} must be at least 2")
        super().check()

    def check_inputs(self, graph: DynamicGraph) -> None:
        if self.inputs != "identity":
            check_features(graph, self.inputs)

    def _least_memory(self, size: GraphSize) -> float:
        return 0.0 if self.inputs == "features" else float(self._bytes_per_weight * size.nodes * self.features[0])

    @property
    def _sizes(self) -> tuple[str, ...]:
        return ("features",)

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self._build(device)
        self.scorer_ = torch.ones(self.features[-1]), torch.zeros(())  # z_u · z_v
        neighbourhoods = self._neighbourhoods(len(self.graph_) - 1)
        pairs = neighbourhoods.walk_pairs(self.walks_per_node, self.walk_length, generator)
        items = torch.arange(len(pairs), device=device)
        return Task(self.loss(neighbourhoods, pairs), dict(self.network_.named_parameters()), items)

    def loss(self, neighbourhoods: Neighbourhoods, pairs: Tensor) -> Callable[[Tensor, torch.Generator], Tensor]:
        """Return the loss of a batch of pair indices (−1 is padding)."""
        sampler, features = neighbourhoods.negatives(), self._features(len(self.graph_) - 1)

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            positives = pairs[batch.clamp(min=0)].long()  # [B, 2]
            group = positives.new_zeros(len(batch), self.negatives)
            negatives = sampler.draw(group, generator=generator)  # [B, Q]
            # Embed every node of the batch once; row[v] is the row of node v in z.
            in_batch = torch.zeros(neighbourhoods.num_nodes, dtype=torch.bool, device=batch.device)
            in_batch[positives] = True
            in_batch[negatives] = True
            row = in_batch.cumsum(0) - 1
            z = self.network_(*neighbourhoods.draw(in_batch.nonzero()[:, 0], self.fan_out, generator), features)
            unlinked = torch.stack([positives[:, :1].expand_as(negatives), negatives], 2).flatten(0, 1)  # [B Q, 2]
            return reconstruction_loss(z, row[positives], row[unlinked], batch >= 0)

        return loss

    @torch.no_grad()
    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order.  # [known, d]"""
        self._must_be_fitted()
        at = self._check_step(step)
        neighbourhoods, features = self._neighbourhoods(at), self._features(at)
        nodes = torch.arange(neighbourhoods.num_nodes, device=neighbourhoods.offsets.device)
        if not len(nodes):  # PyG's LSTM does not accept an empty input
            return torch.zeros(0, self.features[-1], device=nodes.device)
        generator = torch.Generator(nodes.device).manual_seed(int(self.seed))
        total = torch.zeros((), device=nodes.device)
        for _ in range(self.rounds):
            total = total + self.network_(*neighbourhoods.draw(nodes, self.fan_out, generator), features)
        return total / self.rounds

    def _build(self, device: torch.device) -> None:
        """Create the network; its initial weights are the same on every device."""
        features = self._features(0)
        self.network_ = Sage(
            self.aggregator,
            self.features,
            heads=self.heads,
            normalize=self.normalize,
            num_nodes=self.graph_.num_nodes if self.inputs != "features" else 0,
            num_features=0 if features is None else features.shape[1],
            generator=torch.Generator().manual_seed(int(self.seed)),
        ).to(device)

    def _neighbourhoods(self, step: int) -> Neighbourhoods:
        """Neighbours in the graph aggregated up to a step."""
        past = self.graph_[: step + 1].aggregate().to(choose_device(self.device))
        return Neighbourhoods.of(past, weighted=self.sampling == "weighted")

    def _features(self, step: int) -> Tensor | None:
        """The features of the nodes known at a step, or None if the model does not use them.  # [N, F]"""
        return None if self.inputs == "identity" else features_at(self.graph_, step, choose_device(self.device))

    def _learned(self) -> dict[str, Tensor]:
        return dict(self.network_.state_dict())

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._build(choose_device(self.device))
        load_weights(self.network_, tensors)


class Sage(nn.Module):
    """Aggregation layers with ReLU between them; the input x_v is a row of a table, F W of features F, or the sum.

    With S the sampled neighbours of v, a layer is

        gcn        W mean_{u ∈ S ∪ {v}} x_u + b
        mean-pool  W mean_{u ∈ S} ReLU(P x_u + p) + W' x_v + b
        max-pool   W max_{u ∈ S} ReLU(P x_u + p) + W' x_v + b, the maximum per feature
        lstm       W h + W' x_v + b, h the last output of an LSTM over x_u, u ∈ S in sampling order
        gat        Σ_{u ∈ S ∪ {v}} α_uv W x_u + b, heads concatenated,
                   α_uv = softmax_u LeakyReLU_0.2(aᵀ W x_u + a'ᵀ W x_v)

    The paper's W [m, x_v] is W m + W' x_v. Paper: σ after the last layer too. Authors' program: no σ there. Here: none,
    because inner products of non-negative vectors cannot be negative. GAT's own activation is ELU; as an aggregator it
    uses ReLU like the others, which is much better on UCI (validation).
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
        with torch.random.fork_rng(devices=[]):  # PyG's layers draw initial weights from the global generator
            self.layers = nn.ModuleList(_layer(aggregator, *size) for size in sizes)
        self.include_self = aggregator in ("gcn", "gat")
        self.normalize = normalize
        glorot_(self, generator)

    def forward(self, nodes: Tensor, hops: Sequence[Hop], features: Tensor | None = None) -> Tensor:
        """Embed the receivers of the last hop, starting from `nodes`.  # [n], features [N, F] → [b, d]"""
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
        if self.include_self:
            senders = torch.cat([receivers[:, None], senders], 1)  # [b, k + 1]
        targets = torch.arange(len(receivers), device=x.device).repeat_interleave(senders.shape[1])
        received: Tensor = layer((x, x.index_select(0, receivers)), torch.stack([senders.flatten(), targets]))
        return received

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
