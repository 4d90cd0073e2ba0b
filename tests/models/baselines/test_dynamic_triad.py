"""DynamicTriad: the loss and its parts against float64 loops of the paper's formulas; pair features; training."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from small import make_graph, meetings, two_blocks
from torch import Tensor
from torch.testing import assert_close

import dysat
from dysat import DynamicGraph, ModelError
from dysat.models.baselines.dynamic_triad import DynamicTriad, closure_loss, homophily_loss, smoothness_loss

SMALL: dict[str, Any] = {"features": 6, "epochs": 3, "batch_size": 4, "device": "cpu"}


def quick(**changes: Any) -> DynamicTriad:
    return DynamicTriad(**{**SMALL, **changes})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def weights_of(graph: DynamicGraph) -> list[dict[tuple[int, int], float]]:
    """Weights of the links of each step, in both directions, divided by their mean."""
    steps = []
    for snapshot in graph:
        u, v, weights = (part.tolist() for part in snapshot.links())
        steps.append({(a, b): w for a, b, w in zip(u, v, weights, strict=True) if a != b})
    every = [w for step in steps for w in step.values()]
    mean = sum(every) / len(every)
    return [{p: w / mean for (a, b), w in step.items() for p in ((a, b), (b, a))} for step in steps]


def test_the_loss_matches_the_paper() -> None:
    graph = meetings()
    model = quick(negatives=2, smoothness=0.3, closure=0.7, margin=2.5).fit(graph)
    first = [sum(graph.known[:t]) for t in range(len(graph) + 1)]
    u = [model.embed(t).double() for t in range(len(graph))]
    theta, b = model.strategy_.detach().double()[:-1], model.strategy_.tolist()[-1]
    weights = weights_of(graph)
    links = [(t, i, j) for t, step in enumerate(weights) for i, j in sorted(step) if i < j]

    stacked = model.links()
    batch = torch.tensor([3, 20, 0, 11, 7, 25, 1, 15, 9, -1])
    value = model.loss(stacked, seeded())(batch, seeded(1)).item()
    again = seeded(1)  # repeats the draws of the loss
    turned = torch.rand(10, generator=again) < 0.5
    rows = torch.stack(stacked.links()[:2], 1)[batch.clamp(min=0)]
    starts = torch.where(turned, rows[:, 1], rows[:, 0])
    others = stacked.others(starts, 2, again)
    triads, stays = stacked.draw(10, again)

    near = 0.0
    for n, side, ks in zip(batch.tolist()[:9], turned.tolist(), others.tolist(), strict=False):
        t, i, j = links[n]
        i, j = (j, i) if side else (i, j)
        for k in (row - first[t] for row in ks):
            if k != i and (i, k) not in weights[t]:
                gap = (u[t][i] - u[t][j]).square().sum() - (u[t][i] - u[t][k]).square().sum()
                near += weights[t][i, j] * max(0.0, float(gap) + 2.5)
    moves = sum(
        float((u[t][i] - u[t - 1][i]).square().sum()) for t in range(1, len(graph)) for i in range(graph.known[t - 1])
    )

    def p(t: int, i: int, j: int, k: int) -> float:
        x = weights[t][i, k] * (u[t][k] - u[t][i]) + weights[t][j, k] * (u[t][k] - u[t][j])
        return 1 / (1 + math.exp(-float(theta @ x) - b))

    closing = []
    for t in range(len(graph) - 1):
        for i, j in combinations(range(graph.known[t]), 2):
            common = [k for k in range(graph.known[t]) if (i, k) in weights[t] and (j, k) in weights[t]]
            if common and (i, j) not in weights[t] and (i, j) in weights[t + 1]:
                closing.append(-math.log(1 - math.prod(1 - p(t, i, j, k) for k in common)))
    staying = []
    for i, j, k in zip(*(part[stays].tolist() for part in triads[:3]), strict=True):
        t = max(t for t in range(len(graph)) if first[t] <= k)
        staying.append(-math.log(1 - p(t, i - first[t], j - first[t], k - first[t])))
    assert near > 1 and moves > 0.01 and len(closing) > 3 and len(staying) > 0
    wanted = near / 2 / 9 + 0.3 * moves / len(links)
    wanted += 0.7 * (sum(closing) / len(closing) + sum(staying) / len(staying))
    assert_close(value, wanted, rtol=1e-5, atol=1e-6)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("margin", [0.0, 1.0, 30.0])
def test_homophily_loss(margin: float) -> None:
    u = drawn(6, 3)
    links, others = torch.tensor([[0, 1], [4, 2], [3, 5]]), torch.tensor([[2, 3], [5, 0], [1, 1]])
    weights = torch.tensor([[1.0, 1.0], [0.5, 0.0], [2.0, 2.0]], dtype=torch.float64)

    def square(a: int, b: int) -> float:
        return sum(float(x - y) ** 2 for x, y in zip(u[a], u[b], strict=True))

    wanted, active = 0.0, 0
    for (i, j), ks, ws in zip(links.tolist(), others.tolist(), weights.tolist(), strict=True):
        for k, w in zip(ks, ws, strict=True):
            gap = square(i, j) - square(i, k) + margin
            wanted += w * max(0.0, gap)
            active += gap > 0
    assert active == 6 if margin == 30 else 0 < active < 6  # some pairs are far enough apart
    assert_close(homophily_loss(u, links, others, weights, margin).item(), wanted)


def test_smoothness_loss_covers_nodes_known_before() -> None:
    known, u = [2, 3, 3], drawn(8, 4)
    wanted = 0.0
    for t, first in ((1, 2), (2, 5)):
        for i in range(known[t - 1]):
            wanted += float((u[first + i] - u[first - known[t - 1] + i]).square().sum())
    assert_close(smoothness_loss(u, known).item(), wanted)
    assert smoothness_loss(u, [8]) == 0


def test_closure_loss() -> None:
    z, pairs = drawn(6), torch.tensor([0, 0, 0, 1, 2, 2])
    p = [1 / (1 + math.exp(-x)) for x in z.tolist()]
    wanted = [-math.log(1 - math.prod(1 - p[k] for k in ks)) for ks in ([0, 1, 2], [3], [4, 5])]
    assert_close(closure_loss(z, pairs, 3), torch.tensor(wanted, dtype=torch.float64))
    torch.autograd.gradcheck(lambda x: closure_loss(x, pairs, 3), (z.requires_grad_(),))


@pytest.mark.parametrize("scale", [1.0, 30.0, 200.0])
def test_closure_loss_is_finite_and_has_a_gradient_for_extreme_odds(scale: float) -> None:
    z = torch.tensor([-scale, -scale, scale, -scale], requires_grad=True)
    cost = closure_loss(z, torch.tensor([0, 0, 1, 2]), 3)
    near = math.log1p(math.exp(-scale))  # −log σ(scale)
    assert_close(cost.tolist()[1:], [near, scale + near], rtol=1e-5, atol=1e-15)
    two = math.exp(-near - scale) * (2 - math.exp(-near - scale))  # 1 − (1 − σ(−scale))²
    assert cost[0].item() == pytest.approx(-math.log(two), rel=1e-5)
    cost.sum().backward()
    assert z.grad is not None and z.grad.isfinite().all()
    assert_close(z.grad[3].item(), -1 / (1 + math.exp(-scale)), rtol=1e-5, atol=1e-6)


def test_the_gradient_of_closure_loss_equals_that_of_the_papers_bound() -> None:
    """−Σ_k C_k log P_k + (1 − C_k) log(1 − P_k), with C_k = P_k / (1 − Π (1 − P)) fixed."""
    z = drawn(5, seed=3).requires_grad_()
    (gradient,) = torch.autograd.grad(closure_loss(z, torch.zeros(5, dtype=torch.int64), 1).sum(), z)
    p = torch.sigmoid(z)
    cause = (p / (1 - (1 - p).prod())).detach()
    bound = -(cause * p.log() + (1 - cause) * (1 - p).log()).sum()
    assert_close(gradient, torch.autograd.grad(bound, z)[0])


def test_smoothness_keeps_vectors_still_and_homophily_links_close() -> None:
    graph = two_blocks(16, 4)
    options = {"epochs": 60, "batch_size": 256, "closure": 0.0}

    def moves(model: DynamicTriad) -> float:
        return float(torch.stack([model.embed(t) for t in range(4)]).diff(dim=0).square().sum())

    loose, smooth = (quick(smoothness=beta, **options).fit(graph) for beta in (0.01, 10.0))
    assert moves(smooth) < 0.2 * moves(loose)
    u, v, _ = graph[-1].links()
    linked = torch.zeros(16, 16, dtype=torch.bool)
    linked[u, v] = linked[v, u] = True
    distances = torch.cdist(loose.embed(), loose.embed())
    assert distances[linked].mean() < 0.7 * distances[~linked & ~torch.eye(16, dtype=torch.bool)].mean()


def test_closing_triads_score_higher_than_open_ones() -> None:
    """A star at every step; the same few leaves are linked at every other step."""
    star = [(0, leaf) for leaf in range(1, 13)]
    closing = list(combinations(range(1, 6), 2))
    graph = make_graph([13] * 4, [star, star + closing, star, star + closing])
    model = quick(closure=1.0, smoothness=1.0, epochs=200, batch_size=256, learning_rate=0.02).fit(graph)
    value = model.embed(2) @ model.strategy_.detach()[:-1]
    pairs = torch.tensor(list(combinations(range(1, 13), 2)))
    odds = 2 * value[0] - value[pairs[:, 0]] - value[pairs[:, 1]]
    closes = (pairs < 6).all(1)
    assert odds[closes].min() > odds[~closes].max()


def test_pairs_are_scored_by_their_distance() -> None:
    graph = two_blocks(20, 4)
    model = quick(epochs=20, batch_size=256).fit(graph)
    pairs = torch.tensor(list(combinations(range(20), 2)))
    e, (weights, bias) = model.embed(), model.scorer_
    wanted = (e[pairs[:, 0]] - e[pairs[:, 1]]).abs() @ weights + bias
    assert_close(model.pair_scores(pairs), wanted)
    top = model.top_links(len(pairs))
    assert_close(torch.tensor([link.score for link in top]), wanted.sigmoid().sort(descending=True).values)
    assert dysat.DySAT.pair_feature == "product"
    one = quick().fit(graph[:1])  # nothing to train the scorer on: closer pairs score higher
    assert torch.equal(one.scorer_[0], -torch.ones(6)) and one.scorer_[1] == 0


def test_zero_and_huge_weights_give_finite_embeddings() -> None:
    links = [[(0, 1), (1, 2), (2, 3)]] * 2
    for given in ([0.0, 1e308, 1e-300], [1e308, 1e308, 1e308], [0.0, 0.0, 0.0]):
        model = quick().fit(make_graph([4, 4], links, weights=[given] * 2))
        assert model.embed().isfinite().all() and model.strategy_.isfinite().all()


def test_embed_returns_a_copy() -> None:
    model = quick().fit(meetings())
    before = model.embed()
    model.embed().zero_()
    assert torch.equal(model.embed(), before) and not before.requires_grad


def test_invalid_options_and_weights_are_refused() -> None:
    for options, message in [
        ({"features": 0}, "features=0 must be at least 1"),
        ({"negatives": 0}, "negatives=0 must be at least 1"),
        ({"smoothness": -0.1}, "smoothness=-0.1 must not be negative"),
        ({"closure": math.inf}, "closure=inf must be a finite number"),
        ({"margin": math.nan}, "margin=nan must be a finite number"),
    ]:
        with pytest.raises(ModelError, match=message):
            quick(**options)
    model = quick().fit(meetings())
    with pytest.raises(ModelError, match="the vectors do not fit the model: features=6, 37 rows"):
        model._restore({})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_model_trained_on_cuda_runs_on_the_cpu(tmp_path: Path) -> None:
    model = quick(device="cuda", epochs=20).fit(meetings())
    assert model.embed().is_cuda and model.epochs_[-1].loss < model.epochs_[0].loss
    model.save(tmp_path)
    assert_close(DynamicTriad.load(tmp_path, device="cpu").embed(), model.embed().cpu())
