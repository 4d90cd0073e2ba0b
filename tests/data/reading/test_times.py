"""Times in all forms, compared with Python's own parsers."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import polars as pl
import pytest

from dysat.data.reading.times import check_plausible, parse_times
from dysat.data.windows import from_datetime
from dysat.errors import EventsError

AT = datetime(2004, 4, 15, 14, 56, 1, 250_000, tzinfo=UTC)


def parsed(values: list[object], **options: object) -> list[int | None]:
    return parse_times(pl.Series("when", values), **options).values.to_list()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "2004-04-15",
        "2004-04-15 14:56",
        "2004-04-15T14:56:01",
        "2004-04-15 14:56:01.25",
        "2004-04-15T14:56:01.250000Z",
        "2004-04-15T14:56:01+02:00",
        "2004-04-15T14:56:01.000+0000",
        "2004-04-15T14:56-07:30",
        "20040415T145601Z",
        "2004-W16-4",
        "2004-04-15T24:00:00"[:10],
    ],
)
def test_iso_8601_is_read_as_python_does(text: str) -> None:
    expected = from_datetime(datetime.fromisoformat(text))
    assert parsed([text, text]) == [expected, expected]


def test_one_column_may_mix_forms_of_iso_8601() -> None:
    texts = ["2004-04-15", "2004-04-15T14:56:01Z", "2004-04-15 14:56", "2004-04-15T14:56:01.5+01:00", "2004-W16-4"]
    assert parsed([*texts, *texts]) == [from_datetime(datetime.fromisoformat(text)) for text in texts] * 2


def test_only_unreadable_texts_become_null() -> None:
    values = parsed(["2004-04-15", "soon", None, "2004-02-30", "2004-04-16"])
    assert [value is None for value in values] == [False, True, True, True, False]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%m/%d/%y %I:%M %p", "4/15/04 2:56 PM"),
        ("%d.%m.%Y %H:%M:%S", "15.04.2004 14:56:01"),
        ("%Y-%m-%d %H:%M:%S.%f", "2004-04-15 14:56:01.5"),
        ("%d %B %Y", "15 April 2004"),
        ("%Y%m%d", "20040415"),
        ("%a, %d %b %Y %H:%M:%S %z", "Thu, 15 Apr 2004 14:56:01 -0700"),
        ("%j/%Y", "106/2004"),
        ("%H%M%S%f %d%m%Y", "145601500000 15042004"),
    ],
)
def test_patterns_are_read_as_strptime_does(pattern: str, text: str) -> None:
    assert parsed([text] * 3, pattern=pattern) == [from_datetime(datetime.strptime(text, pattern))] * 3


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize("as_text", [False, True])
def test_epoch_units_are_recognised_and_noted(unit: str, factor: int, as_text: bool) -> None:
    numbers = [int(AT.timestamp()) * factor, (int(AT.timestamp()) + 60) * factor]
    times = parse_times(pl.Series("when", [str(n) for n in numbers] if as_text else numbers))
    assert times.values.to_list() == [int(AT.timestamp()) * 10**6, (int(AT.timestamp()) + 60) * 10**6]
    assert times.note == f"times read as epoch numbers in {unit}"
    stated = parse_times(pl.Series("when", numbers), unit=unit)  # type: ignore[arg-type]
    assert stated.values.equals(times.values) and stated.note is None


def test_fractions_of_a_second_survive() -> None:
    assert parsed(["1082040961.25", "1082040962"]) == [1082040961_250_000, 1082040962_000_000]
    assert parsed([1082040961.25]) == [1082040961_250_000]


def test_seconds_read_as_milliseconds_are_refused_with_the_right_unit() -> None:
    with pytest.raises(EventsError, match=r"time_unit='ms' is 1970-01-13.*time_unit='s' would give 2004-04-15"):
        parsed([1082040961, 1082040962], unit="ms")
    with pytest.raises(EventsError, match=r"AD.*time_unit='ms' would give 2004-04-15"):
        parsed([1082040961000], unit="s")


def test_dates_that_a_wrong_unit_made_are_refused() -> None:
    with pytest.raises(EventsError, match="seconds read as milliseconds"):
        check_plausible(1_082_040_961_000, 1_082_040_999_000)
    with pytest.raises(EventsError, match="years must lie between 1 and 9999"):
        check_plausible(0, 10**18)
    check_plausible(0, 10**15)  # a clock that starts at 1970 is plausible
    check_plausible(from_datetime(datetime(1915, 1, 1)), from_datetime(datetime(1950, 1, 1)))


def test_numbers_that_are_no_epoch_are_refused_with_a_hint() -> None:
    with pytest.raises(EventsError, match=r"0 to 15 is not a time.*'step'"):
        parsed(list(range(16)))
    assert parse_times(pl.Series("when", range(16)), unit="step").clock == "step"
    with pytest.raises(EventsError, match="whole numbers"):
        parsed([0.5], unit="step")


def test_dates_without_dashes() -> None:
    expected = [from_datetime(datetime(2004, 4, 15)), from_datetime(datetime(2004, 12, 31))]
    assert parsed(["20040415", "20041231"]) == expected
    assert parsed([20040415, 20041231]) == expected


def test_typed_columns() -> None:
    east = timezone(timedelta(hours=5))
    expected = from_datetime(AT)
    for unit in ("ms", "us", "ns"):
        assert parsed([AT.replace(tzinfo=None)]) == [expected]
        assert parse_times(pl.Series([AT.replace(tzinfo=None)], dtype=pl.Datetime(unit))).values.to_list() == [expected]
    assert parsed([AT.astimezone(east)]) == [expected]
    assert parsed([date(2004, 4, 15)]) == [from_datetime(datetime(2004, 4, 15))]
    with pytest.raises(EventsError, match="not a time"):
        parsed([True])


def test_a_time_zone_applies_to_times_that_have_none() -> None:
    zone = "America/New_York"
    assert parsed(["2004-07-01 08:00"], timezone=zone) == [from_datetime(datetime(2004, 7, 1, 12))]
    assert parsed(["2004-07-01 08:00Z"], timezone=zone) == [from_datetime(datetime(2004, 7, 1, 8))]
    assert parsed([datetime(2004, 1, 1, 8)], timezone=zone) == [from_datetime(datetime(2004, 1, 1, 13))]
    assert parsed(["07/01/04 08:00"], timezone=zone, pattern="%m/%d/%y %H:%M") == [
        from_datetime(datetime(2004, 7, 1, 12))
    ]
    with pytest.raises(EventsError, match="not a time zone"):
        parsed(["2004-07-01"], timezone="Mars/Base")


def test_two_digit_years_are_read_as_python_does() -> None:
    texts = [f"01/{i % 28 + 1:02d}/{70 + i // 28:02d}" for i in range(60)] + ["01/01/69", "01/01/68"]
    assert parsed(texts, pattern="%m/%d/%y") == [from_datetime(datetime.strptime(text, "%m/%d/%y")) for text in texts]


def test_local_times_that_a_clock_change_skips_are_unreadable_in_every_form() -> None:
    texts = ["2024-03-31T01:30", "2024-03-31T02:30", "2024-04-30T02:30"]
    for extra, pattern in (([], None), (["2024-04-30"], None), ([], "%Y-%m-%dT%H:%M")):
        values = parsed([*texts, *extra], timezone="Europe/Berlin", pattern=pattern)
        assert [value is None for value in values[:3]] == [False, True, False]


def test_pattern_and_unit_exclude_each_other() -> None:
    with pytest.raises(EventsError, match="not both"):
        parsed(["1"], pattern="%Y", unit="s")
