"""Choose the columns of a source by role (src, dst, time, weight), read them, and check every row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dysat.data.reading.labels import integer_expression
from dysat.data.reading.sources import Source
from dysat.data.reading.times import Times, TimeUnit, check_plausible, iso_expression, parse_times
from dysat.errors import EventsError, listed, nearest

if TYPE_CHECKING:
    import polars as pl

Column = str | int | None
# Column names tried if none is given, in order of preference.
USUAL_NAMES = {
    "src": ("src", "source", "from", "sender", "from_id", "source_id", "src_id", "u", "user", "user_id"),
    "dst": ("dst", "target", "to", "receiver", "recipient", "to_id", "target_id", "dst_id", "v", "item", "item_id"),
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
    lowered = {column.lower(): column for column in reversed(source.columns)}
    for role, column in asked.items():
        if column is not None:
            if str(column) not in source.columns:
                there = f"there are {listed(source.columns)}{nearest(column, source.columns)}"
                raise EventsError(f"{source.name}: no column {str(column)!r} for {role}; {there}")
            columns[role] = str(column)
        elif role in source.roles:
            columns[role] = source.roles[role]
        elif role != "weight":
            usual = [lowered[name] for name in USUAL_NAMES[role] if name in lowered]
            if not usual:
                there = listed(source.columns)
                raise EventsError(f"{source.name}: which column is {role}? Give {role}=; there are {there}")
            columns[role] = usual[0]
            guessed.append(f"{role}={usual[0]!r}")
    if columns["src"] == columns["dst"] and pair_separator is None:
        raise EventsError(f"{source.name}: src and dst are the same column {columns['src']!r}")
    return columns, [f"columns recognised: {', '.join(guessed)}"] if guessed else []


def read_columns(
    source: Source, columns: dict[str, str], pair_separator: str | None, *, parse_time: bool
) -> pl.DataFrame:
    """Read the columns into a table, named by role.

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
    table = pl.DataFrame([read[column].alias(role) for role, column in columns.items()])
    if pair_separator is None:
        return table
    parts = pl.col("src").cast(pl.String).str.split_exact(pair_separator, 2).struct
    single = parts.field("field_2").is_null()
    return table.with_columns(
        src=pl.when(single).then(parts.field("field_0")), dst=pl.when(single).then(parts.field("field_1"))
    )


class Rows:
    """Track which rows are good. The first bad row is an error, unless bad rows are skipped."""

    def __init__(self, source: Source, table: pl.DataFrame, *, skip: bool) -> None:
        import polars as pl

        self.source, self.table, self.skip = source, table, skip
        self.good = np.ones(len(table), dtype=bool)
        if source.text and all(column.null_count() for column in table):  # a blank line is not a row
            self.good = ~table.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
        self.num_rows = int(self.good.sum())

    def check(self, role: str, column: str, values: pl.Series, complaint: str) -> None:
        """Mark rows whose `values` are null as bad: their cell is empty, or `complaint` says what is wrong with it."""
        if values.null_count() == 0:
            return
        bad = values.is_null().to_numpy() & self.good
        if not self.skip and bad.any():
            row = int(bad.argmax())
            cell = self.table[role][row]
            where = f"{self.source.name}, {self.source.locate(row)}"
            if cell is None or cell == "" or complaint == "":
                raise EventsError(f"{where}: column {column!r} is empty")
            raise EventsError(f"{where}: {role} {_shortened(cell)} {complaint}")
        self.good &= ~bad

    def notes(self) -> list[str]:
        skipped = self.num_rows - int(self.good.sum())
        return [f"{skipped:,} of {self.num_rows:,} rows could not be read and were skipped"] if skipped else []


def label_columns(
    source: Source, table: pl.DataFrame, columns: dict[str, str], rows: Rows
) -> tuple[pl.Series, pl.Series]:
    """Return both label columns with one type, Int64 or String."""
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
            column = column.cast(pl.String)
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


def weights_of(table: pl.DataFrame, columns: dict[str, str], rows: Rows) -> NDArray[np.float64] | None:
    """Return the weights, which must be finite and not negative, or None if every event counts 1."""
    import polars as pl

    if "weight" not in columns:
        return None
    column = table["weight"]
    if not (column.dtype.is_numeric() or column.dtype in (pl.String, pl.Null)):
        raise EventsError(f"{rows.source.name}: column {columns['weight']!r} holds {column.dtype}, not numbers")
    numbers = (column.str.strip_chars() if column.dtype == pl.String else column).cast(pl.Float64, strict=False)
    rows.check("weight", columns["weight"], numbers, "is not a number")
    for complaint, bad in (("is not finite", ~numbers.is_finite()), ("is negative", numbers < 0)):
        if bad.any():
            numbers = numbers.to_frame("n").select(pl.when(~bad).then("n")).to_series()
            rows.check("weight", columns["weight"], numbers, complaint)
    return numbers.fill_null(0.0).to_numpy()


def _shortened(cell: object, most: int = 60) -> str:
    text = repr(cell) if isinstance(cell, str) else str(cell)
    return text if len(text) <= most else f"{text[:most]}…"
