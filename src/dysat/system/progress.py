"""What a long computation is doing now, for whoever shows it.

The library calls `report` at the start of each piece of work that may take seconds. It does nothing unless a caller has
installed a function with `listening`, for its own thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Receives what is being done, the number of its pieces that are finished, and the number of all pieces (0: not known).
OnReport = Callable[[str, int, int], None]
_listener: ContextVar[OnReport | None] = ContextVar("listener", default=None)


def report(what: str, done: int = 0, total: int = 0) -> None:
    """Say what is being done now: `report("pair score: transition", 1, 4)` before the second of four."""
    if (listener := _listener.get()) is not None:
        listener(what, done, total)


def is_heard() -> bool:
    """Whether anybody listens."""
    return _listener.get() is not None


@contextmanager
def listening(on_report: OnReport) -> Iterator[None]:
    """Pass all reports of the work inside to a function."""
    before = _listener.set(on_report)
    try:
        yield
    finally:
        _listener.reset(before)
