"""Data leakage: each test fails if information about the future or the test examples leaks."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dysat
from dysat.evaluation.hard_negatives import NEGATIVES, Negatives, with_negatives
from dysat.evaluation.probe import ProbeResult, evaluate_probe, evaluate_scores
from dysat.evaluation.protocols import PROTOCOLS, LinkSplit, Protocol, link_split, single_step

STEPS = (0, 1, 2, 3)  # the largest snapshots of UCI, so that chance moves an AUC little


@pytest.fixture(scope="module")
def uci() -> dysat.DynamicGraph:
    return dysat.load_dataset("uci")


@pytest.fixture(scope="module")
def splits(uci: dysat.DynamicGraph) -> list[LinkSplit]:
    return [single_step(uci, step, repeats=4) for step in STEPS]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def degrees(graph: dysat.DynamicGraph, step: int) -> Tensor:
    """Return log(1 + degree) up to a step, which distinguishes links from uniform negatives.  # [N, 1]"""
    found = torch.zeros(graph.num_nodes, dtype=torch.float64)
    for snapshot in graph.snapshots[: step + 1]:
        found[snapshot.rows] += snapshot.offsets.diff()
    return (1 + found).log().unsqueeze(1)


def mean_auc(results: list[ProbeResult]) -> float:
    return float(np.mean([result.auc for result in results]))


def shuffled(split: LinkSplit, seed: int = 0) -> LinkSplit:
    order = torch.randperm(len(split.labels), generator=torch.Generator().manual_seed(seed + split.step))
    return dataclasses.replace(split, labels=split.labels[order])


def test_probe_on_shuffled_labels_has_auc_one_half(uci: dysat.DynamicGraph, splits: list[LinkSplit]) -> None:
    """With many features, a probe that saw a test example would remember it."""
    results, peeked = [], []
    for split in splits:
        embeddings = torch.cat([degrees(uci, split.step), normal(1809, 63).double()], 1)
        without = shuffled(split)
        results.append(evaluate_probe(embeddings, without))
        peeked.append(evaluate_probe(embeddings, dataclasses.replace(without, train=without.train | without.test)))
        assert evaluate_probe(embeddings, split).auc > 0.6  # the true labels can be learned
    assert mean_auc(results) == pytest.approx(0.5, abs=0.02)
    assert mean_auc(peeked) > 0.54  # a leak would be visible


def test_past_probe_on_shuffled_labels_has_auc_one_half(uci: dysat.DynamicGraph, splits: list[LinkSplit]) -> None:
    results, honest = [], []
    for before, split in pairwise(splits):
        past = degrees(uci, before.step), before
        results.append(evaluate_probe(degrees(uci, split.step), shuffled(split), past))
        honest.append(evaluate_probe(degrees(uci, split.step), split, past))
    assert mean_auc(results) == pytest.approx(0.5, abs=0.02) and mean_auc(honest) > 0.7


@pytest.mark.parametrize("kind", NEGATIVES[:-1])
def test_noise_has_auc_one_half(uci: dysat.DynamicGraph, splits: list[LinkSplit], kind: Negatives) -> None:
    hard = [with_negatives(split, uci, kind) for split in splits]
    results = [evaluate_probe(normal(1809, 8, seed=split.step), split) for split in hard]
    assert mean_auc(results) == pytest.approx(0.5, abs=0.02)
    results = [evaluate_scores(normal(len(split.labels), seed=split.step), split) for split in hard]
    assert mean_auc(results) == pytest.approx(0.5, abs=0.02)


def test_noise_scaled_by_degree_is_above_one_half(uci: dysat.DynamicGraph, splits: list[LinkSplit]) -> None:
    """The length of a vector alone distinguishes links from uniform negatives, so the test above excludes it."""
    noise = [normal(1809, 8, seed=split.step).abs() * degrees(uci, split.step) for split in splits]
    results = [evaluate_probe(e, split) for e, split in zip(noise, splits, strict=True)]
    assert mean_auc(results) > 0.6


# Every protocol and every kind of negatives; the code of the two is independent.
CASES = [*product(PROTOCOLS, ["degree-matched"]), *product(["single-step"], NEGATIVES[:-2])]


