"""Which options of a model are best, by validation links alone: trials that any number of processes share.

tuning.db      all trials, finished or not (a database of Optuna's; another one's URL may be given)
tuning.json    what came out
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection
from concurrent.futures import wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.experiments.evaluate.evaluate import Models, as_contender
from dysat.experiments.evaluate.plan import about
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.versions import method_version
from dysat.experiments.evaluate.workers import led_pool
from dysat.experiments.tune.objective import Validation, validation_of
from dysat.experiments.tune.spaces import Given, combinations, search_space
from dysat.experiments.tune.study import free_the_dead, opened, run_trials, shown_url, trials_of
from dysat.experiments.tune.trials import Plan, Trial
from dysat.nn.device import choose_device
from dysat.system.process import keep_freed_memory
from dysat.system.storage import replace_file

DATABASE, RESULTS = "tuning.db", "tuning.json"
REQUEST = ("protocol", "first", "last", "seed", "self_loops", "typed", "new_ends")  # what of one counts here
OFTEN = 0.5  # seconds between looks at what other processes have done


@dataclass(frozen=True, eq=False)
class Tuning:
    """What came out of it. `about` says how; `trials` has every setting that was tried, the best first."""

    contender: Contender
    space: dict[str, str]
    trials: list[Trial]
    total: int
    left_out: dict[int, str]
    about: dict[str, Any]

    @property
    def best(self) -> Trial:
        """The setting with the highest mean over all predicted snapshots; of equals the first."""
        done = [trial for trial in self.trials if trial.state == "done"]
        if not done:
            problem = next((trial.problem for trial in self.trials if trial.problem), "none was finished")
            raise ModelError(f"no setting of {self.contender.name} has a figure: {problem}")
        return done[0]

    @property
    def options(self) -> dict[str, Any]:
        """All options of the best model, but where it was computed."""
        values = replace(self.contender, options={**self.contender.options, **self.best.options}).build().values()
        return {name: value for name, value in values.items() if name != "device"}

    def count(self, state: str) -> int:
        """How many trials are done, pruned, failed or running."""
        return sum(trial.state == state for trial in self.trials)

    def facts(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        found = any(trial.state == "done" for trial in self.trials)
        base = self.contender.build().values()
        return {
            **self.about,
            "model": self.contender.method,
            "preset": self.contender.preset,
            "given": {name: base[name] for name in self.contender.options if name != "device"},
            "space": self.space,
            "best": self.best.facts() if found else None,
            "options": self.options if found else None,
            "total": self.total,
            "left_out": {str(target): why for target, why in self.left_out.items()},
            "trials": [trial.facts() for trial in self.trials],
        }


Told = Callable[[Tuning], None]


@dataclass(frozen=True)
class Work:
    """What a worker is given besides the graph; it makes the examples again, which come out the same."""

    plan: Plan
    request: Request
    storage: str | None
    device: str
    threads: int


def tune(
    model: Models,
    graph: DynamicGraph,
    folder: str | os.PathLike[str] | None = None,
    *,
    space: Given | None = None,
    trials: int | None = None,
    steps: Collection[int] | None = None,
    prune: bool = True,
    storage: str | None = None,
    device: str = "auto",
    processes: int | None = 1,
    on_progress: Told = lambda tuning: None,
    **request: Any,
) -> Tuning:
    """Try settings of a model's options and tell which is best on validation links; no test link is looked at.

    Parameters:
        model: a name, or a model, of which only the options count; they are what the tuned ones are changed in.
        folder: keeps what is finished, which the same call then does not compute again; None keeps nothing.
        space: what to try, as `search_space` takes it; None for what the paper tuned.
        trials: how many settings; None for every combination. As many as there are, or more, are all of them, each
            once; otherwise, or where a range is given, a sampler (TPE) learns from the first what to try next.
        steps: predicted snapshots to take; None for all.
        prune: end a trial early when it is below the median of those before.
        storage: URL of a database, for workers on many machines; None for a file in the folder.
        processes: how many; None for one for each core, which needs `if __name__ == "__main__":` in a script.
        request: fields of a `Request`: protocol, first, last, seed, self_loops, typed, new_ends.

    Example:
        >>> import dysat
        >>> found = dysat.tune("edge-memory", dysat.load_dataset("uci"), space={"decay": (0.3, 0.6)}, first=11)
        >>> len(found.trials)
        2
    """
    if folder is None and storage is None and processes != 1:  # which share a file
        with TemporaryDirectory(prefix="dysat-") as place:
            return tune(
                model, graph, place, space=space, trials=trials, steps=steps, prune=prune, storage=storage,
                device=device, processes=processes, on_progress=on_progress, **request,
            )  # fmt: skip
    for name in request:
        if name not in REQUEST:
            raise ModelError(f"tune() has no argument {name!r}; of a request there are {', '.join(REQUEST)}")
    wanted, contender = Request(**request), as_contender(model)
    validation = validation_of(graph, wanted, steps)
    plan = _plan(contender, graph, wanted, validation, space, trials, prune)
    where = choose_device(device)
    workers = min(processes or (1 if where.type == "cuda" else torch.get_num_threads()), plan.total)
    path = None if folder is None else Path(os.path.abspath(folder))
    facts = _facts(plan, graph, wanted, validation.targets, where.type, storage)
    if path is not None and storage is None:
        path.mkdir(parents=True, exist_ok=True)
        storage = f"sqlite:///{path / DATABASE}"
    work = Work(plan, wanted, storage, str(where), max(1, torch.get_num_threads() // workers))
    found = _tune(work, graph, validation, facts, workers, on_progress)
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
        with replace_file(path / RESULTS, ModelError) as beside:
            beside.write_text(json.dumps(found.facts(), indent=1) + "\n", encoding="utf-8")
    return found


def _tune(
    work: Work, graph: DynamicGraph, validation: Validation, facts: dict[str, Any], workers: int, on_progress: Told
) -> Tuning:
    """All trials that are left, here or in several processes."""
    plan = work.plan
    space = {dimension.name: str(dimension) for dimension in plan.space}
    with opened(work.storage, plan.name) as study:

        def standing() -> Tuning:
            return Tuning(plan.contender, space, trials_of(study, plan), plan.total, dict(validation.left_out), facts)

        def told() -> None:
            on_progress(standing())

        free_the_dead(study)
        told()
        if workers == 1:
            run_trials(study, plan, validation, work.device, told)
        else:
            _share(work, graph, validation.targets, workers, told)
        return standing()


def _plan(
    contender: Contender,
    graph: DynamicGraph,
    request: Request,
    validation: Validation,
    given: Given | None,
    trials: int | None,
    prune: bool,
) -> Plan:
    """What is tried; its name says everything that the values depend on, but the number of trials."""
    space = search_space(contender, given)
    every = combinations(space)
    if trials is not None and trials < 1:
        raise ModelError(f"trials={trials} must be at least 1")
    if every is None and trials is None:
        raise ModelError("a range has no end of settings to try; say how many: trials=20")
    grid = every is not None and (trials is None or trials >= len(every))
    total = len(every) if grid and every is not None else trials or 0
    how = {key: value for key, value in asdict(request).items() if key in REQUEST and key not in ("first", "last")}
    facts = {
        "code": method_version(contender.method),
        "graph": graph.fingerprint,
        "options": {name: value for name, value in contender.build().values().items() if name != "device"},
        "space": [[type(dimension).__name__, *map(str, vars(dimension).values())] for dimension in space],
        "targets": validation.targets,
        "request": how,
        "grid": grid,
        "prune": prune,
    }
    key = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    tuned = "+".join(dimension.name for dimension in space)
    name = f"{contender.method} {tuned[:100]} graph {graph.fingerprint[:8]} {key[:12]}"
    return Plan(name, contender, space, total, request.seed, grid, prune)


def _facts(
    plan: Plan, graph: DynamicGraph, request: Request, targets: list[int], device: str, storage: str | None
) -> dict[str, Any]:
    """How it was tuned, as plain values."""
    return {
        **about(graph, request, device, "optuna"),
        "request": {name: getattr(request, name) for name in REQUEST},
        "study": plan.name,
        "storage": DATABASE if storage is None else shown_url(storage),
        "sampler": "grid" if plan.grid else "TPE",
        "prune": plan.prune,
        "predicted": targets,
    }


def _share(work: Work, graph: DynamicGraph, targets: list[int], workers: int, told: Callable[[], None]) -> None:
    """Trials in processes of their own."""
    with TemporaryDirectory(prefix="dysat-") as place, led_pool(workers, "trials") as pool:
        graph.save(Path(place) / "graph")
        waiting = {pool.submit(_work, work, Path(place) / "graph", targets) for _ in range(workers)}
        while waiting:
            done, waiting = wait(waiting, timeout=OFTEN)
            for future in done:
                future.result()
            told()


def _work(work: Work, folder: Path, targets: list[int]) -> None:
    """One of several processes that share the trials."""
    from threadpoolctl import threadpool_limits

    keep_freed_memory()
    if work.device == "cpu":
        torch.set_num_threads(work.threads)
    validation = validation_of(DynamicGraph.load(folder), work.request, targets)
    with threadpool_limits(work.threads), opened(work.storage, work.plan.name) as study:
        run_trials(study, work.plan, validation, work.device)
