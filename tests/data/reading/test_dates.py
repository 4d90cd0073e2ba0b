"""RFC 2822, named zones, and the patterns that errors suggest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime, parsedate_to_datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dysat import EventsError, read_events
from dysat.data.reading.dates import AMBIGUOUS, OFFSETS, guess_patterns, read_date
from dysat.data.reading.times import parse_times
from dysat.data.windows import from_datetime

ZONES = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(1975, 1, 1), datetime(2090, 1, 1), timezones=ZONES).map(
    lambda at: at.replace(microsecond=0)
)


def parsed(*texts: str, zone: str = "UTC") -> list[int | None]:
    return parse_times(pl.Series("when", texts), timezone=zone).values.to_list()


@settings(deadline=None)
@given(st.lists(MOMENTS, min_size=1, max_size=4))
def test_mail_dates_are_read_as_python_does(moments: list[datetime]) -> None:
    texts = [format_datetime(at) for at in moments]
    expected = [from_datetime(parsedate_to_datetime(text)) for text in texts]
    assert parsed(*texts) == expected
    assert parsed(*(text.partition(", ")[2] for text in texts)) == expected
    assert parsed(*(f"{text} (XYZ)" for text in texts)) == expected
    assert [from_datetime(read_date(text)) for text in texts] == expected


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("Mon, 16 Nov 2026 10:00:00 +0100", "2026-11-16T09:00"),
        ("Mon, 16 Nov 2026 10:00:00 GMT", "2026-11-16T10:00"),
        ("16 Nov 2026 10:00 CET", "2026-11-16T09:00"),
        ("Tue, 16 Nov 2026 10:00:00 +0100", "2026-11-16T09:00"),  # a Monday
        ("2024-01-01 10:00 CET", "2024-01-01T09:00"),
        ("2024-07-01 10:00 CET", "2024-07-01T09:00"),  # as stated, not summer time
        ("2024-07-01 10:00 Europe/Berlin", "2024-07-01T08:00"),
        ("2024-01-01T10:00:00 America/New_York", "2024-01-01T15:00"),
        ("2024-01-01 10:00:00.5 EST", "2024-01-01T15:00:00.5"),
        ("2024-01-01 10:00 UTC", "2024-01-01T10:00"),
        ("2024-01-01 10:00 +0100 CET", "2024-01-01T09:00"),
        ("2024-01-01T10:00+01:00[Europe/Berlin]", "2024-01-01T09:00"),
    ],
)
def test_zones(text: str, utc: str) -> None:
    expected = from_datetime(datetime.fromisoformat(utc).replace(tzinfo=UTC))
    assert parsed(text, text) == [expected] * 2
    assert parsed("2024-01-01", text)[1] == expected  # mixed with another form


def test_unknown_and_skipped_times_are_unreadable() -> None:
    assert parsed("2024-01-01 10:00 XYZ", "2024-01-01 10:00 Mars/Base", "2024-01-01 10:00 PM") == [None] * 3
    assert parsed("2024-03-31 02:30 Europe/Berlin") == [None]
    assert not set(OFFSETS) & set(AMBIGUOUS)


def test_times_without_a_zone_are_in_the_stated_one() -> None:
    text = "Mon, 16 Nov 2026 10:00:00"
    assert parsed(text, zone="Europe/Berlin") == [from_datetime(datetime(2026, 11, 16, 9))]


@settings(deadline=None)
@given(
    st.sampled_from(["%d.%m.%Y", "%d.%m.%Y %H:%M", "%Y/%m/%d %H:%M:%S", "%d %b %Y", "%d/%b/%Y:%H:%M:%S %z"]), MOMENTS
)
def test_a_guessed_pattern_reads_the_text_as_it_was_written(pattern: str, at: datetime) -> None:
    text = at.strftime(pattern)
    assert guess_patterns(text) == [pattern]


@pytest.mark.parametrize(
    ("texts", "advice"),
    [
        (["16.11.2026", "1.12.2026"], "; time_format='%d.%m.%Y' reads it"),
        (["16.11.2026 10:30"] * 2, "; time_format='%d.%m.%Y %H:%M' reads it"),
        (["03/04/2024"] * 2, "; state time_format='%d/%m/%Y' or time_format='%m/%d/%Y', whichever is meant"),
        (["03/04/2024", "03/15/2024"], "; time_format='%m/%d/%Y' reads it"),
        (["03/04/2024", "15/04/2024"], "; time_format='%d/%m/%Y' reads it"),
        (["4/15/04 2:56 PM"] * 2, "; time_format='%m/%d/%y %I:%M %p' reads it"),
        (["Mon Nov 16 10:00:00 2026"] * 2, "; time_format='%a %b %d %H:%M:%S %Y' reads it"),
        (["soon", "later"], "; time_format= takes the pattern of other dates"),
    ],
)
def test_errors_suggest_a_pattern_that_works(texts: list[str], advice: str) -> None:
    with pytest.raises(EventsError) as caught:
        read_events((["a", "b"], ["b", "c"], texts))
    assert str(caught.value) == f"arrays, row 1: time {texts[0]!r} is not a date or a number{advice}"
    if "reads it" in advice:
        assert len(read_events((["a", "b"], ["b", "c"], texts), time_format=advice.split("'")[1])) == 2


def test_a_wrong_pattern_is_answered_with_the_right_one() -> None:
    with pytest.raises(EventsError, match=r"does not match time_format='%Y'; time_format='%d.%m.%Y' reads it"):
        read_events((["a", "b"], ["b", "c"], ["16.11.2026"] * 2), time_format="%Y")


def test_ambiguous_abbreviations_are_refused_with_advice() -> None:
    with pytest.raises(
        EventsError, match=r"CST is the abbreviation of several.* \+01:00.* America/Chicago or Asia/Sha"
    ):
        read_events((["a", "b"], ["b", "c"], ["2024-01-01 10:00 CST"] * 2))
