"""Eigenvectors of sparse matrices against those of dense ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array, random_array

import dysat
from dysat.features import link_memory
from dysat.features.link_memory import (
    continued_eigenvectors,
    decayed_links,
    lanczos,
    leading_eigenvectors,
    link_spectra,
)


def symmetric(size: int) -> csr_array[np.float64]:
    half = random_array((size, size), density=0.1, rng=np.random.default_rng(3))
    return csr_array(half + half.T)


def bipartite(few: int, many: int) -> csr_array[np.float64]:
    block = random_array((few, many), density=0.1, rng=np.random.default_rng(3)).toarray()
    dense: NDArray[np.float64] = np.zeros((few + many,) * 2)
    dense[:few, few:], dense[few:, :few] = block, block.T
    return csr_array(dense)


@pytest.mark.parametrize("which", ["LM", "BE"])
def test_lanczos_finds_eigenvectors_of_the_dense_matrix(which: str) -> None:
    matrix = symmetric(60)
    values, vectors = lanczos(matrix, 6, which=which)  # type: ignore[arg-type]
    assert_allclose(matrix.toarray() @ vectors, vectors * values, atol=1e-9)
    assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-9)
    every = np.linalg.eigvalsh(matrix.toarray())
    expected = np.sort(every[np.argsort(-np.abs(every))[:6]]) if which == "LM" else np.r_[every[:3], every[-3:]]
    assert_allclose(np.sort(values), expected, atol=1e-9)


def test_only_the_seed_changes_the_result() -> None:
    matrix = symmetric(200)
    one, two = (lanczos(matrix, 4, tol=1e-2, seed=7)[1] for _ in range(2))
    assert_array_equal(one, two)
    assert not np.array_equal(one, lanczos(matrix, 4, tol=1e-2, seed=8)[1])


@pytest.mark.parametrize("matrix", [symmetric(100), symmetric(200), bipartite(80, 170)], ids=["dense", "sparse", "two"])
def test_leading_eigenvectors_are_the_truncated_svd(
    matrix: csr_array[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_memory, "TOLERANCE", 0.0)
    values, vectors = leading_eigenvectors(matrix)
    left, sigma, right = np.linalg.svd(matrix.toarray())
    assert vectors.shape == (matrix.shape[0], 64)
    assert_allclose(np.abs(values), sigma[:64], rtol=1e-6)
    assert_allclose(vectors * values @ vectors.T, left[:, :64] * sigma[:64] @ right[:64], atol=1e-5)


def weekly(links: int, steps: int) -> dysat.DynamicGraph:
    """A growing graph in which some nodes have many links."""
    rng = np.random.default_rng(5)
    ends = np.minimum(rng.geometric(0.01, (2, links)), 400)
    table = (ends[0], 1000 + ends[1], np.sort(rng.integers(0, steps, links)))
    return dysat.build_snapshots(dysat.read_events(table, time_unit="step"), every=1)


def test_continued_eigenvectors_agree_with_those_from_nothing() -> None:
    snapshots = weekly(6_000, 10).snapshots
    before, now = (decayed_links(snapshots[:steps], 1.0).matrix() for steps in (9, 10))
    assert before.shape[0] < now.shape[0]
    values, vectors = continued_eigenvectors(now, leading_eigenvectors(before)[1])
    exact, dense = np.linalg.eigh(now.toarray())
    order = np.argsort(-np.abs(exact))[:64]
    assert_allclose(np.sort(values)[-4:], np.sort(exact[order])[-4:], rtol=1e-3)
    assert_allclose(vectors.T @ vectors, np.eye(64), atol=1e-4)
    found = np.square(dense[:, order[:16]].T @ vectors).sum()  # how much of the leading 16 dimensions they span
    assert found > 0.98 * 16


def test_eigenvectors_do_not_depend_on_earlier_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_memory, "CONTINUED_NODES", 10)
    snapshots = weekly(4_000, 12).snapshots
    link_spectra.cache_clear()
    in_order = [link_spectra(snapshots[:steps]) for steps in range(1, 13)]
    for steps in (12, 3, 9, 1):
        link_spectra.cache_clear()
        for one, two in zip(link_spectra(snapshots[:steps]), in_order[steps - 1], strict=True):
            assert_array_equal(one[0], two[0])
            assert_array_equal(one[1], two[1])


def test_no_links_continue_to_no_eigenvectors() -> None:
    values, vectors = continued_eigenvectors(csr_array((200, 200), dtype=np.float64), np.ones((150, 3), np.float32))
    assert len(values) == 0 and vectors.shape == (200, 0)
