"""Every command against damaged run folders: a valid result or one line, never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folders import quick, unseal
from weekly import day, new_model, week, weeks, write_log

import dysat
from dysat.cli.options import EventOptions
from dysat.runs.run import Run

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
HUGE = 10**400


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the default model with a backtest, and the log that follows it."""
    folder = tmp_path_factory.mktemp("original")
    events = dysat.read_events(write_log(folder / "base.csv", weeks(0, 4)))
    made = EventOptions(every="1w").record(events.columns)
    graph = dysat.build_snapshots(events, every="1w")
    run = Run.start(folder / "run", graph, new_model("dysat"), backtest=2, events=made)
    assert run.train()
    write_log(folder / "next.csv", week(4))
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "f")) / "run"


COMMANDS: dict[str, tuple[str, ...]] = {
    "resume": ("fit", "--resume", "RUN", "--device", "cpu"),
    "info": ("info", "RUN"),
    "json": ("info", "RUN", "--json"),
    "forecast": ("forecast", "RUN", "--device", "cpu"),
    "update": ("update", "RUN", "NEXT", "--device", "cpu"),
    "evaluate": ("evaluate", "RUN", "--model", "edgebank", "--last", "1", "--out", "EVALUATION"),
}


def tried(cli: Cli, run: Path, name: str) -> tuple[int, str]:
    """Run a command; it succeeds, or fails with one line."""
    places = {"RUN": run, "NEXT": run.parent / "next.csv", "EVALUATION": run.parent / "evaluation"}
    code, _, err = cli(*(places.get(word, word) for word in COMMANDS[name]))
    if code == 0:
        return code, err
    lines = [line for line in err.splitlines() if line.startswith("dysat: ")]
    assert code == 2 and len(lines) == 1 and err.endswith(f"{lines[0]}\n") and "Traceback" not in err, (name, err)
    assert "internal error" not in err
    return code, lines[0]


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    """Text of metrics.json after a change of its content."""

    def edit(text: str) -> str:
        facts = json.loads(text)
        change(facts)
        return json.dumps(facts)

    return edit


def inside(*path: Any, value: Any) -> Callable[[str], str]:
    """Text of metrics.json with another value at a path."""

    def change(facts: dict[str, Any]) -> None:
        at: Any = facts
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return edited(change)


METRICS: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "object": lambda text: "{}",
    "list": lambda text: "[]",
    "null": lambda text: "null",
    "text": lambda text: '"x"',
    "deep": lambda text: "[" * 100_000 + "]" * 100_000,
    "nested": inside("extra", value=json.loads("[" * 500 + "]" * 500)),
    "digits": lambda text: text.replace('"epochs": ', '"epochs": ' + "9" * 5000),
    "cut": lambda text: text[: len(text) // 2],
    "not UTF-8": lambda text: "\udcff",
    "no backtest": edited(lambda facts: facts.pop("backtest")),
    "backtest {}": inside("backtest", value={}),
    "backtest []": inside("backtest", value=[]),
    "backtest text": inside("backtest", value="good"),
    "no windows": inside("backtest", "windows", value=[]),
    "windows of numbers": inside("backtest", "windows", value=[1, 2]),
    "links as text": inside("backtest", "windows", 0, "links", value="82"),
    "huge links": inside("backtest", "windows", 0, "links", value=HUGE),
    "huge step": inside("backtest", "windows", 0, "step", value=HUGE),
    "negative step": inside("backtest", "windows", 0, "step", value=-5),
    "auc as text": inside("backtest", "windows", 0, "auc", value="0.9"),
    "auc a list": inside("backtest", "mean", "auc", value=[0.9]),
    "mean {}": inside("backtest", "mean", value={}),
    "unknown heuristic": inside("backtest", "comparison", "heuristic", value="x"),
    "unknown verdict": inside("backtest", "comparison", "verdict", value="wins"),
    "precision of text": inside("backtest", "precision", value={"all": {"10": "3"}, "new": {}}),
    "precision without new": inside("backtest", "precision", value={"all": {"10": 3}}),
    "precision of a window": inside("backtest", "windows", 0, "precision", value={"all": {"10": "3"}, "new": {}}),
    "precision of a window without new": inside("backtest", "windows", 0, "precision", value={"all": {"10": 3}}),
    "left out": inside("backtest", "left_out", value=3),
    "curve": inside("backtest", "forecast", "reliability_new", value=[{"pairs": 3}]),
    "curve without figures": inside(
        *("backtest", "forecast", "reliability_new", 0),
        value={"from": 0.0, "to": 0.1, "pairs": 3, "mean_score": None, "linked": None},
    ),
    "epochs as text": inside("epochs", value="1"),
    "huge epochs": inside("epochs", value=HUGE),
    "seconds a list": inside("seconds", value=[1]),
    "device a number": inside("device", value=3),
    "notes a text": inside("notes", value="x"),
    "notes of numbers": inside("notes", value=[1]),
}


