"""Evaluate the default model, compare it with boosting on past transitions, and measure what each of its parts adds.

    python benchmarks/forecasting.py --graphs FOLDER --dataset uci enron --processes 2 --out results/forecasting.json
    python benchmarks/forecasting.py --graphs FOLDER --dataset enron --parts --out results/forecasting_parts.json
    python benchmarks/forecasting.py --graphs FOLDER --own-labels --out results/forecasting_own.json
    python benchmarks/forecasting.py --show results/forecasting.json

FOLDER holds graph folders named after the datasets, or others (benchmarks/unseen.py builds some). For every predicted
snapshot one model is fitted on the snapshots before it, for all its epochs: no label of the predicted snapshot is used
to select anything. The embeddings are evaluated with the paper's probe, which is trained on a fifth of these labels.
The pair score is evaluated as it is: on single-step links, on new links, against historical negatives (all links, and
repeated links only), and by ranking a link among 100 random nodes (MRR).

--parts removes each part of the model in turn. --own-labels trains the pair score on labels that no forecast can know:
either four fifths of the examples of the predicted snapshot (and tested on the remaining fifth), or all other
transitions of the graph, including later ones. This shows what the features could achieve if past and future did not
differ, or if there were more past. --forecast-only fits no embeddings. --heuristics adds other methods without
training. Finished steps are stored in the --out file and not computed again.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import as_completed
from datetime import UTC, datetime
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

from dysat.data.datasets import DATASETS
from dysat.errors import DysatError

OWN, OTHERS = "own labels", "all other transitions"
FORECAST = "forecast only"
HEURISTICS = ("edgebank", "edge-memory", "degree-product", "degree-sum", "common-neighbours", "pair-logistic")
LAST, LEAST = 8, 20  # for other graphs: number of predicted snapshots, and minimum number of links of each
PARTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "without activity": {"activity": False},
    "without spectrum": {"spectrum": 0},
    "without identity": {"inputs": "features"},
    "absolute positions": {"positions": "absolute"},
    "without the future": {"future_weight": 0.0},
    "without agreement": {"agreement": 0.0},
    "without the pair score": {"pair_score": False},
    "without neighbours": {"blocks": "temporal"},
    "without history": {"blocks": "structural"},
}


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Fit and evaluate one model at one step."""

    import dysat
    from dysat.system.parallel.process import keep_freed_memory

    keep_freed_memory()
    graph, target = dysat.DynamicGraph.load(task["graph"]), task["target"]
    begin = time.perf_counter()
    if task["model"] in (OWN, OTHERS):
        hindsight = own_labels if task["model"] == OWN else all_others
        return {"score": hindsight(graph, target, task["seed"]), "seconds": round(time.perf_counter() - begin, 2)}
    if task["model"] in dysat.MODELS:
        model: Any = dysat.MODELS[task["model"]]()
    else:
        options = {"embeddings": False} if task["model"] == FORECAST else PARTS[task["model"]]
        model = dysat.DySAT(device=task["device"], seed=task["seed"], **options)
    try:
        model.fit(graph[:target])
    except DysatError as problem:
        return {"problem": str(problem)}
    seconds = round(time.perf_counter() - begin, 2)
    epochs = [epoch.seconds for epoch in getattr(model, "epochs_", [])]
    found = figures(model, graph, target, task["seed"])
    return {**found, "seconds": seconds, "seconds_of_epochs": round(sum(epochs), 2)}


def own_labels(graph: Any, target: int, seed: int) -> float:
    """AUC of the pair score on the examples of a snapshot, by 5-fold cross-validation on these examples."""
    import numpy as np
    import torch

    from dysat.evaluation.probe import evaluate_scores
    from dysat.models.forecast.examples import Examples

    split, three_step, features, ranks, _ = examples_with_features(graph, target, seed)
    labels = split.labels.numpy()
    part, never = np.random.default_rng(seed).permutation(len(labels)) % 5, np.zeros(len(labels), dtype=bool)
    scores = np.zeros(len(labels))
    for k in range(5):
        rows = np.concatenate([np.flatnonzero((part != k) & (labels == is_link)) for is_link in (True, False)])
        number = {"num_links": int(labels[rows].sum()), "num_uniform": len(rows), "num_unlinked": len(rows)}
        number |= {"num_added": 0, "num_dropped": 0}
        score = by_rule([Examples(features[rows], ranks[rows], never[rows], **number)], three_step, seed)
        scores[part == k] = score.raw(features[part == k], ranks[part == k], never[part == k])
    return evaluate_scores(torch.from_numpy(scores), split).auc


