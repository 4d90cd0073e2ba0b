"""How many threads the matrix operations of NumPy and SciPy wake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

ROWS = 2_000  # of a matrix, for each of which one more thread is worth its waking
_one_at_a_time = RLock()  # of two at once the later one would give back what the earlier had set


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
    with _one_at_a_time:
        before = min((library["num_threads"] for library in libraries.info()), default=1)
        with libraries.limit(limits=min(before, max(1, rows // ROWS))):
            yield
