"""Presets are complete and valid, and the default preset equals the constructor's defaults."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import dysat
from dysat import DySAT, IncSAT, ModelError
from dysat.experiments.evaluate.request import Contender
from dysat.models.base.preset import owned
from dysat.models.dysat import PAPER, WALK_OPTIONS

PRESETS = [(method, name) for method, model in dysat.MODELS.items() for name in model.presets()]


def test_default_preset_gives_every_option_that_has_an_effect() -> None:
    given = DySAT.presets()["default"]["parameters"]
    left = {option.name for option in DySAT.options()} - given.keys()
    assert given["walk_weight"] == 0  # so options of walks have no effect
    assert left <= {*WALK_OPTIONS, "clip_norm", "history", "seed", "device"}


DATASETS = ("enron", "ml-10m", "uci", "yelp")


def test_presets_of_dysat() -> None:
    tuned = [f"sankar2019_{kind}{dataset}" for kind in ("", "text_") for dataset in DATASETS]
    assert list(DySAT.presets()) == ["default", "program", "text", *tuned]


def test_every_preset_file_belongs_to_one_method() -> None:
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
def test_preset_belongs_to_the_longest_matching_method(stem: str, expected: tuple[str | None, str]) -> None:
    for methods in (["gcn", "gcn-ae", "ae"], ["gcn-ae", "ae", "gcn"]):
        assert owned(stem, methods) == expected


def test_only_the_requested_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_presets_of_the_paper_have_the_tuned_values(method: str, name: str, expected: dict[str, Any]) -> None:
    values = dysat.MODELS[method].from_preset(name).get_params()
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize(("method", "name"), PRESETS)
def test_keys_are_options_with_valid_values(method: str, name: str) -> None:
    model = dysat.MODELS[method]
    preset = model.presets()[name]
    parts = {"about", "parameters", "published"} if name.startswith("sankar2019") else {"about", "parameters"}
    assert preset.keys() == parts and isinstance(preset["about"], str) and preset["about"]
    options = {option.name: option for option in model.options()}
    for key, value in preset["parameters"].items():
        expected = None if value == "none" else tuple(value) if isinstance(value, list) else value
        assert options[key].read(value) == expected
    values = model.from_preset(name).get_params()
    assert all(values[key] == options[key].read(value) for key, value in preset["parameters"].items())


PAPER_PRESETS = [name for name in DySAT.presets() if name != "default"]


@pytest.mark.parametrize("name", PAPER_PRESETS)
def test_paper_presets_set_every_option(name: str) -> None:
    """A preset that left an option to DySAT()'s defaults would change with them."""
    given = DySAT.presets()[name]["parameters"].keys()
    neutral = {"blocks", "inputs", "history", "seed", "device", "future_negatives", "matched", "clip_norm"}
    neutral |= {"embeddings"}
    assert {option.name for option in DySAT.options()} - given <= neutral
    assert {key: getattr(DySAT.from_preset(name), key) for key in PAPER} == PAPER


def test_constructor_defaults_are_the_default_preset() -> None:
    assert DySAT().get_params() == DySAT.from_preset("default").get_params()
    assert IncSAT().get_params() == IncSAT.from_preset("program").get_params()


def test_bare_name_is_the_constructor_for_every_method() -> None:
    """The command line, evaluate() and tune() build a Contender; fit() in Python uses the constructor."""
    for method, kind in dysat.MODELS.items():
        assert Contender(method).build().get_params() == kind().get_params(), method


def test_preset_file_written_for_the_old_defaults_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tuned.toml"
    file.write_text('[parameters]\nsharing = "shared"\nnegative_weight = 0.01\n')
    with pytest.raises(ModelError, match=r"tuned\.toml: written for the paper's model .* add activity = false, .*"):
        DySAT.from_preset(str(file))
    file.write_text("[parameters]\nlearning_rate = 0.01\n")
    assert DySAT.from_preset(str(file)).get_params() == DySAT(learning_rate=0.01).get_params()


def test_differences_of_text_and_program() -> None:
    text, program = (DySAT.from_preset(name).get_params() for name in ("text", "program"))
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


def test_preset_with_changes() -> None:
    model = DySAT.from_preset(
        "program", epochs="3", structural_heads="4,2", structural_features=[16, 8], clip_norm=None
    )
    changed = {"epochs": 3, "structural_heads": (4, 2), "structural_features": (16, 8), "clip_norm": None}
    assert model.get_params() == DySAT.from_preset("program").get_params() | changed
    with pytest.raises(ModelError, match=r"^dysat has no option 'head'"):
        DySAT.from_preset("text", head=3)
    with pytest.raises(ModelError, match=r"^structural_heads=5 does not divide structural_features=256"):
        DySAT.from_preset("text", structural_heads=(5, 8))


@pytest.mark.parametrize("name", ["txt", "", "dysat_text", "text.toml", "sankar2019_dysat_uci"])
def test_unknown_preset_lists_the_presets(name: str) -> None:
    with pytest.raises(
        ModelError, match=rf"^dysat has no preset '{name}'; there are default, program, text, sankar2019_enron"
    ):
        DySAT.from_preset(name)


def test_unknown_preset_suggests_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"; did you mean 'sankar2019_gat_uci'\?$"):
        dysat.MODELS["graphsage"].from_preset("sankar2019_gat_ucl")
    with pytest.raises(ModelError, match=r"^svd has no preset 'paper'; it has none$"):
        dysat.MODELS["svd"].from_preset("paper")
