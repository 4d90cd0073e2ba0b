"""What DySAT and IncSAT have in common: two blocks of attention, learned from random walks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.inputs import check_features
from dysat.models.base.trained import Task, TrainedModel, load_weights
from dysat.nn.device import choose_device
from dysat.nn.network import AttentionNetwork, Inputs, QueryPlan
from dysat.nn.structural import Side
from dysat.nn.temporal import Scale
from dysat.nn.walk_objective import Examples, Reduction, Sharing, WalkSampler, walk_loss
from dysat.sampling.blocks import Block, LinkWeights, Unknown, whole_block
from dysat.training import Settings

Sizes = tuple[int, ...]
MOST = 0.9  # of all rows; from there on leaving some out costs more than it saves


@dataclass(kw_only=True, eq=False)
class AttentionModel(TrainedModel):
    """Attention over a node's neighbours in a snapshot, then over its own history: options, network, walks.

    The defaults follow the paper's text.
    """

    structural_heads: Annotated[Sizes, "heads of each structural layer"] = (16, 8)
    structural_features: Annotated[Sizes, "features of each structural layer, all heads together"] = (256, 128)
    temporal_heads: Annotated[Sizes, "heads of each temporal layer"] = (16,)
    temporal_features: Annotated[Sizes, "features of each temporal layer; the last is the embedding's"] = (128,)
    blocks: Annotated[Literal["both", "structural", "temporal"], "which blocks of attention there are"] = "both"
    inputs: Annotated[
        Literal["identity", "features", "both"], "what a node begins with: its identity, its features, or both"
    ] = "identity"
    history: Annotated[int | None, "use the last so many snapshots only"] = None
    normalize: Annotated[Side, "structural softmax over a receiver's senders, or a sender's receivers"] = "receiver"
    link_weights: Annotated[LinkWeights, "link weights in the logits: raw, or D^-½ A D^-½"] = "raw"
    add_self_loops: Annotated[bool, "link every node with itself"] = False
    attention_bias: Annotated[bool, "biases in the structural logits"] = False
    scale: Annotated[Scale, "temporal logits by 1/√features, or 1/√steps"] = "features"
    residual: Annotated[bool, "add each attention layer's input to its output"] = False
    feedforward: Annotated[Literal["transformer", "skip", "none"], "the layer after temporal attention"] = "transformer"
    unknown: Annotated[Unknown, "a node before it is known: masked, or a zero vector attended to"] = "masked"
    structural_dropout: Annotated[float, "on the input and the attention of structural layers"] = 0.1
    temporal_dropout: Annotated[float, "on the attention of temporal layers"] = 0.5
    walks_per_node: Annotated[int, "random walks from each node in each snapshot"] = 10
    walk_length: Annotated[int, "nodes on a walk"] = 40
    window: Annotated[int, "nodes so near on a walk are contexts of each other"] = 10
    contexts: Annotated[int, "contexts drawn for a node, snapshot and epoch"] = 10
    negatives: Annotated[int, "negatives for each context, or shared"] = 10
    sharing: Annotated[Sharing, "negatives for every context, or shared by a batch's nodes in a snapshot"] = (
        "per-positive"
    )
    negative_weight: Annotated[float, "w_n, the weight of negatives"] = 1.0
    reduction: Annotated[Reduction, "loss as sum, or as mean per snapshot"] = "sum"
    l2: Annotated[float, "weight of ½ Σ p² in the loss"] = 5e-4
    l2_on: Annotated[Literal["all", "structural"], "which parameters that is of"] = "all"
    clip_norm: Annotated[float | None, "bound on the norm of all gradients together"] = None
    learning_rate: Annotated[float, "of Adam"] = 1e-3
    batch_size: Annotated[int, "nodes in a batch"] = 256
    epochs: Annotated[int, "passes over all nodes, at most"] = 200
    patience: Annotated[int | None, "stop after so many epochs without a better validation score"] = None
    seed: Annotated[int, "of everything random"] = 0
    device: Annotated[str, "cpu, cuda, cuda:1, …; auto takes CUDA where there is one"] = "auto"

    def check(self) -> None:
        for block in ("structural", "temporal"):
            heads, features = getattr(self, f"{block}_heads"), getattr(self, f"{block}_features")
            if len(heads) != len(features) or not heads:
                raise ModelError(f"{block}_heads={heads} and {block}_features={features}: one of each for every layer")
            for h, f in zip(heads, features, strict=True):
                if h < 1 or f < 1 or f % h:
                    raise ModelError(f"{block}_heads={h} does not divide {block}_features={f}{_divisors(f)}")
        widths = {self.structural_features[-1], *self.temporal_features}
        if self.residual and self.blocks != "structural" and len(widths) > 1:
            given = f"temporal_features={self.temporal_features}"
            raise ModelError(
                f"residual=True, but {given} are not as wide as their input, {self.structural_features[-1]}"
            )
        self._at_least_one("walks_per_node", "walk_length", "window", "contexts", "negatives", "history")
        for name in ("structural_dropout", "temporal_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ModelError(f"{name}={getattr(self, name)} must lie in [0, 1)")
        self._not_negative("l2", "negative_weight")
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise ModelError(f"clip_norm={self.clip_norm} must be a number above 0")
        super().check()

    def check_graph(self, graph: DynamicGraph) -> None:
        super().check_graph(graph)
        if self._needs_features(graph):
            first = 0 if self.history is None else max(0, len(graph) - self.history)
            check_features(graph[first:], self.inputs, first)

    def _needs_features(self, graph: DynamicGraph) -> bool:
        return self.inputs != "identity"

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self._build(device)
        self.scorer_ = torch.ones(self.network_.width), torch.zeros(())  # e_u · e_v
        sampler = self.sampler(generator)
        items = torch.unique(sampler.block.node[sampler.contexts.num_pairs > 0])  # nodes with something to learn from
        return Task(self.loss(sampler), dict(self.network_.named_parameters()), items, frozenset(self._penalized()))

    @torch.no_grad()
    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order.  # [known, d]"""
        self._must_be_fitted()
        return self.network_.attend(*self._looked_at(self._check_step(step)))

    @torch.no_grad()
    def attention(self, step: int = -1) -> Tensor:
        """How much each node known at a step attends to each step up to it, mean over heads.  # [known, steps]

        The steps are those the model knows, from the first to the one asked for.
        """
        self._must_be_fitted()
        if self.blocks == "structural":
            raise ModelError("blocks='structural': without temporal attention there are no weights to show")
        at = self._check_step(step)
        x, plan = self._looked_at(at)
        beta = self.network_.attention(x, plan).mean(1)  # [P]
        past = plan.last.past
        table = beta.new_zeros(past.num_receivers, at - self.steps().start + 1)
        table[past.receivers, plan.last.past_steps] = beta
        return table

    def _looked_at(self, step: int) -> tuple[Tensor, QueryPlan]:
        """The rows in the histories of all nodes known at a step, and the plan of these.  # [S, d]"""
        plan = self._plan_step(step)
        return self.network_.rows(self.block_, self.inputs_, plan), plan

    def sampler(self, generator: torch.Generator) -> WalkSampler:
        """Walks over every snapshot, and what examples are drawn from."""
        return WalkSampler.from_graph(
            self._recent().to(generator.device),
            walks_per_node=self.walks_per_node,
            walk_length=self.walk_length,
            window=self.window,
            num_contexts=self.contexts,
            num_negatives=self.negatives,
            sharing=self.sharing,
            generator=generator,
        )

    def loss(self, sampler: WalkSampler) -> Callable[[Tensor, torch.Generator], Tensor]:
        """The loss of a batch of nodes. On CUDA all rows are computed for every batch, so that shapes never change."""
        drawn = sampler.block
        whole = self.network_.plan(self.block_, drawn.node, drawn.step)

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            examples = sampler.draw(batch, generator, fixed_shape=drawn.node.is_cuda)
            plan, examples = (whole, examples) if drawn.node.is_cuda else self._compact(drawn, examples, whole)
            e = self.network_(self.block_, self.inputs_, plan, generator=generator)
            return walk_loss(
                e, examples, negative_weight=self.negative_weight, sharing=self.sharing, reduction=self.reduction
            )

        return loss

    def penalty(self) -> Tensor:
        """½ l2 Σ p² over the parameters that are penalised."""
        parameters = dict(self.network_.named_parameters())
        return 0.5 * self.l2 * torch.stack([parameters[name].square().sum() for name in self._penalized()]).sum()

    def _penalized(self) -> list[str]:
        names = [name for name, _ in self.network_.named_parameters()]
        # Authors' program: weights of the structural layers without their biases.
        return [n for n in names if self.l2_on == "all" or (n.startswith("structural.") and not n.endswith(".bias"))]

    def _settings(self, num_items: int) -> Settings:
        return Settings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            l2=self.l2,
            clip_norm=self.clip_norm,
            patience=self.patience,
        )

    def _build(self, device: torch.device) -> None:
        """The block of the graph, the inputs, and a network with its first weights."""
        graph = self._recent()
        self._look_at(graph.to(device))
        weights = torch.Generator().manual_seed(self.seed)  # the same on every device
        self.network_ = self._network(graph.num_nodes, len(graph), weights).to(device)

    def _look_at(self, graph: DynamicGraph) -> None:
        """The block of a graph, and the inputs."""
        features = self._features(graph)
        every_step = isinstance(features, tuple)
        self.block_ = whole_block(
            graph,
            link_weights=self.link_weights,
            self_loops=self.add_self_loops,
            lonely=self.add_self_loops or self.residual or self.blocks == "temporal",
            unknown=self.unknown,
            every_step=every_step,
        )
        values = torch.cat(features) if isinstance(features, tuple) else features
        values = None if values is None else values.to(self.block_.weights.dtype)
        self.inputs_ = Inputs(values, per_row=every_step)

    def _features(self, graph: DynamicGraph) -> Tensor | tuple[Tensor, ...] | None:
        """What a node has as input besides its identity: of all steps, or of each."""
        return graph.features if self.inputs != "identity" else None

    def _times(self) -> Tensor | None:
        """Where steps stand on a scale on which attention sees distances; None: it sees positions.  # [T]"""
        return None

    def _network(self, num_nodes: int, num_steps: int, generator: torch.Generator) -> AttentionNetwork:
        """A network for so many nodes and positions, with its first weights."""
        structural = tuple(zip(self.structural_heads, self.structural_features, strict=True))
        temporal = tuple(zip(self.temporal_heads, self.temporal_features, strict=True))
        return AttentionNetwork(
            num_nodes=num_nodes if self.inputs != "features" else 0,
            num_features=0 if self.inputs_.values is None else self.inputs_.values.shape[1],
            num_steps=num_steps,
            structural=() if self.blocks == "temporal" else structural,
            temporal=() if self.blocks == "structural" else temporal,
            width=self.structural_features[-1],
            normalize=self.normalize,
            self_loops=self.add_self_loops,
            attention_bias=self.attention_bias,
            scale=self.scale,
            residual=self.residual,
            feedforward=self.feedforward,
            dropout=(self.structural_dropout, self.temporal_dropout),
            times=self._times(),
            generator=generator,
        )

    def _recent(self) -> DynamicGraph:
        return self.graph_ if self.history is None else self.graph_[-self.history :]

    def steps(self) -> range:
        first = 0 if self.history is None else max(0, len(self.graph_) - self.history)
        return range(first, len(self.graph_))

    def _plan_step(self, step: int) -> QueryPlan:
        """All nodes known at a step, at that step."""
        at = step - self.steps().start
        nodes = torch.arange(self.block_.known[at], device=self.block_.node.device)
        return self.network_.plan(self.block_, nodes, torch.full_like(nodes, at))

    def _compact(self, block: Block, examples: Examples, whole: QueryPlan) -> tuple[QueryPlan, Examples]:
        """The examples' own rows and no others; all, whose plan is there already, where they are most."""
        used = examples.rows_used(block.num_active)
        rows = used.nonzero()[:, 0]
        if len(rows) > MOST * len(used):
            return whole, examples
        return self.network_.plan(self.block_, block.node[rows], block.step[rows]), examples.renumbered(used)

    def _learned(self) -> dict[str, Tensor]:
        return dict(self.network_.state_dict())

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._build(choose_device(self.device))
        load_weights(self.network_, tensors)


def _divisors(number: int) -> str:
    """Those of a number a person may have meant."""
    if not 1 <= number <= 1 << 20:
        return ""
    return f"; divisors are {', '.join(str(d) for d in range(1, number + 1) if number % d == 0)}"
