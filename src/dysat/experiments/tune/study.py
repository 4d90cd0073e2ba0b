"""Trials in a database, by Optuna: tickets that workers draw, each tried once.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dysat.errors import DysatError, ModelError
from dysat.experiments.tune.objective import Validation, judge
from dysat.experiments.tune.spaces import with_setting
from dysat.experiments.tune.trials import Plan, Trial

if TYPE_CHECKING:
    from optuna import Study
    from optuna import Trial as OptunaTrial
    from optuna.samplers import BaseSampler
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

HEARTBEAT, GRACE = 30, 120  # seconds: how often a worker says that it lives, and when it counts as dead
FIRST = 3  # trials that must be done before one is pruned
PART = 4  # and a trial has seen one in so many of its snapshots
ATTEMPTS, PAUSE = 4, 0.3  # to open a database, and seconds between them
WAIT = 60  # seconds for a file that another process writes to


class _DoubleError(Exception):
    """Another worker has this ticket."""


class _FailedError(Exception):
    """The setting cannot be tried; why is kept with it."""


@contextmanager
def opened(url: str | None, name: str) -> Iterator[Study]:
    """The study of that name in a database, or in memory, made if it is not there; meanwhile Optuna says nothing."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    try:
        with _database(url) as storage:
            yield optuna.create_study(
                storage=storage, study_name=name, direction="maximize", load_if_exists=True, sampler=_sampler(0)
            )
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as problem:
        raise ModelError(f"storage {shown_url(url or '')}: {_why(problem)}") from None
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def _database(url: str | None) -> Iterator[RDBStorage | None]:
    """A database, given back in the end."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.storages import RDBStorage
    from sqlalchemy import event
    from sqlalchemy.exc import SQLAlchemyError

    if url is None:
        yield None
        return
    file = url.startswith("sqlite")
    # Optuna looks whether a trial waits, and then takes it. A file has no locks on rows, and two could take the same;
    # so a transaction locks all of it from its beginning.
    more = {"connect_args": {"timeout": WAIT, "isolation_level": None}} if file else {"pool_pre_ping": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # of the heartbeat
        for left in reversed(range(ATTEMPTS)):
            try:
                storage = RDBStorage(url, engine_kwargs=more, heartbeat_interval=HEARTBEAT, grace_period=GRACE)
                break
            except (ImportError, ValueError, RuntimeError) as problem:  # no driver, no URL, of another version
                raise ModelError(f"storage {shown_url(url)}: {_why(problem)}") from None
            except SQLAlchemyError:  # two that make the tables at once get into each other's way
                if not left:
                    raise
                time.sleep(PAUSE)
    if file:
        event.listen(storage.engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _why(problem: Exception) -> str:
    cause = problem.__cause__ if problem.__cause__ is not None else problem
    return str(getattr(cause, "orig", None) or cause).splitlines()[0]


def shown_url(url: str) -> str:
    """A database's URL without its password."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return "URL"


def free_the_dead(study: Study) -> None:
    """Give back the tickets of processes of this machine that are no more; those of others end with their heartbeat."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        host, _, pid = str(trial.user_attrs.get("worker", "")).rpartition(":")
        if host == socket.gethostname() and _is_dead(int(pid)):
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


def run_trials(
    study: Study, plan: Plan, validation: Validation, device: str, told: Callable[[], None] = lambda: None
) -> None:
    """Try one ticket after the other, until none is free."""
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    lost: list[int] = []

    def objective(trial: OptunaTrial) -> float:
        try:
            return _try(study, trial, plan, validation, device, told)
        except UpdateFinishedTrialError:
            lost.append(trial.number)
            raise

    while True:
        _fail_the_silent(study)
        waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))  # of a process that was killed
        ticket = waiting[0].user_attrs.get("ticket", 0) if waiting else _lowest_free(study, plan.total)
        if ticket is None:
            return
        # Seeded by the ticket: whoever goes on after a stop draws what would have been drawn.
        study.sampler = _sampler(plan.seed, ticket)
        if not waiting:
            study.enqueue_trial(plan.fixed(ticket), user_attrs={"ticket": ticket})
        try:
            study.optimize(objective, n_trials=1, catch=(_FailedError, _DoubleError))
        except (UpdateFinishedTrialError, ValueError):  # a machine that slept was taken for dead; its ticket is free
            if not lost:
                raise
            lost.clear()
        told()


def _fail_the_silent(study: Study) -> None:
    """Give back the tickets of workers that have not said for long that they live."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.storages import fail_stale_trials

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        fail_stale_trials(study)


