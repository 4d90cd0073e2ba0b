"""Heuristics and SVD against loops of their formulas, at every step of small graphs with self-loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from small import make_graph, meetings
from torch import Tensor
from torch.testing import assert_close

from dysat import DynamicGraph, ModelError
from dysat.features.link_memory import decayed_links
from dysat.models.heuristics import scores as heuristics
from dysat.models.heuristics import svd
from dysat.models.heuristics.scores import (
    AdamicAdar,
    CommonNeighbours,
    DegreeProduct,
    DegreeSum,
    EdgeBank,
    EdgeMemory,
    Heuristic,
    LastSnapshot,
    ResourceAllocation,
)
from dysat.models.heuristics.svd import TruncatedSVD
from dysat.system.tensors import read_tensors, write_tensors

DECAYED = [EdgeMemory, DegreeProduct, DegreeSum, CommonNeighbours, AdamicAdar, ResourceAllocation]
ALL = [LastSnapshot, EdgeBank, *DECAYED]
Matrix = list[list[float]]


def random_graph(seed: int, *, dyadic: bool = False) -> DynamicGraph:
    """Nine nodes that arrive in three steps; a third of all pairs, self-pairs too, are linked; snapshot 2 is empty."""
    rng = np.random.default_rng(seed)
    known, links, weights = [4, 7, 7, 9, 9], [], []
    for t, number in enumerate(known):
        pairs = [(u, v) for u in range(number) for v in range(u, number) if t != 2 and rng.random() < 1 / 3]
        links.append(pairs)
        weights.append([float(w) / (2 if dyadic else 3) for w in rng.integers(1, 6, len(pairs))])
    return make_graph(known, links, weights=weights)


def history(graph: DynamicGraph, step: int, decay: float, *, weighted: bool = True) -> Matrix:
    """Σ_k decay^(t−k) w_uv^k, or with weights 1; the diagonal is 0."""
    size = graph.known[step]
    table = [[0.0] * size for _ in range(size)]
    for k in range(step + 1):
        for u, v, weight in zip(*(part.tolist() for part in graph[k].links()), strict=True):
            if u != v:
                table[u][v] += decay ** (step - k) * (weight if weighted else 1)
                table[v][u] = table[u][v]
    return table


def expected_scores(model: Heuristic, graph: DynamicGraph, step: int) -> Callable[[int, int], float]:
    decay = getattr(model, "decay", 1.0)
    m, paths = history(graph, step, decay), history(graph, step, decay, weighted=False)
    last = history(graph, step, 0.0, weighted=False)
    size = [math.log(1 + sum(row)) for row in m]
    middle = [1.0] * len(m)
    if type(model) is AdamicAdar:
        middle = [1 / math.log(max(2, sum(row))) for row in paths]
    elif type(model) is ResourceAllocation:
        middle = [1 / sum(row) if sum(row) else 0.0 for row in paths]

    def score(u: int, v: int) -> float:
        match model:
            case LastSnapshot():
                return float(last[u][v] > 0)
            case EdgeBank():
                return float(m[u][v] > 0)
            case DegreeProduct():
                return size[u] * size[v]
            case DegreeSum():
                return size[u] + size[v]
        return sum(paths[u][k] * paths[v][k] * middle[k] for k in range(len(m)))

    return score


def all_pairs(size: int) -> Tensor:
    return torch.tensor(list(combinations(range(size), 2)), dtype=torch.int64).reshape(-1, 2)


@pytest.mark.parametrize("kind", [k for k in ALL if k is not EdgeMemory])
@pytest.mark.parametrize(("seed", "decay"), [(0, 0.0), (1, 0.3), (2, 1.0)])
def test_scores_match_the_formula(kind: type[Heuristic], decay: float, seed: int) -> None:
    graph = random_graph(seed)
    model = kind.with_options({"decay": decay} if kind in DECAYED else {}).fit(graph)
    for step in (4, 0, 3, 1, 2):  # in any order: the last one is cached
        pairs = all_pairs(graph.known[step])
        scores = model.pair_scores(pairs, step)
        assert scores.dtype == torch.float64
        expected = expected_scores(model, graph, step)
        assert_close(scores.tolist(), [expected(u, v) for u, v in pairs.tolist()])
        assert torch.equal(model.pair_scores(pairs.flip(1), step), scores)


@pytest.mark.parametrize("window", [1, 2, 3, 99])
def test_edgebank_forgets_links_before_its_window(window: int) -> None:
    graph = random_graph(0)
    model = EdgeBank(window=window).fit(graph)
    for step in range(5):
        recent = graph[max(0, step - window + 1) : step + 1]
        linked = {pair for s in recent for pair in zip(*(part.tolist() for part in s.links()[:2]), strict=True)}
        pairs = all_pairs(graph.known[step])
        assert model.pair_scores(pairs, step).tolist() == [float(tuple(p) in linked) for p in pairs.tolist()]


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_edge_memory_ranks_by_memory_then_by_degree_product(decay: float, seed: int) -> None:
    graph = random_graph(seed, dyadic=True)  # sums are exact, so ties are exact
    model = EdgeMemory(decay=decay).fit(graph)
    for step in range(5):
        m, pairs = history(graph, step, decay), all_pairs(graph.known[step])
        scores = model.pair_scores(pairs, step).tolist()
        assert model.pair_scores(pairs.flip(1), step).tolist() == scores
        keys = []
        for u, v in pairs.tolist():
            low, high = sorted([sum(m[u]), sum(m[v])])
            keys.append((m[u][v], math.log1p(low) * math.log1p(high)))
        for (one, a), (other, b) in product(zip(keys, scores, strict=True), repeat=2):
            if one == other:
                assert a == b
            elif one[0] != other[0] or not math.isclose(one[1], other[1]):
                assert (a < b) == (one < other)


def test_a_degree_product_never_outranks_memory() -> None:
    """Two hubs, and two nodes of degree 1 whose link is slightly stronger."""
    links = [(0, 1), (2, 3), *((0, k) for k in range(4, 40)), *((1, k) for k in range(4, 40))]
    weights = [1.0, 1.0 + 2**-50, *[1e300] * 72]
    model = EdgeMemory().fit(make_graph([40], [links], weights=[weights]))
    hubs, others, none = model.pair_scores(torch.tensor([[0, 1], [2, 3], [2, 0]])).tolist()
    assert none < 1 <= hubs < 2 <= others < 3


@pytest.mark.parametrize("kind", ALL)
def test_scores_do_not_depend_on_later_snapshots(kind: type[Heuristic]) -> None:
    graph = random_graph(1)
    empty = replace(graph[3], rows=graph[3].rows[:0], offsets=graph[3].offsets[:1], neighbours=graph[3].rows[:0])
    empty = replace(empty, weights=graph[3].weights[:0])
    other = replace(graph, snapshots=(*graph.snapshots[:3], empty, graph[4]))
    models = [kind().fit(g) for g in (graph, other)]
    for step in range(4):
        scores = [model.pair_scores(all_pairs(graph.known[step]), step) for model in models]
        assert torch.equal(*scores) == (step < 3)


@pytest.mark.parametrize(
    ("kind", "theirs"),
    [
        (CommonNeighbours, lambda g, pairs: [(u, v, len(list(nx.common_neighbors(g, u, v)))) for u, v in pairs]),
        (AdamicAdar, nx.adamic_adar_index),
        (ResourceAllocation, nx.resource_allocation_index),
    ],
)
def test_common_neighbour_scores_match_networkx(kind: type[Heuristic], theirs: Any) -> None:
    u, v = np.triu_indices(30, 1)
    linked = np.random.default_rng(0).random(len(u)) < 0.2
    links = list(zip(u[linked].tolist(), v[linked].tolist(), strict=True))
    pairs = all_pairs(30)
    scores = kind().fit(make_graph([30], [links])).pair_scores(pairs)
    assert_close(scores.tolist(), [float(score) for *_, score in theirs(nx.Graph(links), pairs.tolist())])


@pytest.mark.parametrize("entries", [1, 7, 40])
def test_rows_multiplied_in_parts_give_the_same_scores(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, pairs = AdamicAdar().fit(random_graph(0)), all_pairs(9)
    whole = model.pair_scores(pairs)
    monkeypatch.setattr(heuristics, "ENTRIES", entries)
    assert torch.equal(model.pair_scores(pairs), whole)
    assert model.pair_scores(pairs[:0]).shape == (0,)


@pytest.mark.parametrize("kind", ALL)
def test_top_links_are_the_highest_scoring_pairs(kind: type[Heuristic]) -> None:
    graph = random_graph(2)
    model, pairs = kind().fit(graph), all_pairs(9)
    chances = model.score_links(pairs, ids=True)
    assert_close([link.score for link in model.top_links(99)], sorted(chances.tolist(), reverse=True))
    best = model.top_links(99, node=4)
    assert {link.u for link in best} == {4} and len(best) == 8
    assert_close([link.score for link in best], model.score_links([[4, link.v] for link in best], ids=True).tolist())


@pytest.mark.parametrize("kind", ALL)
def test_probabilities_increase_with_the_score(kind: type[Heuristic]) -> None:
    for graph in (random_graph(0), random_graph(1), random_graph(2), meetings(), meetings()[:1]):
        model = kind().fit(graph)
        scores = torch.cat([torch.tensor([0.0, 1e-6, 30.0]), model.pair_scores(all_pairs(graph.num_nodes))]).unique()
        chances = model._chances(scores)
        assert model.calibration_[0] > 0 and (chances > 0).all() and (chances < 1).all()
        assert (chances.diff() >= 0).all() and torch.equal(model._chances(scores.repeat(3)), chances.repeat(3))
        assert (chances.diff() > 0)[scores.diff() > 1e-12].all()  # unless scores differ by rounding only


def test_probabilities_are_calibrated_on_the_last_snapshot() -> None:
    """Three quarters of the links of the last snapshot existed before, and few of the other pairs."""
    u, v = np.triu_indices(60, 1)
    order = np.random.default_rng(0).permutation(len(u))
    first, second = order[:400], order[100:500]
    links = [list(zip(u[at].tolist(), v[at].tolist(), strict=True)) for at in (first, second)]
    model = LastSnapshot().fit(make_graph([60, 60], links))
    linked, unlinked = model._chances(torch.tensor([1.0, 0.0])).tolist()
    others = 100 / (len(u) - 400)  # fraction of the unlinked pairs that had a link before
    assert linked == pytest.approx(0.75 / (0.75 + others), abs=0.05)
    assert unlinked == pytest.approx(0.25 / (0.25 + 1 - others), abs=0.05)


@pytest.mark.parametrize(
    "links",
    [
        [[(0, 1), (2, 3)]],  # no transition
        [[(0, 1), (2, 3)], []],  # an empty last snapshot
        [[(0, 1), (2, 3)], [(4, 4), (4, 5)]],  # only new nodes
        [[], [(0, 1), (1, 2)]],  # an empty first snapshot
        [[(0, 1), (2, 3)], [(0, 2), (1, 3), (0, 3), (1, 2)]],  # no link repeats: the slope is not positive
    ],
)
def test_an_uninformative_transition_leaves_the_calibration_at_its_default(links: list[list[tuple[int, int]]]) -> None:
    model = EdgeBank().fit(make_graph([4, 6][: len(links)], links))
    assert model.calibration_.tolist() == [1.0, 0.0]
    assert_close(model._chances(torch.tensor([0.0, 1.0])).tolist(), [1 / 2, 2 / 3], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("tensors", [{}, {"calibration": torch.ones(3)}, {"weights": torch.ones(2)}])
def test_a_file_with_wrong_tensors_is_refused(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    EdgeBank().fit(random_graph(0)).save(tmp_path)
    file = tmp_path / "model.safetensors"
    facts, _ = read_tensors(file, "model", 1, error=ModelError)
    write_tensors(file, "model", 1, facts, tensors, error=ModelError)
    with pytest.raises(ModelError, match="the stored calibration does not fit the model: edgebank needs two numbers"):
        EdgeBank.load(tmp_path)


@pytest.mark.parametrize("kind", [*ALL, TruncatedSVD])
def test_a_second_fit_clears_cached_scores(kind: type[Heuristic]) -> None:
    graph, pairs = random_graph(0), all_pairs(9)
    model = kind().fit(random_graph(1))
    for step in (-1, -2):
        model.pair_scores(pairs, step)  # cached
        assert torch.equal(
            model.fit(graph).score_links(pairs, ids=True), kind().fit(graph).score_links(pairs, ids=True)
        )
        model.fit(random_graph(1))


@pytest.mark.parametrize("kind", [*ALL, TruncatedSVD])
@pytest.mark.parametrize(("known", "links"), [([1], [[]]), ([1, 1], [[(0, 0)], [(0, 0)]]), ([3, 3], [[], []])])
def test_graphs_without_links(kind: type[Heuristic], known: list[int], links: list[list[tuple[int, int]]]) -> None:
    model = kind().fit(make_graph(known, links))
    pairs = all_pairs(known[-1])
    assert model.pair_scores(pairs).tolist() == [0.0] * len(pairs)
    assert len(model.top_links(9)) == len(pairs)


def test_invalid_options_and_steps_are_refused() -> None:
    for kind in [*DECAYED, TruncatedSVD]:
        for decay in (-0.1, 1.1, math.nan):
            with pytest.raises(ModelError, match=r"decay=.* must lie in \[0, 1\]"):
                kind(decay=decay)
    for kind, options, message in [
        (EdgeBank, {"window": 0}, "window=0 must be at least 1"),
        (TruncatedSVD, {"features": 0}, "features=0 must be at least 1"),
        (TruncatedSVD, {"seed": -1}, "seed=-1 must not be negative"),
    ]:
        with pytest.raises(ModelError, match=message):
            kind(**options)
    for kind in [*ALL, TruncatedSVD]:
        with pytest.raises(ModelError, match="call fit"):
            kind().score_links([[0, 1]], ids=True)
        with pytest.raises(ModelError, match="step 5: the model knows steps 0 to 4"):
            kind().fit(random_graph(0)).pair_scores(all_pairs(3), 5)


def test_pairs_of_equal_history_have_bitwise_equal_memory() -> None:
    weights = [0.1, 0.7, 1.3, 2.9, 0.3]
    links = [[(0, 5), (1, 2), (3, 4)] for _ in weights]
    graph = make_graph([6] * 5, links, weights=[[w] * 3 for w in weights])
    values = decayed_links(graph.snapshots, 0.3).values
    assert len(values) == 3 and len(set(values.tolist())) == 1


def log_memory(graph: DynamicGraph, step: int, decay: float) -> Tensor:
    return torch.tensor(history(graph, step, decay), dtype=torch.float64).log1p()


@pytest.mark.parametrize("decay", [0.0, 0.5, 1.0])
def test_svd_of_full_rank_reconstructs_the_matrix(decay: float) -> None:
    """E Eᵀ = U Σ Uᵀ, whose square is A²."""
    graph = random_graph(0)
    model = TruncatedSVD(features=12, decay=decay).fit(graph)
    for step in range(5):
        matrix, e = log_memory(graph, step, decay), model.embed(step).double()
        assert e.shape == (graph.known[step], 12) and not e[:, graph.known[step] :].any()
        assert_close(e @ e.T @ e @ e.T, matrix @ matrix, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("features", [3, 20])  # iterative and dense
def test_svd_columns_are_scaled_singular_vectors(features: int) -> None:
    u, v = np.triu_indices(25, 1)
    linked = np.random.default_rng(0).random(len(u)) < 0.3
    links = list(zip(u[linked].tolist(), v[linked].tolist(), strict=True))
    weights = np.random.default_rng(1).random(len(links)).tolist()
    graph = make_graph([26], [links], weights=[weights])  # one node without links
    e = TruncatedSVD(features=features).fit(graph).embed()
    matrix = log_memory(graph, 0, 0.5)
    left, values, _ = torch.linalg.svd(matrix)
    wanted = left[:, :features] * values[:features].sqrt()
    wanted *= (wanted * e).sum(0).sign()
    assert_close(e, wanted.float(), atol=1e-4, rtol=1e-4)
    other = TruncatedSVD(features=features, seed=7).fit(graph).embed()
    assert_close(other, e, atol=1e-5, rtol=1e-5)


def test_svd_of_a_bipartite_graph_separates_both_signs() -> None:
    """Every singular value occurs twice; each column has the same norm on both sides."""
    sides = np.random.default_rng(0).random((14, 16)) < 0.4
    links = [(u, 14 + v) for u, v in np.argwhere(sides).tolist()]
    e = TruncatedSVD(features=6).fit(make_graph([30], [links])).embed()
    assert_close(e[:14].square().sum(0), e[14:].square().sum(0), atol=1e-5, rtol=1e-4)


def test_svd_of_low_rank_is_reproducible() -> None:
    """A star has two non-zero singular values, so the iteration must restart."""
    graph = make_graph([60], [[(0, k) for k in range(1, 60)]])
    once = TruncatedSVD(features=8).fit(graph).embed()
    svd._decompose.cache_clear()
    again = TruncatedSVD(features=8).fit(graph).embed()
    assert torch.equal(once, again) and not once[:, 2:].any()
    assert_close(once[:, :2].square().sum(0), torch.full((2,), math.log(2) * math.sqrt(59)))
