"""Pair features against loops written from their definitions; the two models that learn from them."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small import make_graph, meetings, two_blocks
from torch.testing import assert_close

import dysat
from dysat.errors import ModelError
from dysat.features import eigenvectors as low_rank
from dysat.features import pair_history as module
from dysat.features.pair_history import pair_features, pair_history, transition_examples
from dysat.models.heuristics.pair_models import PairBoosting, PairLogistic, PairModel

BOTH = pytest.mark.parametrize("model", [PairLogistic(), PairBoosting(rounds=20)], ids=lambda model: str(model.method))


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    pair_history.cache_clear()
    module._examples.cache_clear()
    yield


def random_graph(seed: int, size: int = 12, steps: int = 4, links: int = 10) -> dysat.DynamicGraph:
    """Links at random with weights, self-loops among them; two nodes come in every snapshot."""
    rng = np.random.default_rng(seed)
    known = [size - 2 * (steps - 1 - t) for t in range(steps)]
    drawn = [[tuple(rng.integers(0, n, 2).tolist()) for _ in range(links)] for n in known]
    weights = [rng.integers(1, 5, links).astype(float).tolist() for _ in known]
    return make_graph(known, drawn, weights=weights)


def all_pairs(size: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(size), 2)))


def slow_features(graph: dysat.DynamicGraph, step: int, u: int, v: int, low_rank: bool) -> list[float]:
    """The features of one pair, from dense matrices and loops."""
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
    if low_rank:
        degree = a[1].sum(1) + a[1].sum(1).mean()
        for matrix in (a[1], a[1] / np.sqrt(np.outer(degree, degree))):
            left, sigma, right = np.linalg.svd(matrix)
            found += [(left[:, :r] * sigma[:r] @ right[:r])[u, v] for r in (4, 16, 64)]
            gram = left * sigma @ left.T
            found += [gram[u, v], *sorted(math.sqrt(gram[node, node]) for node in (u, v))]
    return [*found, 1.0]


@pytest.mark.parametrize("low_rank", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("step", [0, 3])
def test_features_are_those_of_the_loops(seed: int, step: int, low_rank: bool) -> None:
    graph = random_graph(seed)
    pairs = all_pairs(graph.known[step])
    slow = np.array([slow_features(graph, step, u, v, low_rank) for u, v in pairs.tolist()])
    fast = pair_features(graph, step, pairs, low_rank=low_rank)
    assert fast.shape == slow.shape
    np.testing.assert_allclose(fast, slow, atol=2e-6)


def test_large_graphs_go_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, pairs = random_graph(0, size=40, links=60), all_pairs(40)
    whole = pair_features(graph, -1 % len(graph), pairs, low_rank=True)
    monkeypatch.setattr(module, "AT_ONCE", 7)
    monkeypatch.setattr(module, "native", lambda: None)
    monkeypatch.setattr(module, "DENSE", 90)
    np.testing.assert_allclose(pair_features(graph, -1 % len(graph), pairs, low_rank=True), whole, atol=1e-12)


def test_many_nodes_have_the_same_spectrum_by_lanczos_as_by_the_whole_matrix() -> None:
    graph = random_graph(0, size=200, steps=2, links=2_000)
    pairs = all_pairs(200)[::50]
    matrix = pair_history(graph.snapshots, True)
    dense = np.zeros((200, 200))
    dense[matrix.keys // 200, matrix.keys % 200] = matrix.weights[-1]
    values = np.linalg.eigvalsh(dense + dense.T)
    found, vectors = matrix.spectra[0]
    assert vectors.shape == (200, 64)
    np.testing.assert_allclose(np.abs(found), np.sort(np.abs(values))[::-1][:64], rtol=1e-3)
    again = pair_features(graph, 1, pairs, low_rank=True)
    pair_history.cache_clear()
    assert np.array_equal(pair_features(graph, 1, pairs, low_rank=True), again)


@pytest.mark.parametrize(
    "links", [[], [(0, 1)], [(0, v) for v in range(1, 300)], [(v, v + 1) for v in range(0, 300, 2)]]
)
def test_graphs_of_low_rank_have_finite_features_and_the_same_again(links: list[tuple[int, int]]) -> None:
    graph = make_graph([300], [links])
    pairs = all_pairs(300)[::100]
    once = pair_features(graph, 0, pairs, low_rank=True)
    pair_history.cache_clear()
    assert np.isfinite(once).all()
    assert np.array_equal(pair_features(graph, 0, pairs, low_rank=True), once)


def test_the_sides_of_a_bipartite_graph_are_seen_without_kinds() -> None:
    rng = np.random.default_rng(0)
    links = [(int(u), int(v)) for u, v in zip(rng.integers(0, 10, 60), rng.integers(10, 25, 60), strict=True)]
    pairs = all_pairs(25)
    across = (pairs[:, 0] < 10) & (pairs[:, 1] >= 10)
    columns = pair_features(make_graph([25], [links]), 0, pairs, low_rank=True)
    reconstructed, gram = columns[:, -11], columns[:, -10]  # of log(1 + m)
    assert np.abs(reconstructed[~across]).max() < 1e-5 and np.abs(gram[across]).max() < 1e-5
    assert np.abs(reconstructed[across]).max() > 0.1 and np.abs(gram[~across]).max() > 0.1


def test_a_large_bipartite_graph_has_the_spectrum_of_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    links = [(int(u), int(v)) for u, v in zip(rng.integers(0, 80, 900), rng.integers(80, 250, 900), strict=True)]
    graph, pairs = make_graph([250], [links]), all_pairs(250)
    monkeypatch.setattr(low_rank, "TOLERANCE", 0.0)
    by_sides = pair_features(graph, 0, pairs, low_rank=True)
    pair_history.cache_clear()
    monkeypatch.setattr(low_rank, "_side", lambda matrix: None)
    np.testing.assert_allclose(by_sides, pair_features(graph, 0, pairs, low_rank=True), atol=1e-5)


def test_kinds_say_which_nodes_can_meet() -> None:
    graph = meetings().with_kinds([0, 1, 0, 1, 0, 1, 0, 1], ["user", "item"])
    pairs = all_pairs(8)
    assert np.array_equal(pair_features(graph, 4, pairs, low_rank=False)[:, -1], (pairs.sum(1) % 2).astype(float))
    assert np.array_equal(transition_examples(graph, 1, low_rank=False, seed=0)[0][:5, -1], [0, 0, 1, 0, 1])


@pytest.mark.parametrize("low_rank", [False, True])
def test_features_do_not_change_with_a_later_snapshot_and_do_with_their_own(low_rank: bool) -> None:
    graph, other = random_graph(0), random_graph(1)
    changed = replace(graph, snapshots=(*graph.snapshots[:3], other[3]))
    pairs = all_pairs(graph.known[2])
    one, two = (pair_features(g, 2, pairs, low_rank=low_rank) for g in (graph, changed))
    assert np.array_equal(one, two)
    one, two = (pair_features(g, 3, pairs, low_rank=low_rank) for g in (graph, changed))
    assert not np.array_equal(one, two)


def test_self_loops_change_nothing() -> None:
    links = [[(0, 1), (1, 2), (2, 3)], [(0, 2), (1, 3)]]
    loops = [[*part, (0, 0), (3, 3)] for part in links]
    pairs = all_pairs(4)
    one, two = (pair_features(make_graph([4, 4], part), 1, pairs, low_rank=True) for part in (links, loops))
    assert np.array_equal(one, two)
    one, two = (transition_examples(make_graph([4, 4], part), 6, low_rank=True, seed=0)[0] for part in (links, loops))
    assert np.array_equal(one, two)


def test_examples_are_transitions_and_their_features_end_before_the_links(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(0, steps=5, size=16)
    seen: list[tuple[int, int]] = []  # how many snapshots were looked at, for how many pairs
    original = module.PairHistory.features

    def spy(self: module.PairHistory, pairs: NDArray[np.int64], far: bool) -> NDArray[np.float64]:
        assert self.num_nodes == graph.known[self.now] and pairs.max() < self.num_nodes
        seen.append((self.now, len(pairs)))
        return original(self, pairs, far)

    monkeypatch.setattr(module.PairHistory, "features", spy)
    x, y = transition_examples(graph, 3, low_rank=False, seed=0)
    assert [now for now, _ in seen] == [1, 2, 3]
    assert len(x) == len(y) == sum(number for _, number in seen) and y.sum() * 2 == len(y)
    first, _ = seen[0]
    known, (u, v, _) = graph.known[first], (part.numpy() for part in graph[first + 1].links())
    links = np.stack([u, v], 1)[(v < known) & (u != v)]
    assert np.array_equal(x[: len(links)], pair_features(graph, first, links, low_rank=False)) and y[: len(links)].all()


def test_a_graph_that_grows_past_three_step_paths_has_the_same_features_at_all_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_NODES", 8)
    graph = meetings()  # 6, 7, 8, … nodes
    model = PairLogistic().fit(graph)
    widths = {pair_features(graph, step, all_pairs(6), low_rank=True).shape[1] for step in range(5)}
    assert widths == {len(model.weights_)}
    assert pair_features(graph[:2], 1, all_pairs(6), low_rank=True).shape[1] == len(model.weights_) + 1


def quick(model: PairModel, **changes: Any) -> PairModel:
    return type(model)(**{**model.values(), **changes})


@BOTH
def test_two_planted_blocks_are_found(model: PairModel) -> None:
    graph = two_blocks()
    model = quick(model).fit(graph[:-1])
    pairs = all_pairs(graph.num_nodes)
    u, v, _ = graph[-1].links()
    linked = np.isin(pairs[:, 0] * 30 + pairs[:, 1], u.numpy() * 30 + v.numpy())
    chances = model.score_links(pairs)
    assert ((chances >= 0) & (chances <= 1)).all()
    above = chances[linked][:, None] - chances[~linked]
    assert ((above > 0).double() + 0.5 * (above == 0)).mean() > 0.8  # the blocks alone give about 0.9


@BOTH
def test_the_order_of_a_pair_does_not_matter(model: PairModel) -> None:
    model = quick(model).fit(two_blocks(steps=3))
    pairs = torch.from_numpy(all_pairs(30))
    assert torch.equal(model.pair_scores(pairs), model.pair_scores(pairs.flip(1)))
    assert torch.equal(model.pair_scores(pairs, 1)[::7], model.pair_scores(pairs[::7], -2))
    assert len(model.pair_scores(pairs[:0])) == 0 and model.pair_scores(torch.tensor([[3, 3]])).isfinite().all()


@BOTH
def test_the_same_seed_gives_the_same_scores_and_another_does_not(model: PairModel) -> None:
    graph = two_blocks(steps=3)
    pairs = torch.from_numpy(all_pairs(30))
    once = quick(model).fit(graph).pair_scores(pairs)
    nothing_remembered = replace(graph, snapshots=tuple(replace(snapshot) for snapshot in graph))
    assert torch.equal(quick(model).fit(two_blocks(20, 4)).fit(nothing_remembered).pair_scores(pairs), once)
    assert not torch.equal(quick(model, seed=1).fit(graph).pair_scores(pairs), once)


@BOTH
def test_what_is_learned_from_the_past_does_not_change_with_what_comes(model: PairModel) -> None:
    one, two = two_blocks(steps=4), two_blocks(steps=4, seed=1)
    two = replace(one, snapshots=(*one.snapshots[:3], two[3]))
    pairs = torch.from_numpy(all_pairs(30))
    scores = [quick(model).fit(graph[:3]).pair_scores(pairs) for graph in (one, two)]
    assert torch.equal(*scores)
    scores = [quick(model).fit(graph).pair_scores(pairs, 2) for graph in (one, two)]
    assert not torch.equal(*scores)  # what was learned differs


@BOTH
def test_saved_and_loaded_without_scikit_learn(model: PairModel, tmp_path: Path) -> None:
    model = quick(model).fit(two_blocks(steps=3))
    pairs = torch.from_numpy(all_pairs(30))
    model.save(tmp_path / "model")
    torch.save(model.pair_scores(pairs), tmp_path / "scores.pt")
    program = f"""
