"""Shares of the embeddings' product in the forecast: no share is the score itself, and finished logs are kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from small import two_blocks

import dysat
from dysat.evaluation.probe import auc
from dysat.evaluation.protocols import single_step

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
shares = pytest.importorskip("embedding_share")


@pytest.mark.slow
def test_no_share_is_the_score_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, out = two_blocks(steps=5), tmp_path / "found.json"
    graph.save(tmp_path / "blocks")
    words = ["x", "--graphs", str(tmp_path), "--log", "blocks", "--windows", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    shares.main()
    means = json.loads(out.read_text())["logs"]["blocks"]["means"]
    split = single_step(graph, 3, seed=0)
    score = dysat.DySAT(embeddings=False).fit(graph[:4]).pair_scores(split.pairs)
    assert means["0"][0] == pytest.approx(auc(score, split.labels))
    assert means["0"] != means["1"] and means["1"] != means[shares.ALONE]
    monkeypatch.setattr(shares, "of_log", None)  # it is done already
    shares.main()
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["x", "--show", str(out)])
    shares.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| MRR (AUC) | 0 | 0.1 |") and lines[-1].replace("mean", "blocks") == lines[-2]
    assert f"({100 * means['0'][0]:.2f})" in lines[2]
