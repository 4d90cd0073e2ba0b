"""Choose a torch device by name."""

from __future__ import annotations

import torch

from dysat.errors import ModelError


def choose_device(name: str) -> torch.device:
    """Return the named device, where `auto` is CUDA if available, else the CPU.

    Raises:
        ModelError: the device does not exist; the message lists those that do.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type in ("cpu", "cuda"):
            torch.empty(0, device=device)
            return device
    except (RuntimeError, AssertionError):
        pass
    available = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    raise ModelError(f"device={name!r} does not exist here; there are {', '.join(available)}")
