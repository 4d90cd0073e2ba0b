"""A log that is read in batches: each event becomes a record of fixed size, and the whole log is never in memory.

`on_disk` and `on_cluster` share what is here: how rows are read and checked, what is counted in a pass over all
records, the order of nodes, and the files and notes of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import CSR, LATEST, MAX_NODES, SENT
from dysat.data.events import (
    check_choices,
    check_number,
    complain_about_time,
    idle_note,
    kind_names_of,
    may_be_two_kinds,
    parse_rows,
)
from dysat.data.graph import FORMAT_VERSION, graph_manifest
from dysat.data.reading.batches import ReadTimes, time_reader
from dysat.data.reading.columns import Column, Rows, by_role, choose_columns, skipped_note
from dysat.data.reading.files import NOT_IN_BATCHES, Format, open_file
from dysat.data.reading.labels import GrowingLabels, break_ties, pack_labels, to_labels
from dysat.data.reading.limits import Limits
from dysat.data.reading.sources import Source, explained
from dysat.data.reading.spelling import kinds_note, label_notes
from dysat.data.reading.times import Times, TimeUnit, check_plausible
from dysat.data.reading.weights import Decimal, NegativeWeights, check_plain, negative_note
from dysat.data.snapshots import check_covered, coverage, coverage_note, only_loops
from dysat.data.summary import Report
from dysat.data.windows import Clock, Moment, as_moment
from dysat.errors import EventsError, GraphError, SnapshotsError
from dysat.system.storage import FolderWriter

if TYPE_CHECKING:
    import polars as pl

LINK, NODE = 56, 32  # bytes of the graph per event and node, if no link has two events
NEVER = int(np.iinfo(np.int64).max)
CHOICES = (("bad_rows", "raise"), ("negative_weights", "error"), ("decimal", None))
Records = NDArray[np.void]


class Reading(TypedDict, total=False):
    """The options of `read_events` that a log in batches can have."""

    src: Column
    dst: Column
    time: Column
    weight: Column
    format: Format | None
    header: bool | None
    separator: str | None
    encoding: str | None
    decimal: Decimal | None
    time_format: str | None
    time_unit: TimeUnit | None
    timezone: str
    kinds: tuple[str, str] | None
    pair_separator: str | None
    split_dst: str | None
    normalise_labels: bool
    negative_weights: NegativeWeights
    bad_rows: Literal["raise", "skip"]
    limits: Mapping[str, float] | Limits | None


# ---- reading ----


@dataclass
class Facts:
    """What is known about all rows that were read.

    Attributes:
        rows, skipped, negative, idle: numbers of rows, of bad ones, of negative weights, and of weights of 0; parsed,
        times, inside: the first and the last time of all rows, of all events, and of events between `start` and `stop`.
    """

    rows: int = 0
    skipped: int = 0
    negative: int = 0
    idle: int = 0
    num_events: int = 0
    parsed: tuple[int, int] = (NEVER, -NEVER)
    times: tuple[int, int] = (NEVER, -NEVER)
    inside: tuple[int, int] = (NEVER, -NEVER)
    clock: Clock = "utc"
    time_note: str | None = None

    def merge(self, other: Facts) -> None:
        """Take in the facts of the rows that follow."""
        for name in ("rows", "skipped", "negative", "idle", "num_events"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("parsed", "times", "inside"):
            (low, high), (other_low, other_high) = getattr(self, name), getattr(other, name)
            setattr(self, name, (min(low, other_low), max(high, other_high)))
        if other.parsed[0] != NEVER:
            self.clock, self.time_note = other.clock, other.time_note


class Log:
    """A log whose rows are read in batches, as records.

    Attributes:
        record: type of a record, with the numbers of both labels, the time, and the weight if there is one;
        facts: what is known about the rows read so far; labels: their distinct labels, in order of their numbers.
    """

    labels: pl.Series

    def __init__(self, source: Source, columns: dict[str, str], notes: Sequence[str], options: Reading) -> None:
        self.source, self.columns, self.options = source, columns, options
        self._notes, self._kind_notes = notes, list[str]()
        self.kind_names = kind_names_of(source, options.get("kinds"), self._kind_notes)
        fields = [("src", "i4"), ("dst", "i4"), ("time", "i8"), *([("weight", "f8")] if "weight" in columns else [])]
        self.record = np.dtype(fields)
        self.facts = Facts()

    @classmethod
    def open(cls, path: Path, options: Reading) -> Log:
        """Open a file, choose its columns, and refuse options that need the whole log at once."""
        check_choices(*(options.get(name, default) for name, default in CHOICES))
        if options.get("split_dst") is not None:
            raise EventsError("split_dst= cannot be cut on disk; read the log in memory, or split its rows first")
        source = open_in_batches(path, options)
        asked: dict[str, Column] = {role: options.get(role) for role in ("src", "dst", "time", "weight")}  # type: ignore[misc]
        columns, notes = choose_columns(source, asked, options.get("pair_separator"))
        return cls(source, columns, [*notes, *source.notes], options)

    @property
    def size(self) -> int:
        """Number of distinct labels."""
        return len(self.labels)

    @property
    def notes(self) -> list[str]:
        """The notes of `read_events`, without hints on labels."""
        facts = self.facts
        return [
            *self._notes,
            *negative_note(facts.negative, self.options.get("negative_weights", "error")),
            *skipped_note(facts.skipped, facts.rows),
            *([facts.time_note] if facts.time_note else []),
            *self._kind_notes,
            *idle_note(facts.idle),
        ]

    def landmarks(self) -> NDArray[np.int64]:
        """The sorted times that `window_edges` needs."""
        inside = self.facts.inside
        return np.unique([*self.facts.times, *(inside if inside[0] != NEVER else ())])

    def check(self) -> None:
        """Refuse times that are implausible, and too few events."""
        if self.facts.clock == "utc" and self.facts.parsed[0] != NEVER:
            with naming(self.source.name):
                check_plausible(*self.facts.parsed)
        check_number(self.source.name, self.facts.num_events, 2)

    def read_times(self) -> ReadTimes:
        """Pass over the times once, and return a function that parses them batch by batch."""
        name, (pattern, unit) = self.columns["time"], (self.options.get("time_format"), self.options.get("time_unit"))

        def batches() -> Iterator[pl.Series]:
            return (part[name] for part in self.batches([name]))

        with explained(self.source.name, "events"), naming(self.source.name):
            return time_reader(batches, pattern, unit, self.options.get("timezone", "UTC"))

    def records(self, read_times: ReadTimes, start: Moment | None, stop: Moment | None) -> Iterator[Records]:
        """The records of all good rows, batch by batch; `facts` and `labels` are complete after the last."""
        labels, offset = GrowingLabels(), 0

        def named(column: pl.Series) -> Times:
            with naming(self.source.name):
                return read_times(column)

        for table in self._tables():
            with explained(self.source.name, "events"):
                records, times = self._records(table, offset, named, labels)
            self._meet(records["time"], times, start, stop)
            yield records
            offset += len(table)
        self.labels = labels.labels()

    def batches(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Columns of the log, batch by batch."""
        if self.source.batches is not None:
            yield from self.source.batches(columns)

    def _tables(self) -> Iterator[pl.DataFrame]:
        """The columns of the log by role, batch by batch."""
        batches = self.batches(list(dict.fromkeys(self.columns.values())))
        while True:
            with explained(self.source.name, "events"):
                read = next(batches, None)
                if read is None:
                    return
                table = by_role(self.source, read, self.columns, self.options.get("pair_separator"))
            yield table.with_columns(_as_texts(table))

    def _records(
        self, table: pl.DataFrame, offset: int, read_times: ReadTimes, labels: GrowingLabels
    ) -> tuple[Records, Times]:
        """Parse and check the rows of a table; `offset` rows were before it."""
        options, facts = self.options, self.facts
        source = replace(self.source, locate=lambda row: self.source.locate(row + offset))
        rows = Rows(source, table, skip=options.get("bad_rows") == "skip")
        decimal = options.get("decimal")
        if decimal is None and "weight" in self.columns:
            check_plain(rows, self.columns["weight"])
        pattern, zone = options.get("time_format"), options.get("timezone", "UTC")
        found = parse_rows(
            rows,
            self.columns,
            Limits.of(options.get("limits")),
            read_times,
            lambda cell: complain_about_time(cell, table["time"], pattern, zone),
            decimal=decimal,
            negative_weights=options.get("negative_weights", "error"),
            normalise_labels=options.get("normalise_labels", False),
        )
        good, weights = rows.good, found.weights.values
        facts.rows += rows.num_rows
        facts.skipped += rows.num_skipped
        facts.negative += found.weights.negative
        if weights is not None:
            facts.idle += int((weights[good] == 0).sum())
            good = good & (weights > 0)
        records = np.empty(int(good.sum()), dtype=self.record)
        sides = found.labels if good.all() else tuple(side.filter(good) for side in found.labels)
        records["src"], records["dst"] = labels.number(sides)
        records["time"] = found.times.values.filter(good).to_numpy()
        if weights is not None:
            records["weight"] = weights[good]
        return records, found.times

    def _meet(self, time: NDArray[np.int64], times: Times, start: Moment | None, stop: Moment | None) -> None:
        """Count events and widen the ranges of their times."""
        met = Facts(num_events=len(time), clock=times.clock, time_note=times.note)
        if len(values := times.values.drop_nulls()):
            met.parsed = _ends(values)
        if len(time):
            met.times = _ends(time)
            if start is not None:
                time = time[time >= as_moment(start, times.clock, "start")]
            if stop is not None:
                time = time[time < as_moment(stop, times.clock, "stop")]
        if len(time):
            met.inside = _ends(time)
        self.facts.merge(met)


