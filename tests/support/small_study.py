"""A small reproduction: graphs with as many snapshots as the paper's datasets, and rows trained for few epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dysat
from dysat.experiments.evaluate.job import Job, Worker
from dysat.experiments.paper import catalogue as paper
from dysat.experiments.paper.records import Record, Results
from dysat.experiments.paper.reproduce import reproduce

CHEAP = ("edge-memory", "edgebank", "degree-product")
TINY = {"dysat": {"epochs": 1, "walks_per_node": 1, "walk_length": 5}, "gcn-ae": {"epochs": 2}}


def make_graph(steps: int = 13, seed: int = 0, size: int = 36) -> dysat.DynamicGraph:
    """About two new nodes per snapshot, and fifty links among known nodes, including self-loops."""
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(steps):
        known = 12 + step * (size - 12) // (steps - 1)
        rows += [(f"n{u}", f"n{v}", step) for u, v in rng.integers(0, known, (50, 2)).tolist()]
        rows.append((f"n{known - 1}", "n0", step))
    events = dysat.read_events(tuple(list(column) for column in zip(*rows, strict=True)), time_unit="step")
    return dysat.build_snapshots(events, every=1, self_loops="keep")


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train rows for one or two epochs, in all tables of rows."""
    for rows in (paper.BASELINES, paper.DYSAT, paper.ABLATIONS, paper.ROWS):
        for slug, row in rows.items():
            if row.preset in TINY:
                monkeypatch.setitem(rows, slug, replace(row, changes={**TINY[row.preset], **row.changes}))


def run(folder: Path, graphs: Any, targets: Sequence[Any] = ("table2",), **given: Any) -> Results:
    options = {"methods": CHEAP, "budget": "quick", "device": "cpu", "processes": 1, **given}
    return reproduce(targets, graphs if isinstance(graphs, dict) else {"uci": graphs}, folder, **options)


def comparable(record: Record | None) -> dict[str, Any]:
    """Return a record without date and times."""
    assert record is not None
    return {key: value for key, value in asdict(record).items() if key not in ("seconds", "about")}


def rows(results: Results, study: str = "single-step", dataset: str = "uci") -> dict[str, Any]:
    return {record.row: comparable(record) for record in Results(results.folder).records(study, dataset)}


def count_jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Record method and step of every job that runs in this process."""
    calls: list[tuple[str, int]] = []
    original = Worker.run

    def counted(worker: Worker, job: Job) -> Any:
        calls.append((job.contender.method, job.step))
        return original(worker, job)

    monkeypatch.setattr(Worker, "run", counted)
    return calls
