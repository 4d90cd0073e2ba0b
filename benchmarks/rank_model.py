"""Simulate training with 1 to 64 ranks from measured constants.

    python benchmarks/rank_model.py    # after several_ranks.py; a minute; writes results/rank_model.json

A step of one rank takes fixed + per_pair · pairs seconds: both are fitted to steps with 256 to 8 pairs, measured here
with one thread. With R ranks a step has 256 / R pairs, and averaging takes 2 (R − 1) messages (a ring), whose time is
that of several_ranks.py with two ranks. Only training is simulated, not what comes before and after it.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

RESULTS = Path(__file__).resolve().parents[1] / "results"
PAIRS, RANKS = 256, (1, 2, 4, 8, 16, 32, 64)


def seconds_by_pairs(events: int) -> dict[int, float]:
    """Seconds of a training step with one thread, by the number of links and of taught pairs."""
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
    for pairs in (256, 128, 64, 32, 16, 8):
        model_module.PAIRS_AT_ONCE = pairs
        adam = Adam(list(task.parameters.values()), model.learning_rate)
        step = _Stepper(task.loss, task.parameters, adam, model._settings(1), generator, task.penalized)
        for _ in range(3):
            step(task.items)
        begin = time.perf_counter()
        for _ in range(20):
            step(task.items)
        found[pairs] = (time.perf_counter() - begin) / 20
    return found


def main() -> None:
    """Measure, simulate, print and store."""
    from dysat.system.hardware import hardware

    measured = json.loads((RESULTS / "several_ranks.json").read_text())
    steps = seconds_by_pairs(measured["events"])
    per_pair, fixed = np.polyfit(list(steps), list(steps.values()), 1)
    fixed = max(0.0, float(fixed))
    epochs = int(measured["command"].rpartition(" ")[2])
    message = min(each["averaging"] for each in measured["ranks"]["2"]) / epochs / 2  # the other rank waits longer
    rows = []
    for ranks in RANKS:
        averaging = 2 * (ranks - 1) * message
        step = fixed + per_pair * PAIRS / ranks + averaging
        rows.append({"ranks": ranks, "step": step, "averaging": averaging})
        rows[-1]["efficiency"] = rows[0]["step"] / (ranks * step)
        print(f"{ranks:3} ranks: {1000 * step:7.1f} ms per step, efficiency {rows[-1]['efficiency']:.2f}", flush=True)
    constants = {"fixed": fixed, "per_pair": float(per_pair), "message": message, "steps_by_pairs": steps}
    about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "seed": 0}
    about["command"] = "python benchmarks/rank_model.py"
    (RESULTS / "rank_model.json").write_text(
        json.dumps({**about, "constants": constants, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
