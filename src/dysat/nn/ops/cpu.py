"""The operations of `sparse` on the CPU, as functions of native.c; `cuda` has the same ones for CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dysat.sampling.blocks import Pattern
from dysat.system.compiled import PARTS, Native, native

if TYPE_CHECKING:
    from dysat.nn.ops.history import History

MAX_HEADS = 256  # the same limit as in native.c


def is_available() -> bool:
    """Whether native.c could be compiled on this machine."""
    return native() is not None


def fits(num_heads: int, width: int) -> bool:
    """Whether the functions support this shape: any width, but native.c keeps one value per head on the stack."""
    return 0 < num_heads <= MAX_HEADS and width > 0


def weighted_sum(
    alpha: Tensor, x: Tensor, pattern: Pattern, order: Tensor | None, *, first: Tensor | None = None, elu: bool = False
) -> Tensor:
    """Σ α x over each receiver's entries, then ELU if `elu`; entry i takes its weights from row `order[i]` of alpha.

    `first` is added to the sums.  # alpha [E, H], x [S, H, F], first [R, H, F] → [R, H, F]
    """
    num_heads, width = x.shape[1:]
    out = torch.empty(pattern.num_receivers, num_heads, width)
    _call()(
        "weighted_sum", alpha, x, pattern.offsets, pattern.senders, order, first, out, len(out), num_heads, width,
        int(elu),
    )  # fmt: skip
    return out


def pair_dot(x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
    """x_v · y_u for every entry (v ← u).  # [R, H, F], [S, H, F] → [E, H]"""
    num_heads, width = x.shape[1:]
    out = torch.empty(pattern.num_entries, num_heads)
    _call()("pair_dot", x, y, pattern.offsets, pattern.senders, out, pattern.num_receivers, num_heads, width)
    return out


def head_dots(x: Tensor, a: Tensor) -> Tensor:
    """x · a for every head and each of the K vectors a.  # [A, H, F], [K, H, F] → [A, K · H]"""
    out = torch.empty(len(x), len(a) * x.shape[1])
    _call()("head_dots", x, a, out, len(x), *a.shape)
    return out


