"""Coordinates of nodes from the spectrum of their links so far, comparable from step to step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.features.eigenvectors import Reals, lanczos
from dysat.features.link_memory import decayed_links
from dysat.system.process import few_blas_threads

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DECAY = 0.8  # what a snapshot counts less than the one after it


def spectrum(graph: DynamicGraph, number: int) -> tuple[Tensor, ...]:
    """For each step, of the nodes known then, from the snapshots up to it alone.  # each [known, 2 · number]

    With m the decayed weights of all links so far, log(1 + m) ≈ P Pᵀ − M Mᵀ, where P and M are the eigenvectors of the
    largest and the smallest eigenvalues, each times the root of its size. Both are turned such that they lie as near
    as they can to those of the step before, which changes no product of two rows, and brought to a mean square of ¼.
    """
    with few_blas_threads(graph.num_nodes):
        before: tuple[Reals, Reals] | None = None
        found = []
        for step in range(len(graph)):
            matrix = decayed_links(graph.snapshots[: step + 1], DECAY).matrix()
            matrix.data = np.log1p(matrix.data)
            parts = _both_ends(matrix, number)
            if before is not None:
                parts = _turned(parts[0], before[0]), _turned(parts[1], before[1])
            before = parts
            columns = torch.from_numpy(np.concatenate([_scaled(part) for part in parts], axis=1))
            found.append(columns.to(graph.device, torch.get_default_dtype()))
    return tuple(found)


def _both_ends(matrix: csr_array[np.float64], number: int) -> tuple[Reals, Reals]:
    """P and M; columns of zeros where there are fewer eigenvalues of that sign.  # [N, number] each"""
    size = matrix.shape[0]
    if size <= 4 * number or not matrix.nnz:
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        values, vectors = lanczos(matrix, 2 * number, which="BE", tol=1e-3)
    parts = []
    for sign in (1, -1):
        some = np.flatnonzero(sign * values > 1e-9 * np.abs(values).max(initial=0.0))
        some = some[np.argsort(-sign * values[some], kind="stable")][:number]
        part = np.zeros((size, number))
        part[:, : len(some)] = vectors[:, some] * np.sqrt(np.abs(values[some]))
        parts.append(part)
    return parts[0], parts[1]


def _turned(part: Reals, before: Reals) -> Reals:
    """Rotated towards the rows that were there before (orthogonal Procrustes)."""
    left, _, right = np.linalg.svd(part[: len(before)].T @ before)
    turned: Reals = part @ (left @ right)
    return turned


def _scaled(part: Reals) -> Reals:
    """With a mean square of ¼."""
    scaled: Reals = 0.5 * part / max(float(np.sqrt(np.square(part).sum() / max(1, part.size))), 1e-12)
    return scaled
