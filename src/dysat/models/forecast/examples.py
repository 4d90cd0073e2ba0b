"""Training examples of the pair score: which past transitions to learn from, and the pairs of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.features.link_memory import Snapshots, links_among, windows_like_next
from dysat.features.pair_attributes import with_attributes
from dysat.features.pair_history import forget_large, history_bytes, kinds_at, pair_history
from dysat.sampling.pairs import replaced_ends, unlinked_pairs
from dysat.system.hardware import free_memory
from dysat.system.parallel.process import parts_at_once, return_freed_memory

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]
ENOUGH_LINKS = 3_000  # no older transitions beyond these: the past changes
MAX_TRANSITIONS = 24  # to go back for them
WINDOWS = 8  # at most, to weigh the parts with
WINDOW_LINKS = 4_000  # no older windows beyond these
SAME_TIME_WEIGHT = 3  # of a transition whose window is at the next window's time of day or week
ADDED_PER_LINK = 0.04  # dropped pairs added per link; many more would cost what uniform pairs gain
REVERSED_PER_LINK = 0.25  # reversed pairs added per link, so that the score learns who sends
REPLACED_PER_LINK = 2  # pairs with another second node, so that the score learns to rank
MAX_LINKS = 8_000  # links per transition; more are sampled, so that the time to learn does not grow with the graph
UNIFORM_PER_LINK = 4
MAX_UNIFORM = 20_000  # uniform pairs per transition, which also bound the time to learn
MAX_SHUFFLED = 1 << 22  # pairs that are shuffled to draw some; of more, each is drawn by itself
FREE_SHARE = 0.7  # of free memory that transitions prepared at the same time may take
DROPPED_PAIRS = 500  # dropped pairs per transition, for the regression of pairs linked before


@dataclass(frozen=True, eq=False)
class Examples:
    """Pairs of a transition t → t + 1 with their features at t.

    The rows are, in this order: links of t + 1, or `MAX_LINKS` of them; uniform pairs not linked in t + 1; reversed
    pairs; dropped pairs, which were linked up to t but not in t + 1; pairs (u, w) not linked in t + 1 whose link (u, v)
    should rank above them. In a directed graph all are ordered pairs u → v, and reversed pairs are those with a link
    v → u in t + 1 but none u → v, neither then nor before; in other graphs there are none.

    Shapes:
        features [B, F], ranks [B, F − K] of all features but the K of `with_attributes`, linked_before [B]: up to t;
        above [C]: the row of the link that should rank above each of the last C rows
    """

    features: Reals
    ranks: Reals
    linked_before: Bools
    num_links: int  # rows of links
    num_uniform: int  # rows of links and uniform pairs
    num_added: int  # dropped pairs that the score of all pairs learns from
    num_dropped: int  # all dropped pairs of the transition
    num_unlinked: int  # all pairs that are not linked in t + 1
    num_reversed: int = 0
    above: Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The fields that are arrays, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def numbers(self) -> dict[str, int]:
        """The other fields."""
        return {name: int(value) for name, value in vars(self).items() if not isinstance(value, np.ndarray)}

    def labels(self, number: int) -> tuple[Bools, Reals]:
        """Return labels of the first rows, and weights that balance both classes.  # [B], [B]"""
        linked = np.arange(number) < self.num_links
        return linked, np.where(linked, 1.0, self.num_links / (number - self.num_links))

    @property
    def num_training(self) -> int:
        """Number of rows that the score of all pairs learns from."""
        return self.num_uniform + self.num_reversed + self.num_added

    @property
    def dropped(self) -> slice:
        """The rows of dropped pairs."""
        return slice(self.num_uniform + self.num_reversed, len(self.linked_before) - len(self.above))

    def recurring(self) -> tuple[Reals, Bools]:
        """Return features and ranks of pairs linked before, and whether they are linked again.  # [b, 2F − K], [b]"""
        again = np.flatnonzero(self.linked_before[: self.num_links])
        rows = np.concatenate([again, np.arange(len(self.linked_before))[self.dropped]])
        return np.column_stack([self.features[rows], self.ranks[rows]]), rows < self.num_links


class Windows(NamedTuple):
    """Past windows that weigh the parts of a score, as target steps, and transitions to learn these parts from."""

    targets: list[int]
    earlier: list[int]


