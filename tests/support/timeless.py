"""Graphs that do not know the times of events."""

from __future__ import annotations

from dataclasses import replace

from dysat import DynamicGraph


def without_times(graph: DynamicGraph) -> DynamicGraph:
    """The same graph as if it had been cut before events had times."""
    return replace(graph, snapshots=tuple(replace(snapshot, latest=None) for snapshot in graph))
