"""Every format returns the graph it was given, agrees with the others, and names what it cannot read."""

from dataclasses import replace

import networkx as nx
import networkx_temporal as tx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data, TemporalData
from torch_geometric.nn import GCNConv

import dysat
from dysat import DynamicGraph, EventsError, GraphError, Snapshot, SnapshotsError, read_events
from dysat.data import interop
from dysat.data.reading.labels import as_labels
from dysat.data.windows import DAY

NEW_YEAR = 19_723 * DAY  # 2024-01-01


def graph_of(links, known, labels, edges, clock, **more):
    """A graph written by hand: per snapshot its links (u, v, weight)."""
    snapshots = []
    for step, part in enumerate(links):
        u, v, w = (np.array([link[i] for link in part], dtype=kind) for i, kind in enumerate((int, int, float)))
        window = {"start": edges[step], "stop": edges[step + 1]}
        snapshots.append(Snapshot.from_links(u, v, w, num_nodes=known[step], **window))
    return DynamicGraph(as_labels(labels), tuple(snapshots), clock, **more)


# The links of a snapshot meet nodes out of order, one snapshot is empty, one link is a self-loop.
LINKS = [[(0, 3, 0.1), (1, 2, 1e9)], [], [(4, 4, 2.5), (0, 4, 1.0), (1, 2, 1 / 3)]]
KNOWN = [4, 4, 5]


def text_graph():
    edges = [NEW_YEAR + k * DAY for k in (0, 7, 14, 21)]
    return graph_of(LINKS, KNOWN, ["dee", "ann", "7", "bob", "élan ☃"], edges, "utc")


def number_graph():
    return graph_of(LINKS, KNOWN, [90, 7, -3, 2**60, 0], [5, 6, 7, 8], "step")


def kinds_graph():
    """Users 1, 2, 3 and items 1, 2; the kind of the first node is not the first kind."""
    kinds = np.array([1, 1, 0, 0, 1], dtype=np.uint8)
    links = [[(0, 3, 0.1), (1, 2, 1e9)], [], [(4, 3, 2.5), (0, 2, 1.0)]]
    plain = graph_of(links, KNOWN, [0, 1, 2, 3, 4], [NEW_YEAR + k * DAY for k in (0, 31, 60, 91)], "utc")
    return replace(plain, nodes=np.array([1, 2, 1, 2, 3]), kinds=kinds, kind_names=("item", "user"))


def lonely_graph():
    """Nodes that are known before, or without, any link."""
    return graph_of([[(0, 1, 1.0)], [(0, 3, 2.0)]], [3, 6], list("abcdef"), [0, 1, 2], "step")


GRAPHS = {"text": text_graph, "numbers": number_graph, "kinds": kinds_graph}
STATED = {**GRAPHS, "lonely": lonely_graph, "slice": lambda: text_graph()[1:], "one": lambda: number_graph()[:1]}


def by_name(graphs):
    return pytest.mark.parametrize("graph", [pytest.param(make(), id=name) for name, make in graphs.items()])


def total(graph):
    return [snapshot.total_weight for snapshot in graph]


def link_weights(graph):
    """Per snapshot {(label, label): weight}, in order of node id."""
    names = graph.nodes.tolist()
    parts = [zip(*(column.tolist() for column in snapshot.links()), strict=True) for snapshot in graph]
    return [{(names[u], names[v]): w for u, v, w in part} for part in parts]


# Round trips


@by_name(STATED)
def test_networkx_round_trip(graph):
    assert interop.from_networkx(interop.to_networkx(graph)).equals(graph)


@by_name(STATED)
def test_networkx_temporal_round_trip(graph):
    temporal = interop.to_networkx_temporal(graph)
    assert tx.is_temporal_graph(temporal)
    assert interop.from_networkx_temporal(temporal).equals(graph)


@by_name(STATED)
def test_pyg_round_trip(graph):
    assert interop.from_pyg(interop.to_pyg(graph, dtype=torch.float64), graph.nodes).equals(graph)


