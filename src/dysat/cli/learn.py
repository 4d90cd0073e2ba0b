"""Commands that learn and tell what was learned: fit, embed, forecast."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

import dysat
from dysat.cli.app import StoppedError, app
from dysat.cli.data import find_graph
from dysat.cli.options import DataDir, EventOptions, Json, ModelOptions, option, takes
from dysat.cli.show import SCORE, epochs_text, link_facts, links_table, new_console, new_table, print_json, telling
from dysat.cli.watching import watching
from dysat.errors import ModelError, listed, nearest
from dysat.evaluation.reliability import mean_gap
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import Incremental
from dysat.runs.run import LEARNERS, Run, check_new, write_embeddings
from dysat.system.process import keep_freed_memory

RUN, PRESET, METHOD = Path("run"), "program", "dysat"
DEFAULTS = {"dysat": "forecast", "incsat": PRESET}  # what options start from, where nothing else is said

RunFolder = Annotated[Path, typer.Argument(help="A run folder, made by [bold]dysat fit[/bold].", show_default=False)]
Device = Annotated[str, option("Device to compute on: cpu, cuda, …; auto takes CUDA where there is one.")]


@app.command()
@takes(events=EventOptions, models={"incsat": dysat.IncSAT, **LEARNERS})
def fit(
    source: Annotated[
        str | None,
        typer.Argument(help="A log of events, a graph folder, or the name of a dataset.", show_default=False),
    ] = None,
    out: Annotated[Path, option("Folder of the run.", "--out", "-o")] = RUN,
    resume: Annotated[Path | None, option("Go on with a run that was stopped, to the same result.")] = None,
    method: Annotated[
        str,
        option(
            "[bold]dysat[/bold]; [bold]incsat[/bold], which takes in one snapshot after the other; or another method: "
            f"{', '.join(name for name in LEARNERS if name not in ('dysat', 'incsat'))}.",
            "--model",
        ),
    ] = METHOD,
    preset: Annotated[
        str | None,
        option(
            "Options to start from: [bold]forecast[/bold] (what predicts best; the default of dysat), "
            "[bold]program[/bold] (the paper's authors'; the default of incsat), [bold]text[/bold] (the paper's); "
            "[bold]paper[/bold] for other methods that have it; "
            "[bold]sankar2019_uci[/bold] (or _enron, _yelp, _ml-10m): for a dataset of the paper."
        ),
    ] = None,
    backtest: Annotated[
        bool,
        option(
            "Measure first how well a model that has not seen the last snapshot predicts it.",
            "--backtest/--no-backtest",
        ),
    ] = True,
    data_dir: DataDir = None,
    as_json: Json = False,
    *,
    events: EventOptions,
    model: ModelOptions,
) -> None:
    """Learn embeddings, say how well they predict the last snapshot, and show the most likely next links.

    Examples:
      [bold]dysat fit uci[/bold]
      [bold]dysat fit uci --preset program --negative-weight 0.01 --epochs 15[/bold]
      [bold]dysat fit mail.csv --src from --dst to --time sent --every 30d --out run/[/bold]
      [bold]dysat fit mail.csv --every 30d --model graphsage --aggregator lstm[/bold]
      [bold]dysat fit --resume run/[/bold]
    Later:
      [bold]dysat update run/ new-mail.csv[/bold]  takes in the next snapshots.
    """
    if resume is not None:
        others = [*events.given(), *(name for name in model.given if name != "device")]
        if source is not None or others or (out, method, preset, backtest, data_dir) != (RUN, METHOD, None, True, None):
            raise ModelError(f"--resume {resume} goes on with what the run was started with; give nothing but --device")
        run = Run.open(resume)
    else:
        if source is None:
            raise ModelError("what to learn from? a log of events, a graph folder or the name of a dataset")
        check_new(Path(out).absolute())
        learner = _learner(method, preset, model.given)
        with telling() as doing:
            graph, made = find_graph(source, events, data_dir, doing)
            doing(f"writing {out}")
            run = Run.start(out, graph, learner, backtest=backtest, source=source, events=made)
    keep_freed_memory()
    with watching() as watch:
        ended = run.train(watch, device=model.given.get("device"))
    if not ended:
        raise StoppedError(f"stopped; what was learned is kept, dysat fit --resume {run.folder} goes on")
    _show_run(run, as_json)


def _learner(method: str, preset: str | None, given: dict[str, Any]) -> EmbeddingModel:
    """What was asked for, with its options."""
    if method not in LEARNERS:
        known = f"; {method} has no embeddings, dysat evaluate takes it" if method in dysat.MODELS else ""
        hint = known or nearest(method, LEARNERS)
        raise ModelError(f"no model {method!r}; there are {listed(LEARNERS, 20)}{hint}")
    kind = LEARNERS[method]
    presets = kind.presets()
    start = preset or next((name for name in (DEFAULTS.get(method), PRESET) if name in presets), None)
    return kind.with_options(given) if start is None else kind.from_preset(start, **given)


@app.command()
def embed(
    run: RunFolder,
    out: Annotated[Path, option("File to write: .parquet or .csv.", "--out", "-o")],
    step: Annotated[str, option("Step to embed, counted from 0, or −1 for the last, or [bold]all[/bold].")] = "-1",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Write the embeddings of a run: one row for every node that is known at a step."""
    with telling() as doing:
        doing(f"loading {run}")
        model = Run.open(run).model(device)
        doing(f"writing {out}")
        rows = write_embeddings(model, out, model.steps() if step == "all" else [_step(step)])
    if as_json:
        return print_json({"out": str(out), "rows": rows, "features": model.embed().shape[1]})
    return new_console().print(f"{rows:,} embeddings written to [bold]{escape(str(out))}[/bold]", highlight=False)


