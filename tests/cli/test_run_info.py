"""dysat info, evaluate and fit with a run folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from run_folders import quick
from weekly import copy, day, fitted, take_in, week, weeks, write_log

import dysat
from dysat.runs.run import Run

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def updated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of incsat on five weeks and one update."""
    folder = tmp_path_factory.mktemp("updated")
    run = fitted(folder, weeks(0, 5)).folder
    take_in(run, write_log(folder / "5.csv", week(5)))
    return run


def words(text: str) -> str:
    return " ".join(text.split())


def test_info_of_a_run(cli: Cli, updated: Path) -> None:
    code, out, err = cli("info", updated)
    text, (update,) = words(out), Run.open(updated).updates()
    assert (code, err) == (0, "") and f"{updated}: 20 nodes, 6 snapshots" in text
    assert "method incsat with " in text and "epochs=1" in text and "learning_rate=0.005" in text
    assert f"last window {day(5)} … {day(6)}" in text and "backtest none" in text
    last = f"the last added {day(5)} … {day(6)}, whose links were forecast with AUC {update['auc']:.4f}"
    assert f"updates 1; {last}" in text


def test_info_of_a_run_as_json(cli: Cli, updated: Path) -> None:
    facts, run = json.loads(cli("info", updated, "--json")[1]), Run.open(updated)
    assert facts["fingerprint"] == run.graph().fingerprint and len(facts["snapshots"]) == 6
    assert facts["run"]["method"] == "incsat" and facts["run"]["options"]["epochs"] == 1
    assert "device" not in facts["run"]["options"] and "seed" not in facts["run"]["options"]
    assert facts["run"]["updates"] == run.updates() and facts["run"]["finished"] is True
    assert facts["run"]["last_window"] == [day(5), day(6)] and facts["run"]["events"]["every"] == "1w"
    assert facts["run"]["notes"] == list(run.first_graph().notes)


def test_info_of_a_backtest(cli: Cli, tmp_path: Path, updated: Path) -> None:
    model = dysat.DySAT.from_preset("program", epochs=1, device="cpu")
    run = Run.start(tmp_path / "run", Run.open(updated).graph(), model, source="mail.csv")
    text = words(cli("info", run.folder)[1])
    assert "method dysat:program with epochs=1" in text and "source mail.csv" in text
    assert "training not finished; dysat fit --resume continues" in text and "updates" not in text
    assert run.train()
    backtest, text = run.metrics()["backtest"], words(cli("info", run.folder)[1])
    assert f"backtest AUC {backtest['mean']['auc']:.4f} ± {backtest['sd']['auc']:.4f} over 3 windows" in text
    assert "updates none" in text
    assert json.loads(cli("info", run.folder, "--json")[1])["run"]["backtest"] == backtest


def test_a_damaged_run_gets_one_line(cli: Cli, updated: Path, tmp_path: Path) -> None:
    run = copy(updated, tmp_path / "run")
    (run / "stream/state.safetensors").write_bytes(b"half")
    commands = (["info", run], ["evaluate", run], ["evaluate", run, "--model", "svd"])
    for command in commands:
        code, out, err = cli(*command)
        assert (code, out, err.count("\n")) == (2, "", 1) and "state.safetensors: damaged" in err
    (run / "config.toml").unlink()
    for command in commands:
        code, out, err = cli(*command)
        assert (code, out, err) == (2, "", f"dysat: {run}: a damaged run folder (it has no config.toml)\n")


def test_evaluate_a_run(cli: Cli, updated: Path, tmp_path: Path) -> None:
    common = ["--first", 5, "--processes", 1, "--json", "--device", "cpu"]
    code, out, err = cli("evaluate", updated, *common, "-o", tmp_path / "a")
    assert code == 0, err
    found, run = json.loads(out), Run.open(updated)
    expected = dysat.evaluate(run.new_model(), run, first=5, device="cpu").facts()
    ours, theirs = found["models"][0], json.loads(json.dumps(expected["models"][0]))
    assert ours["name"] == "incsat" and ours["options"] == theirs["options"] and ours["means"] == theirs["means"]
    other = json.loads(cli("evaluate", updated, *common, "--model", "svd", "-o", tmp_path / "b")[1])
    assert other["models"][0]["name"] == "svd" and other["graph"] == found["graph"]


def test_evaluate_a_run_with_another_setting(cli: Cli, updated: Path, tmp_path: Path) -> None:
    common = ["--first", 5, "--processes", 1, "--json", "-o", tmp_path / "a"]
    code, out, err = cli("evaluate", updated, "--set", "epochs=2", *common)
    assert code == 0 and json.loads(out)["models"][0]["options"]["epochs"] == 2, err
    code, _, err = cli("evaluate", updated, "--set", "epoch=2")
    assert code == 2 and "no option 'epoch'; did you mean 'epochs'?" in err
    code, _, err = cli("evaluate", updated, "--every", "2w")
    assert code == 2 and "is a run folder and already cut into snapshots; --every has no effect" in err


def test_fit_on_the_graph_of_a_run(cli: Cli, updated: Path, tmp_path: Path) -> None:
    code, _, err = cli("fit", updated, "--model", "svd", "-o", tmp_path / "svd", "--no-backtest")
    assert code == 0, err
    run = Run.open(tmp_path / "svd")
    assert run.graph().equals(Run.open(updated).graph()) and run.config["events"]["every"] == "1w"
