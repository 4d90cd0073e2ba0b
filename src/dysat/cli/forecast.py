"""The command forecast."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from dysat.cli.app import app
from dysat.cli.learn import CALIBRATE, RunFolder
from dysat.cli.options import Device, Json, RawLabels, by_all_ranks, option
from dysat.cli.output.show import WHY, links_table, new_console, print_json, score_note, status_line, unused_direction
from dysat.cli.output.terminal import foreign
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.forecasts import DIGITS, Forecasts
from dysat.models.base.link_model import Calibrate
from dysat.models.forecast.why import Why
from dysat.runs.run import Run
from dysat.system.parallel.ranks import ranks
from dysat.system.writing import check_new_file

SHOWN = 10  # of the links of each node


@app.command()
@by_all_ranks
def forecast(
    run: RunFolder,
    node: Annotated[
        list[str] | None, option("Show links of this node only; repeat it for several nodes.", metavar="LABEL")
    ] = None,
    kind: Annotated[str | None, option("Kind of these nodes, if a label occurs in both.")] = None,
    each: Annotated[bool, option("Rank the links of every node.", "--each")] = False,
    top: Annotated[int, option("Number of links; per node with --node or --each.")] = 10,
    known: Annotated[
        Literal["include", "exclude"], option("Include or exclude pairs that were linked before.")
    ] = "include",
    calibrate: Annotated[Calibrate, option(CALIBRATE)] = "balanced",
    why: Annotated[bool, option("Show the main reasons for each link.", "--why")] = False,
    out: Annotated[
        Path | None, option("File to write: .parquet, .csv or .jsonl.", "--out", "-o", metavar="FILE")
    ] = None,
    raw_labels: RawLabels = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Show the most likely links of the next snapshot, or write them to a file.

    Examples:
      [bold]dysat forecast run/ --node ann@x.org --top 20 --known exclude[/bold]
      [bold]dysat forecast run/ --each --top 10 -o forecasts.parquet[/bold]
    """
    from dysat.system.table_files import check_suffix, write_table

    if top < 1:
        raise ModelError(f"--top {top} must be at least 1")
    if each and node:
        raise ModelError("--each ranks the links of every node; leave out --node")
    if why and out is not None:
        raise ModelError("--why shows reasons on the screen or with --json; leave out -o")
    if out is not None:
        check_suffix(out, raw_labels=raw_labels)
        if ranks().first:
            check_new_file(out, ModelError)
    elif raw_labels:
        raise ModelError("--raw-labels needs -o and a .csv file")
    with status_line() as set_status:
        set_status(f"loading {run}")
        model = Run.open(run).model(device).prepare()
        explain: Callable[[Forecasts], list[Why]] | None = cast(Any, model).why if why else None
        set_status("ranking links")
        labels = [label_of(model.graph_, text) for text in node] if node else None
        found = model.top_links(
            top,
            node=labels,
            kind=kind,
            each=each,
            known=known,
            calibrate=calibrate,
            on_progress=lambda done: set_status(f"ranking links, {100 * done:.0f} %"),
        )
        if not ranks().first:
            return None
        if out is not None:
            set_status(f"writing {out}")
            write_table([found.columns(texts=out.suffix != ".parquet")], out, raw_labels=raw_labels)
        shown = found[:SHOWN] if each and not as_json else found
        whys = None if explain is None else explain(shown)
    if as_json:
        facts = {"out": str(out), "rows": len(found)}
        return print_json(_rows(found, whys) if out is None else facts)
    console = new_console()
    if out is not None:
        console.print(f"{found.title()} written to [bold]{foreign(out)}[/bold]", highlight=False, soft_wrap=True)
        return None
    console.print(links_table(shown, whys))
    if each and len(found) > SHOWN:
        console.print(f"the first {SHOWN} of {found.title()}; -o forecasts.parquet writes all", highlight=False)
    for line in (score_note(model, calibrate), *[WHY] * why, *unused_direction(model)):
        console.print(f"[dim]{foreign(line)}[/dim]", highlight=False, soft_wrap=True)
    return None


def label_of(graph: DynamicGraph, text: str) -> Any:
    """A label as the graph has it: a number, if all labels are numbers."""
    is_number = graph.nodes.dtype != object and re.fullmatch(r"-?\d+", text, re.ASCII)
    return int(text) if is_number else text


def _rows(found: Forecasts, whys: Sequence[Why] | None) -> list[dict[str, Any]]:
    """The table as JSON values, with the reasons of each link."""
    columns = found.columns(texts=True)
    columns["score"] = columns["score"].round(DIGITS)
    names, values = list(columns), [column.tolist() for column in columns.values()]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    for row, each in zip(rows, whys or (), strict=whys is not None):
        row["why"] = [reason._asdict() for reason in each.reasons]
    return rows