@pytest.mark.parametrize("damage", METRICS)
def test_damaged_metrics(cli: Cli, run: Path, damage: str) -> None:
    file = run / "metrics.json"
    text = METRICS[damage](file.read_text())
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    for name in ("resume", "info", "json"):  # these show the figures
        code, line = tried(cli, run, name)
        assert code == 2 and str(file) in line, line


@pytest.mark.parametrize("damage", ["object", "deep", "huge links"])
def test_other_commands_with_damaged_metrics(cli: Cli, run: Path, damage: str) -> None:
    (run / "metrics.json").write_text(METRICS[damage]((run / "metrics.json").read_text()))
    assert tried(cli, run, "forecast")[0] == 0  # which needs none of the figures
    tried(cli, run, "evaluate")
    code, err = tried(cli, run, "update")
    assert code == 0 and "the updates are stored, but " in err  # the model does not depend on the metrics


def test_intact_metrics_are_accepted(cli: Cli, run: Path) -> None:
    for name in COMMANDS:
        assert tried(cli, run, name)[0] == 0, name


@pytest.mark.parametrize("content", ["", "[", "\0" * 100, "stage,number\n" * 3])
def test_a_damaged_history_is_harmless(cli: Cli, run: Path, content: str) -> None:
    (run / "history.csv").write_text(content)
    for name in ("resume", "info", "forecast"):
        assert tried(cli, run, name)[0] == 0, name


CONFIGS = {
    "unknown key": ("[events]\n", "[events]\ncolour = 3\n", "[events] has no key 'colour'"),
    "unused every": ('every = "1w"', "every = 3.5", "[events] must be a table"),
    "nested": ('every = "1w"', 'every = {a = "1w"}', "[events] must be a table"),
    "every a number": ('every = "1w"', "every = 7", "[events] every cannot be 7"),
    "every absurd": ('every = "1w"', 'every = "999999999y"', ""),
    "other windows": ('every = "1w"', 'every = "3d"', "does not match the windows of the graph (every 1w, as so far)"),
    "count too": ('every = "1w"', 'every = "1w"\ncount = 99', "count = 99 does not match the windows of the graph"),
    "huge count": ('every = "1w"', f"count = {HUGE}", ""),
    "loops": ('self_loops = "drop"', 'self_loops = "keep"', "self_loops = 'keep' does not match the graph"),
    "loops unknown": ('self_loops = "drop"', 'self_loops = "x"', ""),
    "kinds": ("[events]\n", '[events]\nkinds = "a,b"\n', "does not match the kinds of the graph"),
    "directed": ("[events]\n", "[events]\ndirected = true\n", "directed = True does not match the graph"),
    "unknown option": ("seed = 0", "seed = 0\ncolour = 1", "dysat has no option 'colour'"),
    "option a date": (
        "seed = 0",
        "seed = 2024-01-01",
        "[options] seed = datetime.date(2024, 1, 1) is not a whole number",
    ),
    "option a table": ("seed = 0", "seed = {a = 1}", "seed = {'a': 1} is not a whole number"),
    "option nan": ("l2 = ", "l2 = nan # ", "l2 = nan must be a finite number"),
    "option absurd": ("spectrum = 2", "spectrum = 1000000000", "spectrum = 1000000000 must be at most 65536"),
    "option huge": ("seed = 0", f"seed = {HUGE}", "must be below 2^64"),
    "digits": ("seed = 0", f"seed = {'9' * 5000}", "config.toml: damaged: "),
    "options a text": ("[options]\n", 'options = "x"\n[o]\n', "damaged: no options"),
    "other option": ("spectrum = 2", "spectrum = 3", "options.spectrum is 3, but the model was trained with 2"),
    "other graph": ('graph = "', 'graph = "0', "not the graph that the run was started with"),
    "method": ('method = "dysat"', 'method = "incsat"', ""),
    "backtest": ("backtest = 2", "backtest = -1", "backtest must be a number of windows"),
    "events a text": ("[events]\n", "[e]\n[[events]]\n", "[events] must be a table"),
}


