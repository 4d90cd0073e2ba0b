"""Read attributes of nodes, such as department and age, into a `NodeTable`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dysat.data.reading.columns import Column, times_of
from dysat.data.reading.files import Format, open_file
from dysat.data.reading.limits import Limits
from dysat.data.reading.sources import Source, explained, open_table
from dysat.data.reading.times import ISO, TimeUnit, parse_times
from dysat.data.windows import Clock
from dysat.errors import EventsError, listed, nearest
from dysat.system.text.printable import printable

if TYPE_CHECKING:
    import polars as pl

USUAL_IDS = ("id", "node", "node_id", "label", "email", "mail", "address", "user", "user_id", "item", "item_id", "name")
MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-")  # texts that stand for no value, in any case
FEW_TEXTS = 12  # a column with more distinct texts, more than one for every two nodes, is free text or an id
CATEGORY = ":category"  # after the name of a column: its numbers are names of categories
UTC_CLOCK: Clock = "utc"
BEGINNING = np.iinfo(np.int64).min  # time of a row that always holds


class Attribute(NamedTuple):
    """One column: numbers, or codes of categories; NaN if missing.  # values [R]"""

    values: NDArray[np.float64]
    categories: tuple[str, ...] = ()  # empty: numbers

    def __str__(self) -> str:
        return describe(len(self.categories), float(np.isnan(self.values).mean()) if len(self.values) else 0.0)


def describe(categories: int, missing: float) -> str:
    """An attribute in words: `7 categories, 3 % missing`."""
    what = f"{categories} categor{'y' if categories == 1 else 'ies'}" if categories else "number"
    per_cent = f"{100 * missing:.0f}" if missing >= 0.01 else "below 1"
    return f"{what}, {per_cent} % missing" if missing else what


@dataclass(frozen=True, eq=False, repr=False)
class NodeTable:
    """Attributes of nodes, one row per node, or several with a time; `DynamicGraph.with_attributes` takes it.

    Shapes:
        ids [R] texts, columns by name [R], time [R] (microseconds since 1970 in UTC, or steps) or None.
    """

    name: str
    ids: NDArray[Any]
    columns: Mapping[str, Attribute]
    time: NDArray[np.int64] | None = None
    clock: Clock = "utc"
    kind: str | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        of = f" of kind {printable(self.kind)}" if self.kind else ""
        columns = ", ".join(f"{printable(name)} ({column})" for name, column in self.columns.items())
        return f"NodeTable: {len(set(self.ids.tolist())):,} nodes{of}; {columns}"


def read_nodes(
    source: Any,
    id: Column = None,
    time: Column = None,
    columns: Iterable[str] | None = None,
    *,
    kind: str | None = None,
    format: Format | None = None,
    header: bool | None = None,
    separator: str | None = None,
    time_format: str | None = None,
    time_unit: TimeUnit | None = None,
    timezone: str = "UTC",
    limits: Mapping[str, float] | Limits | None = None,
) -> NodeTable:
    """Read attributes of nodes.

    Texts are categories; numbers, booleans and dates are numbers. Empty cells and `NA` are missing values.

    Parameters:
        source: a file of any format that `read_events` reads, a Polars, pandas or Arrow table, or a dict of columns.
        id: column with the labels of the nodes; by default a usual name such as `id` or `email`.
        time: column with the time from which a row holds, for values that change. Without it, a node has one row.
        columns: columns to use; `team:category` makes a column of numbers a category. By default all but those that
            are the same everywhere, or texts that differ for most nodes (names, free text), which `notes` lists.
        kind: kind of these nodes, in bipartite data.
        format, header, separator: override what is recognised from the file.
        time_format, time_unit, timezone: of the column `time`, as in `read_events`.
        limits: as in `read_events`.

    Example:
        >>> read_nodes({"id": ["ann", "bob", "cy"], "team": ["red", "red", "blue"], "age": [31, None, 45]})
        NodeTable: 3 nodes; team (2 categories), age (number, 33 % missing)
    """
    wanted = [str(column) for column in (id, time) if column is not None]
    largest = Limits.of(limits)
    opened = _open(source, format, header, separator, wanted, largest)
    id_column = _find(opened, id, "ids", USUAL_IDS)
    time_column = None if time is None else _find(opened, time, "times")
    chosen = None if columns is None else _chosen(opened, columns, (id_column, time_column))
    names = [name for name in chosen or opened.columns if name not in (id_column, time_column)]
    with explained(opened.name, "a table of nodes"):
        frame = opened.read(list(dict.fromkeys([id_column, *([time_column] if time_column else []), *names])))
        largest.check_labels(opened.name, frame[id_column])
        ids, rows = _ids(opened, frame[id_column])
        frame = frame.filter(rows)
        moments, clock = None, UTC_CLOCK
        if time_column is not None:
            times = times_of(opened, _blank_as_null(frame[time_column]), time_format, time_unit, timezone)
            _check_times(opened, frame[time_column], times.values)
            moments, clock = times.values.fill_null(BEGINNING).to_numpy(), times.clock
        found, notes = _attributes(frame.select(names), chosen, ids)
    if not found:
        why = f": {'; '.join(notes)}" if notes else ", only ids"
        raise EventsError(f"{opened.name}: has no attributes{why}")
    if moments is None:
        _check_once(opened, ids, found)
    return NodeTable(opened.name, ids, found, moments, clock, kind, tuple(f"{opened.name}: {note}" for note in notes))


