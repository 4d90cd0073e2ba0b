"""The paper's baselines: tuned on validation as the paper says, and what one fit costs; writes docs/baselines.md.

    python benchmarks/baselines.py --graphs FOLDER --dataset uci --processes 16 --out results/baselines_uci.json

evaluates every method with every setting of GRIDS, single step, by `dysat.evaluate`. FOLDER holds graph folders named
after the datasets. --method chooses some; settings that an --out file has are not computed again.

    python benchmarks/baselines.py --fits --graphs FOLDER --dataset uci --out results/bench_baselines_cpu.json

times one fit of each method on all snapshots of a dataset, and of DySAT, each in a fresh process, with its peak memory.

    python benchmarks/baselines.py --table

writes the tables from such files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import dysat
from dysat.data.datasets import DATASETS
from dysat.experiments.evaluate.outcome import Figures
from dysat.experiments.evaluate.request import Contender
from dysat.system.hardware import hardware, peak_gib

ROOT = Path(__file__).resolve().parents[1]
PAGE, TUNED, FITS = ROOT / "docs" / "baselines.md", "<!-- tuned -->", "<!-- fits -->"


def grid(**values: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Every combination."""
    return [dict(zip(values, some, strict=True)) for some in itertools.product(*values.values())]


Setting = dict[str, Any]
DECAY = {"nu1": (1e-6, 1e-4), "nu2": (1e-6, 1e-4)}
# What the paper tuned (SPEC section 4): the row of its table, the method, what stays, what is tried.
GRIDS: dict[str, tuple[str, Setting, list[Setting]]] = {
    "node2vec": ("node2vec", {}, grid(p=(0.25, 0.5, 1.0, 2.0, 4.0), q=(0.25, 0.5, 1.0, 2.0, 4.0))),
    "G-SAGE": ("graphsage", {}, grid(aggregator=("gcn", "mean-pool", "max-pool", "lstm"))),
    "G-SAGE + GAT": ("graphsage", {"aggregator": "gat"}, [{}]),
    "GCN-AE": ("gcn-ae", {}, [{}]),
    "GAT-AE": ("gat-ae", {}, [{}]),
    "DynamicTriad": ("dynamic-triad", {}, grid(smoothness=(0.01, 0.1, 1.0, 10.0), closure=(0.01, 0.1, 1.0, 10.0))),
    "DynGEM": ("dyngem", {}, grid(alpha=(1e-6, 1e-5), beta=(0.1, 1.0, 2.0, 5.0), **DECAY)),
    "DynAERNN": ("dynaernn", {"patience": 8}, grid(beta=(0.1, 1.0, 2.0, 5.0), **DECAY)),
}
# Macro-AUC of the paper's Table 2.
PUBLISHED = {
    "node2vec": {"enron": 83.05, "uci": 80.49},
    "G-SAGE": {"enron": 81.88, "uci": 82.89},
    "G-SAGE + GAT": {"enron": 73.34, "uci": 79.83},
    "GCN-AE": {"enron": 81.71, "uci": 83.50},
    "GAT-AE": {"enron": 75.97, "uci": 81.86},
    "DynamicTriad": {"enron": 78.98, "uci": 80.28},
    "DynGEM": {"enron": 69.72, "uci": 79.82},
    "DynAERNN": {"enron": 72.01, "uci": 83.52},
}


def sweep(args: argparse.Namespace) -> None:
    """Whatever is not in the file yet, a method at a time."""
    found = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}
    begin = time.monotonic()
    for dataset, loops, name in itertools.product(args.dataset, args.self_loops, args.method or GRIDS):
        method, fixed, settings = GRIDS[name]
        wanted = {"dataset": dataset, "self_loops": loops, "row": name, "seed": args.seed}
        known = [row["setting"] for row in found["rows"] if all(row[key] == wanted[key] for key in wanted)]
        missing = [setting for setting in settings if setting not in known]
        if not missing or time.monotonic() - begin > args.stop_after:
            continue
        graph, predicted = dysat.DynamicGraph.load(args.graphs / dataset), DATASETS[dataset].predicted
        contenders = [Contender(method, options={**fixed, **setting, "seed": args.seed}) for setting in missing]
        evaluation = dysat.evaluate(
            contenders, graph, opponents=(), device=args.device, processes=args.processes, seed=args.seed,
            first=args.first or min(predicted), last=max(predicted), self_loops=loops,
        )  # fmt: skip
        about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "device": args.device}
        for setting, figures in zip(missing, evaluation.figures, strict=True):
            row = {**wanted, "setting": setting, **facts(figures), **about}
            found["rows"].append(row)
            print({key: row[key] for key in ("dataset", "row", "setting", "validation_auc", "macro_auc", "seconds")})
        beside = args.out.with_suffix(".new")
        beside.write_text(json.dumps(found, indent=1) + "\n")
        beside.replace(args.out)
        sys.stdout.flush()


def facts(figures: Figures) -> dict[str, Any]:
    """What is kept of an evaluation."""
    steps, known = figures.of(), figures.means()
    assert known is not None, figures.problems
    return {
        "validation_auc": fmean(step.result.validation_auc for step in steps),
        "macro_auc": known.macro_auc,
        "macro_auc_sd": known.macro_auc_sd,
        "micro_auc": known.micro_auc,
        "steps": {step.result.target: step.result.auc for step in steps},
        "left_out": [*known.left_out, *figures.problems],
        "seconds": figures.seconds,
    }


