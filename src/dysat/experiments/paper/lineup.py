"""The rows of the paper's tables and figures: its nine methods (DySAT twice) and the heuristics to beat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from dysat.errors import ModelError, nearest
from dysat.experiments.paper.catalogue import BASELINES, BOOSTING, DATASETS, DYSAT, HEURISTICS, ROWS, TRANSITIONS
from dysat.experiments.paper.records import Record, Results

BEST = "best-heuristic"  # a row with the best heuristic of each dataset
LINEUP = (*BASELINES, *DYSAT, BEST, BOOSTING)
NAMES = {slug: row.name for slug, row in ROWS.items()} | {BEST: "best heuristic", BOOSTING: "gradient boosting"}


def find(results: Results, study: str, dataset: str, row: str) -> Record | None:
    """Return the record of a row, or None; for `BEST`, the record of the strongest heuristic."""
    return strongest(results, study, dataset) if row == BEST else results.record(study, dataset, row)


def heuristics(results: Results, study: str, dataset: str) -> list[Record]:
    """Return all measured heuristics, including those trained on past transitions."""
    found = (results.record(study, dataset, slug) for slug in HEURISTICS)
    return [record for record in found if record is not None]


def strongest(results: Results, study: str, dataset: str) -> Record | None:
    """Return the best untrained heuristic by validation AUC, never by test AUC, on the snapshots that all share."""
    known = [record for record in heuristics(results, study, dataset) if record.row not in TRANSITIONS]
    if not known:
        return None
    common = frozenset.intersection(*(targets(record) for record in known))

    def validation(record: Record) -> float:
        return fmean(step.validation_auc for step in record.steps if not common or step.target in common)

    return max(known, key=validation)


def targets(record: Record) -> frozenset[int]:
    """Return the predicted snapshots that have a value."""
    return frozenset(step.target for step in record.steps)


def side_by_side(one: Record, other: Record) -> tuple[float, float] | None:
    """Return the macro-AUC of both in per cent, on the snapshots that both have; None if they share none."""
    common = targets(one) & targets(other)
    if not common:
        return None
    if targets(one) == targets(other):
        return 100 * one.macro, 100 * other.macro
    first, second = (100 * fmean(s.auc for s in record.steps if s.target in common) for record in (one, other))
    return first, second


def check_datasets(datasets: Iterable[str]) -> Sequence[str]:
    """Return the datasets in the order of the paper; an unknown name is an error."""
    asked = tuple(datasets)
    for name in asked:
        if name not in DATASETS:
            raise ModelError(f"no dataset {name!r}; there are {', '.join(DATASETS)}{nearest(name, DATASETS)}")
    return [name for name in DATASETS if name in asked]
