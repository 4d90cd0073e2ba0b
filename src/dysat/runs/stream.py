"""The folder `stream` of a run: the state after updates, in open formats.

    base/                 the graph and the metrics that `fit` wrote, since the first update
    state.safetensors     the newest weights, and which records of the two files below are valid
    snapshots.bin         the snapshots added since the run was created, with the labels of new nodes
    summary.bin           the structural outputs of every step, the input of temporal attention (IncSAT only)
    embeddings-*.parquet  label and embedding of the nodes known at an added step
    updates.json          the figures of each update

Updates are atomic: an update appends to the two files, and takes effect when the new state replaces the old one. The
files of the run that show the state before are moved away first (see `newest`).
An IncSAT learns from the new snapshot alone. A DySAT that cannot continue as an IncSAT is trained again from scratch on
all snapshots at every update; the state then holds the whole model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dysat.data.attributes import continued
from dysat.data.csr import CSR, LATEST, SENT, Snapshot, alike
from dysat.data.graph import DynamicGraph
from dysat.data.reading.labels import Labels, pack_labels, unpack_labels
from dysat.data.stored import check_labels, check_new_nodes, check_snapshot
from dysat.errors import ModelError, reporting_damage
from dysat.models.dysat import DySAT
from dysat.models.incsat import IncSAT
from dysat.nn.stored import Rows
from dysat.runs.newest import discard_unfinished, files_aside
from dysat.system.journal import Journal
from dysat.system.storage import replace_file
from dysat.system.superseded import STATE, STATE_VERSION, STREAM
from dysat.system.tensors import read_facts, read_tensors, write_tensors
from dysat.system.text.json_text import json_text

SNAPSHOTS, SUMMARY = "snapshots.bin", "summary.bin"
UPDATES, EMBEDDINGS = "updates.json", "embeddings-{:05d}.parquet"
FORMAT_VERSION = STATE_VERSION
SCORER = ("scorer/weights", "scorer/bias")
Updated = IncSAT | DySAT  # a DySAT is trained again from scratch
LABELS = "labels/"
# Types of the facts of a state, and of what its lists hold.
FACTS = {"graph": str, "options": dict, "snapshots": list, "summary": list, "files": list, "updates": list}
SNAPSHOT = {"known": "count", "start": "moment", "stop": "moment"}
FILE = {"name": "text", "sha256": "text", "events": "count"}
UPDATE = {
    **dict.fromkeys(("start", "stop"), "text"),
    **dict.fromkeys(("step", "events", "links", "nodes", "new_nodes", "epochs"), "count"),
    **dict.fromkeys(("auc", "loss", "seconds"), "figure"),
}


class Stream:
    """The folder after the last update."""

    def __init__(self, folder: Path, facts: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        with reporting_damage(folder / STATE, ModelError):
            _check_facts(facts)
        self.folder, self.facts, self.tensors = folder, facts, tensors
        self.snapshots = Journal(folder / SNAPSHOTS, facts["snapshots"], ModelError)
        self.summary = Journal(folder / SUMMARY, [record for record in facts["summary"] if record], ModelError)
        self._lines: list[str] = []  # of updates.json, so that an update does not encode all others again

    @classmethod
    def exists(cls, run: Path) -> bool:
        return (run / STREAM / STATE).is_file()

    @classmethod
    def open(cls, run: Path) -> Stream:
        """Open the stream of a run."""
        file = run / STREAM / STATE
        facts, tensors = read_tensors(file, "stream", FORMAT_VERSION, error=ModelError)
        return cls(run / STREAM, facts, tensors)

    @classmethod
    def updates_of(cls, run: Path) -> list[dict[str, Any]]:
        """The figures of the updates of a run, without reading its weights."""
        if not cls.exists(run):
            return []
        facts = read_facts(run / STREAM / STATE, "stream", FORMAT_VERSION, error=ModelError)
        with reporting_damage(run / STREAM / STATE, ModelError):
            _check_facts(facts)
        return list(facts["updates"])

    @classmethod
    def begin(cls, run: Path, model: Updated, identity: str) -> Stream:
        """Create the stream of a run without updates; `identity` is the fingerprint of the run's graph."""
        stream = cls.prepare(run, model, identity)
        stream._write_state(model)
        return stream

    @classmethod
    def prepare(cls, run: Path, model: Updated, identity: str) -> Stream:
        """The same, but without a state: the stream takes effect with its first update."""
        folder = run / STREAM
        try:
            folder.mkdir(exist_ok=True)
            for name in (SNAPSHOTS, SUMMARY):
                (folder / name).unlink(missing_ok=True)  # left by a killed process
        except OSError as problem:
            raise ModelError(f"{folder}: cannot be written: {problem.strerror or problem}") from problem
        facts = {
            "graph": identity,
            "method": model.method,
            "options": model.plain_params(),
            "snapshots": [],
            "summary": [],
            "files": [],
            "updates": [],
        }
        stream = cls(folder, facts, {})
        stream.facts["summary"] = [
            None if rows is None else stream.summary.append({"rows": rows}) for rows in _summary(model)
        ]
        stream.tensors = _tensors(model)
        return stream

    @property
    def refits(self) -> bool:
        """Whether every update learns from all snapshots, not from the newest alone."""
        return bool(self.facts.get("method") == DySAT.method)  # early versions stored no method

    @property
    def updates(self) -> list[dict[str, Any]]:
        return list(self.facts["updates"])

    @property
    def files(self) -> list[dict[str, Any]]:
        """The event files taken in so far."""
        return list(self.facts["files"])

    def graph(self, base: DynamicGraph, *, verify: bool = True) -> DynamicGraph:
        """The snapshots of the run, and those added since."""
        with reporting_damage(self.snapshots.file, ModelError):
            return self._graph(base, verify)

    def _graph(self, base: DynamicGraph, verify: bool) -> DynamicGraph:
        labels, kinds, snapshots = [base.nodes], [base.kinds], list(base.snapshots)
        for index, record in enumerate(self.snapshots.records):
            arrays = {name.removeprefix(LABELS): a for name, a in self.snapshots.read(index, verify=verify).items()}
            check_snapshot(arrays, record["known"], directed=base.directed)
            names = (*CSR, *(SENT,) * base.directed, *(LATEST,) * (LATEST in arrays))
            parts = {name: torch.from_numpy(arrays[name]) for name in names}
            snapshots.append(Snapshot(**parts, num_nodes=record["known"], start=record["start"], stop=record["stop"]))
            labels.append(unpack_labels(arrays))
            kinds.append(arrays.get("kinds"))
            check_new_nodes(base.nodes, labels[-1], record["known"] - snapshots[-2].num_nodes, base.kinds, kinds[-1])
        nodes = np.concatenate(labels)
        node_kinds = None if base.kinds is None else np.concatenate([part for part in kinds if part is not None])
        graph = replace(
            base, nodes=nodes, snapshots=alike(snapshots), kinds=node_kinds, features=None, feature_names=(),
            report=None, notes=(),
        )  # fmt: skip
        if self.snapshots.records:
            check_labels(graph.nodes, graph.kinds)
        if base.features is None or not (self.refits and base.feature_names):
            return graph
        features = continued(base.features, base.feature_names, graph.known)
        return replace(graph, features=features, feature_names=base.feature_names)

    def model(self, base: DynamicGraph, device: str = "auto", *, verify: bool = True) -> Updated:
        """The model after the last update; its summary stays on disk."""
        options, tensors, file = {**self.facts["options"], "device": device}, dict(self.tensors), self.folder / STATE
        with reporting_damage(file, ModelError, keep=True):
            model = (DySAT if self.refits else IncSAT).with_options(options)
        model.graph_ = self.graph(base, verify=verify or self.refits)  # the next update learns from all of it
        if isinstance(model, IncSAT):
            with reporting_damage(self.summary.file, ModelError):
                model.summary_ = self.rows(model.steps(), verify=True)  # damage would spread to the next weights
        model.take_tensors(tensors, file)
        return model

    def rows(self, steps: Iterable[int], *, verify: bool = False) -> list[Rows | None]:
        """The stored rows of the given steps, None for the others."""
        wanted, number, rows = set(steps), 0, []
        for step, record in enumerate(self.facts["summary"]):
            here = record is not None and step in wanted
            rows.append(self.summary.read(number, verify=verify)["rows"] if here else None)
            number += record is not None
        return rows

    def discard_unfinished(self) -> None:
        """Remove what a killed update has left."""
        for journal in (self.snapshots, self.summary):
            journal.cut_back()
        steps = len(self.facts["summary"])
        discard_unfinished(self.folder.parent, updated=bool(self.updates))
        for file in self.folder.glob(EMBEDDINGS.format(0).replace("00000", "*")):
            number = file.stem.rpartition("-")[2]
            if number.isdigit() and int(number) >= steps:
                file.unlink(missing_ok=True)
        if self.updates:
            self._write_updates()

    def commit(
        self, model: Updated, labels: Labels, kinds: Any, files: list[dict[str, Any]], update: Mapping[str, Any]
    ) -> None:
        """Store a model that has learned from one more snapshot, with these new nodes; if it fails, nothing changes."""
        before = dict(self.facts), self.tensors, list(self.snapshots.records), list(self.summary.records)
        try:
            self._append(model, labels, kinds)
            self.facts |= {"files": files, "updates": [*self.facts["updates"], dict(update)]}
            with files_aside(self.folder.parent):
                self._write_state(model)
        except BaseException:
            self.facts, self.tensors, self.snapshots.records, self.summary.records = before
            raise
        with suppress(ModelError):  # the update is complete without this file, and the next update writes it
            self._write_updates()
        if isinstance(model, IncSAT):
            model.summary_ = self.rows(model.steps())

    def _append(self, model: Updated, labels: Labels, kinds: Any) -> None:
        """Append the newest snapshot and its rows, and write its embeddings."""
        from dysat.system.table_files import write_table

        snapshot, step = model.graph_[-1], len(model.graph_) - 1
        arrays = {name: tensor.cpu().numpy() for name, tensor in snapshot.tensors().items()}
        arrays |= {LABELS + name: part for name, part in pack_labels(labels).items()}
        if kinds is not None:
            arrays["kinds"] = kinds
        record = self.snapshots.append(arrays)
        record |= {"known": snapshot.num_nodes, "start": snapshot.start, "stop": snapshot.stop}
        self.facts["snapshots"] = self.snapshots.records
        rows = self.summary.append({"rows": _present(model.summary_[-1])}) if isinstance(model, IncSAT) else None
        self.facts["summary"] = [*self.facts["summary"], rows]
        if model.has_embeddings:
            write_table([model.table()], self.folder / EMBEDDINGS.format(step))

    def _write_state(self, model: Updated) -> None:
        self.tensors = _tensors(model)
        write_tensors(self.folder / STATE, "stream", FORMAT_VERSION, self.facts, self.tensors, error=ModelError)

    def _write_updates(self) -> None:
        """Write updates.json, a readable copy of what the state holds."""
        self._lines += [json_text(update) for update in self.updates[len(self._lines) :]]
        lines = ",\n".join(self._lines)
        file, text = self.folder / UPDATES, f"[\n{lines}\n]\n"  # one line per update
        if file.is_file() and file.read_bytes() == text.encode():
            return
        with replace_file(file, ModelError) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="")


