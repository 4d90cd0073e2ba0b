"""The command bench: measure speed and memory."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import torch

from dysat.cli.app import app
from dysat.cli.options import DataDir, Json, option
from dysat.cli.output.show import new_console, new_table, print_json, status_line
from dysat.errors import ModelError
from dysat.experiments.bench import Case, Timing, available, measure
from dysat.system.hardware import hardware


@app.command()
def bench(
    dataset: Annotated[list[str] | None, option("Datasets to measure [dim](default: all available)[/dim].")] = None,
    preset: Annotated[list[str] | None, option("Presets of dysat to measure [dim](default: program)[/dim].")] = None,
    device: Annotated[list[str] | None, option("Devices [dim](default: cpu, and cuda if available)[/dim].")] = None,
    batch_size: Annotated[list[int] | None, option("Nodes per batch [dim](default: 256)[/dim].")] = None,
    epochs: Annotated[int, option("Epochs to take the median of, after one warm-up epoch.")] = 5,
    graph_dir: Annotated[Path | None, option("Folder of graph folders named after the datasets.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Measure seconds per epoch, preparation time and memory, with the layers and snapshots of the paper."""
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
    return console.print(
        f"[dim]{about['hardware']}, {time.strftime('%Y-%m-%d')}[/dim]", highlight=False, soft_wrap=True
    )
