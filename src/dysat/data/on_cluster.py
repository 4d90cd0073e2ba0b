"""Cut a log that is larger than one disk on a Ray cluster, into the same graph, bit for bit, as on one machine.

The log is divided into parts. A task per part reads its rows as records, whose labels have numbers of the part. Labels
are then divided into buckets by their hash, and a task per bucket finds its distinct labels and when each appears
first. The program that started the tasks puts all nodes in order. A task per part replaces numbers by the ids of nodes
and divides records by window. A task per cell, which is some windows or a range of the nodes of one, sums their links.

Records stay in Ray's object store, which moves them to the disks of the machines when memory is short. Every task
depends on its inputs alone, so Ray can repeat those of a machine that is lost. Memory of the program that started them
grows with the number of nodes, and that of a task with the nodes and its part.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import compress, distinct, fractions
from dysat.data.graph import TWO_KINDS, DynamicGraph
from dysat.data.reading.batches import Numbers, NumberType, first_times, number_type, reader_of
from dysat.data.reading.files import Part, is_parquet, open_parquet_part, parquet_parts
from dysat.data.reading.limits import Limits
from dysat.data.reading.sources import explained
from dysat.data.reading.spelling import count_pairs
from dysat.data.records import NEVER, Cut, Facts, Log, Reading, Records, Survey, naming, open_in_batches, slots
from dysat.data.snapshots import check_self_loops, window_edges
from dysat.data.windows import Every, Moment
from dysat.errors import DysatError, EventsError, GraphError, SnapshotsError
from dysat.system.extras import require
from dysat.system.parallel.cluster import cluster, first_sentence
from dysat.system.storage import FolderWriter, writing_folder

if TYPE_CHECKING:
    import polars as pl

LEAST, MOST = 1 << 18, 1 << 24  # rows of a part
BUCKETS = 64  # of labels, at most
ENTRIES = 1 << 24  # entries of a cell, about
RECORDS = 1 << 20  # records that are surveyed at once
RETRIES = 10  # of a task whose machine is lost
Ids = NDArray[np.int32]
Index = NDArray[np.int64]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def cut_on_cluster(
    sources: Paths,
    folder: str | os.PathLike[str],
    *,
    address: str | None = None,
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
    """Cut a log into snapshots on a Ray cluster, write the graph to a folder, and return it mapped.

    The graph equals that of `cut_on_disk`. All machines must be able to read the files under the same paths, and have
    the same versions of dysat and Polars. This program writes the graph; its memory grows with the number of nodes.

    Parameters:
        sources: Parquet files and folders of Parquet parts, or CSV files in UTF-8, plain or compressed with gzip.
        folder: where to write the graph.
        address: the cluster to connect to, such as "auto"; None starts Ray on this machine.
        every, boundaries, count, start, stop, self_loops, directed: as in `build_snapshots`.
        overwrite: replace a graph folder that exists.
        on_progress: called with a text when a new stage begins.
        reading: the options of `read_events`, except `split_dst` and `at_least`.
    """
    require("ray", "--engine ray")
    check_self_loops(self_loops)
    paths = [Path(sources)] if isinstance(sources, str | os.PathLike) else [Path(source) for source in sources]
    log, job = _open(paths, reading, start, stop)
    if directed and log.kind_names:
        raise SnapshotsError(TWO_KINDS)
    with (
        writing_folder(folder, "graph", overwrite=overwrite, needed=None, error=GraphError) as writer,
        cluster(address) as ray,
    ):
        work = _Work(ray, log, job)
        on_progress(f"reading {log.source.name}")
        work.read(paths)
        on_progress(f"cutting {log.facts.num_events:,} events into snapshots")
        edges = window_edges(log.landmarks(), log.facts.clock, every, boundaries, count, start, stop)
        survey = work.survey(edges, keep_loops=self_loops == "keep")
        cut = Cut(log, survey, edges, chosen=boundaries is not None, directed=directed)
        writer.needed = cut.bytes
        hints = cut.hints(work.count_pairs)
        on_progress("sorting events by window")
        cells = work.divide(cut)
        on_progress(f"writing {folder}")
        cut.write_labels(writer)
        work.build(writer, cut, cells)
        cut.finish(writer, hints)
    return DynamicGraph.load(folder, verify=False)


def _open(paths: Sequence[Path], options: Reading, start: Moment | None, stop: Moment | None) -> tuple[Log, _Job]:
    """Open the first file, which decides the columns, and look at the others."""
    if not paths:
        raise EventsError("there are no files to read")
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise EventsError(f"{path}: no such file")
        if path in seen:
            raise EventsError(f"{path}: is given twice")
        seen.add(path)
    log = Log.open(paths[0], options)
    parquet = is_parquet(paths[0], options.get("format"))
    for path in paths[1:]:
        if is_parquet(path, options.get("format")) != parquet:
            raise EventsError(f"{path}: has another format than {paths[0]}; give Parquet files or CSV files, not both")
    if len(paths) > 1:
        log.source = replace(log.source, name=f"{paths[0]} and {len(paths) - 1} more")
    several = len(paths) > 1 or paths[0].is_dir()
    return log, _Job(str(paths[0]), log.columns, options, parquet, several, start, stop, _versions())


@dataclass(frozen=True)
class _Job:
    """What all tasks need to know about the log."""

    first: str
    columns: dict[str, str]
    options: Reading
    parquet: bool
    several: bool
    start: Moment | None
    stop: Moment | None
    versions: dict[str, str]

    def parts(self, paths: Sequence[Path], name: str, number: int) -> list[Part]:
        """Divide the log into about `number` parts, unless files of text are fewer or more."""
        if self.parquet:
            parts = parquet_parts(paths, name, number, LEAST, MOST)
        else:
            parts = [Part(str(path), (path,)) for path in paths]
        return [replace(part, files=tuple(file.absolute() for file in part.files)) for part in parts]

    def open(self, part: Part) -> Log:
        """Open a part on any machine of the cluster."""
        self._check_machine(part)
        if self.parquet:
            with explained(part.name, "events"):
                source = open_parquet_part(part, Limits.of(self.options.get("limits")), several=self.several)
        else:
            source = open_in_batches(part.files[0], self.options, part.name)
        for column in self.columns.values():
            if column not in (*source.columns, *source.paths):
                raise EventsError(f"{part.name}: no column {column!r}, which {self.first} has")
        return Log(source, self.columns, (), self.options)

    def _check_machine(self, part: Part) -> None:
        for file in part.files:
            if not file.exists():
                where = f"is not there on {os.uname().nodename}, a machine of the cluster"
                raise EventsError(f"{file}: {where}; put it on a disk that all machines share")
        for package, here in _versions().items():
            if here != self.versions[package]:
                what = f"{os.uname().nodename}, a machine of the cluster, has {package} {here}"
                raise GraphError(f"{what} instead of {self.versions[package]}; install the same version everywhere")

    def times(self) -> tuple[str | None, Any, str]:
        """The options of times."""
        options = self.options
        return options.get("time_format"), options.get("time_unit"), options.get("timezone", "UTC")


def _versions() -> dict[str, str]:
    """Versions that all machines must share; the hash that divides labels is the same in one version of Polars."""
    found = {}
    for package in ("dysat", "polars", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # a checkout that is not installed
            found[package] = "unknown"
    return found


class _Cell(NamedTuple):
    """Windows [first, stop) of the graph; of a large window only the rows of the nodes [low, high)."""

    first: int
    stop: int
    nodes: tuple[int, int] | None = None


class _Piece(NamedTuple):
    """The links of one part in one cell, sorted by window."""

    counts: Index
    links: dict[str, NDArray[Any]]  # u, v, and, if there are any, weights and latest


class _Labels(NamedTuple):
    """Distinct labels of a bucket, and what is known about them.

    Shapes:
        first, degree [kinds, N], appeared [kinds, N] or None, sides [2, N].
    """

    labels: pl.Series
    first: Index
    appeared: Index | None
    sides: NDArray[np.bool_]
    degree: Index


# ---- the program that starts the tasks ----


class _Work:
    """The tasks of one log, and what is kept between its stages."""

    def __init__(self, ray: Any, log: Log, job: _Job) -> None:
        self.ray, self.log, self.job = ray, log, job
        self.cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        # An object of this program cannot be computed again, so all of them are kept until the end.
        self.kept: list[Any] = [ray.put(job)]
        self.parts: list[Part] = []
        self.labels: list[Any] = []  # of each part, as are the records
        self.records: list[Any] = []

    def read(self, paths: Sequence[Path]) -> None:
        """Read all parts; facts come here, labels and records stay in the object store."""
        job, name, (shared,) = self.job, self.log.source.name, self.kept
        self.parts = job.parts(paths, name, 2 * self.cpus)
        numbers, texts = Numbers(), False
        with explained(name, "events"):
            first = first_times(self._times())
        with naming(name):
            pattern, unit, timezone = job.times()
            kind = number_type(*first, pattern, unit, timezone)
        if kind is not None:
            for refs in self.a_few_at_once(_measure_times, 1, ((shared, part) for part in self.parts)):
                numbers.merge(self.result(refs[0]))
        with naming(name):
            reader_of(kind, numbers, *job.times())  # refuses numbers that are no times, once
        for refs in self.a_few_at_once(_read, 3, ((shared, part, kind, numbers) for part in self.parts)):
            facts, number, integers = self.result(refs[0])
            self.log.facts.merge(facts)
            self.labels.append(refs[1])
            self.records.append(refs[2])
            texts |= number > 0 and not integers
        self.log.check()
        self.texts = texts

    def survey(self, edges: Sequence[int], *, keep_loops: bool) -> Survey:
        """Find the distinct labels, when each appears first, and the number of events of every window."""
        self.edges, self.buckets = np.array(edges), min(BUCKETS, 2 * self.cpus, len(self.parts))
        self.two_kinds = bool(self.log.kind_names)
        how = self.keep((self.edges, self.buckets, self.two_kinds, self.texts, keep_loops))
        surveyed = [
            self.submit(_survey, self.buckets + 2, how, *part) for part in zip(self.labels, self.records, strict=True)
        ]
        self.labels, self.orders = [], [refs[1] for refs in surveyed]
        merged = [
            self.submit(_merge, len(self.parts) + 1, *(refs[2 + bucket] for refs in surveyed))
            for bucket in range(self.buckets)
        ]
        self.indexes = [[refs[1 + part] for refs in merged] for part in range(len(self.parts))]
        totals = [self.result(refs[0]) for refs in surveyed]
        return self._combine(totals, [self.result(refs[0]) for refs in merged], keep_loops)

    def _combine(self, totals: list[tuple[Index, int]], found: list[_Labels], keep_loops: bool) -> Survey:
        """The survey of the whole log."""
        import polars as pl

        sizes = [len(bucket.labels) for bucket in found]
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.log.labels = pl.concat([bucket.labels for bucket in found])
        survey = Survey(self.edges.tolist(), 0, two_kinds=self.two_kinds, texts=False, keep_loops=keep_loops)
        survey.size = self.log.size
        survey.counts = np.sum([counts for counts, _ in totals], axis=0)
        survey.loops = sum(loops for _, loops in totals)
        survey.first = np.concatenate([bucket.first for bucket in found], axis=1).ravel()
        if self.texts:
            survey.appeared = np.concatenate(
                [bucket.appeared for bucket in found if bucket.appeared is not None], axis=1
            ).ravel()
        survey.sides = np.concatenate([bucket.sides for bucket in found], axis=1)
        self.degrees = np.concatenate([bucket.degree for bucket in found], axis=1).ravel()
        return survey

    def count_pairs(self) -> tuple[int, int]:
        """Distinct pairs, and those in both directions."""
        how = self.keep((self.buckets, self.starts))
        pairs = [self.submit(_pairs, self.buckets + 1, how, *part) for part in self._numbered()]
        shares = zip(*(refs[1:] for refs in pairs), strict=True)
        counted = [self.submit(_count_pairs, 1, how, *share)[0] for share in shares]
        first, second = zip(*map(self.result, counted), strict=True)
        return sum(first), sum(second)

    def divide(self, cut: Cut) -> list[_Cell]:
        """Divide the records of all parts by cell."""
        degrees = np.cumsum(self.degrees[cut.nodes.slots])
        cells = _cells(cut.survey.counts[1:-1], degrees, cut.known)
        ranks = cut.nodes.ranks(len(cut.survey.first)).reshape(1 + self.two_kinds, -1)
        how, ranks = self.keep((self.edges, cells, self.starts, cut.timed)), self.keep(ranks)
        self.pieces = [self.submit(_divide, len(cells), how, ranks, *part) for part in self._numbered()]
        self.records, self.orders, self.indexes = [], [], []
        return cells

    def build(self, writer: FolderWriter, cut: Cut, cells: Sequence[_Cell]) -> None:
        """Sum the links of all cells and write them in order, with a few cells in the object store at a time."""
        none: dict[str, NDArray[Any]] = {"u": np.empty(0, dtype=np.int32), "v": np.empty(0, dtype=np.int32)}
        none |= {"weights": np.empty(0)} if "weight" in self.log.columns else {}
        none |= {"latest": np.empty(0, dtype=np.float32)} if cut.timed else {}
        how = (none, cut.survey.keep_loops, cut.directed)

        def given() -> Iterator[tuple[Any, ...]]:
            for number, cell in enumerate(cells):
                yield how, cell, *(refs[number] for refs in self.pieces)
                for refs in self.pieces:
                    refs[number] = None  # so that Ray can drop it after its only task

        for cell, (ref,) in zip(cells, self.a_few_at_once(_build, 1, given()), strict=True):
            more = cell.nodes is not None and cell.nodes[0] > 0
            for arrays in self.result(ref):
                cut.write_rows(writer, arrays, more=more)

    def submit(self, task: Callable[..., Any], number: int, *given: Any) -> list[Any]:
        """Start a task; return references to its `number` results."""
        strategy = "SPREAD" if task is _read else "DEFAULT"
        remote = self.ray.remote(_caught).options(
            name=task.__name__, num_returns=number, max_retries=RETRIES, scheduling_strategy=strategy
        )
        try:
            refs = remote.remote(task, number, *given)
        except OSError as problem:  # the head node is lost
            raise GraphError(f"the Ray cluster cannot be reached: {problem.strerror or problem}") from problem
        return [refs] if number == 1 else list(refs)

    def a_few_at_once(
        self, task: Callable[..., Any], number: int, given: Iterator[tuple[Any, ...]]
    ) -> Iterator[list[Any]]:
        """Start a task for each of the given arguments, a few ahead of the one whose references are returned next.

        After an error there is little left to do, and few results are in the object store.
        """
        started: deque[list[Any]] = deque()
        for arguments in given:
            started.append(self.submit(task, number, *arguments))
            if len(started) > 3 * self.cpus:
                yield started.popleft()
        while started:
            yield started.popleft()

    def keep(self, value: Any) -> Any:
        """Put a value into the object store until the end."""
        self.kept.append(self.ray.put(value))
        return self.kept[-1]

    def result(self, ref: Any) -> Any:
        """The result of a task, or its error; an error of the cluster is one line."""
        errors = self.ray.exceptions
        try:
            found = self.ray.get(ref)
        except errors.RayTaskError as problem:
            what = f"{type(problem.cause).__name__}: {first_sentence(problem.cause)}"
            raise GraphError(f"a task on the Ray cluster failed: {what}") from problem
        except errors.RayError as problem:
            what = f"{type(problem).__name__}: {first_sentence(problem)}"
            raise GraphError(f"the Ray cluster failed: {what}") from problem
        except OSError as problem:  # the head node is lost
            raise GraphError(f"the Ray cluster cannot be reached: {problem.strerror or problem}") from problem
        if isinstance(found, DysatError):
            raise found
        return found

    def _numbered(self) -> Iterator[tuple[Any, ...]]:
        """The records of each part, and how its labels are numbered in the whole log."""
        for records, order, indexes in zip(self.records, self.orders, self.indexes, strict=True):
            yield records, order, *indexes

    def _times(self) -> Iterator[pl.Series]:
        """The times of the log from the beginning, as far as they are looked at."""
        name = self.job.columns["time"]
        opened = (self.job.open(part) for part in self.parts)
        return (table[name] for table in chain.from_iterable(log.batches([name]) for log in opened))


def _cells(counts: Index, degrees: Index, known: Sequence[int]) -> list[_Cell]:
    """Cells of about `ENTRIES` entries: consecutive windows, or ranges of nodes of a large window.

    `degrees` are the entries of all windows, summed up to each node. They only say how to balance ranges.
    """
    cells: list[_Cell] = []
    begin = size = 0
    for window, entries in enumerate((2 * counts).tolist()):
        if begin < window and size + entries > ENTRIES:
            cells.append(_Cell(begin, window))
            begin, size = window, 0
        size += entries
        if entries > ENTRIES:
            number, top = -(-entries // ENTRIES), known[window]
            goals = degrees[top - 1] * np.arange(1, number) // number
            edges = np.unique([0, *np.searchsorted(degrees[:top], goals), top]).tolist()
            cells += [_Cell(window, window + 1, nodes) for nodes in pairwise(edges)]
            begin, size = window + 1, 0
    return [*cells, _Cell(begin, len(counts))] if begin < len(counts) else cells


# ---- tasks ----


def _caught(task: Callable[..., Any], number: int, *given: Any) -> Any:
    """Run a task; its first result is the error, if there is one. Ray would print errors that nobody asks for."""
    try:
        return task(*given)
    except DysatError as problem:
        return problem if number == 1 else (problem, *[None] * (number - 1))


def _use_one_thread() -> None:
    """Let a task use the one core that Ray counts for it; Polars reads the variable when it is imported."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")


