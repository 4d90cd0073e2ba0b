"""What one update costs after 10, 50 and 200 snapshots, and what a full fit costs instead; writes docs/performance.md.

python benchmarks/updates.py

A graph that grows slowly, every snapshot of the same size. A run is made with IncSAT and updated snapshot by snapshot;
at the marks the next update is timed in fresh processes, from opening the run to the update being on disk, with its
peak memory. Beside it, a DySAT with the same layers and as many epochs is fitted on all snapshots up to there.
"""

from __future__ import annotations

import json
import resource
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
import polars  # noqa: F401  what an update writes its table with; importing it is not timed

import dysat
from dysat.data.continuation import NextSnapshot
from dysat.experiments.bench import hardware
from dysat.run import Run
from dysat.training import keep_freed_memory
from dysat.update import updating

ROOT = Path(__file__).resolve().parents[1]
RESULT, MARK = ROOT / "results" / "bench_updates_cpu.json", "<!-- bench:updates -->"
MARKS = (10, 50, 200)
NODES, GROWTH, LINKS = 2000, 5, 4000
EPOCHS, REPEATS = 3, 3
WINDOWS = ("10", "none")  # the default, and all steps


def snapshot(step: int) -> dysat.Snapshot:
    """Links among neighbours on a ring, which most nodes have in every step."""
    rng, known = np.random.default_rng(step), NODES + GROWTH * step
    u = rng.integers(0, known, LINKS * 2)
    v = (u + rng.geometric(0.1, len(u))) % known
    pairs = np.unique(np.sort(np.stack([u, v], 1)[u != v], axis=1), axis=0)
    pairs = rng.permutation(pairs)[:LINKS]
    return dysat.Snapshot.from_links(pairs[:, 0], pairs[:, 1], None, num_nodes=known, start=step, stop=step + 1)


def graph(steps: int) -> dysat.DynamicGraph:
    """The first so many snapshots."""
    snapshots = tuple(snapshot(step) for step in range(steps))
    return dysat.DynamicGraph(np.arange(snapshots[-1].num_nodes), snapshots, clock="step")


def advance(folder: str, steps: int, epochs: int) -> dict[str, float]:
    """Take in so many snapshots."""
    begin = time.perf_counter()
    with updating(Run.open(folder), device="cpu", epochs=epochs) as updater:
        for _ in range(steps):
            new, known = snapshot(len(updater.graph)), updater.graph.num_nodes
            list(updater.take_in(_only(NextSnapshot(new, np.arange(known, new.num_nodes), None, new.num_links))))
    return {
        "seconds": time.perf_counter() - begin,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


class _only:  # noqa: N801
    """A plan of one step."""

    def __init__(self, step: NextSnapshot) -> None:
        self.steps = (step,)


def full(steps: int, history: str) -> dict[str, float]:
    """Fit a DySAT on all snapshots."""
    given = graph(steps)
    begin = time.perf_counter()
    dysat.DySAT.from_preset("program", epochs=EPOCHS, batch_size=256, history=history, device="cpu").fit(given)
    return {
        "seconds": time.perf_counter() - begin,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def child(*words: str) -> dict[str, float]:
    """What a fresh process says."""
    done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(history: str, place: Path) -> list[dict[str, Any]]:
    """Updates at the marks, with so many steps attended to."""
    folder, rows = place / f"run-{history}", []
    model = dysat.IncSAT.from_preset("program", epochs=1, batch_size=256, history=history, device="cpu")
    Run.start(folder, graph(MARKS[0]), model, backtest=False).train()
    for mark in MARKS:
        with updating(Run.open(folder)) as updater:
            missing = mark - len(updater.graph)
        if missing:
            child("advance", str(folder), str(missing), "1")
        found = []
        for _ in range(REPEATS):
            copy = place / "copy"
            shutil.copytree(folder, copy)
            found.append(child("advance", str(copy), "1", str(EPOCHS)))
            shutil.rmtree(copy)
        row = {"history": history, "snapshots": mark, "update": middle(found)}
        if history == "none":
            row["full"] = middle([child("full", str(mark), history) for _ in range(1 if mark > 50 else REPEATS)])
        rows.append(row)
        print(row, flush=True)
    return rows


def middle(found: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {key: round(statistics.median(one[key] for one in found), 4) for key in found[0]}


def table(result: dict[str, Any]) -> list[str]:
    """For docs/performance.md."""
    machine = result["hardware"]
    full_fits = {row["snapshots"]: row["full"] for row in result["rows"] if "full" in row}
    lines = [
        f"Measured {result['date']} by `python benchmarks/updates.py` on {machine['cores']} cores of {machine['cpu']}, "
        f"torch {machine['torch']}; {LINKS:,} links in every snapshot, {NODES:,} nodes at first and {GROWTH} "
        f"more in each; {EPOCHS} epochs, batches of 256; median of {REPEATS} (a full fit of 200 once), "
        "each in a fresh process.",
        "",
        "| steps attended to | snapshots before | update, s | of the first | peak, GiB | of the first | full fit, s | "
        "times cheaper |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for history in WINDOWS:
        rows = [row for row in result["rows"] if row["history"] == history]
        for row in rows:
            now, first, whole = row["update"], rows[0]["update"], full_fits.get(row["snapshots"])
            cheaper = f"{whole['seconds']:.1f} | {whole['seconds'] / now['seconds']:.0f}" if whole else "– | –"
            lines.append(
                f"| {'all' if history == 'none' else history} | {row['snapshots']} | {now['seconds']:.2f} | "
                f"{now['seconds'] / first['seconds']:.2f} | {now['peak_gib']:.2f} | "
                f"{now['peak_gib'] / first['peak_gib']:.2f} | {cheaper} |"
            )
    return lines


def main() -> None:
    """Measure, and write it down."""
    with tempfile.TemporaryDirectory() as place:
        rows = [row for history in reversed(WINDOWS) for row in measure(history, Path(place))]
    result = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "rows": rows}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    page = ROOT / "docs" / "performance.md"
    before, _, after = page.read_text().split(MARK)
    page.write_text(f"{before}{MARK}\n\n" + "\n".join(table(result)) + f"\n\n{MARK}{after}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        keep_freed_memory()
        job, *words = sys.argv[1:]
        answer = advance(words[0], int(words[1]), int(words[2])) if job == "advance" else full(int(words[0]), words[1])
        print(json.dumps(answer))
    else:
        main()
