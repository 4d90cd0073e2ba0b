"""Draw the README's picture: AUC of every predicted snapshot, from the measured results.

    python benchmarks/overview.py                  # writes docs/images/overview.svg
    python benchmarks/overview.py --out other.svg

Nothing is measured here. The default comes from results/forecasting_score.json, boosting from results/forecasting.json,
the best heuristic of each dataset (chosen by validation AUC, never by test AUC) from results/paper, and the published
DySAT from the presets. The paper reports only a mean over snapshots, so it is drawn as a horizontal line.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DATASETS = {"enron": "Enron", "uci": "UCI", "yelp": "Yelp", "ml-10m": "ML-10M"}
DEFAULT, BOOSTING = "forecast only", "pair-boosting"  # as these files call them
HEURISTICS = (
    *("last-snapshot", "edgebank", "edge-memory", "degree-product", "degree-sum"),
    *("common-neighbours", "adamic-adar", "resource-allocation", "svd"),
)
COLOURS = {"default": "#0b5394", "boosting": "#d9822b", "heuristic": "#7a8794", "published": "#a61c3c"}

SUBTITLE = "Each point is predicted by a model that has seen only earlier snapshots. Right: the mean over snapshots."
NOTE = (
    "Means cover the snapshots that all curves predict. The paper has only a mean; on Enron it counts self-loops.\n"
    "Best heuristic, chosen on validation links: {}."
)


class Panel(NamedTuple):
    """Curves of one dataset in per cent, each a mapping from predicted snapshot to AUC."""

    default: dict[int, float]
    boosting: dict[int, float]
    heuristic: dict[int, float]
    heuristic_name: str
    published: float


def read_panels(results: Path = ROOT / "results", presets: Path | None = None) -> dict[str, Panel]:
    """The numbers in the picture, by dataset."""
    presets = presets or ROOT / "src" / "dysat" / "models" / "presets"
    files = ("forecasting_score.json", "forecasting.json")
    rows = [row for file in files for row in json.loads((results / file).read_text())["rows"]]
    panels = {}
    for dataset in DATASETS:
        name, heuristic = _best_heuristic(json.loads((results / "paper" / f"single-step_{dataset}.json").read_text()))
        preset = tomllib.loads((presets / f"sankar2019_dysat_{dataset}.toml").read_text())
        panels[dataset] = Panel(
            default=_curve(rows, dataset, DEFAULT),
            boosting=_curve(rows, dataset, BOOSTING),
            heuristic=heuristic,
            heuristic_name=name,
            published=preset["published"]["single_step"]["macro"],
        )
    return panels


def _curve(rows: list[dict[str, Any]], dataset: str, model: str) -> dict[int, float]:
    mine = (row for row in rows if row["dataset"] == dataset and row["model"] == model and "score" in row)
    return {row["target"]: 100 * row["score"] for row in sorted(mine, key=lambda row: row["target"])}


def _best_heuristic(record: dict[str, Any]) -> tuple[str, dict[int, float]]:
    known = {name: record["rows"][name]["steps"] for name in HEURISTICS if name in record["rows"]}
    best = max(known, key=lambda name: fmean(step["validation_auc"] for step in known[name]))
    return best, {step["target"]: 100 * step["auc"] for step in known[best]}


def draw(panels: dict[str, Panel], out: Path) -> None:
    """Write the picture; the same numbers give the same bytes with the same matplotlib."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    style = {
        "svg.hashsalt": "dysat",
        "svg.fonttype": "none",
        "font.family": ["DejaVu Sans", "sans-serif"],
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#9aa5b1",
        "xtick.color": "#52606d",
        "ytick.color": "#52606d",
    }
    with mpl.rc_context(style):
        figure, axes = plt.subplots(2, 2, figsize=(9.6, 6.6))
        for axis, (dataset, panel) in zip(axes.flat, panels.items(), strict=True):
            _draw_panel(axis, dataset, panel)
        for axis in axes[:, 0]:
            axis.set_ylabel("AUC, %", color="#52606d")
        for axis in axes[1]:
            axis.set_xlabel("predicted snapshot", color="#52606d")
        figure.text(0.012, 0.955, "Predicting the links of the next snapshot", size=16, weight="bold", color="#1f2933")
        figure.text(0.012, 0.913, SUBTITLE, color="#52606d")
        chosen = ", ".join(f"{panel.heuristic_name} ({DATASETS[dataset]})" for dataset, panel in panels.items())
        figure.text(0.012, 0.015, NOTE.format(chosen), size=8.5, color="#7b8794", linespacing=1.5)
        figure.subplots_adjust(left=0.065, right=0.835, top=0.845, bottom=0.135, wspace=0.62, hspace=0.36)
        figure.savefig(out, format=out.suffix.lstrip("."), metadata={"Date": None} if out.suffix == ".svg" else None)
        plt.close(figure)


def _draw_panel(axis: Any, dataset: str, panel: Panel) -> None:
    axis.set_title(DATASETS[dataset], loc="left", weight="bold", color="#1f2933", size=12)
    curves = {
        "published": dict.fromkeys(panel.heuristic, panel.published),
        "heuristic": panel.heuristic,
        "boosting": panel.boosting,
        "default": panel.default,
    }
    names = {
        "default": "dysat",
        "boosting": "boosting",
        "heuristic": "best heuristic",
        "published": "paper's DySAT",
    }
    for key, curve in curves.items():
        bold = key == "default"
        axis.plot(
            list(curve),
            list(curve.values()),
            color=COLOURS[key],
            linewidth=3.2 if bold else 1.6,
            linestyle=(0, (5, 3)) if key == "published" else "-",
            marker="o" if bold else None,
            markersize=5,
            solid_capstyle="round",
            gid=f"{dataset}-{key}",
            zorder=4 if bold else 3 if key == "boosting" else 2,
        )
    low = min(min(curve.values()) for curve in curves.values())
    axis.set_ylim(5 * (low // 5), 100.5)
    steps = list(panel.heuristic)
    axis.set_xlim(steps[0] - 0.3, steps[-1] + 0.3)
    axis.set_xticks(steps[::2])
    axis.grid(axis="y", color="#e4e7eb", linewidth=0.8)
    axis.tick_params(length=0)
    _label(axis, curves, names)


def _label(axis: Any, curves: dict[str, dict[int, float]], names: dict[str, str]) -> None:
    """Name the curves at their right end, moved apart vertically where they would overlap."""
    low, high = axis.get_ylim()
    gap, right = (high - low) * 0.105, max(curves["heuristic"])
    ends = sorted(curves, key=lambda key: -curves[key][max(curves[key])])
    common = set.intersection(*(set(curve) for curve in curves.values()))
    heights = list[float]()
    for key in ends:
        wanted = curves[key][max(curves[key])]
        heights.append(min(wanted, heights[-1] - gap) if heights else wanted)
    for key, height in zip(ends, heights, strict=True):
        axis.annotate(
            f"{names[key]} {fmean(curves[key][step] for step in common):.1f}",
            (right, height),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            color=COLOURS[key],
            weight="bold" if key == "default" else "normal",
            size=11 if key == "default" else 9.5,
            annotation_clip=False,
        )


def main() -> None:
    """Write the file named by --out."""
    parser = argparse.ArgumentParser(description="Draw docs/images/overview.svg from results/.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "overview.svg")
    draw(read_panels(), parser.parse_args().out)


if __name__ == "__main__":
    main()
