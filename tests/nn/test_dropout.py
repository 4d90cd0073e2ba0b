"""Dropout: rate, scale, independence, and reproducibility."""

from __future__ import annotations

import math

import pytest
import torch
from graphs import on_each_device, seeded
from torch.testing import assert_close

from dysat.nn.dropout import dropout, keep_mask

pytestmark = pytest.mark.usefixtures("each_path")


@on_each_device
@pytest.mark.parametrize("rate", [0.01, 0.4, 0.9])
def test_rate_and_mean(rate: float, device: str) -> None:
    n = 400_000
    result = dropout(torch.ones(n, dtype=torch.float64, device=device), rate, seeded(1, device))
    values = set(result.unique().tolist())
    assert len(values) == 2 and min(values) == 0.0
    assert_close(max(values), 1 / (1 - rate), rtol=1e-4, atol=0)
    spread = math.sqrt(rate * (1 - rate) / n)  # standard deviation of the dropped fraction
    assert abs(float((result == 0).double().mean()) - rate) < 5 * spread
    assert abs(float(result.mean()) - 1) < 5 * spread / (1 - rate)


def test_values_that_share_a_random_number_are_independent() -> None:
    """All 16 outcomes of four adjacent values are equally frequent."""
    n = 160_000
    kept = keep_mask(torch.Size([n, 4]), 0.5, seeded(2), torch.float64) > 0
    outcomes = (kept.long() * torch.tensor([8, 4, 2, 1])).sum(1).bincount(minlength=16)
    assert float((outcomes - n / 16).abs().max()) < 5 * math.sqrt(n / 16)


@on_each_device
def test_kept_values_are_scaled(device: str) -> None:
    x = torch.randn(30, 7, generator=seeded(3)).to(device)
    result = dropout(x, 0.25, seeded(4, device))
    kept = result != 0
    assert bool(kept.any()) and not bool(kept.all())
    assert_close(result[kept], x[kept] / 0.75)


@pytest.mark.parametrize(("rate", "generator"), [(0.0, seeded()), (0.5, None), (0.0, None)])
def test_returns_the_input_without_rate_or_generator(rate: float, generator: torch.Generator | None) -> None:
    x = torch.randn(5, 3, generator=seeded(5))
    before = None if generator is None else generator.get_state()
    assert dropout(x, rate, generator) is x
    assert generator is None or torch.equal(before, generator.get_state())


@on_each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_shape(dtype: torch.dtype, device: str) -> None:
    for shape in [(), (0,), (0, 4), (1,), (3,), (5, 1), (7, 3), (2, 3, 5), (8,)]:
        result = dropout(torch.ones(shape, dtype=dtype, device=device), 0.5, seeded(6, device))
        assert result.shape == shape and result.dtype == dtype and result.device.type == device
        assert set(result.flatten().tolist()) <= {0.0, 2.0}


@on_each_device
def test_depends_only_on_the_generator(device: str) -> None:
    x, before = torch.ones(101, device=device), torch.get_rng_state()
    generator = seeded(7, device)
    first, second = (dropout(x, 0.5, generator) for _ in range(2))
    assert torch.equal(first, dropout(x, 0.5, seeded(7, device)))
    assert not torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_gradients_have_the_same_mask() -> None:
    x = torch.ones(40, requires_grad=True)
    result = dropout(x, 0.5, seeded(8))
    result.sum().backward()
    assert torch.equal(x.grad, result.detach())


def test_a_rate_close_to_one() -> None:
    assert not dropout(torch.ones(1000), 1 - 1e-9, seeded(9)).any()
