"""An encoder of graph layers over all links at once, and the loss of links made again from inner products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from dysat.data.csr import Snapshot
from dysat.nn.dropout import dropout
from dysat.nn.initial import glorot_


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


def reconstruction_loss(e: Tensor, links: Tensor, others: Tensor, counted: Tensor) -> Tensor:
    """Mean of −log σ(e_u · e_v) − Σ log σ(−e_a · e_b), over the links that count and the pairs that go with each.

    Shapes:
        e [N, d], links [B, 2], others [B · Q, 2] (Q may be 0), counted [B] (bool).
    """
    losses = softplus(-_products(e, links)) + softplus(_products(e, others)).view(len(links), -1).sum(1)  # [B]
    return (losses * counted).sum() / counted.sum()


def _products(e: Tensor, pairs: Tensor) -> Tensor:
    """e_u · e_v.  # [B, 2] → [B]"""
    u, v = (e.index_select(0, ends) for ends in pairs.unbind(1))
    return (u * v).sum(1)
