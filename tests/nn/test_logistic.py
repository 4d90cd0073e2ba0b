"""Logistic regression: the same minimum as scikit-learn's, also for degenerate data."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from dysat.nn import logistic
from dysat.nn.logistic import fit_logistic, mean_and_scale


def examples(rows: int, columns: int, seed: int = 0, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Products of two normals, like pair features, with labels that mostly follow a hidden direction."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, rows, columns, generator=generator, dtype=torch.float64).prod(0)
    hidden = torch.randn(columns, generator=generator, dtype=torch.float64)
    noise = columns**0.5 * torch.randn(rows, generator=generator, dtype=torch.float64)
    return scale * x, x @ hidden + noise > 0.3


def sklearn_fit(x: Tensor, y: Tensor, l2: float = 1.0, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    model = LogisticRegression(C=1 / l2, tol=1e-10, max_iter=100_000)
    model.fit(x.numpy(), y.numpy(), None if weight is None else weight.numpy())
    return torch.from_numpy(model.coef_[0]), torch.tensor(model.intercept_[0])


def gradient(x: Tensor, y: Tensor, w: Tensor, b: Tensor, l2: float = 1.0) -> Tensor:
    """Gradient of the objective, bias last, each entry relative to the sum of its terms' magnitudes."""
    x = torch.cat([x.double(), torch.ones(len(x), 1, dtype=torch.float64)], 1)
    theta = torch.cat([w, b.unsqueeze(0)])
    penalty = torch.full_like(theta, l2)
    penalty[-1] = 0
    terms = x * (torch.sigmoid(x @ theta) - y.double()).unsqueeze(1)
    return (terms.sum(0) + penalty * theta).abs() / (x.abs().sum(0) + penalty)


@pytest.mark.parametrize(("rows", "columns"), [(300, 5), (60, 128), (600, 128)])
@pytest.mark.parametrize(("scale", "l2"), [(0.01, 0.1), (1.0, 1.0), (5.0, 0.1), (5.0, 10.0)])
def test_equals_scikit_learn(rows: int, columns: int, scale: float, l2: float) -> None:
    x, y = examples(rows, columns, scale=scale)
    torch.testing.assert_close(fit_logistic(x, y, l2=l2), sklearn_fit(x, y, l2), rtol=1e-4, atol=1e-4)


