"""Tables and figures as files: Markdown and CSV, pictures and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dysat.errors import ModelError
from dysat.experiments.paper.catalogue import Target
from dysat.experiments.paper.cells import Table
from dysat.experiments.paper.figures import FIGURES
from dysat.experiments.paper.pictures import Picture
from dysat.experiments.paper.records import NothingMeasuredError, Results
from dysat.experiments.paper.reproduce import datasets_of
from dysat.experiments.paper.tables import TABLES
from dysat.system.storage import replace_file

PICTURES = (".svg", ".png")


def made_of(
    targets: Sequence[Target], results: Results, datasets: Sequence[str]
) -> tuple[list[Table | Picture], list[str]]:
    """Each table and figure from what was measured on some datasets; and for which there is nothing."""
    made: list[Table | Picture] = []
    lacking = []
    for target in targets:
        try:
            made.append((TABLES.get(target) or FIGURES[target])(results, datasets_of(target, datasets)))
        except NothingMeasuredError as problem:
            lacking.append(str(problem))
    if lacking and not made:
        raise ModelError(lacking[0])
    return made, lacking


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
    with replace_file(file, ModelError) as beside:
        beside.write_text(text, encoding="utf-8")
    return file
