"""Negative samples compared with degree^power, group by group."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from scipy.stats import chisquare

from dysat.sampling.negatives import Negatives

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])

# Groups: three rows; none; zero degrees only; one row between zeros; six rows of very different degrees; none.
DEGREES = [*(1, 2, 10), *(0, 0), *(0, 4, 0), *(1, 3, 0, 100, 20_000, 3)]
GROUPS = [0, 3, 3, 5, 8, 14, 14]


def by_degree(device: str, power: float = 0.75) -> Negatives:
    return Negatives.by_degree(torch.tensor(DEGREES, device=device), torch.tensor(GROUPS, device=device), power)


def seeded(device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(0)


def expect_power(drawn: list[int], group: int, power: float) -> None:
    """Rows of the group are drawn in proportion to degree^power; other rows and rows of degree 0 never."""
    start, stop = GROUPS[group], GROUPS[group + 1]
    shares = {row: DEGREES[row] ** power for row in range(start, stop) if DEGREES[row]} or {-1: 1.0}
    seen = Counter(drawn)
    assert seen.keys() <= shares.keys()
    expected = [share / sum(shares.values()) * len(drawn) for share in shares.values()]
    assert len(shares) == 1 or chisquare([seen[row] for row in shares], expected).pvalue > 1e-4


@on_each_device
@pytest.mark.parametrize("power", [0.75, 1.0, 0.0])
def test_rows_are_drawn_by_degree_to_the_power(power: float, device: str) -> None:
    group = torch.arange(6, device=device).unsqueeze(1).expand(6, 20_000)
    drawn = by_degree(device, power).draw(group, generator=seeded(device))
    assert drawn.dtype == torch.int64 and drawn.shape == group.shape and drawn.device == group.device
    for number, rows in enumerate(drawn.tolist()):
        expect_power(rows, number, power)


def test_the_default_power_is_three_quarters() -> None:
    groups = torch.full((1_000,), 4)
    default = Negatives.by_degree(torch.tensor(DEGREES), torch.tensor(GROUPS))
    drawn, expected = (n.draw(groups, generator=seeded()) for n in (default, by_degree("cpu", 0.75)))
    assert torch.equal(drawn, expected)


@on_each_device
def test_groups_can_have_any_shape(device: str) -> None:
    group = torch.arange(6, device=device).repeat(5, 4, 1).transpose(0, 2)  # [6, 4, 5], not contiguous
    drawn = by_degree(device).draw(group, generator=seeded(device))
    assert drawn.shape == (6, 4, 5)
    for number, rows in enumerate(drawn.flatten(1).tolist()):
        mine = range(GROUPS[number], GROUPS[number + 1])
        assert all(row in mine if number in (0, 3, 4) else row == -1 for row in rows)


@on_each_device
@pytest.mark.parametrize("num_groups", [0, 3])
def test_groups_without_rows_give_minus_one(num_groups: int, device: str) -> None:
    none = torch.zeros(0, dtype=torch.int64, device=device)
    negatives = Negatives.by_degree(none, torch.zeros(num_groups + 1, dtype=torch.int64, device=device))
    group = torch.arange(num_groups, device=device)
    assert negatives.draw(group, generator=seeded(device)).tolist() == [-1] * num_groups


def test_the_generator_determines_the_draws() -> None:
    group, before = torch.full((100,), 4), torch.get_rng_state()
    generator = seeded()
    first, next_one = (by_degree("cpu").draw(group, generator=generator) for _ in range(2))
    assert torch.equal(first, by_degree("cpu").draw(group, generator=seeded())) and not torch.equal(first, next_one)
    assert torch.equal(before, torch.get_rng_state())


@cuda
class TestCudaGraph:
    def test_replays_of_a_captured_draw_differ(self) -> None:
        negatives, generator = by_degree("cuda"), seeded("cuda")
        group = torch.arange(6, device="cuda").unsqueeze(1).expand(6, 5_000)
        negatives.draw(group, generator=generator)  # loads the kernels
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            drawn = negatives.draw(group, generator=generator)
        rounds = []
        for _ in range(10):
            graph.replay()
            rounds.append(drawn.clone())
        assert not torch.equal(rounds[0], rounds[1])
        for number, rows in enumerate(torch.cat(rounds, 1).tolist()):
            expect_power(rows, number, 0.75)
