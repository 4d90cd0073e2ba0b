"""Truncated singular value decomposition of the decayed links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.eigenvectors import Reals, lanczos
from dysat.features.link_memory import decayed_links
from dysat.models.base.embedding import EmbeddingModel

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(kw_only=True, eq=False)
class TruncatedSVD(EmbeddingModel):
    """The rows of U √Σ, where log(1 + m) ≈ U Σ Vᵀ has rank d and m_uv = Σ_k decay^(t−k) w_uv^k, without self-loops.

    The matrix is symmetric, so U are its eigenvectors and Σ the sizes of its eigenvalues. A bipartite graph has every
    singular value twice, from λ and −λ: a plain SVD returns any mixture of the two vectors, and with it e_u ⊙ e_v
    that differ from start to start; the eigenvectors are kept apart. Each column's largest entry is positive; with
    fewer nodes than d the last columns are 0.

    Example:
        >>> import dysat
        >>> model = dysat.MODELS["svd"](features=16).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 16])
    """

    method: ClassVar[str] = "svd"

    features: Annotated[int, "singular values kept: the width of the embedding"] = 128
    decay: Annotated[float, "weight of a snapshot against the one after it"] = 0.5
    seed: Annotated[int, "of the vector the iteration starts from"] = 0

    def check(self) -> None:
        if self.features < 1:
            raise ModelError(f"features={self.features} must be at least 1")
        if not 0 <= self.decay <= 1:
            raise ModelError(f"decay={self.decay} must lie in [0, 1]")
        if self.seed < 0:
            raise ModelError(f"seed={self.seed} must not be negative")

    def fit(self, graph: DynamicGraph) -> Self:
        self.check_graph(graph)
        self.graph_ = graph
        self.scorer_ = torch.ones(self.features), torch.zeros(())  # e_u · e_v, until there is something better
        self._fit_scorer()
        return self

    def embed(self, step: int = -1) -> Tensor:
        self._must_be_fitted()
        past = self.graph_[: self._check_step(step) + 1]
        return _decompose(past.snapshots, self.features, self.decay, self.seed).clone()

    def _learned(self) -> dict[str, Tensor]:
        return {}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The graph is all there is to know."""


@lru_cache(maxsize=2)  # a step and the one before it, which the scorer needs; the next step's model needs it again
def _decompose(snapshots: tuple[Snapshot, ...], features: int, decay: float, seed: int) -> Tensor:
    """The embeddings after these snapshots.  # [N, d]"""
    matrix = decayed_links(snapshots, decay).matrix()  # [N, N], sparse
    matrix.data = np.log1p(matrix.data)
    active = np.flatnonzero(matrix.sum(axis=1))  # all other rows are 0
    values, vectors = _leading(matrix[active][:, active], features, seed)
    columns = vectors * np.sqrt(np.abs(values))  # [active, ≤ d]
    largest = np.abs(columns).argmax(0) if len(active) else np.empty(0, dtype=np.int64)
    signs = np.where(columns[largest, np.arange(len(values))] < 0, -1.0, 1.0)
    found = torch.zeros(matrix.shape[0], features)
    found[torch.from_numpy(active), : len(values)] = torch.from_numpy(columns * signs).to(found.dtype)
    return found


def _leading(matrix: csr_array[np.float64], features: int, seed: int) -> tuple[Reals, Reals]:
    """The eigenvalues of largest size and their eigenvectors, largest first.  # [≤ d], [N, ≤ d]"""
    size = matrix.shape[0]
    if size <= 2 * features:  # a dense one is no larger than twice the embeddings
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        values, vectors = lanczos(matrix, features, seed=seed)
    order = np.argsort(-np.abs(values), kind="stable")[:features]
    values, vectors = values[order], vectors[:, order]
    # Rounding leaves something of values that are 0, with any vectors.
    values[np.abs(values) <= size * np.finfo(np.float64).eps * np.abs(values).max(initial=0.0)] = 0.0
    return values, vectors
