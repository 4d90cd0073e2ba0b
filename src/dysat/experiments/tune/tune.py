"""Tune the options of a model on validation links; any number of processes, or a Ray cluster, can share the trials.

tuning.db      all trials, finished or not (an Optuna database; `storage` gives the URL of another one)
tuning.json    the result
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import wait
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.evaluation.protocols import predictable_steps
from dysat.experiments.evaluate.evaluate import Models, as_contender
from dysat.experiments.evaluate.plan import about
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.versions import method_version
from dysat.experiments.tune.objective import Objective, Validation, validation_of
from dysat.experiments.tune.outcome import Tuning
from dysat.experiments.tune.ray_trials import run_on_ray
from dysat.experiments.tune.spaces import Dimension, Given, combinations, search_space, settings_to_check, with_setting
from dysat.experiments.tune.study import free_dead_tickets, open_study, run_trials, shown_url, trials_of
from dysat.experiments.tune.trials import TuningPlan
from dysat.models import MODELS
from dysat.nn.device import choose_device
from dysat.system.extras import require
from dysat.system.notebook import notebook_progress
from dysat.system.parallel.engine import Engine, EngineName
from dysat.system.parallel.pool import worker_pool
from dysat.system.parallel.process import keep_freed_memory
from dysat.system.progress import report as report_progress
from dysat.system.storage import replace_file
from dysat.system.text.json_text import json_text

DATABASE, RESULTS = "tuning.db", "tuning.json"
REQUEST = (
    "protocol",
    "first",
    "last",
    "seed",
    "self_loops",
    "typed",
    "new_ends",
)  # fields of a Request that tuning uses
POLL = 0.5  # seconds between progress reports of other processes


OnProgress = Callable[[Tuning], None]


@dataclass(frozen=True)
class Work:
    """The task of a worker, apart from the graph; the worker computes the same examples again."""

    plan: TuningPlan
    request: Request
    storage: str | None
    device: str


def tune(
    model: Models,
    graph: DynamicGraph,
    folder: str | os.PathLike[str] | None = None,
    *,
    space: Given | None = None,
    objective: Objective = "auc",
    trials: int | None = None,
    steps: Collection[int] | None = None,
    prune: bool = True,
    storage: str | None = None,
    device: str = "auto",
    processes: int | None = 1,
    engine: EngineName = "local",
    address: str | None = None,
    job_cpus: int | None = None,
    job_gpus: float | None = None,
    on_progress: OnProgress = lambda tuning: None,
    **request: Any,
) -> Tuning:
    """Try settings of a model's options and find the best one on validation links; test links are not used.

    Parameters:
        model: a name or a model; a model provides the options that are not tuned.
        graph: the snapshots.
        folder: folder for finished trials, from which the same call resumes; None keeps nothing.
        space: options and values, see `search_space`; None for the `default_space` of the model.
        objective: `auc`, or `mrr` for the mean reciprocal rank of validation links among other nodes.
        trials: number of settings; None for every combination. With fewer trials than combinations, or with a range,
            a sampler (TPE) proposes settings.
        steps: predicted snapshots to use; None for all.
        prune: stop a trial early if its mean is below the median of the finished trials.
        storage: URL of a database, for workers on many machines; None for a file in the folder.
        device: device to train on.
        processes: number of processes; None for one per core, which needs `if __name__ == "__main__":` in a script.
            With Ray, the cluster determines it.
        engine: `local`, or `ray` for a Ray cluster, which fits the models; this machine keeps the trials.
        address, job_cpus, job_gpus: of Ray, see `dysat.system.parallel.engine.Engine`.
        on_progress: called with the tuning so far.
        request: fields of a `Request`: protocol, first, last, seed, self_loops, typed, new_ends.

    Example:
        >>> import dysat
        >>> tuning = dysat.tune("edge-memory", dysat.load_dataset("uci"), space={"decay": (0.3, 0.6)}, first=11)
        >>> len(tuning.trials)
        2
    """
    chosen = Engine(engine, address, job_cpus, job_gpus)
    if folder is None and storage is None and (processes != 1 or chosen.is_ray):  # processes and threads share a file
        with TemporaryDirectory(prefix="dysat-") as place:
            return tune(
                model, graph, place, space=space, objective=objective, trials=trials, steps=steps, prune=prune,
                storage=storage, device=device, processes=processes, engine=engine, address=address,
                job_cpus=job_cpus, job_gpus=job_gpus, on_progress=on_progress, **request,
            )  # fmt: skip
    for name in request:
        if name not in REQUEST:
            raise ModelError(f"tune() has no argument {name!r}; of a request there are {', '.join(REQUEST)}")
    require("optuna", "tune()")
    wanted, contender = Request(**request), as_contender(model)
    MODELS[contender.method].check_packages()
    contender.build().check_inputs(graph)
    _check_memory(contender, graph, wanted, search_space(contender, space), device)
    validation = validation_of(graph, wanted, steps, objective)
    plan = _plan(contender, graph, wanted, validation, space, trials, prune)
    where = choose_device(device)
    workers = min(processes or (1 if where.type == "cuda" else torch.get_num_threads()), plan.total)
    path = None if folder is None else Path(os.path.abspath(folder))
    facts = _facts(plan, graph, wanted, validation.targets, where.type, storage)
    if path is not None and storage is None:
        path.mkdir(parents=True, exist_ok=True)
        storage = f"sqlite:///{path / DATABASE}"
    work = Work(plan, wanted, storage, str(where))
    with notebook_progress():
        found = _tune(work, graph, validation, facts, workers, chosen, on_progress)
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        with replace_file(path / RESULTS, ModelError) as beside:
            beside.write_text(json_text(found.facts(), indent=1, ascii=True) + "\n", encoding="utf-8")
    return found


def _check_memory(
    contender: Contender, graph: DynamicGraph, request: Request, space: Sequence[Dimension], device: str
) -> None:
    """Raise if no setting fits in memory at the last step."""
    steps = predictable_steps(graph, request.protocol, request.first, request.last)
    seen = graph[: max((step for step, _ in steps), default=0) + 1]
    problems: list[ModelError] = []
    for setting in settings_to_check(space):
        try:
            model = with_setting(contender, setting).build(device)
        except ModelError:  # options that contradict each other
            continue
        try:
            model.check_memory(seen)
        except ModelError as problem:
            problems.append(problem)
        else:
            return
    if problems:
        raise problems[0]


def _tune(
    work: Work,
    graph: DynamicGraph,
    validation: Validation,
    facts: dict[str, Any],
    workers: int,
    engine: Engine,
    on_progress: OnProgress,
) -> Tuning:
    """Run the remaining trials, here, in several processes or on a cluster."""
    plan = work.plan
    space = {dimension.name: str(dimension) for dimension in plan.space}
    with open_study(work.storage, plan.name) as study:

        def current() -> Tuning:
            return Tuning(plan.contender, space, trials_of(study, plan), plan.total, dict(validation.left_out), facts)

        def report() -> None:
            now = current()
            report_progress("tuning: trial", now.count("done") + now.count("pruned") + now.count("failed"), plan.total)
            on_progress(now)

        free_dead_tickets(study)
        report()
        if engine.is_ray and current().unfinished:
            run_on_ray(engine, plan, work.request, work.storage, work.device, graph, validation, report)
        elif workers == 1 or engine.is_ray:
            run_trials(study, plan, validation, work.device, report)
        else:
            _run_in_processes(work, graph, validation.targets, workers, report)
        return current()


def _plan(
    contender: Contender,
    graph: DynamicGraph,
    request: Request,
    validation: Validation,
    given: Given | None,
    trials: int | None,
    prune: bool,
) -> TuningPlan:
    """Return the plan; its name is a key of everything the values depend on, except the number of trials."""
    space = search_space(contender, given)
    every = combinations(space)
    if trials is not None and trials < 1:
        raise ModelError(f"trials={trials} must be at least 1")
    if every is None and trials is None:
        raise ModelError("a range has infinitely many settings; give a number of trials: trials=20")
    grid = every is not None and (trials is None or trials >= len(every))
    total = len(every) if grid and every is not None else trials or 0
    how = {key: value for key, value in asdict(request).items() if key in REQUEST and key not in ("first", "last")}
    facts = {
        "code": method_version(contender),
        "graph": graph.fingerprint,
        "options": {name: value for name, value in contender.build().plain_params().items() if name != "device"},
        "space": [[type(dimension).__name__, *map(str, vars(dimension).values())] for dimension in space],
        "targets": validation.targets,
        "request": how,
        "grid": grid,
        "prune": prune,
        **(
            {} if validation.objective == "auc" else {"objective": validation.objective}
        ),  # names of studies by AUC stay
    }
    key = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    tuned = "+".join(dimension.name for dimension in space)
    name = f"{contender.method} {tuned[:100]} graph {graph.fingerprint[:8]} {key[:12]}"
    return TuningPlan(name, contender, space, total, request.seed, grid, prune, validation.objective)


def _facts(
    plan: TuningPlan, graph: DynamicGraph, request: Request, targets: list[int], device: str, storage: str | None
) -> dict[str, Any]:
    """Return how it was tuned, as plain values."""
    return {
        **about(graph, request, device, "optuna"),
        "request": {name: getattr(request, name) for name in REQUEST},
        "study": plan.name,
        "storage": DATABASE if storage is None else shown_url(storage),
        "sampler": "grid" if plan.grid else "TPE",
        "prune": plan.prune,
        "objective": plan.objective,
        "predicted": targets,
    }


def _run_in_processes(
    work: Work, graph: DynamicGraph, targets: list[int], workers: int, report: Callable[[], None]
) -> None:
    with TemporaryDirectory(prefix="dysat-") as place, worker_pool(workers, "trials") as pool:
        graph.save(Path(place) / "graph")
        waiting = {pool.submit(_work, work, Path(place) / "graph", targets) for _ in range(workers)}
        while waiting:
            done, waiting = wait(waiting, timeout=POLL)
            for future in done:
                future.result()
            report()


def _work(work: Work, folder: Path, targets: list[int]) -> None:
    """Run trials in one of several processes."""
    keep_freed_memory()
    validation = validation_of(DynamicGraph.load(folder), work.request, targets, work.plan.objective)
    with open_study(work.storage, work.plan.name) as study:
        run_trials(study, work.plan, validation, work.device)
