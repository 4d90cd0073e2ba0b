"""Would weights that follow the log rank better than the fixed weights of the pair score?

    python benchmarks/weights.py --graphs GRAPHS --processes 2 --out results/weights.json
    python benchmarks/weights.py --show results/weights.json

GRAPHS comes from benchmarks/wide_logs.py; only logs of the development half are opened. For each of the last eight
windows of a log, the pair score learns from the windows before it, and its parts (regression, trees, the regression
of repeated pairs) and four heuristics are stored for the links of the window and the nodes they are ranked among. Two
ways to use how well each ranked past windows of the same log are then compared with the fixed weights, on the last
four windows:

- stacked: weights of all parts and heuristics, separately for new pairs and for pairs linked before, that minimise the
  softmax loss of the links of the last one or three windows before, with a penalty on weights far from the fixed ones.
- floor: the mix of the score and one other expert (a part or a heuristic, with a share of ¼, ½ or 1) that ranked the
  last one or three windows before best, if it was better by more than twice its standard error.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from forecasting_wide import DEVELOPMENT_LOGS, examples, predicted, write
from numpy.typing import NDArray
from scipy.optimize import minimize

import dysat
from dysat.evaluation.probe import auc
from dysat.evaluation.ranking import candidate_pairs, ranks
from dysat.features.pair_attributes import with_attributes
from dysat.features.pair_history import chunks, pair_history, sorted_ends
from dysat.models import MODELS
from dysat.models.forecast.pair_score import PairScore
from dysat.system.hardware import hardware
from dysat.system.parallel.pool import THREAD_VARIABLES, worker_pool

Reals = NDArray[np.float64]
WINDOWS, TESTED = 8, 4
HEURISTICS = ("edge-memory", "degree-product", "resource-allocation", "svd")
PENALTY = 30.0  # per window
SHARES = (0.25, 0.5, 1.0)
ERRORS = 2.0  # standard errors by which an expert must be better
LARGEST = 4.0  # deviations of a heuristic
FIGURES = ("AUC", "MRR", "new-link MRR")


class Window(NamedTuple):
    """The parts of a score on the examples of one window.

    Shapes:
        labels [B]; before [R]: linked before; logistic, trees, recurring and each of the heuristics [R], of which the
        first B belong to the labels; the others are lists of a link and the nodes it is ranked among, all links first,
        then new links; lists: number and length of each
    """

    labels: NDArray[np.bool_]
    before: NDArray[np.bool_]
    logistic: Reals
    trees: Reals
    recurring: Reals
    heuristics: dict[str, Reals]
    lists: tuple[tuple[int, int], ...]
    tree_share: float
    recurring_share: float
    recurring_shift: float

    @property
    def both(self) -> Reals:
        """Regression and trees with their fixed weights.  # [R]"""
        return (1 - self.tree_share) * self.logistic + self.tree_share * self.trees

    def repeated(self, score: Reals, share: float) -> Reals:
        """A score with a share of the recurring model for pairs linked before.  # [R] → [R]"""
        return np.where(self.before, (1 - share) * score + share * self.recurring + self.recurring_shift, score)

    def fixed(self) -> Reals:
        """The score with fixed weights.  # [R]"""
        return self.repeated(self.both, self.recurring_share)

    def experts(self) -> dict[str, Reals]:
        """What the floor may mix with the score, on its scale.  # [R] each"""
        score, size = self.fixed(), len(self.labels)
        spread = score[:size][~self.labels].std()
        return {
            "regression": self.repeated(self.logistic, self.recurring_share),
            "trees": self.repeated(self.trees, self.recurring_share),
            "recurring": self.repeated(self.both, 1.0),
            **{name: spread * values for name, values in self.heuristics.items()},
        }

    def columns(self) -> Reals:
        """What stacked weights multiply; all weights 0 leave the score as it is.  # [R, k]"""
        more = self.trees - self.logistic
        every = [2.0 * self.before, (self.recurring - self.both) * self.before]
        for values in (more, *self.heuristics.values()):
            every += [values * ~self.before, values * self.before]
        return np.stack(every, axis=1)

    def in_lists(self, values: Reals) -> list[Reals]:
        """Rows of all lists.  # [R, ...] → [P, K, ...] each"""
        found, first = [], len(self.labels)
        for number, length in self.lists:
            found.append(values[first : first + number * length].reshape(number, length, *values.shape[1:]))
            first += number * length
        return found

    def figures(self, score: Reals) -> list[float]:
        """AUC, MRR and new-link MRR.  # [R]"""
        size = len(self.labels)
        own = auc(torch.from_numpy(score[:size]), torch.from_numpy(self.labels))
        ranked = (reciprocal_ranks(rows) for rows in self.in_lists(score))
        return [own, *(float(each.mean()) if len(each) else float("nan") for each in ranked)]


