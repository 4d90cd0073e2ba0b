"""The backtest of a run as a table and a few sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console

from dysat.cli.output.show import new_table
from dysat.cli.output.terminal import foreign
from dysat.data.windows import write_edges
from dysat.evaluation.reliability import mean_gap
from dysat.models.base.embedding import EmbeddingModel
from dysat.runs.backtest import FEWEST_LINKS, TOP, verdict_text, with_windows

CLASSES = {"new": "new pairs", "known": "pairs linked before"}


def show_backtest(backtest: dict[str, Any], model: EmbeddingModel, console: Console) -> None:
    """Print the entry `backtest` of metrics.json, also of a run of an earlier version."""
    backtest = with_windows(backtest)
    windows, forecast, rival = backtest["windows"], backtest.get("forecast"), backtest["comparison"]
    name = "AUC" if forecast is None else "forecast score, AUC"
    rivals = [] if rival is None else [f">{foreign(rival['heuristic'])}, AUC"]
    table = new_table("backtest, by window", ">links", f">{name}", *rivals, "")
    edges = write_edges(model.graph_.boundaries, model.graph_.clock)
    for window in windows:
        own = [] if rival is None else [_figure(window["heuristics"][rival["heuristic"]]["auc"])]
        when = " … ".join(edges[window["step"] + 1 : window["step"] + 3])
        few = window["links"] < FEWEST_LINKS
        mark = f"only {window['links']} link{'s' * (window['links'] != 1)}: not a reliable figure" * few
        table.add_row(when, f"{window['links']:,}", _figure(window["auc"]), *own, mark)
    if len(windows) > 1:
        own = [] if rival is None else [_mean(rival["auc"], rival["auc_sd"])]
        table.add_row("mean ± standard deviation", "", _mean(backtest["mean"]["auc"], backtest["sd"]["auc"]), *own, "")
    console.print(table)
    for line in _notes(backtest, model):
        console.print(f"[dim]{foreign(line)}[/dim]", highlight=False, soft_wrap=True)
    for line in (*map(foreign, (*_precision(backtest), *_calibration(forecast or {}))), *_verdict(backtest)):
        console.print(line, highlight=False, soft_wrap=True)
    console.print()


def _notes(backtest: dict[str, Any], model: EmbeddingModel) -> Iterator[str]:
    number = len(backtest["windows"])
    yield (
        "each window is predicted from the snapshots before it"
        if number > 1
        else (f"snapshot {backtest['windows'][0]['step'] + 1} is predicted from the snapshots before it")
    )
    if (left_out := backtest["left_out"]) is not None:
        yield (
            f"the last window is incomplete, its events end {left_out['covered']:.0%} into it, so it is not predicted; "
            "--include-incomplete predicts it too"
        )
    if backtest.get("auc") is not None:
        figures = ", ".join(
            f"{name} {_figure(backtest[key])} ± {_figure(backtest[f'{key}_sd'])}"
            for key, name in (("auc", "AUC"), ("average_precision", "average precision"))
        )
        where = "" if number == 1 else " on the newest of these windows"
        few = f" (only {backtest['links']} links: not a reliable figure)" * (backtest["links"] < FEWEST_LINKS)
        kept = f"; epoch {backtest['best_epoch']} of {backtest['epochs']} kept" * bool(backtest["epochs"])
        yield (
            f"embeddings with a probe{where}: {figures}{few}; a logistic regression on the {model.pair_feature} of two "
            f"embeddings, mean ± standard deviation over {backtest['repeats']} random splits{kept}"
        )


def _precision(backtest: dict[str, Any]) -> Iterator[str]:
    """One line: how many of the most likely links came true."""
    found = backtest.get("precision") or {}
    k = next((str(k) for k in reversed(TOP) if str(k) in found.get("all", {})), None)
    if k is None:
        return
    new = f" (of the {k} most likely new contacts: {_count(found['new'][k])})" if k in found["new"] else ""
    windows = len(backtest["windows"])
    over = f", on average over {windows} windows" * (windows > 1)
    yield f"Of the {k} most likely links {_count(found['all'][k])} came true{new}{over}."


def _calibration(forecast: dict[str, Any]) -> Iterator[str]:
    """How often low, medium and high scores came true, for new pairs and for pairs linked before."""
    curves = {name: forecast.get(f"reliability_{name}") for name in CLASSES}
    if not any(curves.values()):  # of an earlier version
        curves = {"all": forecast.get("reliability")}
    for name, curve in curves.items():
        there = [part for part in curve or [] if part["pairs"]]
        gap = mean_gap(there)
        if gap is None:
            continue
        middle = min(there, key=lambda part: abs(part["from"] + part["to"] - 1))
        shown = [part for part in there if part in (there[0], middle, there[-1])]
        parts = (
            f"{part['from']:.1f}–{part['to']:.1f} came true for {100 * part['linked']:.0f} % of {part['pairs']:,} "
            f"pair{'s' * (part['pairs'] != 1)}"
            for part in shown
        )
        of = f", {CLASSES[name]}" if name in CLASSES else ""
        yield (
            f"Calibration{of}: in a balanced mix of links and non-links, scores of {', '.join(parts)}; "
            f"mean error {100 * gap:.1f} points."
        )


def _verdict(backtest: dict[str, Any]) -> Iterator[str]:
    if (found := verdict_text(backtest)) is not None:
        known = backtest["comparison"]["verdict"] is not None  # not of an earlier version
        yield foreign(f"{found} Compare them step by step with dysat evaluate." if known else found)


def _mean(value: float | None, deviation: float | None) -> str:
    return _figure(value) if deviation is None else f"{_figure(value)} ± {deviation:.4f}"


def _count(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
