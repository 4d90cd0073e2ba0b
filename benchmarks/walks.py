"""Time second-order walks of dysat and of two plain Python implementations on networkx.

    python benchmarks/walks.py [--p 0.5] [--q 2] [--walks 10] [--length 80]

walks on all of UCI as one weighted graph. The first plain implementation weighs all neighbours at every step; the
second precomputes the cumulative weights of every (previous node, node), and that time counts. All must agree in how
often they turn back and how often they go to a neighbour of the previous node. Prints seconds (median of `--repeats`
runs for dysat, one run for the others) and their ratio.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate, pairwise

import networkx as nx
import torch

import dysat
from dysat.data.csr import Snapshot
from dysat.models.baselines.node2vec import Node2Vec

Walks = list[list[int]]


def alphas(graph: nx.Graph, before: int, here: int, p: float, q: float) -> tuple[list[int], list[float]]:
    """The possible next nodes and their weights, by the formula."""
    near, found, weights = graph[before], [], []
    for there, link in graph[here].items():
        found.append(there)
        weights.append(link["weight"] * (1 / p if there == before else 1.0 if there in near else 1 / q))
    return found, weights


def plain(graph: nx.Graph, p: float, q: float, walks: int, length: int, rng: random.Random) -> Walks:
    """Weigh all neighbours at every step."""
    found, nodes = [], list(graph)
    for _ in range(walks):
        rng.shuffle(nodes)
        for start in nodes:
            links = graph[start]
            walk = [start, rng.choices(list(links), [link["weight"] for link in links.values()])[0]]
            while len(walk) < length:
                there, weights = alphas(graph, walk[-2], walk[-1], p, q)
                walk.append(rng.choices(there, weights)[0])
            found.append(walk)
    return found


def tabled(graph: nx.Graph, p: float, q: float, walks: int, length: int, rng: random.Random) -> Walks:
    """Precompute the cumulative weights of every (before, here)."""
    first = {
        node: (list(links), list(accumulate(k["weight"] for k in links.values()))) for node, links in graph.adj.items()
    }
    tables = {}
    for before in graph:
        for here in graph[before]:
            there, weights = alphas(graph, before, here, p, q)
            tables[before, here] = there, list(accumulate(weights))
    found, nodes = [], list(graph)
    for _ in range(walks):
        rng.shuffle(nodes)
        for start in nodes:
            there, ends = first[start]
            walk = [start, there[bisect(ends, rng.random() * ends[-1], hi=len(ends) - 1)]]
            while len(walk) < length:
                there, ends = tables[walk[-2], walk[-1]]
                walk.append(there[bisect(ends, rng.random() * ends[-1], hi=len(ends) - 1)])
            found.append(walk)
    return found


def ours(graph: Snapshot, p: float, q: float, walks: int, length: int) -> Walks:
    """The walks of `Node2Vec.fit`, as lists."""
    model = Node2Vec(p=p, q=q, walks_per_node=walks, walk_length=length)
    found = torch.cat([*model.walks(graph, torch.Generator().manual_seed(0))])
    return graph.rows[found.long()].tolist()  # type: ignore[no-any-return]


def habits(graph: nx.Graph, walks: Walks) -> tuple[float, float]:
    """Fraction of steps that turn back, and fraction that go to a neighbour of the previous node."""
    back = near = steps = 0
    for walk in walks:
        for before, (_, there) in zip(walk, pairwise(walk[1:]), strict=False):
            back += there == before
            near += there != before and there in graph[before]
            steps += 1
    return back / steps, near / steps


def timed(job: Callable[[], Walks]) -> tuple[float, Walks]:
    """Run a job; returns seconds and walks."""
    begin = time.perf_counter()
    walks = job()
    return time.perf_counter() - begin, walks


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind, value in (("p", float, 0.5), ("q", float, 2.0), ("walks", int, 10), ("length", int, 80)):
        parser.add_argument(f"--{name}", type=kind, default=value)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    snapshot = dysat.load_dataset("uci").aggregate()
    graph = nx.Graph()
    graph.add_weighted_edges_from(zip(*(part.tolist() for part in snapshot.links()), strict=True))
    options = (given.p, given.q, given.walks, given.length)
    print(
        f"{len(graph):,} nodes, {graph.number_of_edges():,} links; p={given.p}, q={given.q}, "
        f"{given.walks} walks of {given.length} nodes from each; {torch.get_num_threads()} threads"
    )
    runs = [timed(lambda: ours(snapshot, *options)) for _ in range(given.repeats)]
    median, walks = statistics.median(seconds for seconds, _ in runs), runs[-1][1]
    expected = habits(graph, walks)
    print(f"dysat  {median:8.2f} s   turns back {expected[0]:.4f}, stays near {expected[1]:.4f}")
    for walker in (plain, tabled):
        seconds, walks = timed(lambda walker=walker: walker(graph, *options, random.Random(0)))  # type: ignore[misc]
        seen = habits(graph, walks)
        print(
            f"{walker.__name__:6} {seconds:8.2f} s   turns back {seen[0]:.4f}, stays near {seen[1]:.4f}   "
            f"dysat is {seconds / median:.1f} times as fast"
        )
        if any(abs(one - other) > 0.005 for one, other in zip(seen, expected, strict=True)):
            raise SystemExit("the walks differ in how often they turn back or stay near")


if __name__ == "__main__":
    main()
