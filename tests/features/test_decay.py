"""Decayed links: sums over the past, whatever of it is kept or too old to count."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dysat.data.csr import Snapshot
from dysat.features.link_memory import decayed_links


def windows(number: int) -> tuple[Snapshot, ...]:
    """In every window 0 is linked with 1 + t mod 3, by t + 1."""
    ones = np.ones(1, dtype=np.int64)
    return tuple(
        Snapshot.from_links(0 * ones, ones * (1 + t % 3), ones * (t + 1.0), num_nodes=4, start=t, stop=t + 1)
        for t in range(number)
    )


@pytest.mark.parametrize("decay", [0.0, 1e-20, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("number", [1, 2, 31, 32, 33, 100])
def test_they_are_the_sum_that_is_written_there(decay: float, number: int) -> None:
    expected, counts = np.zeros(4), np.zeros(4)
    for t in range(number):
        expected[1 + t % 3] += decay ** (number - 1 - t) * (t + 1)
        counts[1 + t % 3] += decay ** (number - 1 - t)
    some = np.flatnonzero(counts)
    for weighted, sums in ((True, expected), (False, counts)):
        links = decayed_links(windows(number), decay, weighted=weighted)
        assert_array_equal(links.keys, some)
        assert_allclose(links.values, sums[some], rtol=1e-12)


def test_what_is_too_old_to_count_is_not_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots, looked, links = windows(400), [], Snapshot.links

    def counted(snapshot: Snapshot) -> object:
        looked.append(snapshot)
        return links(snapshot)

    monkeypatch.setattr(Snapshot, "links", counted)
    for last in range(360, 400):  # 10⁻⁴ to the power of 81 is 0
        found = decayed_links(snapshots[:last], 1e-4)
        assert len(found.keys) == 3
    assert len(looked) < 400 + 40 * 32
