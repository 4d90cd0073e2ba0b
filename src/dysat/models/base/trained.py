"""TrainedModel: a model trained in epochs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Self, Unpack

import torch
from torch import Tensor, nn

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.embedding import EmbeddingModel
from dysat.nn.device import choose_device
from dysat.system.notebook import notebook_progress
from dysat.system.tensors import check_finite
from dysat.training import Callbacks, Epoch, Loss, Settings, minimize


class Task(NamedTuple):
    """A loss to minimise, its parameters, the items to batch, and the parameters with an L2 penalty."""

    loss: Loss
    parameters: dict[str, nn.Parameter]
    items: Tensor
    penalized: frozenset[str] = frozenset()


class TrainedModel(EmbeddingModel):
    """A method trained in epochs by `training.minimize`. Its annotated names are options of every such method.

    Attributes:
        epochs_: loss, validation score and seconds of every epoch.
        finished_: whether training ended by itself, not by `stop`.
    """

    learning_rate: float
    batch_size: int
    epochs: int
    patience: int | None
    seed: int
    device: str

    epochs_: list[Epoch]
    finished_: bool

    def check(self) -> None:
        self._at_least_one("batch_size", "patience")
        self._not_negative("epochs", "learning_rate", "seed")
        if self.seed >= 2**64:
            raise ModelError(f"seed={self.seed} must be below 2^64")

    def _at_least_one(self, *names: str) -> None:
        for name in names:
            if (value := getattr(self, name)) is not None and value < 1:
                raise ModelError(f"{name}={value} must be at least 1")

    def _not_negative(self, *names: str) -> None:
        for name in names:
            if not -math.inf < (value := getattr(self, name)) < math.inf:  # nor NaN
                raise ModelError(f"{name}={value} must be a finite number")
            if value < 0:
                raise ModelError(f"{name}={value} must not be negative")

    def check_graph(self, graph: DynamicGraph) -> None:
        super().check_graph(graph)
        choose_device(self.device)
        if not graph.num_nodes:
            raise ModelError("the graph has no nodes to learn from")

    def fit(
        self, graph: DynamicGraph, *, validate: Callable[[Self], float] | None = None, **how: Unpack[Callbacks]
    ) -> Self:
        """Learn from all snapshots of a graph.

        Parameters:
            graph: the snapshots to learn from.
            validate: scores the model after every epoch, higher is better, and the best epoch is kept (DySAT with
                `keep_epoch="last"`, the default, keeps the last one). Without it, the last epoch is kept.
            how: the `Callbacks` of `dysat.training.minimize`, to watch, stop and resume: on_epoch, stop, keep,
                keep_every, progress.
        """
        with self._or_as_before(), notebook_progress():
            self.check_graph(graph)
            self.graph_ = graph
            device = choose_device(self.device)
            generator = torch.Generator(device).manual_seed(int(self.seed))
            self._train(self._prepare(device, generator), generator, validate, how)
            self._fit_scorer()
        return self

    @property
    def _bytes_per_weight(self) -> int:
        """Bytes of a number that is learned: itself, its gradient and both moments of Adam."""
        return 16 if self.epochs else 4

    @contextmanager
    def _or_as_before(self) -> Iterator[None]:
        """Restore the model if anything fails."""
        before = dict(vars(self))
        try:
            yield
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    @abstractmethod
    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        """Initial weights, a provisional link score, and the task to train."""

    def _train(
        self, task: Task, generator: torch.Generator, validate: Callable[[Self], float] | None, how: Callbacks
    ) -> None:
        """Train, and record the epochs."""
        done = minimize(
            task.loss,
            task.parameters,
            task.items,
            self._settings(len(task.items)),
            generator=generator,
            penalized=task.penalized,
            validate=None if validate is None else lambda: validate(self),
            **how,
        )
        self.epochs_, self.finished_ = done.history, done.finished

    def _settings(self, num_items: int) -> Settings:
        return Settings(
            epochs=self.epochs,
            batch_size=max(1, min(self.batch_size, num_items)),  # batches are filled up to this size
            learning_rate=self.learning_rate,
            patience=self.patience,
            capture=False,  # batches differ in shape, so a step cannot be recorded
        )


def load_weights(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load weights into a network; raise if they do not fit, or are not finite."""
    for name, own in network.state_dict().items():
        if name in tensors and tensors[name].dtype != own.dtype:
            raise ModelError(f"the weights do not fit the model: {name} holds {tensors[name].dtype}, not {own.dtype}")
    check_finite(tensors, ModelError)
    try:
        network.load_state_dict(dict(tensors))
    except RuntimeError as problem:
        raise ModelError(f"the weights do not fit the model: {problem}") from None