def reciprocal_ranks(rows: Reals) -> Reals:
    """1 / rank of the first of each row; ties count half.  # [P, K] → [P]"""
    scores = torch.from_numpy(rows)
    found: Reals = 1 / ranks(scores[:, 0], scores[:, 1:]).double().numpy()
    return found


def window(folder: str, target: int, seed: int) -> Window:
    """Learn from the windows before a target, and compute all parts on its examples."""
    graph = dysat.DynamicGraph.load(folder)
    given, past = examples(graph, target, seed), graph[:target]
    pairs, lists = [given.pairs], []
    for part in (given.ranked, given.new_ranked):
        links, others = part if part is not None else (given.pairs[:0], given.pairs[:0])
        each = torch.cat([links.unsqueeze(1), candidate_pairs(links, others).view(*others.shape, 2)], dim=1)
        pairs.append(each.flatten(0, 1))
        lists.append((each.shape[0], each.shape[1]))
    every = torch.cat(pairs)
    score = PairScore.learn(past, transitions=dysat.DySAT().transitions, seed=seed)
    if score is None:
        raise ValueError(f"{folder}: nothing to learn from before window {target}")
    ends = sorted_ends(every.numpy(), past.known[-1], directed=past.directed)
    history = pair_history(past.snapshots, score.three_step)
    history.prepare()
    columns, before = (np.concatenate(part) for part in zip(*map(history.features, chunks(ends)), strict=True))
    features = with_attributes(columns, past, target - 1, ends)
    standard = score.standard(features, history.ranks(columns))
    logistic, recurring = (standard @ score.weights.mT + score.bias).numpy().T
    negative = np.flatnonzero(~given.labels.numpy())
    heuristics = {}
    for name in HEURISTICS:
        values = MODELS[name]().fit(past).pair_scores(every).double().numpy()
        values = values if name == "svd" else np.log1p(values)
        deviations = (values - values[negative].mean()) / (values[negative].std() + 1e-9)
        heuristics[name] = deviations.clip(-LARGEST, LARGEST)
    shares = (score.tree_share, score.recurring_share, score.recurring_shift)
    trees = score.trees.sum(features)
    return Window(given.labels.numpy(), before, logistic, trees, recurring, heuristics, tuple(lists), *shares)


def stacked(number: int, past: Sequence[Window], now: Window) -> Reals:
    """The score with weights that rank the links of the last windows best.  # [R]"""
    used = past[-number:]
    lists = [(each.in_lists(each.columns())[0], each.in_lists(each.fixed())[0]) for each in used]
    weights = np.zeros(now.columns().shape[1])

    def loss(weights: Reals) -> tuple[float, Reals]:
        total, slope = 0.5 * PENALTY * len(used) * weights @ weights, PENALTY * len(used) * weights
        for columns, fixed in lists:
            rows = fixed + columns @ weights
            chance = np.exp(rows - rows.max(axis=1, keepdims=True, initial=-np.inf))
            chance /= chance.sum(axis=1, keepdims=True)
            total -= np.log(chance[:, 0]).sum()
            slope = slope + np.einsum("pk,pkj->j", chance, columns) - columns[:, 0].sum(axis=0)
        return total, slope

    return now.fixed() + now.columns() @ minimize(loss, weights, jac=True, method="L-BFGS-B").x


