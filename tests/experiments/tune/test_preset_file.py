"""Presets written from tuned options."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

import dysat
from dysat import ModelError
from dysat.experiments.evaluate.request import Contender
from dysat.experiments.tune.outcome import Tuning
from dysat.experiments.tune.preset_file import preset_text, write_preset
from dysat.experiments.tune.trials import Trial


def tuned(contender: Contender, options: dict[str, Any], space: dict[str, str]) -> Tuning:
    """Return a tuning with these options as its only trial."""
    return Tuning(contender, space, [Trial(0, options, "done", 0.9, {1: 0.9}, 1.0)], 1, {}, {})


CHOSEN = {"learning_rate": 1e-4, "negative_weight": 0.1}
SPACE = {"learning_rate": "{0.0001, 0.001}", "negative_weight": "{0.01, 0.1, 1}"}


def test_tuned_values_replace_the_old_ones_with_a_comment() -> None:
    text = preset_text(tuned(Contender("dysat", "program", {"epochs": "50"}), CHOSEN, SPACE), "uci")
    before = resources.files("dysat.models").joinpath("presets", "dysat_program.toml").read_text().splitlines()
    after = text.splitlines()
    assert len(after) == len(before)
    changed = {old.partition(" ")[0]: new for old, new in zip(before, after, strict=True) if old != new}
    assert changed == {
        "about": 'about = "dysat:program, tuned on validation links of uci"',
        "learning_rate": "learning_rate = 0.0001              # chosen on validation links out of {0.0001, 0.001}",
        "negative_weight": "negative_weight = 0.1               # chosen on validation links out of {0.01, 0.1, 1}",
        "epochs": "epochs = 50                         # given",
    }
    assert sum("# tuned in" in line for line in after) == 0 and "# 1/√T" in text


@pytest.mark.parametrize(
    ("method", "preset", "given", "chosen"),
    [
        ("dysat", "text", {}, {"history": 3, "patience": 5}),  # not in the preset
        ("dysat", "program", {"patience": "none", "device": "cpu"}, {"structural_heads": (4, 4)}),
        ("graphsage", "paper", {"seed": 3}, {"aggregator": "lstm"}),
        ("svd", None, {}, {"decay": 0.1 + 0.2}),
        ("node2vec", None, {"walk_length": "7"}, {"p": 0.25, "q": 4.0}),
    ],
)
def test_written_preset_gives_the_best_model(
    method: str, preset: str | None, given: dict[str, Any], chosen: dict[str, Any], tmp_path: Path
) -> None:
    found = tuned(Contender(method, preset, given), chosen, dict.fromkeys(chosen, "some"))
    file = tmp_path / "best.toml"
    write_preset(found, file, "somewhere")
    model = dysat.MODELS[method].from_preset(str(file))
    values = {name: value for name, value in model.get_params().items() if name != "device"}
    assert values == found.options and chosen.items() <= values.items()
    assert "cpu" not in file.read_text()  # the device is not part of a preset
    assert Contender(method, str(file)).build().get_params() == model.get_params()
    changed = dysat.MODELS[method].from_preset(str(file), **chosen)
    assert changed.get_params() == model.get_params()


def test_tuned_preset_can_be_tuned_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    write_preset(tuned(Contender("dysat", "program"), CHOSEN, SPACE), first, "uci")
    write_preset(tuned(Contender("dysat", str(first)), {"window": 4}, {"window": "2 … 8"}), second, "mine")
    text = second.read_text()
    assert "window = 4                          # chosen on validation links out of 2 … 8" in text
    assert "out of {0.01, 0.1, 1}" in text and tomllib.loads(text)["about"].endswith(
        "tuned on validation links of mine"
    )


def test_unusual_layouts_are_rewritten(tmp_path: Path) -> None:
    odd = tmp_path / "odd.toml"
    odd.write_text('about = "odd"\n[parameters]\ntemporal_heads = [\n  4,\n]\n"window" = 3\n')
    found = tuned(
        Contender("dysat", str(odd)),
        {"temporal_heads": (2,), "window": 5},
        dict.fromkeys(["temporal_heads", "window"], "some"),
    )
    write_preset(found, tmp_path / "new.toml", "x")
    values = dysat.DySAT.from_preset(str(tmp_path / "new.toml")).get_params()
    assert values["temporal_heads"] == (2,) and values["window"] == 5
    assert {name: value for name, value in values.items() if name != "device"} == found.options


def test_invalid_files_raise(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[parameters\n")
    (tmp_path / "empty.toml").write_text("about = 'nothing'\n")
    (tmp_path / "unknown.toml").write_text("[parameters]\nheads = 3\n")
    for name, complaint in (
        ("broken", "broken.toml: not a preset: "),
        ("empty", "empty.toml: not a preset: it has no table [parameters]"),
        ("unknown", "dysat has no option 'heads'"),
        ("missing", "missing.toml'; there are "),
    ):
        with pytest.raises(ModelError) as raised:
            dysat.DySAT.from_preset(str(tmp_path / f"{name}.toml"))
        assert complaint in str(raised.value)
    with pytest.raises(ModelError, match=r"best\.txt: the name of a preset file must end in \.toml"):
        write_preset(tuned(Contender("svd"), {"decay": 0.5}, {"decay": "some"}), tmp_path / "best.txt", "x")


def test_no_preset_is_written_without_a_result(tmp_path: Path) -> None:
    nothing = Tuning(Contender("svd"), {}, [Trial(0, {}, "failed", None, {}, None, "no luck")], 1, {}, {})
    with pytest.raises(ModelError, match=r"^no setting of svd has a result: no luck$"):
        write_preset(nothing, tmp_path / "best.toml", "x")
    assert not (tmp_path / "best.toml").exists()
