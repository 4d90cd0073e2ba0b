"""The distinct ones among many numbers, and the place of each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FEW = 1 / 16  # of all possible numbers, below which sorting the given ones is faster than marking them among all


@dataclass(frozen=True, eq=False)
class Distinct:
    """Distinct numbers in rising order.

    Shapes:
        numbers [D]; marked, place [size]: of all possible numbers, if there were many; None otherwise
    """

    numbers: Tensor
    marked: Tensor | None
    place: Tensor | None

    @classmethod
    def of(cls, numbers: Tensor, size: int) -> Distinct:
        """Find the distinct ones of these numbers, which are at least 0 and smaller than `size`.  # [B]"""
        if len(numbers) < FEW * size:
            return cls(torch.unique(numbers), None, None)
        marked = torch.zeros(size, dtype=torch.bool, device=numbers.device)
        marked[numbers] = True
        return cls(marked.nonzero()[:, 0], marked, marked.cumsum(0) - 1)

    def has(self, others: Tensor) -> Tensor:
        """Return which of these numbers are among them.  # [B] → [B]"""
        return torch.isin(others, self.numbers) if self.marked is None else self.marked[others]

    def places(self, some: Tensor) -> Tensor:
        """Return where these numbers are, all of which must be among them.  # [B] → [B]"""
        return torch.searchsorted(self.numbers, some) if self.place is None else self.place[some]
