"""Walks compared with link weights, and contexts compared with an explicit list of pairs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from dysat.sampling import walks as module
from dysat.sampling.walks import Contexts, FreshContexts, WeightedRows, random_walks

TINY = 5e-324
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
on_each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])

# Weights of all magnitudes; zeros at the start, middle and end of a row; rows without weight.
LINKS = [
    {1: 1.0, 2: 2.0, 3: 7.0},
    {0: 0.0, 4: 0.0},
    {0: 0.0, 1: 1e-9, 5: 0.0, 6: 0.0, 7: 3e-9, 8: 0.0},
    {0: 1e9, 1: 1.0, 2: 1e9, 3: 1e5},
    {},
    {0: 0.0, 4: 1e308, 6: 1e308, 7: 0.5e308},
    {2: TINY, 3: TINY, 6: 2 * TINY},
    {8: 0.3},
    {0: 1.0, 8: 2000.0},
    {},
]


def csr(links: list[dict[int, float]], device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    offsets = torch.tensor([0, *(len(row) for row in links)]).cumsum(0)
    neighbours = torch.tensor([node for row in links for node in row], dtype=torch.int64)
    weights = torch.tensor([weight for row in links for weight in row.values()], dtype=torch.float64)
    return offsets.to(device), neighbours.to(device), weights.to(device)


def seeded(device: str = "cpu", seed: int = 0) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def expect_shares(values: list[int], shares: dict[int, float]) -> None:
    """Values occur in proportion to their weights; values of weight 0 never."""
    largest = max(shares.values())
    relative = {value: share / largest for value, share in shares.items() if share > 0}
    seen = Counter(values)
    assert seen.keys() <= relative.keys()
    likely = {value: share for value, share in relative.items() if share > 1e-6}
    expected = [share / sum(likely.values()) * len(values) for share in likely.values()]
    assert seen.keys() <= likely.keys(), "an event of probability 1e-6 occurred"
    assert len(likely) == 1 or chisquare([seen[value] for value in likely], expected).pvalue > 1e-4


class TestWalks:
    @on_each_device
    def test_steps_follow_the_weights(self, device: str) -> None:
        starts = torch.arange(len(LINKS), device=device).repeat_interleave(20_000)
        walks = random_walks(*csr(LINKS, device), starts, 2, generator=seeded(device))
        assert walks.dtype == torch.int32 and walks.device == starts.device
        assert torch.equal(walks[:, 0].long(), starts)
        for row, steps in enumerate(walks[:, 1].view(len(LINKS), -1).tolist()):
            stays = not any(LINKS[row].values())
            expect_shares(steps, {row: 1.0} if stays else LINKS[row])

    @on_each_device
    def test_every_step_continues_from_the_last(self, device: str) -> None:
        links = [{(row + hop) % 7: float(row + hop) for hop in range(1, 5)} for row in range(7)]
        starts = torch.arange(7, device=device).repeat(300)
        walks = random_walks(*csr(links, device), starts, 40, generator=seeded(device)).tolist()
        for row, shares in enumerate(links):
            expect_shares([there for walk in walks for here, there in pairwise(walk) if here == row], shares)

    @pytest.mark.parametrize("chunk", [7, 1000])
    def test_walks_follow_links_in_every_chunk(self, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "CPU_CHUNK", chunk)
        far = torch.randint(100, (60, 4), generator=seeded()).tolist()
        links = [dict.fromkeys(sorted(set(row)), 1.0) for row in far] + [{} for _ in range(40)]
        walks = random_walks(*csr(links), torch.arange(100), 12, generator=seeded())
        assert walks[:, 0].tolist() == list(range(100))
        for walk in walks.tolist():
            assert all(there in (links[here] or {here}) for here, there in pairwise(walk))

    @on_each_device
    @pytest.mark.parametrize(("num_rows", "num_starts", "length"), [(0, 0, 3), (4, 0, 3), (4, 4, 1), (4, 6, 5)])
    def test_graphs_without_links(self, num_rows: int, num_starts: int, length: int, device: str) -> None:
        starts = torch.arange(num_starts, device=device) % max(num_rows, 1)
        walks = random_walks(*csr([{}] * num_rows, device), starts, length, generator=seeded(device))
        assert torch.equal(walks, starts.int().unsqueeze(1).expand(-1, length))

    @on_each_device
    def test_the_generator_determines_the_walks(self, device: str) -> None:
        graph, starts = csr(LINKS, device), torch.arange(10, device=device).repeat(20)
        here, there = torch.get_rng_state(), torch.cuda.get_rng_state() if device == "cuda" else None
        first, again, other = (random_walks(*graph, starts, 9, generator=seeded(device, s)) for s in (1, 1, 2))
        assert torch.equal(first, again) and not torch.equal(first, other)
        assert torch.equal(here, torch.get_rng_state())
        assert there is None or torch.equal(there, torch.cuda.get_rng_state())

    @pytest.mark.parametrize("highest", [True, False])
    def test_extreme_random_numbers_stay_in_their_row(self, highest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "randint", lambda high, shape, **_: torch.full(shape, (high - 1) * highest))
        steps = random_walks(*csr(LINKS), torch.arange(10), 2, generator=seeded())[:, 1].tolist()
        for row, (links, step) in enumerate(zip(LINKS, steps, strict=True)):
            positive = [node for node, weight in links.items() if weight > 0] or [row]
            assert step == positive[-highest]

    def test_a_share_of_a_billionth_is_exact_in_the_last_of_many_rows(self) -> None:
        num_rows = 100_000
        weights = torch.tensor([1e9, 1.0, 0.0]).repeat(num_rows)
        offsets, rows = torch.arange(num_rows + 1) * 3, torch.arange(num_rows)
        table = WeightedRows.from_csr(offsets, torch.arange(len(weights)), weights, otherwise=rows)
        widths = table.ends.diff(prepend=torch.zeros(1, dtype=torch.int64)).view(num_rows, 3).double() / 2**table.bits
        expected = torch.tensor([1e9, 1.0, 0.0], dtype=torch.float64) / (1e9 + 1)
        torch.testing.assert_close(widths, expected.expand(num_rows, 3), rtol=1e-4, atol=0)


def pair_list(walks: list[list[int]], num_rows: int, window: int) -> list[list[int]]:
    """The contexts of each row, by the definition."""
    pairs: list[list[int]] = [[] for _ in range(num_rows)]
    for walk in walks:
        for i, node in enumerate(walk):
            for j, context in enumerate(walk):
                if j != i and abs(i - j) <= window and context != node:
                    pairs[node].append(context)
    return pairs


def draw_each_pair(contexts: Contexts, row: int, count: int) -> list[int]:
    """Draw with the midpoints of `count` equal intervals as random numbers, so that every pair occurs exactly once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "rand", lambda *shape, **_: ((torch.arange(count) + 0.5) / count).double().expand(shape))
        return contexts.draw(torch.tensor([row]), count, generator=seeded())[0].tolist()