@app.command()
def forecast(
    run: RunFolder,
    node: Annotated[str | None, option("Only links of this node.")] = None,
    kind: Annotated[str | None, option("Kind of that node, where two kinds share its label.")] = None,
    top: Annotated[int, option("How many links to show.")] = 10,
    known: Annotated[
        Literal["include", "exclude"], option("Pairs that were linked before: among the forecasts, or left out.")
    ] = "include",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Show the most likely links of the next snapshot.

    Example:  [bold]dysat forecast run/ --node ann@x.org --top 20 --known exclude[/bold]
    """
    if top < 1:
        raise ModelError(f"--top {top} must be at least 1")
    with telling() as doing:
        doing(f"loading {run}")
        model = Run.open(run).model(device)
        doing("ranking links")
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


def _show_run(run: Run, as_json: bool, top: int = 10) -> None:
    metrics, model = run.metrics(), run.model()
    links = model.top_links(top)
    if as_json:
        return print_json({"run": str(run.folder), **metrics, "top_links": [link_facts(link) for link in links]})
    console = new_console()
    backtest = metrics["backtest"]
    if backtest is not None:
        table, forecast = new_table("how well the last snapshot was predicted", ">", ">"), backtest.get("forecast")
        if forecast is not None:
            table.add_row("forecast score, no probe", _figure(forecast["auc"]), "AUC")
        of = "" if forecast is None else "embeddings with a probe, "
        for key, name in (("auc", "AUC"), ("average_precision", "average precision")):
            table.add_row(f"{of}{name}", _figure(backtest[key]), f"± {_figure(backtest[f'{key}_sd'])}")
        table.add_row("links to predict", f"{backtest['links']:,}", "")
        if backtest["epochs"]:
            table.add_row("epoch that is kept", f"{backtest['best_epoch']}", f"of {backtest['epochs']}")
        console.print(table)
        note = (
            f"snapshot {backtest['step'] + 1} by a model that has seen 0 … {backtest['step']}; a logistic probe on the "
            f"{model.pair_feature} of two embeddings, mean ± deviation over {backtest['repeats']} random divisions"
        )
        console.print(f"[dim]{note}[/dim]", highlight=False, soft_wrap=True)
        for line in (*_meant(forecast), *_beside_heuristics(backtest)):
            console.print(line, highlight=False, soft_wrap=True)
        console.print()
    console.print(links_table(links))
    console.print(f"[dim]{SCORE}[/dim]", highlight=False, soft_wrap=True)
    whole = "for the last snapshot" if isinstance(model, Incremental) else "in all"
    epochs = f"{epochs_text(metrics['epochs'])} on {metrics['device']}, {metrics['seconds']:.1f} s {whole}"
    trained = epochs if metrics["epochs"] else model.method
    console.print(
        f"{trained}; written to [bold]{escape(str(run.folder))}[/bold]",
        highlight=False,
        soft_wrap=True,
    )
    return None


def _meant(forecast: dict[str, Any] | None) -> Iterator[str]:
    """One line: what came true of some scores, low, middling and high."""
    there = [part for part in (forecast or {}).get("reliability", []) if part["pairs"]]
    gap = mean_gap(there)
    if gap is None:
        return
    middle = min(there, key=lambda part: abs(part["from"] + part["to"] - 1))
    shown = [part for part in there if part in (there[0], middle, there[-1])]
    told = (
        f"of {part['from']:.1f}–{part['to']:.1f} came true in {100 * part['linked']:.0f} % of {part['pairs']:,} pairs"
        for part in shown
    )
    yield f"Scores {', '.join(told)}; in the mean, score and truth are {100 * gap:.1f} points apart."


def _beside_heuristics(backtest: dict[str, Any]) -> Iterator[str]:
    """One line: the strongest heuristic on these data, and whether the model beats it; leak-free where both can be."""
    forecast = backtest.get("forecast")
    measured, what = (backtest, "The model") if forecast is None else (forecast, "The forecast score")
    strongest = measured.get("heuristic")
    if strongest is None or measured["auc"] is None:
        return
    word = "beats" if measured["auc"] > strongest["auc"] else "does not beat"
    yield (
        f"{what} {word} the strongest heuristic here, [bold]{strongest['name']}[/bold] "
        f"(AUC {strongest['auc']:.4f}); dysat evaluate compares them step by step."
    )


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _step(text: str) -> int:
    try:
        return int(text.replace("−", "-"))
    except ValueError:
        raise ModelError(f"--step {text} is neither a whole number nor 'all'") from None
