"""Write the tables of training speed in docs/performance.md from the output of `dysat bench --json`.

dysat bench --json --batch-size 256 --batch-size 512 --preset program --preset text > results/bench_dysat_cpu.json
python benchmarks/speed.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MARK = "<!-- bench:dysat -->"
# Seconds per epoch with batches of 256: the target, and a prototype in eager PyTorch.
TARGETS: dict[tuple[str, str], tuple[float, float | None]] = {}
TARGETS |= {("enron", "cpu"): (0.02, 0.07), ("uci", "cpu"): (1.0, 5.7)}
TARGETS |= {("yelp", "cpu"): (8, None), ("ml-10m", "cpu"): (20, None)}
TARGETS |= {("enron", "cuda"): (0.001, 0.006), ("uci", "cuda"): (0.012, 0.078)}
TARGETS |= {("yelp", "cuda"): (0.05, 0.28), ("ml-10m", "cuda"): (0.2, 2.7)}


def table(result: dict[str, Any]) -> list[str]:
    """A table of one file, with date and machine."""
    machine = result["hardware"]
    on = machine["gpu"] if result["timings"][0]["device"] == "cuda" else f"{machine['cores']} cores of {machine['cpu']}"
    lines = [
        f"Measured {result['date']} on {on}, torch {machine['torch']}, Python {machine['python']}; median of "
        f"{result['epochs']} epochs after one warm-up epoch, seed 0.",
        "",
        "| dataset | snapshots | preset | batch | s/epoch | fastest | target | prototype | ms/batch | prepare | peak |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["timings"]:
        known = TARGETS.get((row["dataset"], row["device"])) if row["batch_size"] == 256 else None
        target, prototype = known or (None, None)
        lines.append(
            f"| {row['dataset']} | {row['snapshots']} | {row['preset']} | {row['batch_size']} | "
            f"**{row['epoch_seconds']:.3g}** | {row['fastest_epoch_seconds']:.3g} | "
            f"{shown(target)} | {shown(prototype)} | "
            f"{1000 * row['epoch_seconds'] / row['batches']:.3g} | {row['prepare_seconds']:.2f} s | "
            f"{row['peak_gib']:.2f} GiB |"
        )
    return lines


def shown(seconds: float | None) -> str:
    """Format seconds; a dash for None."""
    return "–" if seconds is None else f"{seconds:g}"


def main() -> None:
    """Write the generated block of docs/performance.md."""
    files = sorted((ROOT / "results").glob("bench_dysat_*.json"))
    text = "\n\n".join("\n".join(table(json.loads(file.read_text()))) for file in files)
    page = ROOT / "docs" / "performance.md"
    before, _, rest = page.read_text().partition(MARK)
    page.write_text(f"{before}{MARK}\n\n{text}\n\n{MARK}{rest.partition(MARK)[2]}")


if __name__ == "__main__":
    main()