@pytest.mark.parametrize("damage", CONFIGS)
@pytest.mark.slow
def test_damaged_config_of_a_run_without_a_seal(cli: Cli, run: Path, damage: str) -> None:
    """Without a seal, edits are recognised as far as graph and model show them."""
    old, new, message = CONFIGS[damage]
    config = unseal(run)
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    found = [tried(cli, run, name) for name in ("info", "forecast", "resume", "update")]
    assert any(code and message in line for code, line in found), found
    assert found[-1][0] == 2


@pytest.mark.parametrize("damage", CONFIGS)
def test_an_edit_of_a_sealed_config_is_named(cli: Cli, run: Path, damage: str) -> None:
    old, new, _ = CONFIGS[damage]
    config = run / "config.toml"
    config.write_text(config.read_text().replace(old, new))
    for name in COMMANDS:
        code, line = tried(cli, run, name)
        assert code == 2 and "config.toml: " in line, line


def test_an_edit_is_named_with_both_values_and_the_way_out(cli: Cli, run: Path) -> None:
    config = run / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("epochs = 1", "epochs = 5").replace('every = "1w"', 'every = "3d"'))
    code, line = tried(cli, run, "update")
    changes = 'options.epochs was 1 and is 5, events.every was "1w" and is "3d"'
    assert code == 2 and f"changed since the run was created: {changes}; undo it, or dysat fit makes a new run" in line
    config.write_text(text.replace('device = "cpu"', 'device = "auto"').replace('source = ""', 'source = "mail"'))
    assert tried(cli, run, "info")[0] == 0  # neither changes what a run is


def test_seal_accepts_how_logs_are_read_but_no_other_windows(cli: Cli, run: Path) -> None:
    config = run / "config.toml"
    text = config.read_text()
    config.write_text(text.replace('src = "src"', 'src = "from"').replace('every = "1w"', 'every = "7d"'))
    assert f"dysat seal {run} accepts it" in tried(cli, run, "info")[1]
    code, out, err = cli("seal", run)
    assert (code, err) == (0, "") and "sealed with the changed events.every, events.src" in " ".join(out.split()), out
    log = write_log(run.parent / "next.csv", week(4))
    log.write_text(log.read_text().replace("src,", "from,"))
    assert tried(cli, run, "update")[0] == 0 and Run.open(run).graph().boundaries[-1] == _moment(day(5))
    for old, new, message in (
        ('every = "7d"', 'every = "3d"', "does not match the windows of the graph"),
        ("epochs = 1", "epochs = 2", "options.epochs cannot be changed; dysat fit makes a new run"),
        ("[events]\n", "[events]\ncolour = 1\n", "has no key 'colour'"),
    ):
        before = config.read_text()
        config.write_text(before.replace(old, new))
        code, _, err = cli("seal", run)
        assert code == 2 and message in err and err.count("\n") == 1, err
        config.write_text(before)
    assert cli("seal", run, "--json")[0] == 0


def test_a_run_of_an_earlier_version_can_be_sealed(cli: Cli, run: Path) -> None:
    config = unseal(run)
    assert tried(cli, run, "info")[0] == 0
    assert cli("seal", run)[0] == 0 and (run / "run.json").is_file()
    config.write_text(config.read_text().replace("epochs = 1", "epochs = 5"))
    assert "options.epochs was 1 and is 5" in tried(cli, run, "info")[1]


@pytest.mark.parametrize("content", [None, "", "{}", "[]", "[" * 100_000, '{"values": 1}', "edited"])
def test_a_damaged_seal_is_refused(cli: Cli, run: Path, content: str | None) -> None:
    seal = run / "run.json"
    if content is None:
        seal.unlink()
    elif content == "edited":
        seal.write_text(seal.read_text().replace('"options.epochs": 1', '"options.epochs": 5'))
    else:
        seal.write_text(content)
    for name in ("info", "forecast", "resume", "update"):
        code, line = tried(cli, run, name)
        assert code == 2 and "damaged" in line and "run.json" in line


def _moment(text: str) -> int:
    return int(dysat.read_events(([0], [1], [text]), at_least=1).time[0])
