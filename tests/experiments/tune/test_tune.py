"""Tuning: no test link has a say, every setting is tried once, and whatever ends it, it goes on to the same result."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

import dysat
from dysat import GraphError, ModelError
from dysat.evaluation.probe import auc
from dysat.evaluation.protocols import link_split
from dysat.evaluation.validation import tuning_auc, validation_only
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.tune.objective import judge, validation_of
from dysat.experiments.tune.tune import Tuning, tune

SMALL: dict[str, Any] = {"features": (8, 4), "epochs": 2, "device": "cpu"}  # of gcn-ae
DECAYS = (1.0, 0.8, 0.5, 0.2)


def graph_of(links: list[np.ndarray], nodes: int) -> dysat.DynamicGraph:
    snapshots = [
        dysat.Snapshot.from_links(*pairs.T, None, num_nodes=nodes, start=t, stop=t + 1) for t, pairs in enumerate(links)
    ]
    return dysat.DynamicGraph(np.arange(nodes), tuple(snapshots), clock="step")


def turns(steps: int = 8, nodes: int = 40, number: int = 60, seed: int = 0) -> dysat.DynamicGraph:
    """The links of even snapshots, and others of odd ones, come again and again; two in three of them each time."""
    rng = np.random.default_rng(seed)
    pairs = np.stack(np.triu_indices(nodes, 1), 1)
    both = rng.permutation(len(pairs))[: 2 * number].reshape(2, number)
    return graph_of([pairs[np.sort(rng.permutation(both[t % 2])[: 2 * number // 3])] for t in range(steps)], nodes)


@pytest.fixture(scope="module")
def graph() -> dysat.DynamicGraph:
    return turns()


def told(found: Tuning) -> list[tuple[Any, ...]]:
    """All that was found out, without how long it took."""
    return [(trial.number, trial.options, trial.state, trial.value, trial.steps) for trial in found.trials]


def rows(folder: Path) -> Counter[str]:
    """States in the database."""
    with sqlite3.connect(folder / "tuning.db") as database:
        found = Counter(state for (state,) in database.execute("SELECT state FROM trials"))
    database.close()
    return found


# --- No test link has a say.


def other_test_links(graph: dysat.DynamicGraph, seed: int) -> dysat.DynamicGraph:
    """The same graph with other links in the last snapshot, wherever no validation example is among them.

    A link is put in the place of another of the same first node, so that the examples keep their order, and with it the
    luck by which they are divided.
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


@pytest.mark.parametrize(
    ("method", "options", "space"),
    [
        ("edge-memory", {}, {"decay": (0.2, 0.9)}),
        ("svd", {"features": 4}, {"decay": "0.2..0.9"}),
        ("gcn-ae", SMALL, {"learning_rate": (0.01, 0.1)}),
        ("dyngem", {"features": 4, "epochs": 2, "device": "cpu"}, {"beta": (1.0, 5.0)}),
    ],
)
def test_test_links_change_not_a_bit_of_what_comes_out(
    graph: dysat.DynamicGraph, method: str, options: dict[str, Any], space: dict[str, Any]
) -> None:
    base, last = validation_only(link_split(graph, len(graph) - 2)), len(graph) - 1
    tried, changed = 0, 0
    for seed in range(200):
        other = other_test_links(graph, seed)
        theirs = validation_only(link_split(other, len(graph) - 2))
        if not (torch.equal(theirs.pairs, base.pairs) and torch.equal(theirs.labels, base.labels)):
            continue  # other negatives were drawn: these are other validation examples
        tried += 1
        test = [link_split(one, len(graph) - 2) for one in (graph, other)]
        changed += int((test[0].pairs != test[1].pairs).any(1).sum())
        contender = Contender(method, options=options)
        found = [tune(contender, one, space=space, trials=2, first=last - 1, device="cpu") for one in (graph, other)]
        assert told(found[0]) == told(found[1])
        if tried == 2:
            break
    assert tried == 2 and changed >= 20


def test_whoever_judges_holds_no_test_example(graph: dysat.DynamicGraph) -> None:
    validation = validation_of(graph, Request(first=2))
    assert len(validation.graph) == len(graph) - 1  # without the last snapshot that is predicted
    held = [*(split for splits in validation.steps.values() for split in splits), *validation.own.values()]
    assert len(held) == 6 + 7
    for split in held:
        whole = link_split(graph, split.step)
        assert split.train.numel() == split.test.numel() == 0 and split.validation.all()
        assert torch.equal(split.pairs, whole.pairs[whole.validation])