def test_the_bias_is_not_penalised() -> None:
    x, y = examples(400, 3)
    x, y = torch.cat([x, x]), torch.cat([y, torch.ones_like(y)])  # three in four are positive
    w, b = fit_logistic(x, y, l2=1e9)
    assert w.abs().max() < 1e-6
    assert b.item() == pytest.approx(math.log(y.sum() / (~y).sum()), rel=1e-6)


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e-6, 1e6)])
def test_many_rows_reach_the_same_minimum(scales: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a Hessian in float32, which is kept for several steps, also if features differ too much for float32."""
    x, y = examples(logistic.MANY_ROWS, 20)
    x = x * torch.logspace(*map(math.log10, scales), 20, dtype=torch.float64)
    weight = torch.linspace(0.5, 2, len(y))
    found = fit_logistic(x, y, sample_weight=weight)
    monkeypatch.setattr(logistic, "MANY_ROWS", len(y) + 1)
    expected = fit_logistic(x, y, sample_weight=weight)
    (w, b), (v, a) = found, expected
    torch.testing.assert_close(x @ w + b, x @ v + a, rtol=0, atol=1e-4)
    assert not torch.equal(w, v)


@pytest.mark.parametrize("rows", [logistic.MANY_ROWS // 2, logistic.MANY_ROWS // 5])
def test_a_hessian_of_some_rows_reaches_the_same_minimum(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = examples(logistic.MANY_ROWS, 20)
    differences = examples(500, 20, seed=1)[0]
    w, b = fit_logistic(x, y, differences=differences)
    monkeypatch.setattr(logistic, "HESSIAN_ROWS", rows)
    v, a = fit_logistic(x, y, differences=differences)
    torch.testing.assert_close(x @ w + b, x @ v + a, rtol=0, atol=1e-4)
    assert not torch.equal(w, v)


def test_differences_are_examples_without_a_bias() -> None:
    """The gradient of the whole objective is 0 at the result."""
    x, y = examples(200, 4)
    differences = examples(150, 4, seed=1)[0]
    w, b = fit_logistic(x, y, l2=3.0, differences=differences)
    theta = torch.cat([w, b.unsqueeze(0)])
    rows = torch.cat([x, torch.ones(len(x), 1, dtype=torch.float64)], 1)
    slope = (rows * (torch.sigmoid(rows @ theta) - y.double()).unsqueeze(1)).sum(0)
    slope[:-1] += 3.0 * w - (differences * torch.sigmoid(-differences @ w).unsqueeze(1)).sum(0)
    torch.testing.assert_close(slope, torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-5)
    without = fit_logistic(x, y, l2=3.0)
    assert not torch.allclose(w, without[0], atol=1e-2)
    none = fit_logistic(x, y, l2=3.0, differences=differences[:0])
    torch.testing.assert_close(none, without, rtol=0, atol=0)


def test_features_far_from_zero() -> None:
    x, y = examples(200, 4)
    w, b = fit_logistic(x, y)
    shifted, moved = fit_logistic(x + 1e6, y)
    torch.testing.assert_close(shifted, w, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(moved, b - 1e6 * w.sum(), rtol=1e-6, atol=1e-2)


def test_integers_and_float32_give_the_same_result() -> None:
    x, y = examples(50, 3)
    x = (3 * x).round()
    expected = fit_logistic(x, y)
    for features, labels in ((x.long(), y.long()), (x.float(), y.float())):
        torch.testing.assert_close(fit_logistic(features, labels), expected, rtol=0, atol=0)


def test_sample_weight_repeats_examples() -> None:
    x, y = examples(120, 6)
    weight = torch.arange(120) % 3
    repeated = x.repeat_interleave(weight, 0), y.repeat_interleave(weight)
    expected = fit_logistic(*repeated)
    torch.testing.assert_close(fit_logistic(x, y, sample_weight=weight), expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(expected, sklearn_fit(x, y, weight=weight), rtol=1e-4, atol=1e-5)


def test_a_batch_of_problems_equals_each_problem() -> None:
    x, y = examples(90, 8)
    masks = torch.rand(5, 90, generator=torch.Generator().manual_seed(1)) < 0.4
    masks[3] = False  # no examples
    masks[4] &= y  # one class
    w, b = fit_logistic(x, y, sample_weight=masks)
    assert w.shape == (5, 8) and b.shape == (5,)
    rows = x.expand(5, 90, 8), y.expand(5, 90)
    torch.testing.assert_close(fit_logistic(*rows, sample_weight=masks), (w, b), rtol=1e-6, atol=1e-9)
    for mask, w_i, b_i in zip(masks, w, b, strict=True):
        torch.testing.assert_close(fit_logistic(x[mask], y[mask]), (w_i, b_i), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e3, 1e6])
def test_separable_data_has_a_finite_minimum(scale: float) -> None:
    x, _ = examples(100, 10, scale=scale)
    y = x[:, 0] > 0
    w, b = fit_logistic(x, y)
    assert gradient(x, y, w, b).max() < 1e-6
    if scale >= 1e3:  # the penalty is negligible
        assert ((x @ w + b > 0) == y).all()


def test_steps_that_are_too_long_are_shortened() -> None:
    """Without the line search, several of these problems diverge."""
    generator = torch.Generator().manual_seed(0)
    x = 10 * torch.randn(100, 12, 5, generator=generator, dtype=torch.float64) ** 5
    y = torch.rand(100, 12, generator=generator) < 0.4
    w, b = fit_logistic(x, y, l2=1e-3)
    for i in y.any(1).nonzero()[:, 0].tolist():
        assert gradient(x[i], y[i], w[i], b[i], l2=1e-3).max() < 1e-4


def test_columns_of_every_scale() -> None:
    x, y = examples(300, 6)
    x = x * torch.tensor([1e6, 1e-6, 1.0, 1e3, 0.0, 1.0])
    x[:, 5] = 1e6  # constant
    w, b = fit_logistic(x, y)
    assert gradient(x, y, w, b).max() < 1e-6
    assert w[4] == 0 and w[5].abs() < 1e-12  # the bias replaces a constant feature


def test_repeated_columns_share_their_weight() -> None:
    x, y = examples(80, 2)
    for scale, exact in (
        (1.0, 1e-9),
        (1e6, 1e-3),
    ):  # only the penalty requires this, and at 1e6 it is 1e-14 of the loss
        w, _ = fit_logistic(scale * torch.cat([x, x], 1), y)
        torch.testing.assert_close(w[:2], w[2:], rtol=exact, atol=0)


@pytest.mark.parametrize(("positive", "negative"), [(7, 0), (0, 7), (0, 0)])
def test_a_single_class_has_zero_weights_and_a_finite_bias(positive: int, negative: int) -> None:
    x, _ = examples(positive + negative, 3)
    w, b = fit_logistic(x, torch.arange(positive + negative) < positive)
    assert w.tolist() == [0, 0, 0]
    assert b.item() == pytest.approx(math.log((positive + 0.5) / (negative + 0.5)))


def test_without_features_the_bias_is_the_log_odds() -> None:
    w, b = fit_logistic(torch.empty(5, 0), torch.tensor([1, 1, 1, 0, 0]))
    assert w.shape == (0,) and b.item() == pytest.approx(math.log(3 / 2))


def test_nan_affects_only_its_own_problem() -> None:
    x, y = examples(60, 4)
    both = torch.stack([x, x])
    both[0, 3, 2] = torch.nan
    w, b = fit_logistic(both, y.expand(2, -1))
    assert w[0].isnan().all() and b[0].isnan()
    torch.testing.assert_close((w[1], b[1]), fit_logistic(x, y), rtol=1e-6, atol=1e-9)


def test_random_state_and_input_are_unchanged() -> None:
    x, y = examples(30, 3)
    before, state = x.clone(), torch.get_rng_state()
    w, _ = fit_logistic(x.requires_grad_(), y)
    assert not w.requires_grad
    torch.testing.assert_close(x.detach(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_column_that_only_rounding_makes_vary_is_a_constant() -> None:
    x = torch.tensor([[0.1, 1e6, 1.0], [0.1 + 1e-14, 1e6 + 1e-6, 2.0], [0.1, 1e6, 3.0]], dtype=torch.float64)
    means, scales = mean_and_scale(x)
    assert torch.equal(means, x.mean(0)) and scales.tolist() == [1.0, 1.0, pytest.approx((2 / 3) ** 0.5)]


@pytest.mark.parametrize("rows", [1, logistic.CACHED_ROWS, 2 * logistic.CACHED_ROWS + 5])
def test_mean_and_deviation_of_any_number_of_rows(rows: int) -> None:
    x = examples(rows, 3)[0] + 1e3
    means, scales = mean_and_scale(x)
    torch.testing.assert_close(means, x.mean(0))
    expected = torch.ones(3, dtype=torch.float64) if rows == 1 else x.std(0, correction=0)
    torch.testing.assert_close(scales, expected, rtol=1e-9, atol=0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_equal_on_cuda() -> None:
    x, y = examples(200, 32)
    there = fit_logistic(x.cuda(), y.cuda())
    assert there[0].is_cuda
    torch.testing.assert_close([part.cpu() for part in there], list(fit_logistic(x, y)), rtol=1e-6, atol=1e-8)
