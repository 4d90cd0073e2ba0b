"""Evaluations: what is computed, kept and taken up again, and how it is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError, ModelError
from dysat.evaluation.probe import evaluate_probe, evaluate_scores, macro_auc, micro_auc, validation_auc
from dysat.evaluation.protocols import link_split
from dysat.experiments.evaluate import job as jobs
from dysat.experiments.evaluate import workers as module
from dysat.experiments.evaluate.evaluate import evaluate
from dysat.experiments.evaluate.request import Contender, Request
from dysat.models import MODELS, OPPONENTS

QUICK = ("edgebank", "degree-product")
SMALL = {
    "structural_heads": (2,), "structural_features": (8,), "temporal_heads": (2,), "temporal_features": (8,),
    "epochs": 2, "walks_per_node": 2, "device": "cpu",
}  # fmt: skip


def make_graph(seed: int = 0, steps: int = 5, size: int = 24, kinds: bool = False) -> DynamicGraph:
    """Two groups whose members meet, some of them again and again."""
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


def test_figures_are_those_of_the_parts(graph: DynamicGraph, tmp_path: Path) -> None:
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
    assert learned.probes() == ["present", "past"] and len(learned.of(probe="past")) == 3  # step 0 has no past
    assert [f.name for f in others] == list(QUICK) and all(f.opponent for f in others)
    assert found.best_opponent(memory) in others and [f.name for f in found.asked()] == ["dysat:program", "edge-memory"]


def test_a_probe_of_the_past_uses_no_label_of_the_future(graph: DynamicGraph) -> None:
    """With all labels turned round the scores stay, to the bit."""
    model = small_dysat().build()
    split = link_split(graph, 3, repeats=2)
    before = link_split(graph[:4], 2, repeats=1)
    model.fit(graph[:4], validate=lambda m: 0.0)
    result = evaluate_probe(model.embed(), split, past=(model.embed(-2), before))
    flipped = type(split)(**{**{f: getattr(split, f) for f in split.__dataclass_fields__}, "labels": ~split.labels})
    again = evaluate_probe(model.embed(), flipped, past=(model.embed(-2), before))
    assert torch.equal(result.scores, again.scores) and result.auc == pytest.approx(1 - again.auc)


def test_finished_steps_are_kept_and_not_computed_again(
    graph: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path / "whole", graph).facts()
    calls: list[int] = []
    original = jobs.run_job

    def stopping(job: module.Job, before: Any) -> Any:
        if len(calls) == 5:
            raise KeyboardInterrupt
        calls.append(job.step)
        return original(job, before)

    monkeypatch.setattr(jobs, "run_job", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", graph)
    assert len(list((tmp_path / "stopped" / "steps").iterdir())) == 5
    calls.clear()
    monkeypatch.setattr(jobs, "run_job", lambda job, before: (calls.append(job.step), original(job, before))[1])
    told: list[tuple[int, int]] = []
    again = run(tmp_path / "stopped", graph, on_progress=lambda done, total, what: told.append((done, total))).facts()
    assert len(calls) == 3 * 4 - 5 and told[0] == (5, 12) and told[-1] == (12, 12)
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


def test_processes_change_nothing(graph: DynamicGraph, tmp_path: Path) -> None:
    one, two = (run(tmp_path / str(n), graph, processes=n).facts()["models"] for n in (1, 2))
    for model in (*one, *two):
        model.pop("seconds")
    assert one == two


def test_a_folder_of_another_evaluation_is_refused(graph: DynamicGraph, tmp_path: Path) -> None:
    run(tmp_path / "e", graph)
    with pytest.raises(ModelError, match=r"an evaluation with another seed \(0\); choose another folder"):
        run(tmp_path / "e", graph, seed=1)
    with pytest.raises(ModelError, match="another graph"):
        run(tmp_path / "e", make_graph(3))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ModelError, match="exists already and is no evaluation"):
        run(tmp_path / "mine", graph)
    assert [f.name for f in (tmp_path / "mine").iterdir()] == ["letter.txt"]


def test_another_model_in_the_same_folder_computes_only_what_is_new(
    graph: DynamicGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "e", graph)
    calls: list[str] = []
    original = jobs.run_job
    monkeypatch.setattr(
        jobs, "run_job", lambda job, before: (calls.append(job.contender.method), original(job, before))[1]
    )
    run(tmp_path / "e", graph, ["edge-memory", "last-snapshot"])
    assert set(calls) == {"last-snapshot"}


@pytest.mark.parametrize("protocol", ["single-step", "new-links", "new-nodes"])
def test_every_protocol_and_kind_of_negatives(protocol: str, tmp_path: Path) -> None:
    graph = make_graph(steps=6, size=60)
    kinds = ("uniform", "historical", "inductive", "degree-matched")
    found = run(tmp_path / "e", graph, protocol=protocol, negatives=kinds, candidates=5)
    assert set(found.negatives) == set(kinds)
    assert all(0 < value <= 1 for value in found.figures[0].ranking().values())
    seen = {negatives for _, negatives, _, _ in found.rows()}
    assert {"uniform", "degree-matched"} <= seen <= set(kinds)


def test_multi_step_trains_once_for_six_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[int] = []
    original = jobs.run_job
    monkeypatch.setattr(jobs, "run_job", lambda job, before: (fitted.append(job.step), original(job, before))[1])
    found = run(tmp_path / "e", make_graph(steps=9), protocol="multi-step", opponents=())
    assert fitted == [2] and [r.result.target for r in found.figures[0].of()] == [3, 4, 5, 6, 7, 8]


def test_typed_negatives(tmp_path: Path, graph: DynamicGraph) -> None:
    bipartite = make_graph(kinds=True)
    found = run(tmp_path / "e", bipartite, typed=True)
    assert found.figures[0].means() is not None
    with pytest.raises(GraphError, match="no kinds"):
        run(tmp_path / "f", graph, typed=True)
    assert not (tmp_path / "f").exists()


def test_steps_that_cannot_be_evaluated_are_told_and_left_out(tmp_path: Path) -> None:
    rows = [(f"p{i}", f"p{(i * 7 + t) % 20}", t) for t in (0, 1, 3, 4) for i in range(20)] + [("p0", "p5", 2)]
    source = tuple(list(column) for column in zip(*rows, strict=True))
    graph = dysat.build_snapshots(dysat.read_events(source, time_unit="step"), every=1)
    found = run(tmp_path / "e", graph)
    assert list(found.left_out) == ["2"] and [r.result.target for r in found.figures[0].of()] == [1, 3, 4]
    with pytest.raises(GraphError, match="no step has enough links"):
        run(tmp_path / "f", graph, first=2, last=2)


def test_a_model_that_cannot_be_fitted_at_a_step_says_so(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, "pair-logistic", opponents=())
    (figures,) = found.figures
    assert list(figures.problems) == ["0"] and [r.result.target for r in figures.of()] == [2, 3, 4]


def test_facts_are_complete_json_and_the_table_says_the_same(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, [small_dysat()], negatives=("uniform", "historical"), repeats=1)
    facts = json.loads((tmp_path / "e" / "results.json").read_text())
    assert facts == json.loads(json.dumps(found.facts(), allow_nan=False))
    assert facts["graph"]["fingerprint"] == graph.fingerprint and facts["request"]["seed"] == 0
    assert facts["best_opponent"] in QUICK and facts["models"][0]["options"]["epochs"] == 2
    lines = found.markdown(everyone=True).splitlines()
    assert lines[2].startswith("| **dysat:program** | uniform | on t+1 | 4 |")
    assert len(lines) == 2 + 2 * 2 + 2 * len(QUICK)


def test_a_picture(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, negatives=("uniform", "historical"))
    found.plot(tmp_path / "steps.png")
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")


def test_requests_that_make_no_sense() -> None:
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


def test_models_with_their_options_and_no_folder(graph: DynamicGraph, tmp_path: Path) -> None:
    bank = MODELS["edgebank"](window=1)  # type: ignore[call-arg]
    found = dysat.evaluate([bank, "last-snapshot"], graph, opponents=(), processes=1)
    one, other = (f.means() for f in found.figures)
    assert found.figures[0].options == {"window": 1} and one == other
    with pytest.raises(ModelError, match="no argument 'protokol'; of a request there are protocol"):
        dysat.evaluate("edgebank", graph, protokol="new-links")


def test_models_are_compared_on_the_steps_they_share(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, ["edge-memory", "pair-logistic"])
    memory, logistic = found.asked()
    assert len(memory.of()) == 4 and len(logistic.of()) == 3  # none before the first transition
    same = [step.result.auc for step in memory.of()][1:]
    other = [step.result.auc for step in logistic.of()]
    assert found.gap(memory, logistic) == pytest.approx((sum(same) - sum(other)) / 3)
    # A heuristic that was asked for is an opponent of the others, though not of itself.
    candidates = {f.name: f.means(targets=frozenset((2, 3, 4))).macro_auc for f in found.figures if f is not memory}
    assert found.best_opponent(memory).name == max(candidates, key=lambda name: candidates[name])
    assert all(found.best_opponent(model) is not model for model in found.asked())


def test_hard_negatives_alone_have_opponents_and_ranks_too(graph: DynamicGraph, tmp_path: Path) -> None:
    found = run(tmp_path / "e", graph, negatives="historical", candidates=3)
    assert found.negatives == ["historical"] and found.best_opponent(found.figures[0]) is not None
    assert found.figures[0].ranking()["mrr"] > 0
    lonely = run(tmp_path / "f", graph, negatives=("uniform", "inductive", "uniform"), first=4)
    assert lonely.negatives == ["uniform", "inductive"] and lonely.figures[0].lacking == {"inductive": [4]}
    with pytest.raises(ModelError, match="no figure for edge-memory: no such negatives at any step"):
        run(tmp_path / "g", graph, negatives="inductive", first=4)


def test_what_a_step_lacks_does_not_cost_the_rest(graph: DynamicGraph, tmp_path: Path) -> None:
    short = Contender("dysat", "program", {**SMALL, "history": 1})
    found = run(tmp_path / "e", graph, [short, short, "edge-memory"], candidates=10_000, repeats=1)
    assert [f.name for f in found.asked()] == ["dysat:program", "edge-memory"]
    assert found.asked()[0].probes() == ["present"] and len(found.asked()[0].of()) == 4
    assert found.asked()[1].ranking() == {"mrr": None, "hits_at_10": None} and "nan" not in found.markdown()


def test_a_folder_that_was_only_begun_is_taken_up(graph: DynamicGraph, tmp_path: Path) -> None:
    (tmp_path / "e" / "steps").mkdir(parents=True)
    run(tmp_path / "e", graph)
    for file in (tmp_path / "e" / "steps").iterdir():
        file.unlink()
    (tmp_path / "e" / "steps").rmdir()
    assert run(tmp_path / "e", graph).figures[0].means() is not None


def test_a_process_that_dies_is_told_in_one_line(graph: DynamicGraph, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "run_jobs", die)
    with pytest.raises(ModelError, match="a process was ended from outside"):
        run(tmp_path / "e", graph, processes=2)


def die(jobs: Any) -> None:
    os._exit(9)


def test_every_opponent_is_a_model() -> None:
    assert set(OPPONENTS) <= MODELS.keys() and len(OPPONENTS) == 11


def test_an_incremental_model_goes_on_from_step_to_step(tmp_path: Path, graph: DynamicGraph) -> None:
    """Each snapshot is taken in once; a chain that is taken up again in the middle gives the same figures."""
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
def test_an_incremental_model_sees_nothing_of_what_it_predicts(
    tmp_path: Path, graph: DynamicGraph, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At step t a model is given snapshots up to t; in the past mode no epoch is chosen by a label of t + 1."""
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


def test_the_probe_sees_the_pair_feature_of_the_model(tmp_path: Path, graph: DynamicGraph) -> None:
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
