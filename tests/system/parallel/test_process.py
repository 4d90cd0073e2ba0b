"""Threads of NumPy and SciPy: limited for small matrices, and restored afterwards; memory that is kept."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from threading import Event, Thread, get_ident
from time import sleep
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from small import make_graph
from threadpoolctl import ThreadpoolController, threadpool_limits

from dysat.features.spectrum import spectrum
from dysat.models.forecast import examples
from dysat.models.forecast.pair_score import PairScore
from dysat.system.compiled import native
from dysat.system.parallel.process import (
    CORES_EACH,
    MANY_LINKS,
    ROWS_PER_THREAD,
    few_blas_threads,
    in_threads,
    keep_freed_memory,
    meanwhile,
    on_one_core,
    side_by_side,
)


def threads() -> set[int]:
    """The numbers of threads of NumPy and SciPy; torch may have an OpenBLAS of its own."""
    import scipy.linalg  # noqa: F401

    every = ThreadpoolController().select(internal_api="openblas").info()
    found = [library for library in every if "/torch/" not in Path(library["filepath"]).as_posix()]
    if not found:
        pytest.skip("NumPy does not use OpenBLAS")
    return {library["num_threads"] for library in found}


@pytest.fixture(autouse=True)
def two_threads() -> object:
    """A limit that every machine but the smallest has."""
    torch.get_num_threads()  # the first call sets the threads of torch's own library
    threads()
    with threadpool_limits(2, user_api="blas"):
        if threads() != {2}:
            pytest.skip("a machine with one core")
        yield


def test_one_thread_inside_and_as_many_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    with few_blas_threads(10):
        assert threads() == {1} and torch.get_num_threads() == before
        with few_blas_threads(10):
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {2}


def test_an_error_restores_the_threads() -> None:
    with pytest.raises(ZeroDivisionError), few_blas_threads(10):
        raise ZeroDivisionError
    assert threads() == {2}


@pytest.mark.parametrize(("thousands", "number"), [(0, 1), (3.999, 1), (4, 2), (200, 2)])
def test_one_thread_per_2000_rows_and_no_more_than_before(thousands: float, number: int) -> None:
    assert ROWS_PER_THREAD == 2_000
    with few_blas_threads(int(1_000 * thousands)):
        assert threads() == {number}
    assert threads() == {2}


def test_a_second_thread_waits_for_the_first() -> None:
    entered, leave = (Event(), Event()), (Event(), Event())

    def stay(number: int) -> None:
        with few_blas_threads(10):
            entered[number].set()
            leave[number].wait(60)

    both = [Thread(target=stay, args=[number]) for number in (0, 1)]
    both[0].start()
    assert entered[0].wait(60)
    both[1].start()
    assert not entered[1].wait(0.1)
    leave[0].set()
    assert entered[1].wait(60)
    leave[1].set()
    for thread in both:
        thread.join(60)
    assert threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    entered, leave = Event(), Event()

    def stay() -> None:
        with few_blas_threads(10):
            entered.set()
            leave.wait(60)

    thread = Thread(target=stay)
    thread.start()
    assert entered.wait(60)
    with warnings.catch_warnings():  # forking a process with threads is the point
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        signal.alarm(30)
        with few_blas_threads(10):
            os._exit(7)
    leave.set()
    thread.join(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_pair_features_are_computed_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, seen = np.random.default_rng(0), []
    links = [sorted({(u, v) for u, v in rng.integers(0, 140, (160, 2)).tolist() if u < v}) for _ in range(3)]
    graph = make_graph([140] * 3, links)  # with fewer than 129 nodes, eigenvectors are not computed by Lanczos

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            seen.append((name, threads()))
            return function(*args, **options)

        return call

    names = {
        "dysat.features.spectrum.lanczos",
        "dysat.features.eigenvectors.lanczos",
        "dysat.features.pair_history.fractional_ranks",
    }
    for name in names:
        module, _, function = name.rpartition(".")
        monkeypatch.setattr(name, watched(name, getattr(import_module(module), function)))
    tuple(spectrum(graph, 8))
    PairScore.learn(graph[:1])
    score = PairScore.learn(graph)
    assert score is not None
    score.log_odds(graph, 2, torch.tensor([[0, 1], [2, 3]]))
    assert {name for name, _ in seen} == names
    assert all(number == {1} for _, number in seen)
    assert threads() == {2}


def test_parts_are_computed_in_order_on_one_core_each() -> None:
    if (call := native()) is None or call.single_threaded:
        pytest.skip("no compiled functions that share the threads of torch")
    before, seen = torch.get_num_threads(), set()

    def compute(part: int) -> tuple[int, int, set[int]]:
        seen.add(get_ident())
        sleep(0.01 * (6 - part))  # the first take longest
        return part, torch.get_num_threads(), threads()

    torch.set_num_threads(3)
    limits = threads()
    try:
        assert list(in_threads(compute, range(6))) == [(part, 1, {1}) for part in range(6)]
        assert len(seen) == 3 and get_ident() not in seen
        assert torch.get_num_threads() == 3 and threads() == limits
        torch.set_num_threads(1)
        assert [part for part, *_ in in_threads(compute, range(3))] == [0, 1, 2] and get_ident() in seen
    finally:
        torch.set_num_threads(before)


def test_an_error_in_a_part_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda part: 1 / part, [1, 2, 0, 3]))
    with pytest.raises(ZeroDivisionError):
        on_one_core(lambda: 1 / 0)


def test_small_steps_have_one_core_and_the_caller_keeps_its_own(torch_threads: None) -> None:
    call = native()
    if call is None or call.single_threaded:
        pytest.skip("no compiled functions that share the threads of torch")
    torch.set_num_threads(3)
    limits = threads()
    assert on_one_core(lambda: (torch.get_num_threads(), threads())) == (1, {1})
    assert torch.get_num_threads() == 3 and threads() == limits


@pytest.fixture
def torch_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("enough", [False, True])
def test_a_few_parts_are_computed_at_the_same_time_if_there_are_cores(enough: bool, torch_threads: None) -> None:
    """Each has the context of its caller and one core for NumPy, and may ask for more without waiting for it."""
    torch.set_num_threads(cores := 2 * CORES_EACH + (3 if enough else -1))
    begun, main, said = [Event(), Event()], get_ident(), ContextVar("said", default="")
    said.set("before")
    shared = (call := native()) is not None and not call.single_threaded

    def compute(part: int) -> tuple[int, set[int], bool, int, str]:
        begun[part].set()
        together = begun[1 - part].wait(10 if enough else 0)
        with few_blas_threads(10**6):
            return 10 * part, threads(), together and get_ident() != main, torch.get_num_threads(), said.get()

    limits = threads()
    found = list(side_by_side(compute, [0, 1]))
    assert [number for number, *_ in found] == [0, 10] and threads() == limits
    assert all(inside == ({1} if enough else limits) for _, inside, *_ in found)
    assert [together for _, _, together, *_ in found] == [enough, enough]
    assert {own for *_, own, _ in found} == {cores // 2 if enough and shared else cores}
    assert {context for *_, context in found} == {"before"}
    with pytest.raises(ZeroDivisionError):
        list(side_by_side(lambda part: 1 // part, [1, 0]))


@pytest.mark.parametrize("limit", [None, 1, 2, 5])
def test_no_more_parts_than_cores_allow_are_computed_at_the_same_time(limit: int | None, torch_threads: None) -> None:
    torch.set_num_threads(3 * CORES_EACH)
    running, most = [0], [0]

    def compute(part: int) -> int:
        running[0] += 1
        most[0] = max(most[0], running[0])
        sleep(0.02)
        running[0] -= 1
        return part

    assert list(side_by_side(compute, range(9), most=limit)) == list(range(9)) and most[0] == min(3, limit or 3)


def test_a_score_learned_side_by_side_has_the_same_bits(monkeypatch: pytest.MonkeyPatch, torch_threads: None) -> None:
    links = [[(i, (i * k + t) % 40) for i in range(40) for k in (1, 3) if i != (i * k + t) % 40] for t in range(6)]
    graph = make_graph([40] * 6, links)
    monkeypatch.setattr("dysat.models.forecast.pair_score.SMALL_LINKS", 0)  # not in threads of one core each
    scores, at_once = [], set[bool]()
    learn = examples._examples.__wrapped__

    def learned(*args: Any) -> Any:
        at_once.add(get_ident() == main)
        return learn(*args)

    main = get_ident()
    monkeypatch.setattr("dysat.system.parallel.process.CORES_EACH", 1)
    for cores in (2, 1):  # so that each part has the same number of cores
        torch.set_num_threads(cores)
        at_once.clear()
        monkeypatch.setattr(examples, "_examples", learned)
        score = PairScore.learn(graph)
        assert score is not None and at_once == {cores == 1}
        scores.append(score.tensors())
    for name, tensor in scores[0].items():
        assert torch.equal(tensor, scores[1][name]), name


def test_other_work_is_done_meanwhile_and_waited_for() -> None:
    may_end, done = Event(), list[int]()

    def work() -> None:
        assert may_end.wait(60)
        done.append(get_ident())

    with meanwhile(work):
        assert not done
        may_end.set()
    assert done and done[0] != get_ident()


def test_an_error_in_other_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError), meanwhile(lambda: 1 / 0):
        pass


@pytest.mark.parametrize(("links", "calls"), [(0, 2), (MANY_LINKS, 2), (MANY_LINKS + 1, 0)])
def test_freed_memory_is_kept_unless_there_are_many_links(
    monkeypatch: pytest.MonkeyPatch, links: int, calls: int
) -> None:
    library = Mock()
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("ctypes.CDLL", lambda name: library)
    keep_freed_memory(links)
    assert library.mallopt.call_count == calls


KEPT = """
import resource
import numpy as np
from dysat.system.parallel.process import keep_freed_memory

