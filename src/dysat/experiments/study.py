"""A study of Optuna: tickets that workers draw, each tried once, and what is known of them.

A ticket is the number of a combination, or of a setting that a sampler proposes. Optuna's own grid may give two workers
the same combination, and knows nothing of a process that was killed. Here a worker puts the lowest free ticket into the
study and takes a waiting one out; should two put in the same, the trial with the lower number counts. A ticket is free
again when its process has died or was stopped. So trials come in one order, stopped or not.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dysat.errors import DysatError, ModelError
from dysat.experiments.objective import Validation, judge
from dysat.experiments.request import Contender
from dysat.experiments.spaces import Choices, Dimension, as_text, combinations, with_setting

if TYPE_CHECKING:
    from optuna import Study
    from optuna import Trial as OptunaTrial
    from optuna.trial import FrozenTrial

HEARTBEAT, GRACE = 30, 120  # seconds: how often a worker says that it lives, and when it counts as dead
FIRST = 3  # trials that are never pruned
WAIT = 60  # seconds for a database that another process writes to


class _DoubleError(Exception):
    """Another worker has this ticket."""


class _FailedError(Exception):
    """The setting cannot be tried; why is kept with it."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A setting that was tried, and how good it was: the mean over the predicted snapshots, None if not all were."""

    number: int
    options: dict[str, Any]
    state: str  # done, pruned, failed, running
    value: float | None
    steps: dict[int, float]
    seconds: float | None
    problem: str | None = None

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        return {**vars(self), "steps": {str(target): value for target, value in self.steps.items()}}


@dataclass(frozen=True)
class Plan:
    """What is tried: by all workers the same."""

    name: str
    contender: Contender
    space: tuple[Dimension, ...]
    total: int
    seed: int
    grid: bool
    prune: bool

    def setting(self, ticket: int) -> dict[str, Any]:
        """What a ticket fixes: all of a combination, or nothing."""
        found = (combinations(self.space) or [])[ticket] if self.grid else {}
        return {name: _as_category(value) for name, value in found.items()}


@contextmanager
def quietly() -> Iterator[None]:
    """Without the messages of Optuna, which this library does not print."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def open_study(url: str, name: str) -> Study:
    """The study of that name in a database, made if it is not there."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    more = {"connect_args": {"timeout": WAIT}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    try:
        storage = optuna.storages.RDBStorage(url, engine_kwargs=more, heartbeat_interval=HEARTBEAT, grace_period=GRACE)
        return optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
    except (SQLAlchemyError, ImportError, ValueError, RuntimeError, optuna.exceptions.OptunaError) as problem:
        why = str(getattr(problem, "orig", None) or problem).splitlines()[0]
        raise ModelError(f"storage {shown_url(url)}: {why}") from None


def shown_url(url: str) -> str:
    """A database's URL without its password."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return "URL"


def free_the_dead(study: Study) -> None:
    """Give back the tickets of processes of this machine that are no more; those of others end with their heartbeat."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        host, _, pid = str(trial.user_attrs.get("worker", "")).rpartition(":")
        if host == socket.gethostname() and _is_dead(int(pid)):
            study.tell(trial.number, state=TrialState.FAIL)


def run_trials(
    study: Study,
    plan: Plan,
    validation: Validation,
    device: str,
    told: Callable[[], None] = lambda: None,
) -> None:
    """Try one ticket after the other, until none is free."""
    from optuna.samplers import TPESampler
    from optuna.trial import TrialState

    while True:
        waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))  # left by a process that was killed
        ticket = waiting[0].user_attrs.get("ticket", 0) if waiting else _lowest_free(study, plan.total)
        if ticket is None:
            return
        # Seeded by the ticket: whoever goes on after a stop draws what would have been drawn.
        seed = int(np.random.SeedSequence([plan.seed, ticket]).generate_state(1)[0])
        study.sampler = TPESampler(seed=seed)
        if not waiting:
            study.enqueue_trial(plan.setting(ticket), user_attrs={"ticket": ticket})
        study.optimize(
            lambda trial: _try(study, trial, plan, validation, device, told),
            n_trials=1,
            catch=(_FailedError, _DoubleError),
        )
        told()


def trials_of(study: Study, plan: Plan) -> list[Trial]:
    """Every ticket that somebody has drawn, in order."""
    found = {}
    for trial in reversed(study.get_trials(deepcopy=False)):
        if _holds(trial):
            found[trial.user_attrs["ticket"]] = trial
    return [_as_trial(found[ticket], plan) for ticket in sorted(found) if ticket < plan.total]


