"""The leading eigenvectors of the matrix of a graph's links."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import scipy.sparse as sp

Reals = NDArray[np.float64]
Spectrum = tuple[Reals, NDArray[np.float32]]
RANKS = (4, 16, 64)
TOLERANCE = 1e-2  # of eigenvalues; smaller than the error of leaving out all ranks after the last


def leading_eigenvectors(matrix: sp.csr_array[np.float64]) -> Spectrum:
    """Return the eigenvalues of largest size, in falling order, and their eigenvectors.  # [k], [N, k]

    Up to signs this is the SVD of the symmetric matrix.
    """
    n, most = matrix.shape[0], max(RANKS)
    if not matrix.data.any():
        return np.zeros(0), np.zeros((n, 0), dtype=np.float32)
    side = _bipartite_side(matrix)
    if n <= 2 * most:  # too few for the Lanczos method
        values, vectors = np.linalg.eigh(matrix.toarray())
    elif side is not None and most < side.sum() < n - most:
        values, vectors = _bipartite_eigenvectors(matrix, side)
    else:
        values, vectors = lanczos(matrix, most, tol=TOLERANCE)
    order = np.argsort(-np.abs(values), kind="stable")[:most]
    return values[order], np.ascontiguousarray(vectors[:, order], dtype=np.float32)


def scaled_by_degree(matrix: sp.csr_array[np.float64]) -> sp.csr_array[np.float64]:
    """Return a_uv / √((d_u + d)(d_v + d)) with the mean degree d.

    Without d every tiny component would have a leading eigenvector of its own.
    """
    degree: Reals = np.asarray(matrix.sum(axis=1))
    scale = 1 / np.sqrt(degree + degree.sum() / max(1, len(degree)) + (not degree.any()))
    rows = np.repeat(np.arange(len(degree)), np.diff(matrix.indptr))
    normalized = matrix.copy()
    normalized.data = matrix.data * scale[rows] * scale[matrix.indices]
    return normalized


def lanczos(
    matrix: Any, number: int, *, which: Literal["LM", "BE"] = "LM", tol: float = 0.0, seed: int = 0
) -> tuple[Reals, Reals]:
    """Return the eigenvalues of largest size (LM) or at both ends (BE), and their eigenvectors.  # [k], [N, k]"""
    from scipy.sparse.linalg import eigsh

    rng = np.random.default_rng(seed)
    # SciPy < 1.17 has no such argument and a fixed generator of its own.
    options: dict[str, Any] = {"rng": rng} if "rng" in signature(eigsh).parameters else {}
    start = rng.standard_normal(matrix.shape[0])
    values, vectors = eigsh(matrix, number, which=which, v0=start, tol=tol, **options)
    return values, vectors


def _bipartite_side(matrix: sp.csr_array[np.float64]) -> NDArray[np.bool_] | None:
    """Return which nodes are on the first side of a bipartite graph, or None if the graph is not bipartite.  # [N]"""
    from scipy.sparse import block_array
    from scipy.sparse.csgraph import connected_components

    # Two copies of each node, linked only across: both copies of a node are connected if it lies on an odd cycle.
    label = connected_components(block_array([[None, matrix], [matrix, None]]), directed=False)[1]
    one, two = np.split(label, 2)
    return None if (one == two).any() else one < two


def _bipartite_eigenvectors(matrix: sp.csr_array[np.float64], side: NDArray[np.bool_]) -> tuple[Reals, Reals]:
    """Return the same for a bipartite graph, from the SVD Σ σ x yᵀ of its block: ±σ and (x, ±y) / √2.

    This is many times faster.
    """
    from scipy.sparse.linalg import LinearOperator

    few, many = sorted((np.flatnonzero(side), np.flatnonzero(~side)), key=len)
    block: Any = matrix[few][:, many]
    transposed = block.T.tocsr()
    gram = LinearOperator((len(few),) * 2, matvec=lambda x: block @ (transposed @ x), dtype=np.float64)
    squares, x = lanczos(gram, max(RANKS) // 2, tol=TOLERANCE)
    nonzero = squares > 1e-9 * squares.max()
    sigma, x = np.sqrt(squares[nonzero]), x[:, nonzero]
    vectors = np.zeros((len(side), 2 * len(sigma)))
    vectors[few] = np.concatenate([x, x], axis=1) / np.sqrt(2)
    y = (transposed @ x) / sigma
    vectors[many] = np.concatenate([y, -y], axis=1) / np.sqrt(2)
    order = np.arange(2 * len(sigma)).reshape(2, -1).T.ravel()  # σ and −σ next to each other
    return np.concatenate([sigma, -sigma])[order], vectors[:, order]
