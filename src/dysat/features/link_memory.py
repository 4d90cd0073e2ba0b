"""Links of past snapshots: as arrays, as a matrix of decayed sums, and the leading eigenvectors of that matrix.

A past window counts by its age, or by its time of day and week.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from itertools import pairwise
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import Snapshot, distinct
from dysat.data.windows import DAY
from dysat.errors import GraphError
from dysat.features.matrix import ROWS_AT_ONCE, Matrix, SparseMatrix, as_scipy, row_sums
from dysat.system.compiled import native
from dysat.system.parallel.matrices import matrix_device
from dysat.system.parallel.process import in_threads, load_scipy

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
Snapshots = tuple[Snapshot, ...]
Spectrum = tuple[Reals, NDArray[np.float32]]
PastLinks = tuple[Ids, Ids, Reals, Ids]
PERIODS = (DAY, 7 * DAY)
PERIOD_DECAY = 0.6  # weight of a day, or a week, relative to the one after it
MAX_PERIODS = 8  # days and weeks to look back: 0.6⁸ is 2 %
TRAINING_PERIODS = 3  # days and weeks to look back for training examples
MIN_OVERLAP = 0.5  # of two windows at the same time of day or week
RANKS = (4, 16, 64)
BLOCK_NODES = 1_000  # of larger graphs, features of pairs use eigenvectors found by blocks, which is faster
EXACT_NODES = 7_000  # larger matrices have approximate eigenvectors; those of the paper's datasets are all exact
BLOCK = 16  # vectors that are multiplied at once
MOST_ENTRIES = 1 << 30  # of a basis; larger graphs have fewer eigenvectors, of the next smaller rank
BASIS = 5  # vectors of the basis per wanted eigenvector
MOSTLY_NOISE = 1e-3  # length of a new vector of a basis, relative to the largest product, that has rounding errors
CONTINUED_BASIS = 3  # the same, if it begins with eigenvectors of a similar matrix
CHUNK = 1 << 24  # entries of a matrix that are multiplied at once on a GPU
SOME_LINKS = 1_000  # looked at for a triangle, before a graph is searched for cycles of odd length
TOLERANCE = 1e-2  # of eigenvalues; smaller than the error of leaving out all ranks after the last

# A fit on an hourly log reads thousands of small snapshots again and again: keep their arrays as long as they exist.
SMALL_SNAPSHOT = 20_000  # entries; reading a larger one takes no longer than everything that is done with it
_kept_entries: WeakKeyDictionary[Snapshot, tuple[Ids, Ids, Reals]] = WeakKeyDictionary()
_kept_arcs: WeakKeyDictionary[Snapshot, tuple[Ids, Ids, Reals]] = WeakKeyDictionary()


def past_links(snapshots: Sequence[Snapshot]) -> PastLinks:
    """Return u, v, weight and step of all links u < v, in order of the steps; self-loops are left out.  # each [ΣE]"""
    u, v, weights, steps = past_entries(snapshots)
    once = u < v
    return u[once], v[once], weights[once], steps[once]


def past_entries(snapshots: Sequence[Snapshot]) -> PastLinks:
    """Return the same of all links in both directions, also in order of u.  # each [2ΣE]"""
    return _joined([_entries_of(snapshot) for snapshot in snapshots])


def past_arcs(snapshots: Sequence[Snapshot]) -> PastLinks:
    """Return u, v, weight and step of all arcs u → v of directed snapshots, likewise.  # each [ΣA]"""
    return _joined([_arcs_of(snapshot) for snapshot in snapshots])


def _joined(parts: list[tuple[Ids, Ids, Reals]]) -> PastLinks:
    u, v, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    return u, v, weights, np.repeat(np.arange(len(parts)), [len(part[0]) for part in parts])


def _entries_of(snapshot: Snapshot) -> tuple[Ids, Ids, Reals]:
    """Return receiver, neighbour and weight of the entries of one snapshot, without self-loops.  # each [2E]"""
    if (entries := _kept_entries.get(snapshot)) is None:
        receivers, neighbours, weights = (part.cpu().numpy() for part in snapshot.entries())
        entries = receivers, neighbours, weights
        if (other := receivers != neighbours).sum() < len(other):
            entries = receivers[other], neighbours[other], weights[other]
        if len(neighbours) <= SMALL_SNAPSHOT:
            _kept_entries[snapshot] = entries
    return entries


