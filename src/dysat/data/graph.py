"""A dynamic graph: weighted snapshots over one growing set of nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dysat.data.attributes import encode_tables
from dysat.data.csr import LATEST, SENT, Snapshot, alike
from dysat.data.growth import (
    Features,
    as_features,
    check_distinct,
    check_features,
    check_names,
    kind_codes,
    more_features,
    new_kinds,
    new_labels,
)
from dysat.data.nodes import NodeTable
from dysat.data.reading.labels import Labels, pack_labels, unpack_labels
from dysat.data.stored import check_labels, check_manifest, check_snapshots, check_types
from dysat.data.summary import Report, SnapshotSummary, count_distinct_links, sparkline, summarize
from dysat.data.windows import Clock, write_edges, write_moment, write_span
from dysat.errors import GraphError, nearest, reporting_damage
from dysat.system.notebook import html_table
from dysat.system.storage import read_folder, write_folder
from dysat.system.superseded import check_graph_folder
from dysat.system.text.printable import printable

FORMAT_VERSION = 1
AT_ONCE = 1 << 16  # labels that are hashed together
SHOWN = 8  # first and last snapshots that a notebook shows
TWO_KINDS = (
    "directed=True with two kinds of nodes: a link of two kinds has no other direction; leave out one of the two"
)


class Parts(NamedTuple):
    """The fields of a `DynamicGraph`, in order."""

    nodes: Labels
    snapshots: tuple[Snapshot, ...]
    clock: Clock
    kinds: NDArray[np.uint8] | None
    kind_names: tuple[str, ...]
    features: Features | None
    report: Report | None
    notes: tuple[str, ...]
    feature_names: tuple[str, ...]


def pack_graph(graph: Parts) -> tuple[dict[str, Any], dict[str, list[NDArray[Any]]]]:
    """Return the manifest and, by name, the arrays: each as the parts it is concatenated from."""
    arrays = {name: [labels] for name, labels in pack_labels(graph.nodes).items()}
    for name in graph.snapshots[0].tensors():
        arrays[name] = [getattr(s, name).cpu().numpy() for s in graph.snapshots]
    if graph.kinds is not None:
        arrays["kinds"] = [graph.kinds]
    if graph.features is not None:
        given = (graph.features,) if isinstance(graph.features, Tensor) else graph.features
        parts = [part.cpu().numpy() for part in given]
        arrays["features"] = [part.astype(np.result_type(*parts), copy=False) for part in parts]
    manifest = graph_manifest(
        clock=graph.clock,
        boundaries=(*(s.start for s in graph.snapshots), graph.snapshots[-1].stop),
        known=tuple(s.num_nodes for s in graph.snapshots),
        rows=[s.num_active for s in graph.snapshots],
        entries=[len(s.neighbours) for s in graph.snapshots],
        kind_names=graph.kind_names,
        report=graph.report,
        notes=graph.notes,
        directed=graph.snapshots[0].directed,
        features_per_snapshot=isinstance(graph.features, tuple),
        feature_names=graph.feature_names,
    )
    return manifest, arrays


def graph_manifest(
    *,
    clock: Clock,
    boundaries: Sequence[int],
    known: Sequence[int],
    rows: Sequence[int],
    entries: Sequence[int],
    kind_names: Sequence[str],
    report: Report | None,
    notes: Sequence[str],
    directed: bool,
    features_per_snapshot: bool = False,
    feature_names: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what `graph.json` holds besides the list of files."""
    manifest = {
        "clock": clock,
        "boundaries": boundaries,
        "known": known,
        "rows": rows,
        "entries": entries,
        "kind_names": kind_names,
        "features_per_snapshot": features_per_snapshot,
        "report": report and asdict(report),
        "notes": notes,
        **({"feature_names": feature_names} if feature_names else {}),
    }
    if directed:
        manifest["directed"] = True
    return manifest


