"""Tune DySAT for single-step link prediction: w_n and learning rate, for every predicted snapshot and both presets.

    python benchmarks/single_step.py --graphs FOLDER --dataset uci --preset program --out results/single_step_uci.json

trains one model per predicted snapshot and setting, keeps the best epoch on the validation links, and evaluates with
10 repeats of the probe. FOLDER holds graph folders named after the datasets (`dysat snapshots`, or `graph.save`). A
stopped sweep resumes from the rows of the --out file.

    python benchmarks/single_step.py --table results/single_step_*.json

writes the tables of docs/settings.md from these files: the setting with the highest mean validation AUC for each
dataset and preset, then all settings.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from concurrent.futures import as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dysat.data.datasets import DATASETS
from dysat.experiments.bench import SHALLOW
from dysat.system.hardware import hardware

ROOT = Path(__file__).resolve().parents[1]
MARK = "<!-- single-step -->"
PUBLISHED = {"enron": 86.60, "uci": 85.81, "yelp": 69.87, "ml-10m": 93.68}  # macro-AUC of the paper's DySAT


def train(job: dict[str, Any]) -> dict[str, Any]:
    """Train one model on the snapshots before the predicted one, and evaluate it on that one."""

    import dysat
    from dysat.evaluation.probe import evaluate_probe, evaluate_scores, validation_auc
    from dysat.evaluation.protocols import single_step

    graph = dysat.DynamicGraph.load(job["graph"])
    step = job["predicted"] - 1
    options = {**(SHALLOW if job["dataset"] == "enron" else {}), **job["options"]}
    model = dysat.DySAT.from_preset(job["preset"], device=job["device"], **options)
    split = single_step(graph, step, seed=job["options"].get("seed", 0), self_loops=job["self_loops"])
    begin = time.perf_counter()

    def validate(model: dysat.DySAT) -> float:
        e = model.embed()
        return validation_auc(e.cpu(), split)

    model.fit(graph[: step + 1], validate=validate)
    e = model.embed().cpu()
    result = evaluate_probe(e, split)
    dot = evaluate_scores((e[split.pairs[:, 0]] * e[split.pairs[:, 1]]).sum(1), split)
    best = model.epochs_[-1].best if model.epochs_ else 0
    return {
        **{key: job[key] for key in ("dataset", "preset", "predicted", "self_loops", "options")},
        "validation_auc": result.validation_auc,
        "auc": result.auc,
        "auc_sd": result.auc_sd,
        "average_precision": result.average_precision,
        "dot_auc": dot.auc,
        "links": int(split.labels.sum()),
        "best_epoch": best,
        "epochs": len(model.epochs_),
        "seconds": round(time.perf_counter() - begin, 2),
    }


def jobs(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every requested combination, the longest first."""
    found = []
    for dataset, preset, loops in itertools.product(args.dataset, args.preset, args.self_loops):
        steps = args.predicted or list(DATASETS[dataset].predicted)
        for step, w_n, rate in itertools.product(steps, args.negative_weight, args.learning_rate):
            options = {"negative_weight": w_n, "learning_rate": rate, "epochs": args.epochs, "patience": args.patience}
            options["seed"] = args.seed
            if args.batch_size:
                options["batch_size"] = args.batch_size
            common = {"graph": str(args.graphs / dataset), "device": args.device}
            found.append(
                {
                    **common,
                    "dataset": dataset,
                    "preset": preset,
                    "self_loops": loops,
                    "predicted": step,
                    "options": options,
                }
            )
    return sorted(found, key=lambda job: -job["predicted"])


