"""Weights of the parts of the pair score: a rule, and how well each part ranked past windows of this very log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.models.forecast.examples import Examples
from dysat.models.forecast.parts import (
    CONSTANT,
    NUM_EXPERTS,
    PLAIN,
    REGRESSION,
    REPEATED,
    TREE_SUM,
    Ids,
    Reals,
    first_of_each,
)
from dysat.nn.logistic import fit_logistic
from dysat.system.parallel.process import on_one_core

EVEN_LINKS = 4_000  # links from which the rule gives the trees as much weight as the regression
REPEATED_SHARE = 1 / 3  # that the rule gives the regression of pairs linked before, for these
PENALTIES = (1_000.0, 300.0, 100.0, 30.0, 10.0)  # on weights far from the rule; the next if the floor is not reached
ERRORS = 2.0  # standard errors by which a mixture may be worse than an expert: the floor
MIN_SLOPE = 0.1  # of the rule: one window that contradicts all others must not reverse the order
FLOOR_LINKS = 30  # that windows need for the floor: fewer say too little
SLOPE_L2 = 1.0  # of the slope of a score, so that it stays finite
SLOPE_ROWS = 4_000  # examples that slope and shift of a score are fitted to: they are two numbers


def rule(num_links: int) -> Reals:
    """Return the weights of all experts for new pairs, and for pairs linked before, if nothing else is known.

    The more links there are, the larger is the share of the trees.

    Shapes: [2, X]
    """
    weights, trees = np.zeros((2, NUM_EXPERTS)), num_links / (num_links + EVEN_LINKS)
    weights[:, REGRESSION], weights[:, TREE_SUM] = 1 - trees, trees
    weights[1] *= 1 - REPEATED_SHARE
    weights[1, REPEATED] = REPEATED_SHARE
    return weights


def mixed(experts: Reals, weights: Reals, linked_before: NDArray[np.bool_]) -> Reals:
    """Return scores with the weights of new pairs, and of pairs linked before.  # [B, X], [2, X], [B] → [B]"""
    found: Reals = np.einsum("bx,bx->b", experts, weights[linked_before.astype(np.intp)])
    return found


def learned_weights(scores: Sequence[Reals], windows: Sequence[Examples], start: Reals, *, floor: bool) -> Reals:
    """Return weights that rank the links of windows best, from scores of experts that learned before each of them.

    They minimise the loss that the parts learn from, with a penalty on the distance from the weights to `start`, for
    new pairs and for pairs linked before. With `floor`, the penalty is lowered until no single expert has a smaller
    loss in these windows, by more than `ERRORS` standard errors. If the smallest penalty is not enough, the best expert
    is used alone. Windows with few links have no floor.

    Shapes: [B, X] of each window, [2, X] → [2, X]
    """
    held, experts, ways = _Windows.of(windows), _joined(scores, windows), _directions(start)
    floor &= sum(window.num_links for window in windows) >= FLOOR_LINKS
    columns = held.columns(experts, ways)
    if not floor:
        return held.fitted(columns, ways, PENALTIES[0])

    def scaled(weights: Reals) -> tuple[Reals, _Losses]:
        weights = held.scaled(experts, weights)
        return weights, held.losses(experts, weights)

    def chosen() -> Reals:
        others = [scaled(weights) for weights in _experts_alone()]
        for penalty in PENALTIES:
            weights = held.fitted(columns, ways, penalty)
            _, losses = scaled(weights)
            if not any(losses.worse_than(other) for _, other in others):
                return weights
        return min(others, key=lambda other: other[1].mean)[0]

    return on_one_core(chosen)


def _directions(start: Reals) -> list[Reals]:
    """Return the weights to start from, and directions in which they can move.  # [2, X] each"""

    def towards(class_: int, expert: int, others: Reals | None = None) -> Reals:
        way = np.zeros_like(start)
        way[class_, expert] = 1.0
        return way if others is None else way - others

    regression = [towards(class_, REGRESSION) for class_ in (0, 1)]
    both = start * [[0.0], [1.0]]
    both[1, REPEATED] = 0.0
    both /= max(both.sum(), np.finfo(float).tiny)  # regression and trees of pairs linked before
    ways = [start, towards(1, REPEATED, both), towards(1, CONSTANT)]
    ways += [towards(class_, TREE_SUM, regression[class_]) for class_ in (0, 1)]
    ways += [towards(class_, expert) for expert in range(PLAIN.start, PLAIN.stop) for class_ in (0, 1)]
    return ways


def _experts_alone() -> list[Reals]:
    """Return the weights of each expert alone.  # [2, X] each

    New pairs have the regression of all pairs in place of that of pairs linked before.
    """
    found = []
    for expert in (REGRESSION, REPEATED, *range(PLAIN.start, PLAIN.stop), TREE_SUM):
        weights = np.zeros((2, NUM_EXPERTS))
        weights[0, REGRESSION if expert == REPEATED else expert] = weights[1, expert] = 1.0
        found.append(weights)
    return found


