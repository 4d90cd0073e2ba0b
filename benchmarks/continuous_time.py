r"""Compare the default forecast with continuous-time models of DyGLib, in our protocol and in theirs.

    git clone https://github.com/yule-BUAA/DyGLib FOLDER            # commit 3aacc36; MIT, nothing of it is copied here
    python benchmarks/continuous_time.py --prepare LOGS --data DATA --downloads DOWNLOADS
    python benchmarks/continuous_time.py --logs LOGS --dyglib FOLDER --processes 8 --out results/continuous_time.json
    python benchmarks/continuous_time.py --logs LOGS --their-protocol --out results/continuous_time_events.json
    python benchmarks/continuous_time.py --show results/continuous_time.json

DATA has the files of the paper's datasets, DOWNLOADS those of benchmarks/wide_logs.py. The other steps need only LOGS.

Our protocol: for each predicted window, a model is trained on the events before its start, with DyGLib's published
settings and early stopping on the last 15 % of these events. Then it scores pairs at the start of the window: the
examples of `single_step` (AUC, AP), and at most 200 links among 100 candidates each (MRR, Hits@10). Without direction,
the score is the mean of both orders. With the condition "event", events are learned at their own times, as in DyGLib.
With "window" they are asked for at the start of their windows, as in the forecast (ct_plan.py). By default a model is
trained from scratch for the first predicted window of a log, and training continues with the new events for the later
ones. Finished results are stored in the --out file and not computed again, except those that --budget cut short.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import ct_events
import ct_their_protocol as theirs
import torch
from ct_their_protocol import MOMENTS, OURS

EDGE_BANK = "EdgeBank"
MODELS = (OURS, EDGE_BANK, "DyGFormer", "GraphMixer", "TGN", "CAWN")
CONDITIONS = ("event", "window")
LOGS = ("uci", "enron", "football", "office", "hospital")
THEIR_LOGS = ("uci", "enron")
NEGATIVES = ("random", "historical", "inductive")
LAST = 4  # windows that are predicted first
KEY = ("log", "window", "model", "condition", "seed")
SETTINGS = ("num_neighbors", "num_layers", "dropout", "sample_neighbor_strategy", "time_scaling_factor", "walk_length")
SETTINGS += ("patch_size", "max_input_sequence_length", "edge_bank_memory_mode", "time_window_mode", "learning_rate")
BUDGET = "budget"  # how a training ended that is repeated later
Entry = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One model and seed on some windows of a log, in order of time."""

    log: str
    model: str
    condition: str
    seed: int
    windows: tuple[int, ...]
    earlier: bool = False  # windows before the last ones

    def results(self) -> list[tuple[Any, ...]]:
        return [(self.log, window, self.model, self.condition, self.seed) for window in self.windows]


def jobs(windows: dict[str, list[int]], args: argparse.Namespace) -> list[Job]:
    """All jobs, the most informative first: last windows before earlier ones, then by seed, model and condition."""
    found = []
    for seed, model, condition, log in product(args.seeds, args.models, args.condition, windows):
        if model in (OURS, EDGE_BANK):
            if condition != args.condition[0] or (model == EDGE_BANK and seed != args.seeds[0]):
                continue  # they are not trained on events, or not random
            condition = "none"
        last, earlier = windows[log][-LAST:], windows[log][:-LAST]
        for part in (last, earlier):
            chained = [tuple(part)] if args.continue_training else [(window,) for window in part]
            found += [Job(log, model, condition, seed, chain, part is earlier) for chain in chained if chain]
    order = {model: k for k, model in enumerate(MODELS)}
    found.sort(key=lambda job: (job.earlier, args.seeds.index(job.seed), order[job.model]))
    return found


def unfinished(todo: list[Job], entries: list[Entry]) -> list[Job]:
    """Jobs with the windows that have no result yet, or one that the budget cut short."""
    done = {tuple(entry[name] for name in KEY) for entry in entries if entry.get("ended") != BUDGET}
    left = []
    for job in todo:
        windows = tuple(key[1] for key in job.results() if key not in done)
        if windows:
            left.append(Job(job.log, job.model, job.condition, job.seed, windows, job.earlier))
    return left


