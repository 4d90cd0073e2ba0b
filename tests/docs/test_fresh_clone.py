"""The blocks with `make` and `pip` run in a fresh clone of the repository, each in a fresh environment.

The clone holds the last commit. `make test` and `make test-all` are the test run itself, so here `make -n` only shows
that they run the checks and pytest. `make bench` compares at 20,000 events in place of ten million, and `make fuzz` and
`make soak` are short.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from code_blocks import CLONED, ROOT, commands

SELF = (["make", "test"], ["make", "test-all"])  # they run this test
QUICK = {
    ("make", "bench"): ["EVENTS=20000"],
    ("make", "fuzz"): ["CASES=60"],
    ("make", "soak"): ["MINUTES=0.5"],
}
MADE = {  # what a command leaves in the clone
    ("make", "demo"): "demo-run/metrics.json",
    ("make", "docs"): "site/index.html",
    ("make", "bench"): "results/bench_events.json",
}


def run(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS", "VENV")}
    return subprocess.run(
        words, cwd=folder, env={**inherited, **environment}, check=False, capture_output=True, text=True
    )


def lines_of(program: str) -> list[list[str]]:
    return [words for block in CLONED for words, _ in commands(block) if words[0] == program]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    if not shutil.which("git") or not shutil.which("make") or not (ROOT / ".git").exists():
        pytest.skip("needs git, make and a clone of the repository")
    folder = tmp_path / "dysat"
    made = run(["git", "clone", "-q", str(ROOT), str(folder)], tmp_path)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def package_index(tmp_path: Path) -> None:
    wanted = ["download", "-q", "--no-deps", "--no-cache-dir", "-d", str(tmp_path / "wheels"), "hatchling"]
    found = run([sys.executable, "-m", "pip", *wanted], tmp_path, PIP_DEFAULT_TIMEOUT="10", PIP_RETRIES="0")
    if found.returncode:
        pytest.skip("no package index to install from")


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_test_runs_the_checks_and_pytest() -> None:
    for words, slow in zip(SELF, (False, True), strict=True):
        shown = run([*words, "-n", f"PYTHON={sys.executable}"], ROOT)
        assert shown.returncode == 0, shown.stderr
        lines = shown.stdout.splitlines()
        assert any("ruff check" in line for line in lines) and any("sphinx" in line for line in lines)
        tests = [line for line in lines if "-m pytest" in line]
        assert tests and all(('-m "not slow"' in line) != slow for line in tests)


@pytest.mark.slow
def test_make_runs_in_a_fresh_clone(clone: Path, package_index: None) -> None:
    asked = lines_of("make")
    assert set(MADE) < {tuple(words) for words in asked}
    for words in asked:
        if words in SELF:
            continue  # test_make_test_runs_the_checks_and_pytest
        made = clone / MADE[tuple(words)] if tuple(words) in MADE else None
        before = made.stat().st_mtime_ns if made and made.exists() else 0
        done = run([*words, *QUICK.get(tuple(words), []), f"PYTHON={sys.executable}"], clone)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        assert made is None or made.stat().st_mtime_ns > before
    changed = run(["git", "status", "--short", "--", "src", "tests", "benchmarks"], clone).stdout
    assert changed == "", "make format changed the code"


@pytest.mark.slow
def test_pip_installs_from_a_fresh_clone(clone: Path, package_index: None) -> None:
    programs = clone / "env" / "bin"
    assert run([sys.executable, "-m", "venv", "env"], clone).returncode == 0
    for words in lines_of("pip"):
        done = run([str(programs / words[0]), *words[1:]], clone)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    shown = run([str(programs / "dysat"), "evaluate", "uci", "--model", "edge-memory", "--first", "12"], clone)
    assert shown.returncode == 0 and "edge-memory" in shown.stdout, shown.stderr
