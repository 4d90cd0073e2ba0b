"""Who looks back at what: the entries that temporal attention runs over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from dysat.sampling.blocks import Pattern


@dataclass(frozen=True, eq=False)
class History:
    """Who looks back at what: Q queries, each a row at a step, and the rows of the same node up to that step.

    Shapes: rows: a Pattern.lookup of the queries' own rows, steps [Q]; past: a Pattern of Q receivers and S senders
        with P entries; past_steps [P].
    """

    rows: Pattern
    steps: Tensor
    past: Pattern
    past_steps: Tensor
    num_steps: int

    @cached_property
    def asked(self) -> tuple[Pattern, Tensor]:
        """Two entries for every query, its row and S + its step; and their weights, all 1.  # [2 Q, 1]"""
        both = torch.stack([self.rows.senders, self.past.num_senders + self.steps], 1)  # [Q, 2]
        counts = torch.full_like(self.steps, 2)
        asked = Pattern.from_counts(counts, both.flatten(), self.past.num_senders + self.num_steps)
        return asked, torch.ones(both.numel(), 1, dtype=torch.float32, device=both.device)

    @cached_property
    def used(self) -> tuple[Pattern, Tensor]:
        """By whom each row, and after the S rows each step, is looked at; and each one's entry of the past.  # [2 P]"""
        past, size = self.past, self.past.num_senders + self.num_steps
        looked_at = torch.cat([past.senders, past.num_senders + self.past_steps])
        entries = torch.sort(looked_at, stable=True).indices
        entries = torch.where(entries < past.num_entries, entries, entries - past.num_entries)
        counts = looked_at.new_zeros(size).index_add_(0, looked_at, torch.ones_like(looked_at))
        return Pattern.from_counts(counts, past.receivers[entries], past.num_receivers), entries
