"""Candidates for the most likely next links, without scoring all N × N pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import distinct
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.lookup import expand
from dysat.features.pair_history import DECAYS as HISTORY_DECAYS
from dysat.features.pair_history import chunks, history_of
from dysat.models.base.best_pairs import best_of_each
from dysat.models.forecast.boosting import boosted_trees
from dysat.sampling.pairs import distinct_pairs
from dysat.system.parallel.process import few_blas_threads, in_threads

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Score = Callable[[Tensor], Tensor]  # [B, 2] → [B]
Keep = Callable[[Ids], NDArray[np.bool_]]  # [B, 2] → [B]
DECAYS = (0.0, 0.6, 0.9, 1.0)  # weight of a snapshot relative to the one after it; some of those of pair_history
MAX_PAST_PAIRS = 200_000  # pairs linked before
MIN_PROMISING = 15_000  # past pairs, and other pairs two steps apart, that are scored exactly
SAMPLE = 2_000  # pairs that the approximation of the score is fitted to
MAX_ACTIVE_NODES = 2_048  # nodes whose paths are followed, and whose pairs are all compared by their product
FAN_OUT = 16  # latest neighbours per node that a path follows
MAX_BUSY_NODES = 192  # nodes, of each kind if there are kinds, of which all pairs are candidates
MAX_HUBS = 8  # the busiest of them, whose pairs with all active nodes are candidates
RECENT = 0.6  # weight of a snapshot relative to the one after it, when links are counted to find busy nodes
ALL_PARTNERS_NODES = 65_536  # up to this size, one node is paired with all others
ALL_PARTNERS_PAIRS = 1 << 19  # graphs with fewer pairs, and a quarter as many in larger graphs, have all pairs scored
NODES_AT_ONCE = 16_384  # nodes whose candidates are held in memory at once, a few hundred of each
NODES_PER_THREAD = 256
MIN_PARTNERS = 80  # candidates of each of several nodes that are scored exactly
PARTNER_FAN_OUT = 64  # latest neighbours per node that a path to a partner follows
PARTNER_PRODUCTS = 200  # partners of a node with the largest products
POPULAR = 512  # nodes, of each kind, that every node is paired with
POPULAR_AMONG = 4_096  # nodes with most links lately, of each kind, that they are chosen from
ASKED = 32  # nodes whose links with these are scored to choose them
TEACHERS = 200  # nodes whose candidates are all scored, to learn which ones are promising
MIN_BEST = 10  # of a node's candidates that they learn to find
ROUNDS = 60  # trees that tell promising candidates from others
MAX_PRODUCTS = 1 << 32  # products that are compared; if there are more, only those with recently active nodes
MAX_PARTNERS = 16_384  # recently active nodes in that case
PRODUCTS = 1 << 23  # products held in memory at once


def likely_pairs(
    graph: DynamicGraph, e: Tensor, weights: Tensor, number: int, score: Score, *, three_step: bool = False
) -> Tensor:
    """Return candidates for the most likely next links: distinct pairs u < v, sorted.  # [C, 2]

    Candidates are the latest pairs linked before, all pairs of the nodes with most links lately and, among the nodes
    active most recently, all pairs with the very busiest, other pairs two steps apart and the `number` pairs with the
    largest Σ_d weights_d e_u[d] e_v[d]. If past pairs or pairs two steps apart are many, only the most promising are
    candidates, by a linear approximation of `score`. If nodes have kinds, both nodes of a pair differ in kind.

    Shapes:
        e [N, d], weights [d]
    """
    _check(graph, e, weights, number)
    links = latest_links(graph, three_step)
    active = links.active_nodes()
    promising = max(MIN_PROMISING, 5 * number)
    parts = [_most_promising(graph, *found, score, promising) for found in (links.past_pairs(), links.closed(active))]
    parts += [
        _all_pairs(links.busy_nodes(graph.kinds, MAX_BUSY_NODES)),
        _pairs_between(links.busy_nodes(graph.kinds, MAX_HUBS), active),
        _largest_products_among(graph, active, e, weights, number),
    ]
    return torch.from_numpy(distinct_pairs(_allowed(graph, np.concatenate(parts)), graph.num_nodes))


def _most_promising(graph: DynamicGraph, pairs: Ids, columns: Reals, score: Score, number: int) -> Ids:
    """Return the pairs with the largest Σ_c w_c columns_c, with w fitted to scores of a sample.  # [≤ number, 2]

    Shapes:
        pairs [P, 2], columns [P, c]
    """
    allowed = _is_allowed(graph, pairs)
    pairs, x = pairs[allowed], np.column_stack([columns[allowed], np.ones(allowed.sum())])
    if len(pairs) <= number:
        return pairs
    sample = np.random.default_rng(0).choice(len(pairs), min(SAMPLE, len(pairs)), replace=False)
    w = np.linalg.lstsq(x[sample], score(torch.from_numpy(pairs[sample])).double().numpy(), rcond=None)[0]
    return pairs[_largest(x @ w, number)]


def spectral_vectors(graph: DynamicGraph, three_step: bool) -> tuple[Tensor, Tensor]:
    """Return eigenvectors of the links so far, scaled by degree, and their eigenvalues.  # [N, d], [d]

    The pair score has them among its features, so they are computed already. A large Σ_d λ_d x_u[d] x_v[d] means many
    short paths, also of more than two steps.
    """
    with few_blas_threads(graph.num_nodes):
        values, vectors = history_of(graph, len(graph) - 1, three_step).spectra[-1]
    return torch.from_numpy(vectors), torch.from_numpy(values)


def partners_of(
    graph: DynamicGraph, nodes: Ids, three_step: bool, k: int, score: Score, keep: Keep
) -> Iterator[tuple[Ids, Ids]]:
    """Yield candidates for the k most likely links of each node, for some nodes at a time: (nodes, pairs).

    A pair is (node, partner); pairs are distinct and sorted, and `keep` says which may be candidates. A node is paired
    with all others if it is the only one and the graph has at most 65,536 nodes, if the graph has at most 724 nodes, or
    if there are at most 131,072 pairs. Otherwise candidates are past neighbours, nodes two steps away along the latest
    links, popular nodes, and nodes with a large product of `spectral_vectors`. If several nodes have many candidates,
    only the most promising of each are kept, by trees that have learned from the scores of a few nodes. If nodes have
    kinds, both nodes of a pair differ in kind. Nodes must be sorted.
    """
    n, alone = graph.num_nodes, len(nodes) == 1
    if len(nodes) and not 0 <= nodes.min() <= nodes.max() < n:
        raise ModelError(f"node {nodes.min() if nodes.min() < 0 else nodes.max()} of a graph with {n:,} nodes")
    most = ALL_PARTNERS_PAIRS if n * n <= ALL_PARTNERS_PAIRS else ALL_PARTNERS_PAIRS // 4
    if (alone and n <= ALL_PARTNERS_NODES) or (not alone and len(nodes) * n <= most):
        every = _with_all(graph, nodes)
        yield nodes, every[keep(every)]
        return
    vectors, links = spectral_vectors(graph, three_step), latest_links(graph, three_step)
    popular = _popular_nodes(graph, links, nodes, score)
    few = len(nodes) * n > MAX_PRODUCTS
    partners = torch.from_numpy(links.active_nodes(MAX_PARTNERS)) if few else torch.arange(n)

    def candidates(part: Ids, number: int) -> tuple[Ids, Reals]:
        pairs, columns = likely_partners(graph, links, part, *vectors, popular, partners, number)
        kept = keep(pairs)
        return pairs[kept], columns[kept]

    if alone:
        yield nodes, candidates(nodes, max(1000, 20 * k))[0]
        return
    approximate: Callable[[Reals], Tensor] | None = None
    for first in range(0, len(nodes), NODES_AT_ONCE):
        part = nodes[first : first + NODES_AT_ONCE]
        slices = [part[i : i + NODES_PER_THREAD] for i in range(0, len(part), NODES_PER_THREAD)]
        found = list(in_threads(partial(candidates, number=max(PARTNER_PRODUCTS, 3 * k)), slices))
        number = max(MIN_PARTNERS, 3 * k)
        if max(np.bincount(np.searchsorted(part, pairs[:, 0])).max(initial=0) for pairs, _ in found) > number:
            approximate = approximate or _approximation(found, score, max(k, MIN_BEST))
            yield part, np.concatenate(list(in_threads(partial(_best_partners, approximate, number), found)))
        else:
            yield part, np.concatenate([pairs for pairs, _ in found])


def _best_partners(approximate: Callable[[Reals], Tensor], number: int, found: tuple[Ids, Reals]) -> Ids:
    pairs, columns = found
    best: Ids = pairs[np.sort(best_of_each(torch.from_numpy(pairs), approximate(columns), number).numpy())]
    return best


def _popular_nodes(graph: DynamicGraph, links: LatestLinks, nodes: Ids, score: Score) -> Ids:
    """Return the nodes of each kind with the highest scores with a few of these nodes, on average.  # [≤ P · kinds]

    They are the most likely partners of nodes of which little is known.
    """
    asked = np.random.default_rng(0).permutation(nodes)[:ASKED]
    busy = links.busy_nodes(graph.kinds, POPULAR_AMONG)
    pairs = _pairs_between(asked, busy)
    scores = score(torch.from_numpy(pairs)).double().numpy().reshape(len(asked), len(busy))
    allowed = _is_allowed(graph, pairs).reshape(scores.shape)
    mean = np.where(allowed, scores, 0.0).sum(axis=0) / np.maximum(1, allowed.sum(axis=0))
    mean[~allowed.any(axis=0)] = -np.inf  # of the same kind as all that were asked
    order = np.argsort(-mean, kind="stable")
    groups = [order] if graph.kinds is None else [order[graph.kinds[busy[order]] == kind] for kind in (0, 1)]
    return np.sort(busy[np.concatenate([group[:POPULAR] for group in groups])])


def _approximation(found: list[tuple[Ids, Reals]], score: Score, k: int) -> Callable[[Reals], Tensor]:
    """Grow trees that tell the k best partners of a node from its other candidates, from scores of a few nodes."""
    nodes = np.unique(np.concatenate([pairs[:, 0] for pairs, _ in found]))
    asked = np.random.default_rng(0).choice(nodes, min(TEACHERS, len(nodes)), replace=False)
    parts = [(pairs[of], columns[of]) for pairs, columns in found for of in [np.isin(pairs[:, 0], asked)]]
    pairs, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    best = np.zeros(len(pairs), dtype=np.bool_)
    best[best_of_each(torch.from_numpy(pairs), score(torch.from_numpy(pairs)), k)] = True
    if best.all() or not best.any():
        return lambda columns: torch.zeros(len(columns))
    trees = boosted_trees(columns, best, rounds=ROUNDS, depth=4, l2=10.0, seed=0)
    return lambda columns: torch.from_numpy(trees.sum(columns))


def likely_partners(
    graph: DynamicGraph,
    links: LatestLinks,
    nodes: Ids,
    e: Tensor,
    weights: Tensor,
    popular: Ids,
    partners: Tensor,
    number: int,
) -> tuple[Ids, Reals]:
    """Return past neighbours, nodes two steps away, popular nodes, and `number` partners with the largest products.

    Shapes: pairs [C, 2], sorted; columns to approximate their scores [C, c]
    """
    _check(graph, e, weights, number)
    wanted = _pairs_between(nodes, popular)
    products = _largest_products(graph, nodes, partners, e, weights, number)
    pairs, columns = links.partners(nodes, np.concatenate([wanted, products]))
    allowed = _is_allowed(graph, pairs)
    pairs, columns = pairs[allowed], columns[allowed]
    vectors, sizes = e.numpy(), weights.to(e).numpy()
    inner = np.concatenate([(vectors[part[:, 0]] * sizes * vectors[part[:, 1]]).sum(axis=1) for part in chunks(pairs)])
    return pairs, np.column_stack([columns, inner])


def _with_all(graph: DynamicGraph, nodes: Ids) -> Ids:
    nodes, n = np.sort(nodes), graph.num_nodes
    return _allowed(graph, np.stack([np.repeat(nodes, n), np.tile(np.arange(n), len(nodes))], axis=1))


def _allowed(graph: DynamicGraph, pairs: Ids) -> Ids:
    """Return the pairs of two nodes, of different kinds if there are kinds."""
    allowed: Ids = pairs[_is_allowed(graph, pairs)]
    return allowed


def _is_allowed(graph: DynamicGraph, pairs: Ids) -> NDArray[np.bool_]:
    values = pairs if graph.kinds is None else graph.kinds[pairs]
    differ: NDArray[np.bool_] = values[:, 0] != values[:, 1]
    return differ


def _check(graph: DynamicGraph, e: Tensor, weights: Tensor, number: int) -> None:
    n = graph.num_nodes
    if len(e) != n or e.dim() != 2 or weights.shape != e.shape[1:]:
        shapes = f"{tuple(e.shape)} and {tuple(weights.shape)}"
        raise ModelError(f"embeddings and weights of shape {shapes}, expected [{n}, d] and [d]")
    if number < 1:
        raise ModelError(f"number={number} must be at least 1")


@lru_cache(maxsize=1)
def latest_links(graph: DynamicGraph, three_step: bool) -> LatestLinks:
    """Return the links of a graph; those of the last graph are kept for the next call."""
    return LatestLinks(graph, three_step)


class LatestLinks:
    """All links of a graph, latest first in the row of each node; what it can, it shares with `pair_history`.

    All sums x are stored as log(1 + x).

    Shapes:
        keys [E]: u · N + v of all linked pairs u < v, sorted; last [E]: the step of their last link;
        decayed, [E] per decay: decayed weights; counts [E]: of snapshots; same_time, [E] per period: weights at the
        next window's time of day and week; last_active [N]; recent_degrees [N]: number of links, older ones counting
        less; damping [N]: of paths through a node; node_table [N, c]: columns of a node;
        offsets [N + 1], neighbours and entry_links [2E]: all links as CSR, with indices into keys; order [2E]: the
        entries of each row, latest first
    """

    def __init__(self, graph: DynamicGraph, three_step: bool) -> None:
        history = history_of(graph, len(graph) - 1, three_step)
        self.num_nodes, self.keys, self.last = history.num_nodes, history.keys, history.last_link
        self.offsets, self.neighbours, self.entry_links = history.offsets, history.neighbours, history.entry_links
        past, at = history.extended, [HISTORY_DECAYS.index(decay) for decay in DECAYS]
        self.decayed = list(history.weights[at])
        self.counts: Reals = np.log1p(past.num_links, dtype=history.weights.dtype)
        self.same_time = past.same_time[: len(past.same_time) // 2]
        self.recent_degrees: Reals = history.degrees[HISTORY_DECAYS.index(RECENT)]
        self.last_active = np.where(history.num_neighbours > 0, history.last_active, -1)
        self.damping: Reals = 1 / np.log(2 + history.num_neighbours)
        columns = [*history.strengths[at], np.log1p(history.num_neighbours), self.last_active]
        self.node_table: Reals = np.column_stack(columns)
        place = np.repeat(len(graph) * np.arange(self.num_nodes), history.num_neighbours)
        place -= self.last[self.entry_links]
        self.order = np.argsort(place, kind="stable").astype(self.entry_links.dtype)

    def past_pairs(self) -> tuple[Ids, Reals]:
        """Return linked pairs, latest first, and columns to approximate their scores.  # [≤ MAX_PAST_PAIRS, 2]"""
        found, step = [np.empty(0, dtype=np.int64)], int(self.last.max(initial=-1))
        while step >= 0 and sum(map(len, found)) < MAX_PAST_PAIRS:
            found.append(np.flatnonzero(self.last == step))
            step -= 1
        latest = np.concatenate(found)[:MAX_PAST_PAIRS]
        pairs = np.stack(np.divmod(self.keys[latest], max(1, self.num_nodes)), axis=1)
        return pairs, np.column_stack([*self._link_columns(latest), self._node_columns(pairs)])

    def _link_columns(self, links: Ids) -> list[Reals]:
        """Return the sums of linked pairs, and the step of their last link.  # [B] each"""
        return [values[links] for values in (*self.decayed, *self.same_time, self.counts, self.last)]

    def _path_sums(self, pair: Ids, size: int, middle: Ids, first: Ids, second: Ids) -> list[Reals]:
        """Return Σ_z a_uz a_zv / log(2 + degree of z) for the paths of each pair, for a of each decay.  # [P] each"""
        damping = self.damping[middle]
        terms = (a[first] * a[second] * damping for a in (*self.decayed, self.counts))
        return [np.log1p(np.bincount(pair, term, size)) for term in terms]

    def closed(self, nodes: Ids) -> tuple[Ids, Reals]:
        """Return pairs of these nodes with nodes two steps away that were never linked, and `_path_sums` as columns.

        Shapes: [P, 2], [P, c]
        """
        which, middle, first = self._latest(nodes, FAN_OUT)
        onward, end, second = self._latest(middle, FAN_OUT)
        start = nodes[which[onward]]
        keys = np.minimum(start, end) * self.num_nodes + np.maximum(start, end)
        keys[start == end] = -1
        found, pair = np.unique(keys, return_inverse=True)
        columns = np.column_stack(self._path_sums(pair, len(found), middle[onward], first[onward], second))
        new = (found >= 0) & ~np.isin(found, self.keys, assume_unique=True)
        pairs = np.stack(np.divmod(found[new], max(1, self.num_nodes)), axis=1)
        return pairs, np.column_stack([columns[new], self._node_columns(pairs)])

    def _node_columns(self, pairs: Ids) -> Reals:
        """Return the smaller and the larger of both nodes' strengths, degrees and last active steps.  # [P, c]"""
        one, two = self.node_table[pairs[:, 0]], self.node_table[pairs[:, 1]]
        return np.concatenate([np.minimum(one, two), np.maximum(one, two)], axis=1)

    def partners(self, nodes: Ids, others: Ids) -> tuple[Ids, Reals]:
        """Return pairs of nodes with past neighbours and nodes two steps away, and other pairs; and columns as above.

        Shapes: others [O, 2] → pairs [P, 2], sorted; columns [P, c]
        """
        n = self.num_nodes
        which, entries = expand(self.offsets, nodes)
        linked = nodes[which] * n + self.neighbours[entries]
        start, middle, first = self._latest(nodes, PARTNER_FAN_OUT)
        onward, end, second = self._latest(middle, PARTNER_FAN_OUT)
        far = nodes[start[onward]] * n + end
        keys = distinct(np.concatenate([linked, far, others[:, 0] * n + others[:, 1]]))
        pairs = np.stack(np.divmod(keys, max(1, n)), axis=1)
        columns = np.column_stack([*self._link_columns(self.entry_links[entries]), np.ones(len(entries))])
        past = np.zeros((len(keys), columns.shape[1]))
        past[np.searchsorted(keys, linked)] = columns
        paths = self._path_sums(np.searchsorted(keys, far), len(keys), middle[onward], first[onward], second)
        return pairs, np.column_stack([past, *paths, self.node_table[pairs[:, 0]], self.node_table[pairs[:, 1]]])

    def _latest(self, nodes: Ids, fan_out: int) -> tuple[Ids, Ids, Ids]:
        """Return the latest neighbours of nodes: the index into `nodes`, the neighbour, and the link."""
        first = self.offsets[nodes]
        count = np.minimum(self.offsets[nodes + 1] - first, fan_out)
        which = np.repeat(np.arange(len(nodes)), count)
        entries = self.order[np.arange(len(which)) + np.repeat(first - (np.cumsum(count) - count), count)]
        return which, self.neighbours[entries], self.entry_links[entries]

    def active_nodes(self, number: int | None = None) -> Ids:
        """Return the nodes linked most recently; ties go to those with more neighbours.  # [≤ MAX_ACTIVE_NODES]"""
        order = np.lexsort((np.arange(len(self.last_active)), -np.diff(self.offsets), -self.last_active))
        return np.sort(order[: MAX_ACTIVE_NODES if number is None else number])

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


