"""Reproduction: rows of tables and figures, what is computed, and what is reused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_study import CHEAP, comparable, count_jobs, make_graph, rows, run, shorten

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import DatasetError, GraphError, ModelError
from dysat.experiments.evaluate import plan
from dysat.experiments.evaluate.evaluate import evaluate
from dysat.experiments.paper import catalogue as paper
from dysat.experiments.paper import reproduce as module
from dysat.experiments.paper.catalogue import BASELINES, DYSAT, HEURISTICS, TARGETS
from dysat.experiments.paper.records import Results
from dysat.experiments.paper.reproduce import any_row, datasets_of, needs, request_of, rows_of
from dysat.models import MODELS


@pytest.fixture(scope="module")
def uci() -> DynamicGraph:
    return make_graph()


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    return count_jobs(monkeypatch)


@pytest.fixture(scope="module")
def enron() -> DynamicGraph:
    return make_graph(16)


def test_rows_of_tables_and_figures() -> None:
    every = {*BASELINES, *DYSAT, *HEURISTICS}
    wanted = {target: (rows_of(target)[0], set(rows_of(target)[1])) for target in TARGETS}
    assert wanted["table2"] == wanted["fig-steps"] == ("single-step", every)
    assert wanted["table4"] == ("new-links", every)
    assert wanted["fig-multistep"] == ("multi-step", every)
    assert wanted["fig-newnodes"] == ("new-nodes", every)
    blocks = {f"{one}-no-{block}" for one in DYSAT for block in ("structural", "temporal")}
    assert wanted["table3"] == ("single-step", {*DYSAT, *blocks})
    assert wanted["table5"] == ("single-step", {*DYSAT, "dyngem", "incsat"})
    assert len(wanted["fig-heads"][1]) == 10
    assert all(wanted[target] == ("", set()) for target in ("table1", "fig-runtime", "fig-attention"))


def test_shared_rows_are_needed_once() -> None:
    found = [(need.study, need.dataset, need.key) for need in needs(["table2", "table3", "fig-steps"], ["uci"])]
    assert len(found) == len(set(found)) == len(BASELINES | DYSAT | HEURISTICS) + 4
    only = needs(["table2", "table3"], ["uci"], ["dysat:text", "svd"])  # a preset's name includes its ablations
    assert {need.key for need in only} == {
        "dysat-text", "dysat-text-no-structural", "dysat-text-no-temporal", "svd",
    }  # fmt: skip


def test_any_row_knows_figures_that_are_measured_separately() -> None:
    assert any_row(["table2"], ["uci"], ["svd"]) and not any_row(["table3"], ["uci"], ["svd"])
    assert any_row(["fig-attention"], ["uci"], ["dysat:text"]) and not any_row(["fig-attention"], ["uci"], ["svd"])
    assert any_row(["fig-runtime"], ["uci"], ["dynaernn"]) and not any_row(["fig-runtime"], ["uci"], ["dysat:text"])


def test_datasets_of_tables_and_figures() -> None:
    four = ["enron", "uci", "yelp", "ml-10m"]
    for table in ("table2", "table3", "table4", "table5"):
        assert datasets_of(table, four) == ["enron", "enron-loops", "uci", "yelp", "ml-10m"]
    assert datasets_of("fig-steps", four) == datasets_of("table1", four) == four
    assert datasets_of("fig-attention", four) == ["enron", "uci", "yelp"]
    assert datasets_of("fig-heads", four) == ["uci", "yelp"]
    assert datasets_of("fig-runtime", four) == ["ml-10m"]
    assert datasets_of("fig-heads", ["enron"]) == datasets_of("fig-runtime", ["enron"]) == ["enron"]


def test_requests_of_quick_and_full_budgets() -> None:
    assert request_of("single-step", "uci", "quick").only == (1, 5, 8, 12)
    assert request_of("new-links", "enron", "quick").only == (5, 8, 12, 15)
    whole = request_of("single-step", "yelp", "full", seed=3)
    assert (whole.only, whole.first, whole.last, whole.seed) == (None, 4, 15, 3)
    assert request_of("new-nodes", "uci", "full").new_ends == "one"
    six = request_of("multi-step", "uci", "quick")
    assert (six.only, six.first, six.last) == (None, None, None)
    assert [request_of("single-step", name, "full").self_loops for name in ("enron", "enron-loops")] == ["drop", "keep"]
    assert not whole.past_probe


def test_records_equal_an_evaluation(uci: DynamicGraph, tmp_path: Path) -> None:
    results = run(tmp_path / "r", uci, budget="full", methods=["svd"])
    record = results.record("single-step", "uci", "svd")
    figures = evaluate("svd", uci, tmp_path / "e", opponents=(), device="cpu", first=1, last=12).asked()[0]
    means = figures.means()
    assert record is not None and means is not None
    assert [step.target for step in record.steps] == list(range(1, 13))
    assert (record.macro, record.micro) == (means.macro_auc, means.micro_auc)
    quick = run(tmp_path / "q", uci, methods=["svd"]).record("single-step", "uci", "svd")
    assert quick is not None
    assert quick.steps == tuple(step for step in record.steps if step.target in (1, 5, 8, 12))


def test_enron_is_measured_with_and_without_self_loops(enron: DynamicGraph, tmp_path: Path) -> None:
    results = run(tmp_path, {"enron": enron}, ["table2", "fig-multistep"], methods=["edgebank"])
    without, with_loops = (results.record("single-step", name, "edgebank") for name in ("enron", "enron-loops"))
    assert without is not None and with_loops is not None
    assert [step.target for step in without.steps] == [step.target for step in with_loops.steps] == [5, 8, 12, 15]
    assert sum(step.links for step in with_loops.steps) > sum(step.links for step in without.steps)
    later = results.record("multi-step", "enron", "edgebank")
    assert later is not None and [step.target for step in later.steps] == list(range(10, 16))
    assert results.record("multi-step", "enron-loops", "edgebank") is None


def test_full_budget_reuses_quick_steps(uci: DynamicGraph, tmp_path: Path, computed: list[Any]) -> None:
    run(tmp_path / "r", uci, methods=["svd"])
    assert sorted(step for _, step in computed) == [0, 4, 7, 11]
    computed.clear()
    both = rows(run(tmp_path / "r", uci, methods=["svd"], budget="full"))
    assert sorted(step for _, step in computed) == [1, 2, 3, 5, 6, 8, 9, 10]
    assert both == rows(run(tmp_path / "f", uci, methods=["svd"], budget="full"))


def test_budgets_and_seeds_have_separate_records(uci: DynamicGraph, tmp_path: Path) -> None:
    full = rows(run(tmp_path, uci, methods=["edgebank"], budget="full"))
    quick, other = run(tmp_path, uci, methods=["edgebank"]), run(tmp_path, uci, methods=["edgebank"], seed=1)
    assert len({results.folder for results in (quick, other)}) == 2
    assert [len(rows(results)["edgebank"]["steps"]) for results in (quick, other)] == [4, 4]
    assert rows(run(tmp_path, uci, methods=["edgebank"], budget="full")) == full
    assert len(full["edgebank"]["steps"]) == 12


def test_failed_row_does_not_stop_others(uci: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: Any, graph: Any) -> Any:
        raise ModelError("not today")

    monkeypatch.setattr(dysat.MODELS["edgebank"], "fit", refuse)
    results = run(tmp_path, uci)
    assert set(rows(results)) == set(CHEAP) - {"edgebank"}
    assert results.problems == ["single-step, uci: edgebank: not today"]


def test_second_run_computes_nothing(uci: DynamicGraph, tmp_path: Path, computed: list[Any]) -> None:
    first = rows(run(tmp_path, uci))
    assert set(first) == set(CHEAP)
    assert len(computed) == 3 * 4
    kept = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.safetensors")}
    written = (tmp_path / "results" / "quick" / "single-step_uci.json").read_bytes()
    computed.clear()
    progress: list[Any] = []
    assert rows(run(tmp_path, uci, on_progress=lambda *words: progress.append(words))) == first
    assert computed == [] and progress == [(0, 0, "")]
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.safetensors")} == kept
    assert (tmp_path / "results" / "quick" / "single-step_uci.json").read_bytes() == written


def test_records_are_restored_from_finished_steps(uci: DynamicGraph, tmp_path: Path, computed: list[Any]) -> None:
    first = rows(run(tmp_path, uci))
    (tmp_path / "results" / "quick" / "single-step_uci.json").unlink()
    computed.clear()
    assert rows(run(tmp_path, uci)) == first
    assert computed == []


def test_new_version_recomputes_only_its_method(
    uci: DynamicGraph, tmp_path: Path, computed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rows(run(tmp_path, uci))
    computed.clear()
    monkeypatch.setattr(MODELS["edgebank"], "version", 2)
    again = rows(run(tmp_path, uci))
    assert computed == [("edgebank", step) for step in (0, 4, 7, 11)]
    assert again.pop("edgebank")["key"] != first["edgebank"]["key"]
    assert again == {slug: first[slug] for slug in again}


def test_changed_option_recomputes_only_its_row(
    uci: DynamicGraph, tmp_path: Path, computed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    run(tmp_path, uci, methods=["gcn-ae", "svd"])
    computed.clear()
    row = paper.BASELINES["gcn-ae"]
    monkeypatch.setitem(paper.BASELINES, "gcn-ae", replace(row, changes={"epochs": 1}))
    results = run(tmp_path, uci, methods=["gcn-ae", "svd"])
    assert {method for method, _ in computed} == {"gcn-ae"}
    record = results.record("single-step", "uci", "gcn-ae")
    assert record is not None and record.options["epochs"] == 1


def test_other_graphs_and_seeds_keep_their_own_cache(uci: DynamicGraph, tmp_path: Path, computed: list[Any]) -> None:
    first = rows(run(tmp_path, uci))
    for other in ({"graphs": make_graph(seed=1)}, {"graphs": uci, "seed": 1}):
        computed.clear()
        assert rows(run(tmp_path, **other)) != first
        assert len(computed) == 3 * 4
    computed.clear()
    assert rows(run(tmp_path, uci)) == first
    assert computed == []


def test_new_package_version_keeps_results(
    uci: DynamicGraph, tmp_path: Path, computed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of the method decides, not the version of the package."""
    run(tmp_path, uci, methods=["edgebank"])
    computed.clear()
    monkeypatch.setattr(plan.dysat, "__version__", "99.0")
    assert set(rows(run(tmp_path, uci, methods=["edgebank", "edge-memory"]))) == {"edgebank", "edge-memory"}
    assert {method for method, _ in computed} == {"edge-memory"}


