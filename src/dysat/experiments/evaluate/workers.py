"""Jobs of an evaluation in processes: each kept when it is done, none outlives the first."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Thread

import torch

from dysat.errors import ModelError
from dysat.experiments.evaluate.job import Job, run_jobs, run_stretch
from dysat.models import OPPONENTS

Told = Callable[[int, int, str], None]  # done, of how many, what was done last


def run_all(
    jobs: Sequence[Job], workers: int, told: Told, on_done: Callable[[Sequence[Job]], None] = lambda jobs: None
) -> None:
    """All jobs that are not done, each kept when it is; `on_done` is given those that are, as they come."""
    missing, ready = list[Job](), list[Job]()
    for job in jobs:
        (ready if job.is_done() else missing).append(job)
    done, total = len(ready), len(jobs)
    told(done, total, "")
    on_done(ready)
    for finished in _finished(_stretches(missing, workers), workers):
        done += len(finished)
        on_done(finished)
        told(done, total, f"{finished[-1].contender.name}, snapshots up to {finished[-1].step}")


def _stretches(jobs: list[Job], workers: int) -> list[list[Job]]:
    """What one process does in one go: a model that is trained at one step, or consecutive steps of heuristics.

    An incremental model goes on from step to step. The pair models share what they compute, with each other and from
    step to step; so they stay together.
    """
    alone, together = list[list[Job]](), dict[tuple[str, str], list[Job]]()
    chains = dict[tuple[str, str], list[Job]]()
    for job in jobs:
        if job.goes_on:
            chains.setdefault((str(job.folder), job.contender.key), []).append(job)
        elif job.contender.method not in OPPONENTS:
            alone.append([job])
        else:
            family = (str(job.folder), job.contender.method.partition("-")[0])
            together.setdefault(family, []).append(job)
    parts = []
    for some in together.values():
        some.sort(key=lambda job: job.step)
        size = -(-len(some) // workers)
        parts += [some[i : i + size] for i in range(0, len(some), size)]
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
    with led_pool(min(workers, len(stretches)), "steps") as pool:
        waiting: dict[Future[None], list[Job]] = {pool.submit(run_jobs, stretch): stretch for stretch in stretches}
        while waiting:
            # Not without end: Polars lets system calls begin again after a signal, and Ctrl-C would not be heard.
            for future in wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED).done:
                future.result()
                yield waiting.pop(future)


@contextmanager
def led_pool(workers: int, kept: str) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one, and with whatever goes wrong; `kept` is what then stays finished."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), be_led) as pool:
        try:
            yield pool
        except BrokenProcessPool:
            why = (
                "a process was ended from outside, perhaps for want of memory; a script needs if __name__ == '__main__'"
            )
            raise ModelError(f"{why}; finished {kept} are kept, try processes=1") from None
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


def processes_for(device: str, jobs: int) -> int:
    """As many as there are cores; one where all share a GPU."""
    return 1 if device == "cuda" else max(1, min(torch.get_num_threads(), jobs))
