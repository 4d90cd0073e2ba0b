"""Trials in an Optuna database: workers draw tickets, and each ticket is tried once.

A ticket is the number of a combination, or of a setting proposed by a sampler. Optuna's own grid sampler may give two
workers the same combination and does not handle killed processes. Here, a worker enqueues the lowest free ticket and
takes a waiting one. If two workers enqueue the same ticket, the trial with the lower number counts. A ticket is free
again when its process has died or was stopped, so the order of trials does not depend on interruptions.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from dysat.errors import DysatError, ModelError
from dysat.experiments.evaluate.request import Contender
from dysat.experiments.tune.objective import OnStep, Validation, judge
from dysat.experiments.tune.spaces import with_setting
from dysat.experiments.tune.trials import Trial, TuningPlan

if TYPE_CHECKING:
    from optuna import Study
    from optuna import Trial as OptunaTrial
    from optuna.samplers import BaseSampler
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

HEARTBEAT, GRACE = 30, 120  # seconds between signs of life of a worker, and until it counts as dead
MIN_TRIALS = 3  # finished trials before any is pruned
MIN_FRACTION = 4  # a trial can be pruned after 1/4 of its snapshots
ATTEMPTS, PAUSE = 4, 0.3  # attempts to open a database, and seconds between them
WAIT = 60  # seconds to wait for a file that another process writes to


class _TakenError(Exception):
    """Another worker has this ticket."""


class _FailedError(Exception):
    """The setting cannot be tried; the reason is stored with it."""


@contextmanager
def open_study(url: str | None, name: str) -> Iterator[Study]:
    """Open or create a study in a database, or in memory without a URL; Optuna's log is silenced meanwhile."""
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
        raise ModelError(f"storage {shown_url(url or '')}: {_reason(problem)}") from None
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def _database(url: str | None) -> Iterator[RDBStorage | None]:
    """Open a database and close it at the end."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.storages import RDBStorage
    from sqlalchemy import event
    from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

    if url is None:
        yield None
        return
    file = url.startswith("sqlite")
    # Optuna first looks for a waiting trial and then takes it. SQLite has no row locks, so two workers could take the
    # same one; hence every transaction locks the whole file from its beginning.
    engine_options = {"connect_args": {"timeout": WAIT, "isolation_level": None}} if file else {"pool_pre_ping": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # for the heartbeat
        for left in reversed(range(ATTEMPTS)):
            try:
                storage = RDBStorage(
                    url, engine_kwargs=engine_options, heartbeat_interval=HEARTBEAT, grace_period=GRACE
                )
                break
            except (ImportError, ValueError, RuntimeError) as problem:  # no driver, no URL, another version
                raise ModelError(f"storage {shown_url(url)}: {_reason(problem)}") from None
            except (OperationalError, IntegrityError, ProgrammingError):
                # Two workers that create the tables at once disturb each other.
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


def _reason(problem: Exception) -> str:
    cause = problem.__cause__ if problem.__cause__ is not None else problem
    return str(getattr(cause, "orig", None) or cause).splitlines()[0]


def shown_url(url: str) -> str:
    """Return the URL of a database without its password."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return "URL"


def free_dead_tickets(study: Study) -> None:
    """Free the tickets of dead processes of this machine; those of other machines expire with their heartbeat."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        host, _, pid = str(trial.user_attrs.get("worker", "")).rpartition(":")
        if host == socket.gethostname() and _is_dead(int(pid)):
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)


class Judge(Protocol):
    """How a setting is tried: `judge` itself, or somewhere else with the same result."""

    def __call__(
        self, contender: Contender, validation: Validation, *, device: str, on_step: OnStep
    ) -> dict[int, float]: ...


def run_trials(
    study: Study,
    plan: TuningPlan,
    validation: Validation,
    device: str,
    report: Callable[[], None] = lambda: None,
    judge: Judge = judge,
) -> None:
    """Try one ticket after another until none is free."""
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    lost: list[int] = []

    def objective(trial: OptunaTrial) -> float:
        try:
            return _try(study, trial, plan, validation, device, report, judge)
        except UpdateFinishedTrialError:
            lost.append(trial.number)
            raise

    while True:
        _free_expired_tickets(study)
        waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))  # left by a killed process
        ticket = waiting[0].user_attrs.get("ticket", 0) if waiting else _lowest_free(study, plan.total)
        if ticket is None:
            return
        # Seeded by the ticket, so a resumed tuning draws the same settings.
        study.sampler = _sampler(plan.seed, ticket)
        if not waiting:
            study.enqueue_trial(plan.fixed(ticket), user_attrs={"ticket": ticket})
        try:
            study.optimize(objective, n_trials=1, catch=(_FailedError, _TakenError))
        except (UpdateFinishedTrialError, ValueError):  # this machine slept and was taken for dead; its ticket is free
            if not lost:
                raise
            lost.clear()
        report()


def _free_expired_tickets(study: Study) -> None:
    """Free the tickets of workers whose last heartbeat is too old."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.storages import fail_stale_trials

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        fail_stale_trials(study)