def head_dots_backward(grad: Tensor, x: Tensor, a: Tensor, first: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Gradients with respect to x (plus `first`, if given) and a."""
    d_x, d_a = torch.empty(x.shape), torch.empty(a.shape)
    _call()("head_dots_backward", grad, x, a, first, torch.empty(PARTS, *a.shape), d_x, d_a, len(x), *a.shape)
    return d_x, d_a


def elu_backward(grad: Tensor, result: Tensor) -> Tensor:
    """Gradient with respect to the input of ELU, computed from its output."""
    out = torch.empty_like(result)
    _call()("elu_backward", grad, result, out, out.numel())
    return out


def entry_logits(sender: Tensor, receiver: Tensor, weights: Tensor, slope: float, pattern: Pattern) -> Tensor:
    """LeakyReLU(w_vu (s_u + r_v)) for every entry (v ← u) and head.  # [S, H], [R, H], [E] → [E, H]"""
    sender, receiver = (t if t.stride(1) == 1 else t.contiguous() for t in (sender, receiver))
    out = torch.empty(pattern.num_entries, sender.shape[1])
    _call()(
        "entry_logits", sender, receiver, weights, pattern.offsets, pattern.senders, out, pattern.num_receivers,
        out.shape[1], sender.stride(0), receiver.stride(0), slope,
    )  # fmt: skip
    return out


def entry_logits_backward(grad: Tensor, logits: Tensor, weights: Tensor, slope: float) -> Tensor:
    """Gradient with respect to s_u + r_v.  # [E, H]"""
    out = torch.empty_like(logits)
    _call()("entry_logits_backward", grad, logits, weights, out, *out.shape, slope)
    return out


def segment_sum(values: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """Sum over each receiver's entries; entry i is row `order[i]` of the values.  # [E, H] → [R, H]"""
    out = torch.empty(pattern.num_receivers, values.shape[1])
    _call()("segment_sum", values, pattern.offsets, order, out, *out.shape)
    return out


def softmax(logits: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """Softmax over each receiver's entries; entry i is row `order[i]` of the logits.  # [E, H] → [E, H]"""
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    _call()("softmax", logits, pattern.offsets, order, out, pattern.num_receivers, logits.shape[1])
    return out


def softmax_backward(alpha: Tensor, grad: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """Gradient with respect to the logits."""
    out = torch.empty_like(alpha)
    _call()("softmax_backward", alpha, grad, pattern.offsets, order, out, pattern.num_receivers, alpha.shape[1])
    return out


def history_attention(q: Tensor, kv: Tensor, history: History, keep: Tensor | None) -> tuple[Tensor, ...]:
    """The result of `sparse.history_attention`, and β for the backward pass."""
    past, steps, (num_heads, width) = history.past, history.past_steps, q.shape[1:]
    out, beta = torch.empty_like(q), torch.empty(past.num_entries, num_heads)
    kv_rows, kv_steps = _split(kv, past)
    _call()(
        "history_attention", q, kv_rows, kv_steps, past.offsets, past.senders, steps, keep, beta, out, len(q),
        num_heads, width,
    )  # fmt: skip
    return out, beta


def history_attention_backward(
    grad: Tensor, z: Tensor, q: Tensor, kv: Tensor, history: History, keep: Tensor | None, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients with respect to q and kv."""
    past, steps, (num_heads, width) = history.past, history.past_steps, q.shape[1:]
    num_steps = len(kv) - past.num_senders
    kv_rows, kv_steps = _split(kv, past)
    d_q, d_kv = torch.empty_like(q), torch.empty_like(kv)
    d_rows, d_steps = _split(d_kv, past)
    weights = torch.empty(past.num_entries, 2 * num_heads)
    space = torch.empty(PARTS, num_steps, kv.shape[1])
    across, order = past.transposed, past.by_sender
    _call()(
        "history_attention_backward", grad, z, q, kv_rows, kv_steps, past.offsets, past.senders, steps, keep, beta,
        across.offsets, across.senders, order, weights, space, d_q, d_rows, d_steps, len(q), past.num_senders,
        num_steps, num_heads, width,
    )  # fmt: skip
    return d_q, d_kv


def few_queries(
    q: Tensor, x: Tensor, weights: Sequence[Tensor], kind: Tensor, past: Pattern, keep: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The result of `sparse.few_queries`, and β for the backward pass; W_k and W_v are transposed."""
    out, beta = torch.empty_like(q), torch.empty(past.num_entries, q.shape[1])
    sizes = len(q), x.shape[1], *q.shape[1:]
    _call()("few_queries", q, x, *weights, kind, past.offsets, past.senders, keep, beta, out, *sizes)
    return out, beta


def few_queries_backward(
    grad: Tensor,
    q: Tensor,
    x: Tensor,
    weights: Sequence[Tensor],
    kind: Tensor,
    past: Pattern,
    keep: Tensor | None,
    beta: Tensor,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Gradients with respect to q, x and the weights."""
    (key, value, bias), sizes = weights, [part.numel() for part in weights]
    d_q, d_entries, d_weights = torch.empty_like(q), torch.empty(past.num_entries, x.shape[1]), torch.empty(sum(sizes))
    _call()(
        "few_queries_backward", grad, q, x, key, value, kind, past.offsets, past.senders, keep, beta,
        torch.empty(PARTS, sum(sizes)), d_q, d_entries, d_weights, len(q), x.shape[1], len(bias), *q.shape[1:],
    )  # fmt: skip
    d_x = segment_sum(d_entries, past.transposed, past.by_sender)
    parts = torch.split(d_weights, sizes)
    return d_q, d_x, [part.view_as(whole) for part, whole in zip(parts, weights, strict=True)]


def _split(kv: Tensor, past: Pattern) -> tuple[Tensor, Tensor | None]:
    """Keys and values of the rows, and those of the steps if kv has any.  # [S, 2 H F], [T, 2 H F]"""
    return kv[: past.num_senders], kv[past.num_senders :] if len(kv) > past.num_senders else None


def _call() -> Native:
    compiled = native()
    if compiled is None:
        raise RuntimeError("native.c is not compiled: check is_available() first")
    return compiled


def dropout(x: Tensor, key: int, dropped: int, scale: float) -> Tensor:
    """Set each value to 0 with probability dropped / 2^16, chosen by the key, and multiply the others by scale."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _call()("dropout", x, out, x.numel(), key, dropped, scale)
    return out
