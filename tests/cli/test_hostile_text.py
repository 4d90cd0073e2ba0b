"""Every command on a log whose labels, columns, kinds and file names try to act on the terminal."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hostile_text
import pytest
from rich.text import Text
from run_folders import quick

import dysat
from dysat.cli.output.show import new_console, new_table
from dysat.cli.output.terminal import foreign, one_line
from dysat.system.notebook import html_table
from dysat.system.text.printable import printable
from dysat.system.text.toml import as_toml

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
READ = hostile_text.READ
TINY = ("--epochs", "1", "--device", "cpu")


@pytest.fixture(params=["file", pytest.param("terminal", marks=pytest.mark.slow)])
def safe(request: pytest.FixtureRequest, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command to a file or to a terminal with colours, check all that it prints, and return the output."""
    terminal = request.param == "terminal"
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object, code: int = 0) -> str:
        found, out, err = cli(*words)
        assert found == code, err
        hostile_text.check_output(out, colours=terminal)
        hostile_text.check_output(err, colours=terminal, live=terminal)
        return hostile_text.SGR.sub("", out if code == 0 else err)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / hostile_text.NAME


@pytest.fixture
def log(folder: Path) -> Path:
    return hostile_text.write_log(folder / f"log{hostile_text.NAME}.csv", range(3))


def test_run_commands(safe: Callable[..., str], log: Path, folder: Path) -> None:
    run = folder / f"run{hostile_text.NAME}"
    text = safe("fit", log, "-o", run, *READ, *TINY, "--no-backtest")
    assert r"\x1b]0;owned\x07" in text
    text = safe("info", run)
    assert r"from\x1b[1m" in text and r"a\x1b]0;owned\x07\u202e[red]\n" in text
    facts = json.loads(safe("info", run, "--json"))
    assert facts["run"]["source"] == str(log) and facts["run"]["events"]["src"] == hostile_text.COLUMNS[0]
    links = safe("forecast", run, "--top", "300")
    assert [label for label in hostile_text.LABELS if printable(label) not in links] == []
    rows = json.loads(safe("forecast", run, "--top", "300", "--json"))
    assert {row["u"] for row in rows} | {row["v"] for row in rows} == set(hostile_text.LABELS)
    safe("forecast", run, "--each")
    safe("forecast", run, "--why")
    safe("forecast", run, "--node", hostile_text.LABELS[0])
    safe("forecast", run, "--node", "nobody \x1b[31m\u202e", code=2)
    for ending in ("csv", "parquet", "jsonl"):
        assert r"\x1b" in safe("forecast", run, "--each", "-o", folder / f"f\x1b[3m.{ending}")
        assert r"\x1b" in safe("embed", run, "-o", folder / f"e\x1b[3m.{ending}").replace("\n", "")
    safe("embed", run, "-o", folder / "e\x1b[3m.txt", code=2)
    hostile_text.write_log(folder / "new\x1b.csv", range(3, 4))
    assert r"\x1b" in safe("update", run, folder / "new\x1b.csv", "--until", "2024-01-29")
    hostile_text.write_log(folder / "feed\x1b" / "next\x9b.csv", range(3, 5))
    safe("update", run, "--follow", folder / "feed\x1b", "--once")


def test_graphs_kinds_and_notes(safe: Callable[..., str], log: Path, folder: Path) -> None:
    graph = folder / f"graph{hostile_text.NAME}"
    text = safe("snapshots", log, "-o", graph, *READ, "--kinds", hostile_text.KINDS)
    assert r"us\x1b[5mer" in text and r"it\u202eem" in text
    text = safe("info", graph)
    assert r"us\x1b[5mer" in text
    assert json.loads(safe("info", graph, "--json"))["kinds"].keys() == set(hostile_text.KINDS.split(","))
    hostile_text.check_output((graph / "graph.json").read_text())
    loaded = dysat.DynamicGraph.load(graph)
    hostile_text.check_output(repr(loaded))
    hostile_text.check_output(loaded._repr_html_())


