"""Effects of facts on the pair score: against a slow loop, their sums, and against leaving facts out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from by_time import mornings_and_evenings
from directed import payments
from event_times import with_times
from scipy.stats import spearmanr
from small import QUICK, all_pairs, make_graph, meetings, two_blocks

import dysat
from dysat import DynamicGraph, DySAT, ModelError
from dysat.features.pair_attributes import with_attributes
from dysat.features.pair_history import history_of
from dysat.models.dysat import why_rows
from dysat.models.forecast import parts
from dysat.models.forecast import why as module
from dysat.models.forecast.boosting import tree_grower
from dysat.models.forecast.pair_score import PairScore
from dysat.models.forecast.parts import MAX_DEVIATIONS
from dysat.models.forecast.why import Explainer, explain, shares_of

OLD_RUNS = Path(__file__).parents[2] / "fixtures" / "old_runs"
NAMES = ("team=a", "team=b", "age", "age missing")


def with_people(graph: DynamicGraph) -> DynamicGraph:
    """Nodes of two kinds with a team and an age, which some do not have."""
    rng = np.random.default_rng(0)
    team, missing = rng.integers(0, 3, graph.num_nodes), rng.random(graph.num_nodes) < 0.2
    age = np.where(missing, 0.0, rng.normal(size=graph.num_nodes))
    graph = graph.with_kinds([node % 2 for node in range(graph.num_nodes)], ["user", "item"])
    return graph.with_features(np.stack([team == 0, team == 1, age, missing], 1).astype(float), names=NAMES)


GRAPHS = {
    "blocks": two_blocks(),
    "meetings": meetings(),
    "single": two_blocks(steps=1),
    "by-time": mornings_and_evenings(),
    "directed": payments(),
    "timed": with_times(two_blocks()),
    "people": with_people(two_blocks()),
    "unnamed": two_blocks().with_features(np.random.default_rng(1).normal(size=(30, 3))),
    "alone": make_graph([6, 9], [[(0, 1), (1, 2), (3, 4)], [(0, 1), (2, 3), (6, 7)]]),  # nodes 5 and 8 are
}


@cache
def score_of(name: str) -> PairScore:
    """A score with few trees in which all parts count, whatever the number of links."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "tree_grower", partial(tree_grower, rounds=20))
        score = PairScore.learn(GRAPHS[name])
    assert score is not None
    weights = torch.tensor([0.6, 0.4], dtype=torch.float64)
    return replace(score, tree_weights=weights, bias=score.bias + 0.8, slope=1.3, shift=-0.2)


def some_pairs(graph: DynamicGraph, number: int = 40) -> torch.Tensor:
    rng = np.random.default_rng(2)
    every = all_pairs(graph.num_nodes).numpy()
    some = rng.permutation(every)[:number]
    return torch.from_numpy(np.concatenate([some, some[:5, ::-1]]))


