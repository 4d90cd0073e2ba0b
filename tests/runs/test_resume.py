"""Killed, out of disk, interrupted, its checkpoints damaged: a run ends as if nothing had happened, bit for bit."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from everyday import few
from test_run import RESULTS, SMALL, assert_same, held, names, small_graph, small_model, stop_after

import dysat
from dysat.errors import DysatError, ModelError
from dysat.runs.checkpoints import CHECKPOINT_VERSION, CHECKPOINTS
from dysat.runs.run import Run, Watch
from dysat.system.tensors import read_tensors, write_tensors
from dysat.training import Epoch

LONG: dict[str, Any] = {"learning_rate": 0.02, "epochs": 30}
NEWEST, BEFORE = CHECKPOINTS
GUARD = 120  # seconds after which a process hangs
MANY, MORE = 12, 40
PARTS = 8  # of all changes of the disk
KEEP_EVERY_EPOCH = "from dysat.runs.run import Run; Run.train.__kwdefaults__['keep_every'] = 0\n"

forks = multiprocessing.get_context("forkserver")  # a process of its own, without the seconds torch takes to import
forks.set_forkserver_preload(["dysat.runs.run", "torch._dynamo"])  # the latter is imported by Adam


@dataclass(frozen=True)
class Whole:
    """A run that was never stopped, its graph, and how long it took in a process of its own."""

    graph: Path
    folder: Path
    seconds: float


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sums in another order are other bits."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


AS_STARTED = {"preset": "program", **SMALL, **LONG}  # on the command line what `small_model` is


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return undisturbed(tmp_path_factory.mktemp("whole"), **LONG)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return undisturbed(tmp_path_factory.mktemp("short"))


def undisturbed(folder: Path, **options: Any) -> Whole:
    small_graph().save(folder / "graph")
    in_a_process(time.sleep, 0)  # the first process takes longer than others
    begin = time.monotonic()
    assert in_a_process(train, folder / "graph", folder / "run", options) == 0
    return Whole(folder / "graph", folder / "run", time.monotonic() - begin)


def train(graph: Path, folder: Path, options: dict[str, Any], calls: int = 0) -> None:
    """Start a run or go on, with a checkpoint every epoch; `calls` kills it before that change of the disk."""
    torch.set_num_threads(1)
    if calls:
        die_before(calls, folder.parent)
    if not folder.exists():
        Run.start(folder, dysat.DynamicGraph.load(graph), small_model(**options))
    Run.open(folder).train(keep_every=0)


def die_before(calls: int, where: Path) -> None:
    made = 0

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(what: Any, *args: Any) -> Any:
            nonlocal made
            made += isinstance(what, int) or str(where) in str(what)
            if made == calls:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(what, *args)

        return instead

    for name in ("fsync", "replace", "rename", "unlink"):
        setattr(os, name, dying(getattr(os, name)))


def in_a_process(work: Callable[..., None], *args: Any, kill_after: float | None = None) -> int:
    """Exit code of a function in a process of its own, negative for the signal that ended it."""
    process = forks.Process(target=work, args=args)
    process.start()
    process.join(GUARD if kill_after is None else kill_after)
    hangs = process.is_alive() and kill_after is None
    process.kill()
    process.join()
    assert not hangs
    return int(process.exitcode or 0)


def command(*args: object, before: str = "", **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own, after some lines of Python."""
    texts = {name: ",".join(map(str, v)) if isinstance(v, tuple) else v for name, v in options.items()}
    given = [f"--{name.replace('_', '-')}={value}" for name, value in texts.items()]
    program = [sys.executable, "-c", f"{before}from dysat.cli import main; main()", *map(str, args), *given]
    return subprocess.Popen(program, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code, and what was said since it was last listened to."""
    _, said = process.communicate(timeout=GUARD)
    return process.returncode, said


def wait_for(process: subprocess.Popen[str], sign: Path) -> None:
    limit = time.monotonic() + GUARD
    while not sign.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.002)


def stopped(short: Whole, folder: Path, epochs: int, **others: Any) -> Run:
    """A run that was stopped after so many epochs, with a checkpoint after each."""
    run = Run.start(folder, dysat.DynamicGraph.load(short.graph), small_model(**others))
    stop_after(run, epochs)
    return run


@pytest.mark.parametrize("number", few((0, 4, 8), MANY))
def test_killed_at_any_moment_and_again(whole: Whole, tmp_path: Path, number: int) -> None:
    rng = random.Random(number)
    first = (number + rng.random()) / MANY
    killed_and_resumed(whole, tmp_path / "run", [first, *(rng.random() for _ in range(rng.randrange(3)))])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(MORE))
def test_killed_at_more_moments(whole: Whole, tmp_path: Path, number: int) -> None:
    rng = random.Random(MANY + number)
    killed_and_resumed(whole, tmp_path / "run", [rng.random() for _ in range(rng.randrange(1, 6))])


def killed_and_resumed(whole: Whole, folder: Path, moments: list[float]) -> None:
    for moment in moments:
        code = in_a_process(train, whole.graph, folder, LONG, kill_after=moment * whole.seconds)
        assert code in (0, -signal.SIGKILL)
    assert in_a_process(train, whole.graph, folder, LONG) == 0
    assert_same(folder, whole.folder)


@pytest.mark.parametrize("part", few([0], PARTS))
def test_killed_before_each_change_of_the_disk(short: Whole, tmp_path: Path, part: int) -> None:
    """In writing the folder, a checkpoint, the results, and in removing what is no longer needed."""
    calls = part + 1
    while (code := in_a_process(train, short.graph, folder := tmp_path / f"{calls}", {}, calls)) != 0:
        assert code == -signal.SIGKILL
        train(short.graph, folder, {})
        assert_same(folder, short.folder)
        calls += PARTS
    assert calls > 30  # killed at all there are, and there are so many


def test_what_a_killed_write_left_is_cleared_away(short: Whole, tmp_path: Path) -> None:
    run = stopped(short, tmp_path / "run", 2)
    in_a_process(train, short.graph, run.folder, {}, 2)  # newest becomes the one before, then fsync
    assert run.train() and names(run.folder) == RESULTS


@pytest.mark.parametrize(
    "sign",
    [
        pytest.param("config.toml", marks=pytest.mark.slow, id="at the start"),
        pytest.param(NEWEST, id="between the stages"),
    ],
)
def test_the_command_is_killed(whole: Whole, tmp_path: Path, sign: str) -> None:
    folder = tmp_path / "run"
    process = command("fit", whole.graph, "-o", folder, **AS_STARTED)
    wait_for(process, folder / sign)
    process.kill()
    assert ended(process)[0] in (0, -signal.SIGKILL)
    assert ended(command("fit", "--resume", folder))[0] == 0
    assert_same(folder, whole.folder)


@pytest.mark.slow
def test_the_command_is_killed_before_there_is_a_folder(whole: Whole, tmp_path: Path) -> None:
    die = "import os, pathlib; pathlib.Path.rename = lambda *_: os.kill(os.getpid(), 9)\n"
    killed = command("fit", whole.graph, "-o", tmp_path / "run", before=die, **AS_STARTED)
    assert ended(killed)[0] == -signal.SIGKILL and not (tmp_path / "run").exists()
    assert ended(command("fit", whole.graph, "-o", tmp_path / "run", **AS_STARTED))[0] == 0
    assert_same(tmp_path / "run", whole.folder)


@pytest.mark.parametrize(("epochs", "stage"), [(2, ("backtest", 2)), (5, ("final", 1))], ids=["backtest", "final"])
def test_stopped_in_a_stage(short: Whole, tmp_path: Path, epochs: int, stage: tuple[str, int]) -> None:
    run = stopped(short, tmp_path / "run", epochs)
    assert not run.finished and held(run.folder / NEWEST) == stage
    assert names(run.folder) == {*CHECKPOINTS, *(RESULTS if stage[0] == "final" else {"config.toml", "graph"})}
    if stage[0] == "final":
        assert run.metrics()["epochs"] == 1 and run.model("cpu").embed().shape == (40, 8)
    assert Run.open(run.folder).train()
    assert_same(run.folder, short.folder)


def test_a_finished_run_is_left_as_it_is(short: Whole) -> None:
    again: list[Epoch] = []
    assert Run.open(short.folder).train(Watch(on_epoch=again.append)) and again == []


def cut(share: float) -> Callable[[Path, Path], None]:
    return lambda file, other: os.truncate(file, int(share * file.stat().st_size))


def newer(file: Path, other: Path) -> None:
    facts, tensors = read_tensors(file, "checkpoint", CHECKPOINT_VERSION, error=ModelError)
    facts.pop("version")
    write_tensors(file, "checkpoint", CHECKPOINT_VERSION + 1, facts, tensors, error=ModelError)


def flip(file: Path, other: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "empty": (cut(0), "damaged"),
    "cut early": (cut(0.001), "damaged"),
    "cut in half": (cut(0.5), "damaged"),
    "cut at the end": (cut(0.9999), "damaged"),
    "one bit": (flip, "does not match its checksum"),
    "random": (lambda file, other: file.write_bytes(random.Random(0).randbytes(5000)), "damaged"),
    "of another run": (lambda file, other: file.write_bytes(other.read_bytes()), "the checkpoint of another run"),
    "newer": (newer, "written by a newer dysat (format 2, this one reads up to 1)"),
}


@pytest.mark.parametrize("both", [False, True], ids=["newest", "both"])
@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over(short: Whole, tmp_path: Path, how: str, both: bool) -> None:
    run, other = (stopped(short, tmp_path / f"run-{seed}", 3, seed=seed) for seed in (0, 1))
    files = [run.folder / name for name in CHECKPOINTS[: 1 + both]]
    for file in files:
        DAMAGE[how][0](file, other.folder / NEWEST)
    notes: list[str] = []
    seen: list[Epoch] = []
    assert run.train(Watch(on_note=notes.append, on_epoch=seen.append))
    assert [note.startswith(f"{file}: ") for file, note in zip(files, notes, strict=True)] == [True] * len(files)
    assert all(DAMAGE[how][1] in note and note.endswith("; passed over") for note in notes)
    assert seen[0].number == (1 if both else 3)  # the one before held two epochs
    assert_same(run.folder, short.folder)


@pytest.mark.parametrize(
    "epochs", [pytest.param(2, marks=pytest.mark.slow, id="backtest"), pytest.param(5, id="final")]
)
def test_no_room_for_a_checkpoint(short: Whole, tmp_path: Path, epochs: int) -> None:
    run = stopped(short, tmp_path / "run", epochs)
    last = held(run.folder / NEWEST)
    size = (run.folder / NEWEST).stat().st_size - 10  # the next one is longer
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
    code, said = ended(command("fit", "--resume", run.folder, before=limit + KEEP_EVERY_EPOCH))
    assert code == 2 and said.count("dysat: ") == 1
    assert said.splitlines()[-1].startswith(f"dysat: {run.folder / NEWEST}: cannot be written: File too large")
    assert held(run.folder / BEFORE) == last and not any(name.startswith(".") for name in names(run.folder))
    assert Run.open(run.folder).train()
    assert_same(run.folder, short.folder)


@pytest.mark.parametrize("name", ["model.safetensors", pytest.param("embeddings.parquet")])
def test_no_room_for_the_results(short: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    run = Run.start(tmp_path / "run", small_graph(), small_model())
    with monkeypatch.context() as patch:
        patch.setattr("dysat.runs.run.write_results", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run.train()
    assert in_a_process(train_in, run.folder, (short.folder / name).stat().st_size - 10) == 2
    assert name not in names(run.folder) and not any(name.startswith(".") for name in names(run.folder))
    assert not run.finished and run.train()
    assert_same(run.folder, short.folder)


def train_in(folder: Path, size: int) -> None:
    """Where no file can be longer."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        Run.open(folder).train()
    except DysatError as problem:
        sys.exit(2 if "cannot be written: " in str(problem) else 3)
