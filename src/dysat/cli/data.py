"""The command line: parse, call, print. The only place that prints."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import dysat
from dysat.data.datasets import DATASETS, data_folder
from dysat.data.storage import check_target
from dysat.errors import DysatError, GraphError, nearest
from dysat.options import (
    Boundaries,
    Count,
    DataDir,
    Dst,
    EventsFile,
    EveryText,
    FileFormat,
    Header,
    Json,
    Kinds,
    PairSeparator,
    SelfLoops,
    Separator,
    SkipBadRows,
    Src,
    Start,
    Stop,
    Time,
    TimeFormat,
    Timezone,
    Unit,
    Weight,
    as_options,
    option,
)

WIDE = 120  # columns when the output is no terminal
BAR = 12
MINUTES = len("2024-01-01 00:00")
USAGE_ERROR: Any = typer.BadParameter.__base__  # of Click, or of the Click that Typer brings along
EIGHTHS = " ▏▎▍▌▋▊▉"

app = typer.Typer(
    help="Learn node embeddings of graphs that change over time, and predict their next links.",
    epilog="Start with [bold]dysat info uci[/bold], or [bold]dysat snapshots --help[/bold] for a log of your own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> NoReturn:
    """Run the program; a mistake gets one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show … shows ?
    try:
        code = app(standalone_mode=False)
    except DysatError as problem:
        _fail(as_options(str(problem)))
    except USAGE_ERROR as problem:
        _fail(f"{problem.format_message()} (see {problem.ctx.command_path if problem.ctx else 'dysat'} --help)")
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("dysat: stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as problem:
        _fail(str(problem))
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> NoReturn:
    typer.echo(f"dysat: {' '.join(message.split())}", err=True)
    sys.exit(2)


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"dysat {dysat.__version__}")
        raise typer.Exit


