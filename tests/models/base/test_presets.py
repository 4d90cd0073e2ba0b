"""Presets say every option they speak of in a value it takes, and the defaults are the paper's text."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

import pytest

import dysat
from dysat import DySAT, ModelError
from dysat.models.base.preset import owned

PRESETS = [(method, name) for method, model in dysat.MODELS.items() for name in model.presets()]
# What the paper's model has not.
AHEAD = (
    *("activity", "spectrum", "positions", "walk_weight", "future_weight", "future_negatives", "matched"),
    *("agreement", "pair_score", "keep_epoch", "cool_down", "transitions"),
)
OURS = {
    "blocks",
    "inputs",
    "history",
    "patience",
    "seed",
    "device",
    "clip_norm",
    *AHEAD,
}  # neither the text's nor the program's


def test_the_forecast_leaves_nothing_that_matters_to_a_default() -> None:
    of_walks = {"walks_per_node", "walk_length", "window", "contexts", "negatives", "sharing", "negative_weight"}
    said = DySAT.presets()["forecast"]["parameters"]
    assert not said["walk_weight"]  # so they have no effect
    left = {option.name for option in DySAT.options()} - said.keys()
    assert left <= of_walks | {"reduction", "l2_on", "clip_norm", "patience", "history", "seed", "device"}


DATASETS = ("enron", "ml-10m", "uci", "yelp")


def test_there_is_one_of_the_text_and_one_of_the_program_and_both_for_each_dataset() -> None:
    tuned = [f"sankar2019_{kind}{dataset}" for kind in ("", "text_") for dataset in DATASETS]
    assert list(DySAT.presets()) == ["forecast", "program", "text", *tuned]


def test_every_file_is_one_models_preset() -> None:
    files = {file.name for file in resources.files("dysat.models").joinpath("presets").iterdir()}
    expected = []
    for method, name in PRESETS:
        paper, *kind = name.split("_")
        row = f"{paper}_{'-'.join([method, *kind[:-1]])}_{kind[-1]}" if kind else f"{method}_{name}"
        expected.append(f"{row}.toml")
    assert sorted(files) == sorted(expected)


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("gcn_paper", ("gcn", "paper")),
        ("gcn_very_own", ("gcn", "very_own")),
        ("gcn-ae_paper", ("gcn-ae", "paper")),
        ("sankar2019_gcn_uci", ("gcn", "sankar2019_uci")),
        ("sankar2019_gcn-ae_ml-10m", ("gcn-ae", "sankar2019_ml-10m")),
        ("sankar2019_gcn-ae-deep_uci", ("gcn-ae", "sankar2019_deep_uci")),
        ("sankar2019_gcn-deep-wide_uci", ("gcn", "sankar2019_deep-wide_uci")),
        ("sankar2019_gcnae_uci", (None, "sankar2019_gcnae_uci")),
        ("gat_paper", (None, "paper")),
    ],
)
def test_a_variant_belongs_to_the_longest_name_that_fits(stem: str, expected: tuple[str | None, str]) -> None:
    for methods in (["gcn", "gcn-ae", "ae"], ["gcn-ae", "ae", "gcn"]):
        assert owned(stem, methods) == expected


def test_only_the_file_that_is_asked_for_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read, loads = [], tomllib.loads
    monkeypatch.setattr(tomllib, "loads", lambda text: read.append(text) or loads(text))
    presets = DySAT.presets()
    assert "text" in presets and len(presets) == 11 and not read
    assert DySAT.from_preset("sankar2019_uci").patience == 10
    assert len(read) == 1 and read[0].startswith("# DySAT on UCI, by the authors' program")


@pytest.mark.parametrize(
    ("method", "name", "expected"),
    [
        ("dysat", "sankar2019_uci", {"normalize": "sender", "negative_weight": 0.01, "patience": 10}),
        ("dysat", "sankar2019_text_uci", {"normalize": "receiver", "learning_rate": 1e-4, "patience": 20}),
        ("graphsage", "sankar2019_gat_yelp", {"aggregator": "gat", "heads": (8, 8)}),
        ("gat-ae", "sankar2019_ml-10m", {"heads": (8, 8), "patience": None}),
    ],
)
def test_the_papers_rows_by_name(method: str, name: str, expected: dict[str, Any]) -> None:
    values = dysat.MODELS[method].from_preset(name).values()
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize(("method", "name"), PRESETS)
def test_keys_are_options_and_values_are_theirs(method: str, name: str) -> None:
    model = dysat.MODELS[method]
    preset = model.presets()[name]
    parts = {"about", "parameters", "published"} if name.startswith("sankar2019") else {"about", "parameters"}
    assert preset.keys() == parts and isinstance(preset["about"], str) and preset["about"]
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


@pytest.mark.parametrize("name", ["txt", "", "dysat_text", "text.toml", "sankar2019_dysat_uci"])
def test_an_unknown_preset_names_those_there_are(name: str) -> None:
    with pytest.raises(
        ModelError, match=rf"^dysat has no preset '{name}'; there are forecast, program, text, sankar2019_enron"
    ):
        DySAT.from_preset(name)


def test_an_unknown_preset_gets_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"; did you mean 'sankar2019_gat_uci'\?$"):
        dysat.MODELS["graphsage"].from_preset("sankar2019_gat_ucl")
    with pytest.raises(ModelError, match=r"^svd has no preset 'paper'; it has none$"):
        dysat.MODELS["svd"].from_preset("paper")
