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
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import compress, fractions
from dysat.data.graph import TWO_KINDS, DynamicGraph
from dysat.data.reading.limits import Limits
from dysat.data.reading.spelling import count_pairs
from dysat.data.records import Cut, Log, Reading, Records, Survey, slots
from dysat.data.snapshots import check_self_loops, window_edges
from dysat.data.windows import Every, Moment
from dysat.errors import EventsError, GraphError, SnapshotsError
from dysat.system.storage import FolderWriter, writing_folder
from dysat.system.writing import size_text

RECORDS = 1 << 20  # records that are read or written at once
ENTRIES = 1 << 24  # entries of a window that are sorted at once
EVENT = 240  # bytes of memory per event that is read at once; measured with addresses as labels and with weights
SHARE = 0.8  # of the free memory, beyond which a log is cut on disk
SMALL = 10_000_000  # bytes of a file that fits anywhere


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
    log = Log.open(Path(source), reading)
    if directed and log.kind_names:
        raise SnapshotsError(TWO_KINDS)
    rows = log.source.num_rows
    needed = None if rows is None else rows * log.record.itemsize
    _check_disk(Path(folder), needed)
    with writing_folder(folder, "graph", overwrite=overwrite, needed=needed, error=GraphError) as writer:
        on_progress(f"reading {source}")
        spool = _Spool(log, writer.folder.parent / "events")
        spool.write(start, stop)
        on_progress(f"cutting {log.facts.num_events:,} events into snapshots")
        edges = window_edges(log.landmarks(), log.facts.clock, every, boundaries, count, start, stop)
        survey = Survey(
            edges,
            log.size,
            two_kinds=bool(log.kind_names),
            texts=not log.labels.dtype.is_integer(),
            keep_loops=self_loops == "keep",
        )
        for records in spool.chunks():
            survey.add(records)
        cut = Cut(log, survey, edges, chosen=boundaries is not None, directed=directed)
        size = log.facts.num_events * log.record.itemsize
        writer.needed = size * (1 if survey.ordered else 2) + cut.bytes
        hints = cut.hints(lambda: _count_pairs(log, spool))
        places = survey.cuts
        if not survey.ordered:
            on_progress("sorting events by window")
            places -= places[0]
            spool.sort(edges, places)
        on_progress(f"writing {folder}")
        cut.write_labels(writer)
        build = _Builder(cut, spool)
        for window, (first, last) in enumerate(pairwise(places.tolist())):
            build.write(writer, window, first, last)
        cut.finish(writer, hints)
    return DynamicGraph.load(folder, verify=False)


def is_large(source: str | os.PathLike[str], **reading: Unpack[Reading]) -> bool:
    """Whether a log can be cut on disk and would take more than `SHARE` of the free memory if it were read at once."""
    if _size(Path(source)) < SMALL:
        return False
    try:
        rows = Log.open(Path(source), reading).source.num_rows
    except EventsError:
        return False
    return rows is not None and rows * EVENT > SHARE * Limits.of(reading.get("limits")).bytes()


