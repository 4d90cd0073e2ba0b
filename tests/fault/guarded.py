"""Importing this module gives the functions of native.c copies of their arrays in memory that a sanitizer watches.

torch may bring an allocator of its own, whose memory AddressSanitizer knows nothing about. Every array is therefore
copied to memory from `malloc` of exactly its size, and what the call changed back after it: other threads may have
changed other elements meanwhile. `python -m pytest -p guarded` loads it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from dysat.system.compiled import Native

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype, LIBC.malloc.argtypes, LIBC.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
CALL = Native.__call__


def span(tensor: Tensor) -> int:
    """Bytes from the first element to the end of the last one."""
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (steps + 1) * tensor.element_size()


def call(self: Native, name: str, *args: Any) -> None:
    """Call a function on copies of its tensors."""
    copies: dict[tuple[int, int], Tensor] = {}
    before: dict[tuple[int, int], Tensor] = {}
    values: list[Any] = []
    for arg in args:
        if not isinstance(arg, Tensor) or not arg.numel() or not arg.is_cpu:
            values.append(arg)
            continue
        key = arg.data_ptr(), span(arg)
        if key not in copies:
            memory = LIBC.malloc(key[1])
            ctypes.memmove(memory, *key)
            raw = torch.frombuffer((ctypes.c_char * key[1]).from_address(memory), dtype=torch.uint8)
            copies[key], before[key] = raw.view(arg.dtype), raw.clone()
        values.append(copies[key].as_strided(arg.shape, arg.stride()))
    try:
        CALL(self, name, *values)
        for (memory, size), copy in copies.items():
            after, whole = copy.view(torch.uint8), (ctypes.c_char * size).from_address(memory)
            changed = after != before[memory, size]
            torch.frombuffer(whole, dtype=torch.uint8)[changed] = after[changed]
    finally:
        for copy in copies.values():
            LIBC.free(copy.data_ptr())


Native.__call__ = call  # type: ignore[method-assign]
