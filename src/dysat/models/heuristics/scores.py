"""Scores that need no training: what a learned model must beat to be worth its while.

All speak of the links of snapshots k up to a step t, w_uv^k being their weights; a node's link with itself is no part
of any.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.link_memory import Links, decayed_links
from dysat.models.base.link_model import LinkModel
from dysat.nn.logistic import fit_logistic

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
ENTRIES = 1 << 22  # of sparse rows multiplied at once
SMALLEST = 1e-300  # its reciprocal is finite


@dataclass(kw_only=True, eq=False)
class Heuristic(LinkModel):
    """A score read off the past. `fit` learns only what chance belongs to a score.

    Attributes:
        calibration_: a and b; odds of a link are e^b (1 + score)^a, a > 0, among as many pairs with and without one
            in the last transition inside the graph. Where that says nothing they are 1 + score.
    """

    calibration_: Tensor = field(init=False, repr=False)  # [2]
    _last: tuple[int, Any] | None = field(init=False, repr=False, default=None)  # a step and its past

    @abstractmethod
    def _past(self, graph: DynamicGraph) -> Any:
        """What a graph that ends with the step asked for says, as `_score` wants it."""

    @abstractmethod
    def _score(self, past: Any, u: Ids, v: Ids) -> Floats:
        """Scores of pairs, none negative."""

    def fit(self, graph: DynamicGraph) -> Self:
        self.check_graph(graph)
        self.graph_, self._last = graph, None
        self.calibration_ = self._calibrate()
        return self

    def pair_scores(self, pairs: Tensor, step: int = -1) -> Tensor:
        u, v = pairs.cpu().numpy().T
        return torch.from_numpy(self._score(self._past_of(step), u, v))

    def _all_scores(self) -> Callable[[Tensor], Tensor]:
        past, nodes = self._past_of(-1), np.arange(self.graph_.num_nodes)
        return lambda rows: torch.from_numpy(self._score(past, rows.numpy()[:, None], nodes))

    def _past_of(self, step: int) -> Any:
        """The past at a step; that of the last one asked for is kept."""
        self._must_be_fitted()
        at = self._check_step(step)
        if self._last is None or self._last[0] != at:
            self._last = at, self._past(self.graph_[: at + 1])
        return self._last[1]

    def _chances(self, scores: Tensor) -> Tensor:
        slope, bias = self.calibration_
        # Rounding must neither part equal scores nor swap others.
        values, which = torch.unique(scores, return_inverse=True)
        return torch.sigmoid(slope * torch.log1p(values) + bias).cummax(0).values[which]

    def _calibrate(self) -> Tensor:
        """A logistic regression of the last snapshot's links on log(1 + score) at the step before.  # [2]"""
        plain = torch.tensor([1.0, 0.0], dtype=torch.float64)
        pairs, labels = self._last_transition()
        if not len(pairs):
            return plain
        x = torch.log1p(self.pair_scores(pairs, -2))
        if x.min() == x.max():
            return plain
        centre, spread = x.mean(), x.std()
        weights, bias = fit_logistic(((x - centre) / spread)[:, None], labels)
        slope = weights[0] / spread
        return torch.stack([slope, bias - slope * centre]) if slope > 0 else plain  # scores keep their order

    def _learned(self) -> dict[str, Tensor]:
        return {"calibration": self.calibration_}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        if tensors.keys() != {"calibration"} or tensors["calibration"].shape != (2,):
            raise ModelError(f"the numbers learned do not fit the model: {self.method} has two, its calibration")
        self.calibration_, self._last = tensors["calibration"], None


@dataclass(kw_only=True, eq=False)
class LastSnapshot(Heuristic):
    """1 for a pair that is linked in snapshot t, 0 for any other: the last snapshot repeats."""

    method: ClassVar[str] = "last-snapshot"

    def _past(self, graph: DynamicGraph) -> Links:
        return decayed_links(graph.snapshots[-1:], 1.0, weighted=False)

    def _score(self, past: Links, u: Ids, v: Ids) -> Floats:
        return past.look_up(u, v)


@dataclass(kw_only=True, eq=False)
class EdgeBank(Heuristic):
    """1 for a pair that is linked in any snapshot up to t, or any of the last `window`; 0 for any other.

    Reference: Poursafaei, Huang, Pelrine, Rabbany: Towards Better Evaluation for Dynamic Link Prediction, NeurIPS 2022.
    """

    method: ClassVar[str] = "edgebank"

    window: Annotated[int | None, "remember the last so many snapshots only"] = None

    def check(self) -> None:
        if self.window is not None and self.window < 1:
            raise ModelError(f"window={self.window} must be at least 1")

    def _past(self, graph: DynamicGraph) -> Links:
        recent = graph.snapshots[-(self.window or len(graph)) :]
        links = decayed_links(recent, 1.0, weighted=False)
        return links._replace(values=np.ones(len(links.keys)))

    def _score(self, past: Links, u: Ids, v: Ids) -> Floats:
        return past.look_up(u, v)


@dataclass(kw_only=True, eq=False)
class Decayed(Heuristic):
    """A heuristic in whose eyes a snapshot counts less the older it is."""

    decay: Annotated[float, "weight of a snapshot against the one after it"] = 0.5

    def check(self) -> None:
        if not 0 <= self.decay <= 1:
            raise ModelError(f"decay={self.decay} must lie in [0, 1]")


