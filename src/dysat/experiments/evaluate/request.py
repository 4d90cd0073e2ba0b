"""The input of an evaluation: which models, and how they are measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError, ModelError, listed, nearest
from dysat.evaluation.hard_negatives import NEGATIVES, Negatives
from dysat.evaluation.protocols import (
    PROTOCOLS,
    LinkSplit,
    NewEnds,
    Protocol,
    TooFewLinksError,
    check_links,
    link_split,
    predictable_steps,
)  # fmt: skip
from dysat.evaluation.ranking import CANDIDATES
from dysat.models import MODELS
from dysat.models.base.link_model import LinkModel

Probe = Literal["present", "past", "score"]


# Options added after results were stored: at these values they change nothing, and are left out of keys.
ADDED = {"embeddings": True}


@dataclass(frozen=True)
class Contender:
    """A model by its name, with a preset and options."""

    method: str
    preset: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    opponent: bool = False  # evaluated only for comparison
    label: str = ""  # shown instead of the name, to tell apart two contenders of the same name

    def __post_init__(self) -> None:
        if self.method not in MODELS:
            raise ModelError(f"no model {self.method!r}; there are {listed(MODELS, 30)}{nearest(self.method, MODELS)}")
        self.build()

    @classmethod
    def of(cls, model: str | LinkModel) -> Contender:
        """Return the contender of a name, such as `dysat` or `dysat:program`, or of a model.

        A model gets the preset that it differs least from, the defaults first, so that its name says what it is.
        """
        if isinstance(model, str):
            method, _, preset = model.partition(":")
            return cls(method, preset or None)
        values = model.plain_params()
        bases = [type(model)(), *map(type(model).from_preset, presets := list(type(model).presets()))]
        defaults = [base.plain_params() for base in bases]
        changes = [{n: v for n, v in values.items() if base[n] != v} for base in defaults]
        closest = min(range(len(bases)), key=lambda i: len(changes[i].keys() - {"device"}))
        return cls(model.method, [None, *presets][closest], changes[closest])

    @property
    def name(self) -> str:
        return self.label or (self.method if self.preset is None else f"{self.method}:{self.preset}")

    def build(self, device: str | None = None) -> LinkModel:
        """Return a new, unfitted model."""
        kind = MODELS[self.method]
        here = {"device": device} if device and any(o.name == "device" for o in kind.options()) else {}
        given = {**self.options, **here}
        return kind.with_options(given) if self.preset is None else kind.from_preset(self.preset, **given)

    @property
    def key(self) -> str:
        """Return a key of the method and all options except the device."""
        values = {name: value for name, value in self.build().plain_params().items() if name != "device"}
        values = {name: value for name, value in values.items() if (name, value) not in ADDED.items()}
        text = json.dumps([self.method, values], sort_keys=True, default=str)
        return f"{self.method}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Request:
    """What is evaluated, and how.

    Parameters:
        protocol: which links are positives, see `link_split`.
        negatives: kinds of test negatives, see `with_negatives`.
        probe: `present` trains the probe on links of the predicted snapshot, as the paper does, and selects the best
            epoch on them. `past` uses labels of the predicted snapshot for testing only. `score` tests the model's own
            scores after all epochs, without a probe.
        first, last: first and last predicted snapshot; None for no limit.
        repeats: number of random splits.
        seed: random seed of examples and splits.
        self_loops: whether self-loops count as positives.
        typed: negatives join the same kinds of nodes as the positives.
        new_ends: whether both ends of a link must be new, or one, in the protocol `new-nodes`.
        candidates: number of other nodes each link is ranked among for MRR, Hits@10 and precision; 0 for no ranking.
        only: predicted snapshots to keep; None for all.
        past_probe: with `probe="present"`, report a probe trained on the past as well.
    """

    protocol: Protocol = "single-step"
    negatives: tuple[Negatives, ...] = ("uniform",)
    probe: Probe = "present"
    first: int | None = None
    last: int | None = None
    repeats: int = 10
    seed: int = 0
    self_loops: Literal["drop", "keep"] = "drop"
    typed: bool = False
    new_ends: NewEnds = "both"
    candidates: int = 0
    only: tuple[int, ...] | None = None
    past_probe: bool = True

    def __post_init__(self) -> None:
        kinds = (self.negatives,) if isinstance(self.negatives, str) else tuple(self.negatives)
        object.__setattr__(self, "negatives", tuple(dict.fromkeys(kinds)) or ("uniform",))
        if self.protocol not in PROTOCOLS:
            hint = nearest(self.protocol, PROTOCOLS)
            raise GraphError(f"no protocol {self.protocol!r}; there are {listed(PROTOCOLS)}{hint}")
        for kind in self.negatives:
            if kind not in NEGATIVES:
                raise GraphError(f"no negatives {kind!r}; there are {listed(NEGATIVES)}{nearest(kind, NEGATIVES)}")
        if self.probe not in get_args(Probe):
            raise GraphError(
                f"no probe {self.probe!r}; there are {listed(get_args(Probe))}{nearest(self.probe, get_args(Probe))}"
            )
        whole = all(isinstance(n, int) for n in (self.candidates, self.repeats, self.seed))
        if not whole or self.candidates < 0 or self.repeats < 1:
            raise GraphError("candidates must not be negative, and there must be at least one repeat")
        if self.seed < 0:
            raise GraphError(f"seed={self.seed} must not be negative")

    def steps(self, predictable: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the (step, target) pairs that `only` keeps."""
        if self.only is None:
            return list(predictable)
        targets = {target for _, target in predictable}
        for target in self.only:
            if target not in targets:
                raise GraphError(f"snapshot {target} cannot be predicted; choose from {listed(sorted(targets), 50)}")
        return [(step, target) for step, target in predictable if target in self.only]

    def split(self, graph: DynamicGraph, step: int, target: int) -> LinkSplit:
        """Return the examples of one predicted snapshot."""
        return link_split(
            graph,
            step,
            protocol=self.protocol,
            target=target,
            seed=self.seed,
            repeats=self.repeats,
            self_loops=self.self_loops,
            typed=self.typed,
            new_ends=self.new_ends,
        )

    def too_few_links(self, graph: DynamicGraph, step: int, target: int) -> str | None:
        """Return why a snapshot has too few links to be predicted, or None if it has enough; draws no examples."""
        try:
            check_links(
                graph,
                step,
                target,
                protocol=self.protocol,
                self_loops=self.self_loops,
                typed=self.typed,
                new_ends=self.new_ends,
            )
        except TooFewLinksError as problem:
            return str(problem)
        return None

    def next_split(self, graph: DynamicGraph, step: int) -> LinkSplit | None:
        """Return the examples of snapshot `step + 1`, single-step if the protocol is multi-step; None if too few."""
        single = replace(self, protocol="single-step") if self.protocol == "multi-step" else self
        try:
            return single.split(graph, step, step + 1)
        except GraphError:
            return None

    def usual_candidates(self, graph: DynamicGraph) -> int:
        """Return 100 candidates, or 50, 20 or 10 if the first predicted step has fewer than twice as many nodes."""
        step, _ = predictable_steps(graph, self.protocol, self.first, self.last)[0]
        nodes = graph.known[step]
        if self.typed and graph.kinds is not None:
            nodes = min(np.unique(graph.kinds[:nodes], return_counts=True)[1].tolist())
        return next((number for number in CANDIDATES if nodes >= 2 * number), CANDIDATES[-1])

    def past_split(self, graph: DynamicGraph, step: int) -> LinkSplit | None:
        """Return examples of snapshot `step`, which a model fitted up to `step` has seen; None if there are too few."""
        try:
            return link_split(
                graph[: step + 1],
                step - 1,
                seed=self.seed,
                repeats=1,
                self_loops=self.self_loops,
                typed=self.typed,
            )
        except GraphError:
            return None
