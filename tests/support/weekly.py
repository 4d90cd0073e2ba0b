"""A log that grows by a week, runs on it, and what such a run is, bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from test_run import SMALL

import dysat
from dysat.cli.options import EventOptions
from dysat.runs.feed import EventFile, check_file
from dysat.runs.run import Run, Watch
from dysat.runs.stream import Stream
from dysat.runs.update import Update, updating

Row = tuple[Any, Any, str]
MODEL: dict[str, Any] = {**SMALL, "epochs": 1, "walks_per_node": 1, "learning_rate": 0.005}
AHEAD: dict[str, Any] = {
    **MODEL, "activity": True, "spectrum": 2, "positions": "relative", "walk_weight": 0.0, "future_weight": 0.5,
    "agreement": 1.0, "pair_score": True, "transitions": 3,
}  # fmt: skip
FIRST = date(2024, 1, 1)  # a Monday


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Sums in another order are other bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def day(week: int, weekday: int = 0) -> str:
    return str(FIRST + timedelta(days=7 * week + weekday))


def week(number: int, people: int | None = None, name: Callable[[int], Any] = "p{}".format) -> list[Row]:
    """The mails of a week, from Monday to Sunday; every week has two people more."""
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
    """A small model; `forecast` is a DySAT that looks ahead."""
    if method == "forecast":
        return dysat.DySAT(**AHEAD | options)
    return {"incsat": dysat.IncSAT, "dysat": dysat.DySAT}[method](**MODEL | options)


def fitted(folder: Path, rows: Sequence[Row], method: str = "incsat", *, how: Any = None, **options: Any) -> Run:
    """A finished run on a log, cut into weeks."""
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
    """What `dysat update` does with a file."""
    plan = {name: how.pop(name) for name in ("until", "boundaries") if name in how}
    with updating(Run.open(folder), device="cpu", watch=watch, **how) as updater:
        found = EventFile.read(file, read)
        facts, _ = check_file(updater, found)
        return list(updater.take_in(updater.plan(found.events, **plan), [facts]))


def updates(folder: Path) -> list[dict[str, Any]]:
    """What the updates brought, without their seconds."""
    found = Stream.open(folder).updates if Stream.exists(folder) else []
    return [{**facts, "seconds": 0} for facts in found]


def state(folder: Path) -> tuple[Any, ...]:
    """Everything that a run is, bit for bit."""
    model = Run.open(folder).model("cpu")
    embeddings = [model.embed(step).numpy().tobytes() for step in model.steps()]
    files = Stream.open(folder).files if Stream.exists(folder) else []
    return model.graph_.fingerprint, embeddings, model.top_links(5), updates(folder), files


def bits(model: dysat.DySAT) -> list[bytes]:
    return [model.embed(step).numpy().tobytes() for step in model.steps()]


def copy(run: Run | Path, folder: Path) -> Path:
    return Path(shutil.copytree(run if isinstance(run, Path) else run.folder, folder))


def contents(run: Path) -> dict[str, bytes]:
    return {str(file.relative_to(run)): file.read_bytes() for file in run.rglob("*") if file.is_file()}
