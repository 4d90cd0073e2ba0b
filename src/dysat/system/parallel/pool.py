"""Worker processes that end with their parent and share its threads."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Lock, Thread
from typing import Any

import torch

from dysat.errors import ModelError

# Each library reads one of these when it is loaded: OpenMP (torch, scikit-learn, native.c), BLAS, Polars, Numba.
THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
    *("NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS"),
)
_lock = Lock()  # the environment belongs to the whole process


def threads_per_worker(processes: int) -> int:
    """Return the number of threads of each process, so that all together use no more than this one would."""
    return max(1, torch.get_num_threads() // max(1, processes))


@contextmanager
def worker_pool(processes: int, kept: str, *, limit_threads: bool = True) -> Iterator[ProcessPoolExecutor]:
    """Open a pool whose processes end with this one, or on any error; `kept` names what stays finished then.

    Every process gets its share of the threads for BLAS, OpenMP, torch and Polars alike, set before these libraries
    are loaded: a limit set later misses libraries that are loaded after it.
    """
    threads = threads_per_worker(processes) if limit_threads else None
    with ProcessPoolExecutor(processes, WorkerContext(threads), exit_with_parent) as pool:
        try:
            yield pool
        except BrokenProcessPool:
            why = "a worker process was killed, perhaps for lack of memory; a script needs if __name__ == '__main__'"
            raise ModelError(f"{why}; finished {kept} are kept, try processes=1") from None
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()  # results are written atomically, so finished ones stay valid
            raise


class WorkerProcess(SpawnProcess):
    """A fresh process in whose environment every library is limited to some threads."""

    threads: int | None = None

    def start(self) -> None:
        """Start the process; a lower limit that is set already stays."""
        with _lock:
            before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
            try:
                if self.threads is not None:
                    os.environ.update({name: _lower(before[name], self.threads) for name in THREAD_VARIABLES})
                super().start()
            finally:
                for name, value in before.items():
                    if value is None:
                        os.environ.pop(name, None)
                    else:
                        os.environ[name] = value


class WorkerContext(SpawnContext):
    """Starts each `WorkerProcess` with the same number of threads; None leaves it to the libraries."""

    def __init__(self, threads: int | None) -> None:
        self.threads = threads

    def Process(self, *args: Any, **options: Any) -> WorkerProcess:  # type: ignore[override]  # noqa: N802
        """Return a process that is not started yet."""
        process = WorkerProcess(*args, **options)
        process.threads = self.threads
        return process


def exit_with_parent() -> None:
    """Let this process ignore Ctrl-C, which the parent handles, and exit as soon as the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _lower(value: str | None, threads: int) -> str:
    return str(min(int(value), threads)) if value is not None and value.isdecimal() and int(value) else str(threads)
