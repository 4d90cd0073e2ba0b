"""Read timestamped interactions into `Events`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dysat.data.reading.columns import (
    Column,
    Rows,
    choose_columns,
    label_columns,
    read_columns,
    skipped_note,
    split_destinations,
    times_of,
)
from dysat.data.reading.dates import time_complaint
from dysat.data.reading.files import Format, open_file
from dysat.data.reading.labels import Labels, number_nodes
from dysat.data.reading.limits import Limits
from dysat.data.reading.sources import Source, explained, open_table
from dysat.data.reading.spelling import count_pairs, kinds_note, label_notes
from dysat.data.reading.text import EncodingError
from dysat.data.reading.times import Times, TimeUnit
from dysat.data.reading.weights import Decimal, NegativeWeights, Weights, negative_note, weights_of
from dysat.data.windows import Clock, Moment, as_moment, write_moment
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False, repr=False)
class Events:
    """Interactions sorted by time, with nodes numbered in order of first appearance.

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
    is_part: bool = False  # a view of other events: nodes may have appeared before it
    columns: Mapping[str, str] = field(default_factory=dict)  # columns of the source, by role

    def __len__(self) -> int:
        return len(self.time)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.labels)

    @property
    def total_weight(self) -> float:
        """Sum of all weights; the number of events if there are none."""
        return float(len(self)) if self.weight is None else float(self.weight.sum())

    def between(self, start: Moment | None = None, stop: Moment | None = None) -> Events:
        """Return a view of the events in `[start, stop)`; nodes keep their numbers."""
        first = 0 if start is None else np.searchsorted(self.time, as_moment(start, self.clock, "start"))
        last = len(self) if stop is None else np.searchsorted(self.time, as_moment(stop, self.clock, "stop"))
        here = slice(first, max(first, last))
        weight = None if self.weight is None else self.weight[here]
        return replace(self, src=self.src[here], dst=self.dst[here], time=self.time[here], weight=weight, is_part=True)

    def to_polars(self) -> pl.DataFrame:
        """Convert to a table of src, dst, time and weight, with the original labels."""
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
    encoding: str | None = None,
    decimal: Decimal | None = None,
    time_format: str | None = None,
    time_unit: TimeUnit | None = None,
    timezone: str = "UTC",
    kinds: tuple[str, str] | None = None,
    pair_separator: str | None = None,
    split_dst: str | None = None,
    normalise_labels: bool = False,
    negative_weights: NegativeWeights = "error",
    bad_rows: Literal["raise", "skip"] = "raise",
    at_least: Literal[1, 2] = 2,
    limits: Mapping[str, float] | Limits | None = None,
) -> Events:
    """Read timestamped interactions.

    Parameters:
        source: a file (CSV, TSV, whitespace-separated, KONECT, SNAP, JSON, Parquet, Excel; text plain, gzip or zstd),
            a folder of Parquet parts, a Polars, pandas or Arrow table, or arrays (src, dst, time[, weight]).
        src, dst, time: column names, paths into nested values like `user.id`, or 1-based indices if the file has no
            header. By default the usual names are tried, and `notes` says which were chosen.
        weight: column of non-negative numbers; by default every event counts 1.
        format, header, separator, encoding: override what is recognised from the file.
        decimal: the decimal mark of weights that are texts, "." or ","; by default recognised.
        time_format: a pattern of Python's `strptime`; not needed for ISO 8601 and RFC 2822.
        time_unit: unit of times that are numbers since 1970, "s", "ms", "us" or "ns"; by default recognised and noted.
            "step": the column holds snapshot numbers.
        timezone: time zone of times that do not state one.
        kinds: names for the two sides of bipartite data, like ("user", "item"); equal labels in the two columns
            are then different nodes.
        pair_separator: text between src and dst, if both are in one column.
        split_dst: text between several destinations in one cell; each becomes an event. Lists are split as well.
        normalise_labels: merge labels that differ only in case or blanks, and take the address of `Name <address>`.
        negative_weights: raise an "error", take the absolute value ("abs"), "drop" the event, or "clip" to 0.
        bad_rows: "raise" an error at the first row that cannot be read, or "skip" such rows and note their number.
        at_least: minimum number of events. Two make a history; one is enough to continue a graph.
        limits: larger (or smaller) limits: `columns`, `label_length`, `line_length` in bytes, and `memory` in GB.

    Example:
        >>> events = read_events((["ann", "bob"], ["bob", "cy"], ["2024-01-01", "2024-01-09"]))
        >>> events
        Events: 2 among 3 nodes, 2024-01-01 … 2024-01-09
    """
    check_choices(bad_rows, negative_weights, decimal)
    if at_least not in (1, 2):
        raise EventsError(f"at_least={at_least!r} is neither 1 nor 2")
    if pair_separator is not None and split_dst is not None:
        raise EventsError("give pair_separator= or split_dst=, not both")
    asked = {"src": src, "dst": dst, "time": time, "weight": weight}
    largest = replace(Limits.of(limits), advice=", and dysat snapshots --on-disk needs less")

    def read(encoding: str | None) -> Events:
        wanted = [str(column) for column in asked.values() if column is not None]
        opened = _open(source, format, header, separator, encoding, wanted, largest)
        columns, notes = choose_columns(opened, asked, pair_separator)
        notes += opened.notes
        with explained(opened.name, "events"):
            table = read_columns(
                opened,
                columns,
                pair_separator,
                parse_time=time_format is None and time_unit is None,
                split=split_dst is not None,
            )
            origin = None
            if split_dst is not None:
                table, origin, more = split_destinations(table, split_dst)
                notes += more
            rows = Rows(opened, table, skip=bad_rows == "skip", origin=origin)
            found = parse_rows(
                rows,
                columns,
                largest,
                lambda column: times_of(opened, column, time_format, time_unit, timezone),
                lambda cell: complain_about_time(cell, table["time"], time_format, timezone),
                decimal=decimal,
                negative_weights=negative_weights,
                normalise_labels=normalise_labels,
            )
            notes += [*found.weights.notes, *negative_note(found.weights.negative, negative_weights)]
            notes += [*skipped_note(rows.num_skipped, rows.num_rows), *([found.times.note] if found.times.note else [])]
            kind_names = kind_names_of(opened, kinds, notes)
            events = _assemble(opened.name, found, rows.good, kind_names, notes, at_least)
            hints = _hints(events, opened, columns)
            return replace(events, columns=columns, notes=(*events.notes, *hints))

    try:
        return read(encoding)
    except EncodingError as problem:  # a byte after the beginning of the file, which is UTF-8
        if encoding is not None or problem.fits is None:
            raise
        found = read(problem.fits)
        return replace(found, notes=(*found.notes, f"text read as {problem.fits}; encoding= overrides this"))


