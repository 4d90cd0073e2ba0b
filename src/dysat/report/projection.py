"""The map of a run: positions of nodes at every step, the nearest nodes of each, and communities.

Positions come from a t-SNE of the last step. Earlier steps follow backwards: each starts from the positions of the step
after it, which also hold its nodes in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.errors import ModelError
from dysat.features.eigenvectors import lanczos, scaled_by_degree
from dysat.features.link_memory import decayed_links
from dysat.system.compiled import native
from dysat.system.parallel.process import on_one_core

Floats = NDArray[np.float32]
UNKNOWN = -32768  # position of a node that is not known yet
MOST = 32767  # largest coordinate
CLIPPED = 0.001  # fraction of the positions that may lie outside of the square, and move to its border
NEIGHBOURS = 15  # that attract a node
NO_NODE = 0xFFFFFFFF
EXACT_NODES = 4_000  # among more nodes, neighbours are searched in nearby cells only
PROBED = 10  # cells searched for the neighbours of the nodes of a cell
BLOCK = 1_024  # nodes compared with all others at once
CELL = 0.7  # width of a cell of the grid that sums repulsion, in units of the layout
MOST_CELLS = 256  # of the grid, per side
# Iterations, factor of the attraction, learning rate and momentum of the parts of the layout of the last step.
PHASES = ((50, 12.0, 0.3, 0.5), (150, 1.0, 1.2, 0.8))
EARLIER = ((10, 4.0, 0.5, 0.5), (20, 1.0, 1.2, 0.5))  # and of every step before it
HOLD = 0.1  # weight of the later position of a node that has not changed; all neighbours together weigh 1
MOST_COMMUNITIES = 8
STARTS = 4  # of the search for communities
SWEEPS = 20  # at most, over all nodes
PARTS = 8  # of a sweep: nodes that move at the same time


def positions(
    embeddings: Sequence[Floats], seed: int = 0, on_progress: Callable[[float], None] | None = None
) -> NDArray[np.int16]:
    """Return the place of each node on the map at each step, −32767 to 32767; −32768 while it is unknown.  # [s, N, 2]

    All steps have the same scale. The outermost 0.1 % of the positions move to the border.

    Shapes:
        - embeddings: one [known, d] per step; the nodes known at a step are the first of those known later
    """
    known = [len(e) for e in embeddings]
    if known != sorted(known):
        raise ModelError("a step has fewer nodes than the step before it: a known node stays known")
    if len({e.shape[1] for e in embeddings}) > 1:
        raise ModelError("embeddings of two steps differ in width")
    layout = np.zeros((len(known), max(known, default=0), 2), dtype=np.float32)
    later, later_rows = torch.zeros(0, 2), torch.zeros(0, 0)
    few = max(known, default=0) <= EXACT_NODES
    for step in reversed(range(len(known))):
        if known[step]:
            rows = _unit_rows(embeddings[step])
            place = (
                partial(_earlier_layout, rows, later, later_rows, seed)
                if len(later)
                else partial(_last_layout, rows, seed)
            )
            later, later_rows = on_one_core(place) if few else place(), rows
            layout[step, : known[step]] = later.numpy()
        if on_progress is not None:
            on_progress(1 - step / len(known))
    return _on_square(layout, known)


def nearest(embedding: Floats, number: int = 8) -> tuple[NDArray[np.uint32], Floats]:
    """Return the most similar other nodes of each node by cosine, best first, and the cosines.  # both [N, number]

    Ids are 0xffffffff, and cosines 0, where there are fewer nodes. The cosine with a vector of zeros is 0.
    """
    rows = _unit_rows(embedding)
    ids = np.full((len(rows), number), NO_NODE, dtype=np.uint32)
    cosines = np.zeros((len(rows), number), dtype=np.float32)
    if found := max(0, min(number, len(rows) - 1)):
        nodes, values = _exact_neighbours(rows, found)
        ids[:, :found], cosines[:, :found] = nodes.numpy(), values.clamp(-1, 1).numpy()
    return ids, cosines


def communities(snapshots: Sequence[Snapshot], number: int = MOST_COMMUNITIES, seed: int = 0) -> NDArray[np.uint8]:
    """Return the community of each node: at most `number` groups with many links inside, the largest first.  # [N]

    A link counts once per snapshot. Groups of the leading eigenvectors are refined by moving nodes as long as the
    modularity rises; the best of four starts is kept. Nodes without links join the last community.
    """
    links = decayed_links(snapshots, 1.0, weighted=False).matrix().scipy()
    if not links.nnz:
        return np.zeros(links.shape[0], dtype=np.uint8)
    linked = np.flatnonzero(np.diff(links.indptr))
    matrix: Any = links[linked][:, linked]
    rows = torch.nn.functional.normalize(torch.from_numpy(_leading(scaled_by_degree(matrix).scipy(), number)))
    starts = [_most_similar(rows, _centres(rows, number, 10, seed + each)).numpy() for each in range(STARTS)]
    best = max((_refined(matrix, start, number, seed) for start in starts), key=lambda found: modularity(matrix, found))
    sizes = np.bincount(best, minlength=number)
    order = np.argsort(-sizes, kind="stable")
    groups = np.full(links.shape[0], np.count_nonzero(sizes) - 1, dtype=np.uint8)
    groups[linked] = np.argsort(order, kind="stable")[best]
    return groups


def modularity(matrix: Any, groups: NDArray[Any]) -> float:
    """Return Σ_g (links inside g − links expected there by degree), as a fraction of all links.

    `matrix` is sparse and symmetric, and not empty.
    """
    degree = np.asarray(matrix.sum(axis=1), dtype=np.float64)
    rows = np.repeat(groups, np.diff(matrix.indptr))
    inside = float(matrix.data[rows == groups[matrix.indices]].sum())
    total = float(degree.sum())
    return inside / total - float(np.square(np.bincount(groups, degree) / total).sum())


def _leading(matrix: Any, number: int) -> Floats:
    """Eigenvectors of the largest eigenvalues, times their roots; zeros instead of negative ones.  # [N, number]"""
    if matrix.shape[0] <= 4 * number:
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        values, vectors = lanczos(matrix, 2 * number, which="BE", tol=1e-3)
    leading = np.argsort(-values, kind="stable")[:number]
    scaled: Floats = (vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0))).astype(np.float32)
    return scaled


