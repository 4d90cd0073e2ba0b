"""A log that grows by one week at a time; runs on it, and their exact state."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from run_folders import SMALL

import dysat
from dysat.cli.options import EventOptions
from dysat.runs.feed import EventFile, check_file
from dysat.runs.run import Run, Watch
from dysat.runs.stream import Stream
from dysat.runs.update import Update, updating
from dysat.system.locks import LOCK_FILE

Row = tuple[Any, Any, str]
MODEL: dict[str, Any] = {**SMALL, "epochs": 1, "walks_per_node": 1, "learning_rate": 0.005}
FIRST = date(2024, 1, 1)  # a Monday


def day(week: int, weekday: int = 0) -> str:
    return str(FIRST + timedelta(days=7 * week + weekday))


def week(number: int, people: int | None = None, name: Callable[[int], Any] = "p{}".format) -> list[Row]:
    """The mails of one week, Monday to Sunday; every week has two more people."""
    people = people or 10 + 2 * number
    return [(name(i), name((2 * i + number + 1) % people), day(number, i % 7)) for i in range(people)]


def weeks(start: int, stop: int) -> list[Row]:
    return [row for number in range(start, stop) for row in week(number)]


def write_log(file: Path, rows: Sequence[Row]) -> Path:
    file.write_text("src,dst,time\n" + "".join(f"{u},{v},{when}\n" for u, v, when in rows))
    return file


def read_log(file: Path, **how: Any) -> dysat.Events:
    return dysat.read_events(file, at_least=1, **how)


def new_model(method: str = "incsat", **options: Any) -> Any:
    """A small model: incsat, dysat:program, or the default dysat."""
    if method == "dysat:program":
        return dysat.DySAT.from_preset("program", **MODEL | options)
    return dysat.IncSAT(**MODEL | options) if method == "incsat" else dysat.DySAT(**MODEL | {"spectrum": 2} | options)


def fitted(folder: Path, rows: Sequence[Row], method: str = "incsat", *, how: Any = None, **options: Any) -> Run:
    """A finished run on a log cut into weeks."""
    how = {"every": "1w"} if how is None else how
    folder.mkdir(exist_ok=True)
    events = read_log(write_log(folder / "base.csv", rows))
    graph = dysat.build_snapshots(events, **how)
    made = EventOptions(**how).record(events.columns)
    run = Run.start(folder / "run", graph, new_model(method, **options), backtest=False, events=made)
    assert run.train()
    return run


def take_in(
    folder: Path, file: Path, *, read: Callable[[Path], dysat.Events] = read_log, watch: Watch | None = None, **how: Any
) -> list[Update]:
    """Update a run with a file, as `dysat update` does."""
    plan = {name: how.pop(name) for name in ("until", "boundaries") if name in how}
    with updating(Run.open(folder), device="cpu", watch=watch, **how) as updater:
        found = EventFile.read(file, read)
        facts, _ = check_file(updater, found)
        return list(updater.take_in(updater.plan(found.events, **plan), [facts]))


def updates(folder: Path) -> list[dict[str, Any]]:
    """The stored figures of all updates, without their seconds."""
    found = Stream.open(folder).updates if Stream.exists(folder) else []
    return [{**facts, "seconds": 0} for facts in found]


def state(folder: Path) -> tuple[Any, ...]:
    """The exact state of a run: graph, embeddings, forecasts, updates and files."""
    model = Run.open(folder).model("cpu")
    embeddings = [model.embed(step).numpy().tobytes() for step in model.steps()]
    files = Stream.open(folder).files if Stream.exists(folder) else []
    return model.graph_.fingerprint, embeddings, model.top_links(5), updates(folder), files


def bits(model: dysat.DySAT) -> list[bytes]:
    return [model.embed(step).numpy().tobytes() for step in model.steps()]


def copy(run: Run | Path, folder: Path) -> Path:
    return Path(shutil.copytree(run if isinstance(run, Path) else run.folder, folder))


def contents(run: Path) -> dict[str, bytes]:
    """The bytes of all files of a run except its lock."""
    files = (file for file in run.rglob("*") if file.is_file() and file.name != LOCK_FILE)
    return {str(file.relative_to(run)): file.read_bytes() for file in files}
