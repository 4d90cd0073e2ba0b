"""The seal of a run, `run.json`: what config.toml said when the run was created.

A run depends on its method, its options, its graph and how its log was read. An edit of config.toml would make updates
cut other windows, or describe a model that was trained with other options. So these values are stored a second time,
with a checksum, and compared whenever the run is opened. Version, source and device may be changed freely. A run of an
earlier version has no seal; its config is compared with its graph and its model only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dysat.errors import ModelError, listed
from dysat.system.storage import replace_file
from dysat.system.superseded import CONFIG

SEAL, SEAL_VERSION = "run.json", 1
SEALED = "sealed"  # the key of config.toml that says that there is a seal
FREE = ("dysat", "source", SEALED, "options.device")
EVENTS = "events."
LONGEST = 10_000_000  # bytes; a seal has a few thousand
MISSING = object()


def write_seal(folder: Path, config: Mapping[str, Any]) -> None:
    """Seal the values of a config."""
    content = {"format": "dysat-run", "version": SEAL_VERSION, "values": sealed_values(config)}
    content["checksum"] = _checksum(content)
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    with replace_file(folder / SEAL, ModelError, needed=len(text.encode())) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def check_seal(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise if config.toml has changed since the run was created; a run without a seal passes."""
    changes = changed_values(folder, config)
    if not changes:
        return
    texts = listed((_described(key, *values) for key, values in changes.items()), 3)
    way = "dysat fit makes a new run"
    if all(key.startswith(EVENTS) for key in changes):
        way = f"dysat seal {folder} accepts it if it agrees with the windows of the graph"
    raise ModelError(f"{folder / CONFIG}: changed since the run was created: {texts}; undo it, or {way}")


def changed_values(folder: Path, config: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The keys of config.toml that differ from the seal, with the value then and now; `MISSING` stands for none."""
    then, now = read_seal(folder, expected=SEALED in config), sealed_values(config)
    if then is None:
        return {}
    keys = dict.fromkeys([*then, *now])
    pairs = {key: (then.get(key, MISSING), now.get(key, MISSING)) for key in keys}
    return {key: pair for key, pair in pairs.items() if _text(pair[0]) != _text(pair[1])}


def read_seal(folder: Path, *, expected: bool) -> dict[str, Any] | None:
    """The sealed values; None for a run of an earlier version, which has no seal."""
    file = folder / SEAL
    if not file.is_file():
        if expected:
            raise ModelError(f"{folder}: damaged: {SEAL} is missing, so {CONFIG} cannot be checked")
        return None
    try:
        if file.stat().st_size > LONGEST:
            raise ModelError(f"{file}: damaged: {file.stat().st_size:,} bytes")
        content = json.loads(file.read_text(encoding="utf-8"))
        values, version = content["values"], content["version"]
        intact = content["format"] == "dysat-run" and content["checksum"] == _checksum(content)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ModelError(f"{file}: damaged: {problem}") from None
    if not intact or not isinstance(values, dict) or not isinstance(version, int):
        raise ModelError(f"{file}: damaged: its content does not match its checksum")
    if version > SEAL_VERSION:
        raise ModelError(f"{folder}: written by a newer dysat (format {version}); update dysat")
    return values


def sealed_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a run depends on, by dotted name: `method`, `options.epochs`, `events.every`."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= {f"{key}.{name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
    return {key: value for key, value in flat.items() if key not in FREE}


def _described(key: str, then: Any, now: Any) -> str:
    if then is MISSING:
        return f"{key} = {_text(now)} was added"
    if now is MISSING:
        return f"{key} = {_text(then)} was removed"
    return f"{key} was {_text(then)} and is {_text(now)}"


def _text(value: Any) -> str:
    """A value as it is written in config.toml; values are compared in this form, so that 1 differs from true."""
    return "" if value is MISSING else json.dumps(value, sort_keys=True, default=str)


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps({key: value for key, value in content.items() if key != "checksum"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
