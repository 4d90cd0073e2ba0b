"""Open triads of all snapshots: two nodes that have a common neighbour, but no link, and whether they get one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from dysat.data.csr import Snapshot

BLOCK = 1 << 22  # neighbours that are looked through at once


class Triads(NamedTuple):
    """Nodes i and j of a step, both linked with k, and the weights of those links.  # each [B], nodes as rows"""

    i: Tensor
    j: Tensor
    k: Tensor
    w_ik: Tensor
    w_jk: Tensor


@dataclass(frozen=True, eq=False)
class StackedLinks:
    """The links of all snapshots as one graph, in which node v at step t is row first[t] + v; self-loops left out.

    Shapes:
        rows [E'], neighbours [E'], weights [E'] (both directions, in order), first [T + 1].
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
        """How many nodes are known at the step of each row: so far away is the same node a step later.  # [R]"""
        return torch.repeat_interleave(self.first.diff(), self.first.diff())

    @cached_property
    def offsets(self) -> Tensor:
        """Where the entries of each row begin.  # [R + 1]"""
        return torch.searchsorted(self.rows, torch.arange(len(self.known) + 1, device=self.rows.device))

    @cached_property
    def numbers(self) -> Tensor:
        """row · R + neighbour, in order.  # [E']"""
        return self.rows * len(self.known) + self.neighbours

    def links(self) -> tuple[Tensor, Tensor, Tensor]:
        """Every link of every step once, i before j, and its weight.  # each [E]"""
        once = self.rows < self.neighbours
        return self.rows[once], self.neighbours[once], self.weights[once]

    def find(self, rows: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        """Whether two rows are linked, and at which entry.  # [B], [B] → [B] (bool), [B]"""
        if not len(self.numbers):
            return torch.zeros_like(rows, dtype=torch.bool), torch.zeros_like(rows)
        wanted = (rows * len(self.known) + others).contiguous()
        at = torch.searchsorted(self.numbers, wanted).clamp(max=len(self.numbers) - 1)
        return self.numbers[at] == wanted, at

    def others(self, rows: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
        """Nodes known at the step of each row, uniformly, linked or not.  # [B] → [B, wanted]"""
        known = self.known[rows]
        step = torch.searchsorted(self.first, rows.contiguous(), right=True) - 1
        drawn = torch.rand(len(rows), wanted, dtype=torch.float64, generator=generator, device=rows.device)
        return self.first[step, None] + (drawn * known[:, None]).long()

    def apart(self, rows: Tensor, others: Tensor) -> Tensor:
        """Whether two rows are neither linked nor the same.  # [...], [...] → [...]"""
        return ~self.find(rows, others)[0] & (rows != others)

    @cached_property
    def ways(self) -> Tensor:
        """In how many ways the rows up to each are between two others, in order, with a step to come.  # [R]"""
        degrees = self.offsets.diff()
        last = torch.arange(len(degrees), device=degrees.device) >= self.first[-2]
        return (degrees * (degrees - 1)).masked_fill(last, 0).cumsum(0)

    @cached_property
    def num_ways(self) -> int:
        return int(self.ways[-1]) if len(self.ways) else 0

    def draw(self, wanted: int, generator: torch.Generator) -> tuple[Triads, Tensor]:
        """Two links of one row, uniformly, and whether they are an open triad that stays open at the next step.

        Each such triad is as likely as any other, those that count among the drawn ones vary in number: to list the
        neighbours' pairs of a node with thousands takes too much.  # [wanted] each, none where there is no such row
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
        """The open triads of pairs that are linked at the next step, by pair, and the pairs' numbers.  # [B] each

        All such pairs; of a pair's common neighbours at most so many, drawn. They are no more than the links times
        that, and are found in time of the degrees of the links' lesser ends.
        """
        i, j = self._newly_linked()
        degrees = self.offsets.diff()
        fewer = degrees[i] <= degrees[j]
        i, j = torch.where(fewer, i, j), torch.where(fewer, j, i)  # the neighbours of i are gone through
        blocks = torch.bincount(degrees[i].cumsum(0) // BLOCK, minlength=1).tolist()
        numbers = torch.arange(len(i), device=i.device)
        parts = [self._common(i, j, block, most, generator) for block in torch.split(numbers, blocks)]
        pairs, entries, at = (torch.cat(part) for part in zip(*parts, strict=True))
        found = Triads(i[pairs], j[pairs], self.neighbours[entries], self.weights[entries], self.weights[at])
        return found, torch.unique_consecutive(pairs, return_inverse=True)[1]

    def _newly_linked(self) -> tuple[Tensor, Tensor]:
        """Pairs of a step's rows that are linked at the next step and not at this one.  # [P], [P]"""
        i, j, _ = self.links()
        step = torch.searchsorted(self.first, i, right=True) - 1
        i, j, step = (part[step > 0] for part in (i, j, step))
        back = self.first[step] - self.first[step - 1]  # how many were known
        before = j - self.first[step] < back
        i, j = (i - back)[before], (j - back)[before]
        new = ~self.find(i, j)[0]
        return i[new], j[new]

    def _common(
        self, i: Tensor, j: Tensor, pairs: Tensor, most: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs, each as often as it has common neighbours, and the entries of their links with i and with j."""
        sizes = self.offsets.diff()[i[pairs]]
        entries = torch.repeat_interleave(self.offsets[i[pairs]] - sizes.cumsum(0) + sizes, sizes)
        entries += torch.arange(len(entries), device=entries.device)
        pairs = torch.repeat_interleave(pairs, sizes)
        common, at = self.find(j[pairs], self.neighbours[entries])
        pairs, entries, at = pairs[common], entries[common], at[common]
        # In random order within a pair; the first so many stay.
        drawn = torch.rand(len(pairs), dtype=torch.float64, generator=generator, device=pairs.device)
        order = (pairs + drawn / 2).argsort()  # a half, so that no sum is rounded up to the next pair
        stays = order[torch.arange(len(pairs), device=pairs.device) - torch.searchsorted(pairs, pairs) < most]
        return pairs[stays], entries[stays], at[stays]
