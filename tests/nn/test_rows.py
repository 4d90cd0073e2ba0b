"""Sparse rows against the dense matrix they stand for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from dysat.data.csr import Snapshot
from dysat.nn.rows import Rows

U, V, W = np.array([0, 0, 2, 4, 5, 5]), np.array([1, 4, 4, 5, 5, 1]), np.array([1.0, 2.5, 3.0, 0.5, 4.0, 7.0])
NODES = torch.tensor([5, 3, 0, 5, 6])  # one twice, two without links


@pytest.fixture
def dense() -> Tensor:
    x = torch.zeros(7, 7, dtype=torch.float64)
    for u, v, w in zip(U, V, W, strict=True):
        x[u, v] = x[v, u] = w
    return x


@pytest.fixture
def rows() -> Rows:
    snapshot = Snapshot.from_links(U, V, W, num_nodes=7, start=0, stop=1)
    found = Rows.of(snapshot)
    return Rows(found.offsets, found.columns, found.values.double())


def test_a_row_for_every_known_node(rows: Rows, dense: Tensor) -> None:
    x = torch.zeros_like(dense)
    x[rows.owners, rows.columns] = rows.values
    assert len(rows) == 7
    assert torch.equal(x, dense)


def test_rows_of_some_nodes_in_their_order(rows: Rows, dense: Tensor) -> None:
    some = rows.take(NODES)
    x = torch.zeros(len(NODES), 7, dtype=torch.float64)
    x[some.owners, some.columns] = some.values
    assert torch.equal(x, dense[NODES])


def test_product_and_its_gradient(rows: Rows, dense: Tensor) -> None:
    table = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    some = rows.take(NODES)
    assert_close(some.times(table), dense[NODES] @ table)
    assert torch.autograd.gradcheck(some.times, table)


@pytest.mark.parametrize("link_weight", [1.0, 5.0, 0.1])
def test_squared_error_and_its_gradient(rows: Rows, dense: Tensor, link_weight: float) -> None:
    made = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    some, x = rows.take(NODES), dense[NODES]
    expected = [
        sum(((link_weight if x[i, j] else 1.0) * (made[i, j] - x[i, j])).item() ** 2 for j in range(7))
        for i in range(5)
    ]
    assert_close(some.squared_error(made, link_weight), torch.tensor(expected, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda m: some.squared_error(m, link_weight), made)


def test_no_rows(rows: Rows) -> None:
    none = rows.take(torch.empty(0, dtype=torch.int64))
    assert none.times(torch.ones(7, 2, dtype=torch.float64)).shape == (0, 2)
    assert none.squared_error(torch.empty(0, 7, dtype=torch.float64), 2.0).shape == (0,)
