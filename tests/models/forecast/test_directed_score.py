"""The pair score in a directed graph: it learns who sends, which a score without direction cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from directed import directed_graph, payments

from dysat import DynamicGraph
from dysat.evaluation.probe import auc
from dysat.features.link_memory import links_among
from dysat.models.forecast.examples import examples_of, random_halves
from dysat.models.forecast.pair_score import PairScore

PAYMENTS = payments()


def one_way(graph: DynamicGraph, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Arcs of a step without an answer, followed by their reversed pairs; and which are arcs."""
    known = graph.known[step - 1]
    arcs = links_among(graph[step], known)
    arcs = arcs[~np.isin(arcs @ [1, known], arcs @ [known, 1])]
    pairs = torch.from_numpy(np.concatenate([arcs, arcs[:, ::-1]]))
    return pairs, torch.arange(len(pairs)) < len(arcs)


def test_who_pays_is_predicted() -> None:
    score = PairScore.learn(PAYMENTS[:-1])
    assert score is not None
    pairs, sent = one_way(PAYMENTS, 5)
    found = auc(score.log_odds(PAYMENTS, 4, pairs), sent)
    assert found > 0.85  # nine in ten payments come from a company; 0.5 without direction
    plain = DynamicGraph(PAYMENTS.nodes, tuple(replace(s, sent=None) for s in PAYMENTS), PAYMENTS.clock)
    symmetric = PairScore.learn(plain[:-1])
    assert symmetric is not None
    assert auc(symmetric.log_odds(plain, 4, pairs), sent) == 0.5


def test_examples_are_ordered_pairs() -> None:
    graph = directed_graph(
        [6, 6, 6],
        [{(0, 1): 1, (2, 3): 1}, {(1, 0): 1, (4, 5): 2}, {(0, 1): 1, (5, 4): 1, (2, 0): 1, (0, 2): 1, (3, 5): 1}],
    )
    found = examples_of(graph, graph.snapshots, True, 1, 0)
    assert found.num_links == 5 and found.num_unlinked == 6 * 5 - 5
    assert found.linked_before[:5].tolist() == [True, False, False, False, False]  # sorted; 5 → 4 answers 4 → 5
    assert found.num_dropped == 3  # 1 → 0, 2 → 3 and 4 → 5 do not occur again
    # Of the reversed pairs 1 → 0, 4 → 5 and 5 → 3, the first two were linked before.
    assert found.num_reversed == 1 and not found.linked_before[found.num_uniform]
    again = found.recurring()[1]
    assert again.tolist() == [True, False, False, False]


def test_halves_keep_direction() -> None:
    halves = random_halves(PAYMENTS.aggregate(), 0)
    whole = set(zip(*(part.tolist() for part in PAYMENTS.aggregate().arcs()[:2]), strict=True))
    assert all(half.directed for half in halves)
    assert all(set(zip(*(part.tolist() for part in half.arcs()[:2]), strict=True)) < whole for half in halves)
    assert PairScore.learn(PAYMENTS[:1]) is not None
