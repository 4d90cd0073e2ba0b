"""Graph folders with matching checksums but hostile content are refused in one line, with or without `verify`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import Arrays, Content, edit_graph, npy_header, read_graph, seal_graph
from small import make_graph, meetings

import dysat
from dysat.data import stored
from dysat.errors import GraphError
from dysat.sampling.blocks import whole_block

Edit = Callable[[Content, Arrays], Any]
TEXTS = np.array([*"abcdefgh"], dtype=object)


def put(name: str, index: int, value: float) -> Edit:
    return lambda manifest, arrays: arrays[name].__setitem__(index, value)


def cast(name: str, dtype: Any) -> Edit:
    return lambda manifest, arrays: arrays.update({name: arrays[name].astype(dtype)})


def write(key: str, value: Any) -> Edit:
    return lambda manifest, arrays: manifest.update({key: value})


def change(key: str, index: int, value: Any) -> Edit:
    return lambda manifest, arrays: manifest[key].__setitem__(index, value)


def drop(name: str) -> Edit:
    return lambda manifest, arrays: arrays.pop(name)


def swap(name: str, one: int, two: int) -> Edit:
    def edit(manifest: Content, arrays: Arrays) -> None:
        arrays[name][[one, two]] = arrays[name][[two, one]]

    return edit


def structured(manifest: Content, arrays: Arrays) -> None:
    arrays["weights"] = arrays["weights"].view([("w", "<f8")])


def one_way(manifest: Content, arrays: Arrays) -> None:
    """The link of 2 and 3 in the first snapshot becomes one of 2 and 4, in the row of 2 only."""
    arrays["neighbours"][6] = 4


DAMAGES: dict[str, tuple[Edit, str]] = {
    "NaN weight": (put("weights", 3, np.nan), "weights has a value that is not finite, or is negative"),
    "infinite weight": (put("weights", 3, np.inf), "weights has a value that is not finite"),
    "negative weight": (put("weights", 3, -1), "weights has a value that is not finite, or is negative"),
    "two weights": (put("weights", 3, 9), "a link has two weights"),
    "neighbour -7": (put("neighbours", 3, -7), "neighbours has a node that is not known at its step"),
    "neighbour 10^9": (put("neighbours", 3, 10**9), "neighbours has a node that is not known at its step"),
    "neighbour not known yet": (put("neighbours", 3, 7), "neighbours has a node that is not known at its step"),
    "neighbours not sorted": (swap("neighbours", 4, 5), "the neighbours of a node do not increase"),
    "neighbour twice": (put("neighbours", 1, 1), "the neighbours of a node do not increase"),
    "one direction": (one_way, "a link is stored in the row of one of its nodes only"),
    "row -1": (put("rows", 0, -1), "rows has a node that is not known"),
    "row 10^9": (put("rows", 5, 10**9), "rows has a node that is not known"),
    "rows not sorted": (swap("rows", 1, 2), "the rows of a snapshot do not increase"),
    "offset 10^9": (put("offsets", 2, 10**9), "the offsets of a snapshot do not increase"),
    "offset -1": (put("offsets", 2, -1), "the offsets of a snapshot do not increase"),
    "first offset": (put("offsets", 0, 1), "the offsets of a snapshot do not increase"),
    "last offset": (put("offsets", -1, 1), "the offsets of a snapshot do not increase"),
    "row without neighbours": (put("offsets", 2, 2), "the offsets of a snapshot do not increase"),
    "float rows": (cast("rows", np.float64), "rows holds float64, expected int64"),
    "int32 neighbours": (cast("neighbours", np.int32), "neighbours holds int32, expected int64"),
    "float32 weights": (cast("weights", np.float32), "weights holds float32, expected float64"),
    "big-endian weights": (cast("weights", ">f8"), "weights.npy: damaged: an array of type >f8"),
    "complex weights": (cast("weights", complex), "weights.npy: damaged: an array of type .<c16"),
    "text weights": (cast("weights", "U5"), "weights.npy: damaged: an array of type .<U5"),
    "objects": (cast("weights", object), "weights.npy: damaged: an array of type '.O'"),
    "structured weights": (structured, "weights.npy: damaged: an array of type"),
    "times as neighbours": (cast("neighbours", "M8[us]"), "neighbours.npy: damaged: an array of type .<M8"),
    "two dimensions": (
        lambda m, a: a.update(weights=a["weights"].reshape(-1, 1)),
        r"weights has shape \(\d+, 1\)",
    ),
    "no dimension": (lambda m, a: a.update(weights=np.array(1.0)), r"weights has shape \(\)"),
    "Fortran order": (
        lambda m, a: a.update(features=np.asfortranarray(np.zeros((8, 2), np.float32))),
        "features.npy: damaged: an array of type float32 in an order",
    ),
    "too few weights": (lambda m, a: a.update(weights=a["weights"][:-1]), "weights has 58 entries, expected 59"),
    "no weights": (drop("weights"), "weights.npy is not in the list of files"),
    "no labels": (drop("labels"), "label_text.npy is not in the list of files"),
    "label twice": (put("labels", 1, 0), "two nodes have the same label"),
    "distant label twice": (
        lambda m, a: a.update(labels=np.array([0, 1, 2, 3, 4, 5, 2**60, 2**60])),
        "two nodes have the same label",
    ),
    "float labels": (cast("labels", np.float64), "labels holds float64, expected int64"),
    "fewer labels": (lambda m, a: a.update(labels=a["labels"][:-1]), "do not grow to the 7 nodes"),
    "NaN features": (
        lambda m, a: a.update(features=np.full((8, 2), np.nan, np.float32)),
        "features have a value that is not a finite number",
    ),
    "integer features": (lambda m, a: a.update(features=np.ones((8, 2), np.int64)), "features holds int64"),
    "flat features": (lambda m, a: a.update(features=np.ones(8, np.float32)), r"features has shape \(8,\)"),
    "features of fewer nodes": (lambda m, a: a.update(features=np.ones((7, 2), np.float32)), "features have shape"),
    "kinds without names": (lambda m, a: a.update(kinds=np.ones(8, np.uint8)), "a node of kind 1"),
    "signed kinds": (lambda m, a: a.update(kinds=-np.ones(8, np.int8)), "kinds holds int8, expected uint8"),
    "known falls": (change("known", 2, 7), "has a node that is not known|do not grow"),
    "known -1": (change("known", 0, -1), "known has numbers outside 0 …"),
    "known 10^30": (change("known", 4, 10**30), "known has numbers outside 0 …"),
    "known true": (change("known", 0, True), "known is not a list of whole numbers"),
    "known 1e400": (change("known", 0, float("inf")), "known is not a list of whole numbers"),
    "known text": (write("known", "66666"), "known is not a list of whole numbers"),
    "no snapshots": (lambda m, a: m.update(known=[], rows=[], entries=[], boundaries=[0]), "do not fit each other"),
    "fewer boundaries": (write("boundaries", [0, 1]), "2 boundaries do not fit each other"),
    "boundaries fall": (change("boundaries", 2, 0), "the boundaries of the windows do not increase"),
    "boundary NaN": (change("boundaries", 2, float("nan")), "boundaries is not a list of whole numbers"),
    "boundary 2^70": (change("boundaries", 5, 2**70), "boundaries has numbers outside"),
    "rows -1": (lambda m, a: m["rows"].__setitem__(slice(2), [-1, 12]), "rows has numbers outside 0 …"),
    "entries that wrap": (lambda m, a: m["entries"].__setitem__(slice(2), [2**62, 2**62]), "more rows or entries"),
    "entries moved": (lambda m, a: m["entries"].__setitem__(slice(2), [15, 10]), "offsets of a snapshot"),
    "clock": (write("clock", ["utc"]), "neither 'utc' nor 'step'"),
    "notes": (write("notes", [["deep"]]), "notes is not a list of texts"),
    "kind names": (write("kind_names", [3]), "kind_names is not a list of texts"),
    "no kind names": (lambda m, a: m.pop("kind_names"), "kind_names is not a list of texts"),
    "feature names": (write("feature_names", "ab"), "feature_names is not a list of texts"),
    "directed": (write("directed", "yes"), "directed is neither true nor false"),
    "directed, without senders": (write("directed", True), "sent.npy is not in the list of files"),
    "report": (write("report", {"events": 1}), "the report does not have the expected entries"),
    "report of texts": (
        write("report", dict.fromkeys([*stored.REPORT, "self_loops_kept"], "<b>")),
        "the report has an entry that is not a count",
    ),
    "report that is true": (write("report", [1]), "the report does not have"),
}


def damaged(folder: Path, message: str, **how: bool) -> None:
    with pytest.raises(GraphError, match=message) as problem:
        dysat.DynamicGraph.load(folder, **how)
    assert str(problem.value).startswith(str(folder)) and "\n" not in str(problem.value)


@pytest.mark.parametrize("how", [{}, {"verify": False}, {"verify": False, "mmap": False}], ids=str)
@pytest.mark.parametrize("name", DAMAGES)
def test_hostile_content_is_named(tmp_path: Path, name: str, how: dict[str, bool]) -> None:
    edit, message = DAMAGES[name]
    meetings().save(tmp_path / "g")
    edit_graph(tmp_path / "g", edit)
    damaged(tmp_path / "g", f"damaged: .*{message}|{message}", **how)


def test_an_edit_that_changes_nothing_loads(tmp_path: Path) -> None:
    """The helper recomputes every checksum; otherwise the tests above would pass for the wrong reason."""
    graph = meetings().with_features(np.ones((8, 2)), ["a", "b"]).with_kinds([0, 1] * 4, ["x", "y"])
    graph.save(tmp_path / "g")
    edit_graph(tmp_path / "g", lambda manifest, arrays: None)
    assert dysat.DynamicGraph.load(tmp_path / "g").equals(graph)
    edit_graph(tmp_path / "g", put("features", 3, 2))
    assert not dysat.DynamicGraph.load(tmp_path / "g").equals(graph)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("label_offsets", 1, 0), None),  # an empty label
        (put("label_offsets", 1, 10**9), "label_offsets do not lead from 0 to 8"),
        (put("label_offsets", 0, 1), "label_offsets do not lead from 0 to 8"),
        (put("label_offsets", 8, 7), "label_offsets do not lead from 0 to 8"),
        (swap("label_offsets", 2, 3), "label_offsets do not lead from 0 to 8"),
        (put("label_text", 0, 0xFF), "UnicodeDecodeError"),
        (put("label_text", 0, ord("b")), "two nodes have the same label"),
        (lambda m, a: a.update(label_offsets=a["label_offsets"][:0]), "label_offsets do not lead"),
    ],
)
def test_text_labels(tmp_path: Path, edit: Edit, message: str | None) -> None:
    meetings(TEXTS).save(tmp_path / "g")
    edit_graph(tmp_path / "g", edit)
    if message is None:
        assert dysat.DynamicGraph.load(tmp_path / "g").nodes.tolist() == ["", "ab", *"cdefgh"]
    else:
        damaged(tmp_path / "g", message)


@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
def test_senders(tmp_path: Path, value: float) -> None:
    u, v = np.array([0, 1]), np.array([1, 2])
    snapshot = dysat.Snapshot.from_links(u, v, None, num_nodes=3, start=0, stop=1, directed=True)
    dysat.DynamicGraph(np.arange(3), (snapshot,), clock="step").save(tmp_path / "g")
    edit_graph(tmp_path / "g", put("sent", 0, value))
    damaged(tmp_path / "g", "sent has a value that is not finite, or is negative")


@pytest.mark.parametrize("shape", [(10**12,), (2**62, 4), (-1,), (10**30,), (0,), ()], ids=str)
@pytest.mark.parametrize("mmap", [True, False])
def test_a_header_does_not_decide_how_much_memory_is_used(tmp_path: Path, shape: tuple[int, ...], mmap: bool) -> None:
    meetings().save(tmp_path / "g")
    manifest, _ = read_graph(tmp_path / "g")
    npy_header(tmp_path / "g" / "weights.npy", "<f8", shape, data=bytes(58 * 8))
    seal_graph(tmp_path / "g", manifest)
    damaged(tmp_path / "g", r"weights.npy: damaged: ", mmap=mmap)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY\x01\x00",
        b"\x93NUMPY\x03\x00\x02\x00\x00\x00{}",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        b"\x93NUMPY\x01\x00\x08\x00" + b"[" * 8,
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
    ],
)
def test_a_damaged_header(tmp_path: Path, content: bytes) -> None:
    meetings().save(tmp_path / "g")
    manifest, _ = read_graph(tmp_path / "g")
    (tmp_path / "g" / "weights.npy").write_bytes(content)
    seal_graph(tmp_path / "g", manifest)
    damaged(tmp_path / "g", "weights.npy: damaged: ")


@pytest.mark.parametrize("size", ["3", None, True, 1e400, [1]], ids=str)
def test_sizes_that_are_no_numbers(tmp_path: Path, size: Any) -> None:
    meetings().save(tmp_path / "g")
    manifest, _ = read_graph(tmp_path / "g")
    seal_graph(tmp_path / "g", manifest)
    manifest["files"]["rows"]["bytes"] = size
    (tmp_path / "g" / "graph.json").write_text(json.dumps(manifest))
    damaged(tmp_path / "g", "rows.npy: damaged: .* bytes instead of", verify=False)


@pytest.mark.parametrize("key", ["../rows", "/etc/rows", "..", "a/b", "a\\b", "C:rows", "rows\0", "", "Rows", "x" * 99])
def test_names_of_arrays_are_never_paths(tmp_path: Path, key: str) -> None:
    meetings().save(tmp_path / "g")
    manifest, _ = read_graph(tmp_path / "g")
    manifest["files"][key] = dict(manifest["files"]["rows"])
    seal_graph(tmp_path / "g", manifest)
    damaged(tmp_path / "g", "is not the name of an array")


@pytest.mark.parametrize("name", ["rows.npy", "graph.json"])
def test_links_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    meetings().save(tmp_path / "g")
    (tmp_path / "g" / name).rename(tmp_path / "outside")
    (tmp_path / "g" / name).symlink_to(tmp_path / "outside")
    damaged(tmp_path / "g", f"{name}: a link out of its folder, to .*outside")


def test_links_to_folders_and_inside_them_are_followed(tmp_path: Path) -> None:
    meetings().save(tmp_path / "g")
    (tmp_path / "g" / "rows.npy").rename(tmp_path / "g" / "other.npy")
    (tmp_path / "g" / "rows.npy").symlink_to("other.npy")
    (tmp_path / "link").symlink_to("g")
    assert dysat.DynamicGraph.load(tmp_path / "link").equals(meetings())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    meetings().save(tmp_path / "g")
    (tmp_path / "g" / "rows.npy").unlink()
    os.mkfifo(tmp_path / "g" / "rows.npy")
    damaged(tmp_path / "g", "rows.npy: not a regular file")


# Large graphs


@pytest.mark.parametrize("at_once", [1, 20, 1 << 16])
def test_snapshots_that_are_checked_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Snapshots without links among them; all groupings accept a graph, and find damage in any snapshot."""
    monkeypatch.setattr(stored, "AT_ONCE", at_once)
    links: list[Any] = [[], [(0, 1)], [], [(2, 5), (0, 2)], [(5, 5)], []]
    graph = make_graph([0, 3, 3, 6, 6, 9], links)
    graph.save(tmp_path / "g")
    assert dysat.DynamicGraph.load(tmp_path / "g").equals(graph)
    edit_graph(tmp_path / "g", lambda m, a: a["neighbours"].__setitem__(slice(3, 5), [5, 0]))
    damaged(tmp_path / "g", "the neighbours of a node do not increase")


