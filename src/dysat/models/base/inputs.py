"""Node features as model input, checked."""

from __future__ import annotations

import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError

HOW = "a table of node attributes gives some (--nodes FILE, DynamicGraph.with_attributes)"


def check_features(graph: DynamicGraph, inputs: str, first: int = 0) -> None:
    """Raise unless the graph has finite features; `first` is the step of its first snapshot, for messages."""
    if graph.features is None:
        raise ModelError(f"inputs={inputs!r}, but the graph has no features; {HOW}")
    parts = graph.features if isinstance(graph.features, tuple) else (graph.features,)
    if not parts[0].shape[1]:
        raise ModelError(f"inputs={inputs!r}, but the features of the graph have no columns")
    for step, part in enumerate(parts, first):
        bad = (~torch.isfinite(part)).any(1).nonzero()
        if len(bad):
            where = f" in snapshot {step}" if isinstance(graph.features, tuple) else ""
            name = graph.nodes[int(bad[0, 0]) :][:1].tolist()[0]
            raise ModelError(f"features: node {name!r} has a value{where} that is not a finite number")


def features_at(graph: DynamicGraph, step: int, device: torch.device) -> Tensor | None:
    """The features of the nodes known at a step, or None.  # [N, F]"""
    features = graph.features
    if features is None:
        return None
    values = features[step] if isinstance(features, tuple) else features[: graph.known[step]]
    return values.to(device, torch.get_default_dtype())
