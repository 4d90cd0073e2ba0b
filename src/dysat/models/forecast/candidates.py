"""Candidates for the most likely next links, without scoring all N × N pairs."""

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
MAX_PAST_PAIRS = 200_000  # pairs linked before
MAX_ACTIVE_NODES = 2_048  # nodes whose paths are followed, and whose pairs are all compared by their product
FAN_OUT = 16  # latest neighbours per node that a path follows
MAX_BUSY_NODES = 256  # nodes, of each kind if there are kinds, of which all pairs are candidates
MAX_HUBS = 8  # the busiest of them, whose pairs with all active nodes are candidates
RECENT = 0.6  # weight of a snapshot relative to the one after it, when links are counted to find busy nodes
ALL_PARTNERS_NODES = 65_536  # up to this size, one node is paired with all others


def likely_pairs(graph: DynamicGraph, e: Tensor, weights: Tensor, rows: Tensor | None, number: int) -> Tensor:
    """Return candidates for the most likely next links: distinct pairs u < v, sorted.  # [C, 2]

    Candidates are the latest pairs linked before, all pairs of the nodes with most links lately and, among the nodes
    active most recently, all pairs with the very busiest, pairs two steps apart and the `number` pairs with the largest
    Σ_d weights_d e_u[d] e_v[d].
    With `rows`, candidates are pairs of these nodes: with all other nodes if the graph has at most 65,536; otherwise
    with past neighbours, nodes two steps away and the `number` nodes with the largest such sum. If nodes have kinds,
    both nodes of a pair differ in kind.

    Shapes:
        e [N, d], weights [d], rows [R] node ids
    """
    n = graph.num_nodes
    if len(e) != n or e.dim() != 2 or weights.shape != e.shape[1:]:
        shapes = f"{tuple(e.shape)} and {tuple(weights.shape)}"
        raise ModelError(f"embeddings and weights of shape {shapes}, expected [{n}, d] and [d]")
    if number < 1:
        raise ModelError(f"number={number} must be at least 1")
    links = LatestLinks(graph)
    parts: list[Ids]
    if rows is None:
        active = links.active_nodes()
        parts = [
            links.past_pairs(),
            _all_pairs(links.busy_nodes(graph.kinds, MAX_BUSY_NODES)),
            _pairs_between(links.busy_nodes(graph.kinds, MAX_HUBS), active),
            links.two_steps(active),
            _largest_products_among(graph, active, e, weights, number),
        ]
    else:
        nodes = np.unique(rows.cpu().numpy().astype(np.int64))
        if len(nodes) and not 0 <= nodes[0] <= nodes[-1] < n:
            raise ModelError(f"node {nodes[0] if nodes[0] < 0 else nodes[-1]} of a graph with {n:,} nodes")
        if n <= ALL_PARTNERS_NODES:
            parts = [_pairs_between(nodes, np.arange(n))]
        else:
            parts = [
                links.past_neighbours(nodes),
                links.two_steps(nodes),
                *(_largest_products(graph, int(v), e, weights, number) for v in nodes),
            ]
    pairs = np.concatenate(parts)
    if graph.kinds is not None:
        pairs = pairs[graph.kinds[pairs[:, 0]] != graph.kinds[pairs[:, 1]]]
    return torch.from_numpy(distinct_pairs(pairs, n))