def test_rows_with_equal_options_are_computed_once(
    uci: DynamicGraph, tmp_path: Path, computed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    whole = paper.heads_rows()
    shown = {slug: whole[slug] for slug in ("dysat-temporal-heads-16", "dysat-temporal-heads-1")}
    short = {slug: replace(r, changes={**paper.DYSAT["dysat"].changes, **r.changes}) for slug, r in shown.items()}
    monkeypatch.setattr(paper, "heads_rows", lambda: short)
    results = run(tmp_path, uci, ["table2", "fig-heads"], methods=["dysat:program"])
    assert len(computed) == 2 * 4
    same, other, dysat_ = (results.record("single-step", "uci", slug) for slug in (*short, "dysat"))
    assert same is not None and dysat_ is not None and other is not None
    assert comparable(same) == {**comparable(dysat_), "row": "dysat-temporal-heads-16"}
    assert other.options["temporal_heads"] == [1] and other.key != same.key


def test_fits_without_validation_are_shared_by_studies(
    uci: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[int] = []
    original = dysat.MODELS["node2vec"].fit

    def fit(self: Any, graph: DynamicGraph, **more: Any) -> Any:
        fitted.append(len(graph))
        return original(self, graph, **more)

    monkeypatch.setattr(dysat.MODELS["node2vec"], "fit", fit)
    short = {"walks_per_node": 1, "walk_length": 10}
    monkeypatch.setitem(paper.BASELINES, "node2vec", replace(paper.BASELINES["node2vec"], changes=short))
    results = run(tmp_path, uci, ["table2", "table4"], methods=["node2vec"])
    assert sorted(fitted) == [1, 5, 8, 12]
    assert len(list((tmp_path / "cache" / "fits").iterdir())) == 4
    alone = run(tmp_path / "alone", uci, ["table4"], methods=["node2vec"])
    assert rows(alone, "new-links") == rows(results, "new-links") != rows(results)


def test_records_are_written_when_their_row_is_complete(
    uci: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    seen: list[tuple[int, list[str]]] = []

    def look(done: int, total: int, what: str) -> None:
        seen.append((done, list(rows(Results(tmp_path / "results" / "quick")))))

    run(tmp_path, uci, methods=["gcn-ae", "edgebank"], on_progress=look)
    assert seen[3:6] == [(3, []), (4, ["gcn-ae"]), (5, ["gcn-ae"])]
    assert seen[-1] == (8, ["gcn-ae", "edgebank"])


def test_new_nodes_are_counted_per_predicted_snapshot(uci: DynamicGraph, tmp_path: Path) -> None:
    results = run(tmp_path, uci, ["fig-newnodes"], methods=["degree-sum"])
    counts = results.facts("new-nodes", "uci", "_counts")
    known = uci.known
    by_hand = {str(step + 1): known[step] - (known[step - 1] if step else 0) for step in range(12)}
    assert counts == {"new_nodes": by_hand}
    record = results.record("new-nodes", "uci", "degree-sum")
    assert record is not None and record.about["request"]["new_ends"] == "one"
    other = make_graph(seed=1, size=60)
    again = run(tmp_path, other, ["fig-newnodes"], methods=["degree-sum"]).facts("new-nodes", "uci", "_counts")
    assert again is not None and sum(again["new_nodes"].values()) == other.known[11] != sum(by_hand.values())


def test_dataset_counts(enron: DynamicGraph, tmp_path: Path) -> None:
    results = run(tmp_path, {"enron": enron}, ["table1"])
    links = [{(min(p), max(p)) for p in zip(*(end.tolist() for end in s.links()[:2]), strict=True)} for s in enron]
    assert results.facts("datasets", "enron", "counts") == {
        "nodes": enron.num_nodes,
        "snapshots": 16,
        "links": sum(map(len, links)),
        "distinct_links": len(set.union(*links)),
        "self_loops": sum(u == v for snapshot in links for u, v in snapshot),
        "predicted": [5, 15],
    }
    assert not (tmp_path / "cache").exists()  # nothing is evaluated for it


def test_attention_and_runtime_are_measured_on_request(
    uci: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(module, "measure_attention", lambda slug, graph, name, *rest: asked.append((slug, name)))
    monkeypatch.setattr(module, "measure_windows", lambda graph, name, *rest: asked.append(("times", name)))
    graphs = {"uci": uci, "ml-10m": uci}
    run(tmp_path, graphs, ["fig-attention", "fig-runtime"], methods=None)
    assert asked == [("dysat", "uci"), ("dysat-text", "uci"), ("times", "ml-10m")]
    asked.clear()
    run(tmp_path, {"uci": uci}, ["fig-attention", "fig-runtime", "table1"], methods=["dysat:text"])
    assert asked == [("dysat-text", "uci")]
    asked.clear()
    run(tmp_path, {"uci": uci}, ["fig-attention", "fig-runtime"], methods=["dynaernn"])
    assert asked == [("times", "uci")]


def test_invalid_arguments_raise(uci: DynamicGraph, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no method 'edgebnk'; there are .*did you mean .?edgebank"):
        run(tmp_path, uci, methods=["edgebnk"])
    with pytest.raises(ModelError, match="use dysat:program or dysat:text"):
        run(tmp_path, uci, methods=["dysat"])
    with pytest.raises(DatasetError, match=r"no dataset 'ucy'; there are .*uci"):
        run(tmp_path, {"ucy": uci})
    with pytest.raises(DatasetError, match="no dataset to measure"):
        run(tmp_path, {})
    with pytest.raises(GraphError, match="snapshot 12 cannot be predicted"):
        run(tmp_path, uci[:6])
    assert not any(tmp_path.rglob("*.json"))


def test_records_include_the_request(uci: DynamicGraph, tmp_path: Path) -> None:
    run(tmp_path, uci, methods=["edgebank"], seed=2)
    facts = json.loads((tmp_path / "results" / "quick-seed-2" / "single-step_uci.json").read_text())["rows"][
        "edgebank"
    ]["about"]
    assert facts["request"]["seed"] == 2 and facts["request"]["only"] == [1, 5, 8, 12]
    assert facts["graph"]["fingerprint"] == uci.fingerprint
    assert facts["device"] == "cpu" and facts["dysat"] == dysat.__version__