@by_name(GRAPHS)
def test_scipy_round_trip(graph):
    matrices = interop.to_scipy(graph)
    if graph.kinds is None:
        assert interop.from_scipy(matrices, graph.nodes, boundaries=graph.boundaries, clock=graph.clock).equals(graph)
        return
    labels = [(graph.kind_names[kind], node) for kind, node in zip(graph.kinds, graph.nodes.tolist(), strict=True)]
    back = interop.from_scipy(matrices, labels, boundaries=graph.boundaries, clock=graph.clock)
    assert back.kind_names == ("user", "item")  # the order is not stored, so the first kind to appear is the first
    assert back.with_kinds(1 - back.kinds, ("item", "user")).equals(graph)


@by_name(GRAPHS)
def test_pandas_round_trip(graph):
    table = interop.to_pandas(graph)
    edges = [int(edge) for edge in graph.boundaries]
    assert interop.from_pandas(table).equals(graph)
    assert interop.from_pandas(table.sample(frac=1, random_state=0)).equals(graph)  # the order of rows does not matter
    assert interop.from_pandas(table).boundaries == tuple(edges)


def test_pandas_round_trip_through_csv(tmp_path):
    graph = number_graph()
    interop.to_pandas(graph).to_csv(tmp_path / "links.csv", index=False)
    assert interop.from_pandas(pd.read_csv(tmp_path / "links.csv")).equals(graph)
    interop.to_pandas(text_graph()).to_csv(tmp_path / "links.csv", index=False)
    assert interop.from_pandas(pd.read_csv(tmp_path / "links.csv")).equals(text_graph())


def test_round_trips_of_uci():
    graph = dysat.load_dataset("uci")
    window = {"boundaries": graph.boundaries, "clock": graph.clock}
    assert interop.from_networkx(interop.to_networkx(graph)).equals(graph)
    assert interop.from_pyg(interop.to_pyg(graph), graph.nodes).equals(graph)
    matrices = interop.to_scipy(graph)
    assert interop.from_scipy(matrices, graph.nodes, **window).equals(graph.without_times())  # they hold weights only
    assert interop.from_pandas(interop.to_pandas(graph)).equals(graph)


@pytest.mark.parametrize("per_snapshot", [False, True])
def test_pyg_carries_features(per_snapshot):
    whole = torch.arange(10.0).reshape(5, 2)
    features = [whole[:4], whole[:4] + 1, whole] if per_snapshot else whole
    graph = text_graph().with_features(features)
    snapshots = interop.to_pyg(graph, dtype=torch.float64)
    assert [data.x.shape for data in snapshots] == [(4, 2), (4, 2), (5, 2)]
    back = interop.from_pyg(snapshots, graph.nodes)
    assert isinstance(back.features, tuple) is per_snapshot
    assert back.equals(graph)
    snapshots[2].x.zero_()
    snapshots[2].edge_weight.zero_()
    now = graph.features[2] if per_snapshot else graph.features
    torch.testing.assert_close(now, torch.arange(10.0).reshape(5, 2))  # `to_pyg` copies
    assert graph[2].total_weight > 0


# What the formats look like


def test_networkx_nodes_edges_and_attributes():
    first, empty, last = interop.to_networkx(text_graph())
    assert type(first) is nx.Graph
    assert list(first) == ["dee", "ann", "7", "bob"]
    assert list(empty) == list(first)
    assert empty.number_of_edges() == 0
    assert first.graph == {"start": NEW_YEAR, "stop": NEW_YEAR + 7 * DAY, "clock": "utc"}
    assert dict(last.edges) == {
        ("dee", "élan ☃"): {"weight": 1.0},
        ("ann", "7"): {"weight": 1 / 3},
        ("élan ☃", "élan ☃"): {"weight": 2.5},
    }
    assert {type(node) for node in interop.to_networkx(number_graph())[0]} == {int}


def test_networkx_nodes_are_tuples_only_if_kinds_share_labels():
    graph = kinds_graph()
    last = interop.to_networkx(graph)[-1]
    assert list(last) == [("user", 1), ("user", 2), ("item", 1), ("item", 2), ("user", 3)]
    distinct = replace(graph, nodes=np.array([1, 2, 11, 12, 3]))
    last = interop.to_networkx(distinct)[-1]
    assert dict(last.nodes(data="kind")) == {1: "user", 2: "user", 11: "item", 12: "item", 3: "user"}
    assert interop.from_networkx(interop.to_networkx(distinct)).equals(distinct)


