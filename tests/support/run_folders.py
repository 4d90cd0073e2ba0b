"""Small runs: start, stop, kill and compare them."""

from __future__ import annotations

import csv
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import no_sync  # noqa: F401 - in processes of their own too
import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

import dysat
from dysat.cli import main
from dysat.errors import ModelError
from dysat.models.forecast.boosting import tree_grower
from dysat.runs import backtest
from dysat.runs.checkpoints import CHECKPOINT_VERSION
from dysat.runs.run import Run, Watch
from dysat.runs.seal import SEAL
from dysat.system.locks import LOCK_FILE
from dysat.system.tensors import read_tensors
from dysat.training import Epoch

SMALL: dict[str, Any] = {
    "structural_heads": (2,),
    "structural_features": (8,),
    "temporal_heads": (2,),
    "temporal_features": (8,),
    "walks_per_node": 2,
    "learning_rate": 0.05,  # so that the best epoch is not the last
    "epochs": 4,
    "device": "cpu",
}
RESULTS = {"config.toml", "graph", "model.safetensors", "embeddings.parquet", "metrics.json", "history.csv"}
RING = [(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 4, 0), (0, 4, 0)]  # five nodes in one snapshot
GUARD = 120  # seconds after which a process counts as hanging

# Separate processes that can be killed; the fork server imports torch once for all of them.
forks = multiprocessing.get_context("forkserver")
OUR_OWN = ["dysat.cli", "dysat.runs.feed"]
THEIRS = ["polars", "pytest", "safetensors.torch", "scipy.sparse.csgraph", "scipy.sparse.linalg"]
forks.set_forkserver_preload([*OUR_OWN, *THEIRS])


def be_quick() -> None:
    """Use one thread, so that sums are bitwise equal in all processes, and few trees and heuristics, to save time."""
    torch.set_num_threads(1)
    tree_grower.__kwdefaults__["rounds"] = 4
    backtest.OPPONENTS = ("edgebank", "degree-product")


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Call `be_quick` for all tests of a module that imports this fixture."""
    before = torch.get_num_threads(), tree_grower.__kwdefaults__["rounds"], backtest.OPPONENTS
    be_quick()
    yield
    torch.set_num_threads(before[0])
    tree_grower.__kwdefaults__["rounds"], backtest.OPPONENTS = before[1:]


# Graphs and models


def small_graph() -> dysat.DynamicGraph:
    """Five snapshots over 40 nodes; 20 are known from the start."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(0, 5, 500))
    u, v = (rng.integers(0, 20 + 5 * times) for _ in range(2))
    return dysat.build_snapshots(dysat.read_events((u, v, times), time_unit="step"), every=1)


def graph_of(links: list[tuple[int, int, int]]) -> dysat.DynamicGraph:
    """A graph from links (u, v, step)."""
    columns = tuple(map(list, zip(*links, strict=True)))
    edges = [0, *range(1, 2 + max(columns[2]))]
    return dysat.build_snapshots(dysat.read_events(columns, time_unit="step"), boundaries=edges)  # type: ignore[arg-type]


def small_model(**options: Any) -> dysat.DySAT:
    return dysat.DySAT.from_preset("program", **SMALL | options)


# Contents of a run folder


def names(folder: Path) -> set[str]:
    """The files of a folder, without those that every run has and that hold no result: the lock and the seal."""
    return {file.name for file in folder.iterdir()} - {LOCK_FILE, SEAL}


def unseal(folder: Path) -> Path:
    """Make a run one of an earlier version, which had no seal; returns its config.toml."""
    (folder / SEAL).unlink()
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("sealed = true\n", ""))
    return config


def history(folder: Path) -> list[dict[str, str]]:
    """The rows of history.csv without their seconds."""
    with open(folder / "history.csv", newline="") as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def checkpoint_progress(checkpoint: Path) -> tuple[str, int]:
    """The stage of a checkpoint and its number of finished epochs."""
    facts, _ = read_tensors(checkpoint, "checkpoint", CHECKPOINT_VERSION, error=ModelError)
    return facts["stage"], len(facts["progress"]["history"])


def assert_same(folder: Path, other: Path) -> None:
    """Two finished runs have the same results, except for seconds (and files left by a killed write)."""
    there = {name for name in names(folder) if not name.startswith(".")}
    assert there - {"stream", "report.html"} == RESULTS and Run.open(folder).finished
    ours, theirs = (load_file(f / "model.safetensors") for f in (folder, other))
    assert ours.keys() == theirs.keys()
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == []
    assert pl.read_parquet(folder / "embeddings.parquet").equals(pl.read_parquet(other / "embeddings.parquet"))
    facts, expected = (Run.open(f).metrics() for f in (folder, other))
    assert {**facts, "seconds": 0} == {**expected, "seconds": 0}
    assert history(folder) == history(other)


# Stopping and killing runs


def stop_after(run: Run, epochs: int) -> None:
    """Train and stop after this number of epochs of both stages together, with a checkpoint after each."""
    seen: list[Epoch] = []
    assert not run.train(Watch(on_epoch=seen.append, stop=lambda: len(seen) == epochs), keep_every=0)
    assert len(seen) == epochs


def in_process(work: Callable[..., None], *args: Any, kill_after: float | None = None) -> int:
    """Exit code of a function in a process of its own; negative for the signal that ended it."""
    process = forks.Process(target=work, args=args)
    process.start()
    process.join(GUARD if kill_after is None else kill_after)
    hangs = process.is_alive() and kill_after is None
    process.kill()
    process.join()
    assert not hangs
    return int(process.exitcode or 0)


def die_at(number: int, where: str) -> None:
    """Kill this process before its n-th write under a folder; a sync or a rename also counts after it is done."""
    made = 0

    def count() -> None:
        nonlocal made
        made += 1
        if made == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_event(event: str, args: tuple[Any, ...]) -> None:
        writing = event != "open" or (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        changes = event in ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "os.chmod")
        if changes and writing and str(args[0]).startswith(where) and not str(args[0]).endswith(LOCK_FILE):
            count()

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            count()
            result = call(*args)
            count()
            return result

        return counted

    sys.addaudithook(on_event)
    os.fsync = counting(os.fsync)
    os.replace = counting(os.replace)


def start_command(folder: Path, *args: object, prepare: Callable[[], None] = be_quick) -> Any:
    """Start a command line in a process of its own, which writes to `folder/out` and `folder/err`."""
    process = forks.Process(target=_command, args=(folder, args, prepare))
    process.start()
    return process


def _command(folder: Path, args: tuple[object, ...], prepare: Callable[[], None]) -> None:
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, closefd=False) for n in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
    prepare()
    sys.argv = ["dysat", *map(str, args)]
    main()


def wait_until(process: Any, condition: Callable[[], bool]) -> None:
    """Wait until a running process meets a condition."""
    limit = time.monotonic() + GUARD
    while not condition():
        assert process.is_alive() and time.monotonic() < limit
        time.sleep(0.002)


def file_contains(file: Path, text: str) -> bool:
    return file.exists() and text in file.read_text()
