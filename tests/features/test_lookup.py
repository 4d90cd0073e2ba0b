"""Sums and searches over links, with and without compiled functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dysat.features import lookup
from dysat.features.link_memory import rows_of_both_ends
from dysat.features.lookup import add_at, taken


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int32])
@pytest.mark.usefixtures("each_path")
def test_values_are_added_in_their_order(kind: type[Any]) -> None:
    """To the last bit: another order would round differently."""
    rng = np.random.default_rng(0)
    at = rng.integers(0, 50, 5_000)
    values = (1e6 * rng.random(5_000)).astype(kind) if issubclass(kind, np.integer) else rng.lognormal(0, 9, 5_000)
    total = np.arange(50).astype(kind)
    expected = total.copy()
    for place, value in zip(at, values.astype(kind), strict=True):
        expected[place] += value
    add_at(total, at, values)
    assert_array_equal(total, expected)
    add_at(total, at[:0], values[:0])
    assert_array_equal(total, expected)


@pytest.mark.usefixtures("each_path")
def test_a_row_of_a_table_is_added_to() -> None:
    table = np.zeros((3, 2, 4))
    add_at(table[1, 0], np.array([3, 3, 0]), np.array([1.0, 2.0, 5.0]))
    assert table[1, 0].tolist() == [5.0, 0.0, 0.0, 3.0] and table.sum() == 8


@pytest.mark.parametrize("number", [0, 1, 7, 20])
@pytest.mark.parametrize("integer", [np.int64, np.int32])
def test_values_are_taken_in_parts(number: int, integer: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "TAKEN_AT_ONCE", 7)
    rng = np.random.default_rng(number)
    values, which = rng.random(15).astype(np.float32), rng.integers(0, 15, number).astype(integer)
    found = taken(values, which)
    assert found.dtype == values.dtype
    assert_array_equal(found, values[which])


@pytest.mark.parametrize("integer", [np.int64, np.int32])
@pytest.mark.parametrize(("nodes", "links"), [(0, 0), (1, 0), (5, 0), (2, 1), (40, 300), (300, 90)])
@pytest.mark.usefixtures("each_path")
def test_rows_of_both_ends_by_loops(nodes: int, links: int, integer: type[Any]) -> None:
    """Some nodes have no links, also the first and the last."""
    drawn = np.sort(np.random.default_rng(1).integers(min(1, nodes), max(2, nodes - 1), (links, 2)), axis=1)
    drawn = np.array([[0, 1]]) if nodes == 2 else drawn[drawn[:, 0] < drawn[:, 1]]
    keys = np.unique(drawn[:, 0] * nodes + drawn[:, 1])
    offsets, neighbours, entries = rows_of_both_ends(keys, nodes, integer)
    assert neighbours.dtype == entries.dtype == integer and len(offsets) == nodes + 1
    for node in range(nodes):
        ends = [(int(key) // nodes, int(key) % nodes) for key in keys]
        expected = sorted((u + v - node, link) for link, (u, v) in enumerate(ends) if node in (u, v))
        row = slice(offsets[node], offsets[node + 1])
        assert list(zip(neighbours[row], entries[row], strict=True)) == expected
