"""Features of pairs from the times of events inside windows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dysat.features import facts
from dysat.features.facts import Column, columns_of
from dysat.features.link_memory import Snapshots, some_past_ages
from dysat.features.lookup import Ends, TwoStepPaths, add_at, at_links, low_and_high

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]

HALF_LIVES = (0.05, 0.2, 0.8)  # of links by their age, in lengths of the last window
AGE_SCALE = 100  # ages x become log(1 + 100 x), so that hundredths of a window differ
SUM_SCALE = 10  # sums x that decay with age become log(1 + 10 x), because most are small
OLDEST = 1_000.0  # largest age, and that of what never happened


class PairTimes(NamedTuple):
    """Sums behind the features of times, with ages x as log(1 + 100 x) and decayed sums x as log(1 + 10 x).

    Shapes:
        ages [E] and node_ages [N]: of the latest event; weights [half-lives, E] and strengths [half-lives, N]: of links
        and nodes, decayed by age
    """

    ages: Reals
    node_ages: Reals
    weights: Reals
    strengths: Reals

    @classmethod
    def of(cls, snapshots: Snapshots, keys: Ids, real: type[np.floating[Any]]) -> PairTimes:
        """Compute all sums over snapshots with times; `keys` are u · N + v with u < v of all links, sorted.  # [E]"""
        n, size, number = snapshots[-1].num_nodes, len(keys), len(HALF_LIVES)
        ages, weights = np.zeros(size, dtype=real), np.zeros((number, size), dtype=real)
        node_ages, strengths = np.full(n, OLDEST), np.zeros((number, 2, n))  # of each end
        for u, v, amounts, age in some_past_ages(snapshots):
            which, age = np.searchsorted(keys, u * n + v), np.minimum(age, OLDEST)
            ages[which] = age  # the links are in order of their windows, so the latest of a pair stays
            for ends in (u, v):
                np.minimum.at(node_ages, ends, age)
            for row, half_life in enumerate(HALF_LIVES):
                terms = np.exp2(-age / half_life) * amounts
                add_at(weights[row], which, terms)
                for side, ends in enumerate((u, v)):
                    add_at(strengths[row, side], ends, terms)
        logs = (np.log1p(AGE_SCALE * values) for values in (ages, node_ages))
        return cls(*logs, *(np.log1p(SUM_SCALE * values) for values in (weights, strengths.sum(axis=1))))

    def columns(self, ends: Ends, links: Ids, paths: TwoStepPaths, damping: Reals) -> list[Column]:
        """Return the features of pairs; `damping` is that of paths through a node.  # links [B], damping [N]"""
        columns: list[Column] = [(facts.LAST_CONTACT, at_links(self.ages, links, math.log1p(AGE_SCALE * OLDEST)))]
        columns += columns_of(facts.LAST_ACTIVE, low_and_high(self.node_ages, ends))
        for weights, strengths in zip(self.weights, self.strengths, strict=True):
            columns.append((facts.PAST_LINKS, at_links(weights, links)))
            columns += columns_of(facts.ACTIVITY, low_and_high(strengths, ends))
            terms = weights[paths.first] * weights[paths.second] * damping[paths.middle]
            two_steps = np.bincount(paths.pair, terms, minlength=len(links))
            columns.append((facts.COMMON_NEIGHBOURS, np.log1p(two_steps)))
        return columns
