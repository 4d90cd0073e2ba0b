"""The wide comparison: what is measured in a window, which logs are opened, resuming, statistics and tables."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import graph_of, quick
from scipy import stats
from small_study import make_graph

import dysat
from dysat.evaluation.probe import auc
from dysat.evaluation.protocols import single_step
from dysat.evaluation.ranking import link_ranks, mrr
from dysat.system.parallel.pool import THREAD_VARIABLES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
wide = pytest.importorskip("forecasting_wide")

__all__ = ["quick"]

FACTS = {"domain": "made-up", "window": "1d"}
HEURISTICS = ("edgebank", "degree-sum")


@pytest.fixture(scope="module")
def graph() -> dysat.DynamicGraph:
    return make_graph(6)


@pytest.fixture
def graphs(tmp_path: Path, graph: dysat.DynamicGraph) -> Path:
    """Two development logs, and two test logs whose graphs are missing. logs.json is wrong about `flights`."""
    halves = {"one": "development", "hospital": "test", "two": "test", "flights": "development"}
    (tmp_path / "logs.json").write_text(json.dumps({name: {**FACTS, "half": half} for name, half in halves.items()}))
    for name in ("one", "hospital"):
        graph.save(tmp_path / name)
    return tmp_path


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs in one thread of this process, with few heuristics."""

    @contextmanager
    def pool(processes: int, kept: str) -> Iterator[Executor]:
        with ThreadPoolExecutor(1) as executor:
            yield executor

    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, os.environ.get(name, "1"))  # restored afterwards
    monkeypatch.setattr(wide, "worker_pool", pool)
    monkeypatch.setitem(wide.RUNS, "forecasts", (wide.OURS, *HEURISTICS))


def start(monkeypatch: pytest.MonkeyPatch, graphs: Path, *more: str, half: str = "development") -> Any:
    out = graphs / "out.json"
    words = ["bench", "--graphs", str(graphs), "--half", half, "--windows", "2", "--out", str(out), *more]
    monkeypatch.setattr(sys, "argv", words)
    wide.main()
    return json.loads(out.read_text())


def test_halves_are_those_of_the_wide_bench() -> None:
    wide_logs = pytest.importorskip("wide_logs")
    halves = {name: wide.half_of(name, {"half": "unknown"}) for name in wide_logs.LOGS}
    assert halves == wide_logs.HALVES
    assert set(wide_logs.LOGS) == wide.TEST_LOGS | wide.DEVELOPMENT_LOGS


def test_development_opens_no_test_log(
    graphs: Path, monkeypatch: pytest.MonkeyPatch, in_threads: None, graph: dysat.DynamicGraph
) -> None:
    opened, load = set(), dysat.DynamicGraph.load

    def watched(folder: Path) -> dysat.DynamicGraph:
        opened.add(Path(folder).name)
        return load(folder)

    monkeypatch.setattr(dysat.DynamicGraph, "load", watched)
    record = start(monkeypatch, graphs)
    assert opened == {row["log"] for row in record["rows"]} == {"one", "hospital"}
    assert record["logs"] == {name: {**FACTS, "half": "development"} for name in ("one", "hospital")}
    with pytest.raises(dysat.GraphError, match="no such folder"):
        start(monkeypatch, graphs, half="test")
    assert opened == {"one", "hospital", "two"}