def test_pyg_data_is_valid_input_of_layers():
    graph = kinds_graph().with_features(torch.randn(5, 2, generator=torch.Generator().manual_seed(0)))
    for data, snapshot in zip(interop.to_pyg(graph), graph, strict=True):
        assert data.validate()
        assert data.is_undirected()
        assert data.num_nodes == snapshot.num_nodes == len(data.x) == len(data.node_kind)
        assert (data.start, data.stop, data.clock) == (snapshot.start, snapshot.stop, "utc")
        hidden = GCNConv(2, 3)(data.x, data.edge_index, data.edge_weight)
        assert GCNConv(3, 1)(hidden, data.edge_index, data.edge_weight).shape == (data.num_nodes, 1)
    assert data.node_kind.tolist() == [1, 1, 0, 0, 1]
    assert data.kind_names == ("item", "user")


def test_pandas_columns():
    table = interop.to_pandas(text_graph())
    assert table.iloc[0].to_dict() == {
        "step": 0,
        "start": pd.Timestamp("2024-01-01", tz="UTC"),
        "stop": pd.Timestamp("2024-01-08", tz="UTC"),
        "source": "dee",
        "target": "bob",
        "weight": 0.1,
        "source_id": 0,
        "target_id": 3,
    }
    table = interop.to_pandas(kinds_graph())
    assert list(table.columns[3:8]) == ["source", "target", "source_kind", "target_kind", "weight"]
    assert table.loc[0, ["source", "source_kind", "target", "target_kind"]].tolist() == [1, "user", 2, "item"]
    assert interop.to_pandas(number_graph())[["start", "stop"]].iloc[-1].tolist() == [7, 8]


@by_name(GRAPHS)
def test_the_formats_agree(graph):
    weights = link_weights(graph)
    for step, matrix in enumerate(interop.to_scipy(graph)):
        assert matrix.shape == (5, 5)
        dense = np.zeros((5, 5))
        u, v, w = (column.numpy() for column in graph[step].links())
        dense[u, v] = dense[v, u] = w
        np.testing.assert_array_equal(matrix.toarray(), dense)
        np.testing.assert_allclose((matrix.sum() + matrix.trace()) / 2, graph[step].total_weight, rtol=1e-15)
        assert interop.to_networkx(graph)[step].number_of_edges() == graph[step].num_links == len(weights[step])
        data = interop.to_pyg(graph, dtype=torch.float64)[step]
        np.testing.assert_array_equal(matrix.toarray()[tuple(data.edge_index.numpy())], data.edge_weight.numpy())
        assert data.num_edges == matrix.nnz
    table = interop.to_pandas(graph)
    np.testing.assert_allclose(table["weight"].sum(), sum(total(graph)), rtol=1e-15)
    assert len(table) == sum(snapshot.num_links for snapshot in graph)


# NetworkX


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (nx.Graph, {("a", "b"): 7.0, ("b", "b"): 5.0}),  # nx.Graph itself keeps the last of repeated edges
        (nx.DiGraph, {("a", "b"): 10.0, ("b", "b"): 5.0}),
        (nx.MultiGraph, {("a", "b"): 12.0, ("b", "b"): 5.0}),
        (nx.MultiDiGraph, {("a", "b"): 12.0, ("b", "b"): 5.0}),
    ],
)
def test_directed_and_parallel_edges_add_up(make, expected):
    graph = make()
    graph.add_weighted_edges_from([("a", "b", 2), ("a", "b", 3), ("b", "a", 7), ("b", "b", 5)])
    assert link_weights(interop.from_networkx([graph])) == [expected]
    assert link_weights(interop.from_networkx((graph,), self_loops="drop")) == [{("a", "b"): expected["a", "b"]}]


def test_networkx_weights_missing_zero_or_of_another_name():
    graph = nx.Graph()
    graph.add_edge("a", "b")
    graph.add_edge("a", "c", weight=0, size=4)
    assert link_weights(interop.from_networkx([graph])) == [{("a", "b"): 1.0}]
    assert interop.from_networkx([graph]).nodes.tolist() == ["a", "b", "c"]  # stated, so known
    assert link_weights(interop.from_networkx([graph], weight="size")) == [{("a", "b"): 1.0, ("a", "c"): 4.0}]


