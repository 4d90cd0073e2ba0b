"""Evaluate the paper's tuning grids on validation links, without Optuna.

    python benchmarks/grids.py --graphs FOLDER --dataset yelp ml-10m --processes 15 --out results/

searches the same grid as `dysat tune`, without pruning, for the presets of the paper, with several steps in parallel on
one GPU. `dysat.experiments.tune.objective.judge` evaluates the settings and never sees a test link. FOLDER holds graph
folders named after the datasets. Results are stored in results/tuning_DATASET.json and not computed again.

    python benchmarks/grids.py --chosen results/tuning_*.json

prints the best setting of each row.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import as_completed
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from dysat.data.datasets import DATASETS
from dysat.experiments.paper.catalogue import ROWS

METHODS = ("dysat", "dysat-text", "graphsage", "dynamic-triad", "dyngem", "dynaernn")
# The predicted snapshots on which settings are evaluated, a subset of those the paper predicts.
TARGETS = {"enron": range(5, 16, 2), "uci": range(2, 13, 2), "yelp": (6, 10, 14), "ml-10m": (4, 8, 11)}
SLOW = ("ml-10m", "yelp", "uci", "enron")


def judge_one(task: dict[str, Any]) -> dict[str, Any]:
    """Evaluate one setting at one step, or an incremental model at all steps."""

    import dysat
    from dysat.experiments.evaluate.request import Request
    from dysat.experiments.tune.objective import judge, validation_of
    from dysat.system.parallel.process import keep_freed_memory

    keep_freed_memory()
    graph, predicted = dysat.DynamicGraph.load(task["graph"]), DATASETS[task["dataset"]].predicted
    request = Request(first=predicted[0], last=predicted[-1], seed=0, past_probe=False)
    contender = ROWS[task["row"]].contender(task["dataset"], **task["setting"])
    begin = time.perf_counter()
    values = judge(contender, validation_of(graph, request, task["targets"]), device=task["device"])
    return {"values": values, "seconds": round(time.perf_counter() - begin, 2)}


def tasks(args: argparse.Namespace) -> list[dict[str, Any]]:
    """All tasks, the longest first."""
    from dysat.experiments.tune.spaces import combinations, search_space

    found = []
    for dataset in sorted(args.dataset, key=SLOW.index):
        targets = args.targets or list(TARGETS[dataset])
        for row in args.method:
            contender = ROWS[row].contender(dataset)
            chain = row in ("dyngem", "incsat")
            for setting in combinations(search_space(contender)) or []:
                common = {"dataset": dataset, "row": row, "setting": setting, "graph": str(args.graphs / dataset)}
                common["device"] = args.device if dataset != "enron" else "cpu"
                parts = [targets] if chain else [[target] for target in reversed(targets)]
                found += [{**common, "targets": part} for part in parts]
    return sorted(found, key=lambda task: len(task["targets"]) == 1)


def sweep(args: argparse.Namespace) -> None:
    """Run all tasks that the files do not have yet."""
    from dysat.system.hardware import hardware
    from dysat.system.parallel.pool import worker_pool

    files = {dataset: args.out / f"tuning_{dataset}.json" for dataset in args.dataset}
    rows = {d: json.loads(file.read_text())["rows"] if file.exists() else [] for d, file in files.items()}
    waiting = [
        task
        for task in tasks(args)
        if not any(
            (row["row"], row["setting"]) == (task["row"], task["setting"]) and str(task["targets"][0]) in row["values"]
            for row in rows[task["dataset"]]
        )
    ]
    begin = time.monotonic()
    with worker_pool(args.processes, "rows") as pool:
        running = {pool.submit(judge_one, task): task for task in waiting}
        for number, future in enumerate(as_completed(running)):
            task = running[future]
            if future.cancelled():
                continue
            found = future.result()
            key = {"row": task["row"], "setting": task["setting"]}
            mine = next((r for r in rows[task["dataset"]] if all(r[k] == v for k, v in key.items())), None)
            if mine is None:
                mine = {**key, "values": {}, "seconds": 0.0}
                rows[task["dataset"]].append(mine)
            mine["values"] |= {str(target): value for target, value in found["values"].items()}
            mine["seconds"] = round(mine["seconds"] + found["seconds"], 2)
            about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "device": args.device}
            whole = {"dataset": task["dataset"], **about, "seed": 0, "rows": rows[task["dataset"]]}
            temporary = files[task["dataset"]].with_suffix(".new")
            temporary.write_text(json.dumps(whole, indent=1) + "\n")
            temporary.replace(files[task["dataset"]])
            shown = (number + 1, len(waiting), task["dataset"], task["row"], task["setting"], task["targets"])
            print(round(time.monotonic() - begin), *shown, found["seconds"], flush=True)
            if time.monotonic() - begin > args.stop_after:
                for other in running:
                    other.cancel()


def chosen(files: list[Path]) -> None:
    """Print the three best settings of each row, by the mean over the steps."""
    for file in files:
        found = json.loads(file.read_text())
        most = {row: max(len(r["values"]) for r in found["rows"] if r["row"] == row) for row in METHODS}
        for row in METHODS:
            whole = [r for r in found["rows"] if r["row"] == row and len(r["values"]) == most[row]]
            for r in sorted(whole, key=lambda r: -fmean(r["values"].values()))[:3]:
                print(file.stem, row, r["setting"], round(fmean(r["values"].values()), 4), r["seconds"])


def main() -> None:
    """Run the grids, or print the best settings of existing files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chosen", type=Path, nargs="+")
    parser.add_argument("--graphs", type=Path)
    parser.add_argument("--dataset", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--method", nargs="+", default=list(METHODS), choices=[*METHODS, "node2vec", "incsat"])
    parser.add_argument("--targets", nargs="+", type=int, help="snapshots to predict; default: TARGETS")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds after which no further task starts")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.chosen:
        chosen(args.chosen)
    elif args.graphs and args.out:
        sweep(args)
    else:
        parser.error("expected --graphs and --out, or --chosen")


if __name__ == "__main__":
    main()
