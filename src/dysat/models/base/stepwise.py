"""StepwiseModel: learns from one snapshot at a time and keeps what later steps need."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import numpy as np
import torch
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.data.reading.labels import Labels
from dysat.errors import ModelError, reporting_damage
from dysat.models.base.trained import TrainedModel
from dysat.nn.device import choose_device
from dysat.training import Callbacks, Epoch, Progress, derived_seed


class StepwiseModel(TrainedModel):
    """A model that learns from the newest snapshot and stores what it needs of earlier ones.

    Subclasses define `_prepare` (for the last snapshot of `graph_`), `_store`, `_stored`, `_stored_steps`, `_forget`
    and `_take_up`. A step must not modify in place anything an earlier step left behind, so that a failed step can be
    undone.
    """

    @abstractmethod
    def _store(self) -> None:
        """Store what later steps need of the newest one."""

    @abstractmethod
    def _stored(self) -> dict[str, Tensor]:
        """The stored tensors by name."""

    @abstractmethod
    def _stored_steps(self) -> int: ...

    @abstractmethod
    def _forget(self) -> None:
        """Reset to the state before any training."""

    @abstractmethod
    def _take_up(self, progress: Progress) -> None:
        """Restore what was stored before training stopped."""

    # Whether a step starts from the previous weights; the best epoch of one step then says nothing about others.
    warm: ClassVar[bool] = False

    def fit(
        self,
        graph: DynamicGraph,
        *,
        validate: Callable[[Self], float] | None = None,
        **how: Unpack[Callbacks],
    ) -> Self:
        """Learn from the snapshots of a graph one at a time, as `partial_fit` does; see `TrainedModel.fit`.

        Each snapshot gets `epochs` epochs; `validate` scores those of the last one. If `stop` ends training early, it
        can resume from what `keep` received.
        """
        with self._or_as_before():
            self.check_graph(graph)
            self._forget()
            on_epoch = how.get("on_epoch")
            if progress := how.get("progress"):
                with reporting_damage("the checkpoint", ModelError):
                    self._take_up(progress)
                    if self._stored_steps() > len(graph):
                        raise ModelError(f"{self._stored_steps()} stored steps for {len(graph)} snapshots")
            while (step := self._stored_steps()) < len(graph):
                how["on_epoch"] = _shifted(on_epoch, step * self.epochs)
                self._learn(graph[: step + 1], validate if step == len(graph) - 1 else None, how)
                how["progress"] = None
                if not self.finished_:
                    return self
            self.graph_ = graph
            self._fit_scorer()
        return self

    def partial_fit(
        self,
        snapshot: Snapshot,
        nodes: Labels | Sequence[Any] | None = None,
        *,
        kinds: Any = None,
        features: Any = None,
        validate: Callable[[Self], float] | None = None,
        **how: Unpack[Callbacks],
    ) -> Self:
        """Learn from the next snapshot, starting from what is stored.

        If anything fails, the model is unchanged. If `stop` ends training early, the model keeps what it has learned.

        Parameters:
            snapshot: the next snapshot; it starts where the last one stops.
            nodes, kinds, features: labels, kinds and features of its new nodes, as for `DynamicGraph.extended`.
            validate: scores the model after every epoch, and the best epoch is kept.
            how: callbacks, as for `fit`.
        """
        if hasattr(self, "graph_"):
            graph = self.graph_.extended(snapshot, nodes, kinds, features)
        else:
            graph = _first_graph(snapshot, nodes, kinds, features)
        return self._next(graph, validate, how)

    def take_in(self, graph: DynamicGraph, *, validate: Callable[[Self], float] | None = None) -> Self:
        """Learn from the first snapshot of a graph that the model has not seen; earlier ones must be those it knows."""
        step = len(self.graph_) if hasattr(self, "graph_") else 0
        if step >= len(graph):
            raise ModelError(f"the model has seen all {len(graph)} snapshots")
        return self._next(graph[: step + 1], validate, {})

    def _next(self, graph: DynamicGraph, validate: Callable[[Self], float] | None, how: Callbacks) -> Self:
        """Learn from the last snapshot of a graph; if that fails, the model is unchanged."""
        with self._or_as_before():
            if hasattr(self, "graph_"):
                self._must_be_whole()
            else:
                self._forget()
            self.check_graph(graph)
            self._learn(graph, validate, how)
            if not self.finished_:
                self._store()
            self._fit_scorer()
        return self

    def save_weights(self, folder: Path) -> None:
        self._must_be_whole()  # otherwise it could not be loaded
        super().save_weights(folder)

    def _learn(self, graph: DynamicGraph, validate: Callable[[Self], float] | None, how: Callbacks) -> None:
        """Learn from the last snapshot of a graph, the others being stored, and store it if all epochs were run."""
        self.graph_ = graph
        device = choose_device(self.device)
        generator = torch.Generator(device).manual_seed(step_seed(self.seed, len(graph) - 1))
        how = how.copy()
        if keep := how.get("keep"):
            how["keep"] = lambda now: keep(replace(now, tensors={**now.tensors, **self._stored()}))
        self._train(self._prepare(device, generator), generator, validate, how)
        if self.finished_:
            self._store()

    def _must_be_whole(self) -> None:
        if (stored := self._stored_steps()) != len(self.graph_):
            raise ModelError(f"{stored} stored steps for {len(self.graph_)} snapshots: fit the model again")


def step_seed(seed: int, step: int) -> int:
    """A seed per step, so that the randomness of a step does not depend on earlier steps."""
    return derived_seed(seed, step)


def _shifted(on_epoch: Callable[[Epoch], None] | None, by: int) -> Callable[[Epoch], None] | None:
    """A callback that counts epochs over all steps."""
    if on_epoch is None:
        return None
    return lambda epoch: on_epoch(replace(epoch, number=epoch.number + by, best=epoch.best + by))


def _first_graph(snapshot: Snapshot, nodes: Labels | Sequence[Any] | None, kinds: Any, features: Any) -> DynamicGraph:
    if kinds is not None:
        raise ModelError("the first snapshot with kinds must come in a graph: call fit(graph), then partial_fit")
    labels = np.arange(snapshot.num_nodes) if nodes is None else np.asarray(nodes)
    labels = labels.astype(object) if labels.dtype.kind == "U" else labels
    graph = DynamicGraph(labels, (snapshot,), clock="step")
    return graph if features is None else graph.with_features(features)