def without_features(graph: DynamicGraph) -> DynamicGraph:
    """The graph without unnamed features, whose values for new nodes nobody knows; attributes can be missing."""
    return graph if graph.features is None or graph.feature_names else replace(graph, features=None)


def _summary(model: Updated) -> list[Rows | None]:
    """The stored rows of every step; a model trained from scratch has none."""
    return model.summary_ if isinstance(model, IncSAT) else [None] * len(model.graph_)


def _tensors(model: Updated) -> dict[str, torch.Tensor]:
    if not isinstance(model, IncSAT):
        return model._state()
    return {**model.weights(), **dict(zip(SCORER, model.scorer_, strict=True))}


def _check_facts(facts: Mapping[str, Any]) -> None:
    """Raise unless the facts of a state have the types that `Stream` and those who show updates read."""
    for name, kind in FACTS.items():
        if not isinstance(facts.get(name), kind):
            raise ModelError(f"{name} cannot be read")
    for name, fields in (("snapshots", SNAPSHOT), ("files", FILE), ("updates", UPDATE)):
        for each in facts[name]:
            wrong = [key for key in fields if not isinstance(each, dict) or not _is(each.get(key), fields[key])]
            if wrong:
                raise ModelError(f"{name}: {wrong[0]} cannot be read")
    if not all(record is None or isinstance(record, dict) for record in facts["summary"]):
        raise ModelError("summary cannot be read")
    if len(facts["updates"]) != len(facts["snapshots"]):
        raise ModelError(f"{len(facts['snapshots'])} snapshots of {len(facts['updates'])} updates")


def _is(value: object, kind: str) -> bool:
    """Whether a value is a text, a count, a moment, or a finite figure that may be missing."""
    if kind == "text":
        return isinstance(value, str)
    if kind == "figure":
        return value is None or (type(value) in (int, float) and -math.inf < value < math.inf)  # type: ignore[operator]
    return type(value) is int and (0 if kind == "count" else -(2**62)) <= value <= 2**62


def _present(rows: Rows | None) -> Rows:
    if rows is None:
        raise ModelError("the newest step has no stored rows")
    return rows
