"""A graph on a GPU is the same graph. These tests need no reader of events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import dysat

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def graph() -> dysat.DynamicGraph:
    """Three snapshots of random links, one of them empty, with features."""
    rng = np.random.default_rng(0)
    snapshots = []
    for step, (known, links) in enumerate(((50, 200), (50, 0), (80, 300))):
        u, v = rng.integers(0, known, (2, links))
        window = {"num_nodes": known, "start": step, "stop": step + 1}
        snapshots.append(dysat.Snapshot.from_links(u, v, rng.random(links), **window))
    graph = dysat.DynamicGraph(nodes=np.arange(80), snapshots=tuple(snapshots), clock="step")
    return graph.with_features(rng.random((80, 4)))


def test_round_trip(graph: dysat.DynamicGraph) -> None:
    there = graph.to("cuda")
    assert there.device.type == "cuda" and isinstance(there.features, torch.Tensor) and there.features.is_cuda
    assert there.fingerprint == graph.fingerprint and there.to("cpu").equals(graph)


def test_results_are_the_same_on_the_device(graph: dysat.DynamicGraph) -> None:
    there = graph.to("cuda")
    assert there.summary() == graph.summary() and there.num_distinct_links == graph.num_distinct_links
    for mine, theirs in zip(graph.aggregate().entries(), there.aggregate().entries(), strict=True):
        assert theirs.is_cuda
        torch.testing.assert_close(theirs.cpu(), mine, rtol=0, atol=0)
    assert there[:2].equals(graph[:2]) and there[:2].num_nodes == 50


def test_a_saved_graph_moves_straight_to_the_device(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    graph.to("cuda").save(tmp_path / "g")
    assert dysat.DynamicGraph.load(tmp_path / "g").to("cuda").equals(graph)
