"""What is tried, by all workers alike, and what is known of each trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dysat.experiments.evaluate.request import Contender
from dysat.experiments.tune.spaces import Choices, Dimension, as_text, combinations

if TYPE_CHECKING:
    from optuna import Trial as OptunaTrial
    from optuna.trial import FrozenTrial

STATES = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running", "WAITING": "running"}


@dataclass(frozen=True, eq=False)
class Trial:
    """A setting that was tried, and how good it was: the mean over the predicted snapshots, None if not all were."""

    number: int
    options: dict[str, Any]
    state: str  # done, pruned, failed, running
    value: float | None
    steps: dict[int, float]  # AUC by predicted snapshot
    seconds: float | None
    problem: str | None = None

    @property
    def rank(self) -> tuple[Any, ...]:
        """The best first, of equals the earlier; then what was pruned, as far as it came; then the rest."""
        order = ("done", "pruned", "running", "failed").index(self.state)
        mean = fmean(self.steps.values()) if self.steps else 0.0
        return order, -len(self.steps), -(mean if self.value is None else self.value), self.number

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        return {**vars(self), "steps": {str(target): value for target, value in self.steps.items()}}


@dataclass(frozen=True)
class Plan:
    """All that decides what is tried and what comes out; the name of its study says it too."""

    name: str
    contender: Contender
    space: tuple[Dimension, ...]
    total: int
    seed: int
    grid: bool
    prune: bool

    def fixed(self, ticket: int) -> dict[str, Any]:
        """What a ticket fixes: all of a combination, or nothing."""
        found = (combinations(self.space) or [])[ticket] if self.grid else {}
        return {name: _as_category(value) for name, value in found.items()}

    def setting(self, trial: OptunaTrial) -> dict[str, Any]:
        """What is tried: what the ticket fixes, and the sampler's choice of the rest."""
        return {dimension.name: _suggest(trial, dimension) for dimension in self.space}

    def trial(self, found: FrozenTrial) -> Trial:
        """What a database knows of a trial."""
        values: dict[str, Sequence[Any]] = {d.name: d.values for d in self.space if isinstance(d, Choices)}
        state, more = STATES[found.state.name], found.user_attrs
        figures = more.get("figures", {"steps": {}, "seconds": None})
        return Trial(
            number=more["ticket"],
            options={name: _as_value(values.get(name, ()), value) for name, value in found.params.items()},
            state=state,
            value=found.value if state == "done" else None,
            steps={int(target): value for target, value in figures["steps"].items()},
            seconds=figures["seconds"],
            problem=more.get("problem"),
        )


def _suggest(trial: OptunaTrial, dimension: Dimension) -> Any:
    if isinstance(dimension, Choices):
        categories = [_as_category(value) for value in dimension.values]
        return _as_value(dimension.values, trial.suggest_categorical(dimension.name, categories))
    if dimension.whole:
        return trial.suggest_int(dimension.name, int(dimension.low), int(dimension.high), log=dimension.log)
    return trial.suggest_float(dimension.name, dimension.low, dimension.high, log=dimension.log)


def _as_category(value: Any) -> Any:
    """What a database keeps of a choice: several numbers as a text."""
    return as_text(value) if isinstance(value, tuple) else value


def _as_value(choices: Sequence[Any], category: Any) -> Any:
    return next((value for value in choices if _as_category(value) == category), category)
