"""The valid files that the fuzzer changes: small graphs, runs, logs and node tables, equal for every seed."""

from __future__ import annotations

import gzip
import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dysat
from dysat.cli.options import EventOptions
from dysat.runs.feed import EventFile, check_file
from dysat.runs.run import Run, Watch
from dysat.runs.update import updating

FIRST = date(2024, 1, 1)  # a Monday
MODEL: dict[str, Any] = {
    "structural_heads": (2,),
    "structural_features": (4,),
    "temporal_heads": (2,),
    "temporal_features": (4,),
    "walks_per_node": 1,
    "walk_length": 4,
    "epochs": 1,
    "device": "cpu",
}
Row = tuple[str, str, str, float]


def rows_of(first: int, last: int) -> list[Row]:
    """Events of some weeks among a few people; every week has one more."""
    rows = []
    for week in range(first, last):
        people = 6 + week
        for i in range(people):
            day = FIRST + timedelta(days=7 * week + i % 7)
            rows.append((f"p{i}", f"p{(2 * i + week + 1) % people}", f"{day}T0{i % 10}:00:00", 1.0 + i % 3))
    return rows


def write_originals(folder: Path) -> None:
    """Write all originals into a new folder."""
    torch.set_num_threads(1)
    _write_logs(folder / "logs")
    _write_graphs(folder)
    _write_runs(folder)


def _write_graphs(folder: Path) -> None:
    (folder / "graphs").mkdir()
    events = dysat.read_events(folder / "logs" / "mail.csv", "from", "to", "sent", "count")
    dysat.build_snapshots(events, every="1w").save(folder / "graphs" / "plain")
    directed = dysat.build_snapshots(events, every="1w", directed=True)
    directed.save(folder / "graphs" / "directed")
    people = dysat.read_nodes(folder / "logs" / "people.csv")
    dysat.build_snapshots(events, every="1w").with_attributes(people).save(folder / "graphs" / "attributes")
    columns = (["a", "b", "a", "c", "b", "c"], [1, 2, 2, 3, 1, 1], [0, 0, 1, 1, 2, 2])
    sides = dysat.read_events(columns, time_unit="step", kinds=("user", "item"))
    dysat.build_snapshots(sides, every=1).save(folder / "graphs" / "sides")
    numbers = dysat.read_events(([1, 2, 3, 1], [2, 3, 4, 4], [0, 1, 2, 3]), time_unit="step")
    dysat.build_snapshots(numbers, every=1).save(folder / "graphs" / "numbers")


def _write_runs(folder: Path) -> None:
    """Finished runs of three models, each with one update, and one run stopped in its training."""
    (folder / "runs").mkdir()
    events = dysat.read_events(folder / "logs" / "mail.csv", "from", "to", "sent")
    graph = dysat.build_snapshots(events, every="1w")
    made = EventOptions(every="1w").record(events.columns)
    models = {
        "incsat": dysat.IncSAT(**MODEL),
        "program": dysat.DySAT.from_preset("program", **MODEL),
        "default": dysat.DySAT(**MODEL, spectrum=2, embeddings=False),
    }
    for name, model in models.items():
        run = Run.start(folder / "runs" / name, graph, model, backtest=False, events=made)
        if not run.train():
            raise RuntimeError(f"{name} is not trained")
        with updating(run, device="cpu") as updater:
            file = EventFile.read(folder / "logs" / "next.csv", lambda path: dysat.read_events(path, at_least=1))
            list(updater.take_in(updater.plan(file.events), [check_file(updater, file)[0]]))
    stopped = dysat.DySAT.from_preset("program", **MODEL | {"epochs": 3})
    seen: list[Any] = []
    watch = Watch(on_epoch=seen.append, stop=lambda: len(seen) == 2)
    run = Run.start(folder / "runs" / "stopped", graph, stopped, backtest=False, events=made)
    if run.train(watch, keep_every=0):
        raise RuntimeError("the training was not stopped")


def _write_logs(folder: Path) -> None:
    """Logs of the same events in several formats, a log for the next update, and tables of nodes."""
    import polars as pl

    folder.mkdir(parents=True)
    rows = rows_of(0, 4)
    named = [dict(zip(("from", "to", "sent", "count"), row, strict=True)) for row in rows]
    lines = "".join(f"{u},{v},{at},{w:g}\n" for u, v, at, w in rows)
    mail = f"from,to,sent,count\n{lines}"
    (folder / "mail.csv").write_text(mail)
    (folder / "mail.tsv").write_text(mail.replace(",", "\t"))
    (folder / "half.csv").write_text(mail.replace(",", ";"))
    (folder / "windows.csv").write_bytes(b"\xef\xbb\xbf" + mail.replace("\n", "\r\n").encode())
    (folder / "quoted.csv").write_text("from,to,sent,count\n" + lines.replace("p1", '"p, ""one"""'))
    (folder / "mail.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named))
    (folder / "mail.json").write_text(json.dumps(named))
    nested = [{"user": {"id": u}, "to": [v], "sent": at} for u, v, at, _ in rows]
    (folder / "nested.jsonl").write_text("".join(json.dumps(row) + "\n" for row in nested))
    (folder / "mail.csv.gz").write_bytes(gzip.compress(mail.encode(), mtime=0))
    numbers = [(u[1:], v[1:], 1_700_000_000 + 86_400 * i) for i, (u, v, _, _) in enumerate(rows)]
    (folder / "snap.txt").write_text("# FromNodeId ToNodeId\n" + "".join(f"{u} {v} {at}\n" for u, v, at in numbers))
    (folder / "out.konect").write_text("% sym\n" + "".join(f"{u} {v} 1 {at}\n" for u, v, at in numbers))
    table = pl.DataFrame(named)
    table.write_parquet(folder / "mail.parquet", compression="uncompressed")
    table.with_columns(pl.col("sent").str.to_datetime()).write_parquet(folder / "dated.parquet", compression="zstd")
    later = "".join(f"{u},{v},{at}\n" for u, v, at, _ in rows_of(4, 5))
    (folder / "next.csv").write_text(f"from,to,sent\n{later}")
    later = "".join(f"{u},{v},{at}\n" for u, v, at, _ in rows_of(5, 7))
    (folder / "later.csv").write_text(f"from,to,sent\n{later}")
    ages = np.random.default_rng(0).integers(20, 60, 10)
    people = "".join(f"p{i},{age},team {i % 3}\n" for i, age in enumerate(ages))
    (folder / "people.csv").write_text(f"id,age,team\n{people}")
    timed = "".join(f"p{i},{FIRST + timedelta(days=i)},{age}\n" for i, age in enumerate(ages))
    (folder / "timed.csv").write_text(f"id,time,age\n{timed}")
