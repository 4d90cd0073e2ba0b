"""Simulate training with 1 to 64 ranks from measured constants.

    python benchmarks/rank_model.py    # two minutes on two cores; writes results/rank_model.json

With R ranks a step has 256 / R links and as many taught pairs on each. The seconds of such steps are measured with one
thread, and so are those of averaging one number and all gradients between two ranks of this machine (Gloo). A step of R
ranks takes as long as the slowest of R measured steps, drawn at random, and 2 (R − 1) messages of a ring, each with the
measured delay and 1 / R of the gradients. Only training is simulated, not what comes before and after it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

OUT = Path(__file__).resolve().parents[1] / "results" / "rank_model.json"
PAIRS, RANKS, STEPS, REPEATS = 256, (1, 2, 4, 8, 16, 32, 64), 25, 200


def seconds_by_ranks(events: int) -> tuple[dict[int, list[float]], int]:
    """Seconds of steps of one rank, by the number of ranks, and the number of weights."""
    from dysat.experiments.scale import SIZES, made_graph
    from dysat.models import dysat as model_module
    from dysat.nn.adam import Adam
    from dysat.training import _Stepper

    torch.set_num_threads(1)
    model = model_module.DySAT(device="cpu", epochs=1)
    model.graph_ = made_graph(SIZES[events], events)
    generator = torch.Generator().manual_seed(0)
    task = model._prepare(torch.device("cpu"), generator)
    found = {}
    for ranks in RANKS:
        model_module.PAIRS_AT_ONCE = PAIRS // ranks
        adam = Adam(list(task.parameters.values()), model.learning_rate)
        step = _Stepper(task.loss, task.parameters, adam, model._settings(1), generator, task.penalized)
        times = [time.perf_counter()]
        for _ in range(STEPS + 3):
            step(task.items)
            times.append(time.perf_counter())
        found[ranks] = np.diff(times)[3:].tolist()
    return found, sum(p.numel() for p in task.parameters.values())


def one_rank(sizes: list[int], out: str) -> None:
    """Measure the seconds of averaging tensors of these sizes, as one of two ranks that begin together."""
    from dysat.system.parallel.ranks import joined

    found = []
    with joined() as here:
        for size in sizes:
            tensor, times = torch.ones(size), list[float]()
            for _ in range(REPEATS):
                here.any(False)  # wait for the other rank
                begin = time.perf_counter()
                here.average_([tensor])
                times.append(time.perf_counter() - begin)
            found.append(float(np.median(times)))
        if here.first:
            Path(out).write_text(json.dumps(found))


def main() -> None:
    """Measure, simulate, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--sizes", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", default=str(OUT), help="file to write")
    args = parser.parse_args()
    if args.sizes:
        return one_rank(args.sizes, args.out)
    from dysat.system.hardware import hardware

    steps, weights = seconds_by_ranks(args.events)
    with tempfile.TemporaryDirectory() as place:
        run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
        command = [*run, "--sizes", "1", str(weights), "--out", f"{place}/seconds.json"]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        one, whole = json.loads(Path(place, "seconds.json").read_text())
    delay, transfer = one / 2, max(0.0, whole - one)  # a ring of two sends two messages, of half the gradients each
    random, rows = np.random.default_rng(0), list[dict[str, float]]()
    for ranks in RANKS:
        slowest = float(random.choice(steps[ranks], (10_000, ranks)).max(1).mean())
        averaging = 2 * (ranks - 1) * (delay + transfer / ranks) if ranks > 1 else 0.0
        row = {"ranks": ranks, "mean_step": float(np.mean(steps[ranks])), "slowest": slowest, "averaging": averaging}
        rows.append(row | {"step": slowest + averaging})
        rows[-1]["efficiency"] = rows[0]["step"] / (ranks * rows[-1]["step"])
        print(", ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()), flush=True)
    about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "seed": 0, "events": args.events}
    about["command"] = f"python benchmarks/rank_model.py --events {args.events}"
    constants = {"delay": delay, "transfer": transfer, "weights": weights, "steps": steps}
    Path(args.out).write_text(json.dumps({**about, "constants": constants, "rows": rows}, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
