"""Mixed pairs: their kinds, their numbers, and no repeats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from dysat import DynamicGraph, Snapshot
from dysat.sampling.pairs import RECENT_SNAPSHOTS, mixed_pairs


def graph_of(known: Sequence[int], links: Sequence[Sequence[tuple[int, int]]]) -> DynamicGraph:
    snapshots = []
    for t, (number, pairs) in enumerate(zip(known, links, strict=True)):
        u, v = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        snapshots.append(Snapshot.from_links(u, v, None, num_nodes=number, start=t, stop=t + 1))
    return DynamicGraph(np.arange(known[-1]), tuple(snapshots), clock="step")


# Twenty of a thousand nodes have recent links; two others had a link long ago.
RECENT = [[(i, i + 1) for i in range(0, 20, 2)]] * 3
CROWD = graph_of([1000] * 5, [[(500, 501)], [(7, 7)], [*RECENT[0], (3, 3)], *RECENT[1:]])


def test_every_kind_occurs() -> None:
    assert RECENT_SNAPSHOTS == 3
    pairs = mixed_pairs(CROWD, 300, seed=0)
    number = (pairs < 20).sum(1)
    assert [500, 501] in pairs.tolist()  # linked before
    assert all([i, i + 1] in pairs.tolist() for i in range(0, 20, 2))
    # 300 draws of two active nodes hit most of the 190 such pairs; two random nodes are rarely both active.
    assert 120 < int((number == 2).sum()) <= 190
    assert 270 < int((number == 1).sum()) < 330
    assert 270 < int((number == 0).sum()) <= 301
    assert int((pairs == 500).any(1).sum()) < 10  # not active, because its link is too old


@pytest.mark.parametrize("number", [0, 1, 5, 300])
def test_pairs_are_ordered_and_distinct(number: int) -> None:
    pairs = mixed_pairs(CROWD, number, seed=0)
    assert pairs.dtype == torch.int64 and pairs.shape[1] == 2 and len(pairs) <= 4 * number
    assert all(0 <= u < v < 1000 for u, v in pairs.tolist())
    assert len({tuple(pair) for pair in pairs.tolist()}) == len(pairs)


def test_the_latest_links_come_first() -> None:
    """A repeated link counts at its last occurrence."""
    links = [[(2 * i, 2 * i + 1)] for i in range(40)]
    links[-1] = [(0, 1), (78, 79)]
    pairs = mixed_pairs(graph_of([200_000] * 40, links), 3, seed=0).tolist()
    linked = [pair for pair in pairs if pair[0] % 2 == 0 and pair[1] == pair[0] + 1]
    assert linked == [[0, 1], [76, 77], [78, 79]]


def test_the_seed_determines_the_pairs() -> None:
    one, again, other = (mixed_pairs(CROWD, 50, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one, again) and not torch.equal(one, other)


@pytest.mark.parametrize(
    ("known", "links", "expected"),
    [
        (0, [], []),
        (1, [], []),
        (1, [(0, 0)], []),
        (2, [], [[0, 1]]),
        (2, [(0, 1)], [[0, 1]]),
        (2, [(0, 0), (1, 1)], [[0, 1]]),
        (3, [(1, 2)], [[0, 1], [0, 2], [1, 2]]),
    ],
)
def test_small_graphs(known: int, links: list[tuple[int, int]], expected: list[list[int]]) -> None:
    assert mixed_pairs(graph_of([known], [links]), 30, seed=0).tolist() == expected


def test_only_nodes_known_so_far_are_drawn() -> None:
    graph = graph_of([3, 90], [[(0, 1)], [(5, 80), (2, 3)]])
    past = mixed_pairs(graph[:1], 100, seed=0)
    assert past.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert int(mixed_pairs(graph, 100, seed=0).max()) > 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_pairs_of_a_graph_on_cuda_are_the_same() -> None:
    assert torch.equal(mixed_pairs(CROWD.to("cuda"), 50, seed=0), mixed_pairs(CROWD, 50, seed=0))
