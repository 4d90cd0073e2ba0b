"""Recall and seconds of `top_links`: how many of the most likely pairs of all pairs are among its candidates.

    python benchmarks/candidates.py                                   # UCI, about a minute on two cores
    python benchmarks/candidates.py log.csv --every 4w
    python benchmarks/candidates.py --made 100000 1000000 --nodes 100  # partners of 100 nodes, about five minutes

All pairs of nodes are scored, so the first two are for graphs of a few thousand nodes. With --nodes, some nodes are
drawn and scored with all others; the candidates are those of `top_links(each=True)`.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

import dysat
from dysat.experiments.scale import made_graph
from dysat.models.forecast import candidates

TOP = (10, 100, 1_000)


def main() -> None:
    """Score all pairs, then compare `top_links` with the best of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", default="uci", help="a dataset, or a log of events")
    parser.add_argument("--every", default="1w", help="length of a window, for a log")
    parser.add_argument("--made", type=int, nargs=2, metavar=("NODES", "EVENTS"), help="a made-up log instead")
    parser.add_argument("--nodes", type=int, help="number of nodes whose partners are compared")
    args = parser.parse_args()
    if args.made:
        graph = made_graph(*args.made)
    elif args.source in dysat.DATASETS:
        graph = dysat.load_dataset(args.source)
    else:
        graph = dysat.build_snapshots(dysat.read_events(args.source), every=args.every)
    model = dysat.DySAT(embeddings=False).fit(graph).prepare()
    print(f"{graph.num_nodes:,} nodes")
    if args.nodes:
        compare_partners(model, args.nodes)
    else:
        compare_pairs(model)


def compare_pairs(model: dysat.DySAT) -> None:
    """Compare the best pairs with those of all pairs."""
    graph = model.graph_
    u, v = np.triu_indices(graph.num_nodes, 1)
    if graph.kinds is not None:
        across = graph.kinds[u] != graph.kinds[v]
        u, v = u[across], v[across]
    pairs = torch.from_numpy(np.stack([u, v], axis=1))
    order = model.score_links(pairs, ids=True).sort(descending=True, stable=True).indices
    best = pairs[order[: max(TOP)]]
    for k in TOP:
        began = time.perf_counter()
        found = model.top_links(k)
        seconds = time.perf_counter() - began
        chosen = {frozenset(graph.pair_ids([(link.u, link.v)])[0].tolist()) for link in found}
        recall = np.mean([frozenset(pair) in chosen for pair in best[:k].tolist()])
        print(f"top {k:,}: recall {recall:.3f}, {seconds:.2f} s")


def compare_partners(model: dysat.DySAT, number: int, k: int = 10) -> None:
    """Compare the best partners of some nodes that have links with those of all partners, then time all nodes."""
    active = np.flatnonzero(candidates.latest_links(model.graph_, model.pair_score_.three_step).last_active >= 0)
    nodes = torch.from_numpy(np.sort(np.random.default_rng(0).choice(active, number, replace=False)))
    for known in ("include", "exclude"):
        without = model._linked() if known == "exclude" else None
        limits = candidates.ALL_PARTNERS_PAIRS, candidates.MAX_PRODUCTS
        candidates.ALL_PARTNERS_PAIRS = model.graph_.num_nodes * number
        exact = model.top_pairs(k, nodes, without)[0]
        candidates.ALL_PARTNERS_PAIRS = candidates.MAX_PRODUCTS = 0  # as for all nodes of a large graph
        found = {(u, v) for u, v in model.top_pairs(k, nodes, without)[0].tolist()}
        candidates.ALL_PARTNERS_PAIRS, candidates.MAX_PRODUCTS = limits
        recall = np.mean([(u, v) in found for u, v in exact.tolist()])
        print(f"best {k} partners of {number:,} nodes, known pairs {known}d: recall {recall:.3f}")
    began = time.perf_counter()
    rows = len(model.top_links(k, each=True))
    print(f"best {k} partners of all nodes: {rows:,} rows, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
