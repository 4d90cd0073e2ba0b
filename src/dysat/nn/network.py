"""Structural attention, then temporal attention: what turns a block of snapshots into embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from dysat.nn.ops.sparse import look_up
from dysat.nn.structural import Side, StructuralAttention
from dysat.nn.temporal import FeedForward, History, Scale, TemporalAttention
from dysat.sampling.blocks import Block, Pattern

FEW = 0.65  # of all rows; with fewer, training leaves the others out of the last structural layer


@dataclass(frozen=True, eq=False)
class QueryPlan:
    """What must be computed for some (node, step), and nothing else.

    The rows of the histories are `active` rows of the block, then nodes without links (`lonely`, a Pattern.lookup),
    then one of zeros if `zero`. With several temporal layers, `cells` are the (node, step) that those below the
    last compute: first from rows, then from each other.
    """

    active: Tensor
    lonely: Pattern
    zero: bool
    last: History
    cells: tuple[History, History] | None = None


@dataclass(frozen=True, eq=False)
class Inputs:
    """Node attributes, or none: one row per node, or (`per_row`) one per row of the block.  # [N, F] or [A, F]"""

    values: Tensor | None = None
    per_row: bool = False


class AttentionNetwork(nn.Module):
    """The two blocks of attention, with positions between them and a feed-forward layer after.

    Without structural layers a node's input goes straight to the temporal ones; without temporal layers the embedding
    is the structural output. With `times` temporal attention sees how far apart two steps are, not where.
    """

    def __init__(
        self,
        *,
        num_nodes: int,
        num_features: int,
        num_steps: int,
        structural: tuple[tuple[int, int], ...],
        temporal: tuple[tuple[int, int], ...],
        width: int,
        normalize: Side,
        self_loops: bool,
        attention_bias: bool,
        scale: Scale,
        residual: bool,
        feedforward: Literal["transformer", "skip", "none"],
        dropout: tuple[float, float],
        times: Tensor | None = None,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.self_loops = self_loops
        layers, nodes, features, rate = [], num_nodes, num_features, dropout[1]
        for heads, size in structural:
            layers.append(
                StructuralAttention(
                    size,
                    heads,
                    num_nodes=nodes,
                    in_features=features,
                    normalize=normalize,
                    bias=attention_bias,
                    residual=residual,
                    rate=dropout[0],
                    generator=generator,
                )
            )
            nodes, features, width = 0, size, size
        self.structural = nn.ModuleList(layers)
        self.input = None if structural else _input_weights(num_nodes, num_features, width, generator)
        self.position = _drawn(num_steps, width, generator) if temporal and times is None else None
        steps: list[TemporalAttention] = []
        for heads, size in temporal:
            steps.append(
                TemporalAttention(
                    width, size, heads, scale=scale, residual=residual, rate=rate, times=times, generator=generator
                )
            )
            width = size
        self.temporal = nn.ModuleList(steps)
        self.feedforward = None
        if temporal and feedforward != "none":
            self.feedforward = FeedForward(width, feedforward, generator=generator)
        self.width = width

    def plan(self, block: Block, nodes: Tensor, steps: Tensor) -> QueryPlan:
        """What the embeddings of these (node, step) need.  # each [Q]"""
        if len(self.temporal) > 1:
            return self._deep_plan(block, nodes, steps)
        past, at = block.histories(nodes, steps)
        active, lonely, zero, compact = needed(block, past.senders)
        size = len(active) + lonely.num_receivers + zero
        return QueryPlan(
            active, lonely, zero, renumbered(past, at, compact[past.senders], size, steps, block.num_steps)
        )

    def forward(
        self, block: Block, inputs: Inputs, plan: QueryPlan, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Embeddings of the queries of a plan.  # [Q, d]"""
        return self.attend(self.rows(block, inputs, plan, generator=generator), plan, generator=generator)

    def attend(self, x: Tensor, plan: QueryPlan, *, generator: torch.Generator | None = None) -> Tensor:
        """Embeddings of the queries of a plan, from the rows of its histories.  # [S, d] → [Q, d]"""
        x, position = self._below_last(x, plan, generator)
        if not len(self.temporal):
            return look_up(x, plan.last.rows)
        x = self._temporal()[-1](x, position, plan.last, generator=generator)
        return x if self.feedforward is None else _present(self.feedforward(x))

    def attention(self, x: Tensor, plan: QueryPlan) -> Tensor:
        """The last layer's weights β for every query, step of its past, and head.  # [S, d] → [P, H]"""
        x, position = self._below_last(x, plan, None)
        return self._temporal()[-1].attention(x, position, plan.last)

    def _below_last(
        self, x: Tensor, plan: QueryPlan, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor | None]:
        """What the last temporal layer is given; positions are added by the first.  # [S, d], [T, d]"""
        position: Tensor | None = self.position
        if plan.cells is not None:
            history = plan.cells[0]
            for layer in self._temporal()[:-1]:
                x = layer(x, position, history, generator=generator)
                history, position = plan.cells[1], None
        return x, position

    def rows(
        self, block: Block, inputs: Inputs, plan: QueryPlan, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Structural outputs of the rows a plan needs.  # [S, d]"""
        parts = [self._active(block, inputs, plan.active, generator)]
        if plan.lonely.num_receivers:
            parts.append(self._lonely(plan.lonely, inputs, generator))
        if plan.zero:
            parts.append(parts[0].new_zeros(1, parts[0].shape[1]))
        return torch.cat(parts)

    def _active(self, block: Block, inputs: Inputs, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        """Structural outputs of some rows with links."""
        nodes: Pattern | None = block.nodes
        x = inputs.values
        if x is not None and not inputs.per_row:
            x = x.index_select(0, block.node)
        if self.input is not None:
            z = self._input(nodes, x)
            return z if len(rows) == len(z) else z.index_select(0, rows)
        # Without dropout every row is computed the same way, whatever else the graph holds: bit for bit.
        few = generator is not None and len(rows) < FEW * block.num_active
        part = block.links.part(rows) if few else None
        *below, last = self._structural()
        for layer in below:
            x = layer(nodes, x, block.links, block.weights, generator=generator)
            nodes = None
        z = last(nodes, x, block.links, block.weights, part=part, generator=generator)
        return z if len(z) == len(rows) else look_up(z, Pattern.lookup(rows, len(z)))

    def _lonely(self, nodes: Pattern, inputs: Inputs, generator: torch.Generator | None) -> Tensor:
        x = None if inputs.values is None else inputs.values.index_select(0, nodes.senders)
        if self.input is not None:
            return self._input(nodes, x)
        ids: Pattern | None = nodes
        for layer in self._structural():
            x = layer.alone(ids, x, linked=self.self_loops, generator=generator)
            ids = None
        return _present(x)

    def _structural(self) -> list[StructuralAttention]:
        return cast(list[StructuralAttention], list(self.structural))

    def _temporal(self) -> list[TemporalAttention]:
        return cast(list[TemporalAttention], list(self.temporal))

    def _input(self, nodes: Pattern | None, x: Tensor | None) -> Tensor:
        parts = []
        if self.input is not None and "table" in self.input and nodes is not None:
            parts.append(look_up(self.input["table"], nodes))
        if self.input is not None and "weight" in self.input and x is not None:
            parts.append(x @ self.input["weight"])
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def _deep_plan(self, block: Block, nodes: Tensor, steps: Tensor) -> QueryPlan:
        past, at = block.histories(nodes, steps)
        cells, index = torch.unique(nodes[past.receivers] * block.num_steps + at, return_inverse=True)
        last = renumbered(past, at, index, len(cells), steps, block.num_steps)
        inner_nodes, inner_steps = cells // block.num_steps, cells % block.num_steps
        inner, inner_at = block.histories(inner_nodes, inner_steps)
        active, lonely, zero, compact = needed(block, inner.senders)
        size = len(active) + lonely.num_receivers + zero
        from_rows = renumbered(inner, inner_at, compact[inner.senders], size, inner_steps, block.num_steps)
        own = torch.searchsorted(cells, inner_nodes[inner.receivers] * block.num_steps + inner_at)
        from_cells = renumbered(inner, inner_at, own, len(cells), inner_steps, block.num_steps)
        return QueryPlan(active, lonely, zero, last, (from_rows, from_cells))


def needed(block: Block, rows: Tensor) -> tuple[Tensor, Pattern, bool, Tensor]:
    """The distinct rows among these: with links, without, nothing; and the new number of every row."""
    active, nodes = block.num_active, block.num_nodes
    mark = torch.zeros(active + nodes + 1, dtype=torch.bool, device=rows.device)
    mark[rows] = True
    compact = mark.cumsum(0) - 1
    lonely = Pattern.lookup(mark[active:-1].nonzero()[:, 0], nodes)
    return mark[:active].nonzero()[:, 0], lonely, bool(mark[-1]), compact


def renumbered(past: Pattern, at: Tensor, senders: Tensor, num_senders: int, steps: Tensor, num_steps: int) -> History:
    """A past whose senders are renumbered; the last entry of each query is the query itself."""
    own = Pattern.lookup(senders[past.offsets[1:] - 1], num_senders)
    return History(own, steps, Pattern(past.receivers, senders, past.offsets, num_senders), at, num_steps)


def _input_weights(num_nodes: int, num_features: int, width: int, generator: torch.Generator) -> nn.ParameterDict:
    """What turns a node, its attributes or both into the input of temporal layers."""
    weights = nn.ParameterDict()
    for name, rows in (("table", num_nodes), ("weight", num_features)):
        if rows:
            weights[name] = _drawn(rows, width, generator)
    return weights


def _drawn(rows: int, width: int, generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, width), generator=generator))


def _present(x: Tensor | None) -> Tensor:
    if x is None:
        raise TypeError("a layer without input")
    return x
