"""Self-attention over a node's own history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from dysat.nn.dropout import dropout, keep_mask
from dysat.nn.ops.history import History
from dysat.nn.ops.sparse import has_history_kernels, history_attention, look_up, pair_dot, segment_softmax, weighted_sum

__all__ = ["FeedForward", "History", "Scale", "TemporalAttention"]

Scale = Literal["features", "steps"]
FARTHEST = 64  # distances beyond are one


class TemporalAttention(nn.Module):
    """One layer of temporal attention, for all nodes and heads at once: Eq. (2).

    A node's rows x_1 … x_T (with the position p_t added) attend to each other, never to a later step:

        e_ij = (x_i W_q) · (x_j W_k) / √F'    for j ≤ i
        β_ij = softmax of e_ij over j
        z_i = Σ_j β_ij (x_j W_v),    heads concatenated.

    A row may stand for many steps; so positions are projected apart from rows, and added where the two meet.

    With `times`, where the steps stand on some scale, every head adds to e_ij a weight of its own for the distance of
    i and j (at first −distance · slope, with slopes from 1 to 1/256): then the newest step is one like any other,
    where a position of its own would be the one that was trained least.

    Args:
        scale: divide by √F' (the paper), or by √T (the authors' program).
        residual: add x_i to z_i.
        times: whole numbers that do not fall, one for each step.

    Shapes: x [S, in_features], positions [T, in_features]; result [Q, out_features].
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
            farthest = min(FARTHEST, int(times[-1] - times[0]))
            slopes = 2.0 ** (-8 * torch.arange(num_heads) / max(1, num_heads - 1))
            self.distance = nn.Parameter(-torch.arange(farthest + 1.0)[:, None] * slopes)  # [D, H]
            self.register_load_state_dict_pre_hook(_as_many_distances)  # type: ignore[no-untyped-call]
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
            return self._in_one_piece(x, positions, history, generator)
        asking = look_up(x, history.rows)  # [Q, d]
        if positions is None:
            k, v = self._keys_and_values(x)  # [S, d] each
            beta = self._attention(asking, k, None, history)  # [P, H]
            beta = dropout(beta, self.rate, generator)
            z = weighted_sum(beta, self._heads(v), history.past).flatten(1)  # [Q, d]
        else:
            asking = asking + positions.index_select(0, history.steps)
            k_all, v_all = self._keys_and_values(torch.cat([x, positions]))  # [S + T, d] each
            (k, k_step), (v, v_step) = (torch.split(y, [len(x), len(positions)]) for y in (k_all, v_all))
            beta = self._attention(asking, k, k_step, history)
            beta = dropout(beta, self.rate, generator)
            z = weighted_sum(beta, self._heads(v), history.past).flatten(1)
            by_step = beta.new_zeros(len(z) * history.num_steps, self.num_heads)
            by_step = by_step.index_copy(0, _cell(history), beta).view(len(z), history.num_steps, self.num_heads)
            z = z + self._of_steps(by_step, v_step)
        return z + asking if self.residual else z

    def _in_one_piece(
        self, x: Tensor, positions: Tensor | None, history: History, generator: torch.Generator | None
    ) -> Tensor:
        """The same with few kernels."""
        if positions is None:
            asking = look_up(x, history.rows)  # [Q, d]
        else:
            pattern, ones = history.row_plus_step
            x = torch.cat([x, positions])  # [S + T, d]
            asking = weighted_sum(ones, x[:, None], pattern).flatten(1)
        kv = x @ torch.cat([self.key, self.value], 1)  # [S + T, 2 d]
        keep = None
        if generator is not None and self.rate:
            keep = keep_mask(torch.Size([history.past.num_entries, self.num_heads]), self.rate, generator, x.dtype)
        z = history_attention(self._heads(self._queries(asking, history)), kv, history, keep).flatten(1)
        return z + asking if self.residual else z

    def attention(self, x: Tensor, positions: Tensor | None, history: History) -> Tensor:
        """β for every query, step of its past, and head.  # [P, H]"""
        asking = look_up(x, history.rows)
        if positions is None:
            return self._attention(asking, x @ self.key, None, history)
        asking = asking + positions.index_select(0, history.steps)
        return self._attention(asking, x @ self.key, positions @ self.key, history)

    def _attention(self, asking: Tensor, k: Tensor, k_step: Tensor | None, history: History) -> Tensor:
        q = self._queries(asking, history)  # [Q, d]
        logits = pair_dot(self._heads(q), self._heads(k), history.past)
        if k_step is not None:
            logits = logits + self._to_steps(q, k_step).index_select(0, _cell(history))
        if self.distance is not None:
            logits = logits + self.distance.index_select(0, self._distances(history))
        return segment_softmax(logits, history.past)

    def _distances(self, history: History) -> Tensor:
        """How far back each entry of the past lies, as far as that is told apart.  # [P]"""
        if self.times is None or self.distance is None:
            raise TypeError("a layer without times")
        apart = self.times[history.steps[history.past.receivers]] - self.times[history.past_steps]
        return apart.clamp_(0, len(self.distance) - 1)

    def _queries(self, asking: Tensor, history: History) -> Tensor:
        # Paper: 1/√F'. Authors' program: 1/√T. scale= chooses.
        root = math.sqrt(self._width if self.scale == "features" else history.num_steps)
        return asking @ (self.query / root)

    @property
    def _width(self) -> int:
        return self.query.shape[1] // self.num_heads

    def _keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        k, v = torch.split(x @ torch.cat([self.key, self.value], 1), self.key.shape[1], 1)
        return k, v

    def _to_steps(self, q: Tensor, k_step: Tensor) -> Tensor:
        """q · k of every head with every step.  # [Q, d], [T, d] → [Q · T, H]"""
        if q.is_cuda:  # one large product with zeros between the heads beats many small ones
            return (q @ self._apart(k_step)).view(len(q) * len(k_step), self.num_heads)
        dots = torch.bmm(self._heads(q).transpose(0, 1), self._heads(k_step).permute(1, 2, 0))  # [H, Q, T]
        return dots.permute(1, 2, 0).flatten(0, 1)

    def _of_steps(self, beta: Tensor, v_step: Tensor) -> Tensor:
        """Σ β v over the steps.  # [Q, T, H], [T, d] → [Q, d]"""
        if beta.is_cuda:
            return beta.flatten(1) @ self._apart(v_step).T
        return torch.bmm(beta.permute(2, 0, 1), self._heads(v_step).transpose(0, 1)).transpose(0, 1).flatten(1)

    def _apart(self, p: Tensor) -> Tensor:
        """The T positions as one matrix that keeps heads apart.  # [T, H · F] → [H · F, T · H]"""
        heads = torch.eye(self.num_heads, dtype=p.dtype, device=p.device)
        return (self._heads(p).permute(1, 2, 0)[..., None] * heads[:, None, None, :]).flatten(2).flatten(0, 1)

    def _heads(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), self.num_heads, x.shape[1] // self.num_heads)


def _as_many_distances(layer: nn.Module, tensors: Mapping[str, Tensor], prefix: str, *_: object) -> None:
    """What was learned over fewer steps serves for more of them: all beyond is as far as the farthest."""
    own, given = layer.get_parameter("distance"), tensors.get(f"{prefix}distance")
    if given is not None and given.ndim == 2 and len(given) and given.shape[1] == own.shape[1]:
        layer.distance = nn.Parameter(own.new_empty(given.shape))


def _cell(history: History) -> Tensor:
    """Where (query, step) stands in a table [Q · T].  # [P]"""
    return history.past.receivers * history.num_steps + history.past_steps


class FeedForward(nn.Module):
    """Position-wise feed-forward after the last temporal layer.

    Paper: not spelled out; `transformer` is relu(x W₁ + b₁) W₂ + b₂. Authors' program: `skip`, x + relu(x W + b).
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
