"""Events: who met whom, when, and how much."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dysat.data.files import Format, open_file
from dysat.data.labels import Labels, integer_expression, number_nodes
from dysat.data.sources import Source, open_table, reading
from dysat.data.times import Times, TimeUnit, check_plausible, iso_expression, parse_times
from dysat.data.windows import Clock, Moment, as_moment, write_moment
from dysat.errors import EventsError, listed, nearest

if TYPE_CHECKING:
    import polars as pl

Column = str | int | None
# Names under which a column is found when none is given, in order of preference.
USUAL_NAMES = {
    "src": ("src", "source", "from", "sender", "from_id", "source_id", "src_id", "u", "user", "user_id"),
    "dst": ("dst", "target", "to", "receiver", "recipient", "to_id", "target_id", "dst_id", "v", "item", "item_id"),
    "time": ("time", "timestamp", "date", "datetime", "t", "ts", "sent", "sent_at", "created_at", "unixtime"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Events:
    """Interactions in order of time, their nodes numbered in order of first appearance.

    Shapes:
        src, dst [M] int32 (indices into `labels`), time [M] int64 (microseconds since 1970 in UTC, or steps),
        weight [M] float64 or None (each counts 1), labels [N], kinds [N] for bipartite data.
    """

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    time: NDArray[np.int64]
    weight: NDArray[np.float64] | None
    labels: Labels
    clock: Clock = "utc"
    kinds: NDArray[np.uint8] | None = None
    kind_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_part: bool = False  # a view that may lack some of the nodes' first events

    def __len__(self) -> int:
        return len(self.time)

    @property
    def num_nodes(self) -> int:
        return len(self.labels)

    @property
    def total_weight(self) -> float:
        return float(len(self)) if self.weight is None else float(self.weight.sum())

    def between(self, start: Moment | None = None, stop: Moment | None = None) -> Events:
        """The events of `[start, stop)`, a view; all nodes stay numbered as they are."""
        first = 0 if start is None else np.searchsorted(self.time, as_moment(start, self.clock, "start"))
        last = len(self) if stop is None else np.searchsorted(self.time, as_moment(stop, self.clock, "stop"))
        here = slice(first, max(first, last))
        weight = None if self.weight is None else self.weight[here]
        return replace(self, src=self.src[here], dst=self.dst[here], time=self.time[here], weight=weight, is_part=True)

    def to_polars(self) -> pl.DataFrame:
        """A table of src, dst, time and weight with the labels as they came."""
        import polars as pl

        time = pl.Series("time", self.time)
        table = pl.DataFrame(
            {
                "src": pl.Series(self.labels[self.src].tolist()),
                "dst": pl.Series(self.labels[self.dst].tolist()),
                "time": time.cast(pl.Datetime("us", "UTC")) if self.clock == "utc" else time,
            }
        )
        return table if self.weight is None else table.with_columns(weight=self.weight)

    def __repr__(self) -> str:
        if not len(self):
            return "Events: none"
        first, last = (write_moment(int(self.time[i]), self.clock) for i in (0, -1))
        return f"Events: {len(self):,} among {self.num_nodes:,} nodes, {first} … {last}"


def read_events(
    source: Any,
    src: Column = None,
    dst: Column = None,
    time: Column = None,
    weight: Column = None,
    *,
    format: Format | None = None,
    header: bool | None = None,
    separator: str | None = None,
    time_format: str | None = None,
    time_unit: TimeUnit | None = None,
    timezone: str = "UTC",
    kinds: tuple[str, str] | None = None,
    pair_separator: str | None = None,
    bad_rows: Literal["raise", "skip"] = "raise",
) -> Events:
    """Read timestamped interactions.

    Parameters:
        source: a file (CSV, TSV, blank-separated, KONECT, SNAP, JSON lines, Parquet; text plain, gzip or zstd),
            a folder of Parquet parts, a Polars, pandas or Arrow table, or arrays (src, dst, time[, weight]).
        src, dst, time: the columns, by name, or by number from 1 where a file has no header. Left out, the usual
            names are tried, and what was taken stands in `notes`.
        weight: column of non-negative numbers; without one every event counts 1.
        format, header, separator: what the file is, where it is not recognised.
        time_format: a pattern as of Python's `strptime`; ISO 8601 needs none.
        time_unit: of epoch numbers, "s", "ms", "us" or "ns"; recognised and noted if left out. "step": the column
            numbers the snapshots already.
        timezone: of times that do not carry their own.
        kinds: names for the two sides of bipartite data, like ("user", "item"); equal labels in the two columns
            are then different nodes.
        pair_separator: src and dst stand in one column, parted by this text.
        bad_rows: "skip" leaves out rows that cannot be read, and notes how many.

    Example:
        >>> events = read_events((["ann", "bob"], ["bob", "cy"], ["2024-01-01", "2024-01-09"]))
        >>> events
        Events: 2 among 3 nodes, 2024-01-01 … 2024-01-09
    """
    asked = {"src": src, "dst": dst, "time": time, "weight": weight}
    wanted = [str(column) for column in asked.values() if column is not None]
    if isinstance(source, str | os.PathLike):
        with reading(str(source), "events"):
            opened = open_file(Path(source), format=format, header=header, separator=separator, wanted=wanted)
    elif format or separator or header is not None:
        raise EventsError("format=, header= and separator= are for files, not for tables")
    else:
        opened = open_table(source)
    columns, notes = _choose_columns(opened, asked, pair_separator)
    notes += opened.notes
    with reading(opened.name, "events"):
        table = _read_columns(opened, columns, pair_separator, parse_time=time_format is None and time_unit is None)
        rows = _Rows(opened, table, skip=bad_rows == "skip")
        labels = _labels(opened, table, columns, rows)
        times = _times(opened, table["time"].alias(columns["time"]), time_format, time_unit, timezone)
        rows.check("time", columns["time"], times.values, "is not a date or a number")
        weights = _weights(table, columns, rows)
        notes += [*rows.notes(), *([times.note] if times.note else [])]
        return _assemble(opened.name, labels, times, weights, rows.good, _kinds(opened, kinds, notes), notes)


class _Rows:
    """Which rows are good; the first bad one is an error, unless bad rows are skipped."""

    def __init__(self, source: Source, table: pl.DataFrame, *, skip: bool) -> None:
        import polars as pl

        self.source, self.table, self.skip = source, table, skip
        self.good = np.ones(len(table), dtype=bool)
        if source.text:  # a blank line is no row
            self.good = ~table.select(pl.all_horizontal(pl.all().is_null())).to_series().to_numpy()
        self.num_rows = int(self.good.sum())

    def check(self, role: str, column: str, values: pl.Series, complaint: str) -> None:
        """Rows whose `values` are null are bad: their cell is empty, or what the complaint says."""
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


def _choose_columns(
    source: Source, asked: dict[str, Column], pair_separator: str | None
) -> tuple[dict[str, str], list[str]]:
    """The column of each role: as asked, as the format says, or by its usual name."""
    asked = dict(asked)
    if pair_separator is not None:
        if pair_separator == "":
            raise EventsError("pair_separator='' cannot part two labels")
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
                raise EventsError(f"{source.name}: which column is {role}? Say {role}=; there are {there}")
            columns[role] = usual[0]
            guessed.append(f"{role}={usual[0]!r}")
    if columns["src"] == columns["dst"] and pair_separator is None:
        raise EventsError(f"{source.name}: src and dst are the same column {columns['src']!r}")
    return columns, [f"columns recognised: {', '.join(guessed)}"] if guessed else []


def _read_columns(
    source: Source, columns: dict[str, str], pair_separator: str | None, *, parse_time: bool
) -> pl.DataFrame:
    """A table whose columns are named by role.

    Where the first row looks like times in ISO 8601, or labels that are whole numbers, those are parsed while the
    file is read; if it turns out that other rows are not like the first, it is read again as text.
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
    unlike = {name for name in parsers if read[name].null_count()}
    if unlike:
        parsers = {
            name: parse for name, parse in parsers.items() if name not in unlike | (ends if ends & unlike else set())
        }
        read = source.read([parsers.get(name, pl.col(name)) for name in wanted])
    table = pl.DataFrame([read[column].alias(role) for role, column in columns.items()])
    if pair_separator is None:
        return table
    parts = pl.col("src").cast(pl.String).str.split_exact(pair_separator, 2).struct
    single = parts.field("field_2").is_null()
    return table.with_columns(
        src=pl.when(single).then(parts.field("field_0")), dst=pl.when(single).then(parts.field("field_1"))
    )


