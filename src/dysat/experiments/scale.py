"""How time and memory of a fit grow with the log: made-up logs, each fitted in a fresh process."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.models.dysat import DySAT
from dysat.nn.device import choose_device
from dysat.system.hardware import peak_gib
from dysat.system.parallel.process import keep_freed_memory
from dysat.system.progress import listening
from dysat.training import Epoch

Ids = NDArray[np.int64]
SIZES = {107_000: 21_700, 1_000_000: 100_000, 10_000_000: 1_000_000, 100_000_000: 10_000_000}  # events: nodes
SNAPSHOTS = 13
COMMUNITY = 200  # nodes
ACROSS = 0.2  # fraction of the events between communities
TAIL = 1.5  # exponent of the activity of nodes
# The first words of what a fit reports, and the phase they belong to.
PHASES = {"pair score": "pair score", "scoring pairs": "pairs to agree with", "spectrum": "inputs"}


@dataclass(frozen=True)
class ScaleCase:
    """A made-up log and how to fit it."""

    events: int
    nodes: int
    device: str
    embeddings: bool
    epochs: int | None = None  # None for the default of the model


@dataclass(frozen=True)
class ScaleTiming:
    """Seconds of a fit by phase, and the peak memory of its process."""

    nodes: int
    events: int
    links: int
    device: str
    embeddings: bool
    seconds: float
    phases: dict[str, float]
    peak_gib: float
    gpu_peak_gib: float | None

    @property
    def microseconds_per_event(self) -> float:
        return 1e6 * self.seconds / self.events


def measure_scale(case: ScaleCase) -> ScaleTiming:
    """Make a log and fit it, in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (case,))


def _measure(case: ScaleCase) -> ScaleTiming:
    graph = made_graph(case.nodes, case.events)
    keep_freed_memory(sum(snapshot.num_links for snapshot in graph))
    model = DySAT(device=case.device, embeddings=case.embeddings)
    if case.epochs is not None:
        model.set_params(epochs=case.epochs)
    device = choose_device(case.device)
    begun = time.perf_counter()
    marks, ends = [("pair score", begun)], list[float]()

    def on_report(what: str, done: int, total: int) -> None:
        phase = next((phase for words, phase in PHASES.items() if what.startswith(words)), marks[-1][0])
        if phase != marks[-1][0]:
            marks.append((phase, time.perf_counter()))

    def on_epoch(epoch: Epoch) -> None:
        ends.append(time.perf_counter() - epoch.seconds)
        ends.append(time.perf_counter())

    with listening(on_report):
        model.fit(graph, on_epoch=on_epoch) if case.embeddings else model.fit(graph)
    stop = time.perf_counter()
    marks += [("epochs", ends[0]), ("embeddings", ends[-1])] if ends else []
    phases = dict.fromkeys([*PHASES.values(), "epochs", "embeddings"], 0.0)
    for (phase, first), (_, last) in zip(marks, [*marks[1:], ("", stop)], strict=True):
        phases[phase] += last - first
    return ScaleTiming(
        nodes=graph.num_nodes,
        events=case.events,
        links=sum(snapshot.num_links for snapshot in graph),
        device=str(device),
        embeddings=case.embeddings,
        seconds=stop - begun,
        phases=phases,
        peak_gib=peak_gib(),
        gpu_peak_gib=peak_gib(device) if device.type == "cuda" else None,
    )


def made_graph(nodes: int, events: int, seed: int = 0) -> DynamicGraph:
    """Return a graph of 13 snapshots: communities of 200 nodes, a few very active nodes, and some links across.

    An event starts at a node in proportion to its activity and ends in the same community, there more often at some
    nodes than at others, or, with probability `ACROSS`, anywhere in proportion to activity.
    """
    rng = np.random.default_rng(seed)
    activity = rng.pareto(TAIL, nodes) + 0.1
    share = np.cumsum(activity / activity.sum())
    size = min(COMMUNITY, nodes)
    u = np.searchsorted(share, rng.random(events)).clip(max=nodes - 1)
    near = u - u % size + (rng.random(events) ** 2 * size).astype(np.int64)
    far = np.searchsorted(share, rng.random(events)).clip(max=nodes - 1)
    v = np.where(rng.random(events) < ACROSS, far, near.clip(max=nodes - 1))
    ends = np.stack([u, v], 1).ravel()
    first = np.full(nodes, len(ends))
    first[ends[::-1]] = np.arange(len(ends))[::-1]  # the first event of a node is written last
    number = np.empty(nodes, dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(nodes)  # in order of their first event
    known = int(np.count_nonzero(first < len(ends)))
    return DynamicGraph(np.arange(known), _snapshots(number[u], number[v]), clock="step")


def _snapshots(u: Ids, v: Ids) -> tuple[Snapshot, ...]:
    """Cut events in order into snapshots with equal numbers of events.  # [E], [E]"""
    snapshots, known = list[Snapshot](), 0
    for step, part in enumerate(np.array_split(np.arange(len(u)), SNAPSHOTS)):
        low, high = np.minimum(u[part], v[part]), np.maximum(u[part], v[part])
        known = max(known, int(high.max(initial=-1)) + 1)
        keys, weights = np.unique(low[low != high] * known + high[low != high], return_counts=True)
        ends = np.divmod(keys, max(1, known))
        snapshots.append(
            Snapshot.from_links(*ends, weights.astype(np.float64), num_nodes=known, start=step, stop=step + 1)
        )
    return tuple(snapshots)