def test_networkx_nodes_are_ordered_by_first_snapshot_then_by_position():
    first, second = nx.Graph([("c", "b")]), nx.Graph([("z", "b")])
    second.add_nodes_from(["lonely", "c"])
    graph = interop.from_networkx([first, second, nx.Graph()])
    assert graph.nodes.tolist() == ["c", "b", "z", "lonely"]
    assert graph.known == (2, 4, 4)
    assert (graph.boundaries, graph.clock) == ((0, 1, 2, 3), "step")


@pytest.mark.parametrize(
    "change",
    [{"start": 11}, {"start": None}, {"clock": "utc"}, {"stop": 9}, {"stop": "soon"}, {"stop": 10.5}],
)
def test_networkx_windows_that_do_not_meet_are_steps(change):
    first, second = nx.Graph(start=0, stop=10, clock="step"), nx.Graph(start=10, stop=20, clock="step")
    assert interop.from_networkx([first, second]).boundaries == (0, 10, 20)
    second.graph.update(change)
    graph = interop.from_networkx([first, second])
    assert (graph.boundaries, graph.clock) == ((0, 1, 2), "step")


def test_networkx_kinds_need_all_nodes():
    graph = nx.Graph([("a", "x")])
    graph.nodes["a"]["kind"] = "user"
    assert interop.from_networkx([graph]).kinds is None
    graph.nodes["x"]["kind"] = "item"
    read = interop.from_networkx([graph])
    assert (read.kind_names, read.kinds.tolist()) == (("user", "item"), [0, 1])


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), "much", None])
def test_networkx_bad_weight_is_named(weight):
    good, bad = nx.Graph([("a", "b")]), nx.Graph([("a", "b")])
    bad.add_edge("b", "c", weight=weight)
    with pytest.raises(GraphError, match=f"snapshot 1: the weight of link 'b' – 'c' is {weight}, not a finite"):
        interop.from_networkx([good, bad])


def test_networkx_bad_input_is_named():
    with pytest.raises(GraphError, match=r"node \(0, 0\) is neither text nor a whole number"):
        interop.from_networkx([nx.grid_2d_graph(2, 2)])
    with pytest.raises(GraphError, match=r"node 1\.5 is neither text nor a whole number"):
        interop.from_networkx([nx.Graph([(1.5, 2)])])
    with pytest.raises(GraphError, match="snapshot 0 is a str, not a networkx graph"):
        interop.from_networkx(nx.Graph([("a", "b")]))
    with pytest.raises(GraphError, match="at least one snapshot"):
        interop.from_networkx([])
    with pytest.raises(GraphError, match="self_loops='no' is neither"):
        interop.from_networkx([nx.Graph()], self_loops="no")
    with pytest.raises(GraphError, match="a Graph is not a temporal graph"):
        interop.from_networkx_temporal(nx.Graph())
    first, second = nx.Graph(), nx.Graph()
    first.add_node("a", kind="user")
    second.add_node("a", kind="item")
    with pytest.raises(GraphError, match="snapshot 1: node 'a' is of kind 'item', earlier of 'user'"):
        interop.from_networkx([first, second])
    many = nx.Graph()
    many.add_nodes_from((f"kind {i}", i) for i in range(257))
    with pytest.raises(GraphError, match="257 kinds"):
        interop.from_networkx([many])


def test_networkx_temporal_sliced_by_time():
    temporal = tx.temporal_graph(directed=True, multigraph=True)
    temporal.add_edges_from([("a", "b", {"time": 0}), ("b", "a", {"time": 0}), ("c", "a", {"time": 1})])
    graph = interop.from_networkx_temporal(temporal.slice(attr="time"))
    assert link_weights(graph) == [{("a", "b"): 2.0}, {("a", "c"): 1.0}]
    assert graph.known == (2, 3)


# PyG


def data_of(pairs, weights=None, **more):
    index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    weight = {} if weights is None else {"edge_weight": torch.tensor(weights)}
    return Data(edge_index=index, **weight, **more)


