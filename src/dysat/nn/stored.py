"""Histories whose past steps are stored rows, for a network that keeps only the graph of the newest step (IncSAT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.nn.network import QueryPlan, make_history, needed_rows
from dysat.nn.temporal import History
from dysat.sampling.blocks import Block, Pattern, Unknown

Rows = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class LookBack:
    """A plan whose histories hold the rows of the newest step's block, followed by stored rows.

    If there is no block (`live` is false), at most one row of zeros precedes the stored rows.

    Shapes: nodes [Q]; seen [W, Q]: whether each query's node has a row in each of the W stored steps.
    """

    plan: QueryPlan
    nodes: Tensor
    seen: Tensor
    live: bool

    def stored(self, summary: Sequence[Rows]) -> Tensor:
        """Return a copy of the stored rows the histories need, step by step.  # [S', d]"""
        nodes, seen = self.nodes.cpu().numpy(), self.seen.cpu().numpy()
        steps = np.flatnonzero(seen.any(1)).tolist()
        parts = [summary[step][nodes[seen[step]]] for step in steps]
        width = summary[0].shape[1] if len(summary) else 0
        rows = np.concatenate(parts) if parts else np.empty((0, width), dtype=np.float32)
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.nodes.device)


def look_back(
    nodes: Tensor, known: Sequence[int], block: Block | None, num_steps: int, unknown: Unknown, layers: int
) -> LookBack:
    """Plan the embeddings of these nodes at the block's step, or at the last stored step if there is no block.

    Args:
        nodes: the queried nodes, all known at that step.  # [Q]
        known: number of nodes with a row in each stored step. The block's step comes after them.
        block: the block of the newest snapshot, or None.
        num_steps: number of positions.
        unknown: whether steps before a node is known are masked or a row of zeros.
        layers: number of temporal layers.
    """
    device = nodes.device
    seen = nodes < torch.tensor(known, dtype=torch.int64, device=device)[:, None]  # [W, Q]
    empty = torch.empty(0, dtype=torch.int64, device=device)
    own = empty if block is None else block.row_of[nodes, 0]
    if block is None:
        active, isolated, zero, index = empty, Pattern.lookup(empty, 0), False, empty
    else:
        active, isolated, zero, index = needed_rows(block, own)
    before_known = unknown == "zero" and not bool(seen.all())  # steps before a node is known are a row of zeros
    zero_row = len(active) + isolated.num_receivers
    live = zero_row + int(zero or before_known)  # rows before the stored ones
    stored = live + (seen.flatten().cumsum(0) - 1).view_as(seen)
    rows = torch.where(seen, stored, zero_row if unknown == "zero" else -1)
    if block is not None:
        rows = torch.cat([rows, index[None]])
    rows = rows.t()  # [Q, W']
    attended = rows >= 0
    at = torch.arange(rows.shape[1], device=device).expand_as(rows)[attended]
    past = Pattern.from_counts(attended.sum(1), rows[attended], live + int(seen.sum()))
    steps = torch.full_like(nodes, rows.shape[1] - 1)
    plan = QueryPlan(active, isolated, bool(zero or before_known), *_histories(past, at, steps, num_steps, layers))
    return LookBack(plan, nodes, seen, block is not None)


def _histories(
    past: Pattern, at: Tensor, steps: Tensor, num_steps: int, layers: int
) -> tuple[History, tuple[History, History] | None]:
    """The history of the queries and, with several layers, that of every entry: its query's entries up to itself."""
    if layers < 2:
        return make_history(past, at, past.senders, past.num_senders, steps, num_steps), None
    entries = torch.arange(past.num_entries, device=at.device)
    first = past.offsets[past.receivers]
    counts = entries - first + 1
    query = torch.repeat_interleave(entries, counts)
    attended = torch.arange(len(query), device=at.device) - (counts.cumsum(0) - counts)[query] + first[query]
    inner = Pattern.from_counts(counts, past.senders[attended], past.num_senders)
    from_rows = make_history(inner, at[attended], inner.senders, past.num_senders, at, num_steps)
    from_cells = make_history(inner, at[attended], attended, len(entries), at, num_steps)
    return make_history(past, at, entries, len(entries), steps, num_steps), (from_rows, from_cells)
