"""Past links of ranges of nodes, against loops over all links."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dysat.data.csr import Snapshot
from dysat.errors import GraphError
from dysat.features import node_ranges as module
from dysat.features.link_memory import past_links
from dysat.features.node_ranges import Entries, NodeRange, NodeRanges, node_ranges, rows_of, some_past_entries


def snapshots_of(number: int, *, nodes: int = 40, links: int = 60, times: bool = False) -> tuple[Snapshot, ...]:
    """Random snapshots with self-loops; the first node has no link, and the last ten appear in the last snapshot."""
    rng, made = np.random.default_rng(number), []
    for step in range(number):
        known = nodes if step == number - 1 else 3 * nodes // 4
        u, v = rng.integers(1, known, (2, links))
        made.append(
            Snapshot.from_links(
                u, v, rng.integers(1, 5, links).astype(float), num_nodes=known, start=step, stop=step + 1,
                latest=rng.random(links).astype(np.float32) if times else None,
            )
        )  # fmt: skip
    return tuple(made)


def small_ranges(monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    monkeypatch.setattr(module, "ENTRIES_OF_RANGE", entries)
    monkeypatch.setattr(module, "LEAST_PIECE", 1)


@pytest.mark.parametrize("entries", [1, 50, 10**6])
def test_ranges_cover_all_nodes_and_have_about_equal_numbers_of_entries(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_ranges(monkeypatch, entries)
    snapshots = snapshots_of(3)
    ranges = node_ranges(snapshots)
    assert [low for low, _ in ranges] == [0, *(high for _, high in ranges[:-1])] and ranges[-1][1] == 40
    assert all(low < high for low, high in ranges)
    sizes = [sum(len(part.neighbours) for part in rows_of(snapshots, *nodes)) for nodes in ranges]
    assert sum(sizes) == sum(len(snapshot.neighbours) for snapshot in snapshots)
    most_of_a_node = max(np.bincount(np.concatenate([s.entries()[0].numpy() for s in snapshots])))
    assert max(sizes) <= 2 * entries + most_of_a_node and (len(ranges) == 1) == (entries > sum(sizes))


def test_many_small_snapshots_are_one_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRIES_OF_RANGE", 1)
    monkeypatch.setattr(module, "LEAST_PIECE", 200)
    assert len(node_ranges(snapshots_of(5))) == 1 and len(node_ranges(snapshots_of(2, links=1000))) > 1


@pytest.mark.parametrize("nodes", [0, 1, 5])
def test_a_graph_without_links_is_one_range(nodes: int) -> None:
    none = np.empty(0, dtype=np.int64)
    snapshots = (Snapshot.from_links(none, none, None, num_nodes=nodes, start=0, stop=1),)
    assert node_ranges(snapshots) == [(0, nodes)]
    (entries,) = some_past_entries(snapshots)
    assert [len(part) for part in (*entries, entries.once(), entries.rows())] == [0] * 7
    seen = list[NodeRange]()
    NodeRanges(snapshots).add(seen.append)
    assert len(seen[0].keys) == 0 and [len(which) for _, _, which in seen[0].entries()] == [0]


def test_rows_of_a_range_share_the_arrays() -> None:
    snapshots = snapshots_of(2, times=True)
    assert rows_of(snapshots, 0, 40) is snapshots
    for part, whole in zip(rows_of(snapshots, 10, 20), snapshots, strict=True):
        receivers, neighbours, weights = (each.numpy() for each in whole.entries())
        inside = (receivers >= 10) & (receivers < 20)
        expected = receivers[inside], neighbours[inside], weights[inside]
        for found, own in zip(part.entries(), expected, strict=True):
            assert_array_equal(found.numpy(), own)
        assert part.latest is not None and whole.latest is not None
        assert_array_equal(part.latest.numpy(), whole.latest.numpy()[inside])
        assert part.neighbours.untyped_storage().data_ptr() == whole.neighbours.untyped_storage().data_ptr()


@pytest.mark.parametrize("entries", [1, 70, 10**6])
def test_every_link_is_found_once(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Summed weights, and numbers of links of nodes, by loops."""
    small_ranges(monkeypatch, entries)
    snapshots = snapshots_of(4)
    weights, counts = dict[tuple[int, int], float](), dict[tuple[int, int], int]()
    for u, v, weight, step in zip(*(part.tolist() for part in past_links(snapshots)), strict=True):
        weights[u, v] = weights.get((u, v), 0) + weight
        for node in (u, v):
            counts[node, step] = counts.get((node, step), 0) + 1
    ranges = NodeRanges(snapshots)
    assert_array_equal(ranges.keys, sorted(u * 40 + v for u, v in weights))
    found, at_nodes = np.zeros(len(ranges.keys)), dict[tuple[int, int], int]()

    def add(part: NodeRange) -> None:
        for entries, once, which in part.entries():
            np.add.at(found[part.links], which, entries.weights[once])
            for node, step, count in zip(*(a.tolist() for a in entries.at_rows(entries.rows())), strict=True):
                assert part.nodes.start <= node < part.nodes.stop
                at_nodes[node, step] = at_nodes.get((node, step), 0) + count

    ranges.add(add)
    assert found.tolist() == [weights[key] for key in sorted(weights)]
    assert at_nodes == counts


def test_ages_are_measured_in_lengths_of_the_last_window() -> None:
    """Two windows, of 10 and 4 steps; a self-loop has no age."""
    ends = np.array([0, 1, 2]), np.array([1, 2, 2])
    first, last = (
        Snapshot.from_links(*ends, np.array([1.0, -2.0, 1.0]), num_nodes=3, start=a, stop=b, latest=times)
        for a, b, times in (
            (0, 10, np.array([0, 0.5, 0], dtype=np.float32)),
            (10, 14, np.array([0.25, 1, 0], dtype=np.float32)),
        )
    )

    def links(entries: Entries) -> list[list[float]]:
        return [part[entries.once()].tolist() for part in entries]

    (entries,) = some_past_entries((first, last), ages=True)
    assert links(entries) == [[0, 1] * 2, [1, 2] * 2, [1, 0] * 2, [0, 0, 1, 1], [14 / 4, 9 / 4, 3 / 4, 0]]
    (entries,) = some_past_entries((first,), ages=True)
    assert links(entries)[4] == [1, 0.5]
    with pytest.raises(GraphError, match="the snapshot does not know when the last event of a link happened"):
        list(some_past_entries(snapshots_of(2), ages=True))
