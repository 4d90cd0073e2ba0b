"""The network of DySAT: structural attention, then temporal attention, from a block of snapshots to embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from dysat.nn.ops.sparse import look_up
from dysat.nn.structural import Side, StructuralAttention
from dysat.nn.temporal import FeedForward, History, Scale, TemporalAttention
from dysat.sampling.blocks import Block, Pattern
from dysat.sampling.distinct import Distinct
from dysat.sampling.nearby import Nearby, nearby

PARTIAL_BELOW = 0.65  # if training needs a smaller fraction of all rows, the last structural layer skips the others


@dataclass(frozen=True, eq=False)
class QueryPlan:
    """The rows and histories needed to compute the embeddings of some queries (node, step), and nothing else.

    The histories number their rows as follows: first the `active` rows of the block, then the nodes without links
    (`isolated`, a Pattern.lookup), then one row of zeros if `zero`. With several temporal layers, `cells` holds the
    (node, step) that the layers below the last compute: as histories over rows, then over the cells themselves.
    """

    active: Tensor
    isolated: Pattern
    zero: bool
    last: History
    cells: tuple[History, History] | None = None


@dataclass(frozen=True, eq=False)
class Inputs:
    """Node attributes, if any: one row per node, or per row of the block if `per_row`.  # [N, F] or [A, F]"""

    values: Tensor | None = None
    per_row: bool = False


