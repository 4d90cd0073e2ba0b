"""What a continuous-time model learns from before a window, in which order, and the neighbours it sees.

Nothing here depends on DyGLib, so it can be tested without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from ct_events import Ids, Log, Times

Condition = Literal["event", "window"]
Role = Literal["train", "validate"]
BATCH = 200  # DyGLib's batch


@dataclass(frozen=True)
class Step:
    """Events of a batch: what they are for, and whether the memory of the model is updated with them afterwards."""

    rows: Ids
    role: Role | None
    remember: bool = False


@dataclass(frozen=True)
class Questions:
    """For each event before a window: the time at which it is asked for, and how many destinations are drawn from.

    Shapes: time [M], destinations [D] in order of first appearance, choices [M] ≤ D, known [M] (bool).
    """

    time: Times
    destinations: Ids
    choices: Ids
    known: np.ndarray

    def negatives(self, rows: Ids, rng: np.random.Generator) -> Ids:
        """A random destination for each event.  # [B]"""
        drawn: Ids = self.destinations[(rng.random(len(rows)) * self.choices[rows]).astype(np.int64)]
        return drawn


def questions(log: Log, window: int, condition: Condition) -> Questions:
    """When the events before a window are asked for, and the possible negatives.

    With the condition "event", events are asked for at their own times. Negatives are any destinations: of the training
    part in training, of all events before the window in validation, as in DyGLib. With "window", events are asked for
    at the start of their windows, as in a forecast. Then both nodes of an event and the negatives are known by then,
    because a forecast asks only for such pairs.
    """
    number = log.number_before(window)
    u, v, inside = log.u[:number], log.v[:number], log.window[:number]
    destinations, first = np.unique(v, return_index=True)
    order = np.argsort(first)
    if condition == "event":
        train = num_train(log, window)
        choices = np.where(np.arange(number) < train, len(np.unique(v[:train])), len(destinations))
        return Questions(log.time[:number], destinations[order], choices, np.ones(number, dtype=bool))
    before = np.array([log.number_before(t) for t in range(window + 1)])
    known = np.array([0, *log.graph.known])[inside]  # of the window before
    choices = np.searchsorted(first[order], before)[inside]
    askable = (u < known) & (v < known) & (choices > 0)
    return Questions(log.edges[inside], destinations[order], choices, askable)


def num_train(log: Log, window: int) -> int:
    """The number of events before the validation part; equal times stay together."""
    times = log.time[: log.number_before(window)]
    return int(np.searchsorted(times, np.quantile(times, 1 - log.validation), side="right"))


def plan(log: Log, window: int, condition: Condition, known: np.ndarray, memory: bool) -> list[Step]:
    """One epoch: batches of the events before a window. All events are remembered by a model with a memory.

    With the condition "event", a batch is asked for and then remembered. With "window", all events of a window are
    remembered after all of them have been asked for.
    """
    number, train = log.number_before(window), num_train(log, window)
    rows = np.arange(number)
    if not memory:
        return [step for part, role in _roles(rows, train) for step in _batches(part[known[part]], role)]
    if condition == "event":
        return [step for part, role in _roles(rows, train) for step in _batches(part, role, remember=True)]
    steps: list[Step] = []
    for t in range(window):
        inside = rows[log.window[:number] == t]
        for part, role in _roles(inside, train):
            steps += _batches(part[known[part]], role)
        steps += _batches(inside, None, remember=True)
    return steps


def _roles(rows: Ids, train: int) -> list[tuple[Ids, Role]]:
    return [(rows[rows < train], "train"), (rows[rows >= train], "validate")]


def _batches(rows: Ids, role: Role | None, remember: bool = False) -> list[Step]:
    return [Step(rows[at : at + BATCH], role, remember) for at in range(0, len(rows), BATCH)]


