"""Pairs among which the most likely next links are looked for, without a look at all N × N."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.pair_history import expand
from dysat.sampling.pairs import distinct_pairs

Ids = NDArray[np.int64]
MOST_PAST = 200_000  # pairs that were linked
MOST_ACTIVE = 2_048  # nodes that are gone out from, and all pairs of which are compared by their product
FAN_OUT = 16  # neighbours, the latest first, that a path goes on to from a node
MOST_NODES = 65_536  # below it one node is compared with all others


def likely_pairs(graph: DynamicGraph, e: Tensor, weights: Tensor, rows: Tensor | None, number: int) -> Tensor:
    """Candidates for the most likely next links: distinct pairs u < v, in order, the same in every call.  # [C, 2]

    They are the pairs ever linked, the latest first; and, of the nodes most active lately, pairs two steps apart and
    the `number` pairs with the largest Σ_d weights_d e_u[d] e_v[d]. With `rows` they
    are pairs of one of those nodes: with all others in a graph of at most 65,536 nodes; else past partners, nodes two
    steps away and the `number` nearest by that product. In a graph with kinds both nodes are of different kinds.

    Shapes:
        e [N, d], weights [d], rows [R] node ids
    """
    n = graph.num_nodes
    if len(e) != n or e.dim() != 2 or weights.shape != e.shape[1:]:
        shapes = f"{tuple(e.shape)} and {tuple(weights.shape)}"
        raise ModelError(f"embeddings and weights of shape {shapes}, expected [{n}, d] and [d]")
    if number < 1:
        raise ModelError(f"number={number} must be at least 1")
    near = Neighbourhood(graph)
    parts: list[Ids]
    if rows is None:
        active = near.active()
        parts = [near.past(), near.two_steps(active), _nearest_among(graph, active, e, weights, number)]
    else:
        nodes = np.unique(rows.cpu().numpy().astype(np.int64))
        if len(nodes) and not 0 <= nodes[0] <= nodes[-1] < n:
            raise ModelError(f"a node {nodes[0] if nodes[0] < 0 else nodes[-1]} of a graph with {n:,} nodes")
        if n <= MOST_NODES:
            parts = [np.stack([np.repeat(nodes, n), np.tile(np.arange(n), len(nodes))], axis=1)]
        else:
            parts = [
                near.partners(nodes),
                near.two_steps(nodes),
                *(_nearest(graph, int(v), e, weights, number) for v in nodes),
            ]
    pairs = np.concatenate(parts)
    if graph.kinds is not None:
        pairs = pairs[graph.kinds[pairs[:, 0]] != graph.kinds[pairs[:, 1]]]
    return torch.from_numpy(distinct_pairs(pairs, n))


class Neighbourhood:
    """All links of a graph as CSR, each node's latest first.

    Shapes:
        u, v, last [E]: the pairs ever linked, u < v, the latest first; offsets [N + 1], neighbours [2E]
    """

    def __init__(self, graph: DynamicGraph) -> None:
        n = graph.num_nodes
        parts = [[part.cpu().numpy() for part in snapshot.links()[:2]] for snapshot in graph]
        steps = np.repeat(np.arange(len(graph)), [len(u) for u, _ in parts])[::-1]
        u, v = (np.concatenate([part[i] for part in parts])[::-1] for i in range(2))
        keep = u != v
        keys, first = np.unique((u * n + v)[keep], return_index=True)  # the latest of each, for it comes first
        last = steps[keep][first]
        order = np.lexsort((keys, -last))
        self.last = last[order]
        self.u, self.v = keys[order] // n, keys[order] % n
        ends, others = np.concatenate([self.u, self.v]), np.concatenate([self.v, self.u])
        both = np.concatenate([self.last, self.last])
        by_node = np.lexsort((others, -both, ends))
        self.neighbours = others[by_node]
        self.offsets = np.searchsorted(ends[by_node], np.arange(n + 1))
        self.seen = np.full(n, -1)
        np.maximum.at(self.seen, ends, both)

    def past(self) -> Ids:
        """Pairs that were linked, the latest first.  # [≤ MOST_PAST, 2]"""
        return np.stack([self.u, self.v], axis=1)[:MOST_PAST]

    def partners(self, nodes: Ids) -> Ids:
        """Nodes with all they were ever linked to."""
        which, entries = expand(self.offsets, nodes)
        return np.stack([nodes[which], self.neighbours[entries]], axis=1)

    def two_steps(self, nodes: Ids) -> Ids:
        """Nodes with those that share one of their latest partners with them."""
        start, middle = self._latest(nodes)
        which, end = self._latest(middle)
        return np.stack([nodes[start[which]], end], axis=1)

    def _latest(self, nodes: Ids) -> tuple[Ids, Ids]:
        count = np.minimum(np.diff(self.offsets)[nodes], FAN_OUT)
        which = np.repeat(np.arange(len(nodes)), count)
        within = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        return which, self.neighbours[self.offsets[nodes][which] + within]

    def active(self) -> Ids:
        """The nodes seen last, of those the ones with most partners, at most so many."""
        order = np.lexsort((np.arange(len(self.seen)), -np.diff(self.offsets), -self.seen))
        return np.sort(order[:MOST_ACTIVE])


def _nearest_among(graph: DynamicGraph, nodes: Ids, e: Tensor, weights: Tensor, number: int) -> Ids:
    """Of all pairs of some nodes the ones with the largest product.  # [≤ number, 2]"""
    vectors = e[torch.from_numpy(nodes).to(e.device)].double()
    products = (vectors * weights.double()) @ vectors.T  # [A, A]
    u, v = np.triu_indices(len(nodes), 1)
    if graph.kinds is not None:
        apart = graph.kinds[nodes[u]] != graph.kinds[nodes[v]]
        u, v = u[apart], v[apart]
    values = products.cpu().numpy()[u, v]
    best = _largest(values, number)
    return np.stack([nodes[u[best]], nodes[v[best]]], axis=1)


def _nearest(graph: DynamicGraph, node: int, e: Tensor, weights: Tensor, number: int) -> Ids:
    """One node with those of the largest product.  # [≤ number, 2]"""
    values = (e.double() @ (e[node].double() * weights.double())).cpu().numpy()  # [N]
    others = np.arange(len(values)) != node
    if graph.kinds is not None:
        others &= graph.kinds != graph.kinds[node]
    others = np.flatnonzero(others)
    best = others[_largest(values[others], number)]
    return np.stack([np.full(len(best), node), best], axis=1)


def _largest(values: NDArray[np.float64], number: int) -> Ids:
    """Where the largest values stand; of equal ones the first.  # [≤ number]"""
    if number < len(values):
        least = np.partition(values, len(values) - number)[len(values) - number]
        above, level = np.flatnonzero(values > least), np.flatnonzero(values == least)
        return np.concatenate([above, level[: number - len(above)]])
    return np.arange(len(values))
