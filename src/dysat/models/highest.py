"""The highest of the scores of all pairs of nodes, without holding all N × N."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 1 << 22  # scores held at once while the highest are looked for


def highest(
    scores_of: Callable[[Tensor], Tensor], size: int, rows: Tensor, k: int, without: Tensor | None, kinds: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The k highest of the scores of rows u with all nodes v ≠ u, each pair once.  # [k], [k, 2]"""
    nodes = torch.arange(size)
    best, pairs = torch.empty(0), torch.empty(0, 2, dtype=torch.int64)
    for part in torch.split(rows, max(1, BLOCK // max(1, size))):
        scores = scores_of(part)  # [b, N]
        allowed = nodes != part[:, None] if len(rows) == 1 else nodes > part[:, None]
        if kinds is not None:
            allowed &= kinds[part][:, None] != kinds
        if without is not None:
            found = torch.stack([part[:, None].expand_as(scores), nodes.expand_as(scores)], 2).flatten(0, 1)
            allowed &= ~torch.isin(pair_keys(found, size), without).view_as(allowed)
        scores = scores.masked_fill_(~allowed, -torch.inf).flatten()
        top, at = scores.topk(min(k, len(scores)))
        at = at[top > -torch.inf]
        best = torch.cat([best, scores[at]])
        pairs = torch.cat([pairs, torch.stack([part[at // size], at % size], 1)])
        best, order = best.sort(descending=True, stable=True)
        best, pairs = best[:k], pairs[order[:k]]
    return best, pairs


def pair_keys(pairs: Tensor, num_nodes: int) -> Tensor:
    """A number for each pair, whichever of the two comes first.  # [B, 2] → [B]"""
    low, high = pairs.min(1).values, pairs.max(1).values
    return low * num_nodes + high
