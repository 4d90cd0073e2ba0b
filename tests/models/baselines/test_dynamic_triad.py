"""The loss against a float64 loop of the paper's formulas, what its parts do, pair features, and training."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from small import make_graph, meetings, two_blocks
from torch.testing import assert_close

import dysat
from dysat import DynamicGraph, ModelError
from dysat.models.baselines.dynamic_triad import DynamicTriad
from dysat.training import Epoch, Progress

SMALL: dict[str, Any] = {"features": 6, "epochs": 3, "batch_size": 4, "device": "cpu"}


def quick(**changes: Any) -> DynamicTriad:
    return DynamicTriad(**{**SMALL, **changes})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def weights_of(graph: DynamicGraph) -> list[dict[tuple[int, int], float]]:
    """Of the links of each step, in both directions, over their mean."""
    steps = []
    for snapshot in graph:
        u, v, weights = (part.tolist() for part in snapshot.links())
        steps.append({(a, b): w for a, b, w in zip(u, v, weights, strict=True) if a != b})
    every = [w for step in steps for w in step.values()]
    mean = sum(every) / len(every)
    return [{p: w / mean for (a, b), w in step.items() for p in ((a, b), (b, a))} for step in steps]


def test_the_loss_is_the_papers() -> None:
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
    again = seeded(1)  # what was drawn
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


def test_every_part_does_its_work() -> None:
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


def test_triads_that_close_are_told_from_those_that_stay_open() -> None:
    """At every step a star of leaves, of which some are linked at the next one, always the same ones."""
    star = [(0, leaf) for leaf in range(1, 13)]
    closing = list(combinations(range(1, 6), 2))
    graph = make_graph([13] * 4, [star, star + closing, star, star + closing])
    model = quick(closure=1.0, smoothness=1.0, epochs=200, batch_size=256, learning_rate=0.02).fit(graph)
    value = model.embed(2) @ model.strategy_.detach()[:-1]
    pairs = torch.tensor(list(combinations(range(1, 13), 2)))
    odds = 2 * value[0] - value[pairs[:, 0]] - value[pairs[:, 1]]
    closes = (pairs < 6).all(1)
    assert odds[closes].min() > odds[~closes].max()


def test_a_pair_is_seen_by_its_distance() -> None:
    graph = two_blocks(20, 4)
    model = quick(epochs=20, batch_size=256).fit(graph)
    pairs = torch.tensor(list(combinations(range(20), 2)))
    e, (weights, bias) = model.embed(), model.scorer_
    wanted = (e[pairs[:, 0]] - e[pairs[:, 1]]).abs() @ weights + bias
    assert_close(model.pair_scores(pairs), wanted)
    top = model.top_links(len(pairs))
    assert_close(torch.tensor([link.score for link in top]), wanted.sigmoid().sort(descending=True).values)
    assert dysat.DySAT.pair_feature == "product"
    one = quick().fit(graph[:1])  # nothing to learn it from: the nearer the likelier
    assert torch.equal(one.scorer_[0], -torch.ones(6)) and one.scorer_[1] == 0


def test_training_is_told_and_stopped_and_taken_up() -> None:
    graph, told, kept = meetings(), [], []
    whole = quick(epochs=4).fit(graph, on_epoch=told.append)
    assert whole.finished_ and told == whole.epochs_ and [epoch.number for epoch in told] == [1, 2, 3, 4]
    assert all(isinstance(epoch, Epoch) and epoch.score is None for epoch in told)

    def keep(now: Progress) -> None:
        kept.append(Progress.restore(now.facts(), {name: tensor.clone() for name, tensor in now.tensors.items()}))

    part = quick(epochs=4).fit(graph, stop=lambda: True, keep=keep)
    assert not part.finished_ and len(part.epochs_) == 1
    done = quick(epochs=4).fit(graph, progress=kept[0])
    assert (
        done.finished_ and torch.equal(done.vectors_, whole.vectors_) and torch.equal(done.strategy_, whole.strategy_)
    )
    assert [epoch.loss for epoch in done.epochs_] == [epoch.loss for epoch in whole.epochs_]


def test_links_of_weight_zero_or_huge_keep_all_finite() -> None:
    links = [[(0, 1), (1, 2), (2, 3)]] * 2
    for given in ([0.0, 1e308, 1e-300], [1e308, 1e308, 1e308], [0.0, 0.0, 0.0]):
        model = quick().fit(make_graph([4, 4], links, weights=[given] * 2))
        assert model.embed().isfinite().all() and model.strategy_.isfinite().all()


def test_what_is_given_back_is_not_the_models_own() -> None:
    model = quick().fit(meetings())
    before = model.embed()
    model.embed().zero_()
    assert torch.equal(model.embed(), before) and not before.requires_grad


def test_what_does_not_fit_is_refused() -> None:
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
def test_it_learns_on_cuda_and_is_used_without(tmp_path: Path) -> None:
    model = quick(device="cuda", epochs=20).fit(meetings())
    assert model.embed().is_cuda and model.epochs_[-1].loss < model.epochs_[0].loss
    model.save(tmp_path)
    assert_close(DynamicTriad.load(tmp_path, device="cpu").embed(), model.embed().cpu())
