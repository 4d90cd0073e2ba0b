"""The plan of a tuning, shared by all workers, and the trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dysat.experiments.evaluate.request import Contender
from dysat.experiments.tune.objective import Objective
from dysat.experiments.tune.spaces import Choices, Dimension, as_text, combinations

if TYPE_CHECKING:
    from optuna import Trial as OptunaTrial
    from optuna.trial import FrozenTrial

STATES = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running", "WAITING": "running"}


@dataclass(frozen=True, eq=False)
class Trial:
    """A setting and its value: the mean over the predicted snapshots, or None if not all were measured."""

    number: int
    options: dict[str, Any]
    state: str  # done, pruned, failed, running
    value: float | None
    steps: dict[int, float]  # AUC or MRR by predicted snapshot
    seconds: float | None
    problem: str | None = None

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sort key: the best first, ties by number; then pruned trials by their progress; then the rest."""
        order = ("done", "pruned", "running", "failed").index(self.state)
        mean = fmean(self.steps.values()) if self.steps else 0.0
        return order, -len(self.steps), -(mean if self.value is None else self.value), self.number

    def facts(self) -> dict[str, Any]:
        """Return the trial as plain values."""
        return {**vars(self), "steps": {str(target): value for target, value in self.steps.items()}}


@dataclass(frozen=True)
class TuningPlan:
    """Everything the trials and their values depend on; the name of the study identifies it."""

    name: str
    contender: Contender
    space: tuple[Dimension, ...]
    total: int
    seed: int
    grid: bool
    prune: bool
    objective: Objective = "auc"

    def fixed(self, ticket: int) -> dict[str, Any]:
        """Return the options a ticket determines: a whole combination of the grid, or none."""
        setting = (combinations(self.space) or [])[ticket] if self.grid else {}
        return {name: _as_category(value) for name, value in setting.items()}

    def setting(self, trial: OptunaTrial) -> dict[str, Any]:
        """Return the setting to try: options fixed by the ticket, and the sampler's choice of the rest."""
        return {dimension.name: _suggest(trial, dimension) for dimension in self.space}

    def trial(self, stored: FrozenTrial) -> Trial:
        """Convert a trial of the database."""
        values: dict[str, Sequence[Any]] = {d.name: d.values for d in self.space if isinstance(d, Choices)}
        state, extra = STATES[stored.state.name], stored.user_attrs
        figures = extra.get("figures", {"steps": {}, "seconds": None})
        return Trial(
            number=extra["ticket"],
            options={name: _as_value(values.get(name, ()), value) for name, value in stored.params.items()},
            state=state,
            value=stored.value if state == "done" else None,
            steps={int(target): value for target, value in figures["steps"].items()},
            seconds=figures["seconds"],
            problem=extra.get("problem"),
        )


def _suggest(trial: OptunaTrial, dimension: Dimension) -> Any:
    if isinstance(dimension, Choices):
        categories = [_as_category(value) for value in dimension.values]
        return _as_value(dimension.values, trial.suggest_categorical(dimension.name, categories))
    if dimension.whole:
        return trial.suggest_int(dimension.name, int(dimension.low), int(dimension.high), log=dimension.log)
    return trial.suggest_float(dimension.name, dimension.low, dimension.high, log=dimension.log)


def _as_category(value: Any) -> Any:
    """Return a choice as the database stores it: a tuple becomes text."""
    return as_text(value) if isinstance(value, tuple) else value


def _as_value(choices: Sequence[Any], category: Any) -> Any:
    return next((value for value in choices if _as_category(value) == category), category)
