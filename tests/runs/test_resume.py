"""A run that is killed, stopped or out of disk resumes and reaches the same result, bit for bit."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from everyday import few
from run_folders import (
    GUARD,
    RESULTS,
    SMALL,
    assert_same,
    be_quick,
    checkpoint_progress,
    die_at,
    in_process,
    names,
    quick,
    small_graph,
    small_model,
    start_command,
    stop_after,
    wait_until,
)

import dysat
from dysat.errors import DysatError, ModelError
from dysat.runs.checkpoints import CHECKPOINT_VERSION, CHECKPOINTS
from dysat.runs.run import Run, Watch
from dysat.system.tensors import read_tensors, write_tensors
from dysat.training import Epoch

__all__ = ["quick"]

LONG: dict[str, Any] = {"learning_rate": 0.02, "epochs": 12}
NEWEST, BEFORE = CHECKPOINTS
KILLS, MORE_KILLS = 12, 40
PARTS = 120  # every n-th write is tried in one test


@dataclass(frozen=True)
class Whole:
    """An undisturbed run, its graph, and how long it took in a process of its own."""

    graph: Path
    folder: Path
    seconds: float


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return undisturbed(tmp_path_factory.mktemp("whole"), **LONG)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return undisturbed(tmp_path_factory.mktemp("short"))


@pytest.fixture(scope="module")
def stopped(short: Whole, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """A copy of a run that was stopped after a number of epochs, with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("stopped")

    def get(target: Path, epochs: int, seed: int = 0) -> Run:
        first = folder / f"{epochs}-{seed}"
        if not first.exists():
            run = Run.start(first, dysat.DynamicGraph.load(short.graph), small_model(seed=seed))
            stop_after(run, epochs)
        return Run.open(shutil.copytree(first, target))

    return get


def undisturbed(folder: Path, **options: Any) -> Whole:
    small_graph().save(folder / "graph")
    in_process(time.sleep, 0)  # the first process takes longer than others
    begin = time.monotonic()
    assert in_process(train, folder / "graph", folder / "run", options) == 0
    return Whole(folder / "graph", folder / "run", time.monotonic() - begin)


def train(graph: Path, folder: Path, options: dict[str, Any], kill_at: int = 0) -> None:
    """Start a run or resume it, with a checkpoint after every epoch; `kill_at` kills it at this write."""
    be_quick()
    if kill_at:
        die_at(kill_at, str(folder.parent))
    if not folder.exists():
        Run.start(folder, dysat.DynamicGraph.load(graph), small_model(**options))
    Run.open(folder).train(keep_every=0)


# Killed


@pytest.mark.parametrize("number", few((), KILLS))
def test_killed_at_any_moment_and_again(whole: Whole, tmp_path: Path, number: int) -> None:
    rng = random.Random(number)
    first = (number + rng.random()) / KILLS
    killed_and_resumed(whole, tmp_path / "run", [first, *(rng.random() for _ in range(rng.randrange(3)))])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(MORE_KILLS))
def test_killed_at_more_moments(whole: Whole, tmp_path: Path, number: int) -> None:
    rng = random.Random(KILLS + number)
    killed_and_resumed(whole, tmp_path / "run", [rng.random() for _ in range(rng.randrange(1, 6))])


def killed_and_resumed(whole: Whole, folder: Path, moments: list[float]) -> None:
    for moment in moments:
        code = in_process(train, whole.graph, folder, LONG, kill_after=moment * whole.seconds)
        assert code in (0, -signal.SIGKILL)
    assert in_process(train, whole.graph, folder, LONG) == 0
    assert_same(folder, whole.folder)


@pytest.mark.parametrize("part", few([7], PARTS))
def test_killed_at_a_write(short: Whole, tmp_path: Path, part: int) -> None:
    """While writing the folder, a checkpoint or the results, or removing checkpoints."""
    number = part + 1
    while (code := in_process(train, short.graph, folder := tmp_path / f"{number}" / "run", {}, number)) != 0:
        assert code == -signal.SIGKILL
        train(short.graph, folder, {})
        assert_same(folder, short.folder)
        number += PARTS
    assert number > 100  # there are more than 100 writes


def test_leftovers_of_a_killed_write_are_removed(short: Whole, stopped: Callable[..., Run], tmp_path: Path) -> None:
    run = stopped(tmp_path / "run", 2)
    number = 2
    while not any(name.startswith(".") for name in names(run.folder)):
        assert in_process(train, short.graph, run.folder, {}, number) == -signal.SIGKILL
        number += 1
    assert run.train() and names(run.folder) == RESULTS
    assert_same(run.folder, short.folder)


def test_a_killed_command_resumes(short: Whole, tmp_path: Path) -> None:
    texts = {name: ",".join(map(str, v)) if isinstance(v, tuple) else v for name, v in SMALL.items()}
    options = [f"--{'set=' if name not in ('epochs', 'device') else ''}{name}={text}" for name, text in texts.items()]
    folder = tmp_path / "run"
    process = start_command(tmp_path, "fit", short.graph, "-o", folder, "--preset", "program", *options)
    wait_until(process, (folder / NEWEST).exists)
    process.kill()
    process.join(GUARD)
    assert process.exitcode in (0, -signal.SIGKILL)
    process = start_command(tmp_path, "fit", "--resume", folder)
    process.join(GUARD)
    assert process.exitcode == 0
    assert_same(folder, short.folder)


