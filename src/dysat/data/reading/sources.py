"""Sources of events: a `Source` names its columns and reads those asked for.

Tables in memory are opened here, files in `files.py`.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dysat.data.reading.times import ISO
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl

Collect = Callable[["pl.LazyFrame"], "pl.DataFrame"]
BATCH = 1 << 20  # rows that are read together, if a log is read in batches


def in_batches(frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Read a table batch by batch; all rows are in order."""
    return iter(frame.collect_batches(chunk_size=BATCH, maintain_order=True, engine="streaming"))


@dataclass(frozen=True)
class Source:
    """Columns that can be read, and what the format says about them."""

    name: str
    columns: tuple[str, ...]
    read: Callable[[Sequence[Any]], pl.DataFrame]  # takes column names; expressions, too, if `first` is given
    locate: Callable[[int], str]  # data row (from 0) → its place in the source, such as "line 4"
    blank_rows: bool = False  # a row without any value is a blank line, not an event
    roles: dict[str, str] = field(default_factory=dict)  # columns the format fixes, by role: src, dst, time, weight
    bipartite: bool | None = None  # None if the format does not say
    first: dict[str, str] = field(default_factory=dict)  # the first row, if known before reading
    notes: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()  # values inside objects, as user.id; `read` takes them like columns
    nested: frozenset[str] = frozenset()  # columns that hold only objects
    num_rows: int | None = None  # if the format states it; an estimate for text
    batches: Callable[[Sequence[str]], Iterator[pl.DataFrame]] | None = None  # `read` in batches, if the format can


