"""Jobs on a Ray cluster: the same results as in processes of this machine, also if nodes are lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small_study
from fake_cluster import dysat_command, fake_cluster
from small import QUICK

import dysat
from dysat.errors import ModelError
from dysat.experiments.evaluate.evaluate import evaluate
from dysat.system.parallel.cluster import cluster
from dysat.system.parallel.engine import Engine
from dysat.system.parallel.pool import THREAD_VARIABLES
from dysat.system.parallel.ray_tasks import ray_tasks

OPPONENTS = ("edgebank", "degree-product")
LONG = {**QUICK, "epochs": 60}  # a second or two per step, so that there is time to disturb the command
GRAPH = "graph"


def content(folder: Path) -> dict[str, Any]:
    """All results of an evaluation except dates and seconds."""
    found = json.loads((folder / "results.json").read_text())
    for model in found["models"]:
        model.pop("seconds")
    return {key: value for key, value in found.items() if key != "date"}


def scores(folder: Path) -> dict[str, bytes]:
    """The tensors of every step, which follow the header of its file."""
    files = {file.name: file.read_bytes() for file in (folder / "steps").iterdir()}
    return {name: data[8 + int.from_bytes(data[:8], "little") :] for name, data in files.items()}


@pytest.mark.slow
def test_ray_gives_the_results_of_the_local_engine(tmp_path: Path) -> None:
    """One cluster for all quick tests of tasks, since it takes seconds to start."""

    def threads() -> dict[str, str | None]:  # inside a function: Ray imports a module of dysat, but none of tests
        return {name: os.environ.get(name) for name in THREAD_VARIABLES}

    def fail() -> None:
        raise ModelError("no such link")

    graph, progress = small_study.make_graph(), list[tuple[int, int]]()
    models = [dysat.DySAT.from_preset("program", **QUICK), dysat.IncSAT(**QUICK), "edge-memory"]
    given: dict[str, Any] = {"opponents": OPPONENTS, "device": "cpu", "first": 11, "repeats": 2}
    evaluate(models, graph, tmp_path / "local", **given)
    with cluster(cpus=1):
        on_ray = {**given, "engine": "ray", "on_progress": lambda done, total, what: progress.append((done, total))}
        evaluate(models, graph, tmp_path / "ray", **on_ray)
        assert content(tmp_path / "ray") == content(tmp_path / "local")
        assert scores(tmp_path / "ray") == scores(tmp_path / "local")
        assert progress[0] == (0, 10) and progress[-1] == (10, 10)
        with ray_tasks(Engine("ray"), device="cpu", gpus=1.0, kept="steps") as tasks:
            assert set(tasks.call(threads).values()) == {"1"}
            with pytest.raises(ModelError, match=r"^no such link$"):
                tasks.call(fail)
        # Each engine continues what the other left.
        for name, options in (("local", on_ray), ("ray", given)):
            for file in sorted((tmp_path / name / "steps").iterdir())[::2]:
                file.unlink()
            evaluate(models, graph, tmp_path / name, **options)
        assert scores(tmp_path / "ray") == scores(tmp_path / "local")
        with pytest.raises(ModelError, match="no node of the Ray cluster has 5 cores"):
            evaluate("edge-memory", graph, opponents=OPPONENTS, engine="ray", job_cpus=5)


@pytest.mark.slow
def test_tune_and_reproduce_on_ray(tmp_path: Path) -> None:
    graph = small_study.make_graph()
    space = {"decay": (0.3, 0.6, 0.8)}
    by_mrr = {"space": space, "objective": "mrr"}
    incremental = {"space": {"learning_rate": (0.01, 0.001)}, "first": 11}
    with cluster(cpus=2):
        for model, given in (
            ("edge-memory", by_mrr),
            ("edge-memory", {"space": space}),
            (dysat.IncSAT(**QUICK), incremental),
        ):
            on_ray, here = (
                dysat.tune(model, graph, prune=False, device="cpu", engine=engine, **given)
                for engine in ("ray", "local")
            )
            figures = [
                [(t.number, t.options, t.state, t.value, t.steps) for t in each.trials] for each in (on_ray, here)
            ]
            assert figures[0] == figures[1] and len(figures[0]) == len(next(iter(given["space"].values())))
        found = small_study.run(tmp_path / "ray", graph, engine="ray", processes=None)
    assert small_study.rows(found) == small_study.rows(small_study.run(tmp_path / "local", graph))


@pytest.mark.slow
def test_a_task_that_kills_its_process_is_one_line() -> None:
    def die() -> None:
        os._exit(1)

    one_line = "a job failed on Ray 5 times: .*; finished steps are kept, the same command continues"
    with (
        pytest.raises(ModelError, match=one_line),
        ray_tasks(Engine("ray"), device="cpu", gpus=1.0, kept="steps") as tasks,
    ):
        tasks.call(die)


def run_and_disturb(words: list[object], folder: Path, disturb: Callable[[subprocess.Popen[str]], None]) -> Any:
    """Run a command, disturb it once it has finished two jobs, and return it with its output and errors."""
    process = dysat_command(*words, cwd=folder)
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if line.startswith("2 of"):
            disturb(process)
            break
    out, rest = process.communicate(timeout=150)
    return process.returncode, out, seen + rest


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[object]]:
    """A folder with a graph, and the evaluation `local` of it; the words evaluate it again."""
    folder = tmp_path_factory.mktemp("study")
    small_study.make_graph().save(folder / GRAPH)
    settings = [word for name, value in LONG.items() if name != "device" for word in ("--set", setting(name, value))]
    words: list[object] = ["evaluate", GRAPH, "--model", "dysat:program", *settings, "--device", "cpu", "--first", 3]
    code, _, problem = run_and_disturb([*words, "-o", "local", "--processes", 1], folder, lambda process: None)
    assert code == 0, problem
    return folder, words


def setting(name: str, value: Any) -> str:
    return f"{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}"


@pytest.mark.slow
def test_a_lost_node_changes_no_result(study: tuple[Path, list[object]]) -> None:
    folder, words = study
    with fake_cluster(2) as nodes:
        on_ray = [*words, "--engine", "ray", "--address", nodes.address, "--json", "-o", "lost-node"]
        code, out, problem = run_and_disturb(on_ray, folder, lambda process: nodes.remove_node())
    assert code == 0, problem
    assert json.loads(out)["models"]  # nothing else is printed
    assert content(folder / "lost-node") == content(folder / "local")


@pytest.mark.slow
def test_a_lost_head_node_is_one_line_and_finished_steps_are_kept(study: tuple[Path, list[object]]) -> None:
    folder, words = study
    with fake_cluster() as nodes:
        on_ray = [*words, "--engine", "ray", "--address", nodes.address, "-o", "lost-head"]
        code, _, problem = run_and_disturb(on_ray, folder, lambda process: nodes.lose_head())
    lost = "dysat: the head node of the Ray cluster is lost; finished steps are kept, the same command continues"
    assert (code, problem.splitlines()[-1]) == (2, lost), problem
    check_continues(folder, words, "lost-head")


@pytest.mark.slow
def test_ctrl_c_stops_the_tasks_and_keeps_finished_steps(study: tuple[Path, list[object]]) -> None:
    folder, words = study
    on_ray = [*words, "--engine", "ray", "-o", "stopped"]
    code, _, problem = run_and_disturb(on_ray, folder, lambda process: process.send_signal(signal.SIGINT))
    stopped = "dysat: stopped; finished steps are kept in stopped, the same command resumes"
    assert (code, problem.splitlines()[-1]) == (130, stopped), problem
    check_continues(folder, words, "stopped")


@pytest.mark.slow
def test_a_lost_head_node_fails_no_setting_of_a_tuning(study: tuple[Path, list[object]]) -> None:
    folder, words = study
    tuning = ["tune", *words[1:], "--space", "l2=1e-5,1e-4,1e-3,1e-2", "--no-prune", "--steps", "10,11,12"]
    with fake_cluster() as nodes:
        on_ray = [*tuning, "--engine", "ray", "--address", nodes.address, "-o", "tuning"]
        code, _, problem = run_and_disturb(on_ray, folder, lambda process: nodes.lose_head())
    lost = "dysat: the head node of the Ray cluster is lost; finished trials are kept, the same command continues"
    assert (code, problem.splitlines()[-1]) == (2, lost), problem
    found = []
    for name in ("tuning", "tuned-locally"):
        code, _, problem = run_and_disturb([*tuning, "--processes", 1, "-o", name], folder, lambda process: None)
        assert code == 0 and problem.startswith("2 of 4 were finished before" if name == "tuning" else "1 of 4"), (
            problem
        )
        trials = json.loads((folder / name / "tuning.json").read_text())["trials"]
        found.append([{key: value for key, value in trial.items() if key != "seconds"} for trial in trials])
    assert found[0] == found[1] and len(found[0]) == 4


def check_continues(folder: Path, words: list[object], name: str) -> None:
    """The local engine computes only the missing steps, and reaches the same result."""
    finished = len(list((folder / name / "steps").iterdir()))
    assert finished >= 2
    code, _, problem = run_and_disturb([*words, "-o", name, "--processes", 1], folder, lambda process: None)
    assert code == 0 and problem.startswith(f"{finished + 1} of "), problem
    assert content(folder / name) == content(folder / "local")
