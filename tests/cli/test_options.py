"""Options that commands share: events, models, --set, and errors in the words of the command line."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import dysat
from dysat.cli import app
from dysat.cli.learn import HIDDEN
from dysat.cli.options import (
    FLAGS,
    MODEL_OPTIONS,
    NODE_OPTIONS,
    EventOptions,
    as_options,
    chosen_model,
    parse_setting,
    takes,
)  # fmt: skip
from dysat.errors import ModelError

Cli = Callable[..., tuple[int, str, str]]
EVENTS = [field.name for field in fields(EventOptions)]


def as_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def called(*args: str) -> dict[str, Any]:
    """The arguments of a command with the options of events, for a command line."""
    found: dict[str, Any] = {}
    tiny = typer.Typer()

    @tiny.command()
    @takes(events=EventOptions)
    def command(name: str = "x", *, events: EventOptions) -> None:
        found.update(name=name, events=events)

    result = CliRunner().invoke(tiny, args)
    assert result.exit_code == 0, result.output
    return found


def test_command_takes_every_event_option_once() -> None:
    @takes(events=EventOptions)
    def command(out: Path, *, events: EventOptions) -> None: ...

    parameters = inspect.signature(command).parameters
    assert list(parameters) == ["out", *EVENTS] and command.__name__ == "command"
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters.values())


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("", []),
        ("--every 1w", ["every"]),
        ("--src a --no-header --skip-bad-rows", ["src", "header", "skip_bad_rows"]),
        ("--self-loops keep --timezone Europe/Paris", ["self_loops", "timezone"]),
        ("--timezone UTC", []),  # the default
    ],
)
def test_given_lists_options_that_differ_from_their_defaults(line: str, given: list[str]) -> None:
    found = called(*line.split())
    assert found["name"] == "x" and found["events"].given() == given


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("every='1w' and epochs=-1 must not be negative", "--every 1w and --epochs -1 must not be negative"),
        ("walk_length=3 and clip_norm='inf', walk=1", "--set walk_length=3 and --set clip_norm=inf, walk=1"),
        ("structural_heads=(2, 2) and", "--set structural_heads=2,2 and"),
        ("time_format='%d.%m.%Y %H:%M' reads it", "--time-format '%d.%m.%Y %H:%M' reads it"),
        ("state kinds=('user', 'film')", "state --kinds user,film"),
        ("normalise_labels=True merges, normalise_labels=False", "--normalise-labels merges, no --normalise-labels"),
        ("state decimal=',' or decimal='.'", "state --decimal-comma or --decimal-point"),
        ("split_dst=';' and negative_weights= and", "--split-dst ';' and --negative-weights and"),
        ("negative_weight=0.5", "--set negative_weight=0.5"),
        ("p=0.5 and q=2", "--set p=0.5 and --set q=2"),
        ("p=1/none.csv: no such file", "p=1/none.csv: no such file"),  # a path
        ("data/rows=2: exists already", "data/rows=2: exists already"),
    ],
)  # fmt: skip
def test_library_arguments_become_command_line_options(text: str, expected: str) -> None:
    assert as_options(text) == expected


def test_every_argument_has_a_command_line_form() -> None:
    # The library says bad_rows="skip", decimal="," and read_nodes(id=…), whose messages name the options.
    assert {*EVENTS} - {"skip_bad_rows", "decimal_comma", *NODE_OPTIONS} <= {*FLAGS}
    assert {option.name for model in dysat.MODELS.values() for option in model.options()} == {*MODEL_OPTIONS}


@pytest.mark.parametrize("columns", [80, 120])
def test_help_of_fit_fits_a_screen(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = CliRunner().invoke(app, ["fit", "--help"])
    named = set(re.findall(r"--[a-z0-9-]+(?![a-z0-9…-])", result.output))
    shown = {"out", "resume", "no-backtest", "forecast-only", "estimate", "json", "help"}
    shown |= {"model", "preset", "epochs", "seed", "device", "set"}
    assert result.exit_code == 0 and result.output.count("\n") <= 40
    assert named == {f"--{name}" for name in shown} | {as_option(name) for name in EVENTS if name not in HIDDEN}


def test_help_of_snapshots_shows_every_event_option() -> None:
    output = CliRunner().invoke(app, ["snapshots", "--help"], env={"COLUMNS": "120"}).output
    assert {as_option(name) for name in EVENTS} <= set(re.findall(r"--[a-z0-9-]+", output))


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("embed", "out step device json"),
        ("forecast", "node kind top known device json"),
        ("bench", "dataset preset device batch-size epochs graph-dir data-dir json"),
        ("evaluate", "model set protocol negatives probe first last plot device json"),
        ("tune", "model preset set space trials steps preset-out device json"),
        ("models", "json"),
    ],
)
def test_help(command: str, options: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0 and all(f"--{option} " in result.output for option in options.split())


def test_model_preset_and_settings() -> None:
    assert chosen_model("dysat", None, None).build().get_params() == dysat.DySAT().get_params()
    program = dysat.DySAT.from_preset("program").get_params()
    assert chosen_model("dysat:program", None, []).build().get_params() == program
    found = chosen_model("dysat", "program", ["walk-length = 7", "structural_heads=8,4", "clip_norm=none"]).build()
    assert found.get_params() == program | {"walk_length": 7, "structural_heads": (8, 4), "clip_norm": None}


@pytest.mark.parametrize(
    ("model", "preset", "settings", "message"),
    [
        ("dysta", None, [], "no model 'dysta'; there are dysat, incsat, "),
        ("dysat:text", "program", [], "--model dysat:text names a preset already; leave out --preset program"),
        ("dysat", None, ["epochs"], "--set epochs: expected name=value"),
        ("dysat", None, ["=3"], "--set =3: expected name=value"),
        ("dysat", None, ["colour=red"], "dysat has no option 'colour'"),
        ("dysat", None, ["negative_weight=0.01"], "negative_weight=0.01 has no effect with walk_weight=0; "),
        ("svd", None, ["features=many"], "features='many' is not a whole number"),
    ],
)
def test_wrong_model_preset_or_setting(model: str, preset: str | None, settings: list[str], message: str) -> None:
    with pytest.raises(ModelError) as problem:
        chosen_model(model, preset, settings)
    assert str(problem.value).startswith(message)


def test_models_ignore_settings_of_other_models() -> None:
    given = dict(map(parse_setting, ["walks_per_node=3", "decay=0.5"]))
    options = [dict(chosen_model(name, None, given, ignore=True).options) for name in ("dysat", "dysat:text", "svd")]
    assert options == [{}, {"walks_per_node": "3"}, {"decay": "0.5"}]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("fit uci --negative-weight 0.01", "no option --negative-weight; options of a model are set with --set "),
        ("fit uci --no-residual", "no option --no-residual; options of a model are set with --set residual=VALUE"),
        ("evaluate uci --epochs 5", "no option --epochs; options of a model are set with --set epochs=VALUE"),
        ("tune uci --aggregator=lstm", "no option --aggregator; options of a model are set with --set aggregator="),
        ("fit uci --colour red", "No such option: --colour"),
    ],
)  # fmt: skip
def test_model_options_as_flags_suggest_set(cli: Cli, line: str, hint: str) -> None:
    code, out, err = cli(*line.split())
    assert (code, out) == (2, "") and err.startswith(f"dysat: {hint}") and err.count("\n") == 1


def test_models_lists_every_method_in_one_line(cli: Cli) -> None:
    code, out, err = cli("models")
    assert (code, err) == (0, "")
    first = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert [word for word in first if word in dysat.MODELS] == list(dysat.MODELS)
    assert all(model.about and len(model.about) <= 64 for model in dysat.MODELS.values())


@pytest.mark.parametrize("method", dysat.MODELS)
def test_models_describes_presets_and_every_option(cli: Cli, method: str) -> None:
    model = dysat.MODELS[method]
    out = cli("models", method)[1]
    assert all(re.search(rf"^ {option.name} ", out, re.MULTILINE) for option in model.options())
    assert all(f" {preset} " in out for preset in model.presets())
    facts = json.loads(cli("models", method, "--json")[1])
    assert [option["name"] for option in facts["options"]] == [option.name for option in model.options()]
    assert all(option["about"] and option["allowed"] for option in facts["options"])


def test_models_shows_the_values_of_a_preset(cli: Cli) -> None:
    values = json.loads(cli("models", "dysat:program", "--json")[1])["values"]
    assert values["normalize"] == "sender" and values["walk_weight"] == 1.0
    code, _, err = cli("models", "graphsgae")
    assert code == 2 and "did you mean 'graphsage'?" in err
