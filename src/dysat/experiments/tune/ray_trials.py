"""Trials of a tuning on a Ray cluster: the machines fit and score models, this process keeps the trials.

Machines of a cluster cannot share a SQLite file. So threads of this process draw tickets, as worker processes do
otherwise, and each waits for one fit at a time. An incremental model is one task for all its steps, so it is pruned
only after the last one, with the figures it would have been pruned with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from tempfile import TemporaryDirectory

import dysat
from dysat.data.graph import DynamicGraph
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.workers import check_version
from dysat.experiments.tune.objective import Objective, OnStep, Validation, judge, validation_of
from dysat.experiments.tune.study import open_study, run_trials
from dysat.experiments.tune.trials import TuningPlan
from dysat.models import MODELS
from dysat.system.parallel.engine import Engine
from dysat.system.parallel.process import keep_freed_memory
from dysat.system.parallel.ray_tasks import RayTasks, SharedFolder, StoppedError, ray_tasks

POLL = 0.5  # seconds between progress reports


def run_on_ray(
    engine: Engine,
    plan: TuningPlan,
    request: Request,
    storage: str | None,
    device: str,
    graph: DynamicGraph,
    validation: Validation,
    report: Callable[[], None],
) -> None:
    """Run the remaining trials, as many at a time as the cluster has room for."""
    from optuna.exceptions import ExperimentalWarning

    with (
        TemporaryDirectory(prefix="dysat-") as place,
        ray_tasks(engine, device=device, gpus=1.0, kept="trials") as tasks,
        warnings.catch_warnings(),
    ):
        # Here and not only in each thread: filters belong to the whole process.
        warnings.simplefilter("ignore", ExperimentalWarning)
        graph.save(Path(place) / "graph")
        judge_there = _JudgeOnRay(tasks, tasks.share(Path(place) / "graph"), request, validation)

        def draw_tickets() -> None:
            with open_study(storage, plan.name) as study:
                run_trials(study, plan, validation, device, judge=judge_there)

        workers = min(tasks.slots, plan.total)
        with ThreadPoolExecutor(workers) as pool:
            waiting = {pool.submit(draw_tickets) for _ in range(workers)}
            try:
                while waiting:
                    done, waiting = wait(waiting, timeout=POLL)
                    for future in sorted(done, key=lambda future: isinstance(future.exception(), StoppedError)):
                        future.result()
                    report()
            except BaseException:
                tasks.cancel()  # or the pool would wait for its threads
                raise


class _JudgeOnRay:
    """Does what `judge` does, with every fit on the cluster."""

    def __init__(self, tasks: RayTasks, graph: SharedFolder, request: Request, validation: Validation) -> None:
        self.tasks = tasks
        self.data = (graph, request, validation.targets, validation.objective, dysat.__version__)

    def __call__(
        self, contender: Contender, validation: Validation, *, device: str, on_step: OnStep
    ) -> dict[int, float]:
        incremental = hasattr(MODELS[contender.method], "take_in")
        values: dict[int, float] = {}
        for step in [None] if incremental else validation.steps:
            found = self.tasks.call(_judge_on_node, contender, step, device.partition(":")[0], *self.data)
            for target, value in found.items():
                values[target] = value
                on_step(target, values)
        return values


_last: tuple[object, Validation] | None = None  # of this process of a cluster


def _judge_on_node(
    contender: Contender,
    step: int | None,
    device: str,
    graph: SharedFolder,
    request: Request,
    targets: list[int],
    objective: Objective,
    version: str,
) -> dict[int, float]:
    """Fit and score a model in a process of a cluster; the examples are computed once per process."""
    global _last
    check_version(version)
    keep_freed_memory()
    key = (graph.key, request, targets, objective)
    if _last is None or _last[0] != key:
        _last = (key, validation_of(DynamicGraph.load(graph.here()), request, targets, objective))
    return judge(contender, _last[1], device=device, step=step)
