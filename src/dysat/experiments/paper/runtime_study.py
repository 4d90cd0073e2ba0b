"""Seconds per epoch of DySAT and DynAERNN by the length of the history, as in the paper's runtime figure."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import torch

from dysat.data.graph import DynamicGraph
from dysat.experiments.evaluate.request import Contender
from dysat.experiments.evaluate.versions import method_version
from dysat.experiments.evaluate.workers import OnProgress
from dysat.experiments.paper.catalogue import ROWS
from dysat.experiments.paper.records import Results
from dysat.models.baselines.dynaernn import DynAERNN
from dysat.models.dysat import DySAT
from dysat.system.hardware import hardware

WINDOWS = tuple(range(1, 11))
METHODS = ("dysat", "dynaernn")  # keys of rows
BATCH = 512  # for both methods


def measure_windows(
    graph: DynamicGraph, dataset: str, results: Results, device: str, quick: bool, on_progress: OnProgress
) -> None:
    """Measure and store the times of a dataset, unless those of this version and machine are stored already."""
    rounds, epochs = (1, 1) if quick else (2, 3)
    machine = hardware()
    content = [
        graph.fingerprint_without_times,
        *map(method_version, (Contender("dysat", "program"), Contender("dynaernn"))),
        device,
        machine,
        rounds,
        epochs,
    ]
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    if (results.facts("runtime", dataset, "windows") or {}).get("key") == key:
        return
    timings = time_windows(
        graph, epochs=epochs, rounds=rounds, device=device, on_progress=on_progress, batch_size=BATCH
    )
    facts = {
        "key": key,
        "date": datetime.now(UTC).date().isoformat(),
        "hardware": machine,
        "device": device,
        "epochs": epochs,
        "rounds": rounds,
        "batch_size": BATCH,
        "timings": timings,
    }
    results.put_facts("runtime", dataset, "windows", json.loads(json.dumps(facts)))


@dataclass
class Timed:
    """Epoch times of one method with one window."""

    items: int = 0  # per epoch: nodes for DySAT, (node, step) pairs for DynAERNN
    batch_size: int = 0
    seconds: list[float] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        median, fastest = statistics.median(self.seconds), min(self.seconds)
        return {"epoch_seconds": median, "fastest_epoch_seconds": fastest, **vars(self)}


def time_windows(
    graph: DynamicGraph,
    windows: Sequence[int] = WINDOWS,
    *,
    epochs: int = 3,
    rounds: int = 1,
    device: str = "auto",
    on_progress: OnProgress = lambda done, total, what: None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Fit both methods in turn with each window; return medians over all epochs except each fit's first (warm-up).

    DySAT (preset `program`) learns from the last snapshots, as many as the window has; an epoch is a pass over their
    nodes. DynAERNN learns from every transition of the graph, each with a window of snapshots before it; an epoch is a
    pass over all (node, step) pairs.
    """
    usable = [window for window in windows if window <= len(graph)]
    timed = {(window, method): Timed() for window in usable for method in METHODS}
    common = {"epochs": epochs + 1, "device": device, **options}
    for number in range(rounds):
        for at, ((window, method), found) in enumerate(timed.items()):
            _fit(method, graph, window, common, found)
            on_progress(number * len(timed) + at + 1, rounds * len(timed), f"{ROWS[method].name}, window {window}")
    return [{"window": w} | {method: timed[w, method].facts() for method in METHODS} for w in usable]


def _fit(method: str, graph: DynamicGraph, window: int, options: dict[str, Any], timed: Timed) -> None:
    """Fit once and add the times of all epochs except the first."""
    given = {"history": window, "patience": None, **options}
    if method == "dysat":
        ours = DySAT.from_preset("program", **given).fit(graph)
        seconds, timed.batch_size, timed.items = ours.epochs_, ours.batch_size, len(torch.unique(ours.block_.node))
    else:
        other = DynAERNN.with_options(given).fit(graph)
        seconds, timed.batch_size, timed.items = other.epochs_, other.batch_size, sum(graph.known[:-1])
    timed.seconds += [epoch.seconds for epoch in seconds[1:]]
