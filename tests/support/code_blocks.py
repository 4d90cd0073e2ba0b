"""The code blocks of the README and the guides, and how tests run them: which test, and with which shortcuts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

from dysat.data.datasets import DATASETS
from dysat.models import MODELS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = {"python", "console", "sh"}
MARKER = re.compile(r"^<!-- test: (small|slow|small, slow) -->$")
CLONE = ("make", "pip")  # programs that need a clone and an environment of their own
MOST = {"epochs": 2, "trials": 2}
QUICK_ROWS = "dysat:program,gcn-ae,incsat,edge-memory"


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    body: str
    marks: str  # those of the marker on the line before

    @property
    def place(self) -> str:
        return f"{self.page}, line {self.line}"

    @property
    def small(self) -> bool:
        """Whether the paper's datasets are replaced by made-up ones."""
        return "small" in self.marks

    @property
    def test(self) -> str:
        """The test that runs it: quick, slow or clone."""
        if self.language != "python" and any(words[0] in CLONE for words, _ in commands(self)):
            return "clone"
        return "slow" if "slow" in self.marks else "quick"


def blocks_of(page: Path) -> list[Block]:
    found, lines, number = list[Block](), page.read_text().splitlines(), 0
    while number < len(lines):
        fence = re.match(r"^\s*(`{3,}|~{3,})(\S*)", lines[number])
        if not fence:
            number += 1
            continue
        end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == fence[1])
        marker = MARKER.match(lines[number - 1]) if number else None
        body = dedent("".join(line + "\n" for line in lines[number + 1 : end]))
        name = page.relative_to(ROOT).as_posix().removeprefix("docs/")
        found.append(Block(name, number + 1, fence[2], body, marker[1] if marker else ""))
        number = end + 1
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def commands(block: Block) -> Iterator[tuple[list[str], list[str]]]:
    """The words of every command of a `console` or `sh` block, and the lines shown below it."""
    text = block.body.replace("\\\n", " ")
    prefix = "$ " if block.language == "console" else ""
    shown: list[str] = []
    words: list[str] = []
    for line in text.splitlines():
        if not line.strip() or (not prefix and line.startswith("#")):
            continue
        if line.startswith(prefix):
            if words:
                yield words, shown
            words, shown = shlex.split(line.removeprefix(prefix), comments=True), []
        elif line.strip() != "…":
            assert words, f"{block.place}: {line!r} stands before the first command"
            shown.append(line)
    if words:
        yield words, shown


CLONED = [block for block in BLOCKS if block.language in CODE and block.test == "clone"]  # of test_fresh_clone.py


def made_quick(words: list[str], small: bool) -> list[str]:
    """A `dysat` command with at most two epochs and two trials, in one process, without a server or an endless wait.

    With `small`, an evaluation of a dataset predicts one snapshot, and `reproduce` measures four rows.
    """
    command = words[0]
    if "--help" in words:
        return words
    words = [_capped(words[place - 1], word) for place, word in enumerate(words)]
    models = [words[place + 1] for place, word in enumerate(words) if word == "--model"] or ["dysat"]
    trains = command in ("fit", "evaluate", "tune") and "--resume" not in words
    given = any(word in ("--epochs", "--forecast-only") or word.startswith("epochs=") for word in words)
    if trains and not given and any(_has_epochs(model) for model in models):
        words = [*words, "--set", f"epochs={MOST['epochs']}"]
    if small and command in ("evaluate", "tune") and words[1] in DATASETS and "--steps" not in words:
        last = words[words.index("--last") + 1] if "--last" in words else DATASETS[words[1]].predicted[-1]
        words = [*words, "--first", str(last)]  # the last --first counts
    if "--follow" in words and "--once" not in words:
        words = [*words, "--once"]
    measures = command == "reproduce" and "--from" not in words
    if small and measures:
        words = [*words, "--budget", "quick", "--methods", QUICK_ROWS]
    if command in ("evaluate", "tune") or measures:
        words = [*words, "--processes", "1"]
    return words


def _capped(before: str, word: str) -> str:
    for name, most in MOST.items():
        if before == f"--{name}":
            return str(min(int(word), most))
        if before == "--set" and word.startswith(f"{name}="):
            return f"{name}={min(int(word.partition('=')[2]), most)}"
    return "sqlite:///server.db" if before == "--storage" and word.startswith("postgresql://") else word


def _has_epochs(model: str) -> bool:
    return any(option.name == "epochs" for option in MODELS[model.partition(":")[0]].options())


# Options that make the scripts in benchmarks/ quick; the last of two equal options counts.
QUICK_SCRIPTS = {
    "single_step.py": ["--epochs", "2", "--predicted", "6", "--learning-rate", "0.001"],
    "incsat.py": ["--epochs", "1", "--processes", "1"],
    "baselines.py": ["--method", "G-SAGE", "GCN-AE", "--first", "12", "--epochs", "1", "--processes", "1"],
}
QUICK_FITS = ["--method", "GCN-AE", "DySAT", "--epochs", "2", "--device", "cpu"]


def quick_script(line: list[str]) -> list[str]:
    """A `python benchmarks/…` command with quick options; commands that only write tables stay as they are."""
    if "--table" in line:
        return line
    script = Path(line[1]).name
    assert script in QUICK_SCRIPTS, f"{shlex.join(line)}: add quick options for it to tests/support/code_blocks.py"
    return [*line, *(QUICK_FITS if "--fits" in line else QUICK_SCRIPTS[script])]
