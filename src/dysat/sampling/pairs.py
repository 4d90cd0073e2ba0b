"""Pairs of nodes, uniformly at random."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


def unlinked_pairs(num_nodes: int, links: Ids, wanted: int, rng: np.random.Generator) -> Ids:
    """Up to `wanted` distinct pairs u < v that are not linked, uniformly at random.  # [≤ wanted, 2]"""
    total = num_nodes * (num_nodes - 1) // 2
    linked = _number(links)
    if total <= 4 * max(wanted, len(links)):  # few pairs: list them, for drawing would mostly hit links and repeats
        numbers = rng.permutation(np.setdiff1d(np.arange(total), linked))
    else:  # more than half of the draws are new
        numbers = np.empty(0, dtype=np.int64)
        while len(numbers) < wanted:
            drawn = rng.integers(0, total, 2 * wanted)
            numbers = np.concatenate([numbers, drawn[~np.isin(drawn, linked)]])
            first = np.unique(numbers, return_index=True)[1]
            numbers = numbers[np.sort(first)]  # in the order drawn, so that the first are a fair sample
    return _pair(numbers[:wanted])


def _number(pairs: Ids) -> Ids:
    """Pairs u < v, numbered (0,1), (0,2), (1,2), (0,3), …  # [B, 2] → [B]"""
    u, v = pairs[:, 0], pairs[:, 1]
    return v * (v - 1) // 2 + u


def _pair(numbers: Ids) -> Ids:
    """The pairs with these numbers.  # [B] → [B, 2]"""
    v = np.floor(np.sqrt(2.0 * numbers + 0.25) + 0.5).astype(np.int64)
    v -= v * (v - 1) // 2 > numbers  # the root may be rounded up to a whole number
    return np.stack([numbers - v * (v - 1) // 2, v], axis=1)