def _labels(source: Source, table: pl.DataFrame, columns: dict[str, str], rows: _Rows) -> tuple[pl.Series, pl.Series]:
    """Both label columns as one type, Int64 or String."""
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


def _times(source: Source, column: pl.Series, pattern: str | None, unit: TimeUnit | None, timezone: str) -> Times:
    try:
        times = parse_times(column, pattern=pattern, unit=unit, timezone=timezone)
        first, last = times.values.min(), times.values.max()
        if times.clock == "utc" and isinstance(first, int) and isinstance(last, int):
            check_plausible(first, last)
    except EventsError as problem:
        raise EventsError(f"{source.name}: {problem}") from None
    return times


def _weights(table: pl.DataFrame, columns: dict[str, str], rows: _Rows) -> NDArray[np.float64] | None:
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


def _kinds(source: Source, kinds: tuple[str, str] | None, notes: list[str]) -> tuple[str, ...]:
    if kinds is None and source.bipartite:
        notes.append("bipartite: the two columns are different nodes, called left and right")
        return ("left", "right")
    if kinds is None:
        return ()
    if isinstance(kinds, str) or len(kinds) != 2 or len(set(kinds)) != 2 or not all(kinds):
        raise EventsError(f"kinds must be two different names, like ('user', 'item'), not {kinds!r}")
    return tuple(kinds)


def _assemble(
    name: str,
    labels: tuple[pl.Series, pl.Series],
    times: Times,
    weights: NDArray[np.float64] | None,
    good: NDArray[np.bool_],
    kind_names: tuple[str, ...],
    notes: list[str],
) -> Events:
    """Good rows only, in order of time, with their nodes numbered."""
    if weights is not None:
        idle = int((weights[good] == 0).sum())
        good = good & (weights > 0)
        notes = [*notes, f"{idle:,} events of weight 0 were left out"] if idle else notes
    (src, dst), time = labels, times.values
    if not good.all():
        src, dst, time = src.filter(good), dst.filter(good), time.filter(good)
        weights = None if weights is None else weights[good]
    if len(time) < 2:
        number = {0: "no events", 1: "only one event"}[len(time)]
        raise EventsError(f"{name}: has {number}; at least two are needed")
    stamps = time.to_numpy()
    order = None
    if (stamps[1:] < stamps[:-1]).any():
        order = np.argsort(stamps, kind="stable")
        stamps, weights = stamps[order], None if weights is None else weights[order]
    from_, to, nodes, kinds = number_nodes(src, dst, stamps, order, separate=bool(kind_names))
    return Events(from_, to, stamps, weights, nodes, times.clock, kinds, kind_names, tuple(notes))


def _shortened(cell: object, most: int = 60) -> str:
    text = repr(cell) if isinstance(cell, str) else str(cell)
    return text if len(text) <= most else f"{text[:most]}…"
