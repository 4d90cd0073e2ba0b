"""DynGEM: a deep autoencoder of adjacency rows that goes on from step to step and grows with the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.stepwise import StepwiseModel, step_seed
from dysat.models.trained import Task
from dysat.nn.deep import DeepAutoencoder, Output, first_layers, prop_size
from dysat.nn.device import choose_device
from dysat.nn.rows import Rows
from dysat.training import Progress

EMBEDDINGS = "embeddings/"
LARGEST = 1e15  # float32 ends at 3e38


@dataclass(kw_only=True, eq=False)
class DynGEM(StepwiseModel):
    """Deep embedding method for dynamic graphs.

    An autoencoder of layers ReLU(x W + b) makes of a node's row x of the adjacency matrix S an embedding y, and of that
    the row again, x̂. At every step

        Σ_i ‖(x̂_i − x_i) ⊙ b_i‖² + α Σ_ij s_ij ‖y_i − y_j‖² + ν1 Σ |W| + ν2 Σ ‖W‖²,  b = β at links and 1 elsewhere

    is minimised, in batches of the nodes with links: the mean over a batch, and the penalty divided by the number of
    nodes. The network begins as the one of the step before. New nodes widen its input and output. PropSize: a layer
    must have at least `ratio` times the units of the one before; hidden layers that are too small become wider, and
    where the embedding is too small for the layer before it, layers come between. Neither changes what the network
    computes, but for a little noise on units that are copies.

    `embed` gives for an earlier step what was stored when it was learned. A node without links has the embedding of an
    empty row.

    Attributes:
        graph_: the graph so far; network_: the autoencoder as it is now.
        embeddings_: for each step those of the nodes known then.
        epochs_: loss, validation score and seconds of every epoch of the last step; finished_: whether all were run.

    Example:
        >>> import dysat
        >>> graph = dysat.load_dataset("uci")
        >>> model = dysat.MODELS["dyngem"](hidden=(64,), epochs=1).fit(graph[:2])
        >>> model.network_.sizes  # 975 nodes, a tenth of that, the embedding
        (975, 98, 128)
        >>> model.take_in(graph).embed().shape
        torch.Size([1223, 128])

    Reference: Goyal, Kamra, He, Liu: DynGEM: Deep Embedding Method for Dynamic Graphs, IJCAI Workshop on Representation
    Learning for Graphs 2017.
    """

    method: ClassVar[str] = "dyngem"
    settled: ClassVar[bool] = True
    warm: ClassVar[bool] = True

    features: Annotated[int, "width of the embedding"] = 128
    hidden: Annotated[tuple[int, ...], "units of the hidden layers at first, from the input on"] = (256,)
    ratio: Annotated[float, "PropSize: least size of a layer against the one before it; 0 never grows"] = 0.1
    alpha: Annotated[float, "weight of the distance of linked nodes"] = 1e-5
    beta: Annotated[float, "weight of links in a row, against 1"] = 5.0
    nu1: Annotated[float, "weight of Σ |W|"] = 1e-6
    nu2: Annotated[float, "weight of Σ W²"] = 1e-6
    rows: Annotated[Literal["snapshot", "so-far"], "of what graph the rows are: the snapshot, or all so far"] = (
        "snapshot"
    )
    link_weights: Annotated[
        Literal["raw", "normalized", "binary"], "in the rows: as they are, divided by the largest, or 1"
    ] = "binary"
    # Paper: ReLU in all layers. An output that is 0 for every node then learns nothing any more, and most become so.
    output: Annotated[Output, "last layer of the decoder: x W + b, or its ReLU"] = "linear"
    learning_rate: Annotated[float, "of Adam"] = 2e-3
    batch_size: Annotated[int, "nodes in a batch"] = 64
    epochs: Annotated[int, "passes over the nodes of each snapshot, at most"] = 20
    patience: Annotated[int | None, "stop after so many epochs without a better validation score"] = None
    seed: Annotated[int, "of everything random"] = 0
    device: Annotated[str, "cpu, cuda, cuda:1, …; auto takes CUDA where there is one"] = "auto"

    network_: DeepAutoencoder = field(init=False, repr=False)
    embeddings_: list[Tensor] = field(init=False, repr=False)
    given_: Rows = field(init=False, repr=False)  # what the network is given at the newest step

    def check(self) -> None:
        if any(size < 1 for size in self.hidden):
            raise ModelError(f"hidden={self.hidden}: each must be at least 1")
        self._at_least_one("features")
        if not 0 <= self.ratio < 1:
            raise ModelError(f"ratio={self.ratio} must lie in [0, 1)")
        self._not_negative("alpha", "beta", "nu1", "nu2")
        super().check()

    def check_graph(self, graph: DynamicGraph) -> None:
        super().check_graph(graph)
        if self.link_weights == "raw" and (total := sum(s.total_weight for s in graph)) > LARGEST:
            raise ModelError(f"link_weights='raw': weights of {total:.3g} in all are too large to be squared")

    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order, as learned then.  # [known, d]"""
        self._must_be_fitted()
        at = self._check_step(step)
        if at == len(self.embeddings_):  # the step that is being learned
            return self.network_.encode_all(self.given_)
        return self.embeddings_[at].clone()

    def loss(self, rows: Rows, num_items: int) -> Callable[[Tensor, torch.Generator], Tensor]:
        """The loss of a batch of the nodes to learn from, of which there are so many; −1 fills a batch up."""

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            value = self.network_.loss(rows, batch[batch >= 0], alpha=self.alpha, beta=self.beta)
            return value + self.network_.penalty(self.nu1, self.nu2) / num_items

        return loss

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self.network_ = self._going_on().to(device)
        self.scorer_ = torch.ones(self.features), torch.zeros(())  # e_u · e_v
        self.given_ = self._rows()
        items = self.given_.offsets.diff().nonzero()[:, 0]  # nodes with links
        return Task(self.loss(self.given_, len(items)), dict(self.network_.named_parameters()), items)

    def _going_on(self) -> DeepAutoencoder:
        """A network for the nodes there are now; what the one before has learned goes on in it."""
        num_nodes, step = self.graph_.known[-1], len(self.graph_) - 1
        generator = torch.Generator().manual_seed(step_seed(self.seed, step))  # the same on every device
        if hasattr(self, "network_"):
            return self.network_.grown(num_nodes, self.ratio, generator)
        sizes = prop_size((num_nodes, *self.hidden, self.features), self.ratio)
        return DeepAutoencoder(first_layers(sizes, generator), self.output)

    def _rows(self) -> Rows:
        """What the newest step gives the network, for all known nodes."""
        newest = self.graph_[-1] if self.rows == "snapshot" else self.graph_.aggregate()
        rows = Rows.of(newest.to(choose_device(self.device)))
        if self.link_weights == "binary":
            return replace(rows, values=torch.ones_like(rows.values))
        if self.link_weights == "normalized" and len(newest.weights):
            largest = newest.weights.max().clamp(min=torch.finfo(torch.float64).tiny)
            return replace(rows, values=(newest.weights / largest).to(rows.values))
        return rows

    def _store(self) -> None:
        self.embeddings_ = [*self.embeddings_, self.embed()]

    def _stored_steps(self) -> int:
        return len(self.embeddings_)

    def _forget(self) -> None:
        self.embeddings_ = []
        vars(self).pop("network_", None)

    def _take_up(self, progress: Progress) -> None:
        self.embeddings_ = self._embeddings_of(progress.tensors)
        now = {name.removeprefix("now/"): t for name, t in progress.tensors.items() if name.startswith("now/")}
        if now:  # of the step that was being learned: it has the size it needs
            self.network_ = DeepAutoencoder.of(now, self.output)

    def _stored(self) -> dict[str, Tensor]:
        return {f"{EMBEDDINGS}{step}": e for step, e in enumerate(self.embeddings_)}

    def weights(self) -> dict[str, Tensor]:
        """What was learned, without the stored embeddings."""
        return dict(self.network_.state_dict())

    def _learned(self) -> dict[str, Tensor]:
        return {**self.weights(), **self._stored()}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.embeddings_ = self._embeddings_of(tensors)
        self._must_be_whole()
        network = {name: t for name, t in tensors.items() if not name.startswith(EMBEDDINGS)}
        shapes = [tuple(e.shape) for e in self.embeddings_]
        if not network or shapes != [(known, self.features) for known in self.graph_.known]:
            raise ModelError("the weights do not fit the model: not its nodes, or not its features")
        self.network_ = DeepAutoencoder.of(network, self.output).to(choose_device(self.device))

    def _embeddings_of(self, tensors: Mapping[str, Tensor]) -> list[Tensor]:
        """By step, as far as they are there."""
        found: list[Tensor] = []
        device = choose_device(self.device)
        while (e := tensors.get(f"{EMBEDDINGS}{len(found)}")) is not None:
            found.append(e.to(device))
        return found
