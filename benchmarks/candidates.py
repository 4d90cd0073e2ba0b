"""Recall and seconds of `top_links`: how many of the most likely pairs of all pairs are among its candidates.

    python benchmarks/candidates.py            # UCI, about a minute on two cores
    python benchmarks/candidates.py log.csv --every 4w

All pairs of nodes are scored, so this is for graphs of a few thousand nodes.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import dysat

TOP = (10, 100, 1_000)


def main() -> None:
    """Score all pairs, then compare `top_links` with the best of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default="uci", help="a dataset, or a log of events")
    parser.add_argument("--every", default="1w", help="length of a window, for a log")
    args = parser.parse_args()
    if args.source in dysat.DATASETS:
        graph = dysat.load_dataset(args.source)
    else:
        graph = dysat.build_snapshots(dysat.read_events(args.source), every=args.every)
    model = dysat.DySAT(embeddings=False).fit(graph).prepare()
    u, v = np.triu_indices(graph.num_nodes, 1)
    if graph.kinds is not None:
        across = graph.kinds[u] != graph.kinds[v]
        u, v = u[across], v[across]
    pairs = torch.from_numpy(np.stack([u, v], axis=1))
    order = model.score_links(pairs, ids=True).sort(descending=True, stable=True).indices
    best = pairs[order[: max(TOP)]]
    print(f"{len(pairs):,} pairs of {graph.num_nodes:,} nodes")
    for k in TOP:
        began = time.perf_counter()
        found = model.top_links(k)
        seconds = time.perf_counter() - began
        chosen = {frozenset(graph.pair_ids([(link.u, link.v)])[0].tolist()) for link in found}
        recall = np.mean([frozenset(pair) in chosen for pair in best[:k].tolist()])
        print(f"top {k:,}: recall {recall:.3f}, {seconds:.2f} s")


if __name__ == "__main__":
    main()
