"""DynAERNN: an encoder of each snapshot's row of a node, LSTMs over a window of them, a decoder of the next row."""

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
from dysat.models.base.trained import Task, TrainedModel, load_weights
from dysat.nn.device import choose_device
from dysat.nn.rows import Rows

Sizes = tuple[int, ...]
BLOCK = 1 << 12  # windows embedded at once
LARGEST = 1e15  # weight of a link whose square, summed up, is still far from the end of float32


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


@dataclass(kw_only=True, eq=False)
class DynAERNN(TrainedModel):
    """Dynamic graph autoencoder with recurrent layers: e_u^t is the last state of LSTMs over encoded rows of u.

    Row a_u^k of snapshot k's adjacency matrix goes through ReLU layers, the same in all steps; LSTMs read the last
    `history` of them, up to step t; and a decoder, the encoder's layers in reverse with a linear last one, makes
    the next row of the last state. Over all nodes u and steps t with a snapshot after them, the loss is

        mean_{u, t} ‖(â_u^{t+1} − a_u^{t+1}) ⊙ b‖² + ν1 Σ |W| + ν2 Σ W²,   b = β at links of u in t + 1, else 1

    where W are all weights but biases. An epoch is one pass over the nodes known in each step but the last, in batches
    of (node, step). In steps before a node is known there is nothing to read: its window is shorter. In a step without
    links its row is empty, and read as such. With a single snapshot there is no next row; it learns to make the same
    one again.

    The embeddings at an earlier step are what the network, as learned from all snapshots, makes of the window
    that ends there.

    Attributes:
        graph_: the graph it was given.
        epochs_: loss, validation score and seconds of every epoch; finished_: whether all were run.

    Example:
        >>> import dysat
        >>> model = dysat.MODELS["dynaernn"](epochs=1).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 128])

    Reference: Goyal, Chhetri, Canedo: dyngraph2vec: Capturing Network Dynamics using Dynamic Graph Representation
    Learning, Knowledge-Based Systems 187, 2020.
    """

    method: ClassVar[str] = "dynaernn"

    history: Annotated[int, "snapshots that an embedding looks back at, its own among them"] = 3
    encoder: Annotated[Sizes, "features of each layer of the encoder; the decoder has them in reverse"] = (128,)
    recurrent: Annotated[Sizes, "features of each LSTM; the last is the embedding's"] = (128, 128)
    link_weights: Annotated[
        Literal["raw", "binary", "normalized"], "what stands in a row: weights, 1 for a link, or D^-½ A D^-½"
    ] = "binary"
    beta: Annotated[float, "β: how much more an error counts where there is a link"] = 5.0
    nu1: Annotated[float, "ν1, the weight of Σ |W|"] = 1e-6
    nu2: Annotated[float, "ν2, the weight of Σ W²"] = 1e-6
    learning_rate: Annotated[float, "of Adam"] = 2e-3
    batch_size: Annotated[int, "(node, step) in a batch"] = 256
    epochs: Annotated[int, "passes over the nodes of all steps but the last, at most"] = 30
    patience: Annotated[int | None, "stop after so many epochs without a better validation score"] = None
    seed: Annotated[int, "of everything random"] = 0
    device: Annotated[str, "cpu, cuda, cuda:1, …; auto takes CUDA where there is one"] = "auto"

    def check(self) -> None:
        for name in ("encoder", "recurrent"):
            if not (sizes := getattr(self, name)) or min(sizes) < 1:
                raise ModelError(f"{name}={sizes}: one number above 0 for every layer")
        if not 0 < self.beta < math.inf:
            raise ModelError(f"beta={self.beta} must be a finite number above 0")
        self._at_least_one("history")
        self._not_negative("nu1", "nu2")
        super().check()

    def check_graph(self, graph: DynamicGraph) -> None:
        super().check_graph(graph)
        largest = max((float(s.weights.abs().max()) for s in graph if len(s.weights)), default=0.0)
        if self.link_weights == "raw" and largest > LARGEST:
            raise ModelError(
                f"link_weights='raw', but a link has weight {largest:g}: above {LARGEST:g} squares overflow"
            )

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self._build(device)
        self.scorer_ = torch.ones(self.recurrent[-1]), torch.zeros(())  # e_u · e_v
        targets = self.windows_.targets()
        items = torch.arange(len(targets), device=device)
        return Task(self.loss(targets), dict(self.network_.named_parameters()), items)

    @torch.no_grad()
    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order.  # [known, d]"""
        self._must_be_fitted()
        windows, at = self.windows_, self._check_step(step)
        begin, end = windows.starts[at : at + 2].tolist()
        distinct, which = torch.unique(windows.window_of[begin:end], return_inverse=True)
        parts = [self.network_(windows.rows, windows.windows[part]) for part in distinct.split(BLOCK) if len(part)]
        return torch.cat(parts)[which] if parts else self.network_.table.new_empty(0, self.recurrent[-1])

    def loss(self, targets: Tensor) -> Callable[[Tensor, torch.Generator], Tensor]:
        """The loss of a batch of (node, step), given by their numbers; `targets` are the rows to make of them."""
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

    def _build(self, device: torch.device) -> None:
        """The windows of the graph, and a network with its first weights, the same on every device."""
        self.windows_ = Windows.of(self.graph_.to(device), self.history, self._values)
        with torch.random.fork_rng(devices=[]):  # torch's layers draw first weights of their own
            generator = torch.Generator().manual_seed(self.seed)
            network = RecurrentAutoencoder(self.graph_.num_nodes, self.encoder, self.recurrent, generator=generator)
        self.network_ = network.to(device)

    def _values(self, snapshot: Snapshot) -> Tensor:
        """What stands in a row for each entry.  # [E']"""
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
