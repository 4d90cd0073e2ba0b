"""Assemble a `DynamicGraph` from links per snapshot; shared by all formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.data.reading.labels import Labels, as_labels
from dysat.data.windows import Clock, check_edges
from dysat.errors import GraphError

Ids = NDArray[np.int64]
Part = tuple[Ids, Ids, Any, Any]  # one snapshot: u, v, weights as given (None: each counts 1), times (None: unknown)
Links = tuple[Ids, Ids, NDArray[np.float64], NDArray[np.float32] | None]
Frame = tuple[list[int], Clock, Iterable[str]]  # window edges, clock, names of the kinds
LOW = 0xFFFFFFFF  # the lower half of a key that holds two ids


def assemble(
    parts: Sequence[Part],
    labels: list[Any],
    frame: Frame,
    *,
    known: Sequence[int] | None = None,
    both_ways: bool = False,
    directed: bool = False,
    notes: Iterable[str] = (),
) -> DynamicGraph:
    """Build a graph from the links of each snapshot, between nodes numbered in any order.

    `known` [T + 1] is the number of nodes known before each snapshot and at the end; None: a node is known from its
    first link. With `both_ways` the parts are the entries of matrices, not links. With `directed`, u sends to v.
    Times are `Snapshot.latest` of each link; they are kept if all parts have them and windows are not steps.
    """
    (edges, clock, kind_names), num_steps = frame, len(parts)
    if not parts:
        raise GraphError("a graph needs at least one snapshot")
    if len(edges) != num_steps + 1:
        raise GraphError(f"{len(edges)} boundaries for {num_steps} snapshots; {num_steps + 1} are needed")
    check_edges(edges, clock)
    if clock == "step" or any(part[3] is None for part in parts):
        parts = [(u, v, weights, None) for u, v, weights, _ in parts]
    links = [_checked(step, part, labels) for step, part in enumerate(parts)]
    links = _as_links(links) if both_ways and not directed else links
    first = np.full(len(labels), num_steps) if known is None else np.repeat(np.arange(num_steps), np.diff(known))
    if known is None:
        for step in reversed(range(num_steps)):
            first[np.concatenate(links[step][:2])] = step
    order = np.argsort(first, kind="stable")[: np.count_nonzero(first < num_steps)]
    totals = np.searchsorted(first[order], np.arange(num_steps), side="right")
    new = np.empty(len(labels), dtype=np.int64)
    new[order] = np.arange(len(order))
    snapshots = tuple(
        Snapshot.from_links(
            new[u], new[v], w, num_nodes=int(totals[t]), start=edges[t], stop=edges[t + 1], directed=directed, latest=at
        )
        for t, (u, v, w, at) in enumerate(links)
    )
    nodes, kinds, names = [labels[node] for node in order], None, ()
    check_distinct(nodes)
    if are_pairs(nodes):
        names = tuple(dict.fromkeys([*kind_names, *(kind for kind, _ in nodes)]))
        if len(names) > 256:
            raise GraphError(f"{len(names)} kinds of nodes are more than a graph can hold (256)")
        kinds = np.array([names.index(kind) for kind, _ in nodes], dtype=np.uint8)
        nodes = [label for _, label in nodes]
    return DynamicGraph(typed_labels(nodes), snapshots, clock, kinds, names, notes=tuple(notes))


def _checked(step: int, part: Part, labels: list[Any]) -> Links:
    """Return the links with positive weight; a weight that is negative or not finite, or a wrong time, is an error."""
    u, v, given, times = part
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
    there = weights > 0
    return u[there], v[there], weights[there], None if times is None else _fractions(step, times, len(u))[there]


def _fractions(step: int, times: Any, number: int) -> NDArray[np.float32]:
    """Return times from 0 to 1, one per link."""
    try:
        found = np.asarray(times, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        found = np.full(1, np.nan, dtype=np.float32)
    if found.shape != (number,) or not ((found >= 0) & (found <= 1)).all():
        raise GraphError(f"snapshot {step}: latest must have a number from 0 to 1 for each of the {number} links")
    return found


def _number(weight: Any) -> float:
    try:
        return float(weight)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _as_links(parts: list[Links]) -> list[Links]:
    """Convert entries to links: those with u ≤ v if all snapshots are symmetric up to rounding, else all of them."""
    halves = []
    for u, v, weights, times in parts:
        order = np.lexsort((weights, v, u))  # the same order of summands in both directions
        keys, first = np.unique((u << 32 | v)[order], return_index=True)
        sums = np.add.reduceat(weights[order], first) if len(first) else weights
        back = (keys & LOW) << 32 | keys >> 32
        across = np.argsort(back)
        if not (np.array_equal(back[across], keys) and np.allclose(sums[across], sums, rtol=1e-6, atol=0)):
            return parts
        upper = keys >> 32 <= keys & LOW
        if times is not None and len(first):
            times = np.maximum.reduceat(times[order], first)
            times = np.maximum(times, times[across])[upper]
        halves.append((keys[upper] >> 32, keys[upper] & LOW, sums[upper], times))
    return halves


def stored_attributes(graph: DynamicGraph, snapshot: Snapshot) -> dict[str, Any]:
    """Return the window, clock and kinds to store with a snapshot."""
    marks = {"start": snapshot.start, "stop": snapshot.stop, "clock": graph.clock}
    return marks if graph.kinds is None else {**marks, "kind_names": graph.kind_names}


def stored_windows(marks: Sequence[Mapping[str, Any]]) -> Frame:
    """Return the windows stored with the snapshots if all are there and meet, else the steps 0, 1, …; and the kinds."""
    names = marks[0].get("kind_names", ()) if marks else ()
    edges: list[Any] = [mark.get("start") for mark in marks] + [mark.get("stop") for mark in marks[-1:]]
    clocks: list[Any] = [mark.get("clock") for mark in marks]
    whole = all(type(edge) is int for edge in edges) and any(clocks == [c] * len(marks) for c in ("utc", "step"))
    meet = whole and edges == sorted(set(edges)) and edges[1:] == [mark["stop"] for mark in marks]
    return (edges, clocks[0], names) if marks and meet else (list(range(len(marks) + 1)), "step", names)


def are_pairs(labels: Sequence[Any]) -> bool:
    """Whether labels are pairs (kind, label)."""
    pairs = [isinstance(label, tuple) and len(label) == 2 and isinstance(label[0], str) for label in labels]
    return bool(pairs) and all(pairs)


def given_labels(labels: Sequence[Any] | Labels | None, number: int) -> list[Any]:
    """Return the labels given for `number` nodes, or else the numbers of the nodes."""
    if labels is None:
        return list(range(number))
    if len(labels) != number:
        raise GraphError(f"{len(labels):,} labels for {number:,} nodes")
    return list(labels.tolist() if isinstance(labels, np.ndarray) else labels)


def check_distinct(labels: list[Any]) -> None:
    """Refuse two nodes with the same label."""
    if len(set(labels)) < len(labels):
        raise GraphError(f"label {next(label for label in labels if labels.count(label) > 1)!r} is given to two nodes")


def typed_labels(labels: list[Any]) -> Labels:
    """Convert labels to an array; nodes of two kinds may share a label."""
    places = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    return as_labels(list(places))[np.array([places[label] for label in labels], dtype=np.int64)]
