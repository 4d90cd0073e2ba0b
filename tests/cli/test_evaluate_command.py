"""dysat evaluate: output, files, resuming, and one-line errors."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from run_folders import GUARD, quick, start_command, wait_until

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
MAILS = [(f"p{i}", f"p{(2 * i + week * i) % 13}", f"2024-01-{7 * week + 1:02}") for week in range(4) for i in range(13)]
TINY = ["--set=epochs=1"]
TINY += [
    f"--set={side}_{what}={n}" for side in ("structural", "temporal") for what, n in (("heads", 2), ("features", 8))
]


@pytest.fixture
def mails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A log in an empty folder, the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("mails.csv").write_text("src,dst,time\n" + "".join(f"{u},{v},{t}\n" for u, v, t in MAILS))
    return "mails.csv"


def run(cli: Cli, *words: str) -> tuple[int, str, str]:
    return cli("evaluate", *words, "--processes", "1", "--device", "cpu")


def test_best_heuristic_is_shown_with_the_model(cli: Cli, mails: str) -> None:
    code, out, err = run(cli, mails, "--every", "7d", "--model", "dysat", "--model", "edgebank", *TINY)
    assert code == 0, err
    assert " dysat " in out and "edgebank" in out and "on t+1" in out and "on t " in out
    assert "the best heuristic, " in out and "3 of 36" in err
    facts = json.loads(Path("evaluation/results.json").read_text())
    assert facts["best_opponent"] in out and len(facts["models"]) == 12
    assert facts["models"][0]["options"]["epochs"] == 1


def test_set_changes_model_options(cli: Cli, mails: str) -> None:
    words = ["--model=graphsage", "--set", "aggregator=lstm"]
    words += ["--set=fan_out=3,2", "--set=epochs=1", "--set=features=8,4"]
    code, out, err = run(cli, *words, mails, "--every=7d", "--last=1", "--seed", "1", "--json")
    assert code == 0, err
    facts = json.loads(out)
    given = facts["models"][0]["options"]
    assert given["aggregator"] == "lstm" and given["fan_out"] == [3, 2] and given["features"] == [8, 4]
    assert given["epochs"] == 1 and given["seed"] == 0 and facts["request"]["seed"] == 1  # --seed is the command's own


@pytest.mark.parametrize(("word", "residual"), [("--set=residual=true", True), ("--set=residual=false", False)])
def test_boolean_options(cli: Cli, mails: str, word: str, residual: bool) -> None:
    words = ["--model=dysat", "--set=epochs=0", "--set=temporal_features=128", word]
    code, out, err = run(cli, *words, mails, "--every=7d", "--last=1", "--json")
    assert code == 0, err
    options = json.loads(out)["models"][0]["options"]
    assert options["residual"] is residual and options["walk_weight"] == 0  # the default model


def test_preset_tuned_for_a_dataset(cli: Cli, mails: str) -> None:
    words = ["--model=graphsage:sankar2019_gat_uci", "--set=epochs=1", mails, "--every=7d", "--last=1"]
    code, out, err = run(cli, *words, "--json")
    assert code == 0, err
    found = json.loads(out)["models"][0]
    assert found["name"] == "graphsage:sankar2019_gat_uci"
    assert found["options"]["aggregator"] == "gat" and found["options"]["epochs"] == 1


def test_same_command_resumes_and_json_is_complete(cli: Cli, mails: str) -> None:
    words = [mails, "--every=7d", "--model=edge-memory", "--negatives=uniform,historical", "--candidates=5"]
    code, _, err = run(cli, *words)
    assert code == 0, err
    code, out, err = run(cli, *words, "--json")
    assert code == 0 and "snapshots up to" not in err  # nothing was left to do
    facts = json.loads(out)
    stored = json.loads(Path("evaluation/results.json").read_text())
    assert facts == {**stored, "date": facts["date"], "notes": facts["notes"]}
    assert any("columns recognised" in note for note in facts["notes"])
    assert {m["negatives"] for m in facts["models"][0]["means"]} <= {"uniform", "historical"}
    assert facts["models"][0]["ranking"]["mrr"] > 0


def test_tables_and_plots_are_written(cli: Cli, mails: str) -> None:
    code, out, err = run(
        cli, mails, "--every=7d", "--model=svd", "--all", "--markdown=table.md", "--plot=steps.svg", "--candidates=3"
    )
    assert code == 0, err
    assert "MRR" in out and "pair-boosting" in out and "new: P@10" in out and "best heuristic in ranking" in out
    assert "each link among 3 other nodes of its first end" in out
    assert "| MRR | Hits@10 | P@10 | P@100 | new: MRR |" in Path("table.md").read_text()
    assert Path("table.md").read_text().count("\n| ") >= 11 and "<svg" in Path("steps.svg").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model=dysta"], "no model 'dysta'; there are"),
        (["--model=dysat:paper"], "dysat has no preset 'paper'"),
        (["--set=epochs"], "--set epochs: expected name=value"),
        (["--set=colour=red"], "--set colour: none of the models uses that option"),
        (["--set=epochs=many"], "--epochs many is not a whole number"),
        (["--set=walk_length=2"], "--set walk_length: none of the models uses that option"),
        (["--negatives=hard"], "no negatives 'hard'; there are uniform"),
        (["--typed"], "the nodes of this graph have no kinds"),
        (["--first=9"], "snapshot 9 cannot be predicted"),
        (["--protocol=multi-step"], "takes more than the 4 there are"),
        (["--repeats=0"], "at least one repeat"),
        (["--processes=0"], "--processes 0 must be at least 1"),
        (["--device=tpu"], "does not exist here"),
    ],
)
def test_errors_are_one_line_and_leave_no_files(cli: Cli, mails: str, words: list[str], message: str) -> None:
    code, out, err = cli("evaluate", mails, "--every=7d", *words)
    assert code == 2 and out == "" and err.count("dysat: ") == 1  # after the notes on the log
    assert message in err.splitlines()[-1]
    assert not Path("evaluation").exists()


def test_folder_of_another_evaluation_is_refused(cli: Cli, mails: str) -> None:
    assert run(cli, mails, "--every=7d", "--model=edgebank")[0] == 0
    before = Path("evaluation/results.json").read_bytes()
    code, _, err = run(cli, mails, "--every=7d", "--model=edgebank", "--seed=1")
    assert code == 2 and "an evaluation with another seed (0)" in err
    assert Path("evaluation/results.json").read_bytes() == before


@pytest.mark.slow
def test_ctrl_c_keeps_finished_steps(mails: str) -> None:
    words = ["--model=dysat", "--device=cpu", *TINY[1:], "--set=epochs=100000000", "--last=2"]
    running = start_command(Path.cwd(), "evaluate", mails, "--every=7d", "--processes=2", *words)
    wait_until(running, Path("evaluation/steps").is_dir)
    time.sleep(2)  # workers have started
    os.kill(running.pid, signal.SIGINT)
    running.join(GUARD)
    err = Path("err").read_text()
    assert running.exitcode == 130 and "finished steps are kept in evaluation" in err
    assert "Traceback" not in err


def test_own_scores_need_no_probe(cli: Cli, mails: str) -> None:
    code, out, err = run(cli, mails, "--every", "7d", "--model", "dysat", *TINY, "--probe", "score")
    assert code == 0, err
    assert "own score" in out and "no label of the predicted snapshot is used" in out and "on t+1" not in out
    code, out, _ = cli("evaluate", "--help")
    assert code == 0 and "present|past|score" in out.replace("\n", "")


def set_free_memory(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    monkeypatch.setattr("dysat.models.base.link_model.LEAST_FREE", 0)
    monkeypatch.setattr("dysat.models.base.link_model.free_memory", lambda: size)


def test_a_model_that_does_not_fit_in_memory_is_refused_before_any_step(
    cli: Cli, mails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_free_memory(monkeypatch, 9_000)
    words = [mails, "--every=7d", "--model=svd", "--last=2"]
    code, out, err = run(cli, *words)
    assert (code, out) == (2, "") and err.splitlines()[-1].startswith("dysat: svd on 12 nodes needs more than "), err
    assert "; at most 8 nodes of such a graph fit; dysat fits larger graphs" in err and not Path("evaluation").exists()
    set_free_memory(monkeypatch, 1e9)
    code, first, err = run(cli, *words)
    assert code == 0, err
    set_free_memory(monkeypatch, 9_000)  # finished steps need no memory
    assert run(cli, *words)[:2] == (0, first)


def test_a_heuristic_for_comparison_that_does_not_fit_is_left_out(
    cli: Cli, mails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_free_memory(monkeypatch, 9_000)
    code, out, err = run(cli, mails, "--every=7d", "--model=edgebank", "--last=2", "--json")
    assert code == 0, err
    problems = {model["name"]: model["problems"] for model in json.loads(out)["models"]}
    assert "fits larger graphs" in problems["svd"]["1"] and not problems["edgebank"] and not problems["degree-sum"]


def test_own_scores_of_the_default_need_no_memory_for_embeddings(
    cli: Cli, mails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_free_memory(monkeypatch, 9_000)
    words = [mails, "--every=7d", "--model=dysat", "--last=2"]
    code, _, err = run(cli, *words)
    assert code == 2 and " GiB of memory, and " in err
    code, out, err = run(cli, *words, "--probe=score", "--json")
    assert code == 0 and json.loads(out)["models"][0]["steps"], err
