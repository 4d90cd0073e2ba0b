"""Which device does the work of large matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

import torch

Work = Callable[[torch.device], object]
_beginning = Lock()  # two threads must not begin to load the libraries of a GPU at the same time
_loads = dict[torch.device, list[Future[object]]]()
_device: ContextVar[str] = ContextVar("device", default="cpu")


@contextmanager
def matrices_on(device: torch.device, *, soon: Work | None = None) -> Iterator[None]:
    """Compute with large matrices on a device if they fit in its memory; small ones stay on the CPU.

    A GPU loads libraries and functions on first use, which takes part of a second. With `soon`, a thread begins to load
    them now, and then does this bit of work, once in a process; the end waits for it.
    """
    before = _device.set(str(device))
    loads = [] if soon is None or device.type != "cuda" else _loading(device, soon)
    try:
        yield
    finally:
        _device.reset(before)
        wait(loads)


def on_gpu() -> bool:
    """Whether large matrices are computed on a GPU, if they fit in its memory."""
    return torch.device(_device.get()).type == "cuda"


def matrix_device(size: int) -> torch.device:
    """Return the chosen device if twice as many bytes are free there, else the CPU."""
    device = torch.device(_device.get())
    if device.type != "cuda":
        return device
    try:
        _loading(device)[0].result()
    except Exception:
        _loads.pop(device, None)  # the next call tries again
        raise
    return device if 2 * size < torch.cuda.mem_get_info(device)[0] else torch.device("cpu")


def _loading(device: torch.device, soon: Work | None = None) -> list[Future[object]]:
    """The libraries of a GPU, which a thread loads, and other work that it does then."""
    with _beginning:
        if device not in _loads:
            pool = ThreadPoolExecutor(1)
            _loads[device] = [pool.submit(work, device) for work in (_load, soon) if work is not None]
            pool.shutdown(wait=False)
        return _loads[device]


def _load(device: torch.device) -> None:
    """Do a little of what is done with large matrices: a function of a GPU is loaded when it is first called."""
    small = torch.eye(2, device=device)
    torch.linalg.qr(small @ small)
    torch.linalg.cholesky(small)
    torch.segment_reduce(small, "sum", offsets=torch.tensor([0, 2], device=device), axis=0, unsafe=True)
    torch.cuda.synchronize(device)
