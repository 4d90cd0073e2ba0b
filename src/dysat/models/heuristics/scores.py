"""Link prediction heuristics: scores that need no training.

Notation: w_uv^k is the weight of link uv in snapshot k ≤ t, without self-loops; t is the step asked for. In a directed
graph it is what u sent to v, except for common neighbours, which ignore direction.
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
from dysat.system.tensors import check_finite

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
ENTRIES = 1 << 22  # maximum number of entries of sparse rows multiplied at once
MIN_DEGREE = 1e-300  # has a finite reciprocal


@dataclass(kw_only=True, eq=False)
class Heuristic(LinkModel):
    """Base class: a score computed from past links. `fit` only learns to calibrate it as a probability.

    Attributes:
        graph_: The graph.
        calibration_: a and b: the odds of a link are e^b (1 + score)^a with a > 0, for a balanced mix of links and
            non-links of the last snapshot. If that snapshot is not informative, a = 1 and b = 0.
    """

    calibration_: Tensor = field(init=False, repr=False)  # [2]
    _last: tuple[int, Any] | None = field(init=False, repr=False, default=None)  # cached: a step and its _past

    @abstractmethod
    def _past(self, graph: DynamicGraph) -> Any:
        """Precompute what `_score` needs from a graph that ends at the step asked for."""

    @abstractmethod
    def _score(self, past: Any, u: Ids, v: Ids) -> Floats:
        """Non-negative scores of the pairs (u, v)."""

    def fit(self, graph: DynamicGraph) -> Self:
        """Store the graph and calibrate the score on its last snapshot."""
        self.check_graph(graph)
        self.graph_, self._last = graph, None
        self.calibration_ = self._calibrate()
        return self

    def pair_scores(self, pairs: Tensor, step: int = -1) -> Tensor:
        """Scores of pairs of nodes known at a step.  # [B, 2] → [B]"""
        u, v = pairs.cpu().numpy().T
        return torch.from_numpy(self._score(self._past_of(step), u, v))

    def _all_scores(self) -> Callable[[Tensor], Tensor]:
        past, nodes = self._past_of(-1), np.arange(self.graph_.num_nodes)
        return lambda rows: torch.from_numpy(self._score(past, rows.numpy()[:, None], nodes))

    def _past_of(self, step: int) -> Any:
        """`_past` of a step; the last result is cached."""
        self._must_be_fitted()
        at = self._check_step(step)
        if self._last is None or self._last[0] != at:
            self._last = at, self._past(self.graph_[: at + 1])
        return self._last[1]

    def _chances(self, scores: Tensor) -> Tensor:
        slope, bias = self.calibration_
        # Rounding must neither separate equal scores nor swap different ones.
        values, which = torch.unique(scores, return_inverse=True)
        return torch.sigmoid(slope * torch.log1p(values) + bias).cummax(0).values[which]

    def _calibrate(self) -> Tensor:
        """Logistic regression of the last snapshot's links on log(1 + score) at the step before.  # [2]"""
        plain = torch.tensor([1.0, 0.0], dtype=torch.float64)
        pairs, labels = self._last_transition()
        if not len(pairs):
            return plain
        x = torch.log1p(self.pair_scores(pairs, -2))
        if x.min() == x.max():
            return plain
        mean, std = x.mean(), x.std()
        weights, bias = fit_logistic(((x - mean) / std)[:, None], labels)
        slope = weights[0] / std
        return torch.stack([slope, bias - slope * mean]) if slope > 0 else plain  # keep the order of scores

    def _learned(self) -> dict[str, Tensor]:
        return {"calibration": self.calibration_}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        if tensors.keys() != {"calibration"} or tensors["calibration"].shape != (2,):
            raise ModelError(f"the stored calibration does not fit the model: {self.method} needs two numbers")
        check_finite(tensors, ModelError)
        self.calibration_, self._last = tensors["calibration"], None


@dataclass(kw_only=True, eq=False)
class LastSnapshot(Heuristic):
    """1 for pairs linked in snapshot t, 0 for all others: the last snapshot repeats."""

    method: ClassVar[str] = "last-snapshot"
    about: ClassVar[str] = "heuristic: the links of the last snapshot repeat"
    uses_direction = True

    def _past(self, graph: DynamicGraph) -> Links:
        return decayed_links(graph.snapshots[-1:], 1.0, weighted=False, directed=graph.directed)

    def _score(self, past: Links, u: Ids, v: Ids) -> Floats:
        return past.look_up(u, v)


@dataclass(kw_only=True, eq=False)
class EdgeBank(Heuristic):
    """1 for pairs linked in any snapshot up to t, or in any of the last `window`; 0 for all others.

    Reference: Poursafaei, Huang, Pelrine, Rabbany: Towards Better Evaluation for Dynamic Link Prediction, NeurIPS 2022.
    """

    method: ClassVar[str] = "edgebank"
    about: ClassVar[str] = "heuristic: pairs linked before are linked again"
    uses_direction = True

    window: Annotated[int | None, "Number of recent snapshots to remember; none remembers all"] = None

    def check(self) -> None:
        if self.window is not None and self.window < 1:
            raise ModelError(f"window={self.window} must be at least 1")

    def _past(self, graph: DynamicGraph) -> Links:
        recent = graph.snapshots[-(self.window or len(graph)) :]
        links = decayed_links(recent, 1.0, weighted=False, directed=graph.directed)
        return links._replace(values=np.ones(len(links.keys)))

    def _score(self, past: Links, u: Ids, v: Ids) -> Floats:
        return past.look_up(u, v)


