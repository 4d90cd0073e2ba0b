"""Dropout whose randomness is an argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

LEVELS = 1 << 16  # on the CPU the rate is a multiple of 1 / LEVELS, so that one random number serves four values
CHUNK = 1 << 18  # values that stay in the cache


def dropout(x: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Set each value to zero with probability `rate` and scale the others; without a generator nothing happens."""
    if generator is None or rate == 0:
        return x
    if x.device.type == "cpu":
        return _Dropout.apply(x, rate, generator)  # type: ignore[no-any-return, no-untyped-call]
    return x * keep_mask(x.shape, rate, generator, x.dtype)


def keep_mask(shape: torch.Size, rate: float, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """0 with probability `rate`, else what keeps the mean."""
    if generator.device.type != "cpu":
        mask = torch.empty(shape, dtype=dtype, device=generator.device)
        return mask.bernoulli_(1 - rate, generator=generator).mul_(1 / (1 - rate))
    keep = torch.empty(shape, dtype=torch.bool)
    _draw(keep.view(-1), rate, _fast(generator))
    return keep.to(dtype).mul_(_scale(rate))


def _fast(generator: torch.Generator) -> np.random.Generator:
    """torch's own generator makes one number at a time; it seeds one of NumPy's, several times as fast."""
    seed = int(torch.empty((), dtype=torch.int64).random_(generator=generator))
    return np.random.Generator(np.random.SFC64(seed))


def _dropped(rate: float) -> int:
    return min(round(rate * LEVELS), LEVELS - 1)


def _scale(rate: float) -> float:
    return LEVELS / (LEVELS - _dropped(rate))


def _draw(keep: Tensor, rate: float, fast: np.random.Generator) -> None:
    """Write which values are kept."""
    bits = fast.integers(-(2**63), 2**63 - 1, (len(keep) + 3) // 4, dtype=np.int64, endpoint=True)
    torch.ge(torch.from_numpy(bits.view(np.int16)[: len(keep)]), _dropped(rate) - LEVELS // 2, out=keep)


class _Dropout(torch.autograd.Function):
    """A chunk at a time: the mask of a large array would cost more to write and read than to make."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, generator: torch.Generator) -> Tensor:
        flat, fast = x.reshape(-1), _fast(generator)
        keep = torch.empty(len(flat), dtype=torch.bool)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        for values, kept, result in zip(*(torch.split(t, CHUNK) for t in (flat, keep, out.view(-1))), strict=True):
            _draw(kept, rate, fast)
            torch.mul(values, kept.to(x.dtype).mul_(_scale(rate)), out=result)
        ctx.rate = rate
        ctx.save_for_backward(keep)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        out = torch.empty_like(grad, memory_format=torch.contiguous_format)
        parts = zip(*(torch.split(t, CHUNK) for t in (grad.reshape(-1), keep, out.view(-1))), strict=True)
        for values, kept, result in parts:
            torch.mul(values, kept.to(grad.dtype).mul_(_scale(ctx.rate)), out=result)
        return out, None, None