@dataclass(kw_only=True, eq=False)
class DegreeProduct(Decayed):
    """log(1 + s_u) · log(1 + s_v) with s_u = Σ_v m_uv and m_uv = Σ_k decay^(t−k) w_uv^k."""

    method: ClassVar[str] = "degree-product"

    def _past(self, graph: DynamicGraph) -> Floats:
        return np.log1p(decayed_links(graph.snapshots, self.decay).degrees())

    def _score(self, past: Floats, u: Ids, v: Ids) -> Floats:
        return past[u] * past[v]


@dataclass(kw_only=True, eq=False)
class DegreeSum(Decayed):
    """log(1 + s_u) + log(1 + s_v) with s_u = Σ_v m_uv and m_uv = Σ_k decay^(t−k) w_uv^k."""

    method: ClassVar[str] = "degree-sum"

    def _past(self, graph: DynamicGraph) -> Floats:
        return np.log1p(decayed_links(graph.snapshots, self.decay).degrees())

    def _score(self, past: Floats, u: Ids, v: Ids) -> Floats:
        return past[u] + past[v]


@dataclass(kw_only=True, eq=False)
class EdgeMemory(Decayed):
    """By m_uv = Σ_k decay^(t−k) w_uv^k; pairs of equal m_uv by the degree product, see `DegreeProduct`.

    The score is the place of m_uv among all different values of m, 0 among them, as a whole number, plus the product
    of both log(1 + s) divided by a number that keeps it below 1: no tie-break reaches the next place.
    """

    method: ClassVar[str] = "edge-memory"

    def _past(self, graph: DynamicGraph) -> tuple[Links, Floats]:
        memory = decayed_links(graph.snapshots, self.decay)
        places = np.unique(np.append(memory.values, 0.0), return_inverse=True)[1][:-1]
        size = np.log1p(memory.degrees())
        size /= 2 * size.max(initial=0.5)  # so that products are at most ¼
        return memory._replace(values=places.astype(np.float64)), size

    def _score(self, past: tuple[Links, Floats], u: Ids, v: Ids) -> Floats:
        places, size = past
        return places.look_up(u, v) + size[u] * size[v]


@dataclass(kw_only=True, eq=False)
class CommonNeighbours(Decayed):
    """Σ_k U_uk U_vk with U_uv = Σ_k' decay^(t−k') [uv linked in k']: neighbours of both, the more the fresher."""

    method: ClassVar[str] = "common-neighbours"

    def _middle(self, degrees: Floats) -> Floats:
        """What a path counts for the degree Σ_v U_kv of its middle node k.  # [N] → [N]"""
        return np.ones_like(degrees)

    def _past(self, graph: DynamicGraph) -> csr_array[np.float64]:
        """U_uk √middle_k: its rows, multiplied with each other, are the scores.  # [N, N]"""
        links = decayed_links(graph.snapshots, self.decay, weighted=False)
        paths = links.matrix()
        paths.data *= np.sqrt(self._middle(links.degrees()))[paths.indices]
        return paths

    def _score(self, past: csr_array[np.float64], u: Ids, v: Ids) -> Floats:
        lengths = np.diff(past.indptr)
        parts = np.cumsum(lengths[u].astype(np.int64) + lengths[v]) // ENTRIES
        ends = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(u)]
        return np.concatenate([_row_products(past, u[a:b], v[a:b]) for a, b in pairwise(ends)])

    def _all_scores(self) -> Callable[[Tensor], Tensor]:
        past = self._past_of(-1)
        return lambda rows: torch.from_numpy((past[rows.numpy()] @ past.T).toarray())


@dataclass(kw_only=True, eq=False)
class AdamicAdar(CommonNeighbours):
    """Σ_k U_uk U_vk / log(degree_k) with degree_k = Σ_v U_kv, and U as in `CommonNeighbours`.

    A degree below 2 counts as 2: that is the least a middle node has before its links decay.

    Reference: Adamic, Adar: Friends and neighbors on the Web, Social Networks 2003.
    """

    method: ClassVar[str] = "adamic-adar"

    def _middle(self, degrees: Floats) -> Floats:
        return 1 / np.log(np.maximum(degrees, 2.0))


@dataclass(kw_only=True, eq=False)
class ResourceAllocation(CommonNeighbours):
    """Σ_k U_uk U_vk / degree_k with degree_k = Σ_v U_kv, and U as in `CommonNeighbours`.

    A degree is never 0 here, for k is linked with u and v, and below 1 where its links are old: so are both factors U.

    Reference: Zhou, Lü, Zhang: Predicting missing links via local information, European Physical Journal B 2009.
    """

    method: ClassVar[str] = "resource-allocation"

    def _middle(self, degrees: Floats) -> Floats:
        return 1 / np.maximum(degrees, SMALLEST)


def _row_products(matrix: csr_array[np.float64], u: Ids, v: Ids) -> Floats:
    """Dot products of rows.  # [B], [B] → [B]"""
    products: Floats = matrix[u].multiply(matrix[v]).sum(axis=1)
    return products
