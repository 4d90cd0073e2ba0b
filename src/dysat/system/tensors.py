"""One file of named tensors and facts about them: safetensors, written beside and renamed, checked on load."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dysat.errors import DysatError
from dysat.system.storage import write_beside


def write_tensors(
    path: Path,
    name: str,
    version: int,
    facts: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    error: type[DysatError],
) -> None:
    """Write a file that is there whole or not at all; what stood there before stays until then."""
    from safetensors.torch import save

    arrays = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
    content = {"format": f"dysat-{name}", "version": version, **facts}
    text = json.dumps(content)
    data = save(arrays, {"dysat": text, "checksum": _checksum(text, arrays)})
    with write_beside(path, error) as beside:
        beside.write_bytes(data)


def read_tensors(
    path: Path, name: str, version: int, *, error: type[DysatError]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what `write_tensors` wrote, onto the CPU; anything else is an error that says what is wrong."""
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        raise error(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            about = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, MemoryError) as problem:
        raise error(f"{path}: damaged, or not a file of dysat: {problem}") from None
    try:
        facts = json.loads(about.get("dysat", "null"))
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != f"dysat-{name}":
        raise error(f"{path}: not a {name} of dysat")
    if not isinstance(facts.get("version"), int) or facts["version"] > version:
        raise error(f"{path}: written by a newer dysat (format {facts.get('version')}, this one reads up to {version})")
    if about.get("checksum") != _checksum(about["dysat"], tensors):
        raise error(f"{path}: damaged: its content does not match its checksum")
    return facts, tensors


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
