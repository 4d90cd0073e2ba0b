"""node2vec as a model. Its walks: tests/sampling/test_second_order.py."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import torch
from small import make_graph, meetings, two_blocks
from torch import Tensor
from torch.testing import assert_close

from dysat import ModelError
from dysat.models.baselines import node2vec
from dysat.models.baselines.node2vec import Node2Vec
from dysat.system.tensors import read_tensors, write_tensors

QUICK: dict[str, Any] = {"features": 8, "walks_per_node": 3, "walk_length": 8}


def test_an_earlier_step_is_trained_on_the_past_only() -> None:
    graph = meetings()
    model = Node2Vec(**QUICK, p=0.5, q=2.0).fit(graph)
    for step in (0, 2, 4):
        node2vec._learn.cache_clear()
        assert torch.equal(model.embed(step), Node2Vec(**QUICK, p=0.5, q=2.0).fit(graph[: step + 1]).embed())
        assert torch.equal(model.embed(step), model.embed(step - 5))


@pytest.mark.slow
def test_every_process_computes_the_same_bits() -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from small import meetings
from dysat.models.baselines.node2vec import Node2Vec
print(Node2Vec(features=4, walks_per_node=2, walk_length=6, p=0.5).fit(meetings()).embed().numpy().tobytes().hex())
"""
    command = [sys.executable, "-c", code, str(Path(small.__file__).parent)]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # different from this process
    done = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    here = Node2Vec(features=4, walks_per_node=2, walk_length=6, p=0.5).fit(meetings()).embed()
    assert done.stdout.strip() == here.numpy().tobytes().hex()


def test_snapshots_are_summed_with_their_weights() -> None:
    links = [[(0, 1), (1, 2)], [(0, 1), (2, 3)], [(0, 3)]]
    apart = make_graph([4] * 3, links, weights=[[1.0, 2.0], [3.0, 1.0], [0.5]])
    together = make_graph([4], [[(0, 1), (1, 2), (2, 3), (0, 3)]], weights=[[4.0, 2.0, 1.0, 0.5]])
    assert torch.equal(*(Node2Vec(**QUICK, q=3.0).fit(graph).embed() for graph in (apart, together)))
    other = make_graph([4], [[(0, 1), (1, 2), (2, 3), (0, 3)]], weights=[[4.0, 2.0, 1.0, 5.0]])
    assert not torch.equal(*(Node2Vec(**QUICK, q=3.0).fit(graph).embed() for graph in (other, together)))


def test_every_linked_node_starts_equally_many_walks_in_shuffled_order() -> None:
    graph = make_graph([9], [[(0, 1), (1, 4), (4, 7), (7, 0), (8, 8)]])
    model, generator = Node2Vec(walks_per_node=6, walk_length=5), torch.Generator().manual_seed(0)
    walks = torch.cat([*model.walks(graph.aggregate(), generator)])
    assert walks.shape == (6 * 5, 5)  # 5 rows: 0, 1, 4, 7, 8
    orders = walks[:, 0].view(6, 5)
    assert torch.equal(orders.sort(1).values, torch.arange(5, dtype=torch.int32).expand(6, 5))
    assert len(orders.unique(dim=0)) > 1
    assert (walks[walks[:, 0] == 4] == 4).all()  # node 8 has only a self-loop


