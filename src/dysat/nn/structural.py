"""Structural attention: self-attention over a node's neighbours in a snapshot."""

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
from dysat.sampling.nearby import Nearby

Side = Literal["receiver", "sender"]
SLOPE = 0.2  # of LeakyReLU below 0


class StructuralAttention(nn.Module):
    """One layer of structural attention, Eq. (1), with its heads concatenated, Eq. (3).

    All snapshots and heads are computed at once. For every head and link (v ← u) of a snapshot with weight A_uv:

        logit_uv = LeakyReLU(A_uv · aᵀ[W x_u ‖ W x_v])
        α_uv = softmax of logit_uv over the neighbours u of v
        z_v = ELU(Σ_u α_uv W x_u)

    Args:
        out_features: width of the output, all heads together.
        num_heads: number of attention heads; it divides out_features.
        num_nodes: number of one-hot node identities in the input; W is then a lookup table. 0 for no identity.
        in_features: width of the other input, instead of the identity or in addition to it. 0 for none.
        normalize: `receiver` takes the softmax over the senders of a receiver (the paper's text), `sender` over the
            receivers of a sender (the authors' program; a sender splits its message, so z_v grows with v's degree).
        bias: add a bias to each half of aᵀ[…], as in the authors' program.
        residual: add W' x_v to z_v.
        rate: dropout rate of the input and of α.
        generator: source of the initial weights.

    Shapes:
        - nodes: a `Pattern.lookup` of the nodes of A rows, or None
        - x: [A, in_features], or None
        - links: a `Pattern` over the rows with E entries; weights: [E]
        - output: [A, out_features]
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
        """Return z for all rows, or for the receivers of `part` only.  # [A, d] or [A', d]"""
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
        """Compute W x only for the rows that send to the part; the logits of the others need only aᵀ W x."""
        weight = _require(self.weight)
        dropped = dropout(x, self.rate, generator)
        a_w, _ = head_dots(weight.view(len(weight), *self.sender.shape), self._both_halves())  # [in_features, 2H]
        sending, dropped = look_up_with_input(dropped, Pattern.lookup(part.senders, len(x)))  # [S', in_features]
        scores = dropped @ a_w  # [A, 2H]
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

    def nearby(
        self, nodes: Pattern | None, x: Tensor | None, near: Nearby, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return z for the receivers of `near.part`, from the nodes and inputs of `near.rows`.  # [A', …] → [R, d]"""
        part, size = near.part, len(near.rows)
        sending = Pattern.lookup(part.senders, size)
        if nodes is None and x is not None:
            dropped, weight = dropout(x, self.rate, generator), _require(self.weight)
            a_w, _ = head_dots(weight.view(len(weight), *self.sender.shape), self._both_halves())  # [in_features, 2H]
            values, dropped = look_up_with_input(dropped, sending)  # [S, in_features]
            scores, h = dropped @ a_w, values @ weight
        else:
            scores, every = head_dots(self._project(nodes, x, generator), self._both_halves())
            h = look_up(every.flatten(1), sending)
        sender, receiver = self._with_bias(scores)  # [A', H] each
        alpha = self.attention(sender, receiver, near.links, near.weights, near.shift).index_select(0, part.entries)
        alpha = dropout(alpha if near.scale is None else alpha * near.scale[:, None], self.rate, generator)
        z = weighted_sum(alpha, h.view(len(h), *self.sender.shape), part.pattern, elu=True).flatten(1)
        own = None if nodes is None else Pattern.lookup(nodes.senders[part.receivers], nodes.num_senders)
        return self._add_residual(z, own, None if x is None else x.index_select(0, part.receivers))

    def attention(
        self, sender: Tensor, receiver: Tensor, links: Pattern, weights: Tensor, shift: Tensor | None = None
    ) -> Tensor:
        """Return α for every link and head; `shift` is added to the logits.  # [S, H], [R, H], [E] → [E, H]"""
        logits = entry_logits(sender, receiver, weights, SLOPE, links)
        logits = logits if shift is None else logits + shift[:, None]
        # Paper: over the neighbours u of the receiver v. Authors' program: over the receivers v of the sender u.
        return (segment_softmax if self.normalize == "receiver" else sender_softmax)(logits, links)

    def isolated(
        self, nodes: Pattern | None, x: Tensor | None, *, linked: bool, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return z for nodes without neighbours, which have a self-loop (α = 1) if `linked`, else no link.  # [L, d]"""
        h = self._project(nodes, x, generator)
        alpha = dropout(h.new_full((len(h), self.num_heads, 1), float(linked)), self.rate, generator)
        z = functional.elu(alpha * h).flatten(1)
        return self._add_residual(z, nodes, x)

    def _project(self, nodes: Pattern | None, x: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """Return W x, with dropout on x.  # [A, H, F]"""
        parts = []
        if self.table is not None and nodes is not None:
            mask = None
            if generator is not None and self.rate:  # dropout on the single 1 of a one-hot row
                mask = keep_mask(torch.Size((nodes.num_receivers, 1)), self.rate, generator, self.table.dtype)
            parts.append(look_up(self.table, nodes, mask))
        if self.weight is not None and x is not None:
            parts.append(dropout(x, self.rate, generator) @ self.weight)
        h = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return h.view(len(h), *self.sender.shape)

    def _both_halves(self) -> Tensor:
        return torch.stack([self.sender, self.receiver])  # [2, H, F]

    def _with_bias(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        if self.bias is not None:
            scores = scores + self.bias.flatten()
        sender, receiver = torch.split(scores, self.num_heads, 1)  # slices would need two gradient arrays
        return sender, receiver

    def _add_residual(self, z: Tensor, nodes: Pattern | None, x: Tensor | None) -> Tensor:
        if "table" in self.residual and nodes is not None:
            z = z + look_up(self.residual["table"], nodes)
        if "weight" in self.residual and x is not None:
            z = z + x @ self.residual["weight"]
        return z


def _glorot(shape: tuple[int, int], fans: int, generator: torch.Generator) -> nn.Parameter:
    """Uniform in ±√(6 / fans), as in Glorot and Bengio (2010)."""
    bound = math.sqrt(6 / fans)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))


def _require(weight: nn.Parameter | None) -> nn.Parameter:
    if weight is None:
        raise TypeError("this layer has no weight: in_features=0")
    return weight
