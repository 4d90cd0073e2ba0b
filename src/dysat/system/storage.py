"""Folders of arrays with a manifest, in open formats: written atomically, checked on load.

`<name>.json` holds small values and the size and SHA-256 of every array; each array is a `.npy` file, so it can be
memory-mapped. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysat.errors import DysatError
from dysat.system.json_text import finite, json_text

Array = NDArray[Any]
# Exceptions NumPy may raise on a damaged file.
DAMAGE = (OSError, ValueError, KeyError, TypeError, SyntaxError, EOFError, MemoryError, OverflowError, TokenError)


def write_folder(
    path: str | os.PathLike[str],
    name: str,
    version: int,
    manifest: Mapping[str, Any],
    arrays: Mapping[str, Array],
    *,
    overwrite: bool,
    error: type[DysatError],
) -> Path:
    """Write `path/<name>.json` and one `.npy` per array; the folder appears complete or not at all."""
    folder = Path(os.path.abspath(path))  # absolute: renaming may move the current folder itself
    check_target(folder, name, overwrite=overwrite, error=error)
    temporary: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        files = {key: _write_array(temporary / f"{key}.npy", array) for key, array in arrays.items()}
        content = finite({"format": f"dysat-{name}", "version": version, **manifest, "files": files})
        content["checksum"] = _checksum(content)
        with open(temporary / f"{name}.json", "w", encoding="utf-8") as out:
            lines = [f"  {json.dumps(key)}: {json_text(value)}" for key, value in content.items()]
            out.write("{\n" + ",\n".join(lines) + "\n}\n")
            out.flush()
            os.fsync(out.fileno())
        temporary.chmod(0o777 & ~umask())
        check_target(folder, name, overwrite=overwrite, error=error)  # again: it may have appeared meanwhile
        _swap_in(temporary, folder)
    except OSError as problem:
        raise error(f"{folder}: cannot be written: {problem.strerror or problem}") from problem
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def read_folder(
    path: str | os.PathLike[str], name: str, version: int, *, verify: bool, mmap: bool, error: type[DysatError]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read a folder of `write_folder`. `verify` compares checksums; without it only file sizes are compared."""
    folder = Path(path)
    manifest = _read_manifest(folder, name, version, error)
    if verify and manifest.get("checksum") != _checksum(manifest):
        raise error(f"{folder / name}.json: damaged: its content does not match its checksum")
    arrays = {}
    for key, facts in manifest["files"].items():
        file = folder / f"{key}.npy"
        try:
            if file.stat().st_size != facts["bytes"]:
                raise error(f"{file}: damaged: {file.stat().st_size:,} bytes instead of {facts['bytes']:,}")
            if verify and _sha256(file) != facts["sha256"]:
                raise error(f"{file}: damaged: its content does not match the checksum in {name}.json")
            # Copy-on-write: torch wants writable memory, and the file must not change.
            arrays[key] = np.load(file, mmap_mode="c" if mmap else None, allow_pickle=False)
        except FileNotFoundError:
            raise error(f"{folder}: damaged: {key}.npy is missing") from None
        except DAMAGE as problem:
            raise error(f"{file}: damaged: {problem}") from None
    return manifest, arrays


@contextmanager
def replace_file(file: Path, error: type[DysatError]) -> Iterator[Path]:
    """Give a temporary path to write to, then rename it to `file`: `file` is replaced completely or not at all."""
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=file.suffix, dir=file.parent)
        temporary = Path(name)
        os.close(handle)
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~umask())
        os.replace(temporary, file)  # noqa: PTH105
    except OSError as problem:
        raise error(f"{file}: cannot be written: {problem.strerror or problem}") from problem
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def check_target(folder: Path, name: str, *, overwrite: bool, error: type[DysatError]) -> None:
    """Raise if `folder` exists, unless `overwrite` is set and it is a `name` folder with no other files in it."""
    if not folder.name or folder.name == "..":
        raise error(f"{str(folder)!r} is not the name of a new folder")
    if not os.path.lexists(folder):
        return
    if not overwrite:
        raise error(f"{folder}: exists already; choose another folder or ask to overwrite it")
    try:
        ours = json.loads((folder / f"{name}.json").read_text(encoding="utf-8")).get("format") == f"dysat-{name}"
        others = [p.name for p in folder.iterdir() if p.suffix != ".npy" and p.name != f"{name}.json"]
    except (OSError, ValueError, AttributeError, RecursionError):
        ours, others = False, []
    if not ours:
        raise error(f"{folder}: exists and is not a {name} folder, so it is not overwritten")
    if others:
        raise error(f"{folder}: is a {name} folder, but also holds {others[0]!r}, so it is not overwritten")


def _read_manifest(folder: Path, name: str, version: int, error: type[DysatError]) -> dict[str, Any]:
    file = folder / f"{name}.json"
    if not os.path.exists(folder):
        raise error(f"{folder}: no such folder")
    if not os.path.isfile(file):
        raise error(f"{folder}: not a {name} folder (it has no {name}.json)")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise error(f"{file}: damaged: {problem}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != f"dysat-{name}":
        raise error(f"{file}: not the manifest of a {name} folder")
    found = manifest.get("version")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise error(f"{file}: damaged: version {found!r}")
    if found > version:
        raise error(
            f"{folder}: written by a newer dysat (format {found}, this one reads up to {version}); update dysat"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(isinstance(f, dict) and "/" not in key for key, f in files.items()):
        raise error(f"{file}: damaged: no list of files")
    return manifest


def _write_array(file: Path, array: Array) -> dict[str, Any]:
    with open(file, "wb") as out:
        np.save(out, np.ascontiguousarray(array), allow_pickle=False)
        out.flush()
        os.fsync(out.fileno())
    return {"bytes": file.stat().st_size, "sha256": _sha256(file)}


def _checksum(manifest: Mapping[str, Any]) -> str:
    """Hash a manifest without its checksum; the result is the same before writing and after reading."""
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sha256(file: Path) -> str:
    with open(file, "rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _swap_in(temporary: Path, folder: Path) -> None:
    if not os.path.lexists(folder):
        temporary.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.rename(old / folder.name)
    try:
        temporary.rename(folder)
    except OSError:
        (old / folder.name).rename(folder)  # if this fails too, the old folder stays in `old`
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def umask() -> int:
    """Return the permission bits that new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
