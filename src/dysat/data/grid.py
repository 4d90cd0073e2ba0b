"""How the windows of a graph go on: told from what it was cut with, or from the windows so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dysat.data.windows import (
    CALENDAR_UNITS,
    FIXED_UNITS,
    MAX_SNAPSHOTS,
    Clock,
    Every,
    Width,
    as_datetime,
    write_moment,
    write_span,
)
from dysat.errors import SnapshotsError


@dataclass(frozen=True)
class Grid:
    """How the windows of a graph go on: edge k is `start + k · width / count`, or k calendar widths after `start`.

    Example:
        >>> grid = Grid.of([0, 3, 6], "step")
        >>> print(grid, grid.edges_until(6, 10, whole=False), grid.edges_until(6, 10, whole=True))
        every 3 steps, as so far [6, 9, 12] [6, 9]
    """

    start: int
    width: Width  # of `count` windows together
    count: int
    clock: Clock
    text: str

    @classmethod
    def of(
        cls, boundaries: Sequence[int], clock: Clock, *, every: Every | None = None, count: int | None = None
    ) -> Grid:
        """From what a graph was cut with, `every` or `count`; with neither it is told from the boundaries."""
        edges = [int(edge) for edge in boundaries]
        if every is not None and count is not None:
            raise SnapshotsError("give one of every= and count=, not both")
        if every is not None:
            width = Width.parse(every, clock)
            text = every.strip() if isinstance(every, str) and clock == "utc" else _write_width(width, clock)
            return cls(edges[0], width, 1, clock, f"every {text}")
        if count is not None:
            if not isinstance(count, int) or not 1 <= count < len(edges):
                raise SnapshotsError(f"count={count}, but the graph has {len(edges) - 1:,} windows")
            return cls._equal(edges[: count + 1], clock)  # those after them came by the same grid
        return _recognised(edges, clock)

    @classmethod
    def _equal(cls, edges: list[int], clock: Clock) -> Grid:
        count, span = len(edges) - 1, edges[-1] - edges[0]
        text = f"{count} equal windows of {write_span(span / count, clock)}"
        return cls(edges[0], Width(span=span), count, clock, text)

    def edge(self, k: int) -> int:
        """Where window `k` begins, counted from the graph's first."""
        if self.width.months:
            return self.width.edge(self.start, k)
        return self.start + self.width.span * k // self.count

    def edges_until(self, last: int, moment: int, *, whole: bool) -> list[int]:
        """`last` and the edges after it: up to the window that holds `moment`, or only of windows `whole` by then."""
        first, beyond = self._after(last), self._after(moment)
        number = max(0, beyond - first + (not whole)) if moment >= last else 0
        if number > MAX_SNAPSHOTS:
            at = write_moment(moment, self.clock)
            cause = f"until={at}" if whole else f"the event of {at}"
            hint = "" if whole else "; until= can leave it for later"
            most = f"{number:,} more snapshots, more than {MAX_SNAPSHOTS:,}"
            raise SnapshotsError(f"{self}: {cause} would make {most}{hint}")
        return [last, *(self.edge(k) for k in range(first, first + number))]

    def _after(self, moment: int) -> int:
        """The number of the first edge after a moment."""
        if self.width.months:
            k = (_month(moment) - _month(self.start)) // self.width.months - 1
        else:
            k = (moment - self.start) * self.count // self.width.span
        k = max(0, k)
        while self.edge(k) <= moment:
            k += 1
        return k

    def __str__(self) -> str:
        return self.text


def _recognised(edges: list[int], clock: Clock) -> Grid:
    """The grid of windows that are equally long, or as long as calendar months, quarters or years."""
    widths = [after - before for before, after in pairwise(edges)]
    if len(widths) < 2:
        raise SnapshotsError("one window does not say how long the next are; boundaries= must say where they end")
    width = _calendar(edges) if clock == "utc" else None
    # July and August are equally long; where they begin on the first, as calendar windows do, they are months.
    if len(set(widths)) == 1 and (width is None or width.floor(edges[0]) != edges[0]):
        width = Width(span=widths[0])
    if width is not None:
        return Grid(edges[0], width, 1, clock, f"every {_write_width(width, clock)}, as so far")
    if clock == "utc" and max(widths) - min(widths) <= 1:  # as count= makes them; it may have made the first of them
        for count in range(len(widths), 1, -1):
            equal = Grid._equal(edges[: count + 1], clock)
            if all(equal.edge(k) == edge for k, edge in enumerate(edges)):
                return equal
    other = next(width for width in widths if width != widths[0])
    texts = [write_span(width, clock) for width in (widths[0], other)]
    raise SnapshotsError(f"the windows are uneven ({texts[0]}, {texts[1]}), so boundaries= must say where the next end")


def _calendar(edges: list[int]) -> Width | None:
    """The months between all edges, if there is such a number."""
    try:
        months = _month(edges[1]) - _month(edges[0])
        width = Width(months=months)
        fits = months > 0 and all(width.edge(edges[0], k) == edge for k, edge in enumerate(edges))
    except SnapshotsError:
        return None
    return width if fits else None


def _month(moment: int) -> int:
    """Months since the year 0."""
    try:
        at = as_datetime(moment)
    except OverflowError:
        raise SnapshotsError("windows would run past the year 9999") from None
    return at.year * 12 + at.month


def _write_width(width: Width, clock: Clock) -> str:
    """A width as it is given: `30d`, `1q`; or `3 steps`."""
    if clock == "step":
        return write_span(width.span, clock)
    units, length = (CALENDAR_UNITS, width.months) if width.months else (FIXED_UNITS, width.span)
    unit = max((unit for unit, size in units.items() if length % size == 0), key=lambda unit: units[unit])
    return f"{length // units[unit]}{unit}"
