"""The command bench: measure speed and memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch

from dysat.cli.app import app
from dysat.cli.options import DataDir, Json, option
from dysat.cli.output.show import new_console, new_table, print_json, status_line
from dysat.errors import ModelError
from dysat.experiments.bench import Case, Timing, available, measure
from dysat.experiments.scale import SIZES, ScaleCase, ScaleTiming, measure_scale
from dysat.system.hardware import hardware

if TYPE_CHECKING:
    from rich.console import Console


@app.command()
def bench(
    dataset: Annotated[list[str] | None, option("Datasets to measure [dim](default: all available)[/dim].")] = None,
    preset: Annotated[list[str] | None, option("Presets of dysat to measure [dim](default: program)[/dim].")] = None,
    device: Annotated[list[str] | None, option("Devices [dim](default: cpu, and cuda if available)[/dim].")] = None,
    batch_size: Annotated[list[int] | None, option("Nodes per batch [dim](default: 256)[/dim].")] = None,
    epochs: Annotated[int, option("Epochs to take the median of, after one warm-up epoch.")] = 5,
    graph_dir: Annotated[Path | None, option("Folder of graph folders named after the datasets.")] = None,
    scale: Annotated[
        bool, option("Instead, fit the default model, with and without embeddings, on made-up logs of growing size.")
    ] = False,
    largest: Annotated[int, option("With --scale: number of events of the largest log, up to 100000000.")] = 1_000_000,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Measure seconds per epoch, preparation time and memory, with the layers and snapshots of the paper.

    With --scale, measure seconds by phase, time per event and memory of whole fits: two minutes on two cores for the
    logs of up to a million events, and a quarter of an hour for ten million.
    """
    if scale:
        return _bench_scale(device, largest, as_json)
    if graph_dir is not None and not graph_dir.is_dir():
        raise ModelError(f"--graph-dir {graph_dir}: no such folder")
    folders = sorted(graph_dir.glob("*/graph.json")) if graph_dir else []
    datasets = dataset or ([file.parent.name for file in folders] if graph_dir else available(data_dir))
    if not datasets:
        missing = f"no graph folder in {graph_dir}" if graph_dir else "no dataset is available"
        raise ModelError(f"nothing to measure: {missing}; see dysat datasets")
    devices = device or (["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
    if epochs < 1:
        raise ModelError(f"--epochs {epochs} must be at least 1")
    if any(size < 1 for size in batch_size or ()):
        raise ModelError("--batch-size must be at least 1")
    cases = [
        Case(name, chosen, where, size, epochs, data_dir, graph_dir / name if graph_dir else None)
        for where in devices
        for name in datasets
        for chosen in preset or ["program"]
        for size in batch_size or [256]
    ]
    timings: list[Timing] = []
    with status_line() as set_status:
        for case in cases:
            set_status(f"{case.dataset} on {case.device}, {case.preset}, batches of {case.batch_size}")
            timings.append(measure(case))
    about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "epochs": epochs}
    if as_json:
        return print_json({**about, "timings": [asdict(timing) for timing in timings]})
    table = new_table(
        "dataset",
        ">snapshots",
        "device",
        "preset",
        ">batch",
        ">s/epoch",
        ">fastest",
        ">ms/batch",
        ">prepare s",
        ">peak GiB",
    )
    for row in timings:
        figures = (row.epoch_seconds, row.fastest_epoch_seconds)
        table.add_row(
            row.dataset, str(row.snapshots), row.device, row.preset, str(row.batch_size),
            *(f"{seconds:.4f}" for seconds in figures), f"{1000 * row.epoch_seconds / row.batches:.2f}",
            f"{row.prepare_seconds:.2f}", f"{row.peak_gib:.2f}",
        )  # fmt: skip
    console = new_console()
    console.print(table)
    return _print_about(console, about)


def _bench_scale(devices: list[str] | None, largest: int, as_json: bool) -> None:
    """Fit made-up logs of growing size and print seconds by phase."""
    sizes = [events for events in SIZES if events <= largest]
    if not sizes:
        raise ModelError(f"--largest {largest}: the smallest log has {min(SIZES):,} events")
    timings: list[ScaleTiming] = []
    with status_line() as set_status:
        for where in devices or ["auto"]:
            for events in sizes:
                for embeddings in (False, True):
                    set_status(f"{events:,} events, {'with' if embeddings else 'without'} embeddings")
                    timings.append(measure_scale(ScaleCase(events, SIZES[events], where, embeddings)))
    about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware()}
    if as_json:
        return print_json({**about, "timings": [asdict(timing) for timing in timings]})
    phases = {"pair score": "score", "pairs to agree with": "agree", "embeddings": "embed"}  # wide tables are cut
    heads = (f">{phases.get(name, name)}" for name in timings[0].phases)
    table = new_table(">events", ">nodes", "device", "model", ">seconds", ">µs/event", *heads, ">GiB")
    for row in timings:
        table.add_row(
            f"{row.events:,}", f"{row.nodes:,}", row.device, "default" if row.embeddings else "forecast only",
            f"{row.seconds:.1f}", f"{row.microseconds_per_event:.0f}",
            *(f"{seconds:.1f}" for seconds in row.phases.values()), f"{row.peak_gib:.2f}",
        )  # fmt: skip
    console = new_console()
    console.print(table)
    console.print("Seconds: " + ", ".join(f"{short} = {name}" for name, short in phases.items()) + "; GiB: peak memory")
    return _print_about(console, about)


def _print_about(console: Console, about: Mapping[str, object]) -> None:
    line = f"[dim]{about['hardware']}, {time.strftime('%Y-%m-%d')}[/dim]"
    console.print(line, highlight=False, soft_wrap=True)
