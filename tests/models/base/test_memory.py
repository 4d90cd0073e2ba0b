"""A method that does not fit in memory says so before it starts, with the number of nodes that fit."""

from __future__ import annotations

import re
from math import inf

import numpy as np
import pytest
import torch

import dysat
from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base import link_model
from dysat.models.base.memory import GraphSize, nodes_that_fit

NODES = 3_000
# Their memory grows with the links alone.
UNBOUNDED = {
    *("last-snapshot", "edgebank", "edge-memory", "degree-product", "degree-sum"),
    *("common-neighbours", "adamic-adar", "resource-allocation"),
}
BOUNDED = [method for method in dysat.MODELS if method not in UNBOUNDED]


def rings(nodes: int, snapshots: int = 3) -> DynamicGraph:
    """The same ring in every snapshot: all counts are in proportion to the nodes."""
    u = np.arange(nodes)
    low, high = np.minimum(u, (u + 1) % nodes), np.maximum(u, (u + 1) % nodes)
    ring = [
        Snapshot.from_links(low, high, np.ones(nodes), num_nodes=nodes, start=step, stop=step + 1)
        for step in range(snapshots)
    ]
    return DynamicGraph(u, tuple(ring), clock="step")


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Lets a test choose how much memory is free, down to nothing."""
    monkeypatch.setattr(link_model, "LEAST_FREE", 0)
    return monkeypatch


def set_free(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    monkeypatch.setattr(link_model, "free_memory", lambda: size)


def on_cpu(method: str) -> dysat.LinkModel:
    kind = dysat.MODELS[method]
    return kind(**({"device": "cpu"} if any(option.name == "device" for option in kind.options()) else {}))


@pytest.mark.parametrize("method", BOUNDED)
def test_the_message_names_the_nodes_that_fit(method: str, free: pytest.MonkeyPatch) -> None:
    model, graph = on_cpu(method), rings(NODES)
    set_free(free, 0.5 * model._least_memory(GraphSize(graph)))
    with pytest.raises(ModelError, match=rf"^{method} on 3,000 nodes needs more than ") as refused:
        model.fit(graph)
    message = str(refused.value)
    assert "\n" not in message and ("dysat fits larger graphs" in message) == (method != "dysat")
    found = re.search(r"at most ([\d,]+) nodes of such a graph fit", message)
    assert found is not None, message
    fits = int(found[1].replace(",", ""))
    assert 0 < fits < NODES
    model.check_memory(rings(fits))
    with pytest.raises(ModelError, match="nodes of such a graph fit"):
        model.check_memory(rings(round(1.1 * fits)))
    assert not hasattr(model, "graph_")


@pytest.mark.parametrize("method", dysat.MODELS)
def test_enough_memory_is_enough(method: str, free: pytest.MonkeyPatch) -> None:
    model, graph = on_cpu(method), rings(NODES)
    needed = model._least_memory(GraphSize(graph))
    assert (needed > 0) == (method in BOUNDED)
    set_free(free, needed)
    model.check_graph(graph)


def test_one_gib_counts_as_free_whatever_the_system_says(monkeypatch: pytest.MonkeyPatch) -> None:
    set_free(monkeypatch, 0.0)
    dysat.DySAT(device="cpu").check_graph(rings(NODES))


def test_a_gpu_has_memory_of_its_own(free: pytest.MonkeyPatch) -> None:
    set_free(free, 1e7)
    free.setattr(link_model, "choose_device", torch.device)
    model = dysat.MODELS["dyngem"](device="cuda")
    model.check_memory(rings(NODES))
    with pytest.raises(ModelError, match="dyngem"):
        model.set_params(device="cpu").check_memory(rings(NODES))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("dysat", {"structural_heads": (1,), "structural_features": (4096,), "temporal_features": (4096,)}),
        ("dyngem", {"hidden": (8192,)}),
        ("node2vec", {"walks_per_node": 1_000}),
    ],
)
def test_large_options_are_named_if_the_defaults_would_fit(
    method: str, options: dict[str, object], free: pytest.MonkeyPatch
) -> None:
    graph = rings(NODES)
    set_free(free, 2 * on_cpu(method)._least_memory(GraphSize(graph)))
    model = on_cpu(method).set_params(**options)
    name, value = next(reversed(options.items()))
    with pytest.raises(ModelError, match=r"choose smaller values$") as refused:
        model.check_graph(graph)
    assert f"{name}={value}" in str(refused.value) and "nodes" not in str(refused.value).partition(": ")[2]


def test_a_forecast_without_embeddings_needs_no_network(free: pytest.MonkeyPatch) -> None:
    set_free(free, 0.0)
    dysat.DySAT(embeddings=False).check_graph(rings(NODES))


def test_a_large_graph_has_no_learned_vectors_in_the_default_model() -> None:
    size = GraphSize(rings(100_000))
    small, large = (dysat.DySAT()._least_memory(size.scaled(nodes)) for nodes in (66_000, 67_000))
    assert large < small < dysat.DySAT(inputs="both")._least_memory(size.scaled(67_000))


def test_counts_of_a_graph_and_of_one_that_is_half_as_large() -> None:
    links = [([0, 1], [1, 2]), ([0, 2, 3, 4], [1, 2, 5, 5])]  # 2–2 is a self-loop
    snapshots = tuple(
        Snapshot.from_links(*map(np.array, ends), np.ones(len(ends[0])), num_nodes=known, start=step, stop=step + 1)
        for step, (ends, known) in enumerate(zip(links, (4, 8), strict=True))
    )
    size = GraphSize(DynamicGraph(np.arange(8), snapshots, clock="step"))
    assert (size.nodes, size.rows(), size.rows(1), size.pairs, size.linked, size.repeats) == (8, 12, 8, 4, 6, [1])
    half = size.scaled(4)
    assert (half.nodes, half.rows(), half.rows(1), half.pairs, half.linked, half.repeats) == (4, 6, 4, 2, 3, [0.5])


def test_no_node_fits_where_the_options_alone_are_too_large() -> None:
    size = GraphSize(rings(100))
    assert nodes_that_fit(lambda now: inf, size, 1.0) == 0
    assert nodes_that_fit(lambda now: float(now.nodes), size, 40.0) == 40
