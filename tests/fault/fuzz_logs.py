"""Hostile event files and node tables: rows, quotes, encodings, times, weights, separators, and damaged bytes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from hostile_values import PIECES, Rng, chance, change_json, damage, number, pick, text

LOGS = (
    *("mail.csv", "mail.csv", "mail.tsv", "half.csv", "windows.csv", "quoted.csv", "mail.jsonl", "mail.json"),
    *("nested.jsonl", "mail.csv.gz", "snap.txt", "out.konect", "mail.parquet", "dated.parquet"),
)
NODES = ("people.csv", "timed.csv")
NAMED = {"src": "from", "dst": "to", "time": "sent"}
COLUMNS: dict[str, dict[str, str]] = {
    "nested.jsonl": {"src": "user.id", "dst": "to", "time": "sent"},
    "snap.txt": {},
    "out.konect": {},
}


def columns_of(rng: Rng, name: str) -> dict[str, str]:
    """The columns of a log; sometimes with weights, and sometimes left to be detected."""
    columns = dict(COLUMNS.get(name, NAMED))
    if name not in COLUMNS and chance(rng, 0.5):
        columns["weight"] = "count"
    return {} if chance(rng, 0.1) else columns


def change_log(rng: Rng, original: Path, folder: Path) -> Path:
    """Write a changed copy of a log or a node table into a folder."""
    data, name = original.read_bytes(), original.name
    if name.endswith(".gz"):
        data = _change_gzip(rng, data)
    elif name.endswith((".jsonl", ".json")) and chance(rng, 0.6):
        data = _change_records(rng, data, lines=name.endswith(".jsonl"))
    elif name.endswith(".parquet"):
        data = _change_parquet(rng, original, folder) if chance(rng, 0.4) else damage(rng, data)
    elif chance(rng, 0.5):
        data = _change_cells(rng, data)
    else:
        data = damage(rng, data)
    if chance(rng, 0.04):
        name = pick(
            rng, ("mail", "mail.json", "mail.parquet", "mail.csv.gz", "mail.xlsx", "mail.zst", "ö.csv", "\x1b.csv")
        )
    file = folder / name
    file.write_bytes(data)
    return file


def _change_gzip(rng: Rng, data: bytes) -> bytes:
    plain = gzip.decompress(data)
    choice = rng.random()
    if choice < 0.4:
        return gzip.compress(damage(rng, plain), mtime=0)
    if choice < 0.5:
        return gzip.compress(bytes(int(rng.integers(1, 2_000_000))), mtime=0)  # zeros
    if choice < 0.6:
        return gzip.compress(data, mtime=0)  # compressed twice
    if choice < 0.7:
        return data + data
    return damage(rng, data)


def _change_cells(rng: Rng, data: bytes) -> bytes:
    """Put hostile values into cells of a separated table, quoted or not, or change its header."""
    mark = max((b",", b"\t", b";", b" "), key=data.count)
    lines = data.split(b"\n")
    for _ in range(int(rng.integers(1, 6))):
        at = 0 if chance(rng, 0.15) else int(rng.integers(len(lines)))
        cells = lines[at].split(mark)
        new = str(number(rng)) if chance(rng, 0.4) else text(rng)
        cell = new.encode("utf-8", "surrogatepass") if chance(rng, 0.7) else pick(rng, PIECES)
        quoted = b'"' + cell.replace(b'"', b'""') + b'"' if chance(rng, 0.5) else cell
        cells[int(rng.integers(len(cells)))] = quoted
        lines[at] = mark.join(cells)
    if chance(rng, 0.05):
        lines = [mark.join([line] * int(rng.integers(2, 200))) for line in lines]  # many columns
    return b"\n".join(lines)


def _change_records(rng: Rng, data: bytes, *, lines: bool) -> bytes:
    records: list[Any] = [json.loads(line) for line in data.splitlines()] if lines else json.loads(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(records)))
        records[at] = change_json(rng, records[at])
    written = "".join(json.dumps(record) + "\n" for record in records) if lines else json.dumps(records)
    return written.encode("utf-8", "surrogatepass")


def _change_parquet(rng: Rng, original: Path, folder: Path) -> bytes:
    """A valid Parquet file with other values or types."""
    import polars as pl

    table = pl.read_parquet(original)
    column, at = pick(rng, table.columns), int(rng.integers(table.height))
    new: Any = text(rng) if chance(rng, 0.5) else number(rng)
    try:
        values = table[column].to_list()
        values[at] = new
        table = table.with_columns(pl.Series(column, values, strict=chance(rng, 0.5)))
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        kinds: tuple[Any, ...] = (
            pl.Binary,
            pl.Categorical,
            pl.List(pl.String),
            pl.Boolean,
            pl.Duration,
            pl.Null,
            pl.Float32,
        )
        table = table.with_columns(pl.Series(column, [None] * table.height, dtype=pick(rng, kinds)))
    file = folder / "made.parquet"
    table.write_parquet(file, compression=pick(rng, ("uncompressed", "snappy", "zstd")))
    data = file.read_bytes()
    file.unlink()
    return data
