"""Candidates for top links: they include the most likely ones, and there are few."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small import make_graph, meetings
from torch import Tensor

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.forecast import candidates as module
from dysat.models.forecast.candidates import likely_pairs, partners_of
from dysat.models.forecast.pair_score import PairScore


def vectors(size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(seed))


def by_id(pairs: Tensor) -> Tensor:
    """A score: pairs of low ids are likely."""
    return -pairs.double().sum(1)


def keep_all(pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.ones(len(pairs), dtype=np.bool_)


def partners(graph: DynamicGraph, nodes: list[int], e: Tensor, k: int = 1) -> list[tuple[int, int]]:
    """Candidates for the links of these nodes, checked to be distinct and sorted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "spectral_vectors", lambda graph, three_step: (e, torch.ones(e.shape[1])))
        parts = [pairs for _, pairs in partners_of(graph, np.array(nodes), True, k, by_id, keep_all)]
    found = [(u, v) for part in parts for u, v in part.tolist()]
    assert found == sorted(set(found))
    return found


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
    found = likely_pairs(graph, torch.zeros(n, 1), torch.ones(1), 1, by_id)  # embeddings without information
    every = torch.combinations(graph[step].rows[graph[step].offsets.diff() >= 3])
    best = every[score.log_odds(graph, step, every).topk(20).indices]
    assert as_set(best) <= as_set(found)
    assert len(found) < n * (n - 1) // 2 / 5


def test_past_pairs_and_pairs_two_steps_apart_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BUSY_NODES", 0)
    monkeypatch.setattr(module, "MAX_HUBS", 0)
    graph = make_graph([7, 7], [[(0, 1), (1, 2), (5, 5)], [(3, 4)]])
    found = as_set(likely_pairs(graph, torch.zeros(7, 1), torch.ones(1), 1, by_id))
    assert {(0, 1), (1, 2), (3, 4), (0, 2)} <= found
    assert len(found) <= 5  # and one with a large product


def test_largest_products_match_a_loop() -> None:
    graph, e, weights = make_graph([9], [[]]), vectors(9), torch.tensor([1.0, -2.0, 0.5, 3.0])
    product = {(u, v): float((weights * e[u] * e[v]).sum()) for u in range(9) for v in range(u + 1, 9)}
    best = sorted(product, key=lambda pair: -product[pair])[:6]
    assert as_set(likely_pairs(graph, e, weights, 6, by_id)) == set(best)
    assert len(likely_pairs(graph, e, weights, 100, by_id)) == 36


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
        assert as_set(likely_pairs(graph, vectors(7), torch.ones(4), 1, by_id)) == past | {(2, 3)}
    else:  # 0 and 1 of the one kind, 2 and 3 of the other
        found = likely_pairs(graph.with_kinds(kinds, ["user", "item"]), vectors(7), torch.ones(4), 1, by_id)
        assert as_set(found) == past | {(0, 2), (0, 3), (1, 2), (1, 3)}


def test_all_pairs_of_a_hub_and_an_active_node_are_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HUBS", 1)
    monkeypatch.setattr(module, "MAX_BUSY_NODES", 0)
    monkeypatch.setattr(module, "FAN_OUT", 0)
    graph = make_graph([7, 7], [[(0, 1), (5, 6)], [(0, 2), (0, 3), (4, 5)]])
    found = as_set(likely_pairs(graph, vectors(7), torch.ones(4), 1, by_id))
    assert {(0, v) for v in range(1, 7)} <= found and len(found) <= 6 + 3


def test_one_node_of_a_small_graph_is_paired_with_all_others() -> None:
    assert partners(meetings(), [3], vectors(8)) == [(3, v) for v in range(8) if v != 3]
    assert partners(meetings(), [1, 6], vectors(8)) == [(u, v) for u in (1, 6) for v in range(8) if v != u]


