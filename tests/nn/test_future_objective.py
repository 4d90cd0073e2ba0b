"""What looks ahead: pairs that are drawn, losses against plain loops, scores that embeddings keep."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from graphs import Plain, on_each_device, seeded
from torch import Tensor
from torch.testing import assert_close

from dysat.nn import future_objective as future
from dysat.nn.future_objective import Cells, ProductScore, Transitions, agreement_loss, future_loss

# Links of a new node, self-loops, a snapshot without links, one with most links there can be.
PLAIN = Plain(
    links=[
        {(0, 1): 1.0},
        {(0, 1): 2.0, (2, 1): 1.0, (1, 3): 1.0, (2, 2): 1.0},  # 3 is new
        {},
        {(0, 3): 1.0, (4, 2): 1.0, (0, 0): 1.0, (3, 4): 1.0},
        {(0, 1): 1.0, (5, 0): 1.0, (1, 2): 1.0, (3, 4): 1.0},  # 5 is new
    ],
    known=[3, 5, 5, 5, 6],
)
# Of each transition its links, by hand.
AHEAD = {0: {(0, 1), (1, 2)}, 1: set(), 2: {(0, 3), (2, 4), (3, 4)}, 3: {(0, 1), (1, 2), (3, 4)}}


def make(first: int = 0, negatives: int = 1, matched: float = 0.0, device: str = "cpu") -> tuple[Cells, Transitions]:
    graph = PLAIN.graph().to(device)
    cells = Cells.of(graph.known, first, torch.device(device))
    return cells, Transitions.of(graph, cells, negatives, matched)


def scorer(width: int, seed: int = 0) -> ProductScore:
    score = ProductScore(width).double()
    with torch.no_grad():
        score.weights.copy_(torch.randn(width, generator=seeded(seed), dtype=torch.float64))
        score.bias.fill_(0.3)
    return score


def places(cells: Cells, pairs: Tensor) -> list[tuple[int, int, int]]:
    """(step, u, v) of pairs of cells, both ends at the same step."""
    found = []
    for a, b in pairs.tolist():
        assert cells.steps[a] == cells.steps[b]
        found.append((int(cells.steps[a]), int(cells.nodes[a]), int(cells.nodes[b])))
    return found


def log_sigmoid(x: float) -> float:
    return -math.log(1 + math.exp(-x))


class TestProductScore:
    def test_against_the_loop_and_its_first_weights(self) -> None:
        score, x = scorer(5), torch.randn(2, 7, 5, generator=seeded(1), dtype=torch.float64)
        w, b = score.weights.tolist(), score.bias.item()
        expected = [sum(w[d] * u[d] * v[d] for d in range(5)) + b for u, v in zip(*x.tolist(), strict=True)]
        assert_close(score(*x), torch.tensor(expected, dtype=torch.float64))
        first = ProductScore(4)
        assert first.weights.tolist() == [0.5, -0.5, 0.5, -0.5] and first.bias.item() == 0

    @on_each_device
    def test_axes_keep_all_scores_and_are_those_of_their_matrix(self, device: str) -> None:
        score = scorer(6).to(device)
        with torch.no_grad():
            score.weights[2] = 0
        x = torch.randn(9, 6, generator=seeded(2), dtype=torch.float64).to(device)
        axes, weights = score.axes(x)
        e = x @ axes
        assert not e.requires_grad
        all_scores = (x * score.weights.detach()) @ x.T
        assert_close((e * weights) @ e.T, all_scores, rtol=0, atol=1e-4)
        strengths = torch.linalg.eigvalsh(all_scores)
        strengths = strengths[strengths.abs().argsort(descending=True)][:6]
        squares = strengths.abs().sqrt() * strengths.abs().sum() / (2 * strengths.abs().sqrt().sum())
        assert_close(e.T @ e, squares.diag(), rtol=0, atol=2e-3)  # at right angles, the strongest first
        assert_close((weights * squares)[:5], strengths[:5], rtol=0, atol=1e-4)

    def test_without_any_score_axes_are_nothing(self) -> None:
        axes, weights = ProductScore(3).axes(torch.zeros(4, 3))
        assert axes.isfinite().all() and weights.isfinite().all()


@on_each_device
def test_cells_are_all_known_nodes_step_by_step(device: str) -> None:
    cells = Cells.of(PLAIN.known, 2, torch.device(device))
    assert cells.nodes.tolist() == [*range(5), *range(5), *range(6)]
    assert cells.steps.tolist() == [2] * 5 + [3] * 5 + [4] * 6
    assert cells.at(torch.tensor([[0, 4]], device=device), 3).tolist() == [[5, 9]]


@on_each_device
@pytest.mark.parametrize("first", [0, 1, 3])
def test_links_of_the_next_snapshot_between_nodes_known_before(first: int, device: str) -> None:
    cells, transitions = make(first, device=device)
    expected = [(t, u, v) for t in range(first, 4) for u, v in sorted(AHEAD[t])]
    assert places(cells, transitions.pairs) == expected
    assert [first + i for i in transitions.transition.tolist()] == [t for t, _, _ in expected]
    links, _, _ = transitions.draw(seeded(device=device))
    assert torch.equal(links, transitions.pairs)


def test_nothing_is_ahead_of_the_last_step() -> None:
    assert len(make(4)[1].pairs) == 0


def test_links_of_a_step_itself() -> None:
    graph = PLAIN.graph()
    cells = Cells.of(graph.known, 3, torch.device("cpu"))
    found = places(cells, Transitions.of(graph, cells, 1, 0.0, ahead=0).pairs)
    assert found == [(3, 0, 3), (3, 2, 4), (3, 3, 4), (4, 0, 1), (4, 0, 5), (4, 1, 2), (4, 3, 4)]


@on_each_device
@pytest.mark.parametrize("matched", [0.0, 0.4, 1.0])
def test_negatives(matched: float, device: str) -> None:
    negatives = 2000
    cells, transitions = make(negatives=negatives, matched=matched, device=device)
    links, others, counts = transitions.draw(seeded(device=device))
    assert len(others) == len(counts) == negatives * len(links)
    assert bool((others[:, 0] <= others[:, 1]).all())
    found = places(cells, others)
    # Each belongs to the transition of its link, and is of nodes known then.
    steps = [t for t, _, _ in places(cells, links)] * negatives
    assert [t for t, _, _ in found] == steps and all(v < PLAIN.known[t] for t, _, v in found)
    assert counts.tolist() == [u != v and (u, v) not in AHEAD[t] for t, u, v in found]

    for t, linked in AHEAD.items():
        drawn = [(u, v) for at, u, v in found if at == t]
        if not linked:
            assert not drawn
            continue
        known, low, high = PLAIN.known[t], [u for u, _ in linked], [v for _, v in linked]
        chances: dict[tuple[int, int], float] = {}
        for u in range(known):
            for v in range(known):
                pair = (min(u, v), max(u, v))
                chances[pair] = chances.get(pair, 0) + (1 - matched) / known**2
        for u in low:
            for v in high:
                pair = (min(u, v), max(u, v))
                chances[pair] += matched / len(linked) ** 2
        for pair, chance in chances.items():
            share = drawn.count(pair) / len(drawn)
            assert abs(share - chance) <= 5 * math.sqrt(chance / len(drawn)) and (share > 0) == (chance > 0)


def test_more_links_than_a_step_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(future, "MAX_PAIRS", 3)
    cells, transitions = make(negatives=2)
    generator, seen = seeded(), set()
    for _ in range(20):
        links, others, counts = transitions.draw(generator)
        assert links.shape == (3, 2) and others.shape == (6, 2) and counts.shape == (6,)
        assert [t for t, _, _ in places(cells, links)] * 2 == [t for t, _, _ in places(cells, others)]
        seen.update(places(cells, links))
    assert seen == {(t, u, v) for t, links in AHEAD.items() for u, v in links}
    score, x = scorer(4), torch.randn(len(cells.nodes), 4, generator=seeded(1), dtype=torch.float64)
    pairs = torch.tensor(list(combinations(range(5), 2)))
    chances = torch.rand(10, generator=seeded(2), dtype=torch.float64)
    each = torch.stack(
        [agreement_loss(score, x, pairs[i : i + 1], chances[i : i + 1], seeded()) for i in range(len(pairs))]
    )
    which = torch.randint(10, (3,), generator=seeded(5))
    assert_close(agreement_loss(score, x, pairs, chances, seeded(5)), each[which].mean())


@on_each_device
def test_losses_against_loops(device: str) -> None:
    cells, transitions = make(negatives=3, matched=0.5, device=device)
    score = scorer(4).to(device)
    x = torch.randn(len(cells.nodes), 4, generator=seeded(1), dtype=torch.float64).to(device)
    rows, w, b = x.tolist(), score.weights.tolist(), score.bias.item()

    def plain(u: int, v: int) -> float:
        return sum(w[d] * rows[u][d] * rows[v][d] for d in range(4)) + b

    links, others, counts = (part.tolist() for part in transitions.draw(seeded(3, device)))
    assert 0 < sum(counts) < len(counts)
    positive = [-log_sigmoid(plain(u, v)) for u, v in links]
    negative = [-log_sigmoid(-plain(u, v)) for (u, v), count in zip(others, counts, strict=True) if count]
    expected = sum(positive) / len(positive) + sum(negative) / len(negative)
    assert future_loss(score, x, transitions, seeded(3, device)).item() == pytest.approx(expected, rel=1e-12)

    pairs, chances = [(0, 1), (4, 2), (7, 3)], [0.9, 0.0, 0.25]
    terms = [
        -p * log_sigmoid(plain(u, v)) - (1 - p) * log_sigmoid(-plain(u, v))
        for (u, v), p in zip(pairs, chances, strict=True)
    ]
    given = torch.tensor(pairs, device=device), torch.tensor(chances, dtype=torch.float64, device=device)
    found = agreement_loss(score, x, *given, seeded(0, device))
    assert found.item() == pytest.approx(sum(terms) / 3, rel=1e-12)


def test_where_every_other_pair_is_a_link_only_links_count() -> None:
    plain = Plain([{(0, 1): 1.0}, {(0, 1): 1.0}], [2, 2])
    graph = plain.graph()
    cells = Cells.of(graph.known, 0, torch.device("cpu"))
    transitions = Transitions.of(graph, cells, 5, 0.5)
    score, x = scorer(3), torch.randn(4, 3, generator=seeded(1), dtype=torch.float64)
    expected = -log_sigmoid(score(x[:1], x[1:2]).item())
    assert future_loss(score, x, transitions, seeded()).item() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["future", "agreement"])
def test_a_gradient_reaches_inputs_and_weights(kind: str) -> None:
    cells, transitions = make(negatives=3)
    score = scorer(4)
    x = torch.randn(len(cells.nodes), 4, generator=seeded(1), dtype=torch.float64).requires_grad_()
    if kind == "future":
        future_loss(score, x, transitions, seeded()).backward()
        links, others, counts = transitions.draw(seeded())
        used = torch.cat([links, others[counts]]).unique()
        assert len(used) > len(links.unique())  # some through other pairs alone
    else:
        pairs = torch.tensor([[0, 1], [2, 4]])
        agreement_loss(score, x, pairs, torch.tensor([0.9, 0.2], dtype=torch.float64), seeded()).backward()
        used = pairs.unique()
    assert bool((x.grad[used] != 0).all())
    assert bool((score.weights.grad != 0).all()) and score.bias.grad.item() != 0