def test_the_value_is_what_the_model_reaches_on_validation_examples(graph: dysat.DynamicGraph) -> None:
    found = judge(Contender("gcn-ae", options=SMALL), validation_of(graph, Request(first=3, last=4)), device="cpu")
    for target in (3, 4):
        split = validation_only(link_split(graph, target - 1))
        model = dysat.MODELS["gcn-ae"](**SMALL).fit(
            graph[:target], validate=lambda model, split=split: tuning_auc(model.embed(), split)
        )
        assert found[target] == tuning_auc(model.embed(), split) == max(epoch.score for epoch in model.epochs_)


@pytest.mark.parametrize("method", ["svd", "edge-memory"])
def test_a_model_without_epochs_sees_the_snapshots_before_and_no_more(graph: dysat.DynamicGraph, method: str) -> None:
    found = judge(Contender(method), validation_of(graph, Request(first=3)))
    assert list(found) == [3, 4, 5, 6, 7]
    for target, value in found.items():
        model, split = dysat.MODELS[method]().fit(graph[:target]), validation_only(link_split(graph, target - 1))
        if isinstance(model, dysat.EmbeddingModel):
            assert value == tuning_auc(model.embed(), split)
        else:
            assert value == auc(model.pair_scores(split.pairs), split.labels)


def test_an_incremental_model_goes_through_the_snapshots_once(graph: dysat.DynamicGraph) -> None:
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