def _measure_times(job: _Job, part: Part) -> Numbers:
    """The range of the times of a part, which are numbers."""
    _use_one_thread()
    log, numbers = job.open(part), Numbers()
    name = job.columns["time"]
    with explained(log.source.name, "events"):
        for table in log.batches([name]):
            numbers.add(table[name])
    return numbers


def _read(
    job: _Job, part: Part, kind: NumberType | None, numbers: Numbers
) -> tuple[tuple[Facts, int, bool], pl.Series, Records]:
    """The facts, the distinct labels and the records of a part."""
    _use_one_thread()
    log = job.open(part)
    records = list(log.records(reader_of(kind, numbers, *job.times()), job.start, job.stop))
    found = np.concatenate([np.empty(0, dtype=log.record), *records])
    return (log.facts, log.size, log.labels.dtype.is_integer()), log.labels, found


def _survey(
    how: tuple[Index, int, bool, bool, bool], labels: pl.Series, records: Records
) -> tuple[tuple[Index, int], Index, *tuple[_Labels, ...]]:
    """Count the events of windows; return the labels of a part by bucket, and in which order they are there."""
    import polars as pl

    edges, buckets, two_kinds, texts, keep_loops = how
    size, kinds = len(labels), 1 + two_kinds
    survey = Survey(edges.tolist(), size, two_kinds=two_kinds, texts=texts, keep_loops=keep_loops)
    degree = np.zeros(kinds * size, dtype=np.int64)
    for at in range(0, len(records), RECORDS):
        chunk = records[at : at + RECORDS]
        used = survey.add(chunk)
        for end in slots(chunk, size, two_kinds=two_kinds):
            degree += np.bincount(end[used], minlength=len(degree))
    labels = labels.cast(pl.String) if texts else labels  # a part of a log of texts may hold whole numbers only
    bucket = (labels.hash(seed=0) % buckets).to_numpy()
    order = np.argsort(bucket, kind="stable")
    found = []
    for here in np.split(order, np.searchsorted(bucket[order], np.arange(1, buckets))):
        appeared = None if survey.appeared is None else survey.appeared.reshape(kinds, size)[:, here]
        first, degrees = survey.first.reshape(kinds, size)[:, here], degree.reshape(kinds, size)[:, here]
        found.append(_Labels(labels.gather(here), first, appeared, survey.sides[:, here], degrees))
    return (survey.counts, survey.loops), order, *found