def unpack_graph(manifest: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Parts:
    """Undo `pack_graph`; raise if anything is not as it would have written it."""
    check_manifest(manifest)
    known, edges = manifest["known"], manifest["boundaries"]
    num_rows, num_entries = (np.array(manifest[name], dtype=np.int64) for name in ("rows", "entries"))
    lengths = {"rows": num_rows, "offsets": num_rows + 1, "neighbours": num_entries, "weights": num_entries}
    if manifest.get("directed", False):
        lengths[SENT] = num_entries
    if LATEST in arrays:
        lengths[LATEST] = num_entries
    check_types(arrays, lengths)
    check_snapshots({name: arrays[name] for name in lengths}, num_rows, num_entries, np.array(known))
    parts = {name: torch.split(torch.from_numpy(arrays[name]), sizes.tolist()) for name, sizes in lengths.items()}
    snapshots = [
        Snapshot(**{name: parts[name][t] for name in parts}, num_nodes=known[t], start=edges[t], stop=edges[t + 1])
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
        feature_names=tuple(manifest.get("feature_names", ())),
    )


@dataclass(frozen=True, eq=False, repr=False)
class DynamicGraph:
    """T snapshots over N nodes that are numbered in order of first appearance.

    The nodes *known at t* are therefore those with ids below `known[t]`. `graph[:t]` is the past: the snapshots before
    t and the nodes known by then, nothing else. `graph[t]` is one snapshot. Graphs are immutable. If the snapshots know
    who sent a link, the graph is `directed`: a pair (u, v) then means that u links to v.

    Shapes:
        nodes [N] labels (int64 or str), kinds [N] (uint8, an index into `kind_names`) for bipartite data;
        features [N, F], or a tuple with one [known[t], F] per snapshot; feature_names F texts, or none;
        boundaries T + 1 moments.
    """

    nodes: Labels
    snapshots: tuple[Snapshot, ...]
    clock: Clock = "utc"
    kinds: NDArray[np.uint8] | None = None
    kind_names: tuple[str, ...] = ()
    features: Features | None = None
    report: Report | None = None
    notes: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(self)
        for array in (self.nodes, self.kinds):
            if array is not None and array.flags.writeable:
                array.flags.writeable = False

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return len(self.nodes)

    @property
    def num_snapshots(self) -> int:
        """Number of snapshots, T; the same as `len(graph)`."""
        return len(self.snapshots)

    @property
    def num_features(self) -> int:
        """Number of features of a node; 0 without node attributes."""
        features = self.features[0] if isinstance(self.features, tuple) else self.features
        return 0 if features is None else features.shape[1]

    @property
    def directed(self) -> bool:
        """Whether the snapshots know who sent a link; forecasts and evaluations are then about ordered pairs."""
        return self.snapshots[0].directed

    @property
    def timed(self) -> bool:
        """Whether the snapshots know when the last event of a link happened."""
        return self.snapshots[0].timed

    @property
    def kind_counts(self) -> dict[str, int]:
        """Number of nodes of each kind; empty if nodes have no kinds."""
        if self.kinds is None:
            return {}
        return dict(zip(self.kind_names, np.bincount(self.kinds, minlength=len(self.kind_names)).tolist(), strict=True))

    @cached_property
    def num_distinct_links(self) -> int:
        """Number of pairs of nodes that are linked in any snapshot."""
        return count_distinct_links(self.snapshots, 0, self.num_nodes)

    @property
    def known(self) -> tuple[int, ...]:
        """Number of nodes known at each step."""
        return tuple(s.num_nodes for s in self.snapshots)

    @property
    def boundaries(self) -> tuple[int, ...]:
        """The T + 1 edges of the windows, in microseconds since 1970 (UTC) or steps."""
        return (*(s.start for s in self.snapshots), self.snapshots[-1].stop)

    @property
    def device(self) -> torch.device:
        """Device of all tensors."""
        return self.snapshots[0].rows.device

    def __len__(self) -> int:
        return len(self.snapshots)

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self.snapshots)

    @overload
    def __getitem__(self, steps: int) -> Snapshot: ...
    @overload
    def __getitem__(self, steps: slice) -> DynamicGraph: ...
    def __getitem__(self, steps: int | slice) -> Snapshot | DynamicGraph:
        if not isinstance(steps, slice):
            if not -len(self) <= steps < len(self):
                raise IndexError(f"step {steps} of a graph with {len(self)} snapshots")
            return self.snapshots[steps]
        if steps.step not in (None, 1):
            raise GraphError(f"a graph is sliced by consecutive snapshots, not with step {steps.step}")
        snapshots = self.snapshots[steps]
        if not snapshots:
            raise GraphError(f"no snapshots in [{steps.start}:{steps.stop}] of a graph with {len(self)}")
        known = snapshots[-1].num_nodes
        features = self.features
        if features is not None:
            features = features[:known] if isinstance(features, Tensor) else features[steps]
        return DynamicGraph(
            nodes=self.nodes[:known].copy(),  # a copy: the base of a view would hold the labels of later nodes
            snapshots=snapshots,
            clock=self.clock,
            kinds=None if self.kinds is None else self.kinds[:known].copy(),
            kind_names=self.kind_names,
            features=features,
            feature_names=self.feature_names,
        )

    def ids(self, labels: Iterable[Hashable], kind: str | None = None) -> NDArray[np.int64]:
        """Return the node ids of labels, as an array [B]; `kind` is needed if nodes of two kinds share a label."""
        ids = []
        for label in labels:
            id_ = self._index.get((kind, label), -1)
            if id_ == -1:
                known = [name for of, name in self._index if of == kind]
                raise GraphError(f"no node {label!r}{f' of kind {kind!r}' * bool(kind)}{nearest(label, known)}")
            if id_ == -2:
                raise GraphError(f"node {label!r} is of several kinds ({', '.join(self.kind_names)}); say which")
            ids.append(id_)
        return np.array(ids, dtype=np.int64)

    def pair_ids(self, pairs: Iterable[tuple[Hashable, Hashable]]) -> NDArray[np.int64]:
        """Return the node ids of pairs of labels, as an array [B, 2].

        If nodes of two kinds share a label, it is the node whose kind the other label does not have; if both labels
        are shared, a pair is read in the order of `kind_names`, such as (user, item).
        """
        found: list[int] = []
        for pair in pairs:
            ids = [self._index.get((None, label), -1) for label in pair]
            for side, (label, id_) in enumerate(zip(pair, ids, strict=True)):
                if id_ == -2 and self.kinds is not None:
                    other = ids[1 - side]
                    kind = side if other < 0 else 1 - int(self.kinds[other])
                    ids[side] = self._index[self.kind_names[kind], label]
            found += ids if min(ids) >= 0 else self.ids(pair).tolist()
        return np.array(found, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def _index(self) -> dict[tuple[str | None, Hashable], int]:
        index: dict[tuple[str | None, Hashable], int] = {}
        for id_, label in enumerate(self.nodes.tolist()):
            if self.kinds is not None:
                index[self.kind_names[self.kinds[id_]], label] = id_
            index[None, label] = -2 if (None, label) in index else id_
        return index

    def aggregate(self) -> Snapshot:
        """Merge all snapshots into one; weights add up."""
        parts = [[part.cpu().numpy() for part in s.pairs()] for s in self.snapshots]
        u, v, weights = (np.concatenate([p[i] for p in parts]) for i in range(3))
        n, start, stop = self.num_nodes, self.boundaries[0], self.boundaries[-1]
        times = [_within(s, start, stop) for s in self.snapshots if s.timed]
        whole = Snapshot.from_links(
            u, v, weights, num_nodes=n, start=start, stop=stop, directed=self.directed,
            latest=np.concatenate(times) if times else None,
        )  # fmt: skip
        return whole.to(self.device)

    def without_times(self) -> DynamicGraph:
        """Return the graph as if the times of events were not known."""
        return replace(self, snapshots=tuple(replace(snapshot, latest=None) for snapshot in self.snapshots))

    def with_features(
        self, features: ArrayLike | Tensor | Sequence[ArrayLike | Tensor], names: Sequence[str] = ()
    ) -> DynamicGraph:
        """Return the graph with node features: one [N, F] array in node order, or a list with one per snapshot.

        `names` of the F columns are optional: `department=sales` is a category (one column of 0 and 1 per value),
        `age` a number, and `age missing` marks unknown numbers.
        """
        many = isinstance(features, list | tuple) and len(features) > 0 and np.ndim(features[0]) == 2
        parts: list[Any] = list(features) if many else [features]  # type: ignore[arg-type]
        like = torch.empty(0, dtype=torch.get_default_dtype(), device=self.device)
        where = [f" of snapshot {step}" * many for step in range(len(parts))]
        tensors = tuple(as_features(part, self.nodes, like, at) for part, at in zip(parts, where, strict=True))
        return replace(self, features=tensors if many else tensors[0], feature_names=tuple(names))

    def with_attributes(self, *tables: NodeTable) -> DynamicGraph:
        """Return the graph with the attributes of `read_nodes` as features, instead of those it had.

        A category becomes one column of 0 and 1 per value, a number a standardised column, and a second one that marks
        missing values if there are any. Rows with a time hold from then on: features are then per snapshot. Ids that
        are not nodes of the graph are ignored, nodes without a row have missing values; `notes` counts both.
        """
        edges = self.boundaries[1:]
        found = encode_tables(tables, self.nodes, self.kinds, self.kind_names, self.known, edges, self.clock)
        features = found.features
        features = (
            features.to(self.device) if isinstance(features, Tensor) else tuple(f.to(self.device) for f in features)
        )
        return replace(
            self, features=features, feature_names=found.names, notes=tuple(dict.fromkeys([*self.notes, *found.notes]))
        )

    def with_kinds(self, kinds: ArrayLike, names: Sequence[str]) -> DynamicGraph:
        """Return the graph with a kind for every node, as indices into `names`."""
        return replace(self, kinds=kind_codes(kinds), kind_names=tuple(names))

    def extended(
        self,
        snapshot: Snapshot,
        nodes: Iterable[Hashable] | None = None,
        kinds: ArrayLike | None = None,
        features: ArrayLike | Tensor | None = None,
    ) -> DynamicGraph:
        """Return the graph with one more snapshot at its end; earlier snapshots are shared.

        If the graph or the snapshot does not know the times of events, the result does not either.

        Parameters:
            snapshot: it must start where the last one stops; ids of new nodes follow those of known ones.
            nodes: labels of its new nodes, in order of id. Not needed if there are none, or if the labels so far are
                0 … N − 1, which are continued.
            kinds: kinds of the new nodes, if nodes have kinds.
            features: features of the new nodes [new, F]; of all nodes [known, F] if features are per snapshot.
        """
        number = snapshot.num_nodes - self.num_nodes
        _check_next(self, snapshot)
        labels = new_labels(self.nodes, nodes, number)
        codes = new_kinds(kinds, number, self.kind_names, has_kinds=self.kinds is not None)
        check_distinct(self.nodes, self.kinds, labels, codes)
        return replace(
            self,
            nodes=np.concatenate([self.nodes, labels]) if number else self.nodes,
            snapshots=alike(
                (*self.snapshots, snapshot if snapshot.rows.device == self.device else snapshot.to(self.device))
            ),
            kinds=None if self.kinds is None else np.concatenate([self.kinds, codes]),
            features=more_features(self.features, features, self.nodes, labels),
            report=None,
            notes=(),
        )

    def to(self, device: str | torch.device) -> DynamicGraph:
        """Return the graph with its tensors on another device."""
        features = self.features
        if features is not None:
            features = features.to(device) if isinstance(features, Tensor) else tuple(f.to(device) for f in features)
        return replace(self, snapshots=tuple(s.to(device) for s in self.snapshots), features=features)

    def summary(self) -> list[SnapshotSummary]:
        """Return one row per snapshot: its window, known, active and new nodes, links, new links, and weight."""
        return summarize(self.snapshots, self.clock)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything a model can see; equal graphs have equal fingerprints on any machine."""
        digest = hashlib.sha256(repr((self.clock, self.boundaries, self.known, self.kind_names)).encode())
        for start in range(0, len(self.nodes), AT_ONCE):
            labels = "\0".join(map(repr, self.nodes[start : start + AT_ONCE].tolist()))
            digest.update(("\0" * bool(start) + labels).encode("utf-8", "surrogatepass"))
        if self.kinds is not None:
            digest.update(self.kinds.tobytes())
        if self.directed:
            digest.update(b"directed")
        if self.timed:
            digest.update(b"timed")
        tensors = [tensor for s in self.snapshots for tensor in s.tensors().values()]
        features = () if self.features is None else self.features
        tensors += [features] if isinstance(features, Tensor) else features
        for tensor in tensors:
            digest.update(repr(tuple(tensor.shape)).encode())
            digest.update(np.ascontiguousarray(tensor.cpu().numpy()).reshape(-1).view(np.uint8).data)
        if self.feature_names:
            digest.update(repr(self.feature_names).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    @cached_property
    def fingerprint_without_times(self) -> str:
        """The fingerprint of the same graph if it did not know the times of events."""
        return self.without_times().fingerprint if self.timed else self.fingerprint

    def equals(self, other: DynamicGraph) -> bool:
        """Whether nodes, windows, links, weights and features are the same, bit for bit."""
        return self.fingerprint == other.fingerprint

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the graph to a folder in open formats (`graph.json` and `.npy` arrays), atomically.

        An existing folder is replaced only with `overwrite=True`, and only if it is a graph folder.
        """
        parts = Parts(
            self.nodes, self.snapshots, self.clock, self.kinds, self.kind_names, self.features, self.report, self.notes,
            self.feature_names,
        )  # fmt: skip
        manifest, arrays = pack_graph(parts)
        write_folder(path, "graph", FORMAT_VERSION, manifest, arrays, overwrite=overwrite, error=GraphError)

    @classmethod
    def load(cls, path: str | PathLike[str], *, verify: bool = True, mmap: bool = True) -> DynamicGraph:
        """Read a folder that `save` wrote.

        Arrays are memory-mapped, so they may be larger than memory; `mmap=False` reads them at once. `verify=False`
        skips comparing every byte with the checksums. That the arrays are a graph is always checked, so a folder from
        anybody can be opened. The graph of a run that has been updated since is refused:
        `dysat.Run.open(folder).graph()` has the newest one.
        """
        check_graph_folder(Path(path), GraphError)
        return cls._load(path, verify=verify, mmap=mmap)

    @classmethod
    def _load(cls, path: str | PathLike[str], *, verify: bool = True, mmap: bool = True) -> DynamicGraph:
        """The same for a graph of a run that may be older than the last update."""

        def build(manifest: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> DynamicGraph:
            with reporting_damage(path, GraphError):
                graph = DynamicGraph(*unpack_graph(manifest, arrays))
                check_labels(graph.nodes, graph.kinds)
                return graph

        return read_folder(path, "graph", FORMAT_VERSION, build, verify=verify, mmap=mmap, error=GraphError)

    def __repr__(self) -> str:
        first, last = self.boundaries[0], self.boundaries[-1]
        edges = write_edges(self.boundaries, self.clock)
        links = [s.num_links for s in self.snapshots]
        span = write_span((last - first) / len(self), self.clock)
        dates = f"{edges[0]} … {edges[-1]}"
        extra = [f"{number:,} {printable(kind)}" for kind, number in self.kind_counts.items()]
        nodes = f"{'directed, ' * self.directed}{self.num_nodes:,} nodes" + (f" ({', '.join(extra)})" if extra else "")
        return (
            f"DynamicGraph: {nodes}, {len(self)} snapshots of about {span}, {dates}\n"
            f"  {sum(links):,} links, {min(links):,} to {max(links):,} per snapshot  {sparkline(links)}"
        )

    def _repr_html_(self) -> str:
        """A table of the snapshots, for notebooks."""
        edges = write_edges(self.boundaries, self.clock)
        rows = [
            (row.step, f"{start} … {stop}", *(f"{n:,}" for n in (row.known, row.active, row.links, row.new_links)))
            for row, start, stop in zip(self.summary(), edges, edges[1:], strict=False)
        ]
        if len(rows) > 2 * SHOWN:
            rows = [*rows[:SHOWN], ("…",) * 6, *rows[-SHOWN:]]
        columns = (">step", "window", ">known nodes", ">active", ">links", ">new links")
        return html_table(repr(self), columns, rows, "; ".join(self.notes))


def _check(graph: DynamicGraph) -> None:
    """Refuse parts that do not fit together."""
    if not graph.snapshots:
        raise GraphError("a graph needs at least one snapshot")
    if graph.clock not in ("utc", "step"):
        raise GraphError(f"clock {graph.clock!r} is neither 'utc' nor 'step'")
    known = graph.known
    if list(known) != sorted(known) or known[-1] != graph.num_nodes:
        raise GraphError(f"the known nodes {known[:5]}… do not grow to the {graph.num_nodes:,} nodes of the graph")
    for before, after in zip(graph.snapshots, graph.snapshots[1:], strict=False):
        if before.stop != after.start:
            raise GraphError("the windows of consecutive snapshots do not meet")
    if len({s.directed for s in graph.snapshots}) > 1:
        raise GraphError("some snapshots know who sent a link and others do not; directed= must be the same for all")
    if len({s.timed for s in graph.snapshots}) > 1:
        raise GraphError("some snapshots know when the last event of a link happened and others do not")
    if graph.kinds is not None:
        if graph.directed:
            raise GraphError(TWO_KINDS)
        if graph.kinds.shape != graph.nodes.shape:
            raise GraphError(f"{len(graph.kinds):,} kinds for {graph.num_nodes:,} nodes")
        if len(graph.kinds) and graph.kinds.max() >= len(graph.kind_names):
            raise GraphError(f"a node of kind {graph.kinds.max()}, but only {len(graph.kind_names)} kinds have names")
    if graph.features is not None:
        check_features(graph.features, known)
    check_names(graph.features, graph.feature_names)


def _within(snapshot: Snapshot, start: int, stop: int) -> NDArray[np.float32]:
    """Return `pair_times` of a snapshot as fractions of a longer window.  # [E] or [A]"""
    times = snapshot.pair_times()
    found = np.empty(0) if times is None else times.double().cpu().numpy()
    passed = (snapshot.start - start) / (stop - start) + found * ((snapshot.stop - snapshot.start) / (stop - start))
    return np.minimum(passed, 1).astype(np.float32)


def _check_next(graph: DynamicGraph, snapshot: Snapshot) -> None:
    last = graph.snapshots[-1]
    if snapshot.directed != last.directed:
        have, has = ("knows", "does not") if snapshot.directed else ("does not know", "does")
        raise GraphError(f"the new snapshot {have} who sent a link, and the graph {has}")
    if snapshot.start != last.stop:
        start, stop = (write_moment(at, graph.clock) for at in (snapshot.start, last.stop))
        raise GraphError(f"the new snapshot begins at {start}, but the last one ends at {stop}")
    if snapshot.num_nodes < graph.num_nodes:
        raise GraphError(
            f"the new snapshot has {snapshot.num_nodes:,} nodes, fewer than the {graph.num_nodes:,} of the graph"
        )
