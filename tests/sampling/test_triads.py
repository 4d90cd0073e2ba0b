"""Open triads compared with plain loops."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from dysat import Snapshot
from dysat.sampling import triads
from dysat.sampling.triads import StackedLinks

Links = dict[tuple[int, int], float]
CPU = torch.device("cpu")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(known: list[int], chance: float, seed: int = 0) -> list[Links]:
    """Random links of each step, with a self-loop."""
    rng = np.random.default_rng(seed)
    steps = []
    for number in known:
        links = {pair: float(rng.integers(1, 9)) for pair in combinations(range(number), 2) if rng.random() < chance}
        steps.append({(0, 0): 1.0, **links})
    return steps


def stacked(known: list[int], steps: list[Links]) -> StackedLinks:
    snapshots = []
    for t, (number, links) in enumerate(zip(known, steps, strict=True)):
        u, v = np.array(list(links), dtype=np.int64).reshape(-1, 2).T
        snapshots.append(
            Snapshot.from_links(u, v, np.array(list(links.values())), num_nodes=number, start=t, stop=t + 1)
        )
    return StackedLinks.of(snapshots, CPU)


def weight(links: Links, a: int, b: int) -> float:
    return links.get((min(a, b), max(a, b)), 0.0) if a != b else 0.0


def open_triads(known: list[int], steps: list[Links]) -> dict[tuple[int, int, int, int], bool]:
    """(t, i, j, k) with i < j, for all steps but the last, and whether i and j are linked in the next step."""
    found = {}
    for t, (now, later) in enumerate(pairwise(steps)):
        for i, j in combinations(range(known[t]), 2):
            for k in range(known[t]):
                if weight(now, i, k) and weight(now, j, k) and not weight(now, i, j):
                    found[t, i, j, k] = weight(later, i, j) > 0
    return found


KNOWN = [9, 12, 12, 14]
STEPS = drawn(KNOWN, 0.35)
FIRST = [0, 9, 21, 33]


def test_rows_are_nodes_by_step() -> None:
    links = stacked(KNOWN, STEPS)
    wanted = [(FIRST[t] + u, FIRST[t] + v, w) for t in range(4) for (u, v), w in sorted(STEPS[t].items()) if u != v]
    assert list(zip(*(part.tolist() for part in links.links()), strict=True)) == wanted
    assert links.known.tolist() == [number for number in KNOWN for _ in range(number)]
    rows = torch.arange(47)
    a, b = torch.cartesian_prod(rows, rows).unbind(1)
    linked, at = links.find(a, b)
    both = {(u, v): w for u, v, w in wanted} | {(v, u): w for u, v, w in wanted}
    assert {(x, y) for x, y in zip(a[linked].tolist(), b[linked].tolist(), strict=True)} == both.keys()
    pairs = zip(a[linked].tolist(), b[linked].tolist(), strict=True)
    assert links.weights[at[linked]].tolist() == [both[pair] for pair in pairs]
    apart = links.apart(a, b)
    assert torch.equal(apart, ~linked & (a != b))


def test_others_are_drawn_from_the_known_nodes_of_the_step() -> None:
    links = stacked(KNOWN, STEPS)
    found = links.others(torch.tensor([0, 8, 9, 46]), 4000, seeded())
    for row, (first, number) in zip(found, [(0, 9), (0, 9), (9, 12), (33, 14)], strict=True):
        counts = torch.bincount(row, minlength=47)
        assert counts.nonzero()[:, 0].tolist() == list(range(first, first + number))
        assert (counts[first : first + number] / 4000 - 1 / number).abs().max() < 0.03


def test_triads_that_stay_open_are_equally_likely() -> None:
    links, wanted = stacked(KNOWN, STEPS), open_triads(KNOWN, STEPS)
    found, stays = links.draw(200_000, seeded())
    steps = torch.searchsorted(links.first, found.k, right=True) - 1
    first = links.first[steps]
    columns = [part[stays].tolist() for part in (steps, found.i - first, found.j - first, found.k - first)]
    counts = Counter((t, min(i, j), max(i, j), k) for t, i, j, k in zip(*columns, strict=True))
    staying = [triad for triad, closes in wanted.items() if not closes]
    assert counts.keys() == set(staying) and 20 < len(staying) < len(wanted)
    expected = sum(counts.values()) / len(staying)
    chi2 = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi2 < len(staying) + 5 * (2 * len(staying)) ** 0.5
    columns += [part[stays].tolist() for part in (found.w_ik, found.w_jk)]
    for t, i, j, k, w_ik, w_jk in list(zip(*columns, strict=True))[:500]:
        assert (w_ik, w_jk) == (weight(STEPS[t], i, k), weight(STEPS[t], j, k))


@pytest.mark.parametrize("block", [1, 1 << 22])
def test_closing_returns_all_triads_of_the_pairs_that_close(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triads, "BLOCK", block)
    links, wanted = stacked(KNOWN, STEPS), open_triads(KNOWN, STEPS)
    found, pairs = links.closing(99, seeded())
    steps = torch.searchsorted(links.first, found.k, right=True) - 1
    first = links.first[steps]
    columns = (steps, found.i - first, found.j - first, found.k - first)
    rows = list(zip(*(part.tolist() for part in columns), strict=True))
    sets = [(t, min(i, j), max(i, j), k) for t, i, j, k in rows]
    assert sorted(sets) == sorted(triad for triad, closes in wanted.items() if closes)
    assert len({triad[:3] for triad in sets}) == int(pairs[-1]) + 1 > 5
    assert (pairs.diff() >= 0).all()
    by_number: dict[int, set[tuple[int, ...]]] = {}
    for number, triad in zip(pairs.tolist(), sets, strict=True):
        by_number.setdefault(number, set()).add(triad[:3])
    assert all(len(same) == 1 for same in by_number.values())
    for (t, i, j, k), w_ik, w_jk in zip(rows, found.w_ik.tolist(), found.w_jk.tolist(), strict=True):
        assert (w_ik, w_jk) == (weight(STEPS[t], i, k), weight(STEPS[t], j, k))


def test_closing_draws_from_many_common_neighbours() -> None:
    now: Links = {(min(end, k), max(end, k)): 1.0 for end in (0, 9) for k in range(1, 9)} | {(1, 2): 1.0, (3, 4): 1.0}
    links = stacked([10, 10], [now, {(0, 9): 1.0, (2, 3): 1.0}])
    seen: Counter[int] = Counter()
    for seed in range(200):
        found, pairs = links.closing(3, seeded(seed))
        centres = [k for k, pair in zip(found.k.tolist(), pairs.tolist(), strict=True) if pair == 0]
        assert len(set(centres)) == 3 and pairs.tolist() == [0, 0, 0, 1, 1]
        seen.update(centres)
    assert seen.keys() == set(range(1, 9)) and max(abs(count - 75) for count in seen.values()) < 35


@pytest.mark.parametrize(
    ("known", "steps"),
    [
        ([3], [{}]),
        ([1, 1], [{(0, 0): 1.0}, {(0, 0): 1.0}]),
        ([3], [{(0, 1): 1.0, (1, 2): 1.0}]),  # a triad, but no step after it
        ([3, 4], [{}, {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0}]),
        ([2, 3], [{(0, 1): 1.0}, {(0, 1): 1.0, (1, 2): 1.0}]),
    ],
    ids=str,
)
def test_graphs_without_triads(known: list[int], steps: list[Links]) -> None:
    links = stacked(known, steps)
    found, stays = links.draw(10, seeded())
    assert len(stays) == 0 and all(len(part) == 0 for part in found)
    found, pairs = links.closing(4, seeded())
    assert len(pairs) == 0 and all(len(part) == 0 for part in found)


def test_triangles_are_not_open_triads() -> None:
    triangle = {(0, 1): 1.0, (1, 2): 1.0, (0, 2): 1.0}
    links = stacked([3, 3], [triangle, {(0, 1): 1.0}])
    assert not links.draw(50, seeded())[1].any() and len(links.draw(50, seeded())[1]) == 50
    assert len(links.closing(4, seeded())[1]) == 0
