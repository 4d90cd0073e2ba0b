"""EmbeddingModel: a vector for every node, and link scores from the vectors of both ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.link_model import LinkModel
from dysat.nn.logistic import fit_logistic
from dysat.nn.pair import PairFeature, both_ends, pair_features, weighted_sums

DIVERGED = "training diverged, try a lower learning_rate; or the model file is damaged"


@dataclass(kw_only=True, eq=False)
class EmbeddingModel(LinkModel):
    """A method that learns a vector for every node and scores a link by a weighted sum of its pair features.

    The features of a pair are e_u ⊙ e_v, or |e_u − e_v| if `pair_feature` says so. A probe uses the same features. If
    nodes have two roles, in a directed graph, e_u is the vector of u as a source and e_v that of v as a target.
    """

    pair_feature: ClassVar[PairFeature] = "product"

    settled: ClassVar[bool] = False  # whether embeddings of past steps never change
    scorer_: tuple[Tensor, Tensor] = field(init=False, repr=False)  # weights and bias of the log-odds of a link

    @property
    def has_embeddings(self) -> bool:
        """Whether the model learns embeddings with its present options."""
        return True

    def steps_at_hand(self) -> range:
        """Return the steps whose embeddings need no further training."""
        return self.steps()

    def forecaster(self, graph: DynamicGraph) -> Self | None:
        """Return a model of a graph that scores pairs as this one, without embeddings; None if scores need them."""
        return None

    @abstractmethod
    def embed(self, step: int = -1) -> Tensor:
        """Return the embeddings of the nodes known at a step, in node order.  # [known, d]"""

    def roles(self, step: int = -1, *, nodes: Tensor | None = None) -> Tensor:
        """Return the embeddings of a step, or both roles of each node if it has two.  # [known, d] or [known, 2, d]

        The roles are source and target, in this order. `nodes` are ids to embed these nodes only.
        """
        found = self.embed(step)
        return found if nodes is None else found[nodes.to(found.device)]

    def table(self, step: int = -1) -> dict[str, Any]:
        """Return the columns of a table of the nodes known at a step: label, kind if any, step and embedding.

        If nodes have two roles, `embedding` is the source and `target_embedding` the target.
        """
        e, graph = self.roles(step).cpu().numpy(), self.graph_
        columns: dict[str, Any] = {"node": graph.nodes[: len(e)]}
        if graph.kinds is not None:
            columns["kind"] = [graph.kind_names[kind] for kind in graph.kinds[: len(e)]]
        columns["step"] = step % len(graph)
        if e.ndim == 2:
            return {**columns, "embedding": e}
        return {**columns, "embedding": e[:, 0], "target_embedding": e[:, 1]}

    def pair_scores(self, pairs: Tensor, step: int = -1) -> Tensor:
        """Return the log-odds of a link, for a balanced mix of links and non-links.  # [B, 2] → [B]"""
        e = self.roles(step).cpu()
        weights, bias = self._scorer_of(e)
        # A matrix product rounds a row by its position on some processors, so u, v and v, u could differ.
        return (self._pair_features(e, pairs) * weights).sum(1) + bias

    def _scorer_of(self, e: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and bias of the score, for embeddings as wide as these."""
        weights, bias = self.scorer_
        if weights.shape != e.shape[-1:] or not weights.dtype == bias.dtype == e.dtype:
            raise ModelError(f"{len(weights)} weights for pairs with {e.shape[-1]} features: fit the model again")
        if not e.isfinite().all():
            raise ModelError(f"the embeddings are not finite numbers: {DIVERGED}")
        return weights, bias

    def _chances(self, scores: Tensor) -> Tensor:
        if scores.isnan().any():
            raise ModelError(f"the scores are not numbers: {DIVERGED}")
        return torch.sigmoid(scores)

    def _state(self) -> dict[str, Tensor]:
        weights, bias = self.scorer_
        return {**self._learned(), "scorer/weights": weights, "scorer/bias": bias}

    def _take_state(self, tensors: dict[str, Tensor]) -> None:
        weights, bias = (tensors.pop(f"scorer/{name}", None) for name in ("weights", "bias"))
        if weights is None or bias is None or weights.ndim != 1 or bias.ndim:
            raise ModelError("the weights do not fit the model: a link score is needed, scorer/weights and scorer/bias")
        self.scorer_ = weights, bias
        self._restore(tensors)

    def _all_scores(self) -> Callable[[Tensor], Tensor]:
        e = self.roles().cpu()
        sources, targets = (e, e) if e.dim() == 2 else e.unbind(1)
        weights, bias = self._scorer_of(e)
        return lambda rows: weighted_sums(sources[rows], targets, weights, self.pair_feature) + bias

    def _fit_scorer(self) -> None:
        """Fit the link score on the last transition.

        Features come from the embeddings before the last snapshot, labels are its links and as many unlinked pairs. So
        scores are calibrated for a balanced mix, not for all pairs. With a single snapshot nothing changes.
        """
        pairs, labels = self._last_transition()
        if not len(pairs):
            return
        e = self.roles(-2).cpu()
        weights, bias = fit_logistic(self._pair_features(e, pairs), labels)
        self.scorer_ = weights.to(e.dtype), bias.to(e.dtype)

    def _pair_features(self, e: Tensor, pairs: Tensor) -> Tensor:
        """Features of pairs of rows.  # [N, d] or [N, 2, d], [B, 2] → [B, d]"""
        return pair_features(*both_ends(e, pairs), self.pair_feature)
