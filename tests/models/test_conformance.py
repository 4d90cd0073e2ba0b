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
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import LinkModel


@dataclass(frozen=True)
class Entry:
    """How the suite meets a model."""

    quick: dict[str, Any]  # small and fast
    changed: dict[str, Any]  # another value for every option
    exempt: dict[str, str] = field(default_factory=dict)  # options that cannot change the result, and why
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)  # all parameters; only gradients move them
    planted: dict[str, Any] = field(default_factory=dict)  # enough to find two blocks
    auc: float = 0.8  # of the next links then; who knows the blocks, and nothing more, has about 0.9
    least: int = 1  # snapshots it can learn from
    copies: int = 1  # of a small graph that give it enough to learn from
    context: dict[str, dict[str, Any]] = field(default_factory=dict)  # what an option needs to have an effect
    of_preset: dict[str, dict[str, Any]] = field(default_factory=dict)  # quick, for a preset
    remembers: bool = False  # it says of a step what it has stored, whatever the graph is now


DECAY = {"decay": 0.25}
STILL = {"l2": 0.0, "epochs": 4}
DYSAT = Entry(
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
        "residual": {False: True, True: False},
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
        | {"temporal_heads": (2, 2), "temporal_features": (16, 8), "residual": False},
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
)
AHEAD = {"future_weight": 0.5, "matched": 0.5, "transitions": 2}
LOOKING_AHEAD = replace(
    DYSAT,
    changed=DYSAT.changed
    | {
        "activity": {False: True, True: False},
        "spectrum": {0: 2, 2: 1},
        "positions": {"absolute": "relative", "relative": "absolute"},
        "walk_weight": 0.7,
        "future_weight": 0.7,
        "future_negatives": 3,
        "matched": 0.0,
        "agreement": 0.7,
        "cool_down": 1.0,
        "transitions": 1,
    },
    exempt=DYSAT.exempt
    | {
        "pair_score": "changes scores, not embeddings (tests/models/test_dysat_ahead.py has it)",
        "keep_epoch": "only where there is validation (tests/models/test_dysat_ahead.py has it)",
    },
    # A ReLU may be 0 for all of eight nodes: not with these seeds.
    variants=DYSAT.variants
    | {name: DYSAT.variants[name] | {"seed": 1} for name in ("features", "temporal")}
    | {
        "ahead": STILL
        | AHEAD
        | {"activity": True, "spectrum": 2, "positions": "relative", "walk_weight": 0.0, "agreement": 0.5, "seed": 18}
    },
    context=dict.fromkeys(("walk_weight", "future_negatives", "matched", "transitions"), AHEAD)
    | {name: {"residual": False} for name in ("structural_features", "temporal_features")},
    of_preset={"forecast": {"walk_weight": 0.5, "spectrum": 2}},
)
LONGER = {"l2": 0.0, "epochs": 20, "learning_rate": 0.02}
AUTOENCODER = Entry(
    quick={"features": (8, 4), "epochs": 2, "batch_size": 4, "l2": 0.05, "device": "cpu"},
    changed={
        "features": (16, 8),
        "inputs": "both",
        "dropout": 0.2,
        "negatives": 2,
        "l2": 0.1,
        "learning_rate": 2e-3,
        "batch_size": 3,
        "epochs": 3,
        "seed": 1,
    },
    exempt={
        "device": "where it is computed, not what",
        "patience": "has nothing to wait for without validation (tests/models/test_trained.py has it)",
    },
    # A ReLU may be 0 for a node and all its neighbours: not with these seeds, and not all the time.
    variants={
        "identity": LONGER | {"seed": 29},
        "features": LONGER | {"seed": 6, "inputs": "features"},
        "both": LONGER | {"seed": 6, "inputs": "both"},
    },
    planted={"features": (32, 16), "batch_size": 256, "epochs": 50, "l2": 0.0},
)
NO_PENALTY = {"nu1": 0.0, "nu2": 0.0, "epochs": 20, "learning_rate": 0.02, "batch_size": 40}
SAGE = {"epochs": 20, "learning_rate": 0.02}
GRAPHSAGE = Entry(
    quick={
        "aggregator": "gat",  # which has heads
        "features": (8, 4),
        "fan_out": (3, 2),
        "heads": (2, 2),
        "sampling": "weighted",
        "rounds": 2,
        "walks_per_node": 2,
        "epochs": 2,
        "batch_size": 16,
        "device": "cpu",
    },
    changed={
        "aggregator": "lstm",
        "features": (16, 8),
        "fan_out": (4, 2),
        "heads": (4, 1),
        "inputs": "both",
        "sampling": "uniform",
        "normalize": {False: True, True: False},
        "rounds": 3,
        "walks_per_node": 3,
        "walk_length": 4,
        "negatives": 4,
        "learning_rate": 2e-3,
        "batch_size": 15,
        "epochs": 3,
        "seed": 1,
    },
    exempt={
        "device": "where it is computed, not what",
        "patience": "has nothing to wait for without validation (tests/models/test_trained.py has it)",
    },
    # A ReLU may be 0 for a node and all its neighbours: not with these seeds.
    variants={
        "gcn": SAGE | {"aggregator": "gcn"},
        "mean-pool": SAGE | {"aggregator": "mean-pool", "inputs": "features", "seed": 16},
        "max-pool": SAGE | {"aggregator": "max-pool", "inputs": "both", "seed": 6},
        "lstm": SAGE | {"aggregator": "lstm", "inputs": "both"},
        "gat": SAGE | {"aggregator": "gat"},
    },
    planted={"features": (32, 16), "fan_out": (10, 10), "walks_per_node": 10, "batch_size": 256, "epochs": 10},
)
SUITE = {
    "dysat": LOOKING_AHEAD,
    "incsat": replace(
        DYSAT,
        changed=DYSAT.changed | {"carry": {True: False, False: True}},
        # A ReLU may be 0 for all of a snapshot's few nodes: not with this seed, and not where weights go on.
        variants={name: options | {"carry": True, "seed": 5} for name, options in DYSAT.variants.items()},
        remembers=True,
    ),
    "last-snapshot": Entry(quick={}, changed={}, auc=0.75),  # four fifths of the links come again
    "edgebank": Entry(quick={}, changed={"window": 2}, planted={"window": 2}),
    "edge-memory": Entry(quick={}, changed=DECAY),
    "degree-product": Entry(quick={}, changed=DECAY, auc=0.4),  # all nodes have about as many links
    "degree-sum": Entry(quick={}, changed=DECAY, auc=0.4),
    "common-neighbours": Entry(quick={}, changed=DECAY),
    "adamic-adar": Entry(quick={}, changed=DECAY),
    "resource-allocation": Entry(quick={}, changed=DECAY),
    "svd": Entry(
        quick={"features": 4},
        changed={"features": 3} | DECAY,
        exempt={"seed": "where an iteration begins, not where it ends"},
    ),
    "node2vec": Entry(
        quick={"features": 8, "walks_per_node": 3, "walk_length": 8},
        changed={
            "features": 4,
            "walks_per_node": 2,
            "walk_length": 7,
            "window": 2,
            "p": 0.25,
            "q": 4.0,
            "negatives": 2,
            "subsample": 0.01,
            "epochs": 2,
            "seed": 1,
        },
        variants={"preset": {}},
        planted={"walks_per_node": 20, "walk_length": 20, "window": 3, "epochs": 5},
    ),
    "pair-logistic": Entry(
        quick={"transitions": 2},
        changed={"transitions": 3, "low_rank": False, "l2": 0.1, "seed": 1},
        least=2,
    ),
    "pair-boosting": Entry(
        quick={"transitions": 2, "rounds": 5},
        changed={
            "transitions": 3,
            "low_rank": False,
            "rounds": 6,
            "leaves": 2,
            "learning_rate": 0.2,
            "l2": 0.1,
            "split_features": 1.0,
            "seed": 1,
        },
        planted={"rounds": 50},
        least=2,
        copies=6,  # a leaf has at least 20 examples
    ),
    "gcn-ae": AUTOENCODER,
    "gat-ae": replace(
        AUTOENCODER,
        quick=AUTOENCODER.quick | {"heads": (2, 2)},
        changed=AUTOENCODER.changed | {"heads": (4, 1)},
    ),
    "dynaernn": Entry(
        quick={"encoder": (8, 6), "recurrent": (6, 4), "epochs": 2, "batch_size": 4, "learning_rate": 0.01}
        | {"device": "cpu"},
        changed={
            "history": 2,
            "encoder": (8,),
            "recurrent": (6, 5),
            "link_weights": {"raw": "binary", "binary": "normalized", "normalized": "raw"},
            "beta": 2.0,
            "nu1": 0.01,
            "nu2": 0.01,
            "learning_rate": 0.02,
            "batch_size": 3,
            "epochs": 3,
            "seed": 1,
        },
        exempt={
            "device": "where it is computed, not what",
            "patience": "has nothing to wait for without validation (tests/models/test_trained.py has it)",
        },
        # A ReLU may be 0 for all rows that a node is in: not with these seeds, and not all the time.
        variants={
            "one layer": NO_PENALTY | {"encoder": (3,), "recurrent": (4, 3), "seed": 5},
            "two layers": NO_PENALTY | {"encoder": (3, 3), "recurrent": (4, 3), "seed": 69},
        },
        planted={"encoder": (32,), "recurrent": (16,), "batch_size": 40, "epochs": 60},
    ),
    "graphsage": GRAPHSAGE,
    "dynamic-triad": Entry(
        quick={"features": 8, "epochs": 2, "batch_size": 4, "device": "cpu"},
        changed={
            "features": 4,
            "smoothness": 2.0,
            "closure": 2.0,
            "margin": 3.0,
            "negatives": 2,
            "learning_rate": 2e-3,
            "batch_size": 3,
            "epochs": 3,
            "seed": 1,
        },
        exempt={
            "device": "where it is computed, not what",
            "patience": "has nothing to wait for without validation (tests/models/test_trained.py has it)",
        },
        variants={"preset": {"epochs": 10}},
        planted={"features": 16, "batch_size": 256, "epochs": 50},
        remembers=True,
    ),
    "dyngem": Entry(
        quick={"features": 4, "hidden": (6,), "epochs": 2, "batch_size": 4, "device": "cpu"},
        changed={
            "features": 3,
            "hidden": (7, 6),
            "ratio": 0.9,
            "alpha": 0.1,
            "beta": 3.0,
            "nu1": 0.1,
            "nu2": 0.1,
            "rows": {"snapshot": "so-far", "so-far": "snapshot"},
            "link_weights": {"raw": "binary", "normalized": "raw", "binary": "raw"},
            "output": {"linear": "relu", "relu": "linear"},
            "learning_rate": 4e-3,
            "batch_size": 3,
            "epochs": 3,
            "seed": 1,
        },
        exempt={
            "device": "where it is computed, not what",
            "patience": "has nothing to wait for without validation (tests/models/test_trained.py has it)",
        },
        # A ReLU may be 0 for a node's neighbours all the time: not with this seed. The hidden layer becomes wider.
        variants={
            "growing": {"hidden": (), "features": 1, "ratio": 0.3, "nu1": 0.0, "nu2": 0.0, "epochs": 10, "seed": 4}
            | {"rows": "so-far", "link_weights": "binary", "learning_rate": 0.01}
        },
        planted={"features": 16, "hidden": (32,), "epochs": 50, "batch_size": 16, "learning_rate": 0.01},
        remembers=True,
    ),
}

