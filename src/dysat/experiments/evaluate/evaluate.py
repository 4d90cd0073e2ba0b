"""Evaluate models step by step, in several processes if wanted; a killed evaluation resumes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError, listed
from dysat.experiments.evaluate.outcome import Evaluation
from dysat.experiments.evaluate.plan import EvaluationPlan, stored_request
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.workers import OnProgress, processes_for, run_all
from dysat.models import MODELS, OPPONENTS
from dysat.models.base.link_model import LinkModel
from dysat.nn.device import choose_device
from dysat.runs.run import Run
from dysat.system.notebook import notebook_progress
from dysat.system.parallel.engine import Engine, EngineName

Models = str | LinkModel | Contender


def evaluate(
    models: Models | Sequence[Models],
    graph: DynamicGraph | Run,
    folder: str | os.PathLike[str] | None = None,
    *,
    opponents: Sequence[str] = OPPONENTS,
    candidates: int | None = None,
    device: str = "auto",
    processes: int | None = 1,
    engine: EngineName = "local",
    address: str | None = None,
    job_cpus: int | None = None,
    job_gpus: float | None = None,
    on_progress: OnProgress = lambda done, total, what: None,
    **request: Any,
) -> Evaluation:
    """Fit every model from scratch at every step and measure how well it predicts the next snapshots.

    Parameters:
        models: one or several names, such as "dysat" or "edge-memory", or models; a model only provides its options, so
            it need not be fitted. `DySAT.from_preset("program")` gives a model with a preset.
        graph: the snapshots, or a run, whose newest graph is taken; the model for step t learns from `graph[: t + 1]`.
        folder: folder for finished steps, from which the same call resumes; None keeps nothing.
        opponents: heuristics to compare with.
        candidates: number of other nodes each link is ranked among for MRR, Hits@10 and precision; 0 for no ranking.
            None for 100, or fewer in a small graph; a folder keeps the number it was started with.
        device: device to train on.
        processes: number of processes; None for one per core, which needs `if __name__ == "__main__":` in a script.
            With Ray, the cluster determines it.
        engine: `local`, or `ray` for a Ray cluster, on which a lost machine's jobs run again elsewhere.
        address, job_cpus, job_gpus: of Ray, see `dysat.system.parallel.engine.Engine`.
        on_progress: called with the number of finished jobs, the number of all jobs, and the last job.
        request: fields of a `Request`: protocol, negatives, probe, first, last, repeats, …

    Example:
        >>> import dysat
        >>> graph = dysat.load_dataset("uci")
        >>> evaluation = dysat.evaluate("edge-memory", graph, opponents=["edgebank"], first=11, processes=1)
        >>> [model.name for model in evaluation.shown()]
        ['edge-memory', 'edgebank']
    """
    graph = graph.graph() if isinstance(graph, Run) else graph
    where = Engine(engine, address, job_cpus, job_gpus)
    if folder is None:
        with TemporaryDirectory(prefix="dysat-") as place:
            return evaluate(
                models, graph, place, opponents=opponents, candidates=candidates, device=device, processes=processes,
                engine=engine, address=address, job_cpus=job_cpus, job_gpus=job_gpus, on_progress=on_progress,
                **request,
            )  # fmt: skip
    unknown = [name for name in request if name not in Request.__dataclass_fields__]
    if unknown:
        names = listed(Request.__dataclass_fields__, 20)
        raise ModelError(f"evaluate() has no argument {unknown[0]!r}; of a request there are {names}")
    several = models if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    contenders = _distinct(map(as_contender, several))
    for contender in (Contender(name, opponent=True) for name in opponents):
        contenders.setdefault(contender.key, contender)
    for contender in contenders.values():
        MODELS[contender.method].check_packages()
        contender.build().check_inputs(graph)
    processes = processes or processes_for(choose_device(device).type, len(graph) * len(contenders))
    path = Path(os.path.abspath(folder))
    wanted = _with_candidates(Request(**request), candidates, graph, path)
    plan = EvaluationPlan.make(list(contenders.values()), graph, path, wanted, device)
    with notebook_progress():
        run_all(plan.jobs, processes, on_progress, engine=where)
    return plan.evaluation()


def as_contender(model: Models) -> Contender:
    """Convert a name or a model to a contender."""
    return model if isinstance(model, Contender) else Contender.of(model)


def _with_candidates(request: Request, given: int | None, graph: DynamicGraph, path: Path) -> Request:
    """Return the request with the given number of candidates, that of the folder, or the usual one."""
    if given is None:
        stored = (stored_request(path) or {}).get("candidates")
        given = stored if isinstance(stored, int) else request.usual_candidates(graph)
    return replace(request, candidates=given)


def _distinct(contenders: Iterable[Contender]) -> dict[str, Contender]:
    """Return contenders by key; those that share a name also show the options in which they differ from it."""
    by_key = {contender.key: contender for contender in contenders}
    names = Counter(contender.name for contender in by_key.values())
    for key, contender in by_key.items():
        options = ", ".join(f"{name}={value}" for name, value in contender.options.items() if name != "device")
        if names[contender.name] > 1 and options:
            by_key[key] = replace(contender, label=f"{contender.name} ({options})")
    return by_key
