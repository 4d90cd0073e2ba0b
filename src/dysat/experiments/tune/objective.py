"""The tuning objective: AUC or MRR of a model on validation links only. It does not need Optuna."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Any, Literal, get_args

from torch import Tensor

from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError, ModelError, listed
from dysat.evaluation.probe import auc
from dysat.evaluation.protocols import LinkSplit, TooFewLinksError, predictable_steps
from dysat.evaluation.ranking import link_ranks, mrr
from dysat.evaluation.validation import can_tune, tuning_auc, tuning_mrr, validation_only, validation_ranking
from dysat.experiments.evaluate.request import Contender, Request
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import Incremental, LinkModel
from dysat.models.base.trained import TrainedModel

Objective = Literal["auc", "mrr"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
Ranking = tuple[Tensor, Tensor]  # rows of links and their candidates, see `validation_ranking`
OnStep = Callable[[int, Mapping[int, float]], None]  # a predicted snapshot, and all values so far


@dataclass(frozen=True, eq=False)
class Validation:
    """The data for judging a setting: the snapshots up to the last step, and validation examples of later ones.

    It has no test examples: `validation_only` removes them, and the last predicted snapshot is not in the graph.
    """

    graph: DynamicGraph
    steps: Mapping[int, tuple[LinkSplit, ...]]  # by step, the splits that are predicted from it
    own: Mapping[int, LinkSplit]  # by step, the next snapshot's split; incremental models go through all steps
    left_out: Mapping[int, str]  # predicted snapshots without a result, and why
    objective: Objective = "auc"
    rankings: Mapping[tuple[int, int], Ranking] = field(default_factory=dict)  # by step and target, for the MRR

    @property
    def targets(self) -> list[int]:
        """Predicted snapshots, in order."""
        return [split.target for splits in self.steps.values() for split in splits]


def validation_of(
    graph: DynamicGraph, request: Request, targets: Collection[int] | None = None, objective: Objective = "auc"
) -> Validation:
    """Return the validation examples of a request's predicted snapshots, limited to `targets` if given."""
    if objective not in OBJECTIVES:
        raise ModelError(f"no objective {objective!r}; there are {listed(OBJECTIVES)}")
    steps = predictable_steps(graph, request.protocol, request.first, request.last)
    predicted = [target for _, target in steps]
    if unknown := [target for target in targets or () if target not in predicted]:
        raise GraphError(f"snapshot {unknown[0]} is none of those to predict, {listed(predicted)}")
    found: dict[int, tuple[LinkSplit, ...]] = {}
    left_out: dict[int, str] = {}
    rankings: dict[tuple[int, int], Ranking] = {}
    for step, target in steps:
        if targets is not None and target not in targets:
            continue
        try:
            split = validation_only(request.split(graph, step, target))
        except TooFewLinksError as problem:
            left_out[target] = str(problem)
            continue
        if not can_tune(split):
            left_out[target] = f"step {step}: fewer than two validation links in snapshot {target}"
        elif objective == "mrr" and not _rank(graph[: step + 1], split, rankings):
            left_out[target] = f"step {step}: too few nodes to rank the links of snapshot {target}"
        else:
            found[step] = (*found.get(step, ()), split)
    if not found:
        raise GraphError(f"no step has enough links to tune on: {next(iter(left_out.values()), 'no steps')}")
    last = max(found)
    others = ((step, request.next_split(graph, step)) for step in range(last + 1))
    own = {step: validation_only(split) for step, split in others if split is not None and can_tune(split)}
    if objective == "mrr":
        own = {step: split for step, split in own.items() if _rank(graph[: step + 1], split, rankings)}
    return Validation(graph[: last + 1], found, own, left_out, objective, rankings)


def _rank(seen: DynamicGraph, split: LinkSplit, rankings: dict[tuple[int, int], Ranking]) -> bool:
    """Add the candidates of a split's validation links; return whether there are enough nodes."""
    found = validation_ranking(seen, split)
    if found is not None:
        rankings[split.step, split.target] = found
    return found is not None


def judge(
    contender: Contender,
    validation: Validation,
    *,
    device: str = "auto",
    on_step: OnStep = lambda target, values: None,
    step: int | None = None,
) -> dict[int, float]:
    """Fit a model at every step and return, for each predicted snapshot, AUC or MRR on its validation examples.

    The same figure selects the best epoch. An incremental model goes through the snapshots once, in order. `on_step` is
    called after each predicted snapshot and may raise to stop. `step` limits it to one step, unless the model is
    incremental.
    """
    values: dict[int, float] = {}
    for model, splits in _fitted(contender, validation, device, step):
        for split in splits:
            value = tuning_value(model, split, validation.rankings.get((split.step, split.target)))
            if isnan(value):
                raise ModelError(f"{contender.name} has no finite score for a link of snapshot {split.target}")
            values[split.target] = value
            on_step(split.target, values)
    return values


def tuning_value(model: LinkModel, split: LinkSplit, ranking: Ranking | None = None) -> float:
    """Return the AUC on the validation examples, or the MRR of their links with a ranking.

    The scores are those of cross-validated probes, or own scores without embeddings.
    """
    split = validation_only(split)
    if isinstance(model, EmbeddingModel):
        e, feature = model.roles().cpu(), model.pair_feature
        if ranking is None:
            return tuning_auc(e, split, feature=feature)
        return tuning_mrr(e, split, ranking, feature=feature)
    if ranking is None:
        return auc(model.pair_scores(split.pairs), split.labels)
    rows, others = ranking
    return mrr(link_ranks(model.pair_scores, split.pairs[rows], others))


def _fitted(contender: Contender, validation: Validation, device: str, only: int | None) -> Any:
    """Yield the fitted model and the splits of each step, or of one step."""
    graph = validation.graph
    model = contender.build(device)
    if isinstance(model, Incremental):
        for step in range(len(graph)):
            model.take_in(graph, validate=_epoch_score(validation.own.get(step), validation))
            if step in validation.steps:
                yield model, validation.steps[step]
        return
    steps = validation.steps if only is None else {only: validation.steps[only]}
    for step, splits in steps.items():
        model = contender.build(device)
        if isinstance(model, TrainedModel):
            model.fit(graph[: step + 1], validate=_epoch_score(splits[0], validation))
        else:
            model.fit(graph[: step + 1])
        yield model, splits


def _epoch_score(split: LinkSplit | None, validation: Validation) -> Callable[[Any], float] | None:
    """Return the function that selects the best epoch."""
    if split is None:
        return None
    ranking = validation.rankings.get((split.step, split.target))
    return lambda model: tuning_value(model, split, ranking)
