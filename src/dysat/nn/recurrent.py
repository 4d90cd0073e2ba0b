"""Windows of a node's rows, step by step: an encoder of each row, LSTMs over a window, a decoder of the last state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.nn.rows import Rows


@dataclass(frozen=True, eq=False)
class Windows:
    """What each cell, a (node, step) with the node known, looks back at: its rows in order of time.

    Cells are numbered step by step and node by node: those of step t are starts[t] … starts[t + 1] − 1. A window begins
    where its node is first known, or `length` steps before its end. Row 0 is the empty one, of all nodes without
    links; so many cells have equal windows, and each is here once.

    Shapes:
        starts [T + 1], row_of [C], window_of [C], windows [V, L] (rows; −1 after the last).
    """

    rows: Rows
    starts: Tensor
    row_of: Tensor
    window_of: Tensor
    windows: Tensor

    @classmethod
    def of(cls, graph: DynamicGraph, length: int, values: Callable[[Snapshot], Tensor]) -> Windows:
        """Of all steps of a graph, with `values` in place of the weights of a snapshot's entries."""
        device = graph[0].rows.device
        known = torch.tensor(graph.known, device=device)
        starts = torch.cat([known.new_zeros(1), known.cumsum(0)])  # [T + 1]
        nodes = torch.cat([torch.arange(number, device=device) for number in graph.known])  # [C]
        steps = torch.repeat_interleave(known)

        active = torch.cat([s.rows + starts[t] for t, s in enumerate(graph)])
        row_of = torch.zeros_like(nodes)
        row_of[active] = torch.arange(1, len(active) + 1, device=device)
        sizes = torch.cat([known.new_zeros(1), *(s.offsets.diff() for s in graph)])  # the first row is empty
        rows = Rows(
            torch.cat([known.new_zeros(1), sizes.cumsum(0)]),
            torch.cat([s.neighbours for s in graph]),
            torch.cat([values(s) for s in graph]).to(torch.get_default_dtype()),
        )

        first = torch.searchsorted(known, nodes, right=True)  # the step at which a node is known first
        begin = torch.maximum(steps - length + 1, first)
        at = begin[:, None] + torch.arange(min(length, len(graph)), device=device)  # [C, L]
        cells = starts[torch.minimum(at, steps[:, None])] + nodes[:, None]
        found = torch.where(at <= steps[:, None], row_of[cells], -1)
        windows, window_of = torch.unique(found, dim=0, return_inverse=True)
        return cls(rows, starts, row_of, window_of, windows)

    def targets(self) -> Tensor:
        """The row of its node one step later, for every cell that has a step after it; if none has, its own row."""
        before = int(self.starts[-2])  # cells before the last step
        cells = torch.arange(before, device=self.starts.device)
        steps = torch.repeat_interleave(self.starts[:-1].diff())
        return self.row_of[cells + self.starts.diff()[steps]] if before else self.row_of


class RecurrentAutoencoder(nn.Module):
    """ReLU layers make a short vector of each row, LSTMs read a window, and a decoder makes a row of the last state.

    The decoder's layers are the encoder's in reverse; the last one is linear.
    """

    def __init__(
        self, num_nodes: int, encoder: Sequence[int], recurrent: Sequence[int], *, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(num_nodes, encoder[0]))  # of the first layer, which is given sparse rows
        self.bias = nn.Parameter(torch.empty(encoder[0]))
        self.encoder = nn.ModuleList(nn.Linear(*sizes) for sizes in pairwise(encoder))
        self.recurrent = nn.ModuleList(
            nn.LSTM(*sizes, batch_first=True) for sizes in pairwise((encoder[-1], *recurrent))
        )
        self.decoder = nn.ModuleList(nn.Linear(*sizes) for sizes in pairwise((recurrent[-1], *reversed(encoder))))
        self.output = nn.Linear(encoder[0], num_nodes)
        for name, p in self.named_parameters():
            gates = 4 if name.startswith("recurrent.") else 1  # of an LSTM, one below the other
            # Glorot and Bengio 2010; biases begin at 0.
            bound = math.sqrt(6 / (p.shape[0] // gates + p.shape[1])) if p.ndim > 1 else 0.0
            nn.init.uniform_(p, -bound, bound, generator=generator)

    def forward(self, rows: Rows, windows: Tensor) -> Tensor:
        """The last state of each window.  # [V, L] → [V, d]"""
        used, at = torch.unique(windows.clamp(min=0), return_inverse=True)
        x = torch.relu(rows.take(used).times(self.table) + self.bias)  # [R, width]
        for layer in self.encoder:
            x = torch.relu(layer(x))
        x = x[at]  # [V, L, width]
        for layer in self.recurrent:
            x, _ = layer(x)
        # An LSTM does not look ahead: what stands after a window's last row has no say in the state there.
        last = (windows >= 0).sum(1) - 1
        return x[torch.arange(len(x), device=x.device), last]

    def decode(self, e: Tensor) -> Tensor:
        """What the linear layer `output` is given.  # [B, d] → [B, width]"""
        for layer in self.decoder:
            e = torch.relu(layer(e))
        return e

    def weights(self) -> list[nn.Parameter]:
        """All parameters but biases."""
        return [p for p in self.parameters() if p.ndim > 1]


def linear_error(rows: Rows, x: Tensor, output: nn.Linear, link_weight: float) -> Tensor:
    """Σ_j b_ij² (ŷ_ij − y_ij)² of each row y_i, with ŷ = W x + c and b = `link_weight` where y has an entry, else 1.

    It is `Rows.squared_error` of ŷ without ŷ: Σ_j ŷ_j² = xᵀ (WᵀW) x + 2 xᵀ Wᵀc + cᵀc needs no array as wide as
    the graph has nodes. Time goes with N · width² for a batch, and not with B · N · width.

    Shapes: x [B, width] → [B].
    """
    w, c = output.weight, output.bias  # [N, width], [N]
    everywhere = ((x @ (w.T @ w)) * x).sum(1) + 2 * x @ (w.T @ c) + c @ c  # as if y were 0
    owners = rows.owners
    at = (x.index_select(0, owners) * w.index_select(0, rows.columns)).sum(1) + c.index_select(0, rows.columns)
    links = link_weight**2 * (at - rows.values).square() - at.square()
    return everywhere.index_add(0, owners, links)
