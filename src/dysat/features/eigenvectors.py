"""Leading eigenvectors of sparse symmetric matrices: exact in small graphs, approximate in large ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import signature
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.features.matrix import ROWS_AT_ONCE, Matrix, SparseMatrix, as_scipy, row_sums
from dysat.system.compiled import native
from dysat.system.parallel.matrices import matrix_device
from dysat.system.parallel.process import in_threads, load_scipy

Reals = NDArray[np.float64]
Spectrum = tuple[Reals, NDArray[np.float32]]
RANKS = (4, 16, 64)
BLOCK_NODES = 1_000  # of larger graphs, features of pairs use eigenvectors found by blocks, which is faster
EXACT_NODES = 7_000  # larger matrices have approximate eigenvectors; those of the paper's datasets are all exact
BLOCK = 16  # vectors that are multiplied at once
MOST_ENTRIES = 1 << 30  # of a basis; larger graphs have fewer eigenvectors, of the next smaller rank
BASIS = 5  # vectors of the basis per wanted eigenvector
LARGE_NODES = 50_000
LARGE_BASIS = 4  # the same for features of pairs of larger graphs, which rank better with rougher eigenvectors
CONTINUED_BASIS = 3  # the same, if it begins with eigenvectors of a similar matrix
SAME = 1e-6  # difference of equal eigenvalues, relative to the largest
MOSTLY_NOISE = 1e-3  # length of a new vector of a basis, relative to the largest product, that has rounding errors
CHUNK = 1 << 24  # entries of a matrix that are multiplied at once on a GPU
SOME_LINKS = 1_000  # looked at for a triangle, before a graph is searched for cycles of odd length
TOLERANCE = 1e-2  # of eigenvalues; smaller than the error of leaving out all ranks after the last


def leading_eigenvectors(matrix: Matrix) -> Spectrum:
    """Return the eigenvalues of largest size, in falling order, and their eigenvectors.  # [k], [N, k]

    Up to signs this is the SVD of the symmetric matrix.
    """
    n = matrix.shape[0]
    most = num_eigenvectors(n)
    if not matrix.data.any():
        return np.zeros(0), np.zeros((n, 0), dtype=np.float32)
    side = _bipartite_side(matrix)
    if n <= 2 * most:  # too few for the Lanczos method
        values, vectors = np.linalg.eigh(matrix.toarray())
    elif side is not None and most < side.sum() < n - most:
        values, vectors = _bipartite_eigenvectors(matrix, side, most)
    elif n > BLOCK_NODES:
        basis = LARGE_BASIS if n > LARGE_NODES and most == RANKS[-1] else BASIS
        values, vectors = _block_lanczos(matrix, most, "LM", seed=0, basis=basis)
    else:
        values, vectors = lanczos(matrix, most, tol=TOLERANCE)
    order = np.argsort(-np.abs(values), kind="stable")[:most]
    return values[order], np.take(vectors, order, axis=1).astype(np.float32, copy=False)


def num_eigenvectors(nodes: int) -> int:
    """Return the largest number of eigenvectors that a graph with this many nodes has."""
    return max([min(RANKS[1:]), *(rank for rank in RANKS if BASIS * rank * nodes <= MOST_ENTRIES)])


def scaled_by_degree(matrix: Matrix) -> SparseMatrix:
    """Return a_uv / √((d_u + d)(d_v + d)) with the mean degree d."""
    scale, data = degree_scale(matrix), np.empty_like(matrix.data)

    def of_rows(first: int) -> None:
        ends = matrix.indptr[first : first + ROWS_AT_ONCE + 1]
        entries = slice(int(ends[0]), int(ends[-1]))
        own = np.repeat(scale[first : first + ROWS_AT_ONCE], np.diff(ends))
        data[entries] = matrix.data[entries] * own * scale[matrix.indices[entries]]

    list(in_threads(of_rows, range(0, len(scale), ROWS_AT_ONCE)))
    return SparseMatrix(data, matrix.indices, matrix.indptr, matrix.shape)


def degree_scale(matrix: Matrix) -> Reals:
    """Return 1 / √(d_u + d) with the mean degree d.  # [N]

    Without d every tiny component would have a leading eigenvector of its own.
    """
    degree = row_sums(matrix)
    scale: Reals = 1 / np.sqrt(degree + degree.sum() / max(1, len(degree)) + (not degree.any()))
    return scale


def lanczos(
    matrix: Any,
    number: int,
    *,
    which: Literal["LM", "BE"] = "LM",
    tol: float = 0.0,
    seed: int = 0,
    similar: NDArray[np.floating[Any]] | None = None,
) -> tuple[Reals, NDArray[np.floating[Any]]]:
    """Return the eigenvalues of largest size (LM) or at both ends (BE), and their eigenvectors.

    A matrix with more than `EXACT_NODES` rows gives approximations, whatever the tolerance; see `_block_lanczos`. With
    eigenvectors of a similar matrix, perhaps of fewer rows, these take less time.

    Shapes: similar [n, k] with n ≤ N → [k], [N, k]
    """
    if matrix.shape[0] > EXACT_NODES:
        return _block_lanczos(matrix, number, which, seed, similar=similar)
    load_scipy()
    from scipy.sparse.linalg import eigsh

    rng = np.random.default_rng(seed)
    # SciPy < 1.17 has no such argument and a fixed generator of its own.
    options: dict[str, Any] = {"rng": rng} if "rng" in signature(eigsh).parameters else {}
    start = rng.standard_normal(matrix.shape[0])
    values, vectors = eigsh(as_scipy(matrix), number, which=which, v0=start, tol=tol, **options)
    return values, vectors


def by_rule(values: Reals, vectors: NDArray[Any]) -> NDArray[Any]:
    """Return eigenvectors that are the same on all processors, which choose different signs.

    Each is turned towards a random direction. Those of an eigenvalue that occurs several times, which span a plane
    whose axes are arbitrary, are turned together. The rule also holds for eigenvectors of any length.

    Shapes: [k], [N, k] → [N, k]
    """
    order, random = np.argsort(values, kind="stable"), np.random.default_rng(0).standard_normal(vectors.shape)
    gaps, found = np.diff(values[order]), np.empty_like(vectors)
    for same in np.split(order, np.flatnonzero(gaps > SAME * np.abs(values).max(initial=0.0)) + 1):
        same.sort()
        found[:, same] = rotated(vectors[:, same], random[:, same])
    return found


def rotated(vectors: NDArray[Any], towards: NDArray[Any]) -> NDArray[Any]:
    """Rotate so that the first rows are as close as possible to others (orthogonal Procrustes).

    Shapes: [N, k], [n, k] with n ≤ N → [N, k]
    """
    left, _, right = np.linalg.svd(vectors[: len(towards)].T @ towards)
    found: NDArray[Any] = vectors @ (left @ right)
    return found


def _block_lanczos(
    matrix: Any,
    number: int,
    which: str,
    seed: int,
    *,
    basis: int | None = None,
    similar: NDArray[np.floating[Any]] | None = None,
) -> tuple[Reals, NDArray[np.float32]]:
    """Return approximate eigenvalues and eigenvectors from a few products with blocks of vectors.

    Ritz vectors in the span of X, A X, A² X, …, in float32. Extreme eigenvalues that stand apart are exact; of a dense
    part of the spectrum, the vectors span most of the same space. Many times faster than one vector at a time, and the
    time grows with the number of links. X is random, and the span has `basis` vectors for each that is wanted. Or X has
    the eigenvectors of a similar matrix: then the first product shows what they lack, and a smaller span is enough.

    Shapes: similar [n, k] with n ≤ N → [k], [N, k]
    """
    n, (width, per_vector) = matrix.shape[0], (BLOCK, basis or BASIS) if similar is None else (number, CONTINUED_BASIS)
    size = width * math.ceil(per_vector * number / width)
    device = matrix_device(4 * (size * n + width * CHUNK))
    multiply, decomposed = _product(matrix, device), torch.linalg.qr if similar is None else _orthonormal
    span, small = torch.empty(size, n, device=device), torch.zeros(size, size, device=device)  # span A spanᵀ
    random = np.random.default_rng(seed)

    def gaussian() -> Tensor:
        return torch.from_numpy(random.standard_normal((n, width), dtype=np.float32)).to(device)

    fresh = gaussian() if similar is None else torch.zeros(n, width, device=device)
    if similar is not None:
        fresh[: len(similar)] = torch.from_numpy(similar).to(fresh)
    for first in range(0, size, width):
        now = slice(first, first + width)
        block, lengths = decomposed(fresh)
        if first and lengths.diagonal().abs().min() < MOSTLY_NOISE * (largest := float(small.abs().max())):
            # The span holds all eigenvectors that some of these could lead to: random directions take their places.
            noise = 100 * torch.finfo(fresh.dtype).eps / math.sqrt(n) * largest
            block = fresh + noise * gaussian()
            for _ in range(2):
                block -= ((span[:first] @ block).mT @ span[:first]).mT
                block = decomposed(block)[0]
        span[now] = block.mT
        fresh = multiply(block.contiguous())
        # But for rounding errors, A X is orthogonal to all blocks before the last two.
        for seen in (slice(max(0, first - width), now.stop), slice(now.stop)):
            along = span[seen] @ fresh
            small[seen, now] += along
            if now.stop == size:
                break
            fresh -= (along.mT @ span[seen]).mT  # on a CPU much faster than span[seen].mT @ along
    upper = small.double().cpu().triu()
    values, mixture = torch.linalg.eigh(upper + upper.triu(1).mT)
    if which == "LM":
        chosen = values.abs().argsort(descending=True, stable=True)[:number].sort().values
    else:
        chosen = torch.cat([torch.arange(number // 2), torch.arange(size - (number - number // 2), size)])
    return values[chosen].numpy(), (span.mT @ mixture[:, chosen].float().to(device)).cpu().numpy()


def _orthonormal(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return what `torch.linalg.qr` returns, in a fraction of the time if there are many columns.

    The Cholesky factor of xᵀ x is R, but for errors that grow with the square of its condition. They are small the
    second time. Columns that depend on each other need the exact way.

    Shapes: [N, b] → [N, b], [b, b]
    """
    block, lengths = x, torch.eye(x.shape[1], dtype=torch.float64)
    for _ in range(2):
        factor, failed = torch.linalg.cholesky_ex((block.mT @ block).cpu().double())
        if failed:
            block, lengths = torch.linalg.qr(x)
            return block, lengths
        block = block @ torch.linalg.inv(factor).mT.to(x)
        lengths = factor.mT @ lengths
    return block, lengths.to(x)


