"""Softmax, weighted sums and dot products over the entries of a sparse pattern, with gradients, all heads at once.

This is the interface; the work is done by `cpu` (C, if a compiler is available), by `cuda` (Triton), or by the torch
versions in `reference`. `kernels_for` chooses.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dysat.nn.adam import has_only_rows
from dysat.nn.ops import cpu
from dysat.nn.ops.history import History
from dysat.nn.ops.reference import (
    bag_weighted_sum,
    chunked_pair_dot,
    reference_entry_logits,
    reference_head_dots,
    reference_pair_dot,
    reference_softmax,
    reference_weighted_sum,
    segment_softmax_cpu,
    segment_sum,
)
from dysat.sampling.blocks import Pattern


def segment_softmax(logits: Tensor, pattern: Pattern) -> Tensor:
    """Softmax over the entries of each receiver.  # [E, H] → [E, H]"""
    return _Softmax.apply(logits, pattern, None)  # type: ignore[no-any-return, no-untyped-call]


def sender_softmax(logits: Tensor, pattern: Pattern) -> Tensor:
    """Softmax over the entries of each sender.  # [E, H] → [E, H]"""
    return _Softmax.apply(logits, pattern.transposed, pattern.by_sender)  # type: ignore[no-any-return, no-untyped-call]


def weighted_sum(alpha: Tensor, x: Tensor, pattern: Pattern, *, elu: bool = False) -> Tensor:
    """Σ_u α_vu x_u over the entries (v ← u) of each receiver v; then ELU if `elu`.

    Shapes: alpha [E, H], x [S, H, F] → [R, H, F].
    """
    return _WeightedSum.apply(alpha, x, pattern, elu)  # type: ignore[no-any-return, no-untyped-call]


