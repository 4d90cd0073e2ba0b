"""dysat view, and the page that fit and update leave in a run folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from page_reading import page_content
from run_folders import quick, small_graph, small_model
from weekly import fitted, weeks, write_log

from dysat.errors import ModelError
from dysat.runs.run import Run

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
MEASURES = ("auc", "mrr", "hits_at_10", "new_mrr")
OLD = Path(__file__).resolve().parents[1] / "fixtures" / "old_runs" / "dysat-forecast"  # of version 0.1.0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewed")
    assert Run.start(folder / "run", small_graph(), small_model()).train()
    return folder / "run"


def shown(file: Path) -> tuple[dict, dict]:  # type: ignore[type-arg]
    return page_content(file.read_text(encoding="utf-8"))


def test_the_page_has_the_backtest_of_the_run(cli: Cli, trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    code, out, problem = cli("view", trained, "-o", file, "--json")
    assert code == 0, problem
    assert json.loads(out)["bytes"] == file.stat().st_size and json.loads(out)["page"] == str(file)
    facts, _ = shown(file)
    backtest = Run.open(trained).metrics()["backtest"]
    assert [w["step"] for w in facts["backtest"]["windows"]] == [w["step"] + 1 for w in backtest["windows"]]
    assert facts["backtest"]["mean"] == {name: backtest["mean"][name] for name in MEASURES}
    for window, stored in zip(facts["backtest"]["windows"], backtest["windows"], strict=True):
        names = (*MEASURES, "links", "candidates", "ranked", "ranked_new")
        assert [window[name] for name in names] == [stored[name] for name in names]
        rivals = {name: {m: found[m] for m in MEASURES} for name, found in stored["heuristics"].items()}
        assert {each.pop("name"): each for each in window["heuristics"]} == rivals
    by_mrr, means = backtest["mrr_comparison"]["heuristic"], backtest["heuristics"]
    assert facts["backtest"]["best"] == {
        "auc": backtest["comparison"]["heuristic"],
        "mrr": by_mrr,
        "hits_at_10": by_mrr,
        "new_mrr": max(means, key=lambda name: means[name]["new_mrr"]),
    }
    assert facts["title"] == "run" and f"AUC {backtest['mean']['auc']:.3f}" in facts["verdict"]
    assert f"MRR {backtest['mean']['mrr']:.3f} against {backtest['mrr_comparison']['mrr']:.3f}." in facts["verdict"]
    k = facts["backtest"]["precision"][0]
    assert k["k"] == "10" and k["all"] == pytest.approx(backtest["precision"]["all"]["10"] / 10)
    assert k["windows"] == {
        name: [window["precision"][name]["10"] / 10 for window in backtest["windows"]] for name in ("all", "new")
    }


def test_the_page_of_an_old_run_has_no_ranking(cli: Cli, tmp_path: Path) -> None:
    code, _, problem = cli("view", OLD, "-o", tmp_path / "page.html", "--png", tmp_path / "figures")
    assert code == 0, problem
    tested = shown(tmp_path / "page.html")[0]["backtest"]
    (window,) = tested["windows"]
    ranking = MEASURES[1:]
    for found in (window, *window["heuristics"], tested["mean"], tested["best"]):
        assert found["auc"] is not None and [found[name] for name in ranking] == [None] * 3
    drawn = {file.name for file in (tmp_path / "figures").iterdir()}
    assert tested["precision"] == [] and {name for name in drawn if "backtest" in name} == {"backtest-auc.png"}


def test_view_replaces_its_own_page_and_nothing_else(cli: Cli, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    for _ in range(2):
        code, out, problem = cli("view", run)
        assert (code, problem) == (0, "") and out.startswith("page written to") and (run / "report.html").is_file()
    letter = tmp_path / "letter.html"
    letter.write_text("dear")
    for file, text in (
        (letter, "is no page of dysat"),
        (tmp_path / "page.pdf", "ends with .html"),
        (tmp_path, ".html"),
    ):
        code, _, problem = cli("view", run, "-o", file)
        assert code == 2 and text in problem and problem.count("\n") == 1
    assert letter.read_text() == "dear"


def test_pictures_are_drawn(cli: Cli, trained: Path, tmp_path: Path) -> None:
    code, out, problem = cli("view", trained, "-o", tmp_path / "p.html", "--png", tmp_path / "new" / "figures")
    assert code == 0, problem
    names = {file.name for file in (tmp_path / "new" / "figures").iterdir()}
    assert names == {
        *("attention.png", "backtest-auc.png", "backtest-mrr.png", "backtest-hits-at-10.png", "backtest-new-mrr.png"),
        *("links-per-window.png", "map.png"),
        *(["reliability.png"] if "reliability.png" in names else []),
    }
    assert all(file.stat().st_size > 5_000 for file in (tmp_path / "new" / "figures").iterdir())
    assert f"{len(names)} pictures" in out
    (tmp_path / "file").write_text("")
    code, _, problem = cli("view", trained, "-o", tmp_path / "p.html", "--png", tmp_path / "file")
    assert code == 2 and problem.count("\n") == 1


def test_a_node_that_is_not_there_is_one_line(cli: Cli, trained: Path) -> None:
    code, _, problem = cli("view", trained, "--node", "nobody")
    assert code == 2 and "nobody" in problem and problem.count("\n") == 1


def test_what_is_not_a_finished_run_is_one_line(cli: Cli, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    Run.start(run, small_graph(), small_model())
    damaged = tmp_path / "damaged"
    shutil.copytree(trained, damaged)
    (damaged / "model.safetensors").write_bytes(b"nothing")
    for folder, text in ((run, "not trained yet"), (damaged, "damaged"), (tmp_path / "no", "no such folder")):
        code, _, problem = cli("view", folder)
        assert code == 2 and problem.count("\n") == 1, problem
        assert text in problem or folder == damaged
        assert not (folder / "report.html").exists()


def test_fit_writes_the_page_unless_told_otherwise(cli: Cli, tmp_path: Path) -> None:
    small_graph().save(tmp_path / "graph")
    few = ("--forecast-only", "--no-backtest", "--device", "cpu")
    code, out, problem = cli("fit", tmp_path / "graph", "-o", tmp_path / "run", *few)
    assert code == 0, problem
    assert "report.html to look at it" in " ".join(out.split())
    facts, arrays = shown(tmp_path / "run" / "report.html")
    assert facts["backtest"] is None and "position" not in arrays and "no backtest" in facts["verdict"]
    code, out, _ = cli("fit", tmp_path / "graph", "-o", tmp_path / "bare", "--no-report", "--json", *few)
    assert code == 0 and json.loads(out)["report"] is None and not (tmp_path / "bare" / "report.html").exists()


def test_a_page_that_fails_does_not_fail_the_fit(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ModelError("the disk is full")

    monkeypatch.setattr("dysat.runs.report.run_page", fail)
    small_graph().save(tmp_path / "graph")
    code, _, problem = cli("fit", tmp_path / "graph", "-o", tmp_path / "run", "--forecast-only", "--no-backtest")
    assert code == 0 and "no report: the disk is full" in problem


def test_update_replaces_the_page(cli: Cli, tmp_path: Path) -> None:
    run = fitted(tmp_path, weeks(0, 3)).folder
    assert cli("view", run)[0] == 0
    before = shown(run / "report.html")[0]
    code, _, problem = cli("update", run, write_log(tmp_path / "next.csv", weeks(3, 4)))
    assert code == 0, problem
    facts, _ = shown(run / "report.html")
    assert len(facts["windows"]) == len(before["windows"]) + 1 and "1 update since the fit" in " ".join(facts["notes"])
    code, _, problem = cli("update", run, write_log(tmp_path / "last.csv", weeks(4, 5)), "--no-report")
    assert code == 0 and not (run / "report.html").exists(), problem  # never older than the run


def test_the_browser_is_opened_on_request(
    cli: Cli, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = list[str]()
    monkeypatch.setattr("webbrowser.open", addresses.append)
    assert cli("view", trained, "-o", tmp_path / "p.html", "--open")[0] == 0
    assert addresses == [(tmp_path / "p.html").as_uri()]


def test_a_large_run_says_what_is_left_out(
    cli: Cli, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dysat.report.content.MOST_NODES", 10)
    graph = Run.open(trained).graph()
    quiet = int(
        np.argmin(np.bincount(np.concatenate([s.links()[0].numpy() for s in graph]), minlength=graph.num_nodes))
    )
    code, out, _ = cli("view", trained, "-o", tmp_path / "p.html", "--node", graph.nodes[quiet])
    assert code == 0 and "10 of 40 nodes" in " ".join(out.split())
    assert str(graph.nodes[quiet]) in shown(tmp_path / "p.html")[0]["labels"]
