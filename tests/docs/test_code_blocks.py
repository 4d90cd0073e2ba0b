"""Every code block of the README and the guides is executed.

Blocks of a page run in order, in one folder: `python` blocks share a namespace, `console` blocks run their `$ …` lines
and must print what the block shows, `sh` blocks run every line. The folder holds a made-up log, mail.csv, the month
after it, new-mail.csv, and the next one in incoming/.

Commands run in a quick form (`made_quick` in tests/support/code_blocks.py):

- at most two epochs and two trials, in one process, with few trees in the pair score and two heuristics in a backtest,
- a PostgreSQL URL becomes a SQLite file, and `--follow` looks once,
- `python benchmarks/…` runs on a copy of benchmarks/, docs/ and results/, with one predicted snapshot, few epochs and
  few methods; its FOLDER holds small made-up graphs.

A comment on the line before a block says more:

- `<!-- test: small -->`: the datasets of the paper are small made-up graphs with as many snapshots, of which
  evaluations predict the last one. `dysat reproduce` measures four rows with the quick budget and one epoch. Without
  this comment, UCI is the real one.
- `<!-- test: slow -->`: takes more than about ten seconds even so, and runs in `make test-all` only.

Blocks with `make` or `pip` run in a fresh clone (test_fresh_clone.py).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from code_blocks import (
    BLOCKS,
    CLONE,
    CLONED,
    CODE,
    MARKER,
    PAGES,
    QUICK_SCRIPTS,
    ROOT,
    Block,
    commands,
    made_quick,
    quick_script,
)  # fmt: skip
from made_up_data import replace_datasets, write_graphs, write_mails
from run_folders import quick

from dysat.experiments.paper.catalogue import Row
from dysat.models import MODELS

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
NOT_CODE = {"text", "csv", "toml", "json"}  # and directives of the site, such as {toctree}
BLOCKS_OF = {
    test: {page: [b for b in BLOCKS if b.language in CODE and (b.test, b.page) == (test, page)] for page in pages}
    for test in ("quick", "slow")
    for pages in [sorted({block.page for block in BLOCKS if block.language in CODE and block.test == test})]
}


class Session:
    """A folder in which the blocks of a page run."""

    def __init__(self, folder: Path, cli: Cli) -> None:
        self.folder, self.cli = folder, cli
        self.namespace: dict[str, Any] = {"__name__": "page"}

    def run(self, block: Block) -> None:
        if block.language == "python":
            exec(compile("\n" * block.line + block.body, block.page, "exec"), self.namespace)
            return
        with pytest.MonkeyPatch.context() as monkeypatch:
            if block.small:
                self.forget()
                replace_datasets(monkeypatch, self.folder / "FOLDER")
                shorten_rows(monkeypatch)
            for words, shown in commands(block):
                if words[0] == "dysat":
                    code, printed = self.run_dysat(words[1:], block.small)
                else:
                    code, printed = self.run_script(words)
                where = f"{block.place}: {shlex.join(words)}"
                assert code == (2 if any(line.startswith("dysat: ") for line in shown) else 0), (
                    f"{where}: exit code {code}\n{printed}"
                )
                lines = {line.rstrip() for line in printed.splitlines()}
                missing = [line for line in shown if line.rstrip() not in lines]
                assert not missing, f"{where} does not print {missing}"
        if block.small:
            self.forget()

    def forget(self) -> None:
        """Remove evaluations: the real and the made-up UCI have the same name, and a folder is for one graph."""
        shutil.rmtree(self.folder / "evaluation", ignore_errors=True)

    def run_dysat(self, words: list[str], small: bool) -> tuple[int, str]:
        code, out, err = self.cli(*made_quick(words, small))
        return code, out + err

    def run_script(self, words: list[str]) -> tuple[int, str]:
        """Run a script of benchmarks/ in a shell, which expands `*`."""
        words = quick_script(words)
        if "--out" in words:
            Path(words[words.index("--out") + 1]).unlink(missing_ok=True)  # or nothing would be left to compute
        paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
        environment = {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT / "src")}
        line = " ".join(word if "*" in word else shlex.quote(word) for word in words)
        done = subprocess.run(line, shell=True, check=False, capture_output=True, text=True, env=environment)
        return done.returncode, done.stdout + done.stderr


def shorten_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the rows of `dysat reproduce` for one epoch."""
    original = Row.contender

    def contender(row: Row, dataset: str, **more: Any) -> Any:
        epochs = {"epochs": 1} if any(option.name == "epochs" for option in MODELS[row.method].options()) else {}
        return original(row, dataset, **{**epochs, **more})

    monkeypatch.setattr(Row, "contender", contender)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Session:
    monkeypatch.chdir(tmp_path)
    write_mails(tmp_path)
    write_graphs(tmp_path / "FOLDER")
    for name in ("benchmarks", "docs", "results"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return Session(tmp_path, cli)


@pytest.mark.parametrize("page", BLOCKS_OF["quick"])
def test_code_blocks_run(page: str, session: Session) -> None:
    for block in BLOCKS_OF["quick"][page]:
        session.run(block)


@pytest.mark.slow
@pytest.mark.parametrize("page", BLOCKS_OF["slow"])
def test_slow_code_blocks_run(page: str, session: Session) -> None:
    for block in BLOCKS_OF["slow"][page]:
        session.run(block)


def test_no_block_is_left_out() -> None:
    """Every code block belongs to one of the tests that execute blocks, and every command to a program they can run."""
    code = [block for block in BLOCKS if block.language in CODE]
    executed = [*CLONED, *(block for pages in BLOCKS_OF.values() for blocks in pages.values() for block in blocks)]
    assert sorted(executed) == sorted(code) and len(code) > 50
    for block in (block for block in code if block.language != "python"):
        programs = {words[0] for words, _ in commands(block)}
        known = set(CLONE) if block.test == "clone" else {"dysat", "python"}
        assert programs and programs <= known, f"{block.place}: no test runs {programs - known}"


def test_every_block_has_a_known_language() -> None:
    unknown = [
        (block.place, block.language)
        for block in BLOCKS
        if block.language not in CODE | NOT_CODE and not block.language.startswith("{")
    ]
    assert not unknown


def test_every_marker_belongs_to_a_code_block() -> None:
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    found = [line for line in lines if line.startswith(("<!-- test:", "<!-- not run"))]
    assert all(MARKER.match(line) for line in found)
    assert len(found) == sum(bool(block.marks) for block in BLOCKS if block.language in CODE)


def test_scripts_of_benchmarks_are_named_where_they_run() -> None:
    """A new script in a block needs quick options; an old entry without a block is removed."""
    code = [block for block in BLOCKS if block.language in ("console", "sh")]
    named = {Path(words[1]).name for block in code for words, _ in commands(block) if words[0] == "python"}
    assert named == set(QUICK_SCRIPTS)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "".join(page.read_text() for page in PAGES)
    asked = set(re.findall(r"\bmake ([a-z-]+)", "".join(re.findall(r"`+[^`]*`+|^make .*$", text, re.MULTILINE))))
    assert {"demo", "test", "docs"} <= asked <= targets


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
