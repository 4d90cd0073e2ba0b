"""Negative samples: rows of the same snapshot, drawn by degree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from dysat.sampling.walks import WeightedRows


@dataclass(frozen=True, eq=False, repr=False)
class Negatives:
    """Rows that lie grouped by snapshot, drawn within a group with a probability proportional to degree^power."""

    rows: WeightedRows

    @classmethod
    def by_degree(cls, degrees: Tensor, groups: Tensor, power: float = 0.75) -> Self:
        """Group t holds the rows [groups[t], groups[t + 1]).  # degrees [R], groups [T + 1]"""
        weights = torch.where(degrees > 0, degrees.double() ** power, 0.0)  # [R]; 0^0 is 1 otherwise
        rows = torch.arange(len(degrees), device=degrees.device)
        nothing = torch.full_like(groups[1:], -1)  # [T]
        return cls(WeightedRows.from_csr(groups, rows, weights, otherwise=nothing))

    def draw(self, group: Tensor, *, generator: torch.Generator) -> Tensor:
        """A row for each group number; −1 where the group has no row with a degree above 0.  # [...] → [...]"""
        return self.rows.draw(group, generator=generator)