@pytest.mark.parametrize(("protocol", "kind"), CASES)
def test_parts_are_disjoint_and_negatives_are_not_linked(
    uci: dysat.DynamicGraph, protocol: Protocol, kind: Negatives
) -> None:
    target = 5 if protocol == "multi-step" else 2
    split = with_negatives(link_split(uci, 1, protocol=protocol, target=target), uci, kind)
    links = {(u, v) for u, v in zip(*(part.tolist() for part in uci[target].links()[:2]), strict=True)}
    pairs = [tuple(pair) for pair in split.pairs.tolist()]
    assert all((pair in links) == label for pair, label in zip(pairs, split.labels.tolist(), strict=True))
    assert split.pairs.max() < uci.known[1]
    for train, test in zip(split.train, split.test, strict=True):
        parts = [{pairs[i] for i in mask.nonzero().flatten().tolist()} for mask in (split.validation, train, test)]
        sizes = [int(mask.sum()) for mask in (split.validation, train, test)]
        assert [len(part) for part in parts] == sizes and min(sizes) > 0  # no duplicates
        assert len(set.union(*parts)) == sum(sizes)  # no overlap


@pytest.mark.parametrize(("protocol", "kind"), CASES)
def test_seed_determines_examples(uci: dysat.DynamicGraph, protocol: Protocol, kind: Negatives) -> None:
    one, two, other = (
        with_negatives(link_split(uci, 1, protocol=protocol, seed=seed), uci, kind, seed) for seed in (0, 0, 1)
    )
    for name in ("pairs", "labels", "validation", "train", "test"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    assert not torch.equal(one.train, other.train) and not torch.equal(one.test, other.test)
    assert torch.equal(one.pairs[one.labels], other.pairs[other.labels])  # positives do not depend on the seed
    assert not torch.equal(one.pairs[~one.labels], other.pairs[~other.labels])


# Two graphs differ in everything from snapshot 2 on; no public value of their views [:2] may differ.

SEEN = 2


def worlds() -> tuple[dysat.DynamicGraph, dysat.DynamicGraph]:
    """Two graphs with the same two snapshots, and different nodes, links, weights, times, kinds and features later."""
    past = [([(0, 1), (1, 2)], [1.0, 2.0]), ([(0, 3), (2, 3), (1, 1)], [3.0, 1.0, 5.0])]
    futures = (
        ([(0, 4), (1, 3)], [7.0, 8.0], 400, ["later"], [1], 1),
        ([(2, 5), (4, 5), (0, 6)], [17.0, 18.0, 19.0], 700, ["x", "y", "z"], [0, 1, 0], 3),
    )
    graphs = []
    for links, weights, stop, names, kinds, more in futures:
        edges = [0, 100, 200, stop]
        snapshots = [
            dysat.Snapshot.from_links(
                *np.array(pairs).T, np.array(w), num_nodes=n, start=start, stop=end, latest=np.float32(w) / 20
            )
            for (pairs, w), n, start, end in zip(
                [*past, (links, weights)], (3, 4, 4 + more), edges[:-1], edges[1:], strict=True
            )
        ]
        labels = np.array(["a", "b", "c", "d", *names], dtype=object)
        graph = dysat.DynamicGraph(labels, tuple(snapshots), notes=(f"all {stop}",))
        features = np.concatenate([np.arange(8.0).reshape(4, 2), np.full((more, 2), float(stop))])
        graphs.append(graph.with_kinds([0, 1, 0, 1, *kinds], ("user", "item")).with_features(features))
    return graphs[0], graphs[1]


# How each public method is called; the test fails for a new method until it is added here.
METHODS: dict[str, Callable[[Any, Path], Any]] = {
    "ids": lambda graph, _: graph.ids(["a", "b", "c", "d"]),
    "pair_ids": lambda graph, _: graph.pair_ids([("a", "b"), ("c", "d")]),
    "aggregate": lambda graph, _: graph.aggregate(),
    "extended": lambda graph, _: _one_more(graph),
    "summary": lambda graph, _: graph.summary(),
    "equals": lambda graph, _: graph.equals(worlds()[0][:SEEN]),
    "to": lambda graph, _: graph.to("cpu"),
    "with_attributes": lambda graph, _: graph.with_attributes(dysat.read_nodes({"id": ["a", "b"], "age": [1, 2]})),
    "with_features": lambda graph, _: graph.with_features(np.ones((graph.num_nodes, 1))),
    "without_times": lambda graph, _: graph.without_times(),
    "with_kinds": lambda graph, _: graph.with_kinds([0] * graph.num_nodes, ("one",)),
    "save": lambda graph, folder: saved(graph, folder),
    "load": lambda graph, folder: dysat.DynamicGraph.load(saved_to(graph, folder)),
    "entries": lambda snapshot, _: snapshot.entries(),
    "links": lambda snapshot, _: snapshot.links(),
    "arcs": lambda snapshot, _: snapshot.arcs() if snapshot.directed else None,
    "pairs": lambda snapshot, _: snapshot.pairs(),
    "link_times": lambda snapshot, _: snapshot.link_times(),
    "pair_times": lambda snapshot, _: snapshot.pair_times(),
    "tensors": lambda snapshot, _: list(snapshot.tensors().values()),
    "from_links": lambda snapshot, _: None,  # a constructor
}


def saved_to(graph: dysat.DynamicGraph, folder: Path) -> Path:
    graph.save(folder / "view", overwrite=True)
    return folder / "view"


def saved(graph: dysat.DynamicGraph, folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(saved_to(graph, folder).iterdir())}


def _one_more(graph: dysat.DynamicGraph) -> dysat.DynamicGraph:
    """Append a snapshot without links and without new nodes."""
    nothing, stop = np.empty(0, dtype=np.int64), graph.boundaries[-1]
    new = dysat.Snapshot.from_links(
        nothing, nothing, None, num_nodes=graph.num_nodes, start=stop, stop=stop + 1, latest=np.empty(0, np.float32)
    )
    features = graph.features[-1] if isinstance(graph.features, tuple) else None
    return graph.extended(new, features=features)


def surface(thing: Any, folder: Path, depth: int = 2) -> Any:
    """Return all public values of an object, recursively, as plain values."""
    if isinstance(thing, Tensor):
        return "tensor", str(thing.dtype), tuple(thing.shape), thing.tolist()
    if isinstance(thing, np.ndarray):
        return "array", str(thing.dtype), thing.shape, thing.tolist()
    if isinstance(thing, list | tuple):
        return [surface(part, folder, depth) for part in thing]
    if not isinstance(thing, dysat.DynamicGraph | dysat.Snapshot):
        return repr(thing)
    if not depth:
        return "deeper"
    found: dict[str, Any] = {"repr": repr(thing), "str": str(thing), "own": sorted(vars(thing))}
    if isinstance(thing, dysat.DynamicGraph):
        found["len"], found["iter"] = len(thing), [surface(part, folder, depth - 1) for part in thing]
    for name in dir(thing):
        if not name.startswith("_"):
            value = getattr(thing, name)
            if inspect.ismethod(value) or inspect.isfunction(value):
                value = METHODS[name](thing, folder)
            found[name] = surface(value, folder, depth - 1)
    return found


@pytest.mark.parametrize("loaded", [False, True])
def test_public_values_of_a_view_do_not_depend_on_the_future(tmp_path: Path, loaded: bool) -> None:
    one, other = worlds()
    if loaded:
        one, other = (
            dysat.DynamicGraph.load(saved_to(graph, tmp_path / name)) for graph, name in ((one, "1"), (other, "2"))
        )
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    here, there = surface(one[:SEEN], tmp_path / "a"), surface(other[:SEEN], tmp_path / "b")
    assert {"nodes", "known", "boundaries", "fingerprint", "num_distinct_links", "kind_counts", "notes"} <= here.keys()
    for name in here.keys() | there.keys():
        assert here[name] == there[name], f"{name} depends on snapshot {SEEN}"
    assert one[:SEEN].equals(other[:SEEN]) and not one.equals(other)


def test_surface_detects_different_graphs(tmp_path: Path) -> None:
    one, other = worlds()
    here, there = surface(one, tmp_path), surface(other, tmp_path)
    different = {name for name in here if here[name] != there[name]}
    assert different >= {"nodes", "kinds", "features", "snapshots", "known", "boundaries", "notes", "fingerprint"}
    assert "summary" in different
    assert {"repr", "aggregate", "num_nodes", "kind_counts", "save"} <= different


def test_view_refuses_access_beyond_its_end() -> None:
    view = worlds()[0][:SEEN]
    for ask in (lambda: view[SEEN], lambda: view.snapshots[SEEN], lambda: view.features[4], lambda: view.nodes[4]):  # type: ignore[index]
        with pytest.raises(IndexError):
            ask()
    with pytest.raises(dysat.DysatError, match=r"no node 'later'$"):
        view.ids(["later"])  # the error does not reveal it either
    assert view[:99].equals(view)


@pytest.mark.parametrize("name", ["nodes", "kinds"])
def test_arrays_of_a_view_have_no_longer_base(name: str) -> None:
    array = getattr(worlds()[0][:SEEN], name)
    while array.base is not None:
        array = array.base
        assert len(array) == 4
