"""When the last event of a link happened, as a fraction of its window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile import edit_graph

import dysat
from dysat.data import csr
from dysat.data.continuation import continue_snapshots
from dysat.errors import GraphError

# Three windows of eight days: ann and bob talk three times in the first, dee to himself; nobody in the second.
EDGES = ["2024-01-01", "2024-01-09", "2024-01-17", "2024-01-25"]
SRC = ["ann", "bob", "cy", "dee", "ann", "cy", "ann"]
DST = ["bob", "ann", "ann", "dee", "bob", "bob", "cy"]
DAYS = ["01", "05T12", "03", "07", "02", "17", "20T12"]


def events(rows: slice | list[int] = slice(None), days: list[str] = DAYS) -> dysat.Events:
    src, dst, time = (np.array(column)[rows].tolist() for column in (SRC, DST, days))
    return dysat.read_events((src, dst, [f"2024-01-{day}" for day in time]), at_least=1)


def mail(**options: Any) -> dysat.DynamicGraph:
    return dysat.build_snapshots(events(), boundaries=EDGES, **options)


def times(graph: dysat.DynamicGraph, step: int) -> dict[tuple[str, str], float]:
    """The time of every entry, by the labels of its row and of its neighbour."""
    receivers, neighbours, _ = graph[step].entries()
    names, latest = graph.nodes.tolist(), graph[step].latest
    assert latest is not None and latest.dtype == torch.float32
    ends = zip(receivers.tolist(), neighbours.tolist(), latest.tolist(), strict=True)
    return {(names[u], names[v]): time for u, v, time in ends}


def test_the_last_event_of_a_link_counts_in_both_rows() -> None:
    graph = mail()
    expected: list[dict[tuple[str, str], float]] = [
        {("ann", "bob"): 4.5 / 8, ("ann", "cy"): 2 / 8},  # of eight days
        {},
        {("bob", "cy"): 0, ("ann", "cy"): 3.5 / 8},
    ]
    for step, links in enumerate(expected):
        assert times(graph, step) == links | {(v, u): time for (u, v), time in links.items()}
    assert times(mail(self_loops="keep"), 0) == times(graph, 0) | {("dee", "dee"): 6 / 8}


def test_direction_and_weights_do_not_matter() -> None:
    weighted = replace(events(), weight=np.array([3, 0.1, 2, 1, 1, 1, 1]))
    for other in (mail(directed=True), dysat.build_snapshots(weighted, boundaries=EDGES)):
        assert [times(other, step) for step in range(3)] == [times(mail(), step) for step in range(3)]
    directed = mail(directed=True)[0]
    assert directed.arcs()[0].tolist() == [0, 1, 2]  # ann → bob, bob → ann, cy → ann
    assert (found := directed.pair_times()) is not None and found.tolist() == [4.5 / 8, 4.5 / 8, 2 / 8]
    assert (found := directed.link_times()) is not None and found.tolist() == [4.5 / 8, 2 / 8]


def test_events_numbered_by_step_have_no_times() -> None:
    log = dysat.read_events((["a", "b", "a"], ["b", "c", "c"], [0, 1, 5]), time_unit="step")
    graph = dysat.build_snapshots(log, every=2)
    assert graph.clock == "step" and not graph.timed and graph.aggregate().latest is None
    assert "latest" not in graph[0].tensors() and graph[0].link_times() is None and graph[0].pair_times() is None


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("nodes", [None, (2, 7)])
@pytest.mark.parametrize("loops", [True, False])
def test_the_largest_time_of_every_pair(
    packed: bool, nodes: tuple[int, int] | None, loops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a loop, whether keys and times fit in one number or not, and for a part of the rows."""
    monkeypatch.setattr(csr, "PACKED_NODES", 1 << 17 if packed else 0)
    rng = np.random.default_rng(0)
    u, v = rng.integers(0, 9, (2, 300))
    given = rng.choice(np.array([-0.0, 0, 1e-30, 0.25, 1 - 2**-24, 1], dtype=np.float32), 300)
    slow: dict[tuple[int, int], float] = {}
    for a, b, time in zip(u.tolist(), v.tolist(), given.tolist(), strict=True):
        for ends in {(a, b), (b, a)}:
            if (a != b or loops) and (nodes is None or nodes[0] <= ends[0] < nodes[1]):
                slow[ends] = max(slow.get(ends, 0.0), time)
    for order in (np.arange(300), rng.permutation(300)):
        arrays = csr.compress(
            u[order], v[order], None, self_loops=loops, directed=True, latest=given[order], nodes=nodes
        )
        receivers = np.repeat(arrays["rows"], np.diff(arrays["offsets"])).tolist()
        assert arrays["latest"].dtype == np.float32 and arrays["sent"].shape == arrays["latest"].shape
        found = zip(receivers, arrays["neighbours"].tolist(), arrays["latest"].tolist(), strict=True)
        assert {(a, b): time for a, b, time in found} == slow


