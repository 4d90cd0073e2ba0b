"""Negative samples: rows of the same snapshot, drawn in proportion to a power of their degree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from dysat.sampling.walks import WeightedRows


@dataclass(frozen=True, eq=False, repr=False)
class Negatives:
    """A sampler of rows grouped by snapshot, with probability proportional to degree^power within a group."""

    rows: WeightedRows

    @classmethod
    def by_degree(cls, degrees: Tensor, groups: Tensor, power: float = 0.75) -> Self:
        """Group t holds the rows [groups[t], groups[t + 1]).  # degrees [R], groups [T + 1]"""
        weights = torch.where(degrees > 0, degrees.double() ** power, 0.0)  # [R]; 0^0 would be 1
        rows = torch.arange(len(degrees), device=degrees.device)
        nothing = torch.full_like(groups[1:], -1)  # [T]
        return cls(WeightedRows.from_csr(groups, rows, weights, otherwise=nothing))

    def draw(self, group: Tensor, *, generator: torch.Generator) -> Tensor:
        """Draw one row for each group number; −1 if no row of the group has a degree above 0.  # [...] → [...]"""
        return self.rows.draw(group, generator=generator)