def _open(
    source: Any,
    format: Format | None,
    header: bool | None,
    separator: str | None,
    wanted: list[str],
    limits: Limits,
) -> Source:
    """Open a file, a folder or a table in memory."""
    if isinstance(source, str | os.PathLike):
        with explained(str(source), "a table of nodes"):
            return open_file(
                Path(source), format=format, header=header, separator=separator, wanted=wanted, limits=limits
            )
    if format or separator or header is not None:
        raise EventsError("format=, header= and separator= are for files, not for tables")
    if isinstance(source, Mapping):
        import polars as pl

        with explained("table", "a table of nodes"):
            source = pl.DataFrame({str(name): pl.Series(list(values)) for name, values in source.items()})
    if isinstance(source, tuple | list):
        raise EventsError(f"cannot read nodes from {type(source).__name__}; give a path, a table or a dict of columns")
    return open_table(source)


def _find(source: Source, column: Column, what: str, usual: Iterable[str] = ()) -> str:
    """The column asked for, or the first with a usual name."""
    there = listed(source.columns)
    if column is not None:
        if str(column) not in source.columns:
            there += nearest(column, source.columns)
            raise EventsError(f"{source.name}: no column {str(column)!r} for {what}; there are {there}")
        return str(column)
    lowered = {name.lower(): name for name in reversed(source.columns)}
    found = [lowered[name] for name in usual if name in lowered]
    if not found:
        raise EventsError(f"{source.name}: which column has the {what} (--node-id)? There are {there}")
    return found[0]


def _chosen(source: Source, columns: Iterable[str], taken: Iterable[str | None]) -> dict[str, bool]:
    """The columns asked for, and whether each is a category even if it holds numbers."""
    asked = [columns] if isinstance(columns, str) else list(columns)
    found = {}
    for text in asked:
        exact = text in source.columns
        name = _find(source, text if exact else text.removesuffix(CATEGORY), "an attribute")
        if name in taken:
            raise EventsError(f"{source.name}: column {name!r} has the ids or times, and cannot be an attribute too")
        found[name] = not exact
    if not found:
        raise EventsError(f"{source.name}: no columns were chosen")
    return found


def _ids(source: Source, column: pl.Series) -> tuple[NDArray[Any], pl.Series]:
    """The ids as texts, and which rows have one; a row without an id but with values is an error."""
    import polars as pl

    if column.dtype.is_float():
        whole = column.fill_nan(None).cast(pl.Int64, strict=False)
        odd = column.filter((whole != column).fill_null(False))
        if len(odd):
            raise EventsError(f"{source.name}: column {column.name!r} holds {odd[0]}; ids are texts or whole numbers")
        column = whole
    if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Null, pl.Categorical, pl.Enum)):
        raise EventsError(f"{source.name}: column {column.name!r} holds {column.dtype}; ids are texts or whole numbers")
    texts = column.cast(pl.String)
    rows = (texts.is_not_null() & (texts.str.strip_chars() != "")).fill_null(False)
    if not rows.any():
        raise EventsError(f"{source.name}: column {column.name!r} has no ids")
    ids = np.empty(int(rows.sum()), dtype=object)
    ids[:] = texts.filter(rows).to_list()
    return ids, rows


def _blank_as_null(column: pl.Series) -> pl.Series:
    """Texts without blanks around them; those that stand for no value become null."""
    import polars as pl

    if column.dtype != pl.String:
        return column
    bare = column.str.strip_chars()
    return (
        bare.to_frame("text")
        .select(pl.when(~pl.col("text").str.to_lowercase().is_in(MISSING)).then("text"))
        .to_series()
    )