def entry_times(snapshot: Snapshot) -> NDArray[np.float32]:
    """Return the times of the same entries of one snapshot.  # [2E]"""
    if snapshot.latest is None:
        raise GraphError("the snapshot does not know when the last event of a link happened")
    times: NDArray[np.float32] = snapshot.latest.cpu().numpy()
    if len(_entries_of(snapshot)[0]) < len(times):
        receivers, neighbours, _ = snapshot.entries()
        times = times[(receivers != neighbours).cpu().numpy()]
    return times


def _arcs_of(snapshot: Snapshot) -> tuple[Ids, Ids, Reals]:
    """Return u, v and weight of the arcs u → v of one snapshot, without self-loops.  # each [A]"""
    if (arcs := _kept_arcs.get(snapshot)) is None:
        u, v, weights = (part.cpu().numpy() for part in snapshot.arcs())
        arcs = u[u != v], v[u != v], weights[u != v]
        if len(u) <= SMALL_SNAPSHOT:
            _kept_arcs[snapshot] = arcs
    return arcs


def links_among(snapshot: Snapshot, known: int) -> Ids:
    """Return the links u < v of a snapshot between its first `known` nodes; with direction, its arcs.  # [L, 2]"""
    u, v, _ = (part.cpu().numpy() for part in snapshot.pairs())
    links: Ids = np.stack([u, v], axis=1)[(np.maximum(u, v) < known) & (u != v)]
    return links


class Links(NamedTuple):
    """A symmetric sparse matrix with an empty diagonal; every link is stored once, sorted by key.

    With `directed` the matrix is not symmetric, and every arc u → v is stored.

    Shapes:
        keys [E]: u · N + v with u < v, values [E]
    """

    keys: Ids
    values: Reals
    num_nodes: int
    directed: bool = False

    def look_up(self, u: Ids, v: Ids) -> Reals:
        """Return the values of pairs, 0 for pairs that are not linked; shapes broadcast."""
        low, high = (u, v) if self.directed else (np.minimum(u, v), np.maximum(u, v))
        wanted = low * self.num_nodes + high
        if not len(self.keys):
            return np.zeros(wanted.shape)
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.values[at], 0.0)

    def degrees(self) -> Reals:
        """Return the sum of each node's values.  # [N]"""
        ends = np.concatenate(np.divmod(self.keys, max(1, self.num_nodes)))
        return np.bincount(ends, np.tile(self.values, 2), self.num_nodes).astype(np.float64)

    def sent_and_received(self) -> tuple[Reals, Reals]:
        """Return the sums of the values that each node sent and received; both are `degrees` without direction."""
        if not self.directed:
            return (degrees := self.degrees()), degrees
        u, v = np.divmod(self.keys, max(1, self.num_nodes))
        sent, received = (np.bincount(ends, self.values, self.num_nodes).astype(np.float64) for ends in (u, v))
        return sent, received

    def matrix(self) -> SparseMatrix:
        """Return both directions as compressed sparse rows.  # [N, N]"""
        integer = np.int32 if 2 * len(self.keys) < 2**31 else np.int64  # SciPy would convert them
        offsets, neighbours, links = rows_of_both_ends(self.keys, self.num_nodes, integer)
        return SparseMatrix(self.values[links], neighbours, offsets, (self.num_nodes,) * 2)


def decayed_links(
    snapshots: Sequence[Snapshot], decay: float, *, weighted: bool = True, directed: bool = False
) -> Links:
    """Return m_uv = Σ_k decay^(t−k) w_uv^k with t the last step, or the same with 1 for each weight.

    Pairs with the same history have the same sum to the last bit, whatever the order of the nodes. With `directed`,
    w_uv is what u sent to v.
    """
    past = past_arcs(snapshots) if directed else past_links(snapshots)
    sums = _decayed_sums(past, len(snapshots), snapshots[-1].num_nodes, decay, weighted)
    return sums._replace(directed=directed)


