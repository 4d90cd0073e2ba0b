"""Past links as arrays, decayed sums against loops, and weights of windows by their time of day and week."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from weakref import ref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from small import make_graph

from dysat.data.csr import Snapshot
from dysat.data.windows import DAY
from dysat.features import link_memory
from dysat.features.link_memory import (
    decayed_links,
    decayed_links_by_step,
    links_among,
    overlaps,
    past_links,
    recurrence,
    windows_like_next,
)

HOUR = DAY // 24


def windows(number: int) -> tuple[Snapshot, ...]:
    """Window t links t mod 5 with 5 + t mod 7 by a weight of t + 1, and 2 with itself; every third window is empty."""
    snapshots = []
    for t in range(number):
        u, v = np.array([[t % 5, 2], [5 + t % 7, 2]])[:, : 2 if t % 3 else 0]
        weights = np.full(len(u), t + 1, dtype=float)
        snapshots.append(Snapshot.from_links(u, v, weights, num_nodes=12, start=t, stop=t + 1))
    return tuple(snapshots)


def at_hours(number: int, hours: Sequence[int] | int) -> tuple[Snapshot, ...]:
    """Windows with the given edges in hours since 1970, or all with the given width in hours."""
    edges = [hours * k for k in range(number + 1)] if isinstance(hours, int) else list(hours)
    link = np.array([0]), np.array([1]), np.ones(1)
    return tuple(
        Snapshot.from_links(*link, num_nodes=2, start=edges[k] * HOUR, stop=edges[k + 1] * HOUR) for k in range(number)
    )


@pytest.mark.parametrize("number", [1, 2, 40])
@pytest.mark.parametrize("limit", [10_000, 0], ids=["kept", "read again"])
def test_past_links_have_their_step_and_no_self_loops(number: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_memory, "SMALL_SNAPSHOT", limit)
    snapshots = windows(number)
    for _ in range(2):
        u, v, weights, steps = past_links(snapshots)
        expected = np.array([t for t in range(number) if t % 3], dtype=np.int64)
        assert_array_equal(steps, expected)
        assert_array_equal(u, expected % 5)
        assert_array_equal(v, 5 + expected % 7)
        assert_array_equal(weights, expected + 1)


@pytest.mark.parametrize("number", [2, 20])
def test_callers_cannot_change_kept_links(number: int) -> None:
    snapshots = windows(number)
    first = past_links(snapshots)
    before = [part.copy() for part in first]
    for part in first:
        part.fill(0)
    for now, was in zip(past_links(snapshots), before, strict=True):
        assert_array_equal(now, was)


def test_small_snapshots_are_read_once_and_large_ones_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots, read, entries = windows(50), [], Snapshot.entries

    def counted(snapshot: Snapshot) -> object:
        read.append(snapshot)
        return entries(snapshot)

    monkeypatch.setattr(Snapshot, "entries", counted)
    for last in range(40, 51):
        past_links(snapshots[:last])
    assert len(read) == 50
    monkeypatch.setattr(link_memory, "SMALL_SNAPSHOT", 1)
    large = windows(3)
    for _ in range(2):
        past_links(large)
    assert len(read) == 50 + 3 + 2  # windows 1 and 2 have three entries each


def test_kept_links_are_freed_with_their_snapshots() -> None:
    snapshots = windows(5)
    past_links(snapshots)
    alive = [ref(snapshot) for snapshot in snapshots]
    gc.collect()  # what other tests left behind
    before = len(link_memory._kept_entries)
    del snapshots
    gc.collect()
    assert not any(each() for each in alive)
    assert len(link_memory._kept_entries) == before - 5


def test_links_among_the_first_nodes() -> None:
    u, v = np.array([[0, 1, 3, 2], [1, 4, 3, 3]])
    snapshot = Snapshot.from_links(u, v, np.ones(4), num_nodes=5, start=0, stop=1)
    assert links_among(snapshot, 4).tolist() == [[0, 1], [2, 3]]
    assert links_among(snapshot, 2).tolist() == [[0, 1]]
    assert links_among(snapshot, 1).tolist() == []


@pytest.mark.parametrize("decay", [0.0, 1e-20, 0.3, 1.0])
def test_decayed_links_match_a_loop(decay: float) -> None:
    snapshots = windows(38)
    weights, counts = np.zeros((2, 12, 12))
    for t, found in enumerate(decayed_links_by_step(snapshots, decay)):
        weights, counts = weights * decay, counts * decay
        if t % 3:
            weights[t % 5, 5 + t % 7] += t + 1
            counts[t % 5, 5 + t % 7] += 1
        expected = np.flatnonzero(counts)
        assert_array_equal(found.keys, expected)
        assert_allclose(found.values, weights.ravel()[expected], rtol=1e-12)
        alone = decayed_links(snapshots[: t + 1], decay)
        assert_array_equal(alone.keys, found.keys)
        assert_array_equal(alone.values, found.values)  # to the last bit
    unweighted = decayed_links(snapshots, decay, weighted=False)
    assert_array_equal(unweighted.keys, expected)
    assert_allclose(unweighted.values, counts.ravel()[expected], rtol=1e-12)


def test_overlaps_by_hand() -> None:
    fractions = overlaps(at_hours(5, 6))  # windows start at 0, 6, 12, 18, 24 o'clock; the next one at 30
    assert fractions.shape == (2, 8, 5)
    assert_array_equal(fractions[0, 0], [0, 1, 0, 0, 0])  # yesterday's 6 o'clock
    assert not fractions[0, 1:].any() and not fractions[1].any()
    uneven = overlaps(at_hours(4, [0, 4, 10, 26, 32]))  # the next one is 32 to 38, a day earlier 8 to 14
    assert_allclose(uneven[0, 0], [0, 2 / 6, 4 / 16, 0])  # fractions of the wider of the two


def test_recurrence_decays_by_day_and_by_week() -> None:
    half_days = recurrence(at_hours(10, 12))  # the next one is the morning of day 5
    assert_allclose(half_days[0], [0.6**4, 0, 0.6**3, 0, 0.6**2, 0, 0.6, 0, 1, 0])
    daily = recurrence(at_hours(15, 24))  # whole days have no time of day, but a day of the week
    assert not daily[0].any()
    assert_allclose(daily[1], [0, 0.6, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    assert not recurrence(at_hours(15, 24 * 7)).any()


def test_numbered_steps_and_empty_windows_have_no_rhythm() -> None:
    graph = make_graph([2] * 40, [[(0, 1)]] * 40)
    assert not recurrence(graph.snapshots).any()
    assert windows_like_next(graph.snapshots) == []
    assert not recurrence(at_hours(10, [0] * 11)).any()


def test_windows_like_next_are_at_most_three_days_or_weeks_old() -> None:
    assert windows_like_next(at_hours(21, 6)) == [9, 13, 17]  # the next is number 21, at 6 o'clock
    assert windows_like_next(at_hours(35, 24)) == [14, 21, 28]
    assert windows_like_next(at_hours(4, [0, 6, 12, 26, 32])) == [1]  # 8 to 12 is more than half of it
    assert windows_like_next(at_hours(4, [0, 4, 10, 26, 32])) == []  # a much wider window is not like the next one
    assert windows_like_next(at_hours(60, 12)) == [18, 32, 46, 54, 56, 58]
