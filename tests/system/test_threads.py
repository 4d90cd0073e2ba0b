"""Threads of linear algebra: few while small matrices are at work, and as many as before afterwards."""

from __future__ import annotations

import os
import signal
import warnings
from threading import Event, Thread

import pytest
import torch
from threadpoolctl import ThreadpoolController, threadpool_limits

import dysat
from dysat.features.spectrum import spectrum
from dysat.models.forecast.pair_score import PairScore
from dysat.system.process import ROWS, few_blas_threads


def threads() -> set[int]:
    import scipy.linalg  # noqa: F401

    found = ThreadpoolController().select(internal_api="openblas").info()
    if not found:
        pytest.skip("NumPy has another library here")
    return {library["num_threads"] for library in found}


@pytest.fixture(autouse=True)
def two_threads() -> object:
    """As many as any machine has."""
    threads()
    with threadpool_limits(2, user_api="blas"):
        if threads() != {2}:
            pytest.skip("a machine with one thread")
        yield


def test_one_while_it_lasts_and_as_many_as_before_afterwards() -> None:
    with few_blas_threads(10):
        assert threads() == {1}
        with few_blas_threads(10):
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {2}


def test_an_error_inside_gives_them_back() -> None:
    with pytest.raises(ZeroDivisionError), few_blas_threads(10):
        raise ZeroDivisionError
    assert threads() == {2}


@pytest.mark.parametrize(("rows", "number"), [(0, 1), (2 * ROWS - 1, 1), (2 * ROWS, 2), (100 * ROWS, 2)])
def test_one_for_so_many_rows_and_no_more_than_before(rows: int, number: int) -> None:
    with few_blas_threads(rows):
        assert threads() == {number}
    assert threads() == {2}


def test_of_two_the_second_waits_until_the_first_has_given_back() -> None:
    entered, leave = (Event(), Event()), (Event(), Event())

    def stay(who: int) -> None:
        with few_blas_threads(10):
            entered[who].set()
            leave[who].wait(60)

    both = [Thread(target=stay, args=[who]) for who in (0, 1)]
    both[0].start()
    assert entered[0].wait(60)
    both[1].start()
    assert not entered[1].wait(0.3)
    leave[0].set()
    assert entered[1].wait(60)
    leave[1].set()
    for thread in both:
        thread.join(60)
    assert threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_child_does_not_wait_for_a_thread_it_has_not() -> None:
    entered, leave = Event(), Event()

    def stay() -> None:
        with few_blas_threads(10):
            entered.set()
            leave.wait(60)

    thread = Thread(target=stay)
    thread.start()
    assert entered.wait(60)
    with warnings.catch_warnings():  # that a process with threads is forked is the point
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        signal.alarm(30)
        with few_blas_threads(10):
            os._exit(7)
    leave.set()
    thread.join(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_what_a_forecast_begins_with_is_computed_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seen = dysat.load_dataset("uci")[:4], []

    def watched(name: str, inner: object) -> object:
        def call(*args: object, **options: object) -> object:
            seen.append((name, threads()))
            return inner(*args, **options)  # type: ignore[operator]

        return call

    for name in (
        "dysat.features.spectrum.lanczos",
        "dysat.features.eigenvectors.lanczos",
        "dysat.features.pair_history.fractional_ranks",
    ):
        where, _, what = name.rpartition(".")
        monkeypatch.setattr(name, watched(name, getattr(__import__(where, fromlist=[what]), what)))
    spectrum(graph, 8)
    PairScore.learn(graph[:1])
    score = PairScore.learn(graph)
    assert score is not None
    score.log_odds(graph, 3, torch.tensor([[0, 1], [2, 3]]))
    assert {name for name, _ in seen} == {
        "dysat.features.spectrum.lanczos",
        "dysat.features.eigenvectors.lanczos",
        "dysat.features.pair_history.fractional_ranks",
    }
    assert all(number == {1} for _, number in seen)
    assert threads() == {2}
