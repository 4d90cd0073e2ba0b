"""Jobs of an evaluation, here, in several processes or on a Ray cluster: each is stored when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from pathlib import Path

import torch

import dysat
from dysat.errors import ModelError
from dysat.experiments.evaluate.job import FITS, GRAPH, STEPS, Job, Worker
from dysat.models import OPPONENTS
from dysat.system.parallel.engine import LOCAL, Engine
from dysat.system.parallel.pool import worker_pool
from dysat.system.parallel.process import keep_freed_memory
from dysat.system.parallel.ray_tasks import RayTasks, SharedFolder, ray_tasks
from dysat.system.progress import report as report_progress
from dysat.system.storage import replace_file

OnProgress = Callable[[int, int, str], None]  # jobs done, jobs in total, the job done last


def run_all(
    jobs: Sequence[Job],
    processes: int,
    on_progress: OnProgress,
    on_done: Callable[[Sequence[Job]], None] = lambda jobs: None,
    *,
    engine: Engine = LOCAL,
    gpus: float = 1.0,
) -> None:
    """Run all jobs that are not done yet; `on_done` gets jobs as they finish, first those done before.

    On Ray the cluster determines the number of processes, and a job on CUDA reserves `gpus` of a GPU.
    """
    ready, missing = list[Job](), list[Job]()
    for job in jobs:
        (ready if job.is_done() else missing).append(job)
    done = len(ready)
    on_progress(done, len(jobs), "")
    on_done(ready)

    def report(finished: Sequence[Job]) -> None:
        nonlocal done
        done += len(finished)
        on_done(finished)
        report_progress("evaluating: step", done, len(jobs))
        on_progress(done, len(jobs), f"{finished[-1].contender.name}, snapshots up to {finished[-1].step}")

    if engine.is_ray and missing:
        with ray_tasks(engine, device=missing[0].device, gpus=gpus, kept="steps") as tasks:
            for chain in _run_on_ray(_chains(missing, tasks.slots), tasks):
                report(chain)
        return
    chains = _chains(missing, processes)
    if processes > 1 and len(chains) > 1:
        for chain in _run_in_processes(chains, processes):
            report(chain)
        return
    worker = Worker()
    for job in (job for chain in chains for job in chain):
        worker.run(job)
        report([job])


def _chains(jobs: list[Job], processes: int) -> list[list[Job]]:
    """Group jobs that one process runs in order: one step of a trained model, or consecutive steps of other models.

    An incremental model continues from step to step. Heuristics of a family share intermediate results, with each
    other and from step to step, so they stay together.
    """
    incremental = dict[tuple[str, str], list[Job]]()
    families = dict[tuple[str, str], list[Job]]()
    single = list[list[Job]]()
    for job in jobs:
        if job.incremental:
            incremental.setdefault((str(job.folder), job.contender.key), []).append(job)
        elif job.contender.method not in OPPONENTS:
            single.append([job])
        else:
            family = (str(job.folder), job.contender.method.partition("-")[0])
            families.setdefault(family, []).append(job)
    parts = []
    for family_jobs in families.values():
        family_jobs.sort(key=lambda job: job.step)
        size = -(-len(family_jobs) // processes)
        parts += [family_jobs[i : i + size] for i in range(0, len(family_jobs), size)]
    in_order = [sorted(chain, key=lambda job: job.step) for chain in incremental.values()]
    return [*in_order, *single, *sorted(parts, key=len, reverse=True)]


def _run_in_processes(chains: list[list[Job]], processes: int) -> Iterator[list[Job]]:
    """Yield each chain when a process has finished it."""
    with worker_pool(min(processes, len(chains)), "steps") as pool:
        waiting: dict[Future[None], list[Job]] = {pool.submit(_run_chain, chain): chain for chain in chains}
        while waiting:
            # With a timeout: Polars restarts system calls after a signal, so an endless wait would not notice Ctrl-C.
            for future in wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED).done:
                future.result()
                yield waiting.pop(future)


def _run_on_ray(chains: list[list[Job]], tasks: RayTasks) -> Iterator[list[Job]]:
    """Yield each chain when its files have come back from the cluster and are stored where a process stores them."""
    graphs = {folder: tasks.share(folder / GRAPH) for folder in dict.fromkeys(chain[0].folder for chain in chains)}
    arguments = [(chain, graphs[chain[0].folder], dysat.__version__) for chain in chains]
    for number, (results, fits) in tasks.run(_run_chain_on_node, arguments):
        for job, content in zip(chains[number], results, strict=True):
            _store(job.file, content)
        if (folder := chains[number][0].fits) is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in fits.items():
                _store(folder / name, content)
        yield chains[number]


def _store(file: Path, content: bytes) -> None:
    with replace_file(file, ModelError, needed=len(content)) as beside:
        beside.write_bytes(content)


def _run_chain_on_node(chain: Sequence[Job], graph: SharedFolder, version: str) -> tuple[list[bytes], dict[str, bytes]]:
    """Run jobs in a process of a cluster; return the file of each job, and the new fits.

    Fits that other protocols share are kept per process here, so another process may compute one again.
    """
    check_version(version)
    keep_freed_memory()
    folder = graph.here().parent
    fits = folder / FITS
    for place in (folder / STEPS, fits):
        place.mkdir(exist_ok=True)
    known = {file.name for file in fits.iterdir()}
    results = []
    for job in chain:
        shared = None if job.fits is None else fits
        device = job.device.partition(":")[0]  # Ray shows a task only the GPU that it may use
        here = replace(job, folder=folder, fits=shared, device=device)
        _worker.run(here)
        results.append(here.file.read_bytes())
        here.file.unlink()  # another evaluation of the same graph may have a file of this name
    return results, {file.name: file.read_bytes() for file in fits.iterdir() if file.name not in known}


def check_version(expected: str) -> None:
    """Raise if this machine of a cluster has another dysat: its results could differ."""
    if dysat.__version__ != expected:
        raise ModelError(f"a node of the Ray cluster has dysat {dysat.__version__}, this machine {expected}")


_worker = Worker()  # of this process; used by worker processes only


def _run_chain(chain: Sequence[Job]) -> None:
    keep_freed_memory()
    for job in chain:
        _worker.run(job)


def processes_for(device: str, jobs: int) -> int:
    """Return the default number of processes: one per core, or one if all would share a GPU."""
    return 1 if device == "cuda" else max(1, min(torch.get_num_threads(), jobs))