def _check_times(source: Source, column: pl.Series, values: pl.Series) -> None:
    bad = values.is_null() & _blank_as_null(column).is_not_null()
    if bad.any():
        raise EventsError(f"{source.name}: time {column.filter(bad)[0]!r} is not a date or a number")


def _check_once(source: Source, ids: NDArray[Any], columns: Mapping[str, Attribute]) -> None:
    """Refuse two rows of one node with different values: without times, nobody knows which one holds."""
    if len(set(ids.tolist())) == len(ids):
        return
    first: dict[str, int] = {}
    for row, id_ in enumerate(ids.tolist()):
        before = first.setdefault(id_, row)
        for name, column in columns.items():
            if not np.array_equal(column.values[before], column.values[row], equal_nan=True):
                raise EventsError(
                    f"{source.name}: {id_!r} has two rows that differ in {name!r}; if values change over time, "
                    "name the column that says from when a row holds (--node-time)"
                )


def _attributes(
    frame: pl.DataFrame, chosen: Mapping[str, bool] | None, ids: NDArray[Any]
) -> tuple[dict[str, Attribute], list[str]]:
    """The usable columns, and notes on the others; columns that were chosen are used unless they have no value."""
    found, notes = {}, []
    for column in frame:
        attribute = _attribute(column, category=bool(chosen and chosen[column.name]))
        why = _useless(attribute, column.dtype, None if chosen else ids)
        if why is None and attribute is not None:
            found[column.name] = attribute
        else:
            notes.append(f"column {column.name!r} is left out: {why}")
    return found, notes


def _useless(attribute: Attribute | None, dtype: Any, ids: NDArray[Any] | None) -> str | None:
    """Why a column says nothing about nodes; None if it does."""
    if attribute is None:
        return f"it holds {dtype}"
    present = ~np.isnan(attribute.values)
    known = attribute.values[present]
    if not len(known):
        return "it has no values"
    if ids is None:
        return None
    distinct = len(np.unique(known))
    if distinct == 1 and present.all():
        return "it has the same value everywhere"
    if attribute.categories and distinct > 2:
        uses = len(set(zip(ids[present].tolist(), known.tolist(), strict=True)))  # a node may have a text in many rows
        if uses == distinct:
            return f"{distinct:,} texts, all of different nodes"
        if distinct > FEW_TEXTS and 2 * distinct > uses:
            return f"{distinct:,} different texts for {len(set(ids.tolist())):,} nodes"
    return None


def _attribute(column: pl.Series, *, category: bool) -> Attribute | None:
    """A column as numbers, or as categories if it holds other texts; None if it holds neither."""
    import polars as pl

    if not category and (column.dtype.is_numeric() or column.dtype.is_temporal() or column.dtype == pl.Boolean):
        physical = column.to_physical() if column.dtype.is_temporal() else column
        return Attribute(_finite(physical.cast(pl.Float64)))
    if column.dtype.is_nested() or column.dtype == pl.Binary:
        return None
    texts = _blank_as_null(column.cast(pl.String))
    numbers = None if category else _numbers(texts)
    if numbers is not None:
        return Attribute(_finite(numbers))
    names = tuple(texts.drop_nulls().unique().sort().to_list())
    codes = texts.replace_strict(list(names), list(range(len(names))), default=None, return_dtype=pl.Float64)
    return Attribute(_finite(codes), names)


def _numbers(texts: pl.Series) -> pl.Series | None:
    """Texts that are all numbers, booleans or dates as numbers, else None."""
    import polars as pl

    missing = texts.null_count()
    if missing == len(texts):
        return texts.cast(pl.Float64)
    for form in (texts, texts.str.replace(",", ".", literal=True)):  # 1.5, and 1,5
        numbers = form.cast(pl.Float64, strict=False)
        if numbers.null_count() == missing:
            return numbers
    if set(texts.drop_nulls().str.to_lowercase().unique()) <= {"true", "false"}:
        return (texts.str.to_lowercase() == "true").cast(pl.Float64)
    if all(ISO.fullmatch(text) for text in texts.drop_nulls().head(100).to_list()):
        dates = parse_times(texts).values
        return dates.cast(pl.Float64) if dates.null_count() == missing else None
    return None


def _finite(numbers: pl.Series) -> NDArray[np.float64]:
    values = numbers.fill_null(float("nan")).to_numpy().astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)
