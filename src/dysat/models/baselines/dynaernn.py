"""DynAERNN: encode adjacency rows, read a window of them with LSTMs, decode the next row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.memory import GraphSize
from dysat.models.base.trained import Task, TrainedModel, load_weights
from dysat.nn.device import choose_device
from dysat.nn.rows import Rows

Sizes = tuple[int, ...]
BLOCK = 1 << 12  # windows embedded at once
MAX_WEIGHT = 1e15  # sums of squares of such weights stay far below the float32 limit


@dataclass(kw_only=True, eq=False)
class DynAERNN(TrainedModel):
    """Recurrent autoencoder of dynamic graphs: e_u^t is the last state of LSTMs over the encoded rows of u.

    Row a_u^k of the adjacency matrix of snapshot k passes through ReLU layers, shared by all steps; LSTMs read the last
    `history` of these up to step t; a decoder (the encoder's layers in reverse, the last one linear) predicts row
    t + 1 from the last state. Over all nodes u and all steps t but the last, the loss is

        mean_{u, t} ‖(â_u^{t+1} − a_u^{t+1}) ⊙ b‖² + ν1 Σ |W| + ν2 Σ W²,   b = β at links of u in t + 1, else 1

    where W are all weights except biases. A window begins no earlier than the first step at which its node is known; in
    a step without links the row is empty. A single snapshot has no next row: the model then reconstructs it.

    `embed` of an earlier step applies the trained network to the window that ends there.

    Attributes:
        graph_: The training graph.
        network_: The trained `RecurrentAutoencoder`.
        windows_: The `Windows` of the graph.
        epochs_: Loss, validation score and seconds of every epoch.
        finished_: Whether all epochs ran.

    Example:
        >>> import dysat
        >>> from dysat.models import DynAERNN
        >>> model = DynAERNN(epochs=1).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 128])

    References:
        Goyal, Chhetri, Canedo: dyngraph2vec: Capturing Network Dynamics using Dynamic Graph Representation Learning,
        Knowledge-Based Systems 187, 2020.
    """

    method: ClassVar[str] = "dynaernn"
    about: ClassVar[str] = "recurrent autoencoder of rows of the adjacency matrix"

    history: Annotated[int, "Number of snapshots in a window, including the current one"] = 3
    encoder: Annotated[Sizes, "Output features of each encoder layer; the decoder mirrors them"] = (128,)
    recurrent: Annotated[Sizes, "Output features of each LSTM; the last is the embedding size"] = (128, 128)
    link_weights: Annotated[
        Literal["raw", "binary", "normalized"], "Entries of a row: link weights, 1 per link, or D^-½ A D^-½"
    ] = "binary"
    beta: Annotated[float, "β: factor of the reconstruction error at links"] = 5.0
    nu1: Annotated[float, "ν1: weight of the L1 penalty Σ |W|"] = 1e-6
    nu2: Annotated[float, "ν2: weight of the L2 penalty Σ W²"] = 1e-6
    learning_rate: Annotated[float, "Learning rate of Adam"] = 2e-3
    batch_size: Annotated[int, "Number of (node, step) pairs per batch"] = 256
    epochs: Annotated[int, "Maximum number of passes over the nodes of all steps but the last"] = 30
    patience: Annotated[int | None, "Stop after this many epochs without a better validation score"] = None
    seed: Annotated[int, "Random seed"] = 0
    device: Annotated[str, "Device: cpu, cuda, cuda:1, …; auto uses CUDA if available"] = "auto"

    def check(self) -> None:
        for name in ("encoder", "recurrent"):
            if not (sizes := getattr(self, name)) or min(sizes) < 1:
                raise ModelError(f"{name}={sizes} must have one positive number per layer")
        if not 0 < self.beta < math.inf:
            raise ModelError(f"beta={self.beta} must be a finite number above 0")
        self._at_least_one("history")
        self._not_negative("nu1", "nu2")
        super().check()

    def check_graph(self, graph: DynamicGraph) -> None:
        super().check_graph(graph)
        largest = max((float(s.weights.abs().max()) for s in graph if len(s.weights)), default=0.0)
        if self.link_weights == "raw" and largest > MAX_WEIGHT:
            raise ModelError(
                f"link_weights='raw': a link has weight {largest:g}, above {MAX_WEIGHT:g}; use 'binary' or 'normalized'"
            )

    def _least_memory(self, size: GraphSize) -> float:
        # The first layer of the encoder and the last one of the decoder are as wide as the graph has nodes.
        weights = 2 * size.nodes * self.encoder[0] + sum(2 * a * b for a, b in pairwise(self.encoder))
        weights += sum(4 * b * (a + b) for a, b in pairwise((self.encoder[-1], *self.recurrent)))  # gates of the LSTMs
        return float(self._bytes_per_weight * weights)

    @property
    def _sizes(self) -> tuple[str, ...]:
        return ("encoder", "recurrent")

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self._build(device)
        self.scorer_ = torch.ones(self.recurrent[-1]), torch.zeros(())  # e_u · e_v
        targets = self.windows_.targets()
        items = torch.arange(len(targets), device=device)
        return Task(self.loss(targets), dict(self.network_.named_parameters()), items)

    def loss(self, targets: Tensor) -> Callable[[Tensor, torch.Generator], Tensor]:
        """Return the loss of a batch of cell indices (−1 is padding); `targets` are the rows to predict."""
        windows, network = self.windows_, self.network_

        def loss(batch: Tensor, _: torch.Generator) -> Tensor:
            cells = batch[batch >= 0]
            distinct, which = torch.unique(windows.window_of[cells], return_inverse=True)
            x = network.decode(network(windows.rows, windows.windows[distinct]))[which]  # [B, width]
            errors = linear_error(windows.rows.take(targets[cells]), x, network.output, self.beta)
            return errors.mean() + self.penalty()

        return loss

    def penalty(self) -> Tensor:
        """ν1 Σ |W| + ν2 Σ W²."""
        weights = self.network_.weights()
        total = weights[0].new_zeros(())
        if self.nu1:
            total = total + self.nu1 * torch.stack([W.abs().sum() for W in weights]).sum()
        if self.nu2:
            total = total + self.nu2 * torch.stack([W.square().sum() for W in weights]).sum()
        return total

    @torch.no_grad()
    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order.  # [known, d]"""
        self._must_be_fitted()
        windows, at = self.windows_, self._check_step(step)
        begin, end = windows.starts[at : at + 2].tolist()
        distinct, which = torch.unique(windows.window_of[begin:end], return_inverse=True)
        parts = [self.network_(windows.rows, windows.windows[part]) for part in distinct.split(BLOCK) if len(part)]
        return torch.cat(parts)[which] if parts else self.network_.table.new_empty(0, self.recurrent[-1])

    def _build(self, device: torch.device) -> None:
        """Create the windows and the network; its initial weights are the same on every device."""
        self.windows_ = Windows.of(self.graph_.to(device), self.history, self._values)
        with torch.random.fork_rng(devices=[]):  # torch's layers draw initial weights from the global generator
            generator = torch.Generator().manual_seed(int(self.seed))
            network = RecurrentAutoencoder(self.graph_.num_nodes, self.encoder, self.recurrent, generator=generator)
        self.network_ = network.to(device)

    def _values(self, snapshot: Snapshot) -> Tensor:
        """The value of each entry of a snapshot's rows.  # [E']"""
        if self.link_weights == "binary":
            return torch.ones_like(snapshot.weights)
        if self.link_weights == "raw":
            return snapshot.weights
        receivers, neighbours, weights = snapshot.entries()
        sums = weights.new_zeros(snapshot.num_nodes).index_add_(0, receivers, weights)
        scale = torch.where(sums > 0, sums, 1.0).rsqrt()
        return scale[receivers] * weights * scale[neighbours]

    def _learned(self) -> dict[str, Tensor]:
        return dict(self.network_.state_dict())

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._build(choose_device(self.device))
        load_weights(self.network_, tensors)


