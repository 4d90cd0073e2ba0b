"""Eigenvectors of sparse symmetric matrices, the same in every call."""

from __future__ import annotations

from inspect import signature
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def lanczos(
    matrix: Any, number: int, *, which: Literal["LM", "BE"] = "LM", tol: float = 0.0, seed: int = 0
) -> tuple[Floats, Floats]:
    """The eigenvalues of largest size, or those at both ends, and their eigenvectors.  # [k], [N, k]"""
    from scipy.sparse.linalg import eigsh

    rng = np.random.default_rng(seed)
    # SciPy < 1.17 has a fixed generator of its own for what is drawn besides the start.
    more: dict[str, Any] = {"rng": rng} if "rng" in signature(eigsh).parameters else {}
    start = rng.standard_normal(matrix.shape[0])
    values, vectors = eigsh(matrix, number, which=which, v0=start, tol=tol, **more)
    return values, vectors
