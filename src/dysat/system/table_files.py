"""Write tables as Parquet, CSV or JSON lines, chosen by the file's suffix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dysat.errors import GraphError
from dysat.system.storage import replace_file
from dysat.system.text.csv_text import csv_field
from dysat.system.text.json_text import json_text

Writer = Callable[[Sequence[Mapping[str, Any]], str], None]


def write_table(parts: Sequence[Mapping[str, Any]], file: Path, *, raw_labels: bool = False) -> int:
    """Write the parts of a table one after another; returns the number of rows.

    A part maps column names to values. A single value fills its column; a two-dimensional array is a column of lists,
    which CSV splits into columns numbered from 0. Moments are datetime64 in UTC, for Parquet only.

    In CSV, a text that a spreadsheet would take for a formula gets an apostrophe in front, unless `raw_labels` is set.
    """
    write = check_suffix(file, raw_labels=raw_labels)
    full = [_filled(part) for part in parts]
    full = [part for part in full if _rows(part)] or full[:1]  # the types of an empty part are unknown
    with replace_file(file, GraphError, needed=_estimated_bytes(full)) as temporary:
        write(full, str(temporary))
    return sum(map(_rows, full))


def check_suffix(file: Path, *, raw_labels: bool = False) -> Writer:
    """Return the function that writes such a file; raise if there is none."""
    csv = partial(_write_csv, raw=True) if raw_labels else _write_csv
    writers: dict[str, Writer] = {".parquet": _write_parquet, ".csv": csv, ".jsonl": _write_json_lines}
    write = writers.get(file.suffix)
    if write is None:
        raise GraphError(f"{file}: tables are written as .parquet, .csv or .jsonl")
    if raw_labels and file.suffix != ".csv":
        raise GraphError(f"{file}: raw labels are a choice of .csv; {file.suffix} never changes a label")
    return write


def _filled(part: Mapping[str, Any]) -> dict[str, Any]:
    """Repeat single values to the length of the other columns."""
    single = (int, float, str)
    rows = max((len(column) for column in part.values() if not isinstance(column, single)), default=1)
    return {name: np.full(rows, c) if isinstance(c, single) else c for name, c in part.items()}


def _estimated_bytes(parts: Sequence[Mapping[str, Any]]) -> int:
    """About the size of the file, from the values in memory: what they are stored as is not known before."""
    return sum(getattr(column, "nbytes", 8 * len(column)) for part in parts for column in part.values())


def _rows(part: Mapping[str, Any]) -> int:
    return len(next(iter(part.values())))


def _write_parquet(parts: Sequence[Mapping[str, Any]], file: str) -> None:
    try:
        import polars as pl
    except ImportError:  # Polars is not needed for training
        return _write_with_arrow(parts, file)
    frames = []
    for part in parts:
        columns = {}
        for name, column in part.items():
            if getattr(column, "ndim", 1) == 2:
                columns[name] = pl.Series(name, column, dtype=pl.Array(pl.Float32, column.shape[1]))
            else:
                columns[name] = pl.Series(name, _plain(column))
                if columns[name].dtype == pl.Datetime:
                    columns[name] = columns[name].dt.replace_time_zone("UTC")
        frames.append(pl.DataFrame(columns))
    try:
        pl.concat(frames).write_parquet(file)
    except pl.exceptions.PolarsError as problem:
        raise OSError(str(problem)) from problem
    return None


def _plain(column: Any) -> Any:
    """Convert an array of objects to a list, which Polars and pyarrow both accept."""
    return column.tolist() if isinstance(column, np.ndarray) and column.dtype.hasobject else column


def _write_with_arrow(parts: Sequence[Mapping[str, Any]], file: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for part in parts:
        columns = {}
        for name, column in part.items():
            if getattr(column, "ndim", 1) == 2:
                flat = pa.array(np.ascontiguousarray(column).reshape(-1))
                columns[name] = pa.FixedSizeListArray.from_arrays(flat, column.shape[1])
            else:
                moments = getattr(column, "dtype", np.dtype(float)).kind == "M"
                columns[name] = pa.array(_plain(column), type=pa.timestamp("us", tz="UTC") if moments else None)
        tables.append(pa.table(columns))
    pq.write_table(pa.concat_tables(tables), file)


def _write_csv(parts: Sequence[Mapping[str, Any]], file: str, *, raw: bool = False) -> None:
    with open(file, "w", encoding="utf-8", newline="") as out:
        for number, part in enumerate(parts):
            wide = {name: column for name, column in part.items() if getattr(column, "ndim", 1) == 2}
            plain = [name for name in part if name not in wide]
            if number == 0:
                numbered = [f"{name}_{i}" for name, column in wide.items() for i in range(column.shape[1])]
                out.write(",".join(csv_field(name) for name in (*plain, *numbered)) + "\n")
            for row in zip(*(_texts(part[name]) for name in plain), *wide.values(), strict=True):
                fields = [csv_field(value, raw=raw) for value in row[: len(plain)]]
                fields += [f"{x:.9g}" for block in row[len(plain) :] for x in block]
                out.write(",".join(fields) + "\n")


def _texts(column: Any) -> Any:
    """Return true and false as other programs read them; other values as they are."""
    if not isinstance(column, np.ndarray):
        return column
    return np.where(column, "true", "false").tolist() if column.dtype.kind == "b" else column.tolist()


def _write_json_lines(parts: Sequence[Mapping[str, Any]], file: str) -> None:
    with open(file, "w", encoding="utf-8", newline="") as out:
        for part in parts:
            columns = [column.tolist() if isinstance(column, np.ndarray) else column for column in part.values()]
            for row in zip(*columns, strict=True):
                out.write(json_text(dict(zip(part, row, strict=True))) + "\n")