def test_order_agrees_with_a_loop() -> None:
    """Random parts, some of them empty: the order inside each counts, not that between them."""
    rng, outcomes = np.random.default_rng(0), []
    for _ in range(300):
        parts = [np.sort(rng.choice(9, size, replace=False)) for size in rng.integers(0, 4, rng.integers(1, 5))]
        nodes = np.concatenate(parts)
        if len(nodes) and rng.random() < 0.5:
            nodes[rng.integers(len(nodes))] = rng.integers(9)
        sizes = np.array([len(part) for part in parts])
        ends = np.cumsum(sizes)
        inside = [list(nodes[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
        valid = all(part == sorted(set(part)) for part in inside)
        try:
            stored._check_order("parts", nodes, (ends - sizes)[sizes > 0])
            outcomes.append((valid, True))
        except GraphError:
            outcomes.append((valid, False))
    assert set(outcomes) == {(True, True), (False, False)}


def test_a_link_in_one_direction_never_reaches_the_c_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large graph only some entries are looked up; the rows of a model still have no index beyond them."""
    monkeypatch.setattr(stored, "SAMPLED", 1)
    graph = make_graph([4], [[(0, 1), (1, 2), (0, 2)]])
    graph.save(tmp_path / "g")
    edit_graph(tmp_path / "g", lambda m, a: a["neighbours"].__setitem__(-1, 3))  # node 3 has no row
    with pytest.raises(GraphError, match="a link is stored in the row of one of its nodes only"):
        whole_block(dysat.DynamicGraph.load(tmp_path / "g"))


def test_both_directions_are_found_in_random_graphs() -> None:
    rng = np.random.default_rng(0)
    for size in (2, 30, 300):
        u, v = rng.integers(0, size, (2, 20 * size))
        links = [list(zip(part_u, part_v, strict=True)) for part_u, part_v in zip(u.reshape(4, -1), v.reshape(4, -1))]  # noqa: B905
        graph = make_graph([size] * 4, links)
        arrays = {name: np.concatenate([getattr(s, name).numpy() for s in graph]) for name in stored.CSR}
        counts = (np.array([len(getattr(s, name)) for s in graph]) for name in ("rows", "neighbours"))
        stored.check_snapshots(arrays, *counts, np.array(graph.known))


def test_the_command_line_prints_one_line(cli: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    for number, name in enumerate(("NaN weight", "neighbour -7", "neighbour 10^9", "offset 10^9")):
        folder = tmp_path / str(number)
        meetings().save(folder)
        edit_graph(folder, DAMAGES[name][0])
        for command in (["fit", folder, "--out", tmp_path / "run"], ["info", folder, "--json"]):
            code, out, err = cli(*command)
            assert code and not out and err.count("\n") == 1 and "damaged: " in err, err
