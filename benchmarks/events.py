"""Time reading a log and building snapshots, with dysat and with plain pandas.

    python benchmarks/events.py [--events 10000000]

generates logs of random events (a million nodes, 50 weekly windows, sorted by time) as Parquet and CSV, with text and
number labels, runs every job in a fresh process, checks that both sides find the same nodes and links in every week,
and writes results/bench_events.json and the table in docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WINDOWS, WEEK = 50, 7 * 86_400
MARK = "<!-- bench:events -->"
Outcome = tuple[float, float, list[tuple[int, int]]]  # seconds, of these for reading, (nodes, links) of every week


def generate(path: Path, events: int, nodes: int, labels: str, seed: int = 0) -> None:
    """Write random events: some nodes are far more active than others; times are sorted whole seconds."""
    import numpy as np
    import polars as pl

    rng = np.random.default_rng(seed)
    name = pl.Series(rng.permutation(nodes))
    if labels == "text":
        name = "user" + name.cast(pl.String)
    src, dst = (name.gather((nodes * rng.random(events) ** 2).astype(np.int64)) for _ in range(2))
    stamps = np.sort(rng.integers(0, WINDOWS * WEEK, events)) + 1_600_000_000
    sent = pl.Series(stamps * 1_000_000).cast(pl.Datetime("us"))
    table = pl.DataFrame({"src": src, "dst": dst, "time": sent})
    if path.suffix == ".csv":
        table.write_csv(path, datetime_format="%Y-%m-%dT%H:%M:%S")
    else:
        table.write_parquet(path)


def job_dysat(path: Path) -> Outcome:
    """The job with dysat."""
    import polars  # noqa: F401
    import torch  # noqa: F401

    import dysat

    begin = time.perf_counter()
    events = dysat.read_events(path, "src", "dst", "time")
    read = time.perf_counter() - begin
    graph = dysat.build_snapshots(events, every="7d", self_loops="keep")
    seconds = time.perf_counter() - begin
    return seconds, read, [(s.num_nodes, s.num_links) for s in graph]


def job_pandas(path: Path) -> Outcome:
    """The same job in straightforward pandas and SciPy.

    Labels are numbered by first appearance, links are counted per week, and each week is a symmetric CSR matrix over
    the nodes known so far.
    """
    import numpy as np
    import pandas as pd
    import pyarrow  # noqa: F401
    import scipy.sparse as sp

    begin = time.perf_counter()
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, parse_dates=["time"])
    read = time.perf_counter() - begin
    table["window"] = (table["time"] - table["time"].min()) // pd.Timedelta("7D")
    ends = pd.concat([table["src"], table["dst"]]).sort_index(kind="stable")  # src, dst, src, dst, … by time
    codes, labels = pd.factorize(ends)
    table["u"], table["v"] = np.minimum(codes[::2], codes[1::2]), np.maximum(codes[::2], codes[1::2])
    known = table.groupby("window")["v"].max().cummax() + 1
    links = table.groupby(["window", "u", "v"]).size().reset_index(name="weight")
    snapshots = []
    for window, part in links.groupby("window"):
        half = sp.coo_array((part["weight"], (part["u"], part["v"])), shape=(known[window], known[window]))
        snapshots.append((half + sp.triu(half, 1).T).tocsr())
    seconds = time.perf_counter() - begin
    assert len(labels) == known.iloc[-1]
    return seconds, read, [(s.shape[0], sp.triu(s).nnz) for s in snapshots]


JOBS = {"dysat": job_dysat, "pandas": job_pandas}


def run_job(job: str, path: Path) -> dict[str, Any]:
    """Run one job in a fresh process; returns its seconds and peak memory."""
    command = [sys.executable, __file__, "--job", job, "--file", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def import_seconds() -> float:
    """Seconds of `import dysat` after `import torch`."""
    code = "import time, torch; t = time.perf_counter(); import dysat; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    return statistics.median(float(run.stdout) for run in runs)


def machine() -> dict[str, Any]:
    """The machine and the versions of all packages."""
    from importlib.metadata import version

    from dysat.system.hardware import hardware

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = {name: version(name) for name in ("dysat", "torch", "numpy", "polars", "pandas", "pyarrow", "scipy")}
    return {**hardware(), "memory_gib": round(memory), **packages}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run all jobs on all files; dysat and pandas alternate."""
    rows = []
    for labels in ("text", "number"):
        for suffix in ("parquet", "csv"):
            for events in (args.events // 10, args.events):
                path = args.data / f"{labels}-{events}.{suffix}"
                if not path.exists():
                    args.data.mkdir(parents=True, exist_ok=True)
                    generate(path, events, args.events // 10, labels)
                runs: dict[str, list[dict[str, Any]]] = {job: [] for job in JOBS}
                for _ in range(args.repeat):
                    for job, results in runs.items():
                        results.append(run_job(job, path))
                if runs["dysat"][0]["weeks"] != runs["pandas"][0]["weeks"]:
                    raise SystemExit(f"{path}: dysat and pandas find different nodes or links")
                row: dict[str, Any] = {"format": suffix, "labels": labels, "events": events}
                for job, results in runs.items():
                    row[job] = statistics.median(r["seconds"] for r in results)
                    row[f"{job}_read"] = statistics.median(r["read"] for r in results)
                    row[f"{job}_all"] = [round(r["seconds"], 3) for r in results]
                    row[f"{job}_gib"] = max(r["gib"] for r in results)
                row["ratio"] = statistics.median(
                    p["seconds"] / d["seconds"] for p, d in zip(runs["pandas"], runs["dysat"], strict=True)
                )
                rows.append(row)
                seconds = f"dysat {row['dysat']:6.2f} s  pandas {row['pandas']:6.2f} s  x{row['ratio']:.1f}"
                print(f"{suffix:8}{labels:8}{events:>12,}  {seconds}", flush=True)
    date = datetime.now(UTC).date().isoformat()
    return {
        "date": date,
        "seed": 0,
        "machine": machine(),
        "import_seconds": import_seconds(),
        "repeat": args.repeat,
        "rows": rows,
    }


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/performance.md."""
    m = result["machine"]
    lines = [
        f"Measured {result['date']} by `make bench` on {m['cores']} cores of {m['cpu']}, {m['memory_gib']} GiB, "
        f"Python {m['python']}, Polars {m['polars']}, pandas {m['pandas']}, NumPy {m['numpy']}, torch {m['torch']}; "
        f"seed {result['seed']}, median of {result['repeat']} runs, each in a fresh process, "
        "dysat and pandas alternating.",
        "",
        "| log | labels | events | dysat | pandas | speedup | peak memory, dysat | peak memory, pandas |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r['format']} | {r['labels']} | {r['events']:,} | {r['dysat']:.2f} s | {r['pandas']:.2f} s | "
        f"{r['ratio']:.1f} | {r['dysat_gib']:.2f} GiB | {r['pandas_gib']:.2f} GiB |"
        for r in result["rows"]
    ]
    lines += ["", "Factor by which the time grows with ten times the events:", ""]
    for small, large in zip(result["rows"][::2], result["rows"][1::2], strict=True):
        factors = [f"{job} {large[job] / small[job]:.1f}" for job in JOBS]
        lines.append(f"- {large['format']}, {large['labels']}: {', '.join(factors)}")
    lines += ["", "Time of dysat in `read_events` (including numbering the nodes) and in `build_snapshots`:", ""]
    for row in result["rows"][1::2]:
        parts = f"{row['dysat_read']:.2f} s and {row['dysat'] - row['dysat_read']:.2f} s"
        lines.append(f"- {row['format']}, {row['labels']}, {row['events']:,} events: {parts}")
    lines += ["", f"`import dysat` takes {result['import_seconds']:.2f} s after `import torch`."]
    return "\n".join(lines)


def main() -> None:
    """Measure everything, or (--job) one job in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--data", type=Path, default=ROOT / "bench-data", help="folder for the generated logs")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        seconds, read, weeks = JOBS[args.job](args.file)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({"seconds": seconds, "read": read, "weeks": weeks, "gib": peak}))
        return
    result = measure(args)
    table = markdown(result)
    print("\n" + table)
    (ROOT / "results").mkdir(exist_ok=True)
    (ROOT / "results" / "bench_events.json").write_text(json.dumps(result, indent=1) + "\n")
    page = ROOT / "docs" / "performance.md"
    before, _, rest = page.read_text().partition(MARK)
    after = rest.partition(MARK)[2]
    page.write_text(f"{before}{MARK}\n\n{table}\n\n{MARK}{after}")


if __name__ == "__main__":
    main()
