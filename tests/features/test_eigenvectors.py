"""Lanczos' method: the eigenvectors that a dense matrix has, the same in every call."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from dysat.features.eigenvectors import lanczos


def symmetric(size: int) -> csr_array[np.float64]:
    half = random_array((size, size), density=0.1, rng=np.random.default_rng(3))
    return csr_array(half + half.T)


@pytest.mark.parametrize("which", ["LM", "BE"])
def test_they_are_those_of_the_dense_matrix(which: str) -> None:
    matrix = symmetric(60)
    values, vectors = lanczos(matrix, 6, which=which)  # type: ignore[arg-type]
    assert_allclose(matrix.toarray() @ vectors, vectors * values, atol=1e-9)
    assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-9)
    every = np.linalg.eigvalsh(matrix.toarray())
    some = np.sort(every[np.argsort(-np.abs(every))[:6]]) if which == "LM" else np.r_[every[:3], every[-3:]]
    assert_allclose(np.sort(values), some, atol=1e-9)


def test_a_seed_is_all_that_changes_them() -> None:
    matrix = symmetric(200)
    one, two = (lanczos(matrix, 4, tol=1e-2, seed=7)[1] for _ in range(2))
    assert_array_equal(one, two)
    assert not np.array_equal(one, lanczos(matrix, 4, tol=1e-2, seed=8)[1])
