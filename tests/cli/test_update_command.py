"""dysat update: output, one-line errors, --follow and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folders import GUARD, be_quick, file_contains, quick, start_command, wait_until
from weekly import (
    contents,
    copy,
    day,
    fitted,
    read_log,
    state,
    take_in,
    updates,
    week,
    weeks,
    write_log,
)

import dysat
from dysat.runs.run import Run
from dysat.runs.stream import Stream
from dysat.runs.update import updating

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
TINY = [
    f"--set={side}_{what}={n}" for side in ("structural", "temporal") for what, n in (("heads", 2), ("features", 8))
]
TINY += ["--epochs=1", "--device=cpu", "--no-backtest"]


@pytest.fixture
def cli(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Run a command line in an empty folder; returns exit code, output and errors."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return cli


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(tmp_path_factory.mktemp("base"), weeks(0, 3)).folder


@pytest.fixture(scope="module")
def graph_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a graph folder, which records no columns."""
    folder = tmp_path_factory.mktemp("graph")
    graph = Run.open(fitted(folder, weeks(0, 3)).folder).graph()
    run = Run.start(folder / "other", graph, dysat.IncSAT(epochs=0), backtest=False)
    assert run.train()
    return run.folder


@pytest.fixture
def run(base: Path, tmp_path: Path) -> Path:
    return copy(base, tmp_path / "run")


def lines(out: str) -> str:
    return " ".join(out.split())


def as_mail(file: Path, rows: list[Any]) -> Path:
    """The same log with other column names."""
    file.write_text("sent,to,from\n" + "".join(f"{when},{v},{u}\n" for u, v, when in rows))
    return file


# Output


def test_update_prints_figures_and_forecasts(cli: Cli, run: Path, tmp_path: Path) -> None:
    other = copy(run, tmp_path / "other")
    (update,) = take_in(other, write_log(tmp_path / "log.csv", week(3)))
    code, out, err = cli("update", run, tmp_path / "log.csv", "--top", 3, "--device", "cpu")
    assert code == 0 and state(run) == state(other)
    text = lines(out)
    assert f"snapshot 3, {day(3)} … {day(4)}: 15 events, 15 links, 2 new nodes (16 in all)" in text
    assert f"last forecast: AUC {update.auc:.4f} on {update.forecast_links} links between known nodes" in text
    assert f"{len(update.came_true)} of its 91 most likely links came true" in text and "trained for 1 epoch," in text
    shown = re.findall(r"^ +(\d+) +(p\d+) +(p\d+) +(0\.\d{3}) *$", out, re.MULTILINE)
    assert shown == [(str(rank), u, v, f"{score:.3f}") for rank, u, v, score in update.came_true[:10]] and shown
    links = re.findall(r"^ +(p\d+) +(p\d+) +(0\.\d{3}) +(yes|no) *$", out, re.MULTILINE)
    model = Run.open(run).model("cpu")
    assert links == [(u, v, f"{score:.3f}", "yes" if known else "no") for u, v, score, known in model.top_links(3)]
    assert err.count("epoch 1 of 1") == 1


