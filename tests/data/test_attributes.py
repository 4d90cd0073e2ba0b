"""Attributes of nodes as features of a graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dysat
from dysat.data.attributes import MAX_CATEGORIES, continued, describe_features, groups
from dysat.data.csr import Snapshot
from dysat.errors import GraphError

# Five people; the windows of a week start on 1, 8, 15, 22 and 29 January.
AGES = {"ann": 20.0, "bob": 40.0, "cy": None, "dee": 60.0}


@pytest.fixture
def graph(mails: dysat.Events) -> dysat.DynamicGraph:
    return dysat.build_snapshots(mails, every="1w")


def table(**columns: Any) -> dysat.NodeTable:
    return dysat.read_nodes({"id": list(AGES), **columns})


def test_encoding_by_hand(graph: dysat.DynamicGraph) -> None:
    found = graph.with_attributes(table(team=["red", "blue", "red", None], age=list(AGES.values())))
    assert found.feature_names == ("team=blue", "team=red", "age", "age missing")
    far = (60 - 40) / np.std([20, 40, 60])
    assert graph.nodes.tolist() == ["ann", "bob", "cy", "dee", "eve"]
    expected = [[0, 1, -far, 0], [1, 0, 0, 0], [0, 1, 0, 1], [0, 0, far, 0], [0, 0, 0, 1]]
    torch.testing.assert_close(found.features, torch.tensor(expected, dtype=torch.get_default_dtype()))
    assert found.notes[-1] == "table: nodes without a row, values missing: 1 of 5"
    assert describe_features(found.features, found.feature_names) == [
        "team (2 categories, 40 % missing)",
        "age (number, 40 % missing)",
    ]


def test_a_value_holds_from_its_time_on(graph: dysat.DynamicGraph) -> None:
    """A window sees the latest value before its end; a missing value does not hide an earlier one."""
    rows = {
        "id": ["ann", "ann", "ann", "bob", "bob"],
        "since": ["", "2024-01-10", "2024-01-22", "2024-01-15", "2024-03-01"],
        "team": ["red", "blue", None, "red", "green"],
    }
    found = graph.with_attributes(dysat.read_nodes(rows, time="since"))
    assert isinstance(found.features, tuple) and found.feature_names == ("team=blue", "team=red")
    teams = [["–" if not row.any() else "br"[int(row.argmax())] for row in part[:2]] for part in found.features]
    # The second week ends on 15 January: ann has moved to blue, and bob's row begins with the third.
    assert teams == [["r", "–"], ["b", "–"], ["b", "r"], ["b", "r"], ["b", "r"]]
    assert graph[:2].features is None and len(found[:2].features or ()) == 2


def test_features_of_a_step_ignore_later_rows(graph: dysat.DynamicGraph) -> None:
    rows = {"id": ["ann", "bob", "bob"], "since": ["2024-01-01", "2024-01-01", "2024-01-25"], "n": ["a", "b", "a"]}
    early = {name: values[:2] for name, values in rows.items()}
    one, two = (graph.with_attributes(dysat.read_nodes(r, time="since")) for r in (rows, early))
    for step in range(3):
        part = two.features if isinstance(two.features, torch.Tensor) else two.features[step]  # type: ignore[index]
        assert torch.equal(one.features[step], part[: graph.known[step]])  # type: ignore[index]


def test_saved_sliced_and_extended_graphs_keep_names(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    found = graph.with_attributes(table(age=list(AGES.values())))
    found.save(tmp_path / "graph")
    loaded = dysat.DynamicGraph.load(tmp_path / "graph")
    assert loaded.equals(found) and loaded.feature_names == found.feature_names == ("age", "age missing")
    assert found[:2].feature_names == found.feature_names and found.to("cpu").feature_names == found.feature_names
    stop = graph.boundaries[-1]
    new = Snapshot.from_links(np.array([0]), np.array([1]), None, num_nodes=5, start=stop, stop=stop + 1)
    assert found.extended(new).feature_names == found.feature_names
    assert not found.equals(replace(found, feature_names=("size", "size missing")))
    assert found.with_features(np.ones((5, 1))).feature_names == ()


def test_names_are_optional_and_checked(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    plain = graph.with_features(np.ones((5, 2)))
    plain.save(tmp_path / "graph")
    assert "feature_names" not in (tmp_path / "graph" / "graph.json").read_text()
    assert dysat.DynamicGraph.load(tmp_path / "graph").equals(plain)
    assert graph.with_features(np.ones((5, 2)), names=["a", "b"]).feature_names == ("a", "b")
    with pytest.raises(GraphError, match=r"^1 feature names for 2 columns of features$"):
        graph.with_features(np.ones((5, 2)), names=["a"])
    with pytest.raises(GraphError, match=r"^two columns of features have the same name 'a'$"):
        graph.with_features(np.ones((5, 2)), names=["a", "a"])
    with pytest.raises(GraphError, match=r"^1 feature names for 0 columns of features$"):
        replace(graph, feature_names=("a",))


def test_numbers_whose_squares_overflow(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    """They are standardised like the same numbers in another unit."""
    tables = []
    for unit in ("", "e300"):
        rows = "".join(f"{label},{number}{unit}\n" for number, label in enumerate(graph.nodes.tolist(), 1))
        (tmp_path / "people.csv").write_text(f"id,wealth\n{rows}")
        tables.append(graph.with_attributes(dysat.read_nodes(tmp_path / "people.csv")).features)
    torch.testing.assert_close(tables[1], tables[0])


def test_rare_categories_are_pooled() -> None:
    number = 3 * MAX_CATEGORIES
    ids = [f"p{i}" for i in range(number)]
    events = dysat.read_events((ids, ids[1:] + ids[:1], [0] * (number - 1) + [1]), time_unit="step")
    graph = dysat.build_snapshots(events, every=1)
    cities = [f"c{i:03d}" if i < MAX_CATEGORIES else f"c{i % 10:03d}" for i in range(number - 2)] + ["z1", "z2"]
    found = graph.with_attributes(dysat.read_nodes({"id": ids, "city": cities}))
    assert len(found.feature_names) == MAX_CATEGORIES and found.feature_names[-1] == "city=other"
    assert found.notes[-1] == "column 'city': the 3 rarest values count as city=other"
    assert isinstance(found.features, torch.Tensor) and found.features.sum(1).tolist() == [1.0] * number
    assert found.features[:, -1].sum() == 3
    (group,) = groups(found.feature_names)
    assert group.other == MAX_CATEGORIES - 1 and group.is_category


def test_ids_that_differ_in_case_or_blanks_match(graph: dysat.DynamicGraph) -> None:
    found = graph.with_attributes(dysat.read_nodes({"id": ["Ann ", "bob", "zed"], "age": [1, 2, 3]}))
    assert isinstance(found.features, torch.Tensor) and found.features[:2, 1].tolist() == [0, 0]
    assert found.notes[-3:] == (
        "table: ids matched although case or blanks differ: 1",
        "table: ids that are not in the log, ignored: 1 of 3",
        "table: nodes without a row, values missing: 3 of 5",
    )


def test_kinds_have_tables_of_their_own() -> None:
    events = dysat.read_events((["1", "2", "1"], ["1", "2", "3"], [0, 0, 1]), time_unit="step", kinds=("user", "item"))
    graph = dysat.build_snapshots(events, every=1)
    users = dysat.read_nodes({"id": [1, 2], "land": ["de", "fr"]}, kind="user")
    items = dysat.read_nodes({"id": [1, 3], "land": ["fr", "de"], "price": [1.0, 3.0]}, kind="item")
    found = graph.with_attributes(users, items)
    assert found.feature_names == ("land=de", "land=fr", "price", "price missing")
    rows = {
        (graph.kind_names[kind], label): row
        for kind, label, row in zip(graph.kinds, graph.nodes, found.features.tolist(), strict=True)  # type: ignore
    }
    assert rows["user", 1] == [1, 0, 0, 1] and rows["item", 1] == [0, 1, -1, 0]
    assert rows["item", 3] == [1, 0, 1, 0] and rows["item", 2] == [0, 0, 0, 1]
    with pytest.raises(GraphError, match=r"^table: '1' is a node of both kinds; say which: --nodes user=FILE$"):
        graph.with_attributes(dysat.read_nodes({"id": [1, 2], "land": ["de", "fr"]}))
    with pytest.raises(GraphError, match=r"^table: no kind 'shop'; there are user, item$"):
        graph.with_attributes(dysat.read_nodes({"id": [1, 2], "land": ["de", "fr"]}, kind="shop"))


def test_what_does_not_fit_is_refused(graph: dysat.DynamicGraph) -> None:
    with pytest.raises(GraphError, match=r"^table: none of its ids is a node: ids like 'x', nodes like \['ann'\]$"):
        graph.with_attributes(dysat.read_nodes({"id": ["x", "y"], "age": [1, 2]}))
    steps = dysat.read_nodes({"id": ["ann", "bob"], "at": [1, 2], "age": [1, 2]}, time="at", time_unit="step")
    with pytest.raises(GraphError, match=r"^table: times are numbers of steps, but windows are dates$"):
        graph.with_attributes(steps)
    texts = table(age=["x", "x", "y", "y"])
    with pytest.raises(GraphError, match=r"^column 'age' is a number in one table and a category in another$"):
        graph.with_attributes(table(age=list(AGES.values())), texts)


@pytest.mark.parametrize("per_step", [False, True])
def test_new_nodes_have_missing_values(graph: dysat.DynamicGraph, per_step: bool) -> None:
    names = ("team=a", "age", "age missing", "size")
    whole = torch.ones(5, 4)
    features = tuple(whole[:known] for known in graph.known) if per_step else whole
    grown = continued(features, names, [*graph.known, 5, 7])
    parts = grown if isinstance(grown, tuple) else [grown[:known] for known in (*graph.known, 5, 7)]
    assert [len(part) for part in parts] == [*graph.known, 5, 7]
    assert torch.equal(parts[-1][:5], whole) and parts[-1][5:].tolist() == [[0, 0, 1, 0]] * 2
