"""How good a setting of a model's options is, on validation links alone; what tuning makes large.

Optuna is not needed here: whoever has settings of his own can judge them.
"""

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
from dysat.experiments.evaluate.job import own_split, split_of
from dysat.experiments.evaluate.request import Contender, Request
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import Incremental, LinkModel
from dysat.models.base.trained import TrainedModel

Told = Callable[[int, Mapping[int, float]], None]  # a predicted snapshot, and all values so far


@dataclass(frozen=True, eq=False)
class Validation:
    """All that a setting is judged by: the snapshots up to the last step, and validation examples of those after.

    Whoever holds this can reach no test example: `validation_only` has taken them out, and the last snapshot that is
    predicted is not in the graph.
    """

    graph: DynamicGraph
    steps: Mapping[int, tuple[LinkSplit, ...]]  # what is predicted from each step that counts
    own: Mapping[int, LinkSplit]  # the next snapshot's, of every step that has enough: incremental models see them all
    left_out: Mapping[int, str]  # predicted snapshots without a figure, and why

    @property
    def targets(self) -> list[int]:
        """The predicted snapshots, in order."""
        return [split.target for splits in self.steps.values() for split in splits]


def validation_of(graph: DynamicGraph, request: Request, targets: Collection[int] | None = None) -> Validation:
    """The validation examples of a request's predicted snapshots, or of some of them."""
    steps = predictable_steps(graph, request.protocol, request.first, request.last)
    there = [target for _, target in steps]
    if unknown := [target for target in targets or () if target not in there]:
        raise GraphError(f"snapshot {unknown[0]} is none of those to predict, {listed(there)}")
    found: dict[int, tuple[LinkSplit, ...]] = {}
    left_out: dict[int, str] = {}
    for step, target in steps:
        if targets is not None and target not in targets:
            continue
        try:
            split = validation_only(split_of(graph, request, step, target))
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
    others = ((step, own_split(graph, request, step)) for step in range(last + 1))
    own = {step: validation_only(split) for step, split in others if split is not None and can_tune(split)}
    return Validation(graph[: last + 1], found, own, left_out)


def judge(
    contender: Contender,
    validation: Validation,
    *,
    device: str = "auto",
    on_step: Told = lambda target, values: None,
) -> dict[int, float]:
    """Fit a model at every step and tell, for each predicted snapshot, the AUC on its validation examples.

    The best epoch is chosen by the same figure. An incremental model goes through the snapshots once, in order.
    `on_step` is told after each one, and may raise to end it.
    """
    values: dict[int, float] = {}
    for model, splits in _fitted(contender, validation, device):
        for split in splits:
            value = tuning_value(model, split)
            if isnan(value):
                raise ModelError(f"{contender.name} has no finite score for a link of snapshot {split.target}")
            values[split.target] = value
            on_step(split.target, values)
    return values


def tuning_value(model: LinkModel, split: LinkSplit) -> float:
    """AUC on the validation examples: of probes that have not seen them, or of the model's own scores."""
    if isinstance(model, EmbeddingModel):
        return tuning_auc(model.embed().cpu(), split, feature=model.pair_feature)
    split = validation_only(split)
    return auc(model.pair_scores(split.pairs), split.labels)


def _fitted(contender: Contender, validation: Validation, device: str) -> Any:
    """The model at each step that counts, and what it is asked for there."""
    graph = validation.graph
    model = contender.build(device)
    if isinstance(model, Incremental):
        for step in range(len(graph)):
            model.take_in(graph, validate=_choosing(validation.own.get(step)))
            if step in validation.steps:
                yield model, validation.steps[step]
        return
    for step, splits in validation.steps.items():
        model = contender.build(device)
        if isinstance(model, TrainedModel):
            model.fit(graph[: step + 1], validate=_choosing(splits[0]))
        else:
            model.fit(graph[: step + 1])
        yield model, splits


def _choosing(split: LinkSplit | None) -> Callable[[Any], float] | None:
    """What chooses the best epoch."""
    return None if split is None else lambda model: tuning_value(model, split)
