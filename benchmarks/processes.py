"""Time jobs in many processes, with the threads of each limited (`dysat.system.parallel.pool`) and without.

    python benchmarks/processes.py [--processes 8 16] [--out results/processes.json]

Every process fits `pair-logistic` or `pair-boosting` on one made-up graph of 2,000 nodes and 16 snapshots, twice; the
first fit loads the libraries and is not counted. Without limits a set is stopped after --patience seconds, and the
table says so. The result is appended to the --out file.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import wait
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

METHODS = ("pair-logistic", "pair-boosting")
NODES, SNAPSHOTS, LINKS = 2_000, 16, 3_000


def make_graph(folder: str) -> None:
    """Write a made-up graph in which busy nodes have more links and half of the links recur."""
    from dysat import DynamicGraph
    from dysat.data.csr import Snapshot

    rng = np.random.default_rng(0)
    src, dst = (NODES * rng.random((2, SNAPSHOTS * LINKS)) ** 2).astype(int)
    again = np.flatnonzero(rng.random(len(src)) < 0.5)
    source = rng.integers(0, np.maximum(again, 1))
    src[again], dst[again] = src[source], dst[source]
    snapshots = [
        Snapshot.from_links(u, v, None, num_nodes=NODES, start=step, stop=step + 1, self_loops=False)
        for step, (u, v) in enumerate(zip(np.split(src, SNAPSHOTS), np.split(dst, SNAPSHOTS), strict=True))
    ]
    DynamicGraph(nodes=np.arange(NODES), snapshots=tuple(snapshots), clock="step").save(folder)


def fit(folder: str, method: str) -> float:
    """Return the seconds of the second of two fits."""
    import dysat

    graph = dysat.DynamicGraph.load(folder)
    dysat.models.MODELS[method]().fit(graph[:-1])
    begin = time.perf_counter()
    dysat.models.MODELS[method]().fit(graph)
    return time.perf_counter() - begin


def measure(folder: str, method: str, processes: int, limited: bool, patience: float) -> dict[str, Any]:
    """Run one fit in each of several processes at the same time."""
    import multiprocessing

    from dysat.system.parallel.pool import worker_pool

    begin = time.perf_counter()
    with worker_pool(processes, "fits", limit_threads=limited) as pool:
        fits = [pool.submit(fit, folder, method) for _ in range(processes)]
        done, missing = wait(fits, timeout=patience)
        wall = time.perf_counter() - begin
        if missing:
            for process in multiprocessing.active_children():
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)
        seconds = sorted(each.result() for each in done if each.exception() is None)
    row = {"method": method, "processes": processes, "limited": limited, "finished": len(seconds)}
    return {**row, "median_fit_s": round(median(seconds), 2) if seconds else None, "wall_s": round(wall, 1)}


def main() -> None:
    """Measure, print, and append to a file."""
    from dysat.system.hardware import hardware

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--patience", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    with TemporaryDirectory() as place:
        folder = str(Path(place) / "graph")
        make_graph(folder)
        for method in METHODS:
            for processes in args.processes:
                for limited in (True, False):
                    rows.append(measure(folder, method, processes, limited, args.patience))
                    print(rows[-1], flush=True)
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": hardware(),
        "rows": rows,
    }
    if args.out is not None:
        runs = json.loads(args.out.read_text())["runs"] if args.out.exists() else []
        text = json.dumps({"command": "benchmarks/processes.py", "runs": [*runs, found]}, indent=1)
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
