"""The options of the commands are the fields of the model and of the events, each by its name."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from typer.testing import CliRunner

import dysat
from dysat.cli import app
from dysat.cli.options import OPTIONS, TRAINING, EventOptions, ModelOptions, as_options, takes

MODEL = [option.name for option in dysat.DySAT.options()]
EVENTS = [field.name for field in fields(EventOptions)]


def as_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def called(*args: str) -> dict[str, Any]:
    """What a command with all groups of options is given for a command line."""
    found: dict[str, Any] = {}
    tiny = typer.Typer()

    @tiny.command()
    @takes(events=EventOptions, models={"dysat": dysat.DySAT})
    def command(name: str = "x", *, events: EventOptions, model: ModelOptions) -> None:
        found.update(name=name, events=events, model=model.given)

    result = CliRunner().invoke(tiny, args)
    assert result.exit_code == 0, result.output
    return found


def test_a_command_takes_every_option_once() -> None:
    @takes(events=EventOptions, models={"dysat": dysat.DySAT})
    def command(out: Path, *, events: EventOptions, model: ModelOptions) -> None: ...

    parameters = inspect.signature(command).parameters
    assert list(parameters) == ["out", *EVENTS, *MODEL] and command.__name__ == "command"
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters.values())
    assert all(parameters[name].default is None for name in MODEL)


@pytest.mark.parametrize("group", ["events", "model"])
def test_a_command_takes_one_group_only(group: str) -> None:
    options = {"events": EventOptions} if group == "events" else {"models": {"dysat": dysat.DySAT}}

    def command(**given: Any) -> None: ...

    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(group, inspect.Parameter.KEYWORD_ONLY)]
    )
    assert list(inspect.signature(takes(**options)(command)).parameters) == (EVENTS if group == "events" else MODEL)  # type: ignore[arg-type]


def test_what_is_not_given_is_left_to_the_preset() -> None:
    assert called() == {"name": "x", "events": EventOptions(), "model": {}}
    assert called("--name", "y", "--epochs", "0")["model"] == {"epochs": 0}  # 0 was given


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("--add-self-loops", {"add_self_loops": True}),
        ("--no-add-self-loops", {"add_self_loops": False}),
        ("--residual --no-attention-bias", {"residual": True, "attention_bias": False}),
        ("--l2 1e-3 --clip-norm 2", {"l2": 1e-3, "clip_norm": "2"}),
        ("--structural-heads 4,2 --temporal-heads 1", {"structural_heads": "4,2", "temporal_heads": "1"}),
        ("--normalize sender --patience 3", {"normalize": "sender", "patience": "3"}),
    ],
)
def test_what_is_given_arrives(line: str, given: dict[str, Any]) -> None:
    assert called(*line.split())["model"] == given


def test_a_command_takes_the_options_of_several_models() -> None:
    given: dict[str, Any] = {}
    tiny = typer.Typer()

    @tiny.command()
    @takes(models={"dysat": dysat.DySAT, **{name: dysat.MODELS[name] for name in ("graphsage", "node2vec", "svd")}})
    def command(*, model: ModelOptions) -> None:
        given.update(model.given)

    line = "--aggregator lstm --p 0.5 --features 8,4 --normalize false --walk-length 7 --residual"
    assert CliRunner().invoke(tiny, line.split()).exit_code == 0
    # What models have in different kinds stays a text, which the one that is asked for reads.
    expected = {"p": 0.5, "features": "8,4", "normalize": "false", "walk_length": 7, "residual": True}
    assert given == {"aggregator": "lstm", **expected}
    shown = " ".join(CliRunner().invoke(tiny, ["--help"], env={"COLUMNS": "200"}).output.split())
    assert "node2vec: return parameter" in shown and "graphsage, node2vec, svd: width of the embedding" in shown
    assert "(receiver|sender)" in shown and shown.count("--features") == 1


def test_every_option_of_the_model_can_be_given() -> None:
    other = dysat.DySAT.from_preset("program").values() | {
        "history": 3,
        "clip_norm": 2.0,
        "patience": 5,
        "device": "cpu",
    }
    line = []
    for name, value in other.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        no = "--no-" if value is False else "--"
        line += [f"{no}{as_option(name)[2:]}"] if isinstance(value, bool) else [as_option(name), text]
    assert dysat.DySAT.with_options(called(*line)["model"]).values() == other


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("", []),
        ("--every 1w", ["every"]),
        ("--src a --no-header --skip-bad-rows", ["src", "header", "skip_bad_rows"]),
        ("--self-loops keep --timezone Europe/Paris", ["self_loops", "timezone"]),
        ("--timezone UTC", []),  # as it was
    ],
)
def test_given_names_what_was_changed(line: str, given: list[str]) -> None:
    assert called(*line.split())["events"].given() == given


def test_the_command_line_words_its_options() -> None:
    names = {*MODEL, *EVENTS} - {"skip_bad_rows"}  # the library says bad_rows="skip"
    assert names <= set(OPTIONS) and set(TRAINING) <= set(MODEL)
    assert as_options("structural_heads=3 and clip_norm='inf', structural=1") == (
        "--structural-heads 3 and --clip-norm inf, structural=1"
    )


def test_tuples_are_worded_as_they_are_given() -> None:
    assert as_options("structural_heads=(2, 2) and") == "--structural-heads 2,2 and"


@pytest.mark.parametrize("columns", [120, 80])
def test_help_of_fit_names_every_option(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = CliRunner().invoke(app, ["fit", "--help"])
    named = set(re.findall(r"--[a-z0-9-]+(?![a-z0-9…-])", result.output))
    assert result.exit_code == 0
    assert {as_option(name) for name in (*MODEL, *EVENTS, "resume", "out", "preset", "no-backtest", "json")} <= named


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("embed", "out step device json"),
        ("forecast", "node kind top known device json"),
        ("bench", "dataset preset device batch-size epochs graph-dir data-dir json"),
    ],
)
def test_help(command: str, options: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0 and all(f"--{option} " in result.output for option in options.split())


def test_every_choice_is_named_in_the_help() -> None:
    text = " ".join(CliRunner().invoke(app, ["fit", "--help"], env={"COLUMNS": "300"}).output.split())
    choices = [
        get_args(option.kind) for option in dysat.DySAT.options() if get_args(option.kind) not in ((), (int, ...))
    ]
    assert len(choices) > 8 and [c for c in choices if " or ".join(c) not in text and "|".join(c) not in text] == []


def test_paths_are_not_taken_for_options() -> None:
    assert as_options("epochs=-1 must not be negative") == "--epochs -1 must not be negative"
    assert as_options("p=0.5 and q=2") == "--p 0.5 and --q 2"
    assert as_options("p=1/none.csv: no such file") == "p=1/none.csv: no such file"
    assert as_options("data/rows=2: exists already") == "data/rows=2: exists already"
