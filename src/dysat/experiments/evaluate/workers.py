"""Jobs of an evaluation, here or in several processes: each is stored when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

import torch

from dysat.experiments.evaluate.job import Job, Worker
from dysat.models import OPPONENTS
from dysat.system.pool import worker_pool
from dysat.system.process import keep_freed_memory
from dysat.system.progress import report as report_progress

OnProgress = Callable[[int, int, str], None]  # jobs done, jobs in total, the job done last


def run_all(
    jobs: Sequence[Job],
    processes: int,
    on_progress: OnProgress,
    on_done: Callable[[Sequence[Job]], None] = lambda jobs: None,
) -> None:
    """Run all jobs that are not done yet; `on_done` gets jobs as they finish, first those done before."""
    ready, missing = list[Job](), list[Job]()
    for job in jobs:
        (ready if job.is_done() else missing).append(job)
    chains, done = _chains(missing, processes), len(ready)
    on_progress(done, len(jobs), "")
    on_done(ready)

    def report(finished: Sequence[Job]) -> None:
        nonlocal done
        done += len(finished)
        on_done(finished)
        report_progress("evaluating: step", done, len(jobs))
        on_progress(done, len(jobs), f"{finished[-1].contender.name}, snapshots up to {finished[-1].step}")

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


_worker = Worker()  # of this process; used by worker processes only


def _run_chain(chain: Sequence[Job]) -> None:
    keep_freed_memory()
    for job in chain:
        _worker.run(job)


def processes_for(device: str, jobs: int) -> int:
    """Return the default number of processes: one per core, or one if all would share a GPU."""
    return 1 if device == "cuda" else max(1, min(torch.get_num_threads(), jobs))
