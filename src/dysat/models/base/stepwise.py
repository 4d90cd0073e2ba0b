"""Models that take in one snapshot after the other, and go on from where they stand."""

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
from dysat.errors import ModelError
from dysat.models.base.trained import TrainedModel
from dysat.nn.device import choose_device
from dysat.training import Callbacks, Epoch, Progress


class StepwiseModel(TrainedModel):
    """A model that learns from the newest snapshot and has stored what it needs of those before.

    Whoever extends it says how: `_prepare` (for the last snapshot of `graph_`), `_store`, `_stored`, `_stored_steps`,
    `_forget` and `_take_up`. What a step learns must change nothing in place that an earlier step has left, so that a
    step that fails can be undone.
    """

    @abstractmethod
    def _store(self) -> None:
        """Keep what later steps need of the newest."""

    @abstractmethod
    def _stored(self) -> dict[str, Tensor]:
        """What is kept, by name."""

    @abstractmethod
    def _stored_steps(self) -> int: ...

    @abstractmethod
    def _forget(self) -> None:
        """Be as if nothing had been learned."""

    @abstractmethod
    def _take_up(self, progress: Progress) -> None:
        """Put back what was stored before a training was stopped."""

    # Whether a step begins with the weights of the one before: one step's best epoch then says nothing of others.
    warm: ClassVar[bool] = False

    def fit(
        self,
        graph: DynamicGraph,
        *,
        validate: Callable[[Self], float] | None = None,
        **how: Unpack[Callbacks],
    ) -> Self:
        """Take in the snapshots of a graph one after the other, as `partial_fit` does; see `TrainedModel.fit`.

        There are `epochs` for each snapshot; `validate` scores those of the last. A graph that was not taken in to its
        end, since `stop` was asked for, can be gone on with from what `keep` was given.
        """
        with self._or_as_before():
            self.check_graph(graph)
            self._forget()
            told = how.get("on_epoch")
            if progress := how.get("progress"):
                self._take_up(progress)
            while (step := self._stored_steps()) < len(graph):
                how["on_epoch"] = _shifted(told, step * self.epochs)
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
        """Learn from the next snapshot, going on from what is stored.

        `nodes` are the labels of the nodes that are new in it, and `kinds` and `features` theirs, as
        `DynamicGraph.extended` takes them. Should anything fail, the model is as it was before. Where `stop` ended
        it early, what was learned until then counts.
        """
        if hasattr(self, "graph_"):
            graph = self.graph_.extended(snapshot, nodes, kinds, features)
        else:
            graph = _first_graph(snapshot, nodes, kinds, features)
        return self._next(graph, validate, how)

    def take_in(self, graph: DynamicGraph, *, validate: Callable[[Self], float] | None = None) -> Self:
        """Learn from the first snapshot of a graph that the model has not seen; those before must be what it has."""
        step = len(self.graph_) if hasattr(self, "graph_") else 0
        if step >= len(graph):
            raise ModelError(f"the model has seen all {len(graph)} snapshots")
        return self._next(graph[: step + 1], validate, {})

    def _next(self, graph: DynamicGraph, validate: Callable[[Self], float] | None, how: Callbacks) -> Self:
        """Learn from the last snapshot of a graph, or be as before."""
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
        self._must_be_whole()  # it could not be read again
        super().save_weights(folder)

    def _learn(self, graph: DynamicGraph, validate: Callable[[Self], float] | None, how: Callbacks) -> None:
        """Learn from the last snapshot of a graph whose others are stored, and store it if all epochs were run."""
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
    """One for each step, so that a step's randomness does not depend on how the steps before came about."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1)


def _shifted(on_epoch: Callable[[Epoch], None] | None, by: int) -> Callable[[Epoch], None] | None:
    """Epochs counted through all steps."""
    if on_epoch is None:
        return None
    return lambda epoch: on_epoch(replace(epoch, number=epoch.number + by, best=epoch.best + by))


def _first_graph(snapshot: Snapshot, nodes: Labels | Sequence[Any] | None, kinds: Any, features: Any) -> DynamicGraph:
    if kinds is not None:
        raise ModelError("the first snapshot of nodes with kinds comes in a graph: fit(graph), then partial_fit")
    labels = np.arange(snapshot.num_nodes) if nodes is None else np.asarray(nodes)
    labels = labels.astype(object) if labels.dtype.kind == "U" else labels
    graph = DynamicGraph(labels, (snapshot,), clock="step")
    return graph if features is None else graph.with_features(features)
