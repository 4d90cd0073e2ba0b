"""The commands datasets, snapshots and info."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape

import dysat
from dysat.cli.app import app
from dysat.cli.options import DataDir, EventOptions, EventsFile, Json, option, takes
from dysat.cli.show import new_console, new_table, print_json, show_graph, status_line
from dysat.data.datasets import DATASETS, data_folder
from dysat.errors import GraphError, nearest
from dysat.system.storage import check_target

WINDOWS = ("every", "count", "start", "stop", "self_loops", "directed")  # options passed to build_snapshots unchanged


@app.command()
def datasets(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the datasets of the paper, and which of them are available on this machine."""
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
        return print_json({"data_dir": str(data_folder(data_dir)), "datasets": rows})
    table = new_table("name", "description", ">nodes", ">snapshots", ">links", "status")
    for row in rows:
        state = "[green]ready[/green]" if row["ready"] else "missing"
        table.add_row(
            str(row["name"]), str(row["title"]), *(f"{row[key]:,}" for key in ("nodes", "snapshots", "links")), state
        )
    console = new_console()
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
@takes(events=EventOptions)
def snapshots(
    file: EventsFile,
    out: Annotated[
        Path | None, option("Folder to write the graph to [dim](default: only show it)[/dim].", "--out", "-o")
    ] = None,
    overwrite: Annotated[bool, option("Replace a graph folder that exists.", "--overwrite")] = False,
    as_json: Json = False,
    *,
    events: EventOptions,
) -> None:
    """Cut a log of timestamped interactions into snapshots, show them, and write them to a graph folder.

    Example:  [bold]dysat snapshots mail.csv --src from --dst to --time sent --every 30d -o graph/[/bold]
    """
    if out is not None:
        check_target(out, "graph", overwrite=overwrite, error=GraphError)
    with status_line() as set_status:
        log = read_log(file, events, set_status)
        set_status(f"cutting {len(log):,} events into snapshots")
        graph = dysat.build_snapshots(log, boundaries=events.edges(), **{key: getattr(events, key) for key in WINDOWS})
        if out is not None:
            set_status(f"writing {out}")
            graph.save(out, overwrite=overwrite)
    show_graph(graph, str(file), as_json, out)


@app.command()
def info(
    graph: Annotated[str, typer.Argument(help="A graph folder, or the name of a dataset.", show_default=False)],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show the snapshots of a graph: windows, nodes and links, and what is new in each."""
    with status_line() as set_status:
        set_status(f"loading {graph}")
        loaded = load_graph(graph, data_dir)
    show_graph(loaded, graph, as_json, None)


def load_graph(name: str, data_dir: Path | None) -> dysat.DynamicGraph:
    """Load a graph folder, or a dataset by name."""
    if name in DATASETS and not os.path.exists(os.path.join(name, "graph.json")):
        return dysat.load_dataset(name, data_dir)
    if not os.path.exists(name):
        known = f"no such folder, and no dataset of that name (there are {', '.join(DATASETS)})"
        raise GraphError(f"{name}: {known}{nearest(name, DATASETS)}")
    return dysat.DynamicGraph.load(name)


def find_graph(
    name: str, options: EventOptions, data_dir: Path | None, set_status: Callable[[str], None]
) -> tuple[dysat.DynamicGraph, dict[str, Any]]:
    """Load a dataset, a graph folder or a log of events; also return how a log was read, for later updates."""
    folder = os.path.exists(os.path.join(name, "graph.json"))
    if folder or (name in DATASETS and not os.path.exists(name)):
        if given := options.given():
            what = "a graph folder" if folder else "a dataset"
            flag = f"--{given[0].replace('_', '-')}"
            raise GraphError(f"{name} is {what} and already cut into snapshots; {flag} has no effect")
        set_status(f"loading {name}")
        return load_graph(name, data_dir), {}
    if not os.path.exists(name):
        known = f"no such file or folder, and no dataset of that name (there are {', '.join(DATASETS)})"
        raise GraphError(f"{name}: {known}{nearest(name, DATASETS)}")
    log = read_log(Path(name), options, set_status)
    set_status(f"cutting {len(log):,} events into snapshots")
    graph = dysat.build_snapshots(log, boundaries=options.edges(), **{key: getattr(options, key) for key in WINDOWS})
    return graph, options.record(log.columns)


def read_log(
    file: Path, options: EventOptions, set_status: Callable[[str], None], at_least: Literal[1, 2] = 2
) -> dysat.Events:
    """Read a log of events."""
    set_status(f"reading {file}")
    return dysat.read_events(
        file,
        options.src,
        options.dst,
        options.time,
        options.weight,
        format=options.format,
        header=options.header,
        separator=options.separator.replace("\\t", "\t") if options.separator else None,
        time_format=options.time_format,
        time_unit=options.time_unit,
        timezone=options.timezone,
        kinds=tuple(kind.strip() for kind in options.kinds.split(",")) if options.kinds else None,  # type: ignore[arg-type]
        pair_separator=options.pair_separator,
        bad_rows="skip" if options.skip_bad_rows else "raise",
        at_least=at_least,
    )
