"""Graphs and events to and from NetworkX, networkx-temporal, PyG, SciPy and pandas.

Where a format states its nodes (NetworkX, PyG) a node is known from the first snapshot that states it, with links
or without. Where it states links alone (SciPy, pandas) a node is known from its first link, and one that never
has a link is not part of the graph. Nodes are numbered by the snapshot in which they become known, and within it
in the order of the format. Labels that are pairs (kind, label) give the nodes their kinds, in every format.
Weights must be finite and not negative; a link of weight 0 is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.events import Events, read_events
from dysat.data.graph import DynamicGraph
from dysat.data.labels import Labels, as_labels
from dysat.data.times import TimeUnit
from dysat.data.windows import MAX_SNAPSHOTS, Clock, check_edges
from dysat.errors import EventsError, GraphError, listed

if TYPE_CHECKING:
    import networkx as nx
    import networkx_temporal as tx
    import pandas as pd
    import scipy.sparse as sp
    from torch_geometric.data import Data, TemporalData

Ids = NDArray[np.int64]
Part = tuple[Ids, Ids, Any]  # one snapshot: u, v, and weights as they came (None: each counts 1)
Links = tuple[Ids, Ids, NDArray[np.float64]]
Frame = tuple[list[int], Clock, Iterable[str]]  # edges of the windows, clock, names of the kinds
SelfLoops = Literal["keep", "drop"]
LOW = 0xFFFFFFFF  # the lower half of a key that holds two ids


def to_networkx(graph: DynamicGraph) -> list[nx.Graph]:
    """One `nx.Graph` per snapshot: all known nodes, with their `kind` if there are kinds; links with a `weight`.

    Nodes are the labels, or pairs (kind, label) where two kinds share a label. Each graph carries `start`, `stop`
    and `clock`.
    """
    import networkx as nx

    nodes: list[Any] = graph.nodes.tolist()
    kinds = [] if graph.kinds is None else [graph.kind_names[kind] for kind in graph.kinds]
    if len(set(nodes)) < len(nodes):
        nodes = list(zip(kinds, nodes, strict=True))
    result = []
    for snapshot in graph:
        part = nx.Graph(**_marks(graph, snapshot))
        part.add_nodes_from(nodes[: snapshot.num_nodes])
        nx.set_node_attributes(part, dict(zip(part, kinds, strict=False)), "kind")
        links = zip(*(column.tolist() for column in snapshot.links()), strict=True)
        part.add_weighted_edges_from((nodes[u], nodes[v], weight) for u, v, weight in links)
        result.append(part)
    return result


def from_networkx(
    graphs: Sequence[nx.Graph], *, weight: str = "weight", self_loops: SelfLoops = "keep"
) -> DynamicGraph:
    """Read one snapshot per graph; directed and parallel edges of a pair add up.

    Kinds are read from nodes (kind, label), or the node attribute `kind` if all have it; windows from the graph
    attributes `start`, `stop` and `clock` if all meet, else the snapshots are the steps 0, 1, ….

    Parameters:
        weight: the edge attribute; an edge without it counts 1.
        self_loops: "drop" leaves them out; their nodes stay.
    """
    import networkx as nx

    if self_loops not in ("keep", "drop"):
        raise GraphError(f"self_loops={self_loops!r} is neither 'keep' nor 'drop'")
    ids: dict[Any, int] = {}
    kinds: dict[Any, Any] = {}
    known, parts = [0], []
    for step, graph in enumerate(graphs):
        if not isinstance(graph, nx.Graph):
            raise GraphError(f"snapshot {step} is a {type(graph).__name__}, not a networkx graph")
        for node, kind in graph.nodes(data="kind"):
            ids.setdefault(node, len(ids))
            if kinds.setdefault(node, kind) != kind:
                raise GraphError(f"snapshot {step}: node {node!r} is of kind {kind!r}, before of {kinds[node]!r}")
        known.append(len(ids))
        rows = [
            (ids[u], ids[v], w) for u, v, w in graph.edges(data=weight, default=1) if u != v or self_loops == "keep"
        ]
        ends = np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2)
        parts.append((ends[:, 0], ends[:, 1], [row[2] for row in rows]))
    nodes = list(ids)
    if None not in kinds.values() and not _are_pairs(nodes):
        nodes = [(kinds[node], node) for node in nodes]
    return _assemble(parts, nodes, _frame([graph.graph for graph in graphs]), known=known)


def to_networkx_temporal(graph: DynamicGraph) -> tx.TemporalGraph:
    """The snapshots of `to_networkx` as one `TemporalGraph`."""
    import networkx_temporal as tx

    return tx.from_snapshots(to_networkx(graph))


def from_networkx_temporal(
    graph: tx.TemporalGraph, *, weight: str = "weight", self_loops: SelfLoops = "keep"
) -> DynamicGraph:
    """Read the snapshots of a temporal graph that is sliced already, as `from_networkx` does."""
    import networkx_temporal as tx

    if not tx.is_temporal_graph(graph):
        raise GraphError(f"a {type(graph).__name__} is not a temporal graph of networkx-temporal")
    return from_networkx(graph.graphs, weight=weight, self_loops=self_loops)


def to_pyg(graph: DynamicGraph, *, dtype: torch.dtype | None = None) -> list[Data]:
    """One `Data` per snapshot over its known nodes: links both ways, a self-loop once; all tensors are copies.

    Each carries `start`, `stop` and `clock`; `x`, `node_kind` and `kind_names` where the graph has them. Weights
    are of `dtype`, by default torch's own, because PyG's layers do not mix types; float64 keeps them exact.
    """
    from torch_geometric.data import Data

    result = []
    for step, snapshot in enumerate(graph):
        receivers, neighbours, weights = snapshot.entries()
        known = snapshot.num_nodes
        data = Data(edge_index=torch.stack([receivers, neighbours]), num_nodes=known, **_marks(graph, snapshot))
        data.edge_weight = weights.to(dtype or torch.get_default_dtype(), copy=True)
        if graph.features is not None:
            x = graph.features if isinstance(graph.features, Tensor) else graph.features[step]
            data.x = x[:known].clone()
        if graph.kinds is not None:
            data.node_kind = torch.tensor(graph.kinds[:known], dtype=torch.int64, device=graph.device)
        result.append(data)
    return result


def from_pyg(snapshots: Sequence[Data], labels: Sequence[Any] | Labels | None = None) -> DynamicGraph:
    """Read one snapshot per `Data`, over nodes 0 … `num_nodes` − 1, which may grow.

    If every snapshot is symmetric, weights and all, the two entries of a pair are one link of that weight;
    if any is not, all are taken as directed, and the two directions of a pair add up.

    Parameters:
        snapshots: weights are `edge_weight`, or an `edge_attr` of one column; features are `x`, shared by all
            snapshots if those of a node never change.
        labels: of the nodes; their numbers if left out.
    """
    known, parts, notes = [0], [], []
    for step, data in enumerate(snapshots):
        if data.edge_index is None or data.edge_index.shape[:-1] != (2,):
            raise GraphError(f"snapshot {step} has no edge_index of shape [2, E]")
        u, v = data.edge_index.cpu().numpy().astype(np.int64)
        low, high = int(min(u.min(initial=0), v.min(initial=0))), int(max(u.max(initial=-1), v.max(initial=-1)))
        known.append(data.num_nodes if "num_nodes" in data or data.x is not None else max(high + 1, known[-1]))
        if known[-1] < known[-2]:
            raise GraphError(f"snapshot {step} has {known[-1]} nodes, fewer than the {known[-2]} before")
        if low < 0 or high >= known[-1]:
            raise GraphError(f"snapshot {step}: edge_index holds {min(low, high)} … {high}, but has {known[-1]} nodes")
        name = "edge_attr" if data.get("edge_weight") is None else "edge_weight"
        weights, note = _one_column(data.get(name), name)
        parts.append((u, v, weights))
        notes += note
    nodes, marks = _given(labels, known[-1]), [data.to_dict() for data in snapshots]
    if marks and all("node_kind" in mark for mark in marks):
        kinds = marks[-1]["node_kind"].tolist()
        names = marks[0].get("kind_names") or [str(kind) for kind in range(max(kinds, default=0) + 1)]
        same = all(mark["node_kind"].tolist() == kinds[:n] for mark, n in zip(marks, known[1:], strict=True))
        if not same or len(kinds) != known[-1] or any(not 0 <= kind < len(names) for kind in kinds):
            raise GraphError(f"node_kind must hold a number below {len(names)} per node, the same in all snapshots")
        nodes = [(names[kind], node) for kind, node in zip(kinds, nodes, strict=True)]
    graph = _assemble(parts, nodes, _frame(marks), known=known, both_ways=True, notes=dict.fromkeys(notes))
    return _with_x(graph, [data.x for data in snapshots])


def to_temporal_data(events: Events, *, dtype: torch.dtype | None = None) -> TemporalData:
    """Events with `t` in microseconds since 1970 (UTC) or steps, and the weight as `msg` [M, 1], if there is one."""
    from torch_geometric.data import TemporalData

    src, dst, time = (torch.tensor(part, dtype=torch.int64) for part in (events.src, events.dst, events.time))
    data = TemporalData(src=src, dst=dst, t=time)
    if events.weight is not None:
        data.msg = torch.tensor(events.weight, dtype=dtype or torch.get_default_dtype()).unsqueeze(1)  # [M, 1]
    return data


def from_temporal_data(
    data: TemporalData,
    labels: Sequence[Any] | Labels | None = None,
    *,
    time_unit: TimeUnit | None = None,
    kinds: tuple[str, str] | None = None,
) -> Events:
    """Read events, a `msg` of one column as their weight; `time_unit` and `kinds` are those of `read_events`."""
    missing = [name for name in ("src", "dst", "t") if name not in data]
    if missing:
        raise EventsError(f"the TemporalData has no {missing[0]}; there are {listed(data.to_dict())}")
    src, dst, time = (data[name].cpu().numpy() for name in ("src", "dst", "t"))
    if min(src.min(initial=0), dst.min(initial=0)) < 0:
        raise EventsError(f"src and dst number nodes from 0; {min(src.min(), dst.min())} is negative")
    size = int(max(src.max(initial=-1), dst.max(initial=-1))) + 1
    nodes = _given(labels, max(size, 0 if labels is None else len(labels)))
    if kinds is None:
        _check_distinct(nodes)
    names = _typed(nodes)
    weights, note = _one_column(data.msg if "msg" in data else None, "msg")
    columns = (names[src], names[dst], time, *(() if weights is None else (weights,)))
    events = read_events(columns, time_unit=time_unit, kinds=kinds)
    return replace(events, notes=(*events.notes, *note))


def to_scipy(graph: DynamicGraph) -> list[sp.csr_array[np.float64]]:
    """One symmetric matrix [N, N] per snapshot, in node order; a self-loop stands once, on the diagonal."""
    from scipy.sparse import coo_array

    matrices = []
    for snapshot in graph:
        receivers, neighbours, weights = (part.cpu().numpy() for part in snapshot.entries())
        matrices.append(coo_array((weights, (receivers, neighbours)), shape=(graph.num_nodes,) * 2).tocsr())
    return matrices


def from_scipy(
    matrices: Sequence[Any],
    labels: Sequence[Any] | Labels | None = None,
    *,
    boundaries: Sequence[int] | None = None,
    clock: Clock = "step",
) -> DynamicGraph:
    """Read one snapshot per square matrix, sparse or dense; later ones may be larger.

    If all are symmetric, an entry is the weight of its link; if any is not, `a[i, j] + a[j, i]` is, in all.

    Parameters:
        labels: of the rows; their numbers if left out.
        boundaries, clock: the T + 1 edges of the windows, as of a `DynamicGraph`; the steps 0, 1, … if left out.
    """
    from scipy.sparse import coo_array

    parts, size = [], 0
    for step, matrix in enumerate(matrices):
        entries = coo_array(matrix)
        if entries.ndim != 2 or entries.shape[0] != entries.shape[1] or entries.shape[0] < size:
            raise GraphError(f"matrix {step} has shape {entries.shape}, expected a square of at least {size} rows")
        if entries.dtype.kind not in "biuf":
            raise GraphError(f"matrix {step} holds {entries.dtype}, not real numbers")
        size = entries.shape[0]
        row, column = entries.coords
        parts.append((row.astype(np.int64), column.astype(np.int64), entries.data))
    edges = range(len(parts) + 1) if boundaries is None else boundaries
    return _assemble(parts, _given(labels, size), (list(edges), clock, ()), both_ways=True)


def to_pandas(graph: DynamicGraph) -> pd.DataFrame:
    """One row per link: step, start, stop (UTC, or steps), source, target, their kinds if any, weight, node ids."""
    import pandas as pd

    parts = [[column.cpu().numpy() for column in snapshot.links()] for snapshot in graph]
    u, v, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    steps = np.repeat(np.arange(len(graph)), [len(part[0]) for part in parts])
    edges = np.array(graph.boundaries)
    window = {name: _times(edges[steps + i], graph.clock) for i, name in enumerate(("start", "stop"))}
    table = pd.DataFrame({"step": steps, **window, "source": graph.nodes[u], "target": graph.nodes[v]})
    if graph.kinds is not None:
        table["source_kind"], table["target_kind"] = (_kinds(graph.kinds[ids], graph.kind_names) for ids in (u, v))
    return table.assign(weight=weights, source_id=u, target_id=v)


def from_pandas(table: pd.DataFrame) -> DynamicGraph:
    """Read one link per row of step, source and target, and if they are there, the other columns of `to_pandas`.

    Rows of the same pair add up, in either direction; without a weight each counts 1. The graph runs from the
    first step that has a row to the last; steps between that have none share evenly the time left to them.
    Nodes that appear in the same step are in order of their ids if there, else of kind and label.
    """
    missing = [name for name in ("step", "source", "target") if name not in table]
    if missing:
        raise GraphError(f"the table has no column {missing[0]!r}; there are {listed(table.columns)}")
    if not len(table) or table["step"].dtype.kind not in "iu":
        raise GraphError(f"a table of {len(table)} rows with steps of type {table['step'].dtype}; whole numbers needed")
    table = table.sort_values("step", kind="stable")
    edges, clock = _table_windows(table)
    keys: list[Any] = _both(table, "")
    names: Iterable[str] = ()
    if {"source_kind", "target_kind"} <= set(table):
        names = getattr(table["source_kind"].dtype, "categories", ())
        keys = list(zip(_both(table, "_kind"), keys, strict=True))
    by_id = {"source_id", "target_id"} <= set(table)
    ranks = _both(table, "_id") if by_id else [_sortable(key) for key in keys]
    nodes = [key for key, _ in sorted(dict(zip(keys, ranks, strict=True)).items(), key=lambda item: item[1])]
    ids = {node: i for i, node in enumerate(nodes)}
    u, v = np.array([ids[key] for key in keys], dtype=np.int64).reshape(2, -1)
    weights = table["weight"].to_numpy() if "weight" in table else np.ones(len(table))
    steps = table["step"].to_numpy(dtype=np.int64)
    cuts = np.searchsorted(steps, steps[0] + np.arange(len(edges)))
    parts = [(u[a:b], v[a:b], weights[a:b]) for a, b in pairwise(cuts)]
    return _assemble(parts, nodes, (edges, clock, names))


def events_to_pandas(events: Events) -> pd.DataFrame:
    """One row per event: src, dst, their kinds if any, time (UTC, or steps), weight if any; for `read_events`."""
    import pandas as pd

    sides = {"src": events.src, "dst": events.dst}
    table = pd.DataFrame({name: events.labels[ids] for name, ids in sides.items()})
    if events.kinds is not None:
        table["src_kind"], table["dst_kind"] = (_kinds(events.kinds[ids], events.kind_names) for ids in sides.values())
    table["time"] = _times(events.time, events.clock)
    return table if events.weight is None else table.assign(weight=events.weight)


def _assemble(
    parts: Sequence[Part],
    labels: list[Any],
    frame: Frame,
    *,
    known: Sequence[int] | None = None,
    both_ways: bool = False,
    notes: Iterable[str] = (),
) -> DynamicGraph:
    """The graph of these links, per snapshot, between nodes numbered in any order.

    `known` are the nodes known before each snapshot and at last, None: a node is known from its first link.
    With `both_ways` the parts hold the entries of a matrix, not links.
    """
    (edges, clock, kind_names), num_steps = frame, len(parts)
    if not parts:
        raise GraphError("a graph needs at least one snapshot")
    if len(edges) != num_steps + 1:
        raise GraphError(f"{len(edges)} boundaries for {num_steps} snapshots; {num_steps + 1} are needed")
    check_edges(edges, clock)
    links = [_checked(step, part, labels) for step, part in enumerate(parts)]
    links = _once(links) if both_ways else links
    first = np.full(len(labels), num_steps) if known is None else np.repeat(np.arange(num_steps), np.diff(known))
    if known is None:
        for step in reversed(range(num_steps)):
            first[np.concatenate(links[step][:2])] = step
    order = np.argsort(first, kind="stable")[: np.count_nonzero(first < num_steps)]
    totals = np.searchsorted(first[order], np.arange(num_steps), side="right")
    new = np.empty(len(labels), dtype=np.int64)
    new[order] = np.arange(len(order))
    snapshots = tuple(
        Snapshot.from_links(new[u], new[v], w, num_nodes=int(totals[t]), start=edges[t], stop=edges[t + 1])
        for t, (u, v, w) in enumerate(links)
    )
    nodes, kinds, names = [labels[node] for node in order], None, ()
    _check_distinct(nodes)
    if _are_pairs(nodes):
        names = tuple(dict.fromkeys([*kind_names, *(kind for kind, _ in nodes)]))
        if len(names) > 256:
            raise GraphError(f"{len(names)} kinds of nodes are more than a graph can hold (256)")
        kinds = np.array([names.index(kind) for kind, _ in nodes], dtype=np.uint8)
        nodes = [label for _, label in nodes]
    return DynamicGraph(_typed(nodes), snapshots, clock, kinds, names, notes=tuple(notes))


def _checked(step: int, part: Part, labels: list[Any]) -> Links:
    """The links whose weight is positive; a weight that is negative, or no finite number, is an error."""
    u, v, given = part
    try:
        weights = np.ones(len(u)) if given is None else np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        weights = np.array([_number(weight) for weight in given])
    if len(weights) != len(u):
        raise GraphError(f"snapshot {step} has {len(weights)} weights for {len(u)} links")
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        i = int(bad.argmax())
        link = f"{labels[u[i]]!r} – {labels[v[i]]!r}"
        raise GraphError(f"snapshot {step}: the weight of link {link} is {given[i]}, not a finite number ≥ 0")
    return u[weights > 0], v[weights > 0], weights[weights > 0]


def _number(weight: Any) -> float:
    try:
        return float(weight)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _once(parts: list[Links]) -> list[Links]:
    """Entries as links: those with u ≤ v if every snapshot is symmetric, to rounding; else all of them."""
    halves = []
    for u, v, weights in parts:
        order = np.lexsort((weights, v, u))  # equal entries, added in the same order, have the same sum
        keys, first = np.unique((u << 32 | v)[order], return_index=True)
        sums = np.add.reduceat(weights[order], first) if len(first) else weights
        back = (keys & LOW) << 32 | keys >> 32
        across = np.argsort(back)
        if not (np.array_equal(back[across], keys) and np.allclose(sums[across], sums, rtol=1e-6, atol=0)):
            return parts
        upper = keys >> 32 <= keys & LOW
        halves.append((keys[upper] >> 32, keys[upper] & LOW, sums[upper]))
    return halves


def _marks(graph: DynamicGraph, snapshot: Snapshot) -> dict[str, Any]:
    """What a snapshot says of itself in formats that can hold it."""
    marks = {"start": snapshot.start, "stop": snapshot.stop, "clock": graph.clock}
    return marks if graph.kinds is None else {**marks, "kind_names": graph.kind_names}


def _frame(marks: Sequence[Mapping[str, Any]]) -> Frame:
    """The windows that snapshots say they have, if all do and they meet, else the steps 0, 1, …; and the kinds."""
    names = marks[0].get("kind_names", ()) if marks else ()
    edges: list[Any] = [mark.get("start") for mark in marks] + [mark.get("stop") for mark in marks[-1:]]
    clocks: list[Any] = [mark.get("clock") for mark in marks]
    whole = all(type(edge) is int for edge in edges) and any(clocks == [c] * len(marks) for c in ("utc", "step"))
    meet = whole and edges == sorted(set(edges)) and edges[1:] == [mark["stop"] for mark in marks]
    return (edges, clocks[0], names) if marks and meet else (list(range(len(marks) + 1)), "step", names)


def _table_windows(table: pd.DataFrame) -> tuple[list[int], Clock]:
    """The windows of the steps of a table; steps without rows are interpolated."""
    import pandas as pd

    steps = table["step"].astype("int64")
    if steps.max() - steps.min() >= MAX_SNAPSHOTS:
        raise GraphError(f"steps {steps.min()} to {steps.max()} would make more than {MAX_SNAPSHOTS:,} snapshots")
    clock: Clock = "step"
    starts, stops = steps, steps + 1
    if {"start", "stop"} <= set(table):
        starts, stops = table["start"], table["stop"]
    if starts.dtype.kind not in "iu":
        clock = "utc"
        try:
            starts, stops = (
                pd.to_datetime(x, utc=True, format="ISO8601").dt.as_unit("us").astype("int64") for x in (starts, stops)
            )
        except (TypeError, ValueError) as problem:
            raise GraphError(f"start and stop are neither times nor whole numbers: {problem}") from None
    edges: dict[int, int] = {}
    for step, start, stop in sorted(set(zip(steps.tolist(), starts.tolist(), stops.tolist(), strict=True))):
        if edges.setdefault(step, start) != start or edges.setdefault(step + 1, stop) != stop:
            raise GraphError(f"step {step}: its rows disagree on start and stop, or do not meet the step before")
    filled = []
    for (step, start), (later, stop) in pairwise(sorted(edges.items())):
        filled += [start + (stop - start) * k // (later - step) for k in range(later - step)]
    return [*filled, edges[max(edges)]], clock


def _both(table: pd.DataFrame, suffix: str) -> list[Any]:
    """The column of the sources, and after it that of the targets."""
    values: list[Any] = []
    for name in ("source" + suffix, "target" + suffix):
        if table[name].isna().any():
            raise GraphError(f"the table has a row without {name}")
        values += table[name].tolist()
    return values


def _sortable(key: Any) -> tuple[str, str, Any]:
    kind, label = key if isinstance(key, tuple) else ("", key)
    return kind, type(label).__name__, label  # a number and a text cannot be compared


def _times(moments: NDArray[np.int64], clock: Clock) -> Any:
    import pandas as pd

    return pd.DatetimeIndex(moments.view("datetime64[us]"), tz="UTC") if clock == "utc" else moments


def _kinds(codes: NDArray[np.uint8], names: tuple[str, ...]) -> Any:
    import pandas as pd

    return pd.Categorical.from_codes(codes, pd.Index(names, dtype="str"))


def _are_pairs(labels: Sequence[Any]) -> bool:
    """Whether labels are pairs (kind, label)."""
    pairs = [isinstance(label, tuple) and len(label) == 2 and isinstance(label[0], str) for label in labels]
    return bool(pairs) and all(pairs)


def _given(labels: Sequence[Any] | Labels | None, number: int) -> list[Any]:
    """The labels a user gave for so many nodes, or else the nodes' numbers."""
    if labels is None:
        return list(range(number))
    if len(labels) != number:
        raise GraphError(f"{len(labels):,} labels for {number:,} nodes")
    return list(labels.tolist() if isinstance(labels, np.ndarray) else labels)