def test_pyg_symmetric_snapshots_hold_each_link_once():
    graph = interop.from_pyg([data_of([(0, 1), (1, 0), (1, 1)], [3.0, 3.0, 2.0]), data_of([(1, 2), (2, 1)])])
    assert link_weights(graph) == [{(0, 1): 3.0, (1, 1): 2.0}, {(1, 2): 1.0}]
    assert graph.known == (2, 3)  # the number of nodes is not stated, so it follows from the ids


def test_pyg_symmetry_ignores_rounding_and_order():
    weights = torch.tensor([0.1, 0.2, 0.3, 0.3, 0.2, 0.1], dtype=torch.float64)
    parallel = Data(edge_index=torch.tensor([[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]]), edge_weight=weights)
    turned = Data(edge_index=parallel.edge_index[:, [2, 0, 1, 3, 5, 4]], edge_weight=weights[[2, 0, 1, 3, 5, 4]])
    graph = interop.from_pyg([parallel])
    assert total(graph) == pytest.approx([0.6])
    assert interop.from_pyg([turned]).equals(graph)
    rounded = torch.tensor([1 / 3, 1 / 3 + 1e-12], dtype=torch.float64)
    nearly = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), edge_weight=rounded)
    assert total(interop.from_pyg([nearly])) == pytest.approx([1 / 3])


def test_pyg_one_directed_snapshot_makes_all_add_up():
    mutual, one_way = data_of([(0, 1), (1, 0)], [3.0, 3.0]), data_of([(0, 1), (2, 1), (2, 2)], [1.0, 4.0, 5.0])
    assert link_weights(interop.from_pyg([mutual, one_way])) == [
        {(0, 1): 6.0},
        {(0, 1): 1.0, (1, 2): 4.0, (2, 2): 5.0},
    ]
    uneven = data_of([(0, 1), (1, 0)], [3.0, 1.0])
    assert link_weights(interop.from_pyg([uneven])) == [{(0, 1): 4.0}]


def test_pyg_edge_attr_of_one_column_is_the_weight():
    index = torch.tensor([[0, 1], [1, 2]])
    narrow = Data(edge_index=index, edge_attr=torch.tensor([[2.0], [3.0]], requires_grad=True))
    assert link_weights(interop.from_pyg([narrow])) == [{(0, 1): 2.0, (1, 2): 3.0}]
    wide = interop.from_pyg([Data(edge_index=index, edge_attr=torch.ones(2, 4))] * 2)
    assert link_weights(wide) == [{(0, 1): 1.0, (1, 2): 1.0}] * 2
    assert wide.notes == ("edge_attr has several columns: not a weight, left out",)


def test_pyg_kinds_without_names_are_numbered():
    data = data_of([(0, 1)], num_nodes=3, node_kind=torch.tensor([0, 1, 1]))
    graph = interop.from_pyg([data], [5, 5, 6])
    assert (graph.kind_names, graph.kinds.tolist(), graph.nodes.tolist()) == (("0", "1"), [0, 1, 1], [5, 5, 6])
    with pytest.raises(GraphError, match="node_kind must hold a number below 2 per node"):
        interop.from_pyg([data, data_of([(0, 1)], num_nodes=3, node_kind=torch.tensor([1, 1, 1]))])
    with pytest.raises(GraphError, match="node_kind must hold a number below 2 per node"):
        interop.from_pyg([data_of([(0, 1)], num_nodes=3, node_kind=torch.tensor([0, 1]))])
    with pytest.raises(GraphError, match="node_kind must hold a number below 1 per node"):
        interop.from_pyg([data_of([(0, 1)], num_nodes=2, node_kind=torch.tensor([0, 1]), kind_names=("a",))])


