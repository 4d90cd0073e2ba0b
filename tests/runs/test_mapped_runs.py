"""Every stage gives the same bits on a memory-mapped graph as on one in memory, and mapping copies nothing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from run_folders import assert_same, quick, small_graph, small_model, stop_after
from small import FORECASTING, make_graph, two_blocks
from weekly import MODEL, day, state, take_in, week, weeks, write_log

import dysat
from dysat.cli.options import EventOptions
from dysat.data import stored, summary
from dysat.errors import GraphError
from dysat.runs.run import Run

__all__ = ["quick"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph folder with features, kinds and whole numbers as labels."""
    graph = two_blocks(12, 4)
    path = tmp_path_factory.mktemp("graph") / "graph"
    graph.with_features(np.linspace(0, 1, 36).reshape(12, 3)).save(path)
    return path


def both(folder: Path) -> tuple[dysat.DynamicGraph, dysat.DynamicGraph]:
    return dysat.DynamicGraph.load(folder, mmap=True), dysat.DynamicGraph.load(folder, mmap=False)


def mappings() -> Iterator[tuple[int, int, str]]:
    """The mapped files of this process: first and last address, and name."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split(maxsplit=5)
        low, high = (int(end, 16) for end in span.split("-"))
        yield low, high, name


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is mapped")
@pytest.mark.parametrize("mmap", [True, False])
def test_arrays_are_the_pages_of_their_files(folder: Path, mmap: bool) -> None:
    graph = dysat.DynamicGraph.load(folder, mmap=mmap)
    assert isinstance(graph.features, torch.Tensor)
    places = {
        **{f"{name}.npy": tensor.data_ptr() for s in graph for name, tensor in s.tensors().items()},
        "features.npy": graph.features.data_ptr(),
        "labels.npy": graph.nodes.ctypes.data,
    }
    found = {
        Path(name).name
        for low, high, name in mappings()
        for file, place in places.items()
        if low <= place < high and name == str(folder / file)
    }
    assert found == (set(places) if mmap else set())


def test_a_mapped_graph_equals_one_in_memory(folder: Path, tmp_path: Path) -> None:
    mapped, read = both(folder)
    assert mapped.equals(read) and mapped[:2].equals(read[:2]) and mapped.summary() == read.summary()
    mapped.save(tmp_path / "copy")
    assert [(tmp_path / "copy" / file.name).read_bytes() == file.read_bytes() for file in folder.iterdir()] == [
        True for _ in folder.iterdir()
    ]


def test_a_graph_can_replace_the_folder_it_is_mapped_from(folder: Path, tmp_path: Path) -> None:
    graph = dysat.DynamicGraph.load(shutil.copytree(folder, tmp_path / "graph"))
    before = graph.fingerprint
    graph.save(tmp_path / "graph", overwrite=True)
    again = dysat.DynamicGraph.load(tmp_path / "graph")
    assert again.fingerprint == before == dysat.DynamicGraph(graph.nodes, graph.snapshots, graph.clock,
                                                             features=graph.features).fingerprint  # fmt: skip


def test_fits_and_forecasts_are_the_same(folder: Path) -> None:
    mapped, read = both(folder)
    pairs = torch.tensor([[0, 2], [1, 4], [3, 5]])
    for options in ({"embeddings": False}, {}):
        model, other = (dysat.DySAT(**FORECASTING | options).fit(graph) for graph in (mapped, read))
        assert torch.equal(model.pair_scores(pairs), other.pair_scores(pairs))
        if not options:
            assert torch.equal(model.embed(), other.embed())


def test_evaluations_are_the_same(folder: Path) -> None:
    found = [dysat.evaluate("common-neighbours", graph, opponents=()).to_polars() for graph in both(folder)]
    assert found[0].drop("seconds", strict=False).equals(found[1].drop("seconds", strict=False))


@pytest.mark.usefixtures("quick")
def test_resumed_runs_are_the_same(tmp_path: Path) -> None:
    small_graph().save(tmp_path / "graph")
    mapped, read = both(tmp_path / "graph")
    whole = Run.start(tmp_path / "whole", read, small_model())
    assert whole.train()
    run = Run.start(tmp_path / "run", mapped, small_model())
    stop_after(run, 1)
    assert Run.open(tmp_path / "run").train()
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.usefixtures("quick")
def test_updated_runs_are_the_same(tmp_path: Path) -> None:
    events = dysat.read_events(write_log(tmp_path / "base.csv", weeks(0, 2)))
    dysat.build_snapshots(events, every="1w", start=day(0)).save(tmp_path / "graph")
    made = EventOptions(every="1w").record(events.columns)
    later = write_log(tmp_path / "later.csv", week(2))
    states = []
    for name, graph in zip(("mapped", "read"), both(tmp_path / "graph"), strict=True):
        assert Run.start(tmp_path / name, graph, dysat.IncSAT(**MODEL), backtest=False, events=made).train()
        take_in(tmp_path / name, later)
        states.append(state(tmp_path / name)[:3])
    assert states[0] == states[1]


# Checks in pieces


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 1000])
def test_checks_in_small_pieces_find_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    graph = dysat.DynamicGraph.load(folder)
    empty = make_graph([3, 3, 3], [[(0, 1)], [(1, 2)], []])
    monkeypatch.setattr(stored, "PIECE", piece)
    assert dysat.DynamicGraph.load(folder).equals(graph)
    for name in ("rows", "neighbours"):
        values = np.concatenate([getattr(s, name).numpy() for s in (*graph, *empty)])
        sizes = [len(getattr(s, name)) for s in (*graph, *empty)]
        starts = np.cumsum([0, *sizes])[:-1] if name == "rows" else _first_entries((*graph, *empty))
        starts = starts[starts < len(values)]  # without parts that are empty
        stored._check_order(name, values, starts)
        for place in np.setdiff1d(np.arange(1, len(values)), starts):
            wrong = values.copy()
            wrong[place] = wrong[place - 1]
            with pytest.raises(GraphError, match=f"the {name} do not increase"):
                stored._check_order(name, wrong, starts)
        assert stored._increases(values) == np.count_nonzero(values[1:] > values[:-1])


def _first_entries(snapshots: tuple[dysat.Snapshot, ...]) -> np.ndarray:
    """Where the entries of each row begin, in all snapshots."""
    before = np.cumsum([0, *(len(s.neighbours) for s in snapshots)])
    return np.concatenate([s.offsets[:-1].numpy() + first for s, first in zip(snapshots, before, strict=False)])


@pytest.mark.parametrize("at_once", [1, 7, 1 << 24])
def test_distinct_links_are_counted_in_ranges_of_nodes(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(summary, "AT_ONCE", at_once)
    graph = two_blocks(9, 3)
    pairs = {(int(u), int(v)) for s in graph for u, v, _ in zip(*s.links(), strict=True)}
    assert graph.num_distinct_links == len(pairs)
    assert make_graph([2], [[]]).num_distinct_links == 0