def decayed_links_by_step(snapshots: Sequence[Snapshot], decay: float) -> Iterator[Links]:
    """Yield `decayed_links` of the first snapshot, of the first two, and so on; each snapshot is read once."""
    u, v, weights, steps = past_links(snapshots)
    for step, snapshot in enumerate(snapshots):
        stop = int(np.searchsorted(steps, step, side="right"))
        links = u[:stop], v[:stop], weights[:stop], steps[:stop]
        yield _decayed_sums(links, step + 1, snapshot.num_nodes, decay, True)


def _decayed_sums(links: PastLinks, num_snapshots: int, num_nodes: int, decay: float, weighted: bool) -> Links:
    factors = np.array([decay**age for age in reversed(range(num_snapshots))])  # 0⁰ is 1: the last snapshot counts
    u, v, weights, steps = links
    if not factors.all():
        counts = factors[steps] > 0
        u, v, weights, steps = u[counts], v[counts], weights[counts], steps[counts]
    all_keys = u * num_nodes + v
    keys = distinct(all_keys)
    terms = factors[steps] * weights if weighted else factors[steps]
    sums = np.bincount(np.searchsorted(keys, all_keys)[::-1], terms[::-1], len(keys))  # the newest first
    return Links(keys, sums.astype(np.float64), num_nodes)


def rows_of_both_ends(keys: Ids, num_nodes: int, integer: type[np.signedinteger[Any]]) -> tuple[Ids, Ids, Ids]:
    """Return links u < v, given as sorted u · N + v, as CSR with both ends.  # [E] → [N + 1], [2E], [2E]

    The result is offsets, neighbours in rising order, and for each entry the index of its link.
    """
    if (call := native()) is not None:
        offsets, (neighbours, links) = np.empty(num_nodes + 1, np.int64), np.empty((2, 2 * len(keys)), integer)
        name = "both_ends_narrow" if integer is np.int32 else "both_ends"
        call(name, *map(torch.from_numpy, (keys, offsets, neighbours, links)), len(keys), num_nodes)
        return offsets, neighbours, links
    from scipy.sparse import csr_array

    low, high = np.divmod(keys, max(1, num_nodes))
    starts = np.searchsorted(low, np.arange(num_nodes + 1))
    upper = csr_array((np.arange(len(keys), dtype=integer), high, starts), shape=(num_nodes,) * 2)
    lower = upper.tocsc()  # for each node, its links to smaller nodes
    count = np.stack([np.diff(lower.indptr), np.diff(starts)], axis=1)  # the smaller neighbours of a node come first
    offsets = np.concatenate([[0], np.cumsum(count.sum(axis=1))])
    is_upper = np.repeat(np.tile([False, True], num_nodes), count.ravel())
    neighbours, links = np.empty((2, len(is_upper)), dtype=integer)
    neighbours[~is_upper], links[~is_upper] = lower.indices, lower.data
    neighbours[is_upper], links[is_upper] = high, np.arange(len(keys))
    return offsets, neighbours, links


def recurrence(snapshots: Snapshots) -> Reals:
    """Return the weight of each window for the next one, by time of day and by time of week.  # [periods, T]"""
    weights: Reals = np.einsum("pbt,b->pt", overlaps(snapshots), np.power(PERIOD_DECAY, np.arange(MAX_PERIODS)))
    return weights


def windows_like_next(snapshots: Snapshots) -> list[int]:
    """Return the steps whose windows share at least half with the next one, moved back by 1 to 3 days or weeks."""
    return np.flatnonzero((overlaps(snapshots)[:, :TRAINING_PERIODS] >= MIN_OVERLAP).any(axis=(0, 1))).tolist()


