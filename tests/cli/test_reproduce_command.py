"""dysat reproduce: output, files, resuming, and one-line errors."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dysat
from dysat.experiments.paper.catalogue import TARGETS
from dysat.experiments.paper.records import Point, Record, Results

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands in an empty folder, where no dataset is available but UCI, which a package contains."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DYSAT_DATA", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small graphs with as many snapshots as UCI and Enron."""
    folder = tmp_path_factory.mktemp("graphs")
    for name, steps in (("uci", 13), ("enron", 16)):
        rng = np.random.default_rng(0)
        links = [(u, v, step) for step in range(steps) for u, v in rng.integers(0, 14 + step, (40, 2)).tolist()]
        events = dysat.read_events(tuple(list(column) for column in zip(*links, strict=True)), time_unit="step")
        dysat.build_snapshots(events, every=1, self_loops="keep").save(folder / name)
    return folder


@pytest.fixture
def measured() -> Results:
    """Hand-written results of DySAT on UCI."""
    results = Results(Path("mine/results/full"))
    steps = tuple(Point(target, 30, 0.8, 0.01, 0.7, 0.8) for target in range(1, 13))
    about = {"date": "2026-11-15", "hardware": {"cpu": "Some CPU"}, "device": "cpu", "request": {"repeats": 10}}
    record = Record("dysat", "dysat", {}, "key", 0.8548, 0.01, 0.8, 0.01, steps, {}, 1.0, about)
    results.put("single-step", "uci", record)
    return results


def run(cli: Cli, *words: object) -> tuple[int, str, str]:
    return cli("reproduce", *words, "--processes", "1", "--device", "cpu")


def test_help_names_tables_figures_and_options(cli: Cli) -> None:
    code, out, _ = cli("reproduce", "--help")
    assert code == 0
    assert all(word in out for word in (*TARGETS, "all", "--dataset", "--methods", "--budget", "--from", "--graphs"))


def test_table_and_figure_end_to_end(cli: Cli, graphs: Path) -> None:
    words = ["table1", "table2", "fig-steps", "--dataset=uci", "--methods=edge-memory,svd", "--graphs", graphs]
    code, out, err = run(cli, *words)
    assert code == 0, err
    assert "8 of 8: " in err
    assert "best heuristic" in out and "Table 2" in out and "drawn to reproduction/fig-steps.svg" in out
    assert "left out" not in out
    names = {file.name for file in Path("reproduction").iterdir()}
    assert names == {
        "cache", "results", "table1.md", "table1.csv", "table2.md", "table2.csv",
        "fig-steps.svg", "fig-steps.png", "fig-steps.csv",
    }  # fmt: skip
    record = Results(Path("reproduction/results/quick")).record("single-step", "uci", "svd")
    assert record is not None and [step.target for step in record.steps] == [1, 5, 8, 12]
    with open("reproduction/fig-steps.csv", encoding="utf-8") as lines:
        assert {line["predicted_snapshot"] for line in csv.DictReader(lines)} == {"1", "5", "8", "12"}
    assert run(cli, *words)[1:] == (out, "")  # nothing was left to do


def test_json_names_the_files(cli: Cli, graphs: Path) -> None:
    code, out, err = run(
        cli, "table2", "--dataset=uci", "--methods=edgebank", "--graphs", graphs, "--json", "--out=there", "--seed=3"
    )
    assert code == 0, err
    files = ["there/table2.md", "there/table2.csv"]
    assert json.loads(out) == {"files": files, "results": "there/results/quick-seed-3", "notes": []}
    record = Results(Path("there/results/quick-seed-3")).record("single-step", "uci", "edgebank")
    assert record is not None and record.about["request"]["seed"] == 3


def test_missing_datasets_are_left_out_with_a_note(cli: Cli, graphs: Path) -> None:
    code, out, err = run(cli, "table2", "--methods=edgebank", "--graphs", graphs)
    assert code == 0, err
    assert "yelp is left out: its file is missing (see dysat datasets)" in out
    assert "ml-10m is left out" in out and "uci is left out" not in out and "enron is left out" not in out
    kept = {file.name for file in Path("reproduction/results/quick").glob("single-step_*")}
    assert kept == {"single-step_uci.json", "single-step_enron.json", "single-step_enron-loops.json"}