def _product(matrix: Any, device: torch.device) -> Callable[[Tensor], Tensor]:
    """The product of a sparse matrix, or of several, with a block of vectors.  # [N, b] → [N, b]"""
    *rest, last = (_factor(factor, device) for factor in getattr(matrix, "factors", (matrix,)))

    def multiply(x: Tensor) -> Tensor:
        x = last(x)
        for factor in reversed(rest):
            x = factor(x)
        return x

    return multiply


def _factor(matrix: Any, device: torch.device) -> Callable[[Tensor], Tensor]:
    arrays = matrix.data.astype(np.float32, copy=False), matrix.indptr.astype(np.int64), matrix.indices
    values, offsets, columns = (torch.from_numpy(array).to(device) for array in arrays)
    call, rows = native(), matrix.shape[0]

    def multiply(x: Tensor) -> Tensor:
        out = torch.empty(rows, x.shape[1], device=device)
        for first, stop in parts:
            entries = slice(int(matrix.indptr[first]), int(matrix.indptr[stop]))
            at, weights = columns[entries].long(), values[entries]
            here = offsets[first : stop + 1] - entries.start
            if call is not None and device.type == "cpu":
                sizes = stop - first, 1, x.shape[1], 0
                call("weighted_sum", weights, x.contiguous(), here, at, None, None, out[first:stop], *sizes)
            else:
                terms = x[at] * weights[:, None]
                out[first:stop] = torch.segment_reduce(terms, "sum", offsets=here, axis=0, unsafe=True)
        return out

    # Rows of about CHUNK entries are summed at once, in the same order every time.
    cuts = np.searchsorted(matrix.indptr, np.arange(0, matrix.nnz, CHUNK)[1:])
    edges = np.unique([0, *cuts, rows]).tolist()
    parts = list(pairwise(edges))
    return multiply


