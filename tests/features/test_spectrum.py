"""Coordinates from the spectrum: products give the links, and consecutive steps are close."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from by_links import graph_of
from numpy.typing import NDArray
from other_processor import choose_other_eigenvectors
from torch import Tensor
from torch.testing import assert_close

from dysat import DynamicGraph
from dysat.features import eigenvectors
from dysat.features.eigenvectors import lanczos
from dysat.features.spectrum import DECAY, _both_ends, spectrum

# Two nodes appear later; one has a self-loop, which does not count; snapshot 2 is empty.
MEETINGS = graph_of(
    [4, 6, 6, 6],
    [
        {(0, 1): 1.0, (1, 2): 2.0, (0, 3): 1.0},
        {(0, 1): 1.0, (4, 5): 3.0, (3, 3): 7.0, (1, 4): 1.0},
        {},
        {(0, 5): 1.0, (2, 3): 1.0, (1, 2): 0.5},
    ],
)


def drawn(size: int, steps: int, seed: int = 0, chance: float = 0.15) -> DynamicGraph:
    """Random links, most of which repeat in the next snapshot."""
    rng = np.random.default_rng(seed)
    u, v = np.triu_indices(size, 1)
    linked, links = rng.random(len(u)) < chance, []
    for _ in range(steps):
        linked = np.where(rng.random(len(u)) < 0.1, rng.random(len(u)) < chance, linked)
        links.append({(int(a), int(b)): float(rng.integers(1, 4)) for a, b in zip(u[linked], v[linked], strict=True)})
    return graph_of([size] * steps, links)


def log_memory(graph: DynamicGraph, step: int) -> NDArray[np.float64]:
    """log(1 + m) by a loop.  # [N, N]"""
    m = np.zeros((graph.known[step],) * 2)
    for t in range(step + 1):
        for u, v, weight in zip(*(part.tolist() for part in graph[t].links()), strict=True):
            if u != v:
                m[u, v] += DECAY ** (step - t) * weight
                m[v, u] += DECAY ** (step - t) * weight
    return np.log(1 + m)


def ends(matrix: NDArray[np.float64], number: int) -> list[NDArray[np.float64]]:
    """P Pᵀ and M Mᵀ, each scaled to a mean square of ¼."""
    values, vectors = np.linalg.eigh(matrix)
    found = []
    for sign in (1, -1):
        top = np.argsort(-sign * values)[:number]
        product = (vectors[:, top] * np.clip(sign * values[top], 0, None)) @ vectors[:, top].T
        found.append(0.25 * len(matrix) * number / max(np.trace(product), 1e-12) * product)
    return found


def products(coordinates: Tensor) -> list[Tensor]:
    """Products of all rows, for each of the two parts.  # [N, 2 · number] → two [N, N]"""
    return [part @ part.T for part in coordinates.double().tensor_split(2, dim=1)]


@pytest.mark.parametrize("number", [3, 6, 9])  # fewer than nodes, as many, more
def test_products_give_the_links(number: int) -> None:
    for step, found in enumerate(spectrum(MEETINGS, number)):
        matrix = log_memory(MEETINGS, step)
        assert found.shape == (MEETINGS.known[step], 2 * number) and found.dtype == torch.float32
        for mine, expected in zip(products(found), ends(matrix, number), strict=True):
            assert_close(mine, torch.from_numpy(expected), atol=1e-5, rtol=1e-5)
        if number >= 6:  # both parts together give the whole matrix
            values = np.linalg.eigvalsh(matrix)
            plus, minus = products(found)
            size = 0.25 * len(matrix) * number / values[values > 0].sum()  # both signs have the same sum: no diagonal
            assert_close(plus - minus, torch.from_numpy(size * matrix), atol=1e-5, rtol=1e-5)


def test_lanczos_gives_the_same_products() -> None:
    graph, number = drawn(60, 3), 3
    found = tuple(spectrum(graph, number))
    for step in range(3):
        for mine, expected in zip(products(found[step]), ends(log_memory(graph, step), number), strict=True):
            assert_close(mine, torch.from_numpy(expected), atol=0.03, rtol=0.03)
    assert all(torch.equal(one, other) for one, other in zip(found, spectrum(graph, number), strict=True))


@pytest.mark.parametrize("most_are_new", [False, True])
def test_a_large_graph_begins_with_the_step_before(most_are_new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eigenvectors, "EXACT_NODES", 50)
    graph, number = drawn(200, 4), 4
    if most_are_new:  # few nodes of the step before say little
        far = [{(u, u + step): 1.0 for step in (1, 7, 30) for u in range(size - step)} for size in (90, 200)]
        graph = graph_of([90, 200], far)
    given: list[bool] = []

    def watched(*args: Any, similar: NDArray[np.float32] | None, **options: Any) -> Any:
        given.append(similar is not None)
        return lanczos(*args, similar=similar, **options)

    alone = tuple(spectrum(graph, number))
    monkeypatch.setattr("dysat.features.spectrum.lanczos", watched)
    monkeypatch.setattr("dysat.features.spectrum.LARGE_NODES", 50)
    found = tuple(spectrum(graph, number))
    assert given == [False, *[not most_are_new] * (len(graph) - 1)]
    for step, (mine, other) in enumerate(zip(found, alone, strict=True)):
        expected = ends(log_memory(graph, step), number)
        one, two = (
            sum(float((part - torch.from_numpy(e)).norm()) for part, e in zip(products(x), expected, strict=True))
            for x in (mine, other)
        )
        assert one < 0.9 * two if given[step] else one == two


