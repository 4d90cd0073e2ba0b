"""A file of named tensors and metadata: safetensors, written atomically, checked on load."""

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
from dysat.system.storage import check_inside, replace_file

ALIGN = 8  # bytes
DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}


def write_tensors(
    path: Path,
    name: str,
    version: int,
    facts: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    error: type[DysatError],
) -> None:
    """Write tensors and `facts`; an existing file is replaced completely or not at all.

    The same content gives the same bytes. safetensors' own `save` orders the metadata by hashes that differ from run to
    run, so the file is written here: the length of the header, the header as JSON, and the tensors.
    """
    arrays = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    content = {"format": f"dysat-{name}", "version": version, **facts}
    text = json.dumps(content)
    header: dict[str, Any] = {"__metadata__": {"checksum": _checksum(text, arrays), "dysat": text}}
    order = sorted(arrays, key=lambda key: (-arrays[key].element_size(), key))  # so that every tensor is aligned
    end = 0
    for key in order:
        start, end = end, end + arrays[key].nbytes
        shape = list(arrays[key].shape)
        header[key] = {"dtype": DTYPES[arrays[key].dtype], "shape": shape, "data_offsets": [start, end]}
    start_of_file = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    start_of_file += b" " * (-len(start_of_file) % ALIGN)
    with replace_file(path, error, needed=8 + len(start_of_file) + end) as temporary, open(temporary, "wb") as out:
        out.write(len(start_of_file).to_bytes(8, "little"))
        out.write(start_of_file)
        for key in order:
            out.write(_bytes(arrays[key]))


def read_tensors(
    path: Path, name: str, version: int, *, error: type[DysatError]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a file of `write_tensors` onto the CPU; any other or damaged file raises `error`."""
    while True:
        before = _identity(path)
        try:
            return _read(path, name, version, error)
        except error:
            # safetensors opens a file twice, for its header and for its tensors. If another process replaced the file
            # in between, the two do not match, and reading again succeeds.
            if _identity(path) == before:
                raise


def read_facts(path: Path, name: str, version: int, *, error: type[DysatError]) -> dict[str, Any]:
    """Read only the metadata of a file of `write_tensors`; the tensors are neither read nor checked."""
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        raise error(f"{path}: no such file")
    check_inside(path, error)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError, ValueError, MemoryError) as problem:
        raise error(f"{path}: damaged, or not a file of dysat: {problem}") from None
    return _facts(path, name, version, metadata, error)


def check_finite(tensors: Mapping[str, Tensor], error: type[DysatError], but: tuple[str, ...] = ()) -> None:
    """Raise if a tensor holds NaN or infinity, except those whose names end in one of `but`; NaN is never allowed."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        low, high = tensor.aminmax()
        finite = bool(torch.isfinite(low) & torch.isfinite(high))
        if not finite and (torch.isnan(low) or not name.endswith(but)):
            raise error(f"{name} has values that are not finite numbers")


def check_tensors(
    tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], error: type[DysatError]
) -> None:
    """Raise unless there is a tensor of each name, with this type and shape."""
    for name, (dtype, shape) in expected.items():
        found = tensors.get(name)
        if found is None:
            raise error(f"{name} is missing")
        if found.dtype != dtype or tuple(found.shape) != shape:
            raise error(f"{name} is {found.dtype} of shape {tuple(found.shape)}, expected {dtype} of shape {shape}")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read(path: Path, name: str, version: int, error: type[DysatError]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        raise error(f"{path}: no such file")
    check_inside(path, error)
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, MemoryError) as problem:
        raise error(f"{path}: damaged, or not a file of dysat: {problem}") from None
    facts = _facts(path, name, version, metadata, error)
    if metadata.get("checksum") != _checksum(metadata["dysat"], tensors):
        raise error(f"{path}: damaged: its content does not match its checksum")
    return facts, tensors


def _facts(path: Path, name: str, version: int, metadata: Mapping[str, str], error: type[DysatError]) -> dict[str, Any]:
    try:
        facts = json.loads(metadata.get("dysat", "null"))
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or facts.get("format") != f"dysat-{name}":
        raise error(f"{path}: not a {name} of dysat")
    if type(facts.get("version")) is not int or facts["version"] < 1:
        raise error(f"{path}: damaged: version {facts.get('version')!r}")
    if facts["version"] > version:
        raise error(f"{path}: written by a newer dysat (format {facts.get('version')}, this one reads up to {version})")
    return facts


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data
