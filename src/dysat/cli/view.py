"""The command view."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dysat.cli.app import app
from dysat.cli.forecast import label_of
from dysat.cli.learn import RunFolder
from dysat.cli.options import Device, Json, option
from dysat.cli.output.show import new_console, print_json, status_line
from dysat.cli.output.terminal import foreign
from dysat.report.page import check_page
from dysat.runs.newest import REPORT
from dysat.runs.report import run_page
from dysat.runs.run import Run
from dysat.system.progress import listening


@app.command()
def view(
    run: RunFolder,
    out: Annotated[
        Path | None,
        option(
            "HTML file to write [dim](default: report.html in the run folder)[/dim].", "--out", "-o", metavar="FILE"
        ),
    ] = None,
    open_it: Annotated[bool, option("Open the page in the browser.", "--open")] = False,
    node: Annotated[
        list[str] | None, option("Put this node on the page of a large graph; repeat it for several.", metavar="LABEL")
    ] = None,
    png: Annotated[
        Path | None, option("Folder for pictures of all charts, for papers; needs matplotlib.", metavar="FOLDER")
    ] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Write an interactive page of a run: overview, forecast, map, nodes and attention.

    The page is one HTML file that needs no network and no server.
      [bold]dysat view run/ --open[/bold]
      [bold]dysat view run/ -o report.html --node ann@x.org[/bold]
      [bold]dysat view run/ --png figures/[/bold]
    """
    opened = Run.open(run)
    file = opened.folder / REPORT if out is None else out
    check_page(file)
    with status_line() as set_status:
        set_status(f"loading {run}")
        model = opened.model(device)
        labels = [label_of(model.graph_, text) for text in node or []]

        def show(what: str, done: int = 0, total: int = 0) -> None:
            set_status(f"{what} {done} of {total}" if total else what)

        with listening(show):
            page = run_page(opened, model, nodes=labels)
            set_status(f"writing {file}")
            page.save(file)
            pictures = []
            if png is not None:
                from dysat.report.pictures import write_pictures

                set_status(f"drawing {png}")
                pictures = write_pictures(page.facts, page.content.arrays, png)
    facts = {"page": str(file), "bytes": file.stat().st_size, "pictures": list(map(str, pictures))}
    if as_json:
        print_json({**facts, "missing": page.content.missing})
    else:
        console = new_console()
        console.print(f"page written to [bold]{foreign(file)}[/bold]", highlight=False, soft_wrap=True)
        for line in page.content.missing:
            console.print(f"[dim]{foreign(line)}[/dim]", highlight=False, soft_wrap=True)
        if png is not None:
            console.print(f"{len(pictures)} pictures written to [bold]{foreign(png)}[/bold]", highlight=False)
    if open_it:
        page.open(file)
