"""Cut a log that is larger than memory into the same graph, bit for bit, as `read_events` and `build_snapshots`.

The log is read in batches. Each event becomes a record of fixed size in a temporary file beside the graph: the numbers
of its labels, its time and its weight. A second pass counts the events of every window and finds when each node appears
first. Unless the log is sorted by time, a third pass writes the records window by window. Then each window is summed by
the code that builds snapshots in memory, in ranges of nodes if it is large, and appended to the arrays of the graph.
Memory grows with the number of nodes, not of events.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import CSR, MAX_NODES, SENT, compress
from dysat.data.events import (
    check_choices,
    check_number,
    complain_about_time,
    idle_note,
    kind_names_of,
    may_be_two_kinds,
    parse_rows,
)
from dysat.data.graph import FORMAT_VERSION, TWO_KINDS, DynamicGraph, graph_manifest
from dysat.data.reading.batches import ReadTimes, time_reader
from dysat.data.reading.columns import Column, Rows, by_role, choose_columns, skipped_note
from dysat.data.reading.files import NOT_IN_BATCHES, Format, open_file
from dysat.data.reading.labels import GrowingLabels, break_ties, pack_labels, to_labels
from dysat.data.reading.limits import Limits
from dysat.data.reading.sources import Source, explained
from dysat.data.reading.spelling import count_pairs, kinds_note, label_notes
from dysat.data.reading.times import Times, TimeUnit, check_plausible
from dysat.data.reading.weights import Decimal, NegativeWeights, check_plain, negative_note
from dysat.data.snapshots import (
    check_covered,
    check_self_loops,
    coverage,
    coverage_note,
    only_loops,
    window_edges,
)
from dysat.data.summary import Report
from dysat.data.windows import Clock, Every, Moment, as_moment
from dysat.errors import EventsError, GraphError, SnapshotsError
from dysat.system.storage import FolderWriter, writing_folder
from dysat.system.writing import size_text

if TYPE_CHECKING:
    import polars as pl

RECORDS = 1 << 20  # records that are read or written at once
ENTRIES = 1 << 24  # entries of a window that are sorted at once
EVENT = 240  # bytes of memory per event that is read at once; measured with addresses as labels and with weights
SHARE = 0.8  # of the free memory, beyond which a log is cut on disk
SMALL = 10_000_000  # bytes of a file that fits anywhere
LINK, NODE = 48, 32  # bytes of the graph per event and node, if no link has two events
NEVER = np.iinfo(np.int64).max
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


def cut_on_disk(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    every: Every | None = None,
    boundaries: Sequence[Moment] | None = None,
    count: int | None = None,
    start: Moment | None = None,
    stop: Moment | None = None,
    self_loops: Literal["keep", "drop"] = "drop",
    directed: bool = False,
    overwrite: bool = False,
    on_progress: Callable[[str], None] = lambda text: None,
    **reading: Unpack[Reading],
) -> DynamicGraph:
    """Cut a log that may be larger than memory into snapshots, write the graph to a folder, and return it mapped.

    The graph equals that of `read_events` and `build_snapshots`, which explain the options. Temporary files of 16 bytes
    per event (24 with weights, and twice as much if the log is not sorted by time) are written beside the folder.

    Parameters:
        source: a Parquet file, a folder of Parquet parts, or a CSV file in UTF-8, plain or compressed with gzip.
        folder: where to write the graph.
        every, boundaries, count, start, stop, self_loops, directed: as in `build_snapshots`.
        overwrite: replace a graph folder that exists.
        on_progress: called with a text when a new stage begins.
        reading: the options of `read_events`, except `split_dst` and `at_least`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as place:
        ...     written = Path(place, "log.csv").write_text("src,dst,time\\nann,bob,2024-01-01\\nbob,cy,2024-01-09\\n")
        ...     cut_on_disk(Path(place, "log.csv"), Path(place, "graph"), every="1w").known
        (2, 3)
    """
    check_self_loops(self_loops)
    log = _Log.open(Path(source), reading)
    if directed and log.kind_names:
        raise SnapshotsError(TWO_KINDS)
    rows = log.source.num_rows
    needed = None if rows is None else rows * log.record.itemsize
    _check_disk(Path(folder), needed)
    with writing_folder(folder, "graph", overwrite=overwrite, needed=needed, error=GraphError) as writer:
        spool = writer.folder.parent / "events"
        on_progress(f"reading {source}")
        log.spool(spool, start, stop)
        on_progress(f"cutting {log.num_events:,} events into snapshots")
        edges = window_edges(log.landmarks(), log.clock, every, boundaries, count, start, stop)
        windows = _count(log, spool, edges, self_loops == "keep")
        check_covered(log.landmarks(), log.clock, edges, windows.cuts, chosen=boundaries is not None)
        inside = int(windows.cuts[-1] - windows.cuts[0])
        dropped = windows.loops if self_loops == "drop" else 0
        if dropped == inside:
            raise SnapshotsError(only_loops(dropped))
        size = log.num_events * log.record.itemsize
        writer.needed = size * (1 if windows.sorted else 2) + inside * LINK + len(windows.first) * NODE
        nodes = _order(windows.first, log.labels, log.size)
        _check_size(len(nodes.slots))
        hints = _hints(log, spool, windows)
        if not windows.sorted:
            on_progress("sorting events by window")
            _sort(log, spool, edges, windows)
        on_progress(f"writing {folder}")
        for name, array in pack_labels(to_labels(log.labels.gather(nodes.slots % log.size))).items():
            writer.append(name, array)
        build = _Builder(log, spool, nodes.ranks(len(windows.first)), self_loops == "keep", directed)
        rows_and_entries = [build.write(writer, *here) for here in pairwise(windows.places.tolist())]
        if log.kind_names:
            writer.append("kinds", (nodes.slots // log.size).astype(np.uint8))
        report = Report(
            events=log.num_events,
            used=inside - dropped,
            before=int(windows.cuts[0]),
            after=log.num_events - int(windows.cuts[-1]),
            self_loops=windows.loops,
            self_loops_kept=self_loops == "keep",
            covered=coverage(log.last, log.clock, edges),
        )
        manifest = graph_manifest(
            clock=log.clock,
            boundaries=edges,
            known=np.searchsorted(nodes.moments, edges[1:]).tolist(),
            rows=[rows for rows, _ in rows_and_entries],
            entries=[entries for _, entries in rows_and_entries],
            kind_names=log.kind_names,
            report=report,
            notes=(*log.notes, *hints, *coverage_note(log.last, log.clock, edges, "stop=")),
            directed=directed,
        )
        writer.finish("graph", FORMAT_VERSION, manifest)
    return DynamicGraph.load(folder, verify=False)


def is_large(source: str | os.PathLike[str], **reading: Unpack[Reading]) -> bool:
    """Whether a log can be cut on disk and would take more than `SHARE` of the free memory if it were read at once."""
    if _size(Path(source)) < SMALL:
        return False
    try:
        rows = _Log.open(Path(source), reading).source.num_rows
    except EventsError:
        return False
    return rows is not None and rows * EVENT > SHARE * Limits.of(reading.get("limits")).bytes()


def _size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


# ---- reading ----


class _Log:
    """A log as records in a file, and what is known about all of it.

    Attributes:
        record: type of a record; labels, size: the labels, and how many there are; first, last: times of the first
        and the last event; inside: the same for events between `start` and `stop`, if there are any.
    """

    labels: pl.Series
    size: int
    clock: Clock
    first: int = NEVER
    last: int = -NEVER
    inside: tuple[int, int] = (NEVER, -NEVER)

    def __init__(self, source: Source, columns: dict[str, str], notes: list[str], options: Reading) -> None:
        self.source, self.columns, self.options = source, columns, options
        self._notes, more = notes, list[str]()
        self.kind_names = kind_names_of(source, options.get("kinds"), more)
        self._kind_notes = more
        fields = [("src", "i4"), ("dst", "i4"), ("time", "i8"), *([("weight", "f8")] if "weight" in columns else [])]
        self.record = np.dtype(fields)
        self.num_events = 0
        self._counts = dict.fromkeys(("rows", "skipped", "negative", "idle"), 0)
        self._time_note: str | None = None

    @classmethod
    def open(cls, path: Path, options: Reading) -> _Log:
        """Open a file, choose its columns, and refuse options that need the whole log at once."""
        check_choices(*(options.get(name, default) for name, default in CHOICES))
        if options.get("split_dst") is not None:
            raise EventsError("split_dst= cannot be cut on disk; read the log in memory, or split its rows first")
        asked: dict[str, Column] = {role: options.get(role) for role in ("src", "dst", "time", "weight")}  # type: ignore[misc]
        with explained(str(path), "events"):
            source = open_file(
                path,
                format=options.get("format"),
                header=options.get("header"),
                separator=options.get("separator"),
                encoding=options.get("encoding"),
                wanted=[str(column) for column in asked.values() if column is not None],
                limits=Limits.of(options.get("limits")),
                on_disk=True,
            )
        if source.batches is None:
            raise EventsError(f"{path}: this file{NOT_IN_BATCHES}")
        columns, notes = choose_columns(source, asked, options.get("pair_separator"))
        return cls(source, columns, [*notes, *source.notes], options)

    @property
    def notes(self) -> list[str]:
        """The notes of `read_events`, without hints on labels."""
        counts = self._counts
        return [
            *self._notes,
            *negative_note(counts["negative"], self.options.get("negative_weights", "error")),
            *skipped_note(counts["skipped"], counts["rows"]),
            *([self._time_note] if self._time_note else []),
            *self._kind_notes,
            *idle_note(counts["idle"]),
        ]

    def landmarks(self) -> NDArray[np.int64]:
        """The sorted times that `window_edges` needs."""
        return np.unique([self.first, self.last, *(self.inside if self.inside[0] != NEVER else ())])

    def spool(self, file: Path, start: Moment | None, stop: Moment | None) -> None:
        """Write the records of all good rows."""
        labels, offset, ends = GrowingLabels(), 0, (NEVER, -NEVER)
        with explained(self.source.name, "events"):
            read_times = self._time_reader()
        with open(file, "wb") as out:
            for table in self._tables():
                with explained(self.source.name, "events"):
                    records, times = self._records(table, offset, read_times, labels)
                if len(values := times.values.drop_nulls()):
                    ends = min(ends[0], int(values.min())), max(ends[1], int(values.max()))  # type: ignore[arg-type]
                self._meet(records["time"], times.clock, start, stop)
                out.write(records.data)
                offset += len(table)
        if self.clock == "utc" and ends[0] != NEVER:
            with self._naming_the_file():
                check_plausible(*ends)
        check_number(self.source.name, self.num_events, 2)
        self.labels = labels.labels()
        self.size = len(self.labels)

    def chunks(self, file: Path, first: int = 0, stop: int | None = None) -> Iterator[Records]:
        """The records [first, stop) of a file, in parts."""
        stop = self.num_events if stop is None else stop
        for at in range(first, stop, RECORDS):
            yield self.read(file, at, min(stop, at + RECORDS))

    def read(self, file: Path, first: int, stop: int) -> Records:
        """The records [first, stop) of a file."""
        return np.fromfile(file, self.record, count=stop - first, offset=first * self.record.itemsize)

    def slots(self, records: Records) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Both nodes of events; with two kinds, those of the second column follow all of the first."""
        src, dst = records["src"], records["dst"]
        return src, dst + np.int32(self.size) if self.kind_names else dst

    def _time_reader(self) -> ReadTimes:
        name, (pattern, unit) = self.columns["time"], (self.options.get("time_format"), self.options.get("time_unit"))

        def batches() -> Iterator[pl.Series]:
            return (part[name] for part in self._batches([name]))

        with self._naming_the_file():
            read = time_reader(batches, pattern, unit, self.options.get("timezone", "UTC"))

        def read_times(column: pl.Series) -> Times:
            with self._naming_the_file():
                return read(column)

        return read_times

    @contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        """Put the name of the file before an error of a time."""
        try:
            yield
        except EventsError as problem:
            raise EventsError(f"{self.source.name}: {problem}") from None

    def _batches(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        if self.source.batches is not None:
            yield from self.source.batches(columns)

    def _tables(self) -> Iterator[pl.DataFrame]:
        """The columns of the log by role, batch by batch."""
        batches = self._batches(list(dict.fromkeys(self.columns.values())))
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
        options = self.options
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
        self._counts["rows"] += rows.num_rows
        self._counts["skipped"] += rows.num_skipped
        self._counts["negative"] += found.weights.negative
        self._time_note = found.times.note
        if weights is not None:
            self._counts["idle"] += int((weights[good] == 0).sum())
            good = good & (weights > 0)
        records = np.empty(int(good.sum()), dtype=self.record)
        sides = found.labels if good.all() else tuple(side.filter(good) for side in found.labels)
        records["src"], records["dst"] = labels.number(sides)
        records["time"] = found.times.values.filter(good).to_numpy()
        if weights is not None:
            records["weight"] = weights[good]
        return records, found.times

    def _meet(self, time: NDArray[np.int64], clock: Clock, start: Moment | None, stop: Moment | None) -> None:
        """Count events and widen the ranges of their times."""
        self.clock = clock
        self.num_events += len(time)
        if not len(time):
            return
        self.first, self.last = min(self.first, int(time.min())), max(self.last, int(time.max()))
        if start is not None:
            time = time[time >= as_moment(start, clock, "start")]
        if stop is not None:
            time = time[time < as_moment(stop, clock, "stop")]
        if len(time):
            self.inside = min(self.inside[0], int(time.min())), max(self.inside[1], int(time.max()))


CHOICES = (("bad_rows", "raise"), ("negative_weights", "error"), ("decimal", None))


def _as_texts(table: pl.DataFrame) -> list[pl.Series]:
    """Labels of types that may or may not fit into 64 bits as texts, so that all batches have the same type."""
    import polars as pl

    safe = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
    sides = [table["src"], table["dst"]]
    if all(side.dtype in safe or side.dtype.is_float() for side in sides):
        return []
    return [side.cast(pl.String) for side in sides if side.dtype.is_integer()]


def _check_disk(folder: Path, needed: int | None) -> None:
    """Refuse before any work if the temporary files do not fit on the disk."""
    there = next((above for above in Path(os.path.abspath(folder)).parents if above.is_dir()), None)
    if there is None or needed is None:
        return
    free = shutil.disk_usage(there).free
    if needed > free:
        what = f"{size_text(needed)} needed for temporary files, {size_text(free)} free"
        raise GraphError(f"{there}: not enough room on the disk ({what}); choose a folder on a larger disk")


def _check_size(nodes: int) -> None:
    if nodes > MAX_NODES:
        raise GraphError(f"{nodes:,} nodes are more than a graph can hold ({MAX_NODES:,})")


# ---- windows and nodes ----


@dataclass
class _Windows:
    """What a pass over all records finds.

    Attributes:
        cuts: events before the first window, and up to the end of each; places: the records of each window in the
        file; first: time of the first event of every slot that is used, NEVER if none is; appeared: the same for all
        events, if labels are texts; sides: which labels occur in each column; loops: self-loops inside the windows;
        sorted: whether the file is in order of windows.
    """

    cuts: NDArray[np.int64]
    places: NDArray[np.int64]
    first: NDArray[np.int64]
    appeared: NDArray[np.int64] | None
    sides: NDArray[np.bool_]
    loops: int
    sorted: bool


def _count(log: _Log, spool: Path, boundaries: Sequence[int], keep_loops: bool) -> _Windows:
    """Count the events of each window, and find when nodes appear first."""
    edges = np.array(boundaries)
    slots = log.size * (2 if log.kind_names else 1)
    counts = np.zeros(len(edges) + 1, dtype=np.int64)  # before, each window, after
    first = np.full(slots, NEVER)
    appeared = np.full(slots, NEVER) if not log.labels.dtype.is_integer() else None
    sides = np.zeros((2, log.size), dtype=bool)
    loops, latest, ordered = 0, 0, True
    for records in log.chunks(spool):
        (src, dst), time = log.slots(records), np.ascontiguousarray(records["time"])
        window = np.searchsorted(edges, time, side="right")
        counts += np.bincount(window, minlength=len(counts))
        ordered = ordered and window[0] >= latest and not (window[1:] < window[:-1]).any()
        latest = int(window[-1])
        sides[0, records["src"]], sides[1, records["dst"]] = True, True
        used = (window > 0) & (window < len(edges))
        loop = src == dst
        loops += int((used & loop).sum())
        used &= keep_loops | ~loop
        every = used.all()
        for end in (src, dst):
            if appeared is not None:
                np.minimum.at(appeared, end, time)
            np.minimum.at(first, end if every else end[used], time if every else time[used])
    places = np.concatenate([[0], np.cumsum(counts)])
    cuts = places[1:-1].copy()
    return _Windows(cuts, cuts.copy(), first, appeared, sides, loops, bool(ordered))


@dataclass
class _Nodes:
    """The slots that are nodes, in the order of their ids, and the moment at which each appears first."""

    slots: NDArray[np.int64]
    moments: NDArray[np.int64]

    def ranks(self, number: int) -> NDArray[np.int32]:
        """The id of every slot, −1 if it is no node."""
        ranks = np.full(number, -1, dtype=np.int32)
        ranks[self.slots] = np.arange(len(self.slots), dtype=np.int32)
        return ranks


def _order(first: NDArray[np.int64], labels: pl.Series, size: int) -> _Nodes:
    """Order slots by their first appearance, kind and label."""
    slots = np.flatnonzero(first != NEVER)
    slots = slots[np.argsort(first[slots], kind="stable")]
    order = break_ties(first[slots], slots // size, lambda tied: labels.gather(slots[tied] % size))
    slots = slots[order]
    return _Nodes(slots, first[slots])


def _hints(log: _Log, spool: Path, windows: _Windows) -> list[str]:
    """The notes of `read_events` on labels that look wrong."""
    hints, labels = [], to_labels(log.labels)
    if windows.appeared is not None:
        slots = _order(windows.appeared, log.labels, log.size).slots
        kinds = (slots // log.size).astype(np.uint8) if log.kind_names else None
        hints += label_notes(labels[slots % log.size], kinds, log.columns["dst"])
    if may_be_two_kinds(log.source, log.kind_names, log.columns):
        hints += kinds_note(log.columns, windows.sides, labels, lambda: _count_pairs(log, spool))
    return hints


def _count_pairs(log: _Log, spool: Path) -> tuple[int, int]:
    """Distinct pairs, and those in both directions; a pair and its reverse are in the same share of all pairs."""
    shares = max(1, -(-2 * log.num_events // ENTRIES))
    pairs = returned = 0
    for share in range(shares):
        here = [part[(part["src"] + part["dst"]) % shares == share] for part in log.chunks(spool)]
        both = np.concatenate([part[["src", "dst"]] for part in here])
        more = count_pairs(both["src"], both["dst"], log.size)
        pairs, returned = pairs + more[0], returned + more[1]
    return pairs, returned


def _sort(log: _Log, spool: Path, edges: Sequence[int], windows: _Windows) -> None:
    """Replace the file by one that holds the records in the windows only, window by window."""
    ordered, size = spool.with_name("windows"), log.record.itemsize
    windows.places -= windows.places[0]
    at = windows.places[:-1].copy()
    with open(ordered, "wb", buffering=0) as out:
        for records in log.chunks(spool):
            window = np.searchsorted(edges, records["time"], side="right") - 1
            order = np.argsort(window, kind="stable")
            starts = np.searchsorted(window[order], np.arange(len(edges)))
            for here in np.flatnonzero(starts[1:] > starts[:-1]):
                part = records[order[starts[here] : starts[here + 1]]]
                _write_at(out.fileno(), part, int(at[here]) * size)
                at[here] += len(part)
    ordered.replace(spool)


def _write_at(file: int, records: Records, at: int) -> None:
    left = memoryview(records.tobytes())
    while left:
        written = os.pwrite(file, left, at)
        left, at = left[written:], at + written


# ---- links ----


class _Builder:
    """Write the links of one window after the other."""

    def __init__(self, log: _Log, spool: Path, ranks: NDArray[np.int32], keep_loops: bool, directed: bool) -> None:
        self.log, self.spool, self.ranks, self.keep_loops, self.directed = log, spool, ranks, keep_loops, directed

    def write(self, writer: FolderWriter, first: int, stop: int) -> tuple[int, int]:
        """Append the arrays of the window with the records [first, stop); return its numbers of rows and entries."""
        rows = entries = 0
        for number, nodes in enumerate(self._ranges(first, stop)):
            arrays = self._compress(first, stop, nodes)
            arrays["offsets"] = arrays["offsets"][bool(number) :] + entries
            for name in (*CSR, *(SENT,) * self.directed):
                writer.append(name, arrays[name])
            rows, entries = rows + len(arrays["rows"]), entries + len(arrays["neighbours"])
        return rows, entries

    def _ranges(self, first: int, stop: int) -> list[tuple[int, int] | None]:
        """Ranges of nodes with at most about `ENTRIES` entries each, or one of all nodes."""
        if 2 * (stop - first) <= ENTRIES:
            return [None]
        degrees = np.zeros(len(self.ranks) + 1, dtype=np.int64)
        for records in self.log.chunks(self.spool, first, stop):
            for end in self.log.slots(records):
                degrees += np.bincount(self.ranks[end] + 1, minlength=len(degrees))
        share = np.cumsum(degrees[1:]) // ENTRIES
        starts = [0, *(np.flatnonzero(share[1:] > share[:-1]) + 1).tolist(), len(share)]
        return list(pairwise(starts))

    def _compress(self, first: int, stop: int, nodes: tuple[int, int] | None) -> dict[str, NDArray[Any]]:
        parts = [self._links(records, nodes) for records in self.log.chunks(self.spool, first, stop)]
        u, v = (np.concatenate([np.empty(0, dtype=np.int32), *(part[i] for part in parts)]) for i in (0, 1))
        weights = None
        if "weight" in (self.log.record.names or ()):
            weights = np.concatenate([np.empty(0), *(part[2] for part in parts)])
        return compress(u, v, weights, self_loops=self.keep_loops, directed=self.directed, nodes=nodes)

    def _links(self, records: Records, nodes: tuple[int, int] | None) -> list[NDArray[Any]]:
        """Both nodes of events, and their weights; only events that touch `nodes`."""
        u, v = (self.ranks[slot] for slot in self.log.slots(records))
        links = [u, v, *([records["weight"]] if "weight" in (self.log.record.names or ()) else [])]
        if nodes is None:
            return links
        low, high = nodes
        here = ((u >= low) & (u < high)) | ((v >= low) & (v < high))
        return [part[here] for part in links]
