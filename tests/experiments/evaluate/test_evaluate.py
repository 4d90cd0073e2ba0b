"""Evaluations: results, resuming, processes, and output."""

from __future__ import annotations

import json
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from small_study import count_jobs

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError, ModelError
from dysat.evaluation.probe import evaluate_probe, evaluate_scores, macro_auc, micro_auc, validation_auc
from dysat.evaluation.protocols import link_split
from dysat.evaluation.ranking import ranking_candidates
from dysat.experiments.evaluate import job as jobs
from dysat.experiments.evaluate.evaluate import evaluate
from dysat.experiments.evaluate.outcome import RANKING
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.evaluate.workers import worker_pool
from dysat.models import MODELS, OPPONENTS
from dysat.system.tensors import read_tensors, write_tensors

QUICK = ("edgebank", "degree-product")
SMALL = {
    "structural_heads": (2,), "structural_features": (8,), "temporal_heads": (2,), "temporal_features": (8,),
    "epochs": 2, "walks_per_node": 2, "device": "cpu",
}  # fmt: skip


def make_graph(seed: int = 0, steps: int = 5, size: int = 24, kinds: bool = False) -> DynamicGraph:
    """Two groups with links inside them, some of which repeat."""
    rng = np.random.default_rng(seed)
    rows = []
    for step in range(steps):
        for _ in range(90):
            u, v = rng.integers(0, size, 2).tolist()
            if (u + v) % 2 == (1 if kinds else 0) or rng.random() < 0.05 * (not kinds):
                rows.append(
                    (f"a{u}" if not kinds or u % 2 else f"b{u}", f"a{v}" if not kinds or v % 2 else f"b{v}", step)
                )
    if kinds:
        rows = [(u, v, t) if u.startswith("a") else (v, u, t) for u, v, t in rows]
    source = tuple(list(column) for column in zip(*rows, strict=True))
    events = dysat.read_events(source, time_unit="step", kinds=("user", "item") if kinds else None)
    return dysat.build_snapshots(events, every=1)


@pytest.fixture(scope="module")
def graph() -> DynamicGraph:
    return make_graph()


def small_dysat() -> Contender:
    return Contender("dysat", "program", SMALL)


def run(folder: Path, graph: DynamicGraph, models: Any = "edge-memory", **options: Any) -> Any:
    return evaluate(models, graph, folder, **{"opponents": QUICK, "device": "cpu", "processes": 1, **options})


def test_results_equal_a_manual_evaluation(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, [small_dysat(), "edge-memory"], repeats=4)
    learned, memory, *others = found.figures
    results = []
    for step in range(4):
        split = link_split(graph, step, repeats=4)
        model = MODELS["edge-memory"]().fit(graph[: step + 1])
        results.append(evaluate_scores(model.pair_scores(split.pairs), split))
    assert [r.result.auc for r in memory.of()] == pytest.approx([r.auc for r in results])
    means = memory.means()
    assert means is not None and means.targets == (1, 2, 3, 4)
    assert means.macro_auc == pytest.approx(macro_auc(results))
    assert means.micro_auc == pytest.approx(micro_auc(results))
    assert learned.probes() == ["present", "past"] and len(learned.of(probe="past")) == 3  # step 0 has no earlier step
    assert [f.name for f in others] == list(QUICK) and all(f.opponent for f in others)
    assert found.best_opponent(memory) in others and [f.name for f in found.asked()] == ["dysat:program", "edge-memory"]


def test_past_probe_scores_do_not_depend_on_labels_of_the_target(graph: DynamicGraph) -> None:
    """Inverted labels do not change a bit of the scores."""
    model = small_dysat().build()
    split = link_split(graph, 3, repeats=2)
    before = link_split(graph[:4], 2, repeats=1)
    model.fit(graph[:4], validate=lambda m: 0.0)
    result = evaluate_probe(model.embed(), split, past=(model.embed(-2), before))
    flipped = type(split)(**{**{f: getattr(split, f) for f in split.__dataclass_fields__}, "labels": ~split.labels})
    again = evaluate_probe(model.embed(), flipped, past=(model.embed(-2), before))
    assert torch.equal(result.scores, again.scores) and result.auc == pytest.approx(1 - again.auc)


