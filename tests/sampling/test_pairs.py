"""Unlinked pairs: uniform, distinct, and never a link."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
import torch

from dysat.sampling.pairs import UnlinkedPairs, _number, _pair, replaced_ends, unlinked_between, unlinked_pairs

NONE = np.empty((0, 2), dtype=np.int64)


@pytest.mark.parametrize("wanted", [30, 140])  # drawn with rejection; drawn from a list
def test_unlinked_pairs_are_uniform(wanted: int) -> None:
    rng = np.random.default_rng(0)
    links = np.array([(u, v) for u, v in combinations(range(21), 2) if (u + v) % 7 == 0])
    free = {(u, v) for u, v in combinations(range(21), 2) if (u + v) % 7}
    counts = dict.fromkeys(free, 0)
    for _ in range(400):
        drawn = [tuple(pair) for pair in unlinked_pairs(21, links, wanted, rng).tolist()]
        assert len(drawn) == len(set(drawn)) == wanted
        for pair in drawn:
            counts[pair] += 1
    expected = 400 * wanted / len(free)
    chi2 = sum((count - expected) ** 2 for count in counts.values()) / (expected * (1 - wanted / len(free)))
    assert 110 < chi2 < 260  # about χ² with 180 − 1 degrees of freedom


@pytest.mark.parametrize("directed", [False, True])
def test_replaced_ends_are_uniform_among_free_nodes_of_a_kind(directed: bool) -> None:
    every = np.array([(0, 3), (0, 7), (2, 5)] + [(9, 1)] * directed)
    kinds = np.array([0, 1] * 5, dtype=np.uint8)
    links = every[[0, 2]]
    pairs, rows = replaced_ends(links, every, 10, 2_000, np.random.default_rng(0), directed=directed, kinds=kinds)
    free = {0: [(0, v) for v in (1, 5, 9)], 1: [(1, 2), (2, 3), (2, 7), (2, 9)]}
    if directed:
        free[1] = [(2, v) for v in (1, 3, 7, 9)]
    for row, expected in free.items():
        own = pairs[rows == row]
        found, counts = np.unique(own, axis=0, return_counts=True)
        assert [tuple(pair) for pair in found.tolist()] == sorted(expected)
        assert (abs(counts - 400) < 80).all()  # 2,000 draws among five nodes of the kind
    every_kind, rows = replaced_ends(links, every, 10, 2_000, np.random.default_rng(0), directed=directed)
    own = set(map(tuple, every_kind[rows == 0].tolist()))
    assert own == {(0, v) for v in range(1, 10)} - {(0, 3), (0, 7)}


def test_numbers_enumerate_all_pairs() -> None:
    expected = sorted(combinations(range(40), 2), key=lambda pair: pair[::-1])
    assert [tuple(pair) for pair in _pair(np.arange(780)).tolist()] == expected
    last = 2**31 - 2  # the largest id a graph can have
    first = last * (last - 1) // 2
    ends = _pair(np.array([first - 1, first, first + last - 1]))
    assert ends.tolist() == [[last - 2, last - 1], [0, last], [last - 1, last]]
    assert _number(ends).tolist() == [first - 1, first, first + last - 1]


def test_number_and_pair_are_inverse() -> None:
    # Near v (v − 1) / 2 a rounding error of the root would change v; up to the largest v a graph can have.
    v = np.unique(np.concatenate([2 ** np.arange(1, 31), np.random.default_rng(0).integers(2, 2**31 - 1, 20_000)]))
    first = v * (v - 1) // 2
    for numbers in (first - 1, first, first + 1, first + v - 1):
        pairs = _pair(numbers)
        assert (pairs[:, 0] >= 0).all() and (pairs[:, 0] < pairs[:, 1]).all()
        assert np.array_equal(_number(pairs), numbers)


@pytest.mark.parametrize("num_nodes", [0, 1, 2, 5, 30])
def test_as_many_as_wanted_or_as_exist(num_nodes: int) -> None:
    every = list(combinations(range(num_nodes), 2))
    for wanted, links in product([0, 1, 10, 1000], [[], every[::3], every[:-1], every]):
        given = np.array(links, dtype=np.int64).reshape(-1, 2)
        drawn = unlinked_pairs(num_nodes, given, wanted, np.random.default_rng(0))
        assert drawn.dtype == np.int64 and drawn.shape == (min(wanted, len(every) - len(links)), 2)
        pairs = set(map(tuple, drawn.tolist()))
        assert len(pairs) == len(drawn) and pairs <= set(every) - set(links)


def test_links_can_repeat_and_be_unsorted() -> None:
    links = np.array([(1, 2), (0, 1), (1, 2)])
    assert sorted(unlinked_pairs(4, links, 9, np.random.default_rng(0)).tolist()) == [[0, 2], [0, 3], [1, 3], [2, 3]]


def test_pairs_of_huge_graphs_are_not_listed() -> None:
    drawn = unlinked_pairs(2**31 - 1, NONE, 1000, np.random.default_rng(0))
    assert len(np.unique(_number(drawn))) == 1000 and (drawn[:, 0] < drawn[:, 1]).all()
    assert drawn.min() >= 0 and drawn.max() < 2**31 - 1
    # u and v are the smaller and the larger of two uniform ids, with means of one and two thirds of the largest id.
    np.testing.assert_allclose(drawn.mean(0) / 2**31, [1 / 3, 2 / 3], atol=0.04)


def test_the_generator_determines_the_pairs() -> None:
    one, two, other = (unlinked_pairs(100, NONE, 50, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert np.array_equal(one, two) and not np.array_equal(one, other)


@pytest.mark.parametrize(("newest", "wanted"), [(0, 5), (1, 1000), (5, 5), (9, 1000), (9, 5), (12, 5)])
def test_one_node_is_at_least_newest(newest: int, wanted: int) -> None:
    links = np.array([(0, 1), (1, 5), (5, 9), (8, 9)])
    free = {(u, v) for u, v in combinations(range(12), 2) if v >= newest} - set(map(tuple, links.tolist()))
    rng, seen = np.random.default_rng(0), set()
    for _ in range(200):
        drawn = [tuple(pair) for pair in unlinked_pairs(12, links, wanted, rng, newest=newest).tolist()]
        assert len(set(drawn)) == len(drawn) == min(wanted, len(free))
        seen |= set(drawn)
    assert seen == free


LEFT, RIGHT = np.array([0, 2, 3, 7, 8, 11, 14]), np.array([1, 4, 5, 9, 10, 12])
BETWEEN = np.array(
    [(0, 1), (4, 8), (9, 11), (2, 12), (2, 3), (4, 5), (6, 13)]
)  # the last three are not between the sets


@pytest.mark.parametrize(  # few are drawn with rejection, many are listed
    ("newest", "wanted"), [(0, 6), (0, 1000), (3, 12), (9, 6), (9, 1000), (13, 12), (20, 6)]
)
def test_pairs_between_two_sets(newest: int, wanted: int) -> None:
    every = {tuple(sorted((u, v))) for u in LEFT.tolist() for v in RIGHT.tolist()}
    free = {(u, v) for u, v in every - set(map(tuple, BETWEEN.tolist())) if v >= newest}
    counts = dict.fromkeys(free, 0)
    rng = np.random.default_rng(0)
    for _ in range(300):
        drawn = [tuple(pair) for pair in unlinked_between(LEFT, RIGHT, BETWEEN, wanted, rng, newest=newest).tolist()]
        assert len(drawn) == len(set(drawn)) == min(wanted, len(free))
        for pair in drawn:
            counts[pair] += 1  # KeyError: a pair that must not be drawn
    expected = 300 * min(wanted, len(free)) / max(len(free), 1)
    assert all(abs(count - expected) < 5 * (expected + 1) ** 0.5 for count in counts.values())


def test_empty_and_huge_sets() -> None:
    rng = np.random.default_rng(0)
    for left, right in ((LEFT[:0], RIGHT), (LEFT, RIGHT[:0]), (LEFT[:0], RIGHT[:0])):
        assert unlinked_between(left, right, BETWEEN, 5, rng).shape == (0, 2)
    even, odd = np.arange(0, 2_000_000, 2), np.arange(1, 2_000_000, 2)  # 10¹² pairs
    drawn = unlinked_between(even, odd, NONE, 1000, rng, newest=1_999_000)
    assert (drawn.sum(1) % 2 == 1).all() and (drawn[:, 0] < drawn[:, 1]).all() and (drawn[:, 1] >= 1_999_000).all()
    assert len(np.unique(drawn, axis=0)) == 1000 and 0.45 < (drawn[:, 1] % 2).mean() < 0.55


def taken_numbers(num_nodes: int, links: list[tuple[int, int]]) -> torch.Tensor:
    both = {*links, *((v, u) for u, v in links), *((v, v) for v in range(num_nodes))}
    return torch.tensor(sorted(u * num_nodes + v for u, v in both))


def test_free_ordered_pairs_are_uniform() -> None:
    links = [(u, v) for u, v in combinations(range(9), 2) if (u + v) % 3 == 0]
    free = {(u, v) for u in range(9) for v in range(9) if u != v and (u + v) % 3}
    drawn = UnlinkedPairs(taken_numbers(9, links), 9).draw(20_000, torch.Generator().manual_seed(0))
    counts = dict.fromkeys(free, 0)
    for u, v in drawn.tolist():
        counts[u, v] += 1
    expected = 20_000 / len(free)
    chi2 = sum((count - expected) ** 2 for count in counts.values()) / expected
    assert len(free) == 48 and 20 < chi2 < 90  # about χ² with 48 − 1 degrees of freedom


@pytest.mark.parametrize("first", [0, 5])
def test_the_first_and_the_last_free_pair_are_drawn(first: int) -> None:
    links = [pair for pair in combinations(range(first, 7), 2) if pair != (5, 6)]
    pairs = UnlinkedPairs(taken_numbers(7, links), 7).draw(2_000, torch.Generator().manual_seed(0))
    left = [(u, v) for u in range(7) for v in range(7) if u != v and tuple(sorted((u, v))) not in links]
    assert sorted({tuple(pair) for pair in pairs.tolist()}) == left


def test_no_pair_is_drawn_if_all_are_linked() -> None:
    generator = torch.Generator().manual_seed(0)
    assert UnlinkedPairs(taken_numbers(5, list(combinations(range(5), 2))), 5).draw(9, generator).shape == (0, 2)
    assert UnlinkedPairs(taken_numbers(1, []), 1).draw(9, generator).shape == (0, 2)


def test_free_ordered_pairs_of_the_largest_graph() -> None:
    size = 2**31 - 1
    pairs = UnlinkedPairs(torch.tensor([0, size + 1, size * size - 1]), size).draw(999, torch.Generator())
    assert (pairs >= 0).all() and (pairs < size).all() and pairs.max() > 0.99 * size


def test_directed_pairs_are_all_ordered_pairs_but_the_links() -> None:
    links = np.array([[0, 2], [2, 0], [3, 1]])
    everything = {(u, v) for u in range(4) for v in range(4) if u != v}
    for newest, missing in ((0, set()), (2, {(0, 1), (1, 0)})):
        drawn = unlinked_pairs(4, links, 99, np.random.default_rng(0), newest=newest, directed=True).tolist()
        assert len(drawn) == len(set(map(tuple, drawn)))
        assert set(map(tuple, drawn)) == everything - set(map(tuple, links.tolist())) - missing
    few = unlinked_pairs(400, NONE, 2000, np.random.default_rng(0), directed=True)
    assert 900 < (few[:, 0] > few[:, 1]).sum() < 1100  # both directions are as frequent
