"""A page to look at: facts and arrays of a model, as HTML in a file or in a notebook."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from dysat.errors import ModelError
from dysat.report.content import Content
from dysat.report.pack import html_page
from dysat.system.storage import replace_file
from dysat.system.text.printable import printable
from dysat.system.writing import check_place

FORMAT = 1
MARK = b'<meta name="generator" content="dysat">'  # at the beginning of every page
FRAME_HEIGHT = 820  # pixels, in a notebook


def check_page(file: Path) -> None:
    """Raise before any work if a page cannot be written to this file; an older page is replaced, nothing else."""
    check_place(file.absolute(), ModelError)
    if file.suffix.lower() not in (".html", ".htm"):
        raise ModelError(f"{file}: a page needs a name that ends with .html")
    if not file.exists():
        return
    try:
        with file.open("rb") as opened:
            is_page = MARK in opened.read(4096)
    except OSError as problem:
        raise ModelError(f"{file}: cannot be replaced: {problem.strerror or problem}") from None
    if not is_page:
        raise ModelError(f"{file}: exists already and is no page of dysat; choose another name")


@dataclass(frozen=True, eq=False, repr=False)
class Page:
    """An interactive page in one HTML file: overview, forecast, map, node and attention.

    It needs no network and no server. In a notebook it is shown in a frame.
    """

    title: str
    content: Content
    about: Mapping[str, Any]  # facts that do not come from the model: the method, the verdict, a backtest, …

    @property
    def facts(self) -> dict[str, Any]:
        """All facts of the page."""
        version = sys.modules["dysat"].__version__  # the package itself is above this room
        named = {"format": FORMAT, "title": printable(self.title), "made_by": f"dysat {version}"}
        facts = {**named, "backtest": None, **self.content.facts, **self.about, "missing": self.content.missing}
        facts["learned_from"] = [[printable(cell) for cell in row] for row in facts["learned_from"]]
        facts["notes"] = [printable(note) for note in facts["notes"]]
        return facts

    @cached_property
    def html(self) -> str:
        """The page as HTML."""
        return html_page(self.title, self.facts, self.content.arrays)

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write the page to a file, which is replaced at once, and return its path."""
        path = Path(file)
        data = self.html.encode()
        with replace_file(path, ModelError, needed=len(data)) as temporary:
            temporary.write_bytes(data)
        return path

    def open(self, file: str | os.PathLike[str]) -> None:
        """Write the page to a file and show it in a browser."""
        webbrowser.open(self.save(file).absolute().as_uri())

    def __repr__(self) -> str:
        nodes, windows = len(self.content.facts["labels"]), len(self.content.facts["windows"])
        return f"Page({printable(self.title)!r}): {nodes:,} nodes, {windows:,} windows; save(file) writes it"

    def _repr_html_(self) -> str:
        """A frame with the page; its script can reach neither the notebook nor the network."""
        frame = f'sandbox="allow-scripts allow-downloads" width="100%" height="{FRAME_HEIGHT}" style="border: 0"'
        return f'<iframe {frame} srcdoc="{escape(self.html)}"></iframe>'