def read(out: Path) -> list[Entry]:
    """The entries of a results file."""
    return json.loads(out.read_text())["entries"] if out.exists() else []


def add(out: Path, entry: Entry) -> None:
    """Put an entry into a results file, in place of an older one of the same key."""
    from filelock import FileLock

    with FileLock(f"{out}.lock"):
        entries = [old for old in read(out) if any(old[name] != entry[name] for name in KEY)]
        entries = sorted([*entries, entry], key=lambda e: tuple(str(e[name]).zfill(4) for name in KEY))
        temporary = out.with_name(f"{out.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"command": "benchmarks/continuous_time.py", "entries": entries}, indent=1))
        temporary.replace(out)


def figures(score: Any, log: ct_events.Log, window: int) -> Entry:
    """AUC, AP, MRR, Hits@10 and MRR of new links of a score of pairs."""
    from dysat.evaluation.probe import auc, average_precision
    from dysat.evaluation.protocols import single_step
    from dysat.evaluation.ranking import drawn_ranking, hits, link_ranks, mrr, never_linked

    split = single_step(log.graph, window - 1, seed=0)
    scores = score(split.pairs).double().cpu()
    found: Entry = {"links": int(split.labels.sum())}
    found |= {"auc": auc(scores, split.labels), "average_precision": average_precision(scores, split.labels)}
    ranked = drawn_ranking(log.graph, split)
    if ranked is not None:
        links, others = split.pairs[ranked[0]], ranked[1]
        ranks = link_ranks(score, links, others).cpu()
        new = never_linked(log.graph, window - 1, links)
        found |= {"mrr": mrr(ranks), "hits_at_10": hits(ranks, 10), "candidates": others.shape[1]}
        found |= {"ranked_links": len(links), "new_links": int(new.sum())}
        found["mrr_new"] = mrr(ranks[new]) if bool(new.any()) else None
    return found


def work(job: Job, args: argparse.Namespace, deadline: float) -> str:
    """Compute and store the results of a job; returns a line about each."""
    if time.time() >= deadline:
        return ""
    from dysat.system.hardware import hardware, peak_gib, reset_peak

    log, device, lines = ct_events.load(args.logs / job.log), chosen_device(args.device), []
    opponent: Any = None  # its training continues from window to window
    for number, window in enumerate(job.windows):
        if time.time() >= deadline:
            break
        reset_peak()
        entry: Entry = dict(zip(KEY, job.results()[number], strict=True))
        if job.model == OURS:
            score, about = our_score(job, log, window, device)
        elif job.model == EDGE_BANK:
            score, about = edge_bank_score(log, window, args)
        else:
            score, about, opponent = trained_score(job, log, number, args, deadline, opponent)
        begin = time.time()
        entry |= figures(score, log, window)
        entry |= {"seconds_scoring": round(time.time() - begin, 2), "events": log.number_before(window), **about}
        entry |= {"peak_gib": round(peak_gib(device), 3), "device": device, "hardware": hardware()}
        entry |= {"processes": args.processes, "date": datetime.now(UTC).date().isoformat()}
        add(args.out, entry)
        shown = (*KEY, "auc", "mrr", "seconds", "epochs", "ended", "peak_gib")
        lines.append(json.dumps({name: entry.get(name) for name in shown}))
    return "\n".join(lines)


def our_score(job: Job, log: ct_events.Log, window: int, device: str) -> tuple[Any, Entry]:
    """The default forecast, and the time it took to learn."""
    from dysat import DySAT

    begin = time.time()
    model = DySAT(embeddings=False, seed=job.seed, device=device).fit(log.graph[:window])
    return model.pair_scores, {"seconds": round(time.time() - begin, 2)}


def edge_bank_score(log: ct_events.Log, window: int, args: argparse.Namespace) -> tuple[Any, Entry]:
    """EdgeBank and its settings."""
    import ct_dyglib

    ct_dyglib.use_dyglib(args.dyglib)
    score = ct_dyglib.edge_bank(log, log.number_before(window))
    settings = some_settings(ct_dyglib.published_settings(log.name, EDGE_BANK))
    return ct_dyglib.both_orders(score, log.graph.directed), {"seconds": 0.0, "settings": settings}


def trained_score(
    job: Job, log: ct_events.Log, number: int, args: argparse.Namespace, deadline: float, opponent: Any
) -> tuple[Any, Entry, Any]:
    """A model of DyGLib trained for a window of a job: its score, how training went, and the model."""
    import ct_dyglib

    ct_dyglib.use_dyglib(args.dyglib)
    window, continued = job.windows[number], opponent is not None
    if not continued:
        condition: Any = job.condition
        opponent = ct_dyglib.Opponent(job.model, log, condition, job.seed, chosen_device(args.device))
    seconds = args.seconds[-1] if continued else args.seconds[0]
    done = opponent.fit(window, ct_dyglib.Limits(args.patience, args.epochs, seconds, deadline), continued)
    limits = {"patience": args.patience, "epochs": args.epochs, "seconds": seconds if seconds < float("inf") else None}
    about = {**vars(done), "continued_from": job.windows[number - 1] if continued else None, "limits": limits}
    about["settings"] = some_settings(opponent.args)
    return ct_dyglib.both_orders(opponent.at_start(window), log.graph.directed), about, opponent


def some_settings(args: argparse.Namespace) -> Entry:
    """The settings of DyGLib that matter here."""
    return {name: getattr(args, name) for name in SETTINGS}


def chosen_device(name: str) -> str:
    """The device that is meant: "auto" is a GPU if there is one."""
    return "cuda" if name == "auto" and torch.cuda.is_available() else name.replace("auto", "cpu")


def their_work(log: str, model: str, seed: int, args: argparse.Namespace, deadline: float) -> str:
    """Compute and store the results of a model in DyGLib's protocol."""
    if time.time() >= deadline:
        return ""
    import ct_dyglib

    from dysat.system.hardware import hardware

    if args.dyglib is not None:
        ct_dyglib.use_dyglib(args.dyglib)
    events, device = theirs.load(args.logs / log), chosen_device(args.device)
    if model in (OURS, MOMENTS):
        found = theirs.measure(events, args.negatives, model == MOMENTS, seed)
    elif model == EDGE_BANK:
        found = theirs.measure_edge_bank(events, args.negatives)
    else:
        limits = ct_dyglib.Limits(args.patience, args.epochs, args.seconds[0], deadline)
        found = theirs.measure_opponent(events, model, args.negatives, seed, device, limits)
    about = {"device": device, "hardware": hardware(), "date": datetime.now(UTC).date().isoformat()}
    for entry in found:
        add(args.out, entry | about)
    shown = ("log", "model", "condition", "seed", "average_precision", "auc", "seconds", "epochs", "ended")
    return "\n".join(json.dumps({name: entry.get(name) for name in shown}) for entry in found)


def tasks(args: argparse.Namespace, deadline: float) -> list[tuple[Any, ...]]:
    """What the results file does not have yet: functions with their arguments."""
    found = read(args.out)
    if not args.their_protocol:
        windows = {name: ct_events.load(args.logs / name).predictable()[-args.windows :] for name in args.log}
        return [(work, job, args, deadline) for job in unfinished(jobs(windows, args), found)]
    done = {(e["log"], e["model"], e["condition"], e["seed"]) for e in found if e.get("ended") != BUDGET}
    models = [name for model in args.models for name in ((OURS, MOMENTS) if model == OURS else (model,))]
    wanted = [
        (log, model, seed)
        for seed, model, log in product(args.seeds, models, args.log)
        if log in THEIR_LOGS and (model != EDGE_BANK or seed == args.seeds[0])
    ]
    return [
        (their_work, log, model, seed, args, deadline)
        for log, model, seed in wanted
        if any((log, model, f"{name} negatives", seed) not in done for name in args.negatives)
    ]


def sweep(args: argparse.Namespace) -> None:
    """Run everything that the file does not have yet, until the budget is used."""
    from dysat.system.parallel.pool import worker_pool

    begin = time.time()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    todo = tasks(args, begin + args.budget)
    print(f"{len(todo)} jobs", flush=True)
    if args.processes == 1:
        for function, *given in todo:
            print(round(time.time() - begin), function(*given), flush=True)
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with worker_pool(args.processes, "results", limit_threads=False) as pool:
            running = {pool.submit(*task): task[1:-2] for task in todo}
            for future in as_completed(running):
                if future.exception() is not None:
                    print(running[future], repr(future.exception()), flush=True)
                elif future.result():
                    print(round(time.time() - begin), future.result(), flush=True)
    Path(f"{args.out}.lock").unlink(missing_ok=True)


def show(out: Path) -> None:
    """Print a Markdown table: means over windows and seeds, and over the same windows for our score."""
    entries = [entry for entry in read(out) if "auc" in entry]
    names = ("auc", "average_precision", "mrr", "hits_at_10", "mrr_new")
    order = (OURS, MOMENTS, *MODELS[1:])
    print(
        "| log | model | condition | windows × seeds | AUC | AP | MRR | Hits@10 | MRR, new links | seconds | ended by |"
    )
    print("|---|---|---|--:|--:|--:|--:|--:|--:|--:|---|")
    for log in dict.fromkeys(entry["log"] for entry in entries):
        mine = [entry for entry in entries if entry["log"] == log]
        groups = {(entry["model"], entry["condition"]) for entry in mine}
        for model, condition in sorted(groups, key=lambda group: (order.index(group[0]), group[1])):
            rows = [entry for entry in mine if (entry["model"], entry["condition"]) == (model, condition)]
            windows, seeds = ({row[name] for row in rows} for name in ("window", "seed"))
            same = [
                entry
                for entry in mine
                if entry["model"] == OURS and entry["window"] in windows and entry["condition"] in ("none", condition)
            ]
            cells = [_beside(rows, same if model != OURS else [], name) for name in names]
            ends = [row["ended"] for row in rows if "ended" in row]
            ended = ", ".join(f"{ends.count(end)} {end}" for end in dict.fromkeys(ends)) or "–"
            seconds = f"{fmean(row['seconds'] for row in rows):.1f}"
            count = f"{len(windows)} × {len(seeds)}" if len(rows) == len(windows) * len(seeds) else str(len(rows))
            print(f"| {' | '.join([log, model, condition, count, *cells, seconds, ended])} |")
    print("\nIn brackets: our score on the same windows, in the same unit (percent).")


def _beside(rows: list[Entry], ours: list[Entry], name: str) -> str:
    """The mean of a figure in percent, and that of our score."""
    own, other = ([entry[name] for entry in part if entry.get(name) is not None] for part in (rows, ours))
    text = f"{100 * fmean(own):.1f}" if own else "–"
    return f"{text} ({100 * fmean(other):.1f})" if own and other else text


def main() -> None:
    """Prepare, run, or print the table of a results file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=Path, help="results file to print")
    parser.add_argument("--prepare", type=Path, help="folder of logs to write")
    parser.add_argument("--data", type=Path, help="folder of datasets, to prepare")
    parser.add_argument("--downloads", type=Path, help="folder of packages of the wide bench, to prepare")
    parser.add_argument("--logs", type=Path, help="folder of prepared logs")
    parser.add_argument("--log", nargs="+", default=list(LOGS), help="names of logs")
    parser.add_argument("--dyglib", type=Path, help="clone of DyGLib")
    parser.add_argument("--their-protocol", action="store_true", help="our score on single events, as DyGLib evaluates")
    parser.add_argument("--negatives", nargs="+", choices=NEGATIVES, default=["random"], help="in their protocol")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--condition", nargs="+", choices=CONDITIONS, default=list(CONDITIONS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--windows", type=int, default=LAST, help="number of last windows to predict")
    parser.add_argument("--continue-training", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--patience", type=int, default=20, help="epochs without improvement")
    parser.add_argument("--epochs", type=int, default=100, help="most epochs for a window")
    parser.add_argument(
        "--seconds", nargs="+", type=float, default=[float("inf")], help="most seconds of training: at first, continued"
    )
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which nothing is computed")
    parser.add_argument("--processes", type=int, default=1, help="trainings side by side")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.show:
        show(args.show)
    elif args.prepare:
        ct_events.prepare(args.prepare, args.log, args.data, args.downloads)
    elif args.logs and args.out:
        sweep(args)
    else:
        parser.error("expected --prepare, --show, or --logs and --out")


if __name__ == "__main__":
    main()
