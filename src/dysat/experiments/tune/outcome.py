"""Result of a tuning: every trial, the best first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dysat.errors import ModelError
from dysat.experiments.evaluate.request import Contender
from dysat.experiments.tune.trials import Trial
from dysat.system.notebook import Table, html_table


@dataclass(frozen=True, eq=False)
class Tuning(Table):
    """Result of `dysat.tune`: `trials` has every setting, the best first; `about` says how it was tuned."""

    contender: Contender
    space: dict[str, str]
    trials: list[Trial]
    total: int
    left_out: dict[int, str]
    about: dict[str, Any]

    @property
    def objective(self) -> str:
        """What the values are: AUC or MRR."""
        return str(self.about.get("objective", "auc")).upper()

    @property
    def best(self) -> Trial:
        """Trial with the highest mean over all predicted snapshots; the first one, if several are equal."""
        done = [trial for trial in self.trials if trial.state == "done"]
        if not done:
            problem = next((trial.problem for trial in self.trials if trial.problem), "no trial was finished")
            raise ModelError(f"no setting of {self.contender.name} has a result: {problem}")
        return done[0]

    @property
    def options(self) -> dict[str, Any]:
        """All options of the best model except the device."""
        values = replace(self.contender, options={**self.contender.options, **self.best.options}).build().plain_params()
        return {name: value for name, value in values.items() if name != "device"}

    @property
    def unfinished(self) -> bool:
        """Whether a trial is missing or still running."""
        return len(self.trials) < self.total or self.count("running") > 0

    def count(self, state: str) -> int:
        """Return the number of trials that are done, pruned, failed or running."""
        return sum(trial.state == state for trial in self.trials)

    def facts(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        any_done = any(trial.state == "done" for trial in self.trials)
        base = self.contender.build().plain_params()
        return {
            **self.about,
            "model": self.contender.method,
            "preset": self.contender.preset,
            "given": {name: base[name] for name in self.contender.options if name != "device"},
            "space": self.space,
            "best": self.best.facts() if any_done else None,
            "options": self.options if any_done else None,
            "total": self.total,
            "left_out": {str(target): why for target, why in self.left_out.items()},
            "trials": [trial.facts() for trial in self.trials],
        }

    def records(self) -> list[dict[str, Any]]:
        """Return one row per trial, the best first, for a table."""
        return [
            {
                "trial": trial.number,
                **{name: _plain(trial.options.get(name)) for name in self.space},
                "state": trial.state,
                "value": trial.value,
                "steps": len(trial.steps),
                "seconds": trial.seconds,
            }
            for trial in self.trials
        ]

    def _repr_html_(self) -> str:
        """The trials, the best first, for notebooks."""
        rows = [
            ["–" if value is None else f"{value:.4f}" if name == "value" else value for name, value in record.items()]
            for record in self.records()
        ]
        columns = ["trial", *self.space, "state", f">validation {self.objective}", ">snapshots", ">seconds"]
        return html_table(f"{len(rows)} of {self.total} trials of {self.contender.name}", columns, rows)


def _plain(value: Any) -> Any:
    """A tuple as text, so that all values of a column have one type."""
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else value
