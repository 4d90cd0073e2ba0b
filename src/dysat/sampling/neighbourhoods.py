"""Sampled neighbourhoods of several hops, for layers that aggregate a sample of the neighbours (GraphSAGE)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.sampling.negatives import Negatives
from dysat.sampling.walks import WeightedRows, random_walks


class Hop(NamedTuple):
    """The receivers of one layer and their sampled senders, as positions among the layer's input nodes.

    Shapes: receivers [b], senders [b, k].
    """

    receivers: Tensor
    senders: Tensor


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """The neighbours of every known node, without self-loops; a node without neighbours draws itself.

    Shapes: offsets [N + 1], neighbours [E'], weights [E'].
    """

    offsets: Tensor
    neighbours: Tensor
    weights: Tensor

    @classmethod
    def of(cls, snapshot: Snapshot, *, weighted: bool) -> Neighbourhoods:
        """The neighbourhoods of a snapshot, drawn in proportion to link weights or uniformly."""
        receivers, senders, weights = snapshot.entries()
        other = receivers != senders
        nodes = torch.arange(snapshot.num_nodes + 1, device=receivers.device)
        offsets = torch.searchsorted(receivers[other], nodes)
        return cls(offsets, senders[other], weights[other] if weighted else torch.ones_like(weights[other]))

    @property
    def num_nodes(self) -> int:
        return len(self.offsets) - 1

    @property
    def degrees(self) -> Tensor:
        """Number of neighbours of each node.  # [N]"""
        return self.offsets.diff()

    @cached_property
    def rows(self) -> WeightedRows:
        """The table from which neighbours are drawn."""
        itself = torch.arange(self.num_nodes, device=self.offsets.device)
        return WeightedRows.from_csr(self.offsets, self.neighbours, self.weights, otherwise=itself)

    def negatives(self) -> Negatives:
        """A sampler of nodes by degree^¾, all in group 0."""
        return Negatives.by_degree(self.degrees, self.offsets.new_tensor([0, self.num_nodes]))

    def draw(self, nodes: Tensor, fan_out: Sequence[int], generator: torch.Generator) -> tuple[Tensor, list[Hop]]:
        """Return the nodes whose inputs are needed to compute the vectors of `nodes`, and the hop of every layer.

        `fan_out` is the number of neighbours drawn with replacement for each layer, the first layer first. A node that
        occurs more than once in a layer has the same neighbours each time (Algorithm 2 of Hamilton et al. 2017).
        """
        hops = []
        for count in reversed(fan_out):
            drawn = self.rows.draw(nodes[:, None].expand(-1, count), generator=generator)  # [b, k]
            needed = torch.zeros(self.num_nodes, dtype=torch.bool, device=nodes.device)
            needed[nodes] = True
            needed[drawn.flatten()] = True
            number = needed.cumsum(0) - 1
            hops.append(Hop(number[nodes], number[drawn]))
            nodes = needed.nonzero()[:, 0]
        return nodes, hops[::-1]

    def walk_pairs(self, walks_per_node: int, length: int, generator: torch.Generator) -> Tensor:
        """Pairs of a start node and each other node on its walks, with repeats.  # [P, 2], int32"""
        starts = self.degrees.nonzero()[:, 0].repeat_interleave(walks_per_node)
        walks = random_walks(self.offsets, self.neighbours, self.weights, starts, length, generator=generator)
        pairs = torch.stack([walks[:, :1].expand(-1, length - 1), walks[:, 1:]], 2).flatten(0, 1)
        return pairs[pairs[:, 0] != pairs[:, 1]]
