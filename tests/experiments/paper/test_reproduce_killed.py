"""Reproduction in several processes, and after a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import small_study
from small_study import CHEAP, count_jobs, make_graph, rows, run, shorten

from dysat.data.graph import DynamicGraph


@pytest.fixture(scope="module")
def uci() -> DynamicGraph:
    return make_graph()


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    return count_jobs(monkeypatch)


@pytest.mark.slow  # the quick version is in tests/experiments/evaluate/test_evaluate.py
def test_two_processes_give_the_same_records(
    uci: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    methods = [*CHEAP, "gcn-ae", "dysat:program"]
    one, two = (rows(run(tmp_path / str(n), uci, methods=methods, processes=n)) for n in (1, 2))
    assert set(one) == {*CHEAP, "gcn-ae", "dysat"}
    assert one == two


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from small_study import make_graph
from dysat.experiments.paper.reproduce import reproduce

def on_progress(done, total, what):
    if done == 5:
        print(what, flush=True)
        sys.stdin.read()  # wait to be killed

reproduce(["table2"], {"uci": make_graph()}, Path(sys.argv[1]), methods=["edge-memory", "edgebank", "degree-product"],
          budget="quick", device="cpu", processes=1, on_progress=on_progress)
"""


@pytest.mark.slow
def test_killed_run_resumes_and_reaches_the_same_result(uci: DynamicGraph, tmp_path: Path, computed: list[Any]) -> None:
    words = [sys.executable, "-c", SCRIPT, str(tmp_path / "killed"), str(Path(small_study.__file__).parent)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "snapshots up to" in running.stdout.readline()
        running.send_signal(signal.SIGKILL)
    assert running.returncode == -signal.SIGKILL
    ended = rows(run(tmp_path / "killed", uci))
    assert len(computed) == 3 * 4 - 5
    assert ended == rows(run(tmp_path / "whole", uci))


def test_folder_left_by_a_killed_process_is_reused(uci: DynamicGraph, tmp_path: Path) -> None:
    whole = rows(run(tmp_path / "whole", uci))
    (folder,) = (path for path in (tmp_path / "whole" / "cache").iterdir() if path.name.startswith("single-step"))
    begun = tmp_path / "begun" / "cache" / folder.name
    (begun / ".graph.a1b2").mkdir(parents=True)
    (begun / ".evaluation.json.c3d4.json").write_text("{")
    assert rows(run(tmp_path / "begun", uci)) == whole