def check_choices(bad_rows: object, negative_weights: object, decimal: object) -> None:
    """Refuse anything but the choices of `read_events`."""
    _check_choice("bad_rows", bad_rows, ("raise", "skip"))
    _check_choice("negative_weights", negative_weights, ("error", "abs", "drop", "clip"))
    _check_choice("decimal", decimal, (None, ".", ","))


def _check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        raise EventsError(f"{name}={value!r} is not one of {', '.join(repr(choice) for choice in choices if choice)}")


def _open(
    source: Any,
    format: Format | None,
    header: bool | None,
    separator: str | None,
    encoding: str | None,
    wanted: list[str],
    limits: Limits,
) -> Source:
    """Open a file, a folder or a table in memory."""
    if isinstance(source, str | os.PathLike):
        with explained(str(source), "events"):
            return open_file(
                Path(source),
                format=format,
                header=header,
                separator=separator,
                encoding=encoding,
                wanted=wanted,
                limits=limits,
            )
    if format or separator or encoding or header is not None:
        raise EventsError("format=, header=, separator= and encoding= are for files, not for tables")
    return open_table(source)


class Parsed(NamedTuple):
    """The columns of a table: labels of both ends, times, and weights."""

    labels: tuple[pl.Series, pl.Series]
    times: Times
    weights: Weights