def test_a_setting_is_judged_without_optuna() -> None:
    code = """
import sys
sys.modules["optuna"] = None  # any import of it fails
import dysat
from dysat.experiments.tune.objective import judge, validation_of
from dysat.experiments.evaluate.request import Contender, Request
from dysat.experiments.tune.spaces import search_space
validation = validation_of(dysat.load_dataset("uci"), Request(first=12))
print(judge(Contender("edge-memory"), validation), len(search_space(Contender("dysat"))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("{12: 0."), done.stderr


# --- Every setting is tried, once.


def test_all_combinations_are_tried_and_the_best_is_told(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    seen: list[int] = []
    found = tune(
        "edge-memory", graph, tmp_path, space={"decay": (0.0, *DECAYS)}, first=2, prune=False,
        on_progress=lambda now: seen.append(len(now.trials)),
    )  # fmt: skip
    assert [trial.number for trial in sorted(found.trials, key=lambda trial: trial.number)] == [0, 1, 2, 3, 4]
    validation = validation_of(graph, Request(first=2))
    for trial in found.trials:
        assert trial.steps == judge(Contender("edge-memory", options=trial.options), validation)
        assert trial.value == fmean(trial.steps.values()) and list(trial.steps) == [2, 3, 4, 5, 6, 7]
    values = [trial.value for trial in found.trials]
    assert values == sorted(values, key=lambda value: -(value or 0)) and found.trials[-1].options == {"decay": 0.0}
    assert found.best.value == values[0] and found.options == {"decay": found.best.options["decay"]}
    assert seen[0] == 0 and seen[-1] == 5
    kept = json.loads((tmp_path / "tuning.json").read_text())
    assert kept == json.loads(json.dumps(found.facts())) and kept["sampler"] == "grid"
    assert kept["best"]["options"] == found.best.options and kept["request"]["seed"] == 0 and kept["hardware"]["cores"]


def test_a_bad_setting_does_not_see_the_last_snapshot(graph: dysat.DynamicGraph) -> None:
    """Without memory the links before the last snapshot, which come again, are forgotten."""
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


def test_a_sampler_tries_what_a_range_holds(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    space = {"decay": "0.01..1", "features": "1..3"}
    first = tune("svd", graph, tmp_path, space=space, trials=4, first=6)
    assert first.about["sampler"] == "TPE" and len(first.trials) == 4
    assert all(0.01 <= trial.options["decay"] <= 1 and trial.options["features"] in (1, 2, 3) for trial in first.trials)
    more = tune("svd", graph, tmp_path, space=space, trials=12, first=6)
    assert told(more) == told(tune("svd", graph, space=space, trials=12, first=6))  # as if it had never stopped
    assert len({trial.options["decay"] for trial in more.trials}) > 8
    assert {trial.number: trial.options for trial in first.trials}.items() <= {
        trial.number: trial.options for trial in more.trials
    }.items()


def test_what_a_sampler_proposes_again_is_not_computed_again(graph: dysat.DynamicGraph) -> None:
    found = tune("svd", graph, space={"features": "1..2"}, trials=6, first=6, prune=False)
    assert len({trial.options["features"] for trial in found.trials}) == 2 and len(found.trials) == 6
    assert len({(trial.options["features"], trial.value, trial.seconds) for trial in found.trials}) == 2


def test_two_processes_share_the_settings(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    decays = [k / 10 for k in range(1, 9)]
    found = tune("edge-memory", graph, tmp_path, space={"decay": decays}, first=6, prune=False, processes=2)
    assert sorted(trial.options["decay"] for trial in found.trials) == decays
    assert rows(tmp_path)["COMPLETE"] == 8 and set(rows(tmp_path)) <= {"COMPLETE", "FAIL"}  # that is: drawn by both
    assert told(found) == told(tune("edge-memory", graph, space={"decay": decays}, first=6, prune=False))


def test_a_setting_that_cannot_be_is_told_and_the_others_are_tried(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    """Five heads do not divide eight features."""
    small = {"epochs": 1, "walks_per_node": 1, "walk_length": 3, "temporal_heads": 2, "temporal_features": 8}
    space = {"structural_heads": ["2", "5"], "structural_features": ["8", "10"]}
    found = tune(Contender("dysat", options=small), graph, tmp_path, space=space, first=7, device="cpu", prune=False)
    assert [trial.state for trial in found.trials] == ["done", "done", "done", "failed"]
    assert found.trials[-1].options == {"structural_heads": (5,), "structural_features": (8,)}
    assert (found.trials[-1].problem or "").startswith("structural_heads=5 does not divide")
    assert found.options["structural_heads"] in ((2,), (5,)) and found.options["epochs"] == 1
    before = rows(tmp_path)
    tune(Contender("dysat", options=small), graph, tmp_path, space=space, first=7, device="cpu", prune=False)
    assert rows(tmp_path) == before  # nor is it tried again


def test_another_tuning_in_the_same_file_is_another(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    names = set()
    for more in ({}, {"seed": 1}, {"first": 5}, {"steps": [6]}, {"self_loops": "keep"}, {"prune": False}):
        found = tune("edge-memory", graph, tmp_path, **{"space": {"decay": (0.5, 1.0)}, "first": 6, **more})  # type: ignore[arg-type]
        assert len(found.trials) == found.total == 2
        names.add(found.about["study"])
    for space, model in (({"decay": (0.5, 0.9)}, "edge-memory"), ({"decay": (0.5, 1.0)}, "degree-sum")):
        names.add(tune(model, graph, tmp_path, space=space, first=6).about["study"])
    assert len(names) == 8 and rows(tmp_path)["COMPLETE"] == 16


def test_a_model_with_options_is_what_is_tuned(graph: dysat.DynamicGraph) -> None:
    found = tune(dysat.MODELS["svd"](features=3, decay=0.1), graph, space={"decay": (0.5, 0.9)}, first=7)
    assert found.options["features"] == 3 and found.options["decay"] in (0.5, 0.9)


# --- It goes on.


def stopping(after: int) -> Any:
    """Stops as Ctrl-C does, in the middle of a trial."""

    def on_progress(now: Tuning) -> None:
        running = [trial for trial in now.trials if trial.state == "running" and trial.steps]
        if running and now.count("done") + now.count("pruned") == after:
            raise KeyboardInterrupt

    return on_progress


def test_a_stopped_tuning_goes_on_to_the_same_result(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    space = {"decay": (*DECAYS, 0.0, 0.05)}
    whole = tune("edge-memory", graph, space=space, first=4)
    for after in (1, 4):
        with pytest.raises(KeyboardInterrupt):
            tune("edge-memory", graph, tmp_path, space=space, first=4, on_progress=stopping(after))
    counted: list[int] = []
    found = tune(
        "edge-memory", graph, tmp_path, space=space, first=4, on_progress=lambda now: counted.append(len(now.trials))
    )
    assert counted[0] == 4 and told(found) == told(whole)
    assert rows(tmp_path) == {"COMPLETE": whole.count("done"), "PRUNED": whole.count("pruned"), "FAIL": 2}


KILLED = """
import os, signal, sys
import dysat
from dysat.experiments.tune.tune import tune

def on_progress(now):
    running = [trial for trial in now.trials if trial.state == "running" and trial.steps]
    if running and now.count("done") == 2:
        os.kill(os.getpid(), signal.SIGKILL)

tune("edge-memory", dysat.DynamicGraph.load(sys.argv[1]), sys.argv[2], space={"decay": (1.0, 0.8, 0.5, 0.2)}, first=2,
     prune=False, on_progress=on_progress)