def slow_effects(score: PairScore, graph: DynamicGraph, pairs: torch.Tensor) -> tuple[np.ndarray, float, list[str]]:
    """The definition, in loops over pairs, columns, trees and splits."""
    step, history = len(graph) - 1, history_of(graph, len(graph) - 1, score.three_step)

    def read(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ends = ends if graph.directed else np.sort(ends, axis=1)
        columns, before = history.features(ends)
        features = with_attributes(columns, graph, step, ends)
        table = np.column_stack([features, history.ranks(columns)])
        standard = np.clip((table - score.means.numpy()) / score.scales.numpy(), -MAX_DEVIATIONS, MAX_DEVIATIONS)
        return features, standard, before

    explainer = Explainer(score, graph, step)
    belongs = [*explainer.columns, *history.column_facts]
    names = list(dict.fromkeys(belongs))
    features, standard, before = read(pairs.numpy())
    others, random, random_before = read(history.uniform_pairs)
    switch, known = names.index("sent" if graph.directed else "past links"), random_before.mean()
    expected = score.trees.expected(others)  # tested in tests/nn/test_trees.py
    weights, bias, tree_weights = score.weights.numpy(), score.bias.numpy(), score.tree_weights.numpy()

    def both(z: np.ndarray, trees: float) -> tuple[float, float]:
        """The score of a new pair, and of one that was linked before."""
        new, old = (float(weights[k] @ z + bias[k] + tree_weights[k] * trees) for k in (0, 1))
        return new, old

    raw = [
        both(z, tree)[int(linked)]
        for z, tree, linked in zip(random, score.trees.sum(others), random_before, strict=True)
    ]
    root = float(score.trees.baseline) + expected[:, 0].sum()
    means = both(random.mean(0), root)
    found = np.zeros((len(pairs), len(names)))
    for b in range(len(pairs)):
        on = np.zeros((3, len(names)))  # weights of new pairs and of pairs linked before, and the trees
        for column, fact in enumerate(belongs):
            on[:2, names.index(fact)] += weights[:, column] * (standard[b, column] - random[:, column].mean())
        for r in range(len(expected)):
            node = 0
            while int(score.trees.left[r, node]) != node:
                feature = int(score.trees.feature[r, node])
                smaller = features[b, feature] <= float(score.trees.threshold[r, node])
                child = int((score.trees.left if smaller else score.trees.right)[r, node])
                on[2, names.index(belongs[feature])] += expected[r, child] - expected[r, node]
                node = child
        new, old = (on[k] + tree_weights[k] * on[2] for k in (0, 1))
        for g in range(len(names)):
            if g == switch:
                continue
            told = old[g] if before[b] else new[g]  # it is known whether the pair was linked before
            untold = known * old[g] + (1 - known) * new[g]
            found[b, g] = (told + untold) / 2
        whole = means[int(before[b])] + (old if before[b] else new).sum()
        found[b, switch] = whole - np.mean(raw) - found[b].sum()
    return score.slope * found, score.slope * float(np.mean(raw)) + score.shift, names


@pytest.mark.parametrize("name", GRAPHS)
def test_effects_against_a_slow_loop(name: str) -> None:
    graph, score = GRAPHS[name], score_of(name)
    pairs = some_pairs(graph, 12)
    effects, baseline, facts = slow_effects(score, graph, pairs)
    found = explain(score, graph, len(graph) - 1, pairs)
    assert list(found.facts) == facts and found.baseline == pytest.approx(baseline, abs=1e-9)
    np.testing.assert_allclose(found.effects, effects, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", GRAPHS)
def test_effects_add_up_to_the_score(name: str) -> None:
    graph, score = GRAPHS[name], score_of(name)
    for step in {0, len(graph) - 1}:
        pairs = all_pairs(graph.known[step])
        pairs = torch.cat([pairs, pairs.flip(1), torch.zeros(1, 2, dtype=torch.int64)])  # and a node with itself
        found = explain(score, graph, step, pairs)
        expected = score.log_odds(graph, step, pairs).numpy()
        np.testing.assert_allclose(found.baseline + found.effects.sum(1), expected, rtol=0, atol=1e-9)


def test_the_baseline_is_the_mean_score_of_random_pairs() -> None:
    for name in ("blocks", "directed"):
        graph, score = GRAPHS[name], score_of(name)
        random = torch.from_numpy(history_of(graph, len(graph) - 1, True).uniform_pairs)
        found = explain(score, graph, len(graph) - 1, random)
        mean = score.log_odds(graph, len(graph) - 1, random).mean()
        assert found.baseline == pytest.approx(float(mean), abs=1e-9)
        np.testing.assert_allclose(found.effects.sum(1).mean(), 0, atol=1e-9)


def test_a_graph_with_one_node_has_no_random_pairs() -> None:
    graph = make_graph([1, 30], [[(0, 0)], [(0, 1)]])
    score, itself = score_of("blocks"), torch.zeros(1, 2, dtype=torch.int64)
    found = explain(score, graph, 0, itself)
    total = found.baseline + found.effects.sum(1)
    np.testing.assert_allclose(total, score.log_odds(graph, 0, itself).numpy(), rtol=0, atol=1e-9)
    assert module.reasons(score, graph, 0, itself, 99)[2][0]


def test_no_pairs() -> None:
    none = torch.empty(0, 2, dtype=torch.int64)
    for name in ("blocks", "directed", "people"):
        found = explain(score_of(name), GRAPHS[name], 2, none)
        assert found.effects.shape == (0, len(found.facts))
        texts, shares = module.reason_rows(score_of(name), GRAPHS[name], 2, none, 3)
        assert texts == [] and shares.shape == (0, 3)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, pairs = GRAPHS["people"], some_pairs(GRAPHS["people"])
    whole = module.reasons(score_of("people"), graph, 4, pairs, 4)
    monkeypatch.setattr("dysat.features.pair_history.CHUNK", 7)
    parts = module.reasons(score_of("people"), graph, 4, pairs, 4)
    np.testing.assert_allclose(whole[0], parts[0], rtol=0, atol=1e-9)
    assert [[r.text for r in row] for row in whole[2]] == [[r.text for r in row] for row in parts[2]]


def test_left_out_effects_by_hand() -> None:
    """Three facts of one pair: every random pair in turn takes the place of the columns of the fact."""
    graph, score = GRAPHS["blocks"], score_of("blocks")
    explainer, pairs = Explainer(score, graph, 4), all_pairs(30)[7:8]
    found = explainer.left_out(pairs, 5)
    own, history = explainer._examined(pairs.numpy()), explainer.history
    random = explainer._examined(history.uniform_pairs[[0, 87, 174, 261, 348]])
    for fact in ("activity", "past links", "position"):
        scores = []
        for other in range(5):
            features, ranks, before = own.features.copy(), own.ranks.copy(), own.linked_before
            for column, belongs in enumerate(explainer.columns):
                if belongs == fact:
                    features[:, column] = random.features[other, column]
                    ranks[:, column : column + 1] = random.ranks[other, column : column + 1]
            before = random.linked_before[other : other + 1] if fact == "past links" else before
            scores.append(score.slope * score.raw(features, ranks, before)[0])
        whole = score.slope * score.raw(own.features, own.ranks, own.linked_before)[0]
        effect = found.effects[0, found.facts.index(fact)]
        assert effect == pytest.approx(whole - np.mean(scores), abs=1e-9)


@pytest.mark.slow
def test_a_regression_alone_agrees_with_leaving_out() -> None:
    """Without trees and weights of pairs linked before, and against all random pairs, both effects are the same."""
    graph = GRAPHS["blocks"]
    score = score_of("blocks")
    same = {"weights": score.weights[[0, 0]], "bias": score.bias[[0, 0]]}
    score = replace(score, **same, tree_weights=torch.zeros(2, dtype=torch.float64))
    explainer, pairs = Explainer(score, graph, 4), some_pairs(graph, 5)
    every = len(explainer.random.pairs)
    one, two = explainer.effects(pairs), explainer.left_out(pairs, every)
    np.testing.assert_allclose(one.effects, two.effects, rtol=0, atol=1e-9)


def test_leaving_out_the_top_fact_matters_most() -> None:
    graph = GRAPHS["blocks"]
    score = PairScore.learn(graph)
    assert score is not None
    explainer, pairs = Explainer(score, graph, 4), all_pairs(30)
    one, two = explainer.effects(pairs).effects, explainer.left_out(pairs).effects
    top = np.abs(one).argmax(1)
    among = (np.argsort(-np.abs(two), axis=1)[:, :2] == top[:, None]).any(1)
    assert among.mean() > 0.8
    assert np.mean([spearmanr(a, b).statistic for a, b in zip(one, two, strict=True)]) > 0.8


def test_a_planted_fact_is_the_top_fact() -> None:
    """Links are drawn within teams at random, so that an attribute explains them and the past does not."""
    rng, links, size = np.random.default_rng(0), [], 60
    for _ in range(6):
        pairs = rng.integers(0, size, (400, 2))
        links.append([(int(u), int(v)) for u, v in pairs if u < v and u % 3 == v % 3][:40])
    teams = np.eye(3)[np.arange(size) % 3]
    graph = make_graph([size] * 6, links).with_features(teams, names=("team=x", "team=y", "team=z"))
    model = DySAT(embeddings=False).fit(graph)
    found = model.why([(u, u + 3) for u in range(0, 50, 5)], number=20)
    teams_first = [next(r for r in each.reasons if r.fact == "attribute team") for each in found]
    assert all(reason.effect > 0 and reason.text.startswith("same team: ") for reason in teams_first)
    assert np.mean([each.reasons[0].fact == "attribute team" for each in found]) >= 0.7


@pytest.fixture(scope="module")
def model() -> DySAT:
    return DySAT(embeddings=False).fit(meetings(np.array(list("abcdefgh"), dtype=object)))


def test_why(model: DySAT) -> None:
    pairs = [("a", "b"), ("h", "e")]
    found = model.why(pairs, number=3)
    assert [(each.u, each.v) for each in found] == pairs
    scores = model.pair_scores(torch.tensor([[0, 1], [7, 4]]))
    torch.testing.assert_close(torch.tensor([each.log_odds for each in found]).double(), scores, rtol=0, atol=1e-6)
    every = model.why(pairs, number=99)
    for few, all_ in zip(found, every, strict=True):
        assert few.reasons == all_.reasons[:3] and few.baseline == all_.baseline == found[0].baseline
        effects = [reason.effect for reason in all_.reasons]
        assert effects == sorted(effects, key=abs, reverse=True) and all(effects)
        assert few.log_odds - few.baseline == pytest.approx(sum(effects), abs=1e-9)
        assert sum(abs(reason.share) for reason in all_.reasons) == pytest.approx(1)
        assert all(reason.share * reason.effect > 0 for reason in all_.reasons)


def test_forecasts_ids_and_steps(model: DySAT, tmp_path: Path) -> None:
    links = model.top_links(4)
    expected = model.why([(link.u, link.v) for link in links])
    assert model.why(links) == expected == model.why(links.ids, ids=True)
    model.save(tmp_path / "model")
    loaded = DySAT.load(tmp_path / "model", device="cpu")
    assert loaded.why(links) == expected and loaded.why(links[:0]) == []
    early = model.why([("a", "b")], step=1)[0]
    assert early.log_odds == pytest.approx(float(model.pair_scores(torch.tensor([[0, 1]]), 1)), abs=1e-9)


def test_rows_of_many_pairs(model: DySAT) -> None:
    ids = all_pairs(8).numpy()
    texts, shares = why_rows(model, ids, 40)
    assert shares.shape == (28, 40) and shares.dtype == np.float32 and {len(row) for row in texts} == {40}
    for row, share, each in zip(texts, shares, model.why(ids, 40, ids=True), strict=True):
        assert [text for text in row if text] == [reason.text for reason in each.reasons]
        np.testing.assert_allclose(share[: len(each.reasons)], [reason.share for reason in each.reasons], rtol=1e-6)
        assert not share[len(each.reasons) :].any()


def test_old_models_are_explained() -> None:
    model = dysat.Run.open(OLD_RUNS / "dysat-forecast").model("cpu")
    assert isinstance(model, DySAT)
    links = model.top_links(20)
    for each, ids in zip(model.why(links, number=99), links.ids.tolist(), strict=True):
        score = float(model.pair_scores(torch.tensor([ids])))
        assert each.baseline + sum(reason.effect for reason in each.reasons) == pytest.approx(score, abs=1e-9)


def test_shares_of_no_effects() -> None:
    assert shares_of(np.array([[0.0, 0.0], [3.0, -1.0]])).tolist() == [[0, 0], [0.75, -0.25]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.why([("a", "b")], number=0), "number=0 must be at least 1"),
        (lambda m: m.why([("a", "nobody")]), "no node 'nobody'"),
        (lambda m: m.why([(0, 99)], ids=True), "a pair has a node outside 0 … 7"),
        (
            lambda m: m.why(DySAT(embeddings=False).fit(two_blocks()).top_links(2)),
            "these forecasts are of another graph",
        ),
        (lambda m: DySAT().why([("a", "b")]), "the model has learned nothing yet"),
    ],
)
def test_wrong_questions(model: DySAT, call: Any, message: str) -> None:
    with pytest.raises(dysat.DysatError, match=f"^{message}"):
        call(model)


def test_models_without_a_pair_score_say_so() -> None:
    text = DySAT.from_preset("text", **QUICK | {"epochs": 1}).fit(meetings())
    with pytest.raises(ModelError, match=r"^only a pair score can be explained, and this model has none; fit one with"):
        text.why([(0, 1)])
    with pytest.raises(ModelError, match=r"^edgebank has no why; dysat can do that$"):
        dysat.MODELS["edgebank"]().fit(meetings()).why([(0, 1)])  # type: ignore[attr-defined]