METHODS = sorted(dysat.MODELS)
# A model without presets is met with its defaults. Those for a dataset differ from the others in numbers alone.
PRESETS = [
    (method, preset)
    for method in METHODS
    for preset in [name for name in dysat.MODELS[method].presets() if not name.startswith("sankar2019")] or [None]
]
each_preset = pytest.mark.parametrize(("method", "preset"), PRESETS)


def build(method: str, preset: str | None, **changes: Any) -> LinkModel:
    entry, model = SUITE[method], dysat.MODELS[method]
    options = {**entry.quick, **entry.of_preset.get(preset or "", {}), **changes}
    return model.with_options(options) if preset is None else model.from_preset(preset, **options)


def small_graph(method: str, graph: dysat.DynamicGraph | None = None) -> dysat.DynamicGraph:
    """A graph side by side with itself as often as the model needs; node u of copy c has id u · copies + c."""
    graph, copies = graph or meetings(), SUITE[method].copies
    if copies == 1:
        return graph
    snapshots = []
    for s in graph:
        u, v, weights = (part.numpy() for part in s.links())
        u, v = (np.add.outer(ids * copies, np.arange(copies)).ravel() for ids in (u, v))
        snapshot = s.from_links(
            u, v, weights.repeat(copies), num_nodes=s.num_nodes * copies, start=s.start, stop=s.stop
        )
        snapshots.append(snapshot)
    return dysat.DynamicGraph(np.arange(graph.num_nodes * copies), tuple(snapshots), clock="step")


