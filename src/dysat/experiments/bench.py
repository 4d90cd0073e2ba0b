"""Benchmark of training: seconds per epoch, preparation time and memory, each case in a fresh process."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dysat.data.datasets import DATASETS, load_dataset
from dysat.data.graph import DynamicGraph
from dysat.models.dysat import DySAT
from dysat.nn.device import choose_device
from dysat.system.hardware import peak_gib
from dysat.system.parallel.process import keep_freed_memory
from dysat.training import Epoch

# Snapshots for training in the paper: all but the last predicted one, or the window it names.
SNAPSHOTS = {"enron": 15, "uci": 12, "yelp": 11, "ml-10m": 10}
SHALLOW = {"structural_heads": (16,), "structural_features": (128,)}  # layers of the paper for Enron


@dataclass(frozen=True)
class Case:
    """One case to measure."""

    dataset: str
    preset: str
    device: str
    batch_size: int
    epochs: int = 5
    data_dir: Path | None = None
    graph: Path | None = None  # graph folder to use instead of the dataset's file

    def model(self, epochs: int) -> DySAT:
        layers: dict[str, Any] = SHALLOW if self.dataset == "enron" else {}
        return DySAT.from_preset(
            self.preset, batch_size=self.batch_size, device=self.device, epochs=epochs, patience=None, **layers
        )


@dataclass(frozen=True)
class Timing:
    """Result of a case: medians over epochs, and peak memory of the process (on CUDA, of the device)."""

    dataset: str
    snapshots: int
    nodes: int
    links: int
    preset: str
    device: str
    batch_size: int
    batches: int
    prepare_seconds: float
    epoch_seconds: float
    fastest_epoch_seconds: float
    peak_gib: float


def measure(case: Case) -> Timing:
    """Run a case in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measure, (case,))


def _measure(case: Case) -> Timing:
    keep_freed_memory()
    graph = DynamicGraph.load(case.graph) if case.graph else load_dataset(case.dataset, case.data_dir)
    graph = graph[: SNAPSHOTS[case.dataset]] if case.dataset in SNAPSHOTS else graph
    device = choose_device(case.device)
    if device.type == "cuda":
        case.model(1).fit(graph)  # loads and compiles CUDA code, once per process
        torch.cuda.reset_peak_memory_stats()
    seconds: list[float] = []

    def on_epoch(epoch: Epoch) -> None:
        seconds.append(epoch.seconds)

    prepared = _prepare_seconds(case, graph, device)
    model = case.model(case.epochs + 1).fit(graph, on_epoch=on_epoch)
    timed = seconds[1:]  # the first epoch is a warm-up, and on CUDA records a step
    batches = -(-len(torch.unique(model.block_.node)) // case.batch_size)
    return Timing(
        dataset=case.dataset,
        snapshots=len(graph),
        nodes=graph.num_nodes,
        links=sum(s.num_links for s in graph),
        preset=case.preset,
        device=str(device),
        batch_size=case.batch_size,
        batches=batches,
        prepare_seconds=prepared,
        epoch_seconds=statistics.median(timed),
        fastest_epoch_seconds=min(timed),
        peak_gib=peak_gib(device),
    )


def _prepare_seconds(case: Case, graph: DynamicGraph, device: torch.device) -> float:
    """Return the time before the first step: block, weights, walks and samplers."""
    begin = time.perf_counter()
    model = case.model(0)
    model.graph_ = graph
    model._build(device)
    model.loss(model.sampler(torch.Generator(device).manual_seed(0)))
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def available(data_dir: Path | None) -> list[str]:
    """Return the datasets whose file is on this machine."""
    return [name for name, dataset in DATASETS.items() if dataset.locate(data_dir)]
