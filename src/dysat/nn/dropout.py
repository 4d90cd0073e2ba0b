"""Dropout whose randomness is an argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dysat.nn.ops import cpu

LEVELS = 1 << 16  # on the CPU the rate is a multiple of 1 / LEVELS, so that one random number serves two values
BLOCK = 32  # values: 16 lower halves of random numbers, then 16 upper halves
CHUNK = 1 << 18  # values that stay in the cache


def dropout(x: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Set each value to zero with probability `rate` and scale the others; without a generator nothing happens."""
    if generator is None or rate == 0:
        return x
    if x.device.type == "cpu":
        return _Dropout.apply(x, rate, _key(generator))  # type: ignore[no-any-return, no-untyped-call]
    return x * keep_mask(x.shape, rate, generator, x.dtype)


def keep_mask(shape: torch.Size, rate: float, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """0 with probability `rate`, else what keeps the mean."""
    if generator.device.type != "cpu":
        mask = torch.empty(shape, dtype=dtype, device=generator.device)
        return mask.bernoulli_(1 - rate, generator=generator).mul_(1 / (1 - rate))
    return _drop(torch.ones(shape, dtype=dtype), rate, _key(generator))


def _key(generator: torch.Generator) -> int:
    """torch's own generator makes one number at a time; it makes the key of one that is told where it stands."""
    return _mixed(int(torch.empty((), dtype=torch.int64).random_(generator=generator)))


def _mixed(number: int) -> int:
    """64 bits that change all over where one bit of the number does: keys side by side have nothing in common."""
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        number = (number ^ number >> 31) * factor % (1 << 64)
    return number ^ number >> 31


def _dropped(rate: float) -> int:
    return min(round(rate * LEVELS), LEVELS - 1)


def _scale(rate: float) -> float:
    return LEVELS / (LEVELS - _dropped(rate))


def _drop(x: Tensor, rate: float, key: int) -> Tensor:
    """What a key makes of x; the same values are kept whatever they are."""
    if x.dtype == torch.float32 and cpu.is_available():
        return cpu.dropout(x, key, _dropped(rate), _scale(rate))
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    # A chunk at a time: the mask of a large array would cost more to write and read than to make.
    parts = zip(torch.split(x.reshape(-1), CHUNK), torch.split(out.view(-1), CHUNK), strict=True)
    for number, (values, result) in enumerate(parts):
        bits = _random_bits(number * CHUNK, len(values), key)
        keep = torch.from_numpy((bits >= _dropped(rate)).astype(np.uint8))
        torch.mul(values, keep.to(x.dtype).mul_(_scale(rate)), out=result)
    return out


def _random_bits(start: int, count: int, key: int) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """16 for each value, from its place and the key alone; native.c has the same."""
    blocks = -(-count // BLOCK)
    first = start // BLOCK * BLOCK // 2
    bits = np.arange(first, first + blocks * BLOCK // 2).astype(np.uint32)
    bits *= np.uint32(0x9E3779B1)
    bits += np.uint32(key & 0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 0x27D4EB2F), (15, 1)):
        bits ^= bits >> np.uint32(shift)
        if shift == 13:
            bits += np.uint32(key >> 32)  # halfway, so that two keys never give one sequence, moved
        bits *= np.uint32(factor)
    halves = np.stack([bits & np.uint32(0xFFFF), bits >> np.uint32(16)], 1).astype(np.uint16)
    return halves.reshape(blocks, 16, 2).transpose(0, 2, 1).reshape(-1)[:count]


class _Dropout(torch.autograd.Function):
    """The mask is made again on the way back rather than kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, key: int) -> Tensor:
        ctx.rate, ctx.key = rate, key
        return _drop(x, rate, key)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _drop(grad, ctx.rate, ctx.key), None, None
