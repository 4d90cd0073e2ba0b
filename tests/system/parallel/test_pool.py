"""Worker processes share the threads of their parent, in every library."""

from __future__ import annotations

import os

import pytest
import torch

from dysat.errors import ModelError
from dysat.system.parallel.pool import THREAD_VARIABLES, threads_per_worker, worker_pool


def threads_here() -> dict[str, int]:
    """The threads that each library of this process would use, most of all BLAS copies and OpenMP runtimes."""
    import numpy  # noqa: F401
    import polars
    import scipy.linalg  # noqa: F401
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import ThreadpoolController

    pools = {f"{pool['filepath']}": int(pool["num_threads"]) for pool in ThreadpoolController().info()}
    return {**pools, "torch": torch.get_num_threads(), "polars": polars.thread_pool_size()}


def die() -> None:
    os._exit(1)


@pytest.mark.slow
def test_every_library_of_a_worker_gets_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with worker_pool(8, "jobs") as pool:
        found = pool.submit(threads_here).result()
    assert len(found) >= 4
    assert set(found.values()) == {1}, found
    assert not any(name in os.environ for name in THREAD_VARIABLES)


@pytest.mark.slow
def test_a_lower_limit_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    before = {
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "64",
        "POLARS_MAX_THREADS": "many",
        "OMP_NUM_THREADS": None,
    }
    for name, value in before.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    with worker_pool(2, "jobs") as pool:
        found = list(pool.map(os.getenv, before))
    assert found == ["1", "4", "4", "4"]
    assert {name: os.environ.get(name) for name in before} == before


def test_threads_of_all_workers_together_never_exceed_those_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores in range(1, 20):
        monkeypatch.setattr(torch, "get_num_threads", lambda cores=cores: cores)
        for processes in range(1, cores + 1):
            assert 1 <= threads_per_worker(processes) <= cores / processes
    assert threads_per_worker(100) == 1


def test_a_killed_worker_is_reported_in_one_line() -> None:
    with pytest.raises(ModelError, match="finished rows are kept"), worker_pool(1, "rows") as pool:
        pool.submit(die).result()
