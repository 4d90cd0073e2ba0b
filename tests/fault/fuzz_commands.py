"""Hostile command lines: valid commands whose options get values that nobody should pass."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import typer
from fuzz_logs import NAMED
from hostile_values import Rng, chance, number, pick, text

from dysat.cli.app import app
from dysat.cli.options import MODEL_OPTIONS

# Options by what they take. Paths stay inside the case; what the user names may be read and written anywhere.
PATHS = ("--out", "-o", "--preset", "--nodes", "--follow", "--resume", "--data-dir")
TEXTS = (
    *("--src", "--dst", "--time", "--weight", "--kinds", "--pair-separator", "--split-dst", "--negative-weights"),
    *("--every", "--boundaries", "--start", "--stop", "--self-loops", "--time-format", "--time-unit", "--timezone"),
    *("--format", "--separator", "--encoding", "--node-id", "--node-time", "--node-columns", "--until", "--node"),
    *("--kind", "--known", "--calibrate", "--step", "--device", "--model", "--unknown", "--negatives", "--protocol"),
)
NUMBERS = ("--count", "--top", "--backtest-windows", "--seed", "--poll", "--first", "--last", "--epochs")
SWITCHES = (
    *("--json", "--directed", "--normalise-labels", "--skip-bad-rows", "--header", "--no-header", "--overwrite"),
    *("--decimal-comma", "--each", "--no-backtest", "--include-incomplete", "--forecast-only", "--once", "--wait"),
    *("--estimate", "--help", "--version"),
)
# A large value of these is valid and takes long; a run of hours is not a fault.
SLOW = {
    *("epochs", "walks_per_node", "walk_length", "contexts", "negatives", "window", "rounds", "restarts", "iterations"),
    *("samples", "transitions", "patience", "batch_size", "history"),
}
SETTINGS = tuple(name for name in MODEL_OPTIONS if name not in SLOW)
NAMES = (
    *(
        "new",
        "new/deep/er",
        "x.csv",
        "x.parquet",
        "x.jsonl",
        "x.png",
        "\udcff",
        "\x1b[31m.csv",
        "ö",
        "a" * 300,
        "",
        ".",
    ),
    *("run", "run/config.toml", "graph", "graph/graph.json", "mail.csv", "mail.csv/x", "nothing", "-", "run/graph"),
)
LIMITED = {"--top": 10**6, "--count": 10**5, "--epochs": 1, "--backtest-windows": 10**6}


def make_command(rng: Rng, originals: Path, folder: Path) -> list[str]:
    """Prepare a folder with a log, a graph and a run, and return a command line for it."""
    shutil.copytree(originals / "runs" / pick(rng, ("incsat", "program", "default", "stopped")), folder / "run")
    shutil.copytree(originals / "graphs" / pick(rng, ("plain", "directed", "sides", "attributes")), folder / "graph")
    for name in ("mail.csv", "later.csv", "people.csv"):
        shutil.copyfile(originals / "logs" / name, folder / name)
    columns = [word for key, name in NAMED.items() for word in (f"--{key}", name)]
    quick = [word for name in QUICK for word in ("--set", name)]
    source = pick(rng, ("mail.csv", "graph", "run"))
    base = pick(rng, (
        ["snapshots", "mail.csv", *columns, "--every", "1w"],
        ["snapshots", "mail.csv", *columns, "--every", "1w", "--nodes", "people.csv"],
        ["snapshots", "mail.csv"],
        ["info", source],
        ["datasets"],
        ["models"],
        ["models", pick(rng, ("dysat", "incsat", text(rng)))],
        ["forecast", "run"],
        ["embed", "run", "-o", "x.csv"],
        ["update", "run", "later.csv"],
        ["update", "run", "--follow", ".", "--once"],
        ["fit", "mail.csv", *columns, "--every", "1w", "--model", "incsat", "--no-backtest", *quick],
        ["fit", source, "--estimate"],
        ["fit", "--resume", "run"],
        ["evaluate", "nothing", "--model", text(rng)],
        ["tune", "nothing", "--space", text(rng)],
        ["reproduce", text(rng)],
        [text(rng)],
    ))  # fmt: skip
    for _ in range(int(rng.integers(1, 3))):
        base = _changed(rng, list(base))
    if "--follow" in base:  # without it, the command waits for files until it is stopped, as it should
        base = [*base, "--once"]
    return [word.replace("\0", "") for word in base]


QUICK = (
    *("structural_heads=2", "structural_features=4", "temporal_heads=2", "temporal_features=4", "epochs=1"),
    *("walks_per_node=1", "walk_length=4"),
)


@cache
def options_of(command: str) -> frozenset[str]:
    """The options that a command has."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    found = commands.get(command)
    return frozenset(name for parameter in (found.params if found else ()) for name in parameter.opts)


def _option(rng: Rng, words: Sequence[str], options: Sequence[str]) -> str:
    """One of these options, mostly one that the command has."""
    own = [name for name in options if name in options_of(words[0])]
    return pick(rng, own if own and chance(rng, 0.95) else options)


def _changed(rng: Rng, words: list[str]) -> list[str]:
    """Add an option with a hostile value, or drop or double a word."""
    action = rng.random()
    if action < 0.08 and len(words) > 1:
        del words[int(rng.integers(1, len(words)))]
        return words
    if action < 0.12:
        words.insert(int(rng.integers(1, len(words) + 1)), pick(rng, words))
        return words
    if action < 0.25:
        return [*words, _option(rng, words, SWITCHES)]
    if action < 0.4:
        return [*words, _option(rng, words, PATHS), pick(rng, NAMES)]
    if action < 0.55:
        name, given = _option(rng, words, NUMBERS), number(rng)
        if isinstance(given, int | float) and given > LIMITED.get(name, given):
            given = LIMITED[name]
        return [*words, name, str(given)]
    if words[0] in ("fit", "evaluate"):
        given = str(number(rng)) if chance(rng, 0.7) else text(rng)
        return [*words, "--set", f"{pick(rng, SETTINGS)}={given}"]
    return [*words, _option(rng, words, TEXTS), text(rng) if chance(rng, 0.8) else str(number(rng))]
