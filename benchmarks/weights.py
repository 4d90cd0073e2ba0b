"""What are weights worth that follow the log, compared with a rule, and with each part of the pair score alone?

    python benchmarks/weights.py --graphs GRAPHS --processes 2 --out results/weights.json
    python benchmarks/weights.py --show results/weights.json

GRAPHS comes from benchmarks/wide_logs.py; only logs of the development half are opened. For each of the last windows
of a log, four unless --windows says otherwise, the pair score learns from the windows before it, with different weights
of its parts:

- rule: those from which learning starts.
- learned: how well the parts ranked the last windows before, without the floor. With it, this is the default.
- learned in the last window alone: no older windows join it.
- a part alone: the regression of all pairs, that of pairs linked before (for new pairs, that of all pairs), the trees,
  degrees, memory of the link, or common neighbours.

All are measured on the examples of benchmarks/forecasting_wide.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

from forecasting_wide import DEVELOPMENT, FIGURES, chosen, examples, figures, predicted, write

import dysat
from dysat.features.pair_history import PLAIN_COLUMNS
from dysat.models.forecast import mixture, pair_score
from dysat.models.forecast import parts as pair_parts
from dysat.models.forecast.examples import Examples, forget_histories
from dysat.models.forecast.mixture import learned_weights
from dysat.models.forecast.pair_score import PairScore
from dysat.models.forecast.parts import Parts, Reals, learn_parts
from dysat.system.hardware import hardware
from dysat.system.parallel.pool import THREAD_VARIABLES, worker_pool

Weights = Callable[..., Reals]  # of experts in past windows, these, weights to start from, and whether there is a floor
WINDOWS = 4
DEFAULT = "learned, with a floor"
ALONE = ("regression", "regression of repeated pairs", *PLAIN_COLUMNS, "trees")


def _rule(scores: Sequence[Reals], windows: Sequence[Examples], start: Reals, *, floor: bool) -> Reals:
    return start


def _learned(scores: Sequence[Reals], windows: Sequence[Examples], start: Reals, *, floor: bool) -> Reals:
    return learned_weights(scores, windows, start, floor=False)


def _last(scores: Sequence[Reals], windows: Sequence[Examples], start: Reals, *, floor: bool) -> Reals:
    return learned_weights(scores[:1], windows[:1], start, floor=floor)


def _alone(expert: int, scores: Sequence[Reals], windows: Sequence[Examples], start: Reals, *, floor: bool) -> Reals:
    return mixture._Windows.of(windows).scaled(mixture._joined(scores, windows), mixture._experts_alone()[expert])


WAYS: Mapping[str, Weights] = {
    DEFAULT: learned_weights,
    "learned": _learned,
    "learned in the last window alone, with a floor": _last,
    "rule": _rule,
    **{name: partial(_alone, expert) for expert, name in enumerate(ALONE)},
}


def window(folder: str, target: int, seed: int) -> dict[str, dict[str, float]]:
    """Figures of a window with all weights."""
    graph = dysat.DynamicGraph.load(folder)
    given, past = examples(graph, target, seed), graph[:target]
    parts, found = dict[tuple[bytes, ...], Parts](), {}

    def learn_once(examples: Sequence[Examples], seed: int) -> Parts:
        key = tuple(hashlib.sha256(each.features.tobytes()).digest() for each in examples)
        parts[key] = parts.get(key) or learn_parts(examples, seed)
        return parts[key]

    for name, way in WAYS.items():
        with patch.object(pair_score, "learned_weights", way), patch.object(pair_parts, "learn_parts", learn_once):
            score = PairScore.learn(past, transitions=dysat.DySAT().transitions, seed=seed)
        if score is None:
            raise ValueError(f"{folder}: nothing to learn from before window {target}")
        measured = figures(partial(score.log_odds, past, target - 1), given)
        found[name] = {figure: measured[figure] for figure in FIGURES if figure in measured}
    forget_histories()
    return found


def means(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """The mean of each figure over the windows of each log, in points, by way, figure and log."""
    found: dict[str, dict[str, dict[str, float]]] = {way: {figure: {} for figure in FIGURES} for way in WAYS}
    for log in sorted({row["log"] for row in rows}):
        for way, figure in ((way, figure) for way in WAYS for figure in FIGURES):
            values = [row["ways"][way][figure] for row in rows if row["log"] == log and figure in row["ways"][way]]
            if values:
                found[way][figure][log] = 100 * fmean(values)
    return found


def show(rows: list[dict[str, Any]]) -> None:
    """Print the figures of the default, and the differences of the others with their standard errors."""
    found = means(rows)
    print(f"| mean over {len(next(iter(found[DEFAULT].values())))} logs | {' | '.join(FIGURES.values())} |")
    print(f"|---|{'---:|' * len(FIGURES)}")
    for way, by_figure in found.items():
        cells = []
        for figure, values in by_figure.items():
            base = found[DEFAULT][figure]
            apart = [values[log] - base[log] for log in values]
            error = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
            cells.append(f"{fmean(base.values()):.2f}" if way == DEFAULT else f"{fmean(apart):+.2f} ± {error:.2f}")
        print(f"| {way} | {' | '.join(cells)} |")


def main() -> None:
    """Measure, or print what a file has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=Path, metavar="FILE")
    parser.add_argument("--graphs", type=Path, metavar="FOLDER")
    parser.add_argument("--log", nargs="+", default=[], help="some logs of the development half; default: all of them")
    parser.add_argument("--windows", type=int, default=WINDOWS, help="windows to predict, the last ones")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.show:
        show(json.loads(args.show.read_text())["rows"])
        return
    record = json.loads(args.out.read_text()) if args.out.exists() else {"hardware": hardware(), "rows": []}
    done = {(row["log"], row["window"], row["seed"]) for row in record["rows"]}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # of the worker processes
    with worker_pool(args.processes, "windows") as pool:
        running = {}
        for log in chosen(args.graphs, DEVELOPMENT, args.log):
            for target in predicted(dysat.DynamicGraph.load(args.graphs / log), args.windows):
                if (log, target, args.seed) not in done:
                    running[pool.submit(window, str(args.graphs / log), target, args.seed)] = log, target
        for number, future in enumerate(as_completed(running), 1):
            log, target = running[future]
            row = {"log": log, "window": target, "seed": args.seed, "date": datetime.now(UTC).date().isoformat()}
            record["rows"].append({**row, "ways": future.result()})
            write(record, args.out)
            print(f"{number} of {len(running)}: {log} {target}", flush=True)


if __name__ == "__main__":
    main()
