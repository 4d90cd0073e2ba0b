"""Convert to and from NetworkX and networkx-temporal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dysat.data.csr import LATEST
from dysat.data.graph import DynamicGraph
from dysat.data.interop.assemble import Part, are_pairs, assemble, stored_attributes, stored_windows
from dysat.errors import GraphError

if TYPE_CHECKING:
    import networkx as nx
    import networkx_temporal as tx

SelfLoops = Literal["keep", "drop"]


def to_networkx(graph: DynamicGraph) -> list[nx.Graph]:
    """Return one `nx.Graph` per snapshot: all known nodes, with their `kind` if any; links with a `weight`.

    Nodes are the labels, or pairs (kind, label) if two kinds share a label. Each graph has the attributes `start`,
    `stop` and `clock`. If the times of events are known, links also have `latest`, as in a `Snapshot`. A directed graph
    gives `nx.DiGraph`.
    """
    import networkx as nx

    nodes: list[Any] = graph.nodes.tolist()
    kinds = [] if graph.kinds is None else [graph.kind_names[kind] for kind in graph.kinds]
    if len(set(nodes)) < len(nodes):
        nodes = list(zip(kinds, nodes, strict=True))
    result = []
    for snapshot in graph:
        make = nx.DiGraph if graph.directed else nx.Graph
        part = make(**stored_attributes(graph, snapshot))
        part.add_nodes_from(nodes[: snapshot.num_nodes])
        nx.set_node_attributes(part, dict(zip(part, kinds, strict=False)), "kind")
        times = snapshot.pair_times()
        columns = (*snapshot.pairs(), *(() if times is None else (times,)))
        for u, v, *values in zip(*(column.tolist() for column in columns), strict=True):
            part.add_edge(nodes[u], nodes[v], **dict(zip(("weight", LATEST), values, strict=False)))
        result.append(part)
    return result


def from_networkx(
    graphs: Sequence[nx.Graph], *, weight: str = "weight", self_loops: SelfLoops = "keep", directed: bool = False
) -> DynamicGraph:
    """Read one snapshot per graph; directed and parallel edges of a pair add up.

    Kinds come from nodes (kind, label), or from the node attribute `kind` if all have it. Windows come from the graph
    attributes `start`, `stop` and `clock` if consecutive windows meet; else the snapshots are the steps 0, 1, …. In
    windows with dates, the edge attribute `latest` is that of a `Snapshot` if all edges have it.

    Parameters:
        weight: edge attribute; an edge without it counts 1.
        self_loops: "drop" leaves them out, but keeps their nodes.
        directed: keep the direction of the edges; all graphs must be directed.
    """
    import networkx as nx

    if self_loops not in ("keep", "drop"):
        raise GraphError(f"self_loops={self_loops!r} is neither 'keep' nor 'drop'")
    ids: dict[Any, int] = {}
    kinds: dict[Any, Any] = {}
    known, parts = [0], list[Part]()
    for step, graph in enumerate(graphs):
        if not isinstance(graph, nx.Graph):
            raise GraphError(f"snapshot {step} is a {type(graph).__name__}, not a networkx graph")
        if directed and not graph.is_directed():
            raise GraphError(f"directed=True, but snapshot {step} is a {type(graph).__name__}, without direction")
        for node, kind in graph.nodes(data="kind"):
            ids.setdefault(node, len(ids))
            if kinds.setdefault(node, kind) != kind:
                raise GraphError(f"snapshot {step}: node {node!r} is of kind {kind!r}, earlier of {kinds[node]!r}")
        known.append(len(ids))
        rows = [
            (ids[u], ids[v], w.get(weight, 1), w.get(LATEST))
            for u, v, w in graph.edges(data=True)
            if u != v or self_loops == "keep"
        ]
        ends = np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2)
        weights, times = ([row[i] for row in rows] for i in (2, 3))
        parts.append((ends[:, 0], ends[:, 1], weights, None if None in times else times))
    if not any(len(part[0]) for part in parts):  # no link says whether the times of events are known
        parts = [(u, v, weights, None) for u, v, weights, _ in parts]
    nodes = list(ids)
    if None not in kinds.values() and not are_pairs(nodes):
        nodes = [(kinds[node], node) for node in nodes]
    windows = stored_windows([graph.graph for graph in graphs])
    return assemble(parts, nodes, windows, known=known, directed=directed)


def to_networkx_temporal(graph: DynamicGraph) -> tx.TemporalGraph:
    """Return the snapshots of `to_networkx` as one `TemporalGraph`."""
    import networkx_temporal as tx

    return tx.from_snapshots(to_networkx(graph))


def from_networkx_temporal(
    graph: tx.TemporalGraph, *, weight: str = "weight", self_loops: SelfLoops = "keep", directed: bool = False
) -> DynamicGraph:
    """Read the snapshots of a temporal graph that is sliced already, as `from_networkx` does."""
    import networkx_temporal as tx

    if not tx.is_temporal_graph(graph):
        raise GraphError(f"a {type(graph).__name__} is not a temporal graph of networkx-temporal")
    return from_networkx(graph.graphs, weight=weight, self_loops=self_loops, directed=directed)
