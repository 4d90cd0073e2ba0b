"""Values that differ only by rounding are equal."""

from __future__ import annotations

import numpy as np

from dysat.features.rounding import rounded, without_noise


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
