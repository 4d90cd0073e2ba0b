"""Layers that make a node's vector of its own and of those of neighbours drawn for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

from dysat.nn.initial import glorot_
from dysat.sampling.neighbourhoods import Hop

Aggregator = Literal["gcn", "mean-pool", "max-pool", "lstm", "gat"]
BLOCK = 1 << 14  # nodes whose neighbours' vectors are held at once where no gradient is wanted


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
