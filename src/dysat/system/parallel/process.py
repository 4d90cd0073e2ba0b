"""Threads of this process: of NumPy and SciPy, and for independent parts of a computation; memory that is kept."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import Context, copy_context
from functools import cache
from pathlib import Path
from threading import Lock, RLock, local
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Part = TypeVar("Part")
Result = TypeVar("Result")
MAX_THREADS = 16  # of `in_threads`: each holds the memory of one part
CORES_EACH = 4  # that each part of `side_by_side` needs, or they are computed one after the other
MANY_LINKS = 4_000_000  # of a graph for which freed memory goes back to the system
KEPT_BYTES = 1 << 25  # largest allocation that is kept when it is freed; glibc accepts no higher limit
ROWS_PER_THREAD = 2_000  # matrix rows that make one more thread worthwhile
_lock = RLock()  # two overlapping calls would restore each other's limits
_loading = Lock()
_limits = list[tuple[ExitStack, int]]()  # of the calls of `few_blas_threads` that have not ended, the innermost last
_inside = local()


@contextmanager
def few_blas_threads(rows: int) -> Iterator[None]:
    """Limit NumPy and SciPy to one thread per 2,000 matrix rows, and never more threads than before.

    The eigenvectors of a graph take thousands of small products, and OpenBLAS wakes one thread per core for each. For
    few rows, waking takes longer than the product, and many times longer if another program occupies a core. The limit
    applies to the whole process; torch has its own threads. Parts of `side_by_side` and `meanwhile` keep theirs.
    """
    if getattr(_inside, "a_part", False):
        yield
        return
    libraries = _blas_libraries()
    with _lock, ExitStack() as stack:
        limit = min(_least_threads(libraries), max(1, rows // ROWS_PER_THREAD))
        stack.enter_context(libraries.limit(limits=limit))
        _limits.append((stack, limit))
        try:
            yield
        finally:
            _limits.pop()


def load_scipy() -> None:
    """Load the linear algebra of SciPy, with the limit of `few_blas_threads`, if any thread is inside of it.

    Importing it takes longer than many a forecast, so it is loaded where it is used.
    """
    with _loading:
        if "scipy.linalg" in sys.modules:
            return
        import scipy.linalg  # noqa: F401

        if _limits:
            stack, limit = _limits[-1]
            stack.enter_context(_blas_libraries().limit(limits=limit))


def in_threads(compute: Callable[[Part], Result], parts: Sequence[Part]) -> Iterator[Result]:
    """Yield the results of all parts, in order; several parts are computed at once, each on one core.

    Most of NumPy uses one core, so this is how its work is shared. As many threads are used as torch may use. Torch
    and NumPy have one core each inside, so that results do not depend on the number of threads.
    """
    import torch

    from dysat.system.compiled import native

    call, threads = native(), min(len(parts), torch.get_num_threads(), MAX_THREADS)
    if threads < 2 or call is None or call.single_threaded:
        yield from map(compute, parts)
        return
    with few_blas_threads(0):
        pool = ThreadPoolExecutor(threads, initializer=call.limit_this_thread)
        try:
            yield from pool.map(compute, parts)
        finally:
            pool.shutdown(cancel_futures=True)


def on_one_core(work: Callable[[], Result]) -> Result:
    """Do work of many small steps, for which waking other cores takes longer than they save."""
    import torch

    from dysat.system.compiled import native

    call = native()
    if call is None or call.single_threaded or torch.get_num_threads() < 2:
        return work()
    with few_blas_threads(0), ThreadPoolExecutor(1, initializer=call.limit_this_thread) as pool:
        return pool.submit(work).result()


def side_by_side(
    compute: Callable[[Part], Result], parts: Sequence[Part], *, most: int | None = None
) -> Iterator[Result]:
    """Yield the results of a few parts, in order; with many cores, several at once, each on at least four of them.

    NumPy has one core inside of each part, as in `in_threads`. At most `most` parts are computed at the same time.
    """
    import torch

    from dysat.system.compiled import native

    call, cores, at_once = native(), torch.get_num_threads(), parts_at_once(min(len(parts), most or len(parts)))
    if at_once < 2:
        yield from map(compute, parts)
        return
    libraries = _blas_libraries()

    def one(task: tuple[Context, Part]) -> Result:
        _inside.a_part = True
        if call is not None and not call.single_threaded:
            call.limit_this_thread(cores // at_once)
        with libraries.limit(limits=1):  # the limit of a library with OpenMP belongs to a thread
            return task[0].run(compute, task[1])

    with few_blas_threads(0):  # that of others to the process
        pool = ThreadPoolExecutor(at_once)
        try:
            yield from pool.map(one, [(copy_context(), part) for part in parts])
        finally:
            pool.shutdown(cancel_futures=True)


def parts_at_once(number: int) -> int:
    """Return how many of these parts `side_by_side` computes at the same time."""
    import torch

    return max(1, min(number, torch.get_num_threads() // CORES_EACH))


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do other work in a thread, and wait for it at the end; an error in it is raised there.

    It has no more cores for NumPy than one part of `side_by_side`.
    """
    libraries = _blas_libraries()
    limit = min(CORES_EACH, _least_threads(libraries))

    def limited() -> None:
        _inside.a_part = True
        with libraries.limit(limits=limit):
            work()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(limited)
        yield
    other.result()


def _blas_libraries() -> ThreadpoolController:
    """The OpenBLAS of NumPy, and of SciPy if it is loaded, but not that of torch: it has the threads of torch."""
    return _found_libraries("scipy.linalg" in sys.modules)


@cache
def _found_libraries(with_scipy: bool) -> ThreadpoolController:
    """Find them, which takes milliseconds."""
    if with_scipy:
        import scipy.linalg  # noqa: F401 - waits if another thread is still importing it
    import torch
    from threadpoolctl import ThreadpoolController

    every = ThreadpoolController().select(internal_api="openblas")
    folder = Path(torch.__file__).resolve().parent
    paths = [
        library["filepath"] for library in every.info() if folder not in Path(library["filepath"]).resolve().parents
    ]
    return every.select(filepath=paths)


def _least_threads(libraries: ThreadpoolController) -> int:
    return min((int(library["num_threads"]) for library in libraries.info()), default=1)


def _reset_lock() -> None:
    """Replace the locks in a forked child, where a thread that held one no longer exists to release it."""
    global _lock, _loading
    _lock, _loading = RLock(), Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_lock)


def keep_freed_memory(links: int = 0) -> None:
    """Let the C library reuse freed memory instead of returning it to the system (glibc only).

    Fresh memory is slow, because the system clears it page by page. Allocations above `KEPT_BYTES` still go back to the
    system: they start at large pages, and keeping them would fragment the heap. A graph with many links has so many
    large arrays that nothing is changed. The setting applies to the whole process, so programs call this, not the
    library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None and links <= MANY_LINKS:
        mallopt(-3, KEPT_BYTES)  # M_MMAP_THRESHOLD: larger allocations have their own pages
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: free memory at the end of the heap is kept


def return_freed_memory() -> None:
    """Return memory that is free to the system, also in the middle of the heap (glibc only)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
