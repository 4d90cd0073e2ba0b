"""DynamicTriad: vectors of every step, near where there are links, moving little, and telling which triads close."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from dysat.errors import ModelError
from dysat.models.base.trained import Task, TrainedModel
from dysat.nn.device import choose_device
from dysat.nn.pair import PairFeature
from dysat.sampling.triads import StackedLinks, Triads

COMMON = 32  # common neighbours of a closing pair that are looked at


def homophily(u: Tensor, links: Tensor, others: Tensor, weights: Tensor, margin: float) -> Tensor:
    """Σ w_ij [‖u_i − u_j‖² − ‖u_i − u_k‖² + margin]_+ over links (i, j) and all of their own k.

    Shapes: u [R, d], links [B, 2], others [B, Q], weights [B, Q] (0: not counted).
    """
    rows = torch.cat([links, others], 1)  # [B, 2 + Q]
    e = u.index_select(0, rows.flatten()).view(*rows.shape, -1)  # [B, 2 + Q, d]
    square = (e[:, :1] - e[:, 1:]).square().sum(2)  # [B, 1 + Q]
    return (weights * torch.relu(square[:, :1] - square[:, 1:] + margin)).sum()


def roughness(u: Tensor, known: Sequence[int]) -> Tensor:
    """Σ_t Σ_i ‖u_i^t − u_i^(t−1)‖², over nodes i known at t − 1.

    Shapes: u [R, d] with R = Σ known, step after step.
    """
    steps = torch.split(u, list(known))
    total = u.new_zeros(())
    for before, now in pairwise(steps):
        total = total + (now[: len(before)] - before).square().sum()
    return total


def closing_loss(z: Tensor, pairs: Tensor, number: int) -> Tensor:
    """−log(1 − Π_k (1 − σ(z_k))) of each pair of nodes, over its triads; in order of pair.  # [B], [B] → [number]

    With a = Σ_k log(1 + e^z_k) it is −log(1 − e^−a); float64 tells a from 0 down to z = −700, and the sum from 1.
    """
    a = torch.zeros(number, dtype=torch.float64, device=z.device)
    a = a.index_add(0, pairs, softplus(z.double().clamp(min=-700)))
    return -torch.log(-torch.expm1(-a)).to(z.dtype)


@dataclass(kw_only=True, eq=False)
class DynamicTriad(TrainedModel):
    """A vector u_i^t for every node i known at every step t, that makes three sums small.

    - Social homophily: Σ w_ij [‖u_i − u_j‖² − ‖u_i − u_k‖² + margin]_+ over the links (i, j) of all steps and nodes k
      known then and not linked with i, drawn anew in every step of the training; i is either end of the link.
    - Temporal smoothness, β0 = `smoothness`: Σ ‖u_i^t − u_i^(t−1)‖².
    - Triadic closure, β1 = `closure`: i and j, not linked at t, are linked at t + 1 by their common neighbour k with
      P_ijk = σ(θ · x + b), x = w_ik (u_k − u_i) + w_jk (u_k − u_j). A pair that is linked at t + 1 costs
      −log(1 − Π_k (1 − P_ijk)), one that is not −Σ_k log(1 − P_ijk).

    The loss is (homophily + β0 smoothness) / links + β1 (mean cost of the pairs that close + mean cost of triads drawn
    from all that stay open). The paper adds these costs up; on UCI a hundred triads stay open for each that closes.
    The paper minimises a bound of the first cost, by turns with the probability of each k to be the cause. Here it is
    the cost itself: where that probability is up to date both have the same gradient, and nothing must be stored.

    Nothing bounds the vectors or θ; the authors' program keeps vectors within length 1 and θ at length 1.

    The vectors of all steps are learned together from all snapshots of the graph: `embed` of an earlier step knows of
    the snapshots after it, by smoothness and by the triads that close. So what is learned from `embed(-2)` and the last
    snapshot's links, as `score_links` does and the probe on the past, is learned from vectors that know these links.
    Nothing after the graph given is ever looked at.

    Weights count over their mean in all snapshots, so that β0 and β1 mean the same on every graph. A pair is seen by
    |e_u − e_v|, as where DySAT's paper compares with it: distance is what is learned.

    Attributes:
        graph_: the graph it was given.
        vectors_: u^0, u^1, … one after the other; strategy_: θ and b.
        epochs_: loss, validation score and seconds of every epoch; finished_: whether all were run.

    Example:
        >>> import dysat
        >>> model = dysat.MODELS["dynamic-triad"](features=16, epochs=2).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 16])

    Reference: Zhou, Yang, Ren, Wu, Zhuang: Dynamic Network Embedding by Modeling Triadic Closure Process, AAAI 2018.
    """

    method: ClassVar[str] = "dynamic-triad"
    pair_feature: ClassVar[PairFeature] = "distance"

    features: Annotated[int, "width of the embedding"] = 128
    smoothness: Annotated[float, "β0: weight of the vectors' moves from step to step"] = 1.0
    closure: Annotated[float, "β1: weight of the triads that close or stay open"] = 0.1
    margin: Annotated[float, "by which a link's square distance is to be less than others"] = 1.0
    negatives: Annotated[int, "nodes without a link for each link"] = 1
    learning_rate: Annotated[float, "of Adam"] = 0.01
    batch_size: Annotated[int, "links in a batch, and triads drawn"] = 1 << 16
    epochs: Annotated[int, "passes over all links, at most"] = 100
    patience: Annotated[int | None, "stop after so many epochs without a better validation score"] = None
    seed: Annotated[int, "of everything random"] = 0
    device: Annotated[str, "cpu, cuda, cuda:1, …; auto takes CUDA where there is one"] = "auto"

    vectors_: nn.Parameter = field(init=False, repr=False)
    strategy_: nn.Parameter = field(init=False, repr=False)

    def check(self) -> None:
        self._at_least_one("features", "negatives")
        self._not_negative("smoothness", "closure", "margin")
        super().check()

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self._begin(device)
        self.scorer_ = -torch.ones(self.features), torch.zeros(())  # the nearer the likelier
        links = self.links()
        items = torch.arange(len(links.links()[0]), device=device)
        return Task(self.loss(links, generator), {"vectors": self.vectors_, "strategy": self.strategy_}, items)

    def embed(self, step: int = -1) -> Tensor:
        """u^step of the nodes known then, in node order, as learned from all snapshots.  # [known, d]"""
        self._must_be_fitted()
        at, known = self._check_step(step), self.graph_.known
        first = sum(known[:at])
        return self.vectors_.detach()[first : first + known[at]].clone()

    def links(self) -> StackedLinks:
        """Of all steps, with weights over their mean."""
        found = StackedLinks.of(self.graph_.snapshots, choose_device(self.device))
        w = found.weights
        if len(w) and (largest := float(w.max())) > 0:
            w = w / largest  # their sum might be too large
            w = w / w.mean()
        return replace(found, weights=w.to(torch.get_default_dtype()))

    def loss(self, links: StackedLinks, generator: torch.Generator) -> Callable[[Tensor, torch.Generator], Tensor]:
        """The loss of a batch of links, given by their numbers, and of as many triads."""
        i, j, weights = links.links()
        closing, pairs = links.closing(COMMON, generator)
        num_pairs = int(pairs[-1]) + 1 if len(pairs) else 0

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            u, at = self.vectors_, batch.clamp(min=0)
            ends = torch.stack([i[at], j[at]], 1)  # [B, 2]
            turned = torch.rand(len(batch), generator=generator, device=u.device) < 0.5
            ends = torch.where(turned[:, None], ends.flip(1), ends)
            others = links.others(ends[:, 0], self.negatives, generator)  # [B, Q]
            counted = (batch >= 0)[:, None] & links.apart(ends[:, :1].expand_as(others), others)
            near = homophily(u, ends, others, weights[at, None] * counted, self.margin) / (batch >= 0).sum()
            total = near / self.negatives + self.smoothness / len(i) * roughness(u, self.graph_.known)
            if self.closure:
                value = u @ self.strategy_[:-1]  # θ · x needs no more of u
                if num_pairs:
                    total = total + self.closure * closing_loss(self._odds(value, closing), pairs, num_pairs).mean()
                triads, open_ = links.draw(len(batch), generator)
                if len(open_):
                    stay = softplus(self._odds(value, triads)) * open_
                    total = total + self.closure * stay.sum() / open_.sum().clamp(min=1)
            return total

        return loss

    def _odds(self, value: Tensor, triads: Triads) -> Tensor:
        """Log-odds of P_ijk, given θ · u of all rows.  # [R] → [B]"""
        i, j, k, w_ik, w_jk = triads
        odds: Tensor = w_ik * (value[k] - value[i]) + w_jk * (value[k] - value[j]) + self.strategy_[-1]
        return odds

    def _begin(self, device: torch.device) -> None:
        """First vectors, the same at all steps and on every device."""
        generator, size = torch.Generator().manual_seed(self.seed), self.features
        first = torch.randn(self.graph_.num_nodes, size, generator=generator) / math.sqrt(size)
        theta = torch.randn(size, generator=generator) / math.sqrt(size)
        vectors = torch.cat([first[:known] for known in self.graph_.known])
        self.vectors_ = nn.Parameter(vectors.to(device))
        self.strategy_ = nn.Parameter(torch.cat([theta, torch.zeros(1)]).to(device))

    def _learned(self) -> dict[str, Tensor]:
        return {"vectors": self.vectors_.detach(), "strategy": self.strategy_.detach()}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        device, known = choose_device(self.device), self.graph_.known
        shapes = {"vectors": (sum(known), self.features), "strategy": (self.features + 1,)}
        if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != shapes:
            raise ModelError(f"the vectors do not fit the model: features={self.features}, {sum(known)} rows")
        self.vectors_, self.strategy_ = (nn.Parameter(tensors[name].to(device)) for name in shapes)
