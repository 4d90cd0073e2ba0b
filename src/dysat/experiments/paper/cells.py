"""Tables of measured and published values, as text, Markdown and CSV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dysat.system.text.csv_text import csv_text
from dysat.system.text.printable import printable

MINUS = "−"
NONE = "–"
FIELDS = (
    *("table", "dataset", "row", "measure", "ours", "ours_sd", "paper", "paper_sd", "difference"),
    *("steps", "left_out", "method"),
)


@dataclass(frozen=True)
class Cell:
    """One measure of one row on one dataset: AUC in per cent, or a count; None if there is no value."""

    dataset: str
    row: str
    measure: str
    ours: float | None = None
    ours_sd: float | None = None
    paper: float | None = None
    paper_sd: float | None = None
    steps: int = 0  # predicted snapshots that were measured
    left_out: Mapping[str, str] = field(default_factory=dict)
    method: str = ""  # shown next to the value if the row does not name it
    best: bool = False
    count: bool = False

    @property
    def difference(self) -> float | None:
        """Our value minus the paper's, both as printed."""
        if self.ours is None or self.paper is None:
            return None
        return round(round(self.ours, 2) - self.paper, 2)

    def text(self, bold: str = "") -> str:
        """Return text like `85.48 ± 0.73 (85.81 ± 0.1, −0.33)`; `bold` encloses the best value."""
        mark = bold if self.best else ""
        own = NONE if self.ours is None else f"{mark}{self._number(self.ours)}{mark}"
        if self.ours is not None and self.ours_sd is not None:
            own += f" ± {self.ours_sd:.2f}"
        if self.method:
            own += f" {self.method}"
        if self.paper is None:
            return own
        theirs = self._number(self.paper) + (f" ± {self.paper_sd:g}" if self.paper_sd is not None else "")
        apart = self.difference
        return f"{own} ({theirs})" if apart is None else f"{own} ({theirs}, {signed(apart, 0 if self.count else 2)})"

    def facts(self) -> tuple[object, ...]:
        """Return the fields of a CSV line after the table's name."""
        numbers = (self.ours, self.ours_sd, self.paper, self.paper_sd, self.difference)
        why = "; ".join(f"{target}: {reason}" for target, reason in self.left_out.items())
        known = (None if value is None else round(value, 4) for value in numbers)
        return (self.dataset, self.row, self.measure, *known, self.steps or None, why or None, self.method or None)

    def _number(self, value: float) -> str:
        return f"{value:,.0f}" if self.count else f"{value:.2f}"


@dataclass(frozen=True)
class Table:
    """Named rows of cells, with verdicts on the values and notes on how they were measured."""

    name: str
    title: str
    corner: str  # header of the first column
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()

    @property
    def header(self) -> tuple[str, ...]:
        return (self.corner, *self.columns)

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.dataset for _, cells in self.rows for cell in cells))

    def lines(self, bold: str = "") -> list[tuple[str, ...]]:
        """Return the texts of every row; `bold` encloses the best values."""
        return [(name, *(cell.text(bold) for cell in cells)) for name, cells in self.rows]

    def part(self, dataset: str) -> Table:
        """Return the columns of one dataset, which fit a screen."""
        keep = [i for i in range(len(self.columns)) if all(cells[i].dataset == dataset for _, cells in self.rows)]
        rows = tuple((name, tuple(cells[i] for i in keep)) for name, cells in self.rows)
        return replace(self, columns=tuple(self.columns[i] for i in keep), rows=rows)

    def markdown(self) -> str:
        """Return title, table, verdicts and notes as Markdown."""
        header = [f"| {' | '.join(self.header)} |", f"|---|{'---:|' * len(self.columns)}"]
        body = [f"| {' | '.join(printable(cell) for cell in line)} |" for line in self.lines("**")]
        parts = [f"### {self.title}", "\n".join([*header, *body])]
        parts += ["\n".join(f"- {printable(line)}" for line in lines) for lines in (self.verdicts, self.notes) if lines]
        return "\n\n".join(parts) + "\n"

    def csv(self) -> str:
        """Return CSV with one line per cell."""
        return csv_text(FIELDS, ((self.name, *cell.facts()) for _, cells in self.rows for cell in cells))


def signed(value: float, digits: int) -> str:
    """Format a number with its sign; zero has none."""
    text = f"{value:+,.{digits}f}".replace("-", MINUS)
    return text if any(digit in text for digit in "123456789") else text[1:]
