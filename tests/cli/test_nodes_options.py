"""Attributes of nodes on the command line: --nodes and its options, and inputs=features without any."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from run_folders import quick

import dysat

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
QUICK = ["--set=epochs=1", "--set=spectrum=2", "--set=device=cpu"]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [(f"p{i % 9}", f"p{(2 * i + i // 20 + 1) % 11}", 1 + i // 20) for i in range(80)]
    lines = [f"{u},{v},2024-0{month}-{1 + i % 20:02d}" for i, (u, v, month) in enumerate(rows) if u != v]
    Path("mail.csv").write_text("from,to,sent\n" + "\n".join(lines) + "\n")
    people = [f"p{i},{'sales' if i % 2 else 'it'},{20 + i if i else ''}" for i in range(12)]
    Path("people.csv").write_text("email,department,age\n" + "\n".join(people) + "\n")
    moves = ["p0,2024-01-01,it", "p0,2024-03-05,sales", "p1,2024-01-01,sales"]
    Path("moves.csv").write_text("who,since,department\n" + "\n".join(moves) + "\n")


def test_snapshots_and_info_list_the_attributes(cli: Cli) -> None:
    words = ["mail.csv", "--every=1mo", "--nodes=people.csv", "--node-id=email", "-o", "graph"]
    code, out, err = cli("snapshots", *words)
    assert code == 0, err
    line = "attributes: department (2 categories), age (number, 9 % missing)"
    assert line in out.splitlines() and "people.csv: ids that are not in the log, ignored: 1 of 12" in out
    code, out, _ = cli("info", "graph")
    assert code == 0 and line in out.splitlines()
    facts = json.loads(cli("info", "graph", "--json")[1])
    assert facts["attributes"] == ["department (2 categories)", "age (number, 9 % missing)"]
    graph = dysat.DynamicGraph.load("graph")
    assert graph.feature_names == ("department=it", "department=sales", "age", "age missing")


def test_values_per_window_and_several_tables(cli: Cli) -> None:
    words = ["mail.csv", "--every=1mo", "--nodes=moves.csv", "--node-id=who", "--node-time=since", "-o", "graph"]
    code, out, err = cli("snapshots", *words)
    assert code == 0 and "attributes in each window: department (2 categories, 82 % missing)" in out, err
    features = dysat.DynamicGraph.load("graph").features
    assert isinstance(features, tuple) and [part[0].argmax().item() for part in features] == [0, 0, 1, 1]
    two = ["--nodes=moves.csv", "--nodes=people.csv", "--node-id=who", "--node-id=email", "--node-columns=department"]
    code, out, err = cli("snapshots", "mail.csv", "--every=1mo", *two, "--node-time=since", "--node-time=since")
    assert code == 2 and "people.csv: no column 'since' for times; there are email, department, age" in err


def test_a_run_keeps_them(cli: Cli) -> None:
    code, _, err = cli("snapshots", "mail.csv", "--every=1mo", "-o", "graph")
    assert code == 0, err
    for source, how in (("mail.csv", ["--every=1mo"]), ("graph", [])):
        words = [source, *how, "--nodes=people.csv", "--node-columns=department", *QUICK, "-o", f"run-{source}"]
        code, _, err = cli("fit", *words)
        assert code == 0, err
        graph = dysat.DynamicGraph.load(f"run-{source}/graph")
        assert graph.feature_names == ("department=it", "department=sales")
    events = tomllib.loads(Path("run-mail.csv/config.toml").read_text())["events"]
    assert events["nodes"] == ["people.csv"] and events["node_columns"] == ["department"]
    Path("more.csv").write_text("from,to,sent\np1,new,2024-05-01\np2,p3,2024-05-09\np2,p4,2024-06-02\n")
    code, _, err = cli("update", "run-mail.csv", "more.csv", "--nodes=people.csv")
    assert code == 2 and err.startswith("dysat: --nodes: an update adds no attributes; those of new nodes are missing")
    code, _, err = cli("update", "run-mail.csv", "more.csv", "--until=2024-06-01")
    assert code == 0 and "new nodes without attributes: 1; fit again to add them" in err, err
    assert cli("forecast", "run-mail.csv")[0] == 0


def test_both_sides_of_bipartite_data(cli: Cli) -> None:
    rows = [f"{i % 4},{(i * 3) % 5},{i // 5}" for i in range(20)]
    Path("ratings.csv").write_text("user,item,step\n" + "\n".join(rows) + "\n")
    Path("users.csv").write_text("id,age\n0,20\n1,30\n2,40\n3,50\n")
    Path("items.csv").write_text("item,genre\n0,jazz\n1,rock\n2,jazz\n3,rock\n4,rock\n")
    words = [
        "ratings.csv",
        "--time=step",
        "--time-unit=step",
        "--every=1",
        "--kinds=user,item",
        "--nodes=user=users.csv",
    ]
    code, out, err = cli("snapshots", *words, "--nodes=item=items.csv")
    assert code == 0 and "attributes: age (number, 56 % missing), genre (2 categories, 44 % missing)" in out, err
    code, _, err = cli("snapshots", *words[:-1], "--nodes=users.csv")
    assert code == 2 and "users.csv: '0' is a node of both kinds; say which: --nodes user=FILE" in err
    code, _, err = cli("evaluate", *words, "--model=pair-logistic", "--processes=1", "--first=3")
    assert code == 0, err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--node-id email", "--node-id needs --nodes, the table it belongs to"),
        ("--nodes people.csv --node-id mail", "people.csv: no column 'mail' for ids; there are email, department, age"),
        ("--nodes nobody.csv", "nobody.csv: no such file"),
        ("--nodes moves.csv", "moves.csv: which column has the ids (--node-id)? There are who, since, department"),
        ("--nodes moves.csv --node-id who", "moves.csv: 'p0' has two rows that differ in"),
        ("--nodes user=people.csv", "people.csv: no kind 'user'; nodes have no kinds (--kinds)"),
        (
            "--nodes people.csv --node-id a --node-id b --nodes moves.csv --nodes people.csv",
            "--node-id is given 2 times for 3 tables (--nodes)",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(cli: Cli, words: str, message: str) -> None:
    code, _, err = cli("fit", "mail.csv", "--every=1mo", *words.split())
    assert code == 2 and err.startswith(f"dysat: {message}") and err.count("\n") == 1
    assert not Path("run").exists()


LACKS = "inputs=features, but the graph has no features; a table of node attributes gives some (--nodes FILE"


@pytest.mark.parametrize("command", ["fit", "evaluate", "tune"])
@pytest.mark.parametrize("model", ["dysat:program", "gcn-ae", "graphsage", "incsat"])
def test_models_that_need_features_are_refused_before_any_work(cli: Cli, command: str, model: str) -> None:
    code, out, err = cli(command, "mail.csv", "--every=1mo", "--model", model, "--set=inputs=features", "-o", "out")
    assert code == 2 and not out and err.splitlines()[-1].startswith(f"dysat: --set {LACKS}")  # after the notes
    assert not Path("out").exists()
    graph = dysat.build_snapshots(dysat.read_events("mail.csv"), every="1mo")
    method, _, preset = model.partition(":")
    kind = dysat.MODELS[method]
    learner = kind.from_preset(preset, inputs="features") if preset else kind(inputs="features")
    with pytest.raises(dysat.ModelError, match=r"^inputs='features', but the graph has no features; a table of"):
        learner.fit(graph)


def test_the_default_has_inputs_of_its_own(cli: Cli) -> None:
    """inputs=features leaves out the learned vectors; activity and spectrum remain."""
    words = ["mail.csv", "--every=1mo", "--set=inputs=features"]
    assert cli("fit", *words, *QUICK, "-o", "run")[0] == 0
    graph = dysat.build_snapshots(dysat.read_events("mail.csv"), every="1mo")
    options = {"inputs": "features", "epochs": 1, "device": "cpu"}
    assert dysat.DySAT(spectrum=2, **options).fit(graph).embed().shape == (graph.num_nodes, 128)  # type: ignore[arg-type]
    code, _, err = cli("fit", *words, "--set=activity=false", "--set=spectrum=0", "-o", "run2")
    assert code == 2 and err.startswith(f"dysat: --set {LACKS}")
    with pytest.raises(dysat.ModelError, match=r"^inputs='features', but the graph has no features"):
        dysat.DySAT(activity=False, spectrum=0, **options).fit(graph)  # type: ignore[arg-type]
