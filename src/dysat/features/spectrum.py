"""Coordinates of nodes from the spectrum of their links so far, comparable from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.features.eigenvectors import LARGE_NODES, lanczos
from dysat.features.link_memory import Reals, decayed_links_by_step
from dysat.features.matrix import SparseMatrix
from dysat.system.parallel.process import few_blas_threads
from dysat.system.parallel.ranks import ranks
from dysat.system.progress import report

DECAY = 0.8  # weight of a snapshot relative to the one after it


def spectrum(graph: DynamicGraph, number: int) -> Iterator[Tensor]:
    """Yield coordinates of the nodes known at each step, from the snapshots up to it.  # each [known, 2 · number]

    With m the decayed weights of all links so far, log(1 + m) ≈ P Pᵀ − M Mᵀ, where P and M are the eigenvectors of the
    largest and the smallest eigenvalues, each times the root of its size. Both are rotated towards those of the step
    before, which changes no product of two rows, and scaled to a mean square of ¼.
    """
    previous: tuple[Reals, Reals] | None = None
    for positive, negative in _parts_by_step(graph, number):
        with few_blas_threads(graph.num_nodes):
            parts = positive, negative
            if previous is not None:
                parts = _rotated(positive, previous[0]), _rotated(negative, previous[1])
            previous = parts
            columns = torch.from_numpy(np.concatenate([_scaled(part) for part in parts], axis=1))
            columns = columns.to(graph.device, torch.get_default_dtype())
        yield columns


def _parts_by_step(graph: DynamicGraph, number: int) -> Iterator[tuple[Reals, Reals]]:
    """Yield P and M of each step; as many steps as there are ranks are computed at the same time."""
    links, before = decayed_links_by_step(graph.snapshots, DECAY), None
    for first in range(0, len(graph), ranks().size):
        report("spectrum: step", first, len(graph))
        group, own = list(islice(links, ranks().size)), tuple[Reals, ...]()
        for sums in ranks().share(group):
            with few_blas_threads(graph.num_nodes):
                matrix = sums.matrix()
                own = _both_ends(replace(matrix, data=np.log1p(matrix.data)), number, before)
        for _, parts in ranks().gathered(None, {str(i): torch.from_numpy(part) for i, part in enumerate(own)}):
            if parts:
                before = parts["0"].numpy(), parts["1"].numpy()
                yield before


def _both_ends(matrix: SparseMatrix, number: int, before: tuple[Reals, Reals] | None = None) -> tuple[Reals, Reals]:
    """Return P and M, padded with zeros if there are fewer eigenvalues of that sign.

    Those of a large graph are found from the ones of the step before, unless most of its nodes are new.

    Shapes: [N, number] each; before [n, number] each
    """
    size = matrix.shape[0]
    if size <= 4 * number or not matrix.nnz:
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        similar = None
        if before is not None and size > LARGE_NODES and 2 * len(before[0]) >= size:
            similar = np.concatenate(before, axis=1)
        values, vectors = lanczos(matrix, 2 * number, which="BE", tol=1e-3, similar=similar)
    parts = []
    for sign in (1, -1):
        chosen = np.flatnonzero(sign * values > 1e-9 * np.abs(values).max(initial=0.0))
        chosen = chosen[np.argsort(-sign * values[chosen], kind="stable")][:number]
        part = np.zeros((size, number), dtype=vectors.dtype)
        part[:, : len(chosen)] = vectors[:, chosen]
        part[:, : len(chosen)] *= np.sqrt(np.abs(values[chosen]))
        parts.append(part)
    return parts[0], parts[1]


def _rotated(part: Reals, previous: Reals) -> Reals:
    """Rotate towards the rows of the step before (orthogonal Procrustes)."""
    left, _, right = np.linalg.svd(part[: len(previous)].T @ previous)
    rotated: Reals = part @ (left @ right)
    return rotated


def _scaled(part: Reals) -> Reals:
    """Scale to a mean square of ¼."""
    scaled: Reals = 0.5 * part / max(float(np.sqrt(np.square(part).sum() / max(1, part.size))), 1e-12)
    return scaled
