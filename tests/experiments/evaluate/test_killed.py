"""An evaluation that is killed leaves no process behind."""

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
    graph = dysat.load_dataset("uci")[:6]
    models = [dysat.MODELS["gcn-ae"](epochs=100_000, seed=seed, device="cpu") for seed in range(2)]
    dysat.evaluate(models, graph, sys.argv[1], opponents=(), processes=2)
"""


def alive(pid: int) -> bool:
    """Whether a process still does something."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="no /proc to look at")
def test_no_process_outlives_an_evaluation_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen([sys.executable, str(script), str(tmp_path / "out")]) as first:
        # Two workers, and multiprocessing's own tracker, which ends by itself.
        wait_for(lambda: len(children(first.pid)) >= 3)
        workers = children(first.pid)
        time.sleep(3)  # so that they are in the middle of something
        assert all(map(alive, workers)) and first.poll() is None
        first.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(map(alive, workers)))


def wait_for(what: Callable[[], bool]) -> None:
    """Until it holds; a minute is far too long for it."""
    begin = time.monotonic()
    while not what():
        assert time.monotonic() - begin < 60
        time.sleep(0.1)
