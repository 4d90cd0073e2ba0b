"""Pair features against loops written from their definitions, and their ranks among uniform pairs."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from directed import directed_graph, random_arcs
from event_times import with_times
from numpy.testing import assert_allclose
from small import all_pairs, make_graph, two_blocks

import dysat
from dysat.data.windows import DAY
from dysat.errors import ModelError
from dysat.features import eigenvectors, longer_paths, node_ranges
from dysat.features import pair_history as module
from dysat.features.pair_history import PairHistory, history_of, pair_history, sorted_ends
from dysat.features.positions import low_rank_scores, pair_products
from dysat.features.rounding import fractional_ranks, narrow
from dysat.system.compiled import native

HOUR = DAY // 24


def random_graph(seed: int, size: int = 12, steps: int = 4, links: int = 10) -> dysat.DynamicGraph:
    """Random weighted links, some of them self-loops; two new nodes in every snapshot."""
    rng = np.random.default_rng(seed)
    known = [size - 2 * (steps - 1 - t) for t in range(steps)]
    drawn = [[tuple(rng.integers(0, n, 2).tolist()) for _ in range(links)] for n in known]
    weights = [rng.integers(1, 5, links).astype(float).tolist() for _ in known]
    return make_graph(known, drawn, weights=weights)


def slow_features(graph: dysat.DynamicGraph, step: int, u: int, v: int) -> list[float]:
    """The basic features of one pair, from dense matrices and loops."""
    n = graph.known[step]
    snapshots = []
    for snapshot in graph.snapshots[: step + 1]:
        w = np.zeros((n, n))
        for a, b, weight in zip(*(part.tolist() for part in snapshot.links()), strict=True):
            if a != b:
                w[a, b] = w[b, a] = weight
        snapshots.append(w)
    ages = [step - next(t for t in range(step + 1) if node < graph.known[t]) for node in (u, v)]
    rests = []
    for node, age in zip((u, v), ages, strict=True):
        linked = [t for t in range(step + 1) if snapshots[t][node].any()]
        rests.append(step - linked[-1] if linked else age + 1)
    decay = {f: [float(f ** (step - t)) for t in range(step + 1)] for f in (0, 0.3, 0.6, 0.9, 1)}
    m = {f: sum(d * w for d, w in zip(decay[f], snapshots, strict=True)) for f in decay}
    count = {f: sum(d * (w > 0).sum(1) for d, w in zip(decay[f], snapshots, strict=True)) for f in decay}
    found: list[float] = []
    for sums in ({f: m[f].sum(1) for f in m}, count):
        for f in sums:
            ends = math.log1p(sums[f][u]), math.log1p(sums[f][v])
            found += [min(ends), max(ends)]
    found += [min(ages), max(ages), min(rests), max(rests)]
    found += [math.log1p(m[f][u, v]) for f in m]
    found.append(min((step - t for t in range(step + 1) if snapshots[t][u, v]), default=step + 1))
    a = {f: np.log1p(m[f]) for f in m}
    damp = {f: 1 / np.log(2 + count[f]) for f in m}
    for f in (0, 0.6, 1):
        found.append(math.log1p(sum(a[f][u, z] * a[f][z, v] * damp[f][z] for z in range(n))))
    between = [(z, y) for z in range(n) for y in range(n)]
    found.append(math.log1p(sum(a[1][u, z] * a[1][z, y] * a[1][y, v] * damp[1][z] * damp[1][y] for z, y in between)))
    degree = a[1].sum(1) + a[1].sum(1).mean()
    for matrix in (a[1], a[1] / np.sqrt(np.outer(degree, degree))):
        left, sigma, right = np.linalg.svd(matrix)
        found += [(left[:, :r] * sigma[:r] @ right[:r])[u, v] for r in (4, 16, 64)]
        gram = left * sigma @ left.T
        found += [gram[u, v], *sorted(math.sqrt(gram[node, node]) for node in (u, v))]
    return found


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (1, 3), (2, 3)])
def test_basic_features_match_loops(seed: int, step: int) -> None:
    graph = random_graph(seed)
    pairs = all_pairs(graph.known[step]).numpy()[::2]
    slow = np.array([slow_features(graph, step, u, v) for u, v in pairs.tolist()])
    history = pair_history(graph.snapshots[: step + 1], True)
    fast = history.basic_features(pairs, low_rank=True)
    assert fast.shape == slow.shape
    assert_allclose(fast, slow, atol=2e-6)
    assert np.array_equal(history.basic_features(pairs, low_rank=False), fast[:, :-12])
    assert np.array_equal(history.prepared(steady=False).features(pairs)[0][:, : fast.shape[1]], fast)
    assert_allclose(history.features(pairs)[0][:, : fast.shape[1]], fast, atol=5e-6)
    without = np.delete(fast, fast.shape[1] - 13, axis=1)
    assert np.array_equal(PairHistory(graph.snapshots[: step + 1], False).basic_features(pairs, low_rank=True), without)


def test_kinds_order_the_features_of_both_nodes() -> None:
    """Of two kinds, the node of the first kind comes first, whichever has the larger value or the smaller id."""
    graph, pairs = with_times(random_graph(3)), all_pairs(12).numpy()
    kinds = np.array([1, 0, 0, 2, 1, 0, 2, 1, 0, 0, 1, 2], dtype=np.uint8)
    history, without = (history_of(g, 3, True) for g in (graph.with_kinds(kinds, ["a", "b", "c"]), graph))
    found, plain = history.features(pairs)[0], without.features(pairs)[0]
    one, two = kinds[pairs].T
    assert np.array_equal(found[one == two], plain[one == two])
    apart = one != two
    first, second = (np.where(one < two, *ends)[apart] for ends in (pairs.T, pairs.T[::-1]))
    for column, values in enumerate((*history.strengths, *history.degrees)):
        assert np.array_equal(found[apart, 2 * column], values[first])
        assert np.array_equal(found[apart, 2 * column + 1], values[second])
    changed = np.flatnonzero((found != plain).any(axis=0)).reshape(-1, 2)  # columns of both nodes are side by side
    assert len(changed) > 30 and (changed[:, 1] == changed[:, 0] + 1).all()
    for both in changed:
        assert np.array_equal(np.sort(found[:, both], axis=1), np.sort(plain[:, both], axis=1))
        swapped = (found[:, both] != plain[:, both]).any(axis=1)
        assert swapped.any() and np.array_equal(found[swapped][:, both], plain[swapped][:, both[::-1]])
    varying = [values for values in history.extended.node_values if np.ptp(values)]
    assert len(varying) > 10
    for values in varying:
        wanted = np.stack([values[first], values[second]], axis=1)
        assert any(np.array_equal(found[apart][:, both], wanted) for both in changed)
    basic = (each.basic_features(pairs, low_rank=True) for each in (history, without))
    assert np.array_equal(*basic)  # of opponents, which know no order of kinds
    earlier = history.prepared(by_kind=False)
    assert np.array_equal(earlier.features(pairs)[0], plain)
    assert np.array_equal(earlier.uniform_features, without.uniform_features)
    assert not np.array_equal(earlier.uniform_features, history.uniform_features)
    assert history.prepared() is history


def test_low_rank_scores_see_the_sides_of_a_bipartite_graph() -> None:
    rng = np.random.default_rng(0)
    links = [(int(u), int(v)) for u, v in zip(rng.integers(0, 10, 60), rng.integers(10, 25, 60), strict=True)]
    pairs = all_pairs(25).numpy()
    across = (pairs[:, 0] < 10) & (pairs[:, 1] >= 10)
    history = pair_history(make_graph([25], [links]).snapshots, True)
    values, vectors = history.spectra[0]
    *_, reconstructed, gram = low_rank_scores(values, pair_products(vectors, pairs))
    assert np.abs(reconstructed[~across]).max() < 1e-5 and np.abs(gram[across]).max() < 1e-5
    assert np.abs(reconstructed[across]).max() > 0.1 and np.abs(gram[~across]).max() > 0.1


def test_extended_features_by_hand() -> None:
    graph = make_graph([4, 4, 4], [[(0, 1), (1, 2)], [(0, 1)], [(1, 2), (2, 3)]], weights=[[3, 1], [1], [2, 2]])
    history = pair_history(graph.snapshots, True)
    sums = history.extended
    assert sums.num_links.tolist() == [2, 2, 1] and sums.first_link.tolist() == [0, 0, 2]  # of 01, 12, 23
    assert np.expm1(sums.node_values[0]).round(9).tolist() == [2, 3, 2, 1]  # snapshots with a link
    assert np.expm1(sums.node_values[2]).round(9).tolist() == [1, 2, 2, 1]  # neighbours
    assert np.expm1(sums.node_values[4]).round(9).tolist() == [0, 0, 1, 1]  # new ones in the last snapshot
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    columns, linked_before = history.features(pairs)
    assert linked_before.tolist() == [True, False, True]
    basic = history.basic_features(pairs, low_rank=True).shape[1]
    columns = columns[:, basic + 2 * len(sums.node_values) :]
    assert np.expm1(columns[:, 0]).round(9).tolist() == [2, 0, 2]
    assert columns[:, 1:4].tolist() == [[2, 1, 0], [0, 0, 0], [2, 2, -2]]  # since the first link, gap, steps overdue
    assert columns[:, 4:6].round(9).tolist() == [[0, 0], [0, 0], [0.5, 1]]  # shares of the last snapshot
    assert (columns[:, 8:10] * [7, 1]).round(9).tolist() == [[4, 1], [0, 0], [3, 0.6]]  # shares of all snapshots
    assert columns[:, -2].tolist() == [0, 0.5, 0]  # 0 and 2 have 1 in common; all their neighbours are 1 and 3


def test_links_at_the_same_time_of_day_are_features() -> None:
    links = [[(0, 1)], [(0, 1), (1, 2)], [(0, 1)], [(0, 2)], [(0, 3)]]
    graph = make_graph([4] * 5, links)

    def at_hours(edges: list[int]) -> PairHistory:
        windows = zip(graph, edges[:-1], edges[1:], strict=True)
        return PairHistory(tuple(replace(s, start=a * HOUR, stop=b * HOUR) for s, a, b in windows), True)

    history = at_hours([0, 6, 12, 18, 24, 30])  # the next window starts at 30: a day earlier is snapshot 1
    assert history.keys.tolist() == [1, 2, 3, 6]
    assert_allclose(history.extended.same_time, np.log1p([[1, 0, 0, 1], [0] * 4, [1, 0, 0, 1], [0] * 4]))
    pairs = np.array([[0, 1], [0, 2], [1, 2], [2, 3]])
    before = history.features(pairs)[0]
    moved = at_hours([0, 6, 12, 18, 24, 31]).features(pairs)[0]
    weekly = at_hours([168 * k for k in range(6)]).features(pairs)[0]
    assert before.shape == moved.shape == weekly.shape
    assert not np.array_equal(before, moved) and not np.array_equal(before, weekly)


@pytest.mark.parametrize(
    "links", [[], [(0, 1)], [(0, v) for v in range(1, 300)], [(v, v + 1) for v in range(0, 300, 2)]]
)
def test_graphs_of_low_rank_have_finite_and_reproducible_features(links: list[tuple[int, int]]) -> None:
    snapshots = make_graph([300], [links]).snapshots
    pairs = all_pairs(300).numpy()[::100]
    one, two = (PairHistory(snapshots, True).features(pairs)[0] for _ in range(2))
    assert np.isfinite(one).all()
    assert np.array_equal(one, two)


def test_features_depend_on_their_own_snapshots_only() -> None:
    graph, other = random_graph(0), random_graph(1)
    changed = replace(graph, snapshots=(*graph.snapshots[:3], other[3]))
    pairs = all_pairs(graph.known[2]).numpy()
    for step in (2, 3):
        one, two = (pair_history(g.snapshots[: step + 1], True).features(pairs)[0] for g in (graph, changed))
        assert np.array_equal(one, two) == (step == 2)


def test_self_loops_change_nothing() -> None:
    links = [[(0, 1), (1, 2), (2, 3)], [(0, 2), (1, 3)]]
    loops = [[*part, (0, 0), (3, 3)] for part in links]
    pairs = all_pairs(4).numpy()
    one, two = (pair_history(make_graph([4, 4], part).snapshots, True).features(pairs)[0] for part in (links, loops))
    assert np.array_equal(one, two)


def test_ranks_are_the_fraction_of_uniform_pairs_below() -> None:
    ordered = np.array([[1, 0], [2, 0], [2, 0], [5, 7]], dtype=np.float32)
    assert fractional_ranks(np.array([[2.0, 0.0], [0.0, 8.0]]), ordered).tolist() == [[0.5, 0.375], [0.0, 1.0]]
    assert fractional_ranks(np.array([[np.nan, 1.0]]), ordered).tolist() == [[1.0, 0.75]]
    assert fractional_ranks(np.ones((2, 3)), np.empty((0, 3), dtype=np.float32)).tolist() == [[0.5] * 3] * 2
    history = pair_history(two_blocks(steps=2).snapshots, True)
    features = history.features(all_pairs(30).numpy())[0]
    assert np.array_equal(history.uniform_features, np.sort(narrow(features), axis=0))  # all 435 pairs
    assert np.array_equal(history.ranks(features), fractional_ranks(features, history.uniform_features))
    wide = make_graph([100], [[(i, i + 1) for i in range(99)]])
    assert 1_900 < len(pair_history(wide.snapshots, True).uniform_features) < 2_000


@pytest.mark.parametrize("three_step", [True, False])
def test_compiled_and_chunked_features_have_the_same_bits(three_step: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if native() is None:
        pytest.skip("no C compiler")
    graph, rng = dysat.load_dataset("uci")[:3], np.random.default_rng(0)
    pairs = np.sort(rng.integers(0, graph.num_nodes, (3_000, 2)), axis=1)
    history = pair_history(graph.snapshots, three_step)
    columns = history.features(pairs)[0]
    ranks = history.ranks(columns)
    monkeypatch.setattr(longer_paths, "native", lambda: None)
    monkeypatch.setattr(longer_paths, "DENSE_CHUNK", 100 * graph.num_nodes)
    # SciPy's wheels for other machines fuse multiply and add, so that three-step paths differ in the last bits.
    rtol = 0 if platform.machine() in ("x86_64", "AMD64") else 1e-14
    assert_allclose(history.features(pairs)[0], columns, rtol=rtol, atol=0)
    assert np.array_equal(ranks, history.ranks(columns))
    monkeypatch.setattr(module, "CHUNK", 700)
    assert [len(chunk) for chunk in module.chunks(pairs)] == [700] * 4 + [200]
    parts = np.concatenate([history.features(chunk)[0] for chunk in module.chunks(pairs)])
    assert_allclose(parts, columns, atol=1e-12)
    basic = history.basic_features(pairs, low_rank=True)
    noisy = history.prepared(steady=False).features(pairs)[0]
    assert_allclose(basic, noisy[:, : basic.shape[1]], atol=1e-12)
    assert [len(chunk) for chunk in module.chunks(pairs[:0])] == [0]


@pytest.mark.parametrize("all_cores", [True, False])
def test_features_are_the_same_while_eigenvectors_are_found(all_cores: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a small graph are found on a core each, while the features that do not need them are computed."""
    graph, rng = dysat.load_dataset("uci")[:3], np.random.default_rng(0)
    pairs = np.sort(rng.integers(0, graph.num_nodes, (3_000, 2)), axis=1)
    monkeypatch.setattr(module, "CHUNK", 700)
    monkeypatch.setattr(eigenvectors, "BLOCK_NODES", 10)  # UCI has only a few hundred nodes in its first snapshots
    monkeypatch.setattr(module, "BLOCK_NODES", 10)
    if all_cores:
        monkeypatch.setattr(module, "SMALL_SPECTRUM", 10)
    history = PairHistory(graph.snapshots, True)
    events = list[str]()
    for name in ("begun_in_parts", "finished_parts"):
        monkeypatch.setattr(PairHistory, name, noted(name, getattr(PairHistory, name), events))
    monkeypatch.setattr(module, "leading_eigenvectors", noted("eigenvectors", module.leading_eigenvectors, events))
    with history.preparing():
        assert not all_cores or "spectra" in vars(history)
        parts = history.begun_in_parts(pairs)
    assert len(parts) == 5 and {"spectra", "norms", "extended"} <= vars(history).keys()
    features, ranks, linked_before = history.finished_parts(parts)
    assert events.count("eigenvectors") == 2 and events[-1] == "finished_parts"
    other = PairHistory(graph.snapshots, True)
    other.spectra = history.spectra
    columns, before = other.features(pairs)
    assert_allclose(features, columns, atol=1e-12)
    assert np.array_equal(ranks, other.ranks(features)) and np.array_equal(linked_before, before)