def _sampler(*seeds: int) -> BaseSampler:
    from optuna.samplers import TPESampler

    return TPESampler(seed=int(np.random.SeedSequence(seeds).generate_state(1)[0]))


def trials_of(study: Study, plan: Plan) -> list[Trial]:
    """Every ticket that somebody has drawn, the best first."""
    found: dict[int, FrozenTrial] = {}
    for trial in study.get_trials(deepcopy=False):
        if _holds(trial):
            found.setdefault(trial.user_attrs["ticket"], trial)
    trials = [plan.trial(trial) for ticket, trial in found.items() if ticket < plan.total]
    return sorted(trials, key=lambda trial: trial.rank)


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

    others = study.get_trials(deepcopy=False)[: trial.number]
    ticket = trial.user_attrs.get("ticket")
    if ticket is None or any(_holds(other) and other.user_attrs["ticket"] == ticket for other in others):
        raise _DoubleError
    trial.set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
    begin, setting = time.perf_counter(), plan.setting(trial)
    if (before := next((other for other in others if _is_known(other, trial.params)), None)) is not None:
        trial.set_user_attr("figures", before.user_attrs["figures"])
        if before.state.name == "PRUNED" or before.value is None:
            raise optuna.TrialPruned
        return before.value

    def on_step(target: int, values: Mapping[int, float]) -> None:
        steps = {str(key): value for key, value in values.items()}
        trial.set_user_attr("figures", {"steps": steps, "seconds": round(time.perf_counter() - begin, 3)})
        trial.report(fmean(values.values()), len(values))
        told()
        if plan.prune and len(values) < len(validation.targets) and _hopeless(study, values, validation):
            raise optuna.TrialPruned

    try:
        values = judge(with_setting(plan.contender, setting), validation, device=device, on_step=on_step)
    except (DysatError, torch.OutOfMemoryError) as problem:
        known = isinstance(problem, DysatError)
        trial.set_user_attr("problem", str(problem) if known else "out of memory on the device")
        raise _FailedError from None
    return fmean(values.values())


def _is_known(trial: FrozenTrial, setting: Mapping[str, Any]) -> bool:
    """Whether a sampler has proposed this setting before: it would only come to the same."""
    return trial.state.name in ("COMPLETE", "PRUNED") and trial.params == setting


def _hopeless(study: Study, values: Mapping[int, float], validation: Validation) -> bool:
    """Whether some trials are done, and half of them were better on the snapshots that this one has seen.

    Optuna's own rule takes a trial's best mean so far; but means fall and rise with the snapshots, which are not
    equally hard, so only means over the same ones can be compared.
    """
    from optuna.trial import TrialState

    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    means = [trial.intermediate_values[len(values)] for trial in done if len(values) in trial.intermediate_values]
    enough = len(means) >= FIRST and PART * len(values) >= len(validation.targets)
    return enough and fmean(values.values()) < median(means)


def _lowest_free(study: Study, total: int) -> int | None:
    taken = {trial.user_attrs["ticket"] for trial in study.get_trials(deepcopy=False) if _holds(trial)}
    return next((ticket for ticket in range(total) if ticket not in taken), None)


def _holds(trial: FrozenTrial) -> bool:
    """Whether a trial has its ticket: it is tried or will be; or it failed for a reason, not since it was stopped."""
    return "ticket" in trial.user_attrs and (trial.state.name != "FAIL" or "problem" in trial.user_attrs)


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
