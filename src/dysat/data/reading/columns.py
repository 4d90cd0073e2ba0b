"""Choose the columns of a source by role (src, dst, time, weight), read them, and check every row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dysat.data.reading.labels import integer_expression
from dysat.data.reading.sources import Source
from dysat.data.reading.spelling import normal_form
from dysat.data.reading.times import Times, TimeUnit, check_plausible, iso_expression, parse_times
from dysat.errors import EventsError, listed, nearest

if TYPE_CHECKING:
    import polars as pl

Column = str | int | None
# Column names tried if none is given, in order of preference.
USUAL_NAMES = {
    "src": ("src", "source", "from", "sender", "from_id", "source_id", "src_id", "u", "user", "user_id", "userid"),
    "dst": (
        *("dst", "target", "to", "receiver", "recipient", "to_id", "target_id", "dst_id", "v", "item", "item_id"),
        *("itemid", "movie", "movie_id", "movieid", "product", "product_id", "productid"),
    ),
    "time": ("time", "timestamp", "date", "datetime", "t", "ts", "sent", "sent_at", "created_at", "unixtime"),
}


def choose_columns(
    source: Source, asked: dict[str, Column], pair_separator: str | None
) -> tuple[dict[str, str], list[str]]:
    """Return the column of each role, and notes: as asked, as the format says, or by a usual name."""
    asked = dict(asked)
    if pair_separator is not None:
        if pair_separator == "":
            raise EventsError("pair_separator='' cannot separate two labels")
        asked["src"] = asked["src"] if asked["src"] is not None else asked["dst"]
        asked["dst"] = asked["src"]
    columns, guessed = {}, []
    there = listed(_leaves(source))
    for role, column in asked.items():
        if column is not None:
            known = (*source.columns, *source.paths)
            if str(column) not in known:
                hint = nearest(column, known)
                raise EventsError(f"{source.name}: no column {str(column)!r} for {role}; there are {there}{hint}")
            columns[role] = str(column)
        elif role in source.roles:
            columns[role] = source.roles[role]
        elif role != "weight":
            usual = _usual_column(source, role)
            if usual is None:
                raise EventsError(f"{source.name}: which column is {role}? Give {role}=; there are {there}")
            columns[role] = usual
            guessed.append(f"{role}={usual!r}")
    if columns["src"] == columns["dst"] and pair_separator is None:
        raise EventsError(f"{source.name}: src and dst are the same column {columns['src']!r}")
    return columns, [f"columns recognised: {', '.join(guessed)}"] if guessed else []


def _leaves(source: Source) -> list[str]:
    """The columns, and instead of those that hold objects the paths inside them."""
    return [*(column for column in source.columns if column not in source.nested), *source.paths]


def _usual_column(source: Source, role: str) -> str | None:
    """The column or path with a usual name: the first that is a column, or else the only path there is.

    The usual name of a path is its last part (`message.from`), or that of the object whose id or only value it is
    (`from.id`, `from.email`).
    """
    usual = USUAL_NAMES[role]
    leaves = _leaves(source)
    lowered = {column.lower(): column for column in reversed(leaves) if column in source.columns}
    if columns := [lowered[name] for name in usual if name in lowered]:
        return columns[0]
    found = []
    inside = Counter(prefix for path in source.paths for prefix in accumulate(path.split(".")[:-1], "{}.{}".format))
    for path in source.paths:
        *objects, last = path.lower().split(".")
        alone = inside[path.rpartition(".")[0]] == 1
        if last in usual or (objects[-1:] and objects[-1] in usual and (last == "id" or alone)):
            found.append(path)
    return found[0] if len(found) == 1 else None


def read_columns(
    source: Source, columns: dict[str, str], pair_separator: str | None, *, parse_time: bool, split: bool = False
) -> pl.DataFrame:
    """Read the columns into a table, named by role; `split`: dst may hold lists.

    If the first row has an ISO 8601 time, or whole numbers as labels, these columns are parsed while the file is read.
    If a later row does not fit, the file is read again as text.
    """
    import polars as pl

    wanted = list(dict.fromkeys(columns.values()))
    parsers = {}
    if parse_time and (parse := iso_expression(columns["time"], source.first.get(columns["time"], ""))) is not None:
        parsers[columns["time"]] = parse
    ends = {columns["src"], columns["dst"]}
    if all(re.fullmatch(r"[1-9]\d{0,17}", source.first.get(end, "")) for end in ends) and not pair_separator:
        parsers |= {end: integer_expression(end) for end in ends}
    read = source.read([parsers.get(name, pl.col(name)) for name in wanted] if parsers else wanted)
    misfits = {name for name in parsers if read[name].null_count()}
    if misfits:
        parsers = {name: parse for name, parse in parsers.items() if name not in misfits}
        read = source.read([parsers.get(name, pl.col(name)) for name in wanted])
    return by_role(source, read, columns, pair_separator, split=split)


def by_role(
    source: Source, read: pl.DataFrame, columns: dict[str, str], pair_separator: str | None, *, split: bool = False
) -> pl.DataFrame:
    """Name the columns of a table by role; split a column that holds both nodes."""
    import polars as pl

    table = pl.DataFrame([read[column].alias(role) for role, column in columns.items()])
    _refuse_nested(source, table, columns, split=split)
    if pair_separator is None:
        return table
    parts = pl.col("src").cast(pl.String).str.split_exact(pair_separator, 2).struct
    single = parts.field("field_2").is_null()
    return table.with_columns(
        src=pl.when(single).then(parts.field("field_0")), dst=pl.when(single).then(parts.field("field_1"))
    )


def _refuse_nested(source: Source, table: pl.DataFrame, columns: dict[str, str], *, split: bool) -> None:
    """Refuse columns of objects and lists, except a dst that will be split."""
    import polars as pl

    for role, column in columns.items():
        dtype = table.schema[role]
        if isinstance(dtype, pl.Struct):
            there = [path for path in source.paths if path.startswith(f"{column}.")]
            advice = f"; there are {listed(there)}" if there else ""
            raise EventsError(f"{source.name}: column {column!r} holds objects{advice}")
        if not isinstance(dtype, pl.List | pl.Array) or (role == "dst" and split and not dtype.inner.is_nested()):
            continue
        advice = "; split_dst=';' makes one event per element" if role == "dst" and not dtype.inner.is_nested() else ""
        raise EventsError(f"{source.name}: column {column!r} holds lists{advice}")


def split_destinations(table: pl.DataFrame, separator: str) -> tuple[pl.DataFrame, NDArray[np.int64], list[str]]:
    """Make one row per destination of a cell, or per element of a list; also return the row each comes from, and notes.

    Separators inside double quotes do not count. A cell without any destination stays, as a row with none.
    """
    import polars as pl

    if separator == "":
        raise EventsError("split_dst='' cannot separate labels")
    rows = table.with_row_index("row")
    if isinstance(table.schema["dst"], pl.List | pl.Array):
        rows = rows.explode("dst").with_columns(pl.col("dst").cast(pl.String))
    if rows.schema["dst"] == pl.String:
        quoted = rows["dst"].filter(rows["dst"].str.contains('"', literal=True)).unique().to_list()
        hidden = [re.sub(r'"[^"]*"', lambda match: match[0].replace(separator, "\0"), cell) for cell in quoted]
        rows = rows.with_columns(pl.col("dst").replace(quoted, hidden).str.split(separator)).explode("dst")
        rows = rows.with_columns(pl.col("dst").str.replace_all("\0", separator, literal=True).str.strip_chars())
        present = rows.filter(pl.col("dst") != "")
        absent = rows.join(present, on="row", how="anti").unique("row").with_columns(dst=pl.lit(None, pl.String))
        rows = pl.concat([present, absent]).sort("row", maintain_order=True)
    number = len(rows)
    notes = [f"{number:,} events from {len(table):,} rows: some have several destinations"] * (number > len(table))
    return rows.drop("row"), rows["row"].to_numpy().astype(np.int64), notes


class Rows:
    """Track which rows are good. The first bad row is an error, unless bad rows are skipped.

    `origin` are the rows of the source that the rows of the table come from, if the two differ.
    """

    def __init__(
        self, source: Source, table: pl.DataFrame, *, skip: bool, origin: NDArray[np.int64] | None = None
    ) -> None:
        import polars as pl

        self.source, self.table, self.skip, self.origin = source, table, skip, origin
        self.good = np.ones(len(table), dtype=bool)
        if source.blank_rows and all(column.null_count() for column in table):  # a blank line is not a row
            self.good = ~table.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
        self.num_rows = int(self.good.sum())

    def check(self, role: str, column: str, values: pl.Series, complaint: str | Callable[[Any], str]) -> None:
        """Mark rows whose `values` are null as bad: their cell is empty, or `complaint` says what is wrong with it."""
        if values.null_count() == 0:
            return
        bad = values.is_null().to_numpy() & self.good
        if not self.skip and bad.any():
            row = int(bad.argmax())
            cell = self.table[role][row]
            where = f"{self.source.name}, {self.source.locate(row if self.origin is None else int(self.origin[row]))}"
            if cell is None or cell == "" or complaint == "":
                raise EventsError(f"{where}: column {column!r} is empty")
            text = complaint if isinstance(complaint, str) else complaint(cell)
            raise EventsError(f"{where}: {role} {_shortened(cell)} {text}")
        self.good &= ~bad

    def leave_out(self, rows: NDArray[np.bool_]) -> None:
        """Leave rows out that can be read but are not wanted."""
        self.num_rows -= int((rows & self.good).sum())
        self.good &= ~rows

    @property
    def num_skipped(self) -> int:
        """Number of bad rows."""
        return self.num_rows - int(self.good.sum())


def skipped_note(skipped: int, rows: int) -> list[str]:
    """Note rows that were skipped."""
    return [f"{skipped:,} of {rows:,} rows could not be read and were skipped"] if skipped else []


def label_columns(
    source: Source, table: pl.DataFrame, columns: dict[str, str], rows: Rows, *, normalise: bool = False
) -> tuple[pl.Series, pl.Series]:
    """Return both label columns with one type, Int64 or String; `normalise` texts if asked to."""
    import polars as pl

    sides = []
    for role in ("src", "dst"):
        column, name = table[role], columns[role]
        if column.dtype.is_float():
            whole = column.fill_nan(None).cast(pl.Int64, strict=False)
            odd = column.filter((whole != column).fill_null(column.is_finite() & whole.is_null()))
            if len(odd):
                raise EventsError(f"{source.name}: column {name!r} holds {odd[0]}; labels are texts or whole numbers")
            column = whole
        elif column.dtype.is_integer():
            narrow = column.cast(pl.Int64, strict=False)
            column = narrow if narrow.null_count() == column.null_count() else column.cast(pl.String)
        elif column.dtype in (pl.String, pl.Null) or isinstance(column.dtype, pl.Categorical | pl.Enum):
            column = normal_form(column.cast(pl.String)) if normalise else column.cast(pl.String)
            if (column == "").any():
                column = column.replace("", None)
        else:
            raise EventsError(f"{source.name}: column {name!r} holds {column.dtype}; labels are texts or whole numbers")
        rows.check(role, name, column, "")
        sides.append(column)
    if sides[0].dtype != sides[1].dtype:
        sides = [side.cast(pl.String) for side in sides]
    return sides[0], sides[1]


def times_of(source: Source, column: pl.Series, pattern: str | None, unit: TimeUnit | None, timezone: str) -> Times:
    """Parse the times and check that they are plausible."""
    try:
        times = parse_times(column, pattern=pattern, unit=unit, timezone=timezone)
        first, last = times.values.min(), times.values.max()
        if times.clock == "utc" and isinstance(first, int) and isinstance(last, int):
            check_plausible(first, last)
    except EventsError as problem:
        raise EventsError(f"{source.name}: {problem}") from None
    return times


def _shortened(cell: object, most: int = 60) -> str:
    text = repr(cell) if isinstance(cell, str) else str(cell)
    return text if len(text) <= most else f"{text[:most]}…"
