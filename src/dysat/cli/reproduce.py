"""The command reproduce: measure the tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import dysat
from dysat.cli.app import StoppedError, app
from dysat.cli.options import (
    Address,
    DataDir,
    Device,
    EngineOption,
    JobCpus,
    JobGpus,
    Json,
    check_engine,
    option,
)  # fmt: skip
from dysat.cli.output.show import new_console, new_table, print_json, status_line
from dysat.cli.output.terminal import foreign
from dysat.cli.output.watching import counting
from dysat.data.datasets import DATASETS
from dysat.errors import DatasetError, ModelError, listed, nearest
from dysat.experiments.paper.catalogue import TARGETS, Target
from dysat.experiments.paper.cells import Table
from dysat.experiments.paper.outputs import made_of, write
from dysat.experiments.paper.pictures import Picture
from dysat.experiments.paper.records import Results
from dysat.experiments.paper.reproduce import RESULTS, Budget, any_row, check_methods, reproduce
from dysat.system.extras import require
from dysat.system.parallel.process import keep_freed_memory
from dysat.system.writing import check_place

OUT = Path("reproduction")
ALL = "all"


@app.command(name="reproduce")
def reproduce_command(
    what: Annotated[
        list[str],
        typer.Argument(help=f"{', '.join(TARGETS)}; or [bold]all[/bold].", show_default=False, metavar="WHAT"),
    ],
    datasets: Annotated[
        list[str] | None,
        option("Dataset; repeatable [dim](default: all available)[/dim].", "--dataset"),
    ] = None,
    methods: Annotated[
        str | None, option("Rows to measure, comma-separated: dysat:program,dysat:text,node2vec,edge-memory.")
    ] = None,
    budget: Annotated[
        Budget, option("quick: four predicted snapshots per dataset; full: all, hours on a CPU.")
    ] = "quick",
    device: Device = "auto",
    processes: Annotated[
        int | None, option("Number of processes [dim](default: one per core; 8 on CUDA)[/dim].")
    ] = None,
    engine: EngineOption = "local",
    address: Address = None,
    job_cpus: JobCpus = None,
    job_gpus: JobGpus = None,
    seed: Annotated[int, option("Random seed of the examples and their splits.")] = 0,
    out: Annotated[
        Path,
        option("Folder for tables, figures, results and finished steps; the same command resumes.", "-o", "--out"),
    ] = OUT,
    from_: Annotated[
        Path | None, option("Measure nothing; show this folder of results, such as results/paper.", "--from")
    ] = None,
    graphs: Annotated[
        Path | None, option("Folder of graph folders named after the datasets, instead of their original files.")
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Measure the tables and figures of the paper, and compare them with the published ones.

    Every cell shows our figure ± standard deviation, the published one, and the difference.
    A second run computes only what changed: data, options, or the version of a method.

    Examples:
      [bold]dysat reproduce table2 --dataset uci --methods dysat:program,gcn-ae[/bold]
      [bold]dysat reproduce all --budget full --device cuda --processes 12[/bold]
      [bold]dysat reproduce table2 fig-steps --from results/paper[/bold]
    """
    targets = _targets(what)
    if any(target.startswith("fig") for target in targets):
        require("matplotlib", "a figure")
    rows = [name.strip() for name in methods.split(",") if name.strip()] if methods is not None else None
    check_methods(rows)
    check_place(out, ModelError)
    check_engine(engine, address, job_cpus, job_gpus, processes)
    if out.exists() and not out.is_dir():
        raise ModelError(f"--out {out} is a file, not a folder")
    if processes is not None and processes < 1:
        raise ModelError(f"--processes {processes} must be at least 1")
    ineffective = {
        "methods": methods,
        "processes": processes,
        "graphs": graphs,
        "data-dir": data_dir,
        "engine": None if engine == "local" else engine,
        "seed": seed or None,
    }
    ineffective["device"] = None if device == "auto" else device
    for name, value in ineffective.items():
        if from_ is not None and value is not None:
            raise ModelError(f"--{name} {value} has no effect with --from, which measures nothing")
    if from_ is not None:
        return _present(targets, Results(_results_folder(from_)), _known(datasets) or list(DATASETS), out, as_json, [])
    found, notes = _load(_known(datasets), graphs, data_dir)
    if rows is not None and targets != ["table1"] and not any_row(targets, list(found), rows):
        raise ModelError(f"--methods {methods}: none of them is a row of {', '.join(targets)}")
    keep_freed_memory()
    try:
        with counting("measuring") as on_progress:
            results = reproduce(
                targets, found, out, methods=rows, budget=budget, device=device, processes=processes, seed=seed,
                engine=engine, address=address, job_cpus=job_cpus, job_gpus=job_gpus, on_progress=on_progress,
            )  # fmt: skip
    except KeyboardInterrupt:
        kept = f"finished steps are kept in {out}, the same command resumes"
        raise StoppedError(f"stopped; {kept} (fig-runtime and fig-attention start again)") from None
    return _present(targets, results, list(found), out, as_json, notes)