def _largest_products(
    graph: DynamicGraph, nodes: Ids, partners: Tensor, e: Tensor, weights: Tensor, number: int
) -> Ids:
    """Return the pairs of each node with the largest products with partners.  # [≤ number · nodes, 2]"""
    others = e[partners]
    kinds = None if graph.kinds is None else torch.from_numpy(graph.kinds.astype(np.int64))
    parts = []
    for part in torch.split(torch.from_numpy(nodes), max(1, PRODUCTS // max(1, len(partners)))):
        products = (e[part] * weights.to(e)) @ others.T  # [b, P]
        products[part[:, None] == partners] = -torch.inf
        if kinds is not None:
            products[kinds[part][:, None] == kinds[partners]] = -torch.inf
        top, at = products.topk(min(number, len(partners)), dim=1)
        pairs = torch.stack([part[:, None].expand_as(at), partners[at]], dim=2)
        parts.append(pairs[top > -torch.inf])
    return torch.cat(parts).numpy() if parts else np.empty((0, 2), dtype=np.int64)


def _largest(values: NDArray[np.float64], number: int) -> Ids:
    """Return the indices of the largest values; ties go to the first.  # [≤ number]"""
    if number < len(values):
        least = np.partition(values, len(values) - number)[len(values) - number]
        above, equal = np.flatnonzero(values > least), np.flatnonzero(values == least)
        return np.concatenate([above, equal[: number - len(above)]])
    return np.arange(len(values))