@app.command()
def datasets(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the datasets of the paper, and which are ready to use here."""
    rows = []
    for dataset in DATASETS.values():
        path = dataset.locate(data_dir)
        rows.append(
            {
                "name": dataset.name,
                "title": dataset.title,
                "nodes": dataset.num_nodes,
                "snapshots": dataset.num_snapshots,
                "links": sum(dataset.links),
                "ready": path is not None,
                "path": path and str(path),
                "get": dataset.get,
            }
        )
    if as_json:
        return _print_json({"data_dir": str(data_folder(data_dir)), "datasets": rows})
    table = _table("name", "what it is", ">nodes", ">snapshots", ">links", "here")
    for row in rows:
        state = "[green]ready[/green]" if row["ready"] else "missing"
        table.add_row(
            str(row["name"]), str(row["title"]), *(f"{row[key]:,}" for key in ("nodes", "snapshots", "links")), state
        )
    console = _console()
    console.print(table)
    for row in rows:
        if not row["ready"]:
            file = DATASETS[str(row["name"])].file
            console.print(f"[bold]{row['name']}[/bold]: get {file} from {row['get']},", highlight=False, soft_wrap=True)
            console.print(
                escape(f"  and put it in {data_folder(data_dir) / str(row['name'])}"), highlight=False, soft_wrap=True
            )
    return None


@app.command()
def snapshots(
    file: EventsFile,
    src: Src = None,
    dst: Dst = None,
    time: Time = None,
    weight: Weight = None,
    kinds: Kinds = None,
    pair_separator: PairSeparator = None,
    every: EveryText = None,
    count: Count = None,
    boundaries: Boundaries = None,
    start: Start = None,
    stop: Stop = None,
    self_loops: SelfLoops = "drop",
    time_format: TimeFormat = None,
    time_unit: Unit = None,
    timezone: Timezone = "UTC",
    format: FileFormat = None,
    header: Header = None,
    separator: Separator = None,
    skip_bad_rows: SkipBadRows = False,
    out: Annotated[
        Path | None, option("Folder to write the graph to [dim](default: only show it)[/dim].", "--out", "-o")
    ] = None,
    overwrite: Annotated[bool, option("Replace a graph folder that exists.", "--overwrite")] = False,
    as_json: Json = False,
) -> None:
    """Cut a log of timestamped interactions into snapshots, show them, and write them to a graph folder.

    Example:  [bold]dysat snapshots mail.csv --src from --dst to --time sent --every 30d -o graph/[/bold]
    """
    if out is not None:
        check_target(out, "graph", overwrite=overwrite, error=GraphError)
    with _doing() as doing:
        doing(f"reading {file}")
        events = dysat.read_events(
            file,
            src,
            dst,
            time,
            weight,
            format=format,
            header=header,
            separator=separator.replace("\\t", "\t") if separator else None,
            time_format=time_format,
            time_unit=time_unit,
            timezone=timezone,
            kinds=tuple(kind.strip() for kind in kinds.split(",")) if kinds else None,  # type: ignore[arg-type]
            pair_separator=pair_separator,
            bad_rows="skip" if skip_bad_rows else "raise",
        )
        doing(f"cutting {len(events):,} events into snapshots")
        graph = dysat.build_snapshots(
            events,
            every=every,
            count=count,
            boundaries=boundaries.split(",") if boundaries else None,
            start=start,
            stop=stop,
            self_loops=self_loops,
        )
        if out is not None:
            doing(f"writing {out}")
            graph.save(out, overwrite=overwrite)
    _show(graph, str(file), as_json, out)


@app.command()
def info(
    graph: Annotated[str, typer.Argument(help="A graph folder, or the name of a dataset.", show_default=False)],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show the snapshots of a graph: windows, nodes and links, and what is new in each."""
    with _doing() as doing:
        doing(f"loading {graph}")
        loaded = _load(graph, data_dir)
    _show(loaded, graph, as_json, None)


def _load(name: str, data_dir: Path | None) -> dysat.DynamicGraph:
    """A graph folder, or a dataset by name."""
    if name in DATASETS and not os.path.exists(os.path.join(name, "graph.json")):
        return dysat.load_dataset(name, data_dir)
    if not os.path.exists(name):
        known = f"no such folder, and no dataset of that name (there are {', '.join(DATASETS)})"
        raise GraphError(f"{name}: {known}{nearest(name, DATASETS)}")
    return dysat.DynamicGraph.load(name)


def _show(graph: dysat.DynamicGraph, name: str, as_json: bool, out: Path | None) -> None:
    rows = graph.summary()
    if as_json:
        facts = {
            "name": name,
            "nodes": graph.num_nodes,
            "kinds": graph.kind_counts,
            "links": sum(row.links for row in rows),
            "distinct_links": graph.num_distinct_links,
            "clock": graph.clock,
            "report": graph.report and asdict(graph.report),
            "notes": graph.notes,
            "fingerprint": graph.fingerprint,
            "out": out and str(out),
            "snapshots": [asdict(row) for row in rows],
        }
        return _print_json(facts)
    console = _console()
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in graph.kind_counts.items())
    console.print(
        f"[bold]{escape(name)}[/bold]: {graph.num_nodes:,} nodes{f' ({escape(kinds)})' * bool(kinds)}, "
        f"{len(graph)} snapshots, "
        f"{sum(row.links for row in rows):,} links ({graph.num_distinct_links:,} distinct)",
        highlight=False,
        soft_wrap=True,
    )
    table = _table(">step", "window", ">known", ">active", ">new", ">links", ">new links", ">weight", "")
    most = max(row.links for row in rows) or 1
    minutes = sum(len(row.start) <= MINUTES for row in rows)  # a window cut to the microsecond needs no more
    digits = MINUTES if 2 * minutes >= len(rows) or max(len(row.start) for row in rows) <= MINUTES else None
    for row in rows:
        window = f"{row.start[:digits]} … {row.stop[:digits]}"
        counts = (row.known, row.active, row.new_nodes, row.links, row.new_links)
        table.add_row(
            str(row.step),
            window,
            *(f"{number:,}" for number in counts),
            f"{row.weight:,.6g}" if row.weight % 1 else f"{row.weight:,.0f}",
            _bar(row.links / most),
        )
    console.print(table)
    for line in _footnotes(graph, sum(row.self_loops for row in rows)):
        console.print(f"[dim]{escape(line)}[/dim]", highlight=False, soft_wrap=True)
    if out is not None:
        console.print(f"written to [bold]{escape(str(out))}[/bold]", highlight=False, soft_wrap=True)
    return None


def _footnotes(graph: dysat.DynamicGraph, loops: int) -> Iterator[str]:
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
            yield f"{report.self_loops:,} events of a node with itself: {fate}"
    yield from map(as_options, graph.notes)
    if graph.clock == "utc":
        yield "windows are [start, stop) in UTC; new links are those absent from the snapshot before"


def _table(*columns: str) -> Table:
    """A plain table; a column named with > is set flush right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return table


def _bar(share: float) -> str:
    eighths = math.ceil(share * BAR * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _console(stderr: bool = False) -> Console:
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=WIDE)


@contextmanager
def _doing() -> Iterator[Callable[[str], None]]:
    """Say on a terminal what takes time; elsewhere nothing."""
    console = _console(stderr=True)
    if not console.is_terminal:
        yield lambda what: None
        return
    with console.status("") as status:
        yield lambda what: status.update(escape(f"{what} …"))


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
