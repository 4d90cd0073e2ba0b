"""Which pairs of nodes are examples of a link, and which of them tune, train and test."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError
from dysat.sampling.pairs import unlinked_pairs

Ids = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """Examples of links for a model that has seen the snapshots up to `step`, and K ways to divide them.

    A fifth is for validation, once and for all. Of the rest each repeat trains on a quarter and tests on the others.
    Each class is divided by itself, as in the authors' program, and all but the test is rounded up; so from three
    examples of each class on none is missing. With fewer a mask may lack one or be empty: an AUC there is NaN.

    Shapes:
        pairs [B, 2] (int64, ids known at `step`), labels [B], validation [B], train [K, B], test [K, B] (bool)
    """

    pairs: Tensor
    labels: Tensor
    validation: Tensor
    train: Tensor
    test: Tensor
    step: int

    @property
    def num_repeats(self) -> int:
        return len(self.train)

    def to(self, device: str | torch.device) -> LinkSplit:
        tensors = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "step"}
        return LinkSplit(**tensors, step=self.step)


def single_step(
    graph: DynamicGraph, step: int, *, seed: int = 0, repeats: int = 10, self_loops: Literal["drop", "keep"] = "drop"
) -> LinkSplit:
    """The links of snapshot `step + 1` between nodes known at `step`, and as many pairs that are not linked there.

    Negatives are uniform pairs of two nodes known at `step`, none twice; all there are, where they are fewer than the
    links. Nothing depends on snapshots after `step + 1`. The authors' program keeps self-loops among the positives.
    """
    if self_loops not in ("drop", "keep"):
        raise GraphError(f"self_loops={self_loops!r} is neither 'drop' nor 'keep'")
    if repeats < 1:
        raise GraphError(f"repeats={repeats}: at least one is needed")
    if not 0 <= step < len(graph) - 1:
        raise GraphError(f"step {step}: a graph with {len(graph)} snapshots has no links to predict after it")
    known = graph.known[step]
    u, v, _ = (part.cpu().numpy() for part in graph[step + 1].links())
    links = np.stack([u, v], axis=1)[v < known]  # u ≤ v
    loops = links[:, 0] == links[:, 1]
    positives = links if self_loops == "keep" else links[~loops]
    if not len(positives):
        raise GraphError(f"step {step}: snapshot {step + 1} has no link between two nodes known at step {step}")
    rng = np.random.default_rng([seed, step])
    negatives = unlinked_pairs(known, links[~loops], len(positives), rng)
    split = _divide(positives, negatives, step, repeats, rng)
    return split.to(graph.device)


def _divide(positives: Ids, negatives: Ids, step: int, repeats: int, rng: np.random.Generator) -> LinkSplit:
    """Divide the examples as `LinkSplit` says."""
    labels = np.arange(len(positives) + len(negatives)) < len(positives)
    validation = np.zeros(len(labels), dtype=bool)
    train = np.zeros((repeats, len(labels)), dtype=bool)
    rest = []
    for label in (True, False):
        order = rng.permutation(np.flatnonzero(labels == label))
        fifth = -(-len(order) // 5)
        validation[order[:fifth]] = True
        rest.append(order[fifth:])
    for mask in train:
        for examples in rest:
            mask[rng.permutation(examples)[: -(-len(examples) // 4)]] = True
    return LinkSplit(
        pairs=torch.from_numpy(np.concatenate([positives, negatives])),
        labels=torch.from_numpy(labels),
        validation=torch.from_numpy(validation),
        train=torch.from_numpy(train),
        test=torch.from_numpy(~train & ~validation),
        step=step,
    )