@pytest.mark.parametrize(
    ("snapshots", "message"),
    [
        ([data_of([(0, 1)], num_nodes=3), data_of([(0, 1)], num_nodes=2)], "snapshot 1 has 2 nodes, fewer than the 3"),
        ([data_of([(0, 2)], num_nodes=2)], "snapshot 0: edge_index holds 0 … 2, but has 2 nodes"),
        ([data_of([(-1, 1)], num_nodes=2)], "snapshot 0: edge_index holds -1 … 1"),
        ([data_of([(0, 1)], [-2.0])], r"snapshot 0: the weight of link 0 – 1 is -2.0, not a finite"),
        ([data_of([(0, 1)], [float("nan")])], "the weight of link 0 – 1 is nan"),
        ([data_of([(0, 1)], [1.0, 2.0])], "snapshot 0 has 2 weights for 1 links"),
        ([Data(num_nodes=2)], "snapshot 0 has no edge_index of shape"),
        ([Data(edge_index=torch.zeros(3, 2, dtype=torch.int64), num_nodes=2)], "snapshot 0 has no edge_index of shape"),
        ([data_of([(0, 1)], x=torch.ones(2, 1)), data_of([(0, 1)], num_nodes=2)], "x must be present in all"),
        ([data_of([(0, 1)], x=torch.ones(2))], "x must be present in all .* shape"),
        ([data_of([(0, 1)], x=torch.ones(3, 1), num_nodes=2)], r"features have shape \(3, 1\)"),
        ([data_of([(0, 1)], x=torch.tensor([[1.0], [torch.nan]]))], "node .* has a value that is not a finite"),
        ([], "at least one snapshot"),
    ],
)
def test_pyg_bad_input_is_named(snapshots, message):
    with pytest.raises(GraphError, match=message):
        interop.from_pyg(snapshots)


@pytest.mark.parametrize(
    ("labels", "message"), [(["a"], "1 labels for 2 nodes"), (["a", "a"], "label 'a' is given to")]
)
def test_labels_must_fit(labels, message):
    with pytest.raises(GraphError, match=message):
        interop.from_pyg([data_of([(0, 1)])], labels)
    with pytest.raises(GraphError, match=message):
        interop.from_scipy([np.ones((2, 2))], labels)


# SciPy


def test_scipy_rows_are_numbered_by_first_link_and_keep_their_label():
    first, second = np.zeros((5, 5)), np.zeros((6, 6))
    first[4, 2] = first[2, 4] = 1.5
    second[0, 5] = second[5, 0] = second[3, 3] = 2.0
    graph = interop.from_scipy([first, sp.csr_matrix(second)])
    assert graph.nodes.tolist() == [2, 4, 0, 3, 5]  # row 1 never has a link
    assert graph.known == (2, 5)
    assert link_weights(graph) == [{(2, 4): 1.5}, {(0, 5): 2.0, (3, 3): 2.0}]
    assert interop.from_scipy([first, second], list("abcdef")).nodes.tolist() == list("ceadf")


def test_scipy_asymmetric_matrices_add_up_as_digraphs_do():
    generator = np.random.default_rng(0)
    matrices = [sp.random_array((6, 6), density=0.3, rng=generator) for _ in range(4)]
    graph = interop.from_scipy(matrices)
    digraphs = [nx.from_scipy_sparse_array(matrix, create_using=nx.DiGraph) for matrix in matrices]
    for step, (matrix, digraph) in enumerate(zip(matrices, digraphs, strict=True)):
        dense = matrix.toarray()
        sums = dense + dense.T - np.diag(dense.diagonal())
        expected = {(u, v): sums[u, v] for u, v in zip(*np.nonzero(np.triu(sums)), strict=True)}
        by_label = [{tuple(sorted(pair)): w for pair, w in part.items()} for part in link_weights(graph)]
        assert by_label[step] == expected
        assert link_weights(interop.from_networkx([digraph]))[0] == expected


def test_scipy_stored_zeros_and_repeated_entries():
    zero = sp.coo_array(([0.0, 1.0, 1.0], ([0, 1, 2], [1, 2, 1])), shape=(3, 3))
    assert interop.from_scipy([zero]).nodes.tolist() == [1, 2]
    twice = sp.coo_array(([1, 2, 3], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))  # 0–1 adds up to 3 both ways
    assert link_weights(interop.from_scipy([twice])) == [{(0, 1): 3.0}]


@pytest.mark.parametrize("entry", [-1.0, np.nan, np.inf])
def test_scipy_bad_entry_is_named(entry):
    matrix = np.zeros((3, 3))
    matrix[0, 2] = matrix[2, 0] = entry
    with pytest.raises(GraphError, match=f"snapshot 1: the weight of link 0 – 2 is {entry}"):
        interop.from_scipy([np.ones((3, 3)), matrix])


