"""Training launched on a Ray cluster: what torchrun reaches, also after a worker was killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from several_ranks import free_port, torchrun
from small import two_blocks

Cli = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--workers", "2"), "--workers and --gpus-per-worker need --engine ray; torchrun starts processes without it"),
        (("--address", "auto"), "--address auto needs --engine ray"),
        (("--engine", "ray", "--workers", "0"), "--workers 0 must be at least 1"),
        (("--engine", "ray", "--gpus-per-worker", "-1"), "--gpus-per-worker -1.0 must be a number, not negative"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_any_work(
    cli: Cli, tmp_path: Path, given: tuple[str, ...], message: str
) -> None:
    code, _, err = cli("fit", "uci", *given, "-o", tmp_path / "run")
    assert code == 2 and err == f"dysat: {message}\n" and not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def by_torchrun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph, and a run that two processes have trained."""
    place = tmp_path_factory.mktemp("ray")
    two_blocks(60, 6).save(place / "graph")
    command = ("-m", "dysat", *fit(place / "graph"), "-o", place / "run")
    with torchrun(*command, port=free_port()) as process:
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return place


def fit(graph: Path) -> tuple[str | Path, ...]:
    return ("fit", graph, "--no-backtest", "--epochs", "200", "--device", "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
def test_two_workers_reach_what_torchrun_reaches(by_torchrun: Path, tmp_path: Path, kill: bool) -> None:
    run = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "dysat",
        *map(str, fit(by_torchrun / "graph")),
        "--engine",
        "ray",
        "--workers",
        "2",
    ]
    # Ray starts the workers with their own environment: torch uses one thread in them, as under torchrun.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "-o", str(run)], env=environment, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    ) as process:
        killed = not kill or _kill_a_worker_after_a_checkpoint(run, process)
        out, _ = process.communicate(timeout=600)
    assert process.returncode == 0 and killed, out
    assert "200 epochs on cpu" in out and not re.search("Traceback|WARNING", out), out
    for name in ("model.safetensors", "embeddings.parquet"):
        assert (run / name).read_bytes() == (by_torchrun / "run" / name).read_bytes(), name


def _kill_a_worker_after_a_checkpoint(run: Path, process: subprocess.Popen[str]) -> bool:
    """Kill a process that trains as soon as there is a checkpoint; return whether there was one."""
    while process.poll() is None and not (run / "model.safetensors").exists():
        if any(run.glob("checkpoint.safetensors")):
            for status in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    if status.read_bytes().startswith(b"ray::RayTrainWorker"):
                        os.kill(int(status.parent.name), signal.SIGKILL)
                        return True
                except OSError:
                    continue
        time.sleep(0.02)
    return False
