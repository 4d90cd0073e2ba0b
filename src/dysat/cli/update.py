"""The command that takes in what came since: update."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

import dysat
from dysat.cli.app import StoppedError, app
from dysat.cli.data import read_log
from dysat.cli.learn import RunFolder
from dysat.cli.options import Device, EventOptions, as_options, option, takes
from dysat.cli.show import (
    SCORE,
    epochs_text,
    link_facts,
    links_table,
    new_console,
    new_table,
    print_json,
    score_text,
    telling,
)
from dysat.cli.watching import watching
from dysat.data.windows import write_moment
from dysat.errors import ModelError
from dysat.runs.feed import POLL, EventFile, Feed, check_file
from dysat.runs.run import Run, Watch
from dysat.runs.update import SHOWN, StoppedUpdate, Update, Updater, updating
from dysat.system.process import keep_freed_memory


@app.command()
@takes(events=EventOptions)
def update(
    run: RunFolder,
    new: Annotated[
        Path | None,
        typer.Argument(metavar="EVENTS", help="The log that goes on where the run ends.", show_default=False),
    ] = None,
    until: Annotated[
        str | None, option("Take in only windows that end by this date; later events wait for the next time.")
    ] = None,
    follow: Annotated[
        Path | None, option("Watch a folder for files of events, and take in each window when it is over.")
    ] = None,
    once: Annotated[bool, option("With --follow: look once, and end.", "--once")] = False,
    poll: Annotated[float, option("With --follow: seconds between two looks.")] = POLL,
    epochs: Annotated[
        int | None, option("Epochs for each snapshot [dim](default: as many as the run was trained)[/dim].")
    ] = None,
    top: Annotated[int, option("How many links to show.")] = 10,
    wait: Annotated[bool, option("Wait for another update of the run to end, instead of stopping.", "--wait")] = False,
    device: Device = "auto",
    as_json: Annotated[bool, option("Print JSON; with --follow, one line for each update.", "--json")] = False,
    *,
    events: EventOptions,
) -> None:
    """Take in the next snapshots of a run, and say what came true of its forecasts.

    Columns and windows are those the run was made with. Killed at any moment, the run is before an update or after it.
    A run of incsat, or of the paper's dysat, learns from the new snapshot alone; one of the preset forecast from all.

    Examples:
      [bold]dysat update run/ new-mail.csv[/bold]
      [bold]dysat update run/ new-mail.csv --until 2024-06-01[/bold]
      [bold]dysat update run/ --follow incoming/[/bold]
    """
    if (new is None) == (follow is None):
        raise ModelError("what to take in? a log of events, or --follow and a folder of them")
    if until is not None and new is None:
        raise ModelError("--until goes with a log of events: a folder that is followed has no end")
    if (once or poll != POLL) and follow is None:
        raise ModelError("--once and --poll go with --follow")
    if follow is not None and events.boundaries is not None:
        raise ModelError("boundaries= goes with a log of events: a folder that is followed has no end")
    if poll <= 0 or top < 1:
        raise ModelError("--poll must be above 0, and --top at least 1")
    opened = Run.open(run)
    options = events.like(opened.config.get("events"), str(run))
    made = {name: getattr(options, name) for name in options.given() if name in ("every", "count", "self_loops")}
    keep_freed_memory()
    try:
        with (
            watching("stopping") as watch,
            updating(opened, made=made, device=device, epochs=epochs, watch=watch, wait=wait) as updater,
        ):
            options = _as_the_graph_is(updater, options)
            if new is not None:
                _take_in_file(updater, new, options, until, top, as_json, watch)
            else:
                _follow(updater, follow, options, poll, once, top, as_json, watch)  # type: ignore[arg-type]
    except StoppedUpdate as stopped:
        raise StoppedError(str(stopped)) from None


def _take_in_file(
    updater: Updater, file: Path, options: EventOptions, until: str | None, top: int, as_json: bool, watch: Watch
) -> None:
    with telling() as doing:
        found = EventFile.read(file, lambda path: read_log(path, options, doing, at_least=1))
    facts, late = check_file(updater, found)
    plan = updater.plan(found.events, until=until, boundaries=options.edges())
    for note in plan.notes:
        watch.on_note(as_options(note))
    clock = updater.graph.clock
    if not plan.steps:
        by = f" by {until}" if until is not None else ""
        last = write_moment(updater.last, clock)
        raise ModelError(f"{file}: no window to take in ends{by} after {last}, where the run ends; its events wait")
    if late:
        watch.on_note(
            f"{late:,} of {len(found.events):,} events lie before {write_moment(updater.last, clock)}, where the last "
            "window ends: they come too late and are left out"
        )
    if plan.left:
        watch.on_note(f"{plan.left:,} events lie after the last window taken in, and wait for the next update")
    updates = [_told(update, as_json) for update in updater.take_in(plan, [facts])]
    links = updater.model.top_links(top)
    if as_json:
        counts = {"events": len(found.events), "used": plan.used, "late": late, "left": plan.left}
        return print_json(
            {
                "run": str(updater.run.folder),
                **counts,
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
        return read_log(path, options, lambda text: None, at_least=1)

    updater.grid()  # windows that cannot go on by themselves are refused here, not when the first file comes
    feed = Feed(folder, read, tell=lambda text: watch.on_note(as_options(text)))
    watch.on_note(f"watching {folder}; Ctrl-C ends it")
    for update in feed.follow(updater, stop=watch.stop, poll=poll, once=once):
        links = updater.model.top_links(top)
        if as_json:
            facts = {**update.facts(), "top_links": [link_facts(link) for link in links]}
            typer.echo(json.dumps(facts, ensure_ascii=False))
        else:
            _told(update, as_json)
            _show_links(links)


def _as_the_graph_is(updater: Updater, options: EventOptions) -> EventOptions:
    """A run that does not know how its log was read takes the next one for what its graph is."""
    if "events" in updater.run.config:
        return options
    names, clock = updater.graph.kind_names, updater.graph.clock
    if options.kinds is None and len(names) == 2:
        options = replace(options, kinds=",".join(names))
    if options.time_unit is None and clock == "step":
        options = replace(options, time_unit="step")
    return options


def _told(update: Update, as_json: bool) -> Update:
    """One update as lines; given out again."""
    if not as_json:
        console = new_console()
        for line in _lines(update):
            console.print(line, highlight=False, soft_wrap=True)
        if update.came_true:
            table = new_table(">rank", "forecast that came true", "", ">score")
            for link in update.came_true[:SHOWN]:
                table.add_row(str(link.rank), escape(str(link.u)), escape(str(link.v)), score_text(link.score))
            console.print(table)
    return update


def _lines(update: Update) -> Iterator[str]:
    yield (
        f"[bold]snapshot {update.step}[/bold], {update.start} … {update.stop}: {update.events:,} events, "
        f"{update.links:,} links, {update.new_nodes:,} new nodes ({update.nodes:,} in all)"
    )
    if update.auc is not None:
        yield (
            f"  the last forecast: AUC [bold]{update.auc:.4f}[/bold] on {update.forecast_links:,} links between known "
            f"nodes and as many other pairs; of its {update.likeliest:,} likeliest links {len(update.came_true):,} came"
        )
    if update.epochs or update.links:
        yield f"[dim]  learned in {epochs_text(update.epochs)}, {update.seconds:.1f} s[/dim]"
    else:
        yield "[dim]  kept as an empty snapshot; there was nothing to learn from[/dim]"


def _show_links(links: list[dysat.Forecast]) -> None:
    console = new_console()
    console.print(links_table(links))
    console.print(f"[dim]{SCORE}[/dim]", highlight=False, soft_wrap=True)