@pytest.mark.parametrize(("name", "message"), [("flights", "in the test half"), ("three", "no log")])
def test_other_logs_are_refused(graphs: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        start(monkeypatch, graphs, "--log", "one", name)


def test_a_half_must_be_chosen(graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--graphs", str(graphs), "--out", str(graphs / "out.json")])
    with pytest.raises(SystemExit):
        wide.main()


def test_predicted_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = [(k, k + 1) for k in range(25)]
    sizes = [25, 25, 25, 25, 19, 20, 25]
    graph = graph_of([(*pair, t) for t, size in enumerate(sizes) for pair in ring[:size]])
    assert wide.predicted(graph, 9) == [3, 5, 6]  # three windows of past, at least 20 links
    assert wide.predicted(graph, 2) == [5, 6]
    monkeypatch.setattr(wide, "incomplete", lambda graph: True)
    assert wide.predicted(graph, 9) == [3, 5]


def test_links_of_unknown_nodes_and_loops_do_not_count() -> None:
    links = [(0, 1, 0), (1, 2, 0), (0, 1, 1), (0, 2, 1), (1, 3, 1)]
    assert wide.num_links(graph_of(links), 1) == 2
    events = dysat.read_events(([0, 0, 1], [1, 1, 1], [0, 1, 1]), time_unit="step")
    assert wide.num_links(dysat.build_snapshots(events, every=1, self_loops="keep"), 1) == 1


def test_examples(graph: dysat.DynamicGraph) -> None:
    given = wide.examples(graph, 5, seed=0)
    split = single_step(graph, 4, seed=0)
    assert torch.equal(given.pairs, split.pairs)
    assert torch.equal(given.labels, split.labels)
    before = {tuple(pair) for s in graph.snapshots[:5] for pair in torch.stack(s.pairs()[:2], 1).tolist()}
    new = [label and tuple(pair) not in before for pair, label in zip(given.pairs.tolist(), given.labels, strict=True)]
    assert given.new.tolist() == new
    assert 0 < sum(new) < int(given.labels.sum())
    assert given.ranked[1].shape == (int(given.labels.sum()), 20)  # of 36 nodes
    assert torch.equal(given.new_ranked[0], given.pairs[given.new])
    assert not torch.equal(wide.examples(graph, 5, seed=1).pairs, given.pairs)


def test_at_most_200_links_are_ranked() -> None:
    graph = make_graph(4, size=300)
    split = single_step(graph, 2)
    many = split.pairs[split.labels].repeat(60, 1)
    links, others = wide.to_rank(graph, split, many, seed=0)
    assert (links.shape, others.shape) == ((200, 2), (200, 100))
    assert wide.to_rank(graph, split, many[:0], seed=0) is None


def test_figures_of_known_scores(graph: dysat.DynamicGraph) -> None:
    given = wide.examples(graph, 5, seed=0)
    linked = {tuple(pair) for pair in given.pairs[given.labels].tolist()}
    perfect = wide.figures(lambda pairs: torch.tensor([float(tuple(p) in linked) for p in pairs.tolist()]), given)
    names = {"auc", "new_auc", "mrr", "new_mrr", "hits", "new_hits"}
    assert {name: perfect[name] for name in names} == dict.fromkeys(names, 1.0)
    constant = wide.figures(lambda pairs: torch.zeros(len(pairs)), given)
    assert constant["auc"] == constant["new_auc"] == 0.5
    assert constant["mrr"] == pytest.approx(1 / 11, abs=1e-6)  # ties count one half: rank 11 of 21
    assert constant["hits"] == 0
    old = wide.figures(
        lambda pairs: torch.tensor([float(tuple(p) in linked - new_of(given)) for p in pairs.tolist()]), given
    )
    assert old["new_auc"] == 0.5 < old["auc"] < 1
    assert old["new_mrr"] < old["mrr"]


def new_of(given: Any) -> set[tuple[int, ...]]:
    return {tuple(pair) for pair in given.pairs[given.new].tolist()}


def test_figures_are_those_of_the_evaluation(graph: dysat.DynamicGraph) -> None:
    given = wide.examples(graph, 5, seed=0)
    model = dysat.MODELS["edge-memory"]().fit(graph[:5])
    found = wide.figures(model.pair_scores, given)
    assert found["auc"] == pytest.approx(auc(model.pair_scores(given.pairs), given.labels), abs=1e-6)
    assert found["mrr"] == pytest.approx(mrr(link_ranks(model.pair_scores, *given.ranked)), abs=1e-6)
    assert found["new_mrr"] == pytest.approx(mrr(link_ranks(model.pair_scores, *given.new_ranked)), abs=1e-6)


def test_embeddings_are_measured_by_their_product(graph: dysat.DynamicGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    model = dysat.DySAT(epochs=1, device="cpu")
    monkeypatch.setattr(wide, "make", lambda method, seed, device: model)
    given = wide.examples(graph, 5, seed=0)
    found = wide.measure_method(wide.EMBEDDINGS, {"target": 5, "seed": 0, "device": "cpu"}, graph, given)
    e, (weights, bias) = model.embed(), model.scorer_
    u, v = given.pairs.T
    product = (e[u] * e[v]) @ weights + bias
    assert found["auc"] == pytest.approx(auc(product, given.labels), abs=1e-3)
    assert found["auc"] != pytest.approx(auc(model.pair_scores(given.pairs), given.labels), abs=1e-3)
    assert "reliability" not in found


def test_methods(graph: dysat.DynamicGraph) -> None:
    ours, full = (wide.make(method, 3, "cpu").get_params() for method in (wide.OURS, wide.EMBEDDINGS))
    assert (ours["embeddings"], full["embeddings"], ours["seed"]) == (False, True, 3)
    assert wide.make("pair-boosting", 3, "cpu").get_params()["seed"] == 3
    for method in dysat.models.OPPONENTS:
        assert wide.make(method, 3, "cpu").method == method


def test_a_method_that_cannot_run_says_why(graph: dysat.DynamicGraph) -> None:
    given = wide.examples(graph, 1, seed=0)
    found = wide.measure_method("pair-boosting", {"target": 1, "seed": 0, "device": "cpu"}, graph, given)
    assert list(found) == ["problem"]
    assert found["problem"].startswith("ModelError: ")


def without_times(record: Any) -> Any:
    rows = {
        wide.key(row): {
            method: {name: value for name, value in cell.items() if "seconds" not in name}
            for method, cell in row["methods"].items()
        }
        for row in record["rows"]
    }
    return rows, record["logs"], record["version"]


def test_a_stopped_run_resumes(graphs: Path, monkeypatch: pytest.MonkeyPatch, in_threads: None) -> None:
    whole = start(monkeypatch, graphs)
    assert [row["target"] for row in whole["rows"]] == [5, 5, 4, 4]  # the largest first
    for row in whole["rows"]:
        assert list(row["methods"]) == [wide.OURS, *HEURISTICS]
        assert all("auc" in cell for cell in row["methods"].values())
        curve = row["methods"][wide.OURS]["reliability"]
        assert len(curve) == 10 and sum(part["pairs"] for part in curve) == 2 * row["links"]
        assert {"date", "hardware", "seed", "links", "nodes"} <= row.keys()
    out, measure, calls = graphs / "out.json", wide.measure, list[Any]()
    out.unlink()

    def failing(task: Any) -> Any:
        calls.append(wide.key(task))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(task)

    monkeypatch.setattr(wide, "measure", failing)
    with pytest.raises(KeyboardInterrupt):
        start(monkeypatch, graphs)
    stored = [wide.key(row) for row in json.loads(out.read_text())["rows"]]
    assert 0 < len(stored) < 4
    calls.clear()
    calls += [()] * 3
    resumed = start(monkeypatch, graphs)
    assert set(calls[3:]) == {wide.key(row) for row in whole["rows"]} - set(stored)
    assert without_times(resumed) == without_times(whole)
    assert not list(graphs.glob("*.new"))


def test_results_of_other_code_are_not_continued(
    graphs: Path, monkeypatch: pytest.MonkeyPatch, in_threads: None
) -> None:
    start(monkeypatch, graphs, "--log", "one")
    monkeypatch.setattr(wide, "code_digest", lambda: "changed")
    with pytest.raises(SystemExit, match="other code"):
        start(monkeypatch, graphs, "--log", "one")


@pytest.mark.slow
def test_worker_processes_without_polars(graphs: Path) -> None:
    """The whole command in two processes, on a machine without packages that only reading of logs needs."""
    for name in ("polars", "gensim", "duckdb"):
        (graphs / "blocked" / f"{name}.py").parent.mkdir(exist_ok=True)
        (graphs / "blocked" / f"{name}.py").write_text("raise ModuleNotFoundError(__name__)\n")
    words = ["--graphs", str(graphs), "--half", "development", "--windows", "1", "--processes", "2"]
    paths = os.pathsep.join([str(graphs / "blocked"), str(ROOT / "src")])
    script, out = str(ROOT / "benchmarks" / "forecasting_wide.py"), str(graphs / "out.json")
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, script, *words, "--out", out], check=True, env=environment)
    shown = subprocess.run(
        [sys.executable, script, "--show", out], check=True, env=environment, capture_output=True, text=True
    ).stdout
    assert "### Development: 2 logs" in shown
    for method in dysat.models.OPPONENTS:
        assert f"\n| {method} | " in shown


def test_mean_ranks_share_ties_and_put_missing_methods_last() -> None:
    table = np.array([[3.0, 2.0, 1.0, 0.0], [1.0, 1.0, 2.0, -np.inf], [-np.inf, 5.0, 7.0, -np.inf]])
    expected = [(1 + 2.5 + 3.5) / 3, (2 + 2.5 + 2) / 3, (3 + 1 + 1) / 3, (4 + 4 + 3.5) / 3]
    np.testing.assert_allclose(wide.mean_ranks(table), expected)


def test_holm() -> None:
    assert wide.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert wide.holm([0.9, 0.8]) == [1.0, 1.0]
    assert wide.holm([]) == []


def test_signed_rank() -> None:
    assert wide.signed_rank([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 2**5)
    assert wide.signed_rank([-1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(4 / 2**5)
    assert wide.signed_rank([0.0, 1e-12, 1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 2**5)  # without zeros
    assert wide.signed_rank([0.0, 0.0]) == 1.0
    assert wide.signed_rank([]) is None


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (4, 2.569), (10, 3.164)])  # the published table of q
def test_critical_difference(methods: int, q: float) -> None:
    expected = q * np.sqrt(methods * (methods + 1) / (6 * 14))
    assert wide.critical_difference(methods, 14) == pytest.approx(expected, rel=5e-4)


def row(log: str, target: int, methods: Any, run: str = "forecasts", seed: int = 0) -> Any:
    machine = {"cpu": "some CPU", "cores": 2, "gpu": "some GPU"}
    facts = {"log": log, "target": target, "seed": seed, "run": run, "nodes": 1200, "links": 30 + target}
    device = "cpu" if run == "forecasts" else "cuda"
    return {**facts, "methods": methods, "hardware": machine, "date": "2026-11-17", "device": device}


def test_values_are_means_over_windows() -> None:
    problem = {"problem": "ModelError: too short"}
    rows = [
        row("x", 3, {"a": {"auc": 0.8}, "b": {"auc": 0.5}, "c": {"auc": 0.1}}),
        row("x", 4, {"a": {"auc": 0.9}, "b": {"auc": 0.6}, "c": problem}),
        row("y", 3, {"a": {"mrr": 0.1}, "b": {}, "c": problem}),
    ]
    values = wide.log_values(rows, ["a", "b", "c"], "auc")
    assert values == {"x": {"a": pytest.approx(85), "b": pytest.approx(55)}}  # c lacks a window, y has no AUC


VALUES = {
    "w": {"a": 90.0, "b": 80.0, "c": 70.0},
    "x": {"a": 90.0, "b": 90.04, "c": 92.0},
    "y": {"a": 70.0, "b": 60.0},
    "z": {"a": 70.0, "b": 71.0, "c": 69.0},
}


def test_compare() -> None:
    found = wide.compare(VALUES, ["a", "b", "c"])
    b, c = found.against["b"], found.against["c"]
    assert (b.wins, b.ties, b.losses) == (2, 1, 1)
    assert (c.wins, c.ties, c.losses) == (3, 0, 1)  # c is missing on y
    assert b.difference == pytest.approx((10 - 0.04 + 10 - 1) / 4)
    assert c.difference == pytest.approx((20 - 2 + 1) / 3)
    assert found.ranks == pytest.approx({"a": 7 / 4, "b": 7 / 4, "c": 10 / 4})
    table = np.array([[3, 2, 1], [1, 2, 3], [3, 2, 1], [2, 3, 1]])
    assert found.friedman == pytest.approx(stats.friedmanchisquare(*table.T).pvalue)
    raw = [stats.wilcoxon(d).pvalue for d in ([10, -0.04, 10.00001, -1], [20, -2, 1])]
    assert [b.p, c.p] == pytest.approx(wide.holm(raw), rel=1e-3)
    assert (found.logs, found.mean) == (4, pytest.approx(80))


def test_compare_without_logs() -> None:
    found = wide.compare({}, ["a", "b", "c"])
    assert (found.logs, found.mean, found.friedman, found.critical) == (0, None, None, None)
    assert found.against["b"] == wide.Against(0, 0, 0, None, None)


def record(*rows: Any, **logs: str) -> Any:
    facts = {name: {**FACTS, "half": half} for name, half in logs.items()}
    return {"version": {"dysat": "1.0", "method": 1, "code": "abc"}, "logs": facts, "rows": list(rows)}


def cell(auc: float, mrr: float, gap: float | None = None) -> Any:
    times = {"fit_seconds": 2.0, "score_seconds": 0.5}
    curve = [
        {"pairs": 0, "mean_score": None, "linked": None},
        {"pairs": 50, "mean_score": 0.5, "linked": 0.5 + (gap or 0)},
    ]
    return {"auc": auc, "mrr": mrr, "new_mrr": mrr / 2, **times, **({} if gap is None else {"reliability": curve})}


def test_tables() -> None:
    one = row("one", 3, {"dysat": cell(0.9, 0.5, 0.02), "svd": cell(0.8, 0.45), "edgebank": cell(0.904, 0.52)})
    two = row(
        "two", 4, {"dysat": cell(0.7, 0.5, 0.04), "svd": {"problem": "ModelError: no"}, "edgebank": cell(0.6, 0.1)}
    )
    text = wide.markdown([record(one, one=wide.DEVELOPMENT), record(two, two=wide.TEST)])
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("###")] == [
        *("### Development: 1 logs", "### Test: 1 logs", "### All: 2 logs", "### Logs"),
        "### Methods that could not run",
    ]
    assert lines[0] == "dysat 1.0, code abc. forecasts on some CPU, 2 cores. Dates: 2026-11-17. Seeds: [0]."
    assert (
        "| one | development | made-up | 1d | 1,200 | 33 | 90.00 | edgebank 90.40 | -0.40 | 50.00 | edgebank 52.00 | "
        "-2.00 | AUC, MRR |" in lines
    )
    assert (
        "| two | test | made-up | 1d | 1,200 | 34 | 70.00 | edgebank 60.00 | +10.00 | 50.00 | edgebank 10.00 | "
        "+40.00 |  |" in lines
    )
    whole = lines[lines.index("### All: 2 logs") :]
    svd = next(line for line in whole if line.startswith("| svd |"))
    assert svd.startswith("| svd | 2, 0, 0 | +10.00 | 1 | 3.00 |")
    assert svd.endswith("| 2.00 | 0.50 |")
    chance = 100 * math.sqrt(2 * 0.25 / (50 * math.pi))
    assert f"- Reliability gap: mean 3.00 points, largest 4.00, 2 logs; {chance:.2f} by chance alone." in whole
    assert "- two, window 4, svd: ModelError: no" in whole


def test_a_later_file_replaces_rows() -> None:
    old, new = (row("one", 3, {"dysat": cell(value, 0.5), "svd": cell(0.8, 0.4)}) for value in (0.5, 0.9))
    records = [record(one, one=wide.DEVELOPMENT) for one in (old, new)]
    assert "mean of dysat 90.00, 1 logs" in wide.markdown(records)


def test_embeddings_of_several_seeds_are_no_opponent() -> None:
    rows = [row("one", 3, {"dysat": cell(0.9, 0.5), "svd": cell(0.8, 0.4)})]
    rows += [row("one", 3, {wide.EMBEDDINGS: cell(0.95 + seed / 50, 0.5)}, "embeddings", seed) for seed in (0, 1)]
    text = wide.markdown([record(*rows, one=wide.DEVELOPMENT)])
    assert "- Product of the embeddings, AUC: mean 96.00, SD over 2 seeds 1.41." in text
    assert "| 90.00 | svd 80.00 | +10.00 |" in text
    assert "forecasts on some CPU, 2 cores; embeddings on some CPU, 2 cores, some GPU." in text