def overlaps(snapshots: Snapshots) -> Reals:
    """Return the overlap of each window with the next one, moved back by 1, 2, … days or weeks.  # [periods, back, T]

    The overlap is a fraction of the wider of the two windows. The next window begins where the last one ends and has
    the same width. Windows wider than half a period have no rhythm of that period, and numbered steps have none at all.
    """
    now = snapshots[-1].stop
    starts, stops = (np.array([getattr(s, end) - now for s in snapshots]) for end in ("start", "stop"))
    width = -starts[-1]
    fractions = np.zeros((len(PERIODS), MAX_PERIODS, len(snapshots)))
    for period, part in zip(PERIODS, fractions, strict=True):
        if 0 < 2 * width <= period:
            begin = -period * np.arange(1, MAX_PERIODS + 1)[:, None]
            both = np.minimum(begin + width, stops) - np.maximum(begin, starts)
            part[:] = np.maximum(both, 0) / np.maximum(width, stops - starts)
    return fractions


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
        values, vectors = _block_lanczos(matrix, most, "LM", seed=0)
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
        return _block_lanczos(matrix, number, which, seed, similar)
    load_scipy()
    from scipy.sparse.linalg import eigsh

    rng = np.random.default_rng(seed)
    # SciPy < 1.17 has no such argument and a fixed generator of its own.
    options: dict[str, Any] = {"rng": rng} if "rng" in signature(eigsh).parameters else {}
    start = rng.standard_normal(matrix.shape[0])
    values, vectors = eigsh(as_scipy(matrix), number, which=which, v0=start, tol=tol, **options)
    return values, vectors


def _block_lanczos(
    matrix: Any, number: int, which: str, seed: int, similar: NDArray[np.floating[Any]] | None = None
) -> tuple[Reals, NDArray[np.float32]]:
    """Return approximate eigenvalues and eigenvectors from a few products with blocks of vectors.

    Ritz vectors in the span of X, A X, A² X, …, in float32. Extreme eigenvalues that stand apart are exact; of a dense
    part of the spectrum, the vectors span most of the same space. Many times faster than one vector at a time, and the
    time grows with the number of links. X is random, or eigenvectors of a similar matrix: then the first product shows
    what they lack, and a smaller span is enough.

    Shapes: similar [n, k] with n ≤ N → [k], [N, k]
    """
    n, (width, per_vector) = matrix.shape[0], (BLOCK, BASIS) if similar is None else (number, CONTINUED_BASIS)
    size = width * math.ceil(per_vector * number / width)
    device = matrix_device(4 * (size * n + width * CHUNK))
    multiply = _product(matrix, device)
    basis, small = torch.empty(size, n, device=device), torch.zeros(size, size, device=device)  # basis A basisᵀ
    random = np.random.default_rng(seed)

    def gaussian() -> Tensor:
        return torch.from_numpy(random.standard_normal((n, width), dtype=np.float32)).to(device)

    fresh = gaussian() if similar is None else torch.zeros(n, width, device=device)
    if similar is not None:
        fresh[: len(similar)] = torch.from_numpy(similar).to(fresh)
    for first in range(0, size, width):
        now = slice(first, first + width)
        block, lengths = torch.linalg.qr(fresh)
        if first and lengths.diagonal().abs().min() < MOSTLY_NOISE * (largest := float(small.abs().max())):
            # The span holds all eigenvectors that some of these could lead to: random directions take their places.
            noise = 100 * torch.finfo(fresh.dtype).eps / math.sqrt(n) * largest
            block = fresh + noise * gaussian()
            for _ in range(2):
                block -= ((basis[:first] @ block).mT @ basis[:first]).mT
                block = torch.linalg.qr(block)[0]
        basis[now] = block.mT
        fresh = multiply(block.contiguous())
        # But for rounding errors, A X is orthogonal to all blocks before the last two.
        for seen in (slice(max(0, first - width), now.stop), slice(now.stop)):
            along = basis[seen] @ fresh
            small[seen, now] += along
            if now.stop == size:
                break
            fresh -= (along.mT @ basis[seen]).mT  # on a CPU much faster than basis[seen].mT @ along
    upper = small.double().cpu().triu()
    values, mixture = torch.linalg.eigh(upper + upper.triu(1).mT)
    if which == "LM":
        chosen = values.abs().argsort(descending=True, stable=True)[:number].sort().values
    else:
        chosen = torch.cat([torch.arange(number // 2), torch.arange(size - (number - number // 2), size)])
    return values[chosen].numpy(), (basis.mT @ mixture[:, chosen].float().to(device)).cpu().numpy()


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
