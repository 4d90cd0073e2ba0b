"""Features of pairs from the times of events inside windows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dysat.features import facts
from dysat.features.facts import Column, columns_of
from dysat.features.lookup import Ends, TwoStepPaths, add_at, at_links, low_and_high
from dysat.features.node_ranges import NodeRange, NodeRanges

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
    def of(cls, ranges: NodeRanges, real: type[np.floating[Any]]) -> PairTimes:
        """Compute all sums over snapshots with times."""
        n, size, number = ranges.num_nodes, len(ranges.keys), len(HALF_LIVES)
        ages, weights = np.zeros(size, dtype=real), np.zeros((number, size), dtype=real)
        node_ages, strengths = np.full(n, OLDEST), np.zeros((number, n))

        def add(part: NodeRange) -> None:
            for entries, once, which in part.entries(ages=True):
                rows, age = entries.rows(), np.minimum(entries.ages, OLDEST)
                nodes = entries.receivers[rows]
                # In order of the windows, so the latest of a pair or node stays.
                ages[part.links][which] = age[once]
                node_ages[nodes] = np.minimum.reduceat(age, rows)
                for row, half_life in enumerate(HALF_LIVES):
                    terms = np.exp2(-age / half_life) * entries.weights
                    add_at(weights[row, part.links], which, terms[once])
                    add_at(strengths[row], nodes, np.add.reduceat(terms, rows))

        ranges.add(add)
        logs = (np.log1p(AGE_SCALE * values) for values in (ages, node_ages))
        return cls(*logs, *(np.log1p(SUM_SCALE * values) for values in (weights, strengths)))

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
