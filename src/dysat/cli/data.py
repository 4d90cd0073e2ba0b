"""The commands datasets, snapshots and info."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import dysat
from dysat.cli.app import app
from dysat.cli.options import (
    NODE_OPTIONS,
    Address,
    DataDir,
    EngineOption,
    EventOptions,
    EventsFiles,
    Json,
    check_engine,
    option,
    takes,
)
from dysat.cli.output.run_info import show_run
from dysat.cli.output.show import new_console, new_table, print_json, show_graph, status_line
from dysat.cli.output.terminal import foreign
from dysat.data.datasets import DATASETS, data_folder
from dysat.data.on_cluster import cut_on_cluster
from dysat.data.on_disk import is_large
from dysat.data.reading.limits import Limits
from dysat.errors import GraphError, nearest
from dysat.runs.run import Run
from dysat.system.parallel.engine import EngineName
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
                foreign(f"  and put it in {data_folder(data_dir) / str(row['name'])}"), highlight=False, soft_wrap=True
            )
    return None


@app.command()
@takes(events=EventOptions)
def snapshots(
    files: EventsFiles,
    out: Annotated[
        Path | None, option("Folder to write the graph to [dim](default: only show it)[/dim].", "--out", "-o")
    ] = None,
    overwrite: Annotated[bool, option("Replace a graph folder that exists.", "--overwrite")] = False,
    on_disk: Annotated[
        bool | None,
        option(
            "Cut a log larger than memory with temporary files beside --out [dim](default: if memory is too "
            "small)[/dim].",
            "--on-disk/--in-memory",
        ),
    ] = None,
    engine: EngineOption = "local",
    address: Address = None,
    as_json: Json = False,
    *,
    events: EventOptions,
) -> None:
    """Cut a log of timestamped interactions into snapshots, show them, and write them to a graph folder.

    Example:  [bold]dysat snapshots mail.csv --src from --dst to --time sent --every 30d -o graph/[/bold]
    """
    _check_files(files, engine, address, on_disk)
    chosen = "--engine ray" if engine == "ray" else "--on-disk" if on_disk else None
    if out is not None:
        check_target(out, "graph", overwrite=overwrite, error=GraphError)
    elif chosen is not None:
        raise GraphError(f"{chosen} needs --out, the folder to write the graph to")
    if chosen is not None and events.nodes:
        raise GraphError(f"--nodes cannot be used with {chosen}; give it to dysat fit, with the graph folder")
    windows = {"boundaries": events.edges(), **{key: getattr(events, key) for key in WINDOWS}}
    file = files[0]
    with status_line() as set_status:
        set_status(f"reading {file}")
        here = out is not None and engine == "local" and on_disk is None and not events.nodes
        large = here and is_large(file, **events.reading())
        if out is not None and engine == "ray":
            graph = cut_on_cluster(
                files,
                out,
                address=address,
                overwrite=overwrite,
                on_progress=set_status,
                **windows,
                **events.reading(),
            )
        elif out is not None and (on_disk or large):
            graph = dysat.cut_on_disk(
                file, out, overwrite=overwrite, on_progress=set_status, **windows, **events.reading()
            )
        else:
            log = dysat.read_events(file, **events.reading())
            set_status(f"cutting {len(log):,} events into snapshots")
            graph = add_attributes(dysat.build_snapshots(log, **windows), events, set_status)
            if out is not None:
                set_status(f"writing {out}")
                graph.save(out, overwrite=overwrite)
    show_graph(graph, str(file) + f" and {len(files) - 1} more" * (len(files) > 1), as_json, out)


def _check_files(files: list[Path], engine: EngineName, address: str | None, on_disk: bool | None) -> None:
    """Refuse options that do not fit the engine."""
    check_engine(engine, address)
    if engine == "local" and len(files) > 1:
        raise GraphError("several files need --engine ray; on one machine, give a folder of Parquet files")
    if engine == "ray" and on_disk is not None:
        raise GraphError(f"--engine ray cannot be used with {'--on-disk' if on_disk else '--in-memory'}")


@app.command()
def info(
    graph: Annotated[
        str, typer.Argument(help="A graph folder, a run folder, or the name of a dataset.", show_default=False)
    ],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show the snapshots of a graph: windows, nodes and links, and what is new in each.

    For a run folder, also show its method, options, backtest and updates; the graph is the newest one.
    """
    with status_line() as set_status:
        set_status(f"loading {graph}")
        run = Run.find(graph)
        loaded = load_graph(graph, data_dir) if run is None else run.graph()
    if run is not None:
        show_run(run, loaded, as_json)
    else:
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
    """Load a dataset, a graph folder, the newest graph of a run, or a log of events.

    Also return how the log was read, for later updates.
    """
    folder, run = os.path.exists(os.path.join(name, "graph.json")), Run.find(name)
    if folder or run is not None or (name in DATASETS and not os.path.exists(name)):
        if given := [name for name in options.given() if name not in (*NODE_OPTIONS, "limit")]:
            what = "a run folder" if run is not None else "a graph folder" if folder else "a dataset"
            flag = f"--{given[0].replace('_', '-')}"
            raise GraphError(f"{name} is {what} and already cut into snapshots; {flag} has no effect")
        set_status(f"loading {name}")
        graph = load_graph(name, data_dir) if run is None else run.graph()
        made = {} if run is None else dict(run.config.get("events", {}))
        return add_attributes(graph, options, set_status), made
    if not os.path.exists(name):
        known = f"no such file or folder, and no dataset of that name (there are {', '.join(DATASETS)})"
        raise GraphError(f"{name}: {known}{nearest(name, DATASETS)}")
    set_status(f"reading {name}")
    log = dysat.read_events(Path(name), **options.reading())
    set_status(f"cutting {len(log):,} events into snapshots")
    graph = dysat.build_snapshots(log, boundaries=options.edges(), **{key: getattr(options, key) for key in WINDOWS})
    return add_attributes(graph, options, set_status), options.record(log.columns)


def add_attributes(
    graph: dysat.DynamicGraph, options: EventOptions, set_status: Callable[[str], None]
) -> dysat.DynamicGraph:
    """Add the attributes of the tables that --nodes names."""
    if not options.nodes:
        for name in options.given():
            if name in NODE_OPTIONS:
                raise GraphError(f"--{name.replace('_', '-')} needs --nodes, the table it belongs to")
        return graph
    tables = []
    for number, text in enumerate(options.nodes):
        set_status(f"reading {text}")
        kind, equals, file = text.partition("=")
        if not equals or (kind not in graph.kind_names and os.path.exists(text)):
            kind, file = "", text
        columns = _of_table(options, "node_columns", number)
        tables.append(
            dysat.read_nodes(
                file,
                _of_table(options, "node_id", number),
                _of_table(options, "node_time", number),
                columns and [column.strip() for column in columns.split(",")],
                kind=kind or None,
                time_unit="step" if graph.clock == "step" else None,
                timezone=options.timezone,
                limits=Limits.parse(options.limit or ()),
            )
        )
    return graph.with_attributes(*tables)


def _of_table(options: EventOptions, name: str, number: int) -> str | None:
    """The option of one table: given once for all tables, or once for each."""
    values: list[str] = getattr(options, name) or []
    tables = len(options.nodes or ())
    if len(values) not in (0, 1, tables):
        raise GraphError(f"--{name.replace('_', '-')} is given {len(values)} times for {tables} tables (--nodes)")
    return values[0 if len(values) == 1 else number] if values else None