class Neighbours:
    """The earlier events of nodes, with the interface of DyGLib's `NeighborSampler` but for whole batches at once.

    Node and event ids start at 1, and 0 pads. "recent" gives the last events, "time_interval_aware" draws events with
    DyGLib's probabilities. Only events before the time of a question are used.
    """

    def __init__(
        self, num_nodes: int, u: Ids, v: Ids, time: Times, strategy: str = "recent", scale: float = 0.0, seed: int = 0
    ) -> None:
        if strategy not in ("recent", "time_interval_aware"):
            raise ValueError(f"no sampling by {strategy!r}")
        number = len(u)
        node, event = np.concatenate([u, v]) + 1, np.tile(np.arange(number), 2)
        order = np.lexsort((event, node))
        self.time, self.num_events = time, number
        self.key = (node * (number + 1) + event)[order]
        self.start = np.searchsorted(node[order], np.arange(num_nodes + 2))
        self.others, self.events = (np.concatenate([v, u]) + 1)[order], event[order] + 1
        self.times = time[event[order]]
        self.sample_neighbor_strategy, self.seed = strategy, seed
        self.reset_random_state()
        if strategy == "time_interval_aware":
            weights = [_weights(self.times[a:b], scale) for a, b in zip(self.start, self.start[1:], strict=False)]
            self.total = np.concatenate([[0.0], np.cumsum(np.concatenate(weights))])

    def reset_random_state(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def spans(self, nodes: Ids, times: Times) -> tuple[Ids, Ids]:
        """First and last row of the earlier events of each node, half-open.  # [B], [B]"""
        earlier = np.searchsorted(self.time, times, side="left")  # events of all nodes
        return self.start[nodes], np.searchsorted(self.key, nodes * (self.num_events + 1) + earlier)

    def get_historical_neighbors(
        self, node_ids: Ids, node_interact_times: Times, num_neighbors: int = 20
    ) -> tuple[Ids, Ids, Times]:
        """Neighbours, events and times, in order of time, padded at the front.  # [B, K] each"""
        start, stop = (part[:, None] for part in self.spans(node_ids, node_interact_times))
        if self.sample_neighbor_strategy == "recent":
            rows = stop - num_neighbors + np.arange(num_neighbors)
        else:
            low, high = self.total[start], self.total[stop]
            drawn = low + self.rng.random((len(node_ids), num_neighbors)) * (high - low)
            rows = np.sort(np.clip(np.searchsorted(self.total, drawn, side="right") - 1, start, stop - 1), axis=1)
        return self.read(rows, (rows >= start) & (start < stop))

    def read(self, rows: Ids, valid: np.ndarray) -> tuple[Ids, Ids, Times]:
        """The content of rows, 0 where they are not valid."""
        rows = np.where(valid, rows, 0)
        return tuple(np.where(valid, part[rows], 0) for part in (self.others, self.events, self.times))  # type: ignore[return-value]

    def get_multi_hop_neighbors(
        self, num_hops: int, node_ids: Ids, node_interact_times: Times, num_neighbors: int = 20
    ) -> tuple[list[Ids], list[Ids], list[Times]]:
        """Neighbours, events and times of each hop.  # [B, K], [B, K²], …"""
        hops = [self.get_historical_neighbors(node_ids, node_interact_times, num_neighbors)]
        for _ in range(1, num_hops):
            ids, _, times = hops[-1]
            found = self.get_historical_neighbors(ids.ravel(), times.ravel(), num_neighbors)
            hops.append(tuple(part.reshape(len(node_ids), -1) for part in found))  # type: ignore[arg-type]
        ids, events, times = (list(part) for part in zip(*hops, strict=True))
        return ids, events, times  # type: ignore[return-value]

    def get_all_first_hop_neighbors(self, node_ids: Ids, node_interact_times: Times) -> tuple[Ids, Ids, None]:
        """The rows of all earlier events of each node, which `sequences` reads."""
        return (*self.spans(node_ids, node_interact_times), None)

    def sequences(
        self, nodes: Ids, times: Times, start: Ids, stop: Ids, patch: int, longest: int
    ) -> tuple[Ids, Ids, Times]:
        """Each node and its last events, padded at the end to a multiple of `patch`.  # [B, L] each"""
        start = np.maximum(start, stop - (longest - 1))
        length = -(-(int((stop - start).max(initial=0)) + 1) // patch) * patch
        rows = start[:, None] + np.arange(length - 1)
        found = self.read(rows, rows < stop[:, None])
        heads = (nodes, np.zeros_like(nodes), times)
        return tuple(np.column_stack([head, part]) for head, part in zip(heads, found, strict=True))  # type: ignore[return-value]


def _weights(times: Times, scale: float) -> Times:
    """DyGLib's weights of the events of a node, before the softmax of a draw is normalised."""
    if not len(times):
        return times
    decayed = np.exp(scale * (times - times[-1]))
    weights: Times = np.exp(decayed / np.maximum(np.cumsum(decayed), np.finfo(float).tiny))
    return weights
