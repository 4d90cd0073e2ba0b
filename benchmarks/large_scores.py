"""AUC and MRR of the forecast on made-up large logs, beside boosting, regression and every heuristic.

    python benchmarks/large_scores.py --largest 1000000    # minutes on two cores; writes results/large_scores.json

Models learn from all snapshots but the last. AUC: links of the last snapshot among nodes known before it, against as
many random pairs. MRR: each of these links (20,000 at most) against 50 random partners of its first node, ties half.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

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
    parser.add_argument("--largest", type=int, default=107_000, help="events of the largest log")
    args = parser.parse_args()
    rows = []
    for events, nodes in SIZES.items():
        if events > args.largest:
            break
        graph = made_graph(nodes, events)
        for name in METHODS:
            model = dysat.DySAT(embeddings=False) if name == "dysat" else dysat.MODELS[name]()
            row = {"events": events, "nodes": graph.num_nodes, "method": name, **measure(model, graph)}
            rows.append(row)
            print(f"{events:,} events  {name:22} AUC {row['auc']:.2f}  MRR {row['mrr']:.2f}", flush=True)
    about = {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware(), "seed": 0}
    about["command"] = f"python benchmarks/large_scores.py --largest {args.largest}"
    OUT.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