def open_table(source: Any) -> Source:
    """Open a Polars, pandas or Arrow table, or arrays (src, dst, time[, weight])."""
    import polars as pl

    if isinstance(source, pl.DataFrame | pl.LazyFrame):
        return open_frame("table", source.lazy(), lambda row: f"row {row + 1}")
    from_pandas = type(source).__module__.partition(".")[0] == "pandas"
    if from_pandas and hasattr(source, "columns"):
        return _table(
            "table",
            [str(name) for name in source.columns],
            lambda columns: pl.DataFrame([_series(c, _from_pandas(source[_pandas_name(source, c)])) for c in columns]),
        )
    if hasattr(source, "__arrow_c_stream__") and not from_pandas:
        return open_frame("table", pl.DataFrame(source).lazy(), lambda row: f"row {row + 1}")
    if isinstance(source, tuple | list) and len(source) in (3, 4):
        names = ["src", "dst", "time", "weight"][: len(source)]
        arrays = dict(zip(names, source, strict=True))
        lengths = {name: len(array) for name, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise EventsError(f"arrays of different lengths: {lengths}")
        roles = {name: name for name in names}
        return _table("arrays", names, lambda c: pl.DataFrame([_series(n, _array(arrays[n])) for n in c]), roles)
    raise EventsError(
        f"cannot read events from {type(source).__name__}; give a path, a Polars, pandas or Arrow table, "
        "or arrays (src, dst, time)"
    )


def open_frame(name: str, frame: pl.LazyFrame, locate: Callable[[int], str], collect: Collect | None = None) -> Source:
    """Open a Polars table; the fields of its structs are paths, and `collect` reads the chosen columns."""
    import polars as pl

    schema = frame.collect_schema()
    paths = {path: parts for column, dtype in schema.items() for path, parts in _fields(dtype, (column,))}
    nested = {path: parts for path, parts in paths.items() if path not in schema}

    def expression(path: str) -> pl.Expr:
        column, *inner = nested.get(path, (path,))
        value = pl.col(column)
        for name in inner:
            value = value.struct.field(name)
        return value.alias(path)

    def read(wanted: Sequence[str]) -> pl.DataFrame:
        chosen = frame.select(map(expression, wanted))
        return chosen.collect(engine="streaming") if collect is None else collect(chosen)

    def batches(wanted: Sequence[str]) -> Iterator[pl.DataFrame]:
        return in_batches(frame.select(map(expression, wanted)))

    structs = frozenset(column for column, dtype in schema.items() if isinstance(dtype, pl.Struct))
    return Source(name, tuple(schema.names()), read, locate, paths=tuple(nested), nested=structs, batches=batches)


def _fields(dtype: pl.DataType, parts: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The dotted path of every value inside a struct, and its parts."""
    import polars as pl

    if not isinstance(dtype, pl.Struct):
        yield ".".join(parts), parts
        return
    for inner in dtype.fields:
        yield from _fields(inner.dtype, (*parts, inner.name))  # type: ignore[arg-type]


@contextmanager
def explained(name: str, what: str) -> Iterator[None]:
    """Turn any error of a reader into an `EventsError` of one line."""
    import polars as pl

    errors = (csv.Error, pl.exceptions.PolarsError, OSError, ValueError, TypeError, OverflowError, RuntimeError)
    packed = (zipfile.BadZipFile, zlib.error, EOFError)
    try:
        yield
    except MemoryError:
        raise EventsError(f"{name}: there is not enough memory to read it") from None
    except (*errors, *packed, pl.exceptions.PanicException) as problem:
        text = str(problem).strip().partition("\n")[0].partition("hint:")[0].strip() or type(problem).__name__
        raise EventsError(f"{name}: cannot be read as {what}: {text}") from None


def names_columns(first: list[str], wanted: Sequence[str]) -> bool:
    """Whether a first line may be a header: it has no date, and the wanted columns are not all given by number."""
    numbered = bool(wanted) and all(column.isdigit() for column in wanted) and not set(wanted) <= set(first)
    return not numbered and not any(ISO.fullmatch(field.strip()) for field in first)


def stripped(names: list[str]) -> list[str]:
    """Names without blanks around them, unless two of them would be the same."""
    bare = [name.strip() for name in names]
    return bare if len(set(bare)) == len(bare) else names


def _table(
    name: str,
    columns: Sequence[str],
    read: Callable[[Sequence[str]], pl.DataFrame],
    roles: dict[str, str] | None = None,
) -> Source:
    return Source(name, tuple(columns), read, lambda row: f"row {row + 1}", roles=roles or {})


def _pandas_name(table: Any, name: str) -> Any:
    return next(column for column in table.columns if str(column) == name)


def _from_pandas(column: Any) -> np.ndarray[Any, Any]:
    """Convert a pandas column to NumPy: missing values of any dtype become None, zoned times UTC."""
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    if column.dtype.kind in "iufM" and isinstance(column.dtype, np.dtype):
        return np.asarray(column.to_numpy())
    values = column.to_numpy(dtype=object, copy=True)
    values[column.isna().to_numpy()] = None
    return np.asarray(values)


def _array(values: Any) -> np.ndarray[Any, Any]:
    """Convert to NumPy; lists with texts become objects, because NumPy's text type drops trailing NULs."""
    texts = isinstance(values, list | tuple) and any(isinstance(value, str) for value in values)
    return np.array(values, dtype=object) if texts else np.asarray(values)


def _series(name: str, array: np.ndarray[Any, Any]) -> pl.Series:
    import polars as pl

    if array.ndim != 1:
        raise EventsError(f"{name} has shape {array.shape}, expected one dimension")
    if array.dtype.kind == "M":
        array = array.astype("datetime64[us]")
    if array.dtype.kind == "S":
        raise EventsError(f"{name} holds bytes; decode them to text first")
    if array.dtype == object:
        present = [value for value in array if value is not None]
        if any(isinstance(value, str) for value in present) and not all(isinstance(value, str) for value in present):
            odd = next((value for value in present if not isinstance(value, str | int)), None)
            if odd is not None:
                raise EventsError(f"{name} holds {odd!r} among texts; labels are texts or whole numbers")
            array = np.array([None if value is None else str(value) for value in array], dtype=object)
        return pl.Series(name, array.tolist())
    return pl.Series(name, array)
