"""Second-order walks: the frequency of their steps compared with the formula."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from dysat.sampling import second_order
from dysat.sampling.second_order import SecondOrderSteps, second_order_walks
from dysat.sampling.walks import random_walks

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])
# Triangles and paths, weights from 0.5 to 6, self-loops at 0 and 3, nodes 6 and 7 with one link. Nodes 8 and 9 are
# linked only with each other, 10 only with itself, 11 not at all.
LINKS = {(0, 1): 2.0, (0, 2): 1.0, (1, 2): 3.0, (2, 3): 0.5, (3, 4): 4.0, (2, 4): 1.0, (4, 5): 2.5, (1, 5): 6.0}
LINKS |= {(0, 0): 2.0, (3, 3): 1.5, (5, 6): 1.0, (0, 7): 3.0, (8, 9): 1.0, (10, 10): 0.1}
NODES = 12
Steps = defaultdict[tuple[int, int], Counter[int]]
SETTINGS = [(1, 1), (0.25, 1), (4, 1), (1, 0.25), (1, 4), (0.25, 4), (4, 0.25), (0.5, 0.5), (1e-6, 1), (1, 1e6)]


def walked(*args: Any, **options: Any) -> Tensor:
    """All parts of second-order walks together."""
    return torch.cat([*second_order_walks(*args, **options)])


@cache
def neighbours() -> list[dict[int, float]]:
    rows: list[dict[int, float]] = [{} for _ in range(NODES)]
    for (u, v), weight in LINKS.items():
        rows[u][v] = rows[v][u] = weight
    return [dict(sorted(row.items())) for row in rows]


def csr(device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    rows = neighbours()
    offsets = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    there = torch.tensor([node for row in rows for node in row])
    weights = torch.tensor([weight for row in rows for weight in row.values()], dtype=torch.float64)
    return offsets.to(device), there.to(device), weights.to(device)


@cache
def shares(before: int, here: int, p: float, q: float) -> dict[int, float]:
    """The probability of each next node, by the formula."""
    rows = neighbours()
    found = {}
    for there, weight in rows[here].items():
        alpha = 1 / p if there == before else 1.0 if there in rows[before] else 1 / q
        found[there] = weight * alpha
    return {there: share / sum(found.values()) for there, share in found.items()}


def seeded(seed: int = 0, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def count(walks: Tensor) -> Steps:
    """Count the steps by the node before and the current node."""
    seen: Steps = defaultdict(Counter)
    for walk in walks.tolist():
        for before, (here, there) in zip(walk, pairwise(walk[1:]), strict=False):
            seen[before, here][there] += 1
    return seen


def follow(seen: Steps, p: float, q: float) -> bool:
    """Whether the counts fit the formula, by the sum of Pearson's χ² over all (before, here)."""
    statistic, freedom = 0.0, 0
    for (before, here), counts in seen.items():
        total, wanted = counts.total(), shares(before, here, p, q) or {here: 1.0}
        if not counts.keys() <= wanted.keys():
            return False
        often = {there: share for there, share in wanted.items() if share * total >= 5}
        rare = [there for there in wanted if there not in often]
        if sum(counts[there] for there in rare) > 5 * len(rare) + 30:
            return False
        statistic += sum((counts[there] - share * total) ** 2 / (share * total) for there, share in often.items())
        freedom += max(0, len(often) - 1)
    return bool(chi2.sf(statistic, max(1, freedom)) > 1e-5)


