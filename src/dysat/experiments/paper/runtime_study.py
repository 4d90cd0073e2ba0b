"""Seconds per epoch of DySAT and DynAERNN against the window of history, as in the paper's runtime figure."""

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
from dysat.experiments.evaluate.versions import method_version
from dysat.experiments.evaluate.workers import Told
from dysat.experiments.paper.records import Results
from dysat.models.baselines.dynaernn import DynAERNN
from dysat.models.dysat import DySAT
from dysat.system.hardware import hardware

WINDOWS = tuple(range(1, 11))
METHODS = ("dysat", "dynaernn")
BATCH = 512  # of both


def measure_windows(graph: DynamicGraph, dataset: str, results: Results, device: str, quick: bool, told: Told) -> None:
    """Keep the times of a dataset, unless those of this code on this machine are there."""
    rounds, epochs = (1, 1) if quick else (2, 3)
    machine = hardware()
    content = [graph.fingerprint, *map(method_version, METHODS), device, machine, rounds, epochs]
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    if (results.facts("runtime", dataset, "windows") or {}).get("key") == key:
        return
    timings = time_windows(graph, epochs=epochs, rounds=rounds, device=device, on_progress=told, batch_size=BATCH)
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
    """Epochs of one method with one window."""

    items: int = 0  # in an epoch: nodes of DySAT, (node, step) of DynAERNN
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
    on_progress: Told = lambda done, total, what: None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Fit both methods in turns with each window: medians over all epochs but each fit's first, which warms up.

    DySAT (preset `program`) learns from the last so many snapshots; an epoch is a pass over their nodes. DynAERNN
    learns from every transition of the graph, each time with so many snapshots before it; an epoch is a pass over
    the (node, step) of all of them.
    """
    usable = [window for window in windows if window <= len(graph)]
    timed = {(window, method): Timed() for window in usable for method in METHODS}
    common = {"epochs": epochs + 1, "device": device, **options}
    for number in range(rounds):
        for at, ((window, method), found) in enumerate(timed.items()):
            _fit(method, graph, window, common, found)
            on_progress(number * len(timed) + at + 1, rounds * len(timed), f"{method}, window {window}")
    return [{"window": w} | {method: timed[w, method].facts() for method in METHODS} for w in usable]


def _fit(method: str, graph: DynamicGraph, window: int, options: dict[str, Any], timed: Timed) -> None:
    """One fit; its epochs but the first are added to those before."""
    given = {"history": window, "patience": None, **options}
    if method == "dysat":
        ours = DySAT.from_preset("program", **given).fit(graph)
        seconds, timed.batch_size, timed.items = ours.epochs_, ours.batch_size, len(torch.unique(ours.block_.node))
    else:
        other = DynAERNN.with_options(given).fit(graph)
        seconds, timed.batch_size, timed.items = other.epochs_, other.batch_size, sum(graph.known[:-1])
    timed.seconds += [epoch.seconds for epoch in seconds[1:]]
