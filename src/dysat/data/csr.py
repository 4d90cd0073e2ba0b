"""One window of a dynamic graph as compressed sparse rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.errors import GraphError

Moments = NDArray[np.int64]
MAX_NODES = 2**31 - 1  # two ids fit in one 64-bit key
CSR = ("rows", "offsets", "neighbours", "weights")
SENT = "sent"  # stored beside them if the graph has direction
LATEST = "latest"  # stored beside them if the times of events are known
HIGH = 1 if sys.byteorder == "little" else 0  # index of the upper half of a 64-bit number
LOW = 0xFFFFFFFF  # mask of the lower half
FRACTION = 30  # bits of a float32 from 0 to 1
PACKED_NODES = 1 << 17  # two ids below it and a fraction fit in one 64-bit number


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """One window of a dynamic graph in compressed sparse rows (CSR), with rows only for nodes that have links.

    An undirected link is stored in the rows of both its nodes, a self-loop once. The neighbours of node `rows[i]`
    are `neighbours[offsets[i]:offsets[i + 1]]`, in increasing order; `weights` has the same layout.
    The window is `[start, stop)`, in microseconds since 1970 (UTC) or steps.

    With direction there is also `sent`: the part of a weight that the node of the row sent to the neighbour. The weight
    of a pair is what both sent, so everything that ignores direction sees the same snapshot.

    If the times of events are known, `latest` says when the last event of a link happened, in either direction: the
    fraction of the window that had passed, from 0 to 1.

    Shapes:
        rows [R], offsets [R + 1], neighbours [E'], weights [E'] (float64), with E' = 2 · links − self-loops;
        sent [E'] (float64), or None without direction; latest [E'] (float32), or None without times.
    """

    rows: Tensor
    offsets: Tensor
    neighbours: Tensor
    weights: Tensor
    num_nodes: int  # known nodes have ids below it
    start: int
    stop: int
    sent: Tensor | None = None
    latest: Tensor | None = None

    @classmethod
    def from_links(
        cls,
        u: NDArray[np.integer[Any]],
        v: NDArray[np.integer[Any]],
        weights: NDArray[np.float64] | None,
        *,
        num_nodes: int,
        start: int,
        stop: int,
        self_loops: bool = True,
        directed: bool = False,
        latest: NDArray[np.float32] | None = None,
    ) -> Self:
        """Build from pairs in any order and direction; repeated pairs add up (without weights, each counts 1).

        With `directed`, the pair (u, v) is a link that u sends to v. `latest` is when each pair happened, as a fraction
        of the window; of repeated pairs the largest counts.
        """
        if num_nodes > MAX_NODES:
            raise GraphError(f"{num_nodes:,} nodes are more than a graph can hold ({MAX_NODES:,})")
        if latest is not None:
            latest = np.asarray(latest, dtype=np.float32)
            if latest.shape != u.shape or not are_fractions(latest):
                raise GraphError("latest must have a number from 0 to 1 for each pair")
        arrays = compress(u, v, weights, self_loops=self_loops, directed=directed, latest=latest)
        tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return cls(**tensors, num_nodes=num_nodes, start=start, stop=stop)

    @property
    def directed(self) -> bool:
        """Whether the snapshot knows who sent a link."""
        return self.sent is not None

    @property
    def timed(self) -> bool:
        """Whether the snapshot knows when the last event of a link happened."""
        return self.latest is not None

    @property
    def num_active(self) -> int:
        """Number of nodes with a link in this snapshot."""
        return len(self.rows)

    @cached_property
    def num_self_loops(self) -> int:
        """Number of links of a node with itself."""
        receivers, neighbours, _ = self.entries()
        return int((receivers == neighbours).sum())

    @property
    def num_links(self) -> int:
        """Number of undirected links, each counted once, self-loops included."""
        return (len(self.neighbours) + self.num_self_loops) // 2

    @cached_property
    def total_weight(self) -> float:
        """Sum of the weights of all links, each counted once."""
        return float(self.links()[2].cpu().numpy().sum())  # in NumPy: the same on every device

    def entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return all entries (receiver, neighbour, weight) in both directions.  # each [E']"""
        receivers = torch.repeat_interleave(self.rows, self.offsets.diff())
        return receivers, self.neighbours, self.weights

    def links(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return every link once as (u, v, weight) with u ≤ v, sorted.  # each [E]"""
        receivers, neighbours, weights = self.entries()
        once = receivers <= neighbours
        return receivers[once], neighbours[once], weights[once]

    def arcs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return every directed link once as (u, v, weight), sent by u to v, sorted.  # each [A]"""
        if self.sent is None:
            raise GraphError("the snapshot does not know who sent a link; build it with directed=True")
        senders, receivers, _ = self.entries()
        sent = self.sent > 0
        return senders[sent], receivers[sent], self.sent[sent]

    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what a forecast of this snapshot is about: its `arcs` if it has direction, else its `links`."""
        return self.links() if self.sent is None else self.arcs()

    def link_times(self) -> Tensor | None:
        """Return `latest` of each of `links`, or None without times.  # [E]"""
        if self.latest is None:
            return None
        receivers, neighbours, _ = self.entries()
        return self.latest[receivers <= neighbours]

    def pair_times(self) -> Tensor | None:
        """Return `latest` of each of `pairs`, or None without times.  # [E] or [A]"""
        if self.latest is None or self.sent is None:
            return self.link_times()
        return self.latest[self.sent > 0]

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name, `sent` only with direction and `latest` only with times."""
        return {name: getattr(self, name) for name in (*CSR, *(SENT,) * self.directed, *(LATEST,) * self.timed)}

    def to(self, device: str | torch.device) -> Self:
        """Return the snapshot with its tensors on another device."""
        moved: dict[str, Any] = {name: tensor.to(device) for name, tensor in self.tensors().items()}
        return replace(self, **moved)

    def __repr__(self) -> str:
        return f"Snapshot({self.num_links:,} links among {self.num_active:,} of {self.num_nodes:,} known nodes)"


def compress(
    u: NDArray[np.integer[Any]],
    v: NDArray[np.integer[Any]],
    weights: NDArray[np.float64] | None,
    *,
    self_loops: bool,
    directed: bool,
    latest: NDArray[np.float32] | None = None,
    nodes: tuple[int, int] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays of `Snapshot.from_links`, or only the rows of the nodes [low, high) of `nodes`."""
    loops = u == v
    if not self_loops and loops.any():
        u, v, weights, latest = u[~loops], v[~loops], _selected(weights, ~loops), _selected(latest, ~loops)
        loops = np.zeros(len(u), dtype=bool)
    keys = np.empty(2 * len(u), dtype=np.int64)  # receiver and neighbour in one number, both directions
    for half, (here, there) in zip(np.split(keys.view(np.int32), 2), ((u, v), (v, u)), strict=True):
        half[HIGH::2], half[1 - HIGH :: 2] = here, there
    sent_keys = keys[: len(u)].copy() if directed else None
    both, times = (None if part is None else np.concatenate([part, part]) for part in (weights, latest))
    if loops.any():  # a self-loop has no second direction
        once = np.concatenate([np.ones(len(u), dtype=bool), ~loops])
        keys, both, times = keys[once], _selected(both, once), _selected(times, once)
    if nodes is not None:
        inside = _of_receivers(keys, *nodes)
        keys, both, times = keys[inside], _selected(both, inside), _selected(times, inside)
        if sent_keys is not None:
            inside = _of_receivers(sent_keys, *nodes)
            sent_keys, weights = sent_keys[inside], _selected(weights, inside)
    more: dict[str, NDArray[Any]] = {} if times is None else {LATEST: _max_by_key(keys, times)}
    del times
    keys, sums = _sum_by_key(keys, both)
    if sent_keys is not None:
        more[SENT] = _aligned(keys, *_sum_by_key(sent_keys, weights))
    receivers = keys.view(np.int32)[HIGH::2]
    offsets = _runs(receivers)
    rows = receivers[offsets[:-1]].astype(np.int64)
    keys &= LOW
    return {"rows": rows, "offsets": offsets, "neighbours": keys, "weights": sums, **more}


def fractions(time: Moments, start: int | Moments, stop: int | Moments) -> NDArray[np.float32]:
    """Return which fraction of its window [start, stop) had passed at each moment; shapes broadcast.  # [M] → [M]"""
    passed: NDArray[np.float32] = ((time - start) / (stop - start)).astype(np.float32)
    return passed


def are_fractions(values: NDArray[np.float32]) -> bool:
    """Whether all values are from 0 to 1; false for NaN."""
    return not len(values) or bool(values.min() >= 0 and values.max() <= 1)


def alike(snapshots: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
    """Return snapshots without times unless all of them have times."""
    if len({snapshot.timed for snapshot in snapshots}) < 2:
        return tuple(snapshots)
    return tuple(replace(snapshot, latest=None) if snapshot.timed else snapshot for snapshot in snapshots)


def _selected(values: NDArray[Any] | None, which: NDArray[np.bool_]) -> NDArray[Any] | None:
    """The values chosen by a mask, if there are any values."""
    return None if values is None else values[which]


def _of_receivers(keys: NDArray[np.int64], low: int, high: int) -> NDArray[np.bool_]:
    """Whether the upper half of each key is in [low, high)."""
    return (keys >= low << 32) & (keys < high << 32)


def _runs(ordered: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the start of each run of equal values, and the end of the last."""
    change = np.ones(len(ordered) + 1, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=change[1:-1])
    return np.flatnonzero(change) if len(ordered) else np.zeros(1, dtype=np.int64)


def _sum_by_key(
    keys: NDArray[np.int64], weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the distinct keys, sorted, and the sum of the weights of each; without weights each counts 1."""
    if weights is None:
        keys.sort()
        runs = _runs(keys)
        sums = np.subtract(runs[1:], runs[:-1], dtype=np.float64)
    else:
        keys, weights = _sort_by_key(keys, weights)
        runs = _runs(keys)
        with np.errstate(over="ignore"):
            sums = np.add.reduceat(weights, runs[:-1]) if len(keys) else weights
        if not np.isfinite(sums).all():
            raise GraphError("the weights of one link add up to more than a float64 can hold")
    return (keys[runs[:-1]] if len(runs) <= len(keys) else keys), sums


def _max_by_key(keys: NDArray[np.int64], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the largest value, from 0 to 1, of each distinct key, in the order of the keys.

    Numbers are sorted several times faster than indices, so keys and values are packed into numbers if they fit.
    """
    if not len(keys):
        return np.empty(0, dtype=np.float32)
    np.abs(values, out=values)  # −0 has the sign bit
    size = int(keys.view(np.int32).max()) + 1
    if size <= PACKED_NODES:
        packed = (keys >> 32).view(np.uint64)
        packed *= size
        packed += keys.view(np.uint32)[1 - HIGH :: 2]
        packed <<= FRACTION
        packed |= values.view(np.uint32)
        packed.sort()
        last = _runs(packed >> FRACTION)[1:] - 1
        return (packed[last] & ((1 << FRACTION) - 1)).astype(np.uint32).view(np.float32)
    order = np.argsort(keys)
    return np.maximum.reduceat(values[order], _runs(keys[order])[:-1])


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct keys, sorted.  # [K] → [≤ K]

    NumPy's `unique` uses a hash table from version 2.3 on, which takes 20 times as long for millions of keys.
    """
    keys = np.sort(keys)
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys


def _aligned(keys: NDArray[np.int64], some: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values of all keys, 0 for keys that are not among `some`; both are sorted.  # [E'], [A], [A] → [E']"""
    aligned = np.zeros(len(keys))
    aligned[np.searchsorted(keys, some)] = values
    return aligned


def _sort_by_key(
    keys: NDArray[np.int64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sort by key, then weight, so that sums of floats do not depend on the order of events."""
    order = np.argsort(keys)
    keys, weights = keys[order], weights[order]
    repeated = np.zeros(len(keys), dtype=bool)
    same = keys[1:] == keys[:-1]
    repeated[1:] |= same
    repeated[:-1] |= same
    within = np.lexsort((weights[repeated], keys[repeated]))
    weights[repeated] = weights[repeated][within]
    return keys, weights
