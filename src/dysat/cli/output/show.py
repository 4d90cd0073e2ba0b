"""Output of the commands: tables, progress and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import dysat
from dysat.cli.options import as_options
from dysat.cli.output.terminal import SafeConsole, SafeTable, foreign
from dysat.data.attributes import describe_features
from dysat.data.summary import SnapshotSummary
from dysat.data.windows import write_edges
from dysat.models.base.forecasts import DIGITS, SCORE, score_text
from dysat.models.base.link_model import Calibrate
from dysat.system.parallel.ranks import ranks
from dysat.system.text.json_text import json_text
from dysat.system.text.printable import printable

WIDE = 120  # columns if the output is not a terminal
BAR = 12
UNLIMITED = 10_000  # columns; wider than any table
EIGHTHS = " ▏▎▍▌▋▊▉"
WHY = "share: part of all effects on the score, compared with a random pair; below 0, a fact makes the link less likely"


def show_graph(
    graph: dysat.DynamicGraph, name: str, as_json: bool, out: Path | None, *, run: dict[str, Any] | None = None
) -> None:
    """Print a graph as a table, or as JSON; `run` is added to the JSON."""
    rows = graph.summary()
    if as_json:
        facts = {
            "name": name,
            "nodes": graph.num_nodes,
            "kinds": graph.kind_counts,
            "directed": graph.directed,
            "links": sum(row.links for row in rows),
            "distinct_links": graph.num_distinct_links,
            "clock": graph.clock,
            "report": graph.report and asdict(graph.report),
            "attributes": describe_features(graph.features, graph.feature_names),
            "notes": graph.notes,
            "fingerprint": graph.fingerprint,
            "out": out and str(out),
            "snapshots": [asdict(row) for row in rows],
            **({"run": run} if run else {}),
        }
        return print_json(facts)
    screen = new_console()
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in graph.kind_counts.items())
    screen.print(
        f"[bold]{foreign(name)}[/bold]: {graph.num_nodes:,} nodes{f' ({foreign(kinds)})' * bool(kinds)}, "
        f"{len(graph)} snapshots, "
        f"{sum(row.links for row in rows):,} links ({graph.num_distinct_links:,} distinct)",
        highlight=False,
        soft_wrap=True,
    )
    edges = write_edges(graph.boundaries, graph.clock)
    for leave_out in range(4):  # drop bars, then window ends, then padding, until the table fits
        table = _snapshots_table(rows, edges, bars=leave_out < 1, stops=leave_out < 2, padding=leave_out < 3)
        table.width = screen.measure(table, options=screen.options.update(width=UNLIMITED)).maximum
        if table.width <= screen.width:
            break
    screen.print(table, crop=False)  # a table that is still too wide overflows: numbers are never cut
    for line in _footnotes(graph, sum(row.self_loops for row in rows)):
        screen.print(f"[dim]{foreign(line)}[/dim]", highlight=False, soft_wrap=True)
    if out is not None:
        screen.print(f"written to [bold]{foreign(out)}[/bold]", highlight=False, soft_wrap=True)
    return None


def _snapshots_table(rows: list[SnapshotSummary], edges: list[str], *, bars: bool, stops: bool, padding: bool) -> Table:
    """One row per snapshot; `bars` draws the number of links, `stops` shows where windows end."""
    columns = (">known", ">active", ">new", ">links", ">new links", ">weight")
    table = new_table(">step", "window" if stops else "from", *columns, *[""] * bars)
    if not padding:
        table.padding, table.show_edge = (0, 0), False
    most = max(row.links for row in rows) or 1
    for row, (start, stop) in zip(rows, pairwise(edges), strict=True):
        counts = (row.known, row.active, row.new_nodes, row.links, row.new_links)
        fraction = row.weight % 1 and row.weight < 100_000
        table.add_row(
            str(row.step),
            f"{start} … {stop}" if stops else start,
            *(f"{number:,}" for number in counts),
            f"{row.weight:,.6g}" if fraction else f"{row.weight:,.0f}",
            *[bar(row.links / most)] * bars,
        )
    return table


def _footnotes(graph: dysat.DynamicGraph, loops: int) -> Iterator[str]:
    yield from log_notes(graph, loops)
    if graph.clock == "utc":
        yield "windows are [start, stop) in UTC; new links are those absent from the snapshot before"


def log_notes(graph: dysat.DynamicGraph, loops: int) -> Iterator[str]:
    """How the events of a log were used, and what was recognised in it."""
    report = graph.report
    if report is not None:
        left_out = [
            f"{n:,} {what}"
            for n, what in ((report.before, "before the first window"), (report.after, "after the last"))
            if n
        ]
        yield f"{report.used:,} of {report.events:,} events used" + f"; left out: {', '.join(left_out)}" * bool(
            left_out
        )
        if report.self_loops:
            fate = f"kept ({loops:,} links)" if report.self_loops_kept else "dropped"
            events = f"{report.self_loops:,} event{'s' * (report.self_loops != 1)}"
            yield f"{events} of a node with itself: {fate}"
    if attributes := describe_features(graph.features, graph.feature_names):
        changing = " in each window" * isinstance(graph.features, tuple)
        yield f"attributes{changing}: {', '.join(attributes)}"
    yield from map(as_options, graph.notes)
    if graph.kinds is None:
        yield direction_text(graph)


def show_notes(graph: dysat.DynamicGraph) -> None:
    """Print the notes on a log that a command has read, as `dysat snapshots` does."""
    console = new_console(stderr=True)
    for line in log_notes(graph, sum(snapshot.num_self_loops for snapshot in graph)):
        console.print(f"[dim]{foreign(line)}[/dim]", highlight=False, soft_wrap=True)


def score_note(model: dysat.LinkModel, calibrate: Calibrate) -> str:
    """What the scores of a table mean, and the base rate that they refer to."""
    if calibrate == "balanced":
        return SCORE
    links, others = model._last_counts()
    rate = f"{links:,} of {links + others:,} pairs in the last snapshot, {links / (links + others):.2g}"
    return f"score: calibrated probability of a link, among all pairs of nodes (base rate: {rate})"


def direction_text(graph: dysat.DynamicGraph) -> str:
    """One line: whether links have a direction, and how many pairs linked both ways."""
    if not graph.directed:
        return "undirected: who sent a link is not kept; --directed keeps it"
    pairs = sum(snapshot.num_links - snapshot.num_self_loops for snapshot in graph)
    arcs = sum(len(snapshot.arcs()[0]) - snapshot.num_self_loops for snapshot in graph)
    both = f"; in {(arcs - pairs) / pairs:.0%} of the linked pairs both sent one" if pairs else ""
    return f"directed: {arcs:,} links from one node to another{both}"


def unused_direction(model: dysat.LinkModel) -> Iterator[str]:
    """One line if the graph has a direction that the model does not use."""
    if model.graph_.directed and not model.uses_direction:
        yield f"direction is not used by {model.method}; pairs are scored alike in both directions"


def new_table(*columns: str) -> Table:
    """A plain table; a leading > right-aligns a column."""
    table = SafeTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return table


def links_table(links: dysat.Forecasts, whys: Sequence[dysat.Why] | None = None) -> Table:
    """A table of forecasts; with their reasons, the first one beside the link and the others below."""
    ends = ("most likely next links: from →", "to") if links.graph.directed else ("most likely next links", "")
    table = new_table(*ends, ">score", "linked before", *([] if whys is None else [">share"]))
    if whys is not None:
        table.add_column("why", overflow="fold")
    for number, link in enumerate(links):
        cells = foreign(link.u), foreign(link.v), score_text(link.score), "yes" if link.known else "no"
        reasons = () if whys is None else whys[number].reasons
        shown = [(f"{100 * reason.share:+.0f} %", foreign(reason.text)) for reason in reasons]
        table.add_row(*cells, *(shown[0] if shown else ()))
        for cell in shown[1:]:
            table.add_row(*[""] * len(cells), *cell)
    return table


def epochs_text(number: int) -> str:
    """Format a number of epochs."""
    return f"{number} epoch{'s' * (number != 1)}"


def link_facts(link: dysat.Forecast) -> dict[str, Any]:
    """A forecast as JSON values."""
    u, v = (label if isinstance(label, str) else int(label) for label in (link.u, link.v))
    return {"u": u, "v": v, "score": round(link.score, DIGITS), "known": link.known}


def bar(share: float) -> str:
    """Draw a bar that fills this share of its full width."""
    eighths = math.ceil(share * BAR * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def new_console(stderr: bool = False) -> Console:
    """A console as wide as the terminal, or WIDE columns without one; of several ranks only the first prints."""
    console = SafeConsole(stderr=stderr, quiet=not ranks().first)
    return console if console.is_terminal else SafeConsole(stderr=stderr, width=WIDE, quiet=not ranks().first)


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Show the current activity on a terminal; print nothing elsewhere."""
    console = new_console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status("") as status:
        yield lambda text: status.update(Text(printable(f"{text} …")))


def print_json(value: Any) -> None:
    """Print a value as JSON; commands with --json print nothing else."""
    typer.echo(json_text(value, indent=2))
