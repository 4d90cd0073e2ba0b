"""Compare the reasons that `model.why` gives with the effects of leaving out each fact.

    python benchmarks/why.py [--out results/why.json]

The model is the default without embeddings, fitted to all snapshots of UCI, and of the three synthetic worlds of
benchmarks/made_up.py. The pairs are its most likely links, its most likely new links, and random pairs. Leaving out a
fact means that its features, and their ranks, are those of a random pair; the effect is the score minus the mean over
30 such pairs. The top fact of a pair is the one with the largest effect, of either sign.
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


def measure_graph(graph: Any, number: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """Fit a model, and compare effects on likely links, likely new links and random pairs."""
    import dysat
    from dysat.models.forecast.why import Explainer

    model = dysat.DySAT(embeddings=False, seed=seed).fit(graph)
    drawn = np.random.default_rng(seed).integers(0, graph.num_nodes, (2 * number, 2))
    drawn = np.sort(drawn[drawn[:, 0] != drawn[:, 1]][:number], axis=1)
    explainer = Explainer(model.pair_score_, graph, len(graph) - 1)
    groups = {
        "top links": torch.from_numpy(model.top_links(number).ids.copy()),
        "top new links": torch.from_numpy(model.top_links(number, known="exclude").ids.copy()),
        "random pairs": torch.from_numpy(drawn),
    }
    return model, {name: measure(explainer, model, pairs) for name, pairs in groups.items()}


def main() -> None:
    """Measure, print, and write a file."""
    from made_up import WORLDS

    import dysat
    from dysat.models.dysat import why_rows
    from dysat.models.forecast.why import LEFT_OUT
    from dysat.system.hardware import hardware

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    graph = dysat.load_dataset("uci")
    model, rows = measure_graph(graph, args.pairs, args.seed)
    many = np.random.default_rng(args.seed + 1).integers(0, graph.num_nodes, (BULK, 2))
    started = time.perf_counter()
    why_rows(model, many, 5)
    seconds = round(time.perf_counter() - started, 2)
    found = {"uci": rows}
    for name, world in WORLDS.items():
        columns = tuple(map(list, zip(*world(np.random.default_rng(args.seed)), strict=True)))
        made_up = dysat.build_snapshots(dysat.read_events(columns, time_unit="step"), every=1)
        found[name] = measure_graph(made_up, args.pairs, args.seed)[1]
    for name, each in found.items():
        for pairs, row in each.items():
            print(name, pairs, json.dumps(row))
    print(f"{BULK:,} pairs of UCI with five reasons: {seconds} s")
    if args.out is not None:
        about = {"command": shlex.join(["python", *sys.argv]), "seed": args.seed}
        about |= {"date": datetime.now(UTC).date().isoformat(), "hardware": hardware()}
        about |= {"random pairs per fact left out": LEFT_OUT, "seconds for 10,000 pairs of uci": seconds}
        args.out.write_text(json.dumps({**about, "graphs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
