"""Who looks back at what, and attention over that in one piece, where kernels are: `temporal` has it written out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from dysat.nn.segment import kernels_for
from dysat.sampling.blocks import Pattern


@dataclass(frozen=True, eq=False)
class History:
    """Who looks back at what: Q queries, each a row at a step, and the rows of the same node up to that step.

    Shapes: rows: a Pattern.lookup of the queries' own rows, steps [Q]; past: a Pattern of Q receivers and S senders
        with P entries; past_steps [P].
    """

    rows: Pattern
    steps: Tensor
    past: Pattern
    past_steps: Tensor
    num_steps: int

    @cached_property
    def asked(self) -> tuple[Pattern, Tensor]:
        """Two entries for every query, its row and S + its step; and their weights, all 1.  # [2 Q, 1]"""
        both = torch.stack([self.rows.senders, self.past.num_senders + self.steps], 1)  # [Q, 2]
        counts = torch.full_like(self.steps, 2)
        asked = Pattern.from_counts(counts, both.flatten(), self.past.num_senders + self.num_steps)
        return asked, torch.ones(both.numel(), 1, dtype=torch.float32, device=both.device)

    @cached_property
    def used(self) -> tuple[Pattern, Tensor]:
        """By whom each row, and after the S rows each step, is looked at; and each one's entry of the past.  # [2 P]"""
        past, size = self.past, self.past.num_senders + self.num_steps
        looked_at = torch.cat([past.senders, past.num_senders + self.past_steps])
        entries = torch.sort(looked_at, stable=True).indices
        entries = torch.where(entries < past.num_entries, entries, entries - past.num_entries)
        counts = looked_at.new_zeros(size).index_add_(0, looked_at, torch.ones_like(looked_at))
        return Pattern.from_counts(counts, past.receivers[entries], past.num_receivers), entries


def history_attention(q: Tensor, kv: Tensor, history: History, keep: Tensor | None) -> Tensor:
    """Σ_j β_ij keep_ij v_j, with β_ij = softmax of q_i · k_j over the entries j of each query i: where kernels are.

    The keys are the left half of kv, the values the right half: those of S rows, and then, if positions are added
    to rows, those of T steps. An entry's k and v are its row's, plus its step's.

    Shapes: q [Q, H, F], kv [S, 2 H F] or [S + T, 2 H F], keep [P, H]; result [Q, H, F].
    """
    return _HistoryAttention.apply(q, kv, history, keep)  # type: ignore[no-any-return, no-untyped-call]


def takes_history(x: Tensor, num_heads: int, width: int) -> bool:
    """Whether `history_attention` has kernels for what is like x; its gradient is a sum for 2 H heads."""
    return _kernels(x, num_heads, width) is not None


def _kernels(x: Tensor, num_heads: int, width: int) -> ModuleType | None:
    return kernels_for(x, 2 * num_heads, width)


class _HistoryAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, history: History, keep: Tensor | None) -> Tensor:
        q, kv = q.contiguous(), kv.contiguous()
        ctx.kernels, ctx.history = _kernels(q, *q.shape[1:]), history
        z, *kept = ctx.kernels.history_attention(q, kv, history, keep)
        ctx.save_for_backward(z, q, kv, keep, *kept)
        return z  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        z, q, kv, keep, *kept = ctx.saved_tensors
        d_q, d_kv = ctx.kernels.history_attention_backward(grad.contiguous(), z, q, kv, ctx.history, keep, *kept)
        return d_q, d_kv, None, None