@pytest.mark.parametrize("limit", ["ALL_PARTNERS_NODES", "ALL_PARTNERS_PAIRS"])
def test_nodes_of_a_large_graph_are_paired_with_close_and_similar_nodes(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ((limit, 5), ("POPULAR", 0), ("PARTNER_PRODUCTS", 50)):
        monkeypatch.setattr(module, name, value)
    e = torch.zeros(300, 1)
    e[:] = torch.arange(300).flip(0)[:, None]
    graph = make_graph([300, 300], [[(3, 201), (201, 206)], [(250, 252)]])
    nodes = [3] if limit == "ALL_PARTNERS_NODES" else [3, 299]
    monkeypatch.setattr(module, "MAX_PRODUCTS", 0)
    monkeypatch.setattr(module, "MAX_PARTNERS", 5)  # 250, 252, 201, and two more with links or low ids
    found = partners(graph, nodes, e)
    assert {(3, 201), (3, 206), (3, 250), (3, 252)} <= set(found) and len(found) < 5 * len(nodes) + 1
    monkeypatch.setattr(module, "MAX_PRODUCTS", 1 << 32)
    found = partners(graph, nodes, e)
    near = 1000 if len(nodes) == 1 else 50
    likely = [v for v in range(300) if v != 3][:near]
    assert [v for u, v in found if u == 3] == sorted({*likely, 201, 206})


def test_popular_nodes_are_candidates_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among the three busiest nodes, those with the highest scores with other nodes; by `by_id`, the first."""
    for name, value in (("ALL_PARTNERS_PAIRS", 0), ("POPULAR", 2), ("POPULAR_AMONG", 3), ("PARTNER_PRODUCTS", 1)):
        monkeypatch.setattr(module, name, value)
    hubs = [(hub, 10 * i + hub % 3) for hub in (200, 210, 220) for i in range(5)]
    graph = make_graph([300], [[*hubs, (250, 251)]])
    found = partners(graph, [251, 280], torch.zeros(300, 1), k=0)
    assert {(251, 250), (251, 200), (251, 210), (280, 200), (280, 210)} <= set(found)
    assert not any(v == 220 for _, v in found) and len(found) <= 7  # and one with a large product for each


def test_promising_candidates_are_told_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of earlier links: a pair that was linked often has a high score."""
    counts: dict[tuple[int, int], int] = {}
    rng = np.random.default_rng(2)
    for name, value in (("ALL_PARTNERS_PAIRS", 0), ("MIN_PARTNERS", 15), ("MIN_BEST", 5), ("POPULAR", 20)):
        monkeypatch.setattr(module, name, value)
    steps = []
    for _ in range(6):
        drawn = [(int(u), int(v)) for u, v in rng.integers(0, 120, (300, 2)) if u != v]
        steps.append([*drawn, *((u, (u + d) % 120) for u in range(120) for d in (1, 2))])
    graph = make_graph([120] * 6, steps)
    for links in steps:
        for pair in {(min(link), max(link)) for link in links}:
            counts[pair] = counts.get(pair, 0) + 1

    def score(pairs: Tensor) -> Tensor:
        return torch.tensor([float(counts.get((min(u, v), max(u, v)), 0)) for u, v in pairs.tolist()])

    e = torch.zeros(120, 1)
    monkeypatch.setattr(module, "spectral_vectors", lambda graph, three_step: (e, torch.ones(1)))
    ((nodes, pairs),) = partners_of(graph, np.arange(120), True, 4, score, keep_all)
    assert nodes.tolist() == list(range(120)) and np.bincount(pairs[:, 0]).max() == 15
    found = {(u, v) for u, v in pairs.tolist()}
    assert all((u, (u + d) % 120) in found for u in range(120) for d in (1, 2))  # linked in all six snapshots
    assert pairs.tolist() == sorted(pairs.tolist())


def test_pairs_that_are_left_out_are_no_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, e = random_graph(100, 300), vectors(100)
    monkeypatch.setattr(module, "spectral_vectors", lambda graph, three_step: (e, torch.ones(4)))
    for limit in (1 << 19, 0):
        monkeypatch.setattr(module, "ALL_PARTNERS_PAIRS", limit)
        parts = partners_of(graph, np.arange(100), True, 5, by_id, lambda pairs: pairs[:, 1] % 7 > 0)
        found = np.concatenate([pairs for _, pairs in parts])
        assert len(found) and (found[:, 1] % 7 > 0).all()


@pytest.mark.slow
def test_the_likeliest_partners_on_uci_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all partners of 12 nodes, by the learned score."""
    model = dysat.DySAT(embeddings=False, transitions=1).fit(dysat.load_dataset("uci")[:4])
    n = model.graph_.num_nodes
    nodes = torch.from_numpy(np.sort(np.random.default_rng(0).choice(n, 12, replace=False)))
    exact = model.top_pairs(10, nodes)[0]
    monkeypatch.setattr(module, "ALL_PARTNERS_PAIRS", 0)
    found = {(u, v) for u, v in model.top_pairs(10, nodes)[0].tolist()}
    assert len(exact) == 120 and np.mean([(u, v) in found for u, v in exact.tolist()]) >= 0.95


def test_candidates_differ_in_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = meetings().with_kinds([0, 1] * 4, ["user", "item"])
    found = as_set(likely_pairs(graph, vectors(8), torch.ones(4), 50, by_id))
    assert found and all((u + v) % 2 for u, v in found)
    for _ in range(2):
        pairs = partners(graph, [3, 4], vectors(8))
        assert pairs and all((u + v) % 2 for u, v in pairs)
        monkeypatch.setattr(module, "ALL_PARTNERS_PAIRS", 0)


def test_only_promising_pairs_are_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The score is a linear function of the columns, so the approximation is exact."""
    graph = random_graph(200, 900)
    links = module.latest_links(graph, False)
    every = [links.past_pairs(), links.closed(links.active_nodes())]
    columns = {(int(u), int(v)): row for pairs, rows in every for (u, v), row in zip(pairs, rows, strict=True)}
    asked = []

    def score(pairs: Tensor) -> Tensor:
        asked.append(len(pairs))
        return torch.tensor([3 * columns[u, v][0] - columns[u, v][-1] for u, v in pairs.tolist()])

    monkeypatch.setattr(module, "MAX_BUSY_NODES", 0)
    monkeypatch.setattr(module, "MAX_HUBS", 0)
    monkeypatch.setattr(module, "MIN_PROMISING", 40)
    monkeypatch.setattr(module, "SAMPLE", 300)
    found = as_set(likely_pairs(graph, torch.zeros(200, 1), torch.ones(1), 1, score))
    assert asked == [300, 300] and 80 <= len(found) <= 81
    for pairs, _ in every:
        values = score(torch.from_numpy(pairs)).numpy()
        chosen = np.array([(u, v) in found for u, v in pairs.tolist()])
        least = np.sort(values)[-40]
        assert chosen[values > least + 1e-9].all() and (values[chosen] < least - 1e-9).sum() <= 1  # the largest product


def test_number_of_candidates_grows_with_links_not_with_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ACTIVE_NODES", 64)
    monkeypatch.setattr(module, "MAX_BUSY_NODES", 8)
    monkeypatch.setattr(module, "MAX_HUBS", 0)
    counts = []
    for size in (500, 20_000):
        graph = random_graph(size, 400)
        counts.append(len(likely_pairs(graph, vectors(size), torch.ones(4), 100, by_id)))
    assert max(counts) < 3 * 400 + 100 + 64 * 16 * 16 + 8 * 7 / 2
    assert counts[1] <= counts[0]


def test_only_the_latest_past_pairs_are_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAST_PAIRS", 2)
    monkeypatch.setattr(module, "MAX_ACTIVE_NODES", 0)
    monkeypatch.setattr(module, "MAX_BUSY_NODES", 0)
    monkeypatch.setattr(module, "MAX_HUBS", 0)
    graph = make_graph([9] * 3, [[(0, 1), (2, 3)], [(4, 5)], [(2, 3)]])
    assert as_set(likely_pairs(graph, vectors(9), torch.ones(4), 5, by_id)) == {(2, 3), (4, 5)}


def test_candidates_are_reproducible() -> None:
    graph = random_graph(300, 900)
    one, two = (likely_pairs(graph, vectors(300), torch.ones(4), 50, by_id) for _ in range(2))
    assert torch.equal(one, two)


def test_wrong_arguments_are_refused() -> None:
    graph = meetings()
    with pytest.raises(ModelError, match=r"shape \(7, 4\) and \(4,\), expected \[8, d\] and \[d\]"):
        likely_pairs(graph, vectors(7), torch.ones(4), 5, by_id)
    with pytest.raises(ModelError, match="number=0 must be at least 1"):
        likely_pairs(graph, vectors(8), torch.ones(4), 0, by_id)
    with pytest.raises(ModelError, match=r"^node 8 of a graph with 8 nodes"):
        partners(graph, [8], vectors(8))


def test_spectrum_finds_partners_three_steps_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a ring of 300 nodes, the largest products are those of nodes nearby."""
    monkeypatch.setattr(module, "ALL_PARTNERS_PAIRS", 0)
    graph = make_graph([300], [[(i, (i + 1) % 300) for i in range(300)]])
    found = [
        v for _, pairs in partners_of(graph, np.array([10, 200]), True, 1, by_id, keep_all) for v in pairs.tolist()
    ]
    assert {(10, 7), (10, 13), (200, 197), (200, 203)} <= {(u, v) for u, v in found}