@dataclass(frozen=True)
class Plan:
    """What a score learns from, as target steps of transitions."""

    training: list[int]  # several times if they count more
    windows: tuple[Windows, ...] = ()  # the last one, and older ones if it has few links
    floor: bool = True  # see `learned_weights`


def planned(snapshots: Snapshots, transitions: int) -> Plan | None:
    """Return what to learn from: transitions, and windows to weigh the parts with; None without any transition."""
    recent = recent_transitions(snapshots, transitions)
    if not recent:
        return None
    same_time = same_time_transitions(snapshots)
    training = training_transitions(recent, same_time)
    for target in (*same_time[-1:], recent[-1]):
        earlier = [step for step in training if step < target] or recent_transitions(snapshots[:target], transitions)
        if earlier:
            last = Windows([target], earlier)
            if target != recent[-1]:  # it lies further back, when less was known than now
                return Plan(training, (last,), floor=False)
            return Plan(training, (last, *_older_windows(snapshots, sorted(set(training)), transitions)))
    return Plan(training)


def _older_windows(snapshots: Snapshots, training: list[int], transitions: int) -> list[Windows]:
    """Return windows before the last one, the latest first, until all have `WINDOW_LINKS`; at most one list of them.

    They are among the transitions to learn from, and so are those before them, so that no other examples are needed.
    """
    *before, last = training
    targets, links = list[int](), _num_positives(snapshots, last)
    while len(before) > transitions and 1 + len(targets) < WINDOWS and links < WINDOW_LINKS:
        targets.append(before.pop())
        links += _num_positives(snapshots, targets[-1])
    return [Windows(targets, before)] if targets else []


def recent_transitions(snapshots: Snapshots, transitions: int) -> list[int]:
    """Return the target steps of the last transitions that have examples, in order."""
    steps: list[int] = []
    links = 0
    for target in range(len(snapshots) - 1, 0, -1):
        if len(steps) >= transitions and (links >= ENOUGH_LINKS or len(steps) >= MAX_TRANSITIONS):
            break
        if number := _num_positives(snapshots, target):
            steps.insert(0, target)
            links += number
    return steps


def same_time_transitions(snapshots: Snapshots) -> list[int]:
    """Return the target steps with examples at the next window's time of day or week, in order."""
    return [target for target in windows_like_next(snapshots) if target and _num_positives(snapshots, target)]


def training_transitions(recent: list[int], same_time: list[int]) -> list[int]:
    """Return both together, with steps at the same time repeated `SAME_TIME_WEIGHT` times."""
    return [*recent, *(step for step in same_time for _ in range(SAME_TIME_WEIGHT - (step in recent)))]


def transitions_at_once(snapshots: Snapshots, number: int) -> int:
    """Return how many of these transitions are prepared at the same time: as many as cores and free memory allow."""
    return parts_at_once(min(number, max(1, int(FREE_SHARE * free_memory() / history_bytes(snapshots)))))


def num_uniform(links: int, negatives: int = UNIFORM_PER_LINK) -> int:
    """Return the number of uniform pairs of a transition with this many links."""
    return min(negatives * links, MAX_UNIFORM)


def _num_positives(snapshots: Snapshots, target: int) -> int:
    """Return the number of links into a step between nodes known before it; 0 if all pairs are linked."""
    known = snapshots[target - 1].num_nodes
    links = len(links_among(snapshots[target], known))
    return links if links < _num_pairs(known, snapshots[target]) else 0


def _num_pairs(known: int, snapshot: Snapshot) -> int:
    """Return the number of pairs of different nodes, ordered pairs if the snapshot has direction."""
    return known * (known - 1) // (1 if snapshot.directed else 2)


def examples_of(
    graph: DynamicGraph, snapshots: Snapshots, three_step: bool, negatives: int, seed: int, step: int | None = None
) -> Examples:
    """Return the examples of the transition into the last of these snapshots of a graph.

    Attributes are those of the step before it, or of `step`.
    """
    step = len(snapshots) - 2 if step is None else step
    pairs, examples = _examples(snapshots, three_step, negatives, seed, kinds_at(graph, step))
    return replace(examples, features=with_attributes(examples.features, graph, step, pairs))


