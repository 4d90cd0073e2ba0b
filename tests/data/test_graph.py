"""Snapshots and the dynamic graph."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import dysat
from dysat.data.csr import Snapshot
from dysat.system.storage import GrowingArray


def dense(snapshot: Snapshot, size: int) -> torch.Tensor:
    matrix = torch.zeros(size, size, dtype=torch.float64)
    receivers, neighbours, weights = snapshot.entries()
    matrix[receivers, neighbours] = weights
    return matrix


@pytest.fixture
def graph(mails: dysat.Events) -> dysat.DynamicGraph:
    return dysat.build_snapshots(mails, every="1w", self_loops="keep")


def test_csr_from_links_equals_a_loop() -> None:
    rng = np.random.default_rng(0)
    u, v, w = rng.integers(0, 12, 80), rng.integers(0, 12, 80), rng.random(80)
    expected = np.zeros((12, 12))
    for a, b, x in zip(u, v, w, strict=True):
        expected[a, b] += x
        if a != b:
            expected[b, a] += x
    for weights, reference in ((w, expected), (None, None)):
        snapshot = Snapshot.from_links(u, v, weights, num_nodes=12, start=0, stop=1)
        if reference is not None:
            torch.testing.assert_close(dense(snapshot, 12), torch.from_numpy(reference))
        counts = np.zeros((12, 12))
        np.add.at(counts, (u, v), 1)
        counts = counts + counts.T - np.diag(np.diag(counts))
        if weights is None:
            torch.testing.assert_close(dense(snapshot, 12), torch.from_numpy(counts))
        assert snapshot.num_links == np.count_nonzero(np.triu(counts))
        assert snapshot.num_self_loops == np.count_nonzero(np.diag(counts))
        assert (snapshot.offsets.diff() > 0).all() and (snapshot.rows.diff() > 0).all()


def test_an_empty_snapshot_has_no_rows() -> None:
    none = np.empty(0, dtype=np.int32)
    for weights in (None, np.empty(0)):
        snapshot = Snapshot.from_links(none, none, weights, num_nodes=3, start=0, stop=1)
        assert (snapshot.num_links, snapshot.num_active, snapshot.num_self_loops, snapshot.total_weight) == (0, 0, 0, 0)
        assert snapshot.offsets.tolist() == [0]


def test_a_sum_does_not_depend_on_the_order_of_events() -> None:
    weights = np.array([0.1, 1e16, 0.7, -0.0 + 1e-9, 3e15, 0.3])
    u, v = np.array([0, 1, 0, 1, 0, 1]), np.array([1, 0, 1, 0, 1, 0])
    sums = set()
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(6)
        sums |= set(
            Snapshot.from_links(u[order], v[order], weights[order], num_nodes=2, start=0, stop=1).weights.tolist()
        )
    assert len(sums) == 1  # in all orders, and in both directions


def test_slices(graph: dysat.DynamicGraph) -> None:
    past = graph[:2]
    assert past.num_nodes == 3 and past.nodes.tolist() == ["ann", "bob", "cy"] and len(past) == 2
    assert past.boundaries == graph.boundaries[:3] and past.report is None and past.notes == ()
    assert past[0].neighbours.data_ptr() == graph[0].neighbours.data_ptr()  # a view
    assert graph[1:3].known == graph.known[1:3] and graph[1:3].boundaries == graph.boundaries[1:4]
    assert graph[-1].num_nodes == 5 and graph[:].equals(graph)
    assert graph[: len(graph)].report is None  # it counts events after the last snapshot


@pytest.mark.parametrize("steps", [slice(0, 0), slice(9, None), slice(None, None, 2), slice(None, None, -1)])
def test_empty_and_strided_slices_are_refused(graph: dysat.DynamicGraph, steps: slice) -> None:
    with pytest.raises(dysat.GraphError):
        graph[steps]


def test_a_step_that_does_not_exist(graph: dysat.DynamicGraph) -> None:
    with pytest.raises(IndexError, match="step 9 of a graph with 5 snapshots"):
        graph[9]


def test_aggregate_is_the_sum(graph: dysat.DynamicGraph) -> None:
    expected = sum(dense(s, graph.num_nodes) for s in graph)
    torch.testing.assert_close(dense(graph.aggregate(), graph.num_nodes), expected)


def test_parts_that_do_not_fit_are_refused(graph: dysat.DynamicGraph) -> None:
    for parts, message in (
        ({"snapshots": ()}, "at least one snapshot"),
        ({"snapshots": (graph[0], graph[2], graph[-1])}, "windows of consecutive snapshots do not meet"),
        ({"kinds": np.zeros(4, dtype=np.uint8), "kind_names": ("a",)}, "4 kinds for 5 nodes"),
    ):
        with pytest.raises(dysat.GraphError, match=message):
            dataclasses.replace(graph, **parts)  # type: ignore[arg-type]


def test_graphs_are_frozen(graph: dysat.DynamicGraph) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.clock = "step"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph[0].num_nodes = 9  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        graph.nodes[0] = "zoe"


def test_ids(graph: dysat.DynamicGraph) -> None:
    assert graph.ids(["cy", "ann"]).tolist() == [2, 0]
    with pytest.raises(dysat.GraphError, match="no node 'an'; did you mean 'ann'"):
        graph.ids(["an"])


def test_ids_of_labels_that_two_kinds_share() -> None:
    events = dysat.read_events(([1, 2], [1, 3], ["2024-01-01", "2024-02-01"]), kinds=("user", "item"))
    graph = dysat.build_snapshots(events, every="1w")
    assert graph.kind_counts == {"user": 2, "item": 2}
    assert graph.ids([1], "user").tolist() == [0] and graph.ids([1], "item").tolist() == [1]
    assert graph.ids([2, 3]).tolist() == graph.ids([2], "user").tolist() + graph.ids([3], "item").tolist()
    with pytest.raises(dysat.GraphError, match="of several kinds"):
        graph.ids([1])
    with pytest.raises(dysat.GraphError, match="no node 3 of kind 'user'"):
        graph.ids([3], "user")


def test_features_follow_the_known_nodes(graph: dysat.DynamicGraph) -> None:
    shared = graph.with_features(np.arange(10.0).reshape(5, 2))
    assert isinstance(shared[:1].features, torch.Tensor) and shared[:1].features.shape == (3, 2)
    each = graph.with_features([np.ones((known, 2)) for known in graph.known])
    assert isinstance(each[1:3].features, tuple) and [len(f) for f in each[1:3].features] == [3, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: np.ones((4, 2)), r"shape \(4, 2\), expected \[5, F\]"),
        (lambda g: np.ones(5), r"shape \(5,\)"),
        (lambda g: np.full((5, 1), np.nan), "node 'ann' has a value that is not a finite number"),
        (lambda g: [np.ones((3, 2))], "for 1 snapshots, but the graph has 5"),
        (lambda g: [np.ones((n, 2 + (n == 5))) for n in g.known], "different width"),
        (lambda g: [np.ones((5, 2)) for _ in g], "features of snapshot 0"),
        (lambda g: [["a", "b"]] * 5, "must be numbers"),
    ],
)
def test_features_that_do_not_fit(graph: dysat.DynamicGraph, make: object, message: str) -> None:
    with pytest.raises(dysat.GraphError, match=message):
        graph.with_features(make(graph))  # type: ignore[operator]


def test_summary_counts_what_is_new(graph: dysat.DynamicGraph) -> None:
    rows = graph.summary()
    assert [(r.links, r.new_links, r.new_nodes, r.self_loops) for r in rows] == [
        (2, 2, 3, 0),
        (2, 1, 0, 1),
        (1, 1, 0, 0),
        (0, 0, 0, 0),
        (1, 1, 2, 0),
    ]


def test_repr(graph: dysat.DynamicGraph) -> None:
    assert repr(graph).startswith(
        "DynamicGraph: 5 nodes, 5 snapshots of about 7 days, 2024-01-01 … 2024-02-05\n  6 links"
    )


def test_fingerprint_depends_on_every_part(graph: dysat.DynamicGraph) -> None:
    others = [
        graph[:4],
        graph.with_features(np.zeros((5, 1))),
        graph.with_kinds([0, 0, 0, 0, 1], ("a", "b")),
        dataclasses.replace(graph, nodes=np.array(list("vwxyz"), dtype=object)),
        dataclasses.replace(graph, clock="step"),
    ]
    assert len({graph.fingerprint, *(other.fingerprint for other in others)}) == 6
    assert graph.equals(dataclasses.replace(graph, notes=("no part of what a model sees",)))


@pytest.mark.parametrize("mmap", [True, False])
def test_save_and_load(graph: dysat.DynamicGraph, tmp_path: Path, mmap: bool) -> None:
    graph = graph.with_kinds([0, 1, 0, 1, 0], ("a", "b")).with_features(np.random.default_rng(0).random((5, 3)))
    graph.save(tmp_path / "g")
    loaded = dysat.DynamicGraph.load(tmp_path / "g", mmap=mmap)
    assert loaded.equals(graph) and loaded.report == graph.report and loaded.notes == graph.notes
    assert isinstance(loaded.nodes[0], str)
    names = {path.suffix for path in (tmp_path / "g").iterdir()}
    assert names == {".json", ".npy"}


def test_writing_to_a_loaded_graph_leaves_the_file_unchanged(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    graph.save(tmp_path / "g")
    loaded = dysat.DynamicGraph.load(tmp_path / "g")
    loaded[0].weights.zero_()
    assert dysat.DynamicGraph.load(tmp_path / "g").equals(graph)


def test_an_existing_folder_is_not_overwritten_by_accident(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    graph.save(tmp_path / "g")
    with pytest.raises(dysat.GraphError, match="exists already"):
        graph[:2].save(tmp_path / "g")
    graph[:2].save(tmp_path / "g", overwrite=True)
    assert dysat.DynamicGraph.load(tmp_path / "g").equals(graph[:2])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    for content in (None, '{"mine": 1}', "[]", "not JSON"):
        if content:
            (tmp_path / "mine" / "graph.json").write_text(content)
        with pytest.raises(dysat.GraphError, match="not a graph folder, so it is not overwritten"):
            graph.save(tmp_path / "mine", overwrite=True)
    (tmp_path / "g" / "notes.txt").write_text("mine")
    with pytest.raises(dysat.GraphError, match=r"also holds 'notes.txt', so it is not overwritten"):
        graph.save(tmp_path / "g", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "mine"]  # no half-written folder is left


def test_overwriting_from_inside_the_folder(
    graph: dysat.DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.save(tmp_path / "g")
    monkeypatch.chdir(tmp_path / "g")
    graph[:2].save("../g", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
    assert dysat.DynamicGraph.load(tmp_path / "g").equals(graph[:2])


def test_a_folder_that_appears_while_writing_is_kept(
    graph: dysat.DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = GrowingArray.append

    def slow(file: GrowingArray, part: np.ndarray) -> None:
        (tmp_path / "g").mkdir(exist_ok=True)
        (tmp_path / "g" / "thesis.txt").write_text("dear")
        append(file, part)

    monkeypatch.setattr(GrowingArray, "append", slow)
    with pytest.raises(dysat.GraphError, match="exists already"):
        graph.save(tmp_path / "g")
    assert [path.name for path in tmp_path.rglob("*")] == ["g", "thesis.txt"]


def test_arrays_given_are_copied(graph: dysat.DynamicGraph) -> None:
    features, kinds = np.zeros((5, 2), dtype=np.float32), np.zeros(5, dtype=np.uint8)
    other = graph.with_features(features).with_kinds(kinds, ["a", "b"])
    features[:], kinds[:] = 7, 1
    assert (
        isinstance(other.features, torch.Tensor) and other.features.sum() == 0 and other.kind_counts == {"a": 5, "b": 0}
    )


def test_a_failed_write_leaves_nothing(
    graph: dysat.DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.save(tmp_path / "g")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(GrowingArray, "append", full)
    for target, overwrite in ((tmp_path / "new", False), (tmp_path / "g", True)):
        with pytest.raises(dysat.GraphError, match="cannot be written: No space left on device"):
            graph[:2].save(target, overwrite=overwrite)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
    assert dysat.DynamicGraph.load(tmp_path / "g").equals(graph)


def edit(folder: Path, **values: object) -> None:
    manifest = json.loads((folder / "graph.json").read_text())
    (folder / "graph.json").write_text(json.dumps({**manifest, **values}))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "weights.npy").unlink(), "weights.npy is missing"),
        (lambda f: flip(f / "weights.npy"), "does not match the checksum"),
        (lambda f: (f / "weights.npy").write_bytes(b""), "0 bytes instead of"),
        (lambda f: (f / "graph.json").write_text("{"), "damaged"),
        (lambda f: (f / "graph.json").write_text("[]"), "not the manifest"),
        (lambda f: (f / "graph.json").unlink(), "not a graph folder"),
        (lambda f: edit(f, version=2), "newer dysat .format 2, this one reads up to 1"),
        (lambda f: edit(f, version="1"), "damaged: version '1'"),
        (lambda f: edit(f, clock="step"), "graph.json: damaged: its content does not match its checksum"),
    ],
)
def test_damaged_folders(graph: dysat.DynamicGraph, tmp_path: Path, damage: object, message: str) -> None:
    graph.save(tmp_path / "g")
    damage(tmp_path / "g")  # type: ignore[operator]
    with pytest.raises(dysat.GraphError, match=message):
        dysat.DynamicGraph.load(tmp_path / "g")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"known": [1, 2, 3, 4, 9]}, "rows has a node that is not known at its step"),
        ({"known": [5, 5, 5, 5, 9]}, "do not grow to the 5 nodes"),
        ({"known": None}, "damaged: known is not a list of whole numbers"),
        ({"entries": [0, 0, 0, 0, 0]}, "expected 0"),
        ({"clock": "sundial"}, "neither 'utc' nor 'step'"),
    ],
)
def test_an_inconsistent_manifest_is_refused_without_checksums(
    graph: dysat.DynamicGraph, tmp_path: Path, values: dict[str, object], message: str
) -> None:
    graph.save(tmp_path / "g")
    edit(tmp_path / "g", **values)
    with pytest.raises(dysat.GraphError, match=message):
        dysat.DynamicGraph.load(tmp_path / "g", verify=False)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(dysat.GraphError, match="no such folder"):
        dysat.DynamicGraph.load(tmp_path / "g")


def test_to_device_moves_every_tensor(graph: dysat.DynamicGraph) -> None:
    moved = graph.with_features(np.ones((5, 1))).to("meta")
    assert moved.device.type == "meta" and moved[3].weights.is_meta and moved.features.is_meta  # type: ignore[union-attr]
    assert graph.device.type == "cpu"
