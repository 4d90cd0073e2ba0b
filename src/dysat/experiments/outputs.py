"""Tables and figures as files: Markdown and CSV, pictures and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dysat.data.storage import write_beside
from dysat.errors import ModelError
from dysat.experiments.cells import Table
from dysat.experiments.figures import FIGURES
from dysat.experiments.paper import Target
from dysat.experiments.pictures import Picture
from dysat.experiments.reproduce import datasets_of
from dysat.experiments.results import Results
from dysat.experiments.tables import TABLES

PICTURES = (".svg", ".png")


def made_of(targets: Sequence[Target], results: Results, datasets: Sequence[str]) -> list[Table | Picture]:
    """Each table and figure from what was measured on some datasets."""
    return [(TABLES.get(t) or FIGURES[t])(results, datasets_of(t, datasets)) for t in targets]


def write(made: Sequence[Table | Picture], folder: Path) -> list[Path]:
    """Every table as NAME.md and NAME.csv, every figure as NAME.svg, NAME.png and NAME.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for one in made:
        if isinstance(one, Table):
            files.append(_text(folder / f"{one.name}.md", one.markdown()))
            files.append(_text(folder / f"{one.name}.csv", one.csv()))
            continue
        for ending in PICTURES:
            one.draw(folder / f"{one.name}{ending}")
            files.append(folder / f"{one.name}{ending}")
        files.append(_text(folder / f"{one.name}.csv", one.csv))
    return files


def _text(file: Path, text: str) -> Path:
    with write_beside(file, ModelError) as beside:
        beside.write_text(text, encoding="utf-8")
    return file
