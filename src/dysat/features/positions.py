"""Features of pairs from the positions of both nodes: leading eigenvectors of the weights of all links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dysat.features import facts
from dysat.features.eigenvectors import RANKS, Spectrum
from dysat.features.facts import Column, columns_of
from dysat.features.lookup import Ends, low_and_high
from dysat.features.rounding import row_products, without_noise
from dysat.system.parallel.process import in_threads

Ids = NDArray[np.int64]
Reals = NDArray[np.float64]
NODES_AT_ONCE = 1 << 16  # nodes whose norms one thread computes


def norms_of(spectra: Sequence[Spectrum], num_nodes: int) -> list[Reals]:
    """Return the norms of √σ x of each node, for each of these eigenvectors.  # [N] each"""
    parts = range(0, max(1, num_nodes), NODES_AT_ONCE)

    def of_nodes(first: int) -> list[Reals]:
        rows = slice(first, first + NODES_AT_ONCE)
        return [np.sqrt(np.square(vectors[rows]) @ np.abs(values)) for values, vectors in spectra]

    return [np.concatenate(norms) for norms in zip(*in_threads(of_nodes, parts), strict=True)]


def position_columns(
    spectra: Sequence[Spectrum], norms: Sequence[Reals], ends: Ends, *, steady: bool
) -> tuple[list[Column], list[Column]]:
    """Return columns of `low_rank_scores` with the norms of both ends, and Σ λ³ x_u x_v where all |λ| ≤ 1.  # [B, 2]

    The latter are those of all spectra but the first. With `steady`, columns have no noise.
    """
    columns, cubes = list[Column](), list[Column]()
    for number, ((values, vectors), lengths) in enumerate(zip(spectra, norms, strict=True)):
        products = pair_products(vectors, ends.pairs)
        scores, both = low_rank_scores(values, products), low_and_high(lengths, ends)
        cube = [row_products(products, values**3)] if number else []
        if steady:
            most = lengths[ends.pairs].prod(axis=1)  # that any of these scores can be
            scores, cube = ([without_noise(score, most) for score in part] for part in (scores, cube))
            both = [without_noise(end, end) for end in both]
        columns += columns_of(facts.POSITION, scores + both)
        cubes += columns_of(facts.POSITION, cube)
    return columns, cubes


def pair_products(vectors: NDArray[np.float32], pairs: Ids) -> Reals:
    """Return x_u x_v of each eigenvector x.  # [N, k], [B, 2] → [B, k]"""
    return (vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).astype(np.float64)


def low_rank_scores(values: Reals, products: Reals) -> list[Reals]:
    """Return reconstructions of each rank and Σ σ x_u x_v of left singular vectors x.  # [k], [B, k] → [B] each

    `products` are those of their eigenvectors. With eigenvalues λ a reconstruction is Σ λ x_u x_v, and σ = |λ|. In a
    bipartite graph λ come in pairs ±σ, whose vectors agree on one side and differ in sign on the other: Σ σ x_u x_v is
    0 across and Σ λ x_u x_v within.
    """
    every = [(products[:, :rank], values[:rank]) for rank in RANKS] + [(products, np.abs(values))]
    return [row_products(*each) for each in every]
