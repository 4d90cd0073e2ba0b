"""The entries that temporal attention runs over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dysat.sampling.blocks import Pattern


@dataclass(frozen=True, eq=False)
class History:
    """The past of Q queries: each query is a row at a step and attends to the rows of its node up to that step.

    Shapes: rows: a Pattern.lookup of the queries' own rows, steps [Q]; past: a Pattern of Q receivers and S senders
        with P entries; past_steps [P].
    """

    rows: Pattern
    steps: Tensor
    past: Pattern
    past_steps: Tensor
    num_steps: int

    @cached_property
    def row_plus_step(self) -> tuple[Pattern, Tensor]:
        """A pattern that adds each query's row and the position of its step (S + step), and its weights, all 1.

        Shapes: 2 Q entries over S + T senders, weights [2 Q, 1].
        """
        both = torch.stack([self.rows.senders, self.past.num_senders + self.steps], 1)  # [Q, 2]
        counts = torch.full_like(self.steps, 2)
        pattern = Pattern.from_counts(counts, both.flatten(), self.past.num_senders + self.num_steps)
        return pattern, torch.ones(both.numel(), 1, dtype=torch.float32, device=both.device)

    @cached_property
    def transposed_with_steps(self) -> tuple[Pattern, Tensor]:
        """The queries that attend to each row and, after the S rows, to each step; and the entry of the past of each.

        Shapes: a Pattern of S + T receivers with 2 P entries, entries [2 P].
        """
        past, size = self.past, self.past.num_senders + self.num_steps
        attended = torch.cat([past.senders, past.num_senders + self.past_steps])
        entries = torch.sort(attended, stable=True).indices
        entries = torch.where(entries < past.num_entries, entries, entries - past.num_entries)
        counts = attended.new_zeros(size).index_add_(0, attended, torch.ones_like(attended))
        return Pattern.from_counts(counts, past.receivers[entries], past.num_receivers), entries