def fits(args: argparse.Namespace) -> None:
    """One fit of each method, in a process of its own."""
    rows = []
    for name, dataset in itertools.product(args.method or [*GRIDS, "DySAT"], args.dataset):
        words = ["--fits", "--graphs", str(args.graphs), "--dataset", dataset, "--device", args.device]
        words += ["--epochs", str(args.epochs)] if args.epochs is not None else []
        command = [sys.executable, __file__, *words, "--job", name]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            raise SystemExit(f"{name} on {dataset} failed")
        rows.append({"row": name, "dataset": dataset, **json.loads(done.stdout.splitlines()[-1])})
        print(rows[-1], flush=True)
        result = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "device": args.device}
        args.out.write_text(json.dumps({**result, "rows": rows}, indent=1) + "\n")


def fit(name: str, args: argparse.Namespace) -> None:
    """One fit, after a small one that imports and compiles what is needed."""
    from dysat.system.process import keep_freed_memory

    keep_freed_memory()
    method, fixed, _ = GRIDS[name] if name != "DySAT" else ("dysat", {}, [])
    graph = dysat.DynamicGraph.load(args.graphs / args.dataset[0])
    options: Setting = dict(fixed)
    if any(option.name == "device" for option in dysat.MODELS[method].options()):
        options["device"] = args.device

    def model(**more: Any) -> Any:
        preset = "program" if method == "dysat" else None
        return Contender(method, preset, {**options, **more}).build()

    model(epochs=1).fit(graph[:1])
    begin = time.perf_counter()
    fitted = model(**({} if args.epochs is None else {"epochs": args.epochs})).fit(graph)
    seconds = time.perf_counter() - begin
    epochs = len(getattr(fitted, "epochs_", [])) or fitted.epochs
    device = fitted.embed().device
    print(json.dumps({"seconds": seconds, "epochs": epochs, "peak_gib": peak_gib(device), "on": device.type}))


def table() -> None:
    """The marked parts of docs/baselines.md."""
    page = PAGE.read_text()
    rows = [row for file in ROOT.glob("results/baselines_*.json") for row in json.loads(file.read_text())["rows"]]
    for mark, text in ((TUNED, tuned(rows)), (FITS, costs())):
        before, _, after = page.split(mark)
        page = f"{before}{mark}\n\n" + "\n".join(text) + f"\n\n{mark}{after}"
    PAGE.write_text(page)


def tuned(rows: list[dict[str, Any]]) -> list[str]:
    """The setting with the highest mean validation AUC, and below all settings."""
    lines = ["| | Enron | published | UCI | published |", "|---|---:|---:|---:|---:|"]
    every = [
        "| | dataset | setting | validation | macro-AUC | micro-AUC | seconds, all steps |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for name in GRIDS:
        cells = []
        for dataset, published in PUBLISHED[name].items():
            own = [row for row in rows if (row["row"], row["dataset"], row["self_loops"]) == (name, dataset, "drop")]
            own.sort(key=lambda row: -row["validation_auc"])
            best = f"{100 * own[0]['macro_auc']:.2f} ± {100 * own[0]['macro_auc_sd']:.2f}" if own else "–"
            cells += [best, f"{published:.2f}"]
            every += [
                f"| {name} | {dataset} | {told(row['setting'])} | {100 * row['validation_auc']:.2f} | "
                f"{100 * row['macro_auc']:.2f} | {100 * row['micro_auc']:.2f} | {row['seconds']:.0f} |"
                for row in own
            ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, "", "Every setting, the one that was chosen first:", "", *every]


def told(setting: Setting) -> str:
    """In one line."""
    return ", ".join(f"{key} {value}" for key, value in setting.items()) or "default"


def costs() -> list[str]:
    """What one fit takes."""
    lines = ["| | dataset | device | epochs | seconds | peak, GiB |", "|---|---|---|---:|---:|---:|"]
    notes = []
    for file in sorted(ROOT.glob("results/bench_baselines_*.json")):
        found = json.loads(file.read_text())
        machine = found["hardware"]
        chip = machine["gpu"] if found["device"] == "cuda" else f"{machine['cores']} cores of {machine['cpu']}"
        notes.append(f"{found['device']}: {chip}, torch {machine['torch']}, {found['date']}")
        lines += [
            f"| {row['row']} | {row['dataset']} | {row['on']} | {row['epochs']} | {row['seconds']:.1f} | "
            f"{row['peak_gib']:.2f} |"
            for row in found["rows"]
        ]
    return [f"({'; '.join(notes)}.)", "", *lines]


def main() -> None:
    """One of three things."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="write the tables, and do nothing else")
    parser.add_argument("--fits", action="store_true", help="time one fit of each method")
    parser.add_argument("--graphs", type=Path, help="folder of graph folders")
    parser.add_argument("--dataset", nargs="+", default=["uci"])
    parser.add_argument("--method", nargs="+", choices=[*GRIDS, "DySAT"], help="rows of the table; all unless told")
    parser.add_argument("--self-loops", nargs="+", default=["drop"], choices=["drop", "keep"])
    parser.add_argument("--epochs", type=int, help="of a fit that is timed, if not those of the method's defaults")
    parser.add_argument("--first", type=int, help="first snapshot to predict, if not the paper's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds after which no method is begun")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.table:
        table()
    elif not args.graphs or not (args.out or args.job):
        parser.error("--graphs and --out, or --table")
    elif args.job:
        fit(args.job, args)
    elif "DySAT" in (args.method or []) and not args.fits:
        parser.error("DySAT is timed beside the baselines (--fits), and tuned by benchmarks/single_step.py")
    else:
        fits(args) if args.fits else sweep(args)


if __name__ == "__main__":
    main()
