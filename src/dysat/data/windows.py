"""Half-open time windows `[start, stop)`: widths, edges, and moments as text.

A moment is an integer: microseconds since 1970 in UTC (`clock="utc"`), or a step number for data that is already
cut into snapshots (`clock="step"`).
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Literal

import numpy as np

from dysat.errors import SnapshotsError

Clock = Literal["utc", "step"]
Moment = str | int | date | datetime | np.datetime64
Every = str | int | timedelta

MAX_SNAPSHOTS = 10_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
DAY = 86_400 * SECOND
FIXED_UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": SECOND,
    "min": 60 * SECOND,
    "h": 3_600 * SECOND,
    "d": DAY,
    "w": 7 * DAY,
}
CALENDAR_UNITS = {"mo": 1, "q": 3, "y": 12}
# Precisions of a written time: names as in `datetime.isoformat`, and microseconds.
TIMESPECS = {"days": DAY, "minutes": 60 * SECOND, "seconds": SECOND, "milliseconds": 1_000, "microseconds": 1}
# Widths suggested in error messages, from short to long.
USUAL_WIDTHS = (
    *("1s", "10s", "1min", "10min", "1h", "6h", "1d", "1w", "10d", "30d", "90d", "1y"),
    *("5y", "10y", "100y"),
)
YEAR = 365.25 * DAY


@dataclass(frozen=True)
class Width:
    """The length of a window: a number of calendar months, or a fixed span."""

    span: int = 0
    months: int = 0

    @classmethod
    def parse(cls, every: Every, clock: Clock) -> Width:
        """Parse `"10d"`, `"1mo"`, `timedelta(days=10)`, or a whole number of steps."""
        if clock == "step":
            if isinstance(every, timedelta) or not re.fullmatch(r"0*[1-9]\d{0,17}", str(every)):
                raise SnapshotsError(
                    f"every={every!r}: these events are numbered by step, so give a whole number of steps, like 1"
                )
            return cls(span=int(every))
        if isinstance(every, timedelta):
            span = every // timedelta(microseconds=1)
            if span <= 0:
                raise SnapshotsError(f"every={every!r} is not a positive length of time")
            return cls(span=span)
        match = re.fullmatch(r"\s*(\d{1,9})\s*([a-zµ]+)\s*", str(every).replace("µ", "u"))
        if not match:
            raise SnapshotsError(f"every={every!r} is not a length of time like '10d', '12h' or '1mo'")
        number, unit = int(match[1]), match[2]
        if unit == "m":
            raise SnapshotsError(f"every={every!r}: write 'min' for minutes or 'mo' for months")
        if unit not in FIXED_UNITS and unit not in CALENDAR_UNITS:
            units = ", ".join([*FIXED_UNITS, *CALENDAR_UNITS])
            raise SnapshotsError(f"every={every!r}: {unit!r} is not a unit of time ({units})")
        if number == 0:
            raise SnapshotsError(f"every={every!r} is not a positive length of time")
        if unit in CALENDAR_UNITS:
            return cls(months=number * CALENDAR_UNITS[unit])
        return cls(span=number * FIXED_UNITS[unit])

    @property
    def typical(self) -> float:
        """Length in microseconds (or steps); calendar months count as a twelfth of a year."""
        return self.span or self.months * YEAR / 12

    def floor(self, moment: int) -> int:
        """Return where the first window starts: at `moment`, or at the start of its month, quarter or year."""
        if not self.months:
            return moment
        at = as_datetime(moment)
        unit = 12 if self.months % 12 == 0 else 3 if self.months % 3 == 0 else 1
        return from_datetime(datetime(at.year, (at.month - 1) // unit * unit + 1, 1, tzinfo=UTC))

    def edge(self, start: int, k: int) -> int:
        """Return the start of window `k`, counted from `start` so that months do not drift."""
        if not self.months:
            return start + k * self.span
        at = as_datetime(start)
        months = at.year * 12 + at.month - 1 + k * self.months
        year, month = divmod(months, 12)
        if year > 9999:
            raise SnapshotsError("windows would run past the year 9999")
        day = min(at.day, calendar.monthrange(year, month + 1)[1])
        return from_datetime(at.replace(year=year, month=month + 1, day=day))


def edges_every(width: Width, start: int, stop: int, cut: bool) -> list[int]:
    """Return window edges from `start` until `stop` is covered; with `cut` the last window ends at `stop`.

    The caller limits their number to `MAX_SNAPSHOTS`.
    """
    edges = [start]
    while edges[-1] < stop:
        edges.append(width.edge(start, len(edges)))
    if cut and edges[-1] > stop:
        edges[-1] = stop
    return edges


def edges_count(count: int, start: int, stop: int) -> list[int]:
    """Return the edges of `count` windows of equal width (to the microsecond) over `[start, stop)`."""
    if not isinstance(count, int) or not 1 <= count <= MAX_SNAPSHOTS:
        raise SnapshotsError(f"count={count} is not between 1 and {MAX_SNAPSHOTS:,}")
    if stop - start < count:
        raise SnapshotsError(f"count={count}: the events do not last long enough for {count} windows")
    return [start + (stop - start) * k // count for k in range(count + 1)]


def suggest_width(span: int, clock: Clock, most: int = 60) -> str:
    """Return a usual width that cuts `span` into at most `most` windows."""
    if clock == "step":
        return str(max(1, -(-span // most)))
    fits = [w for w in USUAL_WIDTHS if span / Width.parse(w, clock).typical <= most]
    return fits[0] if fits else USUAL_WIDTHS[-1]


def as_moment(value: Moment, clock: Clock, name: str) -> int:
    """Parse a moment given by a user: a date or ISO text on the UTC clock, a whole number on the step clock."""
    if clock == "step":
        if isinstance(value, bool) or not re.fullmatch(r"[+-]?\d{1,18}", str(value)):
            raise SnapshotsError(f"{name}={value!r}: these events are numbered by step, so give a whole number")
        return int(str(value))
    try:
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            return int(value)  # microseconds, as a graph's boundaries are
        if isinstance(value, np.datetime64) and not np.isnat(value):
            return int(value.astype("datetime64[us]").astype(np.int64))
        if isinstance(value, str):
            return from_datetime(datetime.fromisoformat(value.strip()))
        if isinstance(value, datetime) and value == value:  # NaT is not
            return from_datetime(value)
        if isinstance(value, date):
            return from_datetime(datetime(value.year, value.month, value.day))
    except (ValueError, TypeError, OverflowError):
        pass
    raise SnapshotsError(f"{name}={value!r} is not a date like '2004-04-20' or '2004-04-20T15:30Z'")


def from_datetime(at: datetime) -> int:
    """Convert to microseconds since 1970; a time without a zone is UTC."""
    aware = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)


def as_datetime(moment: int) -> datetime:
    """Convert a moment to a datetime in UTC."""
    return EPOCH + timedelta(microseconds=moment)


def write_moment(moment: int, clock: Clock, unit: int = 1) -> str:
    """The shortest text that is exact to `unit` microseconds: `2004-04-20`, `2004-04-20 15:30`; or the step."""
    if clock == "step":
        return str(moment)
    moment -= moment % unit
    try:
        at = as_datetime(moment).replace(tzinfo=None)
    except OverflowError:
        return f"{moment / YEAR + 1970:,.0f} AD"
    timespec = next(name for name, size in TIMESPECS.items() if moment % size == 0)
    return at.date().isoformat() if timespec == "days" else at.isoformat(" ", timespec)


def write_edges(edges: Sequence[int], clock: Clock) -> list[str]:
    """Window edges as texts, no more precise than people need.

    Edges on whole minutes are exact. Odd edges, such as those of `count=`, are rounded down to the largest unit that
    is at most a hundredth of the narrowest window.
    """
    unit = 60 * SECOND
    if any(edge % unit for edge in edges):
        narrowest = min((after - before for before, after in pairwise(edges)), default=1)
        unit = next((size for size in TIMESPECS.values() if 100 * size <= narrowest), 1)
    return [write_moment(edge, clock, unit) for edge in edges]


def write_span(span: float, clock: Clock) -> str:
    """A length of time for people: `10 days`, `1.5 hours`, `3 steps`."""
    if clock == "step":
        return f"{_write_number(span)} step{'s' * (span != 1)}"
    for unit, name in (("d", "day"), ("h", "hour"), ("min", "minute"), ("s", "second")):
        number = round(span / FIXED_UNITS[unit], 1)
        if number >= 1:
            return f"{_write_number(number)} {name}{'s' * (number != 1)}"
    return f"{_write_number(span)} µs"


def _write_number(number: float) -> str:
    """Six significant digits, and all digits of a whole number."""
    return f"{number:,g}" if number < 100_000 else f"{number:,.0f}"


def check_edges(edges: Sequence[int], clock: Clock, name: str = "boundaries") -> None:
    """Refuse edges that make no window, too many, or do not increase."""
    if len(edges) < 2:
        raise SnapshotsError(f"{name}: a window needs at least two, got {len(edges)}")
    if len(edges) - 1 > MAX_SNAPSHOTS:
        raise SnapshotsError(f"{name} would make {len(edges) - 1:,} snapshots, more than {MAX_SNAPSHOTS:,}")
    for before, after in pairwise(edges):
        if after <= before:
            pair = f"{write_moment(after, clock)} follows {write_moment(before, clock)}"
            raise SnapshotsError(f"{name} must increase, but {pair}")
