"""Pair features against loops."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from dysat.nn.pair import PairFeature, pair_features, weighted_sums


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_products_and_distances() -> None:
    u, v = torch.tensor([[1.0, 2.0], [3.0, -4.0]]), torch.tensor([[0.5, -1.0], [3.0, 4.0]])
    assert pair_features(u, v).tolist() == [[0.5, -2], [9, -16]]
    assert pair_features(u, v, "product").tolist() == [[0.5, -2], [9, -16]]
    assert pair_features(u, v, "distance").tolist() == [[0.5, 3], [0, 8]]
    assert torch.equal(pair_features(v, u, "distance"), pair_features(u, v, "distance"))


@pytest.mark.parametrize("kind", ["product", "distance"])
@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_weighted_sums_equal_the_loop(kind: PairFeature, sign: int) -> None:
    e, others = drawn(3, 5), drawn(4, 5, seed=1)
    weights = drawn(5, seed=2) if not sign else sign * drawn(5, seed=2).abs()
    expected = [[float(pair_features(a, b, kind) @ weights) for b in others] for a in e]
    assert_close(weighted_sums(e, others, weights, kind), torch.tensor(expected, dtype=torch.float64))


def test_weighted_sums_of_products_are_one_matrix_product() -> None:
    e, weights = drawn(7, 5).float(), drawn(5, seed=2).float()
    assert torch.equal(weighted_sums(e[2:4], e, weights), (e[2:4] * weights) @ e.T)
