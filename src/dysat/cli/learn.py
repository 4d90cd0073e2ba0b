"""The commands fit, embed and forecast."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

from dysat.cli.app import StoppedError, app
from dysat.cli.data import find_graph
from dysat.cli.estimate import print_estimate
from dysat.cli.options import (
    RARE,
    Device,
    EventOptions,
    Json,
    Preset,
    Settings,
    chosen_model,
    option,
    parse_setting,
    takes,
)  # fmt: skip
from dysat.cli.show import SCORE, epochs_text, link_facts, links_table, new_console, new_table, print_json, status_line
from dysat.cli.watching import watching, working
from dysat.errors import ModelError, listed
from dysat.evaluation.reliability import mean_gap
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import Incremental
from dysat.runs.run import LEARNERS, Run, check_new
from dysat.system.process import keep_freed_memory

RUN, METHOD = Path("run"), "dysat"

FIT_SOURCE = typer.Argument(
    help="Log of events, graph folder, or dataset.", show_default=False, metavar="SOURCE", hidden=True
)
FIT_OUT = option("Run folder to write [dim](default: run)[/dim].", "--out", "-o", metavar="FOLDER")
FIT_MODEL = option("Method or method:preset [dim](default: dysat)[/dim].", "--model", panel="Model", metavar="NAME")
FIT_DEVICE = option("cpu, cuda, cuda:1 [dim](default: CUDA if available)[/dim].", panel="Model", metavar="NAME")
FORECAST_ONLY = option("Learn forecasts without embeddings, which needs no epochs.", "--forecast-only", hidden=True)
ESTIMATE = option("Say how long it will take and how much memory, and stop.", "--estimate", hidden=True)
RunFolder = Annotated[Path, typer.Argument(help="Run folder made by [bold]dysat fit[/bold].", show_default=False)]


@app.command()
@takes(events=EventOptions, hide=RARE)
def fit(
    source: Annotated[str | None, FIT_SOURCE] = None,
    out: Annotated[Path, FIT_OUT] = RUN,
    resume: Annotated[Path | None, option("Resume a stopped run.", metavar="FOLDER")] = None,
    no_backtest: Annotated[bool, option("Skip the backtest on the last snapshot.", "--no-backtest")] = False,
    forecast_only: Annotated[bool, FORECAST_ONLY] = False,
    estimate: Annotated[bool, ESTIMATE] = False,
    as_json: Json = False,
    data_dir: Annotated[Path | None, option("Folder of the paper's datasets.", metavar="FOLDER", hidden=True)] = None,
    model: Annotated[str, FIT_MODEL] = METHOD,
    preset: Preset = None,
    epochs: Annotated[int | None, option("Number of epochs.", panel="Model", metavar="N")] = None,
    seed: Annotated[int | None, option("Random seed.", panel="Model", metavar="N")] = None,
    device: Annotated[str | None, FIT_DEVICE] = None,
    settings: Settings = None,
    *,
    events: EventOptions,
) -> None:
    """Learn from a log, report how well it predicts, and forecast the next links.

    SOURCE is a log of events, a graph folder, or the name of a dataset.

      [bold]dysat fit mail.csv --src from --dst to --time sent --every 30d -o run/[/bold]
      [bold]dysat fit --resume run/[/bold]
    See also [bold]dysat models[/bold] (presets, options) and [bold]dysat snapshots --help[/bold] (files).
    """
    began = time.monotonic()
    given = {"epochs": epochs, "seed": seed, "device": device, "embeddings": False if forecast_only else None}
    flags = {name: value for name, value in given.items() if value is not None}
    if resume is not None:
        others = [source, *events.given(), *(settings or []), *(name for name in flags if name != "device")]
        if any((*others, estimate)) or (out, model, preset, no_backtest, data_dir) != (RUN, METHOD, None, False, None):
            raise ModelError(f"--resume {resume} continues with the options of the run; give nothing but --device")
        run = Run.open(resume)
    elif source is None:
        raise ModelError("no source: give a log of events, a graph folder or the name of a dataset")
    else:
        if not estimate:
            check_new(Path(out).absolute())
        if forecast_only and model.partition(":")[0] != METHOD:
            raise ModelError(f"--forecast-only belongs to --model {METHOD}; {model} has no forecast score of its own")
        learner = chosen_model(model, preset, {**dict(map(parse_setting, settings or [])), **flags}).build()
        if not isinstance(learner, EmbeddingModel):
            there = listed(LEARNERS, 20)
            raise ModelError(f"{learner.method} has no embeddings, use it with dysat evaluate; fit takes {there}")
        with working() as set_status:
            graph, made = find_graph(source, events, data_dir, set_status)
            if not estimate:
                set_status(f"writing {out}")
                run = Run.start(out, graph, learner, backtest=not no_backtest, source=source, events=made)
        if estimate:
            reading = time.monotonic() - began
            return print_estimate(graph, learner, backtest=not no_backtest, reading=reading, as_json=as_json)
    keep_freed_memory()
    with watching() as watch:
        ended = run.train(watch, device=device, began=began)
    if not ended:
        raise StoppedError(f"stopped; progress is saved, dysat fit --resume {run.folder} continues")
    return _show_run(run, as_json, time.monotonic())


@app.command()
def embed(
    run: RunFolder,
    out: Annotated[Path, option("File to write: .parquet or .csv.", "--out", "-o")],
    step: Annotated[str, option("Step to embed from 0; −1 is the last, [bold]all[/bold] is every step.")] = "-1",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Write the embeddings of a run, one row per node known at a step."""
    from dysat.system.table_files import write_table

    with status_line() as set_status:
        set_status(f"loading {run}")
        model = Run.open(run).model(device)
        set_status(f"writing {out}")
        steps = model.steps() if step == "all" else [_step(step)]
        rows = write_table([model.table(step) for step in steps], out)
    if as_json:
        return print_json({"out": str(out), "rows": rows, "features": model.embed().shape[1]})
    return new_console().print(f"{rows:,} embeddings written to [bold]{escape(str(out))}[/bold]", highlight=False)


