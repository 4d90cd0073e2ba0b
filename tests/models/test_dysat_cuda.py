"""Training on CUDA with recorded steps; the trained model loads on any device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import dysat
from dysat.data.csr import Snapshot
from dysat.evaluation.probe import evaluate_probe, validation_auc
from dysat.evaluation.protocols import single_step
from dysat.training import Epoch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
SMALL = {
    "structural_heads": (4, 2),
    "structural_features": (32, 16),
    "temporal_heads": (4,),
    "temporal_features": (16,),
    "batch_size": 64,
    "device": "cuda",
}


def planted(steps: int = 5, size: int = 100) -> dysat.DynamicGraph:
    """Two blocks of nodes with many links inside and few between them."""
    rng = np.random.default_rng(0)
    snapshots = []
    for t in range(steps):
        u, v = rng.integers(0, size, (2, 8 * size))
        kept = (u != v) & (((u < size // 2) == (v < size // 2)) | (rng.random(len(u)) < 0.03))
        snapshots.append(Snapshot.from_links(u[kept], v[kept], None, num_nodes=size, start=t, stop=t + 1))
    return dysat.DynamicGraph(np.arange(size), tuple(snapshots), clock="step")


@pytest.mark.parametrize("preset", ["text", "program"])
def test_learns_on_cuda_and_loads_on_cpu(preset: str, tmp_path: Path) -> None:
    graph = planted()
    split = single_step(graph, len(graph) - 2)
    seen: list[Epoch] = []

    def validate(model: dysat.DySAT) -> float:
        return validation_auc(model.embed().cpu(), split)

    model = dysat.DySAT.from_preset(preset, epochs=60, learning_rate=0.01, negative_weight=0.1, **SMALL)
    model.fit(graph[:-1], validate=validate, on_epoch=seen.append)
    assert len(seen) == 60 and all(epoch.loss == epoch.loss for epoch in seen)
    assert evaluate_probe(model.embed().cpu(), split).auc > 0.7
    model.save(tmp_path / "model")
    there = dysat.DySAT.load(tmp_path / "model", device="cpu")
    assert_close(there.embed(), model.embed().cpu(), atol=1e-4, rtol=1e-3)


def test_run_on_cuda_resumes(tmp_path: Path) -> None:
    from dysat.runs.run import Run, Watch

    model = dysat.DySAT.from_preset("program", epochs=6, **SMALL)
    run = Run.start(tmp_path / "run", planted(), model)
    seen: list[int] = []
    stopped = Watch(on_epoch=lambda epoch: seen.append(epoch.number), stop=lambda: len(seen) == 3)
    assert not run.train(stopped)
    assert Run.open(tmp_path / "run").train(Watch(on_epoch=lambda epoch: seen.append(epoch.number)))
    assert seen[:6] == [1, 2, 3, 4, 5, 6]
    assert run.model("cpu").embed().isfinite().all()