def floor(number: int, past: Sequence[Window], now: Window) -> Reals:
    """The mix with the expert that ranked the last windows best, if it was clearly better than the score.  # [R]"""
    used = past[-number:]
    ours = np.concatenate([reciprocal_ranks(each.in_lists(each.fixed())[0]) for each in used])
    best, most = now.fixed(), ERRORS
    for name, expert in now.experts().items():
        for share in SHARES:
            mixed = [(1 - share) * each.fixed() + share * each.experts()[name] for each in used]
            ranked = [reciprocal_ranks(each.in_lists(rows)[0]) for each, rows in zip(used, mixed, strict=True)]
            gain = np.concatenate(ranked) - ours
            errors = gain.mean() / (gain.std() / np.sqrt(len(gain)) + 1e-12) if len(gain) else 0.0
            if errors > most:
                best, most = (1 - share) * now.fixed() + share * expert, errors
    return best


WAYS: Mapping[str, Callable[[Sequence[Window], Window], Reals]] = {
    "fixed": lambda past, now: now.fixed(),
    **{f"{way.__name__}, {number}": partial(way, number) for way in (stacked, floor) for number in (1, 3)},
}


def of_log(windows: Sequence[Window], seed: int) -> dict[str, Any]:
    """The means of all figures over the last windows of a log, in points."""
    found: dict[str, list[list[float]]] = {name: [] for name in WAYS}
    for at in range(max(1, len(windows) - TESTED), len(windows)):
        for name, way in WAYS.items():
            found[name].append(windows[at].figures(way(windows[:at], windows[at])))
    means = {name: [round(100 * float(mean), 4) for mean in np.nanmean(rows, axis=0)] for name, rows in found.items()}
    return {"windows": len(found["fixed"]), "seed": seed, "date": datetime.now(UTC).date().isoformat(), "means": means}


def show(logs: Mapping[str, Any]) -> None:
    """Print the figures with fixed weights, and the differences of the others."""
    print(f"{', '.join(FIGURES)} in per cent with fixed weights; differences with weights that follow the log.\n")
    print(f"| | {' | '.join(WAYS)} |\n|---|{'---:|' * len(WAYS)}")
    rows = {log: facts["means"] for log, facts in sorted(logs.items())}
    rows["**mean**"] = {name: [fmean(row[name][k] for row in rows.values()) for k in range(3)] for name in WAYS}
    for log, means in rows.items():
        base = means["fixed"]
        cells = [" ".join(f"{value:.1f}" for value in base)]
        cells += [" ".join(f"{a - b:+.2f}" for a, b in zip(means[name], base, strict=True)) for name in [*WAYS][1:]]
        print(f"| {log} | {' | '.join(cells)} |")


def main() -> None:
    """Measure, or print what a file has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=Path, metavar="FILE")
    parser.add_argument("--graphs", type=Path, metavar="FOLDER")
    parser.add_argument("--log", nargs="+", default=sorted(DEVELOPMENT_LOGS), choices=sorted(DEVELOPMENT_LOGS))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.show:
        show(json.loads(args.show.read_text())["logs"])
        return
    record = json.loads(args.out.read_text()) if args.out.exists() else {"hardware": hardware(), "logs": {}}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # of the worker processes
    waiting = [log for log in args.log if log not in record["logs"]]
    with worker_pool(args.processes, "windows") as pool:
        running = {}
        for log in waiting:
            targets = predicted(dysat.DynamicGraph.load(args.graphs / log), WINDOWS)
            running[log] = [pool.submit(window, str(args.graphs / log), target, args.seed) for target in targets]
        for log, futures in running.items():
            record["logs"][log] = of_log([future.result() for future in futures], args.seed)
            write(record, args.out)
            print(log, record["logs"][log]["means"], flush=True)


if __name__ == "__main__":
    main()