def write_tables(files: list[Path]) -> None:
    """Write the generated block of docs/settings.md."""
    groups: dict[tuple[str, str, str], dict[tuple[float, float], list[dict[str, Any]]]] = {}
    for file in files:
        for row in json.loads(file.read_text())["rows"]:
            setting = (row["options"]["negative_weight"], row["options"]["learning_rate"])
            group = groups.setdefault((row["dataset"], row["self_loops"], row["preset"]), {})
            group.setdefault(setting, []).append(row)
    chosen = [
        "| dataset | self-loops | preset | w_n | learning rate | steps | macro-AUC | SD per step | published |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    every = [
        "| dataset | self-loops | preset | w_n | learning rate | steps | validation | test | e_u · e_v | best epoch |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    order = {name: number for number, name in enumerate(DATASETS)}
    for (dataset, loops, preset), settings in sorted(groups.items(), key=lambda item: (order[item[0][0]], item[0][1:])):
        names = f"| {dataset} | {'kept' if loops == 'keep' else 'dropped'} | {preset}"
        best = max(settings, key=lambda s: mean(settings[s], "validation_auc"))
        rows = settings[best]
        published = f"{PUBLISHED[dataset]:.2f}" if loops == "keep" or dataset != "enron" else "–"
        chosen.append(
            f"{names} | {best[0]:g} | {best[1]:g} | {len(rows)} | **{mean(rows, 'auc'):.2f}** | "
            f"{mean(rows, 'auc_sd'):.2f} | {published} |"
        )
        for setting, rows in sorted(settings.items()):
            figures = " | ".join(f"{mean(rows, key):.2f}" for key in ("validation_auc", "auc", "dot_auc"))
            epochs = sum(row["best_epoch"] for row in rows) / len(rows)
            every.append(f"{names} | {setting[0]:g} | {setting[1]:g} | {len(rows)} | {figures} | {epochs:.0f} |")
    text = "\n".join([*chosen, "", "All settings, means over the predicted snapshots:", "", *every])
    page = ROOT / "docs" / "settings.md"
    before, _, rest = page.read_text().partition(MARK)
    page.write_text(f"{before}{MARK}\n\n{text}\n\n{MARK}{rest.partition(MARK)[2]}")


def mean(rows: list[dict[str, Any]], key: str) -> float:
    """Mean in percent."""
    return 100 * sum(row[key] for row in rows) / len(rows)


def main() -> None:
    """Run the jobs that the file does not have yet, and write it after every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, nargs="+", help="only write the tables of these files")
    parser.add_argument("--graphs", type=Path, help="folder of graph folders")
    parser.add_argument("--dataset", nargs="+", default=["uci"])
    parser.add_argument("--preset", nargs="+", default=["program"])
    parser.add_argument("--predicted", nargs="+", type=int, default=None)
    parser.add_argument("--negative-weight", nargs="+", type=float, default=[0.01, 0.1, 1.0])
    parser.add_argument("--learning-rate", nargs="+", type=float, default=[1e-3, 1e-4])
    parser.add_argument("--self-loops", nargs="+", default=["drop"], choices=["drop", "keep"])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--patience", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds after which no further job starts")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.table:
        return write_tables(args.table)
    if not args.graphs or not args.out:
        parser.error("expected --graphs and --out, or --table")
    rows: list[dict[str, Any]] = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
    key = ("dataset", "preset", "predicted", "self_loops", "options")
    done = {json.dumps([row[k] for k in key], sort_keys=True) for row in rows}
    todo = [job for job in jobs(args) if json.dumps([job[k] for k in key], sort_keys=True) not in done]
    begin = time.monotonic()

    def write() -> None:
        about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "device": args.device}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        temporary = args.out.with_suffix(".new")
        temporary.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
        temporary.replace(args.out)

    from dysat.system.parallel.pool import worker_pool

    with worker_pool(args.workers, "rows") as pool:
        waiting = iter(todo)
        running = {pool.submit(train, job) for job in itertools.islice(waiting, args.workers)}
        while running:
            ended = next(as_completed(running))
            running.remove(ended)
            rows.append(ended.result())
            row = rows[-1]
            shown = {k: row[k] for k in ("dataset", "preset", "predicted", "self_loops", "best_epoch", "seconds")}
            opt = {k: row["options"][k] for k in ("negative_weight", "learning_rate")}
            print(len(rows), shown, opt, f"val {row['validation_auc']:.4f} auc {row['auc']:.4f}", flush=True)
            write()
            if time.monotonic() - begin < args.stop_after and (job := next(waiting, None)):
                running.add(pool.submit(train, job))
    return None


if __name__ == "__main__":
    main()
