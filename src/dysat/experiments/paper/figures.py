"""The six figures of the paper, each also as CSV; this module has those on attention heads and on runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from dysat.errors import ModelError
from dysat.experiments.paper.catalogue import DATASETS, HEADS, heads_row
from dysat.experiments.paper.curves import fig_multistep, fig_newnodes, fig_steps
from dysat.experiments.paper.heatmaps import fig_attention
from dysat.experiments.paper.lineup import check_datasets
from dysat.experiments.paper.notes import machine_name
from dysat.experiments.paper.pictures import BLUE, ORANGE, RED, Picture, finished, found_in, not_measured, panels
from dysat.experiments.paper.records import Record, Results
from dysat.system.text.csv_text import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLOCKS: tuple[Literal["structural", "temporal"], ...] = ("structural", "temporal")
RUNTIME = {"dysat": "dysat:program", "dynaernn": "DynAERNN"}
# Published seconds per epoch on ML-10M with ten snapshots of history, on a Tesla V100.
PAPER_RUNTIME = {"dysat": 88.0, "dynaernn": 723.0}
PAPER_NAMES = {"dysat": "DySAT", "dynaernn": "DynAERNN"}
PAPER_WINDOW = 10
EPOCHS = (
    "an epoch of DySAT is a pass over the nodes of the snapshots in its window; an epoch of DynAERNN is a pass over "
    "the nodes of every snapshot; the paper does not define an epoch"
)


def fig_heads(results: Results, datasets: Iterable[str] = DATASETS) -> Picture:
    """Draw the macro-AUC by the number of heads of each block."""
    name, title = "fig-heads", "Macro-AUC of dysat:program by number of attention heads"
    asked = check_datasets(datasets)
    found: dict[str, dict[tuple[str, int], Record]] = {}
    for dataset in asked:
        for block in BLOCKS:
            for heads in HEADS:
                record = results.record("single-step", dataset, heads_row(block, heads)[0])
                if record is not None:
                    found.setdefault(dataset, {})[block, heads] = record
    shown, notes = found_in(name, found, asked)
    for dataset, points in shown.items():
        notes += not_measured(dataset, [f"{h} {b} heads" for b in BLOCKS for h in HEADS if (b, h) not in points])

    def build() -> Figure:
        figure, axes = panels([DATASETS[dataset] for dataset in shown])
        for one, points in zip(axes, shown.values(), strict=True):
            for block, color, fmt in (("structural", BLUE, "-o"), ("temporal", RED, "--s")):
                here = {heads: record for (which, heads), record in points.items() if which == block}
                values = [100 * record.macro for record in here.values()]
                sds = [100 * (record.macro_sd or 0.0) for record in here.values()]
                if here:
                    one.errorbar(list(here), values, sds, fmt=fmt, color=color, capsize=3, label=f"{block} heads")
            one.set_xscale("log", base=2)
            one.set_xticks(HEADS, labels=[str(heads) for heads in HEADS])
            one.set_xlabel("heads in every layer of the block", fontsize="small")
            one.set_ylabel("macro-AUC, per cent", fontsize="small")
        return finished(figure, title)

    header = ["figure", "dataset", "block", "heads", "macro_auc_percent", "macro_auc_sd", "steps"]
    lines = [
        [name, dataset, block, heads, round(100 * r.macro, 4), r.macro_sd and round(100 * r.macro_sd, 4), len(r.steps)]
        for dataset, points in shown.items()
        for (block, heads), r in points.items()
    ]
    return Picture(name, title, csv_text(header, lines), build, tuple(notes))


def fig_runtime(results: Results, datasets: Iterable[str] = DATASETS) -> Picture:
    """Draw the seconds per epoch by the length of the history, for DySAT and DynAERNN."""
    name, title = "fig-runtime", "Seconds per epoch by snapshots of history"
    asked = check_datasets(datasets)
    facts = {dataset: results.facts("runtime", dataset, "windows") or {} for dataset in asked}
    timings = {dataset: _timings(dataset, its["timings"]) for dataset, its in facts.items() if its.get("timings")}
    shown, notes = found_in(name, timings, asked)

    def build() -> Figure:
        figure, axes = panels([DATASETS[dataset] for dataset in shown], height=3.8)
        for one, (dataset, lines) in zip(axes, shown.items(), strict=True):
            machine = machine_name(facts[dataset].get("about", facts[dataset]))
            one.set_title(machine, fontsize="x-small", loc="right", color="#555555")
            _draw_times(one, lines)
        return finished(figure, title)

    notes.append(EPOCHS)
    header = ["figure", "dataset", "method", "window", "epoch_seconds", "source"]
    csv = csv_text(header, ([name, dataset, *line] for dataset, lines in shown.items() for line in lines))
    return Picture(name, title, csv, build, tuple(notes))


Time = tuple[str, int, float, Literal["ours", "paper"]]  # method, window, seconds, source


def _timings(dataset: str, timings: Sequence[Mapping[str, Any]]) -> list[Time]:
    """Return our times by window, and the paper's two times, which are of ML-10M."""
    try:
        ours: list[Time] = [
            (method, int(one["window"]), float(one[method]["epoch_seconds"]), "ours")
            for method in RUNTIME
            for one in timings
            if one.get(method)
        ]
    except (KeyError, TypeError, ValueError) as problem:
        raise ModelError(f"times of {dataset} cannot be read: {problem!r}") from None
    papers: list[Time] = [(method, PAPER_WINDOW, its, "paper") for method, its in PAPER_RUNTIME.items()]
    return [*ours, *(papers if dataset == "ml-10m" else [])]


def _draw_times(axes: Axes, lines: Sequence[Time]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    looks: dict[str, dict[str, Any]] = {
        "dysat": {"color": RED, "linestyle": "-", "marker": "o"},
        "dynaernn": {"color": ORANGE, "linestyle": ":", "marker": "*"},
    }
    for method, look in looks.items():
        ours = [(window, seconds) for which, window, seconds, whose in lines if (which, whose) == (method, "ours")]
        if ours:
            axes.plot(*zip(*ours, strict=True), label=RUNTIME[method], **look)
        for which, window, seconds, whose in lines:
            if (which, whose) == (method, "paper"):
                label = f"{PAPER_NAMES[method]}, published (V100)"
                axes.plot(window, seconds, **{**look, "linestyle": "none"}, mfc="white", markersize=10, label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(sorted({window for _, window, _, _ in lines}))
    axes.set_xlabel("window: snapshots of history", fontsize="small")
    axes.set_ylabel("seconds per epoch", fontsize="small")


FIGURES: dict[str, Callable[..., Picture]] = {
    "fig-steps": fig_steps,
    "fig-heads": fig_heads,
    "fig-runtime": fig_runtime,
    "fig-attention": fig_attention,
    "fig-multistep": fig_multistep,
    "fig-newnodes": fig_newnodes,
}
