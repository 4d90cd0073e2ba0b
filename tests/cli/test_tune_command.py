"""dysat tune: output, files, resuming, use of the result, and one-line errors."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Cli = Callable[..., tuple[int, str, str]]
MAILS = [(f"p{i}", f"p{(2 * i + week * i) % 13}", f"2024-01-{7 * week + 1:02}") for week in range(4) for i in range(13)]
QUICK = ["--model=gcn-ae", "--set=features=8,4", "--set=epochs=2"]
SPACE = ["--space", "learning-rate=0.01,0.1"]


@pytest.fixture
def mails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A log in an empty folder, the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("mails.csv").write_text("src,dst,time\n" + "".join(f"{u},{v},{t}\n" for u, v, t in MAILS))
    return "mails.csv"


def run(cli: Cli, *words: str) -> tuple[int, str, str]:
    return cli("tune", *words, "--every=7d", "--processes", "1", "--device", "cpu")


def test_trials_are_reported_and_the_best_is_first(cli: Cli, mails: str) -> None:
    code, out, err = run(cli, mails, *QUICK, *SPACE)
    assert code == 0, err
    assert "\n1 of 2: learning_rate 0.01: " in err and "\n2 of 2: learning_rate 0.1: " in err
    facts = json.loads(Path("tuning/tuning.json").read_text())
    best = facts["best"]["options"]["learning_rate"]
    rows = [line.split() for line in out.splitlines() if line.split()[:1] in (["0.01"], ["0.1"])]
    assert float(rows[0][0]) == best and rows[0][-1] == "best" and len(rows) == 2
    assert rows[0][1] == f"{100 * facts['best']['value']:.2f}" and float(rows[0][1]) >= float(rows[1][1])
    assert "test links were not used" in out
    command = "now: dysat evaluate mails.csv --every 7d --model gcn-ae --set features=8,4 --set epochs=2 --set"
    assert f"{command} learning_rate={best:g}" in out


def test_objective_mrr(cli: Cli, mails: str) -> None:
    more = [
        (f"p{i}", f"p{(2 * i + week * i) % 37}", f"2024-01-{7 * week + 1:02}") for week in range(4) for i in range(37)
    ]
    Path(mails).write_text("src,dst,time\n" + "".join(f"{u},{v},{t}\n" for u, v, t in more))
    words = [mails, "--model=edge-memory", "--space=decay=0.2,0.9", "--objective=mrr", "--last=2"]
    code, out, err = run(cli, *words)
    assert code == 0, err
    facts = json.loads(Path("tuning/tuning.json").read_text())
    assert facts["objective"] == "mrr" and "validation MRR" in out and f"{100 * facts['best']['value']:.2f}" in out
    code, _, err = run(cli, *words[:3], "--objective=hits")
    assert code == 2 and "'hits'" in err


def test_same_command_resumes_and_json_is_complete(cli: Cli, mails: str) -> None:
    words = [mails, *QUICK, "--space=learning_rate=0.001..0.1", "--steps=2,3"]
    code, _, err = run(cli, *words, "--trials=1")
    assert code == 0, err
    code, out, err = run(cli, *words, "--trials=2", "--json")
    assert code == 0 and err.splitlines()[-2] == "1 of 2 were finished before"
    facts = json.loads(out)
    stored = json.loads(Path("tuning/tuning.json").read_text())
    assert facts == {**stored, "date": facts["date"], "notes": facts["notes"]}
    assert (
        facts["predicted"] == [2, 3]
        and len(facts["trials"]) == 2
        and facts["given"] == {"features": [8, 4], "epochs": 2}
    )


def test_suggested_command_has_the_same_protocol(cli: Cli, mails: str) -> None:
    words = ["--model=svd", "--space=decay=0.5", "--protocol=new-links", "--self-loops=keep", "--count-self-loops"]
    code, out, err = run(cli, mails, *words, "--last=2")
    assert code == 0, err
    command = "--every 7d --self-loops keep --protocol new-links --count-self-loops --model svd --set decay=0.5"
    assert f"now: dysat evaluate mails.csv {command}\n" in out


def test_spaces_of_booleans_and_lists(cli: Cli, mails: str) -> None:
    words = ["--space", "residual=true,false", "--space", "temporal_heads=2|4", "--set=add_self_loops=false"]
    words += [
        f"--set={name}" for name in ("structural_heads=2", "structural_features=16", "temporal_features=16", "epochs=1")
    ]
    code, out, err = run(cli, mails, *words, "--last=1", "--json")
    assert code == 0, err
    facts = json.loads(out)
    tried = {(trial["options"]["residual"], *trial["options"]["temporal_heads"]) for trial in facts["trials"]}
    assert tried == {(True, 2), (True, 4), (False, 2), (False, 4)} and facts["given"]["add_self_loops"] is False


def test_preset_out_is_accepted_by_evaluate_and_fit(cli: Cli, mails: str) -> None:
    code, out, err = run(cli, mails, *QUICK, *SPACE, "--preset-out", "best.toml", "--last=2")
    assert code == 0, err
    assert "now: dysat evaluate mails.csv --every 7d --model gcn-ae:best.toml" in out
    chosen = json.loads(Path("tuning/tuning.json").read_text())["options"]
    code, out, err = cli(
        "evaluate", mails, "--every=7d", "--model", "gcn-ae:best.toml", "--last=1", "--processes=1", "--json",
        "--device=cpu",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["models"][0]["options"] == chosen
    code, out, err = cli(
        "fit", mails, "--every=7d", "--model=gcn-ae", "--preset=best.toml", "--no-backtest", "--device=cpu", "--json"
    )
    assert code == 0, err
    assert f"learning_rate = {chosen['learning_rate']}" in Path("run/config.toml").read_text()


def test_tuning_starts_from_a_preset_file(cli: Cli, mails: str) -> None:
    Path("mine.toml").write_text('about = "mine"\n\n[parameters]\nfeatures = 3  # few\n')
    for words in (["--model=svd:mine.toml"], ["--model=svd", "--preset=mine.toml"]):
        code, out, err = run(cli, mails, *words, "--space=decay=0.2,0.8", "--json", "--preset-out=new.toml")
        assert code == 0, err
        assert json.loads(out)["options"]["features"] == 3
        assert "features = 3  # few" in Path("new.toml").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model=dysta"], "no model 'dysta'; there are"),
        (["--model=dysat:paper"], "dysat has no preset 'paper'"),
        (["--model=dysat:text", "--preset=program"], "--model dysat:text names a preset already"),
        (["--model=svd"], "the paper tuned nothing of svd; say with --space which of its options to try: features"),
        (["--model=svd", "--space=decay"], "'decay' is not a space; expected name=1,2,3 or name=0.1..1"),
        (["--model=svd", "--space=decy=1,2"], "svd has no option 'decy'; did you mean 'decay'?"),
        (["--model=svd", "--space=decay=0..2", "--trials=2"], "--set decay=2.0 must lie in [0, 1]"),
        (["--model=svd", "--space=decay=0..1"], "give a number of trials: --trials 20"),
        (["--space=l2=0,1", "--set=l2=0"], "l2 is given by --set and by --space; leave one out"),
        (["--set=colour=red"], "dysat has no option 'colour'"),
        (["--trials=0"], "--trials 0 must be at least 1"),
        (["--processes=0"], "--processes 0 must be at least 1"),
        (["--steps=a"], "--steps a: expected comma-separated snapshots"),
        (["--steps=,"], "--steps ,: expected comma-separated snapshots"),
        (["--steps=9"], "snapshot 9 is none of those to predict, 1, 2, 3"),
        (["--first=9"], "snapshot 9 cannot be predicted"),
        (["--preset-out=best.json"], "--preset-out best.json: a preset file must end in .toml"),
        (["--storage=here"], "storage URL: Could not parse"),
        (["--device=tpu"], "does not exist here"),
    ],
)  # fmt: skip
def test_errors_are_one_line_and_leave_no_files(cli: Cli, mails: str, words: list[str], message: str) -> None:
    code, out, err = cli("tune", mails, "--every=7d", *words)
    assert code == 2 and out == "" and err.count("dysat: ") == 1 and message in err.splitlines()[-1]
    assert not Path("tuning").exists()


def test_error_if_all_settings_fail(cli: Cli, mails: str) -> None:
    """Learning rates this high make every weight NaN."""
    code, out, err = run(cli, mails, *QUICK, "--space=learning_rate=1e30,1e35")
    assert code == 2 and "dysat: no setting of gcn-ae has a result: " in err and "failed" not in err.splitlines()[-1]
    assert "failed: gcn-ae has no finite score" in out


def test_help_has_examples(cli: Cli) -> None:
    code, out, _ = cli("tune", "--help")
    assert code == 0 and "dysat tune uci --model dysat --preset-out tuned.toml" in out
    assert "dysat evaluate uci --model dysat:tuned.toml" in out and "learning_rate=1e-4..1e-2" in out


@pytest.mark.slow
def test_ctrl_c_keeps_finished_trials(cli: Cli, mails: str) -> None:
    words = [
        mails,
        "--every=7d",
        "--device=cpu",
        "--model=gcn-ae",
        "--set=features=4,2",
        "--space=epochs=1,100000000",
        "--steps=2",
    ]
    running = subprocess.Popen(
        [sys.executable, "-c", "from dysat.cli import main; main()", "tune", *words, "--processes=1"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while states() != ["COMPLETE", "RUNNING"] and running.poll() is None:
        time.sleep(0.1)
    time.sleep(0.5)  # training has started
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 130 and "1 of 2: epochs 1: " in err
    assert err.splitlines()[-1] == "dysat: stopped; finished trials are kept in tuning, the same command resumes"
    assert "Traceback" not in err
    assert states()[0] == "COMPLETE"


def states() -> list[str]:
    if not Path("tuning/tuning.db").exists():
        return []
    database = sqlite3.connect("tuning/tuning.db")
    try:
        return [state for (state,) in database.execute("SELECT state FROM trials ORDER BY trial_id")]
    except sqlite3.OperationalError:  # not created yet, or locked
        return []
    finally:
        database.close()


def test_settings_that_do_not_fit_in_memory_are_refused_before_any_trial(
    cli: Cli, mails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dysat.models.base.link_model.LEAST_FREE", 0)
    monkeypatch.setattr("dysat.models.base.link_model.free_memory", lambda: 9_000)
    words = [mails, "--model=svd"]
    code, out, err = run(cli, *words, "--space=decay=0.3,0.6")
    assert (code, out) == (2, "") and "dysat: svd on 12 nodes needs more than " in err, err
    assert err.splitlines()[-1].endswith("at most 8 nodes of such a graph fit; dysat fits larger graphs")
    assert not Path("tuning").exists()
    code, _, err = run(cli, *words, "--space=features=8,128")  # one of them fits
    assert code == 0 and "features 8: " in err, err
