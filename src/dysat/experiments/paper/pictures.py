"""A figure as a picture and as CSV; the same values give the same bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dysat.errors import ModelError
from dysat.experiments.paper.catalogue import DATASETS
from dysat.experiments.paper.records import NothingMeasuredError
from dysat.system.extras import require
from dysat.system.storage import replace_file
from dysat.system.text.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Metadata that would change with every drawing.
DATES: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}
ACROSS = 2  # panels per row
# Colours that are safe for colour-blind readers.
RED, BLUE, SKY, GREEN, ORANGE, PURPLE = "#D55E00", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7"
Found = TypeVar("Found")


@dataclass(frozen=True)
class Picture:
    """A figure of the paper with our results; `notes` list what is missing."""

    name: str
    title: str
    csv: str
    build: Callable[[], Figure]
    notes: tuple[str, ...] = ()

    def draw(self, file: str | os.PathLike[str]) -> None:
        """Draw to a .svg, .png or .pdf file."""
        require("matplotlib", "a figure")
        import matplotlib

        path = Path(file)
        if path.suffix.lower() not in DATES:
            raise ModelError(f"{path}: the name of a picture must end in {', '.join(DATES)}")
        # Keep text as text, and derive ids from the name; matplotlib only offers rc parameters for both.
        with (
            matplotlib.rc_context({"svg.hashsalt": self.name, "svg.fonttype": "none"}),
            replace_file(path, ModelError) as beside,
        ):
            self.build().savefig(beside, dpi=150, metadata=DATES[path.suffix.lower()])


def panels(names: Sequence[str], *, height: float = 3.2, across: int = ACROSS) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with a panel for each name."""
    from matplotlib.figure import Figure

    columns = min(across, len(names))
    rows = ceil(len(names) / columns)
    figure = Figure(figsize=(2.6 + 4.4 * columns, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, number) for number in range(1, len(names) + 1)]
    for name, one in zip(names, axes, strict=True):
        one.set_title(name, fontsize="medium", loc="left")
        one.grid(alpha=0.25)
        one.tick_params(labelsize="small")
    return figure, axes


def finished(figure: Figure, title: str) -> Figure:
    """Add a title and one legend for all panels, without duplicates."""
    handles: dict[str, Any] = {}
    for one in figure.axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(printable(label), handle)
    if handles:
        look: dict[str, Any] = {"loc": "outside right upper", "fontsize": "small", "handlelength": 3.5}
        figure.legend(list(handles.values()), list(handles), **look)
    figure.suptitle(title, x=0.01, horizontalalignment="left")  # leaves room for the legend
    return figure


def found_in(name: str, found: Mapping[str, Found], asked: Sequence[str]) -> tuple[Mapping[str, Found], list[str]]:
    """Return what can be drawn, and notes on datasets without data; no data at all is an error."""
    if not found:
        raise NothingMeasuredError(f"{name}: nothing was measured on {', '.join(asked) or 'any dataset'}")
    return found, [f"{DATASETS[dataset]}: nothing was measured" for dataset in asked if dataset not in found]


def not_measured(dataset: str, what: Sequence[str]) -> list[str]:
    """Return a note if something is missing."""
    return [f"{DATASETS[dataset]}: not measured: {', '.join(what)}"] if what else []