def _bipartite_side(matrix: Matrix) -> NDArray[np.bool_] | None:
    """Return which nodes are on the first side of a bipartite graph, or None if the graph is not bipartite.  # [N]"""
    some = np.linspace(0, matrix.nnz - 1, min(matrix.nnz, SOME_LINKS), dtype=np.int64)
    for u, v in zip(np.searchsorted(matrix.indptr, some, side="right") - 1, matrix.indices[some], strict=True):
        few, many = sorted((matrix.indices[matrix.indptr[at] : matrix.indptr[at + 1]] for at in (u, v)), key=len)
        place = np.searchsorted(many, few)
        if (many[np.minimum(place, len(many) - 1)] == few).any():  # a triangle, or a link of a node to itself
            return None
    from scipy.sparse import block_array
    from scipy.sparse.csgraph import connected_components

    # Two copies of each node, linked only across: both copies of a node are connected if it lies on an odd cycle.
    whole = as_scipy(matrix)
    label = connected_components(block_array([[None, whole], [whole, None]]), directed=False)[1]
    one, two = np.split(label, 2)
    return None if (one == two).any() else one < two


def _bipartite_eigenvectors(matrix: Matrix, side: NDArray[np.bool_], number: int) -> tuple[Reals, Reals]:
    """Return the same for a bipartite graph, from the SVD Σ σ x yᵀ of its block: ±σ and (x, ±y) / √2.

    This is many times faster.
    """
    load_scipy()
    from scipy.sparse.linalg import LinearOperator

    few, many = sorted((np.flatnonzero(side), np.flatnonzero(~side)), key=len)
    block: Any = as_scipy(matrix)[few][:, many]
    transposed = block.T.tocsr()
    gram: Any = LinearOperator((len(few),) * 2, matvec=lambda x: block @ (transposed @ x), dtype=np.float64)
    gram.factors = (block, transposed)
    squares, x = lanczos(gram, number // 2, tol=TOLERANCE)
    nonzero = squares > 1e-9 * squares.max()
    sigma, x = np.sqrt(squares[nonzero]), x[:, nonzero]
    vectors = np.zeros((len(side), 2 * len(sigma)))
    vectors[few] = np.concatenate([x, x], axis=1) / np.sqrt(2)
    y = (transposed @ x) / sigma
    vectors[many] = np.concatenate([y, -y], axis=1) / np.sqrt(2)
    order = np.arange(2 * len(sigma)).reshape(2, -1).T.ravel()  # σ and −σ next to each other
    return np.concatenate([sigma, -sigma])[order], vectors[:, order]
