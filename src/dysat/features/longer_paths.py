"""Sums over all three-step paths between two nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.features.lookup import expand
from dysat.features.matrix import SparseMatrix
from dysat.system.compiled import native

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
DENSE_CHUNK = 1 << 22  # entries of a dense block of two-step paths


@dataclass(frozen=True, eq=False)
class LongerPaths:
    """Some weightings b and a of the links of a graph, for Σ_zy b_uz b_zy a_vy over all paths u – z – y – v.

    Shapes:
        offsets [N + 1] and neighbours [E]: all links as CSR; b, a [E, W]; used [W]: the place of each weighting among
        all `number` of them; the others are 0
    """

    offsets: Ids
    neighbours: Ids
    b: Reals
    a: Reals
    used: Ids
    number: int

    @classmethod
    def of(cls, offsets: Ids, neighbours: Ids, weightings: Sequence[tuple[Reals, Reals]]) -> LongerPaths:
        """Keep pairs of b and a, both [E]."""
        used = [place for place, (_, a) in enumerate(weightings) if a.any()]
        none = np.empty((len(neighbours), 0))
        b, a = (np.column_stack([none, *(weightings[place][which] for place in used)]) for which in (0, 1))
        return cls(offsets, neighbours, b, a, np.array(used, dtype=np.int64), len(weightings))

    def sums(self, pairs: Ids) -> Reals:
        """Return the sums of pairs (u, v), for each weighting.  # [B, 2] → [number, B]"""
        sums = np.zeros((self.number, len(pairs)))
        if not len(self.used):
            return sums
        order = np.argsort(pairs[:, 0], kind="stable")
        nodes, first = np.unique(pairs[order, 0], return_index=True)
        starts, ends = np.append(first, len(order)), pairs[order, 1]
        found = np.zeros((len(pairs), len(self.used)))
        if (call := native()) is not None:
            arrays = (self.offsets, self.neighbours, self.b, self.a, nodes, starts, ends, found)
            call("three_steps", *map(torch.from_numpy, arrays), len(nodes), len(self.offsets) - 1, len(self.used))
        else:
            for column, b, a in zip(found.T, self.b.T, self.a.T, strict=True):
                column[:] = self._by_scipy(nodes, starts, ends, b, a)
        sums[self.used[:, None], order] = found.T
        return sums

    def _by_scipy(self, nodes: Ids, starts: Ids, ends: Ids, b: Reals, a: Reals) -> Reals:
        """Return the sums of one weighting, of pairs grouped by their first node: `starts` are the groups in `ends`."""
        n, sums = len(self.offsets) - 1, np.zeros(len(ends))
        matrix = SparseMatrix(b, self.neighbours, self.offsets, (n, n)).scipy()
        rows = max(1, DENSE_CHUNK // max(1, n))
        for first in range(0, len(nodes), rows):
            part = slice(first, first + rows)
            two_steps = (matrix[nodes[part]] @ matrix).toarray()  # [b, N]
            begin, stop = starts[first], starts[min(part.stop, len(nodes))]
            pair, entries = expand(self.offsets, ends[begin:stop])
            row = np.repeat(np.arange(len(two_steps)), np.diff(starts[first : part.stop + 1]))[pair]
            terms = two_steps[row, self.neighbours[entries]] * a[entries]
            sums[begin:stop] = np.bincount(pair, terms, minlength=stop - begin)
        return sums
