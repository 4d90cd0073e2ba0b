"""Eigenvectors of sparse matrices against those of dense ones."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.sparse import csr_array, random_array

from dysat.features import eigenvectors
from dysat.features.eigenvectors import by_rule, lanczos, leading_eigenvectors
from dysat.system.parallel.matrices import matrices_on


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


def communities(size: int) -> csr_array[np.float64]:
    """Twelve communities of different density: twelve eigenvalues stand apart from all others."""
    rng = np.random.default_rng(5)
    side = np.arange(size) % 12
    chance = np.where(side[:, None] == side, 0.2 + side / 15, 0.02)
    half = np.triu(rng.random((size, size)) < chance, 1).astype(np.float64)
    return csr_array(half + half.T)


@pytest.mark.parametrize("matrix", [communities(480), bipartite(200, 280)], ids=["communities", "bipartite"])
def test_very_large_matrices_have_fewer_eigenvectors(
    matrix: csr_array[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eigenvectors, "EXACT_NODES", 100)
    many = leading_eigenvectors(matrix)[0]
    monkeypatch.setattr(eigenvectors, "MOST_ENTRIES", 480 * eigenvectors.BASIS * 63)
    values, vectors = leading_eigenvectors(matrix)
    assert len(many) == 64 and vectors.shape == (480, 16)
    assert_allclose(values[:8], many[:8], rtol=0.05)


@pytest.mark.parametrize("which", ["LM", "BE"])
@pytest.mark.usefixtures("each_path")
def test_blocks_of_a_large_matrix_find_eigenvectors_that_stand_apart(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eigenvectors, "EXACT_NODES", 100)
    matrix = communities(480)
    values, vectors = lanczos(matrix, 32, which=which)  # type: ignore[arg-type]
    every = np.linalg.eigvalsh(matrix.toarray())
    expected = np.sort(every[np.argsort(-np.abs(every))[:32]]) if which == "LM" else np.r_[every[:16], every[-16:]]
    assert vectors.dtype == np.float32 and vectors.shape == (480, 32)
    assert_allclose(values[-12:], expected[-12:], rtol=1e-4)
    assert_allclose(np.sort(np.abs(values)), np.sort(np.abs(expected)), rtol=0.05)
    assert_allclose(matrix @ vectors[:, -12:], vectors[:, -12:] * values[-12:], atol=1e-3 * values[-1])
    assert_allclose(vectors.T @ vectors, np.eye(32), atol=1e-4)


def hubs(number: int, size: int) -> csr_array[np.float64]:
    """Everyone is linked with some of a few hubs, and two others with each other: a matrix of low rank."""
    rng = np.random.default_rng(2)
    half = np.zeros((size, size))
    half[rng.integers(0, number, 4 * size), rng.integers(number, size, 4 * size)] = 1.0
    half[size - 2, size - 1] = 1.0
    return csr_array(half + half.T)


@pytest.mark.parametrize("number", [1, 7, 30])
@pytest.mark.usefixtures("each_path")
def test_blocks_of_a_matrix_of_low_rank(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The basis soon holds all that the matrix can give, and what products add to it is rounding error."""
    monkeypatch.setattr(eigenvectors, "BLOCK_NODES", 100)
    matrix = hubs(number, 480)
    values, vectors = leading_eigenvectors(matrix)
    every = np.linalg.eigvalsh(matrix.toarray())
    largest = np.abs(every).max()
    assert_allclose(np.abs(values), np.sort(np.abs(every))[::-1][: len(values)], atol=1e-4 * largest)
    assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-4)
    assert_allclose(matrix @ vectors, vectors * values, atol=1e-3 * largest)


