"""Windows: widths, calendar edges, moments."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from dysat.data.windows import (
    DAY,
    SECOND,
    Width,
    as_datetime,
    as_moment,
    check_edges,
    edges_count,
    edges_every,
    suggest_width,
    write_edges,
    write_moment,
    write_span,
)
from dysat.errors import SnapshotsError


def utc(*parts: int) -> int:
    return as_moment(datetime(*parts, tzinfo=UTC), "utc", "test")


@pytest.mark.parametrize(
    ("text", "span"),
    [("1us", 1), ("3ms", 3_000), ("2s", 2_000_000), ("5min", 300_000_000), ("12h", DAY // 2), ("10d", 10 * DAY)],
)
def test_fixed_widths(text: str, span: int) -> None:
    assert Width.parse(text, "utc").span == span


@pytest.mark.parametrize(("text", "months"), [("1mo", 1), ("2q", 6), ("1y", 12)])
def test_calendar_widths(text: str, months: int) -> None:
    assert Width.parse(text, "utc").months == months


@pytest.mark.parametrize(
    ("every", "message"),
    [
        ("1m", "'min' for minutes or 'mo' for months"),
        ("0d", "not a positive length"),
        ("ten days", "not a length of time"),
        ("-3d", "not a length of time"),
        ("3 fortnights", "not a unit of time"),
        (timedelta(0), "not a positive length"),
    ],
)
def test_bad_widths(every: str, message: str) -> None:
    with pytest.raises(SnapshotsError, match=message):
        Width.parse(every, "utc")


def test_steps_take_whole_numbers_only() -> None:
    assert Width.parse(2, "step").span == 2
    for bad in ("1d", 0, "1.5", timedelta(days=1)):
        with pytest.raises(SnapshotsError, match="numbered by step"):
            Width.parse(bad, "step")


def test_months_begin_on_the_first_and_never_drift() -> None:
    width = Width.parse("1mo", "utc")
    start = width.floor(utc(2023, 11, 17, 5))
    edges = edges_every(width, start, utc(2024, 3, 1), cut=False)
    assert edges == [utc(2023, 11, 1), utc(2023, 12, 1), utc(2024, 1, 1), utc(2024, 2, 1), utc(2024, 3, 1)]


def test_months_from_the_31st_end_on_the_last_day() -> None:
    width = Width.parse("1mo", "utc")
    days = [as_datetime(width.edge(utc(2024, 1, 31), k)).day for k in range(5)]
    assert days == [31, 29, 31, 30, 31]


@pytest.mark.parametrize(("text", "first"), [("1q", (2024, 4, 1)), ("1y", (2024, 1, 1)), ("2mo", (2024, 5, 1))])
def test_calendar_windows_begin_where_the_unit_does(text: str, first: tuple[int, int, int]) -> None:
    assert Width.parse(text, "utc").floor(utc(2024, 5, 20)) == utc(*first)


def test_the_last_window_is_cut_at_stop() -> None:
    edges = edges_every(Width.parse("10d", "utc"), 0, 25 * DAY, cut=True)
    assert edges == [0, 10 * DAY, 20 * DAY, 25 * DAY]
    assert edges_every(Width.parse("10d", "utc"), 0, 25 * DAY, cut=False)[-1] == 30 * DAY


def test_too_many_edges_are_refused() -> None:
    with pytest.raises(SnapshotsError, match="boundaries would make 10,001 snapshots, more than 10,000"):
        check_edges(range(10_002), "step")


def test_count_makes_equal_windows() -> None:
    assert edges_count(3, 0, 10) == [0, 3, 6, 10]
    with pytest.raises(SnapshotsError, match="count=3: the events do not last long enough for 3 windows"):
        edges_count(3, 0, 2)


@pytest.mark.parametrize(
    "value",
    ["2024-04-20", date(2024, 4, 20), datetime(2024, 4, 20), np.datetime64("2024-04-20"), "2024-04-20T02:00+02:00"],
)
def test_moments_of_any_type_are_utc(value: str) -> None:
    assert as_moment(value, "utc", "start") == utc(2024, 4, 20)


def test_unreadable_moments_name_the_argument() -> None:
    with pytest.raises(SnapshotsError, match=r"start='soon' is not a date"):
        as_moment("soon", "utc", "start")
    for missing in (np.datetime64("NaT"), pd.NaT, 1.5, True):
        with pytest.raises(SnapshotsError, match=r"stop=.* is not a date"):
            as_moment(missing, "utc", "stop")
    with pytest.raises(SnapshotsError, match="whole number"):
        as_moment("2024-01-01", "step", "stop")


def test_moments_are_written_short_and_exact() -> None:
    assert write_moment(utc(2024, 4, 20), "utc") == "2024-04-20"
    assert write_moment(utc(2024, 4, 20, 15, 30), "utc") == "2024-04-20 15:30"
    assert write_moment(utc(2024, 4, 20, 15, 30, 1), "utc") == "2024-04-20 15:30:01"
    assert write_moment(utc(2024, 4, 20, 15, 30, 1) + 250_000, "utc") == "2024-04-20 15:30:01.250"
    assert write_moment(utc(2024, 4, 20) + 7, "utc") == "2024-04-20 00:00:00.000007"
    assert write_moment(utc(2024, 4, 20, 15, 30, 1) + 7, "utc", 60 * SECOND) == "2024-04-20 15:30"
    assert write_moment(-1, "utc", DAY) == "1969-12-31"  # rounded down before 1970, too
    assert write_moment(7, "step") == "7"


@pytest.mark.parametrize(
    ("start", "width", "expected"),
    [
        (utc(2024, 1, 1), 7 * DAY, ["2024-01-01", "2024-01-08"]),
        (utc(2024, 1, 1, 12), 200 * DAY, ["2024-01-01 12:00", "2024-07-19 12:00"]),  # round edges are exact
        (utc(2024, 1, 1, 12, 0, 1), 200 * DAY, ["2024-01-01", "2024-07-19"]),
        (utc(2024, 1, 1, 12, 0, 1), 99 * DAY, ["2024-01-01 12:00", "2024-04-09 12:00"]),
        (utc(2024, 1, 1, 12, 0, 1), 100 * 60 * SECOND, ["2024-01-01 12:00", "2024-01-01 13:40"]),
        (utc(2024, 1, 1, 12, 0, 1), 99 * 60 * SECOND, ["2024-01-01 12:00:01", "2024-01-01 13:39:01"]),
        (utc(2024, 1, 1), 10 * SECOND, ["2024-01-01", "2024-01-01 00:00:10"]),
        (utc(2024, 1, 1), 10 * SECOND + 7, ["2024-01-01", "2024-01-01 00:00:10"]),
        (utc(2024, 1, 1), SECOND + 1_007, ["2024-01-01", "2024-01-01 00:00:01.001"]),
        (utc(2024, 1, 1), 13, ["2024-01-01", "2024-01-01 00:00:00.000013"]),
    ],
)
def test_edges_are_written_to_a_hundredth_of_a_window(start: int, width: int, expected: list[str]) -> None:
    edges = [start + k * width for k in range(9)]
    texts = write_edges(edges, "utc")
    assert texts[:2] == expected and len(set(texts)) == 9
    assert write_edges([*edges, edges[-1] + 1], "utc")[-1] != texts[-1]  # the narrowest window decides


def test_edges_of_steps_are_numbers() -> None:
    assert write_edges([3, 5, 1_000_000], "step") == ["3", "5", "1000000"]


def test_spans_keep_their_digits() -> None:
    assert [write_span(n * DAY, "utc") for n in (1, 10.04, 1_234_567)] == ["1 day", "10 days", "1,234,567 days"]
    assert [write_span(n, "step") for n in (1, 2.5, 12_345_678)] == ["1 step", "2.5 steps", "12,345,678 steps"]
    assert [write_span(n * SECOND, "utc") for n in (5400, 90, 1.5, 0.5)] == [
        *("1.5 hours", "1.5 minutes", "1.5 seconds", "500,000 µs"),
    ]


def test_suggested_widths_keep_the_number_of_windows_small() -> None:
    for span in (1, 10**6, 3 * DAY, 200 * DAY, 4000 * DAY, 10**6 * DAY):
        width = Width.parse(suggest_width(span, "utc"), "utc")
        assert span / width.typical <= 60 or suggest_width(span, "utc") == "100y"
