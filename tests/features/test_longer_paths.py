"""Sums over three-step paths against products of dense matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dysat.features import longer_paths
from dysat.features.link_memory import rows_of_both_ends
from dysat.features.longer_paths import LongerPaths
from dysat.features.matrix import SparseMatrix
from dysat.system.compiled import native

NODES = 60


def random_links(number: int, seed: int = 0) -> SparseMatrix:
    """Random links of `NODES` nodes; the last three nodes have none."""
    ends = np.sort(np.random.default_rng(seed).integers(0, NODES - 3, (number, 2)), axis=1)
    keys = np.unique(ends[ends[:, 0] < ends[:, 1]] @ [NODES, 1])
    offsets, neighbours, _ = rows_of_both_ends(keys, NODES, np.int64)
    return SparseMatrix(np.ones(len(neighbours)), neighbours, offsets, (NODES, NODES))


def dense(links: SparseMatrix, values: np.ndarray) -> np.ndarray:
    return SparseMatrix(values, links.indices, links.indptr, links.shape).toarray()


def paths_of(links: SparseMatrix, weightings: Sequence[tuple[np.ndarray, np.ndarray]]) -> LongerPaths:
    return LongerPaths.of(links.indptr, links.indices, weightings)


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("links", [15, 400])
@pytest.mark.parametrize("compiled", [True, False])
def test_sums_are_products_of_matrices(
    number: int, links: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(longer_paths, "native", lambda: None)
        monkeypatch.setattr(longer_paths, "DENSE_CHUNK", 7 * NODES)
    elif native() is None:
        pytest.skip("no C compiler")
    matrix, rng = random_links(links), np.random.default_rng(1)
    weightings = [(rng.random(matrix.nnz), rng.random(matrix.nnz)) for _ in range(number)]
    pairs = rng.integers(0, NODES, (500, 2))  # in no order, and some of them twice
    sums = paths_of(matrix, weightings).sums(pairs)
    assert sums.shape == (number, 500)
    for found, (b, a) in zip(sums, weightings, strict=True):
        expected = dense(matrix, b) @ dense(matrix, b) @ dense(matrix, a).T
        assert_allclose(found, expected[pairs[:, 0], pairs[:, 1]], rtol=1e-12)
        assert (found > 0).any() and (found == 0).any()


def test_weightings_of_zeros_take_no_time_and_others_do_not_see_them() -> None:
    matrix, rng = random_links(200), np.random.default_rng(1)
    one, two = ((values, values) for values in rng.random((2, matrix.nnz)))
    none = np.zeros(matrix.nnz), np.zeros(matrix.nnz)
    pairs = rng.integers(0, NODES, (300, 2))
    paths = paths_of(matrix, [none, one, none, two])
    assert paths.a.shape == paths.b.shape == (matrix.nnz, 2)
    sums = paths.sums(pairs)
    assert not sums[[0, 2]].any()
    assert np.array_equal(sums[[1, 3]], paths_of(matrix, [one, two]).sums(pairs))  # to the last bit
    assert np.array_equal(sums[1:2], paths_of(matrix, [one]).sums(pairs))


def test_no_pairs_and_no_links() -> None:
    matrix, none = random_links(100), np.empty((0, 2), dtype=np.int64)
    assert paths_of(matrix, [(matrix.data, matrix.data)] * 3).sums(none).shape == (3, 0)
    empty = SparseMatrix(np.empty(0), np.empty(0, np.int64), np.zeros(NODES + 1, np.int64), (NODES, NODES))
    assert not paths_of(empty, [(empty.data, empty.data)]).sums(np.array([[0, 1]])).any()
