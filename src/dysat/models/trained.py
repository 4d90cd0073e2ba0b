"""What every model has that is trained in epochs."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Self, Unpack

import torch
from torch import Tensor, nn

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base import EmbeddingModel, choose_device
from dysat.training import Callbacks, Epoch, Loss, Settings, minimize


class TrainedModel(EmbeddingModel):
    """A method that learns by `training.minimize`. The names below are options of every such model.

    Attributes:
        epochs_: loss, validation score and seconds of every epoch; finished_: whether all were run.
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
            if not math.isfinite(value := getattr(self, name)):
                raise ModelError(f"{name}={value} must be a finite number")
            if value < 0:
                raise ModelError(f"{name}={value} must not be negative")

    def check_graph(self, graph: DynamicGraph) -> None:
        choose_device(self.device)
        if not graph.num_nodes:
            raise ModelError("the graph has no nodes to learn of")

    @abstractmethod
    def fit(
        self, graph: DynamicGraph, *, validate: Callable[[Self], float] | None = None, **how: Unpack[Callbacks]
    ) -> Self:
        """Learn from all snapshots of a graph.

        `validate` scores the model after every epoch, higher is better, and the best epoch is kept; without it the
        last one is. The other arguments, `Callbacks`, are those of `dysat.training.minimize`: to watch, to stop, and to
        go on.
        """

    def _train(
        self,
        loss: Loss,
        parameters: Mapping[str, nn.Parameter],
        items: Tensor,
        generator: torch.Generator,
        validate: Callable[[Self], float] | None,
        how: Callbacks,
        penalized: frozenset[str] = frozenset(),
    ) -> None:
        """Make the loss of batches of items small, and remember how that went."""
        done = minimize(
            loss,
            parameters,
            items,
            self._settings(len(items)),
            generator=generator,
            penalized=penalized,
            validate=None if validate is None else lambda: validate(self),
            **how,
        )
        self.epochs_, self.finished_ = done.history, done.finished

    def _settings(self, num_items: int) -> Settings:
        return Settings(
            epochs=self.epochs,
            batch_size=max(1, min(self.batch_size, num_items)),  # a batch is filled up to its size
            learning_rate=self.learning_rate,
            patience=self.patience,
            capture=False,  # how much a batch needs differs from batch to batch, which a recorded step cannot have
        )
