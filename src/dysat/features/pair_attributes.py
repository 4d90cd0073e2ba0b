"""What is known about both nodes of a pair besides their links: their kinds and attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.attributes import Group, groups
from dysat.data.graph import DynamicGraph
from dysat.features import facts
from dysat.features.facts import Column, columns_of, stacked

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
MAX_COLUMNS = 64  # of named attributes; more are compared on principal axes
AXES = 32  # principal axes for the cosine and the distance
PRODUCTS = 8  # principal axes with a column of their own
SIDE_AXES = 4  # principal axes of each side of bipartite data; every two have a product
MAX_WIDTH = 1_024  # wider features are projected to PROJECTED random directions first
PROJECTED = 256


def with_attributes(columns: Reals, graph: DynamicGraph, step: int, pairs: Ids) -> Reals:
    """Append whether both nodes differ in kind, and their attributes at a step.  # [B, F] → [B, F + K]"""
    return np.column_stack([columns, stacked(_attribute_columns(graph, step, pairs), len(pairs))])


def attribute_facts(graph: DynamicGraph, step: int) -> tuple[str, ...]:
    """Return the fact that each column of `with_attributes` belongs to.  # K"""
    return tuple(fact for fact, _ in _attribute_columns(graph, step, np.empty((0, 2), dtype=np.int64)))


def _attribute_columns(graph: DynamicGraph, step: int, pairs: Ids) -> list[Column]:
    return [(facts.KINDS, differ_in_kind(graph, pairs)), *attribute_columns(graph, step, pairs)]


def differ_in_kind(graph: DynamicGraph, pairs: Ids) -> Reals:
    """Return 1 for pairs of two kinds, and for all pairs of a graph without kinds; else 0.  # [B, 2] → [B]"""
    if graph.kinds is None:
        return np.ones(len(pairs))
    kinds = graph.kinds[pairs]
    return np.where(kinds[:, 0] != kinds[:, 1], 1.0, 0.0)


def attribute_columns(graph: DynamicGraph, step: int, pairs: Ids) -> list[Column]:
    """Return columns on the attributes of both nodes, valid at a step.  # [B, 2] → K times [B]

    A graph without features has none. With named features there are, for each category, whether both values are the
    same, and whether both are known; for each number the absolute difference, the smaller and the larger value, and
    whether both are known if values may be missing. Unnamed or many features give their cosine similarity, their
    distance, and their products on the first principal axes. In bipartite data, products of principal axes of the two
    sides are added: the two sides have different attributes, which are never the same.
    """
    x = None if graph.features is None else features_at(graph, step)
    if x is None or not x.shape[1]:
        return []
    return [named for fact, compare in _comparisons(graph) for named in columns_of(fact, compare(x, pairs))]


def features_at(graph: DynamicGraph, step: int) -> Tensor:
    """Return the features of the nodes known at a step, on the CPU.  # [known, F]"""
    features = graph.features
    if features is None:
        raise TypeError("a graph without features")
    return (features[step] if isinstance(features, tuple) else features[: graph.known[step]]).cpu().double()


Comparison = tuple[str, Callable[[Tensor, Ids], list[Reals]]]  # the fact, and how to compare two nodes
# Axes are computed once per graph, from the features at its last step, so that they mean the same at all steps.
_CACHE: WeakKeyDictionary[DynamicGraph, list[Comparison]] = WeakKeyDictionary()


def _comparisons(graph: DynamicGraph) -> list[Comparison]:
    """All comparisons of two nodes; the choice depends on names and number of features, not on values."""
    if graph not in _CACHE:
        named = groups(graph.feature_names)
        found: list[Comparison] = []
        if 0 < sum(2 if group.is_category else 4 for group in named) <= MAX_COLUMNS:
            for group in named:
                compare = partial(_same if group.is_category else _difference, group)
                found.append((f"{facts.ATTRIBUTE}{group.name}", compare))
        else:
            found.append((facts.ATTRIBUTES, partial(_close, Axes.of(features_at(graph, -1), AXES))))
        if graph.kinds is not None:
            found += _cross_products(graph)
        _CACHE[graph] = found
    return _CACHE[graph]


