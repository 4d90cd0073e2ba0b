"""Past links: every one with its step, whether looked up for the first time or kept."""

from __future__ import annotations

import gc
from weakref import ref

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dysat.data.csr import Snapshot
from dysat.features.link_memory import TOGETHER, _kept, links_among, past_links


def windows(number: int) -> tuple[Snapshot, ...]:
    """Window t links t mod 5 with 5 + t mod 7, and 2 with itself; every third has nothing."""
    found = []
    for t in range(number):
        u, v = np.array([[t % 5, 2], [5 + t % 7, 2]])[:, : 2 if t % 3 else 0]
        found.append(Snapshot.from_links(u, v, np.full(len(u), t, dtype=float), num_nodes=12, start=t, stop=t + 1))
    return tuple(found)


@pytest.mark.parametrize("number", [1, 2, TOGETHER - 1, TOGETHER, TOGETHER + 1, 3 * TOGETHER + 5])
def test_every_link_has_its_step_and_self_loops_are_left_out(number: int) -> None:
    snapshots = windows(number)
    for _ in range(2):  # the second time some are kept
        u, v, weights, steps = past_links(snapshots)
        expected = np.array([t for t in range(number) if t % 3], dtype=np.int64)
        assert_array_equal(steps, expected)
        assert_array_equal(u, expected % 5)
        assert_array_equal(v, 5 + expected % 7)
        assert_array_equal(weights, expected)


def test_what_was_kept_is_not_changed_by_those_who_got_it() -> None:
    snapshots = windows(TOGETHER)
    first = past_links(snapshots)
    before = [part.copy() for part in first]
    for part in first:
        part.fill(0)
    for now, was in zip(past_links(snapshots), before, strict=True):
        assert_array_equal(now, was)


def test_many_windows_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots, looked, links = windows(4 * TOGETHER), [], Snapshot.links

    def counted(snapshot: Snapshot) -> object:
        looked.append(snapshot)
        return links(snapshot)

    monkeypatch.setattr(Snapshot, "links", counted)
    for last in range(3 * TOGETHER, 4 * TOGETHER):
        past_links(snapshots[:last])
    assert len(looked) == 3 * TOGETHER + sum(range(TOGETHER))  # whole parts once, the rest each time


def test_links_among_the_first_nodes() -> None:
    u, v = np.array([[0, 1, 3, 2], [1, 4, 3, 3]])
    snapshot = Snapshot.from_links(u, v, np.ones(4), num_nodes=5, start=0, stop=1)
    assert links_among(snapshot, 4).tolist() == [[0, 1], [2, 3]]
    assert links_among(snapshot, 2).tolist() == [[0, 1]]
    assert links_among(snapshot, 1).tolist() == []


def test_what_is_kept_goes_with_the_snapshots() -> None:
    snapshots = windows(2 * TOGETHER)
    past_links(snapshots)
    alive = [ref(snapshot) for snapshot in snapshots]
    before = len(_kept)
    del snapshots
    gc.collect()
    assert not any(each() for each in alive)
    assert len(_kept) == before - 2


def test_a_run_that_begins_as_another_is_not_taken_for_it() -> None:
    snapshots = windows(2 * TOGETHER)
    one, two = snapshots[:TOGETHER], (*snapshots[: TOGETHER - 1], snapshots[-2])
    for run in (one, two, one):
        assert_array_equal(past_links(run)[2][-1], run[-1].links()[2].numpy()[0])