def test_json(cli: Cli, run: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", [("p1", "p2", day(0)), *weeks(3, 5), ("p1", "p2", day(5))])
    code, out, err = cli("update", run, log, "--json", "--until", day(5), "--top", 2, "--device", "cpu")
    facts = json.loads(out)
    assert code == 0 and facts["run"] == str(run)
    assert (facts["events"], facts["used"], facts["late"], facts["left"]) == (36, 32, 1, 1)
    assert facts["updates"] == Stream.open(run).updates and [u["step"] for u in facts["updates"]] == [3, 4]
    model = Run.open(run).model("cpu")
    assert [(link["u"], link["v"], link["known"]) for link in facts["top_links"]] == [
        (u, v, known) for u, v, _, known in model.top_links(2)
    ]
    assert f"1 of 36 events are too late and ignored: they lie before {day(3)}, where the last window ends" in err
    assert "1 events lie after the last window of this update, and wait for the next one" in err


@pytest.mark.parametrize("method", ["incsat", "dysat", "dysat:program"])
def test_update_reads_a_log_like_fit(cli: Cli, tmp_path: Path, method: str) -> None:
    first, second = as_mail(tmp_path / "a.csv", weeks(0, 3)), as_mail(tmp_path / "b.csv", weeks(3, 5))
    columns = ["--src", "from", "--dst", "to", "--time", "sent", "--every", "1w"]
    assert cli("fit", first, *columns, "--model", method, *TINY)[0] == 0
    assert cli("update", "run", second, "--device", "cpu")[0] == 0
    events = dysat.read_events(as_mail(tmp_path / "all.csv", weeks(0, 5)), "from", "to", "sent")
    whole = dysat.build_snapshots(events, every="1w")
    assert Run.open("run").model("cpu").graph_.equals(whole)
    again = write_log(tmp_path / "c.csv", week(5))
    code, _, err = cli("update", "run", again)
    assert code == 2 and "'from'" in err and err.count("\n") == 1


def test_epochs_and_a_gap(cli: Cli, run: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", week(5))
    code, out, _ = cli("update", run, log, "--epochs", 2, "--device", "cpu")
    assert code == 0 and "trained for 2 epochs" in out
    assert (
        out.count("0 events, 0 links, 0 new nodes") == out.count("stored as an empty snapshot; there was nothing") == 2
    )
    assert Stream.open(run).facts["options"]["epochs"] == 1


def test_forecast_and_embed_work_during_an_update(cli: Cli, run: Path, tmp_path: Path) -> None:
    before = state(run)
    with updating(Run.open(run), device="cpu"):
        assert cli("forecast", run, "--device", "cpu")[0] == 0 and cli("embed", run, "-o", "e.csv")[0] == 0
        code, out, err = cli("update", run, write_log(tmp_path / "log.csv", week(3)))
    assert (code, out) == (2, "")
    assert err.startswith(f"dysat: {run}: another process") and err.count("\n") == 1
    assert state(run) == before and cli("update", run, tmp_path / "log.csv", "--wait", "--device", "cpu")[0] == 0


def test_forecast_and_embed_after_an_update(cli: Cli, run: Path, tmp_path: Path) -> None:
    take_in(run, write_log(tmp_path / "log.csv", week(3)))
    model = Run.open(run).model("cpu")
    found = json.loads(cli("forecast", run, "--json", "--top", 4, "--device", "cpu")[1])
    assert [(link["u"], link["v"]) for link in found] == [(u, v) for u, v, *_ in model.top_links(4)]
    facts = json.loads(cli("embed", run, "-o", "e.parquet", "--step", "all", "--json", "--device", "cpu")[1])
    assert facts["rows"] == sum(model.graph_.known) == 10 + 12 + 14 + 16


# Errors


ERRORS = [
    ("update", "Missing argument 'run'"),
    ("update RUN", "no events: give a log, or --follow and a folder of logs"),
    ("update RUN LOG --follow .", "no events: give a log, or --follow and a folder of logs"),
    ("update RUN --follow . --until 2024-02-01", "--until needs a log of events: a followed folder has no end"),
    ("update RUN --follow . --boundaries 2024-02-01", "--boundaries needs a log of events: a followed folder has"),
    ("update RUN LOG --once", "--once and --poll need --follow"),
    ("update RUN --follow . --poll 0", "--poll must be above 0"),
    ("update RUN --follow . --poll nan", "--poll must be above 0"),
    ("update RUN LOG --top 0", "--top at least 1"),
    ("update RUN --follow nowhere", "nowhere: no such folder to follow"),
    ("update nowhere LOG", "nowhere: no such folder"),
    ("update . LOG", "not a run folder (it has no config.toml)"),
    ("update FRESH LOG", "not fully trained yet; dysat fit --resume /"),
    ("update RUN nowhere.csv", "nowhere.csv: no such file"),
    ("update RUN OLD", f"old.csv: all 14 events lie before {day(3)}, where the last window of /"),
    ("update RUN LOG --until soon", "--until soon is not"),
    (f"update RUN LOG --until {day(3, 6)}", f"no window ends by {day(3, 6)} after {day(3)}, where the run ends"),
    ("update RUN LOG --every 2w", "--every 2w, but RUN was made with --every 1w"),
    ("update RUN LOG --count 3", "--count 3, but RUN was made with --every 1w"),
    ("update RUN LOG --boundaries 2024-03-01", "--boundaries 2024-03-01, but RUN was made with --every 1w"),
    ("update RUN LOG --src who", "--src who, but RUN was made with --src src"),
    ("update RUN LOG --weight w", "--weight w, but RUN was made with no --weight"),
    ("update RUN LOG --kinds a,b", "--kinds a,b, but RUN was made with no --kinds"),
    ("update RUN LOG --self-loops keep", "--self-loops keep, but RUN was made with --self-loops drop"),
    ("update RUN LOG --timezone Europe/Berlin", "--timezone Europe/Berlin, but RUN was made with --timezone UTC"),
    ("update RUN LOG --time-unit step", "--time-unit step, but RUN was made with no --time-unit"),
    ("update RUN LOG --start 2024-01-01", "--start 2024-01-01: an update starts where the run ends; --until"),
    ("update RUN LOG --stop 2024-03-01", "--stop 2024-03-01: an update starts where the run ends; --until"),
    ("update RUN LOG --epochs -1", "--epochs -1 must not be negative"),
    ("update RUN LOG --device nowhere", "--device nowhere does not exist here"),
    ("update OTHER LOG --every 2w", "--every 2w does not match the windows of OTHER (every 1w"),
    ("update OTHER LOG --count 7", "--count 7, but the graph has 3 windows"),
    ("update OTHER LOG --boundaries 2024-01-15", "2024-01-22"),
    ("update OTHER LOG --self-loops keep", "--self-loops keep, but OTHER was made with --self-loops drop"),
    ("update OTHER LOG --kinds a,b", "(a and b)"),
    ("update OTHER LOG --time-unit step", "log.csv, line 2: time '2024-01-22'"),
    ("update OTHER LOG --src who", "no column 'who'"),
]  # fmt: skip


def test_errors_are_one_line(cli: Cli, base: Path, graph_run: Path, tmp_path: Path) -> None:
    Run.start(tmp_path / "fresh", Run.open(base).graph(), dysat.IncSAT(epochs=0))
    places = {"RUN": base, "OTHER": graph_run, "FRESH": tmp_path / "fresh"}
    places |= {"LOG": write_log(tmp_path / "log.csv", week(3)), "OLD": write_log(tmp_path / "old.csv", week(2))}
    before = [contents(folder) for folder in (base, graph_run)]
    for line, message in ERRORS:
        code, out, err = cli(*(places.get(word, word) for word in line.split()))
        message = message.replace("RUN was", f"{base} was").replace("OTHER", str(graph_run))
        assert (code, out) == (2, "") and err.startswith("dysat: ") and err.count("\n") == 1 and message in err, line
    assert [contents(folder) for folder in (base, graph_run)] == before


def test_same_file_twice_is_refused(cli: Cli, run: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", week(3))
    assert cli("update", run, log, "--device", "cpu")[0] == 0
    before = state(run)
    assert cli("update", run, log) == (
        2,
        "",
        f"dysat: {log}: its events were already taken in (as log.csv), up to {day(4)}\n",
    )
    assert state(run) == before


@pytest.mark.parametrize("given", [[], ["--count", "3", "--self-loops", "drop"]], ids=str)
def test_run_of_a_graph_folder_needs_columns(cli: Cli, graph_run: Path, tmp_path: Path, given: list[str]) -> None:
    run, log = copy(graph_run, tmp_path / "run"), as_mail(tmp_path / "log.csv", week(3))
    columns = ["--src", "from", "--dst", "to", "--time", "sent"]
    assert cli("update", run, log, *columns, *given, "--device", "cpu")[0] == 0
    whole = dysat.build_snapshots(read_log(write_log(tmp_path / "all.csv", weeks(0, 4))), every="1w")
    assert Run.open(run).model("cpu").graph_.equals(whole)


def test_graph_folder_with_steps_and_kinds_needs_only_columns(cli: Cli, tmp_path: Path) -> None:
    def write(name: str, *steps: int) -> Path:
        rows = [f"{i},{(i + step) % 4},{step}\n" for step in steps for i in range(5 + step)]
        (tmp_path / name).write_text("u,v,t\n" + "".join(rows))
        return tmp_path / name

    columns = ["--src", "u", "--dst", "v", "--time", "t"]
    steps = ["--time-unit", "step", "--kinds", "user,item"]
    assert cli("snapshots", write("a.csv", 0, 1, 2), *columns, *steps, "--every", "1", "-o", "graph")[0] == 0
    assert cli("fit", "graph", "--model", "incsat", *TINY)[0] == 0
    code, _, err = cli("update", "run", write("b.csv", 3, 4), *columns, "--device", "cpu")
    assert code == 0, err
    assert cli("snapshots", write("all.csv", 0, 1, 2, 3, 4), *columns, *steps, "--every", "1", "-o", "whole")[0] == 0
    assert Run.open("run").model("cpu").graph_.equals(dysat.DynamicGraph.load("whole"))


def test_uneven_windows_need_boundaries(cli: Cli, tmp_path: Path) -> None:
    log, edges = write_log(tmp_path / "a.csv", weeks(0, 3)), f"{day(0)},{day(1)},{day(1, 3)},{day(3)}"
    assert cli("fit", log, "--boundaries", edges, "--model", "incsat", *TINY)[0] == 0
    more = write_log(tmp_path / "b.csv", week(3))
    code, _, err = cli("update", "run", more)
    assert code == 2 and "windows are uneven" in err and "--boundaries" in err
    assert cli("update", "run", "--follow", ".", "--once")[0] == 2
    assert cli("update", "run", more, "--boundaries", f"{day(3, 2)},{day(4)}", "--device", "cpu")[0] == 0
    whole = read_log(write_log(tmp_path / "all.csv", weeks(0, 4)))
    edges = f"{edges},{day(3, 2)},{day(4)}"
    assert Run.open("run").model("cpu").graph_.equals(dysat.build_snapshots(whole, boundaries=edges.split(",")))


def test_next_log_may_have_another_format(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{u};{v};{when}\n" for u, v, when in weeks(0, 3)))
    how = ["--src", "1", "--dst", "2", "--time", "3", "--format", "csv", "--no-header"]
    fit = cli("fit", tmp_path / "a.txt", *how, "--separator", ";", "--every", "1w", "--model", "incsat", *TINY)
    assert fit[0] == 0, fit
    (tmp_path / "b.txt").write_text("".join(f"{u}\t{v}\t{when}\n" for u, v, when in week(3)) + "p1\tp2\tsoon\n")
    code, _, err = cli("update", "run", tmp_path / "b.txt", "--separator", r"\t", "--skip-bad-rows", "--device", "cpu")
    assert code == 0, err
    assert len(Run.open("run").model("cpu").graph_) == 4


# --follow and Ctrl-C


def test_follow_once(cli: Cli, run: Path, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    write_log(tmp_path / "inbox/a.csv", weeks(3, 6))
    code, out, err = cli(
        "update", run, "--follow", tmp_path / "inbox", "--once", "--json", "--top", 2, "--device", "cpu"
    )
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [facts["step"] for facts in found] == [3, 4]
    assert [len(facts.pop("top_links")) for facts in found] == [2, 2] and found == Stream.open(run).updates
    assert f"watching {tmp_path / 'inbox'}; stop with Ctrl-C" in err and "a.csv: 54 events up to" in err
    code, out, err = cli("update", run, "--follow", tmp_path / "inbox", "--once", "--device", "cpu")
    assert (code, out) == (0, "")
    write_log(tmp_path / "inbox/b.csv", week(6)[:1])
    code, out, err = cli("update", run, "--follow", tmp_path / "inbox", "--once", "--device", "cpu")
    assert code == 0 and f"snapshot 5, {day(5)} … {day(6)}" in out and "most likely next links" in out


def wait_in_second_epoch() -> None:
    """Make training wait in its second epoch until it receives Ctrl-C."""
    from dysat.cli.output import watching

    def wait(epoch: Any) -> str:
        handle, heard = signal.getsignal(signal.SIGINT), []
        if epoch.number == 2:
            signal.signal(signal.SIGINT, lambda *signal: heard.append(1) or handle(*signal))
            print("waiting", file=sys.stderr, flush=True)  # noqa: T201
            while not heard:
                time.sleep(0.001)
        return ""

    be_quick()
    watching.QUIET, watching._state = 0, wait  # type: ignore[assignment]


def test_ctrl_c_leaves_the_run_unchanged(run: Path, tmp_path: Path) -> None:
    before, log = contents(run), write_log(tmp_path / "log.csv", week(3))
    words = ["update", run, log, "--epochs", 4, "--device", "cpu"]
    process = start_command(tmp_path, *words, prepare=wait_in_second_epoch)
    wait_until(process, lambda: file_contains(tmp_path / "err", "waiting\n"))
    os.kill(process.pid, signal.SIGINT)
    process.join(GUARD)
    err = (tmp_path / "err").read_text().splitlines()
    assert process.exitcode == 130 and (tmp_path / "out").read_text() == ""
    assert err[-1] == f"dysat: stopped; {run} has not taken in {day(3)} … {day(4)}"
    assert err.count("stopping; Ctrl-C again stops at once") == 1
    assert contents(run) == before
    assert len(take_in(run, log)) == 1


def test_folder_is_followed_until_ctrl_c(run: Path, base: Path, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    process = start_command(tmp_path, "update", run, "--follow", tmp_path / "inbox", "--poll", 0.02, "--device", "cpu")
    for number in (3, 4, 5):
        write_log(tmp_path / "part", week(number)).rename(tmp_path / f"inbox/{number}.csv")
        wait_until(process, lambda: len(updates(run)) == number - 3)  # noqa: B023
    wait_until(process, lambda: file_contains(tmp_path / "err", "5.csv: 20 events"))
    os.kill(process.pid, signal.SIGINT)
    process.join(GUARD)
    assert process.exitcode == 0
    assert (tmp_path / "err").read_text().endswith("stopping; Ctrl-C again stops at once\n")
    other = copy(base, tmp_path / "other")
    take_in(other, write_log(tmp_path / "log.csv", weeks(3, 5)))
    assert state(run)[:4] == state(other)[:4]


def test_ctrl_c_while_waiting_for_another_update(run: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.csv", week(3))
    with updating(Run.open(run), device="cpu"):
        process = start_command(tmp_path, "update", run, log, "--wait")
        waiting = f"waiting for another process to finish with {run}\n"
        wait_until(process, lambda: file_contains(tmp_path / "err", waiting))
        os.kill(process.pid, signal.SIGINT)
        process.join(GUARD)
    assert process.exitcode == 130 and updates(run) == []
    assert (tmp_path / "err").read_text().endswith(f"dysat: stopped; nothing was taken into {run}\n")


def test_an_update_reads_the_next_log_as_the_first_was_read(cli: Cli) -> None:
    """Paths, split destinations, normalised labels, negative weights: all are options of the run."""

    def write(name: str, first: int, last: int) -> str:
        records = [
            {"who": {"id": f" P{i % 5} "}, "to": [f"p{(i + 1) % 5}", f"Q{i % 3}"], "at": day(i // 4), "n": -1 - i % 2}
            for i in range(4 * first, 4 * last)
        ]
        Path(name).write_text("".join(json.dumps(record) + "\n" for record in records))
        return name

    options = ["--src=who.id", "--dst=to", "--time=at", "--weight=n", "--every=1w"]
    options += ["--split-dst=;", "--normalise-labels", "--negative-weights=abs"]
    code, _, err = cli("fit", write("first.jsonl", 0, 28), "-o", "run", *options, "--model=incsat", *TINY)
    assert code == 0, err
    code, out, err = cli("update", "run", write("next.jsonl", 28, 35), "--json", "--device=cpu")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["events"] == 56 and facts["updates"][0]["new_nodes"] == 0 and facts["updates"][0]["nodes"] == 8
    code, _, err = cli("update", "run", write("more.jsonl", 35, 42), "--negative-weights=drop", "--device=cpu")
    assert code == 2 and "--negative-weights drop, but run was made with --negative-weights abs" in err
