"""Candidates for top links: they include the most likely ones, and there are few."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small import make_graph, meetings
from torch import Tensor

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.forecast import candidates as module
from dysat.models.forecast.candidates import likely_pairs
from dysat.models.forecast.pair_score import PairScore


def vectors(size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))


def as_set(pairs: Tensor) -> set[tuple[int, int]]:
    found = {(u, v) for u, v in pairs.tolist()}
    assert len(found) == len(pairs)  # all distinct
    assert all(u < v for u, v in found)
    return found


def random_graph(size: int, links: int, steps: int = 3) -> DynamicGraph:
    rng = np.random.default_rng(size)
    drawn = [[(int(u), int(v)) for u, v in rng.integers(0, size, (links, 2))] for _ in range(steps)]
    return make_graph([size] * steps, drawn)


def test_the_most_likely_links_of_uci_are_candidates() -> None:
    """Compared with all pairs of nodes that have at least three links in the last snapshot."""
    graph = dysat.load_dataset("uci")[:9]
    n, step = graph.num_nodes, len(graph) - 1
    score = PairScore.learn(graph[:3], transitions=1, negatives=1)
    assert score is not None
    found = likely_pairs(graph, torch.zeros(n, 1), torch.ones(1), None, 1)  # embeddings without information
    every = torch.combinations(graph[step].rows[graph[step].offsets.diff() >= 3])
    best = every[score.log_odds(graph, step, every).topk(20).indices]
    assert as_set(best) <= as_set(found)
    assert len(found) < n * (n - 1) // 2 / 5


def test_past_pairs_and_pairs_two_steps_apart_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BUSY_NODES", 0)
    monkeypatch.setattr(module, "MAX_HUBS", 0)
    graph = make_graph([7, 7], [[(0, 1), (1, 2), (5, 5)], [(3, 4)]])
    found = as_set(likely_pairs(graph, torch.zeros(7, 1), torch.ones(1), None, 1))
    assert {(0, 1), (1, 2), (3, 4), (0, 2)} <= found
    assert len(found) <= 5  # and one with a large product


def test_largest_products_match_a_loop() -> None:
    graph, e, weights = make_graph([9], [[]]), vectors(9), torch.tensor([1.0, -2.0, 0.5, 3.0])
    product = {(u, v): float((weights * e[u] * e[v]).sum()) for u in range(9) for v in range(u + 1, 9)}
    best = sorted(product, key=lambda pair: -product[pair])[:6]
    assert as_set(likely_pairs(graph, e, weights, None, 6)) == set(best)
    assert len(likely_pairs(graph, e, weights, None, 100)) == 36


@pytest.mark.parametrize("kinds", [None, [0, 0, 1, 1, 0, 1, 1]])
def test_all_pairs_of_the_busiest_nodes_are_candidates(
    kinds: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link of the snapshot before counts 0.6; the busiest are the nodes with the largest sums, of each kind."""
    monkeypatch.setattr(module, "MAX_BUSY_NODES", 2)
    monkeypatch.setattr(module, "MAX_ACTIVE_NODES", 0)
    graph = make_graph([7, 7], [[(0, 2), (0, 3), (0, 5)], [(1, 2), (3, 4)]])  # 0: 1.8; 2, 3: 1.6; 1, 4: 1; 5: 0.6
    past = {(0, 2), (0, 3), (0, 5), (1, 2), (3, 4)}
    if kinds is None:
        monkeypatch.setattr(module, "MAX_BUSY_NODES", 3)
        assert as_set(likely_pairs(graph, vectors(7), torch.ones(4), None, 1)) == past | {(2, 3)}
    else:  # 0 and 1 of the one kind, 2 and 3 of the other
        found = likely_pairs(graph.with_kinds(kinds, ["user", "item"]), vectors(7), torch.ones(4), None, 1)
        assert as_set(found) == past | {(0, 2), (0, 3), (1, 2), (1, 3)}


def test_all_pairs_of_a_hub_and_an_active_node_are_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HUBS", 1)
    monkeypatch.setattr(module, "MAX_BUSY_NODES", 0)
    monkeypatch.setattr(module, "FAN_OUT", 0)
    graph = make_graph([7, 7], [[(0, 1), (5, 6)], [(0, 2), (0, 3), (4, 5)]])
    found = as_set(likely_pairs(graph, vectors(7), torch.ones(4), None, 1))
    assert {(0, v) for v in range(1, 7)} <= found and len(found) <= 6 + 3


def test_one_node_of_a_small_graph_is_paired_with_all_others() -> None:
    graph = meetings()
    found = likely_pairs(graph, vectors(8), torch.ones(4), torch.tensor([3]), 2)
    assert as_set(found) == {(min(3, v), max(3, v)) for v in range(8) if v != 3}


def test_one_node_of_a_large_graph_is_paired_with_close_and_similar_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ALL_PARTNERS_NODES", 5)
    graph = make_graph([9, 9], [[(3, 1), (1, 6)], [(0, 2)]])
    e = torch.zeros(9, 1)
    e[3], e[8], e[7] = 1.0, 5.0, 4.0
    found = as_set(likely_pairs(graph, e, torch.ones(1), torch.tensor([3]), 2))
    assert found == {(1, 3), (3, 6), (3, 8), (3, 7)}


def test_candidates_differ_in_kind() -> None:
    kinds = [0, 1] * 4
    graph = meetings().with_kinds(kinds, ["user", "item"])
    for rows in (None, torch.tensor([3])):
        found = as_set(likely_pairs(graph, vectors(8), torch.ones(4), rows, 50))
        assert found and all((u + v) % 2 for u, v in found)


def test_number_of_candidates_grows_with_links_not_with_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ACTIVE_NODES", 64)
    monkeypatch.setattr(module, "MAX_BUSY_NODES", 8)
    monkeypatch.setattr(module, "MAX_HUBS", 0)
    counts = []
    for size in (500, 20_000):
        graph = random_graph(size, 400)
        counts.append(len(likely_pairs(graph, vectors(size), torch.ones(4), None, 100)))
    assert max(counts) < 3 * 400 + 100 + 64 * 16 * 16 + 8 * 7 / 2
    assert counts[1] <= counts[0]


def test_only_the_latest_past_pairs_are_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAST_PAIRS", 2)
    monkeypatch.setattr(module, "MAX_ACTIVE_NODES", 0)
    monkeypatch.setattr(module, "MAX_BUSY_NODES", 0)
    monkeypatch.setattr(module, "MAX_HUBS", 0)
    graph = make_graph([9] * 3, [[(0, 1), (2, 3)], [(4, 5)], [(2, 3)]])
    assert as_set(likely_pairs(graph, vectors(9), torch.ones(4), None, 5)) == {(2, 3), (4, 5)}


def test_candidates_are_reproducible() -> None:
    graph = random_graph(300, 900)
    one, two = (likely_pairs(graph, vectors(300), torch.ones(4), None, 50) for _ in range(2))
    assert torch.equal(one, two)


def test_wrong_arguments_are_refused() -> None:
    graph = meetings()
    with pytest.raises(ModelError, match=r"shape \(7, 4\) and \(4,\), expected \[8, d\] and \[d\]"):
        likely_pairs(graph, vectors(7), torch.ones(4), None, 5)
    with pytest.raises(ModelError, match="number=0 must be at least 1"):
        likely_pairs(graph, vectors(8), torch.ones(4), None, 0)
    with pytest.raises(ModelError, match=r"^node 8 of a graph with 8 nodes"):
        likely_pairs(graph, vectors(8), torch.ones(4), torch.tensor([8]), 5)
