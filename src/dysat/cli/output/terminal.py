"""Where text reaches the terminal: nothing that was read from a file can act on it.

Labels, names, notes and errors go through `foreign` or `say`. Tables and the console make text printable once more, so
that a forgotten call shows at most a wrong colour, and never sends a control character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import Task, TextColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dysat.system.text.printable import printable

NOTHING = "[none][/none]"  # markup without effect


def foreign(text: object) -> str:
    r"""Return foreign text as Rich markup that shows just this text, on one line and without control characters.

    `rich.markup.escape` knows complete tags only: a label may open a tag that the text after it closes.

    Example:
        >>> Text.from_markup(foreign("[bold]x") + "]" + foreign("back\\") + "[dim]y[/dim]").plain
        '[bold]x]back\\y'
    """
    return re.sub(r"\[|\\+(?=\[|$)", _inert, printable(text))


def _inert(found: re.Match[str]) -> str:
    """A bracket that opens no tag, or backslashes that escape none."""
    return f"{'[' if found[0] == '[' else 2 * found[0]}{NOTHING}"


def say(text: str) -> None:
    """Print a line on the error stream."""
    typer.echo(printable(text), err=True)


def one_line(message: str) -> str:
    """Return a message as one line: line breaks become spaces, and what is hidden becomes visible."""
    return printable(" ".join(re.split("[ \n]+", message.replace("\r\n", "\n").strip(" \n"))))


class SafeConsole(Console):
    """A console that prints no control characters except its own, and takes no text for an emoji."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(_printable_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else _printable_lines(segment.text)
            yield segment if text is segment.text else Segment(text, segment.style)


class SafeTable(Table):
    """A table whose cells are single lines of printable text."""

    def add_column(self, header: RenderableType = "", *others: Any, **options: Any) -> None:
        super().add_column(_safe(header), *others, **options)

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*map(_safe, cells), **options)


class PlainColumn(TextColumn):
    """A column of a progress display that shows a field of a task as it is, without markup."""

    def __init__(self, text: str) -> None:
        super().__init__(text, markup=False)

    def render(self, task: Task) -> Text:
        return Text(printable(super().render(task).plain))


def _printable_lines(text: str) -> str:
    """Make text printable, and keep its line breaks."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(map(printable, text.split("\n")))


def _safe(cell: Any) -> Any:
    return printable(cell) if isinstance(cell, str) else cell
