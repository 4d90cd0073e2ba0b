"""Weights that follow the log: on made-up windows whose best expert is known, and on a graph."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import two_blocks

import dysat

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
weights = pytest.importorskip("weights")


def made_up(seed: int, helpful: float) -> Any:
    """A window of 100 links, each among 20 nodes; a heuristic with this mean for links, and a score of noise."""
    rng = np.random.default_rng(seed)
    labels, size = np.arange(200) < 100, 200 + 100 * 21
    link = np.concatenate([labels, np.arange(100 * 21) % 21 == 0])
    noise = {name: rng.normal(size=size) for name in ("logistic", "trees", "recurring")}
    heuristics = {"degree-product": rng.normal(size=size) + helpful * link}
    before = np.zeros(size, dtype=np.bool_)
    return weights.Window(
        labels, before, **noise, heuristics=heuristics, lists=((100, 21), (0, 21)),
        tree_share=0.5, recurring_share=0.5, recurring_shift=1.0,
    )  # fmt: skip


@pytest.mark.parametrize("way", ["stacked, 1", "stacked, 3", "floor, 1", "floor, 3"])
def test_a_better_expert_is_found_in_past_windows(way: str) -> None:
    windows = [made_up(seed, 2.0) for seed in range(5)]
    found = weights.WAYS[way](windows[:-1], windows[-1])
    before, after = windows[-1].figures(windows[-1].fixed()), windows[-1].figures(found)
    assert after[0] > before[0] + 0.2 and after[1] > before[1] + 0.2
    assert np.isnan(after[2])


def test_noise_is_not_chosen() -> None:
    windows = [made_up(seed, 0.0) for seed in range(4)]
    expert = windows[-1].experts()["degree-product"]
    found = weights.floor(3, windows[:-1], windows[-1])
    assert not np.allclose(found, expert)
    assert np.abs(weights.stacked(3, windows[:-1], windows[-1]) - windows[-1].fixed()).mean() < 0.5


def test_fixed_weights_are_those_of_the_score(tmp_path: Path) -> None:
    graph = two_blocks(steps=5)
    graph.save(tmp_path / "blocks")
    found = weights.window(str(tmp_path / "blocks"), 4, 0)
    given = weights.examples(graph, 4, 0)
    score = weights.PairScore.learn(graph[:4], transitions=dysat.DySAT().transitions)
    expected = score.log_odds(graph[:4], 3, given.pairs)
    fixed = torch.from_numpy(found.fixed()[: len(given.pairs)])
    torch.testing.assert_close(score.slope * fixed + score.shift, expected)
