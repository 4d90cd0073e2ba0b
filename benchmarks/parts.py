"""Compare embeddings of training in parts, as in large graphs, with those of training on all rows.

    python benchmarks/parts.py --out results/parts.json

fits a model three times per predicted snapshot of UCI: on all rows, in parts, and in parts with all neighbours of a
node instead of a sample. Each of the three has a learned vector per node, so that only the batches differ. It reports
the AUC of the paper's protocol: logistic regression on products of embeddings. Settings are not tuned.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dysat
from dysat.evaluation.probe import evaluate_probe
from dysat.evaluation.protocols import single_step
from dysat.models import attention
from dysat.models import dysat as default
from dysat.system.hardware import hardware

EVERY = 10**12
VARIANTS = {"all rows": (EVERY, EVERY), "in parts": (0, attention.FAN_OUT), "in parts, all neighbours": (0, EVERY)}


@contextmanager
def limits(rows: int, fan_out: int) -> Iterator[None]:
    """Train in parts beyond this many rows, with this many neighbours of a node."""
    with (
        patch.dict(attention.MOST_ROWS, {"cpu": rows, "cuda": rows}),
        patch.object(attention, "FAN_OUT", fan_out),
        patch.object(default, "FAN_OUT", fan_out),
    ):
        yield


def measure(graph: dysat.DynamicGraph, preset: str, options: dict[str, Any], step: int, variant: str) -> dict[str, Any]:
    """Fit on the snapshots up to a step and predict the next one from the embeddings."""
    begin = time.perf_counter()
    with limits(*VARIANTS[variant]):
        model = dysat.DySAT.from_preset(preset, **options).fit(graph[: step + 1])
        result = evaluate_probe(model.embed().cpu(), single_step(graph, step))
    seconds = round(time.perf_counter() - begin, 1)
    return {"preset": preset, "variant": variant, "step": step, "auc": 100 * result.auc, "seconds": seconds, **options}


def table(rows: list[dict[str, Any]]) -> str:
    """Mean AUC of every preset and variant, and the difference to training on all rows."""
    lines = ["| preset | training | AUC | difference | seconds per fit |", "|---|---|---:|---:|---:|"]
    for preset in dict.fromkeys(row["preset"] for row in rows):
        whole = 0.0
        for variant in VARIANTS:
            found = [row for row in rows if (row["preset"], row["variant"]) == (preset, variant)]
            auc = statistics.mean(row["auc"] for row in found)
            whole = whole or auc
            seconds = statistics.mean(row["seconds"] for row in found)
            lines.append(f"| {preset} | {variant} | {auc:.2f} | {auc - whole:+.2f} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table, and write all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="uci")
    parser.add_argument("--preset", nargs="+", default=["default", "program"])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--snapshots", type=int, default=3, help="number of snapshots to predict, the last ones")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    graph, rows = dysat.load_dataset(args.dataset), []
    for preset in args.preset:
        for seed in range(args.seeds):
            options = {"epochs": args.epochs, "seed": seed, "device": args.device}
            options |= {"inputs": "both", "pair_score": False} if preset == "default" else {}
            for step in range(len(graph) - 1 - args.snapshots, len(graph) - 1):
                for variant in VARIANTS:
                    rows.append(measure(graph, preset, options, step, variant))
                    print(json.dumps(rows[-1]), flush=True)
    print(table(rows))
    if args.out:
        date = datetime.now(UTC).date().isoformat()
        facts = {"dataset": args.dataset, "date": date, "hardware": hardware(), "rows": rows}
        args.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