@pytest.mark.parametrize("latest", [[0.5], [0.5, 2], [0.5, -1], [0.5, np.nan]], ids=str)
def test_wrong_times_are_refused(latest: list[float]) -> None:
    ends, given = np.array([0, 1]), np.array(latest, dtype=np.float32)
    with pytest.raises(GraphError, match="latest must have a number from 0 to 1 for each pair"):
        dysat.Snapshot.from_links(ends, ends + 1, None, num_nodes=3, start=0, stop=1, latest=given)


def test_moments_become_fractions_of_their_windows() -> None:
    start, stop = -(2**61), 2**61
    at = np.array([start, 0, stop - 1])
    assert csr.fractions(at, start, stop).tolist() == [0, 0.5, 1]  # the last one is rounded
    windows = csr.fractions(np.array([10, 25]), np.array([10, 20]), np.array([20, 40]))
    assert windows.tolist() == [0, 0.25] and windows.dtype == np.float32


def test_times_survive_slices_files_and_merging(tmp_path: Path) -> None:
    graph = mail()
    assert graph.timed and graph[:1].timed and times(graph[:1], 0) == times(graph, 0) and graph.to("cpu").equals(graph)
    graph.save(tmp_path / "graph")
    loaded = dysat.DynamicGraph.load(tmp_path / "graph")
    assert loaded.equals(graph) and times(loaded, 0) == times(graph, 0)
    assert np.load(tmp_path / "graph" / "latest.npy").tolist() == [*times(graph, 0).values(), *times(graph, 2).values()]
    whole = graph.aggregate()
    assert (found := whole.link_times()) is not None
    assert found.tolist() == pytest.approx([4.5 / 24, 19.5 / 24, 16 / 24])  # ann – bob, ann – cy, bob – cy
    directed = mail(directed=True).aggregate()  # ann → bob, ann → cy, bob → ann, cy → ann, cy → bob
    assert (found := directed.pair_times()) is not None
    assert found.tolist() == pytest.approx([4.5 / 24, 19.5 / 24, 4.5 / 24, 19.5 / 24, 16 / 24])


def test_the_fingerprint_depends_on_times() -> None:
    graph, earlier = mail(), ["01", "05T11", *DAYS[2:]]
    moved = dysat.build_snapshots(events(days=earlier), boundaries=EDGES)
    assert len({each.fingerprint for each in (graph, moved, graph.without_times())}) == 3
    assert graph.without_times().equals(moved.without_times())
    for each in (graph, graph.without_times()):
        assert each.fingerprint_without_times == graph.without_times().fingerprint


