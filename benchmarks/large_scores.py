"""AUC and MRR of the forecast on made-up large logs, beside boosting, regression and every heuristic.

    python benchmarks/large_scores.py --events 107000 1000000    # 10 minutes on two cores
    python benchmarks/large_scores.py --events 10000000          # half an hour

Each row is added to results/large_scores.json as soon as it is measured, in place of the one measured before.
Models learn from all snapshots but the last. AUC: links of the last snapshot among nodes known before it, against as
many random pairs. MRR: each of these links (20,000 at most) against 50 random partners of its first node, ties half.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import dysat
from dysat.evaluation.probe import auc
from dysat.experiments.scale import SIZES, made_graph
from dysat.system.hardware import hardware

METHODS = (
    *("dysat", "pair-boosting", "pair-logistic", "svd", "edge-memory", "edgebank", "last-snapshot"),
    *("degree-product", "degree-sum", "common-neighbours", "adamic-adar", "resource-allocation"),
)
OUT = Path(__file__).resolve().parents[1] / "results" / "large_scores.json"
MAX_LINKS, PARTNERS = 20_000, 50
Ids = NDArray[np.int64]


def pairs_of(graph: dysat.DynamicGraph) -> tuple[Ids, Ids, Ids]:
    """Return links of the last snapshot, as many random pairs, and random partners of the links' first nodes."""
    rng, known = np.random.default_rng(0), graph.known[-2]
    u, v = (part.numpy() for part in graph.snapshots[-1].links()[:2])
    links = np.stack([u, v], axis=1)[(u < v) & (v < known)]
    links = links[rng.permutation(len(links))[:MAX_LINKS]]
    others = rng.integers(0, known, (2 * len(links), 2))
    others = others[others[:, 0] != others[:, 1]][: len(links)]
    partners = np.stack([np.repeat(links[:, 0], PARTNERS), rng.integers(0, known, PARTNERS * len(links))], axis=1)
    return links, others, partners


def measure(model: dysat.models.LinkModel, graph: dysat.DynamicGraph) -> dict[str, float]:
    """Return AUC and MRR in percent."""
    pairs = pairs_of(graph)
    model.fit(graph[:-1])
    positive, negative, rest = (model.pair_scores(torch.from_numpy(each)) for each in pairs)
    labels = torch.cat([torch.ones(len(positive)), torch.zeros(len(negative))])
    own, rest = positive[:, None], rest.view(-1, PARTNERS)
    places = 1 + (rest > own).sum(1) + 0.5 * (rest == own).sum(1)
    return {
        "auc": 100 * auc(torch.cat([positive, negative]).double(), labels),
        "mrr": 100 * float((1 / places).mean()),
    }


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"type": int, "nargs": "+", "choices": list(SIZES), "default": [107_000]}
    parser.add_argument("--events", **sizes, help="events of each log")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    args = parser.parse_args()
    about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "seed": 0}
    for events in args.events:
        graph = made_graph(SIZES[events], events)
        for name in args.methods:
            model = dysat.DySAT(embeddings=False) if name == "dysat" else dysat.MODELS[name]()
            begun = time.perf_counter()
            row = {"events": events, "nodes": graph.num_nodes, "method": name, **measure(model, graph)}
            store({**row, "seconds": time.perf_counter() - begun, **about})
            print(f"{events:,} events  {name:22} AUC {row['auc']:.2f}  MRR {row['mrr']:.2f}", flush=True)


def store(row: dict[str, Any]) -> None:
    """Put a row into the results, in place of the one with the same log and method."""
    rows = json.loads(OUT.read_text())["rows"] if OUT.exists() else []
    rows = [each for each in rows if (each["events"], each["method"]) != (row["events"], row["method"])] + [row]
    rows.sort(key=lambda each: (each["events"], METHODS.index(each["method"])))
    OUT.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