def all_others(graph: Any, target: int, seed: int) -> float:
    """AUC of the pair score on the examples of a snapshot, trained on the transitions to all other snapshots."""
    import torch

    from dysat.evaluation.probe import evaluate_scores
    from dysat.models.forecast.examples import examples_of, recent_transitions

    split, three_step, features, ranks, linked = examples_with_features(graph, target, seed)
    steps = [last for last in recent_transitions(graph.snapshots, len(graph)) if last != target]
    examples = [examples_of(graph, graph.snapshots[: last + 1], three_step, 3, seed) for last in steps]
    score = by_rule(examples, three_step, seed)
    return evaluate_scores(torch.from_numpy(score.raw(features, ranks, linked)), split).auc


def by_rule(examples: Any, three_step: bool, seed: int) -> Any:
    """A pair score learned from some examples, whose parts are mixed by the rule."""
    from dysat.models.forecast.mixture import rule
    from dysat.models.forecast.pair_score import PairScore
    from dysat.models.forecast.parts import learn_parts

    parts = learn_parts(examples, seed)
    return PairScore.mixed(parts, rule(parts.num_links), three_step)


def examples_with_features(graph: Any, target: int, seed: int) -> Any:
    """The examples of a snapshot, with the features of the pair score computed from the snapshots before it.

    Returns the split, whether three-step paths are used, features, their ranks, and which pairs were linked before.
    """
    import numpy as np

    from dysat.evaluation.protocols import link_split
    from dysat.features.pair_attributes import differ_in_kind
    from dysat.features.pair_history import chunks, history_of
    from dysat.models.forecast.pair_score import THREE_STEP_NODES

    split, three_step = link_split(graph, target - 1, seed=seed), graph.known[target - 1] < THREE_STEP_NODES
    pairs = np.sort(split.pairs.numpy(), axis=1)
    history = history_of(graph, target - 1, three_step)
    parts = [history.features(part) for part in chunks(pairs)]
    columns, once = (np.concatenate(part) for part in zip(*parts, strict=True))
    features = np.column_stack([columns, differ_in_kind(graph, pairs)])
    return split, three_step, features, history.ranks(columns), once


def figures(model: Any, graph: Any, target: int, seed: int) -> dict[str, float]:
    """AUC of embeddings and pair score, AUC of the score on harder examples, and MRR."""
    from dataclasses import replace

    import torch

    from dysat.evaluation.hard_negatives import with_negatives
    from dysat.evaluation.probe import evaluate_probe, evaluate_scores
    from dysat.evaluation.protocols import link_split
    from dysat.evaluation.ranking import mrr, ranking_candidates, ranks
    from dysat.features.pair_history import pair_history

    split = link_split(graph, target - 1, seed=seed)
    found = {"score": evaluate_scores(model.pair_scores(split.pairs), split).auc}
    if hasattr(model, "embed") and getattr(model, "embeddings", True):
        found["embeddings"] = evaluate_probe(model.embed().cpu(), split).auc
    for name, options in (("new links", {"protocol": "new-links"}), ("historical", {})):
        try:
            other = link_split(graph, target - 1, seed=seed, **options)
            hard = other if options else with_negatives(other, graph, "historical", seed)
            scores = model.pair_scores(hard.pairs)
            found[name] = evaluate_scores(scores, hard).auc
            if not options:  # repeated links only
                history = pair_history(graph.snapshots[:target], True)
                linked = torch.from_numpy(history.find(hard.pairs.numpy()) < len(history.keys))
                again = evaluate_scores(scores, replace(hard, test=hard.test & linked)).auc
                found |= {} if isnan(again) else {"again": again}
        except DysatError:
            continue  # too few examples
    try:
        others = ranking_candidates(graph, split, 100, seed)
    except DysatError:
        return found  # fewer nodes than candidates
    links = split.pairs[split.labels]
    pairs = torch.stack([links[:, :1].expand_as(others), others], 2).flatten(0, 1)
    rank = ranks(model.pair_scores(links).double(), model.pair_scores(pairs).double().view_as(others))
    return {**found, "mrr": mrr(rank)}


