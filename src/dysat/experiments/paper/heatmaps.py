"""Heat maps of temporal attention: mean weight between snapshots, and deviation over the nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dysat.errors import ModelError
from dysat.experiments.paper.catalogue import DATASETS, DYSAT
from dysat.experiments.paper.lineup import check_datasets
from dysat.experiments.paper.pictures import Picture, finished, found_in, not_measured
from dysat.experiments.paper.records import Results
from dysat.system.text.csv_text import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAPS = {"mean": "mean attention weight", "sd": "standard deviation over nodes"}
MAX_LABELLED = 16  # snapshots up to which values are written into the map


def fig_attention(results: Results, datasets: Iterable[str] = DATASETS) -> Picture:
    """Draw two maps per dataset and row of DySAT: the mean over nodes and heads, and the deviation over nodes."""
    name, title = "fig-attention", "Temporal attention"
    asked = check_datasets(datasets)
    found: dict[str, dict[str, _Map]] = {}
    for dataset in asked:
        for slug in DYSAT:
            facts = results.facts("attention", dataset, slug)
            if facts:
                found.setdefault(dataset, {})[slug] = _Map.of(dataset, facts)
    shown, notes = found_in(name, found, asked)
    for dataset, readings in shown.items():
        notes += not_measured(dataset, [row.name for slug, row in DYSAT.items() if slug not in readings])
    rows = [(dataset, slug, its) for dataset, readings in shown.items() for slug, its in readings.items()]

    def build() -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(12.5, 5.2 * len(rows)), layout="constrained")
        for number, (dataset, slug, its) in enumerate(rows):
            for column, (which, label) in enumerate(MAPS.items(), start=1):
                axes = figure.add_subplot(len(rows), len(MAPS), number * len(MAPS) + column)
                axes.set_title(f"{DATASETS[dataset]}, {DYSAT[slug].name}: {label}", fontsize="medium", loc="left")
                image = _draw_map(axes, its.steps, its.values[which])
                figure.colorbar(image, ax=axes, label=label, shrink=0.85)
        return finished(figure, title)

    header = ["figure", "dataset", "row", "snapshot", "attended_snapshot", "mean", "sd"]
    lines = ([name, dataset, slug, *line] for dataset, slug, its in rows for line in its.lines())
    return Picture(name, title, csv_text(header, lines), build, tuple(notes))


class _Map:
    """Weights of one dataset and row; NaN for later snapshots."""

    def __init__(self, steps: Sequence[int], values: Mapping[str, Any]) -> None:
        self.steps, self.values = steps, values

    @classmethod
    def of(cls, dataset: str, facts: Mapping[str, Any]) -> _Map:
        """Read stored weights and check their sizes."""
        try:
            steps = [int(step) for step in facts["steps"]]
            values = {which: np.array(facts[which], dtype=np.float64) for which in MAPS}  # [T, T]
        except (KeyError, TypeError, ValueError) as problem:
            raise ModelError(f"attention on {dataset} cannot be read: {problem!r}") from None
        for which, its in values.items():
            if its.shape != (len(steps), len(steps)):
                shape = " × ".join(map(str, its.shape))
                raise ModelError(f"attention on {dataset}: {which} is {shape}, of {len(steps)} snapshots")
        return cls(steps, values)

    def lines(self) -> Iterable[list[object]]:
        for i, step in enumerate(self.steps):
            for j, attended in enumerate(self.steps[: i + 1]):
                yield [step, attended, *(round(float(its[i, j]), 6) for its in self.values.values())]


def _draw_map(axes: Axes, steps: Sequence[int], values: Any) -> Any:
    """Draw a map: a row per attending snapshot, a column per attended one."""
    from matplotlib.colors import PowerNorm

    # The first snapshots attend to few others; on a linear scale, their weights near 1 would hide all differences.
    shade = PowerNorm(0.5, vmin=0.0, vmax=float(np.nanmax(values)) or 1.0)
    image = axes.imshow(values, cmap="cividis", norm=shade, aspect="equal")
    if len(steps) <= MAX_LABELLED:
        for i in range(len(steps)):
            for j in range(i + 1):
                color = "black" if shade(values[i, j]) > 0.55 else "white"
                axes.text(j, i, f"{values[i, j]:.2f}", ha="center", va="center", color=color, fontsize="x-small")
    every = max(1, len(steps) // MAX_LABELLED)
    axes.set_xticks(range(0, len(steps), every), labels=[str(step) for step in steps[::every]], fontsize="small")
    axes.set_yticks(range(0, len(steps), every), labels=[str(step) for step in steps[::every]], fontsize="small")
    axes.set_xlabel("snapshot attended to", fontsize="small")
    axes.set_ylabel("snapshot that attends", fontsize="small")
    return image
