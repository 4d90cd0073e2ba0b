"""Hostile run folders: every file of a run, with checksums that match in most cases, and links out of the folder."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_graphs import change_array, change_graph
from hostile_values import NUMBERS, Rng, chance, change_json, damage, pick, value
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from dysat.system.tensors import _checksum
from dysat.system.text.toml import as_toml

Facts = dict[str, Any]
SEAL = "dysat.runs.seal"
JOURNALS = {"snapshots": "snapshots.bin", "summary": "summary.bin"}


def change_run(rng: Rng, folder: Path, outside: Path) -> None:
    """Change a run folder in one or two ways; `outside` is a file that no link may lead to."""
    for _ in range(1 + chance(rng, 0.2)):
        pick(rng, CHANGES)(rng, folder)
    if chance(rng, 0.03):
        file = pick(rng, [file for file in sorted(folder.rglob("*")) if file.is_file()])
        file.unlink()
        file.symlink_to(outside)


def _config(rng: Rng, folder: Path) -> None:
    file = folder / "config.toml"
    if not file.is_file():  # an earlier change has removed it
        return
    if chance(rng, 0.2):
        file.write_bytes(damage(rng, file.read_bytes()))
        return
    try:
        changed = change_json(rng, tomllib.loads(file.read_text()))
        file.write_text(as_toml(changed))
        if chance(rng, 0.8) and find_spec(SEAL) is not None:  # make the seal match
            import_module(SEAL).write_seal(folder, changed)
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        file.write_bytes(damage(rng, file.read_bytes()))


def _json_file(rng: Rng, folder: Path) -> None:
    """Change metrics.json or updates.json; sometimes replace it altogether."""
    files = [file for name in ("metrics.json", "updates.json") for file in sorted(folder.rglob(name))]
    if not files:
        return
    file = pick(rng, files)
    if chance(rng, 0.2):
        file.write_bytes(damage(rng, file.read_bytes()))
    elif chance(rng, 0.1):
        file.write_text("[" * 100_000)
    else:
        try:
            tree = json.loads(file.read_bytes())
        except (ValueError, RecursionError):  # an earlier change has broken it
            return
        file.write_text(json.dumps(value(rng) if chance(rng, 0.2) else change_json(rng, tree)))


def _any_file(rng: Rng, folder: Path) -> None:
    """Damage the bytes of any file."""
    file = pick(rng, [file for file in sorted(folder.rglob("*")) if file.is_file()])
    file.write_bytes(damage(rng, file.read_bytes()))


def _missing_file(rng: Rng, folder: Path) -> None:
    pick(rng, [file for file in sorted(folder.rglob("*")) if file.is_file()]).unlink()


def _graph(rng: Rng, folder: Path) -> None:
    graphs = [file.parent for file in sorted(folder.rglob("graph.json"))]
    if graphs:
        change_graph(rng, pick(rng, graphs))


def _tensors(rng: Rng, folder: Path) -> None:
    """Change metadata or tensors of the model, the state or a checkpoint."""
    files = sorted(folder.rglob("*.safetensors"))
    if not files:
        return
    file = pick(rng, files)
    found = read_tensor_file(file)
    if found is None or not isinstance(found[0], dict):
        return
    facts, tensors = found
    if chance(rng, 0.6):
        own = {key: item for key, item in facts.items() if key not in ("format", "version")}
        changed = change_json(rng, own if chance(rng, 0.95) else facts)
        facts = {**facts, **changed} if isinstance(changed, dict) else changed
        if isinstance(changed, dict):
            facts = {key: item for key, item in facts.items() if key in changed or key in ("format", "version")}
    else:
        tensors = _change_tensors(rng, tensors)
    write_tensor_file(file, facts, tensors, sealed=chance(rng, 0.95))


def _change_tensors(rng: Rng, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if not tensors:
        return {"extra": torch.zeros(3)}
    name, action = pick(rng, sorted(tensors)), rng.random()
    if action < 0.1:
        return {key: tensor for key, tensor in tensors.items() if key != name}
    if action < 0.2:
        return {**tensors, f"{name}_": tensors[name]}
    if action < 0.5 and tensors[name].is_floating_point():
        numbers = tensors[name].numpy().copy()
        with np.errstate(over="ignore"):
            numbers.reshape(-1)[: int(rng.integers(1, 5))] = pick(rng, NUMBERS)
        return {**tensors, name: torch.from_numpy(numbers)}
    array = np.ascontiguousarray(change_array(rng, tensors[name].numpy()))
    if array.dtype.kind not in "biuf" or not array.dtype.isnative:
        return {**tensors, name: tensors[name].double()}
    same_bits = array.view(array.dtype.str)  # unsigned long long is a type of its own, which torch does not know
    return {**tensors, name: torch.from_numpy(same_bits)}


def _journal(rng: Rng, folder: Path) -> None:
    """Change an array of a journal in place, and store its new checksum in the state."""
    state = folder / "stream" / "state.safetensors"
    found = read_tensor_file(state) if state.is_file() else None
    if found is None or not isinstance(found[0], dict):
        return
    facts, tensors = found
    name = pick(rng, sorted(JOURNALS))
    records, file = facts.get(name), folder / "stream" / JOURNALS[name]
    known = [record for record in records if isinstance(record, dict)] if isinstance(records, list) else []
    if not known or not file.is_file():
        return
    data, record = bytearray(file.read_bytes()), pick(rng, known)
    try:
        kind, shape, at = pick(rng, [layout for layout in record["arrays"].values() if 0 not in layout[1]])
        array = np.frombuffer(data, kind, int(np.prod(shape)), at)
    except (ValueError, KeyError, TypeError):
        return
    changed = array.copy()
    for _ in range(int(rng.integers(1, 4))):
        try:
            changed[int(rng.integers(changed.size))] = pick(rng, NUMBERS)
        except (OverflowError, ValueError):
            changed[0] = 0
    data[at : at + changed.nbytes] = changed.tobytes()
    file.write_bytes(data)
    digest = hashlib.sha256()
    for kind, shape, at in record["arrays"].values():
        digest.update(bytes(data[at : at + int(np.prod(shape)) * np.dtype(kind).itemsize]) if 0 not in shape else b"")
    record["sha256"] = digest.hexdigest()
    write_tensor_file(state, facts, tensors, sealed=True)


def read_tensor_file(file: Path) -> tuple[Facts, dict[str, torch.Tensor]] | None:
    """The metadata and tensors of a file; None if an earlier change has broken it."""
    try:
        with safe_open(file, framework="pt", device="cpu") as opened:
            facts = json.loads(opened.metadata()["dysat"])
            return facts, {key: opened.get_tensor(key).clone() for key in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None


def write_tensor_file(file: Path, facts: Any, tensors: dict[str, torch.Tensor], *, sealed: bool) -> None:
    """Write a file of tensors whose checksum matches if it is `sealed`."""
    text = json.dumps(facts)
    arrays = {key: tensor.contiguous().clone() for key, tensor in tensors.items()}
    checksum = _checksum(text, arrays) if sealed else "0" * 64
    file.write_bytes(save(arrays, {"dysat": text, "checksum": checksum}))


CHANGES: tuple[Callable[[Rng, Path], None], ...] = (
    _config, _config, _json_file, _any_file, _missing_file, _graph, _graph, _tensors, _tensors, _tensors, _journal,
    _journal,
)  # fmt: skip
