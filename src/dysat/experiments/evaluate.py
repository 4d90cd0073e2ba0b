"""How well models predict links, step by step: in several processes, kept as it comes, taken up again after a stop.

evaluation.json              what was asked for
graph/                       the snapshots
steps/MODEL-…-STEP.safetensors   what one model reached at one step, and its scores
results.json                 everything, when all steps are done
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import torch

import dysat
from dysat.data.graph import DynamicGraph
from dysat.data.storage import write_beside
from dysat.errors import GraphError, ModelError, listed
from dysat.evaluation.protocols import (
    TooFewLinksError,
    predictable_steps,
)
from dysat.experiments.job import GRAPH, STEPS, Job, run_jobs, run_stretch, split_of
from dysat.experiments.request import Contender, Request
from dysat.experiments.summary import Evaluation, Figures, StepResult
from dysat.models import MODELS, OPPONENTS
from dysat.models.base import LinkModel, choose_device

REQUEST, RESULTS = "evaluation.json", "results.json"


Told = Callable[[int, int, str], None]  # done, of how many, what was done last


Models = str | LinkModel | Contender


def evaluate(
    models: Models | Sequence[Models],
    graph: DynamicGraph,
    folder: str | os.PathLike[str] | None = None,
    *,
    opponents: Sequence[str] = OPPONENTS,
    device: str = "auto",
    processes: int | None = 1,
    on_progress: Told = lambda done, total, what: None,
    **request: Any,
) -> Evaluation:
    """Fit every model anew at every step and tell how well it predicts what comes after.

    Parameters:
        models: names, or models, of which only the options count; one or several.
        folder: keeps what is finished, which the same call then does not compute again.
        opponents: evaluated beside the models that are asked for, so that one sees whether learning pays.
        processes: how many; None for one for each core, which needs `if __name__ == "__main__":` in a script.
        request: the fields of a `Request`: protocol, negatives, probe, first, last, repeats, …

    Example:
        >>> import dysat
        >>> graph = dysat.load_dataset("uci")
        >>> found = dysat.evaluate("edge-memory", graph, opponents=["edgebank"], first=11, processes=1)
        >>> [model.name for model in found.shown()]
        ['edge-memory', 'edgebank']
    """
    if folder is None:
        with TemporaryDirectory(prefix="dysat-") as place:
            return evaluate(
                models, graph, place, opponents=opponents, device=device, processes=processes, on_progress=on_progress,
                **request,
            )  # fmt: skip
    unknown = [name for name in request if name not in Request.__dataclass_fields__]
    if unknown:
        there = listed(Request.__dataclass_fields__, 20)
        raise ModelError(f"evaluate() has no argument {unknown[0]!r}; of a request there are {there}")
    several = models if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    asked = list({one.key: one for one in map(as_contender, several)}.values())
    path = Path(os.path.abspath(folder))
    return _evaluate(asked, graph, path, Request(**request), opponents, device, processes, on_progress)


def as_contender(model: Models) -> Contender:
    """Whatever says which model, and its options."""
    if isinstance(model, LinkModel):
        return Contender(model.method, options=model.values())
    return Contender(model) if isinstance(model, str) else model


def _evaluate(
    asked: list[Contender],
    graph: DynamicGraph,
    path: Path,
    request: Request,
    opponents: Sequence[str],
    device: str,
    processes: int | None,
    on_progress: Told,
) -> Evaluation:
    present = {contender.key for contender in asked}
    others = [Contender(name, opponent=True) for name in opponents]
    contenders = [*asked, *(contender for contender in others if contender.key not in present)]
    steps = predictable_steps(graph, request.protocol, request.first, request.last)
    if request.typed and graph.kinds is None:
        raise GraphError("negatives cannot be typed: the nodes of this graph have no kinds")
    left_out = _check_steps(graph, request, steps)
    where = choose_device(device)
    _open_folder(path, graph, request)
    by_step: dict[int, list[int]] = {}
    for step, target in steps:
        if target not in left_out:
            by_step.setdefault(step, []).append(target)
    workers = processes or _processes(where.type, len(by_step) * len(contenders))
    threads = max(1, torch.get_num_threads() // workers)
    jobs = [
        Job(path, contender, request, step, tuple(targets), str(where), threads)
        for step, targets in sorted(by_step.items(), reverse=True)  # the long ones first
        for contender in contenders
    ]
    _run([job for job in jobs if not job.is_done()], len(jobs), workers, on_progress)
    evaluation = Evaluation(
        about=about(graph, request, where.type),
        left_out={**{str(target): why for target, why in left_out.items()}},
        figures=[_figures(contender, [job for job in jobs if job.contender is contender]) for contender in contenders],
    )
    if not any(figures.results for figures in evaluation.asked()):
        why = next((why for f in evaluation.asked() for why in f.problems.values()), "no such negatives at any step")
        raise ModelError(f"no figure for {asked[0].name}: {why}")
    with write_beside(path / RESULTS, ModelError) as beside:
        beside.write_text(json.dumps(evaluation.facts(), indent=1) + "\n", encoding="utf-8")
    return evaluation


def _check_steps(graph: DynamicGraph, request: Request, steps: list[tuple[int, int]]) -> dict[int, str]:
    """Targets with too few links to divide, and why; at least one must be left."""
    left_out: dict[int, str] = {}
    for step, target in steps:
        try:
            split_of(graph, request, step, target)
        except TooFewLinksError as problem:
            left_out[target] = str(problem)
    if len(left_out) == len({target for _, target in steps}):
        raise GraphError(f"no step has enough links to evaluate: {next(iter(left_out.values()), 'no steps')}")
    return left_out


def _open_folder(path: Path, graph: DynamicGraph, request: Request) -> None:
    """Make the folder, or go on with one that has the same graph and request."""
    wanted = {"dysat": dysat.__version__, "graph": graph.fingerprint, **asdict(request)}
    wanted = json.loads(json.dumps(wanted))
    file = path / REQUEST
    if file.is_file():
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ModelError(f"{file}: damaged; choose another folder")
        other = [key for key in wanted if found.get(key) != wanted[key]]
        if other:
            raise ModelError(
                f"{path}: an evaluation with another {other[0]} ({found.get(other[0])}); choose another folder"
            )
        (path / STEPS).mkdir(exist_ok=True)
        return
    if path.exists() and any(file.name not in (STEPS, GRAPH) for file in path.iterdir()):
        raise ModelError(f"{path}: exists already and is no evaluation; choose another folder")
    (path / STEPS).mkdir(parents=True, exist_ok=True)
    graph.save(path / GRAPH, overwrite=True)
    with write_beside(file, ModelError) as beside:
        beside.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")


def _run(jobs: list[Job], total: int, workers: int, told: Told) -> None:
    """All jobs, each kept when it is done."""
    done = total - len(jobs)
    told(done, total, "")
    for finished in _finished(_stretches(jobs, workers), workers):
        done += len(finished)
        told(done, total, f"{finished[-1].contender.name}, snapshots up to {finished[-1].step}")


def _stretches(jobs: list[Job], workers: int) -> list[list[Job]]:
    """What one process does in one go: a model that is trained at one step, or consecutive steps of others.

    An incremental model goes on from step to step. The pair models share what they compute, with each other and from
    step to step; so they stay together.
    """
    alone, together, chains = [], dict[str, list[Job]](), dict[str, list[Job]]()
    for job in jobs:
        if job.goes_on:
            chains.setdefault(job.contender.key, []).append(job)
        elif any(option.name == "device" for option in MODELS[job.contender.method].options()):
            alone.append([job])
        else:
            together.setdefault(job.contender.method.partition("-")[0], []).append(job)
    parts = []
    for family in together.values():
        family.sort(key=lambda job: job.step)
        size = -(-len(family) // workers)
        parts += [family[i : i + size] for i in range(0, len(family), size)]
    in_order = [sorted(chain, key=lambda job: job.step) for chain in chains.values()]
    return [*in_order, *alone, *sorted(parts, key=len, reverse=True)]


def _finished(stretches: list[list[Job]], workers: int) -> Iterator[list[Job]]:
    if workers == 1 or len(stretches) < 2:
        threads = torch.get_num_threads()
        for stretch in stretches:
            for job in run_stretch(stretch):
                torch.set_num_threads(threads)
                yield [job]
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(stretches)), context, be_led) as pool:
        try:
            waiting: dict[Future[None], list[Job]] = {pool.submit(run_jobs, stretch): stretch for stretch in stretches}
            while waiting:
                # Not without end: Polars lets system calls begin again after a signal, and Ctrl-C would not be heard.
                for future in wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED).done:
                    future.result()
                    yield waiting.pop(future)
        except BrokenProcessPool:
            why = (
                "a process was ended from outside, perhaps for want of memory; a script needs if __name__ == '__main__'"
            )
            raise ModelError(f"{why}; finished steps are kept, try processes=1") from None
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()  # what is finished is kept, and a file is there whole or not at all
            raise


def be_led() -> None:
    """Ctrl-C reaches all processes of a terminal, and only the first decides; but none outlives it, however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_the_first, daemon=True).start()