def pair_dot(x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
    """x_v · y_u for every entry (v ← u).  # x [R, H, F], y [S, H, F] → [E, H]"""
    return _PairDot.apply(x, y, pattern)  # type: ignore[no-any-return, no-untyped-call]


def look_up(x: Tensor, pattern: Pattern, scale: Tensor | None = None) -> Tensor:
    """The row of x that each receiver of a `Pattern.lookup` names, times its scale.  # [S, d], [R, 1] → [R, d]"""
    if has_only_rows(x):
        used, index = torch.unique(pattern.senders, return_inverse=True)
        x, pattern = functional.embedding(used, x, sparse=True), Pattern.lookup(index, len(used))
    return _LookUp.apply(x, pattern, scale)  # type: ignore[no-any-return, no-untyped-call]


def entry_logits(sender: Tensor, receiver: Tensor, weights: Tensor, slope: float, pattern: Pattern) -> Tensor:
    """LeakyReLU(w_vu (s_u + r_v)) for every entry (v ← u); weights get no gradient.  # [S, H], [R, H], [E] → [E, H]"""
    return _EntryLogits.apply(sender, receiver, weights, slope, pattern)  # type: ignore[no-any-return, no-untyped-call]


def look_up_with_input(x: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """`look_up`, and x itself: if both are used, their gradients are added in one pass.  # → [R, d], [S, d]"""
    if x.is_cpu and kernels_for(x, 1, x.shape[1]):
        return _LookUpWithInput.apply(x, pattern)  # type: ignore[no-any-return, no-untyped-call]
    return look_up(x, pattern), x


def head_dots(x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """x_i · a_k for every head, and x itself, as in `look_up_with_input`.

    Shapes: x [A, H, F], a [K, H, F] → [A, K · H], [A, H, F].
    """
    if x.is_cpu and kernels_for(x, *x.shape[1:]):
        return _HeadDots.apply(x, a)  # type: ignore[no-any-return, no-untyped-call]
    return reference_head_dots(x, a), x


@cache
def _cuda_kernels() -> ModuleType | None:
    """The CUDA kernels, if Triton is installed."""
    if find_spec("triton") is None:
        return None
    from dysat.nn.ops import cuda

    return cuda


def kernels_for(x: Tensor, num_heads: int, width: int) -> ModuleType | None:
    """The module of kernels (`cpu` or `cuda`) for tensors like x with these heads, or None to use `reference`."""
    # The kernels compute in float32; float64 uses the torch versions, which keep its precision.
    if x.dtype != torch.float32:
        return None
    kernels = _cuda_kernels() if x.is_cuda else cpu if x.is_cpu and cpu.is_available() else None
    return kernels if kernels is not None and kernels.fits(num_heads, width) else None


def _sum(alpha: Tensor, x: Tensor, pattern: Pattern, order: Tensor | None = None, *, elu: bool = False) -> Tensor:
    """The weighted sum; entry i of the pattern takes its weights from row `order[i]` of alpha."""
    if kernels := kernels_for(x, *x.shape[1:]):
        return kernels.weighted_sum(alpha, x, pattern, order, elu=elu)  # type: ignore[no-any-return]
    alpha = alpha if order is None else alpha.index_select(0, order)
    sums = (reference_weighted_sum if x.is_cuda else bag_weighted_sum)(alpha, x, pattern)
    return functional.elu_(sums) if elu else sums  # in place: the backward pass needs only the result


def _dot(x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
    if kernels := kernels_for(x, *x.shape[1:]):
        return kernels.pair_dot(x, y, pattern)  # type: ignore[no-any-return]
    return (reference_pair_dot if x.is_cuda else chunked_pair_dot)(x, y, pattern)


class _Softmax(torch.autograd.Function):
    """Softmax over each receiver's entries; entry i of the pattern is row `order[i]` of the logits (None: row i)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
        if kernels := kernels_for(logits, logits.shape[1], 1):
            alpha: Tensor = kernels.softmax(logits, pattern, order)
        else:
            softmax = reference_softmax if logits.is_cuda else segment_softmax_cpu
            alpha = _restore_order(softmax(_ordered(logits, order), pattern), order)
        ctx.pattern, ctx.order = pattern, order
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (alpha,) = ctx.saved_tensors
        pattern, order = ctx.pattern, ctx.order
        if kernels := kernels_for(alpha, alpha.shape[1], 1):
            return kernels.softmax_backward(alpha, grad, pattern, order), None, None
        weighted = alpha * grad
        ordered = _ordered(weighted, order)
        if alpha.is_cuda:
            mean = alpha.new_zeros(pattern.num_receivers, alpha.shape[1]).index_add_(0, pattern.receivers, ordered)
        else:
            mean = segment_sum(ordered, pattern)
        mean = _restore_order(mean.index_select(0, pattern.receivers), order)
        return weighted.sub_(mean.mul_(alpha)), None, None


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, alpha: Tensor, x: Tensor, pattern: Pattern, elu: bool) -> Tensor:
        ctx.pattern, ctx.elu = pattern, elu
        out = _sum(alpha, x, pattern, elu=elu)
        ctx.save_for_backward(alpha, x, *([out] if elu else []))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        alpha, x, *out = ctx.saved_tensors
        pattern, grad = ctx.pattern, grad.contiguous()
        if ctx.elu:
            grad = _elu_backward(grad, out[0])
        d_alpha = _dot(grad, x, pattern) if ctx.needs_input_grad[0] else None
        d_x = _sum(alpha, grad, pattern.transposed, pattern.by_sender) if ctx.needs_input_grad[1] else None
        return d_alpha, d_x, None, None


def _elu_backward(grad: Tensor, result: Tensor) -> Tensor:
    """Gradient with respect to the input x of ELU: its slope below 0 is exp(x), which is ELU(x) + 1."""
    if kernels := kernels_for(grad, 1, 1):
        return kernels.elu_backward(grad, result)  # type: ignore[no-any-return]
    return torch.ops.aten.elu_backward(grad, 1.0, 1.0, 1.0, True, result)  # type: ignore[no-any-return]


class _PairDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(x, y)
        return _dot(x, y, pattern)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, y = ctx.saved_tensors
        pattern, grad = ctx.pattern, grad.contiguous()
        d_x = _sum(grad, y, pattern) if ctx.needs_input_grad[0] else None
        d_y = _sum(grad, x, pattern.transposed, pattern.by_sender) if ctx.needs_input_grad[1] else None
        return d_x, d_y, None


class _EntryLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sender: Tensor, receiver: Tensor, weights: Tensor, slope: float, pattern: Pattern) -> Tensor:
        if kernels := kernels_for(sender, sender.shape[1], 1):
            logits: Tensor = kernels.entry_logits(sender, receiver, weights, slope, pattern)
        else:
            logits = reference_entry_logits(sender, receiver, weights, slope, pattern)
        ctx.pattern, ctx.slope = pattern, slope
        ctx.save_for_backward(logits, weights)
        return logits

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        logits, weights = ctx.saved_tensors
        pattern = ctx.pattern
        if kernels := kernels_for(grad, grad.shape[1], 1):
            inner = kernels.entry_logits_backward(grad, logits, weights, ctx.slope)
            to_sender = kernels.segment_sum(inner, pattern.transposed, pattern.by_sender)
            return to_sender, kernels.segment_sum(inner, pattern, None), None, None, None
        # Weights are not negative and LeakyReLU keeps the sign, so a logit has the sign of s_u + r_v.
        inner = torch.where(logits > 0, grad, grad * ctx.slope).mul_(weights[:, None])
        if grad.is_cuda:
            empty = grad.new_zeros(pattern.num_senders + pattern.num_receivers, grad.shape[1])
            to_sender, to_receiver = empty[: pattern.num_senders], empty[pattern.num_senders :]
            to_sender.index_add_(0, pattern.senders, inner)
            to_receiver.index_add_(0, pattern.receivers, inner)
            return to_sender, to_receiver, None, None, None
        ordered = inner.index_select(0, pattern.by_sender)
        return segment_sum(ordered, pattern.transposed), segment_sum(inner, pattern), None, None, None


class _HeadDots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, a)
        ctx.set_materialize_grads(False)
        return cpu.head_dots(x, a), x

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_x: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if grad is None:
            return grad_x, None
        x, a = ctx.saved_tensors
        return cpu.head_dots_backward(grad, x, a, grad_x)


class _LookUpWithInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pattern: Pattern) -> tuple[Tensor, Tensor]:
        ctx.pattern = pattern
        ctx.set_materialize_grads(False)
        return x.index_select(0, pattern.senders), x

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_x: Tensor | None) -> tuple[Tensor | None, None]:
        if grad is None:
            return grad_x, None
        pattern, ones = ctx.pattern, grad.new_ones(len(grad), 1)
        first = None if grad_x is None else grad_x[:, None]
        sums = cpu.weighted_sum(ones, grad[:, None], pattern.transposed, pattern.by_sender, first=first)
        return sums[:, 0], None


class _LookUp(torch.autograd.Function):
    """Row lookup whose gradient is summed in row order; that of `index_select` scatters writes over all of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pattern: Pattern, scale: Tensor | None) -> Tensor:
        ctx.pattern, ctx.scale = pattern, scale
        if scale is not None and kernels_for(x, 1, x.shape[1]):
            return _sum(scale, x[:, None, :], pattern)[:, 0]
        rows = x.index_select(0, pattern.senders)
        return rows if scale is None else rows.mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        pattern = ctx.pattern
        scale = grad.new_ones(len(grad), 1) if ctx.scale is None else ctx.scale
        return _sum(scale, grad.contiguous()[:, None, :], pattern.transposed, pattern.by_sender)[:, 0], None, None


def _ordered(values: Tensor, order: Tensor | None) -> Tensor:
    return values if order is None else values.index_select(0, order)


def _restore_order(values: Tensor, order: Tensor | None) -> Tensor:
    """Undo `_ordered`."""
    return values if order is None else torch.empty_like(values).index_copy_(0, order, values)


def history_attention(q: Tensor, kv: Tensor, history: History, keep: Tensor | None) -> Tensor:
    """Σ_j β_ij keep_ij v_j, where β_ij is the softmax of q_i · k_j over the entries j of query i.

    Call it only if `has_history_kernels`. The left half of kv holds keys, the right half values: first those of the
    S rows, then those of the T steps if positions are added to rows. An entry uses its row's k and v plus its step's.

    Shapes: q [Q, H, F], kv [S, 2 H F] or [S + T, 2 H F], keep [P, H] → [Q, H, F].
    """
    return _HistoryAttention.apply(q, kv, history, keep)  # type: ignore[no-any-return, no-untyped-call]


def has_history_kernels(x: Tensor, num_heads: int, width: int) -> bool:
    """Whether `history_attention` has kernels for tensors like x."""
    return _history_kernels(x, num_heads, width) is not None


def _history_kernels(x: Tensor, num_heads: int, width: int) -> ModuleType | None:
    return kernels_for(x, 2 * num_heads, width)  # the gradient is a weighted sum with 2 H heads


def few_queries(
    q: Tensor, x: Tensor, weights: tuple[Tensor, Tensor, Tensor], kind: Tensor, past: Pattern, keep: Tensor | None
) -> Tensor:
    """Σ_j β_ij keep_ij (x_j W_v), where β_ij is the softmax of q_i · (x_j W_k) + bias over the entries j of query i.

    The same as projecting all rows x, but faster if there are many more rows than queries: it computes (q W_kᵀ) · x
    and (Σ β x) W_v. Call it only on the CPU, if `kernels_for` has kernels. `weights` are W_k, W_v and the biases, of
    which an entry has the one of its kind.

    Shapes: q [Q, H, F], x [S, D], W_k and W_v [D, H F], biases [K, H], kind [P], keep [P, H] → [Q, H, F].
    """
    key, value, bias = weights
    parts = (part.contiguous() for part in (q, x, key.mT, value.mT, bias))
    return _FewQueries.apply(*parts, kind, past, keep)  # type: ignore[no-any-return, no-untyped-call]


class _FewQueries(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        q, x, key, value, bias, kind, past, keep = args
        z, beta = cpu.few_queries(q, x, (key, value, bias), kind, past, keep)
        ctx.past = past
        ctx.save_for_backward(q, x, key, value, bias, kind, keep, beta)
        return z

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, x, *weights, kind, keep, beta = ctx.saved_tensors
        d_q, d_x, d_weights = cpu.few_queries_backward(grad.contiguous(), q, x, weights, kind, ctx.past, keep, beta)
        return d_q, d_x, *d_weights, None, None, None


class _HistoryAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, history: History, keep: Tensor | None) -> Tensor:
        q, kv = q.contiguous(), kv.contiguous()
        ctx.kernels, ctx.history = _history_kernels(q, *q.shape[1:]), history
        z, *kept = ctx.kernels.history_attention(q, kv, history, keep)
        ctx.save_for_backward(z, q, kv, keep, *kept)
        return z  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        z, q, kv, keep, *kept = ctx.saved_tensors
        d_q, d_kv = ctx.kernels.history_attention_backward(grad.contiguous(), z, q, kv, ctx.history, keep, *kept)
        return d_q, d_kv, None, None
