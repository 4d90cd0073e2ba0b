"""Logistic regression and boosting on pair features."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from run_folders import in_process
from small import make_graph, meetings, two_blocks
from torch.testing import assert_close

import dysat
from dysat.errors import ModelError
from dysat.features.pair_history import PairHistory
from dysat.models.heuristics import pair_models as module
from dysat.models.heuristics.pair_models import (
    PairBoosting,
    PairLogistic,
    PairModel,
    history_features,
    transition_examples,
)

BOTH = pytest.mark.parametrize("model", [PairLogistic(), PairBoosting(rounds=20)], ids=lambda model: str(model.method))


def random_graph(seed: int, size: int = 12, steps: int = 4, links: int = 10) -> dysat.DynamicGraph:
    """Random weighted links, some of them self-loops; two new nodes in every snapshot."""
    rng = np.random.default_rng(seed)
    known = [size - 2 * (steps - 1 - t) for t in range(steps)]
    drawn = [[tuple(rng.integers(0, n, 2).tolist()) for _ in range(links)] for n in known]
    weights = [rng.integers(1, 5, links).astype(float).tolist() for _ in known]
    return make_graph(known, drawn, weights=weights)


def all_pairs(size: int) -> NDArray[np.int64]:
    return np.stack(np.triu_indices(size, 1), axis=1)


def test_kinds_are_the_last_feature() -> None:
    graph = meetings().with_kinds([0, 1, 0, 1, 0, 1, 0, 1], ["user", "item"])
    pairs = all_pairs(8)
    assert np.array_equal(history_features(graph, 4, pairs, low_rank=False)[:, -1], (pairs.sum(1) % 2).astype(float))
    assert np.array_equal(transition_examples(graph, 1, low_rank=False, seed=0)[0][:5, -1], [0, 0, 1, 0, 1])


def test_self_loops_are_not_examples() -> None:
    links = [[(0, 1), (1, 2), (2, 3)], [(0, 2), (1, 3)]]
    loops = [[*part, (0, 0), (3, 3)] for part in links]
    one, two = (transition_examples(make_graph([4, 4], part), 6, low_rank=True, seed=0)[0] for part in (links, loops))
    assert np.array_equal(one, two)


def test_features_of_examples_end_before_their_links(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(0, steps=5, size=16)
    seen: list[tuple[int, int]] = []  # last step and number of pairs of each call
    original = PairHistory.basic_features

    def spy(self: PairHistory, pairs: NDArray[np.int64], *, low_rank: bool) -> NDArray[np.float64]:
        assert self.num_nodes == graph.known[self.now] and pairs.max() < self.num_nodes
        seen.append((self.now, len(pairs)))
        return original(self, pairs, low_rank=low_rank)

    monkeypatch.setattr(PairHistory, "basic_features", spy)
    x, y = transition_examples(graph, 3, low_rank=False, seed=0)
    assert [now for now, _ in seen] == [1, 2, 3]
    assert len(x) == len(y) == sum(number for _, number in seen) and y.sum() * 2 == len(y)
    first, _ = seen[0]
    known, (u, v, _) = graph.known[first], (part.numpy() for part in graph[first + 1].links())
    links = np.stack([u, v], 1)[(v < known) & (u != v)]
    assert np.array_equal(x[: len(links)], history_features(graph, first, links, low_rank=False))
    assert y[: len(links)].all()


def test_all_steps_of_a_growing_graph_have_the_same_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "THREE_STEP_NODES", 8)
    graph = meetings()  # 6, 7, 8, … nodes
    model = PairLogistic().fit(graph)
    widths = {history_features(graph, step, all_pairs(6), low_rank=True).shape[1] for step in range(5)}
    assert widths == {len(model.weights_)}
    assert history_features(graph[:2], 1, all_pairs(6), low_rank=True).shape[1] == len(model.weights_) + 1


def fresh(model: PairModel, **changes: Any) -> PairModel:
    return type(model)(**{**model.get_params(), **changes})


@BOTH
def test_planted_blocks_are_found(model: PairModel) -> None:
    graph = two_blocks()
    model = fresh(model).fit(graph[:-1])
    pairs = all_pairs(graph.num_nodes)
    u, v, _ = graph[-1].links()
    linked = np.isin(pairs[:, 0] * 30 + pairs[:, 1], u.numpy() * 30 + v.numpy())
    chances = model.score_links(pairs, ids=True)
    assert ((chances >= 0) & (chances <= 1)).all()
    above = chances[linked][:, None] - chances[~linked]
    assert ((above > 0).double() + 0.5 * (above == 0)).mean() > 0.8  # the blocks alone give about 0.9


@BOTH
def test_order_of_a_pair_does_not_matter(model: PairModel) -> None:
    model = fresh(model).fit(two_blocks(steps=3))
    pairs = torch.from_numpy(all_pairs(30))
    assert torch.equal(model.pair_scores(pairs), model.pair_scores(pairs.flip(1)))
    assert torch.equal(model.pair_scores(pairs, 1)[::7], model.pair_scores(pairs[::7], -2))
    assert len(model.pair_scores(pairs[:0])) == 0 and model.pair_scores(torch.tensor([[3, 3]])).isfinite().all()


@BOTH
def test_same_seed_gives_the_same_scores(model: PairModel) -> None:
    graph = two_blocks(steps=3)
    pairs = torch.from_numpy(all_pairs(30))
    first = fresh(model).fit(graph).pair_scores(pairs)
    not_cached = replace(graph, snapshots=tuple(replace(snapshot) for snapshot in graph))
    assert torch.equal(fresh(model).fit(two_blocks(20, 4)).fit(not_cached).pair_scores(pairs), first)
    assert not torch.equal(fresh(model, seed=1).fit(graph).pair_scores(pairs), first)


@BOTH
def test_later_snapshots_do_not_matter(model: PairModel) -> None:
    one, two = two_blocks(steps=4), two_blocks(steps=4, seed=1)
    two = replace(one, snapshots=(*one.snapshots[:3], two[3]))
    pairs = torch.from_numpy(all_pairs(30))
    scores = [fresh(model).fit(graph[:3]).pair_scores(pairs) for graph in (one, two)]
    assert torch.equal(*scores)
    scores = [fresh(model).fit(graph).pair_scores(pairs, 2) for graph in (one, two)]
    assert not torch.equal(*scores)  # what was learned differs


@pytest.mark.slow
def test_saved_and_loaded_without_scikit_learn(tmp_path: Path) -> None:
    graph, pairs = two_blocks(steps=3), torch.from_numpy(all_pairs(30))
    for model in (PairLogistic(), PairBoosting(rounds=20)):
        folder = tmp_path / model.method
        model.fit(graph).save(folder)
        torch.save((model.pair_scores(pairs), model.get_params()), tmp_path / f"{model.method}.pt")
    assert in_process(load_without_scikit_learn, tmp_path) == 0


def load_without_scikit_learn(folder: Path) -> None:
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # an import fails
    for kind in (PairLogistic, PairBoosting):
        model = kind.load(folder / kind.method)
        scores, values = torch.load(folder / f"{kind.method}.pt")
        assert torch.equal(model.pair_scores(torch.combinations(torch.arange(30))), scores)
        assert model.get_params() == values


def test_logistic_regression_matches_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    graph = two_blocks(steps=3)
    model = PairLogistic(l2=2.0).fit(graph)
    x, y = transition_examples(graph, 6, low_rank=True, seed=0)
    scaler = StandardScaler().fit(x)
    other = LogisticRegression(C=0.5, max_iter=10_000, tol=1e-10).fit(scaler.transform(x), y)
    features = history_features(graph, 2, all_pairs(30), low_rank=True)
    expected = torch.from_numpy(other.decision_function(scaler.transform(features)))
    assert_close(model.pair_scores(torch.from_numpy(all_pairs(30))), expected, atol=1e-3, rtol=1e-3)


@BOTH
def test_graphs_without_examples_are_refused(model: PairModel) -> None:
    with pytest.raises(ModelError, match="needs two snapshots, and the graph has one"):
        fresh(model).fit(meetings()[:1])
    with pytest.raises(ModelError, match="no link between nodes known before it"):
        fresh(model).fit(make_graph([2, 4], [[(0, 1)], [(2, 3), (1, 1)]]))
    with pytest.raises(ModelError, match="no pair without a link"):
        fresh(model).fit(make_graph([2, 2], [[(0, 1)], [(0, 1)]]))
    with pytest.raises(ModelError, match="learned nothing yet"):
        fresh(model).score_links([[0, 1]], ids=True)


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


def test_error_without_scikit_learn_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(ModelError, match="pip install scikit-learn"):
        PairBoosting().fit(two_blocks(steps=3))
    PairLogistic().fit(two_blocks(steps=3))


@pytest.mark.parametrize("model", [PairLogistic, PairBoosting])
def test_wrong_tensors_are_refused(model: type[PairModel]) -> None:
    with pytest.raises(ModelError, match="do not fit the model"):
        model()._restore({"other": torch.zeros(1)})
