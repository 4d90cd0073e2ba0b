"""What a run folder is, for `dysat info`: method, options, backtest and updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dysat
from dysat.cli.options import as_options
from dysat.cli.output.show import epochs_text, new_console, new_table, show_graph
from dysat.cli.output.terminal import foreign
from dysat.data.windows import write_moment
from dysat.experiments.evaluate.request import Contender
from dysat.runs.run import Run

READING = ("src", "dst", "time", "weight", "kinds", "every", "count")  # recorded options that are shown


def show_run(run: Run, graph: dysat.DynamicGraph, as_json: bool) -> None:
    """Print the newest graph of a run and what the run is."""
    facts = run_facts(run, graph)
    show_graph(graph, str(run.folder), as_json, None, run=facts)
    if as_json:
        return
    table = new_table("run", "")
    table.show_header = False
    for name, text in _rows(facts):
        table.add_row(f"[bold]{name}[/bold]", foreign(text))
    table.columns[1].no_wrap, table.columns[1].overflow = False, "fold"
    new_console().print(table, highlight=False)


def run_facts(run: Run, graph: dysat.DynamicGraph) -> dict[str, Any]:
    """What a run is, as JSON values; figures are None if the run is not fully trained."""
    model = Contender.of(run.new_model())
    metrics = run.metrics() if run.finished else {}
    first = run.first_graph() if metrics.get("updates") else graph
    return {
        "method": model.method,
        "preset": model.preset,
        "options": {name: value for name, value in model.options.items() if name != "device"},
        "dysat": run.config.get("dysat"),
        "source": run.config.get("source"),
        "events": run.config.get("events", {}),
        "finished": run.finished,
        "last_window": [write_moment(edge, graph.clock) for edge in graph.boundaries[-2:]],
        "backtest": metrics.get("backtest"),
        "epochs": metrics.get("epochs"),
        "updates": metrics.get("updates", []),
        "notes": list(first.notes),
    }


def _rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    named = facts["method"] if facts["preset"] is None else f"{facts['method']}:{facts['preset']}"
    changed = ", ".join(f"{name}={value}" for name, value in facts["options"].items())
    yield "method", f"{named} with {changed}" if changed else named
    read = ", ".join(f"{name} {facts['events'][name]}" for name in READING if name in facts["events"])
    if facts["source"]:
        yield "source", f"{facts['source']} ({read})" if read else str(facts["source"])
    start, stop = facts["last_window"]
    yield "last window", f"{start} … {stop}"
    if not facts["finished"]:
        yield "training", "not finished; dysat fit --resume continues"
        return
    if facts["epochs"]:
        yield "training", epochs_text(facts["epochs"])
    yield "backtest", ", ".join(_backtest(facts["backtest"] or {})) or "none"
    yield "updates", _updates(facts["updates"])
    if facts["notes"]:
        yield "notes", "; ".join(map(as_options, facts["notes"]))


def _backtest(facts: Mapping[str, Any]) -> Iterator[str]:
    """The figures of a backtest that are there: the mean over its windows, or of the one window of an old run."""
    forecast, windows = facts.get("forecast") or {}, facts.get("windows") or []
    mean, rival = (facts.get("mean") or {}).get("auc"), facts.get("comparison") or {}
    if isinstance(mean, float):
        deviation = (facts.get("sd") or {}).get("auc")
        spread = f" ± {deviation:.4f}" if isinstance(deviation, float) else ""
        yield f"{'forecast score ' * bool(forecast)}AUC {mean:.4f}{spread} over {len(windows)} windows"
        if isinstance(rival.get("auc"), float):
            yield f"strongest heuristic {rival.get('heuristic')} AUC {rival['auc']:.4f}: {facts.get('verdict')}"
        if forecast and isinstance(facts.get("auc"), float):
            yield f"embeddings and probe AUC {facts['auc']:.4f} on the newest window"
        yield f"{sum(window['links'] for window in windows):,} links to predict"
        return
    if isinstance(forecast.get("auc"), float):
        yield f"forecast score AUC {forecast['auc']:.4f}"
    if isinstance(facts.get("auc"), float):
        yield f"embeddings and probe AUC {facts['auc']:.4f}"
    best = (forecast or facts).get("heuristic")
    if isinstance(best, Mapping) and isinstance(best.get("auc"), float):
        yield f"strongest heuristic {best.get('name')} AUC {best['auc']:.4f}"
    if isinstance(facts.get("links"), int):
        yield f"{facts['links']:,} links to predict"


def _updates(updates: list[dict[str, Any]]) -> str:
    if not updates:
        return "none"
    last = updates[-1]
    figure = "" if last.get("auc") is None else f", whose links were forecast with AUC {last['auc']:.4f}"
    return f"{len(updates):,}; the last added {last['start']} … {last['stop']}{figure}"
