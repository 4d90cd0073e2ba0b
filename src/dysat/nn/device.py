"""The device that is meant by a name."""

from __future__ import annotations

import torch

from dysat.errors import ModelError


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one; a device that does not exist is an error that says which do."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type in ("cpu", "cuda"):
            torch.empty(0, device=device)
            return device
    except (RuntimeError, AssertionError):
        pass
    there = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    raise ModelError(f"device={name!r} does not exist here; there are {', '.join(there)}")
