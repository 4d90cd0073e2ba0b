"""The README's commands do what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[str]:
    found = [body for name, body in BLOCKS if name == language]
    assert found, f"the README has no {language} block"
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the README's example log."""
    (tmp_path / "mail.csv").write_text(blocks("csv")[0])
    return tmp_path


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text())
    assert {"demo", "test"} <= set(asked) <= targets


def test_commands_run_and_print_what_is_shown(folder: Path) -> None:
    environment = {**os.environ, "DYSAT_DATA": str(folder)}
    for block in blocks("console"):
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            program, *arguments = shlex.split(command)
            assert program == "dysat"
            code = [sys.executable, "-c", "from dysat.cli import main; main()", *arguments]
            done = subprocess.run(code, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert shown in done.stdout + done.stderr, command
            assert done.returncode == (2 if shown.startswith("dysat: ") else 0), done.stderr
    assert (folder / "graph" / "graph.json").exists()


def test_the_table_is_the_demos(folder: Path) -> None:
    code = [sys.executable, "-c", "from dysat.cli import main; main()", "info", "uci"]
    printed = subprocess.run(code, capture_output=True, text=True, check=True).stdout
    lines = [line.rstrip() for line in blocks("text")[0].splitlines() if line.strip() not in ("", "…")]
    assert len(lines) > 5
    assert [line for line in lines if line not in {p.rstrip() for p in printed.splitlines()}] == []


def test_python_runs(folder: Path) -> None:
    for block in blocks("python"):
        done = subprocess.run([sys.executable, "-c", block], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("DynamicGraph: 4 nodes, 4 snapshots")
