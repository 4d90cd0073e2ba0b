"""Features of ordered pairs: each against a slow loop over the arcs."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from directed import directed_graph, random_arcs

from dysat.features.link_memory import decayed_links, links_among, past_arcs
from dysat.features.pair_direction import DECAYS, PairDirection
from dysat.features.pair_history import pair_history

ARCS = random_arcs(14, 30, 4)
GRAPH = directed_graph([14] * 4, ARCS)
NOW = len(ARCS) - 1
EVERY = np.array([(u, v) for u in range(14) for v in range(14) if u != v])


def decayed(decay: float) -> dict[tuple[int, int], float]:
    sums: dict[tuple[int, int], float] = defaultdict(float)
    for step, arcs in enumerate(ARCS):
        for (u, v), weight in arcs.items():
            if u != v:
                sums[u, v] += decay ** (NOW - step) * weight
    return sums


def expected(u: int, v: int) -> list[float]:
    """All columns of u → v, in order."""
    sums = [decayed(decay) for decay in DECAYS]
    ever = set(decayed(1.0))
    row: list[float] = []
    for pair in ((u, v), (v, u)):
        steps = [step for step, arcs in enumerate(ARCS) if pair in arcs]
        row += [math.log1p(values.get(pair, 0.0)) for values in sums]
        row += [math.log1p(len(steps)), NOW - steps[-1] if steps else NOW + 1]
    nodes = range(14)
    sent = [[sum(values.get((x, z), 0.0) for z in nodes) for x in nodes] for values in sums]
    received = [[sum(values.get((z, x), 0.0) for z in nodes) for x in nodes] for values in sums]
    for table in (*sent, *received):
        row += [math.log1p(table[u]), math.log1p(table[v])]
    for given, taken in zip(sent, received, strict=True):
        row += [given[x] / (given[x] + taken[x]) if given[x] + taken[x] else 0.5 for x in (u, v)]
    targets = {x: {z for z in nodes if (x, z) in ever} for x in nodes}
    senders = {x: {z for z in nodes if (z, x) in ever} for x in nodes}
    for sets in (targets, senders):
        row += [math.log1p(len(sets[x])) for x in (u, v)]
    for sets in (targets, senders):
        row += [len(targets[x] & senders[x]) / max(1, len(sets[x])) for x in (u, v)]
    for values in sums[1:]:
        weight = {pair: math.log1p(x) for pair, x in values.items()}
        damped = {z: 1 / math.log(2 + sent[-1][z] + received[-1][z]) for z in nodes}
        others = [z for z in nodes if z not in (u, v)]
        kinds = (
            [((u, z), (z, v)) for z in others],
            [((v, z), (z, u)) for z in others],
            [((u, z), (v, z)) for z in others],
            [((z, u), (z, v)) for z in others],
        )
        for paths in kinds:
            terms = (
                weight.get(a, 0.0) * weight.get(b, 0.0) * damped[z] for z, (a, b) in zip(others, paths, strict=True)
            )
            row.append(math.log1p(sum(terms)))
    return row


@pytest.mark.parametrize("three_step", [True, False])
def test_every_column_equals_a_loop_over_the_arcs(three_step: bool) -> None:
    history = pair_history(GRAPH.snapshots, three_step)
    found = history.basic_features(EVERY, low_rank=False)
    want = np.array([expected(*pair) for pair in EVERY.tolist()])
    np.testing.assert_allclose(found[:, -want.shape[1] :], want, atol=1e-9)


def test_other_columns_are_thosewithout_direction() -> None:
    history = pair_history(GRAPH.snapshots, True)
    plain = type(history)(tuple(replace(s, sent=None) for s in GRAPH), True)
    found, before = history.features(EVERY)
    same, either = plain.features(np.sort(EVERY, axis=1))
    np.testing.assert_allclose(found[:, : same.shape[1]], same, atol=1e-9)
    sent = {pair for arcs in ARCS for pair in arcs}
    assert before.tolist() == [tuple(pair) in sent for pair in EVERY.tolist()]
    assert (before <= either).all() and not (before == either).all()
    assert history.past_keys.tolist() == sorted(u * 14 + v for u, v in sent if u != v)
    ranks = history.ranks(found)
    assert ranks.shape == found.shape and ranks.min() >= 0 and ranks.max() <= 1


def test_arcs_among_known_nodes() -> None:
    graph = directed_graph([3, 4], [{(2, 0): 1}, {(0, 2): 1, (2, 0): 2, (3, 1): 1, (1, 1): 1, (2, 1): 1}])
    assert links_among(graph[1], 3).tolist() == [[0, 2], [2, 0], [2, 1]]
    u, v, weights, steps = past_arcs(graph.snapshots)
    assert list(zip(u, v, weights, steps, strict=True)) == [(2, 0, 1, 0), (0, 2, 1, 1), (2, 0, 2, 1), (2, 1, 1, 1),
                                                            (3, 1, 1, 1)]  # fmt: skip


def test_decayed_arcs() -> None:
    graph = directed_graph([3, 3], [{(2, 0): 4}, {(0, 2): 1, (1, 0): 2}])
    links = decayed_links(graph.snapshots, 0.5, directed=True)
    assert links.look_up(np.array([2, 0, 0]), np.array([0, 2, 1])).tolist() == [2, 1, 0]
    sent, received = links.sent_and_received()
    assert sent.tolist() == [1, 2, 2] and received.tolist() == [4, 0, 1]
    both = decayed_links(graph.snapshots, 0.5)
    assert [part.tolist() for part in both.sent_and_received()] == [[5, 2, 3]] * 2


def test_a_graph_without_arcs() -> None:
    graph = directed_graph([3, 3], [{}, {(1, 1): 1.0}])
    history = pair_history(graph.snapshots, True)
    features, before = history.features(np.array([[0, 1], [2, 1]]))
    assert np.isfinite(features).all() and not before.any()
    assert isinstance(history.direction, PairDirection) and not len(history.past_keys)
