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
    """The events of each node in order of time. Node ids start at 1, and 0 pads.

    With the strategy "time_interval_aware", `total` has sums of DyGLib's weights of events, to draw from.
    """

    def __init__(
        self, num_nodes: int, u: Ids, v: Ids, time: Times, strategy: str = "recent", scale: float = 0.0
    ) -> None:
        if strategy not in ("recent", "time_interval_aware"):
            raise ValueError(f"no sampling by {strategy!r}")
        number = len(u)
        node, event = np.concatenate([u, v]) + 1, np.tile(np.arange(number), 2)
        order = np.lexsort((event, node))
        self.time, self.num_events = time, number
        self.key = (node * (number + 1) + event)[order]
        self.start = np.searchsorted(node[order], np.arange(num_nodes + 2))
        self.others: Ids = (np.concatenate([v, u]) + 1)[order]
        self.times: Times = time[event[order]]
        self.total: Times | None = None
        if strategy == "time_interval_aware":
            weights = [_weights(self.times[a:b], scale) for a, b in zip(self.start, self.start[1:], strict=False)]
            self.total = np.concatenate([[0.0], np.cumsum(np.concatenate(weights))])

    def spans(self, nodes: Ids, times: Times) -> tuple[Ids, Ids]:
        """First and last row of the earlier events of each node, half-open.  # [B], [B]"""
        earlier = np.searchsorted(self.time, times, side="left")  # events of all nodes
        return self.start[nodes], np.searchsorted(self.key, nodes * (self.num_events + 1) + earlier)


def _weights(times: Times, scale: float) -> Times:
    """DyGLib's weights of the events of a node, before the softmax of a draw is normalised."""
    if not len(times):
        return times
    decayed = np.exp(scale * (times - times[-1]))
    weights: Times = np.exp(decayed / np.maximum(np.cumsum(decayed), np.finfo(float).tiny))
    return weights
