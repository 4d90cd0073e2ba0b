"""Pairs of nodes: unlinked pairs drawn uniformly, and a mix of linked, active and random pairs."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import distinct
from dysat.data.graph import DynamicGraph

Ids = NDArray[np.int64]
RECENT_SNAPSHOTS = 3


def unlinked_pairs(
    num_nodes: int, links: Ids, wanted: int, rng: np.random.Generator, *, newest: int = 0, directed: bool = False
) -> Ids:
    """Draw up to `wanted` distinct unlinked pairs u < v with v ≥ `newest`, uniformly.  # [≤ wanted, 2]

    With `directed`, pairs are u → v: in any order, one of the two nodes at least `newest`.
    """
    last, skipped = (number * (number - 1) // 2 for number in (num_nodes, newest))
    if directed:  # pair 2k is u → v and pair 2k + 1 is v → u
        linked = 2 * (_number(np.sort(links, axis=1)) - skipped) + (links[:, 0] > links[:, 1])
        numbers = _draw(2 * (last - skipped), linked, wanted, rng)
        pairs = _pair(numbers // 2 + skipped)
        return np.where((numbers % 2 == 0)[:, None], pairs, pairs[:, ::-1])
    linked = _number(links) - skipped  # pairs are numbered by v, so pairs of older nodes come first, below 0
    return _pair(_draw(last - skipped, linked, wanted, rng) + skipped)


def replaced_ends(
    links: Ids,
    every: Ids,
    num_nodes: int,
    per_link: int,
    rng: np.random.Generator,
    *,
    directed: bool = False,
    kinds: NDArray[np.uint8] | None = None,
) -> tuple[Ids, Ids]:
    """Replace v of each link (u, v) by random nodes of v's kind; return unlinked pairs, and the rows of their links.

    The links are some of `every` link. Nodes that are u itself or linked with u are left out, so a link has at most
    `per_link` pairs. In a graph without direction u < v, and the pairs are sorted likewise.

    Shapes: [L, 2], [A, 2] → [C, 2], [C] with C ≤ per_link · L
    """
    rows = np.repeat(np.arange(len(links)), per_link)
    u, v = links[rows].T
    if kinds is None:
        other = rng.integers(0, max(1, num_nodes), len(rows))
    else:
        by_kind = np.argsort(kinds[:num_nodes], kind="stable")
        first = np.searchsorted(kinds[by_kind], np.arange(int(kinds.max(initial=0)) + 2))
        number = (rng.random(len(rows)) * (first[kinds[v] + 1] - first[kinds[v]])).astype(np.int64)
        other = by_kind[first[kinds[v]] + number]
    pairs = np.stack([u, other], axis=1)
    if not directed:
        pairs.sort(axis=1)
    free = (u != other) & ~np.isin(pairs @ [num_nodes, 1], every @ [num_nodes, 1])
    return pairs[free], rows[free]


def distinct_pairs(pairs: Ids, num_nodes: int, *, directed: bool = False) -> Ids:
    """Return each pair of different nodes once, as u < v, sorted; with `directed` as u → v.  # [B, 2] → [≤ B, 2]"""
    low, high = (pairs if directed else np.sort(pairs, axis=1)).T
    keys = distinct((low * num_nodes + high)[low != high])
    return np.stack(np.divmod(keys, max(1, num_nodes)), axis=1)