def _end_with_the_first() -> None:
    first = multiprocessing.parent_process()
    if first is not None:
        first.join()
        os._exit(1)  # what is finished is kept


def _processes(device: str, jobs: int) -> int:
    """As many as there are cores; one where all share a GPU."""
    return 1 if device == "cuda" else max(1, min(torch.get_num_threads(), jobs))


def _figures(contender: Contender, jobs: list[Job]) -> Figures:
    """All that is kept of one model."""
    results: list[StepResult] = []
    problems: dict[str, str] = {}
    lacking: dict[str, list[int]] = {}
    seconds = 0.0
    for job in sorted(jobs, key=lambda job: job.step):
        facts, tensors = job.results()
        seconds += facts["seconds"]
        if facts["problem"]:
            problems[str(job.step)] = facts["problem"]
        for kind, target in facts["lacking"]:
            lacking.setdefault(kind, []).append(target)
        results += [StepResult.restore(found, tensors) for found in facts["results"]]
    options = {key: value for key, value in contender.build().values().items() if key != "device"}
    return Figures(contender.name, contender.method, options, contender.opponent, results, problems, lacking, seconds)


def about(graph: DynamicGraph, request: Request, device: str, *packages: str) -> dict[str, Any]:
    """What was done, when and where, for the files of results."""
    from datetime import UTC, datetime
    from importlib.metadata import version

    from dysat.experiments.bench import hardware

    return {
        "dysat": dysat.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(),
        "packages": {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-learn", *packages)},
        "device": device,
        "graph": {"fingerprint": graph.fingerprint, "nodes": graph.num_nodes, "snapshots": len(graph)},
        "request": asdict(request),
    }
