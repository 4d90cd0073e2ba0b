"""How much memory a fit needs at least, and how many nodes fit."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property

import torch

from dysat.data.csr import distinct
from dysat.data.graph import DynamicGraph

GIB = 2**30
LEAST_FREE = GIB  # bytes that are assumed to be free, since the system often frees more when asked


class GraphSize:
    """The counts of a graph that memory depends on, or those of a graph of the same shape with other nodes.

    Counts that read links are computed on first use.
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self._graph, self.nodes = graph, graph.num_nodes

    def scaled(self, nodes: int) -> GraphSize:
        """Return the size of a graph with this many nodes and all other counts in proportion."""
        other = copy(self)
        other.nodes = nodes
        return other

    def rows(self, last: int | None = None) -> float:
        """Number of known (node, step), of all steps or of the last few."""
        return self._share * sum(self._graph.known[0 if last is None else -last :])

    @property
    def pairs(self) -> float:
        """Number of pairs of nodes with a link in any snapshot, without self-loops."""
        return self._share * self._pairs

    @property
    def linked(self) -> float:
        """Number of nodes with a link in any snapshot."""
        return self._share * self._linked

    @property
    def repeats(self) -> list[float]:
        """For each snapshot after the first, the number of links between nodes known before it, without self-loops."""
        return [self._share * count for count in self._repeats]

    @property
    def _share(self) -> float:
        return self.nodes / max(1, self._graph.num_nodes)

    @cached_property
    def _pairs(self) -> int:
        keys = [torch.empty(0, dtype=torch.int64)]
        for snapshot in self._graph:
            u, v, _ = snapshot.links()
            keys.append((u * self._graph.num_nodes + v)[u < v].cpu())
        return len(distinct(torch.cat(keys).numpy()))

    @cached_property
    def _linked(self) -> int:
        linked = torch.zeros(self._graph.num_nodes, dtype=torch.bool)
        for snapshot in self._graph:
            linked[snapshot.rows.cpu()] = True
        return int(linked.sum())

    @cached_property
    def _repeats(self) -> list[int]:
        counts = []
        for known, snapshot in zip(self._graph.known, self._graph.snapshots[1:], strict=False):
            u, v, _ = snapshot.pairs()
            counts.append(int(((u != v) & (u < known) & (v < known)).sum()))
        return counts


def nodes_that_fit(least_memory: Callable[[GraphSize], float], size: GraphSize, free: float) -> int:
    """Return the largest number of nodes, below those of a graph that does not fit, whose least memory is free."""
    fits, too_many = 0, size.nodes
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if least_memory(size.scaled(middle)) <= free:
            fits = middle
        else:
            too_many = middle
    return fits