class AttentionNetwork(nn.Module):
    """Structural layers, position embeddings, temporal layers and a feed-forward layer.

    Without structural layers, the temporal layers take a projection of the input. Without temporal layers, the
    embedding is the structural output. With `times`, temporal attention uses the distance between two steps instead
    of position embeddings. `structural` and `temporal` are (heads, features) of each layer, `dropout` is the rate of
    the structural and of the temporal layers, and `width` is the width of the input projection.

    Shapes:
        - block: a `Block` with A rows over N nodes and T steps; inputs: [N, F] or [A, F]
        - plan: a `QueryPlan` of Q queries over S rows
        - output: [Q, d]
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
        self.position = _xavier(num_steps, width, generator) if temporal and times is None else None
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
        """Plan the embeddings of these (node, step).  # each [Q]"""
        if len(self.temporal) > 1:
            return self._plan_layers(block, nodes, steps)
        past, at = block.histories(nodes, steps)
        active, isolated, zero, index = needed_rows(block, past.senders)
        size = len(active) + isolated.num_receivers + zero
        last = make_history(past, at, index, size, steps, block.num_steps)
        return QueryPlan(active, isolated, zero, last)

    def forward(
        self,
        block: Block,
        inputs: Inputs,
        plan: QueryPlan,
        *,
        fan_out: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the embeddings of a plan's queries.  # [Q, d]"""
        x = self.rows(block, inputs, plan, fan_out=fan_out, generator=generator)
        return self.attend(x, plan, generator=generator)

    def attend(self, x: Tensor, plan: QueryPlan, *, generator: torch.Generator | None = None) -> Tensor:
        """Return the embeddings of a plan's queries from the rows of its histories.  # [S, d] → [Q, d]"""
        x, position = self._below_last(x, plan, generator)
        if not len(self.temporal):
            return look_up(x, plan.last.rows)
        x = self._temporal()[-1](x, position, plan.last, generator=generator)
        return x if self.feedforward is None else _require(self.feedforward(x))

    def attention(self, x: Tensor, plan: QueryPlan) -> Tensor:
        """Return the last layer's weights β for every query, step of its past, and head.  # [S, d] → [P, H]"""
        x, position = self._below_last(x, plan, None)
        return self._temporal()[-1].attention(x, position, plan.last)

    def _below_last(
        self, x: Tensor, plan: QueryPlan, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor | None]:
        """Input of the last temporal layer, and the positions if it is also the first.  # [S, d], [T, d]"""
        position: Tensor | None = self.position
        if plan.cells is not None:
            history = plan.cells[0]
            for layer in self._temporal()[:-1]:
                x = layer(x, position, history, generator=generator)
                history, position = plan.cells[1], None
        return x, position

    def rows(
        self,
        block: Block,
        inputs: Inputs,
        plan: QueryPlan,
        *,
        fan_out: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the structural outputs of the rows a plan needs.  # [S, d]

        With `fan_out`, only these rows and their neighbours are computed, and a row with more neighbours than that
        draws as many if there is a generator.
        """
        parts = [
            self._active(block, inputs, plan.active, generator)
            if fan_out is None
            else self._nearby(block, inputs, plan.active, fan_out, generator)
        ]
        if plan.isolated.num_receivers:
            parts.append(self._isolated(plan.isolated, inputs, generator))
        if plan.zero:
            parts.append(parts[0].new_zeros(1, parts[0].shape[1]))
        return torch.cat(parts)

    def _active(self, block: Block, inputs: Inputs, rows: Tensor, generator: torch.Generator | None) -> Tensor:
        """Structural outputs of the given rows of the block.  # [A'] → [A', d]"""
        nodes: Pattern | None = block.nodes
        x = inputs.values
        if x is not None and not inputs.per_row:
            x = x.index_select(0, block.node)
        if self.input is not None:
            z = self._input(nodes, x)
            return z if len(rows) == len(z) else z.index_select(0, rows)
        # Outside training, all rows are always computed, so that the same row has the same bits in every graph.
        partial = generator is not None and len(rows) < PARTIAL_BELOW * block.num_active
        part = block.links.part(rows) if partial else None
        *below, last = self._structural()
        for layer in below:
            x = layer(nodes, x, block.links, block.weights, generator=generator)
            nodes = None
        z = last(nodes, x, block.links, block.weights, part=part, generator=generator)
        return z if len(z) == len(rows) else look_up(z, Pattern.lookup(rows, len(z)))

    def _nearby(
        self, block: Block, inputs: Inputs, rows: Tensor, fan_out: int, generator: torch.Generator | None
    ) -> Tensor:
        """The same from the neighbourhoods of the given rows alone.  # [A'] → [A', d]"""
        layers, near = self._structural(), list[Nearby]()
        for layer in reversed(layers):
            near.insert(0, nearby(block, near[0].rows if near else rows, layer.normalize, fan_out, generator))
        inner = near[0].rows if near else rows
        nodes = block.node.index_select(0, inner)
        x = inputs.values
        if x is not None:
            x = x.index_select(0, inner if inputs.per_row else nodes)
        ids: Pattern | None = Pattern.lookup(nodes, block.num_nodes) if self.tables() else None
        if self.input is not None:
            return self._input(ids, x)
        for layer, there in zip(layers, near, strict=True):
            x = layer.nearby(ids, x, there, generator=generator)
            ids = None
        return _require(x)

    def tables(self) -> list[nn.Parameter]:
        """The parameters with a row of learned weights for every node."""
        return [p for name, p in self.named_parameters() if name.endswith("table")]

    def _isolated(self, nodes: Pattern, inputs: Inputs, generator: torch.Generator | None) -> Tensor:
        """Structural outputs of nodes without links.  # [L, d]"""
        x = None if inputs.values is None else inputs.values.index_select(0, nodes.senders)
        if self.input is not None:
            return self._input(nodes, x)
        ids: Pattern | None = nodes
        for layer in self._structural():
            x = layer.isolated(ids, x, linked=self.self_loops, generator=generator)
            ids = None
        return _require(x)

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

    def _plan_layers(self, block: Block, nodes: Tensor, steps: Tensor) -> QueryPlan:
        """The plan of several temporal layers, whose cells are all (node, step) in the past of the queries."""
        past, at = block.histories(nodes, steps)
        cells, index = torch.unique(nodes[past.receivers] * block.num_steps + at, return_inverse=True)
        last = make_history(past, at, index, len(cells), steps, block.num_steps)
        inner_nodes, inner_steps = cells // block.num_steps, cells % block.num_steps
        inner, inner_at = block.histories(inner_nodes, inner_steps)
        active, isolated, zero, index = needed_rows(block, inner.senders)
        size = len(active) + isolated.num_receivers + zero
        from_rows = make_history(inner, inner_at, index, size, inner_steps, block.num_steps)
        own = torch.searchsorted(cells, inner_nodes[inner.receivers] * block.num_steps + inner_at)
        from_cells = make_history(inner, inner_at, own, len(cells), inner_steps, block.num_steps)
        return QueryPlan(active, isolated, zero, last, (from_rows, from_cells))


def needed_rows(block: Block, rows: Tensor) -> tuple[Tensor, Pattern, bool, Tensor]:
    """Return the distinct rows among these, as in `QueryPlan`, and the index of each row among the distinct ones.

    Returns the active rows, the isolated nodes, whether the row of zeros is needed, and the indices.
    """
    active, nodes = block.num_active, block.num_nodes
    needed = Distinct.of(rows, active + nodes + 1)
    first, zero = torch.searchsorted(needed.numbers, rows.new_tensor([active, active + nodes])).tolist()
    isolated = Pattern.lookup(needed.numbers[first:zero] - active, nodes)
    return needed.numbers[:first], isolated, zero < len(needed.numbers), needed.places(rows)


def make_history(
    past: Pattern, at: Tensor, senders: Tensor, num_senders: int, steps: Tensor, num_steps: int
) -> History:
    """Make the history of a past with other sender numbers; the last entry of each query is the query itself."""
    own = Pattern.lookup(senders[past.offsets[1:] - 1], num_senders)
    return History(own, steps, Pattern(past.receivers, senders, past.offsets, num_senders), at, num_steps)


def _input_weights(num_nodes: int, num_features: int, width: int, generator: torch.Generator) -> nn.ParameterDict:
    """Weights that project a node's identity, attributes or both to the input of the temporal layers."""
    weights = nn.ParameterDict()
    for name, rows in (("table", num_nodes), ("weight", num_features)):
        if rows:
            weights[name] = _xavier(rows, width, generator)
    return weights


def _xavier(rows: int, width: int, generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, width), generator=generator))


def _require(x: Tensor | None) -> Tensor:
    if x is None:
        raise TypeError("the network has no layer")
    return x