def open_in_batches(path: Path, options: Reading, name: str | None = None) -> Source:
    """Open a file that can be read in batches; errors call it `name`, or else its path."""
    asked = [options.get(role) for role in ("src", "dst", "time", "weight")]
    with explained(name or str(path), "events"):
        source = open_file(
            path,
            format=options.get("format"),
            header=options.get("header"),
            separator=options.get("separator"),
            encoding=options.get("encoding"),
            wanted=[str(column) for column in asked if column is not None],
            limits=Limits.of(options.get("limits")),
            on_disk=True,
            name=name,
        )
    if source.batches is None:
        raise EventsError(f"{source.name}: this file{NOT_IN_BATCHES}")
    return source


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put the name of the file before an error of a time, unless it is there."""
    try:
        yield
    except EventsError as problem:
        if str(problem).startswith((f"{name}: ", f"{name}, ")):
            raise
        raise EventsError(f"{name}: {problem}") from None


def _ends(values: Any) -> tuple[int, int]:
    return int(values.min()), int(values.max())


def _as_texts(table: pl.DataFrame) -> list[pl.Series]:
    """Labels of types that may or may not fit into 64 bits as texts, so that all batches have the same type."""
    import polars as pl

    safe = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
    sides = [table["src"], table["dst"]]
    if all(side.dtype in safe or side.dtype.is_float() for side in sides):
        return []
    return [side.cast(pl.String) for side in sides if side.dtype.is_integer()]


# ---- windows and nodes ----


class Survey:
    """What a pass over all records finds. A slot is a label; with two kinds, those of the second follow all others.

    Attributes:
        counts: events before the first window, in each, and after the last; first: time of the first event of every
        slot that is used, NEVER if none is; appeared: the same for all events, if labels are texts; sides: which
        labels occur in each column; loops: self-loops inside the windows; ordered: whether records are in order of
        windows.
    """

    def __init__(self, edges: Sequence[int], size: int, *, two_kinds: bool, texts: bool, keep_loops: bool) -> None:
        self.edges, self.size, self.two_kinds, self.keep_loops = np.array(edges), size, two_kinds, keep_loops
        slots = size * (2 if two_kinds else 1)
        self.counts = np.zeros(len(edges) + 1, dtype=np.int64)
        self.first = np.full(slots, NEVER)
        self.appeared = np.full(slots, NEVER) if texts else None
        self.sides = np.zeros((2, size), dtype=bool)
        self.loops, self.ordered, self._latest = 0, True, 0

    @property
    def cuts(self) -> NDArray[np.int64]:
        """Events before the first window, and up to the end of each."""
        return np.cumsum(self.counts)[:-1]

    def add(self, records: Records) -> NDArray[np.bool_]:
        """Take in the next records, at least one; return which of them are part of the graph."""
        src, dst = slots(records, self.size, two_kinds=self.two_kinds)
        time = np.ascontiguousarray(records["time"])
        window = np.searchsorted(self.edges, time, side="right")
        self.counts += np.bincount(window, minlength=len(self.counts))
        self.ordered = bool(self.ordered and window[0] >= self._latest and not (window[1:] < window[:-1]).any())
        self._latest = int(window[-1])
        self.sides[0, records["src"]], self.sides[1, records["dst"]] = True, True
        used = (window > 0) & (window < len(self.edges))
        loop = src == dst
        self.loops += int((used & loop).sum())
        used &= self.keep_loops | ~loop
        every = used.all()
        for end in (src, dst):
            if self.appeared is not None:
                np.minimum.at(self.appeared, end, time)
            np.minimum.at(self.first, end if every else end[used], time if every else time[used])
        return used


def slots(records: Records, size: int, *, two_kinds: bool) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Both nodes of events; with two kinds, those of the second column follow all of the first."""
    src, dst = records["src"], records["dst"]
    return src, dst + np.int32(size) if two_kinds else dst


