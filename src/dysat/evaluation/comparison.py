"""Compare two scores on the same examples: is a difference of AUC or of MRR larger than chance?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, sqrt
from statistics import fmean, stdev
from typing import Literal

import torch
from torch import Tensor

Verdict = Literal["beats", "tie", "behind"]
ERRORS = 2.0  # a difference within this number of standard errors may be chance


@dataclass(frozen=True)
class Comparison:
    """The mean difference of AUC or MRR over windows, how far it may be off, and what follows from both.

    `spread` is the larger of the standard deviation of the differences over windows and two standard errors of their
    mean over examples. A difference within the spread is a tie.
    """

    difference: float
    spread: float

    @property
    def verdict(self) -> Verdict:
        if abs(self.difference) <= self.spread:
            return "tie"
        return "beats" if self.difference > 0 else "behind"


def compare(differences: Sequence[float], errors: Sequence[float]) -> Comparison:
    """Compare two models by the differences of a figure in one or more windows, and the standard errors of these.

    A window without a standard error (NaN) has too few examples for any difference to count.

    Example:
        >>> compare([0.02, 0.03], [0.004, 0.003]).verdict
        'beats'
        >>> compare([0.9972 - 0.9970], [0.0004]).verdict
        'tie'
    """
    error = sqrt(sum(error**2 for error in errors)) / len(errors)
    between = stdev(differences) if len(differences) > 1 else 0.0
    spread = float("inf") if isnan(error) else max(between, ERRORS * error)
    return Comparison(fmean(differences), spread)


def difference_error(first: Tensor, second: Tensor, labels: Tensor) -> float:
    """Return the standard error of the AUC of one score minus that of another, on the same examples.  # three [B]

    NaN if a class has fewer than two examples. Reference: DeLong, DeLong, Clarke-Pearson: Comparing the areas under two
    or more correlated receiver operating characteristic curves, Biometrics 1988.
    """
    parts = [_placements(scores, labels) for scores in (first, second)]
    variance = 0.0
    for one, other in zip(*parts, strict=True):  # links, then other pairs
        if len(one) < 2:
            return float("nan")
        variance += float((one - other).var()) / len(one)
    return sqrt(variance)


def mrr_difference_error(first: Tensor, second: Tensor) -> float:
    """Return the standard error of the MRR by one score minus that by another, from ranks of the same links.  # [P]

    NaN with fewer than two links.
    """
    if len(first) < 2:
        return float("nan")
    difference = first.double().reciprocal() - second.double().reciprocal()
    return float(difference.std()) / sqrt(len(difference))


def _placements(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each link the fraction of other pairs below it, and for each other pair that of links above it.

    Ties count one half, so the mean of either is the AUC.
    """
    scores, labels = scores.double().cpu(), labels.bool().cpu()
    links, others = scores[labels], scores[~labels]
    return _fraction_below(links, others), 1 - _fraction_below(others, links)


def _fraction_below(scores: Tensor, among: Tensor) -> Tensor:
    ordered = among.sort().values
    less, no_more = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    return (less + no_more).double() / (2 * max(1, len(among)))