def _try(
    study: Study,
    trial: OptunaTrial,
    plan: Plan,
    validation: Validation,
    device: str,
    told: Callable[[], None],
) -> float:
    """The mean over the predicted snapshots; told after each, so that a bad setting need not see them all."""
    import optuna

    ticket = trial.user_attrs.get("ticket")
    others = study.get_trials(deepcopy=False)[: trial.number]
    if ticket is None or any(_holds(other) and other.user_attrs["ticket"] == ticket for other in others):
        raise _DoubleError
    begin = time.perf_counter()
    setting = {dimension.name: _suggest(trial, dimension) for dimension in plan.space}
    trial.set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
    if (before := next((other for other in others if _is_known(other, trial.params)), None)) is not None:
        for name in ("steps", "seconds"):
            trial.set_user_attr(name, before.user_attrs[name])
        if before.value is None or before.state.name == "PRUNED":
            raise optuna.TrialPruned
        return before.value

    def on_step(target: int, values: Mapping[int, float]) -> None:
        trial.set_user_attr("steps", {str(key): value for key, value in values.items()})
        trial.set_user_attr("seconds", round(time.perf_counter() - begin, 3))
        trial.report(fmean(values.values()), len(values))
        told()
        if plan.prune and len(values) < len(validation.targets) and _hopeless(study, values):
            raise optuna.TrialPruned

    try:
        values = judge(with_setting(plan.contender, setting), validation, device=device, on_step=on_step)
    except DysatError as problem:
        trial.set_user_attr("problem", str(problem))
        raise _FailedError from None
    except torch.OutOfMemoryError:
        trial.set_user_attr("problem", "out of memory on the device")
        raise _FailedError from None
    return fmean(values.values())


def _is_known(trial: FrozenTrial, setting: Mapping[str, Any]) -> bool:
    """Whether a sampler has proposed this setting before: it would only come to the same."""
    return trial.state.name in ("COMPLETE", "PRUNED") and trial.params == setting


def _hopeless(study: Study, values: Mapping[int, float]) -> bool:
    """Whether at least three trials are done and half of them were better on the same snapshots.

    Optuna's own rule takes a trial's best mean so far; but means fall and rise with the snapshots, which are not
    equally hard, so only means over the same ones can be compared.
    """
    from optuna.trial import TrialState

    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    means = [trial.intermediate_values[len(values)] for trial in done if len(values) in trial.intermediate_values]
    return len(means) >= FIRST and fmean(values.values()) < median(means)


def _suggest(trial: OptunaTrial, dimension: Dimension) -> Any:
    if isinstance(dimension, Choices):
        chosen = trial.suggest_categorical(dimension.name, [_as_category(value) for value in dimension.values])
        return next(value for value in dimension.values if _as_category(value) == chosen)
    if dimension.whole:
        return trial.suggest_int(dimension.name, int(dimension.low), int(dimension.high), log=dimension.log)
    return trial.suggest_float(dimension.name, dimension.low, dimension.high, log=dimension.log)


def _as_category(value: Any) -> Any:
    """What a database keeps of a value: lists as texts."""
    return as_text(value) if isinstance(value, tuple) else value


def _lowest_free(study: Study, total: int) -> int | None:
    taken = {trial.user_attrs["ticket"] for trial in study.get_trials(deepcopy=False) if _holds(trial)}
    return next((ticket for ticket in range(total) if ticket not in taken), None)


def _holds(trial: FrozenTrial) -> bool:
    """Whether a trial has its ticket: it is tried or will be; or it failed for a reason, not since it was stopped."""
    from optuna.trial import TrialState

    return "ticket" in trial.user_attrs and (trial.state != TrialState.FAIL or "problem" in trial.user_attrs)


def _is_dead(pid: int) -> bool:
    if pid == os.getpid():
        return True  # this process has only begun
    if os.name != "posix":
        return False  # there the signal would end it; its heartbeat will tell
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


STATES = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running", "WAITING": "running"}


def _as_trial(trial: FrozenTrial, plan: Plan) -> Trial:
    values: dict[str, Sequence[Any]] = {d.name: d.values for d in plan.space if isinstance(d, Choices)}
    options = {
        name: next((value for value in values.get(name, ()) if _as_category(value) == found), found)
        for name, found in trial.params.items()
    }
    state = STATES[trial.state.name]
    return Trial(
        number=trial.user_attrs["ticket"],
        options=options,
        state=state,
        value=trial.value if state == "done" else None,
        steps={int(target): value for target, value in trial.user_attrs.get("steps", {}).items()},
        seconds=trial.user_attrs.get("seconds"),
        problem=trial.user_attrs.get("problem"),
    )
