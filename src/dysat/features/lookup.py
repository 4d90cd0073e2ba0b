"""Look up values of nodes, links and paths for pairs, and add values to them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]


class TwoStepPaths(NamedTuple):
    """All two-step paths u – middle – v of a chunk of pairs.

    Shapes:
        pair [P]: row of the pair, middle [P]: node, first and second [P]: both links as indices into `keys`
    """

    pair: Ids
    middle: Ids
    first: Ids
    second: Ids


def low_and_high(values: NDArray[Any], pairs: Ids) -> list[Reals]:
    """Return the smaller and the larger of both nodes' values.  # [N], [B, 2] → two [B]"""
    one, two = values[pairs[:, 0]], values[pairs[:, 1]]
    return [np.minimum(one, two), np.maximum(one, two)]


def at_links(values: NDArray[Any], links: Ids, otherwise: float = 0.0) -> NDArray[Any]:
    """Return the values of links, and another value for indices that are no link, as `find` gives.  # [E], [B] → [B]"""
    linked = links < len(values)
    found = np.full(len(links), otherwise, dtype=values.dtype)
    found[linked] = values[links[linked]]
    return found


def expand(offsets: Ids, rows: Ids) -> tuple[Ids, Ids]:
    """Return all entries of these rows of a CSR: the index into `rows`, and the entry."""
    first = offsets[rows]
    count = offsets[rows + 1] - first
    which = np.repeat(np.arange(len(rows)), count)
    return which, np.arange(len(which)) + np.repeat(first - (np.cumsum(count) - count), count)


def add_at(total: NDArray[Any], at: Ids, values: NDArray[Any]) -> None:
    """Add values to a total in their order, as `np.bincount` does.  # [K], [B], [B]"""
    np.add.at(total, at, values.astype(total.dtype, copy=False))
