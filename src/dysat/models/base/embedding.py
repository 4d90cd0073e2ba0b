"""Models with a vector for every node: tables of them, and a link's score from the vectors of its ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from dysat.models.base.link_model import LinkModel
from dysat.nn.logistic import fit_logistic
from dysat.nn.pair import PairFeature, pair_features, weighted_sums


@dataclass(kw_only=True, eq=False)
class EmbeddingModel(LinkModel):
    """A method that learns a vector for every node; a link's score is a weighted sum of its pair features.

    These are e_u ⊙ e_v, or where `pair_feature` says so |e_u − e_v|; a probe is trained on the same.
    """

    pair_feature: ClassVar[PairFeature] = "product"

    settled: ClassVar[bool] = False  # embeddings of a step are what they were when it was learned
    scorer_: tuple[Tensor, Tensor] = field(init=False, repr=False)  # weights and a bias: log-odds of a link

    def steps_at_hand(self) -> range:
        """The steps whose embeddings need no new learning."""
        return self.steps()

    @abstractmethod
    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order.  # [known, d]"""

    def table(self, step: int = -1) -> dict[str, Any]:
        """Columns of a table: label, (kind,) step and embedding of the nodes known at a step."""
        e, graph = self.embed(step).cpu().numpy(), self.graph_
        columns: dict[str, Any] = {"node": graph.nodes[: len(e)]}
        if graph.kinds is not None:
            columns["kind"] = [graph.kind_names[kind] for kind in graph.kinds[: len(e)]]
        return {**columns, "step": step % len(graph), "embedding": e}

    def pair_scores(self, pairs: Tensor, step: int = -1) -> Tensor:
        """Log-odds of a link, among as many pairs with and without one.  # [B, 2] → [B]"""
        weights, bias = self.scorer_
        scores: Tensor = self._pair_features(self.embed(step).cpu(), pairs) @ weights + bias
        return scores

    def _chances(self, scores: Tensor) -> Tensor:
        return torch.sigmoid(scores)

    def _state(self) -> dict[str, Tensor]:
        weights, bias = self.scorer_
        return {**self._learned(), "scorer/weights": weights, "scorer/bias": bias}

    def _take_state(self, tensors: dict[str, Tensor]) -> None:
        self.scorer_ = tensors.pop("scorer/weights"), tensors.pop("scorer/bias")
        self._restore(tensors)

    def _all_scores(self) -> Callable[[Tensor], Tensor]:
        e = self.embed().cpu()
        weights, bias = self.scorer_
        return lambda rows: weighted_sums(e[rows], e, weights, self.pair_feature) + bias

    def _fit_scorer(self) -> None:
        """Learn what of the pair features speaks for a link, from the last step that has one after it.

        Features are the embeddings before the last snapshot, labels its links and as many pairs without; so a score
        of ½ means as likely as not among those, not among all pairs. With one snapshot it stays as it is.
        """
        pairs, labels = self._last_transition()
        if not len(pairs):
            return
        e = self.embed(-2).cpu()
        weights, bias = fit_logistic(self._pair_features(e, pairs), labels)
        self.scorer_ = weights.to(e.dtype), bias.to(e.dtype)

    def _pair_features(self, e: Tensor, pairs: Tensor) -> Tensor:
        """Of pairs of rows.  # [N, d], [B, 2] → [B, d]"""
        return pair_features(e[pairs[:, 0]], e[pairs[:, 1]], self.pair_feature)
