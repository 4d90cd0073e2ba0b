"""A killed evaluation leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = """
import sys
import dysat

if __name__ == "__main__":
    rows = [(k % 20, (7 * k + k // 20) % 20, k // 50) for k in range(200)]
    u, v, time = map(list, zip(*rows))
    graph = dysat.build_snapshots(dysat.read_events((u, v, time), time_unit="step"), every=1)
    models = [dysat.MODELS["gcn-ae"](epochs=100_000, seed=seed, device="cpu") for seed in range(2)]
    dysat.evaluate(models, graph, sys.argv[1], opponents=(), processes=2)
"""


def alive(pid: int) -> bool:
    """Return whether a process is running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.slow
@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="no /proc")
def test_workers_exit_when_the_evaluation_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen([sys.executable, str(script), str(tmp_path / "out")]) as first:
        # Two workers and the resource tracker of multiprocessing, which exits by itself.
        wait_for(lambda: len(children(first.pid)) >= 3)
        workers = children(first.pid)
        time.sleep(2)  # so that they are training
        assert all(map(alive, workers)) and first.poll() is None
        first.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(map(alive, workers)))


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, at most a minute."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < 60
        time.sleep(0.1)
