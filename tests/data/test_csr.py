"""Sorted keys of links."""

from __future__ import annotations

import numpy as np
import pytest

from dysat.data.csr import distinct


@pytest.mark.parametrize("keys", [[], [7], [3, 3, 3], [5, -1, 5, 0, 2**62, -1]], ids=str)
def test_distinct_keys_are_sorted(keys: list[int]) -> None:
    given = np.array(keys, dtype=np.int64)
    found = distinct(given)
    assert found.tolist() == sorted(set(keys)) and found.dtype == np.int64
    assert given.tolist() == keys  # not sorted in place
