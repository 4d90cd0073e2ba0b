"""The parts DySAT and IncSAT share: two blocks of attention, learned from random walks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal

import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.inputs import check_features
from dysat.models.base.memory import GraphSize
from dysat.models.base.trained import Task, TrainedModel, load_weights
from dysat.nn.adam import only_rows
from dysat.nn.device import choose_device
from dysat.nn.network import AttentionNetwork, Inputs, QueryPlan
from dysat.nn.structural import Side
from dysat.nn.temporal import Scale
from dysat.nn.walk_objective import Examples, Reduction, Sharing, WalkSampler, walk_loss
from dysat.sampling.blocks import Block, LinkWeights, Unknown, whole_block
from dysat.system.parallel.ranks import ranks
from dysat.training import Settings

Sizes = tuple[int, ...]
# Known (node, step) up to which every step of training computes all of them. Beyond, it computes those it needs.
MOST_ROWS = {"cpu": 200_000, "cuda": 2_000_000}
FAN_OUT = 64  # neighbours that a row then attends to in training; of more, as many are drawn
NODES_AT_ONCE = 2_048  # nodes whose embeddings are then computed at once
MOST = 0.9  # share of all rows above which computing all of them is cheaper than selecting


@dataclass(kw_only=True, eq=False)
class AttentionModel(TrainedModel):
    """Attention over a node's neighbours in a snapshot, then over its own history: options, network, walks.

    The defaults here follow the authors' program; DySAT has its own.
    """

    structural_heads: Annotated[Sizes, "Attention heads of each structural layer"] = (16, 8)
    structural_features: Annotated[Sizes, "Features of each structural layer, all heads together"] = (256, 128)
    temporal_heads: Annotated[Sizes, "Attention heads of each temporal layer"] = (16,)
    temporal_features: Annotated[Sizes, "Features of each temporal layer; the last is the size of embeddings"] = (128,)
    blocks: Annotated[Literal["both", "structural", "temporal"], "Attention blocks to use"] = "both"
    inputs: Annotated[
        Literal["identity", "features", "both"], "Input of a node: a learned vector, its features, or both"
    ] = "identity"
    history: Annotated[int | None, "Number of latest snapshots to use; none uses all"] = None
    normalize: Annotated[Side, "Structural softmax over the senders of a receiver, or the receivers of a sender"] = (
        "sender"
    )
    link_weights: Annotated[LinkWeights, "Link weights in structural attention: raw, or D^-½ A D^-½"] = "normalized"
    add_self_loops: Annotated[bool, "Add a link from every node to itself"] = True
    attention_bias: Annotated[bool, "Use biases in the structural attention logits"] = True
    scale: Annotated[Scale, "Scale of temporal attention logits: 1/√features or 1/√steps"] = "steps"
    residual: Annotated[bool, "Add the input of each attention layer to its output"] = False
    feedforward: Annotated[Literal["transformer", "skip", "none"], "Layer after temporal attention"] = "skip"
    unknown: Annotated[Unknown, "A node before it appears: masked, or a zero vector that is attended to"] = "zero"
    structural_dropout: Annotated[float, "Dropout on the inputs and the attention of structural layers"] = 0.1
    temporal_dropout: Annotated[float, "Dropout on the attention of temporal layers"] = 0.0
    walks_per_node: Annotated[int, "Random walks per node and snapshot"] = 10
    walk_length: Annotated[int, "Nodes on a random walk"] = 20
    window: Annotated[int, "Largest distance on a walk at which two nodes are contexts of each other"] = 10
    contexts: Annotated[int, "Contexts sampled per node, snapshot and epoch"] = 10
    negatives: Annotated[int, "Negative samples per context, or per batch and snapshot if shared"] = 10
    sharing: Annotated[Sharing, "Draw negatives for every positive, or share them within a batch and snapshot"] = (
        "shared"
    )
    negative_weight: Annotated[float, "Weight of negative samples in the loss, w_n"] = 1.0
    reduction: Annotated[Reduction, "Walk loss as a sum, or as a mean per snapshot"] = "mean"
    l2: Annotated[float, "Weight of the L2 penalty ½ Σ p²"] = 5e-4
    l2_on: Annotated[Literal["all", "structural"], "Parameters with an L2 penalty"] = "structural"
    clip_norm: Annotated[float | None, "Largest norm of the gradient; larger ones are scaled down"] = 1.0
    learning_rate: Annotated[float, "Learning rate of Adam"] = 1e-3
    batch_size: Annotated[int, "Nodes per batch"] = 512
    epochs: Annotated[int, "Largest number of epochs"] = 200
    patience: Annotated[int | None, "Stop after this many epochs without a better validation score"] = None
    seed: Annotated[int, "Random seed"] = 0
    device: Annotated[str, "Device: cpu, cuda, cuda:1, …; auto takes CUDA if available"] = "auto"

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

    def _least_memory(self, size: GraphSize) -> float:
        """Weights with gradients and moments."""
        structural = () if self.blocks == "temporal" else self.structural_features
        temporal = () if self.blocks == "structural" else self.temporal_features
        weights = sum(a * b for a, b in pairwise(structural))
        weights += sum(3 * a * b for a, b in pairwise((self.structural_features[-1], *temporal)))  # Q, K and V
        if self._counts_table(size):
            weights += size.nodes * (structural or self.structural_features[-1:])[0]
        return float(self._bytes_per_weight * weights)

    def _counts_table(self, size: GraphSize) -> bool:
        """Whether every node of a graph of this size has a learned vector."""
        return self.inputs != "features"

    @property
    def _sizes(self) -> tuple[str, ...]:
        """The options that the memory depends on."""
        return ("structural_features", "temporal_features")

    def check_inputs(self, graph: DynamicGraph) -> None:
        if self._needs_features(graph):
            first = 0 if self.history is None else max(0, len(graph) - self.history)
            check_features(graph[first:], self.inputs, first)

    def _needs_features(self, graph: DynamicGraph) -> bool:
        return self.inputs != "identity"

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self._build(device)
        self.scorer_ = torch.ones(self.network_.width), torch.zeros(())  # e_u · e_v
        sampler = self.sampler(generator)
        weights = dict(self.network_.named_parameters())
        return Task(self.loss(sampler), weights, sampler.nodes(), frozenset(self._penalized()))

    @torch.no_grad()
    def embed(self, step: int = -1, *, nodes: Tensor | None = None) -> Tensor:
        """Return the embeddings of the nodes known at a step, in node order.  # [known, d]

        `nodes` are ids to embed these nodes only.
        """
        self._must_be_fitted()
        parts = self._looked_at(self._check_step(step), nodes)
        return self._of_all_ranks(torch.cat([self.network_.attend(x, plan) for x, plan in parts]), nodes)

    @torch.no_grad()
    def attention(self, step: int = -1, *, nodes: Tensor | None = None) -> Tensor:
        """Return how much each node known at a step attends to each step, as a mean over heads.  # [known, steps]

        Columns are the steps that the model knows, up to the given one. `nodes` are ids to look at these nodes only.
        """
        self._must_be_fitted()
        if self.blocks == "structural":
            raise ModelError("blocks='structural': there is no temporal attention to show")
        at = self._check_step(step)
        tables = []
        for x, plan in self._looked_at(at, nodes):
            beta = self.network_.attention(x, plan).mean(1)  # [P]
            past = plan.last.past
            table = beta.new_zeros(past.num_receivers, at - self.steps().start + 1)
            table[past.receivers, plan.last.past_steps] = beta
            tables.append(table)
        return self._of_all_ranks(torch.cat(tables), nodes)

    def _of_all_ranks(self, table: Tensor, nodes: Tensor | None) -> Tensor:
        """The rows of all ranks, if each has computed its share; without parts, those of some of all nodes."""
        if not self._in_parts:
            return table if nodes is None else table[nodes.to(table.device)]
        if ranks().size == 1:
            return table
        return torch.cat([part["rows"] for _, part in ranks().gathered(None, {"rows": table})]).to(table.device)

    def _looked_at(self, step: int, some: Tensor | None = None) -> Iterator[tuple[Tensor, QueryPlan]]:
        """Structural outputs that the nodes known at a step attend to, and the plan for them, in parts.  # [S, d]

        In parts, they are those of this rank's share of the nodes, or of some of them.
        """
        if not self._in_parts:
            plan = self._plan_step(step)
            yield self.network_.rows(self.block_, self.inputs_, plan), plan
            return
        at = step - self.steps().start
        device = self.block_.node.device
        every = torch.arange(self.block_.known[at], device=device) if some is None else some.to(device)
        for nodes in torch.split(every.tensor_split(ranks().size)[ranks().rank], NODES_AT_ONCE):
            plan = self.network_.plan(self.block_, nodes, torch.full_like(nodes, at))
            yield self.network_.rows(self.block_, self.inputs_, plan, fan_out=FAN_OUT), plan

    def sampler(self, generator: torch.Generator) -> WalkSampler:
        """Draw random walks in every snapshot and return a sampler of training examples from them."""
        return WalkSampler.from_graph(
            self._recent().to(generator.device),
            walks_per_node=self.walks_per_node,
            walk_length=self.walk_length,
            window=self.window,
            num_contexts=self.contexts,
            num_negatives=self.negatives,
            sharing=self.sharing,
            stored=not self._in_parts,
            generator=generator,
        )

    def loss(self, sampler: WalkSampler) -> Callable[[Tensor, torch.Generator], Tensor]:
        """Return the loss of a batch as a function.

        On CUDA every batch computes all rows, so that shapes never change, unless there are too many.
        """
        drawn, in_parts = sampler.block, self._in_parts
        whole = None if in_parts else self.network_.plan(self.block_, drawn.node, drawn.step)
        fixed = whole is not None and drawn.node.is_cuda

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            examples = sampler.draw(batch, generator, fixed_shape=fixed)
            plan, examples = (whole, examples) if fixed else self._compact(drawn, examples, whole)
            fan_out = FAN_OUT if in_parts else None
            e = self.network_(self.block_, self.inputs_, plan, fan_out=fan_out, generator=generator)
            value = walk_loss(
                e, examples, negative_weight=self.negative_weight, sharing=self.sharing, reduction=self.reduction
            )
            return value * self._summed_by_ranks

        return loss

    @property
    def _summed_by_ranks(self) -> int:
        """The factor of a loss on a share of a batch: gradients are averaged over ranks, also if losses are summed."""
        return ranks().size if self.reduction == "sum" else 1

    def penalty(self) -> Tensor:
        """Return ½ l2 Σ p² over the penalised parameters."""
        parameters = dict(self.network_.named_parameters())
        return 0.5 * self.l2 * torch.stack([parameters[name].square().sum() for name in self._penalized()]).sum()

    def _penalized(self) -> list[str]:
        names = [name for name, _ in self.network_.named_parameters()]
        # Authors' program: structural weights only, without biases.
        return [n for n in names if self.l2_on == "all" or (n.startswith("structural.") and not n.endswith(".bias"))]

    def _settings(self, num_items: int) -> Settings:
        return Settings(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            l2=self.l2,
            clip_norm=self.clip_norm,
            patience=self.patience,
            capture=not self._in_parts,  # steps that compute other rows each time cannot be recorded
        )

    def _build(self, device: torch.device) -> None:
        """Build the block of the graph, the inputs, and a network with initial weights."""
        self._look_at(self._recent().to(device))
        self._build_network(device)

    def _build_network(self, device: torch.device) -> None:
        """Build a network with initial weights."""
        graph = self._recent()
        weights = torch.Generator().manual_seed(int(self.seed))  # the same initial weights on every device
        self.network_ = self._network(graph.num_nodes, len(graph), weights).to(device)

    # A model that was loaded builds these when embeddings are asked for: forecasts may not need them.
    @cached_property
    def block_(self) -> Block:
        """All snapshots as one graph of rows."""
        self._look_at(self._recent().to(choose_device(self.device)))
        return self.block_

    @cached_property
    def inputs_(self) -> Inputs:
        """Inputs of the rows or of the nodes."""
        self._look_at(self._recent().to(choose_device(self.device)))
        return self.inputs_

    def _look_at(self, graph: DynamicGraph) -> None:
        """Build the block of a graph and the inputs."""
        inputs = self._inputs(graph)
        self.block_ = whole_block(
            graph,
            link_weights=self.link_weights,
            self_loops=self.add_self_loops,
            lonely=self.add_self_loops or self.residual or self.blocks == "temporal",
            unknown=self.unknown,
            every_step=inputs.per_row,
        )
        values = None if inputs.values is None else inputs.values.to(self.block_.weights.dtype)
        self.inputs_ = replace(inputs, values=values)

    def _inputs(self, graph: DynamicGraph) -> Inputs:
        """Input features of the nodes: the same for all steps, or of every step."""
        features = graph.features if self.inputs != "identity" else None
        return Inputs(torch.cat(features), per_row=True) if isinstance(features, tuple) else Inputs(features)

    def _num_inputs(self, graph: DynamicGraph) -> int:
        """The number of input features, without the learned vectors."""
        return graph.num_features if self.inputs != "identity" else 0

    @property
    def _has_table(self) -> bool:
        """Whether every node has a learned vector."""
        return self.inputs != "features"

    def _times(self) -> Tensor | None:
        """Times of the steps for attention by distance; None for position embeddings.  # [T]"""
        return None

    def _network(self, num_nodes: int, num_steps: int, generator: torch.Generator) -> AttentionNetwork:
        """A network for a number of nodes and positions, with initial weights."""
        structural = tuple(zip(self.structural_heads, self.structural_features, strict=True))
        temporal = tuple(zip(self.temporal_heads, self.temporal_features, strict=True))
        network = AttentionNetwork(
            num_nodes=num_nodes if self._has_table else 0,
            num_features=self._num_inputs(self.graph_),
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
        for table in network.tables() if self._in_parts else ():
            only_rows(table)
        return network

    @property
    def _in_parts(self) -> bool:
        """Whether rows are computed as they are needed, because all of them would take too much memory or time."""
        return self._num_rows > MOST_ROWS[choose_device(self.device).type]

    @property
    def _num_rows(self) -> int:
        """The number of known (node, step)."""
        return sum(self.graph_.known[self.steps().start :])

    def _recent(self) -> DynamicGraph:
        return self.graph_ if self.history is None else self.graph_[-self.history :]

    def steps(self) -> range:
        first = 0 if self.history is None else max(0, len(self.graph_) - self.history)
        return range(first, len(self.graph_))

    def _plan_step(self, step: int) -> QueryPlan:
        """The plan for all nodes known at a step."""
        at = step - self.steps().start
        nodes = torch.arange(self.block_.known[at], device=self.block_.node.device)
        return self.network_.plan(self.block_, nodes, torch.full_like(nodes, at))

    def _compact(self, block: Block, examples: Examples, whole: QueryPlan | None) -> tuple[QueryPlan, Examples]:
        """Plan only the rows that the examples use, or all of them if that is most rows anyway."""
        used = examples.rows_used(block.num_active)
        rows = used.nonzero()[:, 0]
        if whole is not None and len(rows) > MOST * len(used):
            return whole, examples
        return self.network_.plan(self.block_, block.node[rows], block.step[rows]), examples.renumbered(used)

    def _learned(self) -> dict[str, Tensor]:
        return dict(self.network_.state_dict())

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name in ("block_", "inputs_"):
            vars(self).pop(name, None)
        self._build_network(choose_device(self.device))
        load_weights(self.network_, tensors)


def _divisors(number: int) -> str:
    """The divisors of a number, as a hint."""
    if not 1 <= number <= 1 << 20:
        return ""
    return f"; divisors are {', '.join(str(d) for d in range(1, number + 1) if number % d == 0)}"
