"""DySAT: self-attention over a node's neighbours, then over its own history."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.activity import activity
from dysat.features.spectrum import spectrum
from dysat.models.attention import AttentionModel, Sizes
from dysat.models.base.link_model import OnProgress, best_of_each, pair_keys, pairs_without
from dysat.models.base.trained import Task, load_weights
from dysat.models.forecast.candidates import likely_pairs, partners_of, spectral_vectors
from dysat.models.forecast.pair_score import PairScore
from dysat.nn.future_objective import Cells, ProductScore, Transitions, agreement_loss, future_loss
from dysat.nn.temporal import Scale
from dysat.nn.walk_objective import Reduction, Sharing
from dysat.sampling.blocks import Unknown
from dysat.sampling.pairs import mixed_pairs
from dysat.training import Settings

SCORE, PAIR, AXES = "score/", "pair/", "axes"
TAUGHT = 12  # pairs per node and kind on which embeddings learn to agree with the pair score
SCORED_AT_ONCE = 1 << 17  # pairs between two reports of progress
LEAST, MOST = 20_000, 80_000  # bounds on the number of those pairs
# Values of the options that the paper's model lacks, at which they have no effect.
PAPER: dict[str, Any] = {
    "activity": False,
    "spectrum": 0,
    "positions": "absolute",
    "walk_weight": 1.0,
    "future_weight": 0.0,
    "agreement": 0.0,
    "pair_score": False,
    "keep_epoch": "best",
    "cool_down": 0.0,
}
WALK_OPTIONS = (
    *("walks_per_node", "walk_length", "window", "contexts", "negatives", "sharing", "negative_weight", "reduction"),
)


@dataclass(kw_only=True, eq=False)
class DySAT(AttentionModel):
    """Dynamic self-attention network.

    In every snapshot a node gets a vector by attention over its neighbours. Its embedding at step t comes from
    attention over its vectors up to t.

    `DySAT()` is the default model, which `dysat fit`, `dysat evaluate` and `dysat tune` use too. Beyond the paper, it
    takes activity and spectral coordinates as inputs, learns from the links of the next snapshot, and scores links with
    a pair score (docs/forecasting.md). The paper's model has two readings: `DySAT.from_preset("text")` follows its
    text, and `DySAT.from_preset("program")` follows the authors' program, which produced the published figures. Both
    learn from random walks: nodes that meet on a walk in a snapshot score high, others low.

    Attributes:
        graph_: the graph passed to `fit`; with `history` the model uses its latest snapshots only.
        epochs_: loss, validation score and seconds of every epoch.
        finished_: whether training ended by itself, not by `stop`.

    Example:
        >>> import dysat
        >>> model = dysat.DySAT(epochs=1).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 128])

    Reference: Sankar, Wu, Gou, Zhang, Yang: DySAT: Deep Neural Representation Learning on Dynamic Graphs via
    Self-Attention Networks, WSDM 2020.
    """

    method: ClassVar[str] = "dysat"
    about: ClassVar[str] = "attention over neighbours, then over each node's history"

    activity: Annotated[bool, "Input: activity of a node (decayed degrees and weights, last seen, age, kind)"] = True
    spectrum: Annotated[int, "Input: spectral coordinates of the links so far, per sign of the eigenvalue"] = 16
    positions: Annotated[
        Literal["absolute", "relative", "time"], "Time in attention: positions, distances in steps, or durations"
    ] = "relative"
    walk_weight: Annotated[float, "Weight of the random-walk loss"] = 0.0
    future_weight: Annotated[float, "Weight of the loss on links of the next snapshot"] = 0.1
    future_negatives: Annotated[int, "Negative samples per link of the next snapshot"] = 1
    matched: Annotated[float, "Fraction of those negatives sampled to match the activity of linked nodes"] = 0.25
    agreement: Annotated[float, "Weight of the loss that makes embeddings agree with the pair score"] = 1.0
    pair_score: Annotated[bool, "Score links by features of the pair instead of by embeddings"] = True
    keep_epoch: Annotated[Literal["best", "last"], "Epoch to keep if there is a validation score"] = "last"
    cool_down: Annotated[float, "Fraction of the epochs, at the end, over which the learning rate falls"] = 0.3
    transitions: Annotated[int, "Number of latest transitions between snapshots to learn from"] = 3

    # Defaults that differ from the authors' program. presets/dysat_default.toml gives the reasons.
    structural_heads: Sizes = (16,)
    structural_features: Sizes = (128,)
    scale: Scale = "features"
    residual: bool = True
    unknown: Unknown = "masked"
    structural_dropout: float = 0.0
    walk_length: int = 40
    sharing: Sharing = "per-positive"
    reduction: Reduction = "sum"
    l2: float = 1e-4
    l2_on: Literal["all", "structural"] = "all"
    clip_norm: float | None = None
    learning_rate: float = 5e-3
    batch_size: int = 4096
    epochs: int = 150
    patience: int | None = 20

    score_: ProductScore | None = field(init=False, repr=False, default=None)
    axes_: Tensor | None = field(init=False, repr=False, default=None)  # rotates the network's output into embeddings
    pair_score_: PairScore | None = field(init=False, repr=False, default=None)

    def check(self) -> None:
        super().check()
        self._not_negative("walk_weight", "future_weight", "agreement", "spectrum")
        self._at_least_one("future_negatives", "transitions")
        for name in ("matched", "cool_down"):
            if not 0 <= getattr(self, name) <= 1:
                raise ModelError(f"{name}={getattr(self, name)} must lie in [0, 1]")
        if not self.walk_weight + self.future_weight + self.agreement:
            raise ModelError("walk_weight=0, future_weight=0 and agreement=0: there is nothing to learn from")

    def without_effect(self, names: Iterable[str]) -> dict[str, str]:
        if self.walk_weight:
            return {}
        why = "walk_weight=0; the models that learn from random walks are dysat:text and dysat:program"
        return {name: why for name in names if name in WALK_OPTIONS}

    @classmethod
    def _check_preset(cls, parameters: Mapping[str, Any], file: str) -> None:
        # Presets written when the defaults followed the paper's text list walk options, but not walk_weight.
        if {"sharing", "reduction"} & parameters.keys() and "walk_weight" not in parameters:
            paper = ", ".join(f"{name} = {json.dumps(value)}" for name, value in PAPER.items())
            raise ModelError(f"{file}: written for the paper's model by an earlier version; add {paper}")

    def _needs_features(self, graph: DynamicGraph) -> bool:
        return super()._needs_features(graph) and not (self._own_inputs and graph.features is None)

    @property
    def _own_inputs(self) -> bool:
        return bool(self.activity or self.spectrum)

    @property
    def _looks_ahead(self) -> bool:
        return bool(self.future_weight or self.agreement)

    def _features(self, graph: DynamicGraph) -> Tensor | tuple[Tensor, ...] | None:
        given = super()._features(graph)
        if not self._own_inputs:
            return given
        # Computed from the whole past, even if attention covers the latest snapshots only.
        parts = list[tuple[Tensor, ...]]()
        if self.activity:
            parts.append(activity(self.graph_.to(graph.device)))
        if self.spectrum:  # computed on the graph's device
            parts.append(tuple(part.to(graph.device) for part in spectrum(self.graph_, self.spectrum)))
        if given is not None:
            every = given if isinstance(given, tuple) else tuple(given[:known] for known in graph.known)
            parts.append((*[every[0]] * (len(self.graph_) - len(graph)), *every))
        return tuple(
            torch.cat([p.to(columns[0]) for p in columns], 1)
            for columns in list(zip(*parts, strict=True))[-len(graph) :]
        )

    def _times(self) -> Tensor | None:
        if self.positions == "absolute":
            return None
        steps = self.steps()
        if self.positions == "relative":
            return torch.arange(len(steps))
        edges = np.array(self.graph_.boundaries[steps.start : steps.stop + 1], dtype=np.float64)
        ends = edges[1:] - edges[1]
        return torch.from_numpy(np.rint(ends / max(1.0, float(np.median(np.diff(edges)))))).long()

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self.score_ = self.pair_score_ = self.axes_ = None
        if self.pair_score or self.agreement:
            self.pair_score_ = PairScore.learn(self.graph_, transitions=self.transitions, seed=self.seed)
        ahead = self._ahead(device)
        if ahead is None:
            return super()._prepare(device, generator)
        self._build(device)
        self.score_ = ProductScore(self.network_.width).to(device)
        self.scorer_ = torch.ones(self.network_.width), torch.zeros(())  # replaced when training ends
        items, walks = torch.zeros(1, dtype=torch.int64, device=device), None
        if self.walk_weight:
            sampler = self.sampler(generator)
            items = torch.unique(sampler.block.node[sampler.contexts.num_pairs > 0])
            walks = self.loss(sampler)

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            value = ahead(generator)
            return value if walks is None else value + self.walk_weight * walks(batch, generator)

        return Task(loss, self._parameters(), items, frozenset(self._penalized()))

    def _ahead(self, device: torch.device) -> Callable[[torch.Generator], Tensor] | None:
        """The loss on the next snapshot; None if there is nothing to predict."""
        graph = self._recent().to(device)
        first = max(0, len(graph) - 1 - self.transitions) if self.future_weight else len(graph) - 1
        cells = Cells.of(graph.known, first, device)
        links = Transitions.of(graph, cells, self.future_negatives, self.matched) if self.future_weight else None
        links = links if links is not None and len(links.pairs) else None
        taught = self._taught(cells, len(graph) - 1) if self.agreement and self.pair_score_ is not None else None
        if links is None and taught is None and self._looks_ahead:  # no transition yet: learn the present links
            links = Transitions.of(graph, cells, self.future_negatives, self.matched, ahead=0)
            links = links if len(links.pairs) else None
        if links is None and taught is None:
            return None
        plan = None

        def loss(generator: torch.Generator) -> Tensor:
            nonlocal plan
            plan = plan or self.network_.plan(self.block_, cells.nodes, cells.steps)
            x: Tensor = self.network_(self.block_, self.inputs_, plan, generator=generator)
            score = self._score()
            value = x.new_zeros(())
            if links is not None:
                value = value + (self.future_weight or 1.0) * future_loss(score, x, links, generator)
            if taught is not None:
                value = value + self.agreement * agreement_loss(score, x, *taught, generator)
            return value

        return loss

    def _taught(self, cells: Cells, last: int) -> tuple[Tensor, Tensor]:
        """Pairs of all kinds at the last step, and the pair score's probability that each is linked next."""
        number = min(MOST, max(LEAST, TAUGHT * self.graph_.known[-1]))
        pairs = mixed_pairs(self.graph_, number, self.seed)
        log_odds = self._pair_score().log_odds(self.graph_, len(self.graph_) - 1, pairs)
        device = cells.nodes.device
        return cells.at(pairs.to(device), last), torch.sigmoid(log_odds).to(device, torch.get_default_dtype())

    def _settings(self, num_items: int) -> Settings:
        found = replace(super()._settings(num_items), keep_best=self.keep_epoch == "best", cool_down=self.cool_down)
        return replace(found, batch_size=max(1, min(found.batch_size, num_items))) if self._looks_ahead else found

    def _parameters(self) -> dict[str, nn.Parameter]:
        scored = {} if self.score_ is None else {f"{SCORE}{n}": p for n, p in self.score_.named_parameters()}
        return {**dict(self.network_.named_parameters()), **scored}

    def embed(self, step: int = -1) -> Tensor:
        x = super().embed(step)
        if self.score_ is None:
            return x
        axes = self._axes()[0] if self.axes_ is None else self.axes_  # they change during training
        return x @ axes.to(x.device)

    def _axes(self) -> tuple[Tensor, Tensor]:
        """Principal axes of the scores at the last step, and their weights."""
        return self._score().axes(super().embed())

    def pair_scores(self, pairs: Tensor, step: int = -1) -> Tensor:
        """Return the log-odds of a link, for a balanced mix of links and non-links.  # [B, 2] → [B]"""
        if not self.pair_score or self.pair_score_ is None:
            return super().pair_scores(pairs, step)
        return self.pair_score_.log_odds(self.graph_, self._check_step(step), pairs)

    def _fit_scorer(self) -> None:
        if self.score_ is None:
            super()._fit_scorer()
        else:
            axes, weights = self._axes()
            self.axes_, self.scorer_ = axes.cpu(), (weights.cpu(), self.score_.bias.detach().cpu())

    def _learned(self) -> dict[str, Tensor]:
        pair = {} if self.pair_score_ is None else self.pair_score_.tensors()
        axes = {} if self.axes_ is None else {AXES: self.axes_}
        return {**self.weights(), **axes, **{f"{PAIR}{name}": value for name, value in pair.items()}}

    def weights(self) -> dict[str, Tensor]:
        """Return the weights of the network and of the product score."""
        score: Mapping[str, Tensor] = {} if self.score_ is None else self.score_.state_dict()
        return {**self.network_.state_dict(), **{f"{SCORE}{name}": value for name, value in score.items()}}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        parts: dict[str, dict[str, Tensor]] = {SCORE: {}, PAIR: {}, AXES: {}, "": {}}
        for name, value in tensors.items():
            prefix = next(p for p in parts if name.startswith(p))
            parts[prefix][name.removeprefix(prefix)] = value
        super()._restore(parts[""])
        self.score_ = self.pair_score_ = None
        self.axes_ = parts[AXES].get("")
        if parts[SCORE]:
            if self.axes_ is None or self.axes_.shape != (self.network_.width,) * 2:
                raise ModelError(f"the weights do not fit the model: axes, {self.network_.width} wide, are needed")
            self.score_ = ProductScore(self.network_.width).to(self.block_.node.device)
            load_weights(self.score_, parts[SCORE])
        if parts[PAIR]:
            self.pair_score_ = PairScore.of(parts[PAIR])

    def _score(self) -> ProductScore:
        if self.score_ is None:
            raise TypeError("a model that does not look ahead")
        return self.score_

    def _pair_score(self) -> PairScore:
        if self.pair_score_ is None:
            raise TypeError("a model without a pair score")
        return self.pair_score_

    def top_pairs(
        self,
        k: int,
        rows: Tensor | None = None,
        without: Tensor | None = None,
        on_progress: OnProgress | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return ids and scores of the k most likely pairs; the pair score ranks candidates.  # [k, 2], [k]"""
        if not self.pair_score or self.pair_score_ is None:
            return super().top_pairs(k, rows, without, on_progress)
        if rows is not None:
            return self._top_partners(k, rows, without, on_progress or (lambda done: None))
        vectors = spectral_vectors(self.graph_, self.pair_score_.three_step)
        pairs = likely_pairs(self.graph_, *vectors, max(1000, 20 * k), self.pair_scores)
        pairs = pairs_without(pairs, without, self.graph_.known[-1])
        best = self.pair_scores(pairs).sort(descending=True, stable=True)
        return pairs[best.indices[:k]], self._chances(best.values[:k])

    def _top_partners(
        self, k: int, rows: Tensor, without: Tensor | None, on_progress: OnProgress
    ) -> tuple[Tensor, Tensor]:
        """Return the k most likely pairs of each row.  # [≤ R · k, 2], [≤ R · k]"""

        size, done = self.graph_.known[-1], 0
        found, scores = [rows.new_empty(0, 2)], [torch.empty(0, dtype=torch.float64)]
        for nodes, candidates in partners_of(self.graph_, rows.numpy(), self._pair_score().three_step, k):
            pairs = pairs_without(torch.from_numpy(candidates), without, size)
            keys, which = torch.unique(pair_keys(pairs, size), return_inverse=True)  # both ends may ask for a pair
            values = torch.empty(len(keys), dtype=torch.float64)
            for first in range(0, len(keys), SCORED_AT_ONCE):
                part = keys[first : first + SCORED_AT_ONCE]
                values[first : first + len(part)] = self.pair_scores(torch.stack([part // size, part % size], 1))
                on_progress((done + len(nodes) * (first + len(part)) / len(keys)) / len(rows))
            best = best_of_each(pairs, values[which], k)
            found.append(pairs[best])
            scores.append(values[which[best]])
            done += len(nodes)
        return torch.cat(found), self._chances(torch.cat(scores))

    def applied_to(self, graph: DynamicGraph) -> Self:
        """Apply the trained network to another graph, such as this one with later snapshots and nodes.

        Inputs must not depend on identity: use `inputs="features"` with `activity`, `spectrum` or features.
        """
        self._must_be_fitted()
        if self.inputs != "features":
            raise ModelError(f"inputs={self.inputs!r}: only a model with inputs='features' can embed unseen nodes")
        found = type(self)(**self.get_params())
        found.check_graph(graph)
        found.graph_ = graph
        found._take_state(self._state())
        return found
