"""The commands fit and embed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from dysat.cli.app import StoppedError, app
from dysat.cli.data import find_graph
from dysat.cli.options import (
    RARE,
    Device,
    EventOptions,
    Json,
    Preset,
    RawLabels,
    Settings,
    by_all_ranks,
    check_engine,
    chosen_model,
    option,
    parse_setting,
    takes,
)  # fmt: skip
from dysat.cli.output.backtest_table import show_backtest
from dysat.cli.output.estimate_table import print_estimate
from dysat.cli.output.show import (
    epochs_text,
    link_facts,
    links_table,
    new_console,
    print_json,
    score_note,
    show_notes,
    status_line,
    unused_direction,
)
from dysat.cli.output.terminal import foreign
from dysat.cli.output.watching import watching, working
from dysat.errors import DysatError, ModelError, listed
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.forecasts import Forecasts
from dysat.models.base.link_model import Calibrate, Incremental
from dysat.report.content import LIKELIEST
from dysat.runs.backtest import WINDOWS
from dysat.runs.run import LEARNERS, Run, Watch, check_new
from dysat.system.parallel.engine import EngineName
from dysat.system.parallel.process import keep_freed_memory
from dysat.system.parallel.ranks import ranks, was_restarted
from dysat.system.writing import check_new_file

RUN, METHOD = Path("run"), "dysat"

FIT_SOURCE = typer.Argument(
    help="Log of events, graph folder, or dataset.", show_default=False, metavar="SOURCE", hidden=True
)
FIT_OUT = option("Run folder to write [dim](default: run)[/dim].", "--out", "-o", metavar="FOLDER")
FIT_MODEL = option("Method or method:preset [dim](default: dysat)[/dim].", "--model", panel="Model", metavar="NAME")
FIT_DEVICE = option("cpu, cuda, cuda:1 [dim](default: CUDA if available)[/dim].", panel="Model", metavar="NAME")
CALIBRATE = "Scores in a balanced mix of links and non-links, or real: among all pairs."
FORECAST_ONLY = option("Forecast without embeddings: no epochs.", "--forecast-only")
ESTIMATE = option("Say how long it will take, and stop.", "--estimate")
HIDDEN = (*(name for name in RARE if name != "directed"), "start", "stop")  # event options left out of its help
RunFolder = Annotated[Path, typer.Argument(help="Run folder made by [bold]dysat fit[/bold].", show_default=False)]


@app.command()
@takes(events=EventOptions, hide=HIDDEN)
@by_all_ranks
def fit(
    source: Annotated[str | None, FIT_SOURCE] = None,
    out: Annotated[Path, FIT_OUT] = RUN,
    resume: Annotated[Path | None, option("Resume a stopped run.", metavar="FOLDER")] = None,
    no_backtest: Annotated[bool, option("Skip the backtest on the last windows.", "--no-backtest")] = False,
    backtest_windows: Annotated[int, option("Windows to predict in the backtest.", metavar="N", hidden=True)] = WINDOWS,
    include_incomplete: Annotated[
        bool, option("Also predict a last window that is incomplete.", "--include-incomplete", hidden=True)
    ] = False,
    calibrate: Annotated[Calibrate, option(CALIBRATE, hidden=True)] = "balanced",
    forecast_only: Annotated[bool, FORECAST_ONLY] = False,
    estimate: Annotated[bool, ESTIMATE] = False,
    no_report: Annotated[bool, option("Do not write report.html.", "--no-report", hidden=True)] = False,
    as_json: Json = False,
    data_dir: Annotated[Path | None, option("Folder of the paper's datasets.", metavar="FOLDER", hidden=True)] = None,
    model: Annotated[str, FIT_MODEL] = METHOD,
    preset: Preset = None,
    epochs: Annotated[int | None, option("Number of epochs.", panel="Model", metavar="N")] = None,
    seed: Annotated[int | None, option("Random seed.", panel="Model", metavar="N")] = None,
    device: Annotated[str | None, FIT_DEVICE] = None,
    settings: Settings = None,
    engine: Annotated[EngineName, option("Train here, or on a Ray cluster.", "--engine", hidden=True)] = "local",
    address: Annotated[str | None, option("Ray cluster: auto, HOST:PORT.", metavar="ADDRESS", hidden=True)] = None,
    workers: Annotated[int | None, option("Processes that train on Ray.", metavar="N", hidden=True)] = None,
    gpus_per_worker: Annotated[float | None, option("GPUs of each of them.", metavar="N", hidden=True)] = None,
    *,
    events: EventOptions,
) -> None:
    """Learn from a log, report how well it predicts, and forecast the next links.

    SOURCE is a log, a graph folder, a run folder or the name of a dataset:
      [bold]dysat fit mail.csv --src from --dst to --time sent --every 30d -o run/[/bold]
      [bold]dysat fit --resume run/[/bold]
    See also [bold]dysat models[/bold] and [bold]dysat snapshots --help[/bold] (files, attributes).
    """
    began = time.monotonic()
    on_ray = _training_on_ray(engine, address, workers, gpus_per_worker)
    given = {"epochs": epochs, "seed": seed, "device": device, "embeddings": False if forecast_only else None}
    flags = {name: value for name, value in given.items() if value is not None}
    if resume is not None:
        others = [source, *events.given(), *(settings or []), *(name for name in flags if name != "device")]
        given_backtest = no_backtest or include_incomplete or estimate or backtest_windows != WINDOWS
        if any(others) or given_backtest or (out, model, preset, data_dir) != (RUN, METHOD, None, None):
            raise ModelError(f"--resume {resume} continues with the options of the run; give nothing but --device")
        run = Run.open(resume)
        graph = run.graph()
        run = Run.shared(run if ranks().first else None, graph)
    elif source is None:
        raise ModelError("no source: give a log of events, a graph folder or the name of a dataset")
    else:
        if backtest_windows < 1:
            raise ModelError(f"--backtest-windows {backtest_windows} must be at least 1; --no-backtest predicts none")
        if not estimate and ranks().first and not was_restarted():
            check_new(Path(out).absolute())
        if ranks().size > 1 and os.path.isfile(source):
            raise ModelError(f"{source}: several processes need a graph folder, which dysat snapshots makes of a log")
        if forecast_only and model.partition(":")[0] != METHOD:
            raise ModelError(f"--forecast-only belongs to --model {METHOD}; {model} has no forecast score of its own")
        learner = chosen_model(model, preset, {**dict(map(parse_setting, settings or [])), **flags}).build()
        if not isinstance(learner, EmbeddingModel):
            there = listed(LEARNERS, 20)
            raise ModelError(f"{learner.method} has no embeddings, use it with dysat evaluate; fit takes {there}")
        with working() as set_status:
            graph, made = find_graph(source, events, data_dir, set_status)
            windows = 0 if no_backtest else backtest_windows
            if not estimate:
                set_status(f"writing {out}")
                started = None
                if ranks().first:
                    started = Run.start(
                        out, graph, learner, backtest=windows, include_incomplete=include_incomplete, source=source,
                        events=made,
                    )  # fmt: skip
                run = Run.shared(started, graph)
        if made:
            show_notes(graph)
        if estimate:
            reading = time.monotonic() - began
            return print_estimate(graph, learner, windows=windows, reading=reading, as_json=as_json)
    keep_freed_memory(sum(snapshot.num_links for snapshot in graph))
    del graph  # the run has a copy, which is mapped
    with watching() as watch:
        ended = run.train(watch, device=device, began=began) if on_ray is None else on_ray(run, watch, device)
    if not ended:
        raise StoppedError(f"stopped; progress is saved, dysat fit --resume {run.folder} continues")
    return _show_run(run, as_json, calibrate, time.monotonic(), with_report=not no_report)


def _training_on_ray(
    engine: EngineName, address: str | None, workers: int | None, gpus: float | None
) -> Callable[[Run, Watch, str | None], bool] | None:
    """Return a function that trains a run on a Ray cluster, if that was asked for; raise if options do not fit."""
    check_engine(engine, address)
    if engine != "ray":
        if workers is not None or gpus is not None:
            raise ModelError("--workers and --gpus-per-worker need --engine ray; torchrun starts processes without it")
        return None
    if workers is not None and workers < 1:
        raise ModelError(f"--workers {workers} must be at least 1")
    if gpus is not None and not 0 <= gpus < math.inf:
        raise ModelError(f"--gpus-per-worker {gpus} must be a number, not negative")
    if ranks().size > 1:
        raise ModelError("--engine ray starts processes of its own; leave out torchrun")

    def train(run: Run, watch: Watch, device: str | None) -> bool:
        from dysat.cli.on_ray import train_on_ray

        return train_on_ray(run, watch, device, address=address, workers=workers or 1, gpus=gpus or 0.0)

    return train


@app.command()
def embed(
    run: RunFolder,
    out: Annotated[Path, option("File to write: .parquet, .csv or .jsonl.", "--out", "-o")],
    step: Annotated[str, option("Step to embed from 0; −1 is the last, [bold]all[/bold] is every step.")] = "-1",
    raw_labels: RawLabels = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Write the embeddings of a run, one row per node known at a step."""
    from dysat.system.table_files import check_suffix, write_table

    check_suffix(out, raw_labels=raw_labels)
    check_new_file(out, ModelError)
    with status_line() as set_status:
        set_status(f"loading {run}")
        model = Run.open(run).model(device)
        set_status(f"writing {out}")
        steps = model.steps() if step == "all" else [_step(step)]
        rows = write_table([model.table(step) for step in steps], out, raw_labels=raw_labels)
    if as_json:
        return print_json({"out": str(out), "rows": rows, "features": model.embed().shape[1]})
    return new_console().print(f"{rows:,} embeddings written to [bold]{foreign(out)}[/bold]", highlight=False)


