"""Tiny dynamic graphs as plain dicts, and attention on them as float64 loops over nodes, neighbours, steps, heads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import nn

import dysat
from dysat.data.csr import Snapshot
from dysat.nn.network import AttentionNetwork
from dysat.nn.structural import StructuralAttention
from dysat.nn.temporal import FeedForward, TemporalAttention

K = TypeVar("K")
Vector = list[float]
Adjacency = dict[int, dict[int, float]]  # receiver → sender → weight

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])


@dataclass(frozen=True)
class Plain:
    """Links of each snapshot, each pair once, and its number of known nodes."""

    links: Sequence[Mapping[tuple[int, int], float]]
    known: Sequence[int]

    @property
    def num_nodes(self) -> int:
        return self.known[-1]

    @property
    def num_steps(self) -> int:
        return len(self.known)

    def graph(self) -> dysat.DynamicGraph:
        snapshots = []
        for t, (links, known) in enumerate(zip(self.links, self.known, strict=True)):
            u, v = (np.array([pair[i] for pair in links], dtype=np.int64) for i in range(2))
            weights = np.array(list(links.values()), dtype=np.float64)
            snapshots.append(Snapshot.from_links(u, v, weights, num_nodes=known, start=t, stop=t + 1))
        return dysat.DynamicGraph(np.arange(self.num_nodes), tuple(snapshots), clock="step")

    def adjacency(self, t: int, *, normalized: bool = False, self_loops: bool = False) -> Adjacency:
        """The adjacency matrix of a snapshot: A or A + I, optionally normalized to D^-½ A D^-½."""
        a: Adjacency = {v: {} for v in range(self.known[t])}
        for (u, v), weight in self.links[t].items():
            a[u][v] = a[v][u] = weight
        if self_loops:
            for v, row in a.items():
                row[v] = row.get(v, 0.0) + 1.0
        if not normalized:
            return a
        degree = {v: sum(row.values()) for v, row in a.items()}
        return {v: {u: w / math.sqrt(degree[v] * degree[u]) for u, w in row.items()} for v, row in a.items()}


# Node 5 has only a self-loop; node 6 is known but never linked; 3 and 4 have self-loops and other links;
# snapshot 2 is empty.
MEETINGS = Plain(
    links=[
        {(0, 1): 1.0, (1, 2): 2.0},
        {(0, 3): 3.0, (3, 3): 2.0, (3, 4): 1.0, (1, 0): 0.5},
        {},
        {(5, 5): 1.0, (0, 1): 2.0, (4, 1): 1.0, (0, 4): 4.0},
        {(2, 3): 1.0, (0, 2): 1.0, (4, 4): 3.0, (4, 1): 2.0},
    ],
    known=[3, 5, 5, 7, 7],
)
ONE_NODE = Plain([{(0, 0): 2.0}], [1])


def seeded(seed: int = 0, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def randomized(module: nn.Module, seed: int = 0, size: float = 0.6) -> nn.Module:
    """Convert to float64 and draw every parameter at random, including biases, which start at 0."""
    generator = seeded(seed)
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return module


def times(x: Vector, w: list[Vector]) -> Vector:
    """x W, entry by entry."""
    return [sum(x[k] * w[k][i] for k in range(len(x))) for i in range(len(w[0]))]


def dot(x: Vector, y: Vector) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def add(x: Vector, y: Vector) -> Vector:
    return [a + b for a, b in zip(x, y, strict=True)]


def softmax(logits: dict[K, float]) -> dict[K, float]:
    top = max(logits.values(), default=0.0)
    total = sum(math.exp(logit - top) for logit in logits.values())
    return {key: math.exp(logit - top) / total for key, logit in logits.items()}


def one_hot(v: int, num_nodes: int) -> Vector:
    return [float(v == u) for u in range(num_nodes)]


def stacked(*parts: torch.Tensor | None) -> list[Vector]:
    """Stack weight matrices vertically: the rows of the identity, then those of the features."""
    return [row for part in parts if part is not None for row in part.tolist()]


def structural_loop(layer: StructuralAttention, x: dict[int, Vector], a: Adjacency) -> dict[int, Vector]:
    """Structural attention on one snapshot: inputs x_v, one-hot and features in one vector, to outputs h_v."""
    w = stacked(layer.table, layer.weight)
    width = len(w[0]) // layer.num_heads
    a_sender, a_receiver = layer.sender.tolist(), layer.receiver.tolist()
    bias = [[0.0] * layer.num_heads] * 2 if layer.bias is None else layer.bias.tolist()
    h: dict[int, Vector] = {v: [] for v in x}
    for head in range(layer.num_heads):
        wx = {v: times(x[v], [row[head * width : (head + 1) * width] for row in w]) for v in x}
        logits = {}
        for v in x:
            for u in a[v]:
                score = dot(a_sender[head], wx[u]) + bias[0][head] + dot(a_receiver[head], wx[v]) + bias[1][head]
                logits[v, u] = max(a[v][u] * score, 0.2 * a[v][u] * score)  # LeakyReLU
        groups: dict[int, dict[tuple[int, int], float]] = {v: {} for v in x}
        for (v, u), logit in logits.items():
            groups[v if layer.normalize == "receiver" else u][v, u] = logit
        alpha = {entry: share for group in groups.values() for entry, share in softmax(group).items()}
        for v in x:
            for i in range(width):
                z = sum(alpha[v, u] * wx[u][i] for u in a[v])
                h[v].append(z if z > 0 else math.expm1(z))  # ELU
    if layer.residual:
        skip = stacked(*(layer.residual[name] for name in ("table", "weight") if name in layer.residual))
        h = {v: add(h[v], times(x[v], skip)) for v in x}
    return h


def temporal_loop(
    layer: TemporalAttention, x: dict[int, Vector], num_steps: int
) -> tuple[dict[int, Vector], dict[tuple[int, int], Vector]]:
    """Temporal attention of one node: inputs x_t with positions added to outputs z_t, and β_ij of every head.

    A layer with times adds a bias for the distance of the two steps to each logit; distances are capped.
    """
    matrices = [matrix.tolist() for matrix in (layer.query, layer.key, layer.value)]
    width = len(matrices[0][0]) // layer.num_heads
    root = math.sqrt(width if layer.scale == "features" else num_steps)
    z: dict[int, Vector] = {i: [] for i in x}
    betas: dict[tuple[int, int], Vector] = {}
    moments = [0] * num_steps if layer.times is None else layer.times.tolist()
    far = [[0.0] * layer.num_heads] if layer.distance is None else layer.distance.tolist()
    for head in range(layer.num_heads):
        part = slice(head * width, (head + 1) * width)
        q, k, v = ({i: times(x[i], [row[part] for row in matrix]) for i in x} for matrix in matrices)
        for i in x:
            added = {j: far[min(moments[i] - moments[j], len(far) - 1)][head] for j in x if j <= i}
            beta = softmax({j: dot(q[i], k[j]) / root + added[j] for j in added})
            z[i] += [sum(beta[j] * v[j][f] for j in beta) for f in range(width)]
            for j in beta:
                betas.setdefault((i, j), []).append(beta[j])
    return ({i: add(z[i], x[i]) for i in x} if layer.residual else z), betas


def feedforward_loop(layer: FeedForward, x: Vector) -> Vector:
    inner = add(times(x, layer.inner.tolist()), layer.inner_bias.tolist())
    inner = [max(value, 0.0) for value in inner]
    if layer.outer is None:
        return add(x, inner)
    return add(times(inner, layer.outer.tolist()), layer.outer_bias.tolist())


def network_loop(
    net: AttentionNetwork,
    plain: Plain,
    *,
    normalized: bool,
    self_loops: bool,
    unknown: str,
    identity: bool = True,
    features: Sequence[Sequence[Vector]] | None = None,
) -> tuple[dict[tuple[int, int], Vector], dict[tuple[int, int], dict[int, Vector]]]:
    """Embeddings by (node, step), and β of the last layer by (node, step) and attended step.

    `features[t][v]` are the features of v at t. The result has known nodes only, or all with `unknown="zero"`.
    """
    rows: dict[tuple[int, int], Vector] = {}
    for t, known in enumerate(plain.known):
        x = {v: one_hot(v, plain.num_nodes) if identity else [] for v in range(known)}
        if features is not None:
            x = {v: x[v] + list(features[t][v]) for v in x}
        if net.input is not None:
            w = stacked(*(net.input[name] for name in ("table", "weight") if name in net.input))
            x = {v: times(x[v], w) for v in x}
        a = plain.adjacency(t, normalized=normalized, self_loops=self_loops)
        for layer in net.structural:
            x = structural_loop(layer, x, a)
        rows |= {(v, t): x[v] for v in x}
    if unknown == "zero":
        nothing = [0.0] * len(next(iter(rows.values())))
        rows |= {(v, t): nothing for t, known in enumerate(plain.known) for v in range(known, plain.num_nodes)}
    if net.position is None:
        return rows, {}
    found: dict[tuple[int, int], Vector] = {}
    betas: dict[tuple[int, int], dict[int, Vector]] = {}
    positions = net.position.tolist()
    for v in range(plain.num_nodes):
        x = {t: add(rows[v, t], positions[t]) for t in range(plain.num_steps) if (v, t) in rows}
        for layer in net.temporal:
            x, beta = temporal_loop(layer, x, plain.num_steps)
        for (i, j), heads in beta.items():
            betas.setdefault((v, i), {})[j] = heads
        found |= {(v, t): x[t] if net.feedforward is None else feedforward_loop(net.feedforward, x[t]) for t in x}
    return found, betas
