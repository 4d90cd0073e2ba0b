"""DySAT's objective: nodes that co-occur on random walks score high, negative samples score low."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from dysat.data.graph import DynamicGraph
from dysat.nn.ops.sparse import kernels_for, pair_dot
from dysat.sampling.blocks import Block, Pattern, whole_block
from dysat.sampling.negatives import Negatives
from dysat.sampling.walks import Contexts, FreshContexts, random_walks

Sharing = Literal["per-positive", "shared"]
Reduction = Literal["sum", "mean"]


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of a batch, with contexts (rows met on random walks) and negative samples.

    Shapes:
        rows, steps, weights [M]; a row of weight 0 does not count. contexts [M, C]. negatives [M, K'], or [T, K] if
        all rows of a step share them.
    """

    rows: Tensor
    steps: Tensor
    weights: Tensor
    contexts: Tensor
    negatives: Tensor
    num_steps: int

    def rows_used(self, num_rows: int) -> Tensor:
        """Mask the rows of the block that occur in these examples.  # [A]"""
        used = torch.zeros(num_rows, dtype=torch.bool, device=self.rows.device)
        for rows in (self.rows, self.contexts, self.negatives):
            used[rows.flatten()] = True
        return used

    def renumbered(self, used: Tensor) -> Examples:
        """The same examples, with row numbers counted among the used rows.  # used [A]"""
        number = used.cumsum(0) - 1
        rows, contexts, negatives = number[self.rows], number[self.contexts], number[self.negatives]
        return replace(self, rows=rows, contexts=contexts, negatives=negatives)


@dataclass(frozen=True, eq=False)
class WalkSampler:
    """Draws the examples of a batch of nodes, for all snapshots at once."""

    block: Block
    contexts: Contexts | FreshContexts
    negatives: Negatives
    num_contexts: int
    num_negatives: int
    sharing: Sharing

    @classmethod
    def from_graph(
        cls,
        graph: DynamicGraph,
        *,
        walks_per_node: int,
        walk_length: int,
        window: int,
        num_contexts: int,
        num_negatives: int,
        sharing: Sharing,
        stored: bool = True,
        generator: torch.Generator,
    ) -> WalkSampler:
        """Walk along the links of every snapshot by their raw weights, from every node that has a link.

        Unless `stored`, walks are drawn for each batch, and `walks_per_node` has no effect.
        """
        block = whole_block(graph, dtype=torch.float64)
        csr = block.links.offsets, block.links.senders, block.weights
        contexts: Contexts | FreshContexts
        if stored:
            starts = torch.arange(block.num_active, device=block.node.device).repeat_interleave(walks_per_node)
            walks = random_walks(*csr, starts, walk_length, generator=generator)
            contexts = Contexts.from_walks(walks, block.num_active, window)
        else:
            contexts = FreshContexts.from_csr(*csr, length=walk_length, window=window)
        negatives = Negatives.by_degree(block.degrees, block.steps)
        return cls(block, contexts, negatives, num_contexts, num_negatives, sharing)

    def nodes(self) -> Tensor:
        """The nodes that have contexts in some snapshot.  # [≤ N]"""
        nodes: Tensor = torch.unique(self.block.node[self.contexts.linked])
        return nodes

    def draw(self, nodes: Tensor, generator: torch.Generator, *, fixed_shape: bool = False) -> Examples:
        """Draw examples of these nodes, where −1 means no node.

        Only (node, step) with a context are examples. With `fixed_shape` the others stay, with weight 0.

        Shapes: nodes [B]; M = B · T with `fixed_shape`, else the number of (node, step) with a context.
        """
        block = self.block
        rows = block.row_of.index_select(0, nodes.clamp(min=0))  # [B, T]
        valid = (nodes >= 0)[:, None] & (rows >= 0) & (rows < block.num_active)
        rows = torch.where(valid, rows, 0)
        valid &= self.contexts.linked[rows]
        rows = rows.flatten() if fixed_shape else rows[valid]
        weights = valid.flatten().to(block.weights.dtype)
        weights = weights if fixed_shape else weights.new_ones(len(rows))
        contexts = self.contexts.draw(rows, self.num_contexts, generator=generator)
        steps = block.step.index_select(0, rows)
        if self.sharing == "shared":
            groups = torch.arange(block.num_steps, device=rows.device)[:, None].expand(-1, self.num_negatives)
        else:
            groups = steps[:, None].expand(-1, self.num_contexts * self.num_negatives)
        negatives = self.negatives.draw(groups, generator=generator)
        return Examples(rows, steps, weights, contexts.clamp(min=0), negatives.clamp(min=0), block.num_steps)