Edit = Callable[[Any, dict[str, np.ndarray]], Any]
DAMAGES: dict[str, tuple[Edit, str]] = {
    "NaN": (lambda m, a: a["latest"].__setitem__(1, np.nan), "latest has a value that is not from 0 to 1"),
    "negative": (lambda m, a: a["latest"].__setitem__(1, -0.1), "latest has a value that is not from 0 to 1"),
    "above 1": (lambda m, a: a["latest"].__setitem__(1, 1.5), "latest has a value that is not from 0 to 1"),
    "infinite": (lambda m, a: a["latest"].__setitem__(1, np.inf), "latest has a value that is not from 0 to 1"),
    "two times": (lambda m, a: a["latest"].__setitem__(0, 0.5), "the last event of a link has two times"),
    "float64": (
        lambda m, a: a.update(latest=a["latest"].astype(float)), "latest holds float64, expected float32"
    ),
    "too few": (lambda m, a: a.update(latest=a["latest"][:-1]), "latest has 7 entries, expected 8"),
    "two dimensions": (lambda m, a: a.update(latest=a["latest"][:, None]), r"latest has shape \(8, 1\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_times(tmp_path: Path, name: str) -> None:
    edit, message = DAMAGES[name]
    mail().save(tmp_path / "graph")
    edit_graph(tmp_path / "graph", edit)
    with pytest.raises(GraphError, match=message):
        dysat.DynamicGraph.load(tmp_path / "graph")


def test_a_folder_without_times_loads_without_them(tmp_path: Path) -> None:
    mail().save(tmp_path / "graph")
    edit_graph(tmp_path / "graph", lambda manifest, arrays: arrays.pop("latest"))
    assert dysat.DynamicGraph.load(tmp_path / "graph").equals(mail().without_times())


def test_a_graph_continues_with_times_if_it_has_them() -> None:
    first = dysat.build_snapshots(events(slice(5)), boundaries=EDGES[:3])
    for base, whole in ((first, mail()), (first.without_times(), mail().without_times())):
        graph = base
        for step in continue_snapshots(base, events([5, 6]), boundaries=EDGES[3:]).steps:
            assert step.snapshot.timed == base.timed
            graph = graph.extended(step.snapshot, step.nodes, step.kinds)
        assert graph.equals(whole)


def test_joined_with_a_snapshot_without_times_a_graph_has_none() -> None:
    graph = mail()
    plain = graph.without_times()
    for past, new in ((graph[:2], plain[2]), (plain[:2], graph[2])):
        assert past.extended(new, graph.nodes[graph.known[1] :]).equals(plain)
    with pytest.raises(GraphError, match="some snapshots know when the last event of a link happened and others do"):
        dysat.DynamicGraph(graph.nodes, (*graph[:2], plain[2]))


def test_other_libraries_carry_times() -> None:
    pytest.importorskip("networkx")
    from dysat.data import interop

    graph = mail()
    parts = interop.to_networkx(graph)
    assert parts[0]["ann"]["bob"] == {"weight": 3, "latest": 4.5 / 8}
    assert interop.from_networkx(parts).equals(graph)
    del parts[0]["ann"]["bob"]["latest"]
    assert interop.from_networkx(parts).equals(graph.without_times())
    for wrong in (1.5, -0.1, "noon", np.nan):
        parts[0]["ann"]["bob"]["latest"] = wrong
        with pytest.raises(GraphError, match="snapshot 0: latest must have a number from 0 to 1 for each of the 2 li"):
            interop.from_networkx(parts)
    for part in parts:
        part.graph.clear()
    assert not interop.from_networkx(parts).timed  # steps


def test_a_table_carries_times() -> None:
    pytest.importorskip("pandas")
    from dysat.data import interop

    graph = mail()
    table = interop.to_pandas(graph)
    assert table["latest"].tolist() == [4.5 / 8, 2 / 8, 3.5 / 8, 0]
    assert interop.from_pandas(table.sample(frac=1, random_state=0)).equals(graph)
    assert interop.from_pandas(table.drop(columns="latest")).equals(graph.without_times())


def test_pyg_carries_times_of_either_entry() -> None:
    pytest.importorskip("torch_geometric")
    from dysat.data import interop

    graph = mail()
    parts = interop.to_pyg(graph)
    assert interop.from_pyg(parts, graph.nodes).equals(graph)
    parts[0].edge_latest[parts[0].edge_index[0] < parts[0].edge_index[1]] = 0  # the entry of the other row stays
    assert interop.from_pyg(parts, graph.nodes).equals(graph)
