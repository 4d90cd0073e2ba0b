"""Models trained in epochs: best epoch, ranges of options, degenerate graphs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small import make_graph, meetings
from test_conformance import SUITE
from torch import Tensor

import dysat
from dysat.errors import ModelError
from dysat.models.base.trained import TrainedModel

METHODS = [name for name, model in dysat.MODELS.items() if issubclass(model, TrainedModel)]
each_method = pytest.mark.parametrize("method", METHODS)
# Options to test on degenerate graphs too.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "graphsage": [{"aggregator": name} for name in ("gcn", "mean-pool", "max-pool", "lstm", "gat")],
    "dynaernn": [{"link_weights": name} for name in ("raw", "binary", "normalized")],
    "dyngem": [{"rows": name} for name in ("snapshot", "so-far")],
}
DEGENERATE: dict[str, tuple[list[int], list[list[tuple[int, int]]]]] = {
    "one node": ([1], [[]]),
    "one node with a self-loop": ([1, 1], [[(0, 0)], [(0, 0)]]),
    "no links": ([3, 3], [[], []]),
    "every pair is linked": ([2], [[(0, 1)]]),
    "no links in the last snapshot": ([3, 5], [[(0, 1)], []]),
    "no nodes at first": ([0, 3], [[], [(0, 1)]]),
    "disconnected parts": ([4, 6], [[(0, 1), (2, 3)], [(4, 5)]]),
}
TRIADS: dict[str, tuple[list[int], list[list[tuple[int, int]]]]] = {
    "closed triads only": ([3, 3], [[(0, 1), (1, 2), (0, 2)], [(0, 1)]]),
    "a triad that closes": ([3, 3], [[(0, 1), (1, 2)], [(0, 2)]]),
}


def quick(method: str, **changes: Any) -> Any:
    return dysat.MODELS[method].with_options({**SUITE[method].quick, **changes})


@each_method
def test_validation_selects_the_epoch_and_patience_stops(method: str) -> None:
    given, seen = iter([0.1, 0.9, 0.3, 0.2, 0.1]), list[Tensor]()

    def validate(model: TrainedModel) -> float:
        seen.append(model.embed())
        return next(given)

    keep = {"keep_epoch": "best"} if method == "dysat" else {}  # its default keeps the last epoch
    model = quick(method, epochs=9, patience=2, **keep).fit(meetings(), validate=validate)
    assert model.finished_ and [epoch.best for epoch in model.epochs_] == [1, 2, 2, 2]
    assert torch.equal(model.embed(), seen[1]) and not torch.equal(seen[1], seen[3])


@each_method
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("batch_size", 0, "batch_size=0 must be at least 1"),
        ("patience", 0, "patience=0 must be at least 1"),
        ("epochs", -1, "epochs=-1 must not be negative"),
        ("epochs", 0.5, "epochs=0.5 is not a whole number"),
        ("learning_rate", -0.1, "learning_rate=-0.1 must not be negative"),
        ("learning_rate", math.nan, "learning_rate=nan must be a finite number"),
        ("learning_rate", math.inf, "learning_rate=inf must be a finite number"),
        ("seed", -1, "seed=-1 must not be negative"),
        ("seed", 2**64, r"seed=18446744073709551616 must be below 2\^64"),
        ("seed", 10**400, r"must be below 2\^64"),
    ],
)
def test_options_out_of_range_are_refused_by_name(method: str, option: str, value: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        quick(method, **{option: value})


@each_method
def test_wrong_device_step_and_state_are_refused(method: str) -> None:
    with pytest.raises(ModelError, match="device='cuda:99' does not exist"):
        quick(method, device="cuda:99").fit(meetings())
    with pytest.raises(ModelError, match="call fit"):
        quick(method).embed()
    model = quick(method).fit(meetings())
    with pytest.raises(ModelError, match="step 5: the model knows steps 0 to 4"):
        model.embed(5)
    with pytest.raises(ModelError, match=r"do not fit the model|0 stored steps for 5 snapshots"):
        model._restore({})


@pytest.mark.parametrize(
    ("method", "variant", "name"),
    [
        (method, variant, name)
        for method in METHODS
        for variant in VARIANTS.get(method, [{}])
        for name in DEGENERATE | (TRIADS if method == "dynamic-triad" else {})
    ],
)
def test_degenerate_graphs(method: str, variant: dict[str, Any], name: str, tmp_path: Path) -> None:
    known, links = (DEGENERATE | TRIADS)[name]
    model = quick(method, **variant).fit(make_graph(known, links))
    assert model.finished_ and all(math.isfinite(epoch.loss) for epoch in model.epochs_)
    for step, number in enumerate(known):
        e = model.embed(step)
        assert e.shape == (number, len(model.scorer_[0])) and e.isfinite().all()
    assert len(model.top_links(99)) == known[-1] * (known[-1] - 1) // 2
    if name in ("one node", "no nodes at first"):
        model.save(tmp_path)
        assert torch.equal(type(model).load(tmp_path, device="cpu").embed(), model.embed())