def test_consecutive_steps_are_as_close_as_rotations_allow() -> None:
    """Then the trace of Pᵀ P' is the sum of its singular values."""
    graph = drawn(30, 4)
    steps = [part.double() for part in spectrum(graph, 4)]
    for before, after in pairwise(steps):
        for p, q in zip(before.tensor_split(2, dim=1), after.tensor_split(2, dim=1), strict=True):
            assert_close(torch.trace(p.T @ q), torch.linalg.svdvals(p.T @ q).sum(), atol=1e-4, rtol=1e-4)
    from scipy.sparse import csr_array

    plain = [
        [torch.from_numpy(part) for part in _both_ends(csr_array(log_memory(graph, t)), 4)] for t in range(len(graph))
    ]
    plain = [torch.cat([0.5 * part / part.square().mean().sqrt() for part in parts], 1) for parts in plain]
    apart = [sum(float((b - a).square().sum()) for a, b in pairwise(s)) for s in (steps, plain)]
    assert apart[0] < 0.5 * apart[1]


SEPARATE_PAIRS = graph_of(
    [0, 12, 12, 20],  # six equal eigenvalues of either sign, then eight, and two others
    [
        {},
        {(u, u + 1): 1.0 for u in range(0, 12, 2)},
        {(u, u + 1): 1.0 for u in range(0, 12, 2)},
        {(0, 2): 3.0, **{(u, u + 1): 2.952 for u in range(12, 20, 2)}},
    ],
)


@pytest.mark.parametrize("number", [3, 5, 9])  # 5 of six; more than there are
@pytest.mark.parametrize("graph", [MEETINGS, SEPARATE_PAIRS, drawn(60, 3)], ids=["meetings", "pairs", "sixty nodes"])
def test_processors_that_choose_other_eigenvectors_find_the_same(
    graph: DynamicGraph, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, earlier = tuple(spectrum(graph, number)), tuple(spectrum(graph, number, oriented=False))
    choose_other_eigenvectors(monkeypatch)
    for one, two in zip(spectrum(graph, number), expected, strict=True):
        assert_close(one, two, atol=1e-5, rtol=1e-5)
    without = tuple(spectrum(graph, number, oriented=False))
    assert not all(torch.allclose(*both, atol=0.1) for both in zip(without, earlier, strict=True))


def test_a_bipartite_graph_needs_both_signs() -> None:
    """Nodes of one side are similar but not linked: P and M cancel there."""
    rng = np.random.default_rng(0)
    links = {(u, v): float(rng.integers(1, 5)) for u in range(4) for v in range(4, 9) if rng.random() < 0.6}
    plus, minus = products(next(spectrum(graph_of([9], [links]), 9)))
    for side in (slice(0, 4), slice(4, 9)):
        assert plus[side, side].abs().max() > 0.1
        assert_close(plus[side, side], minus[side, side], atol=1e-5, rtol=1e-5)
    assert (plus - minus)[:4, 4:].max() > 0.1


def test_snapshots_without_links_or_nodes() -> None:
    graph = graph_of([0, 3, 3], [{}, {}, {(0, 2): 1.0}])
    no_nodes, no_links, linked = spectrum(graph, 2)
    assert no_nodes.shape == (0, 4) and no_links.shape == linked.shape == (3, 4)
    assert not no_links.any()
    plus, minus = products(linked)
    expected = torch.zeros(3, 3, dtype=torch.float64)
    expected[0, 2] = expected[2, 0] = 1.5  # 2 · ¼ · 3 · 2 / 2: the traces are 1.5
    assert_close(plus - minus, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("size", [12, 40])  # dense, and Lanczos
def test_later_snapshots_do_not_matter(size: int) -> None:
    graph, other = drawn(size, 4), drawn(size, 4, seed=1)
    changed = replace(graph, snapshots=(*graph.snapshots[:2], *other.snapshots[2:]))
    one, two, cut = (tuple(spectrum(g, 3)) for g in (graph, changed, graph[:2]))
    for t in range(2):
        assert torch.equal(one[t], two[t]) and torch.equal(one[t], cut[t])
    assert not torch.equal(one[2], two[2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_gives_the_same_coordinates() -> None:
    for here, there in zip(spectrum(MEETINGS, 3), spectrum(MEETINGS.to("cuda"), 3), strict=True):
        assert there.is_cuda and torch.equal(there.cpu(), here)
