"""The pairs with the highest scores, of all pairs or of each node, in blocks that fit in memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

BLOCK = 1 << 22  # scores held in memory at once
OnProgress = Callable[[float], None]  # takes the fraction that is done


def highest(
    scores_of: Callable[[Tensor], Tensor],
    size: int,
    k: int,
    without: Tensor | None,
    kinds: Tensor | None,
    directed: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the k highest scores of all pairs of nodes, each pair once, and those pairs.  # [k], [k, 2]

    With `directed`, u → v and v → u are two pairs.
    """
    nodes, best, pairs = torch.arange(size), torch.empty(0), torch.empty(0, 2, dtype=torch.int64)
    for part in _blocks(nodes, size):
        allowed = nodes != part[:, None] if directed else nodes > part[:, None]
        scores = _masked(scores_of(part), part, allowed, without, kinds, directed).flatten()
        top, at = scores.topk(min(k, len(scores)))
        at = at[top > -torch.inf]
        best = torch.cat([best, scores[at]])
        pairs = torch.cat([pairs, torch.stack([part[at // size], at % size], 1)])
        best, order = best.sort(descending=True, stable=True)
        best, pairs = best[:k], pairs[order[:k]]
    return best, pairs


def highest_of_each(
    scores_of: Callable[[Tensor], Tensor],
    size: int,
    rows: Tensor,
    k: int,
    without: Tensor | None,
    kinds: Tensor | None,
    directed: bool,
    on_progress: OnProgress,
) -> tuple[Tensor, Tensor]:
    """Return the k highest scores of each row with all other nodes, and those pairs.  # [≤ R · k], [≤ R · k, 2]"""
    best, pairs = [torch.empty(0)], [torch.empty(0, 2, dtype=torch.int64)]
    done = 0
    for part in _blocks(rows, size):
        scores = _masked(scores_of(part), part, torch.arange(size) != part[:, None], without, kinds, directed)
        least = scores.topk(min(k, size), dim=1).values[:, -1:] if k else torch.inf
        row, node = ((scores >= least) & (scores > -torch.inf)).nonzero().unbind(1)
        found, values = torch.stack([part[row], node], 1), scores[row, node]
        chosen = best_of_each(found, values, k)
        best.append(values[chosen])
        pairs.append(found[chosen])
        done += len(part)
        on_progress(done / len(rows))
    return torch.cat(best), torch.cat(pairs)


def best_of_each(pairs: Tensor, scores: Tensor, k: int) -> Tensor:
    """Return the indices of the k highest scores of each first node; of equal scores the first.  # [B, 2] → [≤ B]"""
    nodes = pairs[:, 0].numpy()
    order = np.lexsort((-scores.numpy(), nodes))  # stable
    starts = np.flatnonzero(np.diff(nodes[order], prepend=-1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return torch.from_numpy(order[rank < k])


def _blocks(rows: Tensor, size: int) -> tuple[Tensor, ...]:
    return torch.split(rows, max(1, BLOCK // max(1, size)))


def _masked(
    scores: Tensor, rows: Tensor, allowed: Tensor, without: Tensor | None, kinds: Tensor | None, directed: bool
) -> Tensor:
    """Return the scores of rows with all nodes, −∞ for pairs that are not allowed.  # [b, N]"""
    if kinds is not None:
        allowed &= kinds[rows][:, None] != kinds
    if without is not None:
        nodes = torch.arange(scores.shape[1])
        pairs = torch.stack([rows[:, None].expand_as(scores), nodes.expand_as(scores)], 2).flatten(0, 1)
        allowed &= ~among(pair_keys(pairs, scores.shape[1], directed), without).view_as(allowed)
    return scores.masked_fill_(~allowed, -torch.inf)


def among(keys: Tensor, ordered: Tensor) -> Tensor:
    """Return which keys are among others, which must be sorted.  # [B], [K] → [B]"""
    if not len(ordered):
        return torch.zeros_like(keys, dtype=torch.bool)
    return ordered[torch.searchsorted(ordered, keys).clamp(max=len(ordered) - 1)] == keys


def pair_keys(pairs: Tensor, num_nodes: int, directed: bool = False) -> Tensor:
    """Return one number per pair, whatever the order of its two nodes unless `directed`.  # [B, 2] → [B]"""
    low, high = pairs.unbind(1) if directed else (pairs.min(1).values, pairs.max(1).values)
    return low * num_nodes + high
