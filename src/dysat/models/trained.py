"""What every model can do that is trained in epochs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self, Unpack

from dysat.data.graph import DynamicGraph
from dysat.models.base import EmbeddingModel
from dysat.training import Callbacks, Epoch


@dataclass(kw_only=True, eq=False)
class TrainedModel(EmbeddingModel):
    """A method that learns by `training.minimize`; `epochs`, `patience` and `device` are among its options.

    Attributes:
        epochs_: loss, validation score and seconds of every epoch; finished_: whether all were run.
    """

    epochs_: list[Epoch] = field(init=False, repr=False)
    finished_: bool = field(init=False, repr=False)

    @abstractmethod
    def fit(
        self, graph: DynamicGraph, *, validate: Callable[[Self], float] | None = None, **how: Unpack[Callbacks]
    ) -> Self:
        """Learn from all snapshots of a graph.

        `validate` scores the model after every epoch, higher is better, and the best epoch is kept; without it the
        last one is. The other arguments, `Callbacks`, are those of `dysat.training.minimize`: to watch, to stop, and to
        go on.
        """