# Stopped


@pytest.mark.parametrize(
    ("epochs", "stage"),
    [(2, ("backtest", 2)), (7, ("backtest", 3)), (13, ("final", 1))],  # four epochs for each of three windows
    ids=["backtest", "second window", "final"],
)
def test_stopped_in_a_stage(
    short: Whole, stopped: Callable[..., Run], tmp_path: Path, epochs: int, stage: tuple[str, int]
) -> None:
    run = stopped(tmp_path / "run", epochs)
    assert not run.finished and checkpoint_progress(run.folder / NEWEST) == stage
    assert names(run.folder) == {*CHECKPOINTS, *(RESULTS if stage[0] == "final" else {"config.toml", "graph"})}
    if stage[0] == "final":
        assert run.metrics()["epochs"] == 1 and run.model("cpu").embed().shape == (40, 8)
    assert Run.open(run.folder).train()
    assert_same(run.folder, short.folder)


def test_a_finished_run_is_not_trained_again(short: Whole) -> None:
    again: list[Epoch] = []
    assert Run.open(short.folder).train(Watch(on_epoch=again.append)) and again == []


# Damaged checkpoints


def half(file: Path, other: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip(file: Path, other: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def newer(file: Path, other: Path) -> None:
    facts, tensors = read_tensors(file, "checkpoint", CHECKPOINT_VERSION, error=ModelError)
    facts.pop("version")
    write_tensors(file, "checkpoint", CHECKPOINT_VERSION + 1, facts, tensors, error=ModelError)


DAMAGE: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "empty": (lambda file, other: os.truncate(file, 0), "damaged"),
    "half": (half, "damaged"),
    "one bit": (flip, "does not match its checksum"),
    "of another run": (lambda file, other: file.write_bytes(other.read_bytes()), "the checkpoint of another run"),
    "newer": (newer, "written by a newer dysat (format 2, this one reads up to 1)"),
}


@pytest.mark.parametrize(("how", "both"), [*((how, False) for how in DAMAGE), ("half", True), ("of another run", True)])
def test_a_damaged_checkpoint_is_skipped(
    short: Whole, stopped: Callable[..., Run], tmp_path: Path, how: str, both: bool
) -> None:
    run, other = (stopped(tmp_path / f"run-{seed}", 3, seed=seed) for seed in (0, 1))
    files = [run.folder / name for name in CHECKPOINTS[: 1 + both]]
    for file in files:
        DAMAGE[how][0](file, other.folder / NEWEST)
    notes: list[str] = []
    seen: list[Epoch] = []
    assert run.train(Watch(on_note=notes.append, on_epoch=seen.append))
    assert [note.startswith(f"{file}: ") for file, note in zip(files, notes, strict=True)] == [True] * len(files)
    assert all(DAMAGE[how][1] in note and note.endswith("; skipped") for note in notes)
    assert seen[0].number == (1 if both else 3)  # the previous checkpoint holds two epochs
    assert_same(run.folder, short.folder)


# Out of disk


def train_with_limit(folder: Path, size: int, said: Path) -> None:
    """Train where no file can be longer than `size`; the error is written to a file."""
    be_quick()
    said.touch()
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        Run.open(folder).train(keep_every=0)
    except DysatError as problem:
        os.write(os.open(said, os.O_WRONLY), str(problem).encode()[:size])
        sys.exit(2)


@pytest.mark.parametrize("epochs", [2, 7, 13], ids=["backtest", "second window", "final"])
def test_no_space_for_a_checkpoint(short: Whole, stopped: Callable[..., Run], tmp_path: Path, epochs: int) -> None:
    run = stopped(tmp_path / "run", epochs)
    last = checkpoint_progress(run.folder / NEWEST)
    size = (run.folder / NEWEST).stat().st_size - 10  # the next checkpoint is longer
    assert in_process(train_with_limit, run.folder, size, tmp_path / "said") == 2
    assert (tmp_path / "said").read_text() == (
        f"{run.folder / NEWEST}: cannot be written: File too large; the previous checkpoint is kept, "
        f"dysat fit --resume {run.folder} continues"
    )
    assert checkpoint_progress(run.folder / BEFORE) == last
    assert not any(name.startswith(".") for name in names(run.folder))
    assert Run.open(run.folder).train()
    assert_same(run.folder, short.folder)


@pytest.mark.parametrize("name", ["model.safetensors", "embeddings.parquet"])
def test_no_space_for_the_results(short: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    run = Run.start(tmp_path / "run", small_graph(), small_model())
    with monkeypatch.context() as patch:
        patch.setattr("dysat.runs.run.write_results", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run.train()
    size = (short.folder / name).stat().st_size - 10
    assert in_process(train_with_limit, run.folder, size, tmp_path / "said") == 2
    assert f"{name}: cannot be written: " in (tmp_path / "said").read_text()
    assert name not in names(run.folder) and not any(name.startswith(".") for name in names(run.folder))
    assert not run.finished and run.train()
    assert_same(run.folder, short.folder)