def _same(group: Group, x: Tensor, pairs: Ids) -> list[Reals]:
    """Whether both have the same category, and whether both have one; pooled categories are never the same."""
    columns = [column for column in group.columns if column != group.other]
    u, v = (x[:, columns][torch.from_numpy(pairs[:, side])] for side in (0, 1))
    known = group.known(x).double().numpy()
    return [(u * v).sum(1).numpy(), known[pairs].prod(1)]


def _difference(group: Group, x: Tensor, pairs: Ids) -> list[Reals]:
    """The absolute difference, 0 if a value is missing, and both values; whether both are known if one may not be."""
    values, known = x[:, group.columns[0]].numpy(), group.known(x).double().numpy()
    both = known[pairs].prod(1)
    gap = np.abs(values[pairs[:, 0]] - values[pairs[:, 1]]) * both
    return [gap, *np.sort(values[pairs], axis=1).T, *([both] if group.missing is not None else [])]


def _close(axes: Axes, x: Tensor, pairs: Ids) -> list[Reals]:
    """Cosine similarity, distance, and products on the first axes."""
    z = axes(x)
    u, v = z[pairs[:, 0]], z[pairs[:, 1]]
    lengths = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    cosine = np.divide((u * v).sum(1), lengths, out=np.zeros(len(u)), where=lengths > 0)
    return [cosine, np.linalg.norm(u - v, axis=1), *(u * v)[:, :PRODUCTS].T]


def _cross_products(graph: DynamicGraph) -> list[Comparison]:
    """Products of the principal axes of the first and the second kind."""
    x, kinds = features_at(graph, -1), torch.from_numpy(np.array(graph.kinds))
    sides = [Axes.of(x[kinds == kind], SIDE_AXES) for kind in (0, 1)]
    return [(facts.COMBINATION, partial(_products, np.array(graph.kinds), sides))]


def _products(kinds: NDArray[np.uint8], sides: Sequence[Axes], x: Tensor, pairs: Ids) -> list[Reals]:
    first = np.where(kinds[pairs[:, 0]] == 0, pairs[:, 0], pairs[:, 1])
    second = np.where(kinds[pairs[:, 0]] == 0, pairs[:, 1], pairs[:, 0])
    across = kinds[first] != kinds[second]
    one, two = (axes(x)[ends] for axes, ends in zip(sides, (first, second), strict=True))
    products = np.einsum("ba,bc->acb", one, two) * across  # [A, A, B]
    return [column for part in products for column in part]


class Axes(NamedTuple):
    """Principal axes of features: z = ((x − mean) / scale) · directions, with as many columns for any features.

    Shapes:
        mean, scale [F], directions [F, A]
    """

    mean: Tensor
    scale: Tensor
    directions: Tensor

    @classmethod
    def of(cls, x: Tensor, number: int) -> Axes:
        """Return the leading axes of standardised features, at most as many as there are features.  # [N, F]"""
        width = x.shape[1]
        number = min(number, width)
        if not len(x):
            return cls(x.new_zeros(width), x.new_ones(width), x.new_zeros(width, number))
        mean, deviation = x.mean(0), x.std(0, correction=0)
        scale = torch.where(deviation > 0, deviation, 1.0)
        basis = torch.eye(width, dtype=x.dtype)
        if width > MAX_WIDTH:
            basis = torch.from_numpy(np.random.default_rng(0).normal(size=(width, PROJECTED)) / PROJECTED**0.5)
        standard = ((x - mean) / scale) @ basis if width > MAX_WIDTH else (x - mean) / scale
        _, vectors = torch.linalg.eigh(standard.T @ standard / len(x))
        vectors = vectors.flip(1)[:, :number]
        sign = torch.sign(vectors.gather(0, vectors.abs().argmax(0, keepdim=True)))  # the same on any machine
        return cls(mean, scale, basis @ (vectors * sign))

    def __call__(self, x: Tensor) -> Reals:
        """Return the coordinates of features.  # [N, F] → [N, A]"""
        z: Reals = (((x - self.mean) / self.scale) @ self.directions).numpy()
        return z
