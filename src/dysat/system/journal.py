"""An append-only file of arrays, read through one memory map; and a lock, so that one process at a time appends.

What is appended counts once whoever keeps the records says so: on the next opening the file is cut back to the records
that were kept, so a write that was killed leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysat.errors import DysatError

Array = NDArray[Any]
Record = dict[str, Any]  # plain values, to be kept as JSON: arrays by name (type, shape, place), size, checksum
ALIGN = 64  # bytes


class Journal:
    """The arrays of some records, in a file."""

    def __init__(self, file: Path, records: Sequence[Record], error: type[DysatError]) -> None:
        self.file, self.records, self.error = file, list(records), error
        self._map: Array | None = None

    @property
    def size(self) -> int:
        """Bytes of the records; what lies after them does not count."""
        return int(self.records[-1]["end"]) if self.records else 0

    def check(self) -> None:
        """All records must be there."""
        found = self.file.stat().st_size if self.file.exists() else 0
        if found < self.size:
            raise self.error(f"{self.file}: damaged: {found:,} bytes, where {self.size:,} were written")

    def cut_back(self) -> None:
        """Remove what a write that was killed has left after the last record."""
        self.check()
        try:
            if self.file.exists() and self.file.stat().st_size > self.size:
                os.truncate(self.file, self.size)
        except OSError as problem:
            raise self.error(f"{self.file}: cannot be written: {problem.strerror or problem}") from problem

    def append(self, arrays: Mapping[str, Array]) -> Record:
        """Write arrays at the end, down to the disk; the record is what to keep of them."""
        digest = hashlib.sha256()
        about: dict[str, list[Any]] = {}
        at = self.size
        try:
            with open(self.file, "r+b" if self.file.exists() else "w+b") as out:
                out.truncate(at)  # what was not kept
                for name, array in arrays.items():
                    at = -(-at // ALIGN) * ALIGN
                    data = np.asarray(array, order="C")
                    about[name] = [data.dtype.str, list(data.shape), at]
                    out.seek(at)
                    out.write(data.data if data.size else b"")
                    digest.update(data.data if data.size else b"")
                    at += data.nbytes
                out.truncate(at)
                out.flush()
                os.fsync(out.fileno())
        except OSError as problem:
            raise self.error(f"{self.file}: cannot be written: {problem.strerror or problem}") from problem
        record = {"arrays": about, "end": at, "sha256": digest.hexdigest()}
        self.records.append(record)
        self._map = None
        return record

    def read(self, index: int, *, verify: bool = False) -> dict[str, Array]:
        """The arrays of a record; no write to them ever reaches the file."""
        record = self.records[index]
        arrays = {name: self._view(*about) for name, about in record["arrays"].items()}
        if verify:
            digest = hashlib.sha256()
            for array in arrays.values():
                digest.update(np.ascontiguousarray(array).data if array.size else b"")
            if digest.hexdigest() != record["sha256"]:
                raise self.error(f"{self.file}: damaged: record {index} does not match its checksum")
        return arrays

    def _view(self, dtype: str, shape: list[int], at: int) -> Array:
        if 0 in shape:
            return np.empty(shape, dtype=dtype)
        if self._map is None:
            self.check()
            self._map = np.memmap(self.file, dtype=np.uint8, mode="c", shape=(self.size,))
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._map[at : at + size].view(dtype).reshape(shape)
