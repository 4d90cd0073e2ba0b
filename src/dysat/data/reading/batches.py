"""Times of a log that is read in batches: what depends on the whole column is decided in a first pass over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

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
NumberType = Literal["text", "whole", "fraction"]


@dataclass
class Range:
    """The smallest and the largest finite number of a column, and how many cells are not numbers."""

    low: float | None = None
    high: float | None = None
    nulls: int = 0

    def add(self, numbers: pl.Series) -> None:
        """Take in a batch."""
        finite = finite_numbers(numbers)
        low: Any = finite.min()
        high: Any = finite.max()
        self.merge(Range(low, high, numbers.null_count()))

    def merge(self, other: Range) -> None:
        """Take in the range of other batches."""
        self.nulls += other.nulls
        for end, choose in (("low", min), ("high", max)):
            value, before = getattr(other, end), getattr(self, end)
            if value is not None:
                setattr(self, end, value if before is None else choose(before, value))


@dataclass
class Numbers:
    """What matters about all batches of a column of numbers: its ranges, read as whole numbers and as fractions.

    Attributes:
        name: of the column; empty: number of cells without any content.
    """

    name: str = ""
    empty: int = 0
    whole: Range = field(default_factory=Range)
    fractions: Range = field(default_factory=Range)

    def add(self, column: pl.Series) -> None:
        """Take in a batch."""
        import polars as pl

        self.name = column.name
        self.empty += column.null_count()
        texts = column.dtype == pl.String
        for dtype, found in ((pl.Int64, self.whole), (pl.Float64, self.fractions)):
            if texts or column.dtype.is_integer() == (dtype == pl.Int64):
                found.add(_as_numbers(column, dtype))

    def merge(self, other: Numbers) -> None:
        """Take in other batches."""
        self.name = other.name or self.name
        self.empty += other.empty
        self.whole.merge(other.whole)
        self.fractions.merge(other.fractions)


def time_reader(
    batches: Callable[[], Iterator[pl.Series]], pattern: str | None, unit: TimeUnit | None, timezone: str
) -> ReadTimes:
    """Return a function that parses each batch as `parse_times` parses the whole column.

    Dates and patterns need only the batch. Of numbers the range of all batches says what unit they are in, and whether
    texts are whole numbers.
    """
    kind, numbers = number_type(*first_times(batches()), pattern, unit, timezone), Numbers()
    if kind is not None:
        for column in batches():
            numbers.add(column)
    return reader_of(kind, numbers, pattern, unit, timezone)


def number_type(
    kind: pl.DataType, sample: Sequence[str], pattern: str | None, unit: TimeUnit | None, timezone: str
) -> NumberType | None:
    """The type of a column whose times are numbers, or None if each batch can be parsed by itself.

    `kind` and `sample` are its type and its first texts.
    """
    import polars as pl

    texts = kind == pl.String
    dates = not (texts or kind.is_numeric()) or (texts and unit is None and not are_numbers(sample))
    if pattern is not None or dates:
        return None
    # Refuses a unit or a zone that does not exist.
    parse_times(pl.Series("", [], dtype=kind), pattern=pattern, unit=unit, timezone=timezone)
    return "text" if texts else "whole" if kind.is_integer() else "fraction"


def reader_of(
    kind: NumberType | None, numbers: Numbers, pattern: str | None, unit: TimeUnit | None, timezone: str
) -> ReadTimes:
    """The function of `time_reader` for a column with the type of `number_type` and these numbers."""
    import polars as pl

    if kind is None:
        return lambda column: parse_times(column, pattern=pattern, unit=unit, timezone=timezone)
    same = numbers.whole.nulls in (numbers.empty, numbers.fractions.nulls)
    whole = same if kind == "text" else kind == "whole"
    dtype, found = (pl.Int64, numbers.whole) if whole else (pl.Float64, numbers.fractions)
    low, high = found.low, found.high
    if low is None or high is None:
        return lambda column: Times(column.clear(len(column)).cast(pl.Int64), "step" if unit == "step" else "utc")
    what = f"column {numbers.name!r}: {low} to {high}"
    chosen = choose_unit(low, high, unit, what)
    if chosen is None:
        raise EventsError(f"{what} is not a time since 1970 in s, ms, us or ns; state time_format= or time_unit=")
    note = None if unit else f"times read as epoch numbers in {chosen}"

    def as_numbers(column: pl.Series) -> Times:
        moments = in_moments(finite_numbers(_as_numbers(column, dtype)), chosen, what)
        return Times(moments, "step" if chosen == "step" else "utc", note)

    return as_numbers


def first_times(batches: Iterator[pl.Series]) -> tuple[pl.DataType, list[str]]:
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
