"""Seconds and memory of training with one rank and with two, each rank with one thread.

    python benchmarks/several_ranks.py --events 1000000    # minutes on two cores; writes results/several_ranks.json

Both fit the same made-up log without a backtest, in fresh processes, one after the other. Memory is the peak of the
pages of a rank that are not pages of a file, sampled ten times a second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parents[1] / "results" / "several_ranks.json"


def own_bytes() -> int:
    """Bytes of memory of this process that are not pages of a file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(("RssAnon:", "RssShmem:")):
            return 1024 * int(line.split()[1])
    return 0


def one_rank(graph: str, epochs: int, out: str) -> None:
    """Fit as one of several ranks; the first writes its figures and those of the others."""
    import dysat
    from dysat.system.parallel.ranks import Ranks, joined
    from dysat.system.progress import listening

    spent, peak, over = [0.0, 0], [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            peak[0] = max(peak[0], own_bytes())

    average = Ranks.average_

    def timed(self: Ranks, tensors: Any) -> None:
        begin = time.perf_counter()
        average(self, tensors)
        spent[0] += time.perf_counter() - begin
        spent[1] += 4 * sum(tensor.numel() for tensor in tensors)

    Ranks.average_ = timed  # type: ignore[method-assign]
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    with joined() as here:
        begin = time.perf_counter()
        marks = dict[str, float]()
        with listening(lambda what, done, total: marks.setdefault(what.partition(":")[0], time.perf_counter())):
            model = dysat.DySAT(epochs=epochs, device="cpu").fit(dysat.DynamicGraph.load(graph))
        over.set()
        facts = {
            "seconds": time.perf_counter() - begin,
            "before_training": marks["training"] - begin - model.epochs_[0].seconds,
            "training": sum(epoch.seconds for epoch in model.epochs_),
            "averaging": spent[0],
            "bytes_per_step": spent[1] / max(1, len(model.epochs_)),
            "peak_bytes": peak[0],
            "loss": model.epochs_[-1].loss,
        }
        every = [each for each, _ in here.gathered(facts)]
        if here.first:
            Path(out).write_text(json.dumps(every))


def measure(graph: Path, epochs: int, ranks: int) -> list[dict[str, float]]:
    """Return the figures of every rank."""
    out = graph.parent / f"{ranks}.json"
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*run, __file__, "--rank", str(graph), "--epochs", str(epochs), "--out", str(out)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    found: list[dict[str, float]] = json.loads(out.read_text())
    return found


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--out", default=str(OUT), help="file to write")
    args = parser.parse_args()
    if args.rank:
        return one_rank(args.rank, args.epochs, args.out)
    from dysat.experiments.scale import SIZES, made_graph
    from dysat.system.hardware import hardware

    rows = dict[str, Any]()
    with tempfile.TemporaryDirectory() as place:
        made_graph(SIZES[args.events], args.events).save(Path(place) / "graph")
        for ranks in (1, 2):
            rows[str(ranks)] = measure(Path(place) / "graph", args.epochs, ranks)
            print(ranks, rows[str(ranks)], flush=True)
    one, two = rows["1"][0], rows["2"]
    ratios = {
        "training": one["training"] / max(each["training"] for each in two),
        "whole_fit": one["seconds"] / max(each["seconds"] for each in two),
        "memory": max(each["peak_bytes"] for each in two) / one["peak_bytes"],
        "averaging_share": two[0]["averaging"] / two[0]["training"],
    }
    about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "seed": 0, "events": args.events}
    about["command"] = f"python benchmarks/several_ranks.py --events {args.events} --epochs {args.epochs}"
    Path(args.out).write_text(json.dumps({**about, "ratios": ratios, "ranks": rows}, indent=1) + "\n")
    print(json.dumps(ratios, indent=1))
    return None


if __name__ == "__main__":
    main()
