"""Wrong options of DySAT and missing devices raise one-line errors."""

from __future__ import annotations

from typing import Any

import pytest
from small import QUICK, meetings

from dysat import DySAT, ModelError


def refused(match: str | None, **changes: Any) -> None:
    with pytest.raises(ModelError, match=match) as problem:
        DySAT.from_preset("text", **QUICK | changes)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"structural_heads": (3,)}, r"^structural_heads=3 does not divide structural_features=8; .* 1, 2, 4, 8$"),
        ({"temporal_heads": (16,)}, r"^temporal_heads=16 does not divide temporal_features=8; .* 1, 2, 4, 8$"),
        ({"temporal_heads": (0,)}, r"^temporal_heads=0 does not divide"),
        ({"structural_features": (-8,)}, r"^structural_heads=2 does not divide structural_features=-8"),
        ({"structural_heads": (2, 2)}, r"^structural_heads=\(2, 2\) and structural_features=\(8,\): one of each"),
        ({"temporal_heads": (), "temporal_features": ()}, r"one of each for every layer$"),
        ({"normalize": "both"}, r"^normalize='both' is not one of receiver, sender$"),
        ({"blocks": "temporal "}, r"^blocks='temporal ' is not one of both, structural, temporal$"),
        ({"inputs": None}, r"^inputs=None is not one of identity, features, both$"),
        ({"structural_dropout": 1.0}, r"^structural_dropout=1.0 must lie in \[0, 1\)$"),
        ({"temporal_dropout": -0.1}, r"^temporal_dropout=-0.1 must lie in \[0, 1\)$"),
        ({"temporal_dropout": float("nan")}, r"^temporal_dropout=nan must lie in"),
        ({"residual": True, "temporal_features": (16,)}, r"^residual=True, but temporal_features=\(16,\) .*\b8\b"),
        ({"epochs": 2.5}, r"^epochs=2.5 is not a whole number$"),
        ({"epochs": True}, r"^epochs=True is not a whole number$"),
        ({"add_self_loops": 1}, r"^add_self_loops=1 is not true or false$"),
        *(({name: 0}, f"^{name}=0 must be at least 1$") for name in ("history", "window", "contexts", "batch_size")),
        *(({name: -1}, f"^{name}=-1 must be at least 1$") for name in ("walks_per_node", "walk_length", "negatives")),
        *(({name: -1}, f"^{name}=-1 must not be negative$") for name in ("epochs", "seed")),
        *(({name: -0.5}, f"^{name}=-0.5 must not be neg") for name in ("l2", "learning_rate", "negative_weight")),
        *(({name: float("nan")}, f"^{name}=nan must be a fin") for name in ("l2", "learning_rate", "negative_weight")),
    ],
)
def test_wrong_options_are_refused(changes: dict[str, Any], match: str) -> None:
    refused(match, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"patience": 0},  # would train for 0 epochs
        {"patience": -1},
        {"clip_norm": -1.0},
        {"clip_norm": float("nan")},
        {"learning_rate": float("inf")},
        {"l2": float("inf")},
        {"seed": 2**64},  # torch would raise a ValueError in fit
    ],
    ids=str,
)
def test_more_wrong_options_are_refused(changes: dict[str, Any]) -> None:
    refused(None, **changes)


def test_number_too_large_for_a_float() -> None:
    refused(None, l2=10**400)


def test_residual_needs_equal_widths_only_where_it_is_used() -> None:
    DySAT.from_preset("text", **QUICK | {"residual": True, "blocks": "structural", "temporal_features": (16,)}).fit(
        meetings()
    )
    DySAT.from_preset(
        "text", **QUICK | {"residual": True, "structural_heads": (2, 2), "structural_features": (4, 8)}
    ).fit(meetings())


def test_unknown_options_are_named_with_the_nearest() -> None:
    with pytest.raises(ModelError, match=r"^dysat has no option 'epoch'; did you mean 'epochs'\?$"):
        DySAT.with_options({"epoch": 3})
    with pytest.raises(ModelError, match=r"^dysat has no option 'zzz'; there are structural_heads, .*, transitions$"):
        DySAT.with_options({"zzz": 3})


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "", "no such", "cpu:x"])
def test_missing_device(device: str) -> None:
    with pytest.raises(ModelError, match=rf"^device='{device}' does not exist here; there are cpu"):
        DySAT.from_preset("text", **QUICK | {"device": device}).fit(meetings())


@pytest.mark.parametrize("device", ["meta", "hpu", "privateuseone"])
def test_unsupported_device(device: str) -> None:
    with pytest.raises(ModelError):
        DySAT.from_preset("text", **QUICK | {"device": device}).fit(meetings())
