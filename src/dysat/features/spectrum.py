"""Coordinates of nodes from the spectrum of their links so far, comparable from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, zip_longest

import numpy as np
import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.features.eigenvectors import LARGE_NODES, by_rule, lanczos, rotated
from dysat.features.link_memory import Reals, decayed_links_by_step
from dysat.features.matrix import SparseMatrix
from dysat.system.parallel.process import few_blas_threads
from dysat.system.parallel.ranks import ranks
from dysat.system.progress import report

DECAY = 0.8  # weight of a snapshot relative to the one after it
OWN_SHARE = 1e-4  # of the rule, relative to the step before, in what coordinates are rotated towards


def spectrum(graph: DynamicGraph, number: int, *, oriented: bool = True) -> Iterator[Tensor]:
    """Yield coordinates of the nodes known at each step, from the snapshots up to it.  # each [known, 2 · number]

    With m the decayed weights of all links so far, log(1 + m) ≈ P Pᵀ − M Mᵀ, where P and M are the eigenvectors of the
    largest and the smallest eigenvalues, each times the root of its size. Both are rotated towards those of the step
    before, which changes no product of two rows, and scaled to a mean square of ¼.

    An eigenvector can have either sign, and processors choose differently. Where the step before has fewer eigenvectors
    and so does not decide, a rule does. Without `oriented`, as in earlier versions, the processor decides.
    """
    before: list[_Part] = []
    for every in _parts_by_step(graph, number, oriented):
        with few_blas_threads(graph.num_nodes):
            before = [_Part.of(part, previous, oriented) for part, previous in zip_longest(every, before)]
            parts = [part.coordinates for part in before]
            columns = torch.from_numpy(np.concatenate([_scaled(part) for part in parts], axis=1))
            columns = columns.to(graph.device, torch.get_default_dtype())
        yield columns


def _parts_by_step(graph: DynamicGraph, number: int, oriented: bool) -> Iterator[tuple[Reals, Reals]]:
    """Yield P and M of each step; as many steps as there are ranks are computed at the same time."""
    links, before = decayed_links_by_step(graph.snapshots, DECAY), None
    for first in range(0, len(graph), ranks().size):
        report("spectrum: step", first, len(graph))
        group, own = list(islice(links, ranks().size)), tuple[Reals, ...]()
        for sums in ranks().share(group):
            with few_blas_threads(graph.num_nodes):
                matrix = sums.matrix()
                own = _both_ends(replace(matrix, data=np.log1p(matrix.data)), number, before, oriented=oriented)
        for _, parts in ranks().gathered(None, {str(i): torch.from_numpy(part) for i, part in enumerate(own)}):
            if parts:
                before = parts["0"].numpy(), parts["1"].numpy()
                yield before


def _both_ends(
    matrix: SparseMatrix, number: int, before: tuple[Reals, Reals] | None = None, *, oriented: bool = True
) -> tuple[Reals, Reals]:
    """Return P and M, padded with zeros if there are fewer eigenvalues of that sign.

    If some eigenvectors of an eigenvalue are not wanted, a rule chooses in small graphs. Those of a large graph are
    found from the ones of the step before, unless most of its nodes are new.

    Shapes: [N, number] each; before [n, number] each
    """
    size = matrix.shape[0]
    small = size <= 4 * number or not matrix.nnz
    if small:
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        similar = None
        if before is not None and size > LARGE_NODES and 2 * len(before[0]) >= size:
            similar = np.concatenate(before, axis=1)
        values, vectors = lanczos(matrix, 2 * number, which="BE", tol=1e-3, similar=similar)
    parts = []
    for sign in (1, -1):
        chosen = np.flatnonzero(sign * values > 1e-9 * np.abs(values).max(initial=0.0))
        chosen = chosen[np.argsort(-sign * values[chosen], kind="stable")]
        every = by_rule(values[chosen], vectors[:, chosen]) if oriented and small else vectors[:, chosen]
        every = every[:, :number] * np.sqrt(np.abs(values[chosen[:number]])).astype(vectors.dtype)
        part = np.zeros((size, number), dtype=vectors.dtype)
        part[:, : every.shape[1]] = every
        parts.append(part)
    return parts[0], parts[1]


@dataclass(frozen=True, eq=False)
class _Part:
    """P or M of a step, rotated towards those of the step before.  # [N, number]"""

    coordinates: Reals
    rank: int  # number of eigenvectors; the other columns are 0

    @classmethod
    def of(cls, part: Reals, before: _Part | None, oriented: bool) -> _Part:
        rank = int(np.count_nonzero(part.any(axis=0)))
        if oriented and (before is None or rank > before.rank):
            towards = by_rule(np.square(part).sum(axis=0), part)
            if before is not None:
                towards *= OWN_SHARE
                towards[: len(before.coordinates)] += before.coordinates
            part = rotated(part, towards)
        elif before is not None:
            part = rotated(part, before.coordinates)
        return cls(part, rank)


def _scaled(part: Reals) -> Reals:
    """Scale to a mean square of ¼."""
    scaled: Reals = 0.5 * part / max(float(np.sqrt(np.square(part).sum() / max(1, part.size))), 1e-12)
    return scaled