def test_pairs_of_a_large_graph_are_compared_in_a_smaller_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many vectors of the basis as nodes, eigenvectors are exact; with half of them, they are not."""
    matrix = communities(192)
    for name, value in (("BLOCK_NODES", 100), ("BASIS", 3), ("LARGE_BASIS", 2)):
        monkeypatch.setattr(eigenvectors, name, value)
    every = np.linalg.eigvalsh(matrix.toarray())
    expected = np.sort(np.abs(every))[::-1][:64].sum()
    whole = np.abs(leading_eigenvectors(matrix)[0]).sum()
    monkeypatch.setattr(eigenvectors, "LARGE_NODES", 100)
    rough = np.abs(leading_eigenvectors(matrix)[0]).sum()
    assert_allclose(whole, expected, rtol=1e-4)
    assert 0.9 * expected < rough < 0.999 * expected


def test_eigenvectors_of_a_similar_matrix_need_a_smaller_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eigenvectors, "EXACT_NODES", 100)
    matrix, (before, size) = communities(480), (communities(480)[:420, :420], 8)
    similar = lanczos(before, size)[1] * np.arange(1, size + 1)  # only their span counts
    every = np.linalg.eigvalsh(matrix.toarray())
    expected = np.sort(every[np.argsort(-np.abs(every))[:size]])

    def error(similar: NDArray[np.floating[Any]] | None) -> float:
        values, vectors = lanczos(matrix, size, similar=similar)
        assert_allclose(vectors.T @ vectors, np.eye(size), atol=1e-4)
        return float(np.abs(np.sort(values) / expected - 1).max())

    assert error(similar) < error(None) / 10


def test_of_a_similar_matrix_only_eigenvectors_of_some_eigenvalues(monkeypatch: pytest.MonkeyPatch) -> None:
    """A matrix of lower rank has fewer: the others are zeros."""
    monkeypatch.setattr(eigenvectors, "EXACT_NODES", 100)
    matrix = hubs(7, 480)
    similar = np.zeros((480, 32), dtype=np.float32)
    similar[:, :2] = lanczos(hubs(1, 480), 2)[1]
    values, vectors = lanczos(matrix, 32, similar=similar)
    every = np.sort(np.abs(np.linalg.eigvalsh(matrix.toarray())))[::-1]
    assert_allclose(np.sort(np.abs(values))[::-1][:14], every[:14], rtol=1e-3)
    assert_allclose(vectors.T @ vectors, np.eye(32), atol=1e-4)


def test_blocks_of_a_large_bipartite_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = bipartite(180, 270)
    exact = leading_eigenvectors(matrix)
    monkeypatch.setattr(eigenvectors, "EXACT_NODES", 100)
    values, vectors = leading_eigenvectors(matrix)
    assert_allclose(np.abs(values), np.abs(exact[0]), rtol=0.05)
    assert_allclose(np.abs(vectors[:, :2].T @ exact[1][:, :2]), np.eye(2), atol=1e-2)


@pytest.mark.parametrize("matrix", [communities(480), bipartite(180, 270)], ids=["one", "two"])
def test_parts_of_a_product_change_nothing(matrix: csr_array[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eigenvectors, "EXACT_NODES", 100)
    monkeypatch.setattr(eigenvectors, "native", lambda: None)
    values, vectors = leading_eigenvectors(matrix)
    monkeypatch.setattr(eigenvectors, "CHUNK", 50)  # entries of less than two rows
    in_parts = leading_eigenvectors(matrix)
    assert_array_equal(values, in_parts[0])
    assert_array_equal(vectors, in_parts[1])


@pytest.mark.parametrize("matrix", [communities(480), bipartite(180, 270)], ids=["one", "two"])
def test_a_gpu_finds_the_same_eigenvectors(matrix: csr_array[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    monkeypatch.setattr(eigenvectors, "EXACT_NODES", 100)
    values, vectors = leading_eigenvectors(matrix)
    with matrices_on(torch.device("cuda")):
        found, again = leading_eigenvectors(matrix), leading_eigenvectors(matrix)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1_000, 10**9))
        assert_array_equal(leading_eigenvectors(matrix)[1], vectors)  # too little memory: on the CPU
    assert_array_equal(found[1], again[1])
    assert_allclose(found[0], values, rtol=1e-3)
    assert_allclose(np.abs((found[1] * vectors).sum(axis=0))[:2], 1.0, rtol=1e-3)


def test_the_first_eigenvectors_of_a_process_on_a_gpu_can_be_found_by_several_threads() -> None:
    """Torch loads its decompositions on first use, and fails if two threads do so at the same time."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    script = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np, torch
from scipy.sparse import random_array
from dysat.features.eigenvectors import leading_eigenvectors
from dysat.system.parallel.matrices import matrices_on

matrix = random_array((3_000, 3_000), density=0.01, rng=0).tocsr()
matrix = matrix + matrix.T

def found(_):
    with matrices_on(torch.device("cuda")):
        return leading_eigenvectors(matrix)[0]

with ThreadPoolExecutor(4) as pool:
    values = list(pool.map(found, range(4)))
assert all(np.array_equal(values[0], other) for other in values)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_the_seed_changes_the_result() -> None:
    matrix = symmetric(200)
    one, two = (lanczos(matrix, 4, tol=1e-2, seed=7)[1] for _ in range(2))
    assert_array_equal(one, two)
    assert not np.array_equal(one, lanczos(matrix, 4, tol=1e-2, seed=8)[1])


@pytest.mark.parametrize("matrix", [symmetric(100), symmetric(200), bipartite(80, 170)], ids=["dense", "sparse", "two"])
def test_leading_eigenvectors_are_the_truncated_svd(
    matrix: csr_array[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eigenvectors, "TOLERANCE", 0.0)
    values, vectors = leading_eigenvectors(matrix)
    left, sigma, right = np.linalg.svd(matrix.toarray())
    assert vectors.shape == (matrix.shape[0], 64)
    assert_allclose(np.abs(values), sigma[:64], rtol=1e-6)
    assert_allclose(vectors * values @ vectors.T, left[:, :64] * sigma[:64] @ right[:64], atol=1e-5)


def test_a_rule_chooses_signs_and_the_axes_of_equal_eigenvalues() -> None:
    values = np.array([3.0, -1.0, 3.0, 2.0, -1.0, 0.5])
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((9, 6)))[0]
    found = by_rule(values, vectors)
    np.testing.assert_allclose((found * values) @ found.T, (vectors * values) @ vectors.T, atol=1e-12)
    other = vectors * [1, -1, 1, -1, 1, 1]
    for pair in ([0, 2], [1, 4]):
        other[:, pair] = other[:, pair] @ np.array([[0.6, 0.8], [0.8, -0.6]])
    assert np.abs(other - vectors).max() > 0.1
    np.testing.assert_allclose(by_rule(values, other), found, atol=1e-12)
    assert by_rule(np.empty(0), np.empty((4, 0))).shape == (4, 0)
