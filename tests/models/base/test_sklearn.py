"""The scikit-learn contract: parameters are stored as given, and models can be cloned and changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from small import QUICK, meetings
from torch.testing import assert_close

import dysat
from dysat.errors import ModelError


@pytest.mark.parametrize("method", dysat.MODELS)
def test_clone_has_the_same_parameters_and_nothing_learned(method: str) -> None:
    model = dysat.MODELS[method]()
    copy = clone(model)
    assert type(copy) is type(model) and copy is not model
    assert copy.get_params() == model.get_params()


def test_constructor_stores_its_arguments_unchanged() -> None:
    heads, rate = [2], np.float64(0.01)
    model = dysat.DySAT(structural_heads=heads, learning_rate=rate)  # type: ignore[arg-type]
    assert model.structural_heads is heads and model.get_params()["learning_rate"] is rate
    assert clone(model).structural_heads == heads


def test_lists_and_numpy_numbers_are_accepted(tmp_path: Any) -> None:
    given = {**QUICK, "temporal_heads": [2], "temporal_features": [8], "epochs": np.int64(2), "seed": np.int64(3)}
    given |= {"structural_heads": [2], "structural_features": [8], "learning_rate": np.float64(0.01)}
    model = dysat.DySAT(**given).fit(meetings())
    plain = dysat.DySAT(**QUICK | {"seed": 3, "learning_rate": 0.01}).fit(meetings())
    assert_close(model.embed(), plain.embed(), rtol=0, atol=0)
    model.save(tmp_path / "model")
    assert dysat.DySAT.load(tmp_path / "model").get_params()["epochs"] == 2


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"epochs": "3"}, r"^epochs='3' is not a whole number$"),
        ({"epochs": 3.0}, r"^epochs=3.0 is not a whole number$"),
        ({"learning_rate": True}, r"^learning_rate=True is not a number$"),
        ({"structural_heads": "16"}, r"^structural_heads='16' is not a sequence of whole numbers$"),
        ({"structural_heads": 16}, r"^structural_heads=16 is not a sequence of whole numbers$"),
        ({"residual": "true"}, r"^residual='true' is not true or false$"),
        ({"normalize": "both"}, r"^normalize='both' is not one of receiver, sender$"),
        ({"device": None}, r"^device=None is not a text$"),
        ({"l2": 10**400}, r"^l2=1000000.* is not a number"),
    ],
)
def test_wrong_values_are_refused_not_converted(given: dict[str, Any], match: str) -> None:
    with pytest.raises(ModelError, match=match):
        dysat.DySAT(**given)


def test_set_params_changes_all_or_nothing() -> None:
    model = dysat.DySAT()
    assert model.set_params(epochs=3, seed=1) is model and (model.epochs, model.seed) == (3, 1)
    with pytest.raises(ModelError, match=r"^epochs=-1 must not be negative$"):
        model.set_params(seed=5, epochs=-1)
    with pytest.raises(ModelError, match=r"^dysat has no option 'epoch'; did you mean 'epochs'\?$"):
        model.set_params(seed=5, epoch=7)
    assert (model.epochs, model.seed) == (3, 1)


@pytest.mark.parametrize("method", dysat.MODELS)
def test_fit_with_a_table_suggests_build_snapshots(method: str) -> None:
    import pandas as pd

    table = pd.DataFrame({"src": ["a"], "dst": ["b"], "time": [0]})
    model = dysat.MODELS[method]()
    with pytest.raises(ModelError, match=r"not DataFrame; .*dysat\.build_snapshots\(dysat\.read_events\(table, src="):
        model.fit(table)  # type: ignore[arg-type]
    assert not hasattr(model, "graph_")
