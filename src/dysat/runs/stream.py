"""What a run is after updates, in its folder `stream`: open formats, appended to, never rewritten.

    state.safetensors     the newest weights, and what of the two files below counts
    snapshots.bin         the snapshots taken in since the run was made, with the labels of new nodes
    summary.bin           the structural outputs of every step, which temporal attention looks back at (of an IncSAT)
    embeddings-*.parquet  label and embedding of the nodes known at a step that was taken in
    updates.json          what each update brought

An update appends to the two files, and counts when the new state takes the place of the old one: a run is before an
update or after it, whenever the process may be killed. A DySAT that no IncSAT can go on with is learned anew from all
snapshots at every update, and kept whole in the state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dysat.data.csr import CSR, Snapshot
from dysat.data.graph import DynamicGraph
from dysat.data.reading.labels import Labels, pack_labels, unpack_labels
from dysat.errors import ModelError
from dysat.models.dysat import DySAT
from dysat.models.incsat import IncSAT
from dysat.nn.stored import Rows
from dysat.system.journal import Journal
from dysat.system.storage import replace_file
from dysat.system.tensors import read_tensors, write_tensors

STREAM, STATE, SNAPSHOTS, SUMMARY = "stream", "state.safetensors", "snapshots.bin", "summary.bin"
UPDATES, EMBEDDINGS = "updates.json", "embeddings-{:05d}.parquet"
FORMAT_VERSION = 1
SCORER = ("scorer/weights", "scorer/bias")
Updated = IncSAT | DySAT  # a DySAT: learned anew
LABELS = "labels/"


class Stream:
    """The folder, as the last update left it."""

    def __init__(self, folder: Path, facts: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        self.folder, self.facts, self.tensors = folder, facts, tensors
        self.snapshots = Journal(folder / SNAPSHOTS, facts["snapshots"], ModelError)
        self.summary = Journal(folder / SUMMARY, [record for record in facts["summary"] if record], ModelError)

    @classmethod
    def exists(cls, run: Path) -> bool:
        return (run / STREAM / STATE).is_file()

    @classmethod
    def open(cls, run: Path) -> Stream:
        """What updates of a run have made of it."""
        file = run / STREAM / STATE
        facts, tensors = read_tensors(file, "stream", FORMAT_VERSION, error=ModelError)
        return cls(run / STREAM, facts, tensors)

    @classmethod
    def begin(cls, run: Path, model: Updated, identity: str) -> Stream:
        """Make the stream of a run that has seen no update yet; `identity` tells the run's graph from others."""
        stream = cls.prepare(run, model, identity)
        stream._write_state(model)
        return stream

    @classmethod
    def prepare(cls, run: Path, model: Updated, identity: str) -> Stream:
        """The same, but the run has it only once it has taken in something."""
        folder = run / STREAM
        try:
            folder.mkdir(exist_ok=True)
            for name in (SNAPSHOTS, SUMMARY):
                (folder / name).unlink(missing_ok=True)  # left by a beginning that was killed
        except OSError as problem:
            raise ModelError(f"{folder}: cannot be written: {problem.strerror or problem}") from problem
        facts = {
            "graph": identity,
            "method": model.method,
            "options": model.values(),
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
    def anew(self) -> bool:
        """Whether every update learns from all snapshots, not from the newest alone."""
        return bool(self.facts.get("method") == DySAT.method)  # early ones have none

    @property
    def updates(self) -> list[dict[str, Any]]:
        return list(self.facts["updates"])

    @property
    def files(self) -> list[dict[str, Any]]:
        """The event files that were taken in."""
        return list(self.facts["files"])

    def graph(self, base: DynamicGraph, *, verify: bool = True) -> DynamicGraph:
        """The snapshots the run was made with, and those taken in since."""
        labels, kinds, snapshots = [base.nodes], [base.kinds], list(base.snapshots)
        for index, record in enumerate(self.snapshots.records):
            arrays = self.snapshots.read(index, verify=verify)
            parts = {name: torch.from_numpy(arrays[name]) for name in CSR}
            snapshots.append(Snapshot(**parts, num_nodes=record["known"], start=record["start"], stop=record["stop"]))
            labels.append(_labels_in(arrays))
            kinds.append(arrays.get("kinds"))
        nodes = np.concatenate(labels)
        of_kinds = None if base.kinds is None else np.concatenate([part for part in kinds if part is not None])
        return DynamicGraph(nodes, tuple(snapshots), base.clock, of_kinds, base.kind_names)

    def model(self, base: DynamicGraph, device: str = "auto", *, verify: bool = True) -> Updated:
        """The model as the last update left it; its summary stays on disk."""
        options, tensors = {**self.facts["options"], "device": device}, dict(self.tensors)
        if self.anew:
            whole = DySAT.with_options(options)
            whole.graph_ = self.graph(base, verify=True)  # all of it is learned from
            whole._take_state(tensors)
            return whole
        model = IncSAT.with_options(options)
        model.graph_ = self.graph(base, verify=verify)
        model.summary_ = self.rows(model.steps(), verify=True)  # what is learned from them would stay
        model.scorer_ = (tensors.pop(SCORER[0]), tensors.pop(SCORER[1]))
        model._restore(tensors)
        return model

    def rows(self, steps: Iterable[int], *, verify: bool = False) -> list[Rows | None]:
        """The stored rows of some steps, None for the others."""
        wanted, number, found = set(steps), 0, []
        for step, record in enumerate(self.facts["summary"]):
            here = record is not None and step in wanted
            found.append(self.summary.read(number, verify=verify)["rows"] if here else None)
            number += record is not None
        return found

    def cut_back(self) -> None:
        """Forget what an update that was killed has begun."""
        for journal in (self.snapshots, self.summary):
            journal.cut_back()
        steps = len(self.facts["summary"])
        for file in [*self.folder.glob(".*"), *self.folder.glob(EMBEDDINGS.format(0).replace("00000", "*"))]:
            number = file.stem.rpartition("-")[2]
            if file.name.startswith(".") or (number.isdigit() and int(number) >= steps):
                file.unlink(missing_ok=True)
        if self.updates:
            self._write_updates()

    def commit(
        self, model: Updated, labels: Labels, kinds: Any, files: list[dict[str, Any]], update: Mapping[str, Any]
    ) -> None:
        """The model has taken in one more snapshot, with these new nodes: from here on that holds."""
        before = dict(self.facts), self.tensors, list(self.snapshots.records), list(self.summary.records)
        try:
            self._append(model, labels, kinds)
            self.facts |= {"files": files, "updates": [*self.facts["updates"], dict(update)]}
            self._write_state(model)
        except BaseException:
            self.facts, self.tensors, self.snapshots.records, self.summary.records = before
            raise
        with suppress(ModelError):  # the update holds without it, and the next one writes it
            self._write_updates()
        if isinstance(model, IncSAT):
            model.summary_ = self.rows(model.steps())

    def _append(self, model: Updated, labels: Labels, kinds: Any) -> None:
        """Write the newest snapshot, its rows and its embeddings."""
        from dysat.system.table_files import write_table

        snapshot, step = model.graph_[-1], len(model.graph_) - 1
        arrays = {name: getattr(snapshot, name).cpu().numpy() for name in CSR}
        arrays |= {LABELS + name: part for name, part in pack_labels(labels).items()}
        if kinds is not None:
            arrays["kinds"] = kinds
        record = self.snapshots.append(arrays)
        record |= {"known": snapshot.num_nodes, "start": snapshot.start, "stop": snapshot.stop}
        self.facts["snapshots"] = self.snapshots.records
        rows = self.summary.append({"rows": _present(model.summary_[-1])}) if isinstance(model, IncSAT) else None
        self.facts["summary"] = [*self.facts["summary"], rows]
        write_table([model.table()], self.folder / EMBEDDINGS.format(step))

    def _write_state(self, model: Updated) -> None:
        self.tensors = _tensors(model)
        write_tensors(self.folder / STATE, "stream", FORMAT_VERSION, self.facts, self.tensors, error=ModelError)

    def _write_updates(self) -> None:
        """The same for people; it follows the state."""
        lines = ",\n".join(json.dumps(update, ensure_ascii=False) for update in self.updates)
        file, text = self.folder / UPDATES, f"[\n{lines}\n]\n"  # a line for each
        if file.is_file() and file.read_bytes() == text.encode():
            return
        with replace_file(file, ModelError) as beside:
            beside.write_text(text, encoding="utf-8", newline="")


def without_features(graph: DynamicGraph) -> DynamicGraph:
    """A log of events has none, so what goes on without them must not have begun with them."""
    return graph if graph.features is None else replace(graph, features=None)


def _summary(model: Updated) -> list[Rows | None]:
    """The stored rows of every step; a model that is learned anew has none."""
    return model.summary_ if isinstance(model, IncSAT) else [None] * len(model.graph_)


def _tensors(model: Updated) -> dict[str, torch.Tensor]:
    if not isinstance(model, IncSAT):
        return model._state()
    return {**model.weights(), **dict(zip(SCORER, model.scorer_, strict=True))}


def _labels_in(arrays: Mapping[str, Any]) -> Labels:
    return unpack_labels({name.removeprefix(LABELS): part for name, part in arrays.items() if name.startswith(LABELS)})


def _present(rows: Rows | None) -> Rows:
    if rows is None:
        raise ModelError("the newest step has no stored rows")
    return rows
