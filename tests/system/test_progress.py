"""Reports reach the listener of their own thread, and nobody else."""

from __future__ import annotations

from threading import Thread

from dysat.system.progress import listening, report


def test_reports_reach_the_innermost_listener() -> None:
    outer: list[tuple[str, int, int]] = []
    inner: list[tuple[str, int, int]] = []
    report("nobody listens")
    with listening(lambda *given: outer.append(given)):
        report("first", 0, 2)
        with listening(lambda *given: inner.append(given)):
            report("second", 1, 2)
        report("third")
    report("nobody listens again")
    assert outer == [("first", 0, 2), ("third", 0, 0)] and inner == [("second", 1, 2)]


def test_other_threads_do_not_report() -> None:
    heard: list[str] = []
    with listening(lambda what, *_: heard.append(what)):
        thread = Thread(target=report, args=("elsewhere",))
        thread.start()
        thread.join()
    assert heard == []