def _merge(*parts: _Labels) -> tuple[_Labels, *tuple[Index, ...]]:
    """The distinct labels of a bucket, and for every part their positions among them."""
    import polars as pl

    every = pl.DataFrame({"label": pl.concat([part.labels for part in parts])})
    labels = every.unique(maintain_order=True).with_row_index("index")
    index = every.join(labels, on="label", how="left", maintain_order="left")["index"].to_numpy().astype(np.int64)
    number, kinds = len(labels), len(parts[0].first)

    def join(name: str, start: Any, combine: Any, rows: int) -> Any:
        joined = np.full((rows, number), start)
        for row in range(rows):
            combine.at(joined[row], index, np.concatenate([getattr(part, name)[row] for part in parts]))
        return joined

    found = _Labels(
        labels["label"],
        join("first", NEVER, np.minimum, kinds),
        None if parts[0].appeared is None else join("appeared", NEVER, np.minimum, kinds),
        join("sides", False, np.logical_or, 2),
        join("degree", 0, np.add, kinds),
    )
    return found, *np.split(index, np.cumsum([len(part.labels) for part in parts])[:-1])


def _places(order: Index, starts: Index, indexes: Sequence[Index]) -> Index:
    """The numbers in the whole log of the labels of a part."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.concatenate([index + start for index, start in zip(indexes, starts[:-1], strict=True)])
    return places


def _pairs(how: tuple[int, Index], records: Records, order: Index, *indexes: Index) -> tuple[int, *tuple[Index, ...]]:
    """The distinct pairs of a part, by shares; a pair and its reverse are in the same one."""
    shares, starts = how
    places = _places(order, starts, indexes)
    size = int(starts[-1])
    pairs = distinct(places[records["src"]] * size + places[records["dst"]])
    share = (pairs // size + pairs % size) % shares
    return len(pairs), *(pairs[share == number] for number in range(shares))


def _count_pairs(how: tuple[int, Index], *parts: Index) -> tuple[int, int]:
    """Distinct pairs of a share, and those in both directions."""
    pairs, size = np.concatenate(parts), int(how[1][-1])
    return count_pairs(pairs // size, pairs % size, size)


def _divide(
    how: tuple[Index, list[_Cell], Index, bool], ranks: Ids, records: Records, order: Index, *indexes: Index
) -> list[_Piece | None] | _Piece | None:
    """The links of a part by cell."""
    edges, cells, starts, timed = how
    places = _places(order, starts, indexes)
    window = np.searchsorted(edges, records["time"], side="right") - 1
    rows = np.flatnonzero((window >= 0) & (window < len(edges) - 1))
    rows = rows[np.argsort(window[rows], kind="stable")]
    window = window[rows]
    u, v = ranks[0][places[records["src"][rows]]], ranks[-1][places[records["dst"][rows]]]
    links = {"u": u, "v": v}
    if "weight" in (records.dtype.names or ()):
        links["weights"] = records["weight"][rows]
    if timed:
        links["latest"] = fractions(records["time"][rows], edges[window], edges[window + 1])
    cuts = np.searchsorted(window, np.arange(len(edges)))
    pieces: list[_Piece | None] = []
    for first, stop, nodes in cells:
        here: Any = slice(cuts[first], cuts[stop])
        counts = np.diff(cuts[first : stop + 1])
        if nodes is not None:
            low, high = nodes
            touched = ((u[here] >= low) & (u[here] < high)) | ((v[here] >= low) & (v[here] < high))
            here = cuts[first] + np.flatnonzero(touched)
            counts = np.array([len(here)])
        piece = _Piece(counts, {name: column[here] for name, column in links.items()})
        pieces.append(piece if counts.any() else None)
    return pieces if len(pieces) > 1 else pieces[0]  # a task with one result returns it, not a list


def _build(
    how: tuple[dict[str, NDArray[Any]], bool, bool], cell: _Cell, *parts: _Piece | None
) -> list[dict[str, NDArray[Any]]]:
    """The arrays of every window of a cell."""
    none, keep_loops, directed = how
    there = [part for part in parts if part is not None]
    cuts = [np.concatenate([[0], np.cumsum(part.counts)]) for part in there]
    windows = []
    for window in range(cell.stop - cell.first):
        here = [slice(cut[window], cut[window + 1]) for cut in cuts]
        links = {
            name: np.concatenate([empty, *(part.links[name][at] for part, at in zip(there, here, strict=True))])
            for name, empty in none.items()
        }
        windows.append(
            compress(
                links["u"],
                links["v"],
                links.get("weights"),
                self_loops=keep_loops,
                directed=directed,
                latest=links.get("latest"),
                nodes=cell.nodes,
            )
        )
    return windows
