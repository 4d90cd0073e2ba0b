"""Shared by all models: options from any source, scores of links, forecasts, files."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from small import QUICK, make_graph, meetings
from torch.testing import assert_close

from dysat import DynamicGraph, DySAT, DysatError, Forecast, GraphError, ModelError
from dysat.models.base import best_pairs as highest
from dysat.models.base.option import Option
from dysat.system.tensors import read_tensors, write_tensors

NAMES = np.array(["ann", "bob", "cy", "dee", "eve", "fay", "gus", "hal"], dtype=object)
Choice = Literal["receiver", "sender"]


@pytest.mark.parametrize(
    ("kind", "optional", "value", "expected"),
    [
        (int, False, 3, 3),
        (int, False, "3", 3),
        (int, False, 3.0, 3),
        (int, False, np.int64(3), 3),
        (int, True, None, None),
        (float, False, 3, 3.0),
        (float, False, "5e-4", 5e-4),
        (float, True, 0.5, 0.5),
        (float, True, None, None),
        (bool, False, True, True),
        (bool, False, "false", False),
        (bool, False, "True", True),
        (str, False, "cuda:1", "cuda:1"),
        (Choice, False, "sender", "sender"),
        (Choice, True, None, None),
        (tuple[int, ...], False, "16,8", (16, 8)),
        (tuple[int, ...], False, "16", (16,)),
        (tuple[int, ...], False, [16, 8.0], (16, 8)),
        (tuple[int, ...], False, (16,), (16,)),
        (tuple[int, ...], False, 16, (16,)),
        (tuple[int, ...], False, [], ()),
    ],
)
def test_options_read_values_from_files_and_command_lines(kind: Any, optional: bool, value: Any, expected: Any) -> None:
    read = Option("option", kind, optional, None, "").read(value)
    assert read == expected and type(read) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "match"),
    [
        (int, "3.5", "option='3.5' is not a whole number"),
        (int, 3.5, "option=3.5 is not a whole number"),
        (int, math.nan, "option=nan is not a whole number"),
        (int, math.inf, "option=inf is not a whole number"),
        (int, True, "option=True is not a whole number"),
        (int, None, "option=None is not a whole number"),
        (int, "", "option='' is not a whole number"),
        (int, [3], r"option=\[3\] is not a whole number"),
        (float, "a lot", "option='a lot' is not a number"),
        (float, None, "option=None is not a number"),
        (float, False, "option=False is not a number"),
        (bool, "yes", "option='yes' is not true or false"),
        (bool, 1, "option=1 is not true or false"),
        (bool, None, "option=None is not true or false"),
        (str, 3, "option=3 is not a text"),
        (str, None, "option=None is not a text"),
        (Choice, "sende", "option='sende' is not one of receiver, sender"),
        (Choice, None, "option=None is not one of receiver, sender"),
        (Choice, ["sender"], r"option=\['sender'\] is not one of"),
        (tuple[int, ...], "16,", "option='' is not a whole number"),
        (tuple[int, ...], "16;8", "option='16;8' is not a whole number"),
        (tuple[int, ...], [16, "x"], "option='x' is not a whole number"),
        (tuple[int, ...], [[16]], r"option=\[16\] is not a whole number"),
        (tuple[int, ...], [1.5], "option=1.5 is not a whole number"),
        (tuple[int, ...], None, "option=None is not a whole number"),
        (float, "line\nbreak", r"option='line\\nbreak' is not a number"),
    ],
)
def test_wrong_values_are_named(kind: Any, value: Any, match: str) -> None:
    with pytest.raises(ModelError, match=f"^{match}") as problem:
        Option("option", kind, False, None, "").read(value)
    assert "\n" not in str(problem.value)


def test_options_are_the_fields_with_help() -> None:
    options = {option.name: option for option in DySAT.options()}
    assert list(options) == list(DySAT().get_params()) and all(option.help for option in options.values())
    history = options["history"]
    assert (history.kind, history.optional, history.default) == (int, True, None)
    assert (options["epochs"].kind, options["epochs"].optional, options["epochs"].default) == (int, False, 150)
    assert options["learning_rate"].help == "Learning rate of Adam"  # declared in AttentionModel


@pytest.fixture(scope="module")
def model() -> DySAT:
    return DySAT.from_preset("text", **QUICK | {"epochs": 5}).fit(meetings(NAMES))


def brute_force(model: DySAT, **choice: Any) -> list[tuple[Any, Any, float, bool]]:
    """Score of every pair and whether it was ever linked, highest score first."""
    graph = model.graph_
    seen = {tuple(pair) for s in graph for pair in torch.stack(s.links()[:2], 1).tolist()}
    pairs = [
        (u, v)
        for u, v in combinations(range(graph.num_nodes), 2)
        if (graph.kinds is None or graph.kinds[u] != graph.kinds[v])
        and ("node" not in choice or choice["node"] in (graph.nodes[u], graph.nodes[v]))
        and not (choice.get("known") == "exclude" and (u, v) in seen)
    ]
    scores = model.score_links(pairs, ids=True).tolist() if pairs else []
    found = [(graph.nodes[u], graph.nodes[v], s, (u, v) in seen) for (u, v), s in zip(pairs, scores, strict=True)]
    return sorted(found, key=lambda link: -link[2])


def assert_links(links: list[Forecast], expected: list[tuple[Any, Any, float, bool]]) -> None:
    assert len(links) == len(expected)
    for link, (u, v, score, known) in zip(links, expected, strict=True):
        assert {link.u, link.v} == {u, v} and link.known is known and link.score == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize("choice", [{}, {"known": "exclude"}, {"node": "cy"}, {"node": "cy", "known": "exclude"}])
@pytest.mark.parametrize("block", [highest.BLOCK, 1, 20])  # scores per block: all, a row, two rows
def test_top_links_equal_brute_force(
    model: DySAT, choice: dict[str, Any], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(highest, "BLOCK", block)
    expected = brute_force(model, **choice)
    for k in (0, 1, 3, len(expected), 1000):
        links = model.top_links(k, **choice)
        assert_links(links, expected[:k])
        assert [link.score for link in links] == sorted((link.score for link in links), reverse=True)
        assert len({frozenset((link.u, link.v)) for link in links}) == len(links)  # no pair twice
        assert all(link.u != link.v for link in links)
        if "node" in choice:
            assert all(link.u == "cy" for link in links)
        if "known" in choice:
            assert not any(link.known for link in links)


def test_top_links_of_two_kinds() -> None:
    links = [[(0, 1), (2, 3), (4, 5)], [(0, 3), (2, 1), (4, 1)], [(0, 5), (2, 3), (4, 3)]]
    graph = make_graph([6, 6, 6], links, nodes=np.array([1, 1, 2, 2, 3, 3]))  # both kinds use the same labels
    graph = graph.with_kinds([0, 1] * 3, ["user", "item"])
    model = DySAT.from_preset("text", **QUICK).fit(graph)
    assert len(model.top_links(100)) == 9 and len(model.top_links(100, known="exclude")) == 1
    for choice in ({}, {"known": "exclude"}):
        assert_links(model.top_links(100, **choice), brute_force(model, **choice))
    item_links = model.top_links(100, node=2, kind="item")
    assert len(item_links) == 3 and {link.v for link in item_links} == {1, 2, 3}
    with pytest.raises(GraphError, match="node 2 is of several kinds"):
        model.top_links(3, node=2)


def test_labels_are_returned_unchanged(model: DySAT) -> None:
    assert all(type(link.u) is type(link.v) is str for link in model.top_links())
    numbered = DySAT.from_preset("text", **QUICK).fit(meetings(np.arange(8) * 100 - 300))
    assert {link.u for link in numbered.top_links(99)} | {link.v for link in numbered.top_links(99)} == {
        100 * k - 300 for k in range(8)
    }
    with pytest.raises(GraphError, match=r"^no node 'an'; did you mean 'ann'\?$"):
        model.top_links(node="an")


def test_integer_labels_are_returned_as_int() -> None:
    assert type(DySAT.from_preset("text", **QUICK).fit(meetings()).top_links(1)[0].u) is int


@pytest.mark.parametrize("wrong", [{"k": -1}, {"known": "only"}], ids=str)
def test_wrong_arguments_are_refused(model: DySAT, wrong: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        model.top_links(**wrong)


def test_scores_are_probabilities_of_unordered_pairs(model: DySAT) -> None:
    pairs = list(combinations(range(8), 2))
    scores = model.score_links(pairs, ids=True)
    assert scores.shape == (28,) and ((scores >= 0) & (scores <= 1)).all()
    assert_close(model.score_links([pair[::-1] for pair in pairs], ids=True), scores)
    assert_close(model.score_links(torch.tensor(pairs), ids=True), model.score_links(np.array(pairs), ids=True))
    e = model.embed().double()
    weights, bias = model.scorer_
    logit = sum(float(w * a * b) for w, a, b in zip(weights, e[2], e[5], strict=True)) + float(bias)
    assert float(model.score_links([[2, 5]], ids=True)[0]) == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-5)
    assert model.score_links(torch.empty(0, 2), ids=True).shape == (0,)
    assert model.score_links([[0, 5]], step=0, ids=True).shape == (1,)


@pytest.mark.parametrize(
    ("pairs", "step", "match"),
    [
        ([], -1, r"^pairs have shape \(0,\), expected \[B, 2\]$"),
        ([0, 1], -1, r"^pairs have shape \(2,\)"),
        ([[0, 1, 2]], -1, r"^pairs have shape \(1, 3\)"),
        ([[0, 8]], -1, r"^a pair has a node outside 0 … 7, the nodes known at that step$"),
        ([[-1, 0]], -1, r"^a pair has a node outside 0 … 7"),
        ([[0, 6]], 0, r"^a pair has a node outside 0 … 5"),
    ],
)
def test_wrong_pairs_are_refused(model: DySAT, pairs: Any, step: int, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        model.score_links(pairs, step, ids=True)


@pytest.mark.parametrize("pairs", [[[0.9, 1.2]], [["ann", "bob"]], [[0, 1], [2]], None, [[0, 2**70]]], ids=str)
def test_pairs_that_are_not_integers_are_refused(model: DySAT, pairs: Any) -> None:
    with pytest.raises(ModelError):
        model.score_links(pairs, ids=True)


def test_model_of_another_device_loads(model: DySAT, tmp_path: Path) -> None:
    other = DySAT.from_preset("text", **QUICK | {"epochs": 5}).fit(meetings(NAMES))
    other.device = "cuda:7"  # as if it had been trained there
    other.save(tmp_path / "run")
    loaded = DySAT.load(tmp_path / "run", device="cpu")
    assert loaded.device == "cpu" and torch.equal(loaded.embed(), model.embed())
    assert DySAT.load(tmp_path / "run").device == "auto"
    with pytest.raises(ModelError, match=r"^device='cuda:99' does not exist here"):
        DySAT.load(tmp_path / "run", device="cuda:99")


def test_wrong_files_are_refused(model: DySAT, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(ModelError, match="no such file"):
        DySAT.load(folder)
    model.save(folder)
    with pytest.raises(ModelError, match="exists already"):
        model.save(folder)
    model.save(folder, overwrite=True)
    file = folder / "model.safetensors"
    facts, tensors = read_tensors(file, "model", 1, error=ModelError)

    def refused(match: str, facts: dict[str, Any] = facts, tensors: dict[str, torch.Tensor] = tensors) -> None:
        write_tensors(file, "model", 1, facts, tensors, error=ModelError)
        with pytest.raises(ModelError, match=match) as problem:
            DySAT.load(folder)
        assert "\n" not in str(problem.value)

    refused("a model of 'node2vec', not of 'dysat'", facts | {"method": "node2vec"})
    refused("no option 'magic'", facts | {"options": facts["options"] | {"magic": 1}})
    refused("the weights do not fit the model", tensors={**tensors, "position": torch.zeros(3, 3)})
    refused("the weights do not fit the model", tensors={k: v for k, v in tensors.items() if k != "position"})
    write_tensors(file, "model", 1, facts, tensors, error=ModelError)
    meetings().save(folder / "graph", overwrite=True)
    with pytest.raises(ModelError, match="not the one the model was trained on"):
        DySAT.load(folder)
    (folder / "graph" / "graph.json").unlink()
    with pytest.raises(DysatError):
        DySAT.load(folder)
    assert isinstance(model.graph_, DynamicGraph)
