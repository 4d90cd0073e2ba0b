"""Sampled neighbourhoods: probabilities, positions within layers, and pairs from walks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from dysat import Snapshot
from dysat.sampling.neighbourhoods import Neighbourhoods

LINKS = {(0, 1): 1.0, (0, 2): 3.0, (0, 3): 4.0, (2, 2): 9.0, (2, 3): 1.0, (3, 4): 2.0}  # node 5 has no link
LOOP = {(6, 6): 1.0}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def neighbourhoods(weighted: bool = True) -> Neighbourhoods:
    given = LINKS | LOOP
    u, v = np.array(list(given)).T
    snapshot = Snapshot.from_links(u, v, np.array(list(given.values())), num_nodes=7, start=0, stop=1)
    return Neighbourhoods.of(snapshot, weighted=weighted)


def probabilities(weighted: bool) -> Tensor:
    """The probability of each neighbour, by loops; a node without neighbours draws itself."""
    found = torch.zeros(7, 7, dtype=torch.float64)
    for (u, v), weight in LINKS.items():
        if u != v:
            found[u, v] = found[v, u] = weight if weighted else 1.0
    for node in (5, 6):
        found[node, node] = 1.0
    return found / found.sum(1, keepdim=True)


def shares(pairs: Tensor) -> Tensor:
    """Relative frequency of the second node for each first node."""
    counts = torch.bincount(pairs[:, 0] * 7 + pairs[:, 1], minlength=49).view(7, 7).double()
    return counts / counts.sum(1, keepdim=True).clamp(min=1)


@pytest.mark.parametrize("weighted", [True, False])
def test_neighbours_are_drawn_by_weight_or_uniformly(weighted: bool) -> None:
    count, asked = 20_000, torch.tensor([5, 0, 2, 3, 1, 4, 6])
    nodes, (hop,) = neighbourhoods(weighted).draw(asked, (count,), seeded())
    assert torch.equal(nodes[hop.receivers], asked)
    drawn = torch.stack([asked[:, None].expand(-1, count), nodes[hop.senders]], 2).flatten(0, 1)
    assert_close(shares(drawn), probabilities(weighted), atol=0.02, rtol=0)


def test_every_layer_has_exactly_the_nodes_it_needs() -> None:
    asked = torch.tensor([1, 5])
    nodes, hops = neighbourhoods().draw(asked, (3, 2), seeded(1))
    assert [hop.senders.shape[1] for hop in hops] == [3, 2]  # the first layer first
    first, last = hops
    middle = nodes[first.receivers]  # the inputs of the last layer
    assert torch.equal(middle[last.receivers], asked)
    assert set(middle.tolist()) == {1, 5} | set(middle[last.senders].flatten().tolist()) == {0, 1, 5}
    assert set(nodes.tolist()) == set(middle.tolist()) | set(nodes[first.senders].flatten().tolist())
    likely = probabilities(True)
    for given, hop in ((nodes, first), (middle, last)):
        assert len(given.unique()) == len(given)
        assert (likely[given[hop.receivers][:, None], given[hop.senders]] > 0).all()


def test_the_generator_determines_the_draws() -> None:
    draws = [neighbourhoods().draw(torch.arange(7), (4, 4), seeded(seed))[1][0].senders for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("length", [2, 3])
def test_walk_pairs_hold_a_start_and_another_node_of_its_walk(weighted: bool, length: int) -> None:
    walks = 10_000
    pairs = neighbourhoods(weighted).walk_pairs(walks, length, seeded()).long()
    step = probabilities(weighted)
    met = step.clone() if length == 2 else step + step @ step
    met.fill_diagonal_(0)
    counts = torch.bincount(pairs[:, 0] * 7 + pairs[:, 1], minlength=49).view(7, 7)
    assert_close(counts.double() / walks, met, atol=0.02, rtol=0)
    assert not counts[[5, 6]].any()


def test_negatives_are_drawn_by_degree() -> None:
    drawn = neighbourhoods().negatives().draw(torch.zeros(40_000, dtype=torch.int64), generator=seeded())
    wanted = torch.tensor([3, 1, 2, 3, 1, 0, 0], dtype=torch.float64) ** 0.75
    assert_close(torch.bincount(drawn, minlength=7).double() / 40_000, wanted / wanted.sum(), atol=0.02, rtol=0)