class LatestLinks:
    """All links of a graph as CSR, latest first in each row.

    Shapes:
        u, v, last [E]: all linked pairs u < v and the step of their last link, latest first; offsets [N + 1],
        neighbours [2E]; last_active [N]; recent_degrees [N]: number of links, older ones counting less
    """

    def __init__(self, graph: DynamicGraph) -> None:
        n = graph.num_nodes
        parts = [[part.cpu().numpy() for part in snapshot.links()[:2]] for snapshot in graph]
        steps = np.repeat(np.arange(len(graph)), [len(u) for u, _ in parts])[::-1]
        u, v = (np.concatenate([part[i] for part in parts])[::-1] for i in range(2))
        keep = u != v
        keys, first = np.unique((u * n + v)[keep], return_index=True)  # the first occurrence is the latest
        last = steps[keep][first]
        order = np.lexsort((keys, -last))
        self.last = last[order]
        self.u, self.v = keys[order] // n, keys[order] % n
        ends, others = np.concatenate([self.u, self.v]), np.concatenate([self.v, self.u])
        both = np.concatenate([self.last, self.last])
        by_node = np.lexsort((others, -both, ends))
        self.neighbours = others[by_node]
        self.offsets = np.searchsorted(ends[by_node], np.arange(n + 1))
        self.last_active = np.full(n, -1)
        np.maximum.at(self.last_active, ends, both)
        recent = np.power(RECENT, len(graph) - 1 - steps[keep])
        self.recent_degrees = np.bincount(u[keep], recent, n) + np.bincount(v[keep], recent, n)

    def past_pairs(self) -> Ids:
        """Return linked pairs, latest first.  # [≤ MAX_PAST_PAIRS, 2]"""
        return np.stack([self.u, self.v], axis=1)[:MAX_PAST_PAIRS]

    def past_neighbours(self, nodes: Ids) -> Ids:
        """Return pairs of these nodes with all nodes they were linked to.  # [P, 2]"""
        which, entries = expand(self.offsets, nodes)
        return np.stack([nodes[which], self.neighbours[entries]], axis=1)

    def two_steps(self, nodes: Ids) -> Ids:
        """Return pairs of these nodes with nodes two steps away, along the latest links.  # [P, 2]"""
        start, middle = self._latest(nodes)
        which, end = self._latest(middle)
        return np.stack([nodes[start[which]], end], axis=1)

    def _latest(self, nodes: Ids) -> tuple[Ids, Ids]:
        """Return the latest neighbours of nodes: the index into `nodes`, and the neighbour."""
        count = np.minimum(np.diff(self.offsets)[nodes], FAN_OUT)
        which = np.repeat(np.arange(len(nodes)), count)
        within = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        return which, self.neighbours[self.offsets[nodes][which] + within]

    def active_nodes(self) -> Ids:
        """Return the nodes linked most recently; ties go to those with more neighbours.  # [≤ MAX_ACTIVE_NODES]"""
        order = np.lexsort((np.arange(len(self.last_active)), -np.diff(self.offsets), -self.last_active))
        return np.sort(order[:MAX_ACTIVE_NODES])

    def busy_nodes(self, kinds: NDArray[np.uint8] | None, number: int) -> Ids:
        """Return the nodes with the largest `recent_degrees`, as many of each kind.  # [≤ number · kinds]"""
        order = np.argsort(-self.recent_degrees, kind="stable")
        order = order[self.recent_degrees[order] > 0]
        groups = [order] if kinds is None else [order[kinds[order] == kind] for kind in np.unique(kinds)]
        return np.sort(np.concatenate([group[:number] for group in groups]))


def _all_pairs(nodes: Ids) -> Ids:
    """Return all pairs of these nodes.  # [P, 2]"""
    u, v = np.triu_indices(len(nodes), 1)
    return np.stack([nodes[u], nodes[v]], axis=1)


def _pairs_between(nodes: Ids, others: Ids) -> Ids:
    """Return all pairs of one of these nodes and one of the others.  # [P, 2]"""
    return np.stack([np.repeat(nodes, len(others)), np.tile(others, len(nodes))], axis=1)


def _largest_products_among(graph: DynamicGraph, nodes: Ids, e: Tensor, weights: Tensor, number: int) -> Ids:
    """Return the pairs among these nodes with the largest products.  # [≤ number, 2]"""
    vectors = e[torch.from_numpy(nodes).to(e.device)].double()
    products = (vectors * weights.double()) @ vectors.T  # [A, A]
    u, v = np.triu_indices(len(nodes), 1)
    if graph.kinds is not None:
        differ = graph.kinds[nodes[u]] != graph.kinds[nodes[v]]
        u, v = u[differ], v[differ]
    values = products.cpu().numpy()[u, v]
    best = _largest(values, number)
    return np.stack([nodes[u[best]], nodes[v[best]]], axis=1)


def _largest_products(graph: DynamicGraph, node: int, e: Tensor, weights: Tensor, number: int) -> Ids:
    """Return the pairs of one node with the largest products.  # [≤ number, 2]"""
    values = (e.double() @ (e[node].double() * weights.double())).cpu().numpy()  # [N]
    others = np.arange(len(values)) != node
    if graph.kinds is not None:
        others &= graph.kinds != graph.kinds[node]
    others = np.flatnonzero(others)
    best = others[_largest(values[others], number)]
    return np.stack([np.full(len(best), node), best], axis=1)


def _largest(values: NDArray[np.float64], number: int) -> Ids:
    """Return the indices of the largest values; ties go to the first.  # [≤ number]"""
    if number < len(values):
        least = np.partition(values, len(values) - number)[len(values) - number]
        above, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
        return np.concatenate([above, equal[: number - len(above)]])
    return np.arange(len(values))
