"""Compare the reasons that `model.why` gives with the effects of leaving out each fact.

    python benchmarks/why.py [--out results/why.json]

The model is the default without embeddings, fitted to all snapshots of UCI. The pairs are its most likely links, and
random pairs. Leaving out a fact means that its features, and their ranks, are those of a random pair; the effect is the
score minus the mean over 30 such pairs. The top fact of a pair is the one with the largest effect, of either sign.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

BULK = 10_000  # pairs that are explained to measure the time


def measure(explainer: Any, model: Any, pairs: torch.Tensor) -> dict[str, Any]:
    """Compare both effects of all facts on these pairs."""
    from scipy.stats import rankdata

    found, left_out = explainer.effects(pairs), explainer.left_out(pairs)
    sums = found.effects.sum(1) + found.baseline
    order = np.argsort(-np.abs(found.effects), axis=1, kind="stable")
    other = np.argsort(-np.abs(left_out.effects), axis=1, kind="stable")
    ranks = [rankdata(each.effects, axis=1) for each in (found, left_out)]
    first = Counter(found.facts[fact] for fact in order[:, 0])
    return {
        "pairs": len(pairs),
        "same top fact": float((order[:, 0] == other[:, 0]).mean()),
        "top fact among the top two": float((order[:, :1] == other[:, :2]).any(1).mean()),
        "top fact among the top three": float((order[:, :1] == other[:, :3]).any(1).mean()),
        "same sign of the top fact": float(
            (np.sign(_at(found.effects, order)) == np.sign(_at(left_out.effects, order))).mean()
        ),
        "rank correlation": float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(*ranks, strict=True)])),
        "largest error of the sum": float(np.abs(sums - model.pair_scores(pairs).numpy()).max()),
        "top facts": dict(first.most_common()),
    }


def _at(effects: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The effect of the first fact of each pair."""
    return np.take_along_axis(effects, order[:, :1], axis=1)


def main() -> None:
    """Measure, print, and write a file."""
    import dysat
    from dysat.models.dysat import why_rows
    from dysat.models.forecast.why import LEFT_OUT, Explainer
    from dysat.system.hardware import hardware

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    graph = dysat.load_dataset("uci")
    model = dysat.DySAT(embeddings=False, seed=args.seed).fit(graph)
    drawn = np.random.default_rng(args.seed).integers(0, graph.num_nodes, (2 * args.pairs, 2))
    drawn = np.sort(drawn[drawn[:, 0] != drawn[:, 1]][: args.pairs], axis=1)
    explainer = Explainer(model.pair_score_, graph, len(graph) - 1)
    groups = {
        "top links": torch.from_numpy(model.top_links(args.pairs).ids.copy()),
        "top new links": torch.from_numpy(model.top_links(args.pairs, known="exclude").ids.copy()),
        "random pairs": torch.from_numpy(drawn),
    }
    rows = {name: measure(explainer, model, pairs) for name, pairs in groups.items()}
    many = np.random.default_rng(args.seed + 1).integers(0, graph.num_nodes, (BULK, 2))
    started = time.perf_counter()
    why_rows(model, many, 5)
    seconds = round(time.perf_counter() - started, 2)
    for name, row in rows.items():
        print(name, json.dumps(row, indent=1))
    print(f"{BULK:,} pairs with five reasons: {seconds} s")
    if args.out is not None:
        about = {"command": shlex.join(["python", *sys.argv]), "seed": args.seed, "graph": "uci"}
        about |= {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware()}
        about |= {"facts": len(explainer.facts), "random pairs per fact left out": LEFT_OUT}
        found = {**about, "rows": rows, "seconds for 10,000 pairs": seconds}
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