@pytest.mark.parametrize("p", [1.0, 0.5])
def test_walks_are_drawn_in_parts_and_again_for_every_pass(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part holds more walks than allowed, and every pass learns from the walks whose visits were counted."""
    monkeypatch.setattr("dysat.sampling.walks.CPU_CHUNK", 4)
    passes = []

    def skip_gram(walks: Callable[[], Iterator[Tensor]], visits: Tensor, model: Node2Vec) -> Tensor:
        for _ in range(2):
            parts = [*walks()]
            assert [len(part) for part in parts] == [4, 4, 4, 4, 2]  # 6 nodes, 3 walks each
            passes.append(torch.cat(parts))
            assert torch.equal(torch.bincount(passes[-1].flatten()), visits)
        return torch.zeros(len(visits), model.features)

    monkeypatch.setattr(node2vec, "_skip_gram", skip_gram)
    node2vec._learn.cache_clear()
    Node2Vec(**QUICK, p=p).fit(meetings()[:1])
    node2vec._learn.cache_clear()
    assert torch.equal(*passes)


@pytest.mark.parametrize("p", [1.0, 0.5])
def test_nodes_without_links_have_zero_embeddings(p: float) -> None:
    graph = make_graph([6], [[(0, 2), (2, 4), (1, 5)]], weights=[[1.0, 2.0, 0.0]])
    e = Node2Vec(**QUICK, p=p).fit(graph).embed()
    assert e.shape == (6, 8) and e.any(1).tolist() == [True, False, True, False, True, False]


def test_nodes_without_links_do_not_affect_the_others() -> None:
    """Nor do links of weight 0, whose nodes have a row but are never visited."""
    mixed = make_graph([6], [[(1, 2), (2, 4), (0, 3)]], weights=[[1.0, 2.0, 0.0]])
    alone = make_graph([3], [[(0, 1), (1, 2)]], weights=[[1.0, 2.0]])
    one, other = (Node2Vec(**QUICK, p=0.5).fit(graph).embed() for graph in (mixed, alone))
    assert torch.equal(one[[1, 2, 4]], other) and not one[[0, 3, 5]].any()


def test_negatives_are_drawn_by_the_number_of_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def skip_gram(walks: Callable[[], Iterator[Tensor]], visits: Tensor, model: Node2Vec) -> Tensor:
        seen.append((torch.cat([*walks()]), visits))
        return torch.zeros(len(visits), model.features)

    monkeypatch.setattr(node2vec, "_skip_gram", skip_gram)
    node2vec._learn.cache_clear()
    Node2Vec(**QUICK).fit(make_graph([6], [[(1, 2), (2, 4), (0, 3)]], weights=[[1.0, 2.0, 0.0]]))
    node2vec._learn.cache_clear()
    ((walks, visits),) = seen
    assert torch.equal(torch.bincount(walks.flatten()), visits) and len(visits) == 3


@pytest.mark.parametrize(
    ("known", "links"),
    [([1], [[]]), ([3, 3], [[], []]), ([1, 1], [[(0, 0)], [(0, 0)]]), ([4, 6], [[(0, 1), (1, 2)], []])],
)
def test_graphs_with_few_links(known: list[int], links: list[list[tuple[int, int]]]) -> None:
    model = Node2Vec(**QUICK, p=0.5, q=2.0).fit(make_graph(known, links))
    linked = {node for pairs in links for pair in pairs for node in pair}
    for step in range(len(known)):
        assert model.embed(step).shape == (known[step], 8) and model.embed(step).isfinite().all()
    assert model.embed().any(1).nonzero()[:, 0].tolist() == sorted(linked)
    assert len(model.top_links(99)) == known[-1] * (known[-1] - 1) // 2


def test_leaves_are_closest_to_their_own_hub() -> None:
    """Two stars whose hubs, the most visited nodes, are neither first nor last in node order."""
    links = [(u, 5) for u in (0, 1, 2, 3, 4)] + [(u, 8) for u in (6, 7, 9, 10, 11)]
    options: dict[str, Any] = {"features": 8, "walks_per_node": 50, "walk_length": 20, "window": 2, "epochs": 5}
    e = torch.nn.functional.normalize(Node2Vec(**options).fit(make_graph([12], [links])).embed())
    cosine = e @ e.T
    for u in (0, 1, 2, 3, 4):
        assert cosine[u, 5] > cosine[u, 8]
    for u in (6, 7, 9, 10, 11):
        assert cosine[u, 8] > cosine[u, 5]


def test_a_loaded_model_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Node2Vec(**QUICK).fit(meetings())
    model.save(tmp_path)
    monkeypatch.setattr(node2vec, "_skip_gram", None)
    node2vec._learn.cache_clear()
    loaded = Node2Vec.load(tmp_path)
    for step in (-1, -2):
        assert torch.equal(loaded.embed(step), model.embed(step))
    assert loaded.top_links(5) == model.top_links(5)


def test_embed_returns_a_copy() -> None:
    model = Node2Vec(**QUICK).fit(meetings())
    for step in (-1, 0):
        before = model.embed(step)
        model.embed(step).zero_()
        assert torch.equal(model.embed(step), before) and before.any()


def test_vectors_of_another_width_are_refused(tmp_path: Path) -> None:
    Node2Vec(**QUICK).fit(meetings()).save(tmp_path)
    file = tmp_path / "model.safetensors"
    facts, tensors = read_tensors(file, "model", 1, error=ModelError)
    changed = {name: t[:, :5] if name.startswith("vectors/") else t for name, t in tensors.items()}
    write_tensors(file, "model", 1, facts, {name: t.contiguous() for name, t in changed.items()}, error=ModelError)
    with pytest.raises(ModelError, match="the vectors do not fit the model: features=8"):
        Node2Vec.load(tmp_path)


def test_the_defaults_are_the_paper_preset() -> None:
    assert Node2Vec().get_params() == Node2Vec.from_preset("paper").get_params()


def test_zero_epochs_keep_the_initial_vectors() -> None:
    e = Node2Vec(**QUICK, epochs=0).fit(two_blocks(12, 2)).embed()
    assert e.abs().max() <= 1 / 8 and e.any(1).all()
    assert_close(e, Node2Vec(**QUICK, epochs=0, p=4.0, window=3).fit(two_blocks(12, 2)).embed())


def test_training_has_no_side_effects(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    before = np.random.get_state()[1].copy()  # type: ignore[index,union-attr]  # noqa: NPY002
    with caplog.at_level(logging.WARNING):
        Node2Vec(**QUICK, epochs=2, p=2.0).fit(two_blocks(12, 2))
    assert not caplog.records and capfd.readouterr() == ("", "")
    assert (np.random.get_state()[1] == before).all()  # type: ignore[index]  # noqa: NPY002


def test_invalid_options_and_steps_are_refused() -> None:
    wrong: list[tuple[str, Any, str]] = [
        ("features", 0, "features=0 must be at least 1"),
        ("walks_per_node", 0, "walks_per_node=0 must be at least 1"),
        ("window", 0, "window=0 must be at least 1"),
        ("negatives", 0, "negatives=0 must be at least 1"),
        ("walk_length", 1, r"walk_length=1 must lie in \[2, 10000\]"),
        ("walk_length", 10_001, r"walk_length=10001 must lie in \[2, 10000\]"),
        ("p", 0.0, r"p=0.0 must lie in"),
        ("p", float("nan"), r"p=nan must lie in"),
        ("q", -1.0, r"q=-1.0 must lie in"),
        ("q", float("inf"), r"q=inf must lie in"),
        ("subsample", 1.0, r"subsample=1.0 must lie in \[0, 1\)"),
        ("epochs", -1, "epochs=-1 must not be negative"),
        ("seed", -1, r"seed=-1 must lie in \[0, 2\^32\)"),
        ("seed", 2**32, r"seed=4294967296 must lie in \[0, 2\^32\)"),
    ]
    for name, value, message in wrong:
        with pytest.raises(ModelError, match=message):
            Node2Vec(**{name: value})
    with pytest.raises(ModelError, match="call fit"):
        Node2Vec().embed()
    with pytest.raises(ModelError, match="step 5: the model knows steps 0 to 4"):
        Node2Vec(**QUICK).fit(meetings()).embed(5)