# Some walks repeat a node or stay on it, as with self-loops and isolated rows; row 5 never occurs, row 6 has no pair.
WALKS = [[0, 1, 0, 2, 2, 3], [4, 4, 4, 4, 1, 4], [6, 6, 6, 6, 6, 6], [3, 2, 1, 0, 1, 2], [7, 7, 0, 7, 0, 0]]


class TestContexts:
    @on_each_device
    @pytest.mark.parametrize("window", [1, 2, 3, 100])
    def test_contexts_occur_as_often_as_in_the_list(self, window: int, device: str) -> None:
        contexts = Contexts.from_walks(torch.tensor(WALKS, device=device), 9, window)
        pairs = pair_list(WALKS, 9, window)
        assert contexts.num_pairs.tolist() == [len(row) for row in pairs]
        drawn = contexts.draw(torch.arange(9, device=device), 5_000, generator=seeded(device))
        assert drawn.dtype == torch.int64 and drawn.shape == (9, 5_000)
        for row, listed in zip(drawn.tolist(), pairs, strict=True):
            expect_shares(row, {node: float(count) for node, count in Counter(listed).items()} or {-1: 1.0})

    @settings(max_examples=min(40, settings.default.max_examples), deadline=None, derandomize=True, database=None)
    @given(st.integers(1, 7), st.integers(1, 6), st.integers(0, 8), st.data())
    def test_every_pair_has_one_number(self, length: int, num_rows: int, window: int, data: st.DataObject) -> None:
        nodes = st.integers(0, num_rows - 1)
        walks = data.draw(st.lists(st.lists(nodes, min_size=length, max_size=length), max_size=5))
        contexts = Contexts.from_walks(torch.tensor(walks).reshape(len(walks), length), num_rows, window)
        pairs = pair_list(walks, num_rows, window)
        assert contexts.num_pairs.tolist() == [len(row) for row in pairs]
        for row, listed in enumerate(pairs):
            drawn = draw_each_pair(contexts, row, max(len(listed), 1))
            assert sorted(drawn) == sorted(listed or [-1])

    def test_contexts_of_walks_on_a_graph(self) -> None:
        walks = random_walks(*csr(LINKS), torch.arange(10).repeat(5), 15, generator=seeded())
        contexts, pairs = Contexts.from_walks(walks, 10, 4), pair_list(walks.tolist(), 10, 4)
        assert contexts.num_pairs.tolist() == [len(row) for row in pairs]
        assert all(sorted(draw_each_pair(contexts, r, len(listed))) == sorted(listed) for r, listed in enumerate(pairs))

    @on_each_device
    @pytest.mark.parametrize(("num_walks", "length", "num_rows"), [(0, 4, 3), (0, 4, 0), (3, 1, 3), (3, 0, 3)])
    def test_walks_without_pairs(self, num_walks: int, length: int, num_rows: int, device: str) -> None:
        walks = torch.arange(num_walks, device=device).unsqueeze(1).expand(-1, length)
        contexts = Contexts.from_walks(walks, num_rows, window=2)
        assert contexts.num_pairs.tolist() == [0] * num_rows
        drawn = contexts.draw(torch.arange(num_rows, device=device), 4, generator=seeded(device))
        assert drawn.tolist() == [[-1] * 4] * num_rows
        assert contexts.draw(torch.arange(num_rows, device=device), 0, generator=seeded(device)).shape == (num_rows, 0)

    def test_draws_of_a_row_differ_and_the_global_generator_is_untouched(self) -> None:
        contexts, before = Contexts.from_walks(torch.tensor(WALKS), 9, 2), torch.get_rng_state()
        rows = torch.tensor([1, 1, 2])
        first, again = (contexts.draw(rows, 50, generator=seeded()) for _ in range(2))
        assert torch.equal(first, again) and not torch.equal(first[0], first[1])
        assert torch.equal(before, torch.get_rng_state())


