"""Time an evaluation on a Ray cluster of two fake nodes with one core each, against two local processes.

    python benchmarks/ray_jobs.py [--epochs 20] [--repeats 4] [--out results/ray_jobs.json]

Both engines fit DySAT at the same eight steps of UCI, in alternating order, each time from scratch in a new folder. The
local time includes the start of its processes, and that on Ray the start of the worker processes, not of the cluster,
which is reported on its own. The target is a ratio of at most 1.15. The result is appended to the --out file.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

STEPS = 8
TARGET = 1.15


@contextmanager
def two_nodes() -> Iterator[str]:
    """Start two fake nodes on the loopback address, with a token; give their address."""
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_USAGE_STATS_ENABLED="0")
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # keep to the loopback address
    from ray.cluster_utils import Cluster

    first = {"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.1"}
    nodes = Cluster(initialize_head=True, head_node_args=first)
    try:
        nodes.add_node(num_cpus=1)
        yield nodes.address
    finally:
        nodes.shutdown()


def measure(graph: Any, epochs: int, **engine: Any) -> tuple[float, list[Any]]:
    """Return the seconds of an evaluation, and its results."""
    import dysat

    last = len(graph) - 1
    with TemporaryDirectory() as place:
        begin = time.perf_counter()
        found = dysat.evaluate(
            dysat.DySAT(epochs=epochs),
            graph,
            place,
            opponents=[],
            device="cpu",
            first=last - STEPS + 1,
            last=last,
            **engine,
        )
        seconds = time.perf_counter() - begin
    return seconds, [result.facts() for figures in found.figures for result in figures.results]


def main() -> None:
    """Measure, print, and append to a file."""
    import dysat
    from dysat.system.hardware import hardware

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    graph, rows = dysat.load_dataset("uci"), []
    begin = time.perf_counter()
    with two_nodes() as address:
        start = time.perf_counter() - begin
        engines: dict[str, dict[str, Any]] = {"local": {"processes": 2}, "ray": {"engine": "ray", "address": address}}
        for repeat in range(args.repeats):
            names = list(engines) if repeat % 2 == 0 else list(reversed(engines))  # other work drifts
            found = {name: measure(graph, args.epochs, **engines[name]) for name in names}
            if found["local"][1] != found["ray"][1]:
                raise SystemExit("the two engines have different results")
            local, on_ray = found["local"][0], found["ray"][0]
            rows.append({"local_s": round(local, 2), "ray_s": round(on_ray, 2), "ratio": round(on_ray / local, 3)})
            print(rows[-1], flush=True)
    run = {
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": hardware(),
        "steps": STEPS,
        "epochs": args.epochs,
        "cluster_start_s": round(start, 2),
        "rows": rows,
        "median_ratio": median(row["ratio"] for row in rows),
        "target": TARGET,
    }
    print({name: run[name] for name in ("cluster_start_s", "median_ratio", "target")})
    if args.out is not None:
        runs = json.loads(args.out.read_text())["runs"] if args.out.exists() else []
        text = json.dumps({"command": "benchmarks/ray_jobs.py", "runs": [*runs, run]}, indent=1)
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
