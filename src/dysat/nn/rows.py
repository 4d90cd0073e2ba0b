"""Rows of an adjacency matrix as what a network is given and as what it should make again, never as a dense array."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from dysat.data.csr import Snapshot


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a matrix: what stands in the i-th begins at offsets[i].

    Shapes: offsets [B + 1], columns [K], values [K].
    """

    offsets: Tensor
    columns: Tensor
    values: Tensor

    @classmethod
    def of(cls, snapshot: Snapshot) -> Rows:
        """The rows of all known nodes, those without links empty."""
        counts = snapshot.offsets.new_zeros(snapshot.num_nodes + 1)
        counts[snapshot.rows + 1] = snapshot.offsets.diff()
        return cls(counts.cumsum(0), snapshot.neighbours, snapshot.weights.to(torch.get_default_dtype()))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def owners(self) -> Tensor:
        """In which row each value stands.  # [K]"""
        return torch.repeat_interleave(self.offsets.diff())

    def take(self, nodes: Tensor) -> Rows:
        """The rows of these nodes, in their order.  # [B]"""
        sizes = self.offsets.diff()[nodes]
        offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        entries = torch.repeat_interleave(self.offsets[nodes] - offsets[:-1], sizes)
        entries += torch.arange(len(entries), device=entries.device)
        return Rows(offsets, self.columns[entries], self.values[entries])

    def times(self, table: Tensor) -> Tensor:
        """The product with a dense matrix.  # [N, d] → [B, d]"""
        return embedding_bag(self.columns, table, self.offsets[:-1], mode="sum", per_sample_weights=self.values)

    def squared_error(self, made: Tensor, link_weight: float) -> Tensor:
        """Σ_j b_ij² (x̂_ij − x_ij)² of each row i, with b = `link_weight` where x has an entry, and 1 elsewhere.

        Shapes: made [B, N] → [B].
        """
        owners = self.owners
        at = made[owners, self.columns]
        # Everywhere as if x were 0; then the few places where it is not.
        links = link_weight**2 * (at - self.values).square() - at.square()
        return made.square().sum(1).index_add(0, owners, links)
