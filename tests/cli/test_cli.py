"""The command line: output, and one line with exit code 2 for errors."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dysat
from dysat.cli.options import as_options

Cli = Callable[..., tuple[int, str, str]]
CSV = "from,to,sent\nann,bob,2024-01-01\nbob,cy,2024-01-05\nann,cy,2024-01-20\nann,ann,2024-01-21\n"


@pytest.fixture
def mail(tmp_path: Path) -> Path:
    path = tmp_path / "mail.csv"
    path.write_text(CSV)
    return path


def test_snapshots_shows_and_writes(cli: Cli, mail: Path, tmp_path: Path) -> None:
    out = tmp_path / "graph"
    code, text, err = cli(
        "snapshots", mail, "--src", "from", "--dst", "to", "--time", "sent", "--every", "1w", "-o", out
    )
    assert (code, err) == (0, "")
    for part in (
        "3 nodes, 3 snapshots, 3 links (3 distinct)",
        "2024-01-01 … 2024-01-08",
        "1 event of a node with itself: dropped",
        "written to",
    ):
        assert part in text
    graph = dysat.DynamicGraph.load(out)
    assert graph.nodes.tolist() == ["ann", "bob", "cy"] and graph.known == (3, 3, 3)


def test_json_equals_the_library(cli: Cli, mail: Path, tmp_path: Path) -> None:
    code, text, _ = cli("snapshots", mail, "--every", "1w", "--self-loops", "keep", "--json", "-o", tmp_path / "g")
    facts = json.loads(text)
    graph = dysat.build_snapshots(dysat.read_events(mail), every="1w", self_loops="keep")
    assert (
        code == 0 and facts["fingerprint"] == graph.fingerprint == dysat.DynamicGraph.load(tmp_path / "g").fingerprint
    )
    assert [row["links"] for row in facts["snapshots"]] == [2, 0, 2] and facts["report"]["self_loops"] == 1
    again = json.loads(cli("info", tmp_path / "g", "--json")[1])
    assert again["snapshots"] == facts["snapshots"] and again["notes"] == facts["notes"]


def test_info_of_a_dataset(cli: Cli) -> None:
    code, text, _ = cli("info", "uci")
    assert code == 0 and "1,809 nodes, 13 snapshots, 16,822 links (13,228 distinct)" in text
    assert [line.split()[9] for line in text.splitlines() if "… 2004" in line] == [
        *("1,593", "3,653", "3,020", "3,637", "1,849", "813", "244", "547", "377", "323", "249", "281", "236"),
    ]


def test_datasets_lists_availability(cli: Cli, tmp_path: Path) -> None:
    code, text, _ = cli("datasets", "--data-dir", tmp_path)
    assert code == 0 and "uci" in text and f"put it in {tmp_path / 'yelp'}" in text.replace("\n", "")
    rows = {row["name"]: row for row in json.loads(cli("datasets", "--json", "--data-dir", tmp_path)[1])["datasets"]}
    assert rows["uci"]["ready"] and not rows["enron"]["ready"] and rows["ml-10m"]["links"] == 49_271


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["snapshots", "MAIL", "--time", "send", "--every", "1w"],
            "no column 'send' for time; there are from, to, sent; did you mean 'sent'?",
        ),
        (
            ["snapshots", "MAIL"],
            "give one of --every, --count and --boundaries; the events span 20 days, so --every 1d might do",
        ),
        (["snapshots", "MAIL", "--every", "1s"], "more than 10,000"),
        (["snapshots", "MAIL", "--every", "1y"], "all 4 events fall in one window"),
        (["snapshots", "MAIL", "--every", "1w", "-o", "MAIL"], "exists already"),
        (["snapshots", "nowhere.csv", "--every", "1w"], "nowhere.csv: no such file"),
        (["snapshots", "MAIL", "--every", "1w", "--kinds", "user"], "kinds must be two different names"),
        (["info", "nowhere"], "no such folder, and no dataset of that name"),
        (["info", "MAIL"], "not a graph folder"),
        (["info", "enron", "--data-dir", "nowhere"], "is missing; get it from"),
    ],
)
def test_errors_are_one_line(cli: Cli, mail: Path, args: list[str], message: str) -> None:
    before = sorted(mail.parent.iterdir())
    code, out, err = cli(*(str(mail) if arg == "MAIL" else arg for arg in args))
    assert code == 2 and out == "" and err.startswith("dysat: ") and err.count("\n") == 1
    assert message in err
    assert sorted(mail.parent.iterdir()) == before


@pytest.mark.parametrize("args", ["snapshots", "snapshots x --evry 1w", "snaphots", "snapshots x --count y"])
def test_usage_errors_are_one_line(cli: Cli, args: str) -> None:
    code, out, err = cli(*args.split())
    assert code == 2 and out == "" and err.startswith("dysat: ") and err.count("\n") == 1 and "--help" in err


def test_names_with_markup_are_printed_verbatim(cli: Cli, mail: Path, tmp_path: Path) -> None:
    odd = tmp_path / "[bold]a[b].csv"
    odd.write_text(CSV)
    code, out, _ = cli("snapshots", odd, "--every", "1w", "--kinds", "[/x],b", "-o", tmp_path / "[x]out")
    assert code == 0 and "[bold]a[b].csv: " in out and "[/x]" in out and "[x]out" in out


def test_short_windows_show_seconds(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("src,dst,time\na,b,2024-01-01T00:00:00\nb,c,2024-01-01T00:00:25\n")
    assert "2024-01-01 00:00:10 … 2024-01-01 00:00:20" in cli("snapshots", tmp_path / "s.csv", "--every", "10s")[1]


def test_system_errors_are_one_line(cli: Cli, mail: Path) -> None:
    assert cli("info", "a" * 300)[0] == 2
    code, _, err = cli("datasets", "--data-dir", "a" * 300)
    assert code in (0, 2) and err.count("\n") <= 1


def test_full_disk_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(full, write_through=True))
        assert cli("info", "uci") == (2, "", "dysat: [Errno 28] No space left on device\n")


def test_output_in_ascii(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", written)
    assert cli("info", "uci") == (0, "", "")
    written.seek(0)
    assert written.read().startswith("uci: 1,809 nodes")


def test_output_folder_is_checked_first(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    assert "exists already" in cli("snapshots", tmp_path / "nowhere.csv", "--every", "1w", "-o", tmp_path / "g")[2]


def test_every_option_reaches_the_library(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("1|1|15.01.2024 10:00|2\n2|1|16.01.2024 10:00|3\n1|2|1.2.2024 10:00|4\nx|y|never|1\n")
    options = [
        "--separator",
        "|",
        "--no-header",
        "--src",
        1,
        "--dst",
        2,
        "--time",
        3,
        "--weight",
        4,
        "--kinds",
        "user,item",
    ]
    options += ["--time-format", "%d.%m.%Y %H:%M", "--timezone", "Europe/Paris", "--skip-bad-rows", "--format", "csv"]
    facts = json.loads(
        cli("snapshots", log, *options, "--boundaries", "2024-01-15,2024-01-16T09:00,2024-03-01", "--json")[1]
    )
    assert facts["kinds"] == {"user": 2, "item": 2} and [row["weight"] for row in facts["snapshots"]] == [2, 7]
    assert "1 of 4 rows could not be read and were skipped" in facts["notes"]
    steps = tmp_path / "steps.txt"
    steps.write_text("1 2 0\n2 3 4\n3 4 9\n")
    facts = json.loads(
        cli("snapshots", steps, "--time-unit", "step", "--every", 2, "--start", 0, "--stop", 9, "--json")[1]
    )
    assert [row["start"] for row in facts["snapshots"]] == ["0", "2", "4", "6", "8"] and facts["report"]["after"] == 1
    assert len(json.loads(cli("snapshots", steps, "--time-unit", "step", "--count", 3, "--json")[1])["snapshots"]) == 3


def test_overwrite(cli: Cli, mail: Path, tmp_path: Path) -> None:
    assert cli("snapshots", mail, "--every", "1w", "-o", tmp_path / "g")[0] == 0
    assert cli("snapshots", mail, "--every", "1d", "-o", tmp_path / "g", "--overwrite")[0] == 0
    assert len(dysat.DynamicGraph.load(tmp_path / "g")) == 21


def test_help_has_an_example(cli: Cli) -> None:
    code, text, _ = cli("snapshots", "--help")
    assert code == 0 and "dysat snapshots mail.csv --src from --dst to" in " ".join(text.split())
    assert cli("--version")[1] == f"dysat {dysat.__version__}\n"


def test_arguments_in_messages_become_options() -> None:
    text = "every='1w' and time_unit= are options, start=2024-01-01; sum=3 is none"
    assert as_options(text) == "--every 1w and --time-unit are options, --start 2024-01-01; sum=3 is none"


def test_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -c 'from dysat.cli import main; main()' models dysat | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == "" and done.stdout.startswith("dysat: ")