@dataclass
class Nodes:
    """The slots that are nodes, in the order of their ids, and the moment at which each appears first."""

    slots: NDArray[np.int64]
    moments: NDArray[np.int64]

    def ranks(self, number: int) -> NDArray[np.int32]:
        """The id of every slot, −1 if it is no node."""
        ranks = np.full(number, -1, dtype=np.int32)
        ranks[self.slots] = np.arange(len(self.slots), dtype=np.int32)
        return ranks


def order_nodes(first: NDArray[np.int64], labels: pl.Series, size: int) -> Nodes:
    """Order slots by their first appearance, kind and label."""
    slots = np.flatnonzero(first != NEVER)
    slots = slots[np.argsort(first[slots], kind="stable")]
    order = break_ties(first[slots], slots // size, lambda tied: labels.gather(slots[tied] % size))
    slots = slots[order]
    return Nodes(slots, first[slots])


# ---- the graph ----


class Cut:
    """The graph that becomes of a log: its nodes, and the arrays and facts of its folder.

    Raises an error if the windows hold no events, or nothing but self-loops that are left out.
    """

    def __init__(self, log: Log, survey: Survey, edges: Sequence[int], *, chosen: bool, directed: bool) -> None:
        self.log, self.survey, self.edges, self.directed = log, survey, edges, directed
        self.timed = log.facts.clock == "utc"
        cuts = survey.cuts
        check_covered(log.landmarks(), log.facts.clock, edges, cuts, chosen=chosen)
        self.inside = int(cuts[-1] - cuts[0])
        self.dropped = 0 if survey.keep_loops else survey.loops
        if self.dropped == self.inside:
            raise SnapshotsError(only_loops(self.dropped))
        self.nodes = order_nodes(survey.first, log.labels, log.size)
        if len(self.nodes.slots) > MAX_NODES:
            raise GraphError(f"{len(self.nodes.slots):,} nodes are more than a graph can hold ({MAX_NODES:,})")
        self.known: list[int] = np.searchsorted(self.nodes.moments, edges[1:]).tolist()
        self._rows: list[int] = []
        self._entries: list[int] = []

    @property
    def bytes(self) -> int:
        """The size of the graph if no link has two events."""
        return self.inside * LINK + len(self.survey.first) * NODE

    def hints(self, count_pairs: Callable[[], tuple[int, int]]) -> list[str]:
        """The notes of `read_events` on labels that look wrong."""
        log, survey = self.log, self.survey
        hints, labels = [], to_labels(log.labels)
        if survey.appeared is not None:
            slots = order_nodes(survey.appeared, log.labels, log.size).slots
            kinds = (slots // log.size).astype(np.uint8) if log.kind_names else None
            hints += label_notes(labels[slots % log.size], kinds, log.columns["dst"])
        if may_be_two_kinds(log.source, log.kind_names, log.columns):
            hints += kinds_note(log.columns, survey.sides, labels, count_pairs)
        return hints

    def write_labels(self, writer: FolderWriter) -> None:
        """Write the labels of all nodes."""
        labels = self.log.labels.gather(self.nodes.slots % self.log.size)
        for name, array in pack_labels(to_labels(labels)).items():
            writer.append(name, array)

    def write_rows(self, writer: FolderWriter, arrays: dict[str, NDArray[Any]], *, more: bool) -> None:
        """Append the rows of the next window, or, with `more`, those of the next nodes of the same window."""
        if not more:
            self._rows.append(0)
            self._entries.append(0)
        arrays["offsets"] = arrays["offsets"][int(more) :] + self._entries[-1]
        for name in (*CSR, *(SENT,) * self.directed, *(LATEST,) * self.timed):
            writer.append(name, arrays[name])
        self._rows[-1] += len(arrays["rows"])
        self._entries[-1] += len(arrays["neighbours"])

    def finish(self, writer: FolderWriter, hints: Sequence[str]) -> None:
        """Write the kinds and the manifest."""
        log, survey, edges = self.log, self.survey, self.edges
        facts, cuts = log.facts, survey.cuts
        if log.kind_names:
            writer.append("kinds", (self.nodes.slots // log.size).astype(np.uint8))
        report = Report(
            events=facts.num_events,
            used=self.inside - self.dropped,
            before=int(cuts[0]),
            after=facts.num_events - int(cuts[-1]),
            self_loops=survey.loops,
            self_loops_kept=survey.keep_loops,
            covered=coverage(facts.times[1], facts.clock, edges),
        )
        manifest = graph_manifest(
            clock=facts.clock,
            boundaries=edges,
            known=self.known,
            rows=self._rows,
            entries=self._entries,
            kind_names=log.kind_names,
            report=report,
            notes=(*log.notes, *hints, *coverage_note(facts.times[1], facts.clock, edges, "stop=")),
            directed=self.directed,
        )
        writer.finish("graph", FORMAT_VERSION, manifest)
