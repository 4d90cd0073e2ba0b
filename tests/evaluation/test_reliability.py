"""Reliability curves of hand-made scores."""

from __future__ import annotations

import pytest
import torch

from dysat.errors import ModelError
from dysat.evaluation.reliability import mean_gap, reliability


def test_curve_by_hand() -> None:
    scores = torch.tensor([0.0, 0.1, 0.25, 0.3, 0.5, 0.99, 1.0, 1.0])
    labels = torch.tensor([0, 1, 0, 0, 1, 1, 1, 0]).bool()
    found = reliability(scores, labels, bins=4)
    assert [(part["from"], part["to"]) for part in found] == [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]
    assert [part["pairs"] for part in found] == [2, 2, 1, 3]  # an edge belongs to the bin above it, 1 to the last bin
    assert [part["linked"] for part in found] == pytest.approx([1 / 2, 0.0, 1.0, 2 / 3])
    assert [part["mean_score"] for part in found] == pytest.approx([0.05, 0.275, 0.5, 2.99 / 3])
    by_hand = 2 * 0.45 + 2 * 0.275 + 1 * 0.5 + 3 * (2.99 - 2) / 3
    assert mean_gap(found) == pytest.approx(by_hand / 8)


def test_bins_include_their_lower_edge() -> None:
    """0.3 is not three times 0.1 in floating point."""
    edges = torch.arange(10, dtype=torch.float64) / 10
    assert [part["pairs"] for part in reliability(edges, torch.ones(10))] == [1] * 10


def test_calibrated_scores_have_no_gap() -> None:
    scores = torch.full((10,), 0.8, dtype=torch.float64)
    found = reliability(scores, torch.arange(10) < 8)
    assert mean_gap(found) == pytest.approx(0.0)
    assert mean_gap(reliability(scores, torch.arange(10) < 3)) == pytest.approx(0.5)


def test_empty_bins_have_no_values() -> None:
    found = reliability(torch.empty(0), torch.empty(0).bool())
    assert len(found) == 10 and {part["pairs"] for part in found} == {0}
    assert all(part["mean_score"] is None and part["linked"] is None for part in found) and mean_gap(found) is None


@pytest.mark.parametrize(
    ("scores", "labels", "bins", "words"),
    [
        ([0.5], [1.0], 0, "bins=0 must be at least 1"),
        ([0.5], [1.0, 0.0], 10, "have shapes"),
        ([1.5], [1.0], 10, "between 0 and 1"),
        ([float("nan")], [1.0], 10, "between 0 and 1"),
    ],
)
def test_invalid_arguments_raise(scores: list[float], labels: list[float], bins: int, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        reliability(torch.tensor(scores), torch.tensor(labels), bins)