def _present(
    targets: list[Target], results: Results, datasets: list[str], out: Path, as_json: bool, notes: list[str]
) -> None:
    made, lacking = made_of(targets, results, datasets)
    files = write(made, out)
    notes = [*lacking, *results.problems, *notes]
    if as_json:
        return print_json({"files": [str(file) for file in files], "results": str(results.folder), "notes": notes})
    console = new_console()
    for one in made:
        console.print(f"\n[bold]{foreign(one.title)}[/bold]", highlight=False, soft_wrap=True)
        if isinstance(one, Table):
            for part in [one.part(name) for name in one.datasets] if one.name != "table1" else [one]:
                _table(part)
        lines = (*map(foreign, getattr(one, "verdicts", ())), *(f"[dim]{foreign(note)}[/dim]" for note in one.notes))
        for line in lines:
            console.print(line, highlight=False, soft_wrap=True)
        if isinstance(one, Picture):
            console.print(f"drawn to {foreign(out / one.name)}.svg and .png", highlight=False, soft_wrap=True)
    for note in notes:
        console.print(f"[dim]{foreign(note)}[/dim]", highlight=False, soft_wrap=True)
    where = f"tables, figures and their CSV: {out}; measurements: {results.folder}"
    return console.print(f"\n[dim]{foreign(where)}[/dim]", highlight=False, soft_wrap=True)


def _table(part: Table) -> None:
    shown = new_table(foreign(part.header[0]), *(f">{foreign(name)}" for name in part.header[1:]))
    for texts in part.lines("*"):
        cells = [(foreign(text.replace("*", "")), "*" in text) for text in texts]
        shown.add_row(*(f"[bold]{cell}[/bold]" if best else cell for cell, best in cells))
    new_console().print(shown)


def _targets(what: list[str]) -> list[Target]:
    names = list(TARGETS) if ALL in what else list(dict.fromkeys(what))
    for name in names:
        if name not in TARGETS:
            raise ModelError(
                f"no table or figure {name!r}; there are {listed((*TARGETS, ALL))}{nearest(name, TARGETS)}"
            )
    return [target for target in TARGETS if target in names]


def _known(datasets: list[str] | None) -> list[str] | None:
    for name in datasets or ():
        if name not in DATASETS:
            raise DatasetError(f"no dataset {name!r}; there are {', '.join(DATASETS)}{nearest(name, DATASETS)}")
    return [name for name in DATASETS if name in datasets] if datasets else None


def _load(
    datasets: list[str] | None, graphs: Path | None, data_dir: Path | None
) -> tuple[dict[str, dysat.DynamicGraph], list[str]]:
    """Load the requested graphs, or all available ones; return a note for each missing one."""
    found: dict[str, dysat.DynamicGraph] = {}
    notes = []
    if graphs is not None and not any((graphs / name / "graph.json").exists() for name in DATASETS):
        raise DatasetError(f"--graphs {graphs}: no graph folder there is named after a dataset")
    with status_line() as set_status:
        for name in datasets or DATASETS:
            prepared = graphs / name if graphs is not None and (graphs / name / "graph.json").exists() else None
            if datasets is None and prepared is None and DATASETS[name].locate(data_dir) is None:
                notes.append(f"{name} is left out: its file is missing (see dysat datasets)")
                continue
            set_status(f"loading {name}")
            found[name] = dysat.DynamicGraph.load(prepared) if prepared else dysat.load_dataset(name, data_dir)
    return found, notes


def _results_folder(folder: Path) -> Path:
    """Find results in the folder itself or below it, where `dysat reproduce` writes them; full before quick."""
    for place in (folder, *(folder / RESULTS / budget for budget in ("full", "quick"))):
        if place.is_dir() and any(place.glob("*_*.json")):
            return place
    raise ModelError(f"--from {folder}: no results there")