def _sampler(*seeds: int) -> BaseSampler:
    from optuna.samplers import TPESampler

    return TPESampler(seed=int(np.random.SeedSequence(seeds).generate_state(1)[0]))


def trials_of(study: Study, plan: TuningPlan) -> list[Trial]:
    """Return the trials of all drawn tickets, the best first."""
    by_ticket: dict[int, FrozenTrial] = {}
    for trial in study.get_trials(deepcopy=False):
        if _holds(trial):
            by_ticket.setdefault(trial.user_attrs["ticket"], trial)
    trials = [plan.trial(trial) for ticket, trial in by_ticket.items() if ticket < plan.total]
    return sorted(trials, key=lambda trial: trial.rank)


def _try(
    study: Study,
    trial: OptunaTrial,
    plan: TuningPlan,
    validation: Validation,
    device: str,
    report: Callable[[], None],
    judge: Judge,
) -> float:
    """Return the mean over the predicted snapshots; after each one a bad setting can be pruned."""
    import optuna

    others = study.get_trials(deepcopy=False)[: trial.number]
    ticket = trial.user_attrs.get("ticket")
    if ticket is None or any(_holds(other) and other.user_attrs["ticket"] == ticket for other in others):
        raise _TakenError
    trial.set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
    begin, setting = time.perf_counter(), plan.setting(trial)
    if (before := next((other for other in others if _has_result(other, trial.params)), None)) is not None:
        trial.set_user_attr("figures", before.user_attrs["figures"])
        if before.state.name == "PRUNED" or before.value is None:
            raise optuna.TrialPruned
        return before.value

    def on_step(target: int, values: Mapping[int, float]) -> None:
        steps = {str(key): value for key, value in values.items()}
        trial.set_user_attr("figures", {"steps": steps, "seconds": round(time.perf_counter() - begin, 3)})
        trial.report(fmean(values.values()), len(values))
        report()
        if plan.prune and len(values) < len(validation.targets) and _should_prune(study, values, validation):
            raise optuna.TrialPruned

    try:
        values = judge(with_setting(plan.contender, setting), validation, device=device, on_step=on_step)
    except (DysatError, torch.OutOfMemoryError) as problem:
        known = isinstance(problem, DysatError)
        trial.set_user_attr("problem", str(problem) if known else "out of memory on the device")
        raise _FailedError from None
    return fmean(values.values())


def _has_result(trial: FrozenTrial, setting: Mapping[str, Any]) -> bool:
    """Return whether a trial already tried this setting: a sampler can propose a setting twice."""
    return trial.state.name in ("COMPLETE", "PRUNED") and trial.params == setting


def _should_prune(study: Study, values: Mapping[int, float], validation: Validation) -> bool:
    """Return whether the trial is below the median of the finished ones on the snapshots it has seen.

    Optuna's median pruner compares a trial's best intermediate value. Snapshots are not equally hard, so only means
    over the same snapshots are comparable.
    """
    from optuna.trial import TrialState

    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    means = [trial.intermediate_values[len(values)] for trial in done if len(values) in trial.intermediate_values]
    enough = len(means) >= MIN_TRIALS and MIN_FRACTION * len(values) >= len(validation.targets)
    return enough and fmean(values.values()) < median(means)


def _lowest_free(study: Study, total: int) -> int | None:
    taken = {trial.user_attrs["ticket"] for trial in study.get_trials(deepcopy=False) if _holds(trial)}
    return next((ticket for ticket in range(total) if ticket not in taken), None)


def _holds(trial: FrozenTrial) -> bool:
    """Return whether a trial holds its ticket: it is done, running or waiting, or the setting itself failed."""
    return "ticket" in trial.user_attrs and (trial.state.name != "FAIL" or "problem" in trial.user_attrs)


def _is_dead(pid: int) -> bool:
    if pid == os.getpid():
        return True  # this process has just started
    if os.name != "posix":
        return False  # the signal would end the process; rely on the heartbeat
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
