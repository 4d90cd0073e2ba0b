"""Parse a column of times in any form to microseconds since 1970 in UTC.

A time that cannot be read becomes null; the caller knows the file and the row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dysat.data.reading.dates import read_date, rfc_pattern
from dysat.data.windows import DAY, YEAR, Clock, from_datetime, write_moment
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl

TimeUnit = Literal["s", "ms", "us", "ns", "step"]
PER_MICROSECOND = {"s": 1e-6, "ms": 1e-3, "us": 1.0, "ns": 1e3}
# An epoch number must fall between these years; the ranges of the four units do not overlap.
PLAUSIBLE = (int(1 * YEAR), int(130 * YEAR))
NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\s*")
ISO = re.compile(
    r"\d{4}-\d\d-\d\d"
    r"(?:(?P<sep>[T ])\d\d:\d\d(?P<seconds>:\d\d)?(?P<fraction>\.\d+)?(?P<zone>Z|[+-]\d\d:?\d\d)?)?"
)
COMPACT = {8: "%Y%m%d", 14: "%Y%m%d%H%M%S"}
SAMPLE = 100  # texts that say whether a column holds numbers or dates
MOST_PATTERNS = 8  # forms of ISO 8601 in one column before the slow parser takes over


@dataclass(frozen=True)
class Times:
    """Parsed times: Int64 microseconds (or steps), null if unreadable, and a note on how they were read."""

    values: pl.Series
    clock: Clock
    note: str | None = None


def parse_times(
    column: pl.Series, *, pattern: str | None = None, unit: TimeUnit | None = None, timezone: str = "UTC"
) -> Times:
    """Parse a column of dates, texts or numbers; times without a zone are in `timezone`."""
    import polars as pl

    zone = _zone(timezone)
    if unit is not None and unit not in get_args(TimeUnit):
        raise EventsError(f"time_unit={unit!r} is not one of {', '.join(get_args(TimeUnit))}")
    if pattern is not None and unit is not None:
        raise EventsError("give time_format= or time_unit=, not both")
    if column.dtype == pl.Date or isinstance(column.dtype, pl.Datetime):
        if pattern or unit:
            raise EventsError(f"column {column.name!r} holds dates already; leave time_format= and time_unit= out")
        return Times(_to_utc(column.cast(pl.Datetime("us", getattr(column.dtype, "time_zone", None))), timezone), "utc")
    if column.dtype.is_numeric() and pattern is None:
        return _from_numbers(column, unit)
    if column.dtype.is_numeric():
        column = column.cast(pl.String)
    if column.dtype != pl.String:
        raise EventsError(f"column {column.name!r} holds {column.dtype}, which is not a time")
    if pattern is not None:
        return Times(_from_pattern(column, pattern, timezone, zone), "utc", f"times read as {pattern!r}")
    if unit is not None or are_numbers(column.drop_nulls().head(SAMPLE).to_list()):
        whole = column.str.strip_chars().cast(pl.Int64, strict=False)
        if whole.null_count() > column.null_count():
            fractions = column.str.strip_chars().cast(pl.Float64, strict=False)
            return _from_numbers(whole if whole.null_count() == fractions.null_count() else fractions, unit)
        return _from_numbers(whole, unit)
    return Times(_from_iso(column, timezone, zone), "utc")


def are_numbers(sample: Sequence[str]) -> bool:
    """Whether texts are numbers rather than dates: at least half of the first ones are."""
    numbers = sum(NUMBER.fullmatch(text) is not None for text in sample)
    return numbers > 0 and 2 * numbers >= len(sample)


def check_plausible(first: int, last: int) -> None:
    """Refuse dates that come from a wrong unit, such as seconds stored as milliseconds."""
    if _plausible(first, last):
        return
    span = f"times from {write_moment(first, 'utc')} to {write_moment(last, 'utc')} are implausible"
    for factor in (1e3, 1e6, 1e9, 1e-3, 1e-6, 1e-9):
        if _plausible(first * factor, last * factor):
            meant = f"{write_moment(int(first * factor), 'utc')} to {write_moment(int(last * factor), 'utc')}"
            how = "seconds read as milliseconds" if factor > 1 else "milliseconds read as seconds"
            raise EventsError(f"{span}: the unit seems wrong, as with {how}; {meant} would be plausible")
    if not _in_calendar(first, last):
        raise EventsError(f"{span}: years must lie between 1 and 9999")


def _plausible(first: float, last: float) -> bool:
    return first >= PLAUSIBLE[0] and last <= PLAUSIBLE[1]


def _in_calendar(first: float, last: float) -> bool:
    return first > -1969 * YEAR and last < 8029 * YEAR


def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EventsError(f"timezone={name!r} is not a time zone like 'UTC' or 'America/New_York'") from None


def _to_utc(column: pl.Series, timezone: str) -> pl.Series:
    """Convert datetimes to microseconds; local times skipped by a clock change become null."""
    import polars as pl

    if getattr(column.dtype, "time_zone", None) is None and timezone != "UTC":
        column = column.dt.replace_time_zone(timezone, ambiguous="earliest", non_existent="null")
    return column.to_physical().cast(pl.Int64)


def _from_numbers(column: pl.Series, unit: TimeUnit | None) -> Times:
    """Convert epoch numbers of a stated or recognised unit, or step numbers."""
    import polars as pl

    numbers = finite_numbers(column)
    low, high = numbers.min(), numbers.max()
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return Times(column.clear(len(column)).cast(pl.Int64), "step" if unit == "step" else "utc")
    what = f"column {column.name!r}: {low} to {high}"
    chosen = choose_unit(low, high, unit, what)
    if chosen is None:
        return _from_compact_dates(column, what)
    note = None if unit else f"times read as epoch numbers in {chosen}"
    return Times(in_moments(numbers, chosen, what), "step" if chosen == "step" else "utc", note)


def finite_numbers(column: pl.Series) -> pl.Series:
    """Numbers as Int64 or Float64; null if one does not fit or is not finite."""
    import polars as pl

    numbers = column.cast(pl.Int64 if column.dtype.is_integer() else pl.Float64, strict=False)
    if numbers.dtype == pl.Int64:
        return numbers
    return numbers.to_frame("n").select(pl.when(pl.col("n").is_finite()).then("n")).to_series()


def choose_unit(low: float, high: float, unit: TimeUnit | None, what: str) -> str | None:
    """Return the stated unit if it fits numbers from `low` to `high`, or else the one that does; None if none does."""
    if unit == "step":
        if max(abs(low), abs(high)) >= 2**53:
            raise EventsError(f"{what}: steps must be whole numbers")
        return unit
    fitting = [u for u, per in PER_MICROSECOND.items() if _plausible(low / per, high / per)]
    if unit is None and not fitting:
        return None
    chosen = str(unit or fitting[0])
    _check_unit(chosen, fitting, low, high, what)
    return chosen


def in_moments(numbers: pl.Series, unit: str, what: str) -> pl.Series:
    """Convert numbers of `finite_numbers` in a unit to microseconds, or steps."""
    import polars as pl

    if unit == "step":
        if (numbers != numbers.cast(pl.Int64)).any():
            raise EventsError(f"{what}: steps must be whole numbers")
        return numbers.cast(pl.Int64)
    if numbers.dtype == pl.Int64:
        return numbers // 1000 if unit == "ns" else numbers * round(1 / PER_MICROSECOND[unit])
    return (numbers / PER_MICROSECOND[unit]).round().cast(pl.Int64, strict=False)


def _check_unit(unit: str, fitting: list[str], low: float, high: float, what: str) -> None:
    """Refuse a stated unit that gives implausible dates if another unit fits, or no dates at all."""

    def dates(unit: str) -> str:
        return " to ".join(write_moment(int(x / PER_MICROSECOND[unit]), "utc") for x in (low, high))

    inside = _in_calendar(low / PER_MICROSECOND[unit], high / PER_MICROSECOND[unit])
    if not inside or (fitting and unit not in fitting):
        hint = f"; time_unit={fitting[0]!r} would give {dates(fitting[0])}" if fitting else ""
        raise EventsError(f"{what} read as time_unit={unit!r} is {dates(unit)}{hint}")


def _from_compact_dates(column: pl.Series, what: str) -> Times:
    """Parse numbers like 20040415 or 20040415145600 as dates without dashes."""
    import polars as pl

    digits = column.cast(pl.String)
    pattern = COMPACT.get(len(digits.drop_nulls()[0]))
    if pattern:
        dates = digits.str.strptime(pl.Datetime("us"), pattern, strict=False).to_physical()
        low, high = dates.min(), dates.max()
        read = dates.null_count() == column.null_count() and isinstance(low, int) and isinstance(high, int)
        if read and low > -70 * YEAR and high < PLAUSIBLE[1]:  # type: ignore[operator]
            return Times(dates.cast(pl.Int64), "utc", f"times read as dates in the form {pattern!r}")
    raise EventsError(
        f"{what} is not a time since 1970 in s, ms, us or ns between 1971 and 2100; "
        "state time_unit= ('step' if the column numbers the snapshots already)"
    )


def _from_iso(column: pl.Series, timezone: str, zone: tzinfo) -> pl.Series:
    """Parse ISO 8601 and RFC 2822: each form in the column with a pattern of Polars, the rest with Python."""
    import polars as pl

    values = pl.Series(column.name, [None], dtype=pl.Int64).new_from_index(0, len(column))
    for _ in range(MOST_PATTERNS):
        left = values.is_null() & column.is_not_null()
        if not left.any():
            return values
        pattern = _iso_pattern(column.filter(left)[0])
        if pattern is None:
            break
        parsed = _strptime(column, pattern, timezone)
        if parsed.filter(left).is_null().all():
            break
        values = parsed if left.all() else values.zip_with(values.is_not_null(), parsed)
    return _fill_by_python(values, column, read_date, zone)


def _iso_pattern(text: str) -> str | None:
    """The pattern of a date in ISO 8601 or RFC 2822."""
    match = ISO.fullmatch(text)
    if match is None:
        return rfc_pattern(text)
    if not match["sep"]:
        return "%Y-%m-%d"
    zone = "" if match["zone"] is None else "Z" if match["zone"] == "Z" else "%z"
    fraction = "%.f" if match["fraction"] else ""
    return f"%Y-%m-%d{match['sep']}%H:%M{':%S' if match['seconds'] else ''}{fraction}{zone}"


def iso_expression(column: str, first: str) -> pl.Expr | None:
    """Return an expression that parses a column in the form of its first text, or None if that is no date."""
    pattern = _iso_pattern(first)
    return None if pattern is None else _strptime_expression(column, pattern)


def _strptime_expression(column: str, pattern: str) -> pl.Expr:
    import polars as pl

    # Polars does not take a literal Z or GMT as a zone, but it means UTC; with %z the result is UTC anyway.
    aware = pattern.endswith(("Z", "GMT")) or "%z" in pattern
    dtype = pl.Datetime("us", "UTC") if aware else pl.Datetime("us")
    return pl.col(column).str.strptime(dtype, pattern, strict=False, cache=False)


def _strptime(column: pl.Series, pattern: str, timezone: str) -> pl.Series:
    """Parse with a pattern of Polars, on all cores; null if it does not fit."""
    parse = _strptime_expression("time", pattern)
    parsed = column.to_frame("time").lazy().select(parse).collect(engine="streaming").to_series()
    return _to_utc(parsed, timezone).alias(column.name)


def _from_pattern(column: pl.Series, pattern: str, timezone: str, zone: tzinfo) -> pl.Series:
    """Parse with a pattern of Python's `strptime`: in Polars if it agrees on a sample, else in Python."""
    import polars as pl

    def by_python(text: str) -> datetime:
        return datetime.strptime(text, pattern)

    values = pl.Series(column.name, [None], dtype=pl.Int64).new_from_index(0, len(column))
    sample = column.drop_nulls().unique(maintain_order=True).head(50)
    expected = _fill_by_python(values.head(len(sample)), sample, by_python, zone)
    try:
        fast = pattern.replace(".%f", "%.f")  # Polars' %f alone is a whole number of nanoseconds
        if "%f" not in fast and _strptime(sample, fast, timezone).equals(expected, check_names=False):
            parsed = _strptime(column, fast, timezone)
            # %y: Polars reads 69 as 2069, Python as 1969.
            values = values if "%y" in fast and (parsed >= 99 * YEAR - DAY).any() else parsed
    except pl.exceptions.PolarsError:
        pass
    return _fill_by_python(values, column, by_python, zone)


def _fill_by_python(values: pl.Series, column: pl.Series, read: Callable[[str], datetime], zone: tzinfo) -> pl.Series:
    """Fill the nulls of `values` that are texts in `column` with a Python function, called once per distinct text."""
    import polars as pl

    left = values.is_null() & column.is_not_null()
    if not left.any():
        return values
    parsed: dict[str, int | None] = {}
    for text in column.filter(left).unique().to_list():
        try:
            at = read(text.strip())
            aware = at if at.tzinfo else at.replace(tzinfo=zone)
            skipped = aware.astimezone(UTC).astimezone(aware.tzinfo).replace(tzinfo=None) != at.replace(tzinfo=None)
            parsed[text] = None if skipped else from_datetime(aware)
        except (ValueError, OverflowError):
            parsed[text] = None
    slow = column.replace_strict(list(parsed), list(parsed.values()), default=None, return_dtype=pl.Int64)
    return values.zip_with(values.is_not_null(), slow)
