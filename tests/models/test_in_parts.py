"""Graphs too large for one pass: training and embeddings from the neighbourhoods of a few nodes at a time."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from small import SMALL, make_graph, two_blocks
from torch.testing import assert_close

import dysat
from dysat.models import attention
from dysat.nn.adam import has_only_rows, rows_of
from dysat.sampling.walks import FreshContexts
from dysat.training import Progress

WALKING = {k: v for k, v in SMALL.items() if k != "spectrum"} | {"walk_length": 5, "batch_size": 5, "epochs": 6}


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return str(request.param)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """All graphs are too large, and embeddings are computed seven nodes at a time."""
    monkeypatch.setattr(attention, "MOST_ROWS", {"cpu": 0, "cuda": 0})
    monkeypatch.setattr(attention, "NODES_AT_ONCE", 7)


def in_one_pass(model: dysat.DySAT, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    with monkeypatch.context() as patch:
        patch.setattr(attention, "MOST_ROWS", {"cpu": 10**9})
        return [model.embed(), model.embed(1), model.attention()]


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("name", ["default", "text", "program", "incsat"])
def test_embeddings_and_attention_are_those_of_one_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = two_blocks(24, 4)
    walks = {"walks_per_node": 2, "walk_length": 5, "window": 2, "structural_features": (8,), "structural_heads": (2,)}
    few = {**{k: v for k, v in SMALL.items() if k != "spectrum"}, **walks, "epochs": 2}
    if name == "incsat":
        model = dysat.IncSAT(**few).fit(graph)
    else:
        model = (dysat.DySAT.from_preset(name, **few) if name != "default" else dysat.DySAT(epochs=2, **SMALL)).fit(
            graph
        )
    assert model._in_parts
    for part, whole in zip(
        [model.embed(), model.embed(1), model.attention()], in_one_pass(model, monkeypatch), strict=True
    ):
        assert_close(part, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("many", [False, True])
def test_freed_memory_of_many_links_is_returned_before_and_after_training(
    many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned, graph = list[int](), two_blocks(24, 4)
    links, ends = sum(snapshot.num_links for snapshot in graph), list[int]()
    monkeypatch.setattr("dysat.models.dysat.MANY_LINKS", links - 1 if many else links)
    monkeypatch.setattr("dysat.models.dysat.return_freed_memory", lambda: returned.append(len(ends)))
    dysat.DySAT(epochs=2, **SMALL).fit(graph, on_epoch=lambda epoch: ends.append(1))
    assert returned == ([0, 0, 2] if many else [])


@pytest.mark.slow
@pytest.mark.usefixtures("few_rows")
def test_planted_blocks_are_found() -> None:
    graph = two_blocks(40, 6)
    model = dysat.DySAT(epochs=60, **SMALL).fit(graph)
    u, v = np.triu_indices(40, 1)
    pairs = torch.from_numpy(np.stack([u, v], 1))
    e = model.embed()
    weights = model.scorer_[0]
    scores = ((e[pairs[:, 0]] * e[pairs[:, 1]]) @ weights).numpy()
    same = (u + v) % 2 == 0
    assert np.mean(scores[same][:, None] > scores[~same]) > 0.9


@pytest.mark.usefixtures("few_rows")
def test_no_table_in_parts_unless_asked_for() -> None:
    graph = two_blocks(24, 4)
    tables = {
        inputs: any(
            name.endswith("table") for name in dysat.DySAT(epochs=1, inputs=inputs, **SMALL).fit(graph).weights()
        )  # type: ignore[arg-type]
        for inputs in ("identity", "features")
    }
    assert tables == {"identity": False, "features": False}
    plain = dysat.DySAT(epochs=1, activity=False, **SMALL | {"spectrum": 0}).fit(graph)
    assert any(name.endswith("table") for name in plain.weights())  # it has no other input


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("preset", ["default", "program"])
def test_a_stopped_training_resumes_to_the_same_result(preset: str, device: str, tmp_path: Path) -> None:
    graph, kept = two_blocks(24, 4), list[Progress]()

    def model() -> dysat.DySAT:
        if preset == "default":
            return dysat.DySAT(epochs=6, **SMALL | {"device": device})
        return dysat.DySAT.from_preset(preset, **WALKING | {"device": device})

    whole = model().fit(graph)
    model().fit(graph, stop=lambda: len(kept) == 3, keep=lambda progress: kept.append(deepcopy(progress)), keep_every=0)
    resumed = model().fit(graph, progress=kept[-1])
    bound = 0.0 if device == "cpu" else 1e-3  # on a GPU several threads add to a sum, in any order
    assert_close(resumed.embed(), whole.embed(), atol=bound, rtol=bound)
    whole.save(tmp_path / "model")
    assert_close(dysat.DySAT.load(tmp_path / "model", device=device).embed(), whole.embed(), atol=bound, rtol=bound)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("method", ["dysat", "incsat"])
def test_the_papers_models_store_no_walks_and_update_only_rows_in_use(method: str, device: str) -> None:
    ring = [(node, (node + 1) % 300) for node in range(300)]
    model = dysat.DySAT.from_preset("program", **WALKING) if method == "dysat" else dysat.IncSAT(**WALKING)
    model.set_params(epochs=1, batch_size=8, device=device).fit(make_graph([300] * 2, [ring] * 2))
    assert isinstance(model.sampler(torch.Generator(device)).contexts, FreshContexts)
    (table,) = model.network_.tables()
    assert has_only_rows(table) and 0 < len(rows_of(table)) < 200  # those of the last batch


@pytest.mark.slow
@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("method", ["dysat", "incsat"])
def test_the_papers_models_find_planted_blocks(method: str, device: str) -> None:
    graph = two_blocks(40, 6)
    longer = {"epochs": 40, "learning_rate": 0.01, "walk_length": 10, "negative_weight": 0.1}
    options = WALKING | longer | {"device": device}
    model = dysat.DySAT.from_preset("program", **options) if method == "dysat" else dysat.IncSAT(**options)
    e = model.fit(graph).embed().cpu()
    u, v = np.triu_indices(40, 1)
    scores = (e @ e.T)[u, v].numpy()
    same = (u + v) % 2 == 0
    assert np.mean(scores[same][:, None] > scores[~same]) > 0.8
