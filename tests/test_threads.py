"""Threads of linear algebra: few while small matrices are at work, and as many as before afterwards."""

from __future__ import annotations

from threading import Event, Thread

import pytest
import torch
from threadpoolctl import ThreadpoolController, threadpool_limits

import dysat
from dysat.data.spectrum import spectrum
from dysat.models.pair_score import PairScore
from dysat.threads import ROWS, few_blas_threads


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


def test_two_at_once_give_back_what_there_was() -> None:
    entered, leave = Event(), Event()

    def stay() -> None:
        with few_blas_threads(10):
            entered.set()
            leave.wait(60)

    one, two = Thread(target=stay), Thread(target=stay)
    one.start()
    assert entered.wait(60)
    two.start()
    leave.set()
    one.join(60)
    two.join(60)
    assert threads() == {2}


def test_what_a_forecast_begins_with_is_computed_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seen = dysat.load_dataset("uci")[:4], []

    def watched(name: str, inner: object) -> object:
        def call(*args: object, **options: object) -> object:
            seen.append((name, threads()))
            return inner(*args, **options)  # type: ignore[operator]

        return call

    for name in ("dysat.data.spectrum.lanczos", "dysat.models.low_rank.lanczos", "dysat.models.pair_score.standing"):
        where, _, what = name.rpartition(".")
        monkeypatch.setattr(name, watched(name, getattr(__import__(where, fromlist=[what]), what)))
    spectrum(graph, 8)
    score = PairScore.learn(graph)
    assert score is not None
    score.log_odds(graph, 3, torch.tensor([[0, 1], [2, 3]]))
    assert {name for name, _ in seen} == {
        "dysat.data.spectrum.lanczos",
        "dysat.models.low_rank.lanczos",
        "dysat.models.pair_score.standing",
    }
    assert all(number == {1} for _, number in seen)
    assert threads() == {2}
