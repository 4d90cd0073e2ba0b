"""The paper's tables: values, choice of the best heuristic, notes and verdicts."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dysat
from dysat.errors import ModelError
from dysat.experiments.paper.catalogue import BASELINES, BOOSTING, ROWS
from dysat.experiments.paper.cells import Cell, Table, signed
from dysat.experiments.paper.lineup import BEST, find, strongest
from dysat.experiments.paper.records import Point, Record, Results
from dysat.experiments.paper.reproduce import dataset_facts
from dysat.experiments.paper.tables import TABLES, table1, table2, table3, table4, table5

UCI = range(1, 13)
ABOUT = {
    "date": "2026-11-15T10:00:00+00:00",
    "hardware": {"cpu": "Some CPU", "cores": 2, "gpu": "Some GPU", "torch": "2.11"},
    "device": "cuda",
    "request": {"seed": 0, "repeats": 10},
}


def record(row: str, macro: float, *, validation: float | None = None, targets: Any = UCI, **more: Any) -> Record:
    """Return a record whose steps are all equal; macro in per cent, micro five points below."""
    auc, known = macro / 100, (validation or macro) / 100
    steps = tuple(Point(target, 40, auc, 0.02, auc, known) for target in targets)
    method = ROWS[row].method
    facts: dict[str, Any] = {"options": {}, "left_out": {}, "about": ABOUT, **more}
    return Record(row, method, key="k", macro=auc, macro_sd=0.0073, micro=auc - 0.05, micro_sd=None, steps=steps,
                  seconds=1.0, **facts)  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """UCI with every baseline except DynGEM."""
    found = Results(tmp_path)
    for row, macro in zip(BASELINES, (79.0, 80.0, 81.0, 86.0, 82.0, 78.0, None, 87.5), strict=True):
        if macro is not None:
            found.put("single-step", "uci", record(row, macro))
    found.put("single-step", "uci", record("dysat", 85.48))
    found.put("single-step", "uci", record("dysat-text", 84.22))
    found.put("single-step", "uci", record("edge-memory", 93.0, validation=91.0))
    found.put("single-step", "uci", record("svd", 89.0, validation=92.0))
    found.put("single-step", "uci", record(BOOSTING, 94.5, targets=range(2, 13), left_out={"1": "needs two snapshots"}))
    return found


def row_of(table: Table, name: str) -> tuple[str, ...]:
    return next(line for line in table.lines("**") if line[0] == name)


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_cell_has_our_value_the_papers_and_the_difference(results: Results) -> None:
    table = table2(results, ["uci"])
    assert table.header == ("method", "UCI, macro", "UCI, micro")
    assert row_of(table, "dysat:program") == (
        "dysat:program",
        "85.48 ± 0.73 (85.81 ± 0.1, −0.33)",
        "80.48 (81.03 ± 0.2, −0.55)",
    )
    assert "| dysat:program | 85.48 ± 0.73 (85.81 ± 0.1, −0.33) | 80.48 (81.03 ± 0.2, −0.55) |" in table.markdown()


def test_our_best_value_among_the_papers_methods_is_bold(results: Results) -> None:
    bold = [line[0] for line in table2(results, ["uci"]).lines("**") if line[1].startswith("**")]
    assert bold == ["DynAERNN"]
    assert "**" not in "".join(table2(results, ["uci"]).lines()[7])


def test_missing_rows_are_dashes(results: Results) -> None:
    table = table2(results, ["uci", "yelp"])
    assert row_of(table, "DynGEM")[1] == "– (79.82 ± 0.5)"
    assert row_of(table, "best heuristic")[3] == "–"
    assert "UCI: not measured: DynGEM" in table.notes
    assert "Yelp: nothing was measured" in table.notes


def test_best_heuristic_is_chosen_by_validation(results: Results) -> None:
    found = strongest(results, "single-step", "uci")
    assert found is not None
    assert found.row == "svd"
    assert row_of(table2(results, ["uci"]), "best heuristic")[1] == "89.00 ± 0.73 svd"
    assert any(note.endswith("UCI: svd") for note in table2(results, ["uci"]).notes)


def test_best_heuristic_is_chosen_on_shared_snapshots(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.put("single-step", "uci", record(BOOSTING, 99.0))
    assert strongest(results, "single-step", "uci") is None
    # The first snapshot is hard, and only edge-memory has it.
    easy, hard = Point(2, 40, 0.9, 0.0, 0.9, 0.95), Point(1, 40, 0.5, 0.0, 0.5, 0.5)
    results.put(
        "single-step", "uci", Record("edge-memory", "edge-memory", {}, "k", 0.7, 0.0, 0.7, 0.0, (hard, easy), {}, 1.0)
    )
    results.put("single-step", "uci", record("pair-logistic", 90.0, targets=[2]))
    found = strongest(results, "single-step", "uci")
    assert found is not None
    assert found.row == "edge-memory"


def test_verdict_lists_baselines_above_and_below(results: Results) -> None:
    program, text = table2(results, ["uci"]).verdicts
    assert program == (
        "UCI: dysat:program 85.5, published 85.8 (within 1 point); above 5 of the 8 baselines; below "
        "GCN-AE (86.0), DynAERNN (87.5); not measured: DynGEM; below the best heuristic, svd (89.0)."
    )
    assert text.startswith("UCI: dysat:text 84.2, published 85.8 (1.6 points below); above 5 of the 8")


def test_verdict_if_all_others_are_below(results: Results) -> None:
    for row in BASELINES:
        results.put("single-step", "uci", record(row, 70.0))
    results.put("single-step", "uci", record("dysat", 92.0))
    assert table2(results, ["uci"]).verdicts[0] == (
        "UCI: dysat:program 92.0, published 85.8 (6.2 points above); above all 8 baselines; "
        "above the best heuristic, svd (89.0)."
    )


def test_tie_on_validation_is_not_decided_by_test(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for slug, auc in (("edgebank", 70.0), ("edge-memory", 90.0)):
        equal = record(slug, auc)
        results.put(
            "single-step", "uci", replace(equal, steps=tuple(replace(s, validation_auc=0.8) for s in equal.steps))
        )
    best = find(results, "single-step", "uci", BEST)
    assert best is not None
    assert best.row == "edgebank"  # the first of the two in the list of heuristics


def test_models_trained_on_transitions_are_not_heuristics(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for slug, auc in (("edge-memory", 80.0), ("pair-logistic", 95.0), ("pair-boosting", 96.0)):
        results.put("single-step", "uci", record(slug, auc))
    best = find(results, "single-step", "uci", BEST)
    assert best is not None
    assert best.row == "edge-memory"
    note = "UCI, macro-AUC of all heuristics: pair-boosting 96.00, pair-logistic 95.00, edge-memory 80.00"
    assert note in table2(results, ["uci"]).notes


def test_verdict_compares_on_shared_snapshots(tmp_path: Path) -> None:
    results = Results(tmp_path)
    # Above on all twelve snapshots, below on the eleven that the heuristic has.
    first, rest = Point(1, 40, 0.99, 0.0, 0.9, 0.9), [Point(t, 40, 0.90, 0.0, 0.9, 0.9) for t in range(2, 13)]
    whole = Record("dysat", "dysat", {}, "k", 0.9075, 0.0, 0.9, 0.0, (first, *rest), {}, 1.0)
    results.put("single-step", "uci", whole)
    results.put("single-step", "uci", record("edge-memory", 90.5, targets=range(2, 13)))
    verdict = table2(results, ["uci"]).verdicts[0]
    assert "no baselines measured" in verdict
    assert verdict.endswith("below the best heuristic, edge-memory (90.5 against 90.0 on the 11 snapshots they share).")


def test_published_values_of_enron_count_self_loops(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for dataset in ("enron", "enron-loops"):
        results.put("single-step", dataset, record("dysat", 86.0, targets=range(5, 16)))
    table = table2(results, ["enron-loops", "enron"])
    assert table.header[1::2] == ("Enron, macro", "Enron, self-loops counted, macro")
    assert "published 86.6 with self-loops counted (within 1 point)" in table.verdicts[0]
    assert "published 86.6 (within 1 point)" in table.verdicts[1]
    assert any("compare its values with ours that count self-loops" in note for note in table.notes)


def test_notes_list_snapshots_reasons_and_machines(results: Results) -> None:
    results.put("single-step", "uci", record("dysat", 85.0, targets=[2, 5, 6, 7], about={**ABOUT, "device": "cpu"}))
    table = table2(results, ["uci"])
    assert "UCI: 4 of the 12 predicted snapshots (2, 5–7): dysat:program" in table.notes
    assert "UCI: 11 of the 12 predicted snapshots (2–12): gradient boosting" in table.notes
    assert "UCI, snapshot 1 left out: needs two snapshots (gradient boosting)" in table.notes
    assert "measured 2026-11-15 on Some GPU, torch 2.11; seed 0" in table.notes
    assert "measured 2026-11-15 on Some CPU, 2 cores, torch 2.11; seed 0" in table.notes
    assert any("over 10 random splits" in note for note in table.notes)
    assert table.verdicts[0].startswith("UCI: dysat:program 85.0 on 4 of the 12 snapshots, published 85.8")


def test_notes_list_rows_chosen_on_test_results(results: Results) -> None:
    def flattered(table: Table) -> list[str]:
        return [note for note in table.notes if "test results" in note]

    assert flattered(table2(results, ["uci"])) == [
        "gradient boosting: its settings were chosen on test results of these datasets (docs/evaluation.md)"
    ]
    results.put("single-step", "uci", record("dysat", 85.48, options={"patience": 10}))
    assert flattered(table3(results, ["uci"]))[0].endswith("(docs/settings.md): dysat:program")


def test_csv_has_a_line_per_cell(results: Results) -> None:
    rows = csv_rows(table2(results, ["uci"]).csv())
    assert len(rows) == 12 * 2
    known = {(row["row"], row["measure"]): row for row in rows}
    assert known["dysat", "macro-AUC"] == {
        "table": "table2", "dataset": "uci", "row": "dysat", "measure": "macro-AUC", "ours": "85.48", "ours_sd": "0.73",
        "paper": "85.81", "paper_sd": "0.1", "difference": "-0.33", "steps": "12", "left_out": "", "method": "",
    }  # fmt: skip
    assert known["dyngem", "macro-AUC"]["ours"] == known["dyngem", "macro-AUC"]["difference"] == ""
    assert known["best-heuristic", "micro-AUC"]["method"] == "svd"
    assert known["pair-boosting", "macro-AUC"]["left_out"] == "1: needs two snapshots"
    assert known["pair-boosting", "macro-AUC"]["paper"] == ""


def test_ablation_compares_blocks_within_each_preset(tmp_path: Path) -> None:
    results = Results(tmp_path)
    figures = {
        "dysat": 85.0, "dysat-no-structural": 80.0, "dysat-no-temporal": 86.0,
        "dysat-text": 84.0, "dysat-text-no-structural": 83.0, "dysat-text-no-temporal": 82.0,
    }  # fmt: skip
    for row, macro in figures.items():
        results.put("single-step", "uci", record(row, macro))
    table = table3(results, ["uci"])
    bold = [line[0] for line in table.lines("**") if line[1].startswith("**")]
    assert bold == ["dysat:program-no-temporal", "dysat:text"]
    assert row_of(table, "dysat:program-no-structural")[1] == "80.00 ± 0.73 (81.24 ± 0.2, −1.24)"
    assert table.verdicts == (
        "UCI: dysat:program 85.0, published 85.8 (within 1 point); no structural attention 80.0 (−5.0, "
        "published −4.6); no temporal attention 86.0 (+1.0, published −5.8); only one block helps.",
        "UCI: dysat:text 84.0, published 85.8 (1.8 points below); no structural attention 83.0 (−1.0, published "
        "−4.6); no temporal attention 82.0 (−2.0, published −5.8); both blocks help.",
    )


def test_new_links_have_their_own_study_and_published_values(results: Results) -> None:
    results.put("new-links", "uci", record("dysat", 83.0))
    assert row_of(table4(results, ["uci"]), "dysat:program")[1] == "**83.00** ± 0.73 (83.66 ± 0.2, −0.66)"
    assert row_of(table4(results, ["uci"]), "GCN-AE")[1] == "– (76.75 ± 0.6)"


def test_incsat_is_compared_with_dysat_and_dyngem(results: Results) -> None:
    results.put("single-step", "uci", record("incsat", 85.0))
    table = table5(results, ["uci"])
    assert [name for name, _ in table.rows] == ["dysat:program", "dysat:text", "DynGEM", "IncSAT"]
    assert row_of(table, "IncSAT")[1] == "85.00 ± 0.73 (85.37 ± 0.2, −0.37)"
    assert table.verdicts == (
        "UCI: IncSAT 85.0, published 85.4 (within 1 point); below dysat:program (85.5); above dysat:text (84.2).",
    )


def test_part_has_the_columns_of_one_dataset(results: Results) -> None:
    part = table2(results, ["uci", "yelp"]).part("yelp")
    assert part.header == ("method", "Yelp, macro", "Yelp, micro")
    assert {len(line) for line in part.lines()} == {3}
    assert part.datasets == ("yelp",)


@pytest.mark.parametrize("name", [name for name in TABLES if name != "table1"])
def test_tables_have_all_datasets_and_refuse_others(name: str, tmp_path: Path) -> None:
    table = TABLES[name](Results(tmp_path))
    assert (table.name, len(table.columns)) == (name, 10)
    assert table.verdicts == ()
    with pytest.raises(ModelError, match=r"no dataset 'ucl'; .*did you mean 'uci'"):
        TABLES[name](Results(tmp_path), ["ucl"])


def test_dataset_counts_are_compared_with_the_paper(tmp_path: Path) -> None:
    results = Results(tmp_path)
    with pytest.raises(ModelError, match="no dataset was counted"):
        table1(results)
    results.put_facts("datasets", "uci", "counts", dataset_facts(dysat.load_dataset("uci"), "uci"))
    table = table1(results)
    assert table.header[0] == "dataset"
    assert dict(zip(table.header, table.lines()[0], strict=True)) == {
        "dataset": "UCI",
        "nodes": "1,809 (1,809, 0)",
        "links, summed over snapshots": "16,822 (16,822, 0)",
        "distinct links": "13,228 (16,822, −3,594)",
        "self-loops": "0",
        "snapshots": "13 (13, 0)",
        "predicted snapshots": "12 (13, −1)",
    }
    assert "the paper's “# links” agrees with: UCI: links, summed over snapshots" in table.notes
    assert "the paper's “# time steps” agrees with: UCI: snapshots" in table.notes
    row = next(row for row in csv_rows(table.csv()) if row["measure"] == "distinct links")
    assert (row["ours"], row["paper"], row["difference"]) == ("13228", "16822", "-3594")


def test_difference_is_of_printed_values() -> None:
    assert Cell("uci", "dysat", "macro-AUC", ours=85.4849, paper=85.81).difference == -0.33
    assert Cell("uci", "dysat", "macro-AUC", ours=85.4849).difference is None


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.0, 2, "0.00"), (-0.004, 2, "0.00"), (0.3, 2, "+0.30"), (-1234.0, 0, "−1,234"), (10.0, 0, "+10")],
)
def test_signs(value: float, digits: int, text: str) -> None:
    assert signed(value, digits) == text