import sys, torch
sys.modules["sklearn"] = None  # an import fails
from dysat.models.heuristics.pair_models import {type(model).__name__} as Model
model = Model.load({str(tmp_path / "model")!r})
scores = torch.load({str(tmp_path / "scores.pt")!r})
assert torch.equal(model.pair_scores(torch.combinations(torch.arange(30))), scores)
assert model.values() == {model.values()!r}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_logistic_regression_is_scikit_learns_on_standardised_features() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    graph = two_blocks(steps=3)
    model = PairLogistic(l2=2.0).fit(graph)
    x, y = transition_examples(graph, 6, low_rank=True, seed=0)
    scaler = StandardScaler().fit(x)
    other = LogisticRegression(C=0.5, max_iter=10_000, tol=1e-10).fit(scaler.transform(x), y)
    features = pair_features(graph, 2, all_pairs(30), low_rank=True)
    expected = torch.from_numpy(other.decision_function(scaler.transform(features)))
    assert_close(model.pair_scores(torch.from_numpy(all_pairs(30))), expected, atol=1e-3, rtol=1e-3)


@BOTH
def test_what_cannot_be_learned_from_gets_one_line(model: PairModel) -> None:
    with pytest.raises(ModelError, match="needs two snapshots, and the graph has one"):
        quick(model).fit(meetings()[:1])
    with pytest.raises(ModelError, match="no link between nodes known before it"):
        quick(model).fit(make_graph([2, 4], [[(0, 1)], [(2, 3), (1, 1)]]))
    with pytest.raises(ModelError, match="no pair without a link"):
        quick(model).fit(make_graph([2, 2], [[(0, 1)], [(0, 1)]]))
    with pytest.raises(ModelError, match="learned nothing yet"):
        quick(model).score_links([[0, 1]])


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (PairLogistic, {"transitions": 0}),
        (PairLogistic, {"l2": -1.0}),
        (PairLogistic, {"seed": -1}),
        (PairBoosting, {"rounds": 0}),
        (PairBoosting, {"leaves": 1}),
        (PairBoosting, {"learning_rate": 0.0}),
        (PairBoosting, {"l2": float("nan")}),
        (PairBoosting, {"split_features": 0.0}),
    ],
)
def test_options_out_of_range_are_refused(model: type[PairModel], options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=next(iter(options))):
        model(**options)


def test_without_scikit_learn_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(ModelError, match="pip install scikit-learn"):
        PairBoosting().fit(two_blocks(steps=3))
    PairLogistic().fit(two_blocks(steps=3))


@pytest.mark.parametrize("model", [PairLogistic, PairBoosting])
def test_foreign_weights_are_refused(model: type[PairModel]) -> None:
    with pytest.raises(ModelError, match="do not fit the model"):
        model()._restore({"other": torch.zeros(1)})
