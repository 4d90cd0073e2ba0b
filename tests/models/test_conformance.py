"""What every model promises. A model in dysat.MODELS is included by itself; it must say here how to be quick."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import QUICK, make_graph, meetings, two_blocks
from torch import Tensor
from torch.testing import assert_close

import dysat
from dysat.models.base import EmbeddingModel


@dataclass(frozen=True)
class Entry:
    """How the suite meets a model."""

    quick: dict[str, Any]  # small and fast
    changed: dict[str, Any]  # another value for every option
    exempt: dict[str, str] = field(default_factory=dict)  # options that cannot change the result, and why
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)  # all parameters; only gradients move them
    planted: dict[str, Any] = field(default_factory=dict)  # enough to find two blocks


STILL = {"l2": 0.0, "epochs": 4}
SUITE = {
    "dysat": Entry(
        quick=QUICK | {"batch_size": 4, "l2": 0.05},
        changed={
            "structural_heads": (4,),
            "structural_features": (16,),
            "temporal_heads": (4,),
            "temporal_features": (16,),
            "blocks": "structural",
            "inputs": "both",
            "history": 2,
            "normalize": {"receiver": "sender", "sender": "receiver"},
            "link_weights": {"raw": "normalized", "normalized": "raw"},
            "add_self_loops": {False: True, True: False},
            "attention_bias": {False: True, True: False},
            "scale": {"features": "steps", "steps": "features"},
            "residual": True,
            "feedforward": {"transformer": "skip", "skip": "transformer"},
            "unknown": {"masked": "zero", "zero": "masked"},
            "structural_dropout": 0.2,
            "temporal_dropout": 0.2,
            "walks_per_node": 3,
            "walk_length": 4,
            "window": 1,
            "contexts": 4,
            "negatives": 4,
            "sharing": {"per-positive": "shared", "shared": "per-positive"},
            "negative_weight": 0.5,
            "reduction": {"sum": "mean", "mean": "sum"},
            "l2": 0.1,
            "l2_on": {"all": "structural", "structural": "all"},
            "clip_norm": 1e-3,
            "learning_rate": 2e-3,
            "batch_size": 3,
            "epochs": 3,
            "seed": 1,
        },
        exempt={
            "device": "where it is computed, not what",
            "patience": "has nothing to wait for without validation (tests/models/test_dysat.py has it)",
        },
        variants={
            "preset": STILL,
            "two layers": STILL
            | {"structural_heads": (4, 2), "structural_features": (16, 8)}
            | {"temporal_heads": (2, 2), "temporal_features": (16, 8)},
            "features": STILL | {"inputs": "features"},
            "both, residual": STILL | {"inputs": "both", "residual": True},
            "temporal": STILL | {"inputs": "both", "blocks": "temporal"},
            "structural": STILL | {"inputs": "both", "blocks": "structural"},
        },
        planted={
            "structural_heads": (4,),
            "structural_features": (32,),
            "temporal_heads": (4,),
            "temporal_features": (32,),
            "walk_length": 10,
            # With 10 negatives of weight 1 for each context, two nodes of a block should score low as well.
            "negative_weight": 0.1,
            "l2": 5e-4,
            "batch_size": 256,
            "epochs": 20,
            "learning_rate": 0.01,
        },
    ),
}

METHODS = sorted(dysat.MODELS)
PRESETS = [(method, preset) for method in METHODS for preset in dysat.MODELS[method].presets()]
each_preset = pytest.mark.parametrize(("method", "preset"), PRESETS)


def build(method: str, preset: str, **changes: Any) -> EmbeddingModel:
    return dysat.MODELS[method].from_preset(preset, **{**SUITE[method].quick, **changes})


def all_embeddings(model: EmbeddingModel) -> list[Tensor]:
    return [model.embed(step) for step in model.steps()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def with_features(graph: dysat.DynamicGraph) -> dysat.DynamicGraph:
    return graph.with_features(np.random.default_rng(0).normal(size=(graph.num_nodes, 3)))


@pytest.fixture(autouse=True)
def torch_random_state_is_untouched() -> Iterator[None]:
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("method", METHODS)
def test_every_model_is_in_the_suite(method: str) -> None:
    assert method in SUITE, f"{method} is in dysat.MODELS, but test_conformance.py does not say how to be quick"
    entry, model = SUITE[method], dysat.MODELS[method]
    assert model.method == method and issubclass(model, EmbeddingModel)
    names = {option.name for option in model.options()}
    assert names == entry.changed.keys() | entry.exempt.keys(), "an option without another value to try, or a reason"
    assert not entry.changed.keys() & entry.exempt.keys() and all(entry.exempt.values())
    assert model.presets() and entry.variants


VARIANTS = [(*pair, name) for pair in PRESETS if pair[0] in SUITE for name in SUITE[pair[0]].variants]


@pytest.mark.parametrize(("method", "preset", "variant"), VARIANTS)
def test_every_parameter_receives_a_gradient_and_moves(method: str, preset: str, variant: str) -> None:
    graph, options = with_features(meetings()), SUITE[method].variants[variant]
    first = build(method, preset, **{**options, "epochs": 0}).fit(graph)._learned()
    for name, after in build(method, preset, **options).fit(graph)._learned().items():
        moved = (after != first[name]).float().mean()
        assert moved == 1, f"{name}: {moved:.0%} of it moved"
        assert after.isfinite().all()


OPTIONS = [(*pair, name) for pair in PRESETS if pair[0] in SUITE for name in SUITE[pair[0]].changed]


@pytest.fixture(scope="module")
def unchanged() -> dict[tuple[str, str], list[Tensor]]:
    graph = with_features(meetings())
    return {pair: all_embeddings(build(*pair).fit(graph)) for pair in PRESETS if pair[0] in SUITE}


@pytest.mark.parametrize(("method", "preset", "option"), OPTIONS)
def test_every_option_changes_the_result(
    method: str, preset: str, option: str, unchanged: dict[tuple[str, str], list[Tensor]]
) -> None:
    value = SUITE[method].changed[option]
    before = build(method, preset).values()[option]
    value = value[before] if isinstance(value, dict) else value
    assert value != before
    model = build(method, preset, **{option: value}).fit(with_features(meetings()))
    assert model.values()[option] == value
    now, then = model.embed(), unchanged[method, preset][-1]
    assert now.shape != then.shape or (now - then).abs().max() > 1e-6


@each_preset
def test_the_same_seed_gives_the_same_bits_and_a_second_fit_forgets_the_first(method: str, preset: str) -> None:
    graph = meetings()
    once = build(method, preset).fit(graph)
    again = build(method, preset).fit(two_blocks(12, 3)).fit(graph)
    assert same(all_embeddings(once), all_embeddings(again))
    assert all(torch.equal(a, b) for a, b in zip(once.scorer_, again.scorer_, strict=True))
    assert once.top_links(99) == again.top_links(99)
    other = build(method, preset, seed=1).fit(graph)
    assert not any(torch.equal(a, b) for a, b in zip(all_embeddings(once), all_embeddings(other), strict=True))


@each_preset
def test_the_graph_is_bit_equal_after_fit(method: str, preset: str) -> None:
    graph = with_features(meetings())
    model = build(method, preset).fit(graph)
    all_embeddings(model), model.top_links(3)
    assert model.graph_ is graph and graph.equals(with_features(meetings()))
    assert graph.fingerprint == replace(graph).fingerprint  # not only the one remembered


@each_preset
@pytest.mark.parametrize("t", range(1, 5))
def test_a_later_snapshot_changes_nothing_before_it(method: str, preset: str, t: int) -> None:
    """Neither what is learned from the past, nor what a network that is given says of it."""
    whole = meetings()
    links = [[(0, 3), (1, 4), (2, 5)], [(0, 7), (7, 6), (1, 5)], [(6, 7), (0, 4)], [(0, 5), (1, 5), (2, 6)]]
    later = make_graph(whole.known[t:], links[t - 1 :])
    moved = [replace(snapshot, start=snapshot.start + t, stop=snapshot.stop + t) for snapshot in later]
    other = replace(whole, snapshots=(*whole.snapshots[:t], *moved), nodes=whole.nodes.copy())
    assert same(*(all_embeddings(build(method, preset).fit(graph[:t])) for graph in (whole, other)))
    model, twin = build(method, preset).fit(whole), build(method, preset)
    twin.graph_ = other
    twin._restore(model._learned())
    for step in range(t):
        assert_close(twin.embed(step), model.embed(step), atol=1e-6, rtol=1e-6)
    assert (twin.embed(t) - model.embed(t)).abs().max() > 1e-4  # the change is there to be seen


@each_preset
@pytest.mark.parametrize(
    "labels",
    [np.arange(8)[::-1] * 10 - 3, np.array(["zoë", "a", "", "b c", "0", "Ω", "z", "y"], dtype=object)],
    ids=["int", "str"],
)
def test_labels_are_only_names(method: str, preset: str, labels: Any) -> None:
    plain, named = (build(method, preset).fit(graph) for graph in (meetings(), meetings(labels.copy())))
    assert same(all_embeddings(plain), all_embeddings(named))
    renamed = [(labels[u], labels[v], score, known) for u, v, score, known in plain.top_links(99)]
    assert [tuple(link) for link in named.top_links(99)] == renamed


@each_preset
def test_save_and_load(method: str, preset: str, tmp_path: Path) -> None:
    graph = with_features(meetings(np.array(list("abcdefgh"), dtype=object)))
    model = build(method, preset).fit(graph)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", device="cpu")
    assert loaded.values() == model.values() and loaded.graph_.equals(graph) and loaded.steps() == model.steps()
    assert same(all_embeddings(loaded), all_embeddings(model))
    assert all(torch.equal(a, b) for a, b in zip(loaded.scorer_, model.scorer_, strict=True))
    assert loaded.top_links(99) == model.top_links(99)
    loaded.save(tmp_path / "again")
    assert same(all_embeddings(type(model).load(tmp_path / "again")), all_embeddings(model))


@each_preset
def test_two_planted_blocks_are_found(method: str, preset: str) -> None:
    graph = two_blocks()
    model = build(method, preset, **SUITE[method].planted).fit(graph[:-1])
    u, v, _ = graph[-1].links()
    linked = set(zip(u.tolist(), v.tolist(), strict=True))
    pairs = list(combinations(range(graph.num_nodes), 2))
    scores = model.score_links(pairs)
    is_link = torch.tensor([pair in linked for pair in pairs])
    above = scores[is_link][:, None] - scores[~is_link]  # every link against every other pair
    auc = ((above > 0).float() + 0.5 * (above == 0)).mean()
    assert auc > 0.8  # who knows the blocks, and nothing more, has about 0.9