@app.command()
def forecast(
    run: RunFolder,
    node: Annotated[str | None, option("Show links of this node only.")] = None,
    kind: Annotated[str | None, option("Kind of that node, if its label occurs in both.")] = None,
    top: Annotated[int, option("Number of links to show.")] = 10,
    known: Annotated[
        Literal["include", "exclude"], option("Include or exclude pairs that were linked before.")
    ] = "include",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Show the most likely links of the next snapshot.

    Example:  [bold]dysat forecast run/ --node ann@x.org --top 20 --known exclude[/bold]
    """
    if top < 1:
        raise ModelError(f"--top {top} must be at least 1")
    with status_line() as set_status:
        set_status(f"loading {run}")
        model = Run.open(run).model(device)
        set_status("ranking links")
        label: Any = node
        if node is not None and model.graph_.nodes.dtype != object and re.fullmatch(r"-?\d+", node, re.ASCII):
            label = int(node)
        found = model.top_links(top, node=label, kind=kind, known=known)
    if as_json:
        return print_json([link_facts(link) for link in found])
    console = new_console()
    console.print(links_table(found))
    console.print(f"[dim]{SCORE}[/dim]", highlight=False, soft_wrap=True)
    return None


def _show_run(run: Run, as_json: bool, trained_at: float, top: int = 10) -> None:
    metrics = run.metrics()
    with working() as set_status:
        set_status("loading the model")
        model = run.model()
        set_status("ranking the most likely links")
        links = model.top_links(top)
    if as_json:
        return print_json({"run": str(run.folder), **metrics, "top_links": [link_facts(link) for link in links]})
    console = new_console()
    backtest = metrics["backtest"]
    if backtest is not None:
        table, forecast = new_table("backtest on the last snapshot", ">", ">"), backtest.get("forecast")
        if forecast is not None:
            table.add_row("forecast score, AUC", _figure(forecast["auc"]), "")
        of = "" if forecast is None else "embeddings and probe, "
        figures = (("auc", "AUC"), ("average_precision", "average precision")) if model.has_embeddings else ()
        for key, name in figures:
            table.add_row(f"{of}{name}", _figure(backtest[key]), f"± {_figure(backtest[f'{key}_sd'])}")
        table.add_row("links to predict", f"{backtest['links']:,}", "")
        if backtest["epochs"]:
            table.add_row("epoch kept", f"{backtest['best_epoch']}", f"of {backtest['epochs']}")
        console.print(table)
        note = f"snapshot {backtest['step'] + 1}, predicted by a model trained on snapshots 0 to {backtest['step']}"
        if model.has_embeddings:
            note += (
                f"; probe: logistic regression on the {model.pair_feature} of two embeddings, mean ± standard "
                f"deviation over {backtest['repeats']} random splits"
            )
        console.print(f"[dim]{note}[/dim]", highlight=False, soft_wrap=True)
        for line in (*_calibration(forecast), *_against_heuristics(backtest)):
            console.print(line, highlight=False, soft_wrap=True)
        console.print()
    console.print(links_table(links))
    console.print(f"[dim]{SCORE}[/dim]", highlight=False, soft_wrap=True)
    for line in _score_and_embeddings(model):
        console.print(f"[dim]{line}[/dim]", highlight=False, soft_wrap=True)
    epochs = (
        f"{epochs_text(metrics['epochs'])}{' per snapshot' * isinstance(model, Incremental)} on {metrics['device']}"
    )
    trained = epochs if metrics["epochs"] else model.method
    seconds = metrics["seconds"] + time.monotonic() - trained_at
    console.print(
        f"{trained}, {seconds:.1f} s in total; written to [bold]{escape(str(run.folder))}[/bold]",
        highlight=False,
        soft_wrap=True,
    )
    return None


def _score_and_embeddings(model: EmbeddingModel) -> Iterator[str]:
    """One line on what the forecast score depends on, if it does not depend on embeddings."""
    if not model.has_embeddings:
        yield "no embeddings were learned (--forecast-only); the forecast score does not depend on them"
    elif getattr(model, "pair_score_", None) is not None and getattr(model, "pair_score", False):
        yield (
            "the forecast score does not depend on the embeddings: those are node features for other programs "
            "(embeddings.parquet); --forecast-only learns the score alone, without epochs"
        )


def _calibration(forecast: dict[str, Any] | None) -> Iterator[str]:
    """One line on calibration: how often low, medium and high scores came true."""
    there = [part for part in (forecast or {}).get("reliability", []) if part["pairs"]]
    gap = mean_gap(there)
    if gap is None:
        return
    middle = min(there, key=lambda part: abs(part["from"] + part["to"] - 1))
    shown = [part for part in there if part in (there[0], middle, there[-1])]
    parts = (
        f"{part['from']:.1f}–{part['to']:.1f} came true for {100 * part['linked']:.0f} % of {part['pairs']:,} pairs"
        for part in shown
    )
    yield f"Calibration: scores of {', '.join(parts)}; mean error {100 * gap:.1f} points."


def _against_heuristics(backtest: dict[str, Any]) -> Iterator[str]:
    """One line: the strongest heuristic on this data, and whether the model beats it."""
    forecast = backtest.get("forecast")
    measured, what = (backtest, "The model") if forecast is None else (forecast, "The forecast score")
    strongest = measured.get("heuristic")
    if strongest is None or measured["auc"] is None:
        return
    word = "beats" if measured["auc"] > strongest["auc"] else "does not beat"
    yield (
        f"{what} {word} the strongest heuristic, [bold]{strongest['name']}[/bold] "
        f"(AUC {strongest['auc']:.4f}). Compare them step by step with dysat evaluate."
    )


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _step(text: str) -> int:
    try:
        return int(text.replace("−", "-"))
    except ValueError:
        raise ModelError(f"--step {text} is neither a whole number nor 'all'") from None
