"""Values that differ only by rounding are made equal: processors round differently, and so do sums in another order."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from dysat.system.compiled import native

Reals = NDArray[np.float64]
ROUNDED = 2.0**30  # values are rounded to multiples of its inverse,
PLACE = 0.618034  # between two of them here, where fractions of powers of two, which are frequent, do not lie
BITS = 21  # of the 24 of float32 that eigenvectors keep


def rounded(values: Reals) -> Reals:
    """Round so that sums of the same terms in another order become equal.  # [...] → [...]"""
    found: Reals = np.floor(values * ROUNDED + PLACE)
    found /= ROUNDED
    return found


def narrow(values: Reals) -> NDArray[np.float32]:
    """Return rounded values in half of the memory.  # [...] → [...]"""
    return rounded(values).astype(np.float32)


def without_noise(values: Reals, size: Reals) -> Reals:
    """Round to `BITS` binary digits below a size, so that float32 noise of eigenvectors is gone.  # [B], [B] → [B]

    Processors round differently. Without this, trees and ranks would see differences where there are none.
    """
    _, exponent = np.frexp(size)
    found: Reals = np.ldexp(np.rint(np.ldexp(values, BITS - exponent)), exponent - BITS)
    return found


def row_products(x: Reals, weights: Reals) -> Reals:
    """Return x @ weights; unlike with a library of matrix products, a row does not depend on the others.

    Shapes: [B, k], [k] → [B], or [B, k], [k, j] → [B, j]
    """
    rows = x if x.strides[1] == x.itemsize else np.ascontiguousarray(x)
    found: Reals = np.einsum("bk,k...->b...", rows, np.asarray(weights, order="F"))
    return found


def fractional_ranks(values: Reals, ordered: NDArray[np.float32]) -> Reals:
    """Return the fraction of each sorted column that is smaller; equal ones count half.  # [B, F], [B', F] → [B, F]

    Values are `narrow` first; the sorted columns must be so already.
    """
    if not len(ordered):
        return np.full(values.shape, 0.5)
    own, others = (torch.from_numpy(np.ascontiguousarray(part.T)) for part in (narrow(values), ordered))
    if (call := native()) is not None:
        ranks = torch.empty(values.shape, dtype=torch.float64)
        call("standings", own, others, ranks, *own.shape, len(ordered))
        return ranks.numpy()
    below = torch.searchsorted(others, own) + torch.searchsorted(others, own, right=True)
    return np.ascontiguousarray((below.double() / (2 * len(ordered))).numpy().T)
