"""Seconds per epoch of DySAT and DynAERNN against the window of history, as in the runtime figure of the DySAT paper.

    python benchmarks/windows.py --dataset ml-10m --device cuda --json results/windows_cuda.json

fits both methods in turns with windows of 1 to 10 snapshots and prints a table: medians over the epochs of all rounds,
without the first epoch of each fit, which warms up. DySAT (preset `program`) learns from the last so many snapshots; an
epoch is a pass over their nodes. DynAERNN learns from every transition of the graph, each time with so many
snapshots before it; an epoch is a pass over the (node, step) of all of them, so the table also has how many these are.
--graph FOLDER takes a graph folder instead of a dataset; --snapshots leaves out what comes after the first so many.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dysat
from dysat.experiments.bench import hardware
from dysat.models.base import choose_device
from dysat.models.dynaernn import DynAERNN
from dysat.models.dysat import DySAT
from dysat.training import keep_freed_memory


@dataclass
class Timed:
    """Epochs of one method with one window."""

    items: int = 0  # in an epoch
    batch_size: int = 0
    seconds: list[float] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        median, fastest = statistics.median(self.seconds), min(self.seconds)
        return {"epoch_seconds": median, "fastest_epoch_seconds": fastest, **vars(self)}


def run(method: str, graph: dysat.DynamicGraph, window: int, options: dict[str, Any], timed: Timed) -> None:
    """One fit; its epochs but the first are added to those before."""
    models = {"dysat": ("program", DySAT), "dynaernn": (None, DynAERNN)}
    preset, kind = models[method]
    options = {"history": window, "patience": None, **options}
    model = kind.with_options(options) if preset is None else kind.from_preset(preset, **options)
    model.fit(graph)
    timed.seconds += [epoch.seconds for epoch in model.epochs_[1:]]
    timed.batch_size = model.batch_size
    timed.items = sum(graph.known[:-1]) if method == "dynaernn" else len(model.block_.node.unique())


def table(result: dict[str, Any]) -> str:
    """As Markdown."""
    machine = result["hardware"]
    on = machine["gpu"] if result["device"].startswith("cuda") else f"{machine['cores']} cores of {machine['cpu']}"
    lines = [
        f"{result['graph']}, {result['snapshots']} snapshots, {result['nodes']:,} nodes; measured {result['date']} on "
        f"{on}, torch {machine['torch']}; median of {result['rounds']} × {result['epochs']} epochs, seed "
        f"{result['seed']}.",
        "",
        "| window | DySAT, s/epoch | DynAERNN, s/epoch | DynAERNN / DySAT | nodes | (node, step) |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in result["timings"]:
        ours, other = row["dysat"], row["dynaernn"]
        ratio = other["epoch_seconds"] / ours["epoch_seconds"]
        lines.append(
            f"| {row['window']} | {ours['epoch_seconds']:.3g} | {other['epoch_seconds']:.3g} | {ratio:.2f} | "
            f"{ours['items']:,} | {other['items']:,} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="ml-10m")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--graph", type=Path)
    parser.add_argument("--snapshots", type=int)
    parser.add_argument("--windows", type=int, nargs="+", default=list(range(1, 11)))
    parser.add_argument("--epochs", type=int, default=3, help="of each fit, after one to warm up")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batch-size", type=int, help="of both; otherwise as each method has it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.epochs < 1 or given.rounds < 1:
        parser.error("--epochs and --rounds must be at least 1")
    keep_freed_memory()
    whole = dysat.DynamicGraph.load(given.graph) if given.graph else dysat.load_dataset(given.dataset, given.data_dir)
    graph = whole[: given.snapshots]
    options = {"epochs": given.epochs + 1, "seed": given.seed, "device": given.device}
    options |= {"batch_size": given.batch_size} if given.batch_size else {}
    timed = {(window, method): Timed() for window in given.windows for method in ("dysat", "dynaernn")}
    for _ in range(given.rounds):
        for (window, method), found in timed.items():
            run(method, graph, window, options, found)
    rows = [{"window": w} | {m: timed[w, m].facts() for m in ("dysat", "dynaernn")} for w in given.windows]
    result = {
        "graph": given.graph.name if given.graph else given.dataset,
        "snapshots": len(graph),
        "nodes": graph.num_nodes,
        "links": sum(s.num_links for s in graph),
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": hardware(),
        "device": str(choose_device(given.device)),
        "epochs": given.epochs,
        "rounds": given.rounds,
        "seed": given.seed,
        "timings": rows,
    }
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
