"""Rank each link among other nodes: ranks, MRR, Hits@k, precision at k, and the candidates."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

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
CANDIDATES = (100, 50, 20, 10)  # usual numbers of candidates: as many of these as a graph has
RANKED = 200  # links that `drawn_ranking` draws
FEWEST_NEW = 5  # new links; their MRR is not reported for fewer
TOP = (10, 100)  # numbers of highest scores that are counted


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


def rank_figures(ranks: Tensor, new: Tensor) -> dict[str, float]:
    """Return MRR and Hits@10 of links and the MRR of the new ones; NaN with fewer than five new links.  # [P], [P]"""
    new_mrr = mrr(ranks[new]) if int(new.sum()) >= FEWEST_NEW else float("nan")
    return {"mrr": mrr(ranks), "hits_at_10": hits(ranks, 10), "new_mrr": new_mrr}


def precision_at(scores: Tensor, labels: Tensor, k: int) -> float:
    """Return the fraction of links among the k highest scores; NaN with fewer scores or a NaN.  # [B], [B]

    If several scores are equal at the end of the list, it takes from them the share of links that they have.
    """
    if len(scores) < k or bool(scores.isnan().any()):
        return float("nan")
    last = scores.topk(k).values[-1]
    above, equal = scores > last, scores == last
    share = float(labels[equal].double().mean())
    return (float(labels[above].sum()) + (k - int(above.sum())) * share) / k


def precision_figures(scores: Tensor, labels: Tensor, new: Tensor) -> dict[str, float]:
    """Return the precision at 10 and 100 of all pairs and of new ones; NaN with fewer than five new links.  # [B]"""
    few = int((labels & new).sum()) < FEWEST_NEW
    return {f"precision_at_{k}": precision_at(scores, labels, k) for k in TOP} | {
        f"new_precision_at_{k}": float("nan") if few else precision_at(scores[new], labels[new], k) for k in TOP
    }


def candidate_pairs(links: Tensor, others: Tensor) -> Tensor:
    """Return the pairs of u with its candidates, for each link (u, v).  # [P, 2], [P, K] → [P · K, 2]"""
    return torch.stack([links[:, :1].expand_as(others), others], 2).flatten(0, 1)


def ranked_scores(score: Callable[[Tensor], Tensor], links: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores of links and of their candidates.  # [P, 2], [P, K] → [P], [P, K]"""
    return score(links).double(), score(candidate_pairs(links, others)).double().view_as(others)


def link_ranks(score: Callable[[Tensor], Tensor], links: Tensor, others: Tensor) -> Tensor:
    """Return the rank of each link (u, v) among the pairs of u with other nodes.  # [P, 2], [P, K] → [P]"""
    return ranks(*ranked_scores(score, links, others))


def never_linked(graph: DynamicGraph, step: int, pairs: Tensor) -> Tensor:
    """Return which pairs have no link up to a step, in their direction if the graph has one.  # [B, 2] → [B]"""
    keys = pair_numbers(pairs, graph.directed)
    new = np.ones(len(keys), dtype=bool)
    for snapshot in graph.snapshots[: step + 1]:
        linked = target_keys(snapshot)  # sorted
        if len(linked):
            new &= linked[np.searchsorted(linked, keys).clip(max=len(linked) - 1)] != keys
    return torch.from_numpy(new)


def pair_numbers(pairs: Tensor, directed: bool) -> Ids:
    """Return one number per pair, as `target_keys`; without direction the lower node comes first.  # [B, 2] → [B]"""
    ends: Ids = pairs.cpu().numpy()
    u, v = ends.T if directed else np.sort(ends, axis=1).T
    keys: Ids = u << 32 | v
    return keys


def drawn_ranking(graph: DynamicGraph, split: LinkSplit, linked: Ids | None = None) -> tuple[Tensor, Tensor] | None:
    """Return the rows of at most 200 links and the nodes that each is ranked among; None in a small graph.

    There are 100 candidates for each, or 50, 20 or 10 if a node has fewer. `linked` is that of `ranking_candidates`.

    Shapes:
        rows of the split's pairs [P], candidates [P, K]
    """
    rows = split.labels.nonzero()[:, 0]
    if len(rows) > RANKED:
        rows = rows[np.sort(np.random.default_rng(split.step).choice(len(rows), RANKED, replace=False))]
    chosen = replace(split, pairs=split.pairs[rows], labels=torch.ones(len(rows), dtype=torch.bool))
    for number in CANDIDATES:
        with suppress(GraphError):  # a small graph has fewer nodes
            return rows, ranking_candidates(graph, chosen, number, linked=linked)
    return None


def ranking_candidates(
    graph: DynamicGraph,
    split: LinkSplit,
    number: int,
    seed: int = 0,
    typed: bool | None = None,
    linked: Ids | None = None,
) -> Tensor:
    """Draw, for each positive (u, v) in order, K nodes that u is not linked with in the target.  # [P, K]

    `linked` are the sorted numbers of the pairs that count as linked; None for all links of the target.
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
    linked = target_keys(graph[split.target]) if linked is None else linked
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
