"""Rank each link among other nodes: ranks, MRR, Hits@k, and the candidates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import distinct
from dysat.data.graph import DynamicGraph
from dysat.data.summary import target_keys
from dysat.errors import GraphError
from dysat.evaluation.protocols import LinkSplit

Ids = NDArray[np.int64]
BLOCK = 1 << 22  # largest number of values in memory when all candidates are listed


def ranks(positive: Tensor, negative: Tensor) -> Tensor:
    """Return the rank of each positive among its negatives, from 1; ties count one half.  # [B], [B, K] → [B]

    The rank is NaN if a score is NaN.
    """
    if positive.dim() != 1 or negative.dim() != 2 or len(positive) != len(negative):
        shapes = f"{tuple(positive.shape)} and {tuple(negative.shape)}"
        raise GraphError(f"scores have shapes {shapes}, expected [B] for links and [B, K] for their candidates")
    score = positive.unsqueeze(1)  # [B, 1]
    above, as_high = (negative > score).sum(1), (negative >= score).sum(1)
    unknown = positive.isnan() | negative.isnan().any(1)
    return (1 + 0.5 * (above + as_high).double()).masked_fill(unknown, torch.nan)


def mrr(ranks: Tensor) -> float:
    """Return the mean reciprocal rank; NaN for an empty tensor.  # [B]"""
    return float(ranks.double().reciprocal().mean())


def hits(ranks: Tensor, k: int) -> float:
    """Return the fraction of ranks up to k; NaN if there are none or one of them is NaN.  # [B]"""
    if k < 1:
        raise GraphError(f"k={k}: the best rank is 1")
    within = torch.where(ranks.isnan(), torch.nan, (ranks <= k).double())
    return float(within.mean())


def link_ranks(score: Callable[[Tensor], Tensor], links: Tensor, others: Tensor) -> Tensor:
    """Return the rank of each link (u, v) among the pairs of u with other nodes.  # [P, 2], [P, K] → [P]"""
    pairs = torch.stack([links[:, :1].expand_as(others), others], 2).flatten(0, 1)
    return ranks(score(links).double(), score(pairs).double().view_as(others))


def ranking_candidates(
    graph: DynamicGraph, split: LinkSplit, number: int, seed: int = 0, typed: bool | None = None
) -> Tensor:
    """Draw, for each positive (u, v) in order, K nodes that u is not linked with in the target.  # [P, K]

    The candidates compete with v: the endpoint that appeared later, or the receiver in a directed graph. They are
    uniform among the nodes that could replace v: known at the split's step, new if the split asks for new nodes, of v's
    kind if `typed`. u itself is excluded and no candidate repeats within a row.
    """
    typed = split.typed if typed is None else typed
    if number < 1:
        raise GraphError(f"number={number}: at least one candidate is needed")
    if seed < 0:
        raise GraphError(f"seed={seed} must not be negative")
    if typed and graph.kinds is None:
        raise GraphError("typed pairs need kinds of nodes, and the graph has none")
    u, v = split.pairs[split.labels].cpu().numpy().T
    rng = np.random.default_rng([seed, split.step, split.target, number])
    nodes = np.arange(split.lowest[1], graph.known[split.step])
    linked = target_keys(graph[split.target])
    if not graph.directed:
        linked = distinct(np.concatenate([linked, (linked & 0xFFFFFFFF) << 32 | linked >> 32]))  # both directions
    found = np.empty((len(u), number), dtype=np.int64)
    groups = np.zeros(len(u), dtype=np.uint8) if not typed or graph.kinds is None else graph.kinds[v]
    if graph.directed:
        groups = (u < split.lowest[1]).astype(np.uint8)  # one of the two nodes must be new, and u is not
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        pool = nodes if not typed or graph.kinds is None else nodes[graph.kinds[nodes] == group]
        if graph.directed and not group:
            pool = np.arange(split.lowest[0], graph.known[split.step])
        found[rows] = _unlinked_with(u[rows], pool, linked, number, rng)
    return torch.from_numpy(found).to(split.pairs.device)


def _unlinked_with(u: Ids, pool: Ids, linked: Ids, number: int, rng: np.random.Generator) -> Ids:
    """Draw `number` distinct nodes of the pool for each u, excluding u and its neighbours.  # [b] → [b, K]"""
    start, stop = np.searchsorted(linked, u << 32), np.searchsorted(linked, (u + 1) << 32)
    fewest = len(pool) - int((stop - start).max(initial=0)) - 1  # lower bound for every row
    if fewest < 2 * number:  # rejection sampling would mostly hit links and repeats
        block = max(1, BLOCK // max(1, len(pool)))
        return np.concatenate(
            [_listed(u[at : at + block], pool, linked, number, rng) for at in range(0, len(u), block)]
        )
    found = rng.choice(pool, (len(u), number))
    while True:
        order = np.argsort(found, axis=1, kind="stable")
        ordered = np.take_along_axis(found, order, axis=1)
        repeated = np.zeros(found.shape, dtype=bool)
        np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
        again = repeated | _excluded(u, found, linked)
        if not again.any():
            return found
        found[again] = rng.choice(pool, int(again.sum()))


def _listed(u: Ids, pool: Ids, linked: Ids, number: int, rng: np.random.Generator) -> Ids:
    """Do the same by listing the whole pool, for when most of it is needed."""
    everyone = np.broadcast_to(pool, (len(u), len(pool)))
    excluded = _excluded(u, everyone, linked)
    left = len(pool) - excluded.sum(1)
    if (left < number).any():
        short = int(np.argmin(left))
        raise GraphError(f"number={number}: node {u[short]} has only {left[short]} candidates it is not linked with")
    lots = np.where(excluded, 2.0, rng.random(everyone.shape))  # the lowest numbers win
    return pool[np.argsort(lots, axis=1)[:, :number]]


def _excluded(u: Ids, nodes: Ids, linked: Ids) -> NDArray[np.bool_]:
    """Return whether a node is u itself or linked with u.  # [b], [b, K] → [b, K]"""
    column = u[:, None]
    excluded: NDArray[np.bool_] = np.isin(column << 32 | nodes, linked) | (nodes == column)
    return excluded
