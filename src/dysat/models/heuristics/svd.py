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
from dysat.features.eigenvectors import BASIS, EXACT_NODES, by_rule, lanczos
from dysat.features.link_memory import Reals, decayed_links
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.memory import GraphSize

if TYPE_CHECKING:
    from scipy.sparse import csr_array


NOISE = 1e-9  # smaller entries, relative to the largest, are rounding errors


@dataclass(kw_only=True, eq=False)
class TruncatedSVD(EmbeddingModel):
    """Embeddings U √Σ from the rank-d approximation log(1 + m) ≈ U Σ Vᵀ, m_uv = Σ_k decay^(t−k) w_uv^k.

    Self-loops are ignored. The matrix is symmetric, so U are its eigenvectors and Σ the absolute eigenvalues. In a
    bipartite graph every singular value occurs twice, for λ and −λ: a plain SVD returns an arbitrary mixture of both
    vectors, which depends on the start of the iteration; an eigendecomposition keeps them apart. Signs follow a rule
    (`by_rule`). With fewer than d nodes, the last columns are 0.

    Attributes:
        graph_: The graph.

    Example:
        >>> import dysat
        >>> from dysat.models import TruncatedSVD
        >>> model = TruncatedSVD(features=16).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 16])
    """

    method: ClassVar[str] = "svd"
    about: ClassVar[str] = "truncated SVD of the decayed links"

    features: Annotated[int, "Number of singular values: the embedding size"] = 128
    decay: Annotated[float, "Weight of a snapshot relative to the next one"] = 0.5
    seed: Annotated[int, "Random seed of the start vector"] = 0

    def check(self) -> None:
        if self.features < 1:
            raise ModelError(f"features={self.features} must be at least 1")
        if not 0 <= self.decay <= 1:
            raise ModelError(f"decay={self.decay} must lie in [0, 1]")
        if self.seed < 0:
            raise ModelError(f"seed={self.seed} must not be negative")

    def _least_memory(self, size: GraphSize) -> float:
        # Of an embedding of the last step. With decay=0 only the links of that step count, which may be few.
        basis = BASIS * self.features if self.decay and size.linked > EXACT_NODES else 0  # float32
        return 4.0 * basis * size.linked + 8.0 * self.features * size.nodes  # embeddings and their copy

    @property
    def _sizes(self) -> tuple[str, ...]:
        return ("features",)

    def fit(self, graph: DynamicGraph) -> Self:
        """Store the graph and train the scorer; embeddings are computed on demand."""
        self.check_graph(graph)
        self.graph_ = graph
        self.scorer_ = torch.ones(self.features), torch.zeros(())  # e_u · e_v, until _fit_scorer
        self._fit_scorer()
        return self

    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order.  # [known, d]"""
        self._must_be_fitted()
        past = self.graph_[: self._check_step(step) + 1]
        return _decompose(past.snapshots, self.features, self.decay, self.seed).clone()

    def _learned(self) -> dict[str, Tensor]:
        return {}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Nothing to restore: embeddings follow from the graph."""


@lru_cache(maxsize=2)  # a step and the one before it (for the scorer), which the next step's model needs again
def _decompose(snapshots: tuple[Snapshot, ...], features: int, decay: float, seed: int) -> Tensor:
    """The embeddings after the last of the snapshots.  # [N, d]"""
    matrix = decayed_links(snapshots, decay).matrix().scipy()  # [N, N], sparse
    matrix.data = np.log1p(matrix.data)
    active = np.flatnonzero(matrix.sum(axis=1))  # all other rows are 0
    values, vectors = _leading(matrix[active][:, active], features, seed)
    columns = vectors * np.sqrt(np.abs(values))  # [active, ≤ d]
    # Of nodes that are not connected with those of an eigenvector, it has rounding errors, which a probe could enlarge.
    columns[np.abs(columns) < NOISE * np.abs(columns).max(initial=0.0)] = 0.0
    e = torch.zeros(matrix.shape[0], features)
    e[torch.from_numpy(active), : len(values)] = torch.from_numpy(columns).to(e.dtype)
    return e


def _leading(matrix: csr_array[np.float64], features: int, seed: int) -> tuple[Reals, Reals]:
    """The eigenvalues of largest absolute value and their eigenvectors, largest first.  # [≤ d], [N, ≤ d]"""
    size = matrix.shape[0]
    if size <= 2 * features:  # the dense matrix is at most twice as large as the embeddings
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        values, vectors = lanczos(matrix, features, seed=seed)
    vectors = by_rule(values, vectors)
    order = np.argsort(-np.abs(values), kind="stable")[:features]
    values, vectors = values[order], vectors[:, order]
    # Rounding makes zero eigenvalues slightly non-zero, with arbitrary vectors.
    values[np.abs(values) <= size * np.finfo(np.float64).eps * np.abs(values).max(initial=0.0)] = 0.0
    return values, vectors
