"""Ranking metrics against TGB and a loop, and the candidates."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import dysat
from dysat.evaluation.protocols import LinkSplit, link_split, single_step
from dysat.evaluation.ranking import (
    hits,
    mrr,
    never_linked,
    pair_numbers,
    precision_at,
    precision_figures,
    rank_figures,
    ranking_candidates,
    ranks,
)  # fmt: skip


@pytest.fixture(scope="module")
def uci() -> dysat.DynamicGraph:
    return dysat.load_dataset("uci")


def drawn_scores(number: int = 500, candidates: int = 30, *, ties: bool, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(number, candidates + 1, generator=generator, dtype=torch.float64)
    scores = (2 * scores).round() if ties else scores
    return scores[:, 0], scores[:, 1:]


def test_ranks_by_hand() -> None:
    negative = torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0], [2.0, 1.0, 0.0], [1.0, 2.0, 2.0]])
    found = ranks(torch.tensor([2.0, 1.0, 9.0, 2.0]), negative)
    assert found.tolist() == [2.5, 2.5, 1.0, 2.0]
    assert mrr(found) == pytest.approx((0.4 + 0.4 + 1 + 0.5) / 4)
    assert [hits(found, k) for k in (1, 2, 3)] == [0.25, 0.5, 1.0]


def test_rank_figures_by_hand() -> None:
    found = torch.tensor([1.0, 2.0, 4.0, 10.0, 10.5, 20.0, 5.0])
    new = torch.tensor([False, True, True, True, False, True, True])
    figures = rank_figures(found, new)
    assert figures["mrr"] == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 10 + 1 / 10.5 + 1 / 20 + 1 / 5) / 7)
    assert figures["hits_at_10"] == pytest.approx(5 / 7)  # a tie for place 10 has rank 10.5 and does not count
    assert figures["new_mrr"] == pytest.approx((1 / 2 + 1 / 4 + 1 / 10 + 1 / 20 + 1 / 5) / 5)
    four = new & (found != 5)
    assert math.isnan(rank_figures(found, four)["new_mrr"]) and rank_figures(found, four)["mrr"] == figures["mrr"]


def test_precision_by_hand() -> None:
    scores = torch.tensor([0.9, 0.8, 0.7, 0.5, 0.5, 0.5, 0.1])
    labels = torch.tensor([True, False, True, True, False, False, True])
    assert [precision_at(scores, labels, k) for k in (1, 2, 3)] == [1.0, 0.5, pytest.approx(2 / 3)]
    assert precision_at(scores, labels, 4) == pytest.approx((2 + 1 / 3) / 4)  # one of three equal scores is a link
    assert precision_at(scores, labels, 5) == pytest.approx((2 + 2 / 3) / 5)
    assert precision_at(scores, labels, 7) == pytest.approx(4 / 7)
    assert math.isnan(precision_at(scores, labels, 8))
    assert math.isnan(precision_at(torch.tensor([1.0, torch.nan]), labels[:2], 1))


def test_precision_of_new_pairs_by_hand() -> None:
    scores, labels = torch.arange(20.0).flip(0), torch.arange(20) % 3 == 0  # links: 0, 3, 6, 9, 12, 15, 18
    new = torch.arange(20) >= 4
    figures = precision_figures(scores, labels, new)
    assert figures["precision_at_10"] == 0.4 and figures["new_precision_at_10"] == 0.3  # 6, 9, 12 of 4 to 13
    assert math.isnan(figures["precision_at_100"]) and math.isnan(figures["new_precision_at_100"])
    few = torch.arange(20) >= 8  # four links
    assert math.isnan(precision_figures(scores, labels, few)["new_precision_at_10"])


@pytest.mark.parametrize("directed", [False, True])
def test_never_linked_pairs(directed: bool) -> None:
    links = [[(0, 1)], [(2, 1), (3, 4)], [(0, 4)]]
    table = tuple(
        list(column) for column in zip(*((u, v, t) for t, day in enumerate(links) for u, v in day), strict=True)
    )
    graph = dysat.build_snapshots(dysat.read_events(table, time_unit="step"), every=1, directed=directed)
    ids = graph.ids([0, 1, 2, 3, 4]).tolist()
    pairs = torch.tensor([[ids[u], ids[v]] for u, v in ((1, 0), (0, 1), (1, 2), (2, 1), (0, 4), (0, 2), (3, 4))])
    expected = [directed, False, directed, False, True, True, False]  # the link of the last snapshot comes later
    assert never_linked(graph, 1, pairs).tolist() == expected
    assert never_linked(graph, 2, pairs).tolist() == [*expected[:4], False, True, False]


def test_given_links_decide_which_nodes_are_candidates(uci: dysat.DynamicGraph) -> None:
    split = single_step(uci, 11)
    keys = np.sort(pair_numbers(split.pairs[split.labels], directed=False))
    whole = ranking_candidates(uci, split, 50)
    assert torch.equal(ranking_candidates(uci, split, 50, linked=keys), whole)
    blind = replace(split, target=99)  # this snapshot does not exist, so that its links cannot be read
    assert ranking_candidates(uci[:12], blind, 50, linked=keys[:10]).shape == whole.shape


def test_rank_is_the_mean_over_the_orders_of_ties() -> None:
    positive, negative = drawn_scores(50, 6, ties=True)
    for score, others, found in zip(
        positive.tolist(), negative.tolist(), ranks(positive, negative).tolist(), strict=True
    ):
        above, ties = sum(o > score for o in others), sum(o == score for o in others)
        assert found == np.mean([1 + above + place for place in range(ties + 1)])


@pytest.mark.slow  # importing TGB takes seconds
@pytest.mark.parametrize("ties", [False, True])
def test_metrics_equal_tgb(ties: bool) -> None:
    pytest.importorskip("tgb")
    from tgb.linkproppred.evaluate import Evaluator  # type: ignore[import-not-found]

    positive, negative = drawn_scores(ties=ties)
    given = {"y_pred_pos": positive.numpy(), "y_pred_neg": negative.numpy(), "eval_metric": ["mrr", "hits@"]}
    found = ranks(positive, negative)
    for k in (1, 3, 10):
        theirs = Evaluator("tgbl-wiki", k_value=k).eval(given)
        assert mrr(found) == pytest.approx(float(theirs["mrr"]), abs=1e-6)  # TGB computes in float32
        assert hits(found, k) == pytest.approx(float(theirs[f"hits@{k}"]), abs=1e-6)


def test_undefined_metrics_are_nan() -> None:
    found = ranks(torch.tensor([1.0, math.nan, 1.0]), torch.tensor([[0.0], [0.0], [math.nan]]))
    assert found[0] == 1 and found[1:].isnan().all()
    assert math.isnan(mrr(found)) and math.isnan(hits(found, 1))
    assert math.isnan(mrr(torch.empty(0))) and math.isnan(hits(torch.empty(0), 1))
    assert ranks(torch.zeros(2), torch.zeros(2, 0)).tolist() == [1, 1]


def check(graph: dysat.DynamicGraph, split: LinkSplit, found: Tensor, number: int) -> None:
    """Check shape, range, distinctness, and that no candidate is u itself or linked with u."""
    u = split.pairs[split.labels][:, :1]  # [P, 1]
    assert found.shape == (len(u), number) and found.dtype == torch.int64
    assert found.min() >= split.lowest[1] and found.max() < graph.known[split.step]
    assert (found.sort(1).values.diff(dim=1) > 0).all() and (found != u).all()
    first, second = graph[split.target].links()[:2]
    linked = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.bool)
    linked[first, second] = linked[second, first] = True
    assert not linked[u, found].any()


@pytest.mark.parametrize("number", [1, 20, 300])  # 300 is more than half of the pool, which is then listed
def test_candidates_are_distinct_and_unlinked(uci: dysat.DynamicGraph, number: int) -> None:
    split = single_step(uci, 0)
    found = ranking_candidates(uci, split, number)
    assert uci.known[0] < 2 * 300
    check(uci, split, found, number)
    assert torch.equal(found, ranking_candidates(uci, split, number, seed=0))
    assert not torch.equal(found, ranking_candidates(uci, split, number, seed=1))


def test_candidates_of_other_protocols(uci: dysat.DynamicGraph) -> None:
    for split in (
        link_split(uci, 1, protocol="new-nodes"),
        link_split(uci, 1, protocol="new-nodes", new_ends="one"),
        link_split(uci, 6, protocol="multi-step", target=12),
    ):
        check(uci, split, ranking_candidates(uci, split, 15), 15)


@pytest.mark.parametrize("number", [3, 17])  # drawn; listed
def test_candidates_are_uniform(number: int) -> None:
    nodes = 24
    links = [(0, k) for k in range(1, 5)] + [(6, 7)]
    u, v = np.array(links).T
    snapshots = [dysat.Snapshot.from_links(u, v, None, num_nodes=nodes, start=t, stop=t + 1) for t in (0, 1)]
    graph = dysat.DynamicGraph(np.arange(nodes), tuple(snapshots), clock="step")
    split = single_step(graph, 0)
    hub = split.pairs[split.labels][:, 0] == 0
    drawn = torch.cat([ranking_candidates(graph, split, number, seed)[hub].flatten() for seed in range(200)])
    counts = torch.bincount(drawn, minlength=nodes)
    assert counts[:5].tolist() == [0] * 5
    expected = 200 * 4 * number / 19
    assert (counts[5:] - expected).abs().max() < 5 * expected**0.5


def test_typed_candidates_have_the_kind_of_the_replaced_node(uci: dysat.DynamicGraph) -> None:
    kinds = np.random.default_rng(0).integers(0, 2, 1809)
    graph = uci.with_kinds(kinds, ("user", "item"))
    split = single_step(graph, 11)
    for number in (10, 600):
        found = ranking_candidates(graph, split, number, typed=True)
        check(graph, split, found, number)
        replaced = kinds[split.pairs[split.labels][:, 1].numpy()]
        assert (kinds[found.numpy()] == replaced[:, None]).all()
    assert (kinds[ranking_candidates(graph, split, 10).numpy()] != replaced[:, None]).any()


def test_invalid_arguments_raise(uci: dysat.DynamicGraph) -> None:
    split = single_step(uci, 0)
    with pytest.raises(dysat.DysatError, match=r"^number=\d+: node \d+ has only \d+ candidates it is not linked with$"):
        ranking_candidates(uci, split, uci.known[0] - 1)
    with pytest.raises(dysat.DysatError, match=r"^number=0"):
        ranking_candidates(uci, split, 0)
    with pytest.raises(dysat.DysatError, match=r"^seed=-1"):
        ranking_candidates(uci, split, 5, seed=-1)
    with pytest.raises(dysat.DysatError, match=r"^typed pairs need kinds"):
        ranking_candidates(uci, split, 5, typed=True)
    with pytest.raises(dysat.DysatError, match=r"^scores have shapes \(3,\) and \(2, 4\)"):
        ranks(torch.zeros(3), torch.zeros(2, 4))
    with pytest.raises(dysat.DysatError, match=r"^k=0"):
        hits(torch.ones(3), 0)
