"""Evaluation in a directed graph: ordered pairs are positives, negatives and candidates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from directed import directed_graph, random_arcs

from dysat.errors import GraphError
from dysat.evaluation.hard_negatives import with_negatives
from dysat.evaluation.protocols import check_links, link_split
from dysat.evaluation.ranking import ranking_candidates

GRAPH = directed_graph([20, 24, 24], random_arcs(20, 60, 3))
Pairs = set[tuple[int, int]]


def arcs(step: int) -> Pairs:
    return set(zip(*(part.tolist() for part in GRAPH[step].arcs()[:2]), strict=True))


def as_set(pairs: torch.Tensor) -> Pairs:
    return {(u, v) for u, v in pairs.tolist()}


def test_positives_are_arcs_and_negatives_ordered_pairs_without_one() -> None:
    split = link_split(GRAPH, 1, seed=3)
    positives, negatives = as_set(split.pairs[split.labels]), as_set(split.pairs[~split.labels])
    assert positives == {(u, v) for u, v in arcs(2) if u != v}
    assert len(negatives) == len(positives) and not negatives & arcs(2)
    assert any(u > v for u, v in negatives) and any(u < v for u, v in negatives)
    assert any((v, u) in arcs(2) for u, v in negatives)  # a reversed link is a pair like any other


def test_new_links_are_new_in_their_direction() -> None:
    graph = directed_graph([5] * 2, [{(0, 1): 1, (2, 3): 1}, {(1, 0): 1, (2, 3): 1, (3, 4): 1, (4, 3): 1}])
    split = link_split(graph, 0, protocol="new-links", fewest=0)
    assert as_set(split.pairs[split.labels]) == {(1, 0), (3, 4), (4, 3)}


@pytest.mark.parametrize(("ends", "expected"), [("both", {(5, 4)}), ("one", {(5, 4), (4, 0), (1, 5)})])
def test_new_nodes_in_either_direction(ends: str, expected: Pairs) -> None:
    graph = directed_graph([4, 6, 6], [{(0, 1): 1}, {(4, 5): 1}, {(5, 4): 1, (4, 0): 1, (1, 5): 1, (2, 3): 1}])
    split = link_split(graph, 1, protocol="new-nodes", new_ends=ends, fewest=0)  # type: ignore[arg-type]
    assert as_set(split.pairs[split.labels]) == expected
    negatives = as_set(split.pairs[~split.labels])
    new = [len({u, v} & {4, 5}) for u, v in negatives]
    assert new and min(new) == (2 if ends == "both" else 1)
    if ends == "one":
        for (u, _), row in zip(split.pairs[split.labels].tolist(), ranking_candidates(graph, split, 1), strict=True):
            assert {u, *row.tolist()} & {4, 5}


def test_counting_agrees_with_drawing() -> None:
    full = {(u, v): 1.0 for u in range(4) for v in range(4) if u != v and (u, v) != (3, 0)}
    graph = directed_graph([4] * 2, [{(0, 1): 1}, full])
    assert len(link_split(graph, 0, fewest=1).pairs) == 11 + 1
    check_links(graph, 0, 1, fewest=1)
    with pytest.raises(GraphError, match="pairs without 1, needed 2"):
        check_links(graph, 0, 1, fewest=2)


def test_hard_negatives_are_ordered() -> None:
    split = link_split(GRAPH, 1)
    before, target = arcs(0) | arcs(1), arcs(2)
    drawn = {}
    for kind in ("historical", "degree-matched", "reversed"):
        hard = with_negatives(split, GRAPH, kind)  # type: ignore[arg-type]
        drawn[kind] = as_set(hard.pairs[len(split.pairs) :])
        assert drawn[kind] and not drawn[kind] & target
    assert drawn["historical"] <= before and not drawn["historical"] <= {(v, u) for u, v in before}
    senders, receivers = ({pair[i] for pair in target} for i in range(2))
    assert all(u in senders and v in receivers for u, v in drawn["degree-matched"])
    assert drawn["reversed"] == {(v, u) for u, v in target if u != v} - target
    plain = directed_graph([3] * 2, [{(0, 1): 1}, {(1, 2): 1}])
    plain = type(plain)(plain.nodes, tuple(replace(s, sent=None) for s in plain), "step")
    with pytest.raises(GraphError, match="reversed negatives need direction"):
        with_negatives(link_split(plain, 0, fewest=0), plain, "reversed")


def test_candidates_replace_the_receiver() -> None:
    split = link_split(GRAPH, 1)
    links = split.pairs[split.labels].tolist()
    rows = list(zip(links, ranking_candidates(GRAPH, split, 8).tolist(), strict=True))
    for (u, _), row in rows:
        assert len(set(row)) == 8 and not any((u, node) in arcs(2) or node == u for node in row)
    assert any((node, u) in arcs(2) for (u, _), row in rows for node in row)
