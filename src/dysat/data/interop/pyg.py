"""Convert to and from PyTorch Geometric: graphs as a list of `Data`, events as `TemporalData`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.events import Events, read_events
from dysat.data.graph import DynamicGraph
from dysat.data.interop.assemble import (
    assemble,
    check_distinct,
    given_labels,
    stored_attributes,
    stored_windows,
    typed_labels,
)
from dysat.data.reading.labels import Labels
from dysat.data.reading.times import TimeUnit
from dysat.errors import EventsError, GraphError, listed

if TYPE_CHECKING:
    from torch_geometric.data import Data, TemporalData


def to_pyg(graph: DynamicGraph, *, dtype: torch.dtype | None = None) -> list[Data]:
    """Return one `Data` per snapshot over its known nodes: links in both directions, self-loops once, tensors copied.

    Each has `start`, `stop` and `clock`, and `x`, `node_kind` and `kind_names` if the graph has features or kinds.
    In a directed graph the entries are its links alone, from sender to receiver. If the graph knows the times of
    events, `edge_latest` is `Snapshot.latest` of each entry.
    Weights have torch's default dtype, because PyG's layers do not mix dtypes; `dtype=torch.float64` keeps them exact.
    """
    from torch_geometric.data import Data

    result = []
    for step, snapshot in enumerate(graph):
        receivers, neighbours, weights = snapshot.arcs() if graph.directed else snapshot.entries()
        known = snapshot.num_nodes
        data = Data(
            edge_index=torch.stack([receivers, neighbours]), num_nodes=known, **stored_attributes(graph, snapshot)
        )
        data.edge_weight = weights.to(dtype or torch.get_default_dtype(), copy=True)
        if (times := snapshot.pair_times() if graph.directed else snapshot.latest) is not None:
            data.edge_latest = times.clone()
        if graph.features is not None:
            x = graph.features if isinstance(graph.features, Tensor) else graph.features[step]
            data.x = x[:known].clone()
        if graph.kinds is not None:
            data.node_kind = torch.tensor(graph.kinds[:known], dtype=torch.int64, device=graph.device)
        result.append(data)
    return result


def from_pyg(
    snapshots: Sequence[Data], labels: Sequence[Any] | Labels | None = None, *, directed: bool = False
) -> DynamicGraph:
    """Read one snapshot per `Data`, over nodes 0 … `num_nodes` − 1, which may grow.

    If every snapshot is symmetric, weights included, the two entries of a pair are one link of that weight. Otherwise
    all snapshots are directed, and the two directions of a pair add up.

    Parameters:
        snapshots: weights are `edge_weight`, or an `edge_attr` of one column; times are `edge_latest`; features are
            `x`, shared by all snapshots if those of a node never change.
        labels: labels of the nodes; by default their numbers.
        directed: keep the direction of the entries, from the first row of `edge_index` to the second.
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
        times = data.get("edge_latest")
        parts.append((u, v, weights, None if times is None else times.cpu().numpy()))
        notes += note
    nodes, marks = given_labels(labels, known[-1]), [data.to_dict() for data in snapshots]
    if marks and all("node_kind" in mark for mark in marks):
        kinds = marks[-1]["node_kind"].tolist()
        names = marks[0].get("kind_names") or [str(kind) for kind in range(max(kinds, default=0) + 1)]
        same = all(mark["node_kind"].tolist() == kinds[:n] for mark, n in zip(marks, known[1:], strict=True))
        if not same or len(kinds) != known[-1] or any(not 0 <= kind < len(names) for kind in kinds):
            raise GraphError(f"node_kind must hold a number below {len(names)} per node, the same in all snapshots")
        nodes = [(names[kind], node) for kind, node in zip(kinds, nodes, strict=True)]
    how = {"known": known, "both_ways": True, "directed": directed, "notes": dict.fromkeys(notes)}
    graph = assemble(parts, nodes, stored_windows(marks), **how)  # type: ignore[arg-type]
    return _with_x(graph, [data.x for data in snapshots])


def to_temporal_data(events: Events, *, dtype: torch.dtype | None = None) -> TemporalData:
    """Return events with `t` in microseconds since 1970 (UTC) or steps, and the weight as `msg` [M, 1], if any."""
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
    """Read events; a `msg` of one column is their weight, `time_unit` and `kinds` are as in `read_events`."""
    missing = [name for name in ("src", "dst", "t") if name not in data]
    if missing:
        raise EventsError(f"the TemporalData has no {missing[0]}; there are {listed(data.to_dict())}")
    src, dst, time = (data[name].cpu().numpy() for name in ("src", "dst", "t"))
    if min(src.min(initial=0), dst.min(initial=0)) < 0:
        raise EventsError(f"src and dst number nodes from 0; {min(src.min(), dst.min())} is negative")
    size = int(max(src.max(initial=-1), dst.max(initial=-1))) + 1
    nodes = given_labels(labels, max(size, 0 if labels is None else len(labels)))
    if kinds is None:
        check_distinct(nodes)
    names = typed_labels(nodes)
    weights, note = _one_column(data.msg if "msg" in data else None, "msg")
    columns = (names[src], names[dst], time, *(() if weights is None else (weights,)))
    events = read_events(columns, time_unit=time_unit, kinds=kinds)
    return replace(events, notes=(*events.notes, *note))


def _one_column(values: Tensor | None, name: str) -> tuple[NDArray[np.float64] | None, list[str]]:
    """Return one weight per row, if any; wider values are no weights, and a note says so."""
    if values is None:
        return None, []
    if values.dim() == 1 or values.shape[1:] == (1,):
        return values.detach().reshape(-1).cpu().to(torch.float64).numpy(), []
    return None, [f"{name} has several columns: not a weight, left out"]


def _with_x(graph: DynamicGraph, parts: list[Tensor | None]) -> DynamicGraph:
    """Add features from one array per snapshot, shared if later arrays only add rows."""
    given = [part.detach().cpu() for part in parts if part is not None]
    if not given:
        return graph
    if len(given) < len(parts) or any(part.dim() != 2 for part in given):
        raise GraphError("x must be present in all snapshots or in none, each with the shape [nodes, F]")
    shared = all(torch.equal(part, given[-1][: len(part)]) for part in given)
    return graph.with_features(given[-1] if shared else given)