@dataclass(kw_only=True, eq=False)
class Decayed(Heuristic):
    """Base class: a heuristic that weights older snapshots less."""

    decay: Annotated[float, "Weight of a snapshot relative to the next one"] = 0.5

    def check(self) -> None:
        if not 0 <= self.decay <= 1:
            raise ModelError(f"decay={self.decay} must lie in [0, 1]")


@dataclass(kw_only=True, eq=False)
class DegreeProduct(Decayed):
    """log(1 + s_u) · log(1 + s_v) with s_u = Σ_v m_uv and m_uv = Σ_k decay^(t−k) w_uv^k.

    In a directed graph s_u is what u sent and s_v is what v received.
    """

    method: ClassVar[str] = "degree-product"
    about: ClassVar[str] = "heuristic: product of the activity of both nodes"
    uses_direction = True

    def _past(self, graph: DynamicGraph) -> tuple[Floats, Floats]:
        return _activity(decayed_links(graph.snapshots, self.decay, directed=graph.directed))

    def _score(self, past: tuple[Floats, Floats], u: Ids, v: Ids) -> Floats:
        sent, received = past
        return sent[u] * received[v]


@dataclass(kw_only=True, eq=False)
class DegreeSum(Decayed):
    """log(1 + s_u) + log(1 + s_v), with s_u and s_v as in `DegreeProduct`."""

    method: ClassVar[str] = "degree-sum"
    about: ClassVar[str] = "heuristic: sum of the activity of both nodes"
    uses_direction = True

    def _past(self, graph: DynamicGraph) -> tuple[Floats, Floats]:
        return _activity(decayed_links(graph.snapshots, self.decay, directed=graph.directed))

    def _score(self, past: tuple[Floats, Floats], u: Ids, v: Ids) -> Floats:
        sent, received = past
        return sent[u] + received[v]


@dataclass(kw_only=True, eq=False)
class EdgeMemory(Decayed):
    """Ranks pairs by m_uv = Σ_k decay^(t−k) w_uv^k, and pairs of equal m_uv by their `DegreeProduct`.

    The score is the rank of m_uv among all distinct values of m and 0, plus the degree product scaled below 1, so that
    a tie-break never reaches the next rank.
    """

    method: ClassVar[str] = "edge-memory"
    about: ClassVar[str] = "heuristic: decayed weight of earlier links"
    uses_direction = True

    def _past(self, graph: DynamicGraph) -> tuple[Links, Floats, Floats]:
        memory = decayed_links(graph.snapshots, self.decay, directed=graph.directed)
        ranks = np.unique(np.append(memory.values, 0.0), return_inverse=True)[1][:-1]
        sent, received = (size / (2 * size.max(initial=0.5)) for size in _activity(memory))  # products are at most ¼
        return memory._replace(values=ranks.astype(np.float64)), sent, received

    def _score(self, past: tuple[Links, Floats, Floats], u: Ids, v: Ids) -> Floats:
        ranks, sent, received = past
        return ranks.look_up(u, v) + sent[u] * received[v]


@dataclass(kw_only=True, eq=False)
class CommonNeighbours(Decayed):
    """Σ_k U_uk U_vk with U_uv = Σ_k' decay^(t−k') [uv linked in k']: common neighbours, weighted by recency."""

    method: ClassVar[str] = "common-neighbours"
    about: ClassVar[str] = "heuristic: decayed number of common neighbours"

    def _middle(self, degrees: Floats) -> Floats:
        """The weight of a path u–k–v, from the degree Σ_v U_kv of its middle node k.  # [N] → [N]"""
        return np.ones_like(degrees)

    def _past(self, graph: DynamicGraph) -> csr_array[np.float64]:
        """U_uk √middle_k: dot products of its rows are the scores.  # [N, N]"""
        links = decayed_links(graph.snapshots, self.decay, weighted=False)
        paths = links.matrix().scipy()
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

    Degrees below 2 count as 2, the minimum of a middle node before its links decay.

    Reference: Adamic, Adar: Friends and neighbors on the Web, Social Networks 2003.
    """

    method: ClassVar[str] = "adamic-adar"
    about: ClassVar[str] = "heuristic: common neighbours, weighted by 1 / log degree"

    def _middle(self, degrees: Floats) -> Floats:
        return 1 / np.log(np.maximum(degrees, 2.0))


@dataclass(kw_only=True, eq=False)
class ResourceAllocation(CommonNeighbours):
    """Σ_k U_uk U_vk / degree_k with degree_k = Σ_v U_kv, and U as in `CommonNeighbours`.

    The degree is never 0, because k is linked to u and v; where it is below 1, so are both factors U.

    Reference: Zhou, Lü, Zhang: Predicting missing links via local information, European Physical Journal B 2009.
    """

    method: ClassVar[str] = "resource-allocation"
    about: ClassVar[str] = "heuristic: common neighbours, weighted by 1 / degree"

    def _middle(self, degrees: Floats) -> Floats:
        return 1 / np.maximum(degrees, MIN_DEGREE)


def _activity(links: Links) -> tuple[Floats, Floats]:
    """log(1 + x) of what each node sent and received; the same twice without direction.  # two [N]"""
    sent, received = links.sent_and_received()
    return np.log1p(sent), np.log1p(received)


def _row_products(matrix: csr_array[np.float64], u: Ids, v: Ids) -> Floats:
    """Dot products of rows.  # [B], [B] → [B]"""
    products: Floats = matrix[u].multiply(matrix[v]).sum(axis=1)
    return products
