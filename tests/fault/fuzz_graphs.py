"""Hostile graph folders: values, shapes, types and manifests, with checksums that match in most cases."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from hostile_values import NUMBERS, Rng, chance, change_json, damage, pick
from numpy.typing import NDArray

Array = NDArray[Any]
TYPES = ("<i8", "<i4", "<i2", "<u8", "<f8", "<f4", ">i8", "|u1", "|i1", "|b1", "<c16", "<U3", "|S4", "<M8[us]")


def change_graph(rng: Rng, folder: Path) -> None:
    """Change a graph folder in one or two ways; nine times in ten its checksums are made to match again."""
    for _ in range(1 + chance(rng, 0.3)):
        arrays = sorted(folder.glob("*.npy"))
        if chance(rng, 0.7) and arrays:
            file = pick(rng, arrays)
            if chance(rng, 0.85):
                change_array_file(rng, file)
            else:
                file.write_bytes(damage(rng, file.read_bytes()))
        else:
            _change_manifest(rng, folder)
    if chance(rng, 0.03):
        pick(rng, sorted(folder.iterdir())).unlink()
    if chance(rng, 0.9):
        make_checksums_match(folder)


def change_array_file(rng: Rng, file: Path) -> None:
    """Change one array, and keep the file a valid .npy file."""
    try:
        array = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError, SyntaxError, TokenError, MemoryError):  # an earlier change has broken it
        return
    out = io.BytesIO()
    np.save(out, change_array(rng, array), allow_pickle=False)
    file.write_bytes(out.getvalue())


def change_array(rng: Rng, array: Array) -> Array:
    """Change values, order, length, shape or type."""
    action = rng.random()
    if not array.ndim:
        return np.asarray(pick(rng, NUMBERS)) if action < 0.5 else array.reshape(1)
    with np.errstate(all="ignore"):
        if action < 0.45 and array.size:
            return _change_values(rng, array)
        if action < 0.55:
            return np.asarray(rng.permutation(array))
        if action < 0.65:
            return array[: int(rng.integers(0, len(array) + 1))]
        if action < 0.75:
            return np.concatenate([array, array[: int(rng.integers(1, 4))]])
        if action < 0.9:
            return _other_type(rng, array)
        shapes = (array.reshape(-1, 1), array.reshape(1, -1), array[:0], array[:1], array[None], array[::-1])
        return pick(rng, (*shapes, np.zeros((0, 3), array.dtype), np.zeros((), array.dtype)))


def _change_values(rng: Rng, array: Array) -> Array:
    """Replace one to three entries, or add to one."""
    changed = array.copy()
    flat = changed.reshape(-1)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(flat.size))
        if chance(rng, 0.4) and flat.dtype.kind in "iuf":
            flat[at] = flat[at] + flat.dtype.type(pick(rng, (1, 2, 100)))
            continue
        try:
            flat[at] = pick(rng, NUMBERS)
        except (OverflowError, ValueError, TypeError):
            flat[at] = np.zeros((), flat.dtype)
    return changed


def _other_type(rng: Rng, array: Array) -> Array:
    try:
        return array.astype(pick(rng, TYPES))
    except (ValueError, TypeError, OverflowError):
        return array.astype("<f8") if array.dtype.kind in "iuf" else array


def _change_manifest(rng: Rng, folder: Path) -> None:
    file = folder / "graph.json"
    if not file.is_file():
        return
    if chance(rng, 0.1):
        file.write_bytes(damage(rng, file.read_bytes()))
        return
    try:
        manifest = json.loads(file.read_bytes())
    except ValueError:
        return
    if not isinstance(manifest, dict):  # an earlier change of the same case
        return
    own = {key: item for key, item in manifest.items() if key not in ("format", "checksum")} if chance(rng, 0.9) else {}
    changed = change_json(rng, own or manifest)
    file.write_text(json.dumps({**manifest, **changed} if isinstance(changed, dict) else changed))


def make_checksums_match(folder: Path) -> None:
    """Write sizes and checksums into the manifest, as a person who makes a hostile folder would."""
    file = folder / "graph.json"
    try:
        manifest = json.loads(file.read_bytes())
        files = manifest["files"]
        for name in list(files):
            array = folder / f"{name}.npy"
            if "/" not in name and array.is_file():
                data = array.read_bytes()
                files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    content = {key: item for key, item in manifest.items() if key != "checksum"}
    manifest["checksum"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps(manifest))
