"""Errors a user can cause. Every message is one line that names the fact: the file, the row, the value."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 1_000  # characters of a message


class DysatError(Exception):
    """Base of every error dysat raises on purpose; its message is one printable line, whatever it quotes."""

    def __init__(self, message: str) -> None:
        plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message[: 2 * LONGEST])
        super().__init__(plain if len(plain) <= LONGEST else f"{plain[:LONGEST]}…")


class EventsError(DysatError):
    """The events cannot be read: a missing column, an unreadable time, a damaged file."""


class SnapshotsError(DysatError):
    """The events cannot be cut into the snapshots asked for."""


class GraphError(DysatError):
    """A graph is inconsistent, or its folder is missing, damaged or of a newer version."""


class DatasetError(DysatError):
    """A dataset is unknown, absent or not the file it should be."""


class ModelError(DysatError):
    """A model's options do not fit each other or the graph, or its files are missing, damaged or not its own."""


def nearest(wanted: object, known: Iterable[object]) -> str:
    """A hint to close an error message with, or nothing: `"; did you mean 'sent'?"`."""
    names = {str(name).lower(): str(name) for name in known}
    close = get_close_matches(str(wanted).lower(), names, n=1)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def listed(names: Iterable[object], most: int = 20) -> str:
    """Names for a message, comma-separated, shortened past `most`."""
    texts = [str(name) for name in names]
    rest = f", … ({len(texts) - most} more)" if len(texts) > most else ""
    return ", ".join(texts[:most]) + rest
