"""Sparse rows against the dense matrix they represent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from dysat.data.csr import Snapshot
from dysat.nn.rows import Rows

U, V, W = np.array([0, 0, 2, 4, 5, 5]), np.array([1, 4, 4, 5, 5, 1]), np.array([1.0, 2.5, 3.0, 0.5, 4.0, 7.0])
NODES = torch.tensor([5, 3, 0, 5, 6])  # node 5 twice; 3 and 6 have no links


@pytest.fixture
def dense() -> Tensor:
    x = torch.zeros(7, 7, dtype=torch.float64)
    for u, v, w in zip(U, V, W, strict=True):
        x[u, v] = x[v, u] = w
    return x


@pytest.fixture
def rows() -> Rows:
    snapshot = Snapshot.from_links(U, V, W, num_nodes=7, start=0, stop=1)
    rows = Rows.of(snapshot)
    return Rows(rows.offsets, rows.columns, rows.values.double())


def test_every_known_node_has_a_row(rows: Rows, dense: Tensor) -> None:
    x = torch.zeros_like(dense)
    x[rows.owners, rows.columns] = rows.values
    assert len(rows) == 7
    assert torch.equal(x, dense)


def test_take_keeps_the_given_order(rows: Rows, dense: Tensor) -> None:
    taken = rows.take(NODES)
    x = torch.zeros(len(NODES), 7, dtype=torch.float64)
    x[taken.owners, taken.columns] = taken.values
    assert torch.equal(x, dense[NODES])


def test_product_and_its_gradient(rows: Rows, dense: Tensor) -> None:
    table = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    taken = rows.take(NODES)
    assert_close(taken.times(table), dense[NODES] @ table)
    assert torch.autograd.gradcheck(taken.times, table)


@pytest.mark.parametrize("link_weight", [1.0, 5.0, 0.1])
def test_squared_error_and_its_gradient(rows: Rows, dense: Tensor, link_weight: float) -> None:
    reconstructed = torch.randn(
        5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True
    )
    taken, x = rows.take(NODES), dense[NODES]
    expected = [
        sum(((link_weight if x[i, j] else 1.0) * (reconstructed[i, j] - x[i, j])).item() ** 2 for j in range(7))
        for i in range(5)
    ]
    assert_close(taken.squared_error(reconstructed, link_weight), torch.tensor(expected, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda m: taken.squared_error(m, link_weight), reconstructed)


def test_no_rows(rows: Rows) -> None:
    empty = rows.take(torch.empty(0, dtype=torch.int64))
    assert empty.times(torch.ones(7, 2, dtype=torch.float64)).shape == (0, 2)
    assert empty.squared_error(torch.empty(0, 7, dtype=torch.float64), 2.0).shape == (0,)
