"""Storage of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dysat
from dysat.errors import ModelError
from dysat.experiments.evaluate.evaluate import evaluate
from dysat.experiments.evaluate.versions import content_key
from dysat.experiments.paper import catalogue as paper
from dysat.experiments.paper.records import Point, Record, Results
from dysat.experiments.paper.reproduce import request_of

ROOT = Path(__file__).resolve().parents[3]


def record(row: str = "dysat", macro: float = 0.85, validation: tuple[float, ...] = (0.8, 0.9)) -> Record:
    steps = tuple(Point(t, 30 + t, macro, None if t == 1 else 0.01, 0.7, v) for t, v in enumerate(validation, start=1))
    left_out = {"3": "too few links"}
    return Record(row, "dysat", {"heads": [16, 8]}, "key", macro, 0.01, 0.8, None, steps, left_out, 1.5, {"seed": 0})


def test_record_round_trip(tmp_path: Path) -> None:
    Results(tmp_path / "new").put("single-step", "uci", record())
    assert Results(tmp_path / "new").record("single-step", "uci", "dysat") == record()


def test_validation_is_the_mean_of_the_steps() -> None:
    assert record(validation=(0.5, 0.6, 1.0)).validation == pytest.approx(0.7)


def test_missing_rows_are_none(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.put("single-step", "uci", record())
    assert results.record("single-step", "uci", "gcn-ae") is None
    assert results.record("new-links", "uci", "dysat") is None
    assert results.facts("runtime", "uci", "windows") is None
    assert list(results.records("single-step", "yelp")) == []


def test_put_replaces_a_row_and_keeps_others(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for one in (record(), record("gcn-ae", 0.7), record(macro=0.9)):
        results.put("single-step", "uci", one)
    assert [(r.row, r.macro) for r in Results(tmp_path).records("single-step", "uci")] == [
        ("dysat", 0.9),
        ("gcn-ae", 0.7),
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["single-step_uci.json"]


def test_rows_of_a_concurrent_run_are_kept(tmp_path: Path) -> None:
    one, other = Results(tmp_path), Results(tmp_path)
    assert list(one.records("single-step", "uci")) == []
    other.put("single-step", "uci", record("gcn-ae"))
    one.put("single-step", "uci", record())
    assert [found.row for found in Results(tmp_path).records("single-step", "uci")] == ["gcn-ae", "dysat"]
    assert list(one.records("single-step", "uci")) == list(Results(tmp_path).records("single-step", "uci"))


def test_facts_round_trip(tmp_path: Path) -> None:
    facts = {"steps": [0, 1], "mean": [[1.0, None], [0.4, 0.6]]}
    Results(tmp_path).put_facts("attention", "uci", "dysat", facts)
    assert Results(tmp_path).facts("attention", "uci", "dysat") == facts


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        json.dumps({"format": 1, "rows": []}),
        json.dumps({"format": 2, "rows": {}}),
        '{"rows": {}}',
        "3",
    ],
)
def test_damaged_file_raises_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "single-step_uci.json").write_text(content)
    with pytest.raises(ModelError, match=r"single-step_uci\.json: not a result file of dysat reproduce") as raised:
        Results(tmp_path).record("single-step", "uci", "dysat")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("facts", [{}, {"steps": 3}, {"row": "dysat", "steps": [{"target": 1}]}, [], "row"])
def test_damaged_row_raises_one_line(tmp_path: Path, facts: Any) -> None:
    whole = {"format": 1, "study": "single-step", "dataset": "uci", "rows": {"dysat": facts}}
    (tmp_path / "single-step_uci.json").write_text(json.dumps(whole))
    with pytest.raises(ModelError, match=r"single-step_uci\.json: dysat is not a record") as raised:
        Results(tmp_path).record("single-step", "uci", "dysat")
    assert "\n" not in str(raised.value)


def test_records_skip_keys_with_underscore(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.put("new-nodes", "uci", record())
    results.put_facts("new-nodes", "uci", "_counts", {"new_nodes": {"2": 10}})
    assert [found.row for found in results.records("new-nodes", "uci")] == ["dysat"]


def test_record_of_an_evaluation(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    links = [(int(u), int(v), t) for t in range(4) for u, v in rng.integers(0, 20, (60, 2)) if u != v]
    events = dysat.read_events(tuple(list(column) for column in zip(*links, strict=True)), time_unit="step")
    graph = dysat.build_snapshots(events, every=1)
    found = evaluate("pair-logistic", graph, tmp_path, opponents=(), device="cpu", processes=1, repeats=3)
    figures = found.asked()[0]
    kept = Record.of("pair-logistic", "key", figures, {"seed": 0}, found.left_out)
    means = figures.means()
    assert means is not None
    assert (kept.macro, kept.micro, kept.macro_sd) == (means.macro_auc, means.micro_auc, means.macro_auc_sd)
    assert [step.target for step in kept.steps] == [2, 3]
    # The model needs two snapshots, so the first prediction is missing.
    assert list(kept.left_out) == ["1"]
    assert "needs two snapshots" in kept.left_out["1"]


@pytest.mark.parametrize("study", ["single-step", "new-links", "multi-step", "new-nodes"])
def test_stored_results_of_the_repository_are_valid(study: str) -> None:
    """Every record on UCI has the key that `dysat reproduce` looks for, so nothing is measured again."""
    graph, request = dysat.load_dataset("uci"), request_of(study, "uci", "full")
    known = paper.ROWS | paper.heads_rows()
    records = list(Results(ROOT / "results" / "paper").records(study, "uci"))
    stale = [r.row for r in records if r.key != content_key(graph, known[r.row].contender("uci"), request)]
    assert len(records) >= 20 and stale == []
