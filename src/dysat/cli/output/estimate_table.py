"""The option --estimate of fit: how long it will take, and how much memory it needs."""

from __future__ import annotations

from dysat.cli.output.show import new_console, new_table, print_json
from dysat.cli.output.watching import working
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.dysat import DySAT
from dysat.runs.estimate import Estimate, estimate

MINUTE, HOUR = 60, 3_600


def print_estimate(graph: DynamicGraph, model: EmbeddingModel, *, windows: int, reading: float, as_json: bool) -> None:
    """Measure pieces of a fit and print what the whole will take."""
    if not isinstance(model, DySAT):
        raise ModelError(f"--estimate knows the costs of dysat only, not of {model.method}")
    with working() as set_status:
        set_status("measuring pieces of the work")
        found = estimate(graph, model, windows=windows, reading=reading)
    if as_json:
        return print_json(found.facts())
    return _show(found)


def _show(found: Estimate) -> None:
    console, table = new_console(), new_table("phase", ">estimate")
    for name, seconds in found.phases.items():
        table.add_row(name, duration(seconds))
    table.add_section()
    table.add_row("in total", duration(found.seconds))
    console.print(table)
    low, high = map(duration, found.range)
    gpu = "" if found.gpu_memory is None else f", and {found.gpu_memory:.1f} GiB on the GPU"
    console.print(
        f"between {low} and {high} on this machine ({found.device}), {found.memory:.1f} GiB of memory{gpu}; "
        "nothing was written",
        highlight=False,
        soft_wrap=True,
    )


def duration(seconds: float) -> str:
    """Format seconds with two digits or so: 0.4 s, 12 s, 3.5 min, 1.2 h."""
    if seconds < MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / MINUTE:.1f} min" if seconds < HOUR else f"{seconds / HOUR:.1f} h"
