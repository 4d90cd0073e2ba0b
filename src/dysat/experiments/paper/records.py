"""What a reproduction has measured: one JSON file for each study and dataset, a record in it for each row.

results/single-step_uci.json    the rows of a study on a dataset; "enron-loops" is Enron with self-loops counted
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from dysat.errors import ModelError
from dysat.experiments.evaluate.outcome import Figures
from dysat.system.storage import replace_file

FORMAT_VERSION = 1


class NothingMeasuredError(ModelError):
    """A row, table or figure would be empty."""


@dataclass(frozen=True)
class Point:
    """One predicted snapshot: AUC is a fraction, its deviation that of the repeats (None for one repeat)."""

    target: int
    links: int
    auc: float
    auc_sd: float | None
    average_precision: float
    validation_auc: float


@dataclass(frozen=True)
class Record:
    """One row of a table on one dataset. `key` says of what content it is: graph, options, request and code."""

    row: str
    method: str
    options: dict[str, Any]
    key: str
    macro: float
    macro_sd: float | None
    micro: float
    micro_sd: float | None
    steps: tuple[Point, ...]
    left_out: dict[str, str]  # predicted snapshots without a figure, and why
    seconds: float
    about: dict[str, Any] = field(default_factory=dict)  # date, hardware, device, packages, version

    @property
    def validation(self) -> float:
        """Mean validation AUC of the steps: what choices are made by."""
        return fmean(step.validation_auc for step in self.steps)

    @classmethod
    def of(cls, row: str, key: str, figures: Figures, about: Mapping[str, Any], left_out: Mapping[str, str]) -> Record:
        """What an evaluation found of one model, by the probe of the paper."""
        known = figures.means()
        if known is None:
            why = next(iter(figures.problems.values()), "no step has a figure")
            raise NothingMeasuredError(f"{row}: {why}")
        steps = [
            Point(
                step.result.target,
                step.links,
                step.result.auc,
                _number(step.result.auc_sd),
                step.result.average_precision,
                step.result.validation_auc,
            )
            for step in figures.of()
            if step.result.target in known.targets
        ]
        problems = {str(int(step) + 1): why for step, why in figures.problems.items()}  # each step's next snapshot
        return cls(
            row=row,
            method=figures.method,
            options=figures.options,
            key=key,
            macro=known.macro_auc,
            macro_sd=_number(known.macro_auc_sd),
            micro=known.micro_auc,
            micro_sd=_number(known.micro_auc_sd),
            steps=tuple(sorted(steps, key=lambda step: step.target)),
            left_out={**left_out, **{str(target): "no figure" for target in known.left_out}, **problems},
            seconds=round(figures.seconds, 2),
            about=dict(about),
        )

    @classmethod
    def restore(cls, facts: Mapping[str, Any]) -> Record:
        """From what JSON has of it."""
        return cls(**{**facts, "steps": tuple(Point(**step) for step in facts["steps"])})


class Results:
    """A folder of such files; what is put into it is on the disk when `put` returns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []  # rows that no step has a figure of, and why
        self._files: dict[str, dict[str, Any]] = {}

    def record(self, study: str, dataset: str, row: str) -> Record | None:
        """One row, or None where it was not measured."""
        name = f"{study}_{dataset}"
        facts = self._rows(name).get(row)
        if facts is None:
            return None
        try:
            return Record.restore(facts)
        except (KeyError, TypeError) as problem:
            file = self.folder / f"{name}.json"
            raise ModelError(f"{file}: {row} is no record ({problem}); move the file away to measure again") from None

    def records(self, study: str, dataset: str) -> Iterator[Record]:
        """All rows of a study on a dataset; what begins with _ is none."""
        for row in self._rows(f"{study}_{dataset}"):
            found = None if row.startswith("_") else self.record(study, dataset, row)
            if found is not None:
                yield found

    def put(self, study: str, dataset: str, record: Record) -> None:
        """Keep a row, in place of an older one."""
        self.put_facts(study, dataset, record.row, json.loads(json.dumps(asdict(record))))

    def facts(self, study: str, dataset: str, row: str) -> dict[str, Any] | None:
        """What was kept by `put_facts`."""
        found: dict[str, Any] | None = self._rows(f"{study}_{dataset}").get(row)
        return found

    def put_facts(self, study: str, dataset: str, row: str, facts: Mapping[str, Any]) -> None:
        """Keep what is no record of steps: attention, times."""
        name = f"{study}_{dataset}"
        file = self.folder / f"{name}.json"
        rows = {**_read(file), row: dict(facts)}  # another run may have put rows there meanwhile
        self.folder.mkdir(parents=True, exist_ok=True)
        with replace_file(file, ModelError) as beside:
            whole = {"format": FORMAT_VERSION, "study": study, "dataset": dataset, "rows": rows}
            beside.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        self._files[name] = rows

    def _rows(self, name: str) -> dict[str, Any]:
        if name not in self._files:
            self._files[name] = _read(self.folder / f"{name}.json")
        return self._files[name]


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        rows = found["rows"]
        if found["format"] != FORMAT_VERSION or not isinstance(rows, dict):
            raise ValueError("of another version")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise ModelError(f"{file}: no results of dysat reproduce ({problem}); move it away to measure again") from None
    return rows


def _number(value: float) -> float | None:
    return None if isnan(value) else value
