"""Figures of the AUC of every predicted snapshot, in per cent: single-step, multi-step and new nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dysat.data.datasets import DATASETS as FILES
from dysat.experiments.paper.catalogue import BOOSTING, DATASETS, Target
from dysat.experiments.paper.lineup import BEST, LINEUP, NAMES, check_datasets, find
from dysat.experiments.paper.pictures import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Picture,
    finished,
    found_in,
    not_measured,
    panels,
)  # fmt: skip
from dysat.experiments.paper.records import Record, Results
from dysat.system.text.csv_text import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lines differ without colours too: static methods are dashed, dynamic ones dotted, as in the paper.
STYLES: dict[str, dict[str, Any]] = {
    "dysat": {"color": RED, "linestyle": "-", "marker": "o", "linewidth": 2.6},
    "dysat-text": {"color": RED, "linestyle": "-", "marker": "o", "linewidth": 1.1, "markerfacecolor": "white"},
    "node2vec": {"color": BLUE, "linestyle": "--", "marker": "s"},
    "graphsage": {"color": SKY, "linestyle": "--", "marker": "^"},
    "graphsage-gat": {"color": GREEN, "linestyle": "--", "marker": "v"},
    "gcn-ae": {"color": ORANGE, "linestyle": "--", "marker": "D"},
    "gat-ae": {"color": PURPLE, "linestyle": "--", "marker": "<"},
    "dynamic-triad": {"color": BLUE, "linestyle": ":", "marker": "P"},
    "dyngem": {"color": GREEN, "linestyle": ":", "marker": "X"},
    "dynaernn": {"color": ORANGE, "linestyle": ":", "marker": "*"},
    BEST: {"color": "#555555", "linestyle": "-", "marker": "+"},
    BOOSTING: {"color": "#999999", "linestyle": "-", "marker": "x"},
}
Lines = Mapping[str, Record]  # by row


def fig_steps(results: Results, datasets: Iterable[str] = DATASETS) -> Picture:
    """Draw the AUC of every predicted snapshot."""
    return _curves("fig-steps", "AUC of every predicted snapshot", "single-step", results, datasets)


def fig_multistep(results: Results, datasets: Iterable[str] = DATASETS) -> Picture:
    """Draw the AUC of the last six snapshots for a model fitted on those before."""
    title = "The last six snapshots, predicted from those before"
    return _curves("fig-multistep", title, "multi-step", results, datasets)


def fig_newnodes(results: Results, datasets: Iterable[str] = DATASETS) -> Picture:
    """Draw the AUC of links of new nodes, and the number of new nodes."""
    return _curves("fig-newnodes", "Links of new nodes", "new-nodes", results, datasets)


def _curves(name: Target, title: str, study: str, results: Results, datasets: Iterable[str]) -> Picture:
    asked = check_datasets(datasets)
    lines = {dataset: _lines(results, study, dataset) for dataset in asked}
    shown, notes = found_in(name, {dataset: found for dataset, found in lines.items() if found}, asked)
    counts: dict[str, dict[int, int]] = {}
    for dataset in shown if study == "new-nodes" else ():
        facts = results.facts(study, dataset, "_counts") or {}
        new = {int(target): int(number) for target, number in facts.get("new_nodes", {}).items()}
        counts[dataset] = {
            target: new[target] for target in FILES[dataset.removesuffix("-loops")].predicted if target in new
        }
    for dataset, found in shown.items():
        notes += not_measured(dataset, [NAMES[slug] for slug in LINEUP if slug not in found])

    def build() -> Figure:
        figure, axes = panels([DATASETS[dataset] for dataset in shown])
        for one, (dataset, found) in zip(axes, shown.items(), strict=True):
            _draw_curves(one, found)
            if counts.get(dataset):
                _draw_counts(one, counts[dataset])
        return finished(figure, title)

    return Picture(name, title, _curves_csv(name, shown, counts), build, tuple(notes))


def _lines(results: Results, study: str, dataset: str) -> dict[str, Record]:
    found = {slug: find(results, study, dataset, slug) for slug in LINEUP}
    return {slug: record for slug, record in found.items() if record is not None}


def _draw_curves(axes: Axes, found: Lines) -> None:
    from matplotlib.ticker import MaxNLocator

    for depth, (slug, style) in enumerate(STYLES.items()):
        if slug in found:
            steps = found[slug].steps
            points = [step.target for step in steps], [100 * step.auc for step in steps]
            look = {"linewidth": 1.4, "markersize": 4.5, "zorder": 3 - 0.01 * depth, **style}  # DySAT on top
            axes.plot(*points, label=NAMES[slug], **look)
    if BEST in found:
        axes.set_title(f"best heuristic: {found[BEST].row}", fontsize="small", loc="right", color="#555555")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("predicted snapshot", fontsize="small")
    axes.set_ylabel("AUC, per cent", fontsize="small")


def _draw_counts(axes: Axes, counts: Mapping[int, int]) -> None:
    """Draw bars behind the lines, on a second axis."""
    behind = axes.twinx()
    behind.bar(list(counts), list(counts.values()), color="#DDDDDD", label="new nodes (bars)")
    behind.set_ylabel("new nodes", fontsize="small", color="#555555")
    behind.tick_params(labelsize="small", colors="#555555")
    axes.set_zorder(behind.get_zorder() + 1)
    axes.patch.set_visible(False)


def _curves_csv(name: str, shown: Mapping[str, Lines], counts: Mapping[str, Mapping[int, int]]) -> str:
    header = ["figure", "dataset", "row", "method", "predicted_snapshot", "links", "auc_percent", "auc_sd"]
    lines = ([name, dataset, *line] for dataset, found in shown.items() for line in _values(found, counts.get(dataset)))
    return csv_text([*header, "new_nodes"] if counts else header, lines)


def _values(found: Lines, counts: Mapping[int, int] | None) -> Iterator[list[object]]:
    """Yield CSV lines of every row and snapshot; a snapshot with only a count has a line of its own."""
    measured = set()
    for slug, record in found.items():
        for step in record.steps:
            measured.add(step.target)
            sd = None if step.auc_sd is None else round(100 * step.auc_sd, 4)
            line = [slug, record.row, step.target, step.links, round(100 * step.auc, 4), sd]
            yield line if counts is None else [*line, counts.get(step.target)]
    for target, number in (counts or {}).items():
        if target not in measured:
            yield [None, None, target, None, None, None, number]
