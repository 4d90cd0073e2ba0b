"""Second-order random walks (node2vec): a step depends on the current node and the one before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from dysat.sampling.walks import WeightedRows, starts_at_once, walk_parts

ROUNDS = 32  # of proposals; after that, weighing all neighbours costs less
ENTRIES = 1 << 22  # neighbours weighed at once


@dataclass(frozen=True, eq=False, repr=False)
class SecondOrderSteps:
    """Steps of node2vec: from v, reached from a, to x with probability proportional to w_vx · α.

        α = 1/p if x = a,  1 if x is linked with a,  1/q otherwise

    Rejection sampling: one binary search proposes x by weight alone; it is accepted with probability α / max α. This is
    exact and needs no table of all (a, v). If p or q is extreme, most proposals are rejected, so after `ROUNDS` rounds
    the remaining walks choose among all neighbours.

    Shapes:
        offsets [R + 1], neighbours [E], weights [E], pairs [E]: row · R + neighbour, in order.
    """

    offsets: Tensor
    neighbours: Tensor
    weights: Tensor
    pairs: Tensor
    proposals: WeightedRows
    returning: float  # 1/p, 1 and 1/q, each divided by the largest of them
    near: float
    far: float

    @classmethod
    def from_csr(cls, offsets: Tensor, neighbours: Tensor, weights: Tensor, p: float, q: float) -> Self:
        """Row r is linked with `neighbours[offsets[r]:offsets[r + 1]]`; there is at least one link."""
        num_rows = len(offsets) - 1
        rows = torch.arange(num_rows, device=offsets.device)
        pairs = torch.repeat_interleave(rows, offsets.diff(), output_size=len(neighbours)) * num_rows + neighbours
        proposals = WeightedRows.from_csr(offsets, neighbours, weights, otherwise=rows)
        largest = max(1 / p, 1.0, 1 / q)
        alphas = (1 / p / largest, 1 / largest, 1 / q / largest)
        return cls(offsets, neighbours, weights, pairs.sort().values, proposals, *alphas)

    def draw(self, before: Tensor, here: Tensor, *, generator: torch.Generator) -> Tensor:
        """Draw the next row of each walk.  # [S], [S] → [S]"""
        there = torch.empty_like(here)
        left = torch.arange(len(here), device=here.device)  # walks that still need a step
        for _ in range(ROUNDS):
            if not len(left):
                return there
            proposed = self.proposals.draw(here[left], generator=generator)
            uniform = torch.rand(len(left), dtype=torch.float64, generator=generator, device=here.device)
            accepted = uniform < self._alpha(before[left], proposed)
            there[left[accepted]] = proposed[accepted]
            left = left[~accepted]
        most = int(self.offsets.diff().max())
        for part in torch.split(left, max(1, ENTRIES // most)):
            there[part] = self._draw_from_all(before[part], here[part], generator)
        return there

    def _alpha(self, before: Tensor, there: Tensor) -> Tensor:
        """α / max α.  # [B], [B] → [B]"""
        wanted = before * (len(self.offsets) - 1) + there
        at = torch.searchsorted(self.pairs, wanted).clamp(max=len(self.pairs) - 1)
        alpha = torch.where(self.pairs[at] == wanted, self.near, self.far)
        return alpha.masked_fill(there == before, self.returning)

    def _draw_from_all(self, before: Tensor, here: Tensor, generator: torch.Generator) -> Tensor:
        """Draw by the formula, with the weights of all neighbours.  # [B], [B] → [B]"""
        walks = torch.arange(len(here), device=here.device)
        degrees = self.offsets.diff()[here]
        offsets = torch.nn.functional.pad(degrees.cumsum(0), (1, 0))  # [B + 1]
        walk = torch.repeat_interleave(walks, degrees)  # [E']
        entry = torch.arange(len(walk), device=here.device) + (self.offsets[here] - offsets[:-1])[walk]
        neighbours = self.neighbours[entry]
        weights = self.weights[entry] * self._alpha(before[walk], neighbours)
        return WeightedRows.from_csr(offsets, neighbours, weights, otherwise=here).draw(walks, generator=generator)


def second_order_walks(
    offsets: Tensor,
    neighbours: Tensor,
    weights: Tensor,
    starts: Tensor,
    length: int,
    *,
    p: float,
    q: float,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """Walks of node2vec, some at a time; the first step, and every step if p = q = 1, depends on link weights alone.

    Links are undirected: both directions must be present. A walk stays on a row that has no positive weight.

    Shapes:
        offsets [R + 1], neighbours [E], weights [E] (at least 0), starts [S] → parts of [S, length] (int32).
    """
    if p == q == 1 or length <= 2 or not len(neighbours):
        yield from walk_parts(offsets, neighbours, weights, starts, length, generator=generator)
        return
    steps = SecondOrderSteps.from_csr(offsets, neighbours, weights, p, q)
    for before in starts_at_once(starts):
        walk = torch.empty(len(before), length, dtype=torch.int32, device=before.device)
        here = steps.proposals.draw(before, generator=generator)
        walk[:, 0], walk[:, 1] = before, here
        for i in range(2, length):
            before, here = here, steps.draw(before, here, generator=generator)
            walk[:, i] = here
        yield walk
