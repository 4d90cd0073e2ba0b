"""Past transitions as examples: which of them teach a score of pairs, and the pairs of each, seen from before it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.features.link_memory import Snapshots, links_among, past_links
from dysat.features.pair_columns import pair_columns, standing, uniform_columns
from dysat.features.pair_history import differ_in_kind, were_linked
from dysat.features.rhythm import like_the_next
from dysat.sampling.pairs import unlinked_pairs

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
ENOUGH = 1_000  # links; the past changes, so that no more than needed is learned from
MOST_TRANSITIONS = 24  # that are gone back for them
SAME_TIME = 3  # what a transition counts whose window lies as the next one in a day or a week
AGAIN = 0.04  # pairs that were linked before, but not next, for each link: many more cost what uniform ones gain
ONCE = 1_000  # of them in each transition, for the regression of such pairs alone


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs as seen before a transition: those of which a link came, then uniform ones, then some once linked ones.

    Shapes:
        features [B, F], standings [B, F − 1] of all but their kinds, once [B]: whether the pair was linked before
    """

    features: Reals
    standings: Reals
    once: Bools
    links: int
    uniform: int  # links and uniform pairs
    added: int  # once linked pairs that are taught beside those
    left: int  # all pairs that were linked before and are not next
    unlinked: int  # all pairs that are not linked next

    def labels(self, number: int) -> tuple[Bools, Reals]:
        """Whether a link came of the first so many, and weights with which both classes weigh the same.  # [B], [B]"""
        linked = np.arange(number) < self.links
        return linked, np.where(linked, 1.0, self.links / (number - self.links))

    @property
    def taught(self) -> int:
        return self.uniform + self.added

    @property
    def expected(self) -> float:
        """Uniform pairs that were linked before, as many as there are in the mean."""
        return (self.uniform - self.links) * self.left / max(1, self.unlinked)

    def of_once(self) -> tuple[Reals, Bools]:
        """Features and standings of links that came again and of once linked pairs, and which is which."""
        rows = np.concatenate([np.flatnonzero(self.once[: self.links]), np.arange(self.uniform, len(self.once))])
        return np.column_stack([self.features[rows], self.standings[rows]]), rows < self.links


def _teaches(snapshots: Snapshots, last: int) -> int:
    """How many links came of the transition to a step, where other pairs had none; else 0."""
    known = snapshots[last - 1].num_nodes
    links = len(links_among(snapshots[last], known))
    return links if links < known * (known - 1) // 2 else 0


def recent_transitions(snapshots: Snapshots, transitions: int) -> list[int]:
    """The last transitions that teach something, as the steps they lead to, in order."""
    found: list[int] = []
    links = 0
    for last in range(len(snapshots) - 1, 0, -1):
        if len(found) >= transitions and (links >= ENOUGH or len(found) >= MOST_TRANSITIONS):
            break
        if number := _teaches(snapshots, last):
            found.insert(0, last)
            links += number
    return found


def same_time(snapshots: Snapshots) -> list[int]:
    """Transitions that teach something, into windows that lie as the one after the snapshots does, in order."""
    return [last for last in like_the_next(snapshots) if last and _teaches(snapshots, last)]


def teaching(recent: list[int], same: list[int]) -> list[int]:
    """The last transitions and those at the same time, each as often as it counts."""
    return [*recent, *(last for last in same for _ in range(SAME_TIME - (last in recent)))]


def examples_of(graph: DynamicGraph, snapshots: Snapshots, far: bool, negatives: int, seed: int) -> Examples:
    """Those of the last transition of some snapshots of a graph."""
    pairs, found = _examples(snapshots, far, negatives, seed)
    return replace(found, features=np.column_stack([found.features, differ_in_kind(graph, pairs)]))


# The models of an evaluation, one for each step, have most of their examples in common.
@lru_cache(maxsize=32)
def _examples(snapshots: Snapshots, far: bool, negatives: int, seed: int) -> tuple[Ids, Examples]:
    """The examples of the last transition, without their kinds, and their pairs.  # [B, 2]"""
    past, known = snapshots[:-1], snapshots[-2].num_nodes
    rng = np.random.default_rng([seed, len(snapshots)])
    links = links_among(snapshots[-1], known)
    others = unlinked_pairs(known, links, negatives * len(links), rng)
    u, v, _, _ = past_links(past)
    left = np.setdiff1d(u * known + v, links @ [known, 1])  # were linked, and are not next
    added = min(len(left), math.ceil(AGAIN * len(links)))
    keys = rng.permutation(left)[: max(added, ONCE)]
    pairs = np.concatenate([links, others, np.stack([keys // known, keys % known], axis=1)])
    columns = pair_columns(past, pairs, far)
    return pairs, Examples(
        features=columns,
        standings=standing(columns, uniform_columns(past, far)),
        once=were_linked(past, pairs),
        links=len(links),
        uniform=len(links) + len(others),
        added=added,
        left=len(left),
        unlinked=known * (known - 1) // 2 - len(links),
    )


def halves(snapshot: Snapshot, seed: int) -> Snapshots:
    """Two snapshots of the same nodes; every link is in each of them with chance one half, so that some come again."""
    u, v, weights = (part.cpu().numpy() for part in snapshot.links())
    parts = (np.random.default_rng([seed, 1]).random((2, len(u))) < 0.5) & (u != v)
    n, start, stop = snapshot.num_nodes, snapshot.start, snapshot.stop
    return tuple(
        Snapshot.from_links(u[part], v[part], weights[part], num_nodes=n, start=start, stop=stop) for part in parts
    )
