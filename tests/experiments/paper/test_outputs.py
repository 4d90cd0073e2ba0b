"""Output files of tables and figures, from hand-made results."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dysat.errors import ModelError
from dysat.experiments.paper.catalogue import TARGETS, heads_row
from dysat.experiments.paper.cells import Table
from dysat.experiments.paper.outputs import made_of, write
from dysat.experiments.paper.records import Point, Record, Results

TABLES = [target for target in TARGETS if target.startswith("table")]


def record(row: str, method: str = "dysat") -> Record:
    steps = tuple(Point(target, 30, 0.8 + target / 100, 0.01, 0.7, 0.8) for target in (7, 8, 9))
    about = {"date": "2026-11-15", "hardware": {"cpu": "Some CPU"}, "device": "cpu", "request": {"repeats": 10}}
    return Record(row, method, {}, "key", 0.85, 0.01, 0.8, 0.01, steps, {}, 1.0, about)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Results for every table and figure on UCI."""
    found = Results(tmp_path / "results")
    for study in ("single-step", "new-links", "multi-step", "new-nodes"):
        found.put(study, "uci", record("dysat"))
        found.put(study, "uci", record("edgebank", "edgebank"))
    found.put("single-step", "uci", record(heads_row("temporal", 4)[0]))
    counts = {"nodes": 9, "snapshots": 3, "links": 7, "distinct_links": 6, "self_loops": 0, "predicted": [1, 2]}
    found.put_facts("datasets", "uci", "counts", counts)
    weights = [[1.0, None], [0.4, 0.6]]
    found.put_facts("attention", "uci", "dysat", {"steps": [0, 1], "mean": weights, "sd": [[0.0, None], [0.1, 0.1]]})
    times = [{"window": 1, "dysat": {"epoch_seconds": 0.1}, "dynaernn": {"epoch_seconds": 0.2}}]
    found.put_facts("runtime", "uci", "windows", {"timings": times, "hardware": {"cpu": "Some CPU"}, "device": "cpu"})
    return found


@pytest.mark.parametrize("target", TABLES)
def test_tables_are_written_as_markdown_and_csv(results: Results, tmp_path: Path, target: str) -> None:
    made, lacking = made_of([target], results, ["uci"])
    files = write(made, tmp_path / "out")
    assert [file.name for file in files] == [f"{target}.md", f"{target}.csv"] and lacking == []
    assert files[0].read_text(encoding="utf-8") == made[0].markdown() and "UCI" in made[0].markdown()
    assert {line["dataset"] for line in csv.DictReader(files[1].read_text(encoding="utf-8").splitlines())} == {"uci"}


def test_all_outputs_can_be_made(results: Results) -> None:
    made, lacking = made_of(TARGETS, results, ["uci"])
    assert [one.name for one in made] == list(TARGETS) and lacking == []
    for one in made:
        lines = list(csv.DictReader((one.csv() if isinstance(one, Table) else one.csv).splitlines()))
        first = "table" if isinstance(one, Table) else "figure"
        assert lines and {(line[first], line["dataset"]) for line in lines} == {(one.name, "uci")}


def test_figures_are_written_as_two_pictures_and_csv_with_reproducible_bytes(results: Results, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        made, _ = made_of(["table2", "fig-heads"], Results(results.folder), ["uci"])
        files = write(made, tmp_path / folder)
    names = ["table2.md", "table2.csv", "fig-heads.svg", "fig-heads.png", "fig-heads.csv"]
    assert [file.name for file in files] == names and sorted(files) == sorted((tmp_path / "two").iterdir())
    assert "<svg" in files[2].read_text(encoding="utf-8") and files[3].read_bytes().startswith(b"\x89PNG")
    for file in files:
        assert file.read_bytes() == (tmp_path / "one" / file.name).read_bytes(), file.name


def test_existing_files_are_replaced(results: Results, tmp_path: Path) -> None:
    (file, _) = write(made_of(["table2"], results, ["uci"])[0], tmp_path / "out")
    before = file.read_text(encoding="utf-8")
    results.put("single-step", "uci", record("gcn-ae", "gcn-ae"))
    write(made_of(["table2"], results, ["uci"])[0], tmp_path / "out")
    assert file.read_text(encoding="utf-8") != before


def test_enron_has_two_columns_in_tables_and_one_panel_in_figures(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for dataset in ("enron", "enron-loops"):
        results.put("single-step", dataset, record("dysat"))
    (table, figure), _ = made_of(["table2", "fig-steps"], results, ["enron"])
    assert "Enron, self-loops counted" in table.markdown()
    assert {line["dataset"] for line in csv.DictReader(figure.csv.splitlines())} == {"enron"}


def test_missing_results_do_not_affect_other_outputs(results: Results, tmp_path: Path) -> None:
    """The paper has no heat map of ML-10M, and no heads were measured."""
    bare = Results(tmp_path / "bare")
    bare.put("single-step", "ml-10m", record("dysat"))
    made, lacking = made_of(["table1", "table2", "fig-steps", "fig-heads", "fig-attention"], bare, ["ml-10m"])
    assert [one.name for one in made] == ["table2", "fig-steps"]
    assert lacking == [
        "table1: no dataset was counted",
        "fig-heads: nothing was measured on ml-10m",
        "fig-attention: nothing was measured on any dataset",
    ]
    with pytest.raises(ModelError, match=r"^fig-heads: nothing was measured on ml-10m$"):
        made_of(["fig-heads"], bare, ["ml-10m"])


def test_damaged_results_raise(results: Results) -> None:
    file = results.folder / "attention_uci.json"
    facts = json.loads(file.read_text())
    facts["rows"]["dysat"]["steps"] = "many"
    file.write_text(json.dumps(facts))
    with pytest.raises(ModelError, match="attention on uci cannot be read"):
        made_of(["table2", "fig-attention"], Results(results.folder), ["uci"])