def test_requested_dataset_must_exist(cli: Cli) -> None:
    code, out, err = run(cli, "table2", "--dataset=yelp", "--dataset=uci", "--methods=edgebank")
    assert code == 2 and out == "" and err.strip().count("\n") == 0
    assert "yelp: " in err and "is missing; get it from" in err
    assert not Path("reproduction").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tabel2"], "no table or figure 'tabel2'; there are table1"),
        (["tabel2"], "did you mean 'table2'"),
        (["table2", "--dataset=ucy"], "no dataset 'ucy'; there are"),
        (["table2", "--dataset=ucy"], "did you mean 'uci'"),
        (["table2", "--methods=svd,dyszt"], "no method 'dyszt'; there are"),
        (["table2", "--methods=svd,dyszt"], "did you mean 'dysat:program' or 'dysat:text'"),
        (["table3", "--methods=svd", "--dataset=uci"], "--methods svd: none of them is a row of table3"),
        (["table2", "--methods=,", "--dataset=uci"], "none of them is a row of table2"),
        (["table2", "--processes=0"], "--processes 0 must be at least 1"),
        (["table2", "--device=tpu", "--dataset=uci"], "does not exist here"),
        (["table2", "--out=a-file"], "--out a-file is a file, not a folder"),
        (["table2", "--from=nowhere"], "--from nowhere: no results there"),
        (["table2", "--from=.", "--methods=svd"], "--methods svd has no effect with --from"),
        (["table2", "--from=.", "--seed=3"], "--seed 3 has no effect with --from"),
        (["fig-runtime", "--dataset=uci", "--methods=svd"], "none of them is a row of fig-runtime"),
        (["fig-attention", "--dataset=uci", "--methods=svd"], "none of them is a row of fig-attention"),
        (["table2", "--from=."], "--from .: no results there"),
        (["table2", "--graphs=nowhere"], "--graphs nowhere: no graph folder there is named after a dataset"),
        (["table2", "--budget=slow"], "'slow'"),
        ([], "WHAT"),
    ],
)
def test_errors_are_one_line_and_leave_no_files(cli: Cli, words: list[str], message: str) -> None:
    Path("a-file").touch()
    code, out, err = cli("reproduce", *words)
    assert code == 2 and out == "" and message in err and err.count("\n") == 1, err
    assert not Path("reproduction").exists()


@pytest.mark.parametrize("folder", ["mine", "mine/results/full"])
def test_from_shows_results_without_measuring(cli: Cli, measured: Results, folder: str) -> None:
    before = {file: file.read_bytes() for file in measured.folder.iterdir()}
    code, out, err = cli("reproduce", "table2", "fig-steps", "--from", folder, "--dataset=uci")
    assert code == 0 and err == ""
    assert "85.48 ± 1.00 (85.81 ± 0.1, −0.33)" in out
    assert "| dysat:program | **85.48" in Path("reproduction/table2.md").read_text(encoding="utf-8")
    assert {file: file.read_bytes() for file in measured.folder.iterdir()} == before
    assert not Path("reproduction/results/quick").exists()


def test_from_reports_missing_tables_and_figures(cli: Cli, measured: Results) -> None:
    code, out, err = cli("reproduce", "all", "--from=mine")
    assert code == 0, err
    assert "table1: no dataset was counted" in out and "fig-heads: nothing was measured on" in out
    assert Path("reproduction/table2.md").exists() and Path("reproduction/fig-steps.svg").exists()
    assert not Path("reproduction/fig-heads.svg").exists()
    code, out, err = cli("reproduce", "fig-heads", "--from=mine")
    assert code == 2 and "fig-heads: nothing was measured on" in err and err.count("\n") == 1
    code, out, err = cli("reproduce", "table1", "table2", "--from=mine", "--json")
    assert code == 0 and json.loads(out)["notes"] == ["table1: no dataset was counted"]


def test_figure_without_results_does_not_prevent_a_table(cli: Cli, graphs: Path) -> None:
    code, out, err = run(cli, "table2", "fig-heads", "--methods=edgebank", "--dataset=uci", "--graphs", graphs)
    assert code == 0, err
    assert "fig-heads: nothing was measured on uci" in out
    assert Path("reproduction/table2.md").exists()


def test_damaged_result_file_is_named(cli: Cli, measured: Results) -> None:
    Path("mine/results/full/single-step_uci.json").write_text("{")
    code, _, err = cli("reproduce", "table2", "--from=mine")
    assert code == 2 and "single-step_uci.json: not a result file of dysat reproduce" in err and err.count("\n") == 1


@pytest.mark.slow
def test_same_command_resumes_after_ctrl_c(cli: Cli, graphs: Path) -> None:
    words = ["reproduce", "table2", "--dataset=uci", "--methods=graphsage,edgebank", "--graphs", str(graphs)]
    words += ["--device=cpu", "--processes=1", "--budget=full"]
    program = [sys.executable, "-c", "from dysat.cli import main; main()", *words]
    with subprocess.Popen(
        program,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # this process may ignore it
    ) as running:
        assert running.stderr is not None and "1 of 24: " in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        _, err = running.communicate()
    assert running.returncode == 130
    assert "finished steps are kept in reproduction, the same command resumes" in err and "Traceback" not in err
    done = len(list(Path("reproduction").rglob("steps/*.safetensors")))
    assert 0 < done < 24
    code, _, err = cli(*words)
    assert code == 0, err
    assert f"{done + 1} of 24: " in err.splitlines()[0] and "24 of 24: " in err.splitlines()[-1]
