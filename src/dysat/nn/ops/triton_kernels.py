"""The Triton kernels that `cuda` launches; imported on CUDA only. Each docstring says what one program computes."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _cells(order, first, stop, H: tl.constexpr, B: tl.constexpr, ORDERED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Positions of the values of the next B entries, and a mask of the entries that exist.  # [B, H], [B, 1]"""
    entry = first + tl.arange(0, B)
    there = entry < stop
    at = tl.load(order + entry, mask=there, other=0) if ORDERED else entry
    return at[:, None] * H + tl.arange(0, H)[None, :], there[:, None]


@triton.jit  # type: ignore[untyped-decorator]
def weighted_sum(  # type: ignore[no-untyped-def]
    alpha, x, receivers, firsts, shared, offsets, senders, order, out,
    H: tl.constexpr, F: tl.constexpr, B: tl.constexpr, PIECE: tl.constexpr, ORDERED: tl.constexpr,
):  # fmt: skip
    """Sum one piece of a receiver's entries; pieces of the same receiver add to the same row."""
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
def pair_dot(  # type: ignore[no-untyped-def]
    x, y, receivers, senders, out, num_entries, H: tl.constexpr, F: tl.constexpr, B: tl.constexpr
):
    """Compute the next B entries."""
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
def softmax(logits, offsets, order, out, H: tl.constexpr, B: tl.constexpr, ORDERED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Normalize one receiver's entries."""
    row = tl.program_id(0)
    start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    top = tl.full([H], float("-inf"), dtype=logits.dtype.element_ty)
    for first in range(start, stop, B):
        cell, there = _cells(order, first, stop, H, B, ORDERED)
        value = tl.load(logits + cell, mask=there, other=float("-inf"))
        top = tl.maximum(top, tl.max(value, axis=0))
    total = tl.zeros([H], dtype=logits.dtype.element_ty)
    for first in range(start, stop, B):
        cell, there = _cells(order, first, stop, H, B, ORDERED)
        value = tl.load(logits + cell, mask=there, other=float("-inf"))
        total += tl.sum(tl.exp(value - top[None, :]), axis=0)
    for first in range(start, stop, B):
        cell, there = _cells(order, first, stop, H, B, ORDERED)
        value = tl.load(logits + cell, mask=there, other=float("-inf"))
        tl.store(out + cell, tl.exp(value - top[None, :]) / total[None, :], mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def softmax_backward(  # type: ignore[no-untyped-def]
    alpha, grad, offsets, order, out, H: tl.constexpr, B: tl.constexpr, ORDERED: tl.constexpr
):
    """Compute the gradient for one receiver's entries."""
    row = tl.program_id(0)
    start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    mean = tl.zeros([H], dtype=alpha.dtype.element_ty)
    for first in range(start, stop, B):
        cell, there = _cells(order, first, stop, H, B, ORDERED)
        a = tl.load(alpha + cell, mask=there, other=0.0)
        g = tl.load(grad + cell, mask=there, other=0.0)
        mean += tl.sum(a * g, axis=0)
    for first in range(start, stop, B):
        cell, there = _cells(order, first, stop, H, B, ORDERED)
        a = tl.load(alpha + cell, mask=there, other=0.0)
        g = tl.load(grad + cell, mask=there, other=0.0)
        tl.store(out + cell, a * (g - mean[None, :]), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def entry_logits(  # type: ignore[no-untyped-def]
    sender, receiver, weights, senders, receivers, out, size, sender_stride, receiver_stride, slope,
    H: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Compute the next B logits."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = at < size
    entry, head = at // H, at % H
    u, v = tl.load(senders + entry, mask=there, other=0), tl.load(receivers + entry, mask=there, other=0)
    both = tl.load(sender + u * sender_stride + head, mask=there, other=0.0)
    both += tl.load(receiver + v * receiver_stride + head, mask=there, other=0.0)
    both *= tl.load(weights + entry, mask=there, other=0.0)
    tl.store(out + at, tl.where(both > 0, both, both * slope), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def entry_logits_backward(grad, logits, weights, out, size, slope, H: tl.constexpr, B: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute the gradient of the next B logits."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    there = at < size
    inner = tl.load(grad + at, mask=there, other=0.0)
    inner = tl.where(tl.load(logits + at, mask=there, other=0.0) > 0, inner, inner * slope)
    tl.store(out + at, inner * tl.load(weights + at // H, mask=there, other=0.0), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def segment_sum(values, offsets, order, out, H: tl.constexpr, B: tl.constexpr, ORDERED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sum one receiver's entries."""
    row = tl.program_id(0)
    start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    total = tl.zeros([H], dtype=values.dtype.element_ty)
    for first in range(start, stop, B):
        cell, there = _cells(order, first, stop, H, B, ORDERED)
        total += tl.sum(tl.load(values + cell, mask=there, other=0.0), axis=0)
    tl.store(out + row.to(tl.int64) * H + tl.arange(0, H), total)


@triton.jit  # type: ignore[untyped-decorator]
def _keys_and_values(  # type: ignore[no-untyped-def]
    kv, kv_step, senders, steps, first, stop, d, D: tl.constexpr, B: tl.constexpr, STEPS: tl.constexpr
):
    """Keys and values of the next B entries: those of the row plus those of the step; 0 past the end.  # [B, H, F]"""
    entry = first + tl.arange(0, B)
    there = (entry < stop)[:, None, None]
    at = kv + tl.load(senders + entry, mask=entry < stop, other=0)[:, None, None] * (2 * D) + d[None, :, :]
    k, v = tl.load(at, mask=there, other=0.0), tl.load(at + D, mask=there, other=0.0)
    if STEPS:
        at = kv_step + tl.load(steps + entry, mask=entry < stop, other=0)[:, None, None] * (2 * D) + d[None, :, :]
        k += tl.load(at, mask=there, other=0.0)
        v += tl.load(at + D, mask=there, other=0.0)
    return k, v


@triton.jit  # type: ignore[untyped-decorator]
def history_attention(  # type: ignore[no-untyped-def]
    q, kv, kv_step, offsets, senders, steps, keep, logits, scale, out,
    H: tl.constexpr, F: tl.constexpr, B: tl.constexpr, STEPS: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Attend to one query's entries."""
    row = tl.program_id(0).to(tl.int64)
    start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    head = tl.arange(0, H)
    d = head[:, None] * F + tl.arange(0, F)[None, :]
    asking = tl.load(q + row * (H * F) + d)
    top = tl.full([H], float("-inf"), dtype=tl.float32)
    total = tl.zeros([H], dtype=tl.float32)
    z = tl.zeros([H, F], dtype=tl.float32)
    for first in range(start, stop, B):  # a larger logit rescales the sums so far
        cell, there = _cells(senders, first, stop, H, B, False)
        k, v = _keys_and_values(kv, kv_step, senders, steps, first, stop, d, H * F, B, STEPS)
        logit = tl.sum(asking[None, :, :] * k, axis=2)  # [B, H]
        tl.store(logits + cell, logit, mask=there)
        logit = tl.where(there, logit, float("-inf"))
        higher = tl.maximum(top, tl.max(logit, axis=0))
        weight, before = tl.exp(logit - higher[None, :]), tl.exp(top - higher)
        total = total * before + tl.sum(weight, axis=0)
        if KEEP:
            weight *= tl.load(keep + cell, mask=there, other=0.0)
        z = z * before[:, None] + tl.sum(weight[:, :, None] * v, axis=0)
        top = higher
    total = tl.maximum(total, 1.0)  # at least 1 from the largest logit; without entries this avoids 0 / 0
    tl.store(scale + row * (2 * H) + head, top)
    tl.store(scale + row * (2 * H) + H + head, total)
    tl.store(out + row * (H * F) + d, z / total[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def history_attention_backward(  # type: ignore[no-untyped-def]
    grad, z, q, kv, kv_step, offsets, senders, steps, keep, logits, scale, d_q, weights, rows,
    H: tl.constexpr, F: tl.constexpr, B: tl.constexpr, STEPS: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Compute the gradients for one query's entries."""
    row = tl.program_id(0).to(tl.int64)
    start, stop = tl.load(offsets + row), tl.load(offsets + row + 1)
    head = tl.arange(0, H)
    d = head[:, None] * F + tl.arange(0, F)[None, :]
    asking, dz = tl.load(q + row * (H * F) + d), tl.load(grad + row * (H * F) + d)
    tl.store(rows + row * (2 * H * F) + d, asking)
    tl.store(rows + row * (2 * H * F) + H * F + d, dz)
    mean = tl.sum(dz * tl.load(z + row * (H * F) + d), axis=1)  # Σ β dβ is dz · z
    top, total = tl.load(scale + row * (2 * H) + head), tl.load(scale + row * (2 * H) + H + head)
    to_q = tl.zeros([H, F], dtype=tl.float32)
    for first in range(start, stop, B):
        cell, there = _cells(senders, first, stop, H, B, False)
        k, v = _keys_and_values(kv, kv_step, senders, steps, first, stop, d, H * F, B, STEPS)
        logit = tl.load(logits + cell, mask=there, other=float("-inf"))
        beta = tl.exp(logit - top[None, :]) / total[None, :]
        kept = beta
        if KEEP:
            kept = beta * tl.load(keep + cell, mask=there, other=0.0)
        to_logit = kept * tl.sum(dz[None, :, :] * v, axis=2) - beta * mean[None, :]
        to_logit = tl.where(stop - start > 1, to_logit, 0.0)  # one entry: β is 1, so this is rounding error
        to_q += tl.sum(to_logit[:, :, None] * k, axis=0)
        pair = 2 * cell - head[None, :]  # 2 H values per entry
        tl.store(weights + pair, to_logit, mask=there)
        tl.store(weights + pair + H, kept, mask=there)
    tl.store(d_q + row * (H * F) + d, to_q)
