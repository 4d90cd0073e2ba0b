"""Folders of arrays with a manifest, in open formats: written atomically, checked on load.

`<name>.json` holds small values and the size and SHA-256 of every array; each array is a `.npy` file, so it can be
memory-mapped. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysat.errors import DysatError
from dysat.system.writing import check_place, swap_in, write_problem, writing_beside

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
    needed, file = sum(array.nbytes for array in arrays.values()), folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with writing_beside(folder) as new:
            new.mkdir()
            files = {}
            for key, array in arrays.items():
                file = folder / f"{key}.npy"
                files[key] = _write_array(new / file.name, array)
            content = {"format": f"dysat-{name}", "version": version, **manifest, "files": files}
            content["checksum"] = _checksum(content)
            file = folder / f"{name}.json"
            with open(new / file.name, "w", encoding="utf-8") as out:
                lines = [
                    f"  {json.dumps(key)}: {json.dumps(item, ensure_ascii=False)}" for key, item in content.items()
                ]
                out.write("{\n" + ",\n".join(lines) + "\n}\n")
                out.flush()
                os.fsync(out.fileno())
            new.chmod(0o777 & ~umask())
            check_target(folder, name, overwrite=overwrite, error=error)  # again: it may have appeared meanwhile
            swap_in(new, folder)
    except OSError as problem:
        raise error(write_problem(file, problem, needed)) from problem
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
def replace_file(file: Path, error: type[DysatError], needed: int | None = None) -> Iterator[Path]:
    """Give a temporary path to write to, then rename it to `file`: `file` is replaced completely or not at all.

    `needed` is the size in bytes, for the message if the disk is full.
    """
    try:
        with writing_beside(file) as temporary:
            yield temporary
            with open(temporary, "rb+") as written:
                os.fsync(written.fileno())
            temporary.chmod(0o666 & ~umask())
            os.replace(temporary, file)  # noqa: PTH105
    except OSError as problem:
        raise error(write_problem(file, problem, needed)) from problem


def check_target(folder: Path, name: str, *, overwrite: bool, error: type[DysatError]) -> None:
    """Raise if `folder` exists, unless `overwrite` is set and it is a `name` folder with no other files in it."""
    if not folder.name or folder.name == "..":
        raise error(f"{str(folder)!r} is not the name of a new folder")
    check_place(folder, error, any_bytes=True)
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


def umask() -> int:
    """Return the permission bits that new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
