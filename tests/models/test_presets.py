"""Presets say every option they speak of in a value it takes, and the defaults are the paper's text."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest

import dysat
from dysat import DySAT, ModelError

PRESETS = [(method, name) for method, model in dysat.MODELS.items() for name in model.presets()]
OURS = {
    "blocks",
    "inputs",
    "history",
    "patience",
    "seed",
    "device",
    "clip_norm",
}  # neither the text's nor the program's


def test_there_is_one_of_the_text_and_one_of_the_program() -> None:
    assert list(DySAT.presets()) == ["program", "text"]


def test_every_file_is_some_models_preset() -> None:
    files = {file.name for file in resources.files("dysat.models").joinpath("presets").iterdir()}
    assert files == {f"{method}_{name}.toml" for method, name in PRESETS}


@pytest.mark.parametrize(("method", "name"), PRESETS)
def test_keys_are_options_and_values_are_theirs(method: str, name: str) -> None:
    model = dysat.MODELS[method]
    preset = model.presets()[name]
    assert preset.keys() == {"about", "parameters"} and isinstance(preset["about"], str) and preset["about"]
    options = {option.name: option for option in model.options()}
    for key, value in preset["parameters"].items():
        expected = None if value == "none" else tuple(value) if isinstance(value, list) else value
        assert options[key].read(value) == expected
    values = model.from_preset(name).values()
    assert all(values[key] == options[key].read(value) for key, value in preset["parameters"].items())


@pytest.mark.parametrize("name", ["text", "program"])
def test_a_preset_leaves_nothing_to_a_default(name: str) -> None:
    said = DySAT.presets()[name]["parameters"].keys()
    assert {option.name for option in DySAT.options()} - said <= OURS


def test_the_defaults_are_the_text() -> None:
    assert DySAT().values() == DySAT.from_preset("text").values()


def test_text_and_program_differ_where_the_paper_and_the_program_do() -> None:
    text, program = (DySAT.from_preset(name).values() for name in ("text", "program"))
    differ: dict[str, tuple[Any, Any]] = {
        "normalize": ("receiver", "sender"),
        "link_weights": ("raw", "normalized"),
        "add_self_loops": (False, True),
        "attention_bias": (False, True),
        "scale": ("features", "steps"),
        "feedforward": ("transformer", "skip"),
        "unknown": ("masked", "zero"),
        "temporal_dropout": (0.5, 0.0),
        "walk_length": (40, 20),
        "sharing": ("per-positive", "shared"),
        "reduction": ("sum", "mean"),
        "l2_on": ("all", "structural"),
        "clip_norm": (None, 1.0),
        "batch_size": (256, 512),
    }
    assert {key: (text[key], program[key]) for key in text if text[key] != program[key]} == differ


def test_a_preset_with_changes() -> None:
    model = DySAT.from_preset(
        "program", epochs="3", structural_heads="4,2", structural_features=[16, 8], clip_norm=None
    )
    changed = {"epochs": 3, "structural_heads": (4, 2), "structural_features": (16, 8), "clip_norm": None}
    assert model.values() == DySAT.from_preset("program").values() | changed
    with pytest.raises(ModelError, match=r"^dysat has no option 'head'"):
        DySAT.from_preset("text", head=3)
    with pytest.raises(ModelError, match=r"^structural_heads=5 does not divide structural_features=256"):
        DySAT.from_preset("text", structural_heads=(5, 8))


@pytest.mark.parametrize("name", ["txt", "", "dysat_text", "text.toml"])
def test_an_unknown_preset_names_those_there_are(name: str) -> None:
    with pytest.raises(ModelError, match=rf"^dysat has no preset '{name}'; there are program, text"):
        DySAT.from_preset(name)
