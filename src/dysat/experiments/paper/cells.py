"""A table of what was measured beside what the paper has, and how it is written."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

MINUS = "−"
NONE = "–"
FIELDS = (
    *("table", "dataset", "row", "measure", "ours", "ours_sd", "paper", "paper_sd", "difference"),
    *("steps", "left_out", "method"),
)


@dataclass(frozen=True)
class Cell:
    """One measure of one row on one dataset: AUC in per cent, or a count; None where there is no figure."""

    dataset: str
    row: str
    measure: str
    ours: float | None = None
    ours_sd: float | None = None
    paper: float | None = None
    paper_sd: float | None = None
    steps: int = 0  # predicted snapshots that were measured
    left_out: Mapping[str, str] = field(default_factory=dict)
    method: str = ""  # said beside the figure where the row does not tell it
    best: bool = False
    count: bool = False

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, of figures as they are printed."""
        if self.ours is None or self.paper is None:
            return None
        return round(round(self.ours, 2) - self.paper, 2)

    def text(self, bold: str = "") -> str:
        """`85.48 ± 0.73 (85.81 ± 0.1, −0.33)`; the best between marks."""
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
        """As a line of CSV has it, after the table's name."""
        numbers = (self.ours, self.ours_sd, self.paper, self.paper_sd, self.difference)
        why = "; ".join(f"{target}: {reason}" for target, reason in self.left_out.items())
        known = (None if value is None else round(value, 4) for value in numbers)
        return (self.dataset, self.row, self.measure, *known, self.steps or None, why, self.method)

    def _number(self, value: float) -> str:
        return f"{value:,.0f}" if self.count else f"{value:.2f}"


@dataclass(frozen=True)
class Table:
    """Named rows of cells, with notes about how they were measured and verdicts on what they say."""

    name: str
    title: str
    corner: str  # what the rows are
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
        """The texts of every row, as wide as the header; the best between marks."""
        return [(name, *(cell.text(bold) for cell in cells)) for name, cells in self.rows]

    def part(self, dataset: str) -> Table:
        """Only the columns of a dataset: what fits a screen."""
        keep = [i for i in range(len(self.columns)) if all(cells[i].dataset == dataset for _, cells in self.rows)]
        rows = tuple((name, tuple(cells[i] for i in keep)) for name, cells in self.rows)
        return replace(self, columns=tuple(self.columns[i] for i in keep), rows=rows)

    def markdown(self) -> str:
        """The table under its title, then what it says and how it was measured."""
        header = [f"| {' | '.join(self.header)} |", f"|---|{'---:|' * len(self.columns)}"]
        body = [f"| {' | '.join(line)} |" for line in self.lines("**")]
        parts = [f"### {self.title}", "\n".join([*header, *body])]
        parts += ["\n".join(f"- {line}" for line in lines) for lines in (self.verdicts, self.notes) if lines]
        return "\n\n".join(parts) + "\n"

    def csv(self) -> str:
        """One line for each cell."""
        return csv_text(FIELDS, ((self.name, *cell.facts()) for _, cells in self.rows for cell in cells))


def signed(value: float, digits: int) -> str:
    """With a sign, but for zero."""
    text = f"{value:+,.{digits}f}".replace("-", MINUS)
    return text if any(digit in text for digit in "123456789") else text[1:]


def csv_text(header: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """Lines of values as CSV; nothing for None."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return out.getvalue()
