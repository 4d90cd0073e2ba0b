"""Self-attention over the neighbours in a snapshot."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dysat.nn.dropout import dropout, keep_mask
from dysat.nn.ops.sparse import (
    entry_logits,
    head_dots,
    look_up,
    look_up_with_input,
    segment_softmax,
    sender_softmax,
    weighted_sum,
)
from dysat.sampling.blocks import Part, Pattern

Side = Literal["receiver", "sender"]
SLOPE = 0.2


class StructuralAttention(nn.Module):
    """One layer of structural attention, all snapshots and heads at once: Eq. (1).

    For every head, over the links (v ← u) of a snapshot with weights A_uv:

        logit_uv = LeakyReLU(A_uv · aᵀ[W x_u ‖ W x_v])
        α_uv = softmax of logit_uv over the neighbours u of v
        z_v = ELU(Σ_u α_uv W x_u),    heads concatenated.

    Args:
        num_nodes: width of a one-hot node identity as input (W is then a table that is looked up); 0 for none.
        in_features: width of other input, beside the identity or instead of it; 0 for none.
        normalize: the softmax runs over the senders of a receiver (the paper's text), or over the receivers of
            a sender (the authors' program; a sender then splits its message, and z_v grows with the degree of v).
        bias: a bias for each half of a, as in the authors' program.
        residual: add W' x_v to z_v.

    Shapes: nodes: a Pattern.lookup of the nodes of A rows, x [A, in_features]; links: a Pattern over the rows;
        weights [E]; result [A, out_features].
    """

    def __init__(
        self,
        out_features: int,
        num_heads: int,
        *,
        num_nodes: int = 0,
        in_features: int = 0,
        normalize: Side = "receiver",
        bias: bool = False,
        residual: bool = False,
        rate: float = 0.0,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        width = out_features // num_heads
        self.num_heads, self.normalize, self.rate = num_heads, normalize, rate
        fan = num_nodes + in_features
        self.table = _glorot((num_nodes, out_features), fan + width, generator) if num_nodes else None
        self.weight = _glorot((in_features, out_features), fan + width, generator) if in_features else None
        self.sender = _glorot((num_heads, width), width + 1, generator)  # the two halves of a
        self.receiver = _glorot((num_heads, width), width + 1, generator)
        self.bias = nn.Parameter(torch.zeros(2, num_heads)) if bias else None
        shapes = {"table": (num_nodes, out_features), "weight": (in_features, out_features)}
        self.residual = nn.ParameterDict(
            {name: _glorot(shape, fan + out_features, generator) for name, shape in shapes.items() if shape[0]}
            if residual
            else {}
        )

    def forward(
        self,
        nodes: Pattern | None,
        x: Tensor | None,
        links: Pattern,
        weights: Tensor,
        *,
        part: Part | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """z of all rows, or of those of a part of the links.  # [A, d] or [A', d]"""
        if part is not None and nodes is None and x is not None:
            return self._forward_part(x, links, weights, part, generator)
        h = self._project(nodes, x, generator)  # [A, H, F]
        scores, h = head_dots(h, self._both_halves())  # [A, 2H]: a₁ᵀ h and a₂ᵀ h of every head
        sender, receiver = self._with_bias(scores)  # [A, H] each
        alpha = dropout(self.attention(sender, receiver, links, weights), self.rate, generator)  # [E, H]
        z = weighted_sum(alpha, h, links, elu=True).flatten(1)  # [A, d]
        z = self._add_residual(z, nodes, x)
        return z if part is None else z.index_select(0, part.receivers)

    def _forward_part(
        self, x: Tensor, links: Pattern, weights: Tensor, part: Part, generator: torch.Generator | None
    ) -> Tensor:
        """Without W x of rows that send to none of the part; their logits need aᵀ W x only."""
        weight = _present(self.weight)
        dropped = dropout(x, self.rate, generator)
        half, _ = head_dots(weight.view(len(weight), *self.sender.shape), self._both_halves())  # [in_features, 2H]
        sending, dropped = look_up_with_input(dropped, Pattern.lookup(part.senders, len(x)))  # [S', in_features]
        scores = dropped @ half  # [A, 2H]
        sender, receiver = self._with_bias(scores)
        if self.normalize == "receiver":
            sender, receiver = sender.index_select(0, part.senders), receiver.index_select(0, part.receivers)
            alpha = self.attention(sender, receiver, part.pattern, weights.index_select(0, part.entries))
        else:
            alpha = self.attention(sender, receiver, links, weights).index_select(0, part.entries)
        alpha = dropout(alpha, self.rate, generator)  # [E', H]
        h = (sending @ weight).view(len(sending), *self.sender.shape)  # [S', H, F]
        z = weighted_sum(alpha, h, part.pattern, elu=True).flatten(1)
        return self._add_residual(z, None, x.index_select(0, part.receivers))

    def attention(self, sender: Tensor, receiver: Tensor, links: Pattern, weights: Tensor) -> Tensor:
        """α for every link and head.  # [S, H], [R, H] → [E, H]"""
        logits = entry_logits(sender, receiver, weights, SLOPE, links)
        # Paper: over the neighbours u of the receiver v. Authors' program: over the receivers v of the sender u.
        return (segment_softmax if self.normalize == "receiver" else sender_softmax)(logits, links)

    def alone(
        self, nodes: Pattern | None, x: Tensor | None, *, linked: bool, generator: torch.Generator | None = None
    ) -> Tensor:
        """What becomes of nodes without neighbours: `linked` to themselves (α = 1), or to nothing.  # [L, d]"""
        h = self._project(nodes, x, generator)
        alpha = dropout(h.new_full((len(h), self.num_heads, 1), float(linked)), self.rate, generator)
        z = functional.elu(alpha * h).flatten(1)
        return self._add_residual(z, nodes, x)

    def _project(self, nodes: Pattern | None, x: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """W x, with dropout on x.  # [A, H, F]"""
        parts = []
        if self.table is not None and nodes is not None:
            one = None  # of the one-hot input, with dropout on it
            if generator is not None and self.rate:
                one = keep_mask(torch.Size((nodes.num_receivers, 1)), self.rate, generator, self.table.dtype)
            parts.append(look_up(self.table, nodes, one))
        if self.weight is not None and x is not None:
            parts.append(dropout(x, self.rate, generator) @ self.weight)
        h = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return h.view(len(h), *self.sender.shape)

    def _both_halves(self) -> Tensor:
        return torch.stack([self.sender, self.receiver])  # [2, H, F]

    def _with_bias(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        if self.bias is not None:
            scores = scores + self.bias.flatten()
        sender, receiver = torch.split(scores, self.num_heads, 1)  # its gradient is one array, that of slices two
        return sender, receiver

    def _add_residual(self, z: Tensor, nodes: Pattern | None, x: Tensor | None) -> Tensor:
        if "table" in self.residual and nodes is not None:
            z = z + look_up(self.residual["table"], nodes)
        if "weight" in self.residual and x is not None:
            z = z + x @ self.residual["weight"]
        return z


def _glorot(shape: tuple[int, int], fans: int, generator: torch.Generator) -> nn.Parameter:
    """Uniform between ±√(6 / fans), as Glorot and Bengio proposed."""
    bound = math.sqrt(6 / fans)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))


def _present(weight: nn.Parameter | None) -> nn.Parameter:
    if weight is None:
        raise TypeError("a layer without input features")
    return weight
