"""The table of snapshots never cuts a number, however narrow the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import dysat
from dysat.cli.output import show

LARGE = 12_345_678


@pytest.fixture(scope="module")
def graph() -> dysat.DynamicGraph:
    """Fourteen windows of equal width over six years, whose boundaries are not round."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(1_082_000_000, 1_272_000_000, 500))
    events = dysat.read_events((rng.integers(0, 50, 500), rng.integers(0, 50, 500), times))
    return dysat.build_snapshots(events, count=14)


def output_lines(
    graph: dysat.DynamicGraph, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.setattr(show, "new_console", lambda: Console(width=width))
    show.show_graph(graph, "log", False, None)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_large_counts_are_never_cut(
    graph: dysat.DynamicGraph, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = dict.fromkeys(("known", "active", "new_nodes", "links", "new_links"), LARGE)
    rows = [dataclasses.replace(row, **counts, weight=LARGE + 0.25) for row in graph.summary()]
    monkeypatch.setattr(dysat.DynamicGraph, "summary", lambda self: rows)
    lines = [line for line in output_lines(graph, width, monkeypatch, capsys) if "12,345,678" in line]
    assert [line.count("12,345,678") for line in lines] == [6] * 14


@pytest.mark.parametrize(("width", "stops", "bars"), [(60, 0, False), (80, 0, False), (85, 14, False), (120, 14, True)])
def test_narrow_tables_drop_bars_then_window_ends(
    graph: dysat.DynamicGraph,
    width: int,
    stops: int,
    bars: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = output_lines(graph, width, monkeypatch, capsys)
    table = lines[1 : next(i for i, line in enumerate(lines) if "events used" in line)]
    assert max(map(len, table)) <= width
    assert sum(" … " in line for line in table) == stops and any("█" in line for line in table) == bars
    for row in graph.summary():
        assert any(row.start[:10] in line for line in table)
        assert any(f" {row.links} " in line and f" {row.new_links} " in line for line in table)


def test_windows_are_dates_in_the_table_and_exact_in_json(
    cli: Callable[..., tuple[int, str, str]], graph: dysat.DynamicGraph, tmp_path: Path
) -> None:
    graph.save(tmp_path / "graph")
    second = graph.summary()[1]
    assert len(second.start) > len("2004-09-19 14:56")
    text, facts = cli("info", tmp_path / "graph")[1], cli("info", tmp_path / "graph", "--json")[1]
    assert f" {second.start[:10]} … {second.stop[:10]} " in text
    assert f'"start": "{second.start}"' in facts and f'"stop": "{second.stop}"' in facts
