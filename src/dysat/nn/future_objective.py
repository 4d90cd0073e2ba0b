"""What a model that forecasts minimises: links of the next snapshot score high, and pairs as another score has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph

SMALL = 1e-6  # part of the mean square, below which a direction is none
MOST = 1 << 15  # links, and pairs of another score, that a step of training looks at


class ProductScore(nn.Module):
    """Σ_d w_d x_u[d] x_v[d] + b, the log-odds of a link; the weights begin as ±1/√width in turn.

    Scores are then near 0 at first, however large the inputs of hubs are. Without negative weights nodes that are
    alike would always score high, and those of one side of a bipartite graph are alike.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.full((width,), width**-0.5))
        self.bias = nn.Parameter(torch.zeros(()))
        with torch.no_grad():
            self.weights[1::2] *= -1

    def forward(self, x_u: Tensor, x_v: Tensor) -> Tensor:
        scores: Tensor = (x_u * x_v) @ self.weights + self.bias
        return scores

    @torch.no_grad()
    def axes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A map A and weights s with Σ_d s_d e_u[d] e_v[d] + b the scores, where e = x A.  # [N, d] → [d, d], [d]

        The columns of e are the axes of the matrix of all scores, the strongest first. As x has it, what is said of a
        pair is spread over many columns, and partly said by some and taken back by others; a probe with few examples
        cannot learn such weights. Norms of columns go with the fourth root of their axes' strengths, and their squares
        add up to half of all strengths: with the square root a probe trusts the first columns too much.
        """
        x, weights = x.double(), self.weights.double()
        gram = x.mT @ x
        gram = gram + SMALL * gram.diagonal().mean().clamp(min=SMALL) * torch.eye(len(gram), device=x.device)
        values, vectors = torch.linalg.eigh(gram)
        root = (vectors * values.sqrt()) @ vectors.mT
        inverse = (vectors * values.rsqrt()) @ vectors.mT
        strengths, axes = torch.linalg.eigh((root * weights) @ root)
        order = strengths.abs().argsort(descending=True, stable=True)
        strengths, axes = strengths[order], axes[:, order]
        axes = axes * torch.where(axes.sum(0) < 0, -1.0, 1.0)
        roots = strengths.abs().sqrt()
        size = 0.5 * roots.square().sum() / roots.sum().clamp(min=SMALL)
        found = inverse @ (axes * (size * roots).sqrt())
        signed = torch.where(strengths < 0, -1.0, 1.0) * roots / size.clamp(min=SMALL)
        return found.to(self.weights.dtype), signed.to(self.weights.dtype)


@dataclass(frozen=True, eq=False)
class Cells:
    """All nodes known at some consecutive steps, one step after the other, counted through.

    Shapes: nodes, steps [C]; the cells of step first + i begin at starts[i].
    """

    nodes: Tensor
    steps: Tensor
    starts: tuple[int, ...]
    first: int

    @classmethod
    def of(cls, known: Sequence[int], first: int, device: torch.device) -> Cells:
        """Those of the steps from `first` on."""
        counts = torch.tensor(known[first:], device=device)
        nodes = torch.cat([torch.arange(n, device=device) for n in known[first:]])
        steps = torch.repeat_interleave(torch.arange(first, len(known), device=device), counts)
        starts = (0, *counts.cumsum(0)[:-1].tolist())
        return cls(nodes, steps, starts, first)

    def at(self, pairs: Tensor, step: int) -> Tensor:
        """Where nodes stand at a step."""
        return pairs + self.starts[step - self.first]


@dataclass(frozen=True, eq=False)
class Transitions:
    """Links of snapshots t' + 1 between nodes known at t', as pairs of cells at t', in order of t'.

    Negatives are drawn for each: pairs of two nodes known at t', either both uniform, or (`matched` of them) the ends
    of two links of the same transition, which are as active as linked nodes are. A pair that is a link is not counted.

    Shapes: pairs [P, 2]; which [P]: of which transition each is; for each transition the first and the number of the
    cells of its step and of its links, cells and links [2, S]; keys [P]: u · C + v, in order.
    """

    pairs: Tensor
    which: Tensor
    cells: Tensor
    links: Tensor
    keys: Tensor
    num_cells: int
    negatives: int
    matched: float

    @classmethod
    def of(cls, graph: DynamicGraph, cells: Cells, negatives: int, matched: float, *, ahead: int = 1) -> Transitions:
        """Those from the first step of the cells on; with `ahead=0` the links of each step itself."""
        steps = range(cells.first, len(graph) - ahead)
        parts = [cells.at(_links(graph[step + ahead], graph.known[step]), step) for step in steps]
        pairs = torch.cat([cells.nodes.new_empty(0, 2), *parts])
        count = torch.tensor([len(part) for part in parts], dtype=torch.int64, device=pairs.device)
        known = [(cells.starts[step - cells.first], graph.known[step]) for step in steps]
        return cls(
            pairs=pairs,
            which=torch.repeat_interleave(count),
            cells=torch.tensor(known, dtype=torch.int64, device=pairs.device).view(-1, 2).T,
            links=torch.stack([count.cumsum(0) - count, count]),
            keys=(pairs[:, 0] * len(cells.nodes) + pairs[:, 1]).sort().values,
            num_cells=len(cells.nodes),
            negatives=negatives,
            matched=matched,
        )

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Links, other pairs, and whether each of those counts.  # [M, 2], [M · negatives, 2], [M · negatives]"""
        device, links = self.pairs.device, torch.arange(len(self.pairs), device=self.pairs.device)
        if len(links) > MOST:
            links = torch.randint(len(links), (MOST,), generator=generator, device=device)
        about = self.which[links].repeat(self.negatives)
        lots = torch.rand(5, len(about), generator=generator, device=device, dtype=torch.float64)
        uniform = self.cells[0, about] + (lots[:2] * self.cells[1, about]).long()  # [2, M']
        ends = self.links[0, about] + (lots[2:4] * self.links[1, about]).long()
        matched = torch.stack([self.pairs[ends[0], 0], self.pairs[ends[1], 1]])
        others = torch.where(lots[4] < self.matched, matched, uniform).sort(0).values  # u ≤ v
        wanted = others[0] * self.num_cells + others[1]
        at = torch.searchsorted(self.keys, wanted).clamp(max=len(self.keys) - 1)
        counts = (self.keys[at] != wanted) & (others[0] != others[1])
        return self.pairs[links], others.T, counts