def noted(name: str, function: Callable[..., Any], events: list[str]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        events.append(name)
        return function(*args)

    return call


@pytest.mark.parametrize(("at_once", "of_range"), [(1, 10**6), (400, 10**6), (10**6, 1), (10**6, 200), (1, 1)])
def test_links_read_in_parts_give_the_same_bits(at_once: int, of_range: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of windows of six hours, which have a rhythm, with weights whose order of summation shows."""
    rng = np.random.default_rng(0)
    source = (*rng.integers(0, 20, (2, 900)), np.sort(rng.integers(0, 9, 900)))
    graph = dysat.build_snapshots(dysat.read_events((*source, rng.random(900)), time_unit="step"), every=1)
    hours = tuple(replace(s, start=6 * HOUR * i, stop=6 * HOUR * (i + 1)) for i, s in enumerate(graph))
    pairs = all_pairs(20).numpy()
    whole = PairHistory(hours, True).features(pairs)[0]
    in_parts(monkeypatch, at_once, of_range)
    history = PairHistory(hours, True)
    assert len(history.ranges.ranges) == {1: 20, 200: 6}.get(of_range, 1)
    assert history.extended.same_time[0].any() and np.array_equal(history.features(pairs)[0], whole)


def test_a_history_of_many_links_is_kept_in_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = dysat.load_dataset("uci")[:4]
    pairs = np.sort(np.random.default_rng(0).integers(0, graph.num_nodes, (3_000, 2)), axis=1)
    wide = pair_history(graph.snapshots, False)
    pairs = np.concatenate([pairs, np.stack(np.divmod(wide.keys[:500], wide.num_nodes), axis=1)])
    monkeypatch.setattr(module, "WIDE_LINKS", 1_000)
    narrow = PairHistory(graph.snapshots, False)
    assert (narrow.weights.dtype, narrow.neighbours.dtype) == (np.float32, np.int32)
    assert (wide.weights.dtype, wide.neighbours.dtype) == (np.float64, np.int64)
    for history in (wide, narrow):  # eigenvectors of close eigenvalues may be mixed in another way
        history.spectra = wide.spectra
    assert_allclose(narrow.features(pairs)[0], wide.features(pairs)[0], rtol=1e-4, atol=1e-6)
    assert PairHistory(graph.snapshots, True).weights.dtype == np.float64  # compiled functions read 64 bits


def test_one_history_of_a_large_graph_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(0)
    pair_history.cache_clear()
    kept = []
    for limit in (10**6, 0):
        monkeypatch.setattr(module, "WIDE_LINKS", limit)
        for step in (1, 2, 3):
            pair_history(graph.snapshots[:step], False)
        kept.append(pair_history.cache_info().currsize)
        pair_history.cache_clear()
    assert kept == [2, 1]


def test_ends_are_sorted_and_unknown_nodes_refused() -> None:
    assert sorted_ends(np.array([[2, 1], [0, 2]], dtype=np.int32), 3).tolist() == [[1, 2], [0, 2]]
    with pytest.raises(ModelError, match=r"^nodes 0 to 3, where 0 to 2 are known$"):
        sorted_ends(np.array([[3, 1], [0, 2]]), 3)


# ---- times inside windows ----


def slow_times(graph: dysat.DynamicGraph, step: int, u: int, v: int) -> list[float]:
    """The features of times of one pair, from loops over all past links."""
    n, last = graph.known[step], graph[step]
    age, weight = np.full((n, n), 1_000.0), np.zeros((3, n, n))
    links = np.zeros(n)
    for snapshot in graph.snapshots[: step + 1]:
        assert snapshot.latest is not None
        for a, b, w, time in zip(*(part.tolist() for part in (*snapshot.entries(), snapshot.latest)), strict=True):
            if a != b:
                moment = snapshot.start + time * (snapshot.stop - snapshot.start)
                here = (last.stop - moment) / (last.stop - last.start)
                age[a, b] = min(age[a, b], here)
                weight[:, a, b] += w * 0.5 ** (here / np.array([0.05, 0.2, 0.8]))
                links[a] += 1
    silent = [math.log1p(100 * age[node].min()) for node in (u, v)]
    found = [math.log1p(100 * age[u, v]), *sorted(silent)]
    for w in weight:
        a = np.log1p(10 * w)
        found += [a[u, v], *sorted(math.log1p(10 * w[node].sum()) for node in (u, v))]
        found.append(math.log1p(sum(a[u, z] * a[z, v] / math.log(2 + links[z]) for z in range(n))))
    return found


def uneven(graph: dysat.DynamicGraph) -> dysat.DynamicGraph:
    """The same graph with windows of different lengths."""
    edges = [10, 12, 19, 20, 24]
    windows = zip(graph, edges[:-1], edges[1:], strict=True)
    return replace(graph, snapshots=tuple(replace(s, start=a, stop=b) for s, a, b in windows))


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (1, 3), (2, 2)])
def test_features_of_times_match_loops(seed: int, step: int) -> None:
    graph = uneven(with_times(random_graph(seed), seed))
    pairs = all_pairs(graph.known[step]).numpy()
    slow = np.array([slow_times(graph, step, u, v) for u, v in pairs.tolist()])
    fast = pair_history(graph.snapshots[: step + 1], True).features(pairs)[0]
    assert_allclose(fast[:, -15:], slow, rtol=1e-9, atol=1e-9)


def test_features_of_times_by_hand() -> None:
    """Of 0 – 1 a quarter of a window ago and, with weight 3, two windows earlier; of 1 – 2 at the end; 3 is alone."""
    graph = make_graph([4] * 3, [[(0, 1)], [], [(0, 1), (1, 2)]], weights=[[3], [], [1, 2]])
    times = ([0.75], [], [0.75, 1])
    snapshots = []
    for snapshot, latest in zip(graph, times, strict=True):
        u, v, weights = (part.numpy() for part in snapshot.links())
        window = {"num_nodes": 4, "start": snapshot.start, "stop": snapshot.stop}
        timed = dysat.Snapshot.from_links(u, v, weights, **window, latest=np.array(latest, dtype=np.float32))
        snapshots.append(timed)
    history = PairHistory(tuple(snapshots), True)
    found = history.features(np.array([[0, 1], [0, 2], [2, 3]]))[0][:, -15:]
    never = 1_000
    ages = np.expm1(found[:, :3]) / 100
    assert_allclose(ages, [[0.25, 0, 0.25], [never, 0, 0.25], [never, 0, never]], atol=1e-9)
    near, far = 2**-1.25, 3 * 2**-11.25  # 0 – 1 with a half-life of 0.2 windows
    sums = np.expm1(found[:, 7:10]) / 10
    assert_allclose(sums, [[near + far, near + far, near + far + 2], [0, near + far, 2], [0, 0, 2]], atol=1e-9)
    two_step = math.log1p(10 * (near + far)) * math.log1p(20) / math.log(2 + 3)  # 1 has three links
    assert_allclose(found[:, 10], [0, math.log1p(two_step), 0], atol=1e-9)
    assert history.column_facts[-15:-8] == (
        *("last contact", "last active", "last active", "past links", "activity", "activity", "common neighbours"),
    )


@pytest.mark.parametrize("directed", [False, True])
def test_times_add_columns_and_change_no_other(directed: bool) -> None:
    plain = directed_graph([14] * 4, random_arcs(14, 30, 4)) if directed else random_graph(0)
    graph, pairs = with_times(plain), all_pairs(plain.num_nodes).numpy()
    timed, other = (PairHistory(g.snapshots, True) for g in (graph, plain))
    columns, before = timed.features(pairs)
    for found, expected in ((columns[:, :-15], other.features(pairs)[0]), (before, other.features(pairs)[1])):
        assert np.array_equal(found, expected)
    assert timed.column_facts[:-15] == other.column_facts and other.times is None
    for low_rank in (True, False):
        one, two = (history.basic_features(pairs, low_rank=low_rank) for history in (timed, other))
        assert np.array_equal(one, two)
    assert graph.without_times().equals(plain)


def test_a_history_with_one_snapshot_without_times_has_none() -> None:
    graph = with_times(random_graph(0))
    mixed = (*graph.snapshots[:3], replace(graph[3], latest=None))
    assert PairHistory(mixed, True).times is None


def in_parts(monkeypatch: pytest.MonkeyPatch, at_once: int, of_range: int) -> None:
    """Read few entries at once, of ranges of nodes with few entries."""
    monkeypatch.setattr(node_ranges, "ENTRIES_AT_ONCE", at_once)
    monkeypatch.setattr(node_ranges, "ENTRIES_OF_RANGE", of_range)
    monkeypatch.setattr(node_ranges, "LEAST_PIECE", 1)
    monkeypatch.setattr(module, "LINKS_AT_ONCE", max(1, at_once // 10))


@pytest.mark.parametrize(("at_once", "of_range"), [(1, 10**6), (15, 10**6), (10**6, 7), (1, 1)])
def test_times_read_in_parts_give_the_same_bits(at_once: int, of_range: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = uneven(with_times(random_graph(3, links=30)))
    pairs = all_pairs(graph.num_nodes).numpy()
    whole = PairHistory(graph.snapshots, True).features(pairs)[0]
    in_parts(monkeypatch, at_once, of_range)
    assert np.array_equal(PairHistory(graph.snapshots, True).features(pairs)[0], whole)


def test_the_oldest_links_are_as_old_as_what_never_happened() -> None:
    """After a thousand windows of the last one's length."""
    graph = with_times(make_graph([3, 3], [[(0, 1)], [(1, 2)]]))
    first, last = graph.snapshots
    history = PairHistory((replace(first, start=-5_000, stop=1), last), True)
    found = history.features(all_pairs(3).numpy())[0][:, -15:]
    assert np.isfinite(found).all() and found[:, 0].max() == pytest.approx(math.log1p(100 * 1_000))


def test_features_of_a_pair_do_not_depend_on_other_pairs() -> None:
    """To the last bit, also those of heuristics, which are not rounded."""
    graph = two_blocks()
    history, pairs = history_of(graph, 2, True), all_pairs(30).numpy()
    whole = history.basic_features(pairs, low_rank=True)
    for step in (2, 7, 100):
        assert np.array_equal(history.basic_features(pairs[::step].copy(), low_rank=True), whole[::step])
