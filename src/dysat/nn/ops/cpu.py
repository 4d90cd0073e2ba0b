"""The operations of `segment` and `history` as functions of native.c: what `kernels` is on CUDA, for the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dysat.sampling.blocks import Pattern
from dysat.system.compiled import Native, native

if TYPE_CHECKING:
    from dysat.nn.ops.history import History

MOST_HEADS = 256
PARTS = 64  # as in native.c


def are_there() -> bool:
    """Whether they could be compiled."""
    return native() is not None


def fits(num_heads: int, width: int) -> bool:
    """Any width; numbers of each head are kept on the stack."""
    return 0 < num_heads <= MOST_HEADS and width > 0


def weighted_sum(
    alpha: Tensor, x: Tensor, pattern: Pattern, order: Tensor | None, *, first: Tensor | None = None, elu: bool = False
) -> Tensor:
    """Σ over each receiver's entries: α x; entry i of the pattern has the weights in row `order[i]` of α. Then ELU.

    With `first` [R, H, F] the sums are added to that.
    """
    num_heads, width = x.shape[1:]
    out = torch.empty(pattern.num_receivers, num_heads, width)
    _call()(
        "weighted_sum", alpha, x, pattern.offsets, pattern.senders, order, first, out, len(out), num_heads, width,
        int(elu),
    )  # fmt: skip
    return out


def pair_dot(x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
    """x · y of every entry's receiver and sender."""
    num_heads, width = x.shape[1:]
    out = torch.empty(pattern.num_entries, num_heads)
    _call()("pair_dot", x, y, pattern.offsets, pattern.senders, out, pattern.num_receivers, num_heads, width)
    return out


def head_dots(x: Tensor, a: Tensor) -> Tensor:
    """x · a of every head, for each of several a.  # [A, H, F], [K, H, F] → [A, K · H]"""
    out = torch.empty(len(x), len(a) * x.shape[1])
    _call()("head_dots", x, a, out, len(x), *a.shape)
    return out


def head_dots_backward(grad: Tensor, x: Tensor, a: Tensor, first: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The gradients of x, added to `first` if that is given, and of a."""
    d_x, d_a = torch.empty(x.shape), torch.empty(a.shape)
    _call()("head_dots_backward", grad, x, a, first, torch.empty(PARTS, *a.shape), d_x, d_a, len(x), *a.shape)
    return d_x, d_a


def elu_backward(grad: Tensor, result: Tensor) -> Tensor:
    """The gradient of what ELU was given, from what it gave."""
    out = torch.empty_like(result)
    _call()("elu_backward", grad, result, out, out.numel())
    return out


def entry_logits(sender: Tensor, receiver: Tensor, weights: Tensor, slope: float, pattern: Pattern) -> Tensor:
    """LeakyReLU of weight times (number of the sender + number of the receiver), of every entry and head."""
    sender, receiver = (t if t.stride(1) == 1 else t.contiguous() for t in (sender, receiver))
    out = torch.empty(pattern.num_entries, sender.shape[1])
    _call()(
        "entry_logits", sender, receiver, weights, pattern.offsets, pattern.senders, out, pattern.num_receivers,
        out.shape[1], sender.stride(0), receiver.stride(0), slope,
    )  # fmt: skip
    return out


def entry_logits_backward(grad: Tensor, logits: Tensor, weights: Tensor, slope: float) -> Tensor:
    """The gradient of what the two numbers add up to."""
    out = torch.empty_like(logits)
    _call()("entry_logits_backward", grad, logits, weights, out, *out.shape, slope)
    return out


def segment_sum(values: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """The sum of each receiver's entries, which stand in rows `order` of the values."""
    out = torch.empty(pattern.num_receivers, values.shape[1])
    _call()("segment_sum", values, pattern.offsets, order, out, *out.shape)
    return out


def softmax(logits: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """Softmax over each receiver's entries, which stand in rows `order` of the logits."""
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    _call()("softmax", logits, pattern.offsets, order, out, pattern.num_receivers, logits.shape[1])
    return out


def softmax_backward(alpha: Tensor, grad: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """The gradient of the logits from that of the softmax."""
    out = torch.empty_like(alpha)
    _call()("softmax_backward", alpha, grad, pattern.offsets, order, out, pattern.num_receivers, alpha.shape[1])
    return out


def history_attention(q: Tensor, kv: Tensor, history: History, keep: Tensor | None) -> tuple[Tensor, ...]:
    """What `history.history_attention` returns, and β for the way back."""
    past, steps, (num_heads, width) = history.past, history.past_steps, q.shape[1:]
    out, beta = torch.empty_like(q), torch.empty(past.num_entries, num_heads)
    rows, of_steps = _parts(kv, past)
    _call()(
        "history_attention", q, rows, of_steps, past.offsets, past.senders, steps, keep, beta, out, len(q), num_heads,
        width,
    )  # fmt: skip
    return out, beta


def history_attention_backward(
    grad: Tensor, z: Tensor, q: Tensor, kv: Tensor, history: History, keep: Tensor | None, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of q and of kv."""
    past, steps, (num_heads, width) = history.past, history.past_steps, q.shape[1:]
    num_steps = len(kv) - past.num_senders
    rows, of_steps = _parts(kv, past)
    d_q, d_kv = torch.empty_like(q), torch.empty_like(kv)
    d_rows, d_steps = _parts(d_kv, past)
    weights = torch.empty(past.num_entries, 2 * num_heads)
    space = torch.empty(PARTS, num_steps, kv.shape[1])
    across, order = past.transposed, past.by_sender
    _call()(
        "history_attention_backward", grad, z, q, rows, of_steps, past.offsets, past.senders, steps, keep, beta,
        across.offsets, across.senders, order, weights, space, d_q, d_rows, d_steps, len(q), past.num_senders,
        num_steps, num_heads, width,
    )  # fmt: skip
    return d_q, d_kv


def _parts(kv: Tensor, past: Pattern) -> tuple[Tensor, Tensor | None]:
    """Of the rows, and of the steps after them if there are any."""
    return kv[: past.num_senders], kv[past.num_senders :] if len(kv) > past.num_senders else None


def _call() -> Native:
    found = native()
    if found is None:
        raise RuntimeError("no compiled functions: ask are_there() first")
    return found


def dropout(x: Tensor, key: int, dropped: int, scale: float) -> Tensor:
    """x · scale, or 0 with probability dropped / 2^16, as the key says."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _call()("dropout", x, out, x.numel(), key, dropped, scale)
    return out