def _refined(matrix: Any, groups: NDArray[np.int64], number: int, seed: int) -> NDArray[np.int64]:
    """Move nodes to the group that raises the modularity most, a part of the nodes at a time.  # [N] → [N]"""
    degree, rng = np.asarray(matrix.sum(axis=1), dtype=np.float64), np.random.default_rng(seed)
    total, groups = degree.sum(), groups.copy()
    best, highest = groups.copy(), modularity(matrix, groups)
    for _ in range(SWEEPS):
        for part in np.array_split(rng.permutation(len(groups)), PARTS):
            member = np.eye(number)[groups]  # [N, groups]
            expected = np.outer(degree[part], degree @ member) / total
            own = degree[part] ** 2 / total  # a node does not expect links to itself
            gain = matrix[part] @ member - expected
            gain[np.arange(len(part)), groups[part]] += own
            groups[part] = np.where(
                gain.max(1) > gain[np.arange(len(part)), groups[part]], gain.argmax(1), groups[part]
            )
        if (now := modularity(matrix, groups)) <= highest + 1e-6:
            break
        best, highest = groups.copy(), now
    return best


def _last_layout(rows: Tensor, seed: int) -> Tensor:
    """A t-SNE that starts from the two principal axes.  # [N, d] → [N, 2]"""
    centred = rows - rows.mean(0)
    axes = torch.linalg.eigh(centred.mT @ centred).eigenvectors[:, -2:]
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    y = torch.zeros(len(rows), 2)
    y[:, : axes.shape[1]] = (centred @ axes).flip(1)
    y /= y.std(correction=0).clamp(min=1e-3)
    # Equal nodes would stay on one point.
    y += 1e-3 * torch.randn(y.shape, generator=torch.Generator().manual_seed(seed))
    attraction, repulsion = _Attraction(_neighbours(rows, NEIGHBOURS, seed)[0]), _Repulsion()
    for phase in PHASES:
        y = _moved(y, attraction, repulsion, phase)
        y -= y.mean(0)
    return y


