"""Histories of which all but the newest step are stored, for a network that forgets the graphs of the past."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.nn.network import QueryPlan, needed, renumbered
from dysat.nn.temporal import History
from dysat.sampling.blocks import Block, Pattern, Unknown

Rows = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LookBack:
    """A plan whose histories hold rows of the block of the newest step, and after them rows that are stored.

    Without a block (`live` is false) the rows before those that are stored are at most one of zeros.

    Shapes: seen [W, Q]: of which stored steps the queries' nodes have a row; nodes [Q].
    """

    plan: QueryPlan
    nodes: Tensor
    seen: Tensor
    live: bool

    def stored(self, summary: Sequence[Rows]) -> Tensor:
        """The stored rows of the histories, step by step, in memory of their own.  # [S', d]"""
        nodes, seen = self.nodes.cpu().numpy(), self.seen.cpu().numpy()
        parts = [rows[nodes[here]] for rows, here in zip(summary, seen, strict=True) if here.any()]
        width = summary[0].shape[1] if len(summary) else 0
        rows = np.concatenate(parts) if parts else np.empty((0, width), dtype=np.float32)
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.nodes.device)


def look_back(
    nodes: Tensor, known: Sequence[int], block: Block | None, num_steps: int, unknown: Unknown, layers: int
) -> LookBack:
    """What the embeddings of these nodes need, at the newest step of the block, or without one at the last stored.

    `known`: how many nodes have a row in each stored step; a step of the block comes after them. `num_steps` is the
    number of positions, `layers` that of temporal layers.  # nodes [Q], all known at the step they are asked about
    """
    device = nodes.device
    seen = nodes < torch.tensor(known, dtype=torch.int64, device=device)[:, None]  # [W, Q]
    empty = torch.empty(0, dtype=torch.int64, device=device)
    own = empty if block is None else block.row_of[nodes, 0]
    if block is None:
        active, lonely, zero, compact = empty, Pattern.lookup(empty, 0), False, empty
    else:
        active, lonely, zero, compact = needed(block, own)
    attended = unknown == "zero" and not bool(seen.all())  # nodes that were not there yet are a row of zeros
    nothing = len(active) + lonely.num_receivers
    live = nothing + int(zero or attended)
    number = live + (seen.flatten().cumsum(0) - 1).view_as(seen)
    rows = torch.where(seen, number, nothing if unknown == "zero" else -1)
    if block is not None:
        rows = torch.cat([rows, compact[own][None]])
    rows = rows.t()  # [Q, W']
    there = rows >= 0
    at = torch.arange(rows.shape[1], device=device).expand_as(rows)[there]
    past = Pattern.from_counts(there.sum(1), rows[there], live + int(seen.sum()))
    steps = torch.full_like(nodes, rows.shape[1] - 1)
    plan = QueryPlan(active, lonely, bool(zero or attended), *_histories(past, at, steps, num_steps, layers))
    return LookBack(plan, nodes, seen, block is not None)


def _histories(
    past: Pattern, at: Tensor, steps: Tensor, num_steps: int, layers: int
) -> tuple[History, tuple[History, History] | None]:
    """Of the queries; with several layers, of every entry too, which looks at those of its query up to itself."""
    if layers < 2:
        return renumbered(past, at, past.senders, past.num_senders, steps, num_steps), None
    entries = torch.arange(past.num_entries, device=at.device)
    first = past.offsets[past.receivers]
    counts = entries - first + 1
    asking = torch.repeat_interleave(entries, counts)
    looked_at = torch.arange(len(asking), device=at.device) - (counts.cumsum(0) - counts)[asking] + first[asking]
    inner = Pattern.from_counts(counts, past.senders[looked_at], past.num_senders)
    from_rows = renumbered(inner, at[looked_at], inner.senders, past.num_senders, at, num_steps)
    from_cells = renumbered(inner, at[looked_at], looked_at, len(entries), at, num_steps)
    return renumbered(past, at, entries, len(entries), steps, num_steps), (from_rows, from_cells)
