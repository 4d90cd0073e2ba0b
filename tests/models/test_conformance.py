"""Properties of every model in dysat.MODELS; SUITE says how to train each of them quickly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
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
from dysat.models.base.best_pairs import pair_keys
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import LinkModel
from dysat.models.base.stepwise import StepwiseModel
from dysat.models.base.trained import TrainedModel
from dysat.training import Epoch, Progress


@dataclass(frozen=True)
class Entry:
    """How the suite tests a method."""

    quick: dict[str, Any]  # options of a small, fast model
    changed: dict[str, Any]  # another value of every option, or a mapping from its value to another
    exempt: dict[str, str] = field(default_factory=dict)  # options that cannot change the result, with the reason
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)  # cover all parameters; only gradients move them
    planted: dict[str, Any] = field(default_factory=dict)  # options for the planted blocks
    auc: float = 0.8  # minimum AUC on the planted blocks; knowing the blocks and nothing else gives about 0.9
    least: int = 1  # minimum number of snapshots to fit
    copies: int = 1  # number of copies of the small graph to train on
    context: dict[str, dict[str, Any]] = field(default_factory=dict)  # options that another option needs to matter
    preset_options: dict[str, dict[str, Any]] = field(default_factory=dict)  # more quick options, by preset
    base: str | None = None  # preset for tests of single options and parameters; None is the first
    snapshots: int = 5  # of the graph for tests of single options
    remembers: bool = False  # embeddings of past steps are stored, not computed from the graph


DECAY = {"decay": 0.25}
NO_L2 = {"l2": 0.0, "epochs": 4, "batch_size": 4}
DYSAT = Entry(
    quick=QUICK | {"batch_size": 16, "l2": 0.05},
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
        "device": "only says where the model runs",
        "patience": "needs validation (tested in tests/models/test_dysat.py)",
    },
    variants={
        "preset": NO_L2,
        "two layers": NO_L2
        | {"structural_heads": (4, 2), "structural_features": (16, 8)}
        | {"temporal_heads": (2, 2), "temporal_features": (16, 8), "residual": False},
        "features": NO_L2 | {"inputs": "features"},
        "both, residual": NO_L2 | {"inputs": "both", "residual": True},
        "temporal": NO_L2 | {"inputs": "both", "blocks": "temporal"},
        "structural": NO_L2 | {"inputs": "both", "blocks": "structural"},
    },
    planted={
        "structural_heads": (4,),
        "structural_features": (32,),
        "temporal_heads": (4,),
        "temporal_features": (32,),
        "walk_length": 10,
        # With 10 negatives of weight 1 per context, two nodes of the same block would score low as well.
        "negative_weight": 0.1,
        "l2": 5e-4,
        "batch_size": 256,
        "epochs": 20,
        "learning_rate": 0.01,
    },
)
FUTURE = {"future_weight": 0.5, "matched": 0.5, "transitions": 2}
FORECASTING = replace(
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
        "pair_score": "changes scores, not embeddings (tested in tests/models/test_dysat_forecast.py)",
        "embeddings": "leaves no embeddings to compare (tested in tests/models/test_forecast_only.py)",
        "keep_epoch": "needs validation (tested in tests/models/test_dysat_forecast.py)",
    },
    # With these seeds no ReLU is 0 for all eight nodes.
    variants=DYSAT.variants
    | {name: DYSAT.variants[name] | {"seed": 1} for name in ("features", "temporal")}
    | {
        "future": NO_L2
        | FUTURE
        | {"activity": True, "spectrum": 2, "positions": "relative", "walk_weight": 0.0, "agreement": 0.5, "seed": 18}
    },
    context=dict.fromkeys(("walk_weight", "future_negatives", "matched", "transitions"), FUTURE)
    | {name: {"residual": False} for name in ("structural_features", "temporal_features")},
    preset_options={"default": {"walk_weight": 0.5, "spectrum": 2}},
    base="program",
    snapshots=3,
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
        "device": "only says where the model runs",
        "patience": "needs validation (tested in tests/models/base/test_trained.py)",
    },
    # With these seeds no ReLU stays 0 for a node and all its neighbours.
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
        "aggregator": "gat",  # has heads
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
        "device": "only says where the model runs",
        "patience": "needs validation (tested in tests/models/base/test_trained.py)",
    },
    # With these seeds no ReLU is 0 for a node and all its neighbours.
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
    "dysat": FORECASTING,
    "incsat": replace(
        DYSAT,
        changed=DYSAT.changed | {"carry": {True: False, False: True}},
        # With this seed and carried weights no ReLU is 0 for all nodes of a snapshot.
        variants={
            name: DYSAT.variants[name] | {"carry": True, "seed": 5}
            for name in ("preset", "two layers", "temporal", "structural")
        },
        base="program",
        snapshots=3,
        remembers=True,
    ),
    "last-snapshot": Entry(quick={}, changed={}, auc=0.75),  # four fifths of the links repeat
    "edgebank": Entry(quick={}, changed={"window": 2}, planted={"window": 2}),
    "edge-memory": Entry(quick={}, changed=DECAY),
    "degree-product": Entry(quick={}, changed=DECAY, auc=0.4),  # all degrees are similar
    "degree-sum": Entry(quick={}, changed=DECAY, auc=0.4),
    "common-neighbours": Entry(quick={}, changed=DECAY),
    "adamic-adar": Entry(quick={}, changed=DECAY),
    "resource-allocation": Entry(quick={}, changed=DECAY),
    "svd": Entry(
        quick={"features": 4},
        changed={"features": 3} | DECAY,
        exempt={"seed": "the iteration converges to the same result"},
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
            "device": "only says where the model runs",
            "patience": "needs validation (tested in tests/models/base/test_trained.py)",
        },
        # With these seeds no ReLU stays 0 for all rows of a node.
        variants={
            "one layer": NO_PENALTY | {"encoder": (3,), "recurrent": (4, 3), "seed": 5},
            "two layers": NO_PENALTY | {"encoder": (3, 3), "recurrent": (4, 3), "seed": 69},
        },
        planted={"encoder": (32,), "recurrent": (16,), "batch_size": 40, "epochs": 40},
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
            "device": "only says where the model runs",
            "patience": "needs validation (tested in tests/models/base/test_trained.py)",
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
            "device": "only says where the model runs",
            "patience": "needs validation (tested in tests/models/base/test_trained.py)",
        },
        # With this seed no ReLU stays 0 for all neighbours of a node. The hidden layer is widened.
        variants={
            "growing": {"hidden": (), "features": 1, "ratio": 0.3, "nu1": 0.0, "nu2": 0.0, "epochs": 10, "seed": 4}
            | {"rows": "so-far", "link_weights": "binary", "learning_rate": 0.01}
        },
        planted={"features": 16, "hidden": (32,), "epochs": 25, "batch_size": 16, "learning_rate": 0.02},
        remembers=True,
    ),
}

METHODS = sorted(dysat.MODELS)


def presets_of(method: str) -> list[str | None]:
    """The presets of a method; None, its defaults, if it has none. Presets for a dataset differ in numbers only."""
    return [name for name in dysat.MODELS[method].presets() if not name.startswith("sankar2019")] or [None]


def base_preset(method: str) -> str | None:
    return SUITE[method].base or presets_of(method)[0]


def is_trained_at_once(method: str) -> bool:
    model = dysat.MODELS[method]
    return issubclass(model, TrainedModel) and not issubclass(model, StepwiseModel)


TESTED = [method for method in METHODS if method in SUITE]
PRESETS = [(method, preset) for method in TESTED for preset in presets_of(method)]
# Methods that share the code of another; their other options and variants run in `make test-all`.
OWN_OPTIONS = {"incsat": {"carry", "history", "batch_size", "seed"}, "gat-ae": {"heads", "features", "seed"}}
OPTIONS = [
    pytest.param(method, option, marks=() if option in OWN_OPTIONS.get(method, {option}) else pytest.mark.slow)
    for method in TESTED
    for option in SUITE[method].changed
]
# Every variant of the base preset, and the first variant of every other preset.
VARIANTS = [
    pytest.param(method, preset, variant, marks=pytest.mark.slow if number and method in OWN_OPTIONS else ())
    for method, preset in PRESETS
    for number, variant in enumerate(SUITE[method].variants)
    if preset == base_preset(method) or number == 0
]
each_preset = pytest.mark.parametrize(
    ("method", "preset"), [pytest.param(*case, marks=pytest.mark.slow if case[1] == "text" else ()) for case in PRESETS]
)
# "text" differs from "program" in option values only: it is trained, and a slow test evaluates it on planted blocks.
each_case = pytest.mark.parametrize(("method", "preset"), [case for case in PRESETS if case[1] != "text"])


def build(method: str, preset: str | None, **changes: Any) -> LinkModel:
    entry, model = SUITE[method], dysat.MODELS[method]
    options = {**entry.quick, **entry.preset_options.get(preset or "", {}), **changes}
    return model.with_options(options) if preset is None else model.from_preset(preset, **options)


@cache
def small_graph(method: str) -> dysat.DynamicGraph:
    return copied(method, meetings())


@cache
def featured_graph(method: str) -> dysat.DynamicGraph:
    return with_features(small_graph(method))


@cache
def short_graph(method: str) -> dysat.DynamicGraph:
    return featured_graph(method)[: SUITE[method].snapshots]


@cache
def fitted(method: str, preset: str | None) -> LinkModel:
    """A model of the small graph, shared by all tests that do not change it."""
    return build(method, preset).fit(small_graph(method))


@cache
def last_result(method: str, context: tuple[tuple[str, Any], ...]) -> Tensor:
    """The last result of the base preset on the graph with features."""
    model = build(method, base_preset(method), **dict(context)).fit(short_graph(method))
    return result(model, model.steps()[-1])


def copied(method: str, graph: dysat.DynamicGraph) -> dysat.DynamicGraph:
    """Disjoint copies of a graph, as many as the method needs; node u of copy c has id u · copies + c."""
    copies = SUITE[method].copies
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


def with_features(graph: dysat.DynamicGraph) -> dysat.DynamicGraph:
    return graph.with_features(np.random.default_rng(0).normal(size=(graph.num_nodes, 3)))


def result(model: LinkModel, step: int) -> Tensor:
    """The embeddings of a step, or the scores of all pairs for a model without embeddings."""
    if isinstance(model, EmbeddingModel):
        return model.embed(step)
    return model.pair_scores(torch.tensor(list(combinations(range(model.graph_.known[step]), 2))), step)


def all_results(model: LinkModel) -> list[Tensor]:
    return [result(model, step) for step in model.steps()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def same_state(one: LinkModel, other: LinkModel) -> bool:
    a, b = one._state(), other._state()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def weights(model: LinkModel) -> dict[str, Tensor]:
    """The trained parameters, without embeddings stored with them."""
    found: dict[str, Tensor] = getattr(model, "weights", model._learned)()
    return found


@pytest.fixture(autouse=True)
def torch_random_state_is_untouched() -> Iterator[None]:
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


def test_suite_covers_every_method_and_option() -> None:
    assert SUITE.keys() == dysat.MODELS.keys(), "every method of dysat.MODELS needs an entry in SUITE"
    for method, entry in SUITE.items():
        model = dysat.MODELS[method]
        assert model.method == method and issubclass(model, LinkModel)
        names = {option.name for option in model.options()}
        assert names == entry.changed.keys() | entry.exempt.keys(), f"{method}: an option without a test or a reason"
        assert not entry.changed.keys() & entry.exempt.keys() and all(entry.exempt.values()), method
        assert entry.variants or "epochs" not in names, f"{method}: nothing shows that all parameters are trained"


@pytest.mark.parametrize(("method", "preset", "variant"), VARIANTS)
def test_every_parameter_is_trained(method: str, preset: str | None, variant: str) -> None:
    graph, options = featured_graph("dysat"), SUITE[method].variants[variant]
    first = weights(build(method, preset, **{**options, "epochs": 0}).fit(graph))
    for name, after in weights(build(method, preset, **options).fit(graph)).items():
        moved = (after != first[name]).float().mean()
        assert moved == 1, f"{name}: {moved:.0%} of it moved"
        assert after.isfinite().all()


@pytest.mark.parametrize(("method", "option"), OPTIONS)
def test_every_option_changes_the_result(method: str, option: str) -> None:
    preset, value, context = base_preset(method), SUITE[method].changed[option], SUITE[method].context.get(option, {})
    before = getattr(build(method, preset, **context), option)
    value = value[before] if isinstance(value, dict) else value
    assert value != before
    model = build(method, preset, **{**context, option: value}).fit(short_graph(method))
    assert getattr(model, option) == value
    now, then = result(model, model.steps()[-1]), last_result(method, tuple(context.items()))
    assert now.shape != then.shape or (now - then).abs().max() > 1e-6


@pytest.mark.parametrize("method", [name for name in TESTED if is_trained_at_once(name)])
def test_resume_reaches_the_same_result(method: str) -> None:
    preset, graph = base_preset(method), small_graph(method)
    seen: list[Epoch] = []
    kept: list[Progress] = []
    whole = build(method, preset, epochs=3).fit(graph, on_epoch=seen.append)
    assert whole.finished_ and seen == whole.epochs_ and [epoch.number for epoch in seen] == [1, 2, 3]
    assert all(epoch.score is None for epoch in seen)  # no validation

    def keep(now: Progress) -> None:
        kept.append(Progress.restore(now.facts(), {name: tensor.clone() for name, tensor in now.tensors.items()}))

    stopped = build(method, preset, epochs=3).fit(graph, stop=lambda: True, keep=keep)
    assert not stopped.finished_ and len(stopped.epochs_) == 1
    resumed = build(method, preset, epochs=3).fit(graph, progress=kept[0])
    assert resumed.finished_ and same_state(resumed, whole)
    assert [epoch.loss for epoch in resumed.epochs_] == [epoch.loss for epoch in whole.epochs_]


@each_case
def test_results_are_reproducible_and_fit_starts_from_scratch(method: str, preset: str | None) -> None:
    graph, once = small_graph(method), fitted(method, preset)
    again = build(method, preset).fit(two_blocks(12, 3)[:2]).fit(graph)
    assert same(all_results(once), all_results(again))
    assert same_state(once, again)
    assert once.top_links(99) == again.top_links(99)
    if "seed" in SUITE[method].changed:
        other = build(method, preset, seed=1).fit(graph)
        assert not any(torch.equal(a, b) for a, b in zip(all_results(once), all_results(other), strict=True))


@each_case
@pytest.mark.parametrize("t", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_later_snapshots_do_not_change_earlier_results(method: str, preset: str | None, t: int) -> None:
    """Neither training on the first snapshots, nor the results of a trained model on them."""
    whole = meetings()
    links = [[(0, 3), (1, 4), (2, 5)], [(0, 7), (7, 6), (1, 5)], [(6, 7), (0, 4)], [(0, 5), (1, 5), (2, 6)]]
    later = make_graph(whole.known[t:], links[t - 1 :])
    moved = [replace(snapshot, start=snapshot.start + t, stop=snapshot.stop + t) for snapshot in later]
    other = copied(method, replace(whole, snapshots=(*whole.snapshots[:t], *moved), nodes=whole.nodes.copy()))
    if t >= SUITE[method].least:
        assert same(*(all_results(build(method, preset).fit(graph[:t])) for graph in (small_graph(method), other)))
    model, twin = fitted(method, preset), build(method, preset)
    twin.graph_ = other
    twin._restore(model._learned())
    for step in range(t):
        assert_close(result(twin, step), result(model, step), atol=1e-6, rtol=1e-6)
    if SUITE[method].remembers:
        assert_close(result(twin, t), result(model, t), atol=1e-6, rtol=1e-6)
    else:
        assert (result(twin, t) - result(model, t)).abs().max() > 1e-4  # the change is visible at step t


STRINGS = np.array(["zoë", "a", "", "b c", "0", "Ω", "z", "y", *map(str, range(1, 41))], "O")


@each_case
def test_node_labels_do_not_affect_the_results(method: str, preset: str | None) -> None:
    graph, plain = small_graph(method), fitted(method, preset)
    integers = np.arange(48)[::-1] * 10 - 3
    for labels in (STRINGS, integers) if preset == base_preset(method) else (STRINGS,):
        named = build(method, preset).fit(replace(graph, nodes=labels[: graph.num_nodes].copy()))
        assert same(all_results(plain), all_results(named))
        renamed = [(labels[u], labels[v], score, known) for u, v, score, known in plain.top_links(99)]
        assert [tuple(link) for link in named.top_links(99)] == renamed


@each_case
def test_loaded_model_equals_the_saved_one(method: str, preset: str | None, tmp_path: Path) -> None:
    """Also: neither `fit` nor any query changes the graph."""

    def make() -> dysat.DynamicGraph:
        return with_features(copied(method, meetings(np.array(list("abcdefgh"), dtype=object))))

    graph = make()
    model = build(method, preset).fit(graph)
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", device="cpu")
    assert options_of(loaded) == options_of(model) and loaded.steps() == model.steps()
    assert same(all_results(loaded), all_results(model))
    assert same_state(loaded, model)
    assert loaded.top_links(99) == model.top_links(99)
    loaded.save(tmp_path / "again")
    assert same(all_results(type(model).load(tmp_path / "again")), all_results(model))
    assert model.graph_ is graph and graph.equals(make()) and loaded.graph_.equals(graph)
    assert graph.fingerprint == replace(graph).fingerprint  # computed again, not cached


def options_of(model: LinkModel) -> dict[str, Any]:
    return {option.name: getattr(model, option.name) for option in model.options()}


@each_case
def test_scores_do_not_depend_on_the_order_of_a_pair(method: str, preset: str | None) -> None:
    model = fitted(method, preset)
    for step in model.steps():
        pairs = torch.tensor(list(combinations(range(model.graph_.known[step]), 2)))
        scores, chances = model.pair_scores(pairs, step), model.score_links(pairs, step, ids=True)
        assert torch.equal(model.pair_scores(pairs.flip(1), step), scores) and scores.isfinite().all()
        assert_close(model.pair_scores(pairs[[3, 1]], step), scores[[3, 1]])  # nor on the other pairs
        assert (chances >= 0).all() and (chances <= 1).all()
        before = torch.isin(pair_keys(pairs, model.graph_.num_nodes), linked_up_to(model, step))
        for rows in (before, ~before):  # new pairs and pairs linked before may be calibrated separately
            assert (chances[rows][scores[rows].argsort()].diff() >= 0).all()


def linked_up_to(model: LinkModel, step: int) -> torch.Tensor:
    parts = [torch.stack(snapshot.links()[:2], 1) for snapshot in model.graph_.snapshots[: step + 1]]
    return pair_keys(torch.cat(parts), model.graph_.num_nodes)


@each_case
def test_real_probabilities_have_the_odds_of_the_base_rate(method: str, preset: str | None) -> None:
    model = fitted(method, preset)
    step = model.steps()[-1]
    known, (u, v, _) = model.graph_.known[step - 1], model.graph_[step].links()
    links = sum(a != b and b < known for a, b in zip(u.tolist(), v.tolist(), strict=True))
    pairs = torch.tensor(list(combinations(range(model.graph_.known[step]), 2)))
    chances, real = (
        model.score_links(pairs, ids=True).double(),
        model.score_links(pairs, ids=True, calibrate="real").double(),
    )
    ratio = links / (known * (known - 1) // 2 - links)
    rows = chances < 1 - 1e-6
    assert_close((real / (1 - real))[rows], (ratio * chances / (1 - chances))[rows], rtol=1e-3, atol=1e-6)
    with pytest.raises(dysat.ModelError, match="calibrate='half' is neither 'balanced' nor 'real'"):
        model.score_links(pairs, ids=True, calibrate="half")  # type: ignore[arg-type]


@each_preset
def test_two_planted_blocks_are_found(method: str, preset: str | None) -> None:
    graph = two_blocks()
    model = build(method, preset, **SUITE[method].planted).fit(graph[:-1])
    u, v, _ = graph[-1].links()
    linked = set(zip(u.tolist(), v.tolist(), strict=True))
    pairs = list(combinations(range(graph.num_nodes), 2))
    scores = model.score_links(pairs, ids=True)
    is_link = torch.tensor([pair in linked for pair in pairs])
    difference = scores[is_link][:, None] - scores[~is_link]  # every link against every other pair
    auc = ((difference > 0).float() + 0.5 * (difference == 0)).mean()
    assert auc > SUITE[method].auc
