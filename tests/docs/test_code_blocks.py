"""Every code block of the README and the guides runs.

Blocks of a page run in order, in one folder: `python` blocks share a namespace, `console` blocks run their `$ dysat …`
lines and must print what the block shows, `sh` blocks run every line. The folder holds a made-up log, mail.csv, and the
month after it, new-mail.csv. A block that cannot run has `<!-- not run: REASON -->` on the line before it; its commands
are only parsed, and their models, presets and settings checked.
"""

from __future__ import annotations

import random
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from dysat.cli import app
from dysat.cli.options import chosen_model
from dysat.experiments.paper.reproduce import check_methods

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = {"python", "console", "sh"}
NOT_CODE = {"text", "csv", "toml", "json"}  # and directives of the site, such as {toctree}
NOT_RUN = re.compile(r"^<!-- not run: (\S.*) -->$")
FEW_EPOCHS = ["--set", "epochs=2"]


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    body: str
    reason: str  # why it is not run; empty if it is

    @property
    def place(self) -> str:
        return f"{self.page}, line {self.line}"


def blocks_of(page: Path) -> list[Block]:
    found, lines, number = list[Block](), page.read_text().splitlines(), 0
    while number < len(lines):
        fence = re.match(r"^(`{3,})(\S*)\s*$", lines[number])
        if not fence:
            number += 1
            continue
        end = lines.index(fence[1], number + 1)
        marker = NOT_RUN.match(lines[number - 1]) if number else None
        body = "".join(line + "\n" for line in lines[number + 1 : end])
        found.append(Block(page.name, number + 1, fence[2], body, marker[1] if marker else ""))
        number = end + 1
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def write_mails(folder: Path) -> None:
    """Half a year of mails among a dozen people, and the month after it."""
    rng, start = random.Random(0), datetime(2024, 1, 1)
    people = ["ann", "bob", "cy", "dee", *(f"p{i}" for i in range(8))]
    mails = [("ann", "bob", start, 3)]
    for day in range(210):
        for minute in sorted(rng.sample(range(1, 1440), 2)):
            sender = min(int(rng.expovariate(0.25)), len(people) - 1)
            receiver = (sender + 1 + min(int(rng.expovariate(0.5)), 6)) % len(people)
            moment = start + timedelta(days=day, minutes=minute)
            mails.append((people[sender], people[receiver], moment, rng.randrange(1, 9)))
    cut = start + timedelta(days=180)
    for name, part in {
        "mail.csv": [mail for mail in mails if mail[2] < cut],
        "new-mail.csv": [mail for mail in mails if mail[2] >= cut],
    }.items():
        rows = (f"{u}@x.org,{v}@x.org,{moment:%Y-%m-%dT%H:%M:%SZ},{size}\n" for u, v, moment, size in part)
        (folder / name).write_text("from,to,sent,size\n" + "".join(rows))


def commands(block: Block) -> Iterator[tuple[list[str], list[str]]]:
    """The arguments of every `dysat …` command, and the lines shown below it."""
    text = block.body.replace("\\\n", " ")
    prefix = "$ " if block.language == "console" else ""
    shown: list[str] = []
    arguments: list[str] | None = None
    for line in text.splitlines():
        if not line.strip() or (not prefix and line.startswith("#")):
            continue
        if line.startswith(prefix):
            if arguments is not None:
                yield arguments, shown
            program, *arguments = shlex.split(line.removeprefix(prefix), comments=True)
            assert program == "dysat", f"{block.place}: {program} cannot be run here; mark the block as not run"
            shown = []
        elif line.strip() != "…":
            shown.append(line)
    if arguments is not None:
        yield arguments, shown


def made_quick(arguments: list[str]) -> list[str]:
    """The same command with two epochs, and in this process."""
    command = arguments[0]
    trains = command in ("fit", "evaluate", "tune") and "--resume" not in arguments and "--help" not in arguments
    model = arguments[arguments.index("--model") + 1] if "--model" in arguments else "dysat"
    given = any(word in ("--epochs", "--forecast-only") or word.startswith("epochs=") for word in arguments)
    if trains and not given and model.split(":")[0] in ("dysat", "incsat"):
        arguments = [*arguments, *FEW_EPOCHS]
    if command in ("evaluate", "tune", "reproduce") and "--processes" not in arguments and "--help" not in arguments:
        arguments = [*arguments, "--processes", "1"]
    return arguments


def run_commands(block: Block, cli: Callable[..., tuple[int, str, str]]) -> None:
    for arguments, shown in commands(block):
        code, out, err = cli(*made_quick(arguments))
        assert code == (2 if any(line.startswith("dysat: ") for line in shown) else 0), (
            f"{block.place}: dysat {shlex.join(arguments)}: exit code {code}\n{err}"
        )
        printed = {line.rstrip() for line in (out + err).splitlines()}
        missing = [line for line in shown if line.rstrip() not in printed]
        assert not missing, f"{block.place}: dysat {shlex.join(arguments)} does not print {missing}"


def run_python(block: Block, namespace: dict[str, Any]) -> None:
    exec(compile("\n" * block.line + block.body, block.page, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_mails(tmp_path)
    namespace: dict[str, Any] = {"__name__": page.stem}
    code = [block for block in blocks_of(page) if block.language in CODE]
    executed = 0
    for block in code:
        if block.reason:
            continue
        if block.language == "python":
            run_python(block, namespace)
        else:
            run_commands(block, cli)
        executed += 1
    assert executed == sum(not block.reason for block in code)


def test_every_block_has_a_known_language() -> None:
    unknown = [
        (block.place, block.language)
        for block in BLOCKS
        if block.language not in CODE | NOT_CODE and not block.language.startswith("{")
    ]
    assert not unknown


def test_blocks_that_do_not_run_say_why() -> None:
    """Every marker stands before a code block; `pytest -rP` lists them."""
    marked = [block for block in BLOCKS if block.reason]
    assert all(block.language in CODE for block in marked)
    markers = sum(bool(NOT_RUN.match(line)) for page in PAGES for line in page.read_text().splitlines())
    assert len(marked) == markers, "a `not run` marker is not on the line before a block"
    for block in marked:
        sys.stdout.write(f"{block.place}: not run: {block.reason}\n")


def test_commands_that_do_not_run_are_valid() -> None:
    """Their options exist, their values have the right type, and their models, presets and settings are known."""
    program = get_command(app)
    checked = 0
    for block in (block for block in BLOCKS if block.reason and block.language != "python"):
        lines = block.body.replace("\\\n", " ").replace("$ ", "").splitlines()
        for words in (shlex.split(line, comments=True) for line in lines if line.startswith("dysat ")):
            command = program.commands[words[1]]  # type: ignore[attr-defined]
            given = command.make_context(words[1], words[2:]).params
            models = given.get("models") or [given.get("model") or "dysat"]
            presets = [given.get("preset"), *(model.partition(":")[2] for model in models)]
            if words[1] in ("fit", "evaluate", "tune") and not any(str(name).endswith(".toml") for name in presets):
                for model in models:
                    chosen_model(model, given.get("preset"), given.get("settings"), ignore=len(models) > 1)
            if words[1] == "reproduce" and given["methods"]:
                check_methods(given["methods"].split(","))
            checked += 1
    assert checked >= 15


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "".join(page.read_text() for page in PAGES)
    asked = set(re.findall(r"\bmake ([a-z-]+)", "".join(re.findall(r"`+[^`]*`+|^make .*$", text, re.MULTILINE))))
    assert {"demo", "test", "docs"} <= asked <= targets


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
