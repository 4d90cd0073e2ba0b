"""Which device does the work of large matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

import torch

_loading = Lock()  # the first decomposition on a GPU loads a library, which two threads must not do at the same time
_device: ContextVar[str] = ContextVar("device", default="cpu")


@contextmanager
def matrices_on(device: torch.device) -> Iterator[None]:
    """Compute with large matrices on a device if they fit in its memory; small ones stay on the CPU."""
    before = _device.set(str(device))
    try:
        yield
    finally:
        _device.reset(before)


def matrix_device(size: int) -> torch.device:
    """Return the chosen device if twice as many bytes are free there, else the CPU."""
    device = torch.device(_device.get())
    if device.type != "cuda":
        return device
    if 2 * size >= torch.cuda.mem_get_info(device)[0]:
        return torch.device("cpu")
    with _loading:
        small = torch.eye(2, device=device)
        torch.linalg.qr(small)
        torch.linalg.cholesky(small)
    return device
