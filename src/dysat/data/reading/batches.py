"""Times of a log that is read in batches: what depends on the whole column is decided in a first pass over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dysat.data.reading.times import (
    SAMPLE,
    Times,
    TimeUnit,
    are_numbers,
    choose_unit,
    finite_numbers,
    in_moments,
    parse_times,
)
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl

ReadTimes = Callable[["pl.Series"], Times]


@dataclass
class Range:
    """The smallest and the largest finite number of a column, and how many cells are not numbers."""

    low: float | None = None
    high: float | None = None
    nulls: int = 0

    def add(self, numbers: pl.Series) -> None:
        """Take in a batch."""
        self.nulls += numbers.null_count()
        finite = finite_numbers(numbers)
        for end, choose in (("low", min), ("high", max)):
            value: Any = finite.min() if end == "low" else finite.max()
            before = getattr(self, end)
            if value is not None:
                setattr(self, end, value if before is None else choose(before, value))


def time_reader(
    batches: Callable[[], Iterator[pl.Series]], pattern: str | None, unit: TimeUnit | None, timezone: str
) -> ReadTimes:
    """Return a function that parses each batch as `parse_times` parses the whole column.

    Dates and patterns need only the batch. Of numbers the range of all batches says what unit they are in, and whether
    texts are whole numbers.
    """
    import polars as pl

    def by_itself(column: pl.Series) -> Times:
        return parse_times(column, pattern=pattern, unit=unit, timezone=timezone)

    kind, sample = _sample(batches())
    texts = kind == pl.String
    dates = not (texts or kind.is_numeric()) or (texts and unit is None and not are_numbers(sample))
    if pattern is not None or dates:
        return by_itself
    by_itself(pl.Series("", [], dtype=kind))  # refuses a unit or a zone that does not exist

    empty, ranges = 0, {dtype: Range() for dtype in (pl.Int64, pl.Float64)}
    for column in batches():
        empty += column.null_count()
        for dtype, found in ranges.items():
            if texts or column.dtype.is_integer() == (dtype == pl.Int64):
                found.add(_as_numbers(column, dtype))
    whole = ranges[pl.Int64].nulls in (empty, ranges[pl.Float64].nulls) if texts else kind.is_integer()
    dtype = pl.Int64 if whole else pl.Float64
    low, high = ranges[dtype].low, ranges[dtype].high
    if low is None or high is None:
        return lambda column: Times(column.clear(len(column)).cast(pl.Int64), "step" if unit == "step" else "utc")
    what = f"column {column.name!r}: {low} to {high}"
    chosen = choose_unit(low, high, unit, what)
    if chosen is None:
        raise EventsError(f"{what} is not a time since 1970 in s, ms, us or ns; state time_format= or time_unit=")
    note = None if unit else f"times read as epoch numbers in {chosen}"

    def as_numbers(column: pl.Series) -> Times:
        moments = in_moments(finite_numbers(_as_numbers(column, dtype)), chosen, what)
        return Times(moments, "step" if chosen == "step" else "utc", note)

    return as_numbers


def _sample(batches: Iterator[pl.Series]) -> tuple[pl.DataType, list[str]]:
    """The type of a column, and its first texts."""
    import polars as pl

    kind: pl.DataType = pl.Null()
    sample: list[str] = []
    for column in batches:
        kind = column.dtype
        if kind != pl.String:
            break
        sample += column.drop_nulls().head(SAMPLE - len(sample)).to_list()
        if len(sample) >= SAMPLE:
            break
    return kind, sample


def _as_numbers(column: pl.Series, dtype: Any) -> pl.Series:
    import polars as pl

    texts = column.str.strip_chars() if column.dtype == pl.String else column
    return texts.cast(dtype, strict=False)
