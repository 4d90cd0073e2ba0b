"""DySAT: self-attention over a node's neighbours, then over its own history."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from threading import Event
from typing import Annotated, Any, ClassVar, Literal, Self, Unpack, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.features.activity import COLUMNS as ACTIVITY
from dysat.features.activity import activity
from dysat.features.eigenvectors import BLOCK_NODES
from dysat.features.pair_history import history_of
from dysat.features.spectrum import spectrum
from dysat.models.attention import FAN_OUT, MOST_ROWS, NODES_AT_ONCE, AttentionModel, Sizes
from dysat.models.base.best_pairs import OnProgress, among, best_of_each
from dysat.models.base.forecasts import Forecasts
from dysat.models.base.link_model import LinkModel, as_pairs
from dysat.models.base.memory import GraphSize
from dysat.models.base.trained import Task, load_weights
from dysat.models.forecast.candidates import latest_links, likely_pairs, partners_of, spectral_vectors
from dysat.models.forecast.examples import forget_histories
from dysat.models.forecast.pair_score import PairScore
from dysat.models.forecast.parts import load_regressions
from dysat.models.forecast.why import Why, reason_rows, reasons
from dysat.nn.device import choose_device
from dysat.nn.future_objective import Ahead, Cells, ProductScore, Transitions
from dysat.nn.network import Inputs
from dysat.nn.temporal import Scale
from dysat.nn.walk_objective import Reduction, Sharing
from dysat.sampling.blocks import Unknown
from dysat.sampling.pairs import mixed_pairs
from dysat.system.notebook import notebook_progress
from dysat.system.parallel.matrices import matrices_on
from dysat.system.parallel.process import MANY_LINKS, few_blas_threads, meanwhile, return_freed_memory
from dysat.system.parallel.ranks import alone, ranks
from dysat.system.progress import report
from dysat.training import Callbacks, Settings, minimize

SCORE, PAIR, AXES, TARGET_AXES = "score/", "pair/", "axes", "axes_target"
ORIENTED = "coordinates/oriented"  # a flag; models of earlier versions lack it
Role = Literal["source", "target"]
TAUGHT = 12  # pairs per node and kind on which embeddings learn to agree with the pair score
SCORED_AT_ONCE = 1 << 17  # pairs between two reports of progress
LEAST, MOST = 20_000, 80_000  # bounds on the number of those pairs
PAIRS_AT_ONCE = 1 << 8  # links, and as many taught pairs, of a training step that computes only their neighbourhoods
# Values of the options that the paper's model lacks, at which they have no effect.
PAPER: dict[str, Any] = {
    "activity": False,
    "spectrum": 0,
    "positions": "absolute",
    "walk_weight": 1.0,
    "future_weight": 0.0,
    "agreement": 0.0,
    "pair_score": False,
    "keep_epoch": "best",
    "cool_down": 0.0,
}
FORECAST_OPTIONS = ("embeddings", "pair_score", "transitions", "seed", "device")  # of a model without embeddings
WALK_OPTIONS = (
    *("walks_per_node", "walk_length", "window", "contexts", "negatives", "sharing", "negative_weight", "reduction"),
)


@dataclass(kw_only=True, eq=False)
class DySAT(AttentionModel):
    """Dynamic self-attention network.

    In every snapshot a node gets a vector by attention over its neighbours. Its embedding at step t comes from
    attention over its vectors up to t.

    `DySAT()` is the default model, which `dysat fit`, `dysat evaluate` and `dysat tune` use too. Beyond the paper, it
    takes activity and spectral coordinates as inputs, learns from the links of the next snapshot, and scores links with
    a pair score (docs/forecasting.md). The paper's model has two readings: `DySAT.from_preset("text")` follows its
    text, and `DySAT.from_preset("program")` follows the authors' program, which produced the published figures. Both
    learn from random walks: nodes that meet on a walk in a snapshot score high, others low.

    The pair score is learned before the network and does not depend on it. `DySAT(embeddings=False)` learns only the
    pair score, without any training: its forecasts are those of the whole model, but `embed` and `attention` raise.

    Attributes:
        graph_: the graph passed to `fit`; with `history` the model uses its latest snapshots only.
        epochs_: loss, validation score and seconds of every epoch.
        finished_: whether training ended by itself, not by `stop`.

    Example:
        >>> import dysat
        >>> model = dysat.DySAT(epochs=1).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 128])

    Reference: Sankar, Wu, Gou, Zhang, Yang: DySAT: Deep Neural Representation Learning on Dynamic Graphs via
    Self-Attention Networks, WSDM 2020.
    """

    method: ClassVar[str] = "dysat"
    about: ClassVar[str] = "attention over neighbours, then over each node's history"

    activity: Annotated[bool, "Input: activity of a node (decayed degrees and weights, last seen, age, kind)"] = True
    spectrum: Annotated[int, "Input: spectral coordinates of the links so far, per sign of the eigenvalue"] = 16
    positions: Annotated[
        Literal["absolute", "relative", "time"], "Time in attention: positions, distances in steps, or durations"
    ] = "relative"
    walk_weight: Annotated[float, "Weight of the random-walk loss"] = 0.0
    future_weight: Annotated[float, "Weight of the loss on links of the next snapshot"] = 0.1
    future_negatives: Annotated[int, "Negative samples per link of the next snapshot"] = 1
    matched: Annotated[float, "Fraction of those negatives sampled to match the activity of linked nodes"] = 0.25
    agreement: Annotated[float, "Weight of the loss that makes embeddings agree with the pair score"] = 1.0
    pair_score: Annotated[bool, "Score links by features of the pair instead of by embeddings"] = True
    embeddings: Annotated[
        bool, "Learn embeddings; without them only the pair score is learned, which needs no epochs"
    ] = True
    keep_epoch: Annotated[Literal["best", "last"], "Epoch to keep if there is a validation score"] = "last"
    cool_down: Annotated[float, "Fraction of the epochs, at the end, over which the learning rate falls"] = 0.3
    transitions: Annotated[int, "Number of latest transitions between snapshots to learn from"] = 3

    # Defaults that differ from the authors' program. presets/dysat_default.toml gives the reasons.
    structural_heads: Sizes = (16,)
    structural_features: Sizes = (128,)
    scale: Scale = "features"
    residual: bool = True
    unknown: Unknown = "masked"
    structural_dropout: float = 0.0
    walk_length: int = 40
    sharing: Sharing = "per-positive"
    reduction: Reduction = "sum"
    l2: float = 1e-4
    l2_on: Literal["all", "structural"] = "all"
    clip_norm: float | None = None
    learning_rate: float = 5e-3
    batch_size: int = 4096
    epochs: int = 150
    patience: int | None = 20

    score_: ProductScore | None = field(init=False, repr=False, default=None)
    axes_: Tensor | None = field(init=False, repr=False, default=None)  # rotates the network's output into embeddings
    target_axes_: Tensor | None = field(init=False, repr=False, default=None)  # the same of targets in a directed graph
    pair_score_: PairScore | None = field(init=False, repr=False, default=None)
    _ready_coordinates: list[Tensor] | None = field(
        init=False, repr=False, default=None
    )  # computed before they are needed
    _oriented: bool = field(init=False, repr=False, default=True)  # coordinates do not depend on the processor

    @property
    def version(self) -> int:
        # 2: the pair score learns to rank; 3: its trees learn from half of the rows each; 4: its weights follow the
        # log; 5: its trees are deeper, and learn from all rows; 6: it learns from more uniform pairs, and its
        # features are in the order of kinds; 7: other eigenvectors of networks of few hubs, and of large ones; 8: its
        # weights follow older windows too, if the last one has few links
        if self.pair_score or self.agreement:
            return 8
        return 2 if self.spectrum else 1  # 2: the signs of coordinates follow a rule

    def check(self) -> None:
        super().check()
        self._not_negative("walk_weight", "future_weight", "agreement", "spectrum")
        self._at_least_one("future_negatives", "transitions")
        for name in ("matched", "cool_down"):
            if not 0 <= getattr(self, name) <= 1:
                raise ModelError(f"{name}={getattr(self, name)} must lie in [0, 1]")
        if not self.embeddings and not self.pair_score:
            raise ModelError("embeddings=False and pair_score=False: there is nothing to learn")
        if self.embeddings and not self.walk_weight + self.future_weight + self.agreement:
            raise ModelError("walk_weight=0, future_weight=0 and agreement=0: there is nothing to learn from")

    @property
    def has_embeddings(self) -> bool:
        return self.embeddings

    def without_effect(self, names: Iterable[str]) -> dict[str, str]:
        if not self.embeddings:
            return {name: "embeddings=False" for name in names if name not in FORECAST_OPTIONS}
        if self.walk_weight:
            return {}
        why = "walk_weight=0; the models that learn from random walks are dysat:text and dysat:program"
        return {name: why for name in names if name in WALK_OPTIONS}

    @classmethod
    def _check_preset(cls, parameters: Mapping[str, Any], file: str) -> None:
        # Presets written when the defaults followed the paper's text list walk options, but not walk_weight.
        if {"sharing", "reduction"} & parameters.keys() and "walk_weight" not in parameters:
            paper = ", ".join(f"{name} = {json.dumps(value)}" for name, value in PAPER.items())
            raise ModelError(f"{file}: written for the paper's model by an earlier version; add {paper}")

    def check_graph(self, graph: DynamicGraph) -> None:
        # A model without embeddings builds no network, so its options need not fit the graph or the machine.
        super().check_graph(graph) if self.embeddings else LinkModel.check_graph(self, graph)

    def _least_memory(self, size: GraphSize) -> float:
        if not self.embeddings:
            return 0.0
        coordinates = 8.0 * self.spectrum * size.rows(self.history)  # of both signs
        weights = 2 * self.spectrum * self.structural_features[0 if self.blocks != "temporal" else -1]
        return super()._least_memory(size) + coordinates + self._bytes_per_weight * weights

    def _counts_table(self, size: GraphSize) -> bool:
        in_parts = size.rows(self.history) > MOST_ROWS["cpu"]
        return super()._counts_table(size) and not (self.inputs == "identity" and self._own_inputs and in_parts)

    @property
    def _sizes(self) -> tuple[str, ...]:
        return (*super()._sizes, "spectrum")

    def fit(
        self, graph: DynamicGraph, *, validate: Callable[[Self], float] | None = None, **how: Unpack[Callbacks]
    ) -> Self:
        """Learn from all snapshots of a graph; see `TrainedModel.fit`. Without embeddings there are no epochs."""
        if self.embeddings:
            return super().fit(graph, validate=validate, **how)
        with self._or_as_before(), notebook_progress():
            self.check_graph(graph)
            self._forget()
            self.graph_ = graph
            self.pair_score_ = self._learn_pair_score()
            if self.pair_score_ is None:
                raise ModelError("no forecast can be learned: the graph has no links, or all of its pairs are linked")
            self.epochs_, self.finished_ = [], True
        return self

    def _forget(self) -> None:
        """Remove the network and its parts, which an earlier fit may have left."""
        for name in ("network_", "block_", "inputs_", "scorer_"):
            vars(self).pop(name, None)
        self.score_ = self.pair_score_ = self.axes_ = self.target_axes_ = None

    def _must_have_embeddings(self) -> None:
        self._must_be_fitted()
        if not self.embeddings:
            raise ModelError("this model has no embeddings: it was fitted with embeddings=False; fit again without it")

    def _needs_features(self, graph: DynamicGraph) -> bool:
        if not self._own_inputs:
            return super()._needs_features(graph)
        return graph.features is not None  # inputs="features" without any leaves out the learned vector

    @property
    def _own_inputs(self) -> bool:
        return bool(self.activity or self.spectrum)

    @property
    def _has_table(self) -> bool:
        # A step of training that computes few nodes would teach each vector too rarely.
        return super()._has_table and not (self.inputs == "identity" and self._own_inputs and self._in_parts)

    @property
    def _looks_ahead(self) -> bool:
        return bool(self.future_weight or self.agreement)

    @property
    def uses_direction(self) -> bool:
        """Whether the scores of u → v and v → u may differ; random walks, as in the paper, ignore direction."""
        return self.pair_score or self._looks_ahead

    @property
    def uses_times(self) -> bool:
        """Whether results depend on the times of events inside windows: they are features of the pair score."""
        return self.pair_score or bool(self.agreement)

    def _inputs(self, graph: DynamicGraph) -> Inputs:
        if not self._own_inputs:
            return super()._inputs(graph)
        values = torch.empty(sum(graph.known), self._num_inputs(graph), device=graph.device)
        tables, first = torch.split(values, list(graph.known)), 0
        for part in self._input_parts(graph):
            stop = first
            for table, columns in zip(tables, part, strict=True):
                stop = first + columns.shape[1]
                table[:, first:stop] = columns
            first = stop
        return Inputs(values, per_row=True)

    def _num_inputs(self, graph: DynamicGraph) -> int:
        if not self._own_inputs:
            return super()._num_inputs(graph)
        # Features come beside inputs of its own, also with inputs="identity".
        return (ACTIVITY + len(graph.kind_names)) * self.activity + 2 * self.spectrum + graph.num_features

    def _input_parts(self, graph: DynamicGraph) -> Iterator[Iterable[Tensor]]:
        """Yield columns of the nodes known at each step: activity, coordinates, features.  # each [known, F]"""
        # Computed from the whole past, even if attention covers the latest snapshots only.
        if self.activity:
            yield activity(self.graph_.to(graph.device))[-len(graph) :]
        if self.spectrum:  # computed on the graph's device
            ready, self._ready_coordinates = self._ready_coordinates, None
            yield self._coordinates(graph.device, len(graph)) if ready is None else ready
        if (given := graph.features) is not None:
            yield given if isinstance(given, tuple) else tuple(given[:known] for known in graph.known)

    def _coordinates(self, device: torch.device, steps: int) -> Iterator[Tensor]:
        """Yield the spectral coordinates of the last steps.  # each [known, 2 · spectrum]"""
        with matrices_on(device):
            every = spectrum(self.graph_, self.spectrum, oriented=self._oriented)
            yield from islice(every, len(self.graph_) - steps, None)

    def _times(self) -> Tensor | None:
        if self.positions == "absolute":
            return None
        steps = self.steps()
        if self.positions == "relative":
            return torch.arange(len(steps))
        edges = np.array(self.graph_.boundaries[steps.start : steps.stop + 1], dtype=np.float64)
        ends = edges[1:] - edges[1]
        return torch.from_numpy(np.rint(ends / max(1.0, float(np.median(np.diff(edges)))))).long()

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self.score_ = self.pair_score_ = self.axes_ = self.target_axes_ = None
        self._oriented = True
        with self._getting_ready(device) as begin:
            if self.pair_score or self.agreement:
                self.pair_score_ = self._learn_pair_score(begin)
            ahead = self._ahead(device)
        if ranks().size > 1:
            forget_histories()
        self._return_memory()
        if ahead is None:
            return super()._prepare(device, generator)
        self._build(device)
        self._return_memory()
        self.score_ = ProductScore(self.network_.width, directed=self.graph_.directed).to(device)
        self.scorer_ = torch.ones(self.network_.width), torch.zeros(())  # replaced when training ends
        items, walks = torch.zeros(1, dtype=torch.int64, device=device), None
        if self.walk_weight:
            sampler = self.sampler(generator)
            items = sampler.nodes()
            walks = self.loss(sampler)

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            value = ahead(generator)
            return value if walks is None else value + self.walk_weight * walks(batch, generator)

        return Task(loss, self._parameters(), items, frozenset(self._penalized()))

    def _return_memory(self) -> None:
        """Return freed memory to the system where it counts: with several ranks, or many links."""
        if ranks().size > 1 or sum(snapshot.num_links for snapshot in self.graph_) > MANY_LINKS:
            return_freed_memory()

    @contextmanager
    def _getting_ready(self, device: torch.device) -> Iterator[Callable[[], None]]:
        """Load what training on a GPU needs, and compute its inputs that do not depend on the pair score, meanwhile.

        Yields a function that begins it. It is to be called when trees are grown, which do not hold Python's lock.
        """
        if device.type != "cuda" or not (self.pair_score or self.agreement):
            yield lambda: None
            return
        begin, divided = Event(), ranks().size > 1  # another thread would not know the ranks

        def get_ready() -> None:
            begin.wait()
            self._warm_up(device)
            if self.spectrum and not divided:
                self._ready_coordinates = list(self._coordinates(device, len(self._recent())))

        with meanwhile(get_ready):
            try:
                yield begin.set
            finally:
                begin.set()

    def _warm_up(self, device: torch.device) -> None:
        """Train a graph of two nodes for a step, so that the GPU has loaded what training needs."""
        small = {"pair_score": False, "agreement": 0.0, "future_weight": 1.0, "walk_weight": 0.0, "spectrum": 0}
        model = type(self)(**{**self.get_params(), **small, "inputs": "identity", "history": None, "epochs": 1})
        link = np.array([0]), np.array([1]), np.ones(1)
        steps = [Snapshot.from_links(*link, num_nodes=2, start=step, stop=step + 1) for step in range(2)]
        model.graph_ = DynamicGraph(np.arange(2), tuple(steps), clock="step")
        generator = torch.Generator(device).manual_seed(0)
        task = model._prepare(device, generator)
        # A recording would not bear what other threads do on the GPU.
        settings = replace(model._settings(len(task.items)), capture=False)
        minimize(
            *(task.loss, task.parameters, task.items, settings),
            generator=generator,
            penalized=task.penalized,
            on_epoch=lambda epoch: None,
        )

    def _large_matrices(self, soon: Callable[[torch.device], object] | None = None) -> AbstractContextManager[None]:
        """Compute with large matrices on the device of the model; on the CPU if this machine does not have it."""
        try:
            return matrices_on(choose_device(self.device), soon=soon)
        except ModelError:
            return matrices_on(torch.device("cpu"))

    def _learn_pair_score(self, on_trees: Callable[[], object] = lambda: None) -> PairScore | None:
        with self._large_matrices(load_regressions if self.graph_.num_nodes > BLOCK_NODES else None):
            return PairScore.learn(self.graph_, transitions=self.transitions, seed=self.seed, on_trees=on_trees)

    def _ahead(self, device: torch.device) -> Callable[[torch.Generator], Tensor] | None:
        """The loss on the next snapshot; None if there is nothing to predict."""
        graph = self._recent().to(device)
        first = max(0, len(graph) - 1 - self.transitions) if self.future_weight else len(graph) - 1
        cells = Cells.of(graph.known, first, device)
        links = Transitions.of(graph, cells, self.future_negatives, self.matched) if self.future_weight else None
        links = links if links is not None and len(links.pairs) else None
        taught = self._taught(cells, len(graph) - 1) if self.agreement and self.pair_score_ is not None else None
        if links is None and taught is None and self._looks_ahead:  # no transition yet: learn the present links
            links = Transitions.of(graph, cells, self.future_negatives, self.matched, ahead=0)
            links = links if len(links.pairs) else None
        if links is None and taught is None:
            return None
        ahead, plan = Ahead(cells, links, taught, (self.future_weight or 1.0, self.agreement)), None

        def loss(generator: torch.Generator) -> Tensor:
            nonlocal plan
            if self._in_parts:
                return self._loss_of_pairs(ahead, generator)
            plan = plan or self.network_.plan(self.block_, cells.nodes, cells.steps)
            x: Tensor = self.network_(self.block_, self.inputs_, plan, generator=generator)
            return ahead.loss(self._score(), x, ahead.draw(generator))

        return loss

    def _loss_of_pairs(self, ahead: Ahead, generator: torch.Generator) -> Tensor:
        """The loss on a few pairs, from the histories and the neighbours of their nodes alone."""
        used, drawn = ahead.draw(generator, max(1, PAIRS_AT_ONCE // ranks().size)).compact()
        plan = self.network_.plan(self.block_, ahead.cells.nodes[used], ahead.cells.steps[used])
        x = self.network_(self.block_, self.inputs_, plan, fan_out=FAN_OUT, generator=generator)
        return ahead.loss(self._score(), x, drawn)

    def _taught(self, cells: Cells, last: int) -> tuple[Tensor, Tensor]:
        """Pairs of all kinds at the last step, and the pair score's probability that each is linked next."""
        pairs = self._taught_pairs()
        device = cells.nodes.device
        return cells.at(pairs.to(device), last), self._expected(pairs).to(device, torch.get_default_dtype())

    def _taught_pairs(self) -> Tensor:
        """Pairs of all kinds for the embeddings to learn from.  # [B, 2]"""
        number = min(MOST, max(LEAST, TAUGHT * self.graph_.known[-1]))
        return mixed_pairs(self.graph_, number, self.seed)

    def _expected(self, pairs: Tensor) -> Tensor:
        """The probabilities that the pair score gives these pairs.  # [B, 2] → [B]"""
        with self._large_matrices():
            return torch.sigmoid(self._pair_score().log_odds(self.graph_, len(self.graph_) - 1, pairs))

    def _settings(self, num_items: int) -> Settings:
        found = replace(super()._settings(num_items), keep_best=self.keep_epoch == "best", cool_down=self.cool_down)
        return replace(found, batch_size=max(1, min(found.batch_size, num_items))) if self._looks_ahead else found

    def _parameters(self) -> dict[str, nn.Parameter]:
        scored = {} if self.score_ is None else {f"{SCORE}{n}": p for n, p in self.score_.named_parameters()}
        return {**dict(self.network_.named_parameters()), **scored}

    def attention(self, step: int = -1, *, nodes: Tensor | None = None) -> Tensor:
        self._must_have_embeddings()
        return super().attention(step, nodes=nodes)

    def embed(self, step: int = -1, role: Role = "source", *, nodes: Tensor | None = None) -> Tensor:
        """Return the embeddings of the nodes known at a step, in node order.  # [known, d]

        In a directed graph a node has two: as a source of links, the default, and as a target. In other graphs, and in
        the paper's model, both are the same. `nodes` are ids to embed these nodes only.
        """
        if role not in get_args(Role):
            raise ModelError(f"role={role!r} is neither 'source' nor 'target'")
        found = self.roles(step, nodes=nodes)
        return found if found.dim() == 2 else found[:, get_args(Role).index(role)]

    def roles(self, step: int = -1, *, nodes: Tensor | None = None) -> Tensor:
        self._must_have_embeddings()
        return self._as_roles(super().embed(step, nodes=nodes))

    def _as_roles(self, x: Tensor) -> Tensor:
        """Turn outputs of the network into embeddings.  # [n, d] → [n, d] or [n, 2, d]"""
        if self.score_ is None:
            return x
        # They change during training.
        source, target = self._axes()[:2] if self.axes_ is None else (self.axes_, self.target_axes_)
        e = x @ source.to(x.device)
        return e if target is None else torch.stack([e, x @ target.to(x.device)], 1)

    @torch.no_grad()
    def trajectories(self, nodes: Tensor, steps: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
        """Return `roles` and `attention` of some nodes at several steps, many times faster than step by step.

        At each step they are those of the nodes known by then, which are a prefix of `nodes`, in order. Without
        temporal attention the second list is empty.
        """
        self._must_have_embeddings()
        first, device = self.steps().start, self.block_.node.device
        found = [(list[Tensor](), list[Tensor]()) for _ in steps]
        for some in torch.split(nodes.to(device), NODES_AT_ONCE):
            known = [some[some < self.graph_.known[step]] for step in steps]
            at = torch.cat([torch.full_like(part, step - first) for part, step in zip(known, steps, strict=True)])
            plan = self.network_.plan(self.block_, torch.cat(known), at)
            x = self.network_.rows(self.block_, self.inputs_, plan, fan_out=FAN_OUT)
            e, sizes = self._as_roles(self.network_.attend(x, plan)), list(map(len, known))
            for (embedded, _), part in zip(found, torch.split(e, sizes), strict=True):
                embedded.append(part)
            if self.blocks != "structural":
                past, table = plan.last.past, x.new_zeros(len(at), len(self.steps()))
                table[past.receivers, plan.last.past_steps] = self.network_.attention(x, plan).mean(1)
                for (_, attended), part, step in zip(found, torch.split(table, sizes), steps, strict=True):
                    attended.append(part[:, : step - first + 1])
        return [torch.cat(part) for part, _ in found], [torch.cat(part) for _, part in found if part]

    def _axes(self) -> tuple[Tensor, Tensor | None, Tensor]:
        """Principal axes of the scores at the last step, of sources and of targets if they differ; and weights."""
        x = super().embed()
        if self._score().target is not None:
            return self._score().role_axes(x)
        axes, weights = self._score().axes(x)
        return axes, None, weights

    def pair_scores(self, pairs: Tensor, step: int = -1) -> Tensor:
        """Return the log-odds that rank pairs, for a balanced mix of links and non-links.  # [B, 2] → [B]"""
        if not self.pair_score or self.pair_score_ is None:
            return super().pair_scores(pairs, step)
        with self._large_matrices():
            return self.pair_score_.log_odds(self.graph_, self._check_step(step), pairs)

    def _probabilities(self, pairs: Tensor, step: int = -1) -> Tensor:
        if not self.pair_score or self.pair_score_ is None:
            return super()._probabilities(pairs, step)
        with self._large_matrices():
            return self._chances(self.pair_score_.class_log_odds(self.graph_, self._check_step(step), pairs))

    def why(self, pairs: Any, number: int = 5, *, step: int = -1, ids: bool = False) -> list[Why]:
        """Return why links between these pairs are likely or unlikely: the facts with the largest effect on the score.

        Effects compare a pair with random pairs of the same step, in log-odds. The effects of all facts add up to the
        score of the pair minus that of a random pair.

        Parameters:
            pairs: pairs of labels, as in `score_links`, or what `top_links` returned.
            number: number of reasons per pair; facts without any effect are left out.
            step: the last step that is used.
            ids: whether pairs are node ids instead of labels.

        Example:
            >>> import dysat
            >>> model = dysat.DySAT(embeddings=False).fit(dysat.load_dataset("uci")[:3])
            >>> found = model.why(model.top_links(1))[0]
            >>> found.reasons[0].fact, found.reasons[0].text
            ('past links', 'linked in 2 of 3 windows')
            >>> bool(found.reasons[0].effect > 0)  # makes the link more likely
            True
        """
        if number < 1:
            raise ModelError(f"number={number} must be at least 1")
        numbers = self._explained_pairs(pairs, step, ids)
        with self._large_matrices():
            scores, baseline, found = reasons(
                self._explained_score(), self.graph_, self._check_step(step), numbers, number
            )
        labels = self.graph_.nodes[numbers.numpy()].tolist()
        return [
            Why(u, v, score, baseline, own) for (u, v), score, own in zip(labels, scores.tolist(), found, strict=True)
        ]

    def _reasons(self) -> Callable[..., Any] | None:
        return partial(why_rows, self) if self.pair_score and self.pair_score_ is not None else None

    def _explained_pairs(self, pairs: Any, step: int, ids: bool) -> Tensor:
        """Ids of pairs to explain.  # [B, 2]"""
        self._explained_score()
        if not isinstance(pairs, Forecasts):
            return self._check_pairs(as_pairs(pairs) if ids else self._find_pairs(pairs), step)
        if pairs.graph is not self.graph_ and pairs.graph.fingerprint != self.graph_.fingerprint:
            raise ModelError("these forecasts are of another graph than the model")
        return self._check_pairs(torch.from_numpy(pairs.ids.copy()), step)

    def _explained_score(self) -> PairScore:
        self._must_be_fitted()
        if not self.pair_score or self.pair_score_ is None:
            raise ModelError(
                "only a pair score can be explained, and this model has none; fit one with pair_score=True"
            )
        return self.pair_score_

    def _fit_scorer(self) -> None:
        self._return_memory()  # of the last steps of training
        if self.score_ is None:
            super()._fit_scorer()
        else:
            axes, target, weights = self._axes()
            self.axes_, self.scorer_ = axes.cpu(), (weights.cpu(), self.score_.bias.detach().cpu())
            self.target_axes_ = None if target is None else target.cpu()

    def _learned(self) -> dict[str, Tensor]:
        pair = {} if self.pair_score_ is None else self.pair_score_.tensors()
        named = {AXES: self.axes_, TARGET_AXES: self.target_axes_}
        axes = {name: value for name, value in named.items() if value is not None}
        flag = {ORIENTED: torch.tensor(True)} if self.embeddings and self.spectrum and self._oriented else {}
        return {**self.weights(), **axes, **flag, **{f"{PAIR}{name}": value for name, value in pair.items()}}

    def weights(self) -> dict[str, Tensor]:
        """Return the weights of the network and of the product score."""
        if not self.embeddings:
            return {}
        score: Mapping[str, Tensor] = {} if self.score_ is None else self.score_.state_dict()
        return {**self.network_.state_dict(), **{f"{SCORE}{name}": value for name, value in score.items()}}

    def _state(self) -> dict[str, Tensor]:
        return super()._state() if self.embeddings else self._learned()

    def _take_state(self, tensors: dict[str, Tensor]) -> None:
        super()._take_state(tensors) if self.embeddings else self._restore(tensors)

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        parts: dict[str, dict[str, Tensor]] = {SCORE: {}, PAIR: {}, AXES: {}, ORIENTED: {}, "": {}}
        for name, value in tensors.items():
            prefix = next(p for p in parts if name.startswith(p))
            parts[prefix][name.removeprefix(prefix)] = value
        if not self.embeddings:
            self._forget()
            self.pair_score_ = PairScore.of(parts[PAIR])
            return
        self._oriented = bool(parts[ORIENTED])
        try:
            super()._restore(parts[""])
        except ModelError:
            if not self._own_inputs or self.graph_.features is None:
                raise
            reason = "earlier versions did not use the node features of the graph"
            raise ModelError(f"the weights do not fit the model: {reason}; fit the model again") from None
        self.score_ = self.pair_score_ = None
        self.axes_, self.target_axes_ = parts[AXES].get(""), parts[AXES].get(TARGET_AXES.removeprefix(AXES))
        if parts[SCORE]:
            directed = self.graph_.directed
            needed = [self.axes_, *[self.target_axes_] * directed]
            if any(not _are_axes(axes, self.network_.width) for axes in needed):
                raise ModelError(f"the weights do not fit the model: axes, {self.network_.width} wide, are needed")
            self.score_ = ProductScore(self.network_.width, directed=directed).to(choose_device(self.device))
            load_weights(self.score_, parts[SCORE])
        if parts[PAIR]:
            self.pair_score_ = PairScore.of(parts[PAIR])

    def _score(self) -> ProductScore:
        if self.score_ is None:
            raise TypeError("a model that does not look ahead")
        return self.score_

    def _pair_score(self) -> PairScore:
        if self.pair_score_ is None:
            raise TypeError("a model without a pair score")
        return self.pair_score_

    def prepare(self) -> Self:
        self._must_be_fitted()
        if self.pair_score and self.pair_score_ is not None:
            report("the past of all pairs")
            history = history_of(self.graph_, len(self.graph_) - 1, self.pair_score_.three_step)
            with few_blas_threads(self.graph_.num_nodes), self._large_matrices():
                history.prepare()
                _ = history.uniform_features
                latest_links(self.graph_, self.pair_score_.three_step)
        return self

    def top_pairs(
        self,
        k: int,
        rows: Tensor | None = None,
        without: Tensor | None = None,
        on_progress: OnProgress | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return ids and scores of the k most likely pairs; the pair score ranks candidates.  # [k, 2], [k]"""
        if not self.pair_score or self.pair_score_ is None:
            return super().top_pairs(k, rows, without, on_progress)
        if rows is not None:
            return self._top_partners(k, rows, without, on_progress or (lambda done: None))
        pairs, scores = self._ranked(k, without)
        return pairs[:k], self._chances(scores[:k])

    def _top_partners(
        self, k: int, rows: Tensor, without: Tensor | None, on_progress: OnProgress
    ) -> tuple[Tensor, Tensor]:
        """Return the k most likely pairs of each row; a rank finds those of its share.  # [≤ R · k, 2], [≤ R · k]"""
        self.prepare()
        own = rows.tensor_split(ranks().size)[ranks().rank]
        with alone():
            pairs, scores = self._partners(k, own, without, on_progress)
        parts = [each for _, each in ranks().gathered(None, {"pairs": pairs, "scores": scores})]
        return torch.cat([part["pairs"] for part in parts]), self._chances(torch.cat([p["scores"] for p in parts]))

    def _partners(self, k: int, rows: Tensor, without: Tensor | None, on_progress: OnProgress) -> tuple[Tensor, Tensor]:
        """Return the k most likely pairs of each row and their log-odds.  # [≤ R · k, 2], [≤ R · k]"""
        size, done = self.graph_.known[-1], 0
        found, scores = [rows.new_empty(0, 2)], [torch.empty(0, dtype=torch.float64)]
        three_step = self._pair_score().three_step

        def keep(pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
            if without is None:
                return np.ones(len(pairs), dtype=np.bool_)
            kept: NDArray[np.bool_] = ~among(self._pair_keys(torch.from_numpy(pairs)), without).numpy()
            return kept

        for nodes, candidates in partners_of(self.graph_, rows.numpy(), three_step, k, self._log_odds, keep):
            pairs = torch.from_numpy(candidates)
            keys, which = torch.unique(self._pair_keys(pairs), return_inverse=True)  # both ends may ask for a pair
            values = torch.empty(len(keys), dtype=torch.float64)
            for first in range(0, len(keys), SCORED_AT_ONCE):
                part = keys[first : first + SCORED_AT_ONCE]
                values[first : first + len(part)] = self._log_odds(torch.stack([part // size, part % size], 1))
                on_progress((done + len(nodes) * (first + len(part)) / len(keys)) / len(rows))
            best = best_of_each(pairs, values[which], k)
            found.append(pairs[best])
            scores.append(values[which[best]])
            done += len(nodes)
        return torch.cat(found), torch.cat(scores)

    def _log_odds(self, pairs: Tensor) -> Tensor:
        """Log-odds of pairs at the last step, in the order of their probabilities.  # [B, 2] → [B]"""
        return self._pair_score().class_log_odds(self.graph_, len(self.graph_) - 1, pairs)

    def _best_log_odds(self, pairs: Tensor) -> Tensor:
        """The same, in a directed graph of the more likely direction.  # [B, 2] → [B]"""
        found = self._log_odds(pairs)
        return torch.maximum(found, self._log_odds(pairs.flip(1))) if self.graph_.directed else found

    def likeliest(self, k: int) -> tuple[Tensor, Tensor]:
        if not self.pair_score or self.pair_score_ is None:
            return super().likeliest(k)
        pairs, _ = self._ranked(k, None)  # all candidates are scored once
        new = ~among(self._pair_keys(pairs), self._linked())
        return pairs[:k], pairs[new][:k]

    def _ranked(self, k: int, without: Tensor | None) -> tuple[Tensor, Tensor]:
        """All candidates for the k most likely pairs and their log-odds, best first.  # [C, 2], [C]"""
        self.prepare()
        report("candidates for the most likely links")
        three_step = self._pair_score().three_step
        vectors = spectral_vectors(self.graph_, three_step)
        pairs = likely_pairs(self.graph_, *vectors, max(1000, 20 * k), self._best_log_odds, three_step=three_step)
        pairs = self._without(torch.cat([pairs, pairs.flip(1)]) if self.graph_.directed else pairs, without)
        best = self._log_odds(pairs).sort(descending=True, stable=True)
        return pairs[best.indices], best.values

    def forecaster(self, graph: DynamicGraph) -> Self | None:
        """Return a model with these options that has learned the pair score of a graph and no embeddings.

        None if this model has no pair score, or if the graph has too few links for one.
        """
        if not self.pair_score:
            return None
        found = type(self)(**{**self.get_params(), "embeddings": False})
        found.graph_ = graph
        found.pair_score_ = found._learn_pair_score()
        return None if found.pair_score_ is None else found

    def applied_to(self, graph: DynamicGraph) -> Self:
        """Apply the trained network to another graph, such as this one with later snapshots and nodes.

        Inputs must not depend on identity: use `inputs="features"` with `activity`, `spectrum` or features. A model
        without embeddings has no such condition.
        """
        self._must_be_fitted()
        if self.embeddings and self.inputs != "features":
            raise ModelError(f"inputs={self.inputs!r}: only a model with inputs='features' can embed unseen nodes")
        found = type(self)(**self.get_params())
        found.check_graph(graph)
        found.graph_ = graph
        found._take_state(self._state())
        return found


def why_rows(model: DySAT, ids: NDArray[np.int64], number: int) -> tuple[list[list[str]], NDArray[np.float32]]:
    """Return the reasons of many pairs of node ids at the last step, as texts and shares.  # [B, 2] → [B, number] each

    A pair with fewer reasons has empty texts with share 0 at the end.
    """
    pairs = model._explained_pairs(ids, -1, ids=True)
    with model._large_matrices():
        return reason_rows(model._explained_score(), model.graph_, len(model.graph_) - 1, pairs, number)


def _are_axes(axes: Tensor | None, width: int) -> bool:
    return axes is not None and axes.shape == (width, width) and axes.dtype == torch.float32
