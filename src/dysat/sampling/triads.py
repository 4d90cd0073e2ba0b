"""Open triads of all snapshots: two unlinked nodes with a common neighbour, and whether they link in the next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from dysat.data.csr import Snapshot

BLOCK = 1 << 22  # neighbours compared at once


class Triads(NamedTuple):
    """Nodes i and j of a step, both linked with k, as rows, and the weights of those links.  # each [B]"""

    i: Tensor
    j: Tensor
    k: Tensor
    w_ik: Tensor
    w_jk: Tensor


@dataclass(frozen=True, eq=False)
class StackedLinks:
    """The links of all snapshots as one graph without self-loops; node v at step t is row first[t] + v.

    Shapes:
        rows [E'], neighbours [E'], weights [E'] (both directions, sorted), first [T + 1].
    """

    rows: Tensor
    neighbours: Tensor
    weights: Tensor
    first: Tensor

    @classmethod
    def of(cls, snapshots: Sequence[Snapshot], device: torch.device) -> StackedLinks:
        parts, first = [], [0]
        for snapshot in snapshots:
            here, there, weights = snapshot.entries()
            other = here != there
            parts.append((here[other] + first[-1], there[other] + first[-1], weights[other]))
            first.append(first[-1] + snapshot.num_nodes)
        rows, neighbours, weights = (torch.cat(part).to(device) for part in zip(*parts, strict=True))
        return cls(rows, neighbours, weights, torch.tensor(first, device=device))

    @cached_property
    def known(self) -> Tensor:
        """Number of known nodes at the step of each row; row + known is the same node one step later.  # [R]"""
        return torch.repeat_interleave(self.first.diff(), self.first.diff())

    @cached_property
    def offsets(self) -> Tensor:
        """First entry of each row.  # [R + 1]"""
        return torch.searchsorted(self.rows, torch.arange(len(self.known) + 1, device=self.rows.device))

    @cached_property
    def numbers(self) -> Tensor:
        """row · R + neighbour, sorted.  # [E']"""
        return self.rows * len(self.known) + self.neighbours

    def links(self) -> tuple[Tensor, Tensor, Tensor]:
        """Every link of every step once, with i < j, and its weight.  # each [E]"""
        once = self.rows < self.neighbours
        return self.rows[once], self.neighbours[once], self.weights[once]

    def find(self, rows: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Whether two rows are linked, and the entry of that link.  # [B], [B] → [B] (bool), [B]"""
        if not len(self.numbers):
            return torch.zeros_like(rows, dtype=torch.bool), torch.zeros_like(rows)
        wanted = (rows * len(self.known) + others).contiguous()
        at = torch.searchsorted(self.numbers, wanted).clamp(max=len(self.numbers) - 1)
        return self.numbers[at] == wanted, at

    def others(self, rows: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
        """Draw known nodes of the step of each row, uniformly, linked or not.  # [B] → [B, wanted]"""
        known = self.known[rows]
        step = torch.searchsorted(self.first, rows.contiguous(), right=True) - 1
        drawn = torch.rand(len(rows), wanted, dtype=torch.float64, generator=generator, device=rows.device)
        return self.first[step, None] + (drawn * known[:, None]).long()

    def apart(self, rows: Tensor, others: Tensor) -> Tensor:
        """Whether two rows are different and not linked.  # [...], [...] → [...]"""
        return ~self.find(rows, others)[0] & (rows != others)

    @cached_property
    def ways(self) -> Tensor:
        """Cumulative number of ordered pairs of neighbours over the rows; 0 for rows of the last step.  # [R]"""
        degrees = self.offsets.diff()
        last = torch.arange(len(degrees), device=degrees.device) >= self.first[-2]
        return (degrees * (degrees - 1)).masked_fill(last, 0).cumsum(0)

    @cached_property
    def num_ways(self) -> int:
        return int(self.ways[-1]) if len(self.ways) else 0

    def draw(self, wanted: int, generator: torch.Generator) -> tuple[Triads, Tensor]:
        """Draw two links of one row, uniformly, and whether they form an open triad that stays open in the next step.

        Every such triad is equally likely, but their number among the drawn ones varies: listing all pairs of
        neighbours of a node with thousands would take too long.  # [wanted] each; empty if no row has two neighbours
        """
        wanted = wanted if self.num_ways else 0
        number = torch.randint(max(1, self.num_ways), (wanted,), generator=generator, device=self.rows.device)
        k = torch.searchsorted(self.ways, number, right=True)
        fewer = self.offsets[k + 1] - self.offsets[k] - 1
        number = self.ways[k] - 1 - number  # 0 … degree · (degree − 1) − 1
        one, two = number // fewer, number % fewer
        two += two >= one
        one, two = (self.offsets[k] + chosen for chosen in (one, two))
        i, j = self.neighbours[one], self.neighbours[two]
        now, _ = self.find(i, j)
        next_, _ = self.find(i + self.known[i], j + self.known[j])
        return Triads(i, j, k, self.weights[one], self.weights[two]), ~(now | next_)

    def closing(self, most: int, generator: torch.Generator) -> tuple[Triads, Tensor]:
        """The open triads of pairs that link in the next step, grouped by pair, and the pair numbers.  # [B] each

        Contains all such pairs, each with at most `most` randomly chosen common neighbours. The time grows with the
        smaller degree of each pair.
        """
        i, j = self._newly_linked()
        degrees = self.offsets.diff()
        fewer = degrees[i] <= degrees[j]
        i, j = torch.where(fewer, i, j), torch.where(fewer, j, i)  # the neighbours of i are searched
        blocks = torch.bincount(degrees[i].cumsum(0) // BLOCK, minlength=1).tolist()
        numbers = torch.arange(len(i), device=i.device)
        parts = [self._common(i, j, block, most, generator) for block in torch.split(numbers, blocks)]
        pairs, entries, at = (torch.cat(part) for part in zip(*parts, strict=True))
        triads = Triads(i[pairs], j[pairs], self.neighbours[entries], self.weights[entries], self.weights[at])
        return triads, torch.unique_consecutive(pairs, return_inverse=True)[1]

    def _newly_linked(self) -> tuple[Tensor, Tensor]:
        """Pairs of rows of a step that are linked in the next step but not in this one.  # [P], [P]"""
        i, j, _ = self.links()
        step = torch.searchsorted(self.first, i, right=True) - 1
        i, j, step = (part[step > 0] for part in (i, j, step))
        back = self.first[step] - self.first[step - 1]  # nodes known in the step before
        before = j - self.first[step] < back
        i, j = (i - back)[before], (j - back)[before]
        new = ~self.find(i, j)[0]
        return i[new], j[new]

    def _common(
        self, i: Tensor, j: Tensor, pairs: Tensor, most: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs, repeated for each common neighbour, and the entries of its links with i and with j."""
        sizes = self.offsets.diff()[i[pairs]]
        entries = torch.repeat_interleave(self.offsets[i[pairs]] - sizes.cumsum(0) + sizes, sizes)
        entries += torch.arange(len(entries), device=entries.device)
        pairs = torch.repeat_interleave(pairs, sizes)
        common, at = self.find(j[pairs], self.neighbours[entries])
        pairs, entries, at = pairs[common], entries[common], at[common]
        # Shuffle within each pair and keep the first `most`.
        drawn = torch.rand(len(pairs), dtype=torch.float64, generator=generator, device=pairs.device)
        order = (pairs + drawn / 2).argsort()  # halved, so that no sum rounds up to the next pair
        stays = order[torch.arange(len(pairs), device=pairs.device) - torch.searchsorted(pairs, pairs) < most]
        return pairs[stays], entries[stays], at[stays]
