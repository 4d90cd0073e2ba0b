"""Limits of what is read: columns, length of a line and of a label, and memory; each can be raised.

A file that somebody made on purpose, or a damaged one, can hold one line of a gigabyte or take all memory once it is
decompressed. The limits are checked before Polars sees the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from dysat.errors import EventsError, nearest
from dysat.system.hardware import free_memory

if TYPE_CHECKING:
    import polars as pl

GB = 10**9
ROW = 64  # bytes of memory per row, beyond its text: texts by reference, times, numbers of nodes
SHORTEST_ROW = 6  # bytes, as `1,2,3` and a line end
PARSED = {b"{": 240, b"[": 90, b",": 70}  # bytes of the Python objects that begin with each mark of a JSON text


@dataclass(frozen=True)
class Limits:
    """The largest file that is read; `memory` is in GB, and None stands for the memory that is free."""

    columns: float = 10_000
    label_length: float = 10_000
    line_length: float = 10_000_000
    memory: float | None = None
    advice: str = ""  # what else helps if rows need too much memory

    @classmethod
    def of(cls, given: Mapping[str, float] | Limits | None) -> Limits:
        """The default limits with those given."""
        if isinstance(given, Limits):
            return given
        known = [field.name for field in fields(cls) if field.name != "advice"]
        for name, value in (given or {}).items():
            if name not in known:
                raise EventsError(f"limits: {name!r} is not one of {', '.join(known)}{nearest(name, known)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise EventsError(f"limits: {name} must be a number above 0, not {value!r}")
        chosen: dict[str, Any] = dict(given or {})
        return cls(**chosen)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> dict[str, float]:
        """The limits of texts such as `label-length=20000`."""
        found = {}
        for text in texts:
            name, _, value = text.partition("=")
            try:
                found[name.strip().replace("-", "_")] = float(value)
            except ValueError:
                raise EventsError(f"--limit {text}: expected a name and a number, as label-length=20000") from None
        return found

    def check_columns(self, name: str, number: int) -> None:
        """Refuse a table with too many columns."""
        if number > self.columns:
            raise EventsError(
                f"{name}: has {number:,} columns, more than {self.columns:,.0f}; {_raised('columns', number)} allows it"
            )

    def check_line(self, name: str, number: int | None, length: int) -> None:
        """Refuse a line of at least `length` bytes."""
        if length > self.line_length:
            where = f", line {number:,}: is" if number else ": has a line that is"
            raise EventsError(
                f"{name}{where} longer than {self.line_length:,.0f} bytes; "
                f"{_raised('line_length', 10 * int(self.line_length))} allows it"
            )

    def check_labels(self, name: str, column: pl.Series) -> None:
        """Refuse a column with a text that is too long for a label."""
        import polars as pl

        if column.dtype != pl.String or (column.str.len_bytes().max() or 0) <= self.label_length:  # type: ignore[operator]
            return
        lengths = column.str.len_chars()
        length, row = lengths.max(), lengths.arg_max()
        if isinstance(length, int) and length > self.label_length:
            label = column[row][:20]  # type: ignore[index]
            raise EventsError(
                f"{name}: column {column.name!r} has a label of {length:,} characters, more than "
                f"{self.label_length:,.0f} ({label!r}…); {_raised('label_length', length)} allows it"
            )

    def check_memory(self, name: str, needed: float, what: str, *, in_batches: bool = False) -> None:
        """Refuse what would need more memory than there is; `what` says what was counted, such as rows.

        If the file can also be read `in_batches`, the message ends with the advice.
        """
        if needed <= self._least():  # no need to ask the system
            return
        there = self.bytes()
        if needed > there:
            means = "is free" if self.memory is None else "is allowed"
            raise EventsError(
                f"{name}: {what} need about {needed / GB:.1f} GB of memory, but {there / GB:.1f} GB {means}; "
                f"{_raised('memory', int(needed / GB) + 1)} allows it{self.advice * in_batches}"
            )

    def bytes(self) -> float:
        """The memory that may be used, in bytes."""
        return free_memory() if self.memory is None else self.memory * GB

    def _least(self) -> float:
        """Memory that is always there, in bytes, unless a limit says otherwise."""
        return GB / 4 if self.memory is None else 0


def text_memory(size: float, rows: float) -> float:
    """Bytes of memory that reading a text of that size takes."""
    return size + ROW * rows


def _raised(name: str, value: int) -> str:
    """How a limit is raised, in Python; the command line has its own words for it."""
    return f"limits={{'{name}': {value}}}"


def json_memory(counts: Mapping[bytes, int], size: int) -> float:
    """Bytes of memory that a parsed JSON text takes: the text twice, its values, and the objects around them."""
    return 3 * size + sum(each * counts[mark] for mark, each in PARSED.items())