def faults():  # of writing 24 MB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(3 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
print(faults(), faults())
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="this system has no such setting"
)
def test_kept_memory_needs_no_fresh_pages() -> None:
    environment = os.environ | {"NUMPY_MADVISE_HUGEPAGE": "0"}  # not all systems have large pages
    done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True, env=environment)
    first, second = map(int, done.stdout.split())
    assert second < first / 10


LATE = """
import sys
from pathlib import Path
from threadpoolctl import ThreadpoolController
from dysat.system.parallel.process import few_blas_threads, load_scipy

def of_scipy():
    every = ThreadpoolController().select(internal_api="openblas").info()
    return {each["num_threads"] for each in every if "scipy" in Path(each["filepath"]).parent.name}

assert "scipy.linalg" not in sys.modules
with few_blas_threads(4_000):
    with few_blas_threads(0):
        load_scipy()
        print(sorted(of_scipy()))
    print(sorted(of_scipy()))
print(sorted(of_scipy()))
with few_blas_threads(0):
    load_scipy()
    print(sorted(of_scipy()))
print(sorted(of_scipy()))
"""


def test_a_library_that_is_loaded_inside_has_the_limit_too() -> None:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True, env=environment)
    found = done.stdout.splitlines()
    if found[0] == "[]":
        pytest.skip("SciPy has no OpenBLAS of its own")
    assert found == ["[1]", "[2]", "[2]", "[1]", "[2]"]