def _show_run(
    run: Run, as_json: bool, calibrate: Calibrate, trained_at: float, top: int = 10, *, with_report: bool
) -> None:
    with working() as set_status:
        set_status("loading the model")
        model = run.model_at_hand()
        set_status("ranking the most likely links")
        best = model.top_links(max(top, LIKELIEST) if with_report else top)
        links = best[:top] if calibrate == "balanced" else model.top_links(top, calibrate=calibrate)
        if not ranks().first:
            return None
        page = report_of(run, model, best, set_status) if with_report else None
    metrics = run.metrics()
    if as_json:
        facts = {"run": str(run.folder), "report": page and str(page), "notes": run.graph().notes, **metrics}
        return print_json({**facts, "top_links": [link_facts(link) for link in links]})
    console = new_console()
    if metrics["backtest"] is not None:
        show_backtest(metrics["backtest"], model, console)
    console.print(links_table(links))
    for line in (score_note(model, calibrate), *unused_direction(model), *_score_and_embeddings(model)):
        console.print(f"[dim]{foreign(line)}[/dim]", highlight=False, soft_wrap=True)
    epochs = (
        f"{epochs_text(metrics['epochs'])}{' per snapshot' * isinstance(model, Incremental)} on {metrics['device']}"
    )
    trained = epochs if metrics["epochs"] else model.method
    seconds = metrics["seconds"] + time.monotonic() - trained_at
    console.print(
        f"{foreign(trained)}, {seconds:.1f} s in total; written to [bold]{foreign(run.folder)}[/bold]"
        f"{f'; open [bold]{foreign(page)}[/bold] to look at it' * (page is not None)}",
        highlight=False,
        soft_wrap=True,
    )
    return None


def report_of(run: Run, model: EmbeddingModel, best: Forecasts, set_status: Callable[[str], None]) -> Path | None:
    """Write the page of a run and return its path; if that fails, say why: the run itself is complete."""
    from dysat.runs.report import write_report

    set_status("writing report.html")
    try:
        return write_report(run, model, best)
    except (DysatError, MemoryError) as problem:
        line = f"no report: {problem}" if str(problem) else "no report: not enough memory"
        new_console(stderr=True).print(f"[dim]{foreign(line)}[/dim]", highlight=False, soft_wrap=True)
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


def _step(text: str) -> int:
    try:
        return int(text.replace("−", "-"))
    except ValueError:
        raise ModelError(f"--step {text} is neither a whole number nor 'all'") from None
