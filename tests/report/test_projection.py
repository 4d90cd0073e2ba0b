"""Positions on the map, nearest nodes and communities."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from by_links import graph_of
from numpy.typing import NDArray

from dysat.data.csr import Snapshot
from dysat.errors import ModelError
from dysat.report import projection
from dysat.report.projection import communities, modularity, nearest, positions
from dysat.system import compiled

STEPS, GROUPS, MEMBERS, WIDTH = 5, 3, 60, 16
STILL, CROSSING = 0, 1  # two nodes of group 0
Floats = NDArray[np.float32]


def drifting() -> list[Floats]:
    """Three groups that drift a little; node 1 crosses from group 0 to group 1 at step 3. Half start at step 0."""
    rng = np.random.default_rng(0)
    centre, drift = rng.standard_normal((2, GROUPS, WIDTH)) * [[[3.0]], [[0.1]]]
    own = rng.standard_normal((GROUPS * MEMBERS, WIDTH))
    groups = np.arange(GROUPS * MEMBERS) % GROUPS
    groups[[STILL, CROSSING]] = 0
    found = []
    for step in range(STEPS):
        now = groups.copy()
        now[CROSSING] = int(step >= 3)
        e = centre[now] + step * drift[now] + own
        e[STILL] = centre[0] + own[STILL]
        found.append(e[: len(e) if step else len(e) // 2].astype(np.float32))
    return found


def group_of(size: int) -> NDArray[np.int64]:
    return np.arange(size) % GROUPS


def distances(at: NDArray[np.int16]) -> NDArray[np.float64]:
    return np.linalg.norm(at[:, None].astype(np.float64) - at, axis=2)


def test_neighbours_on_the_map_are_neighbours_in_the_embedding() -> None:
    embeddings = drifting()
    for at, e in zip(positions(embeddings), embeddings, strict=True):
        others = np.arange(2, len(e))  # all but the two special nodes
        apart = distances(at[others])
        np.fill_diagonal(apart, np.inf)
        same = group_of(len(e))[others]
        assert (same[apart.argsort(1)[:, :10]] == same[:, None]).mean() > 0.99


def test_nodes_move_as_far_as_their_embeddings_change() -> None:
    at = positions(drifting()).astype(np.float64)
    moves = np.linalg.norm(np.diff(at[1:], axis=0), axis=2) / np.ptp(at[1:], axis=(0, 1)).max()  # [steps, N]
    assert moves[:, STILL].max() < 0.05
    assert moves[1, CROSSING] > 0.2  # step 2 to 3
    assert moves[[0, 2], CROSSING].max() < 0.1
    assert np.median(moves) < 0.05


def test_positions_fill_the_square_and_mark_unknown_nodes() -> None:
    embeddings = drifting()
    at = positions(embeddings)
    known = len(embeddings[0])
    assert at.dtype == np.int16 and at.shape == (STEPS, GROUPS * MEMBERS, 2)
    assert (at[0, known:] == projection.UNKNOWN).all() and (at[1:] > projection.UNKNOWN).all()
    assert (at[0, :known] > projection.UNKNOWN).all()
    inside = at[1:].astype(np.int64)
    assert np.ptp(inside, axis=(0, 1)).max() > 1.9 * projection.MOST


def test_positions_are_the_same_again() -> None:
    embeddings = drifting()
    np.testing.assert_array_equal(positions(embeddings), positions(embeddings))
    assert (positions(embeddings, seed=1) != positions(embeddings)).any()


def test_an_outlier_does_not_shrink_the_map() -> None:
    rng = np.random.default_rng(0)
    layout = rng.uniform(-1, 1, (1, 10_000, 2)).astype(np.float32)
    layout[0, 0] = 1_000
    at = projection._on_square(layout, [10_000])
    assert at[0, 0].tolist() == [projection.MOST] * 2 and at[0].std() > 15_000


def test_forces_are_those_of_the_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    y = 4 * rng.standard_normal((200, 2))
    neighbours = np.stack([rng.choice(np.delete(np.arange(200), i), 5, replace=False) for i in range(200)])
    p = np.zeros((200, 200))
    np.put_along_axis(p, neighbours, 0.1, 1)
    away = y[:, None] - y
    near = 1 / (1 + np.square(away).sum(2))
    attraction = np.einsum("ij,ijk->ik", (p + p.T) * near, away)
    repulsion = np.einsum("ij,ijk->ik", near**2, away) * 200 / (near.sum() - 200)
    now = torch.from_numpy(y.astype(np.float32))
    found = projection._Attraction(torch.from_numpy(neighbours))(now)
    np.testing.assert_allclose(found.numpy(), attraction, atol=1e-4)
    for cell, error in ((projection.CELL, 0.1), (0.2, 0.002)):  # a finer grid is more exact
        monkeypatch.setattr(projection, "CELL", cell)
        found = projection._Repulsion()(now)
        assert np.linalg.norm(found.numpy() - repulsion) < error * np.linalg.norm(repulsion)


def test_compiled_and_plain_forces_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    y = 10 * torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    neighbours = torch.randint(500, (500, 5), generator=torch.Generator().manual_seed(1))
    assert compiled.native() is not None
    compiled_forces = projection._Attraction(neighbours)(y), projection._Repulsion()(y)
    monkeypatch.setattr(projection, "native", lambda: None)
    plain = projection._Attraction(neighbours)(y), projection._Repulsion()(y)
    torch.testing.assert_close(compiled_forces, plain, rtol=1e-3, atol=1e-3)


def test_cells_find_most_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    centres = np.random.default_rng(0).standard_normal((40, 12))
    rows = np.repeat(centres, 50, axis=0) + 0.3 * np.random.default_rng(1).standard_normal((2_000, 12))
    rows = torch.nn.functional.normalize(torch.from_numpy(rows.astype(np.float32)))
    exact, products = projection._neighbours(rows, 10, 0)
    monkeypatch.setattr(projection, "EXACT_NODES", 100)
    found, similar = projection._neighbours(rows, 10, 0)
    assert (found != torch.arange(2_000).unsqueeze(1)).all()
    assert (found.unsqueeze(2) == exact.unsqueeze(1)).any(2).float().mean() > 0.9
    torch.testing.assert_close(similar, (rows[found] @ rows.unsqueeze(2)).squeeze(2))
    assert (similar <= products + 1e-6).all()


def test_cells_with_all_nodes_or_with_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "EXACT_NODES", 100)
    monkeypatch.setattr(projection, "BLOCK", 64)
    monkeypatch.setattr(projection, "PROBED", 1)
    equal = torch.nn.functional.normalize(torch.ones(400, 3))
    distinct = torch.cat([torch.eye(3), equal[3:]]) * torch.tensor([1.0, -1.0, 1.0])
    for rows in (equal, distinct):
        found, similar = projection._neighbours(rows, 15, 0)
        assert all(len(set(each)) == 15 for each in found.tolist())
        assert (found != torch.arange(400).unsqueeze(1)).all()
        torch.testing.assert_close(similar[3:], torch.ones(397, 15))


@pytest.mark.parametrize(("known", "width"), [((1,), 4), ((2, 3), 4), ((0, 5), 2), ((30,), 1), ((20, 20, 20), 8)])
def test_small_and_equal_embeddings_have_positions(known: tuple[int, ...], width: int) -> None:
    for e in (np.ones, np.zeros, np.random.default_rng(0).standard_normal):
        at = positions([e((size, width)).astype(np.float32) for size in known])  # type: ignore[operator]
        assert at.shape == (len(known), known[-1], 2)
        for step, size in enumerate(known):
            assert (at[step, :size] != projection.UNKNOWN).all() and (at[step, size:] == projection.UNKNOWN).all()


def test_no_step_and_no_node_have_no_positions() -> None:
    assert positions([]).shape == (0, 0, 2)
    assert positions([np.zeros((0, 3), dtype=np.float32)]).shape == (1, 0, 2)


def test_bad_embeddings_are_refused() -> None:
    good = np.ones((3, 2), dtype=np.float32)
    for value in (np.nan, np.inf):
        bad = good.copy()
        bad[1, 1] = value
        with pytest.raises(ModelError, match="not finite"):
            positions([good, bad])
        with pytest.raises(ModelError, match="not finite"):
            nearest(bad)
    with pytest.raises(ModelError, match="fewer nodes"):
        positions([good, good[:2]])
    with pytest.raises(ModelError, match="width"):
        positions([good, good[:, :1]])


def test_progress_ends_at_one() -> None:
    seen = list[float]()
    positions(drifting()[:3], on_progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == 1 and len(seen) == 3


def test_nearest_is_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "BLOCK", 16)  # several blocks, the last one smaller
    e = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    e *= np.exp(3 * np.random.default_rng(1).standard_normal((50, 1))).astype(np.float32)
    ids, cosines = nearest(e, 5)
    wide = e.astype(np.float64)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    products = wide @ wide.T
    np.fill_diagonal(products, -np.inf)
    expected = np.argsort(-products, axis=1)[:, :5]
    assert ids.dtype == np.uint32 and cosines.dtype == np.float32
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_allclose(cosines, np.take_along_axis(products, expected, 1), atol=1e-6)


def test_nearest_of_few_and_of_zero_vectors() -> None:
    ids, cosines = nearest(np.array([[1, 0], [0, 0], [3, 0]], dtype=np.float32), 4)
    assert ids[0].tolist() == [2, 1, *[0xFFFFFFFF] * 2] and cosines[0].tolist() == [1, 0, 0, 0]
    assert sorted(ids[1, :2]) == [0, 2] and not cosines[1].any()
    ids, cosines = nearest(np.full((2, 2), 1e30, dtype=np.float32), 1)  # its square is infinite
    assert ids.tolist() == [[1], [0]] and np.allclose(cosines, 1)
    assert (nearest(np.ones((1, 2), dtype=np.float32))[0] == 0xFFFFFFFF).all()


def planted() -> tuple[tuple[Snapshot, ...], NDArray[np.int64]]:
    """Two snapshots of blocks of 40, 30 and 20 nodes, and the block of each node."""
    chances = 0.02 + 0.28 * np.eye(3)
    blocks = [nx.stochastic_block_model([40, 30, 20], chances, seed=seed).edges for seed in (0, 1)]
    return graph_of([90, 90], [dict.fromkeys(links, 1.0) for links in blocks]).snapshots, np.repeat(
        [0, 1, 2], [40, 30, 20]
    )


def test_communities_are_planted_blocks_the_largest_first() -> None:
    snapshots, blocks = planted()
    found = communities(snapshots, 3)
    assert found.dtype == np.uint8
    assert (found == blocks).mean() > 0.97
    np.testing.assert_array_equal(found, communities(snapshots, 3))


def test_there_are_at_most_as_many_communities_as_asked_for() -> None:
    snapshots, _ = planted()
    for number in (1, 2, 8):
        found = communities(snapshots, number)
        assert (np.diff(np.bincount(found)) <= 0).all() and found.max() < number


def test_modularity_is_that_of_networkx() -> None:
    graph = nx.karate_club_graph()
    groups = np.arange(len(graph)) % 3
    expected = nx.community.modularity(graph, [np.flatnonzero(groups == g).tolist() for g in range(3)])
    assert modularity(nx.to_scipy_sparse_array(graph, format="csr"), groups) == pytest.approx(expected)


def test_refining_never_lowers_the_modularity() -> None:
    matrix = nx.to_scipy_sparse_array(nx.karate_club_graph(), format="csr")
    for seed in range(5):
        start = np.random.default_rng(seed).integers(4, size=34)
        assert modularity(matrix, projection._refined(matrix, start, 4, 0)) > modularity(matrix, start) + 0.1


def test_refining_ends_where_no_single_move_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "PARTS", 34)  # one node at a time
    for seed in range(10):  # trees with large hubs, whose own links weigh
        matrix = nx.to_scipy_sparse_array(nx.barabasi_albert_graph(34, 1, seed=seed), format="csr")
        found = projection._refined(matrix, np.random.default_rng(seed).integers(4, size=34), 4, seed)
        moved = np.tile(found, (34, 4, 1))  # [node, group, N]
        moved[np.arange(34), :, np.arange(34)] = np.arange(4)
        assert max(modularity(matrix, each) for each in moved.reshape(-1, 34)) < modularity(matrix, found) + 1e-9


def test_nodes_without_links_join_the_last_community() -> None:
    links = nx.disjoint_union(nx.complete_graph(6), nx.complete_graph(4)).edges
    found = communities(graph_of([12, 12], [dict.fromkeys(links, 1.0), {(10, 10): 1.0}]).snapshots)
    assert found.tolist() == [*[0] * 6, *[1] * 6]
    assert (communities(graph_of([3], [{(0, 0): 1.0}]).snapshots) == 0).all()
