"""Differences of AUC: their standard error, and when they are a tie."""

from __future__ import annotations

import math
from itertools import product
from statistics import variance

import numpy as np
import pytest
import torch

from dysat.evaluation.comparison import compare, difference_error, mrr_difference_error
from dysat.evaluation.probe import auc


def slow_error(first: list[float], second: list[float], labels: list[int]) -> float:
    """The formula of DeLong, pair by pair."""

    def win(a: float, b: float) -> float:
        return 1.0 if a > b else 0.5 if a == b else 0.0

    links = [i for i, label in enumerate(labels) if label]
    others = [i for i, label in enumerate(labels) if not label]
    gain = {(i, j): win(first[i], first[j]) - win(second[i], second[j]) for i, j in product(links, others)}
    of_links = [sum(gain[i, j] for j in others) / len(others) for i in links]
    of_others = [sum(gain[i, j] for i in links) / len(links) for j in others]
    return math.sqrt(variance(of_links) / len(links) + variance(of_others) / len(others))


@pytest.mark.parametrize("seed", range(3))
def test_standard_error_is_that_of_delong(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.random(40) < 0.4)
    first, second = (torch.from_numpy(np.round(rng.normal(size=40) + labels.numpy(), 1)) for _ in range(2))  # with ties
    expected = slow_error(first.tolist(), second.tolist(), labels.int().tolist())
    assert difference_error(first, second, labels) == pytest.approx(expected)
    assert difference_error(second, first, labels) == pytest.approx(expected)
    assert difference_error(first, first, labels) == 0


def test_standard_error_is_the_deviation_over_samples() -> None:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        labels = torch.arange(200) < 100
        shared = rng.normal(size=200) + 1.2 * labels.numpy()
        first, second = (torch.from_numpy(shared + rng.normal(size=200) * noise) for noise in (0.3, 0.9))
        found.append((auc(first, labels) - auc(second, labels), difference_error(first, second, labels)))
    differences, errors = zip(*found, strict=True)
    assert np.mean(errors) == pytest.approx(np.std(differences), rel=0.15)


def test_too_few_examples_have_no_standard_error() -> None:
    labels = torch.tensor([True, False, False])
    assert math.isnan(difference_error(torch.tensor([1.0, 0, 2]), torch.tensor([1.0, 2, 0]), labels))


def test_standard_error_of_an_mrr_difference_by_hand() -> None:
    first, second = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([2.0, 2.0, 1.0])
    differences = [1 - 1 / 2, 0.0, 1 / 4 - 1]
    assert mrr_difference_error(first, second) == pytest.approx(math.sqrt(variance(differences) / 3))
    assert math.isnan(mrr_difference_error(first[:1], second[:1]))


def test_a_small_difference_in_one_window_is_a_tie() -> None:
    assert compare([0.9972 - 0.9970], [0.0004]).verdict == "tie"
    assert compare([0.01], [0.004]).verdict == "beats"
    assert compare([-0.01], [0.004]).verdict == "behind"
    assert compare([0.3], [float("nan")]).verdict == "tie"  # a single link
    assert compare([0.0], [0.0]).verdict == "tie"


def test_differences_within_their_spread_over_windows_are_a_tie() -> None:
    found = compare([0.010, -0.004, 0.002], [1e-5] * 3)
    assert found.difference == pytest.approx(0.008 / 3) and found.spread == pytest.approx(0.00702, abs=1e-5)
    assert found.verdict == "tie"
    assert compare([0.010, 0.012, 0.011], [1e-5] * 3).verdict == "beats"


def test_equal_differences_still_need_enough_links() -> None:
    assert compare([0.0010, 0.0011, 0.0010], [0.003] * 3).verdict == "tie"
    assert compare([0.0010, 0.0011, 0.0010], [0.003] * 3).spread == pytest.approx(2 * 0.003 / math.sqrt(3))
