"""Direction: who sent a link is kept beside the symmetric snapshot, and by everything that stores or converts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dysat
from dysat.data.continuation import continue_snapshots
from dysat.errors import GraphError, SnapshotsError

# ann writes to bob twice and gets one answer; cy writes to ann; dee writes to himself.
SRC = ["ann", "ann", "bob", "cy", "dee", "bob", "ann"]
DST = ["bob", "bob", "ann", "ann", "dee", "cy", "bob"]
DAYS = [1, 2, 2, 3, 3, 9, 10]


def events(days: list[int] = DAYS, src: list[str] = SRC, dst: list[str] = DST) -> dysat.Events:
    return dysat.read_events((src, dst, [f"2024-01-{day:02d}" for day in days]), at_least=1)


def mail(**options: Any) -> dysat.DynamicGraph:
    return dysat.build_snapshots(events(), every="1w", directed=True, **options)


def arcs(graph: dysat.DynamicGraph, step: int) -> dict[tuple[str, str], float]:
    u, v, weights = (part.tolist() for part in graph[step].arcs())
    return {(graph.nodes[a], graph.nodes[b]): w for a, b, w in zip(u, v, weights, strict=True)}


def test_arcs_are_the_events_of_a_window() -> None:
    graph = mail(self_loops="keep")
    assert graph.directed and "directed" in repr(graph)
    assert arcs(graph, 0) == {("ann", "bob"): 2, ("bob", "ann"): 1, ("cy", "ann"): 1, ("dee", "dee"): 1}
    assert arcs(graph, 1) == {("bob", "cy"): 1, ("ann", "bob"): 1}


def test_the_symmetric_snapshot_is_the_same_as_without_direction() -> None:
    graph, plain = mail(), dysat.build_snapshots(events(), every="1w")
    for one, other in zip(graph, plain, strict=True):
        for name, tensor in other.tensors().items():
            torch.testing.assert_close(getattr(one, name), tensor, rtol=0, atol=0)
    assert not plain.directed and graph.fingerprint != plain.fingerprint
    with pytest.raises(GraphError, match="directed=True"):
        plain[0].arcs()


@pytest.mark.parametrize("weighted", [False, True])
def test_sent_adds_up_to_the_weights(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    u, v = rng.integers(0, 12, (2, 200))
    weights = rng.random(200) if weighted else None
    snapshot = dysat.Snapshot.from_links(u, v, weights, num_nodes=12, start=0, stop=1, directed=True)
    matrix = np.zeros((12, 12))
    np.add.at(matrix, (u, v), 1.0 if weights is None else weights)
    found = np.zeros((12, 12))
    receivers, neighbours, total = snapshot.entries()
    found[receivers, neighbours] = snapshot.sent
    np.testing.assert_allclose(found, matrix, rtol=1e-12)
    loops = receivers == neighbours
    both = matrix + matrix.T - np.diag(np.diag(matrix))
    np.testing.assert_allclose(total, both[receivers, neighbours], rtol=1e-12)
    assert loops.any()


def test_direction_survives_slices_files_and_merging(tmp_path: Path) -> None:
    graph = mail()
    graph.save(tmp_path / "graph")
    loaded = dysat.DynamicGraph.load(tmp_path / "graph")
    assert loaded.equals(graph) and arcs(loaded, 0) == arcs(graph, 0)
    assert graph[:1].directed and graph[:1].fingerprint != graph.fingerprint
    whole = graph.aggregate()
    assert whole.directed and len(whole.arcs()[0]) == 4 and float(whole.arcs()[2].sum()) == 6
    assert graph.to("cpu").equals(graph)


def test_a_graph_continues_as_it_was_built() -> None:
    edges = ["2024-01-01", "2024-01-08", "2024-01-15"]
    graph = dysat.build_snapshots(events(DAYS[:5], SRC[:5], DST[:5]), boundaries=edges[:2], directed=True)
    later = events(DAYS[5:], SRC[5:], DST[5:])
    plain = dysat.build_snapshots(later, boundaries=edges[1:])
    with pytest.raises(GraphError, match="the new snapshot does not know who sent a link, and the graph does"):
        graph.extended(plain[0])
    for step in continue_snapshots(graph, later, boundaries=edges[2:]).steps:
        graph = graph.extended(step.snapshot, step.nodes, step.kinds)
    assert arcs(graph, 1) == arcs(mail(), 1)


@pytest.mark.parametrize("library", ["networkx", "scipy", "pandas", "torch_geometric"])
def test_other_formats_keep_direction(library: str) -> None:
    pytest.importorskip(library)
    from dysat.data import interop

    graph = mail()
    match library:
        case "networkx":
            there = interop.to_networkx(graph)
            assert there[0].is_directed() and there[0]["ann"]["bob"]["weight"] == 2
            back = interop.from_networkx(there, directed=True)
        case "scipy":
            matrices = interop.to_scipy(graph)
            assert matrices[0][0, 1] == 2 and matrices[0][1, 0] == 1
            back = interop.from_scipy(matrices, graph.nodes, directed=True, boundaries=graph.boundaries, clock="utc")
            graph = graph.without_times()  # a matrix holds weights only
        case "pandas":
            back = interop.from_pandas(interop.to_pandas(graph), directed=True)
        case _:
            back = interop.from_pyg(interop.to_pyg(graph), graph.nodes, directed=True)
    assert back.equals(graph)


def test_networkx_without_direction_cannot_give_it() -> None:
    nx = pytest.importorskip("networkx")
    with pytest.raises(GraphError, match="snapshot 0 is a Graph, without direction"):
        dysat.data.interop.from_networkx([nx.Graph([(0, 1)])], directed=True)


def test_kinds_and_direction_are_refused() -> None:
    log = dysat.read_events((SRC, DST, [f"2024-01-{day:02d}" for day in DAYS]), kinds=("user", "item"))
    with pytest.raises(SnapshotsError, match="a link of two kinds has no other direction"):
        dysat.build_snapshots(log, every="1w", directed=True)
    graph = mail()
    with pytest.raises(GraphError, match="a link of two kinds has no other direction"):
        graph.with_kinds([0] * graph.num_nodes, ["person"])
