"""Activity of nodes against values by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from by_links import graph_of
from torch.testing import assert_close

from dysat.features.activity import DECAYS, activity

# Node 0 has a self-loop and rests in the last snapshot, 1 in the middle one; 2 and 3 appear later; 4 is never linked.
MEETINGS = graph_of([2, 3, 5], [{(0, 1): 2.0}, {(0, 2): 1.0, (0, 0): 3.0}, {(1, 3): 0.5}])
# For each step and node: its links and their weights so far, steps since it was last linked, steps since it is known.
BY_HAND: list[list[tuple[list[int], list[float], int, int]]] = [
    [([1], [2.0], 1, 1), ([1], [2.0], 1, 1)],
    [([1, 2], [2.0, 4.0], 1, 2), ([1, 0], [2.0, 0.0], 2, 2), ([0, 1], [0.0, 1.0], 1, 1)],
    [
        ([1, 2, 0], [2.0, 4.0, 0.0], 2, 3),
        ([1, 0, 1], [2.0, 0.0, 0.5], 1, 3),
        ([0, 1, 0], [0.0, 1.0, 0.0], 2, 2),
        ([0, 0, 1], [0.0, 0.0, 0.5], 1, 1),
        ([0, 0, 0], [0.0, 0.0, 0.0], 2, 1),
    ],
]


def decayed(values: Sequence[float], decay: float) -> float:
    return sum(decay**age * value for age, value in enumerate(reversed(values)))


def test_features_by_hand() -> None:
    for found, nodes in zip(activity(MEETINGS), BY_HAND, strict=True):
        expected = []
        for links, weights, since, age in nodes:
            sums = [decayed(values, decay) for values in (links, weights) for decay in DECAYS]
            expected.append([1.0, *(0.5 * math.log(1 + x) for x in (*sums, since, age))])
        assert found.dtype == torch.float32 and found.is_contiguous()
        assert_close(found, torch.tensor(expected))


def test_decays_range_from_the_last_snapshot_to_the_whole_past() -> None:
    node = activity(MEETINGS)[2][0].tolist()
    assert node[1] == 0 and node[len(DECAYS)] == pytest.approx(0.5 * math.log(1 + 3))
    assert sorted(node[1 : len(DECAYS) + 1]) == node[1 : len(DECAYS) + 1] and len(set(node[1:6])) == 5


@pytest.mark.parametrize("step", [0, 1])
def test_later_snapshots_do_not_matter(step: int) -> None:
    later = graph_of([2, 3, 9], [{}, {(1, 2): 9.0}, {(7, 8): 4.0, (0, 8): 2.0, (2, 2): 1.0}])
    snapshots = (*MEETINGS.snapshots[: step + 1], *later.snapshots[step + 1 :])
    changed = replace(MEETINGS, snapshots=snapshots, nodes=later.nodes)
    one, other, cut = activity(MEETINGS), activity(changed), activity(MEETINGS[: step + 1])
    for t in range(step + 1):
        assert torch.equal(one[t], other[t]) and torch.equal(one[t], cut[t])
    assert len(cut) == step + 1 and one[2].shape != other[2].shape


def test_each_kind_has_a_column() -> None:
    """This includes a kind without any known node."""
    kinds = [0, 0, 1, 0, 2]
    plain, found = activity(MEETINGS), activity(MEETINGS.with_kinds(kinds, ["user", "item", "shop"]))
    for before, now in zip(plain, found, strict=True):
        assert torch.equal(now[:, :-3], before)
        assert now[:, -3:].tolist() == [[float(kind == k) for k in range(3)] for kind in kinds[: len(now)]]


def test_snapshots_without_links_or_nodes() -> None:
    first, second = activity(graph_of([0, 2], [{}, {}]))
    assert first.shape == (0, 13) and second.shape == (2, 13)
    assert second[0, 1:11].tolist() == [0.0] * 10


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_gives_the_same_features() -> None:
    graph = MEETINGS.with_kinds([0, 0, 1, 0, 1], ["user", "item"])
    for here, there in zip(activity(graph), activity(graph.to("cuda")), strict=True):
        assert there.is_cuda
        assert_close(there.cpu(), here)
