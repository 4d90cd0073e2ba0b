"""Time one update after 10, 50 and 200 snapshots, compared with a full fit; writes a table of docs/performance.md.

python benchmarks/updates.py

The graph grows slowly, and all snapshots have the same size. A run of IncSAT is updated snapshot by snapshot. After 10,
50 and 200 snapshots the next update is timed in fresh processes, from opening the run until the update is on disk, with
peak memory; then a DySAT with the same layers and number of epochs is fitted on all snapshots so far.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars  # noqa: F401  imported here so that its import is not timed

import dysat
from dysat.data.continuation import Continuation, NextSnapshot
from dysat.runs.run import Run
from dysat.runs.update import updating
from dysat.system.hardware import hardware, peak_gib
from dysat.system.parallel.process import keep_freed_memory

ROOT = Path(__file__).resolve().parents[1]
RESULT, MARK = ROOT / "results" / "bench_updates_cpu.json", "<!-- bench:updates -->"
MARKS = {"10": (10, 50, 200), "none": (10, 50)}  # history → numbers of snapshots; "none" attends to all steps
NODES, GROWTH, ACTIVE, LINKS = 2000, 2, 500, 1000
EPOCHS, REPEATS = 10, 5


def snapshot(step: int) -> dysat.Snapshot:
    """Random links between near nodes on a ring of 500 active nodes, drawn independently for every step."""
    rng, known = np.random.default_rng(step), NODES + GROWTH * step
    active = np.sort(rng.choice(known, ACTIVE, replace=False))
    i = rng.integers(0, ACTIVE, LINKS * 2)
    u, v = active[i], active[(i + rng.geometric(0.1, len(i))) % ACTIVE]
    pairs = np.unique(np.sort(np.stack([u, v], 1)[u != v], axis=1), axis=0)
    pairs = rng.permutation(pairs)[:LINKS]
    return dysat.Snapshot.from_links(pairs[:, 0], pairs[:, 1], None, num_nodes=known, start=step, stop=step + 1)


def graph(steps: int) -> dysat.DynamicGraph:
    """The first `steps` snapshots as a graph."""
    snapshots = tuple(snapshot(step) for step in range(steps))
    return dysat.DynamicGraph(np.arange(snapshots[-1].num_nodes), snapshots, clock="step")


def advance(folder: str, steps: int, epochs: int) -> dict[str, float]:
    """Update a run by `steps` snapshots."""
    begin = time.perf_counter()
    with updating(Run.open(folder), device="cpu", epochs=epochs) as updater:
        for _ in range(steps):
            new, known = snapshot(len(updater.graph)), updater.graph.num_nodes
            list(updater.take_in(plan(NextSnapshot(new, np.arange(known, new.num_nodes), None, new.num_links))))
    return {
        "seconds": time.perf_counter() - begin,
        "peak_gib": peak_gib(),
    }


def plan(step: NextSnapshot) -> Continuation:
    """A plan to take in one snapshot."""
    return Continuation((step,), step.events, 0, 0, 0, None, ())


def full(steps: int, history: str) -> dict[str, float]:
    """Fit a DySAT on the first `steps` snapshots."""
    given = graph(steps)
    begin = time.perf_counter()
    dysat.DySAT.from_preset("program", epochs=EPOCHS, batch_size=256, history=history, device="cpu").fit(given)
    return {
        "seconds": time.perf_counter() - begin,
        "peak_gib": peak_gib(),
    }


def warm_up() -> None:
    """Fit and update a small run, so that imports and compiling are not timed."""
    keep_freed_memory()
    links = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    u, v = links.T
    parts = [dysat.Snapshot.from_links(u, v, None, num_nodes=4, start=t, stop=t + 1) for t in range(3)]
    small = dysat.DynamicGraph(np.arange(4), tuple(parts[:2]), clock="step")
    with tempfile.TemporaryDirectory() as place:
        model = dysat.IncSAT.from_preset("program", epochs=1, walks_per_node=1, device="cpu")
        Run.start(f"{place}/run", small, model, backtest=False).train()
        with updating(Run.open(f"{place}/run"), device="cpu") as updater:
            list(updater.take_in(plan(NextSnapshot(parts[2], np.arange(0), None, 4))))


def child(*words: str) -> dict[str, float]:
    """Run this script in a fresh process; returns the result it prints."""
    done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def prepare(history: str, place: Path) -> dict[int, Path]:
    """Prepare a run for each number of snapshots."""
    folder, found = place / f"run-{history}", {}
    model = dysat.IncSAT.from_preset("program", epochs=1, batch_size=256, history=history, device="cpu")
    Run.start(folder, graph(MARKS[history][0]), model, backtest=False).train()
    for mark in MARKS[history]:
        with updating(Run.open(folder)) as updater:
            missing = mark - len(updater.graph)
        if missing:
            child("advance", str(folder), str(missing), "0")
        found[mark] = place / f"run-{history}-{mark}"
        shutil.copytree(folder, found[mark])
    return found


def measure(place: Path) -> list[dict[str, Any]]:
    """Time updates of all runs in turn, so that a slow phase of the machine affects them equally; then full fits."""
    runs = {(history, mark): run for history in MARKS for mark, run in prepare(history, place).items()}
    found: dict[tuple[str, int], list[dict[str, float]]] = {key: [] for key in runs}
    fits: dict[int, list[dict[str, float]]] = {}
    for turn in range(REPEATS):
        for key, run in runs.items():
            shutil.copytree(run, place / "copy")
            os.sync()  # so that the sync of the update does not wait for the copy
            found[key].append(child("advance", str(place / "copy"), "1", str(EPOCHS)))
            shutil.rmtree(place / "copy")
        for mark in MARKS["10"]:
            if turn == 0 or mark == MARKS["10"][0]:
                fits.setdefault(mark, []).append(child("full", str(mark), "none"))
        print(turn, found, fits, flush=True)
    return [
        {"history": history, "snapshots": mark, "update": middle(found[history, mark]), "full": middle(fits[mark])}
        for history, mark in runs
    ]


def middle(found: list[dict[str, float]]) -> dict[str, float]:
    """Median of each figure."""
    return {key: round(statistics.median(one[key] for one in found), 4) for key in found[0]}


def table(result: dict[str, Any]) -> list[str]:
    """The table of docs/performance.md."""
    machine = result["hardware"]
    lines = [
        f"Measured {result['date']} by `python benchmarks/updates.py` on {machine['cores']} cores of {machine['cpu']}, "
        f"torch {machine['torch']}; {LINKS:,} links among {ACTIVE:,} nodes in every snapshot, {NODES:,} nodes at first "
        f"and {GROWTH} more in each; {EPOCHS} epochs, batches of 256; median of {REPEATS} runs (one run for full fits "
        "of 50 and 200 snapshots), each in a fresh process after a small warm-up fit.",
        "",
        "| steps attended to | snapshots | update, s | relative | peak, GiB | relative | full fit, s | speedup |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for history in MARKS:
        rows = [row for row in result["rows"] if row["history"] == history]
        for row in rows:
            now, first, whole = row["update"], rows[0]["update"], row["full"]
            cheaper = f"{whole['seconds']:.1f} | {whole['seconds'] / now['seconds']:.1f}"
            lines.append(
                f"| {'all' if history == 'none' else history} | {row['snapshots']} | {now['seconds']:.2f} | "
                f"{now['seconds'] / first['seconds']:.2f} | {now['peak_gib']:.2f} | "
                f"{now['peak_gib'] / first['peak_gib']:.2f} | {cheaper} |"
            )
    return lines


def main() -> None:
    """Measure, and write the result and the table."""
    with tempfile.TemporaryDirectory() as place:
        rows = measure(Path(place))
    result = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "rows": rows}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    page = ROOT / "docs" / "performance.md"
    before, _, after = page.read_text().split(MARK)
    page.write_text(f"{before}{MARK}\n\n" + "\n".join(table(result)) + f"\n\n{MARK}{after}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        warm_up()
        job, *words = sys.argv[1:]
        answer = advance(words[0], int(words[1]), int(words[2])) if job == "advance" else full(int(words[0]), words[1])
        print(json.dumps(answer))
    else:
        main()
