"""Follow a folder for half an hour while everything goes wrong, and check that every event is counted exactly once.

    python tests/fault/soak.py [--minutes 30] [--seed 0]

`dysat update --follow` runs in a process of its own and is started again when it ends. Meanwhile this script feeds it
files: some are written slowly, some are renamed late, some arrive twice, and the times of files jump by years. It kills
the process at random moments, and fills and empties the disk of the run. Whenever the process is down, the graph of the
run must equal the graph of the whole log so far. The memory of a process must stay flat: near the end, a process that
has lived for long is replaced by a new one with the same graph, which must not need much less. The test takes longer
than asked for if a process needs more time until its memory can be sampled.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import torch
from originals import MODEL
from record import difference, record_fault
from small_disk import SmallDisk

import dysat
from dysat.cli.options import EventOptions
from dysat.errors import DysatError
from dysat.runs.run import Run
from dysat.runs.stream import Stream

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
EVENTS, PEOPLE = 30, 40  # per window, and at the start
BEFORE = 4  # windows of the log that the run is fitted on
AHEAD = 6  # windows that files may be ahead of the run
LIFE = 40.0  # mean seconds between kills
FULL = 60.0  # mean seconds between two times of a full disk
WARM = 40  # windows that a process has taken in before its memory is sampled; by then its caches are full
ANEW = 150.0  # seconds before the end when a new process takes over, so that their memory can be compared
HELD = 20.0  # most MiB that an old process may need more than a new one
PATIENCE = 180.0  # seconds for windows to be taken in, at the end
Row = tuple[str, str, str]


@dataclass
class Soak:
    """One soak test: the log so far, the process that follows it, and what was done to both."""

    folder: Path
    disk: SmallDisk
    random: random.Random
    rows: list[Row] = field(default_factory=list)  # of all complete windows
    files: dict[Path, int] = field(default_factory=dict)  # with the window they belong to
    window: int = BEFORE  # the next one to write
    counts: Counter[str] = field(default_factory=Counter)
    memory: list[list[float]] = field(default_factory=list)  # MiB, of each process
    lived: int = 0  # windows that the process took in that was replaced
    process: subprocess.Popen[bytes] | None = None
    calm: bool = False  # no more kills and full disks

    def __post_init__(self) -> None:
        self.inbox, self.run, self.errors = self.folder / "inbox", self.disk.folder / "run", self.folder / "errors.txt"
        self.inbox.mkdir()
        self.kill_at = self.full_at = self.sampled = time.monotonic()

    # The log

    def window_rows(self, number: int) -> list[Row]:
        """The events of one day; now and then somebody new appears."""
        rows: list[Row] = []
        for _ in range(EVENTS):
            u, v = (f"p{self.random.randrange(PEOPLE + number // 5)}" for _ in range(2))
            # Windows begin with the first event of the log, which is at midnight.
            seconds = self.random.randrange(86_400) if number or rows else 0
            at = FIRST + timedelta(days=number, seconds=seconds)
            rows.append((u, v, at.isoformat()))
        return rows

    def write_window(self) -> None:
        """Write the files of one window, complete before the next window begins."""
        rows = self.window_rows(self.window)
        cuts = sorted(self.random.sample(range(1, len(rows)), self.random.randrange(3)))
        for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
            file = self.inbox / f"{self.window:06d}-{number}.csv"
            text = "from,to,sent\n" + "".join(",".join(row) + "\n" for row in rows[start:stop])
            self.write_file(file, text)
            self.files[file] = self.window
        self.rows += rows
        self.window += 1
        self.counts["windows"] += 1

    def write_file(self, file: Path, text: str) -> None:
        """Write a file at once, slowly, or under another name; sometimes also a copy, or with another time."""
        way = self.random.random()
        if way < 0.2:
            self.counts["written slowly"] += 1
            with open(file, "w") as out:
                for start in range(0, len(text), 400):
                    out.write(text[start : start + 400])
                    out.flush()
                    self.rest(self.random.uniform(0.05, 0.5))
        elif way < 0.4:
            self.counts["renamed late"] += 1
            part = file.with_name(file.name + ".part")
            part.write_text(text)
            self.rest(self.random.uniform(0.1, 0.8))
            part.rename(file)
        else:
            file.write_text(text)
        if self.random.random() < 0.1:
            self.counts["arrived twice"] += 1
            copy = file.with_name(f"{file.stem}-copy.csv")
            copy.write_text(text)
            self.files[copy] = self.window
        if self.random.random() < 0.3:
            self.change_time(file)

    def change_time(self, file: Path) -> None:
        """Set the time of a file years back or forward, as after a jump of the clock."""
        self.counts["clock jumps"] += 1
        moment = time.time() + self.random.choice((-1, 1)) * self.random.uniform(0, 10 * 365 * 86_400)
        os.utime(file, (moment, moment))

    def tidy(self) -> None:
        """Remove files that were taken in some time ago."""
        done = BEFORE + self.taken_in()
        for file, window in list(self.files.items()):
            if window < done - 4:
                file.unlink()
                del self.files[file]

    # The process

    def taken_in(self) -> int:
        """The number of windows that the run has taken in."""
        return len(Stream.updates_of(self.run))

    def start(self) -> None:
        """Start to follow the folder."""
        command = [sys.executable, "-m", "dysat", "update", str(self.run), "--follow", str(self.inbox)]
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [*command, "--poll", "0.2", "--json", "--device", "cpu"], stdout=subprocess.DEVNULL, stderr=errors
            )
        self.counts["starts"] += 1
        self.born = time.monotonic()
        self.kill_at = self.born + 8 + self.random.expovariate(1 / LIFE)
        self.found = self.taken_in()
        self.memory.append([])

    def watch(self) -> None:
        """Look at the process: sample its memory, kill it when its time has come, start it again when it has ended."""
        now = time.monotonic()
        if self.process is None:
            self.start()
        elif (code := self.process.poll()) is not None:
            self.ended(code)
        elif now > self.kill_at and not self.calm:
            self.process.send_signal(signal.SIGKILL)
            self.counts["kills"] += 1
            self.ended(self.process.wait())
        elif now - self.sampled > 0.5:
            self.sampled = now
            with suppress(OSError, DysatError):
                windows = self.taken_in()
                if windows >= self.found + WARM:
                    pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
                    size = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
                    self.memory[-1].append(size)
        if now > self.full_at and (self.disk.full or not self.calm):
            self.change_disk(now)

    def change_disk(self, now: float) -> None:
        """Fill the disk up, or empty it again."""
        if self.disk.full:
            self.disk.empty()
            self.full_at = now + self.random.expovariate(1 / FULL)
        elif self.disk.limited:
            self.disk.fill(self.random.choice((0, 4_096, 20_000, 60_000)))
            self.counts["full disks"] += 1
            self.full_at = now + self.random.uniform(2, 12)

    def ended(self, code: int) -> None:
        """Judge how the process ended, and check the graph of the run."""
        self.process = None
        errors = self.errors.read_text(errors="replace")
        if "Traceback" in errors or "panicked" in errors or code not in (-signal.SIGKILL, 2):
            raise SystemExit(f"exit code {code}:\n{errors}")
        last = errors.strip().splitlines()[-1:] or [""]
        if code == 2:
            self.counts["stopped by a full disk"] += 1
            if not last[0].startswith("dysat: ") or not self.counts["full disks"]:
                raise SystemExit(f"exit code 2, but the disk was never full:\n{errors}")
        self.check()

    def check(self) -> int:
        """Compare the graph of the run with the graph of the whole log; return its number of snapshots."""
        graph = Run.open(self.run).graph()
        if self.window > len(graph):  # the log has no later window that would close the last one
            graph_of_log = dysat.build_snapshots(self.events(), every="1d")
            if not graph.equals(graph_of_log[: len(graph)]):
                raise SystemExit(self.difference(graph, graph_of_log))
        self.counts["comparisons"] += 1
        return len(graph)

    def difference(self, graph: dysat.DynamicGraph, log: dysat.DynamicGraph) -> str:
        """Where the graph of the run differs from that of the log, and what the process said about it."""
        for step, (ours, theirs) in enumerate(zip(graph, log, strict=False)):
            found, expected = float(ours.weights.sum()), float(theirs.weights.sum())
            if (found, ours.num_nodes) != (expected, theirs.num_nodes):
                name = f"{step:06d}-"
                said = [line for line in self.errors.read_text().splitlines() if name in line]
                return f"window {step} has a weight of {found:g} instead of {expected:g}:\n" + "\n".join(said)
        return "the graph of the run is not that of the log"

    def events(self) -> dysat.Events:
        columns = tuple(map(list, zip(*self.rows, strict=True)))
        return dysat.read_events(columns)

    def rest(self, seconds: float) -> None:
        """Let some time pass while the process is watched."""
        end = time.monotonic() + seconds
        while True:
            self.watch()
            if time.monotonic() >= end:
                return
            time.sleep(0.02)

    # The whole test

    def prepare(self) -> None:
        """Fit the run that is followed."""
        self.rows = [row for number in range(BEFORE) for row in self.window_rows(number)]
        events = self.events()
        made = EventOptions(every="1d").record({"src": "from", "dst": "to", "time": "sent"})
        graph = dysat.build_snapshots(events, every="1d")
        if not Run.start(self.run, graph, dysat.IncSAT(**MODEL), backtest=False, events=made).train():
            raise SystemExit("the run was not trained")

    def go(self, seconds: float) -> None:
        """Feed and disturb the process, then let it finish and compare the graphs."""
        end = time.monotonic() + seconds
        self.full_at = time.monotonic() + FULL / 2
        while (left := end - time.monotonic()) > 0 or not self.compared:
            self.calm = left < seconds / 4  # the process lives long enough to see it grow
            if left < min(ANEW, seconds / 4) and not self.lived and self.process is not None and self.memory[-1]:
                self.lived = self.taken_in() - self.found
                self.process.kill()
                self.ended(self.process.wait())
            if left < -PATIENCE and time.monotonic() - self.born > PATIENCE and self.taken_in() == self.found:
                raise SystemExit(f"no window was taken in for {PATIENCE:g} seconds")
            if self.window - BEFORE - self.taken_in() < AHEAD:
                self.write_window()
                self.tidy()
            if self.random.random() < 0.2:  # any file, also of a window that is still open
                self.change_time(self.random.choice(list(self.files)))
            self.rest(0.2)
        self.calm = True
        if self.disk.full:
            self.disk.empty()
        self.finish()

    @property
    def compared(self) -> bool:
        """Whether the memory of an old and of a new process has been sampled."""
        return self.lived > 0 and self.process is not None and bool(self.memory[-1])

    def finish(self) -> None:
        """Wait for the last closed window, stop the process, and compare for the last time."""
        limit = time.monotonic() + PATIENCE
        while BEFORE + self.taken_in() < self.window - 1:
            self.rest(0.5)
            if time.monotonic() > limit:
                raise SystemExit(f"{self.window - 1} windows are over, but only {BEFORE + self.taken_in()} taken in")
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)
        if self.check() != self.window - 1:
            raise SystemExit("the last window is missing")

    def held(self) -> tuple[float, float]:
        """MiB that the old process needed more than the new one, with the same graph; and the most MiB of any."""
        old, new = self.memory[-2:]
        return float(np.median(old[-20:]) - np.median(new[:20])), max(max(sizes) for sizes in self.memory if sizes)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help="store the figures in results/faults.json")
    chosen = parser.parse_args()
    began = time.monotonic()
    os.environ.update(OMP_NUM_THREADS="1", POLARS_MAX_THREADS="1")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="dysat-soak-") as folder, SmallDisk(Path(folder) / "disk") as disk:
        soak = Soak(Path(folder), disk, random.Random(chosen.seed))
        say(f"seed {chosen.seed}, {chosen.minutes:g} minutes; {disk}")
        try:
            soak.prepare()
            soak.go(60 * chosen.minutes)
        finally:
            if soak.process is not None and soak.process.poll() is None:
                soak.process.kill()
                soak.process.wait()
            say(", ".join(f"{number:,} {name}" for name, number in soak.counts.items()))
    held, most = soak.held()
    say(f"{len(soak.rows):,} events, each counted once; memory at most {most:.0f} MiB")
    say(f"after {soak.lived:,} windows, a process needed {difference(held)} than a new one with the same graph")
    if chosen.record:
        outcomes = {**soak.counts, "events": len(soak.rows), "most_mib": round(most), "lived": soak.lived}
        outcomes |= {"held_mib": round(held, 1)}
        record_fault("soak", soak.counts["kills"], outcomes, seed=chosen.seed, seconds=time.monotonic() - began)
    if held > HELD:
        say(f"a process holds on to more than {HELD:g} MiB")
        return 1
    return 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
