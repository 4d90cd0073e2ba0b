"""--directed from a log to forecasts: output, files and updates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from run_folders import quick

from dysat.runs.run import Run

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
SMALL = [
    *(f"--set={side}_{what}={n}" for side in ("structural", "temporal") for what, n in (("heads", 2), ("features", 8))),
    *("--epochs=1", "--device=cpu", "--no-backtest"),
]


def log(folder: Path, name: str, weeks: range) -> Path:
    """Bosses write to their staff, who rarely answer."""
    rows = [f"boss{i % 3},staff{(i + week) % 11},2024-01-{7 * week + 1:02}" for week in weeks for i in range(24)]
    rows += [f"staff{week},boss{week % 3},2024-01-{7 * week + 2:02}" for week in weeks]
    (folder / name).write_text("\n".join(["src,dst,time", *rows]) + "\n")
    return folder / name


def test_snapshots_say_which_it_is(cli: Cli, tmp_path: Path) -> None:
    file = log(tmp_path, "mail.csv", range(3))
    code, out, _ = cli("snapshots", file, "--every=1w")
    assert code == 0 and "undirected: who sent a link is not kept" in out
    code, out, _ = cli("snapshots", file, "--every=1w", "--directed", "-o", tmp_path / "graph")
    assert code == 0 and "directed: 75 links from one node to another; in 4% of the linked pairs both sent one" in out
    code, out, _ = cli("info", tmp_path / "graph", "--json")
    assert json.loads(out)["directed"] is True
    code, _, err = cli("snapshots", file, "--every=1w", "--directed", "--kinds=user,item")
    assert code == 2 and "--directed with two kinds of nodes" in err


def test_a_run_forecasts_and_updates_with_direction(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    code, out, err = cli("fit", log(tmp_path, "mail.csv", range(3)), "--every=1w", "--directed", "-o", run, *SMALL)
    assert code == 0, err
    assert "most likely next links: from →" in out and "direction is not used" not in out
    code, out, err = cli("update", run, log(tmp_path, "new.csv", range(3, 4)), "--json")
    assert code == 0, err
    assert all(link["u"].startswith("boss") for link in json.loads(out)["top_links"][:5])
    opened = Run.open(run)
    graph = opened.graph()
    assert graph.directed and len(graph) == 4 and len(graph[3].arcs()[0]) == 25
    code, out, _ = cli("forecast", run, "--node=boss1", "--top=4", "--json")
    assert code == 0 and {link["node"] for link in json.loads(out)} == {"boss1"}


def test_a_run_without_direction_cannot_continue_with_it(cli: Cli, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cli("fit", log(tmp_path, "mail.csv", range(3)), "--every=1w", "-o", run, *SMALL)[0] == 0
    code, _, err = cli("update", run, log(tmp_path, "new.csv", range(3, 4)), "--directed")
    assert code == 2 and f"--directed, but {run} was made with no --directed" in err


def test_methods_without_roles_say_so(cli: Cli, tmp_path: Path) -> None:
    file = log(tmp_path, "mail.csv", range(3))
    code, out, err = cli(
        "fit", file, "--every=1w", "--directed", "-o", tmp_path / "run", "--model=svd", "--no-backtest"
    )
    assert code == 0, err
    assert "direction is not used by svd; pairs are scored alike in both directions" in out
