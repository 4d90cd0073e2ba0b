"""Temporal attention: self-attention over a node's own history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from dysat.nn.dropout import dropout, keep_mask
from dysat.nn.ops.history import History
from dysat.nn.ops.sparse import (
    few_queries,
    has_history_kernels,
    history_attention,
    kernels_for,
    look_up,
    pair_dot,
    segment_softmax,
    weighted_sum,
)

__all__ = ["FeedForward", "History", "Scale", "TemporalAttention"]

Scale = Literal["features", "steps"]
MAX_DISTANCE = 64  # steps farther apart share one weight
FEWER = 1.5  # times fewer products make projecting queries, in training, faster than projecting rows


class TemporalAttention(nn.Module):
    """One layer of temporal attention, Eq. (2), with its heads concatenated, Eq. (4).

    All nodes and heads are computed at once. A node's rows x_1 … x_T, with the position p_t added to each, attend to
    each other, but never to a later step:

        e_ij = (x_i W_q) · (x_j W_k) / √F'    for j ≤ i
        β_ij = softmax of e_ij over j
        z_i = Σ_j β_ij (x_j W_v)

    One row can stand for many steps. Rows and positions are therefore projected separately and added per entry.

    With `times`, every head adds a learned weight for the distance between steps i and j to e_ij, initially
    −distance · slope with slopes from 1 to 1/256. The newest step is then treated like any other; a position
    embedding of its own would be the least trained one.

    Args:
        in_features: width of the input.
        out_features: width of the output, all heads together.
        num_heads: number of attention heads; it divides out_features.
        scale: divide by √F' (`features`, the paper) or by √T (`steps`, the authors' program).
        residual: add x_i to z_i.
        rate: dropout rate of β.
        times: non-decreasing integers, one per step.
        generator: source of the initial weights.

    Shapes:
        - x: [S, in_features]
        - positions: [T, in_features], or None
        - history: a `History` of Q queries over S rows, with P entries
        - output: [Q, out_features]
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        num_heads: int,
        *,
        scale: Scale = "features",
        residual: bool = False,
        rate: float = 0.0,
        times: Tensor | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.num_heads, self.scale, self.residual, self.rate = num_heads, scale, residual, rate
        self.distance = None
        self.register_buffer("times", times, persistent=False)
        if times is not None:
            farthest = min(MAX_DISTANCE, int(times[-1] - times[0]))
            slopes = 2.0 ** (-8 * torch.arange(num_heads) / max(1, num_heads - 1))
            self.distance = nn.Parameter(-torch.arange(farthest + 1.0)[:, None] * slopes)  # [D, H]
            self.register_load_state_dict_pre_hook(_resize_distances)  # type: ignore[no-untyped-call]
        for name in ("query", "key", "value"):
            weight = nn.Parameter(torch.empty(in_features, out_features))
            nn.init.xavier_uniform_(weight, generator=generator)
            setattr(self, name, weight)

    times: Tensor | None
    query: nn.Parameter
    key: nn.Parameter
    value: nn.Parameter

    def forward(
        self, x: Tensor, positions: Tensor | None, history: History, *, generator: torch.Generator | None = None
    ) -> Tensor:
        if self.distance is None and has_history_kernels(x, self.num_heads, self._width):
            return self._fused_forward(x, positions, history, generator)
        if generator is not None and positions is None and self._has_few_queries(x, history):
            return self._forward_of_few(x, history, generator)
        own = look_up(x, history.rows)  # [Q, d]
        if positions is None:
            k, v = self._keys_and_values(x)  # [S, d] each
            beta = self._attention(own, k, None, history)  # [P, H]
            beta = dropout(beta, self.rate, generator)
            z = weighted_sum(beta, self._heads(v), history.past).flatten(1)  # [Q, d]
        else:
            own = own + positions.index_select(0, history.steps)
            k_all, v_all = self._keys_and_values(torch.cat([x, positions]))  # [S + T, d] each
            (k, k_step), (v, v_step) = (torch.split(y, [len(x), len(positions)]) for y in (k_all, v_all))
            beta = self._attention(own, k, k_step, history)
            beta = dropout(beta, self.rate, generator)
            z = weighted_sum(beta, self._heads(v), history.past).flatten(1)
            by_step = beta.new_zeros(len(z) * history.num_steps, self.num_heads)
            by_step = by_step.index_copy(0, _query_step(history), beta).view(len(z), history.num_steps, self.num_heads)
            z = z + self._step_sum(by_step, v_step)
        return z + own if self.residual else z

    def _fused_forward(
        self, x: Tensor, positions: Tensor | None, history: History, generator: torch.Generator | None
    ) -> Tensor:
        """The same in a few kernel calls."""
        if positions is None:
            own = look_up(x, history.rows)  # [Q, d]
        else:
            pattern, ones = history.row_plus_step
            x = torch.cat([x, positions])  # [S + T, d]
            own = weighted_sum(ones, x[:, None], pattern).flatten(1)
        kv = x @ torch.cat([self.key, self.value], 1)  # [S + T, 2 d]
        keep = None
        if generator is not None and self.rate:
            keep = keep_mask(torch.Size([history.past.num_entries, self.num_heads]), self.rate, generator, x.dtype)
        z = history_attention(self._heads(self._queries(own, history)), kv, history, keep).flatten(1)
        return z + own if self.residual else z

    def _has_few_queries(self, x: Tensor, history: History) -> bool:
        """Whether projecting queries takes less time than projecting rows, as if most rows have a single query."""
        ready = self.distance is not None and x.is_cpu and kernels_for(x, self.num_heads, self._width) is not None
        queries = 2 * history.past.num_receivers + history.past.num_entries // self._width
        return ready and FEWER * queries < len(x)

    def _forward_of_few(self, x: Tensor, history: History, generator: torch.Generator) -> Tensor:
        """The same without projecting rows."""
        if self.distance is None:
            raise TypeError("this layer has no distances: times=None")
        own, keep = look_up(x, history.rows), None
        if self.rate:
            keep = keep_mask(torch.Size([history.past.num_entries, self.num_heads]), self.rate, generator, x.dtype)
        q, weights = self._heads(self._queries(own, history)), (self.key, self.value, self.distance)
        z = few_queries(q, x, weights, self._distances(history), history.past, keep).flatten(1)
        return z + own if self.residual else z

    def attention(self, x: Tensor, positions: Tensor | None, history: History) -> Tensor:
        """Return β for every query, step of its past, and head.  # [P, H]"""
        own = look_up(x, history.rows)
        if positions is None:
            return self._attention(own, x @ self.key, None, history)
        own = own + positions.index_select(0, history.steps)
        return self._attention(own, x @ self.key, positions @ self.key, history)

    def _attention(self, own: Tensor, k: Tensor, k_step: Tensor | None, history: History) -> Tensor:
        q = self._queries(own, history)  # [Q, d]
        logits = pair_dot(self._heads(q), self._heads(k), history.past)
        if k_step is not None:
            logits = logits + self._step_logits(q, k_step).index_select(0, _query_step(history))
        if self.distance is not None:
            logits = logits + self.distance.index_select(0, self._distances(history))
        return segment_softmax(logits, history.past)

    def _distances(self, history: History) -> Tensor:
        """Distance in time from each query to the entries of its past, at most the largest learned one.  # [P]"""
        if self.times is None or self.distance is None:
            raise TypeError("this layer has no distances: times=None")
        apart = self.times[history.steps[history.past.receivers]] - self.times[history.past_steps]
        return apart.clamp_(0, len(self.distance) - 1)

    def _queries(self, own: Tensor, history: History) -> Tensor:
        # Paper: 1/√F'. Authors' program: 1/√T. scale= chooses.
        root = math.sqrt(self._width if self.scale == "features" else history.num_steps)
        return own @ (self.query / root)

    @property
    def _width(self) -> int:
        return self.query.shape[1] // self.num_heads

    def _keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        k, v = torch.split(x @ torch.cat([self.key, self.value], 1), self.key.shape[1], 1)
        return k, v

    def _step_logits(self, q: Tensor, k_step: Tensor) -> Tensor:
        """q · k for every query, step and head.  # [Q, d], [T, d] → [Q · T, H]"""
        if q.is_cuda:  # one large product with zeros between the heads is faster than many small ones
            return (q @ self._block_diagonal(k_step)).view(len(q) * len(k_step), self.num_heads)
        dots = torch.bmm(self._heads(q).transpose(0, 1), self._heads(k_step).permute(1, 2, 0))  # [H, Q, T]
        return dots.permute(1, 2, 0).flatten(0, 1)

    def _step_sum(self, beta: Tensor, v_step: Tensor) -> Tensor:
        """Σ β v over the steps.  # [Q, T, H], [T, d] → [Q, d]"""
        if beta.is_cuda:
            return beta.flatten(1) @ self._block_diagonal(v_step).T
        return torch.bmm(beta.permute(2, 0, 1), self._heads(v_step).transpose(0, 1)).transpose(0, 1).flatten(1)

    def _block_diagonal(self, p: Tensor) -> Tensor:
        """The T rows as one matrix with a block per head.  # [T, H · F] → [H · F, T · H]"""
        heads = torch.eye(self.num_heads, dtype=p.dtype, device=p.device)
        return (self._heads(p).permute(1, 2, 0)[..., None] * heads[:, None, None, :]).flatten(2).flatten(0, 1)

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), self.num_heads, x.shape[1] // self.num_heads)