def _size(path: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _check_disk(folder: Path, needed: int | None) -> None:
    """Refuse before any work if the temporary files do not fit on the disk."""
    there = next((above for above in Path(os.path.abspath(folder)).parents if above.is_dir()), None)
    if there is None or needed is None:
        return
    free = shutil.disk_usage(there).free
    if needed > free:
        what = f"{size_text(needed)} needed for temporary files, {size_text(free)} free"
        raise GraphError(f"{there}: not enough room on the disk ({what}); choose a folder on a larger disk")


# ---- records in a file ----


class _Spool:
    """The records of a log in a temporary file."""

    def __init__(self, log: Log, file: Path) -> None:
        self.log, self.file = log, file

    def write(self, start: Moment | None, stop: Moment | None) -> None:
        """Write the records of all good rows."""
        read_times = self.log.read_times()
        with open(self.file, "wb") as out:
            for records in self.log.records(read_times, start, stop):
                out.write(records.data)
        self.log.check()

    def chunks(self, first: int = 0, stop: int | None = None) -> Iterator[Records]:
        """The records [first, stop), in parts."""
        stop = self.log.facts.num_events if stop is None else stop
        size = self.log.record.itemsize
        for at in range(first, stop, RECORDS):
            number = min(stop, at + RECORDS) - at
            yield np.fromfile(self.file, self.log.record, count=number, offset=at * size)

    def sort(self, edges: Sequence[int], places: NDArray[np.int64]) -> None:
        """Replace the file by one that holds the records in the windows only, window by window, at `places`."""
        ordered, size = self.file.with_name("windows"), self.log.record.itemsize
        at = places[:-1].copy()
        with open(ordered, "wb", buffering=0) as out:
            for records in self.chunks():
                window = np.searchsorted(edges, records["time"], side="right") - 1
                order = np.argsort(window, kind="stable")
                starts = np.searchsorted(window[order], np.arange(len(edges)))
                for here in np.flatnonzero(starts[1:] > starts[:-1]):
                    part = records[order[starts[here] : starts[here + 1]]]
                    _write_at(out.fileno(), part, int(at[here]) * size)
                    at[here] += len(part)
        ordered.replace(self.file)


def _write_at(file: int, records: Records, at: int) -> None:
    left = memoryview(records.tobytes())
    while left:
        written = os.pwrite(file, left, at)
        left, at = left[written:], at + written


def _count_pairs(log: Log, spool: _Spool) -> tuple[int, int]:
    """Distinct pairs, and those in both directions; a pair and its reverse are in the same share of all pairs."""
    shares = max(1, -(-2 * log.facts.num_events // ENTRIES))
    pairs = returned = 0
    for share in range(shares):
        here = [part[(part["src"] + part["dst"]) % shares == share] for part in spool.chunks()]
        both = np.concatenate([part[["src", "dst"]] for part in here])
        more = count_pairs(both["src"], both["dst"], log.size)
        pairs, returned = pairs + more[0], returned + more[1]
    return pairs, returned


# ---- links ----


class _Builder:
    """Write the links of one window after the other."""

    def __init__(self, cut: Cut, spool: _Spool) -> None:
        self.cut, self.spool = cut, spool
        self.ranks = cut.nodes.ranks(len(cut.survey.first))

    def write(self, writer: FolderWriter, window: int, first: int, stop: int) -> None:
        """Append the arrays of a window, which has the records [first, stop)."""
        for number, nodes in enumerate(self._ranges(first, stop)):
            self.cut.write_rows(writer, self._compress(window, first, stop, nodes), more=number > 0)

    def _ranges(self, first: int, stop: int) -> list[tuple[int, int] | None]:
        """Ranges of nodes with at most about `ENTRIES` entries each, or one of all nodes."""
        if 2 * (stop - first) <= ENTRIES:
            return [None]
        degrees = np.zeros(len(self.ranks) + 1, dtype=np.int64)
        for records in self.spool.chunks(first, stop):
            for end in self._slots(records):
                degrees += np.bincount(self.ranks[end] + 1, minlength=len(degrees))
        share = np.cumsum(degrees[1:]) // ENTRIES
        starts = [0, *(np.flatnonzero(share[1:] > share[:-1]) + 1).tolist(), len(share)]
        return list(pairwise(starts))

    def _compress(self, window: int, first: int, stop: int, nodes: tuple[int, int] | None) -> dict[str, NDArray[Any]]:
        none = np.empty(0, dtype=self.cut.log.record)  # a window may have no records
        parts = [self._links(records, window, nodes) for records in (none, *self.spool.chunks(first, stop))]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        weights, latest = columns.get("weights"), columns.get("latest")
        keep, directed = self.cut.survey.keep_loops, self.cut.directed
        return compress(
            columns["u"], columns["v"], weights, self_loops=keep, directed=directed, latest=latest, nodes=nodes
        )

    def _links(self, records: Records, window: int, nodes: tuple[int, int] | None) -> dict[str, NDArray[Any]]:
        """Both nodes of events, their weights and their times in a window; only events that touch `nodes`."""
        u, v = (self.ranks[slot] for slot in self._slots(records))
        links: dict[str, NDArray[Any]] = {"u": u, "v": v}
        if "weight" in self.cut.log.columns:
            links["weights"] = records["weight"]
        if self.cut.timed:
            links["latest"] = fractions(records["time"], *self.cut.edges[window : window + 2])
        if nodes is None:
            return links
        low, high = nodes
        here = ((u >= low) & (u < high)) | ((v >= low) & (v < high))
        return {name: column[here] for name, column in links.items()}

    def _slots(self, records: Records) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return slots(records, self.cut.log.size, two_kinds=bool(self.cut.log.kind_names))
