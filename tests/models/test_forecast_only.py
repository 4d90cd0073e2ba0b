"""DySAT without embeddings: the same forecasts as the whole model, and one clear error for everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import FORECASTING, all_pairs, make_graph, meetings, two_blocks

from dysat import DySAT, ModelError
from dysat.models.base.best_pairs import pair_keys
from dysat.models.forecast import candidates

NO_EMBEDDINGS = r"^this model has no embeddings: it was fitted with embeddings=False; fit again without it$"


@pytest.fixture(scope="module")
def forecast_only() -> DySAT:
    return DySAT(**FORECASTING | {"embeddings": False}).fit(meetings())


def test_scores_equal_those_of_the_whole_model(forecast_only: DySAT) -> None:
    whole = DySAT(**FORECASTING).fit(meetings())
    for step in range(5):
        pairs = all_pairs(meetings().known[step])
        assert torch.equal(forecast_only.pair_scores(pairs, step), whole.pair_scores(pairs, step))
        assert torch.equal(forecast_only.score_links(pairs, step), whole.score_links(pairs, step))
    for choice in ({}, {"known": "exclude"}, {"node": 3}):
        assert list(forecast_only.top_links(99, **choice)) == list(whole.top_links(99, **choice))


def test_no_network_is_built_and_no_epoch_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DySAT, "_build", lambda *_: pytest.fail("a network was built"))
    epochs: list[object] = []
    model = DySAT(embeddings=False, device="cuda:99").fit(
        meetings(), on_epoch=epochs.append, validate=lambda _: pytest.fail("there is nothing to validate")
    )
    assert model.epochs_ == epochs == [] and model.finished_ and model.weights() == {}
    assert not hasattr(model, "network_") and not model.has_embeddings


@pytest.mark.parametrize("method", ["embed", "attention", "table"])
def test_embeddings_are_refused(forecast_only: DySAT, method: str) -> None:
    with pytest.raises(ModelError, match=NO_EMBEDDINGS):
        getattr(forecast_only, method)()


def test_saved_and_loaded(forecast_only: DySAT, tmp_path: Path) -> None:
    forecast_only.save(tmp_path / "model")
    loaded = DySAT.load(tmp_path / "model", device="cpu")
    assert loaded.get_params() == forecast_only.get_params()
    assert list(loaded.top_links(99)) == list(forecast_only.top_links(99))
    with pytest.raises(ModelError, match=NO_EMBEDDINGS):
        loaded.embed()


def test_a_loaded_model_forecasts_without_computing_the_inputs_of_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DySAT(**FORECASTING).fit(meetings())
    model.save(tmp_path / "model")
    with monkeypatch.context() as patch:
        patch.setattr(DySAT, "_look_at", lambda *_: pytest.fail("inputs were computed"))
        loaded = DySAT.load(tmp_path / "model", device="cpu")
        assert list(loaded.top_links(99)) == list(model.top_links(99))
    assert torch.equal(loaded.embed(), model.embed())


def test_a_gpu_is_warmed_up_on_a_graph_of_its_own() -> None:
    model = DySAT(**FORECASTING).fit(meetings())
    state, before = torch.get_rng_state(), {name: value.clone() for name, value in model._state().items()}
    model._warm_up(torch.device("cpu"))
    assert model.graph_.num_nodes == meetings().num_nodes and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model._state().items())


def test_a_second_fit_leaves_nothing_of_the_first() -> None:
    model = DySAT(**FORECASTING).fit(meetings()).set_params(embeddings=False).fit(two_blocks(12, 3))
    once = DySAT(**FORECASTING | {"embeddings": False}).fit(two_blocks(12, 3))
    assert model._state().keys() == once._state().keys()
    assert all(torch.equal(value, once._state()[name]) for name, value in model._state().items())
    with pytest.raises(ModelError, match=NO_EMBEDDINGS):
        model.embed()


def test_applied_to_a_later_graph(forecast_only: DySAT) -> None:
    early = DySAT(**FORECASTING | {"embeddings": False}).fit(meetings()[:3])
    later, pairs = early.applied_to(meetings()), all_pairs(8)
    assert torch.equal(later.pair_scores(pairs, 2), early.pair_scores(pairs))
    assert not torch.equal(later.pair_scores(pairs), forecast_only.pair_scores(pairs))  # learned from less


def test_a_graph_without_links_is_refused() -> None:
    model = DySAT(embeddings=False)
    with pytest.raises(ModelError, match=r"^no forecast can be learned: the graph has no links, or all of its pairs"):
        model.fit(make_graph([4, 4], [[], []]))
    assert not hasattr(model, "graph_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair_score": False}, "^embeddings=False and pair_score=False: there is nothing to learn$"),
        ({"epochs": -1}, "^epochs=-1 must not be negative$"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        DySAT(embeddings=False, **options)


def test_options_of_the_network_have_no_effect() -> None:
    names = ("epochs", "spectrum", "walk_length", "transitions", "seed", "device", "embeddings")
    idle = DySAT(embeddings=False).without_effect(names)
    assert idle == dict.fromkeys(("epochs", "spectrum", "walk_length"), "embeddings=False")
    assert DySAT().without_effect(("epochs",)) == {}


def test_the_most_likely_of_all_pairs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among all pairs and among new contacts; the candidates come from busy nodes and the low ranks of the links."""
    monkeypatch.setattr(candidates, "MAX_BUSY_NODES", 64)
    monkeypatch.setattr(candidates, "MAX_ACTIVE_NODES", 200)
    monkeypatch.setattr(candidates, "FAN_OUT", 4)
    rng, size = np.random.default_rng(0), 300
    activity = rng.pareto(1.0, size) + 0.1
    drawn = rng.choice(size, (3, 300, 2), p=activity / activity.sum())
    graph = make_graph([size] * 3, drawn.tolist())
    model = DySAT(embeddings=False, transitions=1).fit(graph)
    every = torch.combinations(torch.arange(size))
    scores, linked = model.score_links(every, ids=True), model._linked()
    new = ~torch.isin(pair_keys(every, size), linked)
    for mask, without in ((torch.ones_like(new), None), (new, linked)):
        best = every[mask][scores[mask].topk(100).indices]
        found, _ = model.top_pairs(100, without=without)
        assert torch.isin(pair_keys(best, size), pair_keys(found, size)).float().mean() >= 0.95
    assert (
        len(candidates.likely_pairs(graph, *candidates.spectral_vectors(graph, True), 1000, model.pair_scores))
        < len(every) / 3
    )