def _resize_distances(layer: nn.Module, tensors: Mapping[str, Tensor], prefix: str, *_: object) -> None:
    """Resize to as many distances as a checkpoint has: a model fitted on fewer steps also serves longer histories."""
    own, given = layer.get_parameter("distance"), tensors.get(f"{prefix}distance")
    if given is not None and given.ndim == 2 and len(given) and given.shape[1] == own.shape[1]:
        layer.distance = nn.Parameter(own.new_empty(given.shape))


def _query_step(history: History) -> Tensor:
    """Index of each entry's (query, step) in a table [Q · T].  # [P]"""
    return history.past.receivers * history.num_steps + history.past_steps


class FeedForward(nn.Module):
    """Position-wise feed-forward after the last temporal layer.

    Paper: gives no formula; `transformer` is relu(x W₁ + b₁) W₂ + b₂. Authors' program: `skip`, x + relu(x W + b).

    Shapes:
        - x: [Q, features]
        - output: [Q, features]
    """

    def __init__(self, features: int, kind: Literal["transformer", "skip"], *, generator: torch.Generator) -> None:
        super().__init__()
        self.inner = nn.Parameter(nn.init.xavier_uniform_(torch.empty(features, features), generator=generator))
        self.inner_bias = nn.Parameter(torch.zeros(features))
        self.outer = self.outer_bias = None
        if kind == "transformer":
            self.outer = nn.Parameter(nn.init.xavier_uniform_(torch.empty(features, features), generator=generator))
            self.outer_bias = nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(x @ self.inner + self.inner_bias)
        if self.outer is None or self.outer_bias is None:
            return x + inner
        return inner @ self.outer + self.outer_bias