def _check_distinct(labels: list[Any]) -> None:
    if len(set(labels)) < len(labels):
        raise GraphError(f"label {next(label for label in labels if labels.count(label) > 1)!r} is given to two nodes")


def _typed(labels: list[Any]) -> Labels:
    """Labels as an array; nodes of two kinds may share one."""
    places = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return as_labels(list(places))[np.array([places[label] for label in labels], dtype=np.int64)]


def _one_column(values: Tensor | None, name: str) -> tuple[NDArray[np.float64] | None, list[str]]:
    """One weight per row, if there is one; anything wider is not a weight, and a note says so."""
    if values is None:
        return None, []
    if values.dim() == 1 or values.shape[1:] == (1,):
        return values.detach().reshape(-1).cpu().to(torch.float64).numpy(), []
    return None, [f"{name} has several columns: not a weight, left out"]


def _with_x(graph: DynamicGraph, parts: list[Tensor | None]) -> DynamicGraph:
    """Features from one array per snapshot; shared if later ones only add rows."""
    given = [part.detach().cpu() for part in parts if part is not None]
    if not given:
        return graph
    if len(given) < len(parts) or any(part.dim() != 2 for part in given):
        raise GraphError("x must be there in all snapshots or in none, each with the shape [nodes, F]")
    shared = all(torch.equal(part, given[-1][: len(part)]) for part in given)
    return graph.with_features(given[-1] if shared else given)
