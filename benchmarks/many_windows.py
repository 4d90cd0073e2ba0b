"""Time and memory of fitting the default model on many windows: an hourly log of weeks or months.

    python benchmarks/many_windows.py [--windows 250 1000 2000] [--device cpu] [--out results/many_windows.json]

400 people send 10 messages per hour on average, more by day than by night, mostly within groups. Each row is measured
in a fresh process: seconds of the pair score, of everything before the first epoch and of one epoch, and peak memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

PEOPLE, GROUPS, HOURLY = 400, 8, 10


def hourly_log(windows: int) -> dict[str, Any]:
    """Sender, receiver and time of each message."""
    import numpy as np

    rng = np.random.default_rng(0)
    hours = np.arange(windows)
    number = rng.poisson(HOURLY * np.maximum(0.1, 1 + np.sin(2 * np.pi * hours / 24)))
    hour = np.repeat(hours, number)
    eager = rng.gamma(0.4, size=PEOPLE) + 0.02
    src = rng.choice(PEOPLE, len(hour), p=eager / eager.sum())
    near = (src + GROUPS * rng.integers(1, 5, len(hour))) % PEOPLE
    dst = np.where(rng.random(len(hour)) < 0.7, near, rng.integers(0, PEOPLE, len(hour)))
    start = datetime(2020, 1, 1)
    return {"src": src, "dst": dst, "time": [start + timedelta(hours=h) for h in hour.tolist()]}


def fit(windows: int, device: str) -> dict[str, Any]:
    """Seconds and memory of one fit with two epochs in this process."""
    import resource

    import polars as pl

    import dysat
    from dysat.models.forecast.pair_score import PairScore
    from dysat.system.parallel.process import keep_freed_memory

    keep_freed_memory()
    events = dysat.read_events(pl.DataFrame(hourly_log(windows)), src="src", dst="dst", time="time")
    graph = dysat.build_snapshots(events, every="1h")
    dysat.DySAT(device=device, epochs=1).fit(graph[:4])  # imports and compiles
    begin = time.perf_counter()
    PairScore.learn(graph, transitions=3)
    pair_score = time.perf_counter() - begin
    graph = dysat.build_snapshots(events, every="1h")  # a new graph without cached results
    begin = time.perf_counter()
    model = dysat.DySAT(device=device, epochs=2).fit(graph)
    before = time.perf_counter() - begin - sum(epoch.seconds for epoch in model.epochs_)
    seconds = {"pair score": pair_score, "before the first epoch": before, "epoch": model.epochs_[-1].seconds}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rounded = {name: round(value, 2) for name, value in seconds.items()}
    return {"windows": len(graph), "links": sum(s.num_links for s in graph), **rounded, "GiB": round(memory, 2)}


def main() -> None:
    """Measure each number of windows in its own process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, nargs="+", default=[250, 1000, 2000])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(fit(args.windows[0], args.device)))
        return
    from dysat.system.hardware import hardware

    rows = []
    for windows in args.windows:
        command = [sys.executable, __file__, "--here", "--windows", str(windows), "--device", args.device]
        rows.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
        print(rows[-1], flush=True)
    about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "device": args.device, "seed": 0}
    if args.out is not None:
        text = json.dumps({"command": "benchmarks/many_windows.py", **about, "rows": rows}, indent=1)
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
