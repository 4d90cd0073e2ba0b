"""Write the tables and figures of results/paper, and the marked parts of docs/reproduction.md and docs/index.md.

    python benchmarks/reproduction.py

reads the JSON files in results/paper, which come from `dysat reproduce … --budget full`; it measures nothing itself.
The page shows the macro-AUC of the five tables; the other files in results/paper contain all figures.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from dysat.experiments.paper.catalogue import BOOSTING, DATASETS, DYSAT, TARGETS
from dysat.experiments.paper.cells import Table
from dysat.experiments.paper.lineup import find
from dysat.experiments.paper.outputs import made_of, write
from dysat.experiments.paper.pictures import Picture
from dysat.experiments.paper.records import Record, Results

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "results" / "paper"
ALL = ["enron", "uci", "yelp", "ml-10m"]
SHOWN = ("enron-loops", "uci", "yelp", "ml-10m")  # columns of the table on the start page


def main() -> None:
    """Write all tables, figures and generated blocks."""
    results = Results(FOLDER)
    made, _ = made_of(TARGETS, results, ALL)
    write(made, FOLDER)
    page = ROOT / "docs" / "reproduction.md"
    text = page.read_text(encoding="utf-8")
    for one in made:
        text = marked(text, one.name, body(one) if isinstance(one, Table) else notes(one))
    page.write_text(text, encoding="utf-8")
    start = ROOT / "docs" / "index.md"
    start.write_text(marked(start.read_text(encoding="utf-8"), "first", first(results)), encoding="utf-8")


def body(table: Table) -> str:
    """A table with its notes, reduced to the macro-AUC; Table 1 is complete."""
    keep = [i for i, cell in enumerate(table.rows[0][1]) if table.name == "table1" or cell.measure.startswith("macro")]
    rows = tuple((name, tuple(cells[i] for i in keep)) for name, cells in table.rows)
    columns = tuple(table.columns[i].removesuffix(", macro") for i in keep)
    return re.sub(r"^### .*\n\n", "", replace(table, columns=columns, rows=rows).markdown()).rstrip()


def notes(picture: Picture) -> str:
    """The notes of a figure: what is missing from it."""
    return "\n".join(f"- {note}" for note in picture.notes) or "The figure is complete: everything in it was measured."


def first(results: Results) -> str:
    """The table of the start page: the published figures, both readings of DySAT, the best heuristic and boosting."""
    lines = ["| macro-AUC | " + " | ".join(DATASETS[name] for name in SHOWN) + " |", "|---|" + "---:|" * len(SHOWN)]
    own = {"`dysat:program`, the authors' program": "dysat", "`dysat:text`, the paper's text": "dysat-text"}
    for name, slug in own.items():
        lines.append(row(name, [results.record("single-step", d, slug) for d in SHOWN]))
    published = [DYSAT["dysat"].figures("single_step", d) for d in SHOWN]
    lines.insert(2, "| published | " + " | ".join(f"{p.macro:.1f}" if p else "–" for p in published) + " |")
    best = [find(results, "single-step", d, "best-heuristic") for d in SHOWN]
    lines.append(row("best heuristic", best, named=True))
    lines.append(row("boosting on past transitions", [results.record("single-step", d, BOOSTING) for d in SHOWN]))
    return "\n".join(lines)


def row(name: str, records: list[Record | None], *, named: bool = False) -> str:
    """A row of a Markdown table; `named` adds the method of each record in brackets."""
    cells = ("–" if r is None else f"{100 * r.macro:.1f}" + f" ({r.row})" * named for r in records)
    return f"| {name} | {' | '.join(cells)} |"


def marked(text: str, name: str, body: str) -> str:
    """Replace the text between two marks."""
    mark = f"<!-- {name} -->"
    before, _, after = text.split(mark)
    return f"{before}{mark}\n\n{body}\n\n{mark}{after}"


if __name__ == "__main__":
    main()
