"""The paper's four datasets: exact counts, or a clear error if a file is missing."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import dysat
from dysat.data.datasets import DATASETS

# Known nodes, events and self-loops per snapshot, counted from the raw files by other means.
KNOWN = {
    "enron": (18, 23, 24, 50, 66, 79, 98, 110, 117, 125, 131, 135, 137, 138, 141, 143),
    "uci": (497, 975, 1223, 1501, 1655, 1705, 1722, 1741, 1750, 1774, 1781, 1795, 1809),
    "yelp": (1208, 1719, 2175, 2631, 3086, 3451, 3815, 4165, 4489, 4841, 5221, 5593, 5953, 6197, 6425, 6569),
    "ml-10m": (6058, 7588, 8825, 10030, 11529, 12766, 15193, 16097, 17168, 18036, 19494, 20265, 20537),
}
EVENTS = {
    "enron": (237, 184, 216, 570, 649, 877, 1273, 2164, 2688, 2612, 2601, 2852, 1448, 581, 2125, 1707),
    "uci": (4691, 13329, 10639, 13399, 4814, 2817, 523, 1773, 995, 1007, 805, 782, 885),
}
TOTALS = {"enron": (2_347, 879), "uci": (16_822, 13_228), "yelp": (95_361, 95_361), "ml-10m": (49_271, 43_760)}
ENRON_SELF_LOOPS = (0, 1, 2, 7, 9, 10, 11, 13, 18, 23, 21, 23, 14, 16, 30, 30)


def test_counts_and_sides_match_the_paper(dataset: tuple[str, dysat.DynamicGraph]) -> None:
    name, graph = dataset
    assert tuple(s.num_links for s in graph) == DATASETS[name].links
    assert graph.num_nodes == DATASETS[name].num_nodes
    assert graph.known == KNOWN[name]
    assert (sum(s.num_links for s in graph), graph.num_distinct_links) == TOTALS[name]
    if name in EVENTS:
        assert tuple(s.total_weight for s in graph) == EVENTS[name]
    loops = tuple(s.num_self_loops for s in graph)
    assert loops == (ENRON_SELF_LOOPS if name == "enron" else (0,) * len(graph))
    assert DATASETS[name].predicted.stop == len(graph)
    expected = {"yelp": {"business": 2628, "user": 3941}, "ml-10m": {"user": 4009, "tag": 16528}}
    assert graph.kind_counts == expected.get(name, {})
    if graph.kinds is not None:
        for snapshot in graph:
            u, v, _ = snapshot.links()
            assert (graph.kinds[u] != graph.kinds[v]).all()


def test_yelp_sides_match_the_published_list(shared_data: Path) -> None:
    graph = dysat.load_dataset("yelp", shared_data)
    with open(shared_data / "yelp" / "node_side_inferred.csv") as file:
        listed = {int(row["node"]): row["side"] for row in csv.DictReader(file)}
    assert graph.kinds is not None
    assert {
        label: graph.kind_names[kind] for label, kind in zip(graph.nodes.tolist(), graph.kinds, strict=True)
    } == listed


def test_two_editions_of_uci_give_the_same_snapshots(shared_data: Path) -> None:
    from dysat.data.windows import DAY, as_datetime

    events = dysat.read_events(shared_data / "uci" / "out.opsahl-ucsocial")
    start, stop = int(events.time[0]) + 5 * DAY, int(events.time[-1]) - 60 * DAY + 1
    other = dysat.build_snapshots(events, every="10d", start=as_datetime(start), stop=as_datetime(stop))
    assert tuple(s.num_links for s in other) == DATASETS["uci"].links and other.known == KNOWN["uci"]


def test_uci_needs_no_file() -> None:
    assert dysat.load_dataset("uci", data_dir="/nowhere").num_nodes == 1809


def test_an_unknown_name() -> None:
    with pytest.raises(
        dysat.DatasetError, match=r"no dataset 'ucl'; there are enron, uci, yelp, ml-10m; did you mean 'uci'"
    ):
        dysat.load_dataset("ucl")


def test_a_missing_file_is_named_with_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYSAT_DATA", str(tmp_path))
    with pytest.raises(dysat.DatasetError) as caught:
        dysat.load_dataset("yelp")
    for part in (str(tmp_path / "yelp" / "Yelp_16.csv"), "missing", "get it from", "DyFormer", "DYSAT_DATA"):
        assert part in str(caught.value)


def test_a_wrong_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "yelp").mkdir()
    (tmp_path / "yelp" / "Yelp_16.csv").write_text("user_id,item_id,timestamp\n1,2,0\n")
    with pytest.raises(dysat.DatasetError, match=r"not the expected file \(sha256 .*expected 3b1076222ede"):
        dysat.load_dataset("yelp", tmp_path)


def test_data_folder_by_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dysat.data.datasets import data_folder

    monkeypatch.delenv("DYSAT_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "dysat"
    monkeypatch.setenv("DYSAT_DATA", str(tmp_path / "env"))
    assert data_folder() == tmp_path / "env"
    assert data_folder(tmp_path / "arg") == tmp_path / "arg"
