"""Tune the paper's baselines on validation links and time one fit of each; writes the tables of docs/baselines.md.

    python benchmarks/baselines.py --graphs FOLDER --dataset uci --processes 16 --out results/baselines_uci.json

evaluates every method with every setting of GRIDS by `dysat.evaluate`, single-step protocol. FOLDER holds graph folders
named after the datasets. --method selects methods; settings already in the --out file are not computed again.

    python benchmarks/baselines.py --fits --graphs FOLDER --dataset uci --out results/bench_baselines_cpu.json

times one fit of each method and of DySAT on all snapshots of a dataset, each in a fresh process, with peak memory.

    python benchmarks/baselines.py --table

writes the tables from these files.
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
    """Every combination of the values."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


Setting = dict[str, Any]
DECAY = {"nu1": (1e-6, 1e-4), "nu2": (1e-6, 1e-4)}
# What the paper tuned: row of its table → method, fixed options, settings to try.
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
    """Evaluate the settings that the file does not have yet, one method at a time."""
    found = json.loads(args.out.read_text()) if args.out.exists() else {"rows": []}
    begin = time.monotonic()
    for dataset, loops, name in itertools.product(args.dataset, args.self_loops, args.method or GRIDS):
        method, fixed, settings = GRIDS[name]
        if args.epochs is not None:
            settings = [{**setting, "epochs": args.epochs} for setting in settings]
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
        temporary = args.out.with_suffix(".new")
        temporary.write_text(json.dumps(found, indent=1) + "\n")
        temporary.replace(args.out)
        sys.stdout.flush()


def facts(figures: Figures) -> dict[str, Any]:
    """The figures of an evaluation that are stored."""
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
    """Time one fit of each method, each in a fresh process."""
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
    """Time one fit, after a small fit that does all imports and compiling."""
    from dysat.system.parallel.process import keep_freed_memory

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
    """Write the generated blocks of docs/baselines.md."""
    page = PAGE.read_text()
    rows = [row for file in ROOT.glob("results/baselines_*.json") for row in json.loads(file.read_text())["rows"]]
    for mark, text in ((TUNED, tuned(rows)), (FITS, costs())):
        before, _, after = page.split(mark)
        page = f"{before}{mark}\n\n" + "\n".join(text) + f"\n\n{mark}{after}"
    PAGE.write_text(page)


def tuned(rows: list[dict[str, Any]]) -> list[str]:
    """A table of the settings with the highest mean validation AUC, and one of all settings."""
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
                f"| {name} | {dataset} | {as_text(row['setting'])} | {100 * row['validation_auc']:.2f} | "
                f"{100 * row['macro_auc']:.2f} | {100 * row['micro_auc']:.2f} | {row['seconds']:.0f} |"
                for row in own
            ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, "", "All settings, the selected one first:", "", *every]


def as_text(setting: Setting) -> str:
    """A setting in one line."""
    return ", ".join(f"{key} {value}" for key, value in setting.items()) or "default"


def costs() -> list[str]:
    """A table of seconds and memory of one fit."""
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
    """Evaluate, time fits, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only write the tables")
    parser.add_argument("--fits", action="store_true", help="time one fit of each method")
    parser.add_argument("--graphs", type=Path, help="folder of graph folders")
    parser.add_argument("--dataset", nargs="+", default=["uci"])
    parser.add_argument("--method", nargs="+", choices=[*GRIDS, "DySAT"], help="rows of the table; default: all")
    parser.add_argument("--self-loops", nargs="+", default=["drop"], choices=["drop", "keep"])
    parser.add_argument("--epochs", type=int, help="epochs of every fit; default: those of the method")
    parser.add_argument("--first", type=int, help="first snapshot to predict; default: the paper's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--stop-after", type=float, default=1e9, help="seconds after which no further method starts")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.table:
        table()
    elif not args.graphs or not (args.out or args.job):
        parser.error("expected --graphs and --out, or --table")
    elif args.job:
        fit(args.job, args)
    elif "DySAT" in (args.method or []) and not args.fits:
        parser.error("DySAT can only be timed here (--fits); benchmarks/single_step.py tunes it")
    else:
        fits(args) if args.fits else sweep(args)


if __name__ == "__main__":
    main()