class RecurrentAutoencoder(nn.Module):
    """ReLU layers encode each row, LSTMs read a window of them, a mirrored decoder predicts a row from the last state.

    Shapes: rows of N columns, windows [V, L] → states [V, d] → [V, N].
    """

    def __init__(
        self, num_nodes: int, encoder: Sequence[int], recurrent: Sequence[int], *, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(num_nodes, encoder[0]))  # first encoder layer, applied to sparse rows
        self.bias = nn.Parameter(torch.empty(encoder[0]))
        self.encoder = nn.ModuleList(nn.Linear(*sizes) for sizes in pairwise(encoder))
        self.recurrent = nn.ModuleList(
            nn.LSTM(*sizes, batch_first=True) for sizes in pairwise((encoder[-1], *recurrent))
        )
        self.decoder = nn.ModuleList(nn.Linear(*sizes) for sizes in pairwise((recurrent[-1], *reversed(encoder))))
        self.output = nn.Linear(encoder[0], num_nodes)
        for name, p in self.named_parameters():
            gates = 4 if name.startswith("recurrent.") else 1  # an LSTM stacks its gates along dimension 0
            # Glorot and Bengio 2010; biases start at 0.
            bound = math.sqrt(6 / (p.shape[0] // gates + p.shape[1])) if p.ndim > 1 else 0.0
            nn.init.uniform_(p, -bound, bound, generator=generator)

    def forward(self, rows: Rows, windows: Tensor) -> Tensor:
        """Return the last state of each window.  # [V, L] → [V, d]"""
        used, position = torch.unique(windows.clamp(min=0), return_inverse=True)
        x = torch.relu(rows.take(used).times(self.table) + self.bias)  # [R, width]
        for layer in self.encoder:
            x = torch.relu(layer(x))
        x = x[position]  # [V, L, width]
        for layer in self.recurrent:
            x, _ = layer(x)
        # Padding comes after the last row of a window, so it does not affect the state there.
        last = (windows >= 0).sum(1) - 1
        return x[torch.arange(len(x), device=x.device), last]

    def decode(self, e: Tensor) -> Tensor:
        """Apply all decoder layers but the linear `output`.  # [B, d] → [B, width]"""
        for layer in self.decoder:
            e = torch.relu(layer(e))
        return e

    def weights(self) -> list[nn.Parameter]:
        """All parameters except biases."""
        return [p for p in self.parameters() if p.ndim > 1]


def linear_error(rows: Rows, x: Tensor, output: nn.Linear, link_weight: float) -> Tensor:
    """Σ_j b_ij² (ŷ_ij − y_ij)² of each row y_i, with ŷ = W x + c and b = `link_weight` where y has an entry, else 1.

    Equals `Rows.squared_error` of ŷ without computing ŷ, because Σ_j ŷ_j² = xᵀ (WᵀW) x + 2 xᵀ Wᵀc + cᵀc: no array has
    N columns, and a batch takes N · width² operations instead of B · N · width.

    Shapes: x [B, width] → [B].
    """
    w, c = output.weight, output.bias  # [N, width], [N]
    squares = ((x @ (w.T @ w)) * x).sum(1) + 2 * x @ (w.T @ c) + c @ c  # Σ_j ŷ_j²
    owners = rows.owners
    at_links = (x.index_select(0, owners) * w.index_select(0, rows.columns)).sum(1) + c.index_select(0, rows.columns)
    corrections = link_weight**2 * (at_links - rows.values).square() - at_links.square()
    return squares.index_add(0, owners, corrections)


@dataclass(frozen=True, eq=False)
class Windows:
    """The window of adjacency rows of each cell; a cell is a (node, step) pair with the node known at the step.

    Cells are numbered step by step and node by node: those of step t are starts[t] … starts[t + 1] − 1. A window begins
    at the first step at which its node is known, but at most `length` steps before its end. Row 0 is the empty row of
    all nodes without links; many cells share a window, which is stored once.

    Shapes:
        starts [T + 1], row_of [C], window_of [C], windows [V, L] (row indices in order of time, padded with −1).
    """

    rows: Rows
    starts: Tensor
    row_of: Tensor
    window_of: Tensor
    windows: Tensor

    @classmethod
    def of(cls, graph: DynamicGraph, length: int, values: Callable[[Snapshot], Tensor]) -> Windows:
        """Build the windows of all steps of a graph; `values` returns the row entries of a snapshot."""
        device = graph[0].rows.device
        known = torch.tensor(graph.known, device=device)
        starts = torch.cat([known.new_zeros(1), known.cumsum(0)])  # [T + 1]
        nodes = torch.cat([torch.arange(number, device=device) for number in graph.known])  # [C]
        steps = torch.repeat_interleave(known)

        active = torch.cat([s.rows + starts[t] for t, s in enumerate(graph)])
        row_of = torch.zeros_like(nodes)
        row_of[active] = torch.arange(1, len(active) + 1, device=device)
        sizes = torch.cat([known.new_zeros(1), *(s.offsets.diff() for s in graph)])  # row 0 is empty
        rows = Rows(
            torch.cat([known.new_zeros(1), sizes.cumsum(0)]),
            torch.cat([s.neighbours for s in graph]),
            torch.cat([values(s) for s in graph]).to(torch.get_default_dtype()),
        )

        first = torch.searchsorted(known, nodes, right=True)  # first step at which each node is known
        begin = torch.maximum(steps - length + 1, first)
        at = begin[:, None] + torch.arange(min(length, len(graph)), device=device)  # [C, L]
        cells = starts[torch.minimum(at, steps[:, None])] + nodes[:, None]
        padded = torch.where(at <= steps[:, None], row_of[cells], -1)
        windows, window_of = torch.unique(padded, dim=0, return_inverse=True)
        return cls(rows, starts, row_of, window_of, windows)

    def targets(self) -> Tensor:
        """For each cell before the last step, the row of its node one step later.  # [C before the last step]

        If there is no such cell, each cell is its own target.
        """
        before = int(self.starts[-2])  # cells before the last step
        cells = torch.arange(before, device=self.starts.device)
        steps = torch.repeat_interleave(self.starts[:-1].diff())
        return self.row_of[cells + self.starts.diff()[steps]] if before else self.row_of