def unlinked_between(
    left: Ids, right: Ids, links: Ids, wanted: int, rng: np.random.Generator, *, newest: int = 0
) -> Ids:
    """Draw up to `wanted` distinct unlinked pairs of a node of `left` and a node of `right`.

    `left` and `right` are sorted and disjoint, such as users and items; the larger node must be ≥ `newest`.
    # [≤ wanted, 2]
    """
    # Number the pairs in two rectangles: newer left nodes × all right nodes, then older left × newer right nodes.
    older, older_right = int(np.searchsorted(left, newest)), int(np.searchsorted(right, newest))
    width, narrow = len(right), len(right) - older_right
    first = (len(left) - older) * width
    ends = np.concatenate([links, links[:, ::-1]])
    ends = ends[np.isin(ends[:, 0], left) & np.isin(ends[:, 1], right) & (ends.max(1) >= newest)]
    i, j = np.searchsorted(left, ends[:, 0]), np.searchsorted(right, ends[:, 1])
    linked = np.where(i >= older, (i - older) * width + j, first + i * narrow + j - older_right)
    numbers = _draw(first + older * narrow, linked, wanted, rng)
    rest = numbers - first
    i = np.where(rest < 0, older + numbers // max(width, 1), rest // max(narrow, 1))
    j = np.where(rest < 0, numbers % max(width, 1), older_right + rest % max(narrow, 1))
    return np.sort(np.stack([left[i], right[j]], axis=1), axis=1)


class UnlinkedPairs:
    """Draws unlinked ordered pairs (u, v), uniformly and with repeats, on any device and without rejection.

    Pair (u, v) has the number u · N + v. `taken` are the sorted numbers of all pairs that must not be drawn: links in
    both directions, and (v, v). Before taken[i] there are taken[i] − i free numbers, so the k-th free number is k plus
    the number of those counts that are at most k.
    """

    def __init__(self, taken: Tensor, num_nodes: int) -> None:
        self.free_before = taken - torch.arange(len(taken), device=taken.device)
        self.num_nodes, self.num_free = num_nodes, num_nodes**2 - len(taken)

    def draw(self, wanted: int, generator: torch.Generator) -> Tensor:
        """Draw `wanted` pairs, or none if all pairs are taken.  # [wanted, 2]"""
        wanted = wanted if self.num_free else 0
        k = torch.randint(max(1, self.num_free), (wanted,), generator=generator, device=generator.device)
        numbers = k + torch.searchsorted(self.free_before, k, right=True)
        return torch.stack([numbers // self.num_nodes, numbers % self.num_nodes], 1)


def _draw(total: int, without: Ids, wanted: int, rng: np.random.Generator) -> Ids:
    """Draw up to `wanted` distinct numbers below `total`, uniformly, except those in `without`.  # [≤ wanted]"""
    if total <= 4 * max(wanted, len(without)):  # few: list them, since most draws would be links or repeats
        numbers = rng.permutation(np.setdiff1d(np.arange(total), without))
    else:  # more than half of the draws are new
        numbers = np.empty(0, dtype=np.int64)
        while len(numbers) < wanted:
            drawn = rng.integers(0, total, 2 * wanted)
            numbers = np.concatenate([numbers, drawn[~np.isin(drawn, without)]])
            first = np.unique(numbers, return_index=True)[1]
            numbers = numbers[np.sort(first)]  # in the order drawn, so that the first `wanted` are a uniform sample
    return numbers[:wanted]


def _number(pairs: Ids) -> Ids:
    """Number pairs u < v in the order (0,1), (0,2), (1,2), (0,3), …  # [B, 2] → [B]"""
    u, v = pairs[:, 0], pairs[:, 1]
    return v * (v - 1) // 2 + u


def _pair(numbers: Ids) -> Ids:
    """The inverse of `_number`.  # [B] → [B, 2]"""
    v = np.floor(np.sqrt(2.0 * numbers + 0.25) + 0.5).astype(np.int64)
    v -= v * (v - 1) // 2 > numbers  # the root may have been rounded up to an integer
    return np.stack([numbers - v * (v - 1) // 2, v], axis=1)


def mixed_pairs(graph: DynamicGraph, number: int, seed: int) -> Tensor:
    """Draw at most `number` pairs of each of four kinds, without repeats, from the known nodes.  # [B, 2], u < v

    The kinds are: pairs linked in any snapshot, the latest first; two nodes with links in the last three snapshots; one
    such node and any node; any two nodes. Nodes with recent links are drawn in proportion to their number of links.
    In a directed graph pairs are u → v, and the linked ones are there in both directions.
    """
    rng, known = np.random.default_rng([seed, len(graph)]), graph.known[-1]
    links = [np.stack([part.cpu().numpy() for part in s.pairs()[:2]], 1) for s in reversed(graph.snapshots)]
    linked = np.concatenate(links)
    _, first = np.unique(linked[:, 0] * known + linked[:, 1], return_index=True)
    linked = linked[np.sort(first)[:number]]
    active = np.concatenate(links[:RECENT_SNAPSHOTS]).ravel()
    uniform = rng.integers(0, max(1, known), (3, number if known else 0))
    parts = [linked, uniform[:2].T]
    if graph.directed:
        parts += [linked[:, ::-1], uniform[1::-1].T]
    if len(active):
        parts += [rng.choice(active, (number, 2)), np.stack([rng.choice(active, number), uniform[2]], 1)]
    return torch.from_numpy(distinct_pairs(np.concatenate(parts), known, directed=graph.directed))
