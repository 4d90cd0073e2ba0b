"""Sparse matrices: the same as those of SciPy, which a forecast does not import."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from dysat.features import matrix as module
from dysat.features.matrix import SparseMatrix, as_scipy, row_sums, times

FORECAST = """
import sys
import dysat
from dysat.experiments.scale import made_graph

graph = made_graph(nodes=1_500, events=6_000)
assert graph.num_nodes > 1_000  # smaller graphs have exact eigenvectors, which SciPy computes
dysat.DySAT(embeddings=False, device="cpu").fit(graph)
print(sorted(name for name in sys.modules if name.partition(".")[0] == "scipy"))
"""


def of_scipy(matrix: csr_array[np.float64]) -> SparseMatrix:
    return SparseMatrix(matrix.data, matrix.indices, matrix.indptr, matrix.shape)


@pytest.mark.parametrize("at_once", [1, 3, 1 << 16])
@pytest.mark.parametrize("density", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_sums_and_products_are_those_of_scipy(
    at_once: int, density: float, real: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", at_once)
    theirs = random_array((20, 8), density=density, rng=3, dtype=real).tocsr()
    ours, x = of_scipy(theirs), np.random.default_rng(4).standard_normal(8)
    for matrix in (ours, theirs):  # either kind
        assert row_sums(matrix).dtype == np.float64
        assert_allclose(row_sums(matrix), theirs.toarray().sum(axis=1, dtype=np.float64), rtol=1e-6)
        assert_allclose(times(matrix, x), theirs.toarray() @ x, rtol=1e-5, atol=1e-6)
    assert_array_equal(ours.toarray(), theirs.toarray())
    assert ours.nnz == theirs.nnz
    assert as_scipy(theirs) is theirs and (as_scipy(ours) != theirs).nnz == 0


def test_a_matrix_without_rows() -> None:
    nothing = SparseMatrix(np.empty(0), np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64), (0, 0))
    assert len(row_sums(nothing)) == len(times(nothing, np.empty(0))) == 0


def test_a_forecast_does_not_import_scipy() -> None:
    done = subprocess.run([sys.executable, "-c", FORECAST], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
