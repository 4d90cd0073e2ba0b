"""The operations of `segment` as GPU kernels in Triton; imported on CUDA only. Their plain versions are their tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor
from torch.nn import functional

from dysat.nn.ops import triton_kernels as jitted
from dysat.sampling.blocks import PIECE, Pattern

if TYPE_CHECKING:
    from dysat.nn.ops.history import History

ENTRIES = 8  # read at once
NUMBERS = 512  # for one warp to read at once: a program of one warp waits for no other, and many are at work
WIDE = 16  # the same where an entry is a few numbers
FLAT = 1024  # numbers that are each computed for themselves


def fits(num_heads: int, width: int) -> bool:
    """Triton's blocks are powers of two."""
    return all(n > 0 and n & (n - 1) == 0 for n in (num_heads, width)) and num_heads * width <= 4096


def weighted_sum(alpha: Tensor, x: Tensor, pattern: Pattern, order: Tensor | None, *, elu: bool = False) -> Tensor:
    """Σ over each receiver's entries: α x; entry i of the pattern has the weights in row `order[i]` of α. Then ELU."""
    num_heads, width = x.shape[1:]
    out = x.new_empty(pattern.num_receivers, num_heads, width)
    pieces, size = pattern.pieces, num_heads * width
    if len(pieces.long):
        out.index_fill_(0, pieces.long, 0)  # what several pieces add to
    if len(out):
        jitted.weighted_sum[(len(pieces.receivers),)](
            alpha.contiguous(), x.contiguous(), pieces.receivers, pieces.firsts, pieces.shared, pattern.offsets,
            pattern.senders, _given(order, pattern), out, num_heads, width, max(1, NUMBERS // size), PIECE,
            order is not None, num_warps=max(1, size // NUMBERS),
        )  # fmt: skip
    return functional.elu_(out) if elu else out


def elu_backward(grad: Tensor, result: Tensor) -> Tensor:
    """The gradient of what ELU was given, from what it gave."""
    return torch.ops.aten.elu_backward(grad, 1.0, 1.0, 1.0, True, result)  # type: ignore[no-any-return]


def pair_dot(x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
    """x · y of every entry's receiver and sender."""
    num_heads, width = x.shape[1:]
    out = x.new_empty(pattern.num_entries, num_heads)
    if len(out):
        grid = (triton.cdiv(len(out), ENTRIES),)
        jitted.pair_dot[grid](
            x.contiguous(), y.contiguous(), pattern.receivers, pattern.senders, out, len(out), num_heads, width,
            ENTRIES, num_warps=max(1, min(4, num_heads * width // 64)),
        )  # fmt: skip
    return out


def entry_logits(sender: Tensor, receiver: Tensor, weights: Tensor, slope: float, pattern: Pattern) -> Tensor:
    """LeakyReLU of weight times (number of the sender + number of the receiver), of every entry and head."""
    out = sender.new_empty(pattern.num_entries, sender.shape[1])
    if out.numel():
        jitted.entry_logits[(triton.cdiv(out.numel(), FLAT),)](
            sender, receiver, weights, pattern.senders, pattern.receivers, out, out.numel(), sender.stride(0),
            receiver.stride(0), slope, sender.shape[1], FLAT,
        )  # fmt: skip
    return out


def entry_logits_backward(grad: Tensor, logits: Tensor, weights: Tensor, slope: float) -> Tensor:
    """The gradient of what the two numbers add up to."""
    out = torch.empty_like(logits)
    if out.numel():
        jitted.entry_logits_backward[(triton.cdiv(out.numel(), FLAT),)](
            grad.contiguous(), logits, weights, out, out.numel(), slope, logits.shape[1], FLAT
        )
    return out


def segment_sum(values: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """The sum of each receiver's entries, which stand in rows `order` of the values."""
    out = values.new_empty(pattern.num_receivers, values.shape[1])
    if len(out):
        jitted.segment_sum[(len(out),)](
            values, pattern.offsets, _given(order, pattern), out, values.shape[1], WIDE, order is not None, num_warps=1
        )
    return out


def softmax(logits: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """Softmax over each receiver's entries, which stand in rows `order` of the logits."""
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    if pattern.num_receivers and len(out):
        jitted.softmax[(pattern.num_receivers,)](
            logits.contiguous(), pattern.offsets, _given(order, pattern), out, logits.shape[1], WIDE, order is not None,
            num_warps=1,
        )  # fmt: skip
    return out


def softmax_backward(alpha: Tensor, grad: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """The gradient of the logits from that of the softmax."""
    out = torch.empty_like(alpha)
    if pattern.num_receivers and len(out):
        jitted.softmax_backward[(pattern.num_receivers,)](
            alpha, grad.contiguous(), pattern.offsets, _given(order, pattern), out, alpha.shape[1], WIDE,
            order is not None, num_warps=1,
        )  # fmt: skip
    return out


def history_attention(q: Tensor, kv: Tensor, history: History, keep: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """What `history.history_attention` returns, the logits, and each query's largest and Σ exp(logit − largest)."""
    past, steps, (num_heads, width) = history.past, history.past_steps, q.shape[1:]
    stepped = len(kv) > past.num_senders
    out, logits = torch.empty_like(q), q.new_empty(past.num_entries, num_heads)
    scale = q.new_empty(len(q), 2, num_heads)
    if len(q):
        jitted.history_attention[(len(q),)](
            q, kv, kv[past.num_senders :] if stepped else kv, past.offsets, past.senders, steps,
            logits if keep is None else keep, logits, scale, out, num_heads, width, ENTRIES, stepped, keep is not None,
            num_warps=_warps(num_heads * width),
        )  # fmt: skip
    return out, logits, scale


def history_attention_backward(
    grad: Tensor, z: Tensor, q: Tensor, kv: Tensor, history: History, keep: Tensor | None, logits: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of q and of kv. The latter adds up weights of every entry, times two rows of its query.

    The weights are the logits' gradient, then β · keep  # [P, 2 H]; the rows are q, then the gradient  # [Q, 2 H, F].
    """
    past, steps, (num_heads, width) = history.past, history.past_steps, q.shape[1:]
    stepped = len(kv) > past.num_senders
    d_q, rows = torch.empty_like(q), q.new_empty(len(q), 2 * num_heads, width)
    weights = q.new_empty(past.num_entries, 2 * num_heads)
    if len(q):
        jitted.history_attention_backward[(len(q),)](
            grad, z, q, kv, kv[past.num_senders :] if stepped else kv, past.offsets, past.senders, steps,
            logits if keep is None else keep, logits, scale, d_q, weights, rows, num_heads, width, ENTRIES, stepped,
            keep is not None, num_warps=_warps(num_heads * width),
        )  # fmt: skip
    used, entries = history.used if stepped else (past.transposed, past.by_sender)
    return d_q, weighted_sum(weights, rows, used, entries).flatten(1)  # [S + T, 2 H F]


def _warps(features: int) -> int:
    """One for 1024 numbers of the entries read at once: all of d = 128, so that no warp waits for another."""
    return max(1, min(16, features * ENTRIES // 1024))


def _given(order: Tensor | None, pattern: Pattern) -> Tensor:
    return pattern.senders if order is None else order  # a pointer is needed, read or not
