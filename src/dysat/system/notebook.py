"""What a notebook shows: results as tables and data frames, and a progress bar."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

from dysat.system.extras import require
from dysat.system.progress import is_heard, listening
from dysat.system.text.printable import printable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

STYLE = "text-align: {}; padding: 0.1em 0.8em"
PAUSE = 0.1  # seconds between two changes of a progress bar


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> str:
    """Return an HTML table with a title above and a note below; every text is escaped.

    Columns of numbers are aligned to the right: those whose name begins with ">", as in the tables of the terminal.
    """
    sides = ["right" if name.startswith(">") else "left" for name in columns]
    names = [name.removeprefix(">") for name in columns]
    head = "".join(_cell("th", name, side) for name, side in zip(names, sides, strict=True))
    body = "".join(
        f"<tr>{''.join(_cell('td', value, side) for value, side in zip(row, sides, strict=True))}</tr>" for row in rows
    )
    lines = "<br>".join(escape(printable(line)) for line in title.split("\n"))
    below = f"<p><small>{escape(printable(note))}</small></p>" if note else ""
    return f"<div><p>{lines}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"


def _cell(tag: str, value: Any, side: str) -> str:
    return f'<{tag} style="{STYLE.format(side)}">{escape(printable(value))}</{tag}>'


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel; nothing is imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class Table(ABC):
    """A result that is also a table."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """Return the rows of the table."""

    def to_polars(self) -> pl.DataFrame:
        """Return `records` as a Polars data frame."""
        import polars as pl

        return pl.DataFrame(self.records(), infer_schema_length=None)

    def to_pandas(self) -> pd.DataFrame:
        """Return `records` as a pandas data frame."""
        require("pandas", "to_pandas()")
        import pandas as pd

        return pd.DataFrame(self.records())


class NotebookBar:
    """One line of a notebook's output with a bar, what is being done, and the seconds so far."""

    def __init__(self) -> None:
        from IPython.display import display

        self.what, self.done, self.total = "", 0, 0
        self.began, self.shown = time.monotonic(), 0.0
        show: Any = display  # without types
        self.handle = show(self, display_id=True)

    def update(self, what: str, done: int = 0, total: int = 0) -> None:
        """Show what is being done, and how many of all pieces are finished (0 of 0: not known)."""
        self.what, self.done, self.total = what, done, total
        now = time.monotonic()
        if self.handle is not None and (now - self.shown >= PAUSE or done == total > 0):
            self.shown = now
            self.handle.update(self)

    def close(self) -> None:
        """Remove the bar."""
        if self.handle is not None:
            self.handle.update({"text/plain": "", "text/html": ""}, raw=True)

    def __repr__(self) -> str:
        pieces = f" {self.done:,} of {self.total:,}" if self.total else ""
        return f"{printable(self.what)}{pieces}, {time.monotonic() - self.began:.0f} s"

    def _repr_html_(self) -> str:
        known = f' value="{self.done}" max="{self.total}"' if self.total else ""
        return f"<progress{known}></progress> {escape(repr(self))}"


@contextmanager
def notebook_progress() -> Iterator[None]:
    """Show in a notebook what the work inside reports, unless somebody listens already."""
    if is_heard() or not in_notebook():
        yield
        return
    bar = NotebookBar()
    try:
        with listening(bar.update):
            yield
    finally:
        bar.close()
