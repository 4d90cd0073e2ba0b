"""The benchmark of weights: all ways on a graph, and its table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from small import two_blocks

import dysat

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
weights = pytest.importorskip("weights")


def test_all_ways_are_measured_on_the_same_examples(tmp_path: Path) -> None:
    graph = two_blocks(steps=7)
    graph.save(tmp_path / "blocks")
    found = weights.window(str(tmp_path / "blocks"), 6, 0)
    assert found.keys() == weights.WAYS.keys()
    model = dysat.DySAT(embeddings=False).fit(graph[:6])
    given = weights.examples(graph, 6, 0)
    expected = weights.figures(model.pair_scores, given)
    assert found[weights.DEFAULT] == {name: expected[name] for name in ("auc", "mrr", "new_mrr")}
    assert len({tuple(figures.values()) for figures in found.values()}) > 5
    again = weights.PairScore.learn(graph[:6], transitions=model.transitions)
    assert torch.equal(again.log_odds(graph[:6], 5, given.pairs), model.pair_scores(given.pairs))


def test_table_has_differences_from_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for log, auc in (("one", 0.9), ("two", 0.8)):
        for window in (1, 2):
            ways = {way: {"auc": auc - 0.01 * (way == "rule"), "mrr": 0.5} for way in weights.WAYS}
            rows.append({"log": log, "window": window, "ways": ways})
    rows[0]["ways"]["rule"]["auc"] -= 0.02
    for row in rows:
        for figures in row["ways"].values():
            figures["new_mrr"] = 0.1
    weights.show(rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| mean over 2 logs | AUC | MRR | new-link MRR |"
    assert lines[2] == "| learned, with a floor | 85.00 | 50.00 | 10.00 |"
    assert "| rule | -1.50 ± 0.50 | +0.00 ± 0.00 | +0.00 ± 0.00 |" in lines
