"""Tuning: test links are not used, every setting is tried once, and an interrupted tuning resumes."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import in_process, quick

import dysat
from dysat import GraphError, ModelError
from dysat.evaluation.probe import auc
from dysat.evaluation.protocols import link_split
from dysat.evaluation.validation import tuning_auc, tuning_mrr, validation_only
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.tune.objective import judge, validation_of
from dysat.experiments.tune.outcome import Tuning
from dysat.experiments.tune.preset_file import preset_text
from dysat.experiments.tune.tune import tune

__all__ = ["quick"]

SMALL: dict[str, Any] = {"features": (8, 4), "epochs": 2, "device": "cpu"}  # of gcn-ae
DECAYS = (1.0, 0.8, 0.5, 0.2)


def graph_of(links: list[np.ndarray], nodes: int) -> dysat.DynamicGraph:
    snapshots = [
        dysat.Snapshot.from_links(*pairs.T, None, num_nodes=nodes, start=t, stop=t + 1) for t, pairs in enumerate(links)
    ]
    return dysat.DynamicGraph(np.arange(nodes), tuple(snapshots), clock="step")


def turns(steps: int = 8, nodes: int = 40, number: int = 60, seed: int = 0) -> dysat.DynamicGraph:
    """Even and odd snapshots have two different sets of recurring links; each shows two thirds of its set."""
    rng = np.random.default_rng(seed)
    pairs = np.stack(np.triu_indices(nodes, 1), 1)
    both = rng.permutation(len(pairs))[: 2 * number].reshape(2, number)
    return graph_of([pairs[np.sort(rng.permutation(both[t % 2])[: 2 * number // 3])] for t in range(steps)], nodes)


@pytest.fixture(scope="module")
def graph() -> dysat.DynamicGraph:
    return turns()


def outcome(found: Tuning) -> list[tuple[Any, ...]]:
    """Return all trials without their times."""
    return [(trial.number, trial.options, trial.state, trial.value, trial.steps) for trial in found.trials]


def rows(folder: Path) -> Counter[str]:
    """Count the states in the database."""
    with sqlite3.connect(folder / "tuning.db") as database:
        found = Counter(state for (state,) in database.execute("SELECT state FROM trials"))
    database.close()
    return found


# --- Test links are not used.


def other_test_links(graph: dysat.DynamicGraph, seed: int) -> dysat.DynamicGraph:
    """Return the graph with other links in the last snapshot, except for validation examples.

    A link is replaced by another one of the same first node, so that the examples keep their order, and with it the
    random split.
    """
    rng = np.random.default_rng(seed)
    step = len(graph) - 2
    split = link_split(graph, step)
    mine = {tuple(pair) for pair in split.pairs.tolist()}
    links = torch.stack(graph[-1].links()[:2], 1).numpy().copy()
    kept = {tuple(pair) for pair in split.pairs[split.validation & split.labels].tolist()}
    for at in rng.permutation(len(links)):
        u, v = links[at].tolist()
        ends = [links[at - 1][1] if at and links[at - 1][0] == u else u, graph.num_nodes]
        if at + 1 < len(links) and links[at + 1][0] == u:
            ends[1] = links[at + 1][1]
        free = [w for w in range(ends[0] + 1, ends[1]) if (u, w) not in mine]
        if (u, v) not in kept and free:
            links[at, 1] = rng.choice(free)
    before = [torch.stack(snapshot.links()[:2], 1).numpy() for snapshot in graph[: step + 1]]
    return graph_of([*before, links], graph.num_nodes)


@pytest.mark.parametrize("objective", ["auc", "mrr"])
@pytest.mark.parametrize(
    ("method", "options", "space"),
    [
        ("edge-memory", {}, {"decay": (0.2, 0.9)}),
        ("svd", {"features": 4}, {"decay": "0.2..0.9"}),
        ("gcn-ae", SMALL, {"learning_rate": (0.01, 0.1)}),
        ("dyngem", {"features": 4, "epochs": 2, "device": "cpu"}, {"beta": (1.0, 5.0)}),
    ],
)
def test_results_do_not_depend_on_test_links(
    graph: dysat.DynamicGraph, method: str, options: dict[str, Any], space: dict[str, Any], objective: Any
) -> None:
    base, last = validation_only(link_split(graph, len(graph) - 2)), len(graph) - 1
    tried, changed = 0, 0
    for seed in range(200):
        other = other_test_links(graph, seed)
        theirs = validation_only(link_split(other, len(graph) - 2))
        if not (torch.equal(theirs.pairs, base.pairs) and torch.equal(theirs.labels, base.labels)):
            continue  # other negatives were drawn, so the validation examples differ
        tried += 1
        test = [link_split(one, len(graph) - 2) for one in (graph, other)]
        changed += int((test[0].pairs != test[1].pairs).any(1).sum())
        contender = Contender(method, options=options)
        how: dict[str, Any] = {"space": space, "objective": objective, "trials": 2, "first": last - 1, "device": "cpu"}
        found = [tune(contender, one, **how) for one in (graph, other)]
        assert outcome(found[0]) == outcome(found[1])
        break
    assert tried == 1 and changed >= 10


def test_validation_holds_no_test_example(graph: dysat.DynamicGraph) -> None:
    validation = validation_of(graph, Request(first=2))
    assert len(validation.graph) == len(graph) - 1  # without the last predicted snapshot
    held = [*(split for splits in validation.steps.values() for split in splits), *validation.own.values()]
    assert len(held) == 6 + 7
    for split in held:
        whole = link_split(graph, split.step)
        assert split.train.numel() == split.test.numel() == 0 and split.validation.all()
        assert torch.equal(split.pairs, whole.pairs[whole.validation])


def test_value_is_the_auc_on_validation_examples(graph: dysat.DynamicGraph) -> None:
    found = judge(Contender("gcn-ae", options=SMALL), validation_of(graph, Request(first=3, last=4)), device="cpu")
    for target in (3, 4):
        split = validation_only(link_split(graph, target - 1))
        model = dysat.MODELS["gcn-ae"](**SMALL).fit(
            graph[:target], validate=lambda model, split=split: tuning_auc(model.embed(), split)
        )
        assert found[target] == tuning_auc(model.embed(), split) == max(epoch.score for epoch in model.epochs_)


def test_value_is_the_mrr_of_validation_links(graph: dysat.DynamicGraph) -> None:
    """A loop over validation links and candidates, which are no validation links of the same node."""
    validation = validation_of(graph, Request(first=6, last=6), objective="mrr")
    found = judge(Contender("edge-memory"), validation)
    (split,), (rows, others) = validation.steps[5], validation.rankings[5, 6]
    whole, model = link_split(graph, 5), dysat.MODELS["edge-memory"]().fit(graph[:6])
    links = {tuple(pair) for pair in whole.pairs[whole.validation & whole.labels].tolist()}
    assert {tuple(pair) for pair in split.pairs[rows].tolist()} == links and others.shape[1] == 20
    reciprocals = []
    for (u, v), row in zip(split.pairs[rows].tolist(), others.tolist(), strict=True):
        assert len(set(row)) == 20 and u not in row and v not in row
        assert not links & {(min(u, w), max(u, w)) for w in row}
        mine, *theirs = model.pair_scores(torch.tensor([[u, v], *([u, w] for w in row)])).tolist()
        reciprocals.append(1 / (1 + sum(1 if score > mine else 0.5 if score == mine else 0 for score in theirs)))
    assert found == {6: pytest.approx(fmean(reciprocals))}


def test_mrr_chooses_the_best_epoch_too(graph: dysat.DynamicGraph) -> None:
    validation = validation_of(graph, Request(first=4, last=4), objective="mrr")
    found = judge(Contender("gcn-ae", options=SMALL), validation, device="cpu")
    split, ranking = validation_only(link_split(graph, 3)), validation.rankings[3, 4]
    model = dysat.MODELS["gcn-ae"](**SMALL).fit(
        graph[:4], validate=lambda model: tuning_mrr(model.embed(), split, ranking)
    )
    assert found[4] == tuning_mrr(model.embed(), split, ranking) == max(epoch.score for epoch in model.epochs_)


def test_objectives_have_studies_of_their_own(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    how: dict[str, Any] = {"space": {"decay": (0.2, 0.9)}, "first": 6, "prune": False}
    by_auc, by_mrr = (tune("edge-memory", graph, tmp_path, **how, objective=what) for what in ("auc", "mrr"))
    default = tune("edge-memory", graph, tmp_path, **how)
    assert default.about["study"] == by_auc.about["study"] != by_mrr.about["study"]
    assert rows(tmp_path)["COMPLETE"] == 4
    assert (by_auc.objective, by_mrr.objective) == ("AUC", "MRR") and by_mrr.facts()["objective"] == "mrr"
    validation = validation_of(graph, Request(first=6), objective="mrr")
    for trial in by_mrr.trials:
        assert trial.steps == judge(Contender("edge-memory", options=trial.options), validation)
    assert "validation MRR" in by_mrr._repr_html_()
    assert "tuned by MRR on validation links of mails" in preset_text(by_mrr, "mails")
    assert "tuned on validation links of mails" in preset_text(by_auc, "mails")
    with pytest.raises(ModelError, match="no objective 'hits'; there are auc, mrr"):
        tune("edge-memory", graph, **how, objective="hits")  # type: ignore[arg-type]


def test_a_small_graph_has_no_mrr() -> None:
    small = turns(steps=4, nodes=9, number=18)
    with pytest.raises(GraphError, match="too few nodes to rank the links of snapshot 3"):
        validation_of(small, Request(first=3), objective="mrr")
    assert validation_of(small, Request(first=3)).targets == [3]


@pytest.mark.parametrize("method", ["svd", "edge-memory"])
def test_models_without_epochs_see_only_earlier_snapshots(graph: dysat.DynamicGraph, method: str) -> None:
    found = judge(Contender(method), validation_of(graph, Request(first=3)))
    assert list(found) == [3, 4, 5, 6, 7]
    for target, value in found.items():
        model, split = dysat.MODELS[method]().fit(graph[:target]), validation_only(link_split(graph, target - 1))
        if isinstance(model, dysat.EmbeddingModel):
            assert value == tuning_auc(model.embed(), split)
        else:
            assert value == auc(model.pair_scores(split.pairs), split.labels)


def test_incremental_model_takes_in_each_snapshot_once(graph: dysat.DynamicGraph) -> None:
    options = {"features": 4, "epochs": 2, "device": "cpu"}
    found = judge(Contender("dyngem", options=options), validation_of(graph, Request(), [3, 5]), device="cpu")
    model = dysat.MODELS["dyngem"](**options)
    expected = {}
    for step in range(5):
        split = validation_only(link_split(graph, step))
        model.take_in(graph, validate=lambda model, split=split: tuning_auc(model.embed(), split))
        if step + 1 in (3, 5):
            expected[step + 1] = tuning_auc(model.embed(), split)
    assert found == expected


def test_judging_does_not_need_optuna(graph: dysat.DynamicGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)  # any import of it fails
    for name in ("objective", "spaces"):
        monkeypatch.delitem(sys.modules, f"dysat.experiments.tune.{name}")
    objective, spaces = (importlib.import_module(f"dysat.experiments.tune.{name}") for name in ("objective", "spaces"))
    found = objective.judge(Contender("edge-memory"), objective.validation_of(graph, Request(first=7)))
    assert list(found) == [7] and 0 <= found[7] <= 1
    assert len(spaces.search_space(Contender("dysat", "program"))) == 2


# --- Every setting is tried once.


def test_grid_tries_all_combinations_and_finds_the_best(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    seen: list[int] = []
    found = tune(
        "edge-memory", graph, tmp_path, space={"decay": (0.0, *DECAYS)}, first=5, prune=False,
        on_progress=lambda now: seen.append(len(now.trials)),
    )  # fmt: skip
    assert [trial.number for trial in sorted(found.trials, key=lambda trial: trial.number)] == [0, 1, 2, 3, 4]
    validation = validation_of(graph, Request(first=5))
    for trial in found.trials:
        assert trial.steps == judge(Contender("edge-memory", options=trial.options), validation)
        assert trial.value == fmean(trial.steps.values()) and list(trial.steps) == [5, 6, 7]
    values = [trial.value for trial in found.trials]
    assert values == sorted(values, key=lambda value: -(value or 0)) and found.trials[-1].options == {"decay": 0.0}
    assert found.best.value == values[0] and found.options == {"decay": found.best.options["decay"]}
    assert seen[0] == 0 and seen[-1] == 5
    kept = json.loads((tmp_path / "tuning.json").read_text())
    assert kept == json.loads(json.dumps(found.facts())) and kept["sampler"] == "grid"
    assert kept["best"]["options"] == found.best.options and kept["request"]["seed"] == 0 and kept["hardware"]["cores"]


def test_bad_settings_are_pruned(graph: dysat.DynamicGraph) -> None:
    """Without memory, the recurring links of earlier snapshots are forgotten."""
    found = tune("edge-memory", graph, space={"decay": (*DECAYS[:3], 0.0)}, first=2)
    by_number = {trial.number: trial for trial in found.trials}
    assert [by_number[n].state for n in range(4)] == ["done", "done", "done", "pruned"]
    bad, whole = (
        by_number[3],
        judge(Contender("edge-memory", options={"decay": 0}), validation_of(graph, Request(first=2))),
    )
    assert bad.value is None and 0 < len(bad.steps) < 6
    assert all(whole[target] == value for target, value in bad.steps.items())
    assert found.best.options != {"decay": 0.0}


def test_sampler_draws_from_ranges_and_resumes(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    space = {"decay": "0.01..1", "features": "1..3"}
    first = tune("svd", graph, tmp_path, space=space, trials=4, first=7)
    assert first.about["sampler"] == "TPE" and len(first.trials) == 4
    assert all(0.01 <= trial.options["decay"] <= 1 and trial.options["features"] in (1, 2, 3) for trial in first.trials)
    more = tune("svd", graph, tmp_path, space=space, trials=12, first=7)
    assert outcome(more) == outcome(tune("svd", graph, space=space, trials=12, first=7))  # the same as without a stop
    assert len({trial.options["decay"] for trial in more.trials}) > 8
    assert {trial.number: trial.options for trial in first.trials}.items() <= {
        trial.number: trial.options for trial in more.trials
    }.items()


def test_repeated_proposals_are_not_computed_again(graph: dysat.DynamicGraph) -> None:
    found = tune("svd", graph, space={"features": "1..2"}, trials=6, first=6, prune=False)
    assert len({trial.options["features"] for trial in found.trials}) == 2 and len(found.trials) == 6
    assert len({(trial.options["features"], trial.value, trial.seconds) for trial in found.trials}) == 2


@pytest.mark.slow
def test_two_processes_share_the_trials(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    decays = [k / 10 for k in range(1, 5)]
    found = tune("edge-memory", graph, tmp_path, space={"decay": decays}, first=7, prune=False, processes=2)
    assert sorted(trial.options["decay"] for trial in found.trials) == decays
    assert rows(tmp_path)["COMPLETE"] == 4 and set(rows(tmp_path)) <= {"COMPLETE", "FAIL"}  # FAIL: drawn by both
    assert outcome(found) == outcome(tune("edge-memory", graph, space={"decay": decays}, first=7, prune=False))


def test_invalid_settings_fail_and_others_are_tried(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    """Five heads do not divide eight features."""
    small = {"epochs": 1, "temporal_heads": 2, "temporal_features": 8, "residual": False}
    space = {"structural_heads": ["2", "5"], "structural_features": ["8", "10"]}
    found = tune(Contender("dysat", options=small), graph, tmp_path, space=space, first=7, device="cpu", prune=False)
    assert [trial.state for trial in found.trials] == ["done", "done", "done", "failed"]
    assert found.trials[-1].options == {"structural_heads": (5,), "structural_features": (8,)}
    assert (found.trials[-1].problem or "").startswith("structural_heads=5 does not divide")
    assert found.options["structural_heads"] in ((2,), (5,)) and found.options["epochs"] == 1
    before = rows(tmp_path)
    tune(Contender("dysat", options=small), graph, tmp_path, space=space, first=7, device="cpu", prune=False)
    assert rows(tmp_path) == before  # it is not tried again


def test_different_tunings_have_different_studies(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    base: dict[str, Any] = {"model": "edge-memory", "space": {"decay": (0.5, 1.0)}, "first": 6}
    changes: list[dict[str, Any]] = [
        {}, {"seed": 1}, {"first": 5}, {"steps": [6]}, {"self_loops": "keep"}, {"prune": False},
        {"space": {"decay": (0.5, 0.9)}}, {"model": "degree-sum"},
    ]  # fmt: skip
    names = {tune(graph=graph, **{**base, **change}).about["study"] for change in changes}
    assert len(names) == len(changes)
    for change in changes[:2]:
        found = tune(graph=graph, folder=tmp_path, **{**base, **change})
        assert len(found.trials) == found.total == 2 and found.about["study"] in names
    assert rows(tmp_path)["COMPLETE"] == 4  # two studies in one file


def test_options_of_a_model_are_kept(graph: dysat.DynamicGraph) -> None:
    found = tune(dysat.MODELS["svd"](features=3, decay=0.1), graph, space={"decay": (0.5, 0.9)}, first=7)
    assert found.options["features"] == 3 and found.options["decay"] in (0.5, 0.9)


# --- Interrupted tunings.


def stopping(after: int) -> Any:
    """Return a callback that raises KeyboardInterrupt in the middle of a trial."""

    def on_progress(now: Tuning) -> None:
        running = [trial for trial in now.trials if trial.state == "running" and trial.steps]
        if running and now.count("done") + now.count("pruned") == after:
            raise KeyboardInterrupt

    return on_progress


def test_interrupted_tuning_reaches_the_same_result(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    space = {"decay": (*DECAYS, 0.0, 0.05)}
    whole = tune("edge-memory", graph, space=space, first=6)
    for after in (1, 4):
        with pytest.raises(KeyboardInterrupt):
            tune("edge-memory", graph, tmp_path, space=space, first=6, on_progress=stopping(after))
    counted: list[int] = []
    found = tune(
        "edge-memory", graph, tmp_path, space=space, first=6, on_progress=lambda now: counted.append(len(now.trials))
    )
    assert counted[0] == 4 and outcome(found) == outcome(whole)
    assert rows(tmp_path) == {"COMPLETE": whole.count("done"), "PRUNED": whole.count("pruned"), "FAIL": 2}


def tune_and_die(graph: Path, folder: Path) -> None:
    """Die in the middle of the third trial."""

    def on_progress(now: Tuning) -> None:
        running = [trial for trial in now.trials if trial.state == "running" and trial.steps]
        if running and now.count("done") == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    space = {"decay": DECAYS}
    tune(
        "edge-memory",
        dysat.DynamicGraph.load(graph),
        folder,
        space=space,
        first=6,
        prune=False,
        on_progress=on_progress,
    )


@pytest.mark.slow
def test_killed_tuning_resumes_without_repeating_trials(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    graph.save(tmp_path / "graph")
    assert in_process(tune_and_die, tmp_path / "graph", tmp_path) == -signal.SIGKILL
    assert rows(tmp_path) == {"COMPLETE": 2, "RUNNING": 1}
    found = tune("edge-memory", graph, tmp_path, space={"decay": DECAYS}, first=6, prune=False)
    assert outcome(found) == outcome(tune("edge-memory", graph, space={"decay": DECAYS}, first=6, prune=False))
    assert rows(tmp_path) == {"COMPLETE": 4, "FAIL": 1}


def test_waiting_ticket_of_a_killed_process_is_drawn(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    import optuna

    found = tune("edge-memory", graph, tmp_path, space={"decay": DECAYS[:2]}, first=6, prune=False)
    more = tune("svd", graph, tmp_path, space={"decay": "0.1..1"}, trials=1, first=6, prune=False)
    study = optuna.load_study(study_name=more.about["study"], storage=f"sqlite:///{tmp_path / 'tuning.db'}")
    study.enqueue_trial({}, user_attrs={"ticket": 1})
    again = tune("svd", graph, tmp_path, space={"decay": "0.1..1"}, trials=2, first=6, prune=False)
    assert [trial.state for trial in again.trials] == ["done", "done"] and len(found.trials) == 2
    assert rows(tmp_path) == {"COMPLETE": 4}


def test_tickets_of_other_machines_are_kept_while_they_live(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    import optuna

    found = tune("edge-memory", graph, tmp_path, space={"decay": "0.1..1"}, trials=1, first=6)
    study = optuna.load_study(study_name=found.about["study"], storage=f"sqlite:///{tmp_path / 'tuning.db'}")
    study.enqueue_trial({}, user_attrs={"ticket": 1})
    theirs = study.ask()
    theirs.set_user_attr("worker", "elsewhere:1")
    again = tune("edge-memory", graph, tmp_path, space={"decay": "0.1..1"}, trials=3, first=6)
    assert [trial.state for trial in again.trials] == ["done", "done", "running"] and again.count("running") == 1
    theirs.set_user_attr("worker", f"{os.uname().nodename}:{2**22 + 1}")  # no such process
    again = tune("edge-memory", graph, tmp_path, space={"decay": "0.1..1"}, trials=3, first=6)
    assert [trial.state for trial in again.trials] == ["done", "done", "done"]


def test_worker_without_heartbeat_loses_its_ticket(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    import optuna

    space, url = {"decay": (0.2,)}, f"sqlite:///{tmp_path / 'tuning.db'}"
    found = tune("edge-memory", graph, tmp_path, space=space, first=6)
    name = found.about["study"]
    optuna.delete_study(study_name=name, storage=url)
    study = optuna.create_study(study_name=name, storage=url, direction="maximize")
    study.enqueue_trial({"decay": 0.2}, user_attrs={"ticket": 0})
    study.ask().set_user_attr("worker", "elsewhere:1")
    with sqlite3.connect(tmp_path / "tuning.db") as database:
        (trial,) = database.execute("SELECT trial_id FROM trials WHERE state = 'RUNNING'").fetchone()
        database.execute(
            "INSERT INTO trial_heartbeats (trial_id, heartbeat) VALUES (?, datetime('now', ?))", (trial, "-3 minutes")
        )
    database.close()
    again = tune("edge-memory", graph, tmp_path, space=space, first=6)
    assert outcome(again) == outcome(found) and rows(tmp_path) == {"COMPLETE": 1, "FAIL": 1}


def test_worker_taken_for_dead_continues(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    """As for a machine that slept: meanwhile another process has freed its ticket."""
    import optuna

    taken: list[int] = []

    def on_progress(now: Tuning) -> None:
        if now.count("done") == 1 and now.count("running") == 1 and not taken:
            url = f"sqlite:///{tmp_path / 'tuning.db'}"
            study = optuna.load_study(study_name=now.about["study"], storage=url)
            study.tell(1, state=optuna.trial.TrialState.FAIL)
            taken.append(1)

    found = tune("edge-memory", graph, tmp_path, space={"decay": DECAYS}, first=4, on_progress=on_progress)
    assert taken and outcome(found) == outcome(tune("edge-memory", graph, space={"decay": DECAYS}, first=4))
    assert rows(tmp_path)["FAIL"] == 1


# --- Errors.


def test_invalid_arguments_raise_before_anything_is_written(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    decay = {"decay": (0.1, 0.5)}
    for error, complaint, model, more in (
        (ModelError, "no model 'dysta'", "dysta", {}),
        (ModelError, "the paper tuned nothing of svd", "svd", {}),
        (ModelError, "a range has infinitely many settings; give a number", "svd", {"space": {"decay": "0..1"}}),
        (ModelError, "trials=0 must be at least 1", "svd", {"space": decay, "trials": 0}),
        (ModelError, "tune() has no argument 'repeats'", "svd", {"space": decay, "repeats": 3}),
        (ModelError, "device='tpu' does not exist here", "svd", {"space": decay, "device": "tpu"}),
        (GraphError, "snapshot 99 is none of those to predict, 1, 2", "svd", {"space": decay, "steps": [3, 99]}),
        (GraphError, "snapshot 99 cannot be predicted", "svd", {"space": decay, "first": 99}),
        (ModelError, "storage URL: Could not parse", "svd", {"space": decay, "storage": "tuning.db"}),
        (ModelError, "storage sqlite:////no/such/x.db: unable to open", "svd", {"space": decay, "storage": "sqlite:////no/such/x.db"}),
    ):  # fmt: skip
        with pytest.raises(error) as raised:
            tune(model, graph, tmp_path / "new", **more)  # type: ignore[arg-type]
        assert str(raised.value).startswith(complaint), raised.value
        assert not (tmp_path / "new").exists()


def test_password_is_hidden(graph: dysat.DynamicGraph) -> None:
    with pytest.raises(ModelError) as raised:
        tune("svd", graph, space={"decay": (0.1, 0.5)}, storage="nosuchdb://me:secret@there/x")
    assert "secret" not in str(raised.value) and "nosuchdb://me:***@there/x" in str(raised.value)


def test_invalid_database_raises(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    (tmp_path / "tuning.db").write_text("something else\n" * 1000)
    with pytest.raises(ModelError, match=r"^storage sqlite:////.*tuning\.db: file is not a database$"):
        tune("svd", graph, tmp_path, space={"decay": (0.1, 0.5)})


def test_snapshots_with_too_few_links_are_left_out() -> None:
    few = [np.array([(0, 1), (1, 2), (2, 3), (3, 4)]), np.array([(0, 1), (1, 3), (2, 4)])]
    many = np.stack(np.triu_indices(9, 1), 1)[::3]
    graph = graph_of([*few, many, many[:-1]], 9)
    found = tune("edge-memory", graph, space={"decay": (0.1, 0.5)})
    assert list(found.left_out) == [1] and found.about["predicted"] == [2, 3]
    assert found.left_out[1] == "step 0: fewer than two validation links in snapshot 1"
    with pytest.raises(GraphError, match="no step has enough links to tune on: step 0: fewer than two"):
        tune("edge-memory", graph, space={"decay": (0.1, 0.5)}, last=1)