def result(model: LinkModel, step: int) -> Tensor:
    """What a model says at a step: its embeddings, or the scores of all pairs where it has none."""
    if isinstance(model, EmbeddingModel):
        return model.embed(step)
    return model.pair_scores(torch.tensor(list(combinations(range(model.graph_.known[step]), 2))), step)


def all_results(model: LinkModel) -> list[Tensor]:
    return [result(model, step) for step in model.steps()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def same_state(one: LinkModel, other: LinkModel) -> bool:
    """Whether two models have learned the same."""
    a, b = one._state(), other._state()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def weights(model: LinkModel) -> dict[str, Tensor]:
    """What was learned, without what is stored beside it."""
    found: dict[str, Tensor] = getattr(model, "weights", model._learned)()
    return found


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
    assert model.method == method and issubclass(model, LinkModel)
    names = {option.name for option in model.options()}
    assert names == entry.changed.keys() | entry.exempt.keys(), "an option without another value to try, or a reason"
    assert not entry.changed.keys() & entry.exempt.keys() and all(entry.exempt.values())
    assert entry.variants or "epochs" not in names, "a model that is trained must show that all of it is"


VARIANTS = [(*pair, name) for pair in PRESETS if pair[0] in SUITE for name in SUITE[pair[0]].variants]


@pytest.mark.parametrize(("method", "preset", "variant"), VARIANTS)
def test_every_parameter_receives_a_gradient_and_moves(method: str, preset: str | None, variant: str) -> None:
    graph, options = with_features(meetings()), SUITE[method].variants[variant]
    first = weights(build(method, preset, **{**options, "epochs": 0}).fit(graph))
    for name, after in weights(build(method, preset, **options).fit(graph)).items():
        moved = (after != first[name]).float().mean()
        assert moved == 1, f"{name}: {moved:.0%} of it moved"
        assert after.isfinite().all()


OPTIONS = [(*pair, name) for pair in PRESETS if pair[0] in SUITE for name in SUITE[pair[0]].changed]


@pytest.fixture(scope="module")
def unchanged() -> dict[tuple[str, str | None], list[Tensor]]:
    found = {}
    for method, preset in PRESETS:
        if method in SUITE:
            found[method, preset] = all_results(build(method, preset).fit(with_features(small_graph(method))))
    return found


@pytest.mark.parametrize(("method", "preset", "option"), OPTIONS)
def test_every_option_changes_the_result(
    method: str, preset: str | None, option: str, unchanged: dict[tuple[str, str | None], list[Tensor]]
) -> None:
    value, context = SUITE[method].changed[option], SUITE[method].context.get(option, {})
    before = build(method, preset, **context).values()[option]
    value = value[before] if isinstance(value, dict) else value
    assert value != before
    graph = with_features(small_graph(method))
    model = build(method, preset, **{**context, option: value}).fit(graph)
    assert model.values()[option] == value
    now, then = result(model, model.steps()[-1]), unchanged[method, preset][-1]
    if context:
        then = result(build(method, preset, **context).fit(graph), -1)
    assert now.shape != then.shape or (now - then).abs().max() > 1e-6


@each_preset
def test_the_same_seed_gives_the_same_bits_and_a_second_fit_forgets_the_first(method: str, preset: str | None) -> None:
    graph = small_graph(method)
    once = build(method, preset).fit(graph)
    again = build(method, preset).fit(two_blocks(12, 3)).fit(graph)
    assert same(all_results(once), all_results(again))
    assert same_state(once, again)
    assert once.top_links(99) == again.top_links(99)
    if "seed" in SUITE[method].changed:
        other = build(method, preset, seed=1).fit(graph)
        assert not any(torch.equal(a, b) for a, b in zip(all_results(once), all_results(other), strict=True))


@each_preset
def test_the_graph_is_bit_equal_after_fit(method: str, preset: str | None) -> None:
    graph = with_features(small_graph(method))
    model = build(method, preset).fit(graph)
    all_results(model), model.top_links(3)
    assert model.graph_ is graph and graph.equals(with_features(small_graph(method)))
    assert graph.fingerprint == replace(graph).fingerprint  # not only the one remembered


@each_preset
@pytest.mark.parametrize("t", range(1, 5))
def test_a_later_snapshot_changes_nothing_before_it(method: str, preset: str | None, t: int) -> None:
    """Neither what is learned from the past, nor what a network that is given says of it."""
    whole = meetings()
    links = [[(0, 3), (1, 4), (2, 5)], [(0, 7), (7, 6), (1, 5)], [(6, 7), (0, 4)], [(0, 5), (1, 5), (2, 6)]]
    later = make_graph(whole.known[t:], links[t - 1 :])
    moved = [replace(snapshot, start=snapshot.start + t, stop=snapshot.stop + t) for snapshot in later]
    other = replace(whole, snapshots=(*whole.snapshots[:t], *moved), nodes=whole.nodes.copy())
    whole, other = small_graph(method, whole), small_graph(method, other)
    if t >= SUITE[method].least:
        assert same(*(all_results(build(method, preset).fit(graph[:t])) for graph in (whole, other)))
    model, twin = build(method, preset).fit(whole), build(method, preset)
    twin.graph_ = other
    twin._restore(model._learned())
    for step in range(t):
        assert_close(result(twin, step), result(model, step), atol=1e-6, rtol=1e-6)
    if SUITE[method].remembers:
        assert_close(result(twin, t), result(model, t), atol=1e-6, rtol=1e-6)
    else:
        assert (result(twin, t) - result(model, t)).abs().max() > 1e-4  # the change is there to be seen


@each_preset
@pytest.mark.parametrize(
    "labels",
    [np.arange(48)[::-1] * 10 - 3, np.array(["zoë", "a", "", "b c", "0", "Ω", "z", "y", *map(str, range(1, 41))], "O")],
    ids=["int", "str"],
)
def test_labels_are_only_names(method: str, preset: str | None, labels: Any) -> None:
    graph = small_graph(method)
    renaming = replace(graph, nodes=labels[: graph.num_nodes].copy())
    plain, named = (build(method, preset).fit(given) for given in (graph, renaming))
    assert same(all_results(plain), all_results(named))
    renamed = [(labels[u], labels[v], score, known) for u, v, score, known in plain.top_links(99)]
    assert [tuple(link) for link in named.top_links(99)] == renamed


@each_preset
def test_save_and_load(method: str, preset: str | None, tmp_path: Path) -> None:
    graph = with_features(small_graph(method, meetings(np.array(list("abcdefgh"), dtype=object))))
    model = build(method, preset).fit(graph)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", device="cpu")
    assert loaded.values() == model.values() and loaded.graph_.equals(graph) and loaded.steps() == model.steps()
    assert same(all_results(loaded), all_results(model))
    assert same_state(loaded, model)
    assert loaded.top_links(99) == model.top_links(99)
    loaded.save(tmp_path / "again")
    assert same(all_results(type(model).load(tmp_path / "again")), all_results(model))


@each_preset
def test_scores_are_of_pairs_whichever_comes_first(method: str, preset: str | None) -> None:
    model = build(method, preset).fit(small_graph(method))
    for step in model.steps():
        pairs = torch.tensor(list(combinations(range(model.graph_.known[step]), 2)))
        scores, chances = model.pair_scores(pairs, step), model.score_links(pairs, step)
        assert torch.equal(model.pair_scores(pairs.flip(1), step), scores) and scores.isfinite().all()
        assert_close(model.pair_scores(pairs[[3, 1]], step), scores[[3, 1]])  # whatever else is asked for
        assert (chances >= 0).all() and (chances <= 1).all()
        assert (chances[scores.argsort()].diff() >= 0).all()


@each_preset
def test_two_planted_blocks_are_found(method: str, preset: str | None) -> None:
    graph = two_blocks()
    model = build(method, preset, **SUITE[method].planted).fit(graph[:-1])
    u, v, _ = graph[-1].links()
    linked = set(zip(u.tolist(), v.tolist(), strict=True))
    pairs = list(combinations(range(graph.num_nodes), 2))
    scores = model.score_links(pairs)
    is_link = torch.tensor([pair in linked for pair in pairs])
    above = scores[is_link][:, None] - scores[~is_link]  # every link against every other pair
    auc = ((above > 0).float() + 0.5 * (above == 0)).mean()
    assert auc > SUITE[method].auc