# An evaluation fits one model per step, and consecutive models share most of their transitions.
@lru_cache(maxsize=32)
def _examples(
    snapshots: Snapshots, three_step: bool, negatives: int, seed: int, kinds: bytes | None = None
) -> tuple[Ids, Examples]:
    """Return the pairs of the last transition, and their examples without kinds and attributes.  # [B, 2]"""
    known, history = snapshots[-2].num_nodes, pair_history(snapshots[:-1], three_step, kinds)
    rng = np.random.default_rng([seed, len(snapshots)])
    every, directed = links_among(snapshots[-1], known), snapshots[-1].directed
    with history.preparing():
        links = every
        if len(every) > MAX_LINKS:
            links = every[np.sort(rng.choice(len(every), MAX_LINKS, replace=False))]
        uniform = unlinked_pairs(known, every, num_uniform(len(links), negatives), rng, directed=directed)
        dropped = _without(history.past_keys, every[:, 0] * known + every[:, 1])
        added = min(len(dropped), math.ceil(ADDED_PER_LINK * len(links)))
        keys = _drawn(dropped, max(added, DROPPED_PAIRS), rng)
        reversed_ = _reversed(links, every, history.past_keys, known, rng) if directed else links[:0]
        kind = None if kinds is None else np.frombuffer(kinds, dtype=np.uint8)
        replaced, above = replaced_ends(links, every, known, REPLACED_PER_LINK, rng, directed=directed, kinds=kind)
        pairs = np.concatenate([links, uniform, reversed_, np.stack([keys // known, keys % known], axis=1), replaced])
        begun = history.begun_in_parts(pairs)
    features, found_ranks, linked_before = history.finished_parts(begun)
    forget_large(snapshots[:-1])
    return pairs, Examples(
        features=features,
        ranks=found_ranks,
        linked_before=linked_before,
        num_links=len(links),
        num_uniform=len(links) + len(uniform),
        num_added=added,
        num_dropped=len(dropped),
        num_unlinked=_num_pairs(known, snapshots[-1]) - len(every),
        num_reversed=len(reversed_),
        above=above,
    )


def _without(keys: Ids, some: Ids) -> Ids:
    """Return sorted, distinct keys without some of them.  # [E], [S] → [≤ E]"""
    at = np.searchsorted(keys, some)
    kept = np.ones(len(keys) + 1, dtype=np.bool_)
    kept[at[np.append(keys, -1)[at] == some]] = False
    return keys[kept[:-1]]


def _drawn(keys: Ids, number: int, rng: np.random.Generator) -> Ids:
    """Draw at most `number` of these keys.  # [E] → [≤ number]"""
    if len(keys) > MAX_SHUFFLED:
        return keys[rng.choice(len(keys), number, replace=False)]
    return rng.permutation(keys)[:number]


def _reversed(links: Ids, every: Ids, past: Ids, known: int, rng: np.random.Generator) -> Ids:
    """Draw pairs v → u of these links u → v that neither are links nor were before.  # [L, 2], [A, 2], [E] → [R, 2]"""
    keys = np.setdiff1d(links @ [1, known], np.concatenate([every @ [known, 1], past]))
    keys = rng.permutation(keys)[: math.ceil(REVERSED_PER_LINK * len(links))]
    return np.stack([keys // known, keys % known], axis=1)


def random_halves(snapshot: Snapshot, seed: int) -> Snapshots:
    """Return two snapshots of the same nodes that each contain every link with probability ½, independently."""
    u, v, weights = (part.cpu().numpy() for part in snapshot.pairs())
    parts = (np.random.default_rng([seed, 1]).random((2, len(u))) < 0.5) & (u != v)
    n, start, stop, directed = snapshot.num_nodes, snapshot.start, snapshot.stop, snapshot.directed
    given = snapshot.pair_times()
    times = None if given is None else given.cpu().numpy()
    return tuple(
        Snapshot.from_links(
            u[part], v[part], weights[part], num_nodes=n, start=start, stop=stop, directed=directed,
            latest=None if times is None else times[part],
        )
        for part in parts
    )  # fmt: skip


def forget_histories() -> None:
    """Free what is kept for a later model on the same snapshots."""
    _examples.cache_clear()
    pair_history.cache_clear()
    return_freed_memory()
