"""Time and peak memory of cutting a log in several ways, each in a process of its own.

    python benchmarks/large_logs.py LOG.parquet FOLDER [WAY ...]

LOG has the columns src, dst and time (seconds), and is cut into windows of four weeks. FOLDER is for what is written.
The ways: `memory` is `read_events` and `build_snapshots`; `disk` is `cut_on_disk`; `duckdb` and `polars` number the
nodes and count the links of every window with SQL or with streaming queries, but write no graph. DuckDB may use 1 GB
before it spills, and must be installed. The first two must write the same folder.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

WIDTH = 4 * 7 * 86_400  # seconds


def memory(log: Path, folder: Path) -> None:
    """Read the log at once."""
    import dysat

    dysat.build_snapshots(dysat.read_events(log), every="4w").save(folder / "memory")


def disk(log: Path, folder: Path) -> None:
    """Read it in batches."""
    import dysat

    dysat.cut_on_disk(log, folder / "disk", every="4w")


def duckdb(log: Path, folder: Path) -> None:
    """Number the nodes and count the links in SQL."""
    import duckdb

    connection = duckdb.connect(str(folder / "duckdb"))
    connection.execute(f"set memory_limit = '1GB'; set threads = 2; set temp_directory = '{folder / 'spilled'}'")
    connection.execute("set preserve_insertion_order = false")
    connection.execute(f"create view events as select * from '{log}' where src <> dst")
    connection.execute(
        "create table nodes as select label, row_number() over (order by first, label) - 1 as id from (select label, "
        "min(time) as first from (select src as label, time from events union all select dst, time from events) "
        "group by label)"
    )
    step = f"(time - (select min(time) from events)) // {WIDTH}"
    numbered = "events join nodes a on a.label = src join nodes b on b.label = dst"
    connection.execute(
        f"create table links as select t, u, v, count(*) as weight from "
        f"(select {step} as t, a.id as u, b.id as v from {numbered}) group by all"
    )
    both = "(select t, u, v, weight from links union all select t, v, u, weight from links)"
    found = connection.sql(f"select t, u, v, sum(weight) from {both} group by all order by t, u, v")
    print(sum(batch.num_rows for batch in found.to_arrow_reader(1 << 20)), "entries", flush=True)


def polars(log: Path, folder: Path) -> None:
    """The same with streaming queries of Polars."""
    import polars as pl

    events = pl.scan_parquet(log).filter(pl.col("src") != pl.col("dst"))
    begin = events.select(pl.min("time")).collect(engine="streaming").item()
    ends = pl.concat([events.select(label=end, time="time") for end in ("src", "dst")])
    first = ends.group_by("label").agg(pl.min("time")).sort("time", "label").with_row_index("id")
    nodes = first.select("id", "label").collect(engine="streaming").lazy()
    links = events.with_columns(t=(pl.col("time") - begin) // WIDTH)
    for end, name in (("src", "u"), ("dst", "v")):
        links = links.join(nodes, left_on=end, right_on="label").rename({"id": name})
    both = pl.concat([links.select("t", "u", "v"), links.select("t", u="v", v="u")])
    both.group_by("t", "u", "v").len().sort("t", "u", "v").sink_parquet(folder / "polars.parquet")


WAYS: dict[str, Callable[[Path, Path], None]] = {"memory": memory, "disk": disk, "duckdb": duckdb, "polars": polars}


def measure(way: str, log: Path, folder: Path) -> None:
    """Cut in this process and print the figures."""
    begin = time.perf_counter()
    WAYS[way](log, folder)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{way}: {seconds:.1f} s, {peak:.2f} GiB", flush=True)


def main() -> None:
    """Measure all ways, or those given, one after the other."""
    log, folder, *ways = sys.argv[1:]
    if ways[:1] == ["--here"]:
        return measure(ways[1], Path(log), Path(folder))
    target = Path(folder)
    for way in ways or WAYS:
        target.mkdir()
        subprocess.run([sys.executable, __file__, log, folder, "--here", way], check=True)
        kept = target.with_name(f"{target.name}-{way}")
        if way in ("memory", "disk"):
            (target / way).rename(kept)
        shutil.rmtree(target)
    written = [target.with_name(f"{target.name}-{way}") for way in ("memory", "disk")]
    if all(map(Path.exists, written)):
        files = [{file.name: file.read_bytes() for file in path.iterdir()} for path in written]
        print("same folders" if files[0] == files[1] else "DIFFERENT FOLDERS")
    for path in written:
        shutil.rmtree(path, ignore_errors=True)
    return None


if __name__ == "__main__":
    main()
