"""What a notebook shows, with IPython's own display."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from small import make_graph

import dysat
from dysat.system.notebook import PAUSE, html_table, in_notebook, notebook_progress
from dysat.system.progress import listening, report

HOSTILE = "<script>alert(1)</script>&\"'"


class Cells(HTMLParser):
    """The tags of a page, and the texts of its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.texts = list[str](), list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[dict[str, Any], bool]]]:
    """Everything that the running IPython shell displays: the forms of each output, and whether it is an update."""
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    found: list[tuple[dict[str, Any], bool]] = []

    class Publisher(CapturingDisplayPublisher):
        def publish(self, data: Any, metadata: Any = None, **more: Any) -> None:
            found.append((data, bool(more.get("update"))))

    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # the shell warns if another environment is active
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.display_pub, shell.kernel = Publisher(), object()  # a kernel, unlike a terminal, has this attribute
    yield found
    InteractiveShell.clear_instance()


def test_a_table_shows_every_text_as_text() -> None:
    cells = Cells(html_table(f"title {HOSTILE}", ["name", ">count"], [(HOSTILE, 3), ("ann", 12)], HOSTILE))
    assert "script" not in cells.tags
    assert cells.tags.count("tr") == 3
    assert cells.texts.count(HOSTILE) == 2
    assert f"title {HOSTILE}" in cells.texts


def test_a_bar_shows_the_work_and_disappears(
    shown: list[tuple[dict[str, Any], bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dysat.system.notebook.PAUSE", 0.0)
    assert PAUSE > 0
    assert in_notebook()
    with notebook_progress():
        report(f"training {HOSTILE}", 3, 10)
        with notebook_progress():  # the work inside reports to the same bar
            report("reading")
    first, half, unknown, last = (data["text/html"] for data, _ in shown)
    assert first.startswith("<progress")
    assert Cells(half).tags == ["progress"]
    assert 'value="3" max="10"' in half
    assert "<progress></progress> reading, 0 s" in unknown
    assert last == ""
    assert [update for _, update in shown] == [False, True, True, True]


def test_an_error_removes_the_bar(shown: list[tuple[dict[str, Any], bool]]) -> None:
    with pytest.raises(ZeroDivisionError), notebook_progress():
        raise ZeroDivisionError
    assert shown[-1][0]["text/html"] == ""


def test_fitting_and_evaluating_show_a_bar(
    shown: list[tuple[dict[str, Any], bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dysat.system.notebook.PAUSE", 0.0)
    links = [[(0, 1), (2, 3), (4, 5), (6, 7)], [(1, 2), (4, 5), (0, 7), (3, 6)]]
    graph = make_graph([8] * 4, links * 2)
    dysat.DySAT.from_preset("program", epochs=3).fit(graph)
    assert sum("training: epoch" in data["text/html"] for data, _ in shown) == 3
    shown.clear()
    dysat.evaluate("edge-memory", graph, opponents=(), first=2)
    assert any("evaluating: step 2 of 2" in data["text/html"] for data, _ in shown)
    assert shown[-1][0]["text/html"] == ""


def test_no_bar_outside_a_notebook_or_if_somebody_listens(shown: list[tuple[dict[str, Any], bool]]) -> None:
    from IPython.core.interactiveshell import InteractiveShell

    heard = []
    with listening(lambda *what: heard.append(what)), notebook_progress():
        report("reading", 1, 2)
    InteractiveShell.clear_instance()
    with notebook_progress():
        report("reading", 1, 2)
    assert heard == [("reading", 1, 2)] and not shown
