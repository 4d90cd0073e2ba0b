"""Objectives of forecasting: drawn pairs, losses against loops, and axes that keep all scores."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations, product

import pytest
import torch
from directed import directed_graph
from graphs import Plain, on_each_device, seeded
from torch import Tensor
from torch.testing import assert_close

from dysat.nn import future_objective as future
from dysat.nn.future_objective import Cells, ProductScore, Transitions, agreement_loss, draw_taught, future_loss

# With new nodes, self-loops, and a snapshot without links.
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
# The links of each transition, by hand.
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
    a, b = pairs.T
    assert torch.equal(cells.steps[a], cells.steps[b])
    return list(zip(cells.steps[a].tolist(), cells.nodes[a].tolist(), cells.nodes[b].tolist(), strict=True))


def log_sigmoid(x: float) -> float:
    return -math.log(1 + math.exp(-x))


class TestProductScore:
    def test_equals_the_loop_and_starts_with_alternating_weights(self) -> None:
        score, x = scorer(5), torch.randn(2, 7, 5, generator=seeded(1), dtype=torch.float64)
        w, b = score.weights.tolist(), score.bias.item()
        expected = [sum(w[d] * u[d] * v[d] for d in range(5)) + b for u, v in zip(*x.tolist(), strict=True)]
        assert_close(score(*x), torch.tensor(expected, dtype=torch.float64))
        first = ProductScore(4)
        assert first.weights.tolist() == [0.5, -0.5, 0.5, -0.5] and first.bias.item() == 0

    @on_each_device
    @pytest.mark.parametrize("at_once", [4, 100])
    def test_axes_keep_all_scores_and_are_eigenvectors(
        self, device: str, at_once: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(future, "ROWS_AT_ONCE", at_once)
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
        assert_close(e.T @ e, squares.diag(), rtol=0, atol=2e-3)  # orthogonal, the strongest first
        assert_close((weights * squares)[:5], strengths[:5], rtol=0, atol=1e-4)

    def test_axes_of_zeros_are_finite(self) -> None:
        axes, weights = ProductScore(3).axes(torch.zeros(4, 3))
        assert axes.isfinite().all() and weights.isfinite().all()


@on_each_device
def test_cells_are_the_known_nodes_of_each_step(device: str) -> None:
    cells = Cells.of(PLAIN.known, 2, torch.device(device))
    assert cells.nodes.tolist() == [*range(5), *range(5), *range(6)]
    assert cells.steps.tolist() == [2] * 5 + [3] * 5 + [4] * 6
    assert cells.at(torch.tensor([[0, 4]], device=device), 3).tolist() == [[5, 9]]


@on_each_device
@pytest.mark.parametrize("first", [0, 1, 3])
def test_transitions_are_links_of_the_next_snapshot_between_known_nodes(first: int, device: str) -> None:
    cells, transitions = make(first, device=device)
    expected = [(t, u, v) for t in range(first, 4) for u, v in sorted(AHEAD[t])]
    assert places(cells, transitions.pairs) == expected
    assert [first + i for i in transitions.transition.tolist()] == [t for t, _, _ in expected]
    links, _, _ = transitions.draw(seeded(device=device))
    assert torch.equal(links, transitions.pairs)


def test_the_last_step_has_no_transition() -> None:
    assert len(make(4)[1].pairs) == 0


def test_ahead_zero_takes_the_links_of_each_step() -> None:
    graph = PLAIN.graph()
    cells = Cells.of(graph.known, 3, torch.device("cpu"))
    links = places(cells, Transitions.of(graph, cells, 1, 0.0, ahead=0).pairs)
    assert links == [(3, 0, 3), (3, 2, 4), (3, 3, 4), (4, 0, 1), (4, 0, 5), (4, 1, 2), (4, 3, 4)]


@on_each_device
@pytest.mark.parametrize("matched", [0.0, 0.4, 1.0])
def test_distribution_of_negatives(matched: float, device: str) -> None:
    num_negatives = 2000
    cells, transitions = make(negatives=num_negatives, matched=matched, device=device)
    links, negatives, counts = transitions.draw(seeded(device=device))
    assert len(negatives) == len(counts) == num_negatives * len(links)
    assert bool((negatives[:, 0] <= negatives[:, 1]).all())
    drawn = places(cells, negatives)
    # Each belongs to the transition of its link, and both nodes are known then.
    steps = [t for t, _, _ in places(cells, links)] * num_negatives
    assert [t for t, _, _ in drawn] == steps and all(v < PLAIN.known[t] for t, _, v in drawn)
    assert counts.tolist() == [u != v and (u, v) not in AHEAD[t] for t, u, v in drawn]

    number = Counter(drawn)
    for t, linked in AHEAD.items():
        total = sum(count for place, count in number.items() if place[0] == t)
        assert total == num_negatives * len(linked)
        if not linked:
            continue
        known = PLAIN.known[t]
        probability: Counter[tuple[int, int]] = Counter()
        for u, v in product(range(known), repeat=2):
            probability[min(u, v), max(u, v)] += (1 - matched) / known**2
        for (u, _), (_, v) in product(linked, repeat=2):
            probability[min(u, v), max(u, v)] += matched / len(linked) ** 2
        for pair, p in probability.items():
            share = number[t, *pair] / total
            assert abs(share - p) <= 5 * math.sqrt(p / total) and (share > 0) == (p > 0)


def test_a_step_draws_at_most_max_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(future, "MAX_PAIRS", 3)
    cells, transitions = make(negatives=2)
    generator, all_links = seeded(), set()
    for _ in range(20):
        links, negatives, counts = transitions.draw(generator)
        assert links.shape == (3, 2) and negatives.shape == (6, 2) and counts.shape == (6,)
        assert [t for t, _, _ in places(cells, links)] * 2 == [t for t, _, _ in places(cells, negatives)]
        all_links.update(places(cells, links))
    assert all_links == {(t, u, v) for t, links in AHEAD.items() for u, v in links}
    score, x = scorer(4), torch.randn(len(cells.nodes), 4, generator=seeded(1), dtype=torch.float64)
    pairs = torch.tensor(list(combinations(range(5), 2)))
    probabilities = torch.rand(10, generator=seeded(2), dtype=torch.float64)
    each = torch.stack(
        [agreement_loss(score, x, pairs[i : i + 1], probabilities[i : i + 1]) for i in range(len(pairs))]
    )
    drawn = torch.randint(10, (3,), generator=seeded(5))
    assert_close(agreement_loss(score, x, *draw_taught(pairs, probabilities, seeded(5))), each[drawn].mean())


@on_each_device
def test_losses_equal_loops(device: str) -> None:
    cells, transitions = make(negatives=3, matched=0.5, device=device)
    score = scorer(4).to(device)
    x = torch.randn(len(cells.nodes), 4, generator=seeded(1), dtype=torch.float64).to(device)
    rows, w, b = x.tolist(), score.weights.tolist(), score.bias.item()

    def logit(u: int, v: int) -> float:
        return sum(w[d] * rows[u][d] * rows[v][d] for d in range(4)) + b

    links, negatives, counts = (part.tolist() for part in transitions.draw(seeded(3, device)))
    assert 0 < sum(counts) < len(counts)
    positive = [-log_sigmoid(logit(u, v)) for u, v in links]
    negative = [-log_sigmoid(-logit(u, v)) for (u, v), count in zip(negatives, counts, strict=True) if count]
    expected = sum(positive) / len(positive) + sum(negative) / len(negative)
    assert future_loss(score, x, *transitions.draw(seeded(3, device))).item() == pytest.approx(expected, rel=1e-12)

    pairs, probabilities = [(0, 1), (4, 2), (7, 3)], [0.9, 0.0, 0.25]
    terms = [
        -p * log_sigmoid(logit(u, v)) - (1 - p) * log_sigmoid(-logit(u, v))
        for (u, v), p in zip(pairs, probabilities, strict=True)
    ]
    taught = torch.tensor(pairs, device=device), torch.tensor(probabilities, dtype=torch.float64, device=device)
    loss = agreement_loss(score, x, *taught)
    assert loss.item() == pytest.approx(sum(terms) / 3, rel=1e-12)


def test_negatives_that_are_links_do_not_count() -> None:
    plain = Plain([{(0, 1): 1.0}, {(0, 1): 1.0}], [2, 2])
    graph = plain.graph()
    cells = Cells.of(graph.known, 0, torch.device("cpu"))
    transitions = Transitions.of(graph, cells, 5, 0.5)
    score, x = scorer(3), torch.randn(4, 3, generator=seeded(1), dtype=torch.float64)
    expected = -log_sigmoid(score(x[:1], x[1:2]).item())
    assert future_loss(score, x, *transitions.draw(seeded())).item() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["future", "agreement"])
def test_gradients_reach_inputs_and_weights(kind: str) -> None:
    cells, transitions = make(negatives=3)
    score = scorer(4)
    x = torch.randn(len(cells.nodes), 4, generator=seeded(1), dtype=torch.float64).requires_grad_()
    if kind == "future":
        future_loss(score, x, *transitions.draw(seeded())).backward()
        links, negatives, counts = transitions.draw(seeded())
        used = torch.cat([links, negatives[counts]]).unique()
        assert len(used) > len(links.unique())  # some cells occur in negatives only
    else:
        pairs = torch.tensor([[0, 1], [2, 4]])
        agreement_loss(score, x, pairs, torch.tensor([0.9, 0.2], dtype=torch.float64)).backward()
        used = pairs.unique()
    assert bool((x.grad[used] != 0).all())
    assert bool((score.weights.grad != 0).all()) and score.bias.grad.item() != 0


class TestDirection:
    def score(self) -> ProductScore:
        score = ProductScore(5, directed=True).double()
        with torch.no_grad():
            for parameter in score.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=seeded(1), dtype=torch.float64))
        return score

    def test_equals_the_loop_and_starts_symmetric(self) -> None:
        score, x = self.score(), torch.randn(6, 5, generator=seeded(), dtype=torch.float64)
        w, r = score.weights.tolist(), score.target.tolist()  # type: ignore[union-attr]
        for u, v in product(range(6), repeat=2):
            target = [sum(float(x[v, i]) * r[i][d] for i in range(5)) for d in range(5)]
            expected = sum(w[d] * float(x[u, d]) * target[d] for d in range(5)) + score.bias.item()
            assert score(x[u], x[v]).item() == pytest.approx(expected)
        one, two = x.float().split(3)
        assert_close(ProductScore(5, directed=True)(one, two), ProductScore(5)(two, one))

    def test_axes_of_both_roles_keep_all_scores_and_are_singular_vectors(self) -> None:
        score, x = self.score(), torch.randn(40, 5, generator=seeded(), dtype=torch.float64)
        source, target, weights = score.role_axes(x)
        e, f = x @ source, x @ target
        every = score(x.repeat_interleave(40, 0), x.repeat(40, 1)).view(40, 40)
        assert_close((e * weights) @ f.mT + score.bias, every, rtol=1e-4, atol=1e-4)
        for side in (e, f):  # orthogonal columns, the strongest first
            gram = side.mT @ side
            assert_close(gram, torch.diag(gram.diagonal()), rtol=0, atol=1e-4)
        strengths = weights.abs() * e.norm(dim=0) * f.norm(dim=0)
        assert_close(strengths, torch.linalg.svdvals(every - score.bias)[:5], rtol=1e-4, atol=1e-4)

    def test_roles_are_equal_without_asymmetry(self) -> None:
        score, x = self.score(), torch.randn(40, 5, generator=seeded(), dtype=torch.float64)
        with torch.no_grad():
            score.target.copy_(torch.eye(5))  # type: ignore[union-attr]
        plain = ProductScore(5).double()
        plain.load_state_dict({"weights": score.weights, "bias": score.bias})
        source, target, weights = score.role_axes(x)
        axes, expected = plain.axes(x)
        assert_close(target, source)
        assert_close(source, axes)
        assert_close(weights, expected)

    def test_transitions_are_arcs(self) -> None:
        graph = directed_graph([4, 5], [{(0, 1): 1}, {(2, 0): 1, (0, 2): 1, (3, 1): 1, (4, 0): 1, (1, 1): 1}])
        cells = Cells.of(graph.known, 0, torch.device("cpu"))
        found = Transitions.of(graph, cells, negatives=200, matched=0.5)
        assert found.pairs.tolist() == [[0, 2], [2, 0], [3, 1]]
        _, negatives, counts = found.draw(seeded())
        drawn = set(map(tuple, negatives[counts].tolist()))
        assert drawn == {(u, v) for u in range(4) for v in range(4) if u != v} - {(0, 2), (2, 0), (3, 1)}
