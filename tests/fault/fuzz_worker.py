"""A worker process of the fuzzer: runs cases one after another, within limits, and reports what broke a rule."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import typer
from file_audit import FileAudit
from fuzz_cases import Box, run_case
from rules import BrokenRuleError

import dysat
from dysat.models.forecast.boosting import tree_grower
from dysat.system.compiled import native
from dysat.system.hardware import peak_gib, reset_peak, resident_gib

MOST_GIB = 2.0  # of memory that a case may take
HARD_GIB = 6.0  # of address space beyond that of an idle worker: protects the machine
SLOWEST = 10.0  # seconds of processor time of a case
SOURCE = str(Path(dysat.__file__ or "").parent)


@dataclass(frozen=True)
class Report:
    """What became of a case: `broken` is None, or the rule that it broke; `where` names the place in the code."""

    outcome: str
    broken: str | None = None
    where: str = ""
    details: str = ""


class Output:
    """Standard output and error of this process, including what C and Rust code write."""

    def __init__(self, folder: Path) -> None:
        self.numbers = []
        for number, name in ((1, "out"), (2, "err")):
            opened = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            os.dup2(opened, number)
            self.numbers.append(opened)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", encoding="utf-8", closefd=False) for n in (1, 2))

    def take(self) -> tuple[str, str]:
        """Return what was written since the last call."""
        sys.stdout.flush()
        sys.stderr.flush()
        texts = []
        for number in self.numbers:
            texts.append(os.pread(number, 50_000_000, 0).decode("utf-8", "replace"))
            os.ftruncate(number, 0)
        return texts[0], texts[1]


def work(pipe: Connection, folder: Path, originals: Path) -> None:
    """Run the cases that arrive through a pipe until it is closed."""
    torch.set_num_threads(1)
    typer.main.get_command = cache(typer.main.get_command)  # the commands stay the same from case to case
    native()  # may call the compiler, which no case should
    tree_grower.__kwdefaults__["rounds"] = 4  # type: ignore[index]  # a run takes less time
    case, temporary = folder / "case", folder / "tmp"
    temporary.mkdir(exist_ok=True)
    tempfile.tempdir = str(temporary)
    os.environ["TMPDIR"] = str(temporary)
    output, audit = Output(folder), FileAudit(case, originals)
    limit = int(_address_space() + HARD_GIB * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    while True:
        try:
            kind, seed, index = pipe.recv()
        except EOFError:
            return
        os.chdir(folder)
        shutil.rmtree(case, ignore_errors=True)
        case.mkdir()
        pipe.send(_one(kind, seed, index, Box(case, originals, output.take), audit))


def _one(kind: str, seed: int, index: int, box: Box, audit: FileAudit) -> Report:
    """Run one case under the audit hook, and apply all rules."""
    found: list[Any] = []
    audit.found.clear()
    before, began = 0.0, time.process_time()

    def begin() -> None:  # the files are made; what follows is dysat's work
        nonlocal before, began
        found.clear()
        reset_peak()
        before, began = resident_gib(), time.process_time()
        audit.active = True

    box.begin = begin
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda *args, **kwargs: found.append(args)
            report = Report(run_case(kind, seed, index, box))
    except BrokenRuleError as problem:
        report = Report("broken", str(problem), "", "".join(box.output()))
    except Exception as problem:
        if not audit.active:  # making the files failed, which is a fault of the fuzzer
            raise
        report = Report("broken", type(problem).__name__, *_place(problem))
    finally:
        audit.active = False
    used, seconds = peak_gib() - before, time.process_time() - began
    if report.broken is None and before and used > MOST_GIB:
        report = Report("broken", f"more than {MOST_GIB:g} GiB of memory", "", f"{used:.1f} GiB")
    if report.broken is None and seconds > SLOWEST:
        report = Report("broken", f"more than {SLOWEST:g} s", "", f"{seconds:.1f} s")
    if report.broken is None and audit.found:
        report = Report("broken", "a file outside", audit.found[0].split(" ")[0], "\n".join(audit.found))
    if report.broken is None and (strange := [w for w in found if not issubclass(w[1], DeprecationWarning)]):
        place = f"{Path(strange[0][2]).name}:{strange[0][3]}"
        report = Report("broken", f"a warning: {strange[0][0]}"[:100], place, str(strange[0][0]))
    return report


def _place(problem: BaseException) -> tuple[str, str]:
    """The last line of dysat in a traceback, and the traceback."""
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename.startswith(SOURCE)]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return where, "".join(traceback.format_exception(problem))


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
