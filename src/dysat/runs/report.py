"""The page of a run: report.html, with its backtest and what it was learned from."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from dysat.evaluation.ranking import TOP
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.forecasts import Forecasts
from dysat.report.content import graph_rows
from dysat.report.page import Page
from dysat.runs.backtest import MOST, RANKING, rivals, with_windows
from dysat.runs.newest import REPORT
from dysat.runs.run import Run
from dysat.system.parallel.ranks import alone, ranks

MEASURES = ("auc", *RANKING)
COUNTS = ("candidates", "ranked", "ranked_new")
WORDS = {"beats": "beats", "behind": "is behind", "tie": "ties with", None: "stands beside"}  # a verdict
CURVES = {"all": "reliability", "new": "reliability_new", "known": "reliability_known"}


def run_page(
    run: Run,
    model: EmbeddingModel | None = None,
    *,
    nodes: Sequence[Hashable] = (),
    best: Forecasts | None = None,
    quick: bool = False,
) -> Page:
    """Return the page of a run with its newest state; `nodes` are labels of nodes that must be on it.

    `model` is the model of the run, and `best` its `LIKELIEST` links, if they are at hand; `quick` saves time.
    """
    metrics = run.metrics()
    model = run.model_at_hand() if model is None else model
    backtest = None if metrics["backtest"] is None else with_windows(metrics["backtest"])
    about = {
        "learned_from": list(_learned_from(run.config, model, metrics)),
        "notes": [*model.graph_.notes, *_update_notes(metrics["updates"])],
        "verdict": _verdict(backtest),
        "backtest": None if backtest is None else _tested(backtest),
    }
    return model.page(nodes, run.folder.absolute().name, about, best=best, quick=quick)


def write_report(run: Run, model: EmbeddingModel | None = None, best: Forecasts | None = None) -> Path | None:
    """Write report.html of a run, a quick page, and return its path; of several ranks only the first does."""
    if not ranks().first:
        return None
    with alone():
        return run_page(run, model, best=best, quick=True).save(run.folder / REPORT)


def _verdict(backtest: Mapping[str, Any] | None) -> str:
    """One or two sentences on how well the run predicts; `verdict_text` and `ranking_text` have the details."""
    if backtest is None:
        return "How well this run predicts was not measured: it has no backtest."
    own, rival = backtest["mean"]["auc"], backtest["comparison"]
    if own is None:
        return "How well this run predicts could not be measured: its embeddings are not finite numbers."
    if rival is None:
        return f"The forecast has AUC {own:.3f}; no heuristic could be measured on these windows."
    doubt = "" if backtest.get("reliable", True) else ", from too few links to be sure"
    figures = f"AUC {own:.3f} against {rival['auc']:.3f}"
    text = f"The forecast {WORDS[rival['verdict']]} the strongest heuristic, {rival['heuristic']}: {figures}{doubt}."
    ranked, best = backtest["mean"].get("mrr"), backtest.get("mrr_comparison")
    if ranked is None or best is None:
        return text
    figures = f"MRR {ranked:.3f} against {best['mrr']:.3f}"
    return f"{text} In ranking it {WORDS[best['verdict']]} {best['heuristic']}: {figures}."


def _learned_from(
    config: Mapping[str, Any], model: EmbeddingModel, metrics: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    graph = model.graph_
    if config.get("source"):
        yield "Source", str(config["source"])
    yield from graph_rows(graph)
    yield "Method", str(config["method"])
    epochs = metrics["epochs"]
    trained = f"{epochs} epoch{'s' * (epochs != 1)} on {metrics['device']}, " if epochs else ""
    yield "Training", f"{trained}{metrics['seconds']:,.1f} s"


def _update_notes(updates: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if updates:
        last = updates[-1]
        number = f"{len(updates):,} update{'s' * (len(updates) != 1)}"
        added = f"The last added {last['start']} … {last['stop']}."
        yield f"{number} since the fit; the backtest is that of the fit. {added}"


def _tested(backtest: Mapping[str, Any]) -> dict[str, Any]:
    """The backtest in the form of the page."""
    forecast, windows, best = backtest.get("forecast") or {}, backtest["windows"], rivals(backtest)
    return {
        "windows": [
            {
                "step": window["step"] + 1,
                **{name: window.get(name) for name in ("links", "average_precision", *MEASURES, *COUNTS)},
                "heuristics": [
                    {"name": name, **{measure: figures.get(measure) for measure in MEASURES}}
                    for name, figures in window["heuristics"].items()
                ],
            }
            for window in windows
        ],
        "best": {measure: best.get(measure) for measure in MEASURES},
        "mean": {measure: backtest["mean"].get(measure) for measure in MEASURES},
        "precision": list(_precision(windows)),
        "reliability": [
            {"name": name, "bins": [part for part in forecast[key] if part["pairs"]]}
            for name, key in CURVES.items()
            if forecast.get(key)
        ],
    }


def _precision(windows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """For each k that all windows have, the fraction of the k likeliest pairs that came true: mean and windows."""
    counts = [window.get("precision", {}).get("all", {}) for window in windows]
    for k in (*map(str, TOP), "links"):
        if all(k in count for count in counts):
            sizes = [min(MOST, max(1, window["links"])) if k == "links" else int(k) for window in windows]
            found = {
                name: [window["precision"][name][k] / size for window, size in zip(windows, sizes, strict=True)]
                for name in ("all", "new")
                if all(k in window["precision"][name] for window in windows)
            }
            yield {
                "k": "as many as links" if k == "links" else k,
                **{name: fmean(found[name]) if name in found else None for name in ("all", "new")},
                "windows": found,
            }
