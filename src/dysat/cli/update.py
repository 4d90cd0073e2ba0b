"""The command update: learn from new snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import dysat
from dysat.cli.app import StoppedError, app
from dysat.cli.learn import RunFolder
from dysat.cli.options import NODE_OPTIONS, Device, EventOptions, as_options, option, takes
from dysat.cli.output.show import (
    epochs_text,
    link_facts,
    links_table,
    new_console,
    new_table,
    print_json,
    status_line,
)
from dysat.cli.output.terminal import foreign
from dysat.cli.output.watching import watching
from dysat.data.windows import write_moment
from dysat.errors import ModelError
from dysat.models.base.forecasts import SCORE, score_text
from dysat.runs.feed import POLL, EventFile, Feed, check_file
from dysat.runs.run import Run, Watch
from dysat.runs.update import SHOWN, StoppedUpdate, Update, Updater, updating
from dysat.system.parallel.process import keep_freed_memory
from dysat.system.text.json_text import json_text


@app.command()
@takes(events=EventOptions, hide=NODE_OPTIONS)
def update(
    run: RunFolder,
    new: Annotated[
        Path | None,
        typer.Argument(metavar="EVENTS", help="Log of the events since the run ended.", show_default=False),
    ] = None,
    until: Annotated[
        str | None, option("Use only windows that end by this date; later events wait for the next update.")
    ] = None,
    follow: Annotated[
        Path | None, option("Watch a folder for event files, and learn from each window once it is over.")
    ] = None,
    once: Annotated[bool, option("With --follow: look once, then exit.", "--once")] = False,
    poll: Annotated[float, option("With --follow: seconds between checks.")] = POLL,
    epochs: Annotated[int | None, option("Epochs per snapshot [dim](default: those of the run)[/dim].")] = None,
    top: Annotated[int, option("Number of links to show.")] = 10,
    wait: Annotated[bool, option("Wait for another update of this run instead of stopping.", "--wait")] = False,
    no_report: Annotated[bool, option("Do not write report.html, the page of the run.", "--no-report")] = False,
    device: Device = "auto",
    as_json: Annotated[bool, option("Print JSON; with --follow, one line per update.", "--json")] = False,
    *,
    events: EventOptions,
) -> None:
    """Learn from the next snapshots of a run, and report which forecasts came true.

    Columns and windows are those of the run. Updates are atomic: a killed update leaves the run unchanged or updated.
    Runs of incsat, dysat:text and dysat:program learn from the new snapshot alone; the default learns from all again.

    Examples:
      [bold]dysat update run/ new-mail.csv[/bold]
      [bold]dysat update run/ new-mail.csv --until 2024-06-01[/bold]
      [bold]dysat update run/ --follow incoming/[/bold]
    """
    if (new is None) == (follow is None):
        raise ModelError("no events: give a log, or --follow and a folder of logs")
    if until is not None and new is None:
        raise ModelError("--until needs a log of events: a followed folder has no end")
    if (once or poll != POLL) and follow is None:
        raise ModelError("--once and --poll need --follow")
    if follow is not None and events.boundaries is not None:
        raise ModelError("boundaries= needs a log of events: a followed folder has no end")
    if not poll > 0 or top < 1:  # NaN is not above 0
        raise ModelError("--poll must be above 0, and --top at least 1")
    opened = Run.open(run)
    options = events.like(opened.config.get("events"), str(run))
    cut = ("every", "count", "self_loops", "directed")
    windows = {name: getattr(options, name) for name in options.given() if name in cut}
    keep_freed_memory()
    try:
        with (
            watching("stopping") as watch,
            updating(
                opened, made=windows, device=device, epochs=epochs, watch=watch, wait=wait, report=not no_report
            ) as updater,
        ):
            options = _complete_options(updater, options)
            if new is not None:
                _take_in_file(updater, new, options, until, top, as_json, watch)
            else:
                _follow(updater, follow, options, poll, once, top, as_json, watch)  # type: ignore[arg-type]
    except StoppedUpdate as stopped:
        raise StoppedError(str(stopped)) from None


def _take_in_file(
    updater: Updater, file: Path, options: EventOptions, until: str | None, top: int, as_json: bool, watch: Watch
) -> None:
    with status_line() as set_status:
        set_status(f"reading {file}")
        found = EventFile.read(file, lambda path: dysat.read_events(path, **options.reading(), at_least=1))
    facts, late = check_file(updater, found)
    plan = updater.plan(found.events, until=until, boundaries=options.edges())
    for note in plan.notes:
        watch.on_note(as_options(note))
    clock = updater.graph.clock
    if not plan.steps:
        by = f" by {until}" if until is not None else ""
        last = write_moment(updater.last, clock)
        raise ModelError(
            f"{file}: no window ends{by} after {last}, where the run ends; its events wait for a later update"
        )
    if late:
        watch.on_note(
            f"{late:,} of {len(found.events):,} events are too late and ignored: they lie before "
            f"{write_moment(updater.last, clock)}, where the last window ends"
        )
    if plan.left:
        watch.on_note(f"{plan.left:,} events lie after the last window of this update, and wait for the next one")
    updates = [_show_update(update, as_json) for update in updater.take_in(plan, [facts])]
    links = updater.model.top_links(top)
    if as_json:
        counts = {"events": len(found.events), "used": plan.used, "late": late, "left": plan.left}
        return print_json(
            {
                "run": str(updater.run.folder),
                **counts,
                "notes": plan.notes,
                "updates": [update.facts() for update in updates],
                "top_links": [link_facts(link) for link in links],
            }
        )
    return _show_links(links)


def _follow(
    updater: Updater,
    folder: Path,
    options: EventOptions,
    poll: float,
    once: bool,
    top: int,
    as_json: bool,
    watch: Watch,
) -> None:
    def read(path: Path) -> dysat.Events:
        return dysat.read_events(path, **options.reading(), at_least=1)

    updater.grid()  # refuse windows that cannot be continued before waiting for files
    feed = Feed(folder, read, tell=lambda text: watch.on_note(as_options(text)))
    watch.on_note(f"watching {folder}; stop with Ctrl-C")
    for update in feed.follow(updater, stop=watch.stop, poll=poll, once=once):
        links = updater.model.top_links(top)
        if as_json:
            facts = {**update.facts(), "top_links": [link_facts(link) for link in links]}
            typer.echo(json_text(facts))
        else:
            _show_update(update, as_json)
            _show_links(links)


def _complete_options(updater: Updater, options: EventOptions) -> EventOptions:
    """Fill in options from the graph if the run does not record how its log was read."""
    if "events" in updater.run.config:
        return options
    names, clock = updater.graph.kind_names, updater.graph.clock
    if options.kinds is None and len(names) == 2:
        options = replace(options, kinds=",".join(names))
    if options.time_unit is None and clock == "step":
        options = replace(options, time_unit="step")
    return options


def _show_update(update: Update, as_json: bool) -> Update:
    """Print one update, and return it."""
    if not as_json:
        console = new_console()
        for line in _lines(update):
            console.print(line, highlight=False, soft_wrap=True)
        if update.came_true:
            table = new_table(">rank", "forecast that came true", "", ">score")
            for link in update.came_true[:SHOWN]:
                table.add_row(str(link.rank), foreign(link.u), foreign(link.v), score_text(link.score))
            console.print(table)
    return update


def _lines(update: Update) -> Iterator[str]:
    yield (
        f"[bold]snapshot {update.step}[/bold], {update.start} … {update.stop}: {update.events:,} events, "
        f"{update.links:,} links, {update.new_nodes:,} new nodes ({update.nodes:,} in all)"
    )
    if update.auc is not None:
        yield (
            f"  last forecast: AUC [bold]{update.auc:.4f}[/bold] on {update.forecast_links:,} links between known "
            f"nodes and as many other pairs; {len(update.came_true):,} of its {update.likeliest:,} most likely links "
            "came true"
        )
    if update.epochs or update.links:
        learned = f"trained for {epochs_text(update.epochs)}" if update.epochs else "learned from all snapshots"
        yield f"[dim]  {learned}, {update.seconds:.1f} s[/dim]"
    else:
        yield "[dim]  stored as an empty snapshot; there was nothing to learn from[/dim]"


def _show_links(links: dysat.Forecasts) -> None:
    console = new_console()
    console.print(links_table(links))
    console.print(f"[dim]{SCORE}[/dim]", highlight=False, soft_wrap=True)
