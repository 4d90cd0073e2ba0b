"""Change the content of graph folders, tensor files and stream states, and recompute all checksums.

A file that a stranger made has checksums that match. `edit_graph`, `edit_tensors` and `edit_stream` hand the content to
a function, which changes it in place or returns new content, and write it back as dysat itself would.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file

from dysat.system.storage import _checksum as manifest_checksum
from dysat.system.tensors import _checksum as tensors_checksum

Arrays = dict[str, NDArray[Any]]
Tensors = dict[str, torch.Tensor]
Content = dict[str, Any]  # of a JSON object
STREAM_STATE = "state.safetensors"
JOURNALS = {"snapshots": "snapshots.bin", "summary": "summary.bin"}


# Graph folders


def read_graph(folder: Path) -> tuple[Content, Arrays]:
    """The manifest and the arrays of a graph folder."""
    manifest = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    return manifest, {key: np.load(folder / f"{key}.npy", allow_pickle=False) for key in manifest["files"]}


def seal_graph(folder: Path, manifest: Content) -> None:
    """Write a manifest whose sizes and checksums match the files that lie in the folder now."""
    for key, facts in manifest["files"].items():
        file = folder / f"{key}.npy"
        if file.is_file() and isinstance(facts, dict):
            data = file.read_bytes()
            facts |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["checksum"] = manifest_checksum(manifest)
    (folder / "graph.json").write_text(json.dumps(manifest), encoding="utf-8")


def edit_graph(folder: Path, edit: Callable[[Content, Arrays], None]) -> None:
    """Change manifest and arrays in place; arrays may be added, replaced or removed. Objects are pickled."""
    manifest, arrays = read_graph(folder)
    edit(manifest, arrays)
    for key in [key for key in manifest["files"] if key not in arrays]:
        del manifest["files"][key]
        (folder / f"{key}.npy").unlink()
    for key, array in arrays.items():
        np.save(folder / f"{key}.npy", array, allow_pickle=True)
        manifest["files"].setdefault(key, {})
    seal_graph(folder, manifest)


def npy_header(file: Path, dtype: str, shape: tuple[int, ...], *, order: bool = False, data: bytes = b"") -> None:
    """Write a `.npy` file whose header need not fit its data."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {shape!r}, }}\n".encode()
    file.write_bytes(b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + data)


# Tensor files: models, checkpoints, streams


def read_tensor_file(file: Path) -> tuple[Content, Tensors]:
    """The facts and the tensors of a file of `write_tensors`."""
    with safe_open(file, framework="pt", device="cpu") as content:
        facts = json.loads(content.metadata()["dysat"])
        return facts, {key: content.get_tensor(key) for key in content.keys()}  # noqa: SIM118


def write_tensor_file(file: Path, facts: Any, tensors: Tensors) -> None:
    """Write facts and tensors with matching checksum; `facts` may be any JSON value."""
    text = json.dumps(facts)
    tensors = {key: tensor.contiguous().clone() for key, tensor in tensors.items()}
    save_file(tensors, file, {"dysat": text, "checksum": tensors_checksum(text, tensors)})


def edit_tensors(file: Path, edit: Callable[[Content, Tensors], None]) -> None:
    """Change facts and tensors of a tensor file in place."""
    facts, tensors = read_tensor_file(file)
    edit(facts, tensors)
    write_tensor_file(file, facts, tensors)


# Streams: a tensor file, whose facts list the records of two journals


def edit_record(stream: Path, journal: str, index: int, edit: Callable[[Arrays], None]) -> None:
    """Change the arrays of one record of a journal (`snapshots` or `summary`) in place; the file is written again."""
    facts, tensors = read_tensor_file(stream / STREAM_STATE)
    before, after = (stream / JOURNALS[journal]).read_bytes(), bytearray()
    for number, record in enumerate(record for record in facts[journal] if record):
        arrays: Arrays = {}
        for name, (dtype, shape, at) in record["arrays"].items():
            count = int(np.prod(shape))
            arrays[name] = np.frombuffer(before, dtype, count, at if count else 0).reshape(shape).copy()
        if number == index:
            edit(arrays)
        layout, digest = {}, hashlib.sha256()
        for name, array in arrays.items():
            after += bytes(-len(after) % 64)
            layout[name] = [array.dtype.str, list(array.shape), len(after)]
            after += array.tobytes()
            digest.update(array.tobytes())
        record |= {"arrays": layout, "end": len(after), "sha256": digest.hexdigest()}
    (stream / JOURNALS[journal]).write_bytes(bytes(after))
    write_tensor_file(stream / STREAM_STATE, facts, tensors)


def edit_stream(stream: Path, edit: Callable[[Content, Tensors], None]) -> None:
    """Change the facts and tensors of a stream state in place."""
    edit_tensors(stream / STREAM_STATE, edit)