def parse_rows(
    rows: Rows,
    columns: dict[str, str],
    limits: Limits,
    read_times: Callable[[pl.Series], Times],
    time_complaint: Callable[[object], str],
    *,
    decimal: Decimal | None,
    negative_weights: NegativeWeights,
    normalise_labels: bool,
) -> Parsed:
    """Parse the table of `rows` and mark the bad ones."""
    table = rows.table
    for role in ("src", "dst"):
        limits.check_labels(rows.source.name, table[role].alias(columns[role]))
    labels = label_columns(rows.source, table, columns, rows, normalise=normalise_labels)
    times = read_times(table["time"].alias(columns["time"]))
    rows.check("time", columns["time"], times.values, time_complaint)
    return Parsed(labels, times, weights_of(table, columns, rows, decimal, negative_weights))


def complain_about_time(cell: object, column: pl.Series, pattern: str | None, timezone: str) -> str:
    """Say what is wrong with a time, and which pattern reads it and others of its column."""
    texts = [str(text) for text in column.drop_nulls().head(1000).unique(maintain_order=True).to_list()]
    return time_complaint(str(cell), texts, pattern, timezone)


def _hints(events: Events, source: Source, columns: dict[str, str]) -> list[str]:
    """Notes on labels that look wrong."""
    hints = label_notes(events.labels, events.kinds, columns["dst"])
    if may_be_two_kinds(source, events.kind_names, columns):
        sides = np.zeros((2, events.num_nodes), dtype=bool)
        sides[0, events.src], sides[1, events.dst] = True, True
        hints += kinds_note(
            columns, sides, events.labels, lambda: count_pairs(events.src, events.dst, events.num_nodes)
        )
    return hints


def may_be_two_kinds(source: Source, kind_names: Sequence[str], columns: Mapping[str, str]) -> bool:
    """Whether nobody has said if the two columns hold the same kind of node."""
    return source.bipartite is None and not kind_names and columns["src"] != columns["dst"]


def kind_names_of(source: Source, kinds: tuple[str, str] | None, notes: list[str]) -> tuple[str, ...]:
    """The names of the two kinds of nodes that are given or that the format states, or none."""
    if kinds is None and source.bipartite:
        notes.append("bipartite: the two columns are different nodes, called left and right")
        return ("left", "right")
    if kinds is None:
        return ()
    named = not isinstance(kinds, str) and len(kinds) == 2 and all(isinstance(kind, str) and kind for kind in kinds)
    if not named or kinds[0] == kinds[1]:
        raise EventsError(f"kinds must be two different names, like ('user', 'item'), not {kinds!r}")
    return tuple(kinds)


def _assemble(
    name: str,
    found: Parsed,
    good: NDArray[np.bool_],
    kind_names: tuple[str, ...],
    notes: list[str],
    at_least: int,
) -> Events:
    """Keep the good rows, sort them by time and number their nodes."""
    weights = found.weights.values
    if weights is not None:
        idle = int((weights[good] == 0).sum())
        good = good & (weights > 0)
        notes = [*notes, *idle_note(idle)]
    (src, dst), time = found.labels, found.times.values
    if not good.all():
        src, dst, time = src.filter(good), dst.filter(good), time.filter(good)
        weights = None if weights is None else weights[good]
    check_number(name, len(time), at_least)
    stamps = time.to_numpy()
    order = None
    if (stamps[1:] < stamps[:-1]).any():
        order = np.argsort(stamps, kind="stable")
        stamps, weights = stamps[order], None if weights is None else weights[order]
    from_, to, nodes, kinds = number_nodes(src, dst, stamps, order, separate=bool(kind_names))
    return Events(from_, to, stamps, weights, nodes, found.times.clock, kinds, kind_names, tuple(notes))


def idle_note(number: int) -> list[str]:
    """Note events of weight 0."""
    return [f"{number:,} events of weight 0 were left out"] if number else []


def check_number(name: str, events: int, at_least: int) -> None:
    """Refuse a log with too few events."""
    if events < at_least:
        number = {0: "no events", 1: "only one event"}[events]
        needed = {1: "one is", 2: "two are"}[at_least]
        raise EventsError(f"{name}: has {number}; at least {needed} needed")