@cuda
class TestCudaGraph:
    def test_replays_of_a_captured_draw_differ(self) -> None:
        contexts = Contexts.from_walks(torch.tensor(WALKS, device="cuda"), 9, 2)
        rows, generator = torch.arange(9, device="cuda"), seeded("cuda")
        contexts.draw(rows, 2_000, generator=generator)  # loads the kernels
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            drawn = contexts.draw(rows, 2_000, generator=generator)
        rounds = []
        for _ in range(10):
            graph.replay()
            rounds.append(drawn.clone())
        assert not torch.equal(rounds[0], rounds[1])
        for row, listed in zip(torch.cat(rounds, 1).tolist(), pair_list(WALKS, 9, 2), strict=True):
            expect_shares(row, {node: float(count) for node, count in Counter(listed).items()} or {-1: 1.0})

    def test_the_seed_determines_the_walks(self) -> None:
        graph, starts = csr(LINKS, "cuda"), torch.arange(10, device="cuda").repeat(5_000)
        first, again = (random_walks(*graph, starts, 9, generator=seeded("cuda")) for _ in range(2))
        assert torch.equal(first, again)


class TestFreshContexts:
    """Contexts of walks that are not stored, compared with powers of the transition matrix."""

    # A triangle with a tail, weights from 1 to 5, a self-loop at 0; 4 and 5 linked with each other only; 6 with itself
    # only; 7 without links; 8 with a link of weight 0.
    LINKS: tuple[tuple[int, int, float], ...] = (
        *((0, 0, 3.0), (0, 1, 1.0), (0, 2, 2.0), (1, 2, 5.0), (2, 3, 1.0)),
        *((4, 5, 1.0), (6, 6, 1.0), (3, 8, 0.0)),
    )

    def rows(self) -> list[dict[int, float]]:
        found: list[dict[int, float]] = [{} for _ in range(9)]
        for u, v, weight in self.LINKS:
            found[u][v] = found[v][u] = weight
        return [dict(sorted(row.items())) for row in found]

    def expected(self, length: int, window: int) -> Tensor:
        """P(context = u) of every row v.  # [R, R]"""
        steps = torch.zeros(9, 9, dtype=torch.float64)
        for v, row in enumerate(self.rows()):
            for u, weight in row.items():
                steps[v, u] = weight
        steps /= steps.sum(1, keepdim=True).clamp(min=1e-9)
        total, power = torch.zeros_like(steps), torch.eye(9, dtype=torch.float64)
        for k in range(1, window + 1):
            power = power @ steps
            total += (length - k) * power
        total.fill_diagonal_(0)
        return total / total.sum(1, keepdim=True)

    @on_each_device
    @pytest.mark.parametrize(("length", "window"), [(20, 10), (5, 2), (2, 1), (4, 3)])
    def test_frequencies(self, length: int, window: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "ROUNDS", 200)
        contexts = FreshContexts.from_csr(*csr(self.rows(), device), length=length, window=window)
        drawn = contexts.draw(torch.arange(9, device=device), 20_000, generator=seeded(device)).cpu()
        expected = self.expected(length, window)
        for v in (0, 1, 2, 3, 4, 5):
            expect_shares(drawn[v].tolist(), dict(enumerate(expected[v].tolist())))
        assert (drawn[6:] == -1).all() and contexts.linked.tolist() == [True] * 6 + [False] * 3

    def test_a_walk_that_returns_is_replaced_by_a_neighbour(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "ROUNDS", 0)
        contexts = FreshContexts.from_csr(*csr(self.rows()), length=9, window=4)
        drawn = contexts.draw(torch.tensor([0, 4]), 5_000, generator=seeded())
        expect_shares(drawn[0].tolist(), {1: 1.0, 2: 2.0})  # never 0 itself
        assert (drawn[1] == 5).all()

    def test_they_resemble_those_of_stored_walks(self) -> None:
        links = csr(self.rows())
        walks = random_walks(*links, torch.arange(9).repeat(2_000), 20, generator=seeded())
        rows = torch.arange(4)
        stored = Contexts.from_walks(walks, 9, 10).draw(rows, 20_000, generator=seeded(seed=1))
        fresh = FreshContexts.from_csr(*links, length=20, window=10).draw(rows, 20_000, generator=seeded(seed=2))
        for one, other in zip(stored, fresh, strict=True):
            shares = [torch.bincount(drawn, minlength=9) / len(drawn) for drawn in (one, other)]
            assert (shares[0] - shares[1]).abs().sum() / 2 < 0.05  # total variation

    @pytest.mark.parametrize("length", [1, 2])
    def test_no_rows_and_walks_of_one_node(self, length: int) -> None:
        contexts = FreshContexts.from_csr(*csr(self.rows()), length=length, window=3)
        assert contexts.draw(torch.empty(0, dtype=torch.int64), 4, generator=seeded()).shape == (0, 4)
        assert (contexts.draw(torch.arange(9), 4, generator=seeded()) >= 0).any() == (length > 1)
        empty = FreshContexts.from_csr(*csr([]), length=length, window=3)
        assert len(empty.linked) == 0
