"""Values that differ only by rounding are equal."""

from __future__ import annotations

import numpy as np

from dysat.features.rounding import rounded, row_products, without_noise


def test_noise_of_float32_is_removed() -> None:
    rng = np.random.default_rng(0)
    values, size = rng.normal(size=1_000), np.full(1_000, 5.0)
    values[::2] = 0
    noise = 1e-7 * size * rng.uniform(-1, 1, 1_000)
    found = without_noise(values + noise, size)
    assert not found[::2].any() and np.abs(found - values).max() < 1e-5
    assert np.array_equal(without_noise(found, size), found)
    assert without_noise(np.zeros(2), np.array([0.0, 1.0])).tolist() == [0, 0]


def test_values_that_differ_by_rounding_are_equal_after_it() -> None:
    rng = np.random.default_rng(0)
    eighths, small = rng.integers(-80, 80, 1_000) / 8, rng.integers(0, 2**24, 1_000) * 2.0**-40  # as float32 has them
    for values in (eighths, small, rng.normal(size=1_000)):
        noisy = values * (1 + 1e-14 * rng.standard_normal(1_000))
        assert np.array_equal(rounded(values), rounded(noisy))


def test_row_products_do_not_depend_on_other_rows() -> None:
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((1_000, 37)), rng.standard_normal((37, 2))
    every = row_products(x, weights)
    np.testing.assert_allclose(every, x @ weights, rtol=1e-12, atol=1e-12)
    assert np.array_equal(row_products(np.asfortranarray(x), weights), every)
    assert np.array_equal(row_products(x[::7], weights), every[::7])
    for row in (0, 500, 999):
        assert np.array_equal(row_products(x[row : row + 1], weights)[0], every[row])
    assert np.array_equal(row_products(x, weights[:, 0]), row_products(x, weights[:, :1])[:, 0])
    assert row_products(x[:0], weights).shape == (0, 2)