def test_scipy_bad_input_is_named():
    square = np.ones((2, 2))
    with pytest.raises(GraphError, match=r"matrix 1 has shape \(2, 3\), expected a square of at least 2 rows"):
        interop.from_scipy([square, np.ones((2, 3))])
    with pytest.raises(GraphError, match=r"matrix 1 has shape \(1, 1\), expected a square of at least 2 rows"):
        interop.from_scipy([square, np.ones((1, 1))])
    with pytest.raises(GraphError, match="matrix 0 holds complex128, not real numbers"):
        interop.from_scipy([square * 1j])
    with pytest.raises(GraphError, match="2 boundaries for 2 snapshots; 3 are needed"):
        interop.from_scipy([square, square], boundaries=[0, 1])
    with pytest.raises(SnapshotsError, match="must increase"):
        interop.from_scipy([square, square], boundaries=[0, 2, 2])


# pandas


def test_pandas_bare_table():
    table = pd.DataFrame({"step": [3, 1, 1, 1], "source": ["a", "d", "b", "c"], "target": ["b", "c", "c", "b"]})
    graph = interop.from_pandas(table)
    assert graph.nodes.tolist() == ["b", "c", "d", "a"]  # by step, then by label
    assert (graph.boundaries, graph.clock, graph.known) == ((1, 2, 3, 4), "step", (3, 3, 4))
    assert link_weights(graph) == [{("b", "c"): 2.0, ("c", "d"): 1.0}, {}, {("b", "a"): 1.0}]


def test_pandas_steps_without_rows_share_the_gap_evenly():
    days = pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-08", "2024-01-09"], utc=True)
    table = pd.DataFrame({"step": [0, 4], "start": days[[0, 2]], "stop": days[[1, 3]], "source": 1, "target": 2})
    graph = interop.from_pandas(table)
    assert graph.boundaries == tuple(NEW_YEAR + day * DAY for day in (0, 1, 3, 5, 7, 8))
    assert [snapshot.num_links for snapshot in graph] == [1, 0, 0, 0, 1]


def test_pandas_numbers_and_texts_become_texts():
    table = pd.DataFrame({"step": [0, 0], "source": ["b", 10], "target": [9, "b"]})
    assert interop.from_pandas(table).nodes.tolist() == ["9", "10", "b"]


def test_pandas_kinds_as_plain_text():
    table = interop.to_pandas(kinds_graph()).astype({"source_kind": "str", "target_kind": "str"})
    graph = interop.from_pandas(table)
    assert graph.kind_names == ("user", "item")
    assert graph.with_kinds(1 - graph.kinds, ("item", "user")).equals(kinds_graph())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": [1.0, -1.0]}, "snapshot 1: the weight of link 'a' – 'c' is -1.0"),
        ({"weight": [1.0, None]}, "snapshot 1: the weight of link 'a' – 'c' is nan"),
        ({"weight": pd.array([1, None], dtype="Int64")}, "snapshot 1: the weight of link 'a' – 'c' is nan"),
        ({"step": [0, 0], "weight": [1, "lots"]}, "snapshot 0: the weight of link 'a' – 'c' is lots"),
        ({"step": [0, 0], "weight": [1, 10**400]}, "snapshot 0: the weight of link 'a' – 'c' is 1000"),
        ({"source": ["a", None]}, "a row without source"),
        ({"source": [1.5, 2.5], "target": [2.5, 3.5]}, "node 1.5 is neither text"),
        ({"step": [0.0, 1.0]}, "steps of type float64"),
        ({"step": [0, 10**9]}, "would make more than 10,000 snapshots"),
        ({"start": [0, 2], "stop": [1, 3]}, "step 1: its rows disagree on start and stop"),
        ({"step": [0, 0], "start": [0, 1], "stop": [2, 2]}, "step 0: its rows disagree"),
        ({"start": ["soon", "later"], "stop": ["soon", "later"]}, "neither times nor whole numbers"),
    ],
)
def test_pandas_bad_input_is_named(change, message):
    table = pd.DataFrame({"step": [0, 1], "source": ["a", "a"], "target": ["b", "c"], "weight": [1.0, 1.0]})
    interop.from_pandas(table)
    with pytest.raises(GraphError, match=message):
        interop.from_pandas(table.assign(**change))


