"""Compare ranking by score with ranking by probability, and real probabilities with what came true.

    python benchmarks/calibration.py [--graph FOLDER] [--first 8 --last 12] [--out results/calibration.json]

For each predicted snapshot a pair score is learned from the snapshots before it, without embeddings. Without --graph
the graph is UCI.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

TOP = 100


def measure(graph: Any, target: int) -> dict[str, float]:
    """Measure one predicted snapshot; all figures in per cent."""
    import dysat
    from dysat.evaluation.hard_negatives import with_negatives
    from dysat.evaluation.probe import auc
    from dysat.evaluation.protocols import link_pairs, single_step

    model, split = dysat.DySAT(embeddings=False).fit(graph[:target]), single_step(graph, target - 1)
    row: dict[str, float] = {"snapshot": target}
    for kind in ("uniform", "historical"):
        examples = with_negatives(split, graph, kind)
        pairs, labels = examples.pairs[examples.test[0]], examples.labels[examples.test[0]]
        row[f"{kind} score"] = 100 * auc(model.pair_scores(pairs), labels)
        row[f"{kind} probability"] = 100 * auc(model.score_links(pairs, ids=True), labels)
    links = model._pair_keys(torch.from_numpy(link_pairs(graph[target], graph.known[target - 1])))
    for name, known in (("all", "include"), ("new", "exclude")):
        found = model.top_links(TOP, known=known)
        real = model.top_links(TOP, known=known, calibrate="real")
        came = torch.isin(model._pair_keys(torch.tensor(found.ids)), links)
        row[f"{name} score"], row[f"{name} real"] = 100 * found.scores.mean(), 100 * real.scores.mean()
        row[f"{name} came true"] = 100 * came.double().mean().item()
    return {name: round(float(value), 2) for name, value in row.items()}


def main() -> None:
    """Measure, print, and append to a file."""
    import dysat
    from dysat.system.hardware import hardware

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path)
    parser.add_argument("--first", type=int, default=8)
    parser.add_argument("--last", type=int, default=12)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    graph = dysat.load_dataset("uci") if args.graph is None else dysat.DynamicGraph.load(args.graph)
    rows = []
    for target in range(args.first, args.last + 1):
        rows.append(measure(graph, target))
        print(rows[-1], flush=True)
    means = {name: round(fmean(row[name] for row in rows), 2) for name in rows[0] if name != "snapshot"}
    print(means)
    if args.out is not None:
        runs = json.loads(args.out.read_text())["runs"] if args.out.exists() else []
        about = {"graph": "uci" if args.graph is None else args.graph.name, "hardware": hardware()}
        found = {**about, "date": datetime.now(UTC).date().isoformat(), "rows": rows, "means": means}
        text = json.dumps({"command": "benchmarks/calibration.py", "runs": [*runs, found]}, indent=1)
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
