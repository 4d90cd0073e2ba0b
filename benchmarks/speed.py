"""The tables of training speed in docs/performance.md, from what `dysat bench --json` wrote.

dysat bench --json --batch-size 256 --batch-size 512 --preset program --preset text > results/bench_dysat_cpu.json
python benchmarks/speed.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MARK = "<!-- bench:dysat -->"
# Seconds per epoch, batches of 256: what was aimed for, and a prototype in eager PyTorch.
AIM: dict[tuple[str, str], tuple[float, float | None]] = {}
AIM |= {("enron", "cpu"): (0.02, 0.07), ("uci", "cpu"): (1.0, 5.7)}
AIM |= {("yelp", "cpu"): (8, None), ("ml-10m", "cpu"): (20, None)}
AIM |= {("enron", "cuda"): (0.001, 0.006), ("uci", "cuda"): (0.012, 0.078)}
AIM |= {("yelp", "cuda"): (0.05, 0.28), ("ml-10m", "cuda"): (0.2, 2.7)}


def table(result: dict[str, Any]) -> list[str]:
    """One file as a table, with where it was measured."""
    machine = result["hardware"]
    on = machine["gpu"] if result["timings"][0]["device"] == "cuda" else f"{machine['cores']} cores of {machine['cpu']}"
    lines = [
        f"Measured {result['date']} on {on}, torch {machine['torch']}, Python {machine['python']}; median of "
        f"{result['epochs']} epochs after one to warm up, seed 0.",
        "",
        "| dataset | snapshots | preset | batch | s/epoch | fastest | aim | prototype | ms/batch | prepare | peak |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["timings"]:
        known = AIM.get((row["dataset"], row["device"])) if row["batch_size"] == 256 else None
        aim, prototype = known or (None, None)
        lines.append(
            f"| {row['dataset']} | {row['snapshots']} | {row['preset']} | {row['batch_size']} | "
            f"**{row['epoch_seconds']:.3g}** | {row['fastest_epoch_seconds']:.3g} | "
            f"{shown(aim)} | {shown(prototype)} | "
            f"{1000 * row['epoch_seconds'] / row['batches']:.3g} | {row['prepare_seconds']:.2f} s | "
            f"{row['peak_gib']:.2f} GiB |"
        )
    return lines


def shown(seconds: float | None) -> str:
    """A figure, or a dash where there is none."""
    return "–" if seconds is None else f"{seconds:g}"


def main() -> None:
    """Write the marked part of docs/performance.md."""
    files = sorted((ROOT / "results").glob("bench_dysat_*.json"))
    text = "\n\n".join("\n".join(table(json.loads(file.read_text()))) for file in files)
    page = ROOT / "docs" / "performance.md"
    before, _, rest = page.read_text().partition(MARK)
    page.write_text(f"{before}{MARK}\n\n{text}\n\n{MARK}{rest.partition(MARK)[2]}")


if __name__ == "__main__":
    main()