def test_pandas_needs_rows_and_columns():
    with pytest.raises(GraphError, match="no column 'target'; there are step, source"):
        interop.from_pandas(pd.DataFrame({"step": [0], "source": ["a"]}))
    with pytest.raises(GraphError, match="a table of 0 rows"):
        interop.from_pandas(interop.to_pandas(text_graph()).head(0))


# Events

TEXTS = (["dee", "ann", "dee", "bob"], ["ann", "dee", "dee", "dee"])


def assert_same_events(one, other):
    for name in ("src", "dst", "time", "labels", "weight", "kinds"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.clock, one.kind_names) == (other.clock, other.kind_names)


@pytest.mark.parametrize(
    ("kinds", "weights", "step"),
    [
        (None, None, True),
        (None, [0.1, 1e9, 1.0, 1 / 3], False),
        (("user", "item"), [0.1, 1e9, 1.0, 1 / 3], True),
        (("user", "item"), None, False),
    ],
)
def test_events_round_trip_through_temporal_data_and_pandas(kinds, weights, step):
    times = [3, 1, 2, 2] if step else ["2024-01-03", "2024-01-01 12:00", "2024-01-02", "2024-01-02"]
    unit = "step" if step else None
    source = (*TEXTS, times) if weights is None else (*TEXTS, times, weights)
    events = read_events(source, kinds=kinds, time_unit=unit)

    data = interop.to_temporal_data(events, dtype=torch.float64)
    assert data.t.tolist() == events.time.tolist()
    assert ("msg" in data) is (weights is not None)
    assert weights is None or data.msg.shape == (4, 1)
    assert len(data[1:3]) == 2
    assert_same_events(interop.from_temporal_data(data, events.labels, time_unit=unit, kinds=kinds), events)

    table = interop.events_to_pandas(events)
    if kinds:
        assert set(table["src_kind"]) == {"user"} and set(table["dst_kind"]) == {"item"}
    weight = None if weights is None else "weight"
    assert_same_events(read_events(table, "src", "dst", "time", weight, time_unit=unit, kinds=kinds), events)


def test_temporal_data_with_wide_messages():
    ids = torch.tensor([3, 0, 3])
    data = TemporalData(src=ids, dst=torch.tensor([1, 1, 0]), t=torch.tensor([0, 60, 30]), msg=torch.ones(3, 172))
    events = interop.from_temporal_data(data, time_unit="s")
    assert events.labels.tolist() == [1, 3, 0]
    assert events.time.tolist() == [0, 30_000_000, 60_000_000]
    assert events.weight is None
    assert "msg has several columns: not a weight, left out" in events.notes


def test_temporal_data_bad_input_is_named():
    ids, times = torch.tensor([0, 1]), torch.tensor([1, 2])
    with pytest.raises(EventsError, match="has no t; there are src, dst"):
        interop.from_temporal_data(TemporalData(src=ids, dst=ids))
    with pytest.raises(EventsError, match="-1 is negative"):
        interop.from_temporal_data(TemporalData(src=ids - 1, dst=ids, t=times), time_unit="step")
    with pytest.raises(EventsError, match=r"weight -1\.0 is negative"):
        data = TemporalData(src=ids, dst=ids, t=times, msg=-torch.ones(2, 1))
        interop.from_temporal_data(data, time_unit="step")
    with pytest.raises(EventsError, match="state time_unit="):
        interop.from_temporal_data(TemporalData(src=ids, dst=ids, t=times))
    with pytest.raises(GraphError, match="1 labels for 2 nodes"):
        interop.from_temporal_data(TemporalData(src=ids, dst=ids, t=times), ["a"])
    with pytest.raises(GraphError, match="label 'a' is given to two nodes"):
        interop.from_temporal_data(TemporalData(src=ids, dst=ids, t=times), ["a", "a"], time_unit="step")
    with pytest.raises(EventsError, match="no events"):
        empty = torch.empty(0, dtype=torch.int64)
        interop.from_temporal_data(TemporalData(src=empty, dst=empty, t=empty), time_unit="step")