def sweep(args: argparse.Namespace) -> None:
    """Run everything that the file does not have yet."""
    from dysat.system.hardware import hardware
    from dysat.system.parallel.pool import worker_pool

    rows = json.loads(args.out.read_text())["rows"] if args.out.exists() else []
    done = {(row["dataset"], row["model"], row["target"], row["seed"]) for row in rows}
    usual = [FORECAST] if args.forecast_only else ["whole", "pair-boosting"]
    models = [OWN, OTHERS] if args.own_labels else list(PARTS) if args.parts else usual
    models += HEURISTICS if args.heuristics else ()
    waiting = []
    for dataset in args.dataset:
        for target in args.targets or predicted(args.graphs, dataset):
            for model in models:
                key = (dataset, model, target, args.seed)
                if key not in done:
                    task = dict(zip(("dataset", "model", "target", "seed"), key, strict=True))
                    waiting.append({**task, "graph": str(args.graphs / dataset), "device": args.device})
    order = {"ml-10m": 0, "yelp": 1, "uci": 2, "enron": 3}
    waiting.sort(key=lambda task: (order.get(task["dataset"], 4), -task["target"]))
    begin = time.monotonic()
    with worker_pool(args.processes, "rows") as pool:
        running = {pool.submit(measure, task): task for task in waiting}
        for number, future in enumerate(as_completed(running)):
            task = running[future]
            about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "device": args.device}
            keep = {key: task[key] for key in ("dataset", "model", "target", "seed")}
            rows.append({**keep, **future.result(), **about})
            temporary = args.out.with_suffix(".new")
            temporary.write_text(json.dumps({"command": "benchmarks/forecasting.py", "rows": rows}, indent=1) + "\n")
            temporary.replace(args.out)
            print(round(time.monotonic() - begin), number + 1, len(waiting), rows[-1], flush=True)


def predicted(graphs: Path, dataset: str) -> list[int]:
    """The snapshots that the paper predicts; for other graphs, the last ones with enough links."""
    if dataset in DATASETS:
        return list(DATASETS[dataset].predicted)
    from dysat.data.graph import DynamicGraph

    graph = DynamicGraph.load(graphs / dataset)
    return [t for t in range(2, len(graph)) if graph[t].num_links >= LEAST][-LAST:]


def show(files: list[Path]) -> None:
    """Print means over the predicted snapshots that all models of a dataset have in common."""
    rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        mine = [row for row in rows if row["dataset"] == dataset]
        models = list(dict.fromkeys(row["model"] for row in mine))
        steps = {model: {row["target"] for row in mine if row["model"] == model and "score" in row} for model in models}
        common = set.intersection(*steps.values())
        print(f"\n{dataset}: snapshots {sorted(common)}")
        for model in models:
            shared = [row for row in mine if row["model"] == model and row["target"] in common]
            cells = []
            for name in ("embeddings", "score", "new links", "historical", "again", "mrr", "seconds"):
                values = [row[name] for row in shared if name in row]
                scale = 1 if name == "seconds" else 100
                cells.append(f"{scale * fmean(values):.2f}" if values else "–")
            print(f"| {model} | {' | '.join(cells)} |")


def main() -> None:
    """Run, or print the means of existing files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=Path, nargs="+")
    parser.add_argument("--graphs", type=Path)
    parser.add_argument("--dataset", nargs="+", default=list(DATASETS), help="folders in --graphs")
    parser.add_argument("--targets", nargs="+", type=int, help="snapshots to predict; default: the paper's")
    parser.add_argument("--parts", action="store_true", help="remove each part of the model in turn")
    parser.add_argument("--own-labels", action="store_true", help="train the pair score on labels no forecast can know")
    parser.add_argument("--forecast-only", action="store_true", help="learn the pair score without embeddings")
    parser.add_argument("--heuristics", action="store_true", help="also evaluate heuristics other than boosting")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.show:
        show(args.show)
    elif args.graphs and args.out:
        sweep(args)
    else:
        parser.error("expected --graphs and --out, or --show")


if __name__ == "__main__":
    main()
