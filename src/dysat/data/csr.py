"""One window of a dynamic graph as compressed sparse rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.errors import GraphError

MAX_NODES = 2**31 - 1  # two ids fit in one 64-bit key
CSR = ("rows", "offsets", "neighbours", "weights")
HIGH = 1 if sys.byteorder == "little" else 0  # index of the upper half of a 64-bit number


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot:
    """One window of a dynamic graph in compressed sparse rows (CSR), with rows only for nodes that have links.

    An undirected link is stored in the rows of both its nodes, a self-loop once. The neighbours of node `rows[i]`
    are `neighbours[offsets[i]:offsets[i + 1]]`, in increasing order; `weights` has the same layout.
    The window is `[start, stop)`, in microseconds since 1970 (UTC) or steps.

    Shapes:
        rows [R], offsets [R + 1], neighbours [E'], weights [E'] (float64), with E' = 2 · links − self-loops.
    """

    rows: Tensor
    offsets: Tensor
    neighbours: Tensor
    weights: Tensor
    num_nodes: int  # known nodes have ids below it
    start: int
    stop: int

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
    ) -> Self:
        """Build from pairs in any order and direction; repeated pairs add up (without weights, each counts 1)."""
        if num_nodes > MAX_NODES:
            raise GraphError(f"{num_nodes:,} nodes are more than a graph can hold ({MAX_NODES:,})")
        loops = u == v
        if not self_loops and loops.any():
            u, v, weights = u[~loops], v[~loops], None if weights is None else weights[~loops]
            loops = np.zeros(len(u), dtype=bool)
        keys = np.empty(2 * len(u), dtype=np.int64)  # receiver and neighbour in one number, both directions
        for half, (here, there) in zip(np.split(keys.view(np.int32), 2), ((u, v), (v, u)), strict=True):
            half[HIGH::2], half[1 - HIGH :: 2] = here, there
        both = None if weights is None else np.concatenate([weights, weights])
        if loops.any():  # a self-loop has no second direction
            once = np.concatenate([np.ones(len(u), dtype=bool), ~loops])
            keys, both = keys[once], None if both is None else both[once]
        if both is None:
            keys.sort()
            runs = _runs(keys)
            sums = np.subtract(runs[1:], runs[:-1], dtype=np.float64)
        else:
            keys, both = _sort_by_key(keys, both)
            runs = _runs(keys)
            with np.errstate(over="ignore"):
                sums = np.add.reduceat(both, runs[:-1]) if len(keys) else both
            if not np.isfinite(sums).all():
                raise GraphError("the weights of one link add up to more than a float64 can hold")
        keys = keys[runs[:-1]] if len(runs) <= len(keys) else keys
        receivers = keys.view(np.int32)[HIGH::2]
        offsets = _runs(receivers)
        rows = receivers[offsets[:-1]].astype(np.int64)
        keys &= 0xFFFFFFFF
        return cls(
            rows=torch.from_numpy(rows),
            offsets=torch.from_numpy(offsets),
            neighbours=torch.from_numpy(keys),
            weights=torch.from_numpy(sums),
            num_nodes=num_nodes,
            start=start,
            stop=stop,
        )

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

    def to(self, device: str | torch.device) -> Self:
        """Return the snapshot with its tensors on another device."""
        moved = {name: getattr(self, name).to(device) for name in ("rows", "offsets", "neighbours", "weights")}
        return replace(self, **moved)

    def __repr__(self) -> str:
        return f"Snapshot({self.num_links:,} links among {self.num_active:,} of {self.num_nodes:,} known nodes)"


def _runs(ordered: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the start of each run of equal values, and the end of the last."""
    change = np.ones(len(ordered) + 1, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=change[1:-1])
    return np.flatnonzero(change) if len(ordered) else np.zeros(1, dtype=np.int64)


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
