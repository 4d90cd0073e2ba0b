"""Would the product of the embeddings add to the forecast score? AUC and MRR of score + share · product.

    python benchmarks/embedding_share.py --graphs FOLDER --log hospital office --out results/embedding_share.json
    python benchmarks/embedding_share.py --show results/embedding_share.json

FOLDER has graph folders, such as those of benchmarks/wide_logs.py. For each of the last windows, the default model
learns from the windows before. The product is scaled to the standard deviation of the score. Finished logs are stored
in the --out file and not computed again.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import dysat
from dysat.evaluation.probe import auc
from dysat.evaluation.protocols import single_step
from dysat.evaluation.ranking import candidate_pairs, drawn_ranking, mrr, ranks
from dysat.runs.backtest import incomplete
from dysat.system.hardware import hardware

SHARES = (0.0, 0.1, 0.25, 0.5, 1.0)
ALONE = "product alone"


def measure(graph: dysat.DynamicGraph, target: int, seed: int) -> dict[str, tuple[float, float]] | None:
    """AUC and MRR for every share, and of the product alone; None if the window cannot be ranked."""
    split = single_step(graph, target - 1, seed=seed)
    if (drawn := drawn_ranking(graph, split)) is None:
        return None
    links, others = split.pairs[drawn[0]], drawn[1]
    model = dysat.DySAT(seed=seed).fit(graph[:target])
    pairs = torch.cat([split.pairs, links, candidate_pairs(links, others)])
    score = model.pair_scores(pairs).double().cpu()
    product = super(dysat.DySAT, model).pair_scores(pairs).double().cpu()
    number = len(split.pairs)
    product *= score[:number].std() / product[:number].std()
    mixed = {f"{share:g}": score + share * product for share in SHARES} | {ALONE: product}
    found = {}
    for name, values in mixed.items():
        own, above, below = torch.split(values, [number, len(links), others.numel()])
        found[name] = auc(own, split.labels), mrr(ranks(above, below.view_as(others)))
    return found


def of_log(folder: Path, windows: int, seed: int) -> dict[str, Any]:
    """The means over the last windows of a log."""
    graph = dysat.DynamicGraph.load(folder)
    stop = len(graph) - incomplete(graph)
    found = []
    for target in range(stop - windows, stop):
        try:
            found.append(measure(graph, target, seed))
        except dysat.DysatError:
            continue  # a window without links
    rows = [row for row in found if row is not None]
    means = {name: [fmean(row[name][k] for row in rows) for k in (0, 1)] for name in rows[0]} if rows else {}
    return {"windows": len(rows), "seed": seed, "date": datetime.now(UTC).date().isoformat(), "means": means}


def show(logs: dict[str, Any]) -> None:
    """Print MRR and AUC in per cent, and the means over all logs."""
    names = [*(f"{share:g}" for share in SHARES), ALONE]
    print(f"| MRR (AUC) | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    rows = {log: facts["means"] for log, facts in logs.items() if facts["means"]}
    rows["mean"] = {name: [fmean(row[name][k] for row in rows.values()) for k in (0, 1)] for name in names}
    for log, means in rows.items():
        cells = (f"{100 * means[name][1]:.1f} ({100 * means[name][0]:.2f})" for name in names)
        print(f"| {log} | {' | '.join(cells)} |")


def main() -> None:
    """Measure, or print what a file has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--graphs", type=Path)
    parser.add_argument("--log", nargs="+", default=[])
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.show:
        show(json.loads(args.show.read_text())["logs"])
        return
    record = json.loads(args.out.read_text()) if args.out.exists() else {"hardware": hardware(), "logs": {}}
    for log in args.log:
        if log not in record["logs"]:
            record["logs"][log] = of_log(args.graphs / log, args.windows, args.seed)
            temporary = args.out.with_suffix(".new")
            temporary.write_text(json.dumps(record, indent=1) + "\n")
            temporary.replace(args.out)
            print(log, record["logs"][log], flush=True)


if __name__ == "__main__":
    main()
