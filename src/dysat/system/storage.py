"""Folders of arrays with a manifest, in open formats: written atomically, checked on load.

`<name>.json` holds small values and the size and SHA-256 of every array; each array is a `.npy` file, so it can be
memory-mapped. Nothing is pickled. Anybody can recompute a checksum, so it is no reason to trust a folder: the caller
checks the content of the arrays, and this module their names, types and sizes.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import math
import mmap as memory_map
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from dysat.errors import DysatError
from dysat.system.text.json_text import finite, json_text
from dysat.system.writing import check_place, swap_in, write_problem, writing_beside

Array = NDArray[Any]
Built = TypeVar("Built")
# Exceptions NumPy may raise on a damaged file.
DAMAGE = (
    *(OSError, ValueError, KeyError, IndexError, TypeError, SyntaxError, EOFError, MemoryError, OverflowError),
    *(RecursionError, TokenError),
)
ARRAY_NAME = re.compile(r"[a-z][a-z_]{0,40}")  # never a path
MAX_MANIFEST = 1 << 28  # bytes; 10,000 snapshots take less than one million
MAGIC = b"\x93NUMPY\x01\x00"
DTYPE = re.compile(r"[<>|=][biuf][0-9]{1,2}")
DIGESTING = 2  # threads that compute checksums
HEADER = 1 << 14  # bytes at the start of a .npy file among which its header ends
# Pages of a mapping that are written to are private. Nothing is reserved for them, or Linux would refuse files that are
# larger than its memory. Python names the flag from 3.13 on; the number is that of x86 and ARM.
NO_RESERVE = getattr(memory_map, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class GrowingArray:
    """A `.npy` file that is written part by part, with the bytes that `np.save` writes for the whole array.

    The header states the length; its own size does not depend on that, so it is written again in the end.
    """

    def __init__(self, file: Path, like: Array) -> None:
        self._file, self._type, self._inner, self._length = file, like.dtype, like.shape[1:], 0
        self._out = open(file, "wb")  # noqa: SIM115
        self._write_header()

    def append(self, part: Array) -> None:
        """Write the next rows; they have the type and the inner shape of the first."""
        if part.dtype != self._type or part.shape[1:] != self._inner:
            raise ValueError(f"{part.dtype} {part.shape[1:]} after {self._type} {self._inner} in {self._file.name}")
        self._out.write(np.ascontiguousarray(part).data)
        self._length += len(part)

    def finish(self) -> dict[str, Any]:
        """Complete the file; return its size and checksum."""
        self._out.seek(0)
        self._write_header()
        self._out.flush()
        os.fsync(self._out.fileno())
        self.close()
        return {"bytes": self._file.stat().st_size, "sha256": _sha256(self._file)}

    def close(self) -> None:
        """Close the file, which may be incomplete."""
        with suppress(OSError):  # what is in its buffer may not fit on the disk
            self._out.close()

    def _write_header(self) -> None:
        shape = (self._length, *self._inner)
        facts = {"descr": np.lib.format.dtype_to_descr(self._type), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._out, facts)


class FolderWriter:
    """The arrays of a folder while it is written; `writing_folder` makes it and moves the folder into place.

    Attributes:
        folder: where the files are; at: the file that is being written; needed: the size of all files in bytes, if it
        is known. The last two are for the message if the disk is full.
    """

    def __init__(self, folder: Path, target: Path, needed: int | None) -> None:
        self.folder, self.at, self.needed = folder, target, needed
        self._target = target
        self._arrays: dict[str, GrowingArray] = {}

    def append(self, key: str, part: Array) -> None:
        """Append to an array, or begin it."""
        self.at = self._target / f"{key}.npy"
        part = np.atleast_1d(part)
        if key not in self._arrays:
            self._arrays[key] = GrowingArray(self.folder / self.at.name, part)
        self._arrays[key].append(part)

    def finish(self, name: str, version: int, manifest: Mapping[str, Any]) -> None:
        """Complete the arrays and write the manifest; no array can be appended to afterwards."""
        files = {}
        for key, array in self._arrays.items():
            self.at = self._target / f"{key}.npy"
            files[key] = array.finish()
        content = finite({"format": f"dysat-{name}", "version": version, **manifest, "files": files})
        content["checksum"] = _checksum(content)
        self.at = self._target / f"{name}.json"
        with open(self.folder / self.at.name, "w", encoding="utf-8") as out:
            lines = [f"  {json.dumps(key)}: {json_text(value)}" for key, value in content.items()]
            out.write("{\n" + ",\n".join(lines) + "\n}\n")
            out.flush()
            os.fsync(out.fileno())

    def close(self) -> None:
        """Close all files."""
        for array in self._arrays.values():
            array.close()


@contextmanager
def writing_folder(
    path: str | os.PathLike[str], name: str, *, overwrite: bool, needed: int | None, error: type[DysatError]
) -> Iterator[FolderWriter]:
    """Give a writer for a folder that appears complete or not at all, and remove what it wrote if anything fails."""
    folder = Path(os.path.abspath(path))  # as in `write_folder`
    check_target(folder, name, overwrite=overwrite, error=error)
    writer = FolderWriter(folder, folder, needed)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with writing_beside(folder) as new:
            new.mkdir()
            writer.folder = new
            try:
                yield writer
            finally:
                writer.close()
            new.chmod(0o777 & ~umask())
            check_target(folder, name, overwrite=overwrite, error=error)  # again: it may have appeared meanwhile
            swap_in(new, folder)
    except OSError as problem:
        raise error(write_problem(writer.at, problem, writer.needed)) from problem


def write_folder(
    path: str | os.PathLike[str],
    name: str,
    version: int,
    manifest: Mapping[str, Any],
    arrays: Mapping[str, Array | Sequence[Array]],
    *,
    overwrite: bool,
    error: type[DysatError],
) -> Path:
    """Write `path/<name>.json` and one `.npy` per array; the folder appears complete or not at all.

    An array may be given as a list of the parts it is made of; they are not concatenated in memory.
    """
    folder = Path(os.path.abspath(path))  # absolute: renaming may move the current folder itself
    parts = {key: [given] if isinstance(given, np.ndarray) else given for key, given in arrays.items()}
    needed = sum(part.nbytes for many in parts.values() for part in many)
    with writing_folder(folder, name, overwrite=overwrite, needed=needed, error=error) as writer:
        for key, many in parts.items():
            for part in many:
                writer.append(key, part)
        writer.finish(name, version, manifest)
    return folder


def read_folder(
    path: str | os.PathLike[str],
    name: str,
    version: int,
    build: Callable[[dict[str, Any], dict[str, Array]], Built],
    *,
    verify: bool,
    mmap: bool,
    error: type[DysatError],
) -> Built:
    """Read a folder of `write_folder` and return what `build` makes of its manifest and arrays.

    `build` must check the content of both. With `verify`, other threads compute checksums meanwhile, and a mismatch
    is reported instead of any error of `build`; without it only file sizes are compared.
    """
    folder = Path(path)
    manifest = _read_manifest(folder, name, version, error)
    if verify and not _matches(manifest):
        raise error(f"{folder / name}.json: damaged: its content does not match its checksum")
    arrays, contents = {}, {}
    for key, facts in manifest["files"].items():
        file = folder / f"{key}.npy"
        try:
            contents[key] = _content(file, facts["bytes"], mmap, error)
            arrays[key] = _as_array(contents[key])
        except FileNotFoundError:
            raise error(f"{folder}: damaged: {key}.npy is missing") from None
        except DAMAGE as problem:
            raise error(f"{file}: damaged: {problem}") from None
    if not verify:
        return build(manifest, arrays)
    with ThreadPoolExecutor(DIGESTING) as pool:
        by_size = sorted(contents, key=lambda key: -len(contents[key]))  # so that the threads end together
        digests = {key: pool.submit(_digest, contents[key]) for key in by_size}
        try:
            built = build(manifest, arrays)
        finally:
            for key in contents:
                if digests[key].result() != manifest["files"][key].get("sha256"):
                    what = f"damaged: its content does not match the checksum in {name}.json"
                    raise error(f"{folder / key}.npy: {what}") from None
    return built


def check_inside(file: Path, error: type[DysatError]) -> None:
    """Raise if a file is a link that leads out of its folder, or is not a regular file; it need not exist."""
    try:
        mode = os.lstat(file).st_mode
    except OSError:
        return
    if stat.S_ISLNK(mode):
        target = Path(os.path.realpath(file))
        if target.parent != Path(os.path.realpath(file.parent)):
            raise error(f"{file}: a link out of its folder, to {target}; copy the file instead")
        mode = os.stat(target).st_mode if target.exists() else mode  # noqa: PTH116
    if not stat.S_ISREG(mode):
        raise error(f"{file}: not a regular file")


def _content(file: Path, size: object, mmap: bool, error: type[DysatError]) -> NDArray[np.uint8]:
    """The bytes of a file of this size; writing to them does not change the file, since torch wants writable memory."""
    check_inside(file, error)
    with open(file, "rb") as data:
        found = os.fstat(data.fileno()).st_size
        if found != size:
            expected = f"{size:,}" if isinstance(size, int) else repr(size)
            raise error(f"{file}: damaged: {found:,} bytes instead of {expected}")
        if mmap and found:
            return np.frombuffer(_mapped(data.fileno()), dtype=np.uint8)
        return np.fromfile(data, dtype=np.uint8)


def _mapped(number: int) -> memory_map.mmap:
    """Map an open file; what is written to the memory stays in it."""
    if hasattr(memory_map, "MAP_PRIVATE"):
        protection, flags = memory_map.PROT_READ | memory_map.PROT_WRITE, memory_map.MAP_PRIVATE | NO_RESERVE
        return memory_map.mmap(number, 0, flags=flags, prot=protection)
    return memory_map.mmap(number, 0, access=memory_map.ACCESS_COPY)


def _as_array(content: NDArray[np.uint8]) -> Array:
    """The array of a `.npy` file; a header that does not fit the bytes after it allocates nothing."""
    start = io.BytesIO(content[:HEADER].tobytes())
    shape, fortran, dtype = _read_header(start)
    if not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"an array of shape {shape!r}")
    at, size = start.tell(), math.prod(shape) * dtype.itemsize
    if dtype.kind not in "biuf" or not dtype.isnative or fortran or at % 16:
        raise ValueError(f"an array of type {dtype} in an order that dysat does not write")
    if size != len(content) - at:
        raise ValueError(f"{len(content) - at:,} bytes for an array of type {dtype} and shape {shape}")
    return content[at:].view(dtype).reshape(shape) if size else np.empty(shape, dtype=dtype)


def _read_header(start: BinaryIO) -> tuple[Any, Any, np.dtype[Any]]:
    """The shape, order and type that a `.npy` file of version 1.0 states, as dysat writes it.

    NumPy's own function also accepts headers of Python 2, with a warning.
    """
    if start.read(len(MAGIC)) != MAGIC:
        raise ValueError("not version 1.0 of the .npy format")
    facts = ast.literal_eval(start.read(int.from_bytes(start.read(2), "little")).decode("latin1"))
    kind = facts["descr"]
    if not (isinstance(kind, str) and DTYPE.fullmatch(kind)):
        raise ValueError(f"an array of type {kind!r}")
    return facts["shape"], facts["fortran_order"], np.dtype(kind)


def _digest(content: NDArray[np.uint8]) -> str:
    return hashlib.sha256(content.data if len(content) else b"").hexdigest()


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
    check_inside(file, error)
    if (size := file.stat().st_size) > MAX_MANIFEST:
        raise error(f"{file}: damaged: {size:,} bytes, more than any manifest has")
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
    if not isinstance(files, dict) or not all(isinstance(facts, dict) for facts in files.values()):
        raise error(f"{file}: damaged: no list of files")
    if odd := [key for key in files if not ARRAY_NAME.fullmatch(key)]:
        raise error(f"{file}: damaged: {odd[0]!r} is not the name of an array")
    return manifest


def _checksum(manifest: Mapping[str, Any]) -> str:
    """Hash a manifest without its checksum; the result is the same before writing and after reading."""
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _matches(manifest: Mapping[str, Any]) -> bool:
    try:
        return bool(manifest.get("checksum") == _checksum(manifest))
    except RecursionError:  # deeper than anything that was written
        return False


def _sha256(file: Path) -> str:
    with open(file, "rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def umask() -> int:
    """Return the permission bits that new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
