"""What was recognised in a log is said by every command that reads one, also in JSON and in the run folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from run_folders import quick

from dysat.runs.run import Run

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
MAILS = [(f"p{i}", f"p{(2 * i + week * i) % 13}", 7 * week + 1 + i % 6) for week in range(3) for i in range(13)]
TINY = ["--set=epochs=1", "--device=cpu"]
TINY += [
    f"--set={side}_{what}={n}" for side in ("structural", "temporal") for what, n in (("heads", 2), ("features", 8))
]
PRINTED = [
    "39 of 40 events used",
    "1 event of a node with itself: dropped",
    "columns recognised: --src from, --dst to, --time timestamp",
    "the events end 29% into the last window; --stop can leave it out",
    "undirected: who sent a link is not kept; --directed keeps it",
]
STORED = [
    "columns recognised: src='from', dst='to', time='timestamp'",
    "the events end 29% into the last window; stop= can leave it out",
]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three full weeks and two days of a fourth, in an empty folder, the working directory."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{u},{v},2024-01-{day:02}\n" for u, v, day in MAILS if u != v]
    rows += [f"p{i},p{i + 1},2024-01-{22 + 2 * i:02}\n" for i in (0, 1)]
    rows += ["p1,p5,2024-01-22\n", "p2,p2,2024-01-22\n"]
    Path("mails.csv").write_text("from,to,timestamp\n" + "".join(rows))
    return "mails.csv"


def test_snapshots_prints_the_notes_below_its_table(cli: Cli, log: str) -> None:
    code, out, err = cli("snapshots", log, "--every", "7d")
    assert code == 0, err
    assert [line.rstrip() for line in out.rstrip().splitlines()][-6:-1] == PRINTED


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "--no-backtest"],
        ["evaluate", "--processes=1", "--last=1", "--model=edgebank", "--probe=score"],
        ["tune", "--processes=1", "--model=svd", "--space=features=4", "--last=2"],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("as_json", [False, True], ids=["table", "json"])
def test_commands_that_read_a_log_print_its_notes(cli: Cli, log: str, command: list[str], as_json: bool) -> None:
    name, *words = command
    words += TINY if name == "fit" else ["--device=cpu"]
    code, out, err = cli(name, log, "--every", "7d", *words, *["--json"] * as_json)
    assert code == 0, err
    assert [line.rstrip() for line in err.splitlines()][:5] == PRINTED
    if as_json:
        assert json.loads(out)["notes"] == STORED


def test_notes_are_kept_in_the_run_folder(cli: Cli, log: str) -> None:
    code, _, err = cli("fit", log, "--every", "7d", "--no-backtest", *TINY)
    assert code == 0, err
    run = Run.open("run")
    assert run.metrics()["notes"] == list(run.graph().notes) == STORED


def test_an_update_has_notes_in_json(cli: Cli, log: str) -> None:
    code, _, err = cli("fit", log, "--every", "7d", "--no-backtest", "--model=dysat:program", *TINY)
    assert code == 0, err
    Path("more.csv").write_text("from,to,timestamp\np1,p2,2024-01-30\np2,p3,2024-01-30\n")
    code, out, err = cli("update", "run", "more.csv", "--device", "cpu", "--json")
    assert code == 0, err
    assert json.loads(out)["notes"] == ["the events end 14% into the last window; until= can leave it out"]
    assert "the events end 14% into the last window; --until can leave it out" in err


def test_a_graph_folder_has_no_notes_to_repeat(cli: Cli, log: str) -> None:
    assert cli("snapshots", log, "--every", "7d", "-o", "graph")[0] == 0
    code, out, err = cli("fit", "graph", "--no-backtest", "--json", *TINY)
    assert code == 0 and "recognised" not in err and json.loads(out)["notes"] == STORED


def test_forecasts_at_the_real_base_rate(cli: Cli, log: str) -> None:
    code, out, err = cli("fit", log, "--every", "7d", "--no-backtest", "--calibrate", "real", "--json", *TINY)
    assert code == 0, err
    fitted = json.loads(out)["top_links"]
    found = {}
    for calibrate in ("balanced", "real"):
        code, out, err = cli("forecast", "run", "--calibrate", calibrate, "--json")
        assert code == 0, err
        found[calibrate] = json.loads(out)
    assert [{name: link[name] for name in fitted[0]} for link in found["real"]] == fitted
    assert [(link["u"], link["v"]) for link in found["real"]] == [(link["u"], link["v"]) for link in found["balanced"]]
    assert all(real["score"] < link["score"] for real, link in zip(found["real"], found["balanced"], strict=True))
    code, out, _ = cli("forecast", "run", "--calibrate", "real")
    assert code == 0 and "among all pairs of nodes (base rate: 2 of 66 pairs in the last snapshot, 0.03)" in out
    code, out, _ = cli("forecast", "run")
    assert code == 0 and "for a balanced mix of links and non-links" in out
