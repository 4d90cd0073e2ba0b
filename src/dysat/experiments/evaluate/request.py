"""What an evaluation is asked for: which models, and how they are measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dysat.errors import GraphError, ModelError, listed, nearest
from dysat.evaluation.hard_negatives import NEGATIVES, Negatives
from dysat.evaluation.protocols import PROTOCOLS, NewEnds, Protocol
from dysat.models import MODELS
from dysat.models.base.link_model import LinkModel

Probe = Literal["present", "past", "score"]


@dataclass(frozen=True)
class Contender:
    """A model by its name, with a preset and options."""

    method: str
    preset: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    opponent: bool = False  # asked for by nobody

    def __post_init__(self) -> None:
        if self.method not in MODELS:
            raise ModelError(f"no model {self.method!r}; there are {listed(MODELS, 30)}{nearest(self.method, MODELS)}")
        self.build()

    @property
    def name(self) -> str:
        return self.method if self.preset is None else f"{self.method}:{self.preset}"

    def build(self, device: str | None = None) -> LinkModel:
        """A new model, not fitted."""
        kind = MODELS[self.method]
        here = {"device": device} if device and any(o.name == "device" for o in kind.options()) else {}
        given = {**self.options, **here}
        return kind.with_options(given) if self.preset is None else kind.from_preset(self.preset, **given)

    @property
    def key(self) -> str:
        """Differs with every option but where it is computed."""
        values = {name: value for name, value in self.build().values().items() if name != "device"}
        text = json.dumps([self.method, values], sort_keys=True, default=str)
        return f"{self.method}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Request:
    """What is evaluated, and how.

    `first` and `last` are snapshots to predict; None: all that can be. `probe="past"`: no label of a predicted snapshot
    is used for anything but testing, not even to choose the best epoch. `probe="score"`: neither, and no probe at all:
    a model learns for all its epochs, and its own scores are tested as they are. `new_ends`: whether both ends of a
    link among new nodes must be new, or one. `candidates`: so many other nodes for each link's MRR and Hits@10; 0 for
    none. `only`: of the snapshots to predict just these. `past_probe`: show the probe trained on the past beside the
    other, which some models must learn again for.
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

    def steps(self, predictable: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those of the (step, target) that are asked for."""
        if self.only is None:
            return list(predictable)
        there = {target for _, target in predictable}
        for target in self.only:
            if target not in there:
                raise GraphError(f"snapshot {target} cannot be predicted; there are {listed(sorted(there), 50)}")
        return [(step, target) for step, target in predictable if target in self.only]
