"""The distinct ones among many numbers, and the place of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
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
        marked = torch.zeros(size, dtype=torch.bool, device=numbers.device).index_fill_(0, numbers, True)
        # NumPy is five times faster on a CPU.
        found = torch.from_numpy(np.flatnonzero(marked.numpy())) if marked.is_cpu else marked.nonzero()[:, 0]
        place = torch.zeros(size, dtype=torch.int64, device=numbers.device)
        return cls(found, marked, place.scatter_(0, found, torch.arange(len(found), device=found.device)))

    def has(self, others: Tensor) -> Tensor:
        """Return which of these numbers are among them.  # [B] → [B]"""
        return torch.isin(others, self.numbers) if self.marked is None else self.marked.index_select(0, others)

    def places(self, some: Tensor) -> Tensor:
        """Return where these numbers are, all of which must be among them.  # [B] → [B]"""
        return torch.searchsorted(self.numbers, some) if self.place is None else self.place.index_select(0, some)
