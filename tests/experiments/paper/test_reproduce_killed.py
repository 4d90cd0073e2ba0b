"""A reproduction in processes: two give what one gives, and one that is killed goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_study import CHEAP, count_jobs, make_graph, rows, run, shorten

from dysat.data.graph import DynamicGraph


@pytest.fixture(scope="module")
def uci() -> DynamicGraph:
    return make_graph()


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    return count_jobs(monkeypatch)


@pytest.mark.parametrize("more", [(), pytest.param(("gcn-ae", "dysat"), marks=pytest.mark.slow)])
def test_two_processes_give_what_one_gives(
    uci: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    shorten(monkeypatch)
    one, two = (rows(run(tmp_path / str(n), uci, methods=[*CHEAP, *more], processes=n)) for n in (1, 2))
    assert set(one) == {*CHEAP, *more}
    assert one == two


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from small_study import make_graph
from dysat.experiments.paper.reproduce import reproduce

def told(done, total, what):
    if done == 5:
        print(what, flush=True)
        sys.stdin.read()  # until it is killed

reproduce(["table2"], {"uci": make_graph()}, Path(sys.argv[1]), methods=["edge-memory", "edgebank", "degree-product"],
          budget="quick", device="cpu", processes=1, on_progress=told)
"""


def test_a_run_that_is_killed_goes_on_and_ends_as_one_that_was_not(
    uci: DynamicGraph, tmp_path: Path, computed: list[Any]
) -> None:
    words = [sys.executable, "-c", SCRIPT, str(tmp_path / "killed"), str(Path(__file__).parent)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "snapshots up to" in running.stdout.readline()
        running.send_signal(signal.SIGKILL)
    assert running.returncode == -signal.SIGKILL
    ended = rows(run(tmp_path / "killed", uci))
    assert len(computed) == 3 * 4 - 5
    assert ended == rows(run(tmp_path / "whole", uci))


def test_a_folder_that_was_begun_when_the_process_was_killed_is_taken_up(uci: DynamicGraph, tmp_path: Path) -> None:
    whole = rows(run(tmp_path / "whole", uci))
    (folder,) = (path for path in (tmp_path / "whole" / "cache").iterdir() if path.name.startswith("single-step"))
    begun = tmp_path / "begun" / "cache" / folder.name
    (begun / ".graph.a1b2").mkdir(parents=True)
    (begun / ".evaluation.json.c3d4.json").write_text("{")
    assert rows(run(tmp_path / "begun", uci)) == whole
