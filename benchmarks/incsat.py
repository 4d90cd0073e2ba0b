"""Evaluate settings of IncSAT on a dataset, and write the tables about it in docs/settings.md.

    python benchmarks/incsat.py --graphs FOLDER --dataset uci --processes 8 --out results/incsat_settings_uci.json

updates a model snapshot by snapshot for every setting of SETTINGS, each time with the best epoch on the validation
links of that snapshot, and evaluates with 10 repeats of the probe. FOLDER holds graph folders named after the
datasets.

    python benchmarks/incsat.py --graphs FOLDER --continued --processes 8

fits a DySAT on the first snapshots of Enron and UCI and updates it to the end, compared with fitting it from scratch at
every step; writes results/incsat_continued.json.

    python benchmarks/incsat.py --table

writes the tables from these files, from results of `dysat evaluate` (results/incsat_*.json and evaluation_*.json) and,
for DynGEM, from results of benchmarks/baselines.py (results/baselines_*.json).
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dysat.experiments.bench import SHALLOW
from dysat.system.hardware import hardware

ROOT = Path(__file__).resolve().parents[1]
MARK = "<!-- incsat -->"
DATASETS = ("enron", "uci", "yelp", "ml-10m")
# Macro- and micro-AUC of Table 5 of the paper.
PUBLISHED = {
    "DySAT": {"enron": (86.60, 85.71), "uci": (85.81, 81.03), "yelp": (69.87, 70.15), "ml-10m": (93.68, 90.82)},
    "DynGEM": {"enron": (69.72, 67.83), "uci": (79.82, 77.49), "yelp": (65.94, 66.02), "ml-10m": (85.96, 73.69)},
    "IncSAT": {"enron": (85.43, 84.36), "uci": (85.37, 76.18), "yelp": (68.73, 69.54), "ml-10m": (91.14, 80.13)},
}
PREDICTED = {"enron": (5, 15), "uci": (2, 12)}  # first and last snapshot that count for the means
LONG, SHORT = {"epochs": 200, "patience": 60}, {"epochs": 60, "patience": 10}
PAPER = {"structural_dropout": 0.4, "temporal_dropout": 0.4}
LIGHT = {"structural_dropout": 0.1, "temporal_dropout": 0.0}
SCRATCH = {"preset": "program", "carry": False, "negative_weight": 0.01, **SHORT, **LIGHT}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "enron": [
        {"preset": preset, "carry": carry, "negative_weight": weight, **LONG, **PAPER}
        for preset in ("program", "text")
        for carry in (True, False)
        for weight in (0.01, 0.1, 1.0)
    ]
    + [{"preset": "program", "carry": carry, "negative_weight": 1.0, **LONG, **LIGHT} for carry in (True, False)]
    + [{"preset": "text", "carry": True, "negative_weight": 0.01, "seed": seed, **LONG, **PAPER} for seed in (1, 2)],
    "uci": [
        {"preset": preset, "carry": carry, "negative_weight": weight, **SHORT, **PAPER}
        for preset in ("program", "text")
        for carry in (True, False)
        for weight in (0.01, 0.1, 1.0)
    ]
    + [SCRATCH, {**SCRATCH, "carry": True}, {**SCRATCH, "negative_weight": 0.1}]
    + [{**SCRATCH, "seed": seed} for seed in (1, 2)],
}


def chain(graph_folder: str, dataset: str, setting: dict[str, Any]) -> dict[str, Any]:
    """Run one setting over all snapshots in order."""

    import dysat
    from dysat.evaluation.probe import evaluate_probe, validation_auc
    from dysat.evaluation.protocols import single_step

    graph, begin = dysat.DynamicGraph.load(graph_folder), time.perf_counter()
    options = {key: value for key, value in setting.items() if key != "preset"}
    layers = SHALLOW if dataset == "enron" else {}
    model = dysat.IncSAT.from_preset(setting["preset"], batch_size=256, device="cpu", **layers, **options)
    steps = []
    for step in range(len(graph) - 1):
        try:
            split = single_step(graph, step, seed=model.seed)
        except dysat.GraphError:
            split = None
        model.take_in(graph, validate=split and (lambda m, split=split: validation_auc(m.embed(), split)))
        if split is not None:
            best = model.epochs_[-1].best
            score = model.epochs_[best - 1].score
            auc = float(evaluate_probe(model.embed(), split).auc)
            steps.append({"predicted": step + 1, "validation": score, "best_epoch": best, "auc": auc})
    return {**setting, "seconds": round(time.perf_counter() - begin, 1), "steps": steps}


def sweep(folder: str, dataset: str, processes: int, out: Path, epochs: int | None) -> None:
    """Run all settings of a dataset; `epochs` replaces their number of epochs per snapshot."""
    from dysat.system.parallel.pool import worker_pool

    rows = []
    settings = [{**setting, **({} if epochs is None else {"epochs": epochs})} for setting in SETTINGS[dataset]]
    with worker_pool(processes, "rows") as pool:
        jobs = [pool.submit(chain, f"{folder}/{dataset}", dataset, setting) for setting in settings]
        for done in as_completed(jobs):
            rows.append(done.result())
            print({key: value for key, value in rows[-1].items() if key != "steps"}, flush=True)
            date = datetime.now(UTC).date().isoformat()
            result = {"dataset": dataset, "date": date, "hardware": hardware(), "rows": rows}
            out.write_text(json.dumps(result, indent=1) + "\n")


# Number of first snapshots, epochs, w_n.
BEGINNING: dict[str, tuple[int, int, float]] = {"uci": (6, 15, 0.01), "enron": (8, 100, 1.0)}


def continued(folder: str, dataset: str, how: str) -> dict[str, Any]:
    """AUC of the probe on each snapshot after the first ones.

    `how`, stored as "weights": "carried" keeps the weights from step to step, "anew" initialises them at every step,
    "again" fits a DySAT on all snapshots at every step.
    """

    import dysat
    from dysat.evaluation.probe import evaluate_probe
    from dysat.evaluation.protocols import single_step

    graph, (first, epochs, weight) = dysat.DynamicGraph.load(f"{folder}/{dataset}"), BEGINNING[dataset]
    layers = SHALLOW if dataset == "enron" else {}
    options = {"negative_weight": weight, "epochs": epochs, "batch_size": 256, "device": "cpu", **layers}
    model = dysat.DySAT.from_preset("program", **options).fit(graph[:first])
    if how != "again":
        model = dysat.IncSAT.continuing(model, carry=how == "carried")
    found = []
    for step in range(first, len(graph)):
        found.append(float(evaluate_probe(model.embed(), single_step(graph, step - 1, seed=0)).auc))
        if step < len(graph) - 1:
            model = model.fit(graph[: step + 1]) if how == "again" else model.take_in(graph)  # type: ignore[attr-defined]
    return {"dataset": dataset, "weights": how, "auc": found, "macro_auc": sum(found) / len(found)}


def compare_continued(folder: str, processes: int, out: Path) -> None:
    """Run all ways to continue on all datasets."""
    from dysat.system.parallel.pool import worker_pool

    with worker_pool(processes, "rows") as pool:
        ways = [(dataset, how) for dataset in BEGINNING for how in ("again", "carried", "anew")]
        rows = [job.result() for job in [pool.submit(continued, folder, *way) for way in ways]]
    result = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "rows": rows}
    out.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        print(row["dataset"], row["weights"], round(100 * row["macro_auc"], 2))


def mean(row: dict[str, Any], key: str, dataset: str) -> float:
    """Mean over the predicted snapshots."""
    first, last = PREDICTED[dataset]
    values = [step[key] for step in row["steps"] if first <= step["predicted"] <= last]
    return float(sum(values) / len(values))


def settings_table() -> list[str]:
    """A table of all settings, the best on validation links first."""
    lines = ["| dataset | preset | weights | w_n | dropout | seed | validation | test | best epoch |"]
    lines.append("|---|---|---|---:|---|---:|---:|---:|---:|")
    for dataset in PREDICTED:
        result = json.loads((ROOT / "results" / f"incsat_settings_{dataset}.json").read_text())
        for row in sorted(result["rows"], key=lambda row: -mean(row, "validation", dataset)):
            carried = "carried" if row["carry"] else "from scratch"
            dropout = f"{row['structural_dropout']:g}, {row['temporal_dropout']:g}"
            figures = (100 * mean(row, key, dataset) for key in ("validation", "auc"))
            cells = " | ".join(f"{figure:.2f}" for figure in figures)
            lines.append(
                f"| {dataset} | {row['preset']} | {carried} | {row['negative_weight']:g} | {dropout} | "
                f"{row.get('seed', 0)} | {cells} | {mean(row, 'best_epoch', dataset):.0f} |"
            )
    return lines


def paper_table() -> list[str]:
    """Table 5 of the paper: our figures, then the published ones."""
    lines = ["| macro-AUC (micro-AUC) | Enron | UCI | Yelp | ML-10M |", "|---|---:|---:|---:|---:|"]
    for name, file, method in (("DySAT", "evaluation", "dysat:program"), ("IncSAT", "incsat", "incsat")):
        cells = []
        for dataset in DATASETS:
            result = json.loads((ROOT / "results" / f"{file}_{dataset}.json").read_text())
            model = next(model for model in result["models"] if model["name"].startswith(method))
            wanted = ("uniform", "present")
            means = next(m for m in model["means"] if (m["negatives"], m["probe"]) == wanted)
            cells.append(f"{100 * means['macro_auc']:.2f} ({100 * means['micro_auc']:.2f})")
        lines.append(f"| {name}, ours | {' | '.join(cells)} |")
    lines.insert(3, f"| DynGEM, ours | {' | '.join(dyngem(dataset) for dataset in DATASETS)} |")
    for name, figures in PUBLISHED.items():
        cells = [f"{macro:.2f} ({micro:.2f})" for macro, micro in (figures[dataset] for dataset in DATASETS)]
        lines.append(f"| {name}, published | {' | '.join(cells)} |")
    return lines


def dyngem(dataset: str) -> str:
    """Figures of the best setting of DynGEM on validation links, or a dash if it was not run."""
    file = ROOT / "results" / f"baselines_{dataset}.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    rows = [row for row in rows if row["row"] == "DynGEM" and row["self_loops"] == "drop"]
    best = max(rows, key=lambda row: row["validation_auc"], default=None)
    return "–" if best is None else f"{100 * best['macro_auc']:.2f} ({100 * best['micro_auc']:.2f})"


def main() -> None:
    """Run the settings, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default="graphs")
    parser.add_argument("--dataset", choices=PREDICTED)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="most epochs per snapshot; default: those of each setting")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--continued", action="store_true")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        page = ROOT / "docs" / "settings.md"
        before, _, after = page.read_text().split(MARK)
        tables = [*paper_table(), "", "All settings of the two small datasets, means over the predicted snapshots:", ""]
        page.write_text(f"{before}{MARK}\n\n" + "\n".join([*tables, *settings_table()]) + f"\n\n{MARK}{after}")
        return
    if given.continued:
        compare_continued(given.graphs, given.processes, ROOT / "results" / "incsat_continued.json")
        return
    if given.dataset is None or given.out is None:
        parser.error("expected --dataset and --out, or --continued, or --table")
    sweep(given.graphs, given.dataset, given.processes, given.out, given.epochs)


if __name__ == "__main__":
    main()