@on_each_device
@pytest.mark.parametrize("rounds", [1, 0])
@pytest.mark.parametrize(("p", "q"), [(4, 0.25), (1e-6, 1), (1, 1e6)])
def test_steps_follow_the_formula(
    p: float, q: float, rounds: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one proposal before all neighbours are weighed, and without; the default is tested below."""
    monkeypatch.setattr(second_order, "ROUNDS", rounds)
    monkeypatch.setattr(second_order, "ENTRIES", 10_000)
    starts = torch.arange(NODES, device=device).repeat(400)
    walks = walked(*csr(device), starts, 20, p=p, q=q, generator=seeded(1, device))
    assert walks.dtype == torch.int32 and walks.device == starts.device and torch.equal(walks[:, 0].long(), starts)
    assert follow(count(walks), p, q)


@on_each_device
@pytest.mark.parametrize(("p", "q"), SETTINGS)
def test_steps_follow_the_formula_of_their_setting_only(p: float, q: float, device: str) -> None:
    """Ignoring p or q, or exchanging them, would be detected."""
    starts = torch.arange(NODES, device=device).repeat(300)
    walks = walked(*csr(device), starts, 20, p=p, q=q, generator=seeded(2, device))
    assert walks.dtype == torch.int32 and walks.device == starts.device and torch.equal(walks[:, 0].long(), starts)
    seen = count(walks)
    assert [setting for setting in SETTINGS if follow(seen, *setting)] == [(p, q)]


def test_the_first_step_depends_on_weights_alone() -> None:
    starts = torch.zeros(20_000, dtype=torch.int64)
    walks = walked(*csr(), starts, 3, p=0.01, q=100, generator=seeded())
    row = neighbours()[0]
    part = torch.bincount(walks[:, 1], minlength=NODES) / len(starts)
    wanted = torch.tensor([row.get(node, 0.0) / sum(row.values()) for node in range(NODES)])
    torch.testing.assert_close(part, wanted, atol=0.015, rtol=0)


@on_each_device
def test_p_and_q_of_1_are_first_order_walks(device: str) -> None:
    starts = torch.arange(NODES, device=device).repeat(9)
    walks = walked(*csr(device), starts, 12, p=1, q=1, generator=seeded(3, device))
    assert torch.equal(walks, random_walks(*csr(device), starts, 12, generator=seeded(3, device)))


def test_rejection_with_p_and_q_of_1_accepts_every_proposal() -> None:
    """So the shortcut to first-order walks is exact."""
    steps = SecondOrderSteps.from_csr(*csr(), 1, 1)
    before, here = (torch.tensor(ends) for ends in zip(*LINKS, strict=True))
    drawn = steps.draw(before, here, generator=seeded(4))
    assert torch.equal(drawn, steps.proposals.draw(here, generator=seeded(4)))


def test_the_order_of_neighbours_does_not_matter() -> None:
    offsets, there, weights = csr()
    turned = torch.cat([part.flip(0) for part in torch.arange(len(there)).split(offsets.diff().tolist())])
    starts = torch.arange(NODES).repeat(400)
    walks = walked(offsets, there[turned], weights[turned], starts, 20, p=4, q=0.25, generator=seeded())
    assert follow(count(walks), 4, 0.25)


def test_links_of_weight_0_are_never_taken_but_count_as_links() -> None:
    """α is 1, not 1/q, for a node that is linked with weight 0 to the node before."""
    offsets, there = torch.tensor([0, 2, 4, 7, 8]), torch.tensor([1, 2, 0, 2, 0, 1, 3, 2])
    weights = torch.tensor([1.0, 0, 1, 1, 0, 1, 1, 1], dtype=torch.float64)
    starts = torch.zeros(20_000, dtype=torch.int64)
    walks = walked(offsets, there, weights, starts, 3, p=1, q=9, generator=seeded())
    assert (walks[:, 1] == 1).all()
    torch.testing.assert_close((walks[:, 2] == 2).float().mean(), torch.tensor(0.5), atol=0.015, rtol=0)


@on_each_device
@pytest.mark.parametrize(("starts", "length"), [([], 3), ([11, 11], 5), *(([8, 10, 11], n) for n in (1, 2, 3, 5))])
def test_walks_without_a_choice(starts: list[int], length: int, device: str) -> None:
    given = torch.tensor(starts, dtype=torch.int64, device=device)
    walks = walked(*csr(device), given, length, p=0.3, q=7, generator=seeded(0, device))
    there = {8: 9, 10: 10, 11: 11}
    assert walks.tolist() == [[node if i % 2 == 0 else there[node] for i in range(length)] for node in starts]


@pytest.mark.parametrize("num_rows", [0, 3])
def test_graphs_without_links(num_rows: int) -> None:
    empty = torch.zeros(num_rows + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int64), torch.empty(0)
    walks = walked(*empty, torch.arange(num_rows), 4, p=2, q=3, generator=seeded())
    assert torch.equal(walks, torch.arange(num_rows, dtype=torch.int32)[:, None].expand(-1, 4))


@pytest.mark.parametrize("chunk", [1, 7])
def test_walks_follow_links_in_every_chunk(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dysat.sampling.walks.CPU_CHUNK", chunk)
    rows = neighbours()
    for walk in walked(*csr(), torch.arange(NODES), 30, p=0.5, q=2, generator=seeded()).tolist():
        assert all(there in (rows[here] or {here}) for here, there in pairwise(walk))


@on_each_device
def test_the_generator_determines_the_walks(device: str) -> None:
    starts, state = torch.arange(NODES, device=device).repeat(20), torch.get_rng_state()
    first, again, other = (
        walked(*csr(device), starts, 9, p=0.5, q=2, generator=seeded(seed, device)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())
