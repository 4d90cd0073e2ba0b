"""IncSAT: DySAT that learns from one snapshot at a time and never reads earlier ones again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.attention import FAN_OUT, NODES_AT_ONCE, AttentionModel
from dysat.models.base.stepwise import StepwiseModel, step_seed
from dysat.models.base.trained import Task
from dysat.models.dysat import PAPER, DySAT
from dysat.nn.adam import has_only_rows
from dysat.nn.logistic import fit_logistic
from dysat.nn.network import QueryPlan
from dysat.nn.stored import LookBack, Rows, look_back
from dysat.nn.walk_objective import WalkSampler, walk_loss
from dysat.system.parallel.ranks import ranks
from dysat.training import Progress, Settings

SUMMARY = "summary/"


@dataclass(kw_only=True, eq=False)
class IncSAT(StepwiseModel, AttentionModel):
    """Incremental self-attention network.

    At step t, structural attention sees snapshot t alone. Its output for each node, h^t, is stored. Temporal attention
    of a node at t runs over its stored h up to t, and training uses only walks of snapshot t. With `history`, the cost
    of an update depends on its snapshot, not on the length of the past.

    Weights start again at every step, as in the authors' program, or carry over (`carry`). A new node gets a row in the
    tables; a node without links keeps its row unchanged. `history` is the number of steps to attend to, the newest
    included; older rows are never read again.

    `IncSAT()` follows the authors' program (preset `program`).

    Attributes:
        summary_: for each step the stored rows of the nodes known then; None for steps that are no longer needed.

    Example:
        >>> import dysat
        >>> graph = dysat.load_dataset("uci")
        >>> model = dysat.IncSAT(epochs=1, walks_per_node=1).fit(graph[:2])
        >>> model = model.partial_fit(graph[2], graph.nodes[graph.known[1] : graph.known[2]])
        >>> model.embed().shape
        torch.Size([1223, 128])

    Reference: Sankar, Wu, Gou, Zhang, Yang: DySAT, WSDM 2020, appendix "Incremental Self-Attention Network".
    """

    method: ClassVar[str] = "incsat"
    about: ClassVar[str] = "DySAT that learns from one snapshot at a time"

    carry: Annotated[bool, "Continue with the weights of the previous step instead of starting again"] = False

    summary_: list[Rows | None] = field(init=False, repr=False)

    @classmethod
    def continuing(cls, model: DySAT, *, carry: bool = False) -> Self:
        """Continue from a trained DySAT: its structural outputs become the summary of the past.

        Training starts again at every step unless `carry` keeps the weights, which predicts worse on snapshots with few
        links (docs/reproduction.md). A DySAT with options that IncSAT lacks, such as the default, cannot be continued
        (`beyond`).
        """
        model._must_be_fitted()
        if more := cls.beyond(model):
            given = f"{more[0]}={getattr(model, more[0])!r}"
            raise ModelError(
                f"{given}: a DySAT with it cannot continue as an IncSAT, which has no such option; fit it again"
            )
        own = {option.name for option in cls.options()}
        found = cls.with_options({**{n: v for n, v in model.get_params().items() if n in own}, "carry": carry})
        found.graph_, found.network_, found.scorer_ = model.graph_, model.network_, model.scorer_
        found.epochs_, found.finished_ = getattr(model, "epochs_", []), getattr(model, "finished_", True)
        found.summary_ = [None] * len(model.graph_)
        for step in model.steps():
            found.summary_[step] = _structural_rows(model, step)
        found._look_at(found.graph_[-1:].to(model.block_.node.device))
        return found

    @classmethod
    def beyond(cls, model: DySAT) -> list[str]:
        """Return the options of a DySAT that IncSAT lacks and whose values differ from the paper's model."""
        own = {option.name for option in cls.options()}
        return [name for name, value in PAPER.items() if name not in own and getattr(model, name) != value]

    def _looked_at(self, step: int, some: Tensor | None = None) -> Iterator[tuple[Tensor, QueryPlan]]:
        every = torch.arange(self.graph_.known[step], device=self._device())
        if self._in_parts:
            every = every if some is None else some.to(every.device)
            every = every.tensor_split(ranks().size)[ranks().rank]
        for nodes in torch.split(every, NODES_AT_ONCE if self._in_parts else max(1, len(every))):
            look = self._look_back(nodes, step)
            yield self._rows(look), look.plan

    def loss(self, sampler: WalkSampler) -> Callable[[Tensor, torch.Generator], Tensor]:
        """Return the loss as a function of a batch of nodes in the newest snapshot."""
        drawn = sampler.block
        weights = dict(self.network_.named_parameters())
        tables = [weights[name] for name in self._penalized() if _is_table(name) and not has_only_rows(weights[name])]

        def loss(batch: Tensor, generator: torch.Generator) -> Tensor:
            examples = sampler.draw(batch, generator)
            used = examples.rows_used(drawn.num_active)
            look = self._look_back(drawn.node[used], len(self.graph_) - 1)
            e = self.network_.attend(self._rows(look, generator), look.plan, generator=generator)
            value = walk_loss(
                e,
                examples.renumbered(used),
                negative_weight=self.negative_weight,
                sharing=self.sharing,
                reduction=self.reduction,
            )
            value = value * self._summed_by_ranks
            # With a penalty on all rows, Adam would pull the rows of absent nodes to zero.
            for table in tables:
                value = value + 0.5 * self.l2 * table.index_select(0, drawn.node).square().sum()
            return value

        return loss

    def _prepare(self, device: torch.device, generator: torch.Generator) -> Task:
        self._look_at(self.graph_[-1:].to(device))
        self._grow(device)
        sampler = self.sampler(generator)
        weights = dict(self.network_.named_parameters())
        penalized = [name for name in self._penalized() if not _is_table(name) or has_only_rows(weights[name])]
        return Task(self.loss(sampler), weights, sampler.nodes(), frozenset(penalized))

    @torch.no_grad()
    def _store(self) -> None:
        """Add the structural outputs of the newest step to the summary, and drop steps that are too old to be read."""
        nodes = torch.arange(self.graph_.known[-1], device=self._device())
        plan = look_back(nodes, [], self.block_, 1, self.unknown, 1).plan
        rows = self.network_.rows(self.block_, self.inputs_, plan)[plan.last.rows.senders]
        old = range(self.steps().start)
        self.summary_ = [None if step in old else part for step, part in enumerate(self.summary_)]
        self.summary_.append(rows.cpu().numpy())

    def _grow(self, device: torch.device) -> None:
        """Build a network for the present nodes and positions; with `carry`, copy the learned weights into it."""
        weights = torch.Generator().manual_seed(
            step_seed(self.seed, len(self.graph_) - 1) if self.carry else int(self.seed)
        )
        size = max(1, self.graph_.known[-1])  # the table needs at least one row
        network = self._network(size, len(self.steps()), weights).to(device)
        before = getattr(self, "network_", None)
        if self.carry and before is not None:
            learned = before.state_dict()
            with torch.no_grad():
                for name, value in network.state_dict().items():
                    value[: len(learned[name])] = learned[name].to(device)
        self.network_ = network
        self.scorer_ = torch.ones(network.width), torch.zeros(())

    def _look_back(self, nodes: Tensor, step: int) -> LookBack:
        """The inputs of embeddings at a step. The last step is computed during training and stored afterwards."""
        first, live = self.steps().start, step == len(self.summary_)
        known = self.graph_.known[first : step if live else step + 1]
        block = self.block_ if live else None
        layers = len(self.network_.temporal)
        return look_back(nodes, known, block, len(self.steps()), self.unknown, layers)

    def _rows(self, look: LookBack, generator: torch.Generator | None = None) -> Tensor:
        """Structural rows that the histories read: those of the newest snapshot and stored ones."""
        first = self.steps().start
        parts = [part for part in self.summary_[first : first + len(look.seen)] if part is not None]
        stored = look.stored(parts)
        if not look.live:
            return torch.cat([stored.new_zeros(int(look.plan.zero), stored.shape[1]), stored])
        fan_out = FAN_OUT if self._in_parts else None
        live = self.network_.rows(self.block_, self.inputs_, look.plan, fan_out=fan_out, generator=generator)
        return torch.cat([live, stored]) if len(stored) else live

    def _recent(self) -> DynamicGraph:
        return self.graph_[-1:]

    @property
    def _num_rows(self) -> int:
        return self.graph_.known[-1]

    def _device(self) -> torch.device:
        return next(self.network_.parameters()).device

    def _fit_scorer(self) -> None:
        """Fit the score on e_u ⊙ e_v to the last transition and to the newest links.

        With new weights at every step, embeddings differ from those of the step before, so the transition alone can
        mislead.
        """
        pairs, labels = self._last_transition()
        newest, of_newest = self._examples(self.graph_[-1], self.graph_.known[-1])
        parts = [self._pair_features(self.embed(-2).cpu(), pairs)] if len(pairs) else []
        if len(newest):
            parts.append(self._pair_features(self.embed().cpu(), newest))
        if parts:
            labels = torch.cat([labels, of_newest]) if len(pairs) else of_newest
            weights, bias = fit_logistic(torch.cat(parts), labels)
            self.scorer_ = weights.float(), bias.float()

    def _stored_steps(self) -> int:
        return len(self.summary_)

    def _take_up(self, progress: Progress) -> None:
        self.summary_ = _summary_of(progress.tensors)

    def _forget(self) -> None:
        self.summary_ = []
        vars(self).pop("network_", None)

    def _settings(self, num_items: int) -> Settings:
        return replace(super()._settings(num_items), capture=False)  # batches differ in shape

    def _stored(self) -> dict[str, Tensor]:
        """The summary by step; a step that is no longer needed has no rows."""
        empty = np.empty((0, 0), dtype=np.float32)
        parts = (empty if part is None else np.array(part) for part in self.summary_)
        return {f"{SUMMARY}{step}": torch.from_numpy(part) for step, part in enumerate(parts)}

    def _learned(self) -> dict[str, Tensor]:
        return {**self.weights(), **self._stored()}

    def weights(self) -> dict[str, Tensor]:
        """Return the weights, without the stored rows."""
        return dict(self.network_.state_dict())

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        if not hasattr(self, "summary_"):  # otherwise it is stored elsewhere
            self.summary_ = _summary_of(tensors)
        self._must_be_whole()
        self._check_summary()
        super()._restore({name: value for name, value in tensors.items() if not name.startswith(SUMMARY)})

    def _check_summary(self) -> None:
        """Raise unless every step that can still be read has a stored row for each of its nodes."""
        width = self.structural_features[-1]
        for step in self.steps():
            rows, known = self.summary_[step], self.graph_.known[step]
            if rows is None or rows.shape != (known, width) or rows.dtype != np.float32:
                raise ModelError(f"the stored rows of step {step} do not fit: {known:,} nodes, {width} features")
            if rows.size and not np.isfinite([rows.min(), rows.max()]).all():
                raise ModelError(f"the stored rows of step {step} are not finite numbers")

    def _build_network(self, device: torch.device) -> None:
        vars(self).pop("network_", None)
        scorer = vars(self).get("scorer_")
        self._grow(device)
        if scorer is not None:
            self.scorer_ = scorer


def _is_table(name: str) -> bool:
    return name.endswith("table")


def _summary_of(tensors: Mapping[str, Tensor]) -> list[Rows | None]:
    found: list[Rows | None] = []
    while (part := tensors.get(f"{SUMMARY}{len(found)}")) is not None:
        if part.dim() != 2:
            raise ModelError(f"the stored rows of step {len(found)} have shape {tuple(part.shape)}")
        found.append(part.numpy() if part.shape[1] else None)
    return found


@torch.no_grad()
def _structural_rows(model: DySAT, step: int) -> Rows:
    """Structural outputs of a DySAT for the nodes known at a step.  # [known, d]"""
    plan = model._plan_step(step)
    own = plan.last.rows.senders
    if plan.cells is not None:  # the row of each cell itself
        own = plan.cells[0].rows.senders[own]
    rows: Rows = model.network_.rows(model.block_, model.inputs_, plan)[own].cpu().numpy()
    return rows