@pytest.mark.slow
def test_evaluate_and_tune(safe: Callable[..., str], log: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    rest = (*READ, "--processes", "1", "--device", "cpu")
    preset = Path("preset\x1b[1m [red] $x$.toml")
    preset.write_text('about = "x"\n[parameters]\ndecay = 0.5\n')
    table, plot = folder / "table.md", folder / "steps.png"
    text = safe("evaluate", log, "-o", folder / "ev", "--model", f"svd:{preset}", "--markdown", table, *rest)
    assert r"preset\x1b[1m [red]" in text
    hostile_text.check_output(table.read_text())
    hostile_text.check_output((folder / "ev" / "results.json").read_text())
    if find_spec("matplotlib"):
        safe("evaluate", log, "-o", folder / "ev", "--model", f"svd:{preset}", "--plot", plot, *rest)
    facts = json.loads(safe("evaluate", log, "-o", folder / "ev2", "--model", "svd", "--json", *rest))
    assert facts["models"]
    pytest.importorskip("optuna")
    text = safe("tune", log, "-o", folder / "tuning\x1b", "--model", "svd", "--space", "decay=0.5,0.9", *rest)
    assert r"tuning\x1b" in text
    hostile_text.check_output((folder / "tuning\x1b" / "tuning.json").read_text())


def test_other_commands_and_errors(safe: Callable[..., str], log: Path, folder: Path) -> None:
    assert "graphsage" in safe("models") and "aggregator" in safe("models", "graphsage")
    safe("datasets", "--data-dir", folder)
    for words in (
        ("fit", "no\x1b[31m\u202e.csv"),
        ("fit", log, "--src", "absent\x1b"),
        ("fit", log, *READ, "--model", "no\x1bsuch"),
        ("fit", log, *READ, "--set", "walks\x1b=2"),
        ("fit", log, *READ, "--set", "epochs=\x1b"),
        ("fit", log, "--unknown\x1b"),
        ("forecast", folder),
        ("embed", folder, "-o", folder / "e.csv"),
        ("update", folder, log),
        ("models", "\x1b[1mx"),
        ("info", folder),
        ("evaluate", log, *READ, "--negatives", "un\x1biform"),
        ("reproduce", "table2", "--from", folder),
        ("reproduce", "table\x1b2"),
        ("bench", "--graph-dir", folder / "x"),
    ):
        text = safe(*words, code=2)
        assert hostile_text.LIVE.sub("", text).rstrip("\n").rpartition("\n")[2].startswith("dysat: ")


def test_values_of_metrics(safe: Callable[..., str], folder: Path) -> None:
    """The metrics.json of a stranger's run."""
    log = hostile_text.write_log(folder / "log.csv", range(4))
    run = folder / "run"
    safe("fit", log, "-o", run, *READ, *TINY)
    bad = "\x1b[31m[link=http://evil.example]\u202e\x9b"
    metrics: Any = json.loads((run / "metrics.json").read_text())
    comparison, windows = metrics["backtest"]["comparison"], metrics["backtest"]["windows"]
    for window in windows:
        window["heuristics"][bad] = window["heuristics"][comparison["heuristic"]]
    comparison["heuristic"] = metrics["device"] = metrics["backtest"]["verdict"] = bad
    (run / "metrics.json").write_text(json.dumps(metrics))
    text = safe("info", run)
    assert r"\x1b[31m[link=http://evil.example]\u202e\x9b" in text.replace("\n", "")
    text = safe("fit", "--resume", run)
    assert text.count(r"\x1b[31m[link=http://evil.example]") >= 3
    assert json.loads(safe("fit", "--resume", run, "--json"))["device"] == bad


def test_objects_in_python_and_notebooks(folder: Path, log: Path) -> None:
    events = dysat.read_events(log, *hostile_text.COLUMNS, kinds=("us\x1b[5mer", "it\u202eem"))
    graph = dysat.build_snapshots(events, every="7d")
    model = dysat.MODELS["edge-memory"]().fit(graph)
    links = model.top_links(10)
    people = folder / "people.csv"
    people.write_text(f"id,te\x1bam,age\n{hostile_text.LABELS[-1]},x,3\nb,y,4\n")
    table = dysat.read_nodes(people, "id", kind="us\x1b[5mer")
    for shown in (graph, links, model, table, events):
        hostile_text.check_output(repr(shown))
        hostile_text.check_output(getattr(shown, "_repr_html_", str)())
    assert r"us\x1b[5mer" in repr(links) and r"us\x1b[5mer" in links._repr_html_() and r"te\x1bam" in repr(table)
    page = html_table("<b>\x1b", ["a\x9b"], [["<script>\u202e"]], "\x07")
    hostile_text.check_output(page)
    assert "<script>" not in page and r"&lt;script&gt;\u202e" in page


def test_settings_file_shows_what_it_holds() -> None:
    text = as_toml({"labels": hostile_text.LABELS, "notes": {"x": "雪\x7f"}})
    hostile_text.check_output(text)
    assert tomllib.loads(text) == {"labels": hostile_text.LABELS, "notes": {"x": "雪\x7f"}} and "雪" in text


def test_markup_of_foreign_text_is_shown_as_it_is() -> None:
    for label in [*hostile_text.LABELS, "[[", "]]", "\\[bold]", "\\\\", "[/none]", "[none]", "[@click=x]y"]:
        shown = printable(label)
        for markup, plain in {
            "{0}": shown,
            "[bold]{0}[/bold] ] [dim]x[/dim]": f"{shown} ] x",
            "{0}{0}]": f"{shown}{shown}]",
            "({0} … {0})[dim]![/dim]": f"({shown} … {shown})!",
        }.items():
            assert Text.from_markup(markup.format(foreign(label)), emoji=False).plain == plain, (label, markup)


def test_a_forgotten_escape_sends_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    console, table = new_console(), new_table("a\x1b[1m", "b")
    table.add_row("\x1b[2J\nx", Text("\x9b padding"))
    console.print(table)
    console.print("two\nlines \x1b]0;x\x07 :smile:", Text("\u202e"))
    out = capsys.readouterr().out
    hostile_text.check_output(out)
    assert r"\x1b[2J\nx" in out and r"\x9b" in out and "two\nlines" in out and ":smile:" in out


def test_an_error_is_one_line() -> None:
    assert one_line(" first\n  second\r\nthird \x1b\r\tx ") == r"first second third \x1b\r\tx"


def test_no_module_prints_past_the_safe_functions() -> None:
    """Consoles, tables and escapes of Rich are made in one place, and typer.echo prints JSON and the version only."""
    for file in Path(dysat.__file__).parent.joinpath("cli").glob("*.py"):
        text = file.read_text()
        if file.name != "terminal.py":
            assert "rich.markup" not in text and not re.search(r"(?<!Safe)\b(Console|Table)\(", text), file.name
        echoes = re.findall(r"typer\.echo\((.*)", text)
        allowed = ("json_text(", 'f"dysat {dysat.__version__}"', "printable(text)")
        assert all(echo.startswith(allowed) for echo in echoes), (file.name, echoes)
