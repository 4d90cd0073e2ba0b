"""Errors a user can cause. Every message is one line that names the facts: the file, the row, the value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

MAX_LENGTH = 1_000  # characters of a message


class DysatError(Exception):
    """Base class of all errors that dysat raises on purpose; the message is always one printable line."""

    def __init__(self, message: str) -> None:
        message = message[: 2 * MAX_LENGTH]
        plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
        super().__init__(plain if len(plain) <= MAX_LENGTH else f"{plain[:MAX_LENGTH]}…")


class EventsError(DysatError):
    """The events cannot be read: a missing column, an unreadable time, a damaged file."""


class SnapshotsError(DysatError):
    """The events cannot be split into the requested snapshots."""


class GraphError(DysatError):
    """A graph is inconsistent, or its folder is missing, damaged or written by a newer version."""


class DatasetError(DysatError):
    """A dataset is unknown, missing or not the expected file."""


class ModelError(DysatError):
    """A model's options are invalid for each other or for the graph, or its files are missing, damaged or foreign."""


@contextmanager
def reporting_damage(where: object, error: type[DysatError], *, keep: bool = False) -> Iterator[None]:
    """Turn the exceptions that damaged content causes into one line: `where: damaged: what`.

    `keep` leaves a `DysatError` as it is.
    """
    try:
        yield
    except DysatError as problem:
        if keep or str(problem).startswith(f"{where}: "):
            raise
        raise error(f"{where}: damaged: {problem}") from None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as problem:
        if type(problem).__name__ == "OutOfMemoryError":  # of torch, on CUDA
            raise
        raise error(f"{where}: damaged: {type(problem).__name__}: {problem}") from None


def nearest(wanted: object, known: Iterable[object]) -> str:
    """Return a hint to append to an error message, `"; did you mean 'sent'?"`, or an empty string."""
    names = {str(name).lower(): str(name) for name in known}
    close = get_close_matches(str(wanted).lower(), names, n=1)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def listed(names: Iterable[object], most: int = 20) -> str:
    """Join names with commas for a message; past `most`, the rest is only counted."""
    texts = [str(name) for name in names]
    rest = f", … ({len(texts) - most} more)" if len(texts) > most else ""
    return ", ".join(texts[:most]) + rest
