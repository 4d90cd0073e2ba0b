"""The score of a link from the embeddings of its two nodes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from small import QUICK, make_graph, meetings

from dysat import DySAT


def test_scorer_is_a_logistic_regression_on_the_last_snapshot() -> None:
    links = [[(u, v) for u, v in combinations(range(9), 2) if (3 * u + v * v + t) % 4] for t in range(3)]
    links[2] += [(0, 9), (9, 9), (5, 5)]  # links of new nodes and self-loops are not used as examples
    model = DySAT.from_preset("text", **QUICK | {"learning_rate": 0.05, "epochs": 10}).fit(
        make_graph([9, 9, 10], links)
    )
    pairs = np.array(list(combinations(range(9), 2)))  # most are links, so all others are negatives
    linked = [tuple(pair) in set(links[2]) for pair in pairs.tolist()]
    assert sum(linked) > len(pairs) / 2
    e = model.embed(-2).double().numpy()
    expected = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(e[pairs[:, 0]] * e[pairs[:, 1]], linked)
    np.testing.assert_allclose(model.scorer_[0], expected.coef_[0], atol=1e-4)
    assert float(model.scorer_[1]) == pytest.approx(expected.intercept_[0], abs=1e-4)
    one = DySAT.from_preset("text", **QUICK).fit(meetings()[:1])  # without a second snapshot: the dot product
    assert torch.equal(one.scorer_[0], torch.ones(8)) and one.scorer_[1] == 0
