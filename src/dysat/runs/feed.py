"""Follow a folder of event files: each file counts exactly once, even after a crash."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dysat.data.events import Events, read_events
from dysat.data.windows import write_moment
from dysat.errors import DysatError, ModelError, SnapshotsError
from dysat.runs.update import Update, Updater

UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".swp")  # suffixes of files that are still being written
POLL = 2.0  # seconds
LONGEST = 150  # scans that a window waits for files that keep changing: five minutes
Stat = tuple[int, int]  # size and time of a file


@dataclass(frozen=True)
class EventFile:
    """A file of events, with its checksum and size."""

    path: Path
    events: Events = field(repr=False)
    sha256: str
    size: int

    @classmethod
    def read(cls, path: Path, read: Callable[[Path], Events]) -> EventFile:
        """Read a file; its checksum is computed before and after, so that it matches the events."""
        before = _sha256(path)
        events = read(path)
        if _sha256(path) != before:
            raise ModelError(f"{path}: changed while it was read; try again when it is complete")
        return cls(path, events, before, path.stat().st_size if path.is_file() else 0)

    @property
    def last(self) -> int:
        return int(self.events.time[-1])

    def late(self, edge: int) -> int:
        """Number of events before a moment."""
        return int(np.searchsorted(self.events.time, edge))

    def facts(self, late: int) -> dict[str, Any]:
        """What a run stores about the file."""
        return {
            "name": self.path.name,
            "sha256": self.sha256,
            "bytes": self.size,
            "events": len(self.events),
            "late": late,
            "first": int(self.events.time[0]),
            "last": self.last,
        }


def known_file(updater: Updater, file: EventFile) -> dict[str, Any] | None:
    """What the run has stored about a file with this content, under any name."""
    return next((facts for facts in updater.stream.files if facts["sha256"] == file.sha256), None)


def check_file(updater: Updater, file: EventFile) -> tuple[dict[str, Any], int]:
    """What to store about a file, and the number of its late events; raise if it has nothing new."""
    facts, last = known_file(updater, file), updater.last
    edge = write_moment(last, updater.graph.clock)
    if facts is not None:
        if file.last < last:
            raise ModelError(f"{file.path}: its events were already taken in (as {facts['name']}), up to {edge}")
        return {**facts, "name": file.path.name}, 0
    late = file.late(last)
    if late == len(file.events):
        raise ModelError(
            f"{file.path}: all {late:,} events lie before {edge}, where the last window of {updater.run.folder} ends; "
            "a window is taken in only once"
        )
    return file.facts(late), late


@dataclass
class Hold:
    """Windows that end by a moment wait for the files that were not read yet when an event of that moment was."""

    until: int
    files: set[Path]
    scans: int = 0


@dataclass
class Feed:
    """A folder that event files are put into. `read` reads a file; `tell` receives messages for the user."""

    folder: Path
    read: Callable[[Path], Events]
    tell: Callable[[str], None] = lambda text: None
    _seen: dict[Path, Stat] = field(default_factory=dict)
    _pending: dict[Path, tuple[EventFile, dict[str, Any]]] = field(default_factory=dict)
    _done: dict[Path, Stat] = field(default_factory=dict)
    _copies: dict[Path, Path] = field(default_factory=dict)  # copy → original
    _changed: bool = False  # since the last hold began
    _hold: Hold | None = None
    _restless: set[Path] = field(default_factory=set)  # files that windows no longer wait for

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise ModelError(f"{self.folder}: no such folder to follow")

    def follow(
        self, updater: Updater, *, stop: Callable[[], bool], poll: float = POLL, once: bool = False
    ) -> Iterator[Update]:
        """Yield one update per closed window, until stopped or `once`; an event after its end closes a window."""
        while not stop():
            yield from self.scan(updater, settled=once)
            if once:
                return
            updater.write_files(rarely=True)
            wait_until = time.monotonic() + poll
            while time.monotonic() < wait_until and not stop():
                time.sleep(min(0.1, poll))

    def scan(self, updater: Updater, *, settled: bool = False) -> Iterator[Update]:
        """Take in new files. A file is read once it has not changed since the last scan; `settled`: immediately.

        Windows that are over wait until the files that are still changing have been read.
        """
        ready = self._ready(settled=settled)
        self._forget_missing()
        for path in ready:
            self._open(updater, path)
        if self._hold is not None:
            self._hold.scans += 1
        while (until := self._due(settled=settled)) is not None:
            files = [facts for _, facts in self._pending.values()]
            events = merge_events([file.events for file, _ in self._pending.values()])
            yield from updater.take_in(updater.plan(events, until=until), files)
            self._pending = {path: held for path, held in self._pending.items() if held[0].last >= updater.last}

    def _due(self, *, settled: bool) -> int | None:
        """The moment up to which windows can be taken in now; None if there is nothing new, or they wait for files."""
        if not self._pending or not (self._changed or self._hold):
            return None
        latest = max(file.last for file, _ in self._pending.values())
        unread = set() if settled else self._unread() - self._restless
        if self._hold is None:
            self._hold, self._changed = Hold(latest, unread), False
        self._hold.files &= unread
        if self._hold.files and self._hold.scans < LONGEST:
            return None
        for path in sorted(self._hold.files):
            self.tell(f"{path.name}: still changing; windows no longer wait for it")
        self._restless |= self._hold.files
        until, self._hold = min(self._hold.until, latest), None
        return until

    def _unread(self) -> set[Path]:
        """Files whose newest content was not read yet: new ones, and those that are changing."""
        return {path for path, stat in self._files().items() if stat[0] and stat != self._done.get(path)}

    def _ready(self, *, settled: bool) -> list[Path]:
        """Files that are new or changed, and no longer being written."""
        now = self._files()
        at_rest = [path for path, stat in now.items() if settled or self._seen.get(path) == stat]
        self._seen = now
        return [path for path in at_rest if now[path][0] and self._done.get(path) != now[path]]

    def _files(self) -> dict[Path, Stat]:
        """The files of the folder, by name, with their sizes and times."""
        found = {}
        try:
            paths = sorted(self.folder.iterdir())
        except OSError as problem:
            raise ModelError(f"{self.folder}: cannot be followed: {problem.strerror or problem}") from None
        for path in paths:
            if path.name.startswith((".", "~")) or path.suffix in UNFINISHED or not path.is_file():
                continue
            with suppress(FileNotFoundError):
                stat = path.stat()
                found[path] = (stat.st_size, stat.st_mtime_ns)
        return found

    def _open(self, updater: Updater, path: Path) -> None:
        """Read a file. A problem is reported, and the file is tried again when it has changed."""
        self._done[path] = self._seen[path]
        self._restless.discard(path)
        try:
            file = EventFile.read(path, self.read)
        except (DysatError, OSError) as problem:
            known = self._pending.get(path)
            kept = f"; the {len(known[0].events):,} events that were read before are kept" if known else ""
            self.tell(f"{problem}{kept}")
            return
        self._pending.pop(path, None)
        self._copies.pop(path, None)
        try:
            others = [other for other, _ in self._pending.values() if other.sha256 == file.sha256]
            if others:
                self._copies[path] = others[0].path
                raise ModelError(f"{path}: the same content as {others[0].path.name}, so it is not counted again")
            facts, late = check_file(updater, file)
            _check_plan(updater, file)
        except DysatError as problem:
            self.tell(str(problem))
            return
        clock = updater.graph.clock
        edge = write_moment(updater.last, clock)
        before = [known["events"] for known in updater.stream.files if known["name"] == path.name]
        if late and before:
            facts["late"] = max(0, late - max(before))
            self.tell(f"{path.name}: changed since it was taken in; its {late:,} events before {edge} are ignored")
        elif late:
            self.tell(f"{path.name}: {late:,} of {len(file.events):,} events lie before {edge} and are too late")
        self._pending[path] = (file, facts)
        self._changed = True
        self.tell(f"{path.name}: {len(file.events):,} events up to {write_moment(file.last, clock)}")

    def _forget_missing(self) -> None:
        for path in [path for path in self._pending if path not in self._seen]:
            self.tell(f"{path.name}: removed before its last window closed; its events for that window are ignored")
            del self._pending[path]
        self._copies = {copy: path for copy, path in self._copies.items() if copy in self._done}
        self._restless &= self._seen.keys()
        left = {copy for copy, path in self._copies.items() if path not in self._seen}  # these now count themselves
        self._done = {path: stat for path, stat in self._done.items() if path in self._seen and path not in left}


def _check_plan(updater: Updater, file: EventFile) -> None:
    """Raise now if a file cannot continue the run, so that it does not stop the other files."""
    try:
        updater.plan(file.events)
    except SnapshotsError as problem:
        raise ModelError(f"{file.path}: {problem}") from None


def merge_events(parts: Sequence[Events]) -> Events:
    """Merge the events of several files."""
    if len(parts) == 1:
        return parts[0]
    import polars as pl

    tables = [part.to_polars() for part in parts]
    weighted = any("weight" in table.columns for table in tables)
    if weighted:
        tables = [t if "weight" in t.columns else t.with_columns(weight=pl.lit(1.0)) for t in tables]
    if len({table.schema["src"] for table in tables} | {table.schema["dst"] for table in tables}) > 1:
        tables = [table.with_columns(pl.col("src", "dst").cast(pl.String)) for table in tables]
    return read_events(
        pl.concat(tables),
        "src",
        "dst",
        "time",
        "weight" if weighted else None,
        time_unit="step" if parts[0].clock == "step" else None,
        kinds=parts[0].kind_names or None,  # type: ignore[arg-type]
        at_least=1,
    )


def _sha256(path: Path) -> str:
    """Checksum of a file, or of all files in a folder of parts."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    try:
        for file in files:
            with open(file, "rb") as data:
                digest.update(hashlib.file_digest(data, "sha256").digest())
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read: {problem.strerror or problem}") from None
    return digest.hexdigest()