"""


def test_a_killed_tuning_goes_on_and_repeats_nothing_that_was_finished(
    graph: dysat.DynamicGraph, tmp_path: Path
) -> None:
    graph.save(tmp_path / "graph")
    words = [sys.executable, "-c", KILLED, str(tmp_path / "graph"), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert rows(tmp_path) == {"COMPLETE": 2, "RUNNING": 1}
    found = tune("edge-memory", graph, tmp_path, space={"decay": DECAYS}, first=2, prune=False)
    assert told(found) == told(tune("edge-memory", graph, space={"decay": DECAYS}, first=2, prune=False))
    assert rows(tmp_path) == {"COMPLETE": 4, "FAIL": 1}


def test_a_ticket_that_a_killed_process_has_not_begun_is_drawn(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    import optuna

    found = tune("edge-memory", graph, tmp_path, space={"decay": DECAYS[:2]}, first=6, prune=False)
    more = tune("svd", graph, tmp_path, space={"decay": "0.1..1"}, trials=1, first=6, prune=False)
    study = optuna.load_study(study_name=more.about["study"], storage=f"sqlite:///{tmp_path / 'tuning.db'}")
    study.enqueue_trial({}, user_attrs={"ticket": 1})
    again = tune("svd", graph, tmp_path, space={"decay": "0.1..1"}, trials=2, first=6, prune=False)
    assert [trial.state for trial in again.trials] == ["done", "done"] and len(found.trials) == 2
    assert rows(tmp_path) == {"COMPLETE": 4}


def test_a_worker_elsewhere_is_left_alone_while_it_lives(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
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


def test_a_worker_that_is_silent_for_long_is_dead(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
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
    assert told(again) == told(found) and rows(tmp_path) == {"COMPLETE": 1, "FAIL": 1}


def test_a_worker_that_was_taken_for_dead_goes_on(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    """As a machine that slept: meanwhile another has given its ticket back."""
    import optuna

    taken: list[int] = []

    def on_progress(now: Tuning) -> None:
        if now.count("done") == 1 and now.count("running") == 1 and not taken:
            url = f"sqlite:///{tmp_path / 'tuning.db'}"
            study = optuna.load_study(study_name=now.about["study"], storage=url)
            study.tell(1, state=optuna.trial.TrialState.FAIL)
            taken.append(1)

    found = tune("edge-memory", graph, tmp_path, space={"decay": DECAYS}, first=4, on_progress=on_progress)
    assert taken and told(found) == told(tune("edge-memory", graph, space={"decay": DECAYS}, first=4))
    assert rows(tmp_path)["FAIL"] == 1


# --- Mistakes.


def test_mistakes_are_told_before_anything_is_written(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
    decay = {"decay": (0.1, 0.5)}
    for error, complaint, model, more in (
        (ModelError, "no model 'dysta'", "dysta", {}),
        (ModelError, "the paper tuned nothing of svd", "svd", {}),
        (ModelError, "a range has no end of settings to try; say how many: tr", "svd", {"space": {"decay": "0..1"}}),
        (ModelError, "trials=0 must be at least 1", "svd", {"space": decay, "trials": 0}),
        (ModelError, "tune() has no argument 'repeats'", "svd", {"space": decay, "repeats": 3}),
        (ModelError, "device='tpu' does not exist here", "svd", {"space": decay, "device": "tpu"}),
        (GraphError, "snapshot 99 is none of those to predict, 1, 2", "svd", {"space": decay, "steps": [3, 99]}),
        (GraphError, "snapshot 99 cannot be predicted", "svd", {"space": decay, "first": 99}),
        (ModelError, "storage URL: Could not parse", "svd", {"space": decay, "storage": "tuning.db"}),
        (ModelError, "storage sqlite:////no/such/x.db: unable to open", "svd", {"space": decay, "storage": "sqlite:////no/such/x.db"}),
    ):  # fmt: skip
        with pytest.raises(error) as told:
            tune(model, graph, tmp_path / "new", **more)  # type: ignore[arg-type]
        assert str(told.value).startswith(complaint), told.value
        assert not (tmp_path / "new").exists()


def test_a_password_is_not_told(graph: dysat.DynamicGraph) -> None:
    with pytest.raises(ModelError) as told:
        tune("svd", graph, space={"decay": (0.1, 0.5)}, storage="nosuchdb://me:secret@there/x")
    assert "secret" not in str(told.value) and "nosuchdb://me:***@there/x" in str(told.value)


def test_a_file_that_is_no_database(graph: dysat.DynamicGraph, tmp_path: Path) -> None:
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