def _earlier_layout(rows: Tensor, later: Tensor, later_rows: Tensor, seed: int) -> Tensor:
    """The layout of a step, held by that of the step after it.  # [N, d], [≥ N, 2], [≥ N, d] → [N, 2]

    A node that changes less than the distance to its neighbours starts near its later position and is held there. One
    that changes more starts among its neighbours: a node cannot cross a map full of others by small steps.
    """
    n = len(rows)
    neighbours, similar = _neighbours(rows, NEIGHBOURS, seed)
    place, nearby = later[:n], later[neighbours].median(1).values if n > 1 else later[:n]
    change, distance = 1 - (rows * later_rows[:n]).sum(1), 1 - similar.mean(1) if n > 1 else torch.ones(n)
    unchanged = 1 / (1 + change.clamp(min=0) / distance.clamp(min=1e-6))  # [N], 1 if the node is the same
    y = nearby + unchanged.unsqueeze(1) * (place - nearby)
    attraction, repulsion = _Attraction(neighbours), _Repulsion()
    for phase in EARLIER:
        y = _moved(y, attraction, repulsion, phase, (place, HOLD * unchanged))
    return y


def _moved(
    y: Tensor,
    attraction: _Attraction,
    repulsion: _Repulsion,
    phase: tuple[int, float, float, float],
    hold: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Follow the gradient of t-SNE with momentum and a step size per coordinate.  # [N, 2] → [N, 2]"""
    iterations, factor, rate, momentum = phase
    step, gain = torch.zeros_like(y), torch.ones_like(y)
    for _ in range(iterations):
        force = factor * attraction(y) - repulsion(y)
        if hold is not None:
            away = y - hold[0]
            force += away * (hold[1] / (1 + away.square().sum(1))).unsqueeze(1)
        gain = torch.where(force * step < 0, gain + 0.2, gain * 0.8).clamp(min=0.01)
        step = momentum * step - rate * gain * force
        step *= 5 / step.norm(dim=1, keepdim=True).clamp(min=5)
        y = y + step
    return y


class _Attraction:
    """Σ_j p_ij (y_i − y_j) / (1 + ‖y_i − y_j‖²) over the k neighbours of i and the nodes that have i as a neighbour."""

    def __init__(self, neighbours: Tensor) -> None:
        from scipy.sparse import csr_array

        n, k = neighbours.shape
        starts, shares = np.arange(n + 1) * k, np.full(n * k, 0.5 / max(1, k), dtype=np.float32)
        one_way = csr_array((shares, neighbours.numpy().ravel(), starts), shape=(n, n))
        both: Any = one_way + one_way.T
        self.offsets, self.nodes = (torch.from_numpy(part.astype(np.int64)) for part in (both.indptr, both.indices))
        self.p = torch.from_numpy(both.data)  # [E]
        self.rows = torch.arange(n).repeat_interleave(self.offsets.diff())

    def __call__(self, y: Tensor) -> Tensor:
        if (call := native()) is not None:
            call("map_attraction", y, self.offsets, self.nodes, self.p, out := torch.empty_like(y), len(y))
            return out
        away = y[self.rows] - y[self.nodes]  # [E, 2]
        terms = away * (self.p / (1 + away.square().sum(1))).unsqueeze(1)
        return torch.zeros_like(y).index_add_(0, self.rows, terms)


class _Repulsion:
    """n / Z · Σ_j (y_i − y_j) / (1 + ‖y_i − y_j‖²)² with Z = Σ_ij 1 / (1 + ‖y_i − y_j‖²), i ≠ j.

    The sums are convolutions of charges on a grid, computed by the fast Fourier transform (Linderman et al., 2019).
    """

    def __init__(self) -> None:
        self.size, self.width, self.kernels = 0, 0.0, torch.zeros(0)

    def __call__(self, y: Tensor) -> Tensor:
        from scipy.fft import next_fast_len

        n, low = len(y), y.amin(0)
        span = float((y.amax(0) - low).max())
        width = max(CELL, span / (MOST_CELLS - 6))
        size = next_fast_len(int(span / width) + 6, real=True)
        if (size, width) != (self.size, self.width):
            self.size, self.width = size, width
            distance = width * torch.minimum(torch.arange(2 * size), 2 * size - torch.arange(2 * size))
            kernel = 1 / (1 + distance.square() + distance.square().unsqueeze(1))
            squared = torch.fft.rfft2(kernel.square())
            self.kernels = torch.stack([torch.fft.rfft2(kernel), squared, squared, squared])
        x = (y - low) / width + 2  # in cells
        middle = y - low - span / 2
        charges = torch.cat([torch.ones(1, n), middle.mT])  # [3, N]
        waves = torch.fft.rfft2(_spread(x, charges, size), s=(2 * size, 2 * size))  # [3, 2G, G + 1]
        fields = torch.fft.irfft2(waves[[0, 0, 1, 2]] * self.kernels, s=(2 * size, 2 * size))[:, :size, :size]
        total, ones, first, second = _collected(x, fields.contiguous())
        force: Tensor = middle * ones.unsqueeze(1) - torch.stack([first, second], 1)
        return force * (n / max(float(total.sum()) - n, 1e-6))


def _spread(x: Tensor, charges: Tensor, size: int) -> Tensor:
    """Spread charges over the cells around each point.  # [N, 2], [C, N] → [C, G, G]"""
    grid = torch.zeros(len(charges), size, size)
    if (call := native()) is not None:
        call("map_spread", x, charges, grid, len(x), len(charges), size)
        return grid
    cells, shares = _cubic(x, size)
    terms = charges.unsqueeze(2) * shares  # [C, N, 16]
    return grid.flatten(1).index_add_(1, cells.flatten(), terms.flatten(1)).reshape(grid.shape)


def _collected(x: Tensor, fields: Tensor) -> Tensor:
    """Read fields at each point.  # [N, 2], [C, G, G] → [C, N]"""
    size = fields.shape[1]
    if (call := native()) is not None:
        call("map_collect", x, fields, out := torch.empty(len(fields), len(x)), len(x), len(fields), size)
        return out
    cells, shares = _cubic(x, size)
    return (fields.flatten(1)[:, cells] * shares).sum(2)


def _cubic(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The 16 cells around each point and their weights in a cubic interpolation.  # [N, 16], [N, 16]"""
    cell = x.floor()
    f = (x - cell).unsqueeze(1)  # [N, 1, 2]
    parts = -f * (f - 1) * (f - 2) / 6, (f + 1) * (f - 1) * (f - 2) / 2, -(f + 1) * f * (f - 2) / 2
    shares = torch.cat([*parts, (f + 1) * f * (f - 1) / 6], 1)  # [N, 4, 2]
    at = cell.long().unsqueeze(1) + torch.arange(-1, 3).reshape(4, 1)  # [N, 4, 2]
    cells = at[:, :, None, 0] * size + at[:, None, :, 1]
    return cells.flatten(1), (shares[:, :, None, 0] * shares[:, None, :, 1]).flatten(1)


def _neighbours(rows: Tensor, number: int, seed: int) -> tuple[Tensor, Tensor]:
    """The most similar other rows of each row, and their products; most of them if N is large.  # both [N, k]"""
    n, number = len(rows), min(number, len(rows) - 1)
    if n <= EXACT_NODES:
        return _exact_neighbours(rows, number)
    centres = _centres(rows, int(n**0.5), 3, seed)
    cell = _most_similar(rows, centres)
    order = cell.argsort(stable=True)
    starts = torch.searchsorted(cell[order], torch.arange(len(centres) + 1)).tolist()
    probed = (centres @ centres.mT).topk(PROBED).indices.tolist()
    ids, values = torch.empty(n, number, dtype=torch.long), torch.empty(n, number)
    for own, cells in enumerate(probed):
        others = torch.cat([order[starts[c] : starts[c + 1]] for c in {own: 0, **dict.fromkeys(cells)}])  # own first
        others = others if len(others) > number else torch.cat([others, order[~torch.isin(order, others)]])
        for first in range(starts[own], starts[own + 1], BLOCK):
            members = order[first : min(first + BLOCK, starts[own + 1])]
            similar = rows[members] @ rows[others].mT
            similar.diagonal(first - starts[own]).fill_(-9.0)
            best = similar.topk(number)
            ids[members], values[members] = others[best.indices], best.values
    return ids, values


def _centres(rows: Tensor, number: int, rounds: int, seed: int) -> Tensor:
    """Centres of groups of similar rows: k-means on the sphere, from random rows.  # [N, d] → [number, d]"""
    generator = torch.Generator().manual_seed(seed)
    centres = rows[torch.randperm(len(rows), generator=generator)[:number]]
    for _ in range(rounds):
        sums = torch.zeros_like(centres).index_add_(0, _most_similar(rows, centres), rows)
        norm = sums.norm(dim=1, keepdim=True)
        centres = torch.where(norm > 0, sums / norm.clamp(min=1e-12), centres)
    return centres


def _most_similar(rows: Tensor, centres: Tensor) -> Tensor:
    """The centre that is most similar to each row.  # [N, d], [C, d] → [N]"""
    return torch.cat([(part @ centres.mT).argmax(1) for part in torch.split(rows, 16 * BLOCK)])


def _exact_neighbours(rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The most similar other rows, best first, and their products.  # [N, d] → [N, k], [N, k]"""
    ids, values = torch.empty(len(rows), number, dtype=torch.long), torch.empty(len(rows), number)
    for first in range(0, len(rows), BLOCK):
        similar = rows[first : first + BLOCK] @ rows.mT
        similar.diagonal(first).fill_(-9.0)
        best = similar.topk(number)
        ids[first : first + BLOCK], values[first : first + BLOCK] = best.indices, best.values
    return ids, values


def _unit_rows(embedding: Floats) -> Tensor:
    """Rows of length 1, since similarity is the cosine; rows of zeros stay zeros.  # [N, d]"""
    if not np.isfinite(embedding).all():
        raise ModelError("the embeddings are not finite numbers")
    rows = torch.from_numpy(np.asarray(embedding, dtype=np.float32))
    largest = rows.abs().amax(1, keepdim=True)
    rows = rows / torch.where(largest > 0, largest, 1.0)  # so that no square overflows
    return torch.nn.functional.normalize(rows)


def _on_square(layout: Floats, known: Sequence[int]) -> NDArray[np.int16]:
    """Scale all steps together, so that all but the outermost positions fill the square.  # [s, N, 2]"""
    at = np.full(layout.shape, UNKNOWN, dtype=np.int16)
    every = np.concatenate([part[:size] for part, size in zip(layout, known, strict=True)] or [np.zeros((0, 2))])
    if not len(every):
        return at
    low, high = np.quantile(every, [CLIPPED / 4, 1 - CLIPPED / 4], axis=0)
    scale = MOST / max(float((high - low).max()) / 2, 1e-9)
    for part, out, size in zip(layout, at, known, strict=True):
        out[:size] = np.clip(np.rint((part[:size] - (low + high) / 2) * scale), -MOST, MOST)
    return at
