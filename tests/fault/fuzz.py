"""Feed dysat hostile files and command lines, and check that it answers with a result or one clear line.

    python tests/fault/fuzz.py [--cases 20000] [--seconds 600] [--seed 0] [--only graph]
    python tests/fault/fuzz.py --replay graph-0-1234

Every case must end with a valid result or a DysatError: no traceback, at most 2 GiB and 10 seconds, no file touched
outside the folder of the case. Cases that break a rule are saved in fuzz-failures/ with their files. The exit code is
0 if there are none.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from fuzz_worker import SLOWEST, Report, work
from originals import write_originals
from record import record_fault

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "fuzz-failures"
SHARES = {"graph": 10, "run": 6, "log": 10, "command": 4}  # of the cases
WALL = 60.0  # seconds after which a case counts as hanging, even on a busy machine
SAVED = 2  # failing cases kept for each defect

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["fuzz_worker", "polars", "safetensors.torch", "torch._dynamo", "sklearn.linear_model"])
Case = tuple[str, int, int]  # kind, seed, index


class Worker:
    """A process that runs cases, in a folder of its own; it is started again when it dies."""

    def __init__(self, folder: Path, originals: Path) -> None:
        self.folder, self.originals = folder, originals
        folder.mkdir()
        self.start()

    def start(self) -> None:
        self.pipe, theirs = forks.Pipe()
        self.process = forks.Process(target=work, args=(theirs, self.folder, self.originals), daemon=True)
        self.process.start()
        theirs.close()
        self.case: Case | None = None

    def give(self, case: Case) -> None:
        self.case, self.began, self.spent = case, time.monotonic(), self._processor_time()
        self.pipe.send(case)

    def overdue(self) -> bool:
        """Whether the present case has had its time."""
        if self.case is None or time.monotonic() - self.began < SLOWEST:
            return False
        return self._processor_time() - self.spent > 1.5 * SLOWEST or time.monotonic() - self.began > WALL

    def _processor_time(self) -> float:
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> int | None:
        """Kill the process; return its exit code."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        return self.process.exitcode


@dataclass
class Tally:
    """Counts of outcomes, and the failing cases by defect."""

    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    defects: dict[tuple[str, str], list[Case]] = field(default_factory=lambda: defaultdict(list))

    @property
    def cases(self) -> int:
        return sum(sum(counts.values()) for counts in self.outcomes.values())

    def add(self, case: Case, report: Report, folder: Path) -> None:
        self.outcomes[case[0]][report.outcome] += 1
        if report.broken is None:
            return
        defect = (re.sub(r"\d+", "N", report.broken[:80]), report.where)
        self.defects[defect].append(case)
        if len(self.defects[defect]) <= SAVED:
            save(case, report, folder)


def save(case: Case, report: Report, folder: Path) -> None:
    """Keep the files of a failing case, with what happened."""
    target = FAILURES / name_of(case)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    text = f"{report.broken} {report.where}\n\n{report.details}\n\nmake fuzz REPLAY={name_of(case)}\n"
    (target / "report.txt").write_text(text, encoding="utf-8", errors="replace")
    if (folder / "case").is_dir():
        shutil.copytree(folder / "case", target / "case", symlinks=True)


def name_of(case: Case) -> str:
    return "-".join(map(str, case))


def plan(seed: int, number: int, only: str | None) -> Iterator[Case]:
    """The cases of a seed, kinds mixed evenly."""
    order = [kind for kind, share in SHARES.items() for _ in range(share)]
    order = [order[(7 * i) % len(order)] for i in range(len(order))]
    for index in range(number):
        yield only or order[index % len(order)], seed, index


def fuzz(cases: Iterator[Case], *, workers: int, seconds: float, folder: Path) -> Tally:
    """Run cases in worker processes until there are no more or the time is over."""
    originals, tally, end = folder / "originals", Tally(), time.monotonic() + seconds
    with _process(write_originals, originals) as made:
        made.join()
    pool = [Worker(folder / f"worker{number}", originals) for number in range(workers)]
    try:
        while _give_out(pool, cases, end):
            ready = wait([worker.pipe for worker in pool if worker.case], timeout=1.0)
            for worker in pool:
                if worker.pipe in ready:
                    _collect(worker, tally)
                elif worker.overdue():
                    case = worker.case
                    worker.end()
                    tally.add(case, Report("broken", f"more than {SLOWEST:g} s"), worker.folder)  # type: ignore[arg-type]
                    worker.start()
    finally:
        for worker in pool:
            worker.end()
    return tally


def _give_out(pool: list[Worker], cases: Iterator[Case], end: float) -> bool:
    """Give idle workers a case; return whether any is at work."""
    for worker in pool:
        if worker.case is None and time.monotonic() < end and (case := next(cases, None)) is not None:
            worker.give(case)
    return any(worker.case for worker in pool)


def _collect(worker: Worker, tally: Tally) -> None:
    case = worker.case
    if case is None:
        return
    try:
        report = worker.pipe.recv()
        worker.case = None
    except (EOFError, OSError):  # the process died
        code = worker.end()
        report = Report("broken", f"the process died with exit code {code}", "", (worker.folder / "err").read_text())
        worker.start()
    tally.add(case, report, worker.folder)


class _process:
    """A child process that must end well."""

    def __init__(self, target: Any, *args: Any) -> None:
        self.process = forks.Process(target=target, args=args)

    def __enter__(self) -> Any:
        self.process.start()
        return self.process

    def __exit__(self, *problem: object) -> None:
        if self.process.exitcode != 0:
            raise RuntimeError("the originals could not be made")


def show(tally: Tally, seconds: float) -> None:
    """Print what became of the cases, and each defect with a command that repeats it."""
    say(f"{tally.cases:,} cases in {seconds:.0f} s ({tally.cases / seconds:.1f} per second)")
    for kind, counts in sorted(tally.outcomes.items()):
        say(f"  {kind}: " + ", ".join(f"{number:,} {outcome}" for outcome, number in sorted(counts.items())))
    for (broken, where), cases in sorted(tally.defects.items(), key=lambda item: -len(item[1])):
        say(f"{len(cases):6,} × {broken} {where}: make fuzz REPLAY={name_of(cases[0])}")
    if tally.defects:
        say(f"{len(tally.defects)} defects; their files are in {FAILURES}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=sorted(SHARES))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--replay", metavar="CASE", help="run one case again, as graph-0-1234")
    parser.add_argument("--record", action="store_true", help="store the figures in results/faults.json")
    chosen = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", POLARS_MAX_THREADS="1", COLUMNS="120")  # before the first worker starts
    cases, began = plan(chosen.seed, chosen.cases, chosen.only), time.monotonic()
    if chosen.replay:
        kind, seed, index = chosen.replay.split("-")
        cases = iter([(kind, int(seed), int(index))])
    say(f"seed {chosen.seed}, up to {chosen.cases:,} cases and {chosen.seconds:g} s, {chosen.workers} workers")
    with tempfile.TemporaryDirectory(prefix="dysat-fuzz-") as folder:
        tally = fuzz(cases, workers=1 if chosen.replay else chosen.workers, seconds=chosen.seconds, folder=Path(folder))
    seconds = time.monotonic() - began
    show(tally, seconds)
    if chosen.replay and tally.defects:
        say((FAILURES / chosen.replay / "report.txt").read_text())
    if chosen.record:
        for kind, counts in sorted(tally.outcomes.items()):
            record_fault(f"fuzz-{kind}", sum(counts.values()), dict(counts), seed=chosen.seed, seconds=seconds)
    return 1 if tally.defects else 0


if __name__ == "__main__":
    sys.exit(main())
