"""Time the first and the next fit of the default model on UCI, and an epoch of it and of the preset `program`.

    python benchmarks/first_fit.py [--graph FOLDER] [--device cuda] [--out results/first_fit.json]

Times include imports. `fresh`: a process with empty caches for C, CUDA kernels and Python bytecode; `first`: a new
process with full caches; `next`: a second fit in that process. The row is appended to the --out file.
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
from statistics import median
from typing import Any


def fits(graph: str | None, device: str) -> dict[str, Any]:
    """Seconds of two fits with 150 epochs in this process, and of one epoch of both presets."""
    import torch

    import dysat
    from dysat.system.parallel.process import keep_freed_memory

    keep_freed_memory()
    data = (dysat.load_dataset("uci") if graph is None else dysat.DynamicGraph.load(graph))[:12]
    if device == "cuda":
        torch.zeros(1, device="cuda")
    seconds, epochs = [], {}
    for _ in range(2):
        begin = time.perf_counter()
        model = dysat.DySAT(device=device).fit(data)
        seconds.append(round(time.perf_counter() - begin, 2))
        epochs["forecast"] = _median(model)
    epochs["program"] = _median(dysat.DySAT.from_preset("program", device=device, epochs=12, patience=None).fit(data))
    return {"fits": seconds, "epoch": epochs, "threads": torch.get_num_threads()}


def _median(model: Any) -> float:
    """Median seconds of an epoch, without the first, which includes preparation."""
    return round(median(epoch.seconds for epoch in model.epochs_[1:]), 5)


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run one process with empty caches, then one with full caches."""
    from dysat.system.hardware import hardware

    command = [sys.executable, __file__, "--here", "--device", args.device]
    command += [] if args.graph is None else ["--graph", args.graph]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        names = {"XDG_CACHE_HOME": "c", "TRITON_CACHE_DIR": "triton", "PYTHONPYCACHEPREFIX": "python"}
        caches = {name: f"{folder}/{place}" for name, place in names.items()}
        # pip installs bytecode, so the second process must find some even if this machine writes none.
        own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        for _ in range(2):
            done = subprocess.run(command, env=own | caches, capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout))
    fresh, again = found
    rows = {"fresh": fresh["fits"][0], "first": again["fits"][0], "next": again["fits"][1]}
    about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "device": args.device, "seed": 0}
    return {"seconds": rows, "epoch": again["epoch"], "threads": again["threads"], **about}


def main() -> None:
    """Measure, print, and append to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", help="graph folder; default: the bundled UCI dataset")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(fits(args.graph, args.device)))
        return
    row = measure(args)
    print(json.dumps(row, indent=1))
    if args.out is not None:
        rows = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
        args.out.write_text(json.dumps({"command": "benchmarks/first_fit.py", "rows": [*rows, row]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
