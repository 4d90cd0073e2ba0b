"""Objectives of forecasting: links of the next snapshot score high, and scores agree with those of another model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph

EPSILON = 1e-6  # added to x's Gram matrix, relative to its mean square
ROWS_AT_ONCE = 1 << 17  # of x that are converted to float64
MAX_PAIRS = 1 << 15  # links, and pairs scored by another model, in one training step


class ProductScore(nn.Module):
    """Σ_d w_d x_u[d] x_v[d] + b, the log-odds of a link.

    With `directed`, a node has another vector as a target than as a source: Σ_d w_d x_u[d] (x_v R)[d] + b, the log-odds
    of a link from u to v. The matrix R is learned and starts as the identity, so that scores start symmetric.

    The weights start as +1/√width and −1/√width in turn, so that initial scores are near 0 even for hubs with large
    inputs. Without negative weights, similar nodes would always score high, although nodes on the same side of a
    bipartite graph are similar and never linked.

    Shapes:
        - x_u, x_v: [B, width]
        - output: [B]
    """

    def __init__(self, width: int, *, directed: bool = False) -> None:
        super().__init__()
        self.target = nn.Parameter(torch.eye(width)) if directed else None  # R
        self.weights = nn.Parameter(torch.full((width,), width**-0.5))
        self.bias = nn.Parameter(torch.zeros(()))
        with torch.no_grad():
            self.weights[1::2] *= -1

    def forward(self, x_u: Tensor, x_v: Tensor) -> Tensor:
        x_v = x_v if self.target is None else x_v @ self.target
        scores: Tensor = (x_u * x_v) @ self.weights + self.bias
        return scores

    @torch.no_grad()
    def axes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return A and s such that e = x A gives the same scores, Σ_d s_d e_u[d] e_v[d] + b.  # [N, d] → [d, d], [d]

        The columns of e are the eigenvectors of the matrix of all scores, the strongest first. In x, the score of a
        pair is spread over many columns that partly cancel each other, and a probe with few examples cannot learn
        such weights. The norm of a column is proportional to the fourth root of its eigenvalue's magnitude; with the
        square root a probe relies too much on the first columns. The squared norms sum to half of all magnitudes.
        """
        weights = self.weights.double()
        root, inverse = _roots(x)
        strengths, axes = torch.linalg.eigh((root * weights) @ root)
        order = strengths.abs().argsort(descending=True, stable=True)
        strengths, axes = strengths[order], axes[:, order]
        axes = axes * torch.where(axes.sum(0) < 0, -1.0, 1.0)
        roots = strengths.abs().sqrt()
        size = 0.5 * roots.square().sum() / roots.sum().clamp(min=EPSILON)
        projection = inverse @ (axes * (size * roots).sqrt())
        signed = torch.where(strengths < 0, -1.0, 1.0) * roots / size.clamp(min=EPSILON)
        return projection.to(self.weights.dtype), signed.to(self.weights.dtype)

    @torch.no_grad()
    def role_axes(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return A, B and s such that e = x A and f = x B give the same scores, Σ_d s_d e_u[d] f_v[d] + b.

        The columns of e and f are the left and right singular vectors of the matrix of all scores, with lengths as in
        `axes`. Signs are chosen such that both roles agree: if R is the identity, f equals e.

        Shapes: x [N, d] → [d, d], [d, d], [d].
        """
        if self.target is None:
            raise TypeError("a score without direction")
        root, inverse = _roots(x)
        matrix = self.weights.double()[:, None] * self.target.double().mT  # x_u · matrix · x_v is the score
        left, strengths, right = torch.linalg.svd(root @ matrix @ root)
        flips = torch.where(left.sum(0) < 0, -1.0, 1.0)
        left, right = left * flips, right.mT * flips
        signs = torch.where((left * right).sum(0) < 0, -1.0, 1.0)
        roots = strengths.sqrt()
        size = 0.5 * roots.square().sum() / roots.sum().clamp(min=EPSILON)
        lengths = (size * roots).sqrt()
        source, target = inverse @ (left * lengths), inverse @ (right * signs * lengths)
        signed = signs * roots / size.clamp(min=EPSILON)
        return source.to(self.weights.dtype), target.to(self.weights.dtype), signed.to(self.weights.dtype)


def _roots(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the square root of the Gram matrix of x, and its inverse, in float64.  # [N, d] → two [d, d]"""
    gram = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64, device=x.device)
    for part in torch.split(x, ROWS_AT_ONCE):  # in float64, a large graph would need more memory here than in training
        part = part.double()
        gram += part.mT @ part
    gram = gram + EPSILON * gram.diagonal().mean().clamp(min=EPSILON) * torch.eye(len(gram), device=x.device)
    values, vectors = torch.linalg.eigh(gram)
    return (vectors * values.sqrt()) @ vectors.mT, (vectors * values.rsqrt()) @ vectors.mT