def future_loss(score: ProductScore, x: Tensor, transitions: Transitions, generator: torch.Generator) -> Tensor:
    """Mean of −log σ(s) over links of the next snapshot, plus the mean of −log σ(−s) over other pairs.  # x [C, d]"""
    links, others, counts = transitions.draw(generator)
    positive = functional.softplus(-score(*_ends(x, links))).mean()
    negative = functional.softplus(score(*_ends(x, others))) * counts
    return positive + negative.sum() / counts.sum().clamp(min=1)


def agreement_loss(
    score: ProductScore, x: Tensor, pairs: Tensor, chances: Tensor, generator: torch.Generator
) -> Tensor:
    """Mean cross-entropy of scores with the chances that another score gives.  # x [C, d], [S, 2], [S]"""
    if len(pairs) > MOST:
        which = torch.randint(len(pairs), (MOST,), generator=generator, device=pairs.device)
        pairs, chances = pairs[which], chances[which]
    return functional.binary_cross_entropy_with_logits(score(*_ends(x, pairs)), chances)


def _ends(x: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    return x.index_select(0, pairs[:, 0]), x.index_select(0, pairs[:, 1])


def _links(snapshot: Snapshot, known: int) -> Tensor:
    """Links of two different nodes that are known.  # [E, 2], u < v"""
    u, v, _ = snapshot.links()
    some = (v < known) & (u != v)
    return torch.stack([u[some], v[some]], 1)
