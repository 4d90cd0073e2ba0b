"""How many threads the matrix operations of NumPy and SciPy wake."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

ROWS = 2_000  # of a matrix, for each of which one more thread is worth its waking
_lock = RLock()  # one at a time: of two the later one would give back what the earlier had set


@contextmanager
def few_blas_threads(rows: int) -> Iterator[None]:
    """Let NumPy and SciPy use one thread for every 2,000 rows that their matrices have, and no more than before.

    The eigenvectors of a graph take thousands of small products, for each of which OpenBLAS wakes a thread per core:
    with few rows that takes longer than the product, and many times longer where another program holds a core. It
    holds for the whole process while it lasts; torch has threads of its own.
    """
    import scipy.linalg  # noqa: F401 - what is not loaded yet cannot be told
    from threadpoolctl import ThreadpoolController

    libraries = ThreadpoolController().select(internal_api="openblas")
    with _lock:
        before = min((library["num_threads"] for library in libraries.info()), default=1)
        with libraries.limit(limits=min(before, max(1, rows // ROWS))):
            yield


def _begin_anew() -> None:
    """A child of this process has none of its threads, so that nobody would give back what one of them holds."""
    global _lock
    _lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def keep_freed_memory() -> None:
    """Let the C library keep what a step frees for the next one, where that can be asked for (glibc).

    Fresh memory is dear: the system must clear it page by page. It holds for the whole process, so a program asks for
    it, not the library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: no allocation has pages of its own, however large
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: free memory at the end stays
