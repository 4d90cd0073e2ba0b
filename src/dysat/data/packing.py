"""A graph as a manifest and arrays, in which the parts of its snapshots lie end to end."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import CSR, Snapshot
from dysat.data.growth import Features
from dysat.data.labels import Labels, pack_labels, unpack_labels
from dysat.data.summary import Report
from dysat.data.windows import Clock
from dysat.errors import GraphError

FORMAT_VERSION = 1


class Parts(NamedTuple):
    """What a `DynamicGraph` is made of, in the order of its fields."""

    nodes: Labels
    snapshots: tuple[Snapshot, ...]
    clock: Clock
    kinds: NDArray[np.uint8] | None
    kind_names: tuple[str, ...]
    features: Features | None
    report: Report | None
    notes: tuple[str, ...]


def pack_graph(graph: Parts) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The manifest, and arrays by name."""
    arrays: dict[str, NDArray[Any]] = pack_labels(graph.nodes)
    for name in CSR:
        arrays[name] = np.concatenate([getattr(s, name).cpu().numpy() for s in graph.snapshots])
    if graph.kinds is not None:
        arrays["kinds"] = graph.kinds
    if graph.features is not None:
        parts = (graph.features,) if isinstance(graph.features, Tensor) else graph.features
        arrays["features"] = np.concatenate([part.cpu().numpy() for part in parts])
    manifest = {
        "clock": graph.clock,
        "boundaries": (*(s.start for s in graph.snapshots), graph.snapshots[-1].stop),
        "known": tuple(s.num_nodes for s in graph.snapshots),
        "rows": [s.num_active for s in graph.snapshots],
        "entries": [len(s.neighbours) for s in graph.snapshots],
        "kind_names": graph.kind_names,
        "features_per_snapshot": isinstance(graph.features, tuple),
        "report": graph.report and asdict(graph.report),
        "notes": graph.notes,
    }
    return manifest, arrays


def unpack_graph(manifest: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Parts:
    """What `pack_graph` packed."""
    known, edges = manifest["known"], manifest["boundaries"]
    num_rows, num_entries = np.array(manifest["rows"]), np.array(manifest["entries"])
    lengths = {"rows": num_rows, "offsets": num_rows + 1, "neighbours": num_entries, "weights": num_entries}
    parts = {}
    for name, sizes in lengths.items():
        if sizes.sum() != len(arrays[name]):
            raise GraphError(f"{name} has {len(arrays[name]):,} entries, expected {sizes.sum():,}")
        parts[name] = torch.split(torch.from_numpy(arrays[name]), sizes.tolist())
    snapshots = [
        Snapshot(**{name: parts[name][t] for name in CSR}, num_nodes=known[t], start=edges[t], stop=edges[t + 1])
        for t in range(len(known))
    ]
    features: Features | None = None
    if "features" in arrays:
        features = torch.from_numpy(arrays["features"])
        if manifest["features_per_snapshot"]:
            features = torch.split(features, known)
    return Parts(
        nodes=unpack_labels(arrays),
        snapshots=tuple(snapshots),
        clock=manifest["clock"],
        kinds=arrays.get("kinds"),
        kind_names=tuple(manifest["kind_names"]),
        features=features,
        report=Report(**manifest["report"]) if manifest["report"] else None,
        notes=tuple(manifest["notes"]),
    )
