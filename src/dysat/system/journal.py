"""An append-only file of arrays, read through one memory map.

The caller stores the records. Data becomes part of the journal when its record is stored: the next opening cuts the
file back to the stored records, so a killed write leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysat.errors import DysatError, reporting_damage
from dysat.system.storage import check_inside
from dysat.system.writing import write_problem

Array = NDArray[Any]
Record = dict[str, Any]  # plain values for JSON: arrays by name (type, shape, offset), end of the record, checksum
ALIGN = 64  # bytes


class Journal:
    """The arrays of a list of records, in one file."""

    def __init__(self, file: Path, records: Sequence[Record], error: type[DysatError]) -> None:
        self.file, self.records, self.error = file, list(records), error
        self._map: Array | None = None
        check_inside(file, error)  # it will be written to
        with reporting_damage(file, error):
            self._check_records()

    @property
    def size(self) -> int:
        """Bytes up to the end of the last record; anything after that is ignored."""
        return int(self.records[-1]["end"]) if self.records else 0

    def _check_records(self) -> None:
        """Raise unless the arrays of all records are of plain types and follow each other in the file."""
        at = 0
        for index, record in enumerate(self.records):
            for name, (dtype, shape, first) in record["arrays"].items():
                kind = np.dtype(dtype) if isinstance(dtype, str) else None
                if kind is None or kind.kind not in "biuf" or not kind.isnative or not _are_counts([first, *shape]):
                    raise self.error(f"record {index}: {name} has type {dtype!r} and shape {shape!r} at {first!r}")
                size = math.prod(shape) * kind.itemsize
                if first % ALIGN or first < at or first + size > 2**62:
                    raise self.error(f"record {index}: {name} does not follow the array before it")
                at = first + size
            if not _are_counts([record["end"]]) or record["end"] < at or not isinstance(record["sha256"], str):
                raise self.error(f"record {index} ends at {record['end']!r}, before its arrays do")
            at = record["end"]

    def check(self) -> None:
        """Raise if the file is shorter than its records."""
        size = self.file.stat().st_size if self.file.exists() else 0
        if size < self.size:
            raise self.error(f"{self.file}: damaged: {size:,} bytes, where {self.size:,} were written")

    def cut_back(self) -> None:
        """Remove what a killed write left after the last record."""
        self.check()
        try:
            if self.file.exists() and self.file.stat().st_size > self.size:
                os.truncate(self.file, self.size)
        except OSError as problem:
            raise self.error(f"{self.file}: cannot be written: {problem.strerror or problem}") from problem

    def append(self, arrays: Mapping[str, Array]) -> Record:
        """Append arrays and sync them to disk; returns the record for the caller to store."""
        digest = hashlib.sha256()
        layout: dict[str, list[Any]] = {}
        at = self.size
        try:
            with open(self.file, "r+b" if self.file.exists() else "w+b") as out:
                out.truncate(at)  # drops data whose record was not stored
                for name, array in arrays.items():
                    at = -(-at // ALIGN) * ALIGN
                    data = np.asarray(array, order="C")
                    layout[name] = [data.dtype.str, list(data.shape), at]
                    out.seek(at)
                    out.write(data.data if data.size else b"")
                    digest.update(data.data if data.size else b"")
                    at += data.nbytes
                out.truncate(at)
                out.flush()
                os.fsync(out.fileno())
        except OSError as problem:
            with suppress(OSError):
                os.truncate(self.file, self.size)  # gives back what was written so far
            needed = sum(np.asarray(array).nbytes for array in arrays.values())
            raise self.error(write_problem(self.file, problem, needed)) from problem
        record = {"arrays": layout, "end": at, "sha256": digest.hexdigest()}
        self.records.append(record)
        self._map = None
        return record

    def read(self, index: int, *, verify: bool = False) -> dict[str, Array]:
        """Return the arrays of a record; writing to them does not change the file."""
        record = self.records[index]
        arrays = {name: self._view(*layout) for name, layout in record["arrays"].items()}
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
            # As a plain array: slices of a memmap take several times as long, and there is one per record.
            self._map = np.asarray(np.memmap(self.file, dtype=np.uint8, mode="c", shape=(self.size,)))
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self._map[at : at + size].view(dtype).reshape(shape)


def _are_counts(values: Sequence[object]) -> bool:
    return all(type(value) is int and 0 <= value < 2**62 for value in values)
