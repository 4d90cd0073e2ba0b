"""The tuning objective: the quality of a model's options on validation links only. It does not need Optuna."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError, ModelError, listed
from dysat.evaluation.probe import auc
from dysat.evaluation.protocols import LinkSplit, TooFewLinksError, predictable_steps
from dysat.evaluation.validation import can_tune, tuning_auc, validation_only
from dysat.experiments.evaluate.request import Contender, Request
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import Incremental, LinkModel
from dysat.models.base.trained import TrainedModel

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

    @property
    def targets(self) -> list[int]:
        """Predicted snapshots, in order."""
        return [split.target for splits in self.steps.values() for split in splits]


def validation_of(graph: DynamicGraph, request: Request, targets: Collection[int] | None = None) -> Validation:
    """Return the validation examples of a request's predicted snapshots, limited to `targets` if given."""
    steps = predictable_steps(graph, request.protocol, request.first, request.last)
    predicted = [target for _, target in steps]
    if unknown := [target for target in targets or () if target not in predicted]:
        raise GraphError(f"snapshot {unknown[0]} is none of those to predict, {listed(predicted)}")
    found: dict[int, tuple[LinkSplit, ...]] = {}
    left_out: dict[int, str] = {}
    for step, target in steps:
        if targets is not None and target not in targets:
            continue
        try:
            split = validation_only(request.split(graph, step, target))
        except TooFewLinksError as problem:
            left_out[target] = str(problem)
            continue
        if can_tune(split):
            found[step] = (*found.get(step, ()), split)
        else:
            left_out[target] = f"step {step}: fewer than two validation links in snapshot {target}"
    if not found:
        raise GraphError(f"no step has enough links to tune on: {next(iter(left_out.values()), 'no steps')}")
    last = max(found)
    others = ((step, request.next_split(graph, step)) for step in range(last + 1))
    own = {step: validation_only(split) for step, split in others if split is not None and can_tune(split)}
    return Validation(graph[: last + 1], found, own, left_out)


def judge(
    contender: Contender,
    validation: Validation,
    *,
    device: str = "auto",
    on_step: OnStep = lambda target, values: None,
    step: int | None = None,
) -> dict[int, float]:
    """Fit a model at every step and return, for each predicted snapshot, the AUC on its validation examples.

    The same AUC selects the best epoch. An incremental model goes through the snapshots once, in order. `on_step` is
    called after each predicted snapshot and may raise to stop. `step` limits it to one step, unless the model is
    incremental.
    """
    values: dict[int, float] = {}
    for model, splits in _fitted(contender, validation, device, step):
        for split in splits:
            value = tuning_value(model, split)
            if isnan(value):
                raise ModelError(f"{contender.name} has no finite score for a link of snapshot {split.target}")
            values[split.target] = value
            on_step(split.target, values)
    return values


def tuning_value(model: LinkModel, split: LinkSplit) -> float:
    """Return the AUC on the validation examples: of cross-validated probes, or of own scores without embeddings."""
    if isinstance(model, EmbeddingModel):
        return tuning_auc(model.roles().cpu(), split, feature=model.pair_feature)
    split = validation_only(split)
    return auc(model.pair_scores(split.pairs), split.labels)


def _fitted(contender: Contender, validation: Validation, device: str, only: int | None) -> Any:
    """Yield the fitted model and the splits of each step, or of one step."""
    graph = validation.graph
    model = contender.build(device)
    if isinstance(model, Incremental):
        for step in range(len(graph)):
            model.take_in(graph, validate=_epoch_score(validation.own.get(step)))
            if step in validation.steps:
                yield model, validation.steps[step]
        return
    steps = validation.steps if only is None else {only: validation.steps[only]}
    for step, splits in steps.items():
        model = contender.build(device)
        if isinstance(model, TrainedModel):
            model.fit(graph[: step + 1], validate=_epoch_score(splits[0]))
        else:
            model.fit(graph[: step + 1])
        yield model, splits


def _epoch_score(split: LinkSplit | None) -> Callable[[Any], float] | None:
    """Return the function that selects the best epoch."""
    return None if split is None else lambda model: tuning_value(model, split)
