"""The charts of a page as PNG files, for papers and slides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dysat.errors import ModelError
from dysat.system.extras import require
from dysat.system.storage import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Facts = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]
# Colours that people with any colour vision can tell apart (Okabe and Ito), as on the page.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#666666")
DOTS = 200  # per inch
UNKNOWN = -32768
MAPS = 4  # steps of the map that are drawn
ORIGINS = {
    "recurring": "linked before",
    "between_known": "new, between known nodes",
    "with_new": "with a new node",
}
MEASURES = {"auc": "AUC", "mrr": "MRR", "hits_at_10": "Hits@10", "new_mrr": "MRR of new links"}
CURVES = {"all": "all pairs", "new": "new pairs", "known": "pairs linked before"}


def write_pictures(facts: Facts, arrays: Arrays, folder: Path) -> list[Path]:
    """Draw every chart of a page that has data into a folder, and return the files; older ones are replaced."""
    require("matplotlib", "--png")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ModelError(f"{folder}: cannot be created: {problem.strerror or problem}") from None
    files = list[Path]()
    for name, size, draw in _pictures(facts, arrays):
        figure = _new_figure(size)
        draw(figure)
        file = folder / f"{name}.png"
        with replace_file(file, ModelError) as temporary:
            figure.savefig(temporary, format="png", dpi=DOTS, metadata={"Software": None})
        files.append(file)
    return files


def _pictures(facts: Facts, arrays: Arrays) -> Iterator[tuple[str, tuple[float, float], Callable[[Figure], None]]]:
    """Name, size in inches, and a function that draws, of each chart with data."""
    tested = facts["backtest"]
    for name, title in MEASURES.items():
        if tested is not None and any(window[name] is not None for window in tested["windows"]):
            draw = partial(_backtest, facts=facts, name=name, title=title)
            yield f"backtest-{name.replace('_', '-')}", (5, 3.2), draw
    if tested is not None and tested["reliability"]:
        yield "reliability", (4, 4), partial(_reliability, curves=tested["reliability"])
    yield "links-per-window", (6, 3.2), partial(_links, windows=facts["windows"])
    if "position" in arrays:
        yield "map", (8, 8), partial(_map, facts=facts, arrays=arrays)
    if facts["mean_attention"] is not None:
        yield "attention", (5, 4.4), partial(_attention, facts=facts)


def _new_figure(size: tuple[float, float]) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _plain(axes: Axes) -> Axes:
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _backtest(figure: Figure, facts: Facts, name: str, title: str) -> None:
    axes, tested = _plain(figure.add_subplot()), facts["backtest"]
    steps = [window["step"] for window in tested["windows"]]
    lines = {"forecast": [window[name] for window in tested["windows"]]}
    if (rival := tested["best"][name]) is not None:
        found = [{each["name"]: each[name] for each in window["heuristics"]} for window in tested["windows"]]
        lines[rival] = [window.get(rival) for window in found]
    for (label, values), colour, style in zip(lines.items(), COLOURS, ("-o", "--s"), strict=False):
        axes.plot(
            range(len(steps)), [np.nan if v is None else v for v in values], style, color=colour, label=_text(label)
        )
    axes.set_xticks(range(len(steps)), [_text(facts["windows"][step]["label"]) for step in steps])
    axes.set_ylabel(title)
    axes.set_xlabel("window that was predicted")
    axes.legend(frameon=False)


def _reliability(figure: Figure, curves: list[Mapping[str, Any]]) -> None:
    axes = _plain(figure.add_subplot())
    axes.plot([0, 1], [0, 1], ":", color="#666666", label="as predicted")
    for curve, colour, marker in zip(curves, COLOURS, "osD", strict=False):
        x, y = ([each[key] for each in curve["bins"]] for key in ("mean_score", "linked"))
        axes.plot(x, y, f"-{marker}", color=colour, label=CURVES[curve["name"]], markersize=4)
    axes.set(xlabel="score", ylabel="fraction that was linked", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.legend(frameon=False)


def _links(figure: Figure, windows: list[Mapping[str, Any]]) -> None:
    axes, below = _plain(figure.add_subplot()), np.zeros(len(windows))
    for (key, label), colour, hatch in zip(ORIGINS.items(), COLOURS, ("", "//", ".."), strict=False):
        heights = np.array([window[key] for window in windows])
        axes.bar(range(len(windows)), heights, bottom=below, color=colour, hatch=hatch, edgecolor="white", label=label)
        below += heights
    _name_steps(axes, windows, "x")
    axes.set_ylabel("links")
    axes.legend(frameon=False)


def _map(figure: Figure, facts: Facts, arrays: Arrays) -> None:
    """Some steps side by side, from the first with positions to the last, on the same axes."""
    place = arrays["position"]
    there = np.flatnonzero((place[:, :, 0] != UNKNOWN).any(1))
    steps = there[np.unique(np.linspace(0, len(there) - 1, MAPS).round().astype(int))]
    side = int(np.ceil(np.sqrt(len(steps))))
    for number, step in enumerate(steps):
        axes = figure.add_subplot(side, side, number + 1)
        known = place[step, :, 0] != UNKNOWN
        colours = np.array(COLOURS)[arrays["community"][known] % len(COLOURS)]
        x, y = place[step][known].T
        axes.scatter(x, y, s=4, c=colours, linewidths=0, alpha=0.7, rasterized=True)
        axes.set(xlim=(-33_500, 33_500), ylim=(-33_500, 33_500), aspect="equal", xticks=[], yticks=[])
        axes.set_title(_text(facts["windows"][facts["first_step"] + step]["label"]), fontsize=10)
    figure.supxlabel("colour: community", fontsize=9)


def _attention(figure: Figure, facts: Facts) -> None:
    axes, windows = figure.add_subplot(), facts["windows"][facts["first_step"] :]
    table = np.array([[np.nan if value is None else value for value in row] for row in facts["mean_attention"]])
    picture = axes.imshow(np.where(np.tri(len(table), dtype=bool), table, np.nan), cmap="cividis", vmin=0)
    for axis in ("x", "y"):
        _name_steps(axes, windows, axis)
    axes.set(xlabel="step that is attended to", ylabel="step")
    figure.colorbar(picture, label="mean attention weight")


def _name_steps(axes: Axes, windows: list[Mapping[str, Any]], axis: str) -> None:
    """Name at most a dozen windows along an axis."""
    every = range(0, len(windows), -(-len(windows) // 12) or 1)
    names = [_text(windows[step]["label"]) for step in every]
    if axis == "x":
        axes.set_xticks(list(every), names, rotation=45, ha="right")
    else:
        axes.set_yticks(list(every), names)


def _text(text: str) -> str:
    """A text that matplotlib does not read as a formula."""
    return text.replace("$", r"\$")
