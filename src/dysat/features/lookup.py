"""Look up values of nodes, links and paths for pairs, and add values to them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.system.compiled import native
from dysat.system.parallel.process import in_threads

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
TAKEN_AT_ONCE = 1 << 20  # values that one thread looks up


class TwoStepPaths(NamedTuple):
    """All two-step paths u – middle – v of a chunk of pairs.

    Shapes:
        pair [P]: row of the pair, middle [P]: node, first and second [P]: both links as indices into `keys`
    """

    pair: Ids
    middle: Ids
    first: Ids
    second: Ids


class Ends(NamedTuple):
    """Both nodes of some pairs, in an order that their features keep.

    Shapes:
        pairs [B, 2]; apart [B]: nodes of two kinds, of which the first comes first; None without kinds
    """

    pairs: Ids
    apart: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, pairs: Ids, kinds: NDArray[np.uint8] | None) -> Ends:
        """Put nodes of two kinds in the order of their kinds.  # [B, 2], [N]"""
        if kinds is None:
            return cls(pairs)
        mine, theirs = kinds[pairs[:, 0]], kinds[pairs[:, 1]]
        return cls(np.where((mine > theirs)[:, None], pairs[:, ::-1], pairs), mine != theirs)


def low_and_high(values: NDArray[Any], ends: Ends) -> list[Reals]:
    """Return the smaller and the larger of both nodes' values; of two kinds, in the order of kinds.  # [N] → two [B]"""
    return in_order(values[ends.pairs[:, 0]], values[ends.pairs[:, 1]], ends)


def in_order(one: NDArray[Any], two: NDArray[Any], ends: Ends) -> list[Reals]:
    """Return the same of values that both nodes have in these pairs.  # [B], [B] → two [B]"""
    low, high = np.minimum(one, two), np.maximum(one, two)
    if ends.apart is not None:
        np.copyto(low, one, where=ends.apart)
        np.copyto(high, two, where=ends.apart)
    return [low, high]


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
    """Add values to a total in their order, as `np.bincount` does; other threads can run meanwhile.  # [K], [B], [B]"""
    values, call = values.astype(total.dtype, copy=False), native()
    if call is None:
        np.add.at(total, at, values)
    else:
        call(f"add_at_{total.dtype}", *map(torch.from_numpy, (values, at, total)), len(at))


def taken(values: NDArray[Any], which: NDArray[Any]) -> NDArray[Any]:
    """Return chosen values, on all cores; memory answers many threads at once.  # [E], [B] → [B]"""
    found = np.empty(len(which), dtype=values.dtype)

    def take(first: int) -> None:
        part = slice(first, first + TAKEN_AT_ONCE)
        np.take(values, which[part], out=found[part], mode="clip")  # checked by the caller; "raise" would make a copy

    list(in_threads(take, range(0, len(which), TAKEN_AT_ONCE)))
    return found
