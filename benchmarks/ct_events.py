"""Events and windows of a log in one folder, for benchmarks/continuous_time.py.

Preparing a folder may need Polars; reading one needs NumPy only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import dysat

Ids = NDArray[np.int64]
Times = NDArray[np.float64]
LEAST = 20  # links between known nodes that a predicted window has


@dataclass(frozen=True)
class Log:
    """The snapshots of a log and its events, in order of time.

    Shapes: u, v [M] node ids of the graph, time [M] seconds since the first event, edges [T + 1] window edges.
    """

    name: str
    graph: dysat.DynamicGraph
    u: Ids
    v: Ids
    time: Times
    edges: Times
    validation: float = 0.15  # fraction of the events before a window that training stops by, as in DyGLib

    @cached_property
    def window(self) -> Ids:
        """The window of each event.  # [M]"""
        return np.searchsorted(self.edges, self.time, side="right").astype(np.int64) - 1

    def number_before(self, window: int) -> int:
        """The number of events before the start of a window."""
        return int(np.searchsorted(self.time, self.edges[window], side="left"))

    def predictable(self) -> list[int]:
        """Windows after the second with enough links between nodes that are known before."""
        return [t for t in range(2, len(self.graph)) if known_links(self.graph, t) >= LEAST]


def known_links(graph: dysat.DynamicGraph, window: int) -> int:
    """The number of links of a window between nodes that occurred before, without self-loops."""
    u, v, _ = graph[window].pairs()
    known = graph.known[window - 1]
    return int(((u < known) & (v < known) & (u != v)).sum())


def log_of(name: str, events: dysat.Events, graph: dysat.DynamicGraph) -> Log:
    """Number the events inside the windows of a graph as the graph does; others are left out."""
    kinds = np.zeros(graph.num_nodes, dtype=np.uint8) if graph.kinds is None else graph.kinds
    ids = {node: i for i, node in enumerate(zip(kinds.tolist(), graph.nodes.tolist(), strict=True))}
    of_events = np.zeros(events.num_nodes, dtype=np.uint8) if events.kinds is None else events.kinds
    number = [ids.get(node, -1) for node in zip(of_events.tolist(), events.labels.tolist(), strict=True)]
    u, v = (np.array(number, dtype=np.int64)[end] for end in (events.src, events.dst))
    edges = np.array(graph.boundaries)
    inside = (events.time >= edges[0]) & (events.time < edges[-1]) & (u >= 0) & (v >= 0)
    micros = events.time[inside]
    return Log(name, graph, u[inside], v[inside], (micros - micros[0]) / 1e6, (edges - micros[0]) / 1e6)


@contextmanager
def recorded() -> Iterator[list[tuple[dysat.Events, dysat.DynamicGraph]]]:
    """Collect the events and the graph of every call of `build_snapshots`."""
    found: list[tuple[dysat.Events, dysat.DynamicGraph]] = []
    real = dysat.build_snapshots

    def build(events: dysat.Events, **options: object) -> dysat.DynamicGraph:
        graph = real(events, **options)  # type: ignore[arg-type]
        found.append((events, graph))
        return graph

    with patch("dysat.build_snapshots", build), patch("dysat.data.datasets.build_snapshots", build):
        yield found


def built(build: Callable[[], object]) -> tuple[dysat.Events, dysat.DynamicGraph]:
    """The events and the graph that `build` makes last."""
    with recorded() as found:
        build()
    return found[-1]


def save(log: Log, folder: Path, events: dysat.Events | None = None) -> None:
    """Write the graph and the events of a log, and all events of it, also those outside its windows."""
    folder.mkdir(parents=True, exist_ok=True)
    log.graph.save(folder / "graph", overwrite=True)
    np.savez_compressed(folder / "events.npz", u=log.u, v=log.v, time=log.time, edges=log.edges)
    if events is not None:
        ends = {"u": events.src.astype(np.int64), "v": events.dst.astype(np.int64)}
        np.savez_compressed(folder / "all_events.npz", **ends, time=(events.time - events.time[0]) / 1e6)


def load(folder: Path) -> Log:
    """Read the graph and the events of a log."""
    graph = dysat.DynamicGraph.load(folder / "graph")
    with np.load(folder / "events.npz", allow_pickle=False) as arrays:
        return Log(folder.name, graph, *(arrays[name] for name in ("u", "v", "time", "edges")))


def prepare(folder: Path, names: list[str], data: Path | None, downloads: Path | None) -> None:
    """Write one folder for each log: datasets of the paper, or logs of the wide bench from its downloads."""
    from dysat.data.datasets import DATASETS

    for name in names:
        if name in DATASETS:
            events, graph = built(lambda name=name: dysat.load_dataset(name, data_dir=data))  # type: ignore[misc]
        else:
            import wide_logs

            if downloads is None:
                raise SystemExit(f"{name}: expected --downloads, see benchmarks/wide_logs.py")
            half = wide_logs.halves({other: log.domain for other, log in wide_logs.LOGS.items()})[name]
            if half != wide_logs.DEVELOPMENT:
                raise SystemExit(f"{name} is in the test half of the wide bench")
            events, graph = built(lambda name=name: wide_logs.build(name, downloads))  # type: ignore[misc]
        log = log_of(name, events, graph)
        save(log, folder / name, events)
        print(name, log.graph, f"{len(log.time):,} events", sep="\n", flush=True)
