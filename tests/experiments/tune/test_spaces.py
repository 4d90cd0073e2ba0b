"""Search spaces: the defaults, and spaces given by the user."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

import dysat
from dysat import ModelError
from dysat.experiments.evaluate.request import Contender
from dysat.experiments.tune.spaces import (
    FORECAST,
    PAPER,
    Choices,
    Range,
    as_text,
    combinations,
    search_space,
    with_setting,
)


def of(method: str, given: Any = None, **options: Any) -> Any:
    return search_space(Contender(method, options=options), given)


@pytest.mark.parametrize(
    ("method", "preset", "number"),
    [("dysat", "program", 6), ("dysat", "text", 6), ("incsat", None, 6), ("node2vec", None, 25), ("graphsage", None, 4),
     ("dynamic-triad", None, 16), ("dyngem", None, 32), ("dynaernn", None, 16)],
)  # fmt: skip
def test_grids_of_the_paper(method: str, preset: str | None, number: int) -> None:
    found = combinations(search_space(Contender(method, preset)))
    assert found is not None and len(found) == number == prod(len(values) for values in PAPER[method].values())
    assert len({str(setting) for setting in found}) == number
    for setting in found:
        model = dysat.MODELS[method].with_options(setting)
        assert {name: model.get_params()[name] for name in setting} == setting


def test_grid_of_dysat_in_the_paper() -> None:
    assert combinations(search_space(Contender("dysat", "program"))) == [
        {"learning_rate": rate, "negative_weight": weight} for rate in (1e-4, 1e-3) for weight in (0.01, 0.1, 1.0)
    ]


def test_dysat_without_random_walks_has_its_own_space() -> None:
    """`negative_weight` has no effect there. The space surrounds the values of the default model."""
    without_walks = {"walk_weight": 0.0, "future_weight": 0.1}
    found = search_space(Contender("dysat", "program", without_walks))
    assert {dimension.name: dimension.values for dimension in found} == FORECAST and "negative_weight" not in FORECAST
    assert len(combinations(found) or ()) == 27
    default = next(dysat.DySAT.from_preset(name) for name in ("default", "forecast") if name in dysat.DySAT.presets())
    assert default.walk_weight == 0
    assert all(sorted(values)[1] == getattr(default, name) for name, values in FORECAST.items())


def test_methods_without_a_grid_need_a_space() -> None:
    with pytest.raises(ModelError, match=r"^the paper tuned nothing of svd; say with space= .*: features, decay$"):
        of("svd")
    with pytest.raises(ModelError, match=r"^the paper tuned nothing of gcn-ae; .*features, inputs"):
        of("gcn-ae")


@pytest.mark.parametrize(
    ("method", "text", "expected"),
    [
        ("dysat", "learning_rate=1e-4..1e-2", Range("learning_rate", 1e-4, 1e-2, log=True, whole=False)),
        ("dysat", "temporal-dropout = 0 .. 0.5", Range("temporal_dropout", 0.0, 0.5, log=False, whole=False)),
        ("dysat", "learning_rate=0.1..0.5", Range("learning_rate", 0.1, 0.5, log=False, whole=False)),
        ("dysat", "window=2..9", Range("window", 2, 9, log=False, whole=True)),
        ("dysat", "window=2..20", Range("window", 2, 20, log=True, whole=True)),
        ("dysat", "negative_weight=0.01,0.1, 1", Choices("negative_weight", (0.01, 0.1, 1.0))),
        ("dysat", "negative_weight=1|1.0|2", Choices("negative_weight", (1.0, 2.0))),
        ("dysat", "residual=true,false", Choices("residual", (True, False))),
        ("dysat", "patience=none,5", Choices("patience", (None, 5))),
        ("incsat", "structural_heads=16,8|4,4", Choices("structural_heads", ((16, 8), (4, 4)))),
        ("graphsage", "aggregator=gcn,gat", Choices("aggregator", ("gcn", "gat"))),
    ],
)
def test_spaces_as_text(method: str, text: str, expected: Any) -> None:
    assert of(method, [text]) == (expected,)


def test_spaces_as_values() -> None:
    found = of("dysat", {"negative_weight": [1, "0.1"], "window": "2..4", "epochs": 3})
    assert found == (
        Choices("negative_weight", (1.0, 0.1)), Range("window", 2, 4, log=False, whole=True), Choices("epochs", (3,))
    )  # fmt: skip
    assert combinations(found) is None


def test_values_must_be_valid_in_some_combination() -> None:
    """5 heads do not divide 256 features, but they divide 40 and 20."""
    heads, features = "structural_heads=16,8|5,5", "structural_features=256,128|40,20"
    assert len(of("incsat", [heads, features])) == 2
    with pytest.raises(ModelError, match=r"^structural_heads=5 does not divide"):
        of("incsat", [heads])


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["learning_rat=1,2"], "dysat has no option 'learning_rat'; did you mean 'learning_rate'?"),
        (["learning_rate"], "'learning_rate' is not a space; expected name=1,2,3 or name=0.1..1"),
        (["learning_rate="], "'learning_rate=' is not a space"),
        (["learning_rate=,"], "no value to try for learning_rate"),
        (["learning_rate=1e-3..1e-4"], "learning_rate=1e-3..1e-4: the second bound must be the higher one"),
        (["learning_rate=0..inf"], "learning_rate=0..inf: the bounds of a range must be finite numbers"),
        (["learning_rate=-1..1"], "learning_rate=-1.0 must not be negative"),
        (["learning_rate=-1,1"], "learning_rate=-1.0 must not be negative"),
        (["learning_rate=fast"], "learning_rate='fast' is not a number"),
        (["window=1.5..3"], "window='1.5' is not a whole number"),
        (["window=1,2", "window=3"], "two spaces for window: 1,2 and 3"),
        (["normalize=sender,both"], "normalize='both' is not one of"),
        (["seed=1,2"], "seed is not tuned"),
        ({"device": ["cpu", "cuda"]}, "device is not tuned"),
    ],
)
def test_invalid_spaces_raise(given: Any, complaint: str) -> None:
    with pytest.raises(ModelError) as raised:
        of("dysat", given)
    assert str(raised.value).startswith(complaint)


def test_values_as_text_round_trip() -> None:
    options = {option.name: option for option in dysat.DySAT.options()}
    for name, value in {
        "learning_rate": 0.1 + 0.2, "patience": None, "structural_heads": (4, 2), "window": 3, "residual": True,
        "normalize": "sender",
    }.items():  # fmt: skip
        assert options[name].read(as_text(value)) == value
    assert as_text(1e-4) == "0.0001" and as_text(1.0) == "1"


def test_setting_changes_nothing_else() -> None:
    base = Contender("dysat", "program", {"epochs": 3})
    changed = with_setting(base, {"window": 2}).build().get_params()
    assert changed == base.build().get_params() | {"window": 2}
