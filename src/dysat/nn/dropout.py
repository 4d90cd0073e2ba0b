"""Dropout with an explicit random generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dysat.nn.ops import cpu

LEVELS = 1 << 16  # the rate on the CPU is rounded to a multiple of 1 / LEVELS: 32 random bits then serve two values
BLOCK = 32  # values per block: they use 16 lower halves of random numbers, then 16 upper halves
CHUNK = 1 << 18  # values that fit in the cache


def dropout(x: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Set each value to 0 with probability `rate` and scale the others; without a generator return x unchanged."""
    if generator is None or rate == 0:
        return x
    if x.device.type == "cpu":
        return _Dropout.apply(x, rate, _key(generator))  # type: ignore[no-any-return, no-untyped-call]
    return x * keep_mask(x.shape, rate, generator, x.dtype)


def keep_mask(shape: torch.Size, rate: float, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return a mask that is 0 with probability `rate`, else 1 / (1 − rate)."""
    if generator.device.type != "cpu":
        mask = torch.empty(shape, dtype=dtype, device=generator.device)
        return mask.bernoulli_(1 - rate, generator=generator).mul_(1 / (1 - rate))
    return _drop(torch.ones(shape, dtype=dtype), rate, _key(generator))


def _key(generator: torch.Generator) -> int:
    """Draw a key for `_random_bits`: torch's generator is sequential, hashing position and key is not."""
    return _mix(int(torch.empty((), dtype=torch.int64).random_(generator=generator)))


def _mix(number: int) -> int:
    """Hash to 64 bits so that similar numbers give unrelated keys."""
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        number = (number ^ number >> 31) * factor % (1 << 64)
    return number ^ number >> 31


def _threshold(rate: float) -> int:
    """Values whose 16 random bits are below it are dropped."""
    return min(round(rate * LEVELS), LEVELS - 1)


def _scale(rate: float) -> float:
    return LEVELS / (LEVELS - _threshold(rate))


def _drop(x: Tensor, rate: float, key: int) -> Tensor:
    """Apply the dropout mask of a key, which depends only on the key and the number of values."""
    if x.dtype == torch.float32 and cpu.is_available():
        return cpu.dropout(x, key, _threshold(rate), _scale(rate))
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    # One chunk at a time: writing and reading the mask of a large array would cost more than computing it.
    parts = zip(torch.split(x.reshape(-1), CHUNK), torch.split(out.view(-1), CHUNK), strict=True)
    for number, (values, result) in enumerate(parts):
        bits = _random_bits(number * CHUNK, len(values), key)
        keep = torch.from_numpy((bits >= _threshold(rate)).astype(np.uint8))
        torch.mul(values, keep.to(x.dtype).mul_(_scale(rate)), out=result)
    return out


def _random_bits(start: int, count: int, key: int) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """16 random bits for each value, computed from its position and the key; native.c computes the same bits."""
    blocks = -(-count // BLOCK)
    first = start // BLOCK * BLOCK // 2
    bits = np.arange(first, first + blocks * BLOCK // 2).astype(np.uint32)
    bits *= np.uint32(0x9E3779B1)
    bits += np.uint32(key & 0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 0x27D4EB2F), (15, 1)):
        bits ^= bits >> np.uint32(shift)
        if shift == 13:
            bits += np.uint32(key >> 32)  # halfway: otherwise two keys could give shifted copies of one sequence
        bits *= np.uint32(factor)
    halves = np.stack([bits & np.uint32(0xFFFF), bits >> np.uint32(16)], 1).astype(np.uint16)
    return halves.reshape(blocks, 16, 2).transpose(0, 2, 1).reshape(-1)[:count]


class _Dropout(torch.autograd.Function):
    """Dropout that recomputes its mask in the backward pass instead of storing it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, key: int) -> Tensor:
        ctx.rate, ctx.key = rate, key
        return _drop(x, rate, key)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _drop(grad, ctx.rate, ctx.key), None, None
