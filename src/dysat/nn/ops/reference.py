"""The operations of `sparse` in plain torch, without gradients: reference versions, and faster ones for the CPU.

The reference versions run on any device and are what the tests compare the others with. The CPU versions never
allocate an array of E · d values, which would cost more than the arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from dysat.sampling.blocks import Pattern

CHUNK = 2048  # entries whose vectors stay in the cache


def reference_head_dots(x: Tensor, a: Tensor) -> Tensor:
    """`head_dots` as one product with a block-diagonal matrix."""
    heads = torch.eye(a.shape[1], dtype=a.dtype, device=a.device)  # [H, H]
    diagonal = (a.permute(1, 2, 0)[..., None] * heads[:, None, None, :]).flatten(0, 1).flatten(1)  # [H · F, K · H]
    return x.flatten(1) @ diagonal


def reference_entry_logits(sender: Tensor, receiver: Tensor, weights: Tensor, slope: float, pattern: Pattern) -> Tensor:
    """`entry_logits`, straight from the formula."""
    both = sender.index_select(0, pattern.senders).add_(receiver.index_select(0, pattern.receivers))
    return functional.leaky_relu_(both.mul_(weights[:, None]), slope)


def reference_weighted_sum(alpha: Tensor, x: Tensor, pattern: Pattern) -> Tensor:
    """`weighted_sum`, straight from the formula."""
    messages = alpha[..., None] * x.index_select(0, pattern.senders)  # [E, H, F]
    return x.new_zeros(pattern.num_receivers, *x.shape[1:]).index_add_(0, pattern.receivers, messages)


def reference_pair_dot(x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
    """`pair_dot`, straight from the formula."""
    return (x.index_select(0, pattern.receivers) * y.index_select(0, pattern.senders)).sum(-1)


def reference_softmax(logits: Tensor, pattern: Pattern) -> Tensor:
    """`segment_softmax`, straight from the formula."""
    index = pattern.receivers[:, None].expand_as(logits)
    top = logits.new_zeros(pattern.num_receivers, logits.shape[1])
    top = top.scatter_reduce_(0, index, logits, "amax", include_self=False)
    weights = (logits - top.index_select(0, pattern.receivers)).exp_()
    total = torch.zeros_like(top).index_add_(0, pattern.receivers, weights)
    return weights.div_(total.index_select(0, pattern.receivers))


def bag_weighted_sum(alpha: Tensor, x: Tensor, pattern: Pattern) -> Tensor:
    """`weighted_sum` for the CPU: one embedding bag per receiver and head, which adds rows as it reads them."""
    num_heads, width = x.shape[1:]
    if not pattern.num_receivers:
        return x.new_zeros(0, num_heads, width)
    if pattern.is_short_lived(num_heads):
        return _bags_by_head(alpha, x, pattern)
    place, senders, starts = pattern.expanded(num_heads)
    weights = alpha.reshape(-1).index_select(0, place)
    table = x.reshape(len(x) * num_heads, width)
    sums = functional.embedding_bag(senders, table, starts, mode="sum", per_sample_weights=weights)
    return sums.view(pattern.num_receivers, num_heads, width)


def _bags_by_head(alpha: Tensor, x: Tensor, pattern: Pattern) -> Tensor:
    """The same, head by head; it does not need the expanded pattern."""
    out = x.new_empty(pattern.num_receivers, *x.shape[1:])
    starts = pattern.offsets[:-1]
    for head, (weights, table) in enumerate(zip(alpha.t().contiguous(), x.transpose(0, 1).contiguous(), strict=True)):
        out[:, head] = functional.embedding_bag(pattern.senders, table, starts, mode="sum", per_sample_weights=weights)
    return out


def chunked_pair_dot(x: Tensor, y: Tensor, pattern: Pattern) -> Tensor:
    """`pair_dot` for the CPU: gather a chunk of vectors at a time; a product with a 0/1 matrix sums each head."""
    num_heads, width = x.shape[1:]
    heads = torch.eye(num_heads, dtype=x.dtype).repeat_interleave(width, 0)  # [H · F, H]
    left, right = x.reshape(len(x), num_heads * width), y.reshape(len(y), num_heads * width)
    out = x.new_empty(pattern.num_entries, num_heads)
    rows, others = (x.new_empty(min(CHUNK, pattern.num_entries), num_heads * width) for _ in range(2))
    for start in range(0, pattern.num_entries, CHUNK):
        part = slice(start, min(start + CHUNK, pattern.num_entries))
        size = part.stop - start
        torch.index_select(left, 0, pattern.receivers[part], out=rows[:size])
        torch.index_select(right, 0, pattern.senders[part], out=others[:size])
        torch.mm(rows[:size].mul_(others[:size]), heads, out=out[part])
    return out


def segment_sum(values: Tensor, pattern: Pattern) -> Tensor:
    """Sum over the entries of each receiver, for the CPU.  # [E, H] → [R, H]"""
    if not pattern.num_receivers:
        return values.new_zeros(0, values.shape[1])
    return functional.embedding_bag(torch.arange(pattern.num_entries), values, pattern.offsets[:-1], mode="sum")


def segment_softmax_cpu(logits: Tensor, pattern: Pattern) -> Tensor:
    """`segment_softmax` for the CPU."""
    top = torch.segment_reduce(logits, "max", offsets=pattern.offsets, axis=0)
    weights = (logits - top.index_select(0, pattern.receivers)).exp_()
    return weights.div_(segment_sum(weights, pattern).index_select(0, pattern.receivers))