def test_interrupted_evaluation_resumes(graph: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path / "whole", graph).facts()
    calls: list[Any] = []
    original = jobs.Worker.run

    def stopping(worker: jobs.Worker, job: jobs.Job) -> Any:
        if len(calls) == 5:
            raise KeyboardInterrupt
        calls.append(job.step)
        return original(worker, job)

    monkeypatch.setattr(jobs.Worker, "run", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", graph)
    assert len(list((tmp_path / "stopped" / "steps").iterdir())) == 5
    monkeypatch.setattr(jobs.Worker, "run", original)
    calls = count_jobs(monkeypatch)
    progress: list[tuple[int, int]] = []
    on_progress = lambda done, total, what: progress.append((done, total))  # noqa: E731
    again = run(tmp_path / "stopped", graph, on_progress=on_progress).facts()
    assert len(calls) == 3 * 4 - 5 and progress[0] == (5, 12) and progress[-1] == (12, 12)
    for facts in (whole, again):
        facts.pop("date")
        for model in facts["models"]:
            model.pop("seconds")
    assert again == whole
    calls.clear()
    damaged = next(iter(sorted((tmp_path / "stopped" / "steps").iterdir())))
    damaged.write_bytes(damaged.read_bytes()[:-7])
    run(tmp_path / "stopped", graph)
    assert len(calls) == 1


@pytest.mark.slow
def test_two_processes_give_the_same_results(graph: DynamicGraph, tmp_path: Path) -> None:
    one, two = (run(tmp_path / str(n), graph, processes=n).facts()["models"] for n in (1, 2))
    for model in (*one, *two):
        model.pop("seconds")
    assert one == two


def test_folder_of_another_evaluation_is_refused(graph: DynamicGraph, tmp_path: Path) -> None:
    run(tmp_path / "e", graph)
    with pytest.raises(ModelError, match=r"an evaluation with another seed \(0\); choose another folder"):
        run(tmp_path / "e", graph, seed=1)
    with pytest.raises(ModelError, match="another graph"):
        run(tmp_path / "e", make_graph(3))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ModelError, match="exists already and is not an evaluation"):
        run(tmp_path / "mine", graph)
    assert [f.name for f in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_another_model_in_the_same_folder_computes_only_its_own_steps(
    graph: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "e", graph)
    calls = count_jobs(monkeypatch)
    run(tmp_path / "e", graph, ["edge-memory", "last-snapshot"])
    assert {method for method, _ in calls} == {"last-snapshot"}


@pytest.mark.parametrize("protocol", ["single-step", "new-links", "new-nodes"])
def test_protocols_support_all_kinds_of_negatives(protocol: str, tmp_path: Path) -> None:
    graph = make_graph(steps=6, size=60)
    kinds = ("uniform", "historical", "inductive", "degree-matched")
    first = None if protocol == "new-nodes" else 4  # later steps have too few new nodes
    found = run(tmp_path / "e", graph, protocol=protocol, negatives=kinds, candidates=5, first=first)
    assert set(found.negatives) == set(kinds)
    means = found.figures[0].ranking()
    assert 0 < means["mrr"] <= 1 and 0 < means["hits_at_10"] <= 1
    assert all(value is None or 0 <= value <= 1 for value in means.values())
    seen = {negatives for _, negatives, _, _ in found.rows()}
    assert {"uniform", "degree-matched"} <= seen <= set(kinds)


def test_multi_step_fits_once_for_six_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_jobs(monkeypatch)
    found = run(tmp_path / "e", make_graph(steps=9), protocol="multi-step", opponents=())
    assert calls == [("edge-memory", 2)] and [r.result.target for r in found.figures[0].of()] == [3, 4, 5, 6, 7, 8]


def test_typed_negatives_need_kinds(tmp_path: Path, graph: DynamicGraph) -> None:
    bipartite = make_graph(kinds=True)
    found = run(tmp_path / "e", bipartite, typed=True)
    assert found.figures[0].means() is not None
    with pytest.raises(GraphError, match="no kinds"):
        run(tmp_path / "f", graph, typed=True)
    assert not (tmp_path / "f").exists()


def test_steps_with_too_few_links_are_left_out(tmp_path: Path) -> None:
    rows = [(f"p{i}", f"p{(i * 7 + t) % 20}", t) for t in (0, 1, 3, 4) for i in range(20)] + [("p0", "p5", 2)]
    source = tuple(list(column) for column in zip(*rows, strict=True))
    graph = dysat.build_snapshots(dysat.read_events(source, time_unit="step"), every=1)
    found = run(tmp_path / "e", graph)
    assert list(found.left_out) == ["2"] and [r.result.target for r in found.figures[0].of()] == [1, 3, 4]
    with pytest.raises(GraphError, match="no step has enough links"):
        run(tmp_path / "f", graph, first=2, last=2)


def test_failed_fit_is_reported_for_its_step(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, "pair-logistic", opponents=())
    (figures,) = found.figures
    assert list(figures.problems) == ["0"] and [r.result.target for r in figures.of()] == [2, 3, 4]


def test_json_and_markdown_agree(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, [small_dysat()], negatives=("uniform", "historical"), repeats=1)
    facts = json.loads((tmp_path / "e" / "results.json").read_text())
    assert facts == json.loads(json.dumps(found.facts(), allow_nan=False))
    assert facts["graph"]["fingerprint"] == graph.fingerprint and facts["request"]["seed"] == 0
    assert facts["best_opponent"] in QUICK and facts["models"][0]["options"]["epochs"] == 2
    lines = found.markdown(everyone=True).splitlines()
    assert lines[2].startswith("| **dysat:program** | uniform | on t+1 | 4 |")
    start = lines.index("")
    assert start == 2 + 2 * 2 + 2 * len(QUICK) and len(lines) == start + 3 + 1 + len(QUICK)
    means = facts["models"][0]["ranking"]
    assert list(means) == list(RANKING) and lines[start + 3].startswith(
        f"| **dysat:program** | 4 | {means['mrr']:.3f} |"
    )


def test_plot_draws_every_step(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, negatives=("uniform", "historical"))
    found.plot(tmp_path / "steps.svg")
    svg = (tmp_path / "steps.svg").read_text()
    for name in ("edge-memory", found.shown()[1].name):
        assert all(f"<!-- {name}, {kind} -->" in svg for kind in ("uniform", "historical"))


def test_invalid_requests_raise() -> None:
    for wrong, words in (
        ({"protocol": "single"}, "no protocol 'single'; there are single-step"),
        ({"negatives": ("hard",)}, "no negatives 'hard'; there are uniform"),
        ({"probe": "future"}, "no probe 'future'; there are present, past, score"),
        ({"repeats": 0}, "at least one repeat"),
    ):
        with pytest.raises(GraphError, match=words):
            Request(**wrong)
    with pytest.raises(ModelError, match=r"no model 'edgebnk'; there are .*edgebank"):
        Contender("edgebnk")


def test_model_instances_and_no_folder(graph: DynamicGraph, tmp_path: Path) -> None:
    bank = MODELS["edgebank"](window=1)  # type: ignore[call-arg]
    found = dysat.evaluate([bank, "last-snapshot"], graph, opponents=(), processes=1)
    one, other = (f.means() for f in found.figures)
    assert found.figures[0].options == {"window": 1} and one == other
    with pytest.raises(ModelError, match="no argument 'protokol'; of a request there are protocol"):
        dysat.evaluate("edgebank", graph, protokol="new-links")


def test_models_are_compared_on_shared_steps(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, ["edge-memory", "pair-logistic"])
    memory, logistic = found.asked()
    assert len(memory.of()) == 4 and len(logistic.of()) == 3  # it needs a transition
    same = [step.result.auc for step in memory.of()][1:]
    other = [step.result.auc for step in logistic.of()]
    assert found.gap(memory, logistic) == pytest.approx((sum(same) - sum(other)) / 3)
    # A requested heuristic is an opponent of the others, but not of itself.
    candidates = {f.name: f.means(targets=frozenset((2, 3, 4))).macro_auc for f in found.figures if f is not memory}
    assert found.best_opponent(memory).name == max(candidates, key=lambda name: candidates[name])
    assert all(found.best_opponent(model) is not model for model in found.asked())


def test_hard_negatives_alone_have_opponents_and_ranking(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, negatives="historical", candidates=3)
    assert found.negatives == ["historical"] and found.best_opponent(found.figures[0]) is not None
    assert found.figures[0].ranking()["mrr"] > 0
    lonely = run(tmp_path / "f", graph, negatives=("uniform", "inductive", "uniform"), first=4)
    assert lonely.negatives == ["uniform", "inductive"] and lonely.figures[0].lacking == {"inductive": [4]}
    with pytest.raises(ModelError, match="no result for edge-memory: no such negatives at any step"):
        run(tmp_path / "g", graph, negatives="inductive", first=4)


def test_missing_probe_or_ranking_leaves_the_rest(graph: DynamicGraph, tmp_path: Path) -> None:
    short = Contender("dysat", "program", {**SMALL, "history": 1})
    found = run(tmp_path / "e", graph, [short, short, "edge-memory"], candidates=10_000, repeats=1)
    assert [f.name for f in found.asked()] == ["dysat:program", "edge-memory"]
    assert found.asked()[0].probes() == ["present"] and len(found.asked()[0].of()) == 4
    assert found.asked()[1].ranking() == dict.fromkeys(RANKING) and "nan" not in found.markdown()
    assert found.best_ranking() is None and list(found.ranking_rows()) == [] and "MRR" not in found.markdown()


def test_ranking_equals_a_loop(graph: DynamicGraph, tmp_path: Path) -> None:
    """Every tested link among its candidates, and all of these pairs in one list, each once."""
    found = run(tmp_path / "e", graph, candidates=8, first=3, last=3, opponents=())
    split, model = link_split(graph, 2), MODELS["edge-memory"]().fit(graph[:3])
    others = ranking_candidates(graph, split, 8)
    before = {tuple(pair) for snapshot in graph[:3] for pair in torch.stack(snapshot.pairs()[:2], 1).tolist()}
    score = lambda u, v: float(model.pair_scores(torch.tensor([[u, v]])))  # noqa: E731
    places: dict[tuple[int, int], float] = {}
    labels: dict[tuple[int, int], bool] = {}
    for (u, v), row, tested in zip(
        split.pairs[split.labels].tolist(), others.tolist(), ~split.validation[split.labels], strict=True
    ):
        if tested:
            mine, theirs = score(u, v), [score(u, w) for w in row]
            places[u, v] = 1 + sum(1 if other > mine else 0.5 if other == mine else 0 for other in theirs)
            labels[u, v] = True
            labels |= {(min(u, w), max(u, w)): False for w in row}
    assert len(labels) < 9 * len(places)  # some pairs are candidates of both ends
    new = {pair: place for pair, place in places.items() if pair not in before}
    assert len(new) >= 5
    (step,) = found.figures[0].of()
    assert step.mrr == pytest.approx(fmean(1 / place for place in places.values()))
    assert step.hits_at_10 == 1.0  # of nine
    assert step.new_mrr == pytest.approx(fmean(1 / place for place in new.values()))
    scores = {pair: score(*pair) for pair in labels}
    for prefix, pairs in (("", list(labels)), ("new_", [pair for pair in labels if pair not in before])):
        for k in (10, 100):
            last = sorted((scores[pair] for pair in pairs), reverse=True)[k - 1]
            above = [labels[pair] for pair in pairs if scores[pair] > last]
            equal = [labels[pair] for pair in pairs if scores[pair] == last]
            expected = (sum(above) + (k - len(above)) * fmean(equal)) / k
            assert getattr(step, f"{prefix}precision_at_{k}") == pytest.approx(expected)


def test_beyond_a_limit_a_sample_of_links_is_ranked(
    graph: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MOST_PAIRS", 60)
    split = link_split(graph, 2)
    links, others = jobs._to_rank(graph, split, Request(candidates=6))
    tested = {tuple(pair) for pair in split.pairs[split.labels & ~split.validation].tolist()}
    assert others.shape == (10, 6) and {tuple(pair) for pair in links.tolist()} < tested
    again, _ = jobs._to_rank(graph, split, Request(candidates=6))
    assert torch.equal(links, again)


def test_best_heuristic_by_mrr_on_shared_steps(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, ["edge-memory", "pair-logistic"], candidates=6)
    memory, logistic = found.asked()
    assert len(memory.ranked()) == 4 and len(logistic.ranked()) == 3
    same = fmean(step.mrr for step in memory.ranked()[1:])
    assert found.mrr_gap(memory, logistic) == pytest.approx(same - logistic.ranking()["mrr"])
    values = {f.name: f.ranking(frozenset((2, 3, 4)))["mrr"] for f in found.figures if f is not memory}
    assert found.best_ranking(memory).name == max(values, key=lambda name: values[name])


@pytest.mark.parametrize(("size", "number"), [(24, 10), (60, 20)])
def test_number_of_candidates_follows_the_graph(size: int, number: int, tmp_path: Path) -> None:
    graph = make_graph(size=size)
    assert 2 * number <= graph.known[0] < 100
    found = run(tmp_path / "e", graph, opponents=())
    assert found.about["request"]["candidates"] == number and len(found.figures[0].ranked()) == 4
    assert Request().candidates == 0  # part of the keys of stored results


def test_results_without_ranking_figures_are_still_read(graph: DynamicGraph, tmp_path: Path) -> None:
    """As an earlier version stored them: a folder without candidates, and one with MRR and Hits@10 only."""
    run(tmp_path / "none", graph, candidates=0)
    found = run(tmp_path / "none", graph)
    assert found.about["request"]["candidates"] == 0 and list(found.ranking_rows()) == []
    whole = run(tmp_path / "some", graph, candidates=5)
    for file in (tmp_path / "some" / "steps").iterdir():
        facts, tensors = read_tensors(file, "evaluation", jobs.FORMAT_VERSION, error=ModelError)
        for result in facts["results"]:
            for name in list(RANKING)[2:]:
                del result[name]
        write_tensors(file, "evaluation", jobs.FORMAT_VERSION, facts, tensors, error=ModelError)
    found = run(tmp_path / "some", graph)
    assert found.about["request"]["candidates"] == 5
    one, other = found.figures[0].ranking(), whole.figures[0].ranking()
    assert one == {name: other[name] if name in ("mrr", "hits_at_10") else None for name in RANKING}
    assert f"| **edge-memory** | 4 | {one['mrr']:.3f} | {one['hits_at_10']:.3f} | – |" in found.markdown()


def test_incomplete_folder_resumes(graph: DynamicGraph, tmp_path: Path) -> None:
    (tmp_path / "e" / "steps").mkdir(parents=True)
    run(tmp_path / "e", graph)
    for file in (tmp_path / "e" / "steps").iterdir():
        file.unlink()
    (tmp_path / "e" / "steps").rmdir()
    assert run(tmp_path / "e", graph).figures[0].means() is not None


def test_killed_worker_raises_one_line() -> None:
    message = r"^a worker process was killed, .*; finished steps are kept, try processes=1$"
    with pytest.raises(ModelError, match=message), worker_pool(1, "steps"):
        raise BrokenProcessPool  # by a future whose process died


def test_graph_is_loaded_once_and_each_split_drawn_once_per_job(
    graph: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []
    drawn: list[tuple[int, int]] = []
    load, split = DynamicGraph.load, Request.split
    monkeypatch.setattr(DynamicGraph, "load", lambda folder: (loaded.append(folder), load(folder))[1])

    def counted(request: Request, graph: DynamicGraph, step: int, target: int) -> Any:
        drawn.append((step, target))
        return split(request, graph, step, target)

    monkeypatch.setattr(Request, "split", counted)
    run(tmp_path / "e", graph)
    assert loaded == [tmp_path / "e" / "graph"]
    assert sorted(drawn) == sorted([(step, step + 1) for step in range(4)] * 3)  # three models


def test_every_opponent_is_a_model() -> None:
    assert set(OPPONENTS) <= MODELS.keys() and len(OPPONENTS) == 11


def test_incremental_model_continues_from_step_to_step(tmp_path: Path, graph: DynamicGraph) -> None:
    """Each snapshot is taken in once; a chain that resumes in the middle gives the same results."""
    model = dysat.IncSAT(**SMALL)
    whole = run(tmp_path / "whole", graph, model, opponents=())
    steps = tmp_path / "whole" / "steps"
    for file in sorted(steps.iterdir())[1::2]:
        file.unlink()
    assert _comparable(run(tmp_path / "whole", graph, model, opponents=())) == _comparable(whole)

    chain = dysat.IncSAT(**SMALL)
    for step in range(len(graph) - 1):
        split = link_split(graph, step, seed=0, repeats=10)
        chain.take_in(graph, validate=lambda m, split=split: validation_auc(m.embed(), split))
        if step:
            found = next(r for r in whole.figures[0].of() if r.result.step == step)
            assert found.result.auc == pytest.approx(evaluate_probe(chain.embed(), split).auc)


@pytest.mark.parametrize("probe", ["present", "past"])
def test_incremental_model_does_not_see_the_target(
    tmp_path: Path, graph: DynamicGraph, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At step t a model sees snapshots up to t; with `probe="past"` no label of t + 1 selects an epoch."""
    given: list[tuple[int, int | None]] = []
    original = dysat.IncSAT.take_in

    def take_in(self: dysat.IncSAT, whole: DynamicGraph, *, validate: Any = None) -> dysat.IncSAT:
        asked: list[int] = []

        def watched(model: dysat.IncSAT) -> float:
            asked.append(len(model.graph_) - 1)
            return float(validate(model))

        found = original(self, whole, validate=watched if validate else None)
        given.append((len(self.graph_) - 1, asked[0] if asked else None))
        return found

    monkeypatch.setattr(dysat.IncSAT, "take_in", take_in)
    run(tmp_path / "e", graph, dysat.IncSAT(**SMALL), opponents=(), probe=probe)
    assert given == [(step, step if step or probe == "present" else None) for step in range(4)]


def _comparable(found: Any) -> dict[str, Any]:
    facts = found.facts()
    for figures in facts["models"]:
        figures.pop("seconds")
    return {key: value for key, value in facts.items() if key != "date"}


def test_probe_uses_the_pair_feature_of_the_model(tmp_path: Path, graph: DynamicGraph) -> None:
    options = {"features": 6, "epochs": 3, "batch_size": 16, "device": "cpu"}
    found = run(tmp_path, graph, Contender("dynamic-triad", None, options), first=4, repeats=2)
    results = {step.probe: step.result.aucs for step in found.asked()[0].results}
    split, before = link_split(graph, 3, repeats=2), link_split(graph[:4], 2, repeats=1)
    model = MODELS["dynamic-triad"](**options)
    model.fit(graph[:4], validate=lambda m: validation_auc(m.embed(), split, feature="distance"))
    past = (model.embed(-2), before)
    for probe, given in (("present", None), ("past", past)):
        distance, product = (
            evaluate_probe(model.embed(), split, past=given, feature=kind).aucs for kind in ("distance", "product")
        )
        assert results[probe] == pytest.approx(distance) and results[probe] != pytest.approx(product)
