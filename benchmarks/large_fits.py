"""Draw how seconds and memory of a fit grow with the log, and write the table, from results/scale.json.

    python benchmarks/large_fits.py   # writes docs/images/scale.svg and the table in docs/performance.md

`dysat bench --scale --json` measures the rows of results/scale.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MARK = "<!-- bench:scale -->"
CURVES = (
    ("cpu", True, "two x86 cores", "#d64545"),
    ("cpu", False, "two x86 cores, forecast only", "#f7a9a8"),
    ("cuda", True, "H200", "#2b6cb0"),
    ("cuda", False, "H200, forecast only", "#90cdf4"),
)


def main() -> None:
    """Write the picture and the table."""
    record = json.loads((ROOT / "results" / "scale.json").read_text())
    draw(record["timings"], ROOT / "docs" / "images" / "scale.svg")
    page = ROOT / "docs" / "performance.md"
    before, _, after = page.read_text(encoding="utf-8").split(MARK)
    page.write_text(f"{before}{MARK}\n\n{table(record)}\n{MARK}{after}", encoding="utf-8")


def rows(timings: list[dict[str, Any]], device: str, embeddings: bool) -> list[dict[str, Any]]:
    """Return the rows of a curve, in order of events."""
    chosen = [row for row in timings if row["device"].startswith(device) and row["embeddings"] == embeddings]
    return sorted(chosen, key=lambda row: row["events"])


def table(record: dict[str, Any]) -> str:
    """Return the table of all rows as Markdown, with where and how they were measured."""
    how = f"by `{record['command']}` on {record['hardware']}"
    lines = [
        f"Measured {record['date']} {how}; seed {record['seed']}; {record['note']}.",
        "",
        "| events | nodes | machine | model | seconds | µs per event | peak, GiB | on the GPU, GiB |",
        "|---:|---:|---|---|---:|---:|---:|---:|",
    ]
    for device, embeddings, _, _ in CURVES:
        for row in rows(record["timings"], device, embeddings):
            gpu = "–" if row["gpu_peak_gib"] is None else f"{row['gpu_peak_gib']:.1f}"
            model = "default" if embeddings else "forecast only"
            lines.append(
                f"| {row['events']:,} | {row['nodes']:,} | {row['machine']} | {model} | {row['seconds']:.0f} "
                f"| {1e6 * row['seconds'] / row['events']:.0f} | {row['peak_gib']:.1f} | {gpu} |"
            )
    return "\n".join(lines) + "\n"


def draw(timings: list[dict[str, Any]], out: Path) -> None:
    """Write the picture: seconds and memory against events, on logarithmic axes."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    style = {"svg.hashsalt": "dysat", "svg.fonttype": "none", "font.size": 10, "font.family": ["DejaVu Sans"]}
    with mpl.rc_context(style | {"axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
        for axis, (key, label) in zip(axes, (("seconds", "seconds"), ("peak_gib", "peak memory, GiB")), strict=True):
            for device, embeddings, name, color in CURVES:
                curve = rows(timings, device, embeddings)
                axis.loglog(
                    [row["events"] for row in curve], [row[key] for row in curve], "o-", color=color, label=name
                )
            axis.set(xlabel="events", ylabel=label)
            axis.grid(which="major", color="#e4e7eb")
        axes[1].minorticks_off()
        axes[1].set_yticks([2, 4, 8, 16, 32], ["2", "4", "8", "16", "32"])
        few = min(row["events"] for row in timings), max(row["events"] for row in timings)
        least = min(row["seconds"] for row in timings)
        axes[0].loglog(few, [least, least * few[1] / few[0]], ":", color="#7b8794", label="in proportion to events")
        axes[0].legend(frameon=False, fontsize=8)
        figure.savefig(out, format="svg", metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
