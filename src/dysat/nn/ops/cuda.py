"""The operations of `sparse` on CUDA: allocate the outputs and launch `triton_kernels`. Imported on CUDA only.

The tests compare every operation with its version in `reference`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor
from torch.nn import functional

from dysat.nn.ops import triton_kernels
from dysat.sampling.blocks import PIECE, Pattern

if TYPE_CHECKING:
    from dysat.nn.ops.history import History

ENTRIES = 8  # entries read at once
NUMBERS = 512  # values one warp reads at once: programs of one warp never wait for each other, and many run in parallel
WIDE = 16  # entries read at once where an entry has only one value per head
FLAT = 1024  # values per program in elementwise kernels


def fits(num_heads: int, width: int) -> bool:
    """Whether the kernels support this shape: Triton's blocks are powers of two."""
    return all(n > 0 and n & (n - 1) == 0 for n in (num_heads, width)) and num_heads * width <= 4096


def weighted_sum(alpha: Tensor, x: Tensor, pattern: Pattern, order: Tensor | None, *, elu: bool = False) -> Tensor:
    """Σ α x over each receiver's entries, then ELU if `elu`; entry i takes its weights from row `order[i]` of alpha."""
    num_heads, width = x.shape[1:]
    out = x.new_empty(pattern.num_receivers, num_heads, width)
    pieces, size = pattern.pieces, num_heads * width
    if len(pieces.long):
        out.index_fill_(0, pieces.long, 0)  # several pieces add to these rows
    if len(out):
        triton_kernels.weighted_sum[(len(pieces.receivers),)](
            alpha.contiguous(), x.contiguous(), pieces.receivers, pieces.firsts, pieces.shared, pattern.offsets,
            pattern.senders, _given(order, pattern), out, num_heads, width, max(1, NUMBERS // size), PIECE,
            order is not None, num_warps=max(1, size // NUMBERS),
        )  # fmt: skip
    return functional.elu_(out) if elu else out


def elu_backward(grad: Tensor, result: Tensor) -> Tensor:
    """Gradient with respect to the input of ELU, computed from its output."""
    return torch.ops.aten.elu_backward(grad, 1.0, 1.0, 1.0, True, result)  # type: ignore[no-any-return]


def pair_dot(x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
    """x_v · y_u for every entry (v ← u).  # [R, H, F], [S, H, F] → [E, H]"""
    num_heads, width = x.shape[1:]
    out = x.new_empty(pattern.num_entries, num_heads)
    if len(out):
        grid = (triton.cdiv(len(out), ENTRIES),)
        triton_kernels.pair_dot[grid](
            x.contiguous(), y.contiguous(), pattern.receivers, pattern.senders, out, len(out), num_heads, width,
            ENTRIES, num_warps=max(1, min(4, num_heads * width // 64)),
        )  # fmt: skip
    return out


def entry_logits(sender: Tensor, receiver: Tensor, weights: Tensor, slope: float, pattern: Pattern) -> Tensor:
    """LeakyReLU(w_vu (s_u + r_v)) for every entry (v ← u) and head.  # [S, H], [R, H], [E] → [E, H]"""
    out = sender.new_empty(pattern.num_entries, sender.shape[1])
    if out.numel():
        triton_kernels.entry_logits[(triton.cdiv(out.numel(), FLAT),)](
            sender, receiver, weights, pattern.senders, pattern.receivers, out, out.numel(), sender.stride(0),
            receiver.stride(0), slope, sender.shape[1], FLAT,
        )  # fmt: skip
    return out


def entry_logits_backward(grad: Tensor, logits: Tensor, weights: Tensor, slope: float) -> Tensor:
    """Gradient with respect to s_u + r_v.  # [E, H]"""
    out = torch.empty_like(logits)
    if out.numel():
        triton_kernels.entry_logits_backward[(triton.cdiv(out.numel(), FLAT),)](
            grad.contiguous(), logits, weights, out, out.numel(), slope, logits.shape[1], FLAT
        )
    return out


def segment_sum(values: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """Sum over each receiver's entries; entry i is row `order[i]` of the values.  # [E, H] → [R, H]"""
    out = values.new_empty(pattern.num_receivers, values.shape[1])
    if len(out):
        triton_kernels.segment_sum[(len(out),)](
            values, pattern.offsets, _given(order, pattern), out, values.shape[1], WIDE, order is not None, num_warps=1
        )
    return out


def softmax(logits: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """Softmax over each receiver's entries; entry i is row `order[i]` of the logits.  # [E, H] → [E, H]"""
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    if pattern.num_receivers and len(out):
        triton_kernels.softmax[(pattern.num_receivers,)](
            logits.contiguous(), pattern.offsets, _given(order, pattern), out, logits.shape[1], WIDE, order is not None,
            num_warps=1,
        )  # fmt: skip
    return out


def softmax_backward(alpha: Tensor, grad: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """Gradient with respect to the logits."""
    out = torch.empty_like(alpha)
    if pattern.num_receivers and len(out):
        triton_kernels.softmax_backward[(pattern.num_receivers,)](
            alpha, grad.contiguous(), pattern.offsets, _given(order, pattern), out, alpha.shape[1], WIDE,
            order is not None, num_warps=1,
        )  # fmt: skip
    return out


def history_attention(q: Tensor, kv: Tensor, history: History, keep: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The result of `sparse.history_attention`, the logits, and per query the largest logit and Σ exp(logit − largest).

    Shapes: result [Q, H, F], logits [P, H], scale [Q, 2, H].
    """
    past, steps, (num_heads, width) = history.past, history.past_steps, q.shape[1:]
    stepped = len(kv) > past.num_senders
    out, logits = torch.empty_like(q), q.new_empty(past.num_entries, num_heads)
    scale = q.new_empty(len(q), 2, num_heads)
    if len(q):
        triton_kernels.history_attention[(len(q),)](
            q, kv, kv[past.num_senders :] if stepped else kv, past.offsets, past.senders, steps,
            logits if keep is None else keep, logits, scale, out, num_heads, width, ENTRIES, stepped, keep is not None,
            num_warps=_warps(num_heads * width),
        )  # fmt: skip
    return out, logits, scale


def history_attention_backward(
    grad: Tensor, z: Tensor, q: Tensor, kv: Tensor, history: History, keep: Tensor | None, logits: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients with respect to q and kv.

    The gradient of kv is a weighted sum over entries. Its weights are the gradient of the logits and β · keep
    # [P, 2 H]; the rows it adds are q and the gradient of the result  # [Q, 2 H, F].
    """
    past, steps, (num_heads, width) = history.past, history.past_steps, q.shape[1:]
    stepped = len(kv) > past.num_senders
    d_q, rows = torch.empty_like(q), q.new_empty(len(q), 2 * num_heads, width)
    weights = q.new_empty(past.num_entries, 2 * num_heads)
    if len(q):
        triton_kernels.history_attention_backward[(len(q),)](
            grad, z, q, kv, kv[past.num_senders :] if stepped else kv, past.offsets, past.senders, steps,
            logits if keep is None else keep, logits, scale, d_q, weights, rows, num_heads, width, ENTRIES, stepped,
            keep is not None, num_warps=_warps(num_heads * width),
        )  # fmt: skip
    across, entries = history.transposed_with_steps if stepped else (past.transposed, past.by_sender)
    return d_q, weighted_sum(weights, rows, across, entries).flatten(1)  # [S + T, 2 H F]


def _warps(features: int) -> int:
    """One warp per 1024 values read at once: a single one for d = 128, so that no warp waits for another."""
    return max(1, min(16, features * ENTRIES // 1024))


def _given(order: Tensor | None, pattern: Pattern) -> Tensor:
    return pattern.senders if order is None else order  # the kernel takes a pointer even if it does not read it