def walk_loss(
    e: Tensor, examples: Examples, *, negative_weight: float, sharing: Sharing, reduction: Reduction
) -> Tensor:
    """Binary cross-entropy of embeddings against contexts and negatives, Eq. (5).

        Σ_t Σ_v ( Σ_u −log σ(e_u · e_v) + w_n Σ_n −log σ(−e_n · e_v) )

    The sums run over the contexts u and the negatives n of v. Paper: sums, and separate negatives for every context.
    Authors' program: means per snapshot, and negatives shared by all rows of a snapshot.

    Shapes: e [Q, d]; all indices of the examples are rows of e.
    """
    context_scores, negative_scores = _scores(e, examples, sharing)
    positive = functional.softplus(-context_scores).sum(1)  # [M]
    negative = functional.softplus(negative_scores).sum(1)  # [M]
    count = examples.negatives.shape[1]
    weights = examples.weights
    if reduction == "sum":
        # Shared negatives count once for every context.
        times = examples.contexts.shape[1] if sharing == "shared" else 1
        return (weights * (positive + negative_weight * times * negative)).sum()
    totals = weights.new_zeros(examples.num_steps).index_add_(0, examples.steps, weights).clamp_(min=1)
    shares = weights / totals.index_select(0, examples.steps)
    return (shares * (positive / examples.contexts.shape[1] + negative_weight * negative / count)).sum()


def _scores(e: Tensor, examples: Examples, sharing: Sharing) -> tuple[Tensor, Tensor]:
    """Dot products of every row with its contexts and with its negatives.  # [M, C], [M, K]"""
    own = e.index_select(0, examples.rows)  # [M, d]
    contexts, negatives = examples.contexts, examples.negatives
    if e.is_cpu and kernels_for(e, 1, e.shape[1]):
        negatives = negatives.index_select(0, examples.steps) if sharing == "shared" else negatives
        both = _dots(own, e, torch.cat([contexts, negatives], 1))
        context_scores, negative_scores = torch.split(both, [contexts.shape[1], negatives.shape[1]], 1)
        return context_scores, negative_scores
    if sharing == "per-positive":
        return _dots(own, e, contexts), _dots(own, e, negatives)
    count = negatives.shape[1]
    others = e.index_select(0, negatives.flatten())  # [T · K, d]
    scores = (own @ others.T).view(len(own), examples.num_steps, count)  # [M, T, K]
    scores = scores.gather(1, examples.steps[:, None, None].expand(-1, 1, count))[:, 0]  # [M, K]
    return _dots(own, e, contexts), scores


def _dots(own: Tensor, e: Tensor, others: Tensor) -> Tensor:
    """own_m · e_{others_mk}.  # [M, d], [Q, d], [M, K] → [M, K]"""
    if e.device.type != "cpu":
        gathered = e.index_select(0, others.flatten()).view(*others.shape, -1)
        return torch.bmm(gathered, own[:, :, None])[:, :, 0]
    counts = torch.full((len(own),), others.shape[1], dtype=torch.int64)
    pattern = Pattern.from_counts(counts, others.flatten(), len(e))
    return pair_dot(own[:, None, :], e[:, None, :], pattern).view(others.shape)
