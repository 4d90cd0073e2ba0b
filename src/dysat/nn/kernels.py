"""The operations of `segment` as GPU kernels in Triton; imported on CUDA only. Their plain versions are their tests."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from dysat.sampling.blocks import PIECE, Pattern

ENTRIES = 8  # read at once
WIDE = 16  # the same where an entry is a few numbers
FLAT = 1024  # numbers that are each computed for themselves


def fits(num_heads: int, width: int) -> bool:
    """Triton's blocks are powers of two."""
    return all(n > 0 and n & (n - 1) == 0 for n in (num_heads, width)) and num_heads * width <= 4096


def weighted_sum(alpha: Tensor, x: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """Σ over each receiver's entries: α x; entry i of the pattern has the weights in row `order[i]` of α."""
    num_heads, width = x.shape[1:]
    out = x.new_empty(pattern.num_receivers, num_heads, width)
    pieces = pattern.pieces
    if len(pieces.long):
        out.index_fill_(0, pieces.long, 0)  # what several pieces add to
    if len(out):
        _weighted_sum[(len(pieces.receivers),)](
            alpha.contiguous(), x.contiguous(), pieces.receivers, pieces.firsts, pieces.shared, pattern.offsets,
            pattern.senders, _given(order, pattern), out, num_heads, width, pieces.at_once, PIECE, order is not None,
            num_warps=max(1, min(4, num_heads * width * pieces.at_once // 256)),
        )  # fmt: skip
    return out


def pair_dot(x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
    """x · y of every entry's receiver and sender."""
    num_heads, width = x.shape[1:]
    out = x.new_empty(pattern.num_entries, num_heads)
    if len(out):
        grid = (triton.cdiv(len(out), ENTRIES),)
        _pair_dot[grid](
            x.contiguous(), y.contiguous(), pattern.receivers, pattern.senders, out, len(out), num_heads, width,
            ENTRIES, num_warps=max(1, min(4, num_heads * width // 64)),
        )  # fmt: skip
    return out


def entry_logits(sender: Tensor, receiver: Tensor, weights: Tensor, slope: float, pattern: Pattern) -> Tensor:
    """LeakyReLU of weight times (number of the sender + number of the receiver), of every entry and head."""
    out = sender.new_empty(pattern.num_entries, sender.shape[1])
    if out.numel():
        _entry_logits[(triton.cdiv(out.numel(), FLAT),)](
            sender, receiver, weights, pattern.senders, pattern.receivers, out, out.numel(), sender.stride(0),
            receiver.stride(0), slope, sender.shape[1], FLAT,
        )  # fmt: skip
    return out


def entry_logits_backward(grad: Tensor, logits: Tensor, weights: Tensor, slope: float) -> Tensor:
    """The gradient of what the two numbers add up to."""
    out = torch.empty_like(logits)
    if out.numel():
        _entry_logits_backward[(triton.cdiv(out.numel(), FLAT),)](
            grad.contiguous(), logits, weights, out, out.numel(), slope, logits.shape[1], FLAT
        )
    return out


def segment_sum(values: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """The sum of each receiver's entries, which stand in rows `order` of the values."""
    out = values.new_empty(pattern.num_receivers, values.shape[1])
    if len(out):
        _segment_sum[(len(out),)](
            values, pattern.offsets, _given(order, pattern), out, values.shape[1], WIDE, order is not None, num_warps=1
        )
    return out


def softmax(logits: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """Softmax over each receiver's entries, which stand in rows `order` of the logits."""
    out = torch.empty_like(logits, memory_format=torch.contiguous_format)
    if pattern.num_receivers and len(out):
        _softmax[(pattern.num_receivers,)](
            logits.contiguous(), pattern.offsets, _given(order, pattern), out, logits.shape[1], WIDE, order is not None,
            num_warps=1,
        )  # fmt: skip
    return out


def softmax_backward(alpha: Tensor, grad: Tensor, pattern: Pattern, order: Tensor | None) -> Tensor:
    """The gradient of the logits from that of the softmax."""
    out = torch.empty_like(alpha)
    if pattern.num_receivers and len(out):
        _softmax_backward[(pattern.num_receivers,)](
            alpha, grad.contiguous(), pattern.offsets, _given(order, pattern), out, alpha.shape[1], WIDE,
            order is not None, num_warps=1,
        )  # fmt: skip
    return out


def _given(order: Tensor | None, pattern: Pattern) -> Tensor:
    return pattern.senders if order is None else order  # a pointer is needed, read or not


@triton.jit  # type: ignore[untyped-decorator]
def _weighted_sum(  # type: ignore[no-untyped-def]
    alpha, x, receivers, firsts, shared, offsets, senders, order, out,
    H: tl.constexpr, F: tl.constexpr, B: tl.constexpr, PIECE: tl.constexpr, ORDERED: tl.constexpr,
):  # fmt: skip
    piece = tl.program_id(0)
    row, start = tl.load(receivers + piece), tl.load(firsts + piece)
    stop = tl.minimum(start + PIECE, tl.load(offsets + row + 1))
    d = tl.arange(0, H * F)
    total = tl.zeros([H * F], dtype=x.dtype.element_ty)
    for first in range(start, stop, B):
        entry = first + tl.arange(0, B)
        there = entry < stop
        sender = tl.load(senders + entry, mask=there, other=0)
        at = tl.load(order + entry, mask=there, other=0) if ORDERED else entry
        weight = tl.load(alpha + at[:, None] * H + d[None, :] // F, mask=there[:, None], other=0.0)
        value = tl.load(x + sender[:, None] * (H * F) + d[None, :], mask=there[:, None], other=0.0)
        total += tl.sum(weight * value, axis=0)
    if tl.load(shared + piece):
        tl.atomic_add(out + row * (H * F) + d, total)
    else:
        tl.store(out + row * (H * F) + d, total)


@triton.jit  # type: ignore[untyped-decorator]
def _pair_dot(  # type: ignore[no-untyped-def]
    x, y, receivers, senders, out, num_entries, H: tl.constexpr, F: tl.constexpr, B: tl.constexpr
):
    entry = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = entry < num_entries
    d = tl.arange(0, H * F)
    receiver = tl.load(receivers + entry, mask=there, other=0)
    sender = tl.load(senders + entry, mask=there, other=0)
    left = tl.load(x + receiver[:, None] * (H * F) + d[None, :], mask=there[:, None], other=0.0)
    right = tl.load(y + sender[:, None] * (H * F) + d[None, :], mask=there[:, None], other=0.0)
    dots = tl.sum(tl.reshape(left * right, [B, H, F]), axis=2)
    tl.store(out + entry[:, None] * H + tl.arange(0, H)[None, :], dots, mask=there[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _softmax(logits, offsets, order, out, H: tl.constexpr, B: tl.constexpr, ORDERED: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    head = tl.arange(0, H)
    top = tl.full([H], float("-inf"), dtype=logits.dtype.element_ty)
    for first in range(start, stop, B):
        entry = first + tl.arange(0, B)
        there = (entry < stop)[:, None]
        at = tl.load(order + entry, mask=entry < stop, other=0) if ORDERED else entry
        value = tl.load(logits + at[:, None] * H + head[None, :], mask=there, other=float("-inf"))
        top = tl.maximum(top, tl.max(value, axis=0))
    total = tl.zeros([H], dtype=logits.dtype.element_ty)
    for first in range(start, stop, B):
        entry = first + tl.arange(0, B)
        there = (entry < stop)[:, None]
        at = tl.load(order + entry, mask=entry < stop, other=0) if ORDERED else entry
        value = tl.load(logits + at[:, None] * H + head[None, :], mask=there, other=float("-inf"))
        total += tl.sum(tl.exp(value - top[None, :]), axis=0)
    for first in range(start, stop, B):
        entry = first + tl.arange(0, B)
        there = (entry < stop)[:, None]
        at = tl.load(order + entry, mask=entry < stop, other=0) if ORDERED else entry
        value = tl.load(logits + at[:, None] * H + head[None, :], mask=there, other=float("-inf"))
        tl.store(out + at[:, None] * H + head[None, :], tl.exp(value - top[None, :]) / total[None, :], mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _softmax_backward(  # type: ignore[no-untyped-def]
    alpha, grad, offsets, order, out, H: tl.constexpr, B: tl.constexpr, ORDERED: tl.constexpr
):
    row = tl.program_id(0)
    start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    head = tl.arange(0, H)
    mean = tl.zeros([H], dtype=alpha.dtype.element_ty)
    for first in range(start, stop, B):
        entry = first + tl.arange(0, B)
        there = (entry < stop)[:, None]
        at = tl.load(order + entry, mask=entry < stop, other=0) if ORDERED else entry
        a = tl.load(alpha + at[:, None] * H + head[None, :], mask=there, other=0.0)
        g = tl.load(grad + at[:, None] * H + head[None, :], mask=there, other=0.0)
        mean += tl.sum(a * g, axis=0)
    for first in range(start, stop, B):
        entry = first + tl.arange(0, B)
        there = (entry < stop)[:, None]
        at = tl.load(order + entry, mask=entry < stop, other=0) if ORDERED else entry
        a = tl.load(alpha + at[:, None] * H + head[None, :], mask=there, other=0.0)
        g = tl.load(grad + at[:, None] * H + head[None, :], mask=there, other=0.0)
        tl.store(out + at[:, None] * H + head[None, :], a * (g - mean[None, :]), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _entry_logits(  # type: ignore[no-untyped-def]
    sender, receiver, weights, senders, receivers, out, size, sender_stride, receiver_stride, slope,
    H: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = at < size
    entry, head = at // H, at % H
    u, v = tl.load(senders + entry, mask=there, other=0), tl.load(receivers + entry, mask=there, other=0)
    both = tl.load(sender + u * sender_stride + head, mask=there, other=0.0)
    both += tl.load(receiver + v * receiver_stride + head, mask=there, other=0.0)
    both *= tl.load(weights + entry, mask=there, other=0.0)
    tl.store(out + at, tl.where(both > 0, both, both * slope), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _entry_logits_backward(grad, logits, weights, out, size, slope, H: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = at < size
    inner = tl.load(grad + at, mask=there, other=0.0)
    inner = tl.where(tl.load(logits + at, mask=there, other=0.0) > 0, inner, inner * slope)
    tl.store(out + at, inner * tl.load(weights + at // H, mask=there, other=0.0), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _segment_sum(values, offsets, order, out, H: tl.constexpr, B: tl.constexpr, ORDERED: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    head = tl.arange(0, H)
    total = tl.zeros([H], dtype=values.dtype.element_ty)
    for first in range(start, stop, B):
        entry = first + tl.arange(0, B)
        at = tl.load(order + entry, mask=entry < stop, other=0) if ORDERED else entry
        total += tl.sum(
            tl.load(values + at[:, None] * H + head[None, :], mask=(entry < stop)[:, None], other=0.0), axis=0
        )
    tl.store(out + row.to(tl.int64) * H + head, total)
