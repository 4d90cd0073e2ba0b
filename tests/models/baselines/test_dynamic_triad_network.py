"""The losses of DynamicTriad against float64 loops of their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from dysat.models.baselines.dynamic_triad import closure_loss, homophily_loss, smoothness_loss


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("margin", [0.0, 1.0, 30.0])
def test_homophily(margin: float) -> None:
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
    assert active == 6 if margin == 30 else 0 < active < 6  # some are far enough
    assert_close(homophily_loss(u, links, others, weights, margin).item(), wanted)


def test_roughness_is_of_nodes_known_before() -> None:
    known, u = [2, 3, 3], drawn(8, 4)
    wanted = 0.0
    for t, first in ((1, 2), (2, 5)):
        for i in range(known[t - 1]):
            wanted += float((u[first + i] - u[first - known[t - 1] + i]).square().sum())
    assert_close(smoothness_loss(u, known).item(), wanted)
    assert smoothness_loss(u, [8]) == 0


def test_the_cost_of_a_pair_that_closes() -> None:
    z, pairs = drawn(6), torch.tensor([0, 0, 0, 1, 2, 2])
    p = [1 / (1 + math.exp(-x)) for x in z.tolist()]
    wanted = [-math.log(1 - math.prod(1 - p[k] for k in ks)) for ks in ([0, 1, 2], [3], [4, 5])]
    assert_close(closure_loss(z, pairs, 3), torch.tensor(wanted, dtype=torch.float64))
    torch.autograd.gradcheck(lambda x: closure_loss(x, pairs, 3), (z.requires_grad_(),))


@pytest.mark.parametrize("scale", [1.0, 30.0, 200.0])
def test_it_is_finite_and_has_a_gradient_however_sure_it_is(scale: float) -> None:
    z = torch.tensor([-scale, -scale, scale, -scale], requires_grad=True)
    cost = closure_loss(z, torch.tensor([0, 0, 1, 2]), 3)
    near = math.log1p(math.exp(-scale))  # −log σ(scale)
    assert_close(cost.tolist()[1:], [near, scale + near], rtol=1e-5, atol=1e-15)
    two = math.exp(-near - scale) * (2 - math.exp(-near - scale))  # 1 − (1 − σ(−scale))²
    assert cost[0].item() == pytest.approx(-math.log(two), rel=1e-5)
    cost.sum().backward()
    assert z.grad is not None and z.grad.isfinite().all()
    assert_close(z.grad[3].item(), -1 / (1 + math.exp(-scale)), rtol=1e-5, atol=1e-6)


def test_its_gradient_is_that_of_the_papers_bound() -> None:
    """−Σ_k C_k log P_k + (1 − C_k) log(1 − P_k), with C_k = P_k / (1 − Π (1 − P)) held still."""
    z = drawn(5, seed=3).requires_grad_()
    (gradient,) = torch.autograd.grad(closure_loss(z, torch.zeros(5, dtype=torch.int64), 1).sum(), z)
    p = torch.sigmoid(z)
    cause = (p / (1 - (1 - p).prod())).detach()
    bound = -(cause * p.log() + (1 - cause) * (1 - p).log()).sum()
    assert_close(gradient, torch.autograd.grad(bound, z)[0])
