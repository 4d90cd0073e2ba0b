"""All snapshots as one sparse graph: every (node, step) with links is a row, every link an entry between two rows.

The structural embedding of a node without links is the same in every step, so all those steps share one row. The cost
of a node therefore depends on its links, not on the number of snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError
from dysat.system.compiled import native

LinkWeights = Literal["raw", "normalized"]
Unknown = Literal["masked", "zero"]
PIECE = 32
LARGEST = 1e30  # link weight; results computed from weights must fit in a float32


class Pieces(NamedTuple):
    """The entries of a pattern in pieces: for each piece its receiver and first entry.

    `shared`: whether the receiver has more than one piece; `long`: the receivers with more than one piece.
    """

    receivers: Tensor
    firsts: Tensor
    shared: Tensor
    long: Tensor


@dataclass(frozen=True, eq=False)
class Pattern:
    """The entries of a sparse matrix [receivers × senders], in order of receiver.

    Shapes: receivers, senders [E]; offsets [R + 1]: the entries of receiver i are offsets[i] … offsets[i + 1].
    """

    receivers: Tensor
    senders: Tensor
    offsets: Tensor
    num_senders: int

    @classmethod
    def from_counts(cls, counts: Tensor, senders: Tensor, num_senders: int) -> Pattern:
        """Receiver i gets the next `counts[i]` of the senders."""
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        receivers = torch.arange(len(counts), device=counts.device)
        receivers = torch.repeat_interleave(receivers, counts, output_size=len(senders))
        return cls(receivers, senders, offsets, num_senders)

    @property
    def num_receivers(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_entries(self) -> int:
        return len(self.senders)

    @property
    def by_sender(self) -> Tensor:
        """Entry numbers sorted by sender, then by receiver.  # [E]"""
        return self._by_sender[0]

    @property
    def transposed(self) -> Pattern:
        """The transposed matrix; its entry i is entry `by_sender[i]` of this one."""
        return self._by_sender[1]

    @cached_property
    def _by_sender(self) -> tuple[Tensor, Pattern]:
        if self.senders.is_cpu and (call := native()):
            offsets = self.senders.new_empty(self.num_senders + 1)
            order, sorted_, others = self.senders.new_empty(3, self.num_entries)
            call(
                "transpose", self.senders, self.receivers, offsets, order, sorted_, others, len(order), len(offsets) - 1
            )
            return order, Pattern(sorted_, others, offsets, self.num_receivers)
        sorted_, order = torch.sort(self.senders, stable=True)
        counts = torch.zeros(self.num_senders, dtype=torch.int64, device=self.senders.device)
        counts.index_add_(0, self.senders, torch.ones_like(self.senders))
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return order, Pattern(sorted_, self.receivers[order], offsets, self.num_receivers)

    @classmethod
    def lookup(cls, rows: Tensor, num_senders: int) -> Pattern:
        """One entry per receiver: the row it looks up."""
        offsets = torch.arange(len(rows) + 1, device=rows.device)
        return cls(offsets[:-1], rows, offsets, num_senders)

    @cached_property
    def pieces(self) -> Pieces:
        """The entries in pieces of at most `PIECE`, so that a receiver with many entries is shared between workers."""
        counts = self.offsets.diff()
        number = (-(-counts // PIECE)).clamp(min=1)  # a receiver without entries has an empty piece
        receivers = torch.repeat_interleave(torch.arange(self.num_receivers, device=counts.device), number)
        nth = torch.arange(len(receivers), device=counts.device) - (number.cumsum(0) - number)[receivers]
        return Pieces(
            receivers,
            self.offsets[receivers] + nth * PIECE,
            (number > 1)[receivers],
            (number > 1).nonzero()[:, 0],
        )

    def part(self, receivers: Tensor) -> Part:
        """Select receivers with all their entries, and only the senders of those entries."""
        counts = self.offsets.diff()[receivers]
        total = int(counts.sum()) if len(counts) else 0
        first = self.offsets[receivers] - (counts.cumsum(0) - counts)
        entries = torch.repeat_interleave(first, counts, output_size=total)
        entries = entries + torch.arange(total, device=receivers.device)
        mark = torch.zeros(self.num_senders, dtype=torch.bool, device=receivers.device)
        mark[self.senders[entries]] = True
        senders = mark.nonzero()[:, 0]
        pattern = Pattern.from_counts(counts, (mark.cumsum(0) - 1)[self.senders[entries]], len(senders))
        return Part(receivers, senders, entries, pattern)

    def expanded(self, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Treat every head of every receiver as a separate receiver.

        Returns, for the entries in this order, their position in a flattened matrix [E, H] and their sender
        (sender · H + head), and the first entry of each receiver.  # [E · H], [E · H], [R · H]
        """
        if num_heads not in self._expanded:
            self._expanded[num_heads] = self._expand(num_heads)
        return self._expanded[num_heads]

    def is_short_lived(self, num_heads: int) -> bool:
        """Whether expanding does not pay off: one head needs none, and the pattern of a batch is used only twice."""
        self._uses[num_heads] = self._uses.get(num_heads, 0) + 1
        return num_heads == 1 or self._uses[num_heads] <= 2

    @cached_property
    def _uses(self) -> dict[int, int]:
        return {}

    @cached_property
    def _expanded(self) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
        return {}

    def _expand(self, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
        head = torch.arange(num_heads, device=self.senders.device)
        counts = self.offsets.diff()
        starts = self.offsets[:-1, None] * num_heads + head * counts[:, None]  # [R, H]
        entry = torch.arange(self.num_entries, device=self.senders.device)
        at = starts[self.receivers] + (entry - self.offsets[self.receivers])[:, None]  # [E, H]
        place = torch.empty(at.numel(), dtype=torch.int64, device=at.device)
        place[at.flatten()] = torch.arange(at.numel(), device=at.device)
        senders = (self.senders[:, None] * num_heads + head).flatten()[place]
        return place, senders, starts.flatten()


class Part(NamedTuple):
    """Selected receivers of a pattern [R'], their senders [S'], their entries [E'], and the pattern of these alone."""

    receivers: Tensor
    senders: Tensor
    entries: Tensor
    pattern: Pattern


@dataclass(frozen=True, eq=False)
class Block:
    """The whole graph as rows and entries.

    Rows 0 … A − 1 are the nodes with links, step by step; rows [steps[t], steps[t + 1]) belong to step t. Row A + n is
    node n in every step in which it has no links. Row A + N is all zero.

    Shapes: node, step [A]; steps [T + 1]; links: a Pattern of A rows, weights [E]; row_of [N, T], −1 where masked;
    known: T numbers of known nodes, on the host.
    """

    node: Tensor
    step: Tensor
    steps: Tensor
    links: Pattern
    weights: Tensor
    row_of: Tensor
    known: tuple[int, ...]

    @property
    def num_active(self) -> int:
        return len(self.node)

    @property
    def num_nodes(self) -> int:
        return len(self.row_of)

    @property
    def num_steps(self) -> int:
        return self.row_of.shape[1]

    @cached_property
    def nodes(self) -> Pattern:
        """The node whose input each row looks up."""
        return Pattern.lookup(self.node, self.num_nodes)

    @cached_property
    def degrees(self) -> Tensor:
        """Number of neighbours of each row, not counting the row itself.  # [A]"""
        others = (self.links.receivers != self.links.senders).to(torch.int64)
        return torch.zeros_like(self.node).index_add_(0, self.links.receivers, others)

    def histories(self, nodes: Tensor, steps: Tensor) -> tuple[Pattern, Tensor]:
        """For each query (node, step): the rows of that node up to and including that step, and their steps.

        Returns a pattern from queries to rows of the block, with P entries.  # nodes, steps [Q] → [P] steps
        """
        counts = steps + 1
        total = int(counts.sum()) if len(counts) else 0
        query = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), counts, output_size=total)
        first = counts.cumsum(0) - counts
        at = torch.arange(total, device=nodes.device) - first[query]  # [P] steps
        rows = self.row_of[nodes[query], at]
        # A query always sees its own step; if the node is not known yet, that is the zero row.
        rows = torch.where((rows < 0) & (at == steps[query]), self.num_active + self.num_nodes, rows)
        if bool((rows < 0).any()):
            seen = rows >= 0
            counts = torch.zeros_like(counts).index_add_(0, query[seen], torch.ones_like(query[seen]))
            rows, at = rows[seen], at[seen]
        return Pattern.from_counts(counts, rows, self.num_active + self.num_nodes + 1), at


def whole_block(
    graph: DynamicGraph,
    *,
    link_weights: LinkWeights = "raw",
    self_loops: bool = False,
    lonely: bool = True,
    unknown: Unknown = "masked",
    every_step: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Block:
    """Convert a graph to a block.

    `self_loops` adds a self-loop of weight 1 to every row. With `lonely`, a known node without links has a row of its
    own; otherwise it uses the zero row. `unknown` says whether a node is masked or zero before it is known. With
    `every_step`, a known node has a separate row in every step, for inputs that change with time.
    """
    known, device = graph.known, graph.device
    rows = [torch.arange(s.num_nodes, device=device) if every_step else s.rows for s in graph]
    counts = torch.tensor([len(r) for r in rows], device=device)
    steps = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    node = torch.cat(rows)
    step = torch.repeat_interleave(torch.arange(len(graph), device=device), counts)
    row_of = _rows(graph, node, step, lonely=lonely, unknown=unknown)

    parts, first = list[tuple[Tensor, Tensor, Tensor]](), 0
    for t, snapshot in enumerate(graph):  # one at a time, which needs less memory
        number = len(rows[t])
        receivers, senders, weights = _entries(snapshot, row_of[:, t] - first, number)
        if self_loops:
            receivers, senders, weights = _with_loops(receivers, senders, weights, number)
        if link_weights == "normalized":  # D^-½ A D^-½
            total = torch.zeros(number, dtype=weights.dtype, device=device).index_add_(0, receivers, weights)
            root = torch.where(total > 0, total.rsqrt(), 0)
            weights = weights * root[receivers] * root[senders]
        parts.append((torch.bincount(receivers, minlength=number), senders + first, weights))
        first += number
    entry_counts, senders, weights = (torch.cat(part) for part in zip(*parts, strict=True))
    if len(weights) and float(weights.max()) > LARGEST:
        raise GraphError(f"a link has weight {float(weights.max()):.3g}; models accept weights up to {LARGEST:.0e}")
    links = Pattern.from_counts(entry_counts, senders, len(node))
    return Block(node, step, steps, links, weights.to(dtype), row_of, known)


def _rows(graph: DynamicGraph, node: Tensor, step: Tensor, *, lonely: bool, unknown: Unknown) -> Tensor:
    """The row of every node at every step."""
    active, nodes = len(node), graph.num_nodes
    zero = active + nodes
    ids = torch.arange(nodes, device=node.device)
    known = ids[:, None] < torch.tensor(graph.known, device=node.device)  # [N, T]
    row_of = torch.where(known, (active + ids)[:, None] if lonely else zero, -1 if unknown == "masked" else zero)
    row_of[node, step] = torch.arange(active, device=node.device)
    return row_of


def _entries(snapshot: Snapshot, row_of: Tensor, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Receiving rows, sending rows and weights of a snapshot; its rows begin with 0.  # [N] → [E] each"""
    receivers, neighbours, weights = snapshot.entries()
    senders = row_of[neighbours]
    if len(senders) and int(senders.max()) >= num_rows:  # beyond the rows, which the C code would follow
        raise GraphError("a link is stored in the row of one of its nodes only")
    return row_of[receivers], senders, weights


def _with_loops(receivers: Tensor, senders: Tensor, weights: Tensor, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Add 1 to the self-loop of every row; entries stay in order of receiver."""
    loops = receivers == senders
    own = torch.ones(num_rows, dtype=weights.dtype, device=weights.device)
    own.index_add_(0, receivers[loops], weights[loops])
    rows = torch.arange(num_rows, device=receivers.device)
    receivers = torch.cat([receivers[~loops], rows])
    senders = torch.cat([senders[~loops], rows])
    weights = torch.cat([weights[~loops], own])
    order = torch.sort(receivers * num_rows + senders).indices
    return receivers[order], senders[order], weights[order]