@dataclass(frozen=True, eq=False)
class Cells:
    """All (node, step) of consecutive steps with the node known at the step, numbered step by step.

    Shapes: nodes, steps [C]; the cells of step first + i start at starts[i].
    """

    nodes: Tensor
    steps: Tensor
    starts: tuple[int, ...]
    first: int

    @classmethod
    def of(cls, known: Sequence[int], first: int, device: torch.device) -> Cells:
        """The cells of the steps from `first` on, where `known[t]` nodes are known at step t."""
        counts = torch.tensor(known[first:], device=device)
        nodes = torch.cat([torch.arange(n, device=device) for n in known[first:]])
        steps = torch.repeat_interleave(torch.arange(first, len(known), device=device), counts)
        starts = (0, *counts.cumsum(0)[:-1].tolist())
        return cls(nodes, steps, starts, first)

    def at(self, pairs: Tensor, step: int) -> Tensor:
        """Return the cells of nodes at a step."""
        return pairs + self.starts[step - self.first]


@dataclass(frozen=True, eq=False)
class Transitions:
    """Links of snapshots t' + 1 between nodes known at t', as pairs of cells at t', in order of t'.

    For each link, `negatives` pairs of nodes known at t' are drawn: uniform pairs or, for the fraction `matched`, one
    end each of two links of the same transition, so that they match the activity of linked nodes. Pairs that are
    links do not count. In a directed graph a pair (u, v) is a link from u to v.

    Shapes: pairs [P, 2]; transition [P]: the index of each pair's transition; cells, links [2, S]: for each of the S
    transitions the first index and the number of the cells of its step, and of its links; keys [P]: u · C + v, sorted.
    """

    pairs: Tensor
    transition: Tensor
    cells: Tensor
    links: Tensor
    keys: Tensor
    num_cells: int
    negatives: int
    matched: float
    directed: bool = False

    @classmethod
    def of(cls, graph: DynamicGraph, cells: Cells, negatives: int, matched: float, *, ahead: int = 1) -> Transitions:
        """The transitions from the first step of the cells on; `ahead=0` takes the links of each step itself."""
        steps = range(cells.first, len(graph) - ahead)
        parts = [cells.at(_links(graph[step + ahead], graph.known[step]), step) for step in steps]
        pairs = torch.cat([cells.nodes.new_empty(0, 2), *parts])
        count = torch.tensor([len(part) for part in parts], dtype=torch.int64, device=pairs.device)
        known = [(cells.starts[step - cells.first], graph.known[step]) for step in steps]
        return cls(
            pairs=pairs,
            transition=torch.repeat_interleave(count),
            cells=torch.tensor(known, dtype=torch.int64, device=pairs.device).view(-1, 2).T,
            links=torch.stack([count.cumsum(0) - count, count]),
            keys=(pairs[:, 0] * len(cells.nodes) + pairs[:, 1]).sort().values,
            num_cells=len(cells.nodes),
            negatives=negatives,
            matched=matched,
            directed=graph.directed,
        )

    def draw(self, generator: torch.Generator, most: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Draw links, negatives, and which negatives count.  # [M, 2], [M · negatives, 2], [M · negatives]"""
        device, links = self.pairs.device, torch.arange(len(self.pairs), device=self.pairs.device)
        most = MAX_PAIRS if most is None else most
        if len(links) > most:
            links = torch.randint(len(links), (most,), generator=generator, device=device)
        transition = self.transition[links].repeat(self.negatives)  # [M']
        random = torch.rand(5, len(transition), generator=generator, device=device, dtype=torch.float64)
        uniform = self.cells[0, transition] + (random[:2] * self.cells[1, transition]).long()  # [2, M']
        ends = self.links[0, transition] + (random[2:4] * self.links[1, transition]).long()
        matched = torch.stack([self.pairs[ends[0], 0], self.pairs[ends[1], 1]])
        negatives = torch.where(random[4] < self.matched, matched, uniform)
        negatives = negatives if self.directed else negatives.sort(0).values  # u ≤ v
        keys = negatives[0] * self.num_cells + negatives[1]
        at = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        counts = (self.keys[at] != keys) & (negatives[0] != negatives[1])
        return self.pairs[links], negatives.T, counts


def future_loss(score: ProductScore, x: Tensor, links: Tensor, negatives: Tensor, counts: Tensor) -> Tensor:
    """Mean of −log σ(s) over links of the next snapshot, plus mean of −log σ(−s) over negatives that count.

    Shapes: x [C, d], links [M, 2], negatives [M', 2], counts [M'].
    """
    positive = functional.softplus(-score(*_ends(x, links))).mean()
    negative = functional.softplus(score(*_ends(x, negatives))) * counts
    return positive + negative.sum() / counts.sum().clamp(min=1)


def agreement_loss(score: ProductScore, x: Tensor, pairs: Tensor, probabilities: Tensor) -> Tensor:
    """Mean cross-entropy of scores with the probabilities another model gives.  # x [C, d], [S, 2], [S]"""
    return functional.binary_cross_entropy_with_logits(score(*_ends(x, pairs)), probabilities)


def draw_taught(
    pairs: Tensor, probabilities: Tensor, generator: torch.Generator, most: int | None = None
) -> tuple[Tensor, Tensor]:
    """Draw at most this many pairs with their probabilities.  # [S, 2], [S] → [M, 2], [M]"""
    most = MAX_PAIRS if most is None else most
    if len(pairs) <= most:
        return pairs, probabilities
    drawn = torch.randint(len(pairs), (most,), generator=generator, device=pairs.device)
    return pairs[drawn], probabilities[drawn]


@dataclass(frozen=True, eq=False)
class Ahead:
    """What a model learns about the next snapshot: links, and pairs with the probabilities another model gives.

    Either may be None; both are pairs of `cells`. The loss is the weighted sum of `future_loss` and `agreement_loss`.
    """

    cells: Cells
    links: Transitions | None
    taught: tuple[Tensor, Tensor] | None
    weights: tuple[float, float]

    def draw(self, generator: torch.Generator, most: int | None = None) -> Drawn:
        """Draw the pairs of one training step, at most this many links and as many taught pairs (`MAX_PAIRS`)."""
        links = None if self.links is None else self.links.draw(generator, most)
        return Drawn(links, None if self.taught is None else draw_taught(*self.taught, generator, most))

    def loss(self, score: ProductScore, x: Tensor, drawn: Drawn) -> Tensor:
        """The loss on drawn pairs.  # x [C, d]"""
        value = x.new_zeros(())
        if drawn.links is not None:
            value = value + self.weights[0] * future_loss(score, x, *drawn.links)
        if drawn.taught is not None:
            value = value + self.weights[1] * agreement_loss(score, x, *drawn.taught)
        return value


class Drawn(NamedTuple):
    """The pairs of one training step: links, negatives and which of these count; taught pairs and probabilities."""

    links: tuple[Tensor, Tensor, Tensor] | None
    taught: tuple[Tensor, Tensor] | None

    def compact(self) -> tuple[Tensor, Drawn]:
        """Return the cells of all pairs, sorted, and the pairs with cells numbered in this order.  # [c]"""
        pairs = [*(self.links or ())[:2], *(self.taught or ())[:1]]
        cells, index = torch.unique(torch.cat(pairs), return_inverse=True)
        parts = list(torch.split(index, [len(part) for part in pairs]))
        links = None if self.links is None else (parts[0], parts[1], self.links[2])
        return cells, Drawn(links, None if self.taught is None else (parts[-1], self.taught[1]))


def _ends(x: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    return x.index_select(0, pairs[:, 0]), x.index_select(0, pairs[:, 1])


def _links(snapshot: Snapshot, known: int) -> Tensor:
    """Links between two different known nodes.  # [E, 2], u < v, or u → v with direction"""
    u, v, _ = snapshot.pairs()
    kept = (u < known) & (v < known) & (u != v)
    return torch.stack([u[kept], v[kept]], 1)
