"""Made-up logs of events, for tests that cut them in several ways."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl

START = datetime(2024, 1, 1, tzinfo=UTC)


def made_up(rows: int = 60, nodes: int = 9, seed: int = 0, *, order: str = "shuffled") -> pl.DataFrame:
    """A log of 40 days with repeated pairs, self-loops, moments shared by several events, and weights like 0.1."""
    rng = np.random.default_rng(seed)
    hours = rng.integers(0, 40 * 4, rows) * 6
    table = pl.DataFrame(
        {
            "src": rng.integers(0, nodes, rows),
            "dst": rng.integers(0, nodes, rows) ** 2 // nodes,
            "time": [START + timedelta(hours=int(hour)) for hour in hours],
            "weight": rng.integers(1, 30, rows) / 10,
        }
    )
    return table.sort("time") if order == "sorted" else table


def written(table: pl.DataFrame, file: Path) -> Path:
    """Write a table in the format that the name of the file says."""
    if file.suffix == ".parquet":
        table.write_parquet(file, row_group_size=11)
    elif file.suffix == ".gz":
        file.write_bytes(gzip.compress(table.write_csv().encode()))
    else:
        table.write_csv(file)
    return file


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def named(number: int) -> str:
    return ["ann", "Bob", "bob ", "cy", "007", "é", "zoë", "a b", "10"][number % 9]
