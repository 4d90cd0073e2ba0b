"""Sparse rows of an adjacency matrix, as input of an autoencoder and as what it reconstructs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from dysat.data.csr import Snapshot


@dataclass(frozen=True, eq=False)
class Rows:
    """B rows of a matrix with K values; those of row i are offsets[i] … offsets[i + 1].

    Shapes: offsets [B + 1], columns [K], values [K].
    """

    offsets: Tensor
    columns: Tensor
    values: Tensor

    @classmethod
    def of(cls, snapshot: Snapshot) -> Rows:
        """The rows of all known nodes; those without links are empty."""
        counts = snapshot.offsets.new_zeros(snapshot.num_nodes + 1)
        counts[snapshot.rows + 1] = snapshot.offsets.diff()
        return cls(counts.cumsum(0), snapshot.neighbours, snapshot.weights.to(torch.get_default_dtype()))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def owners(self) -> Tensor:
        """Row number of each value.  # [K]"""
        return torch.repeat_interleave(self.offsets.diff())

    def take(self, nodes: Tensor) -> Rows:
        """Return the rows of these nodes, in the given order.  # [B]"""
        sizes = self.offsets.diff()[nodes]
        offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        entries = torch.repeat_interleave(self.offsets[nodes] - offsets[:-1], sizes)
        entries += torch.arange(len(entries), device=entries.device)
        return Rows(offsets, self.columns[entries], self.values[entries])

    def times(self, table: Tensor) -> Tensor:
        """Return the product with a dense matrix.  # [N, d] → [B, d]"""
        return embedding_bag(self.columns, table, self.offsets[:-1], mode="sum", per_sample_weights=self.values)

    def squared_error(self, reconstructed: Tensor, link_weight: float) -> Tensor:
        """Return Σ_j b_ij² (x̂_ij − x_ij)² of each row i, with b = `link_weight` where x has an entry, and 1 elsewhere.

        Shapes: reconstructed [B, N] → [B].
        """
        owners = self.owners
        at = reconstructed[owners, self.columns]
        # First as if x were 0 everywhere, then correct the few entries where it is not.
        links = link_weight**2 * (at - self.values).square() - at.square()
        return reconstructed.square().sum(1).index_add(0, owners, links)
