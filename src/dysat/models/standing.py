"""Where values stand among others: a rank that means the same on graphs of any size."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.compiled import native

Reals = NDArray[np.float64]


def standing(values: Reals, ordered: NDArray[np.float32]) -> Reals:
    """What part of a column's ordered values is smaller, half of the equal ones counted.  # [B, F], [B', F] → [B, F]

    Values count as `coarse` has them, and so must the others be.
    """
    if not len(ordered):
        return np.full(values.shape, 0.5)
    own, others = (torch.from_numpy(np.ascontiguousarray(part.T)) for part in (coarse(values), ordered))
    if (call := native()) is not None:
        found = torch.empty(values.shape, dtype=torch.float64)
        call("standings", own, others, found, *own.shape, len(ordered))
        return found.numpy()
    below = torch.searchsorted(others, own) + torch.searchsorted(others, own, right=True)
    return np.ascontiguousarray((below.double() / (2 * len(ordered))).numpy().T)


def coarse(values: Reals) -> NDArray[np.float32]:
    """Values that are the same when they were added up in another order."""
    return np.round(values, 9).astype(np.float32)