class _Losses(NamedTuple):
    """The loss of each link with the pair that should rank below it, and of each pair without a link."""

    links: Reals
    others: Reals

    @property
    def mean(self) -> float:
        return float(self.links.mean() + self.others.mean())

    def worse_than(self, other: _Losses) -> bool:
        apart = [one - two for one, two in zip(self, other, strict=True)]
        error = np.sqrt(sum(part.var() / len(part) for part in apart))
        return bool(sum(part.mean() for part in apart) > ERRORS * error)


def _joined(parts: Sequence[NDArray[Any]], windows: Sequence[Examples]) -> NDArray[Any]:
    """Put links and uniform pairs of all windows first, and then all of their other pairs.  # [B, …] each"""
    cuts = [window.num_uniform for window in windows]
    first = [part[:cut] for part, cut in zip(parts, cuts, strict=True)]
    return np.concatenate([*first, *(part[cut:] for part, cut in zip(parts, cuts, strict=True))])


@dataclass(frozen=True, eq=False)
class _Windows:
    """Examples of some windows: links and uniform pairs, and links with a pair that should rank below each.

    Shapes:
        linked_before [B]: in the order of `_joined`; linked, weights [b]: of the first b rows; order [C, 2]: rows
    """

    linked_before: NDArray[np.bool_]
    linked: NDArray[np.bool_]
    weights: Reals
    order: Ids

    @classmethod
    def of(cls, windows: Sequence[Examples]) -> _Windows:
        every, cuts = [window.linked_before for window in windows], [window.num_uniform for window in windows]
        firsts = np.cumsum(cuts) - cuts  # rows of the first link of each window
        stops = sum(cuts) + np.cumsum([len(before) - cut for before, cut in zip(every, cuts, strict=True)])
        order = [
            np.stack([window.above + first, np.arange(stop - len(window.above), stop)], axis=1)
            for window, first, stop in zip(windows, firsts, stops, strict=True)
        ]
        labels = zip(*(window.labels(window.num_uniform) for window in windows), strict=True)
        linked, weights = (np.concatenate(part) for part in labels)
        return cls(_joined(every, windows), linked, weights, first_of_each(np.concatenate(order)))

    def mixed(self, experts: Reals, weights: Reals) -> Reals:
        """Return scores with these weights.  # [B, X], [2, X] → [B]"""
        return mixed(experts, weights, self.linked_before)

    def columns(self, experts: Reals, ways: list[Reals]) -> Reals:
        """Return the scores with each of these weights.  # [B, X], J times [2, X] → [B, J]"""
        new, known = (experts @ np.stack([way[class_] for way in ways], axis=1) for class_ in (0, 1))
        found: Reals = np.where(self.linked_before[:, None], known, new)
        return found

    def fitted(self, columns: Reals, ways: list[Reals], penalty: float) -> Reals:
        """Return the sum of directions that fits best, with this penalty on all but the first.  # [B, J] → [2, X]"""
        l2 = np.full(len(ways), penalty)
        l2[0] = SLOPE_L2
        steps, _ = self._regression(columns, l2, 1)
        if steps[0] < MIN_SLOPE:
            return ways[0]
        found: Reals = np.tensordot(steps / steps[0], np.stack(ways), axes=1)
        return found

    def scaled(self, experts: Reals, weights: Reals) -> Reals:
        """Return weights with the slope and the shift that fit best.  # [B, X], [2, X] → [2, X]"""
        every = max(1, len(self.linked) // SLOPE_ROWS)
        slope, shift = self._regression(self.mixed(experts, weights)[:, None], np.array([SLOPE_L2]), every)
        found: Reals = slope[0] * weights
        found[:, CONSTANT] += shift
        return found

    def _regression(self, columns: Reals, l2: Reals, every: int) -> tuple[Reals, float]:
        """Return slopes and shift that fit every second row, or every third, and so on.  # [B, J], [J] → [J], []"""
        x, (above, below) = torch.from_numpy(columns), torch.from_numpy(self.order[::every]).unbind(1)
        slopes, shift = fit_logistic(
            x[: len(self.linked) : every],
            torch.from_numpy(self.linked[::every]),
            l2=torch.from_numpy(l2),
            sample_weight=torch.from_numpy(self.weights[::every]),
            differences=x[above] - x[below],
        )
        return slopes.numpy(), float(shift)

    def losses(self, experts: Reals, weights: Reals) -> _Losses:
        score = self.mixed(experts, weights)
        every = np.logaddexp(0, np.where(self.linked, -1, 1) * score[: len(self.linked)])
        links, number = every[self.linked], np.cumsum(self.linked) - 1
        links[number[self.order[:, 0]]] += np.logaddexp(0, score[self.order[:, 1]] - score[self.order[:, 0]])
        return _Losses(links, every[~self.linked])
