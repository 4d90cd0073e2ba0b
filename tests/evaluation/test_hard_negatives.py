"""Hard negatives: their definition, and why they are used in the test only."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import dysat
from dysat.evaluation.hard_negatives import NEGATIVES, Negatives, with_negatives
from dysat.evaluation.probe import evaluate_scores
from dysat.evaluation.protocols import LinkSplit, TooFewLinksError, link_split, single_step
from dysat.nn.logistic import fit_logistic

HARD: tuple[Negatives, ...] = NEGATIVES[1:-1]  # "reversed" needs a directed graph, see test_directed.py
Links = set[tuple[int, int]]


def make_graph(known: list[int], links: list[list[tuple[int, int]]]) -> dysat.DynamicGraph:
    snapshots = []
    for step, (number, pairs) in enumerate(zip(known, links, strict=True)):
        u, v = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        snapshots.append(dysat.Snapshot.from_links(u, v, None, num_nodes=number, start=step, stop=step + 1))
    return dysat.DynamicGraph(nodes=np.arange(known[-1]), snapshots=tuple(snapshots), clock="step")


@pytest.fixture(scope="module")
def uci() -> dysat.DynamicGraph:
    return dysat.load_dataset("uci")


def links_of(graph: dysat.DynamicGraph, *steps: int) -> Links:
    return {(u, v) for t in steps for u, v in zip(*(p.tolist() for p in graph[t].links()[:2]), strict=True)}


def in_test(split: LinkSplit, label: bool, repeat: int | None = None) -> Links:
    mask = (split.test.any(0) if repeat is None else split.test[repeat]) & (split.labels == label)
    return {(u, v) for u, v in split.pairs[mask].tolist()}


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("protocol", ["single-step", "new-links"])
def test_only_test_negatives_change(uci: dysat.DynamicGraph, kind: Negatives, protocol: str) -> None:
    split = link_split(uci, 4, protocol=protocol)  # type: ignore[arg-type]
    hard = with_negatives(split, uci, kind, seed=2)
    assert hard.negatives == kind and (hard.step, hard.target) == (4, 5) and hard.missing == 0
    size = len(split.labels)
    assert torch.equal(hard.pairs[:size], split.pairs) and torch.equal(hard.labels[:size], split.labels)
    assert torch.equal(hard.train[:, :size], split.train) and not hard.train[:, size:].any()
    assert torch.equal(hard.validation[:size], split.validation) and not hard.validation[size:].any()
    assert torch.equal(hard.test[:, :size], split.test & split.labels) and not hard.labels[size:].any()
    assert torch.equal((hard.test & hard.labels).sum(1), (hard.test & ~hard.labels).sum(1))
    for repeat in range(10):
        used = split.pairs[split.validation | split.train[repeat]].tolist()
        assert not in_test(hard, False, repeat) & {(u, v) for u, v in used}
    pool = hard.pairs[size:]
    assert len(pool.unique(dim=0)) == len(pool) <= int(split.labels.sum())
    assert (pool[:, 0] < pool[:, 1]).all() and pool.max() < uci.known[4] and pool.min() >= 0
    assert not in_test(hard, False) & links_of(uci, 5)
    assert len({tuple(mask.tolist()) for mask in hard.test[:, size:]}) == 10  # each repeat has its own negatives


def test_each_kind_has_the_right_pairs(uci: dysat.DynamicGraph) -> None:
    split = single_step(uci, 4)
    before, after = links_of(uci, *range(5)), links_of(uci, *range(6, 13))
    assert in_test(with_negatives(split, uci, "historical"), False) <= before - links_of(uci, 5)
    assert in_test(with_negatives(split, uci, "inductive"), False) <= after - before - links_of(uci, 5)
    ahead = link_split(uci, 6, protocol="multi-step", target=12)  # snapshots in between are also after the step
    drawn = in_test(with_negatives(ahead, uci, "inductive"), False)
    assert drawn <= links_of(uci, *range(7, 12)) - links_of(uci, *range(7)) - links_of(uci, 12)
    assert with_negatives(split, uci, "uniform") is split


def test_degree_matched_negatives_have_the_degrees_of_positives(uci: dysat.DynamicGraph) -> None:
    split = single_step(uci, 4)
    hard = with_negatives(split, uci, "degree-matched")
    pool = hard.pairs[len(split.labels) :]
    positives, uniform = split.pairs[split.labels], split.pairs[~split.labels]
    counts = [torch.bincount(pairs.flatten(), minlength=1809) for pairs in (positives, pool, uniform)]
    assert len(pool) == len(positives)
    away = [(count - counts[0]).abs().sum() / counts[0].sum() for count in counts]
    assert away[1] < 0.1 and away[2] > 1  # nearly every node is as frequent as among the positives
    degrees = torch.bincount(uci[4].rows, uci[4].offsets.diff(), 1809)
    mean = [float(degrees[pairs].mean()) for pairs in (positives, pool, uniform)]
    assert mean[1] == pytest.approx(mean[0], rel=0.05) and mean[2] < mean[0] / 2


def test_small_pools_are_used_completely() -> None:
    ring = [(k, k + 1) for k in range(20)]
    seen = [(0, 5), (1, 9), (4, 4)]  # linked before, not now; a self-loop does not count
    graph = make_graph([40, 41, 41], [ring[:5] + seen + [(38, 39)], ring, [(0, 5), (2, 9), (3, 40), (7, 7), (0, 1)]])
    split = single_step(graph, 0)
    hard = with_negatives(split, graph, "historical")
    assert in_test(hard, False) == {(0, 5), (1, 9), (38, 39)} - {
        tuple(pair) for pair in split.pairs[split.validation & ~split.labels].tolist()
    }
    assert hard.missing == int((split.test & split.labels).sum(1).max()) - 3 > 0
    late = with_negatives(split, graph, "inductive")
    assert {tuple(pair) for pair in late.pairs[len(split.labels) :].tolist()} == {(2, 9)}  # node 40 is unknown
    with pytest.raises(TooFewLinksError, match=r"^step 1: snapshot 2 has no inductive negatives$"):
        with_negatives(single_step(graph, 1), graph, "inductive")
    star = [(0, k) for k in range(1, 30)]
    with pytest.raises(TooFewLinksError, match="no degree-matched negatives"):
        with_negatives(
            single_step(make_graph([60, 60], [star, star]), 0), make_graph([60, 60], [star, star]), "degree-matched"
        )


@pytest.mark.parametrize("kind", HARD)
def test_negatives_obey_new_nodes_and_kinds(kind: Negatives) -> None:
    rng = np.random.default_rng(0)
    old = [(2 * k, 2 * k + 1) for k in range(10)]
    new = old + [(2 * k, 2 * k + 1) for k in range(10, 20)] + [(2 * k, 2 * k + 5) for k in range(4, 17)]
    later = [[(2 * int(i), 2 * int(j) + 1) for i, j in rng.integers(0, 20, (70, 2))] for _ in range(3)]
    graph = make_graph([20, 40, 40, 40, 40], [old, new, *later]).with_kinds([0, 1] * 20, ("user", "item"))
    for ends, lowest in (("both", 20), ("one", 0)):
        split = link_split(graph, 1, protocol="new-nodes", typed=True, new_ends=ends)  # type: ignore[arg-type]
        drawn = in_test(with_negatives(split, graph, kind), False)
        assert drawn and all(lowest <= u < v and v >= 20 and (u + v) % 2 for u, v in drawn)


def test_seed_determines_negatives(uci: dysat.DynamicGraph) -> None:
    split = single_step(uci, 4)
    for kind in HARD:
        one, two, other = (with_negatives(split, uci, kind, seed) for seed in (0, 0, 1))
        assert torch.equal(one.pairs, two.pairs) and torch.equal(one.test, two.test)
        assert not torch.equal(one.pairs, other.pairs)


def test_only_inductive_negatives_depend_on_later_snapshots(uci: dysat.DynamicGraph) -> None:
    split = single_step(uci, 4)
    for kind in ("historical", "degree-matched"):
        whole, cut = (with_negatives(split, graph, kind) for graph in (uci, uci[:6]))  # type: ignore[arg-type]
        assert torch.equal(whole.pairs, cut.pairs) and torch.equal(whole.test, cut.test)


def test_invalid_arguments_raise(uci: dysat.DynamicGraph) -> None:
    split = single_step(uci, 4)
    with pytest.raises(dysat.DysatError, match=r"^no negatives 'historic'; there are uniform, .*mean 'historical'"):
        with_negatives(split, uci, "historic")  # type: ignore[arg-type]
    with pytest.raises(dysat.DysatError, match=r"^the split already has historical negatives"):
        with_negatives(with_negatives(split, uci, "historical"), uci, "inductive")
    with pytest.raises(dysat.DysatError, match=r"^seed=-1"):
        with_negatives(split, uci, "historical", -1)


def test_probe_trained_on_historical_negatives_learns_the_opposite() -> None:
    """Half of the links repeat, so a past link predicts a link; with historical negatives the opposite holds."""
    rng = np.random.default_rng(0)
    chosen = rng.permutation(300 * 299 // 2)[:600]
    v = np.floor((1 + np.sqrt(1 + 8 * chosen)) / 2).astype(int)
    links = list(zip((chosen - v * (v - 1) // 2).tolist(), v.tolist(), strict=True))
    graph = make_graph([300, 300], [links[:400], links[200:]])
    split = single_step(graph, 0)
    hard = with_negatives(split, graph, "historical")
    before = links_of(graph, 0)
    seen = torch.tensor([[float((u, v) in before)] for u, v in hard.pairs.tolist()])  # [B, 1]: the only feature
    historical = dataclasses.replace(hard, train=~hard.test & ~hard.validation & (hard.labels | hard.test.any(0)))
    aucs = {}
    for name, examples in (("uniform", hard), ("historical", historical)):
        weights, bias = fit_logistic(seen[examples.train[0]], examples.labels[examples.train[0]])
        scores = seen.double() @ weights + bias
        aucs[name] = [
            evaluate_scores(scores, s).auc if s is hard else uniform_auc(scores, split) for s in (hard, split)
        ]
    assert aucs["uniform"][1] > 0.7  # has learned that links repeat
    assert aucs["uniform"][0] < 0.3  # fails if all negatives were linked before
    assert aucs["historical"][0] > 0.7 and aucs["historical"][1] < 0.3  # the reverse


def uniform_auc(scores: torch.Tensor, split: LinkSplit) -> float:
    return evaluate_scores(scores[: len(split.labels)], split).auc
