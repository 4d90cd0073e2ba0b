"""fit, embed and forecast: output, files, one-line errors, and Ctrl-C."""

from __future__ import annotations

import csv
import gc
import json
import os
import re
import signal
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest
import torch
from run_folders import (
    GUARD,
    RESULTS,
    SMALL,
    assert_same,
    be_quick,
    checkpoint_progress,
    file_contains,
    names,
    quick,
    small_graph,
    small_model,
    start_command,
    wait_until,
)

import dysat
from dysat.cli import learn
from dysat.cli.output import watching
from dysat.cli.output.show import score_text
from dysat.runs.checkpoints import CHECKPOINTS
from dysat.runs.run import Run
from dysat.training import Epoch

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]
TINY = [
    f"--set={side}_{what}={n}" for side in ("structural", "temporal") for what, n in (("heads", 2), ("features", 8))
]
TINY += ["--epochs=1", "--device=cpu"]
PAPER = ["--set=walks_per_node=1", *TINY]  # for the paper's models, which use random walks
MAILS = [(f"p{i}", f"p{(2 * i + week) % 9}", f"2024-01-{7 * week + 1:02}") for week in range(4) for i in range(9)]


@pytest.fixture
def cli(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Run a command line in an empty folder; returns exit code, output and errors."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return cli


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on a graph whose nodes are numbers."""
    folder = tmp_path_factory.mktemp("trained")
    assert Run.start(folder / "run", small_graph(), small_model()).train()
    return folder / "run"


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on users and films; a user and a film share a name."""
    folder = tmp_path_factory.mktemp("films")
    rows = [(f"u{i}", f"f{(i + step) % 5}", step) for step in range(4) for i in range(6)] + [("gandhi", "gandhi", 0)]
    events = dysat.read_events(tuple(map(list, zip(*rows, strict=True))), kinds=("user", "film"), time_unit="step")  # type: ignore[arg-type]
    graph = dysat.build_snapshots(events, every=1)
    assert Run.start(folder / "run", graph, small_model(history=3, epochs=1)).train()
    return folder / "run"


def as_rows(found: list[dysat.Forecast]) -> list[dict[str, Any]]:
    return [{"u": link.u, "v": link.v, "score": round(link.score, 9), "known": link.known} for link in found]


def as_table(found: dysat.Forecasts) -> list[dict[str, Any]]:
    """The rows of a table of forecasts."""
    start, end = found.window
    names = ("node", "partner") if found.by_node else ("u", "v")
    rows = []
    for i, (u, v, score, known) in enumerate(found):
        row: dict[str, Any] = dict(zip(names, (u, v), strict=True))
        if found.kinds is not None:
            row |= {f"{name}_kind": str(kind) for name, kind in zip(names, found.kinds[i], strict=True)}
        row |= {"score": round(score, 9), "known": known, "rank": int(found.ranks[i])}
        rows.append({**row, "window_start": start, "window_end": end})
    return rows


def link_lines(out: str) -> list[list[str]]:
    """The rows of the table of links in an output."""
    lines = out[out.index("most likely next links") :].splitlines()[2:]
    return [line.split() for line in lines if re.search(r" (yes|no) *$", line)]


def test_fit_a_dataset(cli: Cli) -> None:
    code, out, err = cli("fit", "uci", "--preset", "program", *PAPER, "--backtest-windows", 2)
    assert code == 0 and re.findall(r"(backtest|training): epoch 1 of 1, loss .*, 1 epoch in ", err) == [
        *["backtest"] * 2,
        "training",
    ]
    assert names(Path("run")) == RESULTS | {"report.html"}
    run = Run.open("run")
    metrics, model = run.metrics(), run.model("cpu")
    assert f"AUC {metrics['backtest']['auc']:.4f} ± " in " ".join(out.split())
    newest = metrics["backtest"]["windows"][-1]
    assert f" {newest['links']} model {newest['auc']:.4f} " in " ".join(out.split())
    expected = [[str(u), str(v), f"{s:.3f}", "yes" if known else "no"] for u, v, s, known in model.top_links(10)]
    assert link_lines(out) == expected and len(expected) == 10
    assert "1 epoch on cpu, " in out and f"written to {Path('run').absolute()}" in out


def test_a_graph_that_was_read_is_freed_before_training(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    small_graph().save("graph")
    find_graph, train, read, freed = learn.find_graph, Run.train, list[Any](), list[bool]()

    def found(*args: Any) -> Any:
        graph, made = find_graph(*args)
        read.append(weakref.ref(graph.snapshots[0]))
        return graph, made

    def trained(run: Run, *args: Any, **options: Any) -> bool:
        gc.collect()
        freed.append(read[0]() is None)
        return train(run, *args, **options)

    monkeypatch.setattr(learn, "find_graph", found)
    monkeypatch.setattr(Run, "train", trained)
    assert cli("fit", "graph", *PAPER, "--model", "dysat:text")[0] == 0 and freed == [True]


def test_fit_a_graph_folder_as_json(cli: Cli) -> None:
    small_graph().save("graph")
    code, out, _ = cli("fit", "graph", *PAPER, "--json", "-o", "deep/run", "--seed", 3, "--model", "dysat:text")
    facts, run = json.loads(out), Run.open("deep/run")
    assert code == 0 and facts.pop("run") == str(Path("deep/run").absolute())
    assert facts.pop("report") == str(Path("deep/run/report.html").absolute())
    assert facts.pop("top_links") == as_rows(run.model("cpu").top_links(10)) and facts == run.metrics()
    options = dysat.DySAT.from_preset("text", **SMALL | {"walks_per_node": 1, "epochs": 1, "seed": 3})
    options.learning_rate = 0.001
    assert dysat.DySAT.with_options(run.config["options"]).get_params() == options.get_params()
    assert run.config["source"] == "graph" and run.graph().equals(small_graph())


@pytest.mark.parametrize("method", ["dysat", "incsat", "gcn-ae"])
def test_bare_method_has_the_defaults_of_its_constructor(cli: Cli, method: str) -> None:
    small_graph().save("graph")
    given = ["--epochs=1", "--device=cpu", "--set=learning_rate=0.02"]
    code, _, err = cli("fit", "graph", "--model", method, "--no-backtest", *given)
    assert code == 0, err
    kind, changed = dysat.MODELS[method], {"epochs": 1, "device": "cpu", "learning_rate": 0.02}
    expected = kind(**changed)  # type: ignore[arg-type]
    assert kind.with_options(Run.open("run").config["options"]).get_params() == expected.get_params()


@pytest.mark.slow
def test_fit_with_a_preset_tuned_for_a_dataset(cli: Cli) -> None:
    code, _, err = cli("fit", "uci", *PAPER, "--preset", "sankar2019_uci", "--no-backtest")
    assert code == 0, err
    tuned, options = dysat.DySAT.from_preset("sankar2019_uci").get_params(), Run.open("run").config["options"]
    changed = {key for key, value in dysat.DySAT.with_options(options).get_params().items() if value != tuned[key]}
    assert changed == {option.removeprefix("--set=").removeprefix("--").split("=")[0] for option in PAPER}


def test_fit_a_log_of_events(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "mail.csv"
    log.write_text("sent,to,from\n" + "".join(f"{sent},{v},{u}\n" for u, v, sent in MAILS))
    columns = ["--src", "from", "--dst", "to", "--time", "sent"]
    code, out, _ = cli("fit", log, *columns, "--every", "1w", "--no-backtest", *TINY)
    assert code == 0 and "AUC" not in out
    assert {label for row in link_lines(out) for label in row[:2]} <= {f"p{i}" for i in range(9)}
    run, expected = Run.open("run"), dysat.build_snapshots(dysat.read_events(log, "from", "to", "sent"), every="1w")
    assert run.graph().equals(expected) and run.metrics()["backtest"] is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fit", "no source: give a log of events, a graph folder or the name of a dataset"),
        ("fit uic", "no such file or folder, and no dataset of that name (there are enron, uci, yelp, ml-10m); did"),
        ("fit uci --src a", "uci is a dataset and already cut into snapshots; --src has no effect"),
        ("fit GRAPH --every 1w", "is a graph folder and already cut into snapshots; --every has no effect"),
        ("fit LOG", "give one of --every, --count and --boundaries"),
        ("fit GRAPH -o GRAPH", "graph: exists already, choose another folder\n"),
        ("fit GRAPH -o RUN", "run: exists already, choose another folder; dysat fit --resume /"),
        ("fit GRAPH --preset progam", "no preset 'progam'; there are default, program, text, sankar2019_enron, "),
        ("fit GRAPH --set structural_heads=3", "does not divide --set structural_features=128; divisors are"),
        ("fit GRAPH --set temporal_heads=2,2", "one of each for every layer"),
        ("fit GRAPH --set structural_heads=a,b", "--set structural_heads=a is not a whole number"),
        ("fit GRAPH --set normalize=sideways", "--set normalize=sideways is not one of receiver, sender"),
        ("fit GRAPH --epochs -1", "--epochs -1 must not be negative"),
        ("fit GRAPH --set temporal_dropout=1", "--set temporal_dropout=1.0 must lie in [0, 1)"),
        pytest.param("fit GRAPH --device nowhere", "--device nowhere does not exist here; there are cpu"),
        ("fit GRAPH --model dysat:program --set inputs=features", "inputs=features, but the graph has no features"),
        ("fit GRAPH --seed 99999999999999999999", "--seed 99999999999999999999 must be below 2^64"),
        ("fit GRAPH --set clip_norm=inf", "--set clip_norm=inf must be a number above 0"),
        ("fit GRAPH --resume RUN", "continues with the options of the run; give nothing but --device"),
        ("fit --resume RUN --epochs 3", "give nothing but --device"),
        ("fit --resume RUN --set l2=0", "give nothing but --device"),
        ("fit GRAPH --model edgebank", "edgebank has no embeddings, use it with dysat evaluate"),
        pytest.param("fit --resume RUN --out other", "give nothing but --device"),
        pytest.param("fit --resume RUN --preset text", "give nothing but --device"),
        pytest.param("fit --resume RUN --no-backtest", "give nothing but --device"),
        pytest.param("fit --resume RUN --every 1w", "give nothing but --device"),
        ("fit --resume GRAPH", "graph: not a run folder (it has no config.toml)"),
        ("fit --resume nowhere", "nowhere: no such folder"),
        ("embed FRESH -o e.csv", "not trained yet; dysat fit --resume /"),
        ("embed RUN", "'--out'"),
        ("embed RUN -o e.txt", "e.txt: tables are written as .parquet, .csv or .jsonl"),
        ("embed RUN -o nowhere/e.csv", "nowhere/e.csv: cannot be written: there is no folder"),
        ("embed RUN -o e.csv --step soon", "--step soon is neither a whole number nor 'all'"),
        ("embed RUN -o e.csv --step 5", "step 5: the model knows steps 0 to 4"),
        ("embed RUN -o e.csv --step -6", "step -6: the model knows steps 0 to 4"),
        ("forecast FRESH", "not trained yet; dysat fit --resume /"),
        ("forecast RUN --top 0", "--top 0 must be at least 1"),
        ("forecast RUN --known perhaps", "'perhaps' is not one of 'include', 'exclude'"),
        ("forecast RUN --node 399", "no node 399; did you mean '39'?"),
        ("forecast RUN --node ann", "no node 'ann'"),
        ("forecast RUN --device nowhere", "--device nowhere does not exist here"),
        pytest.param("forecast RUN --node=--5", "no node '--5'"),
        ("forecast FILMS --node gandi", "no node 'gandi'; did you mean 'gandhi'?"),
        ("forecast FILMS --node gandhi", "node 'gandhi' is of several kinds (user, film); say which"),
        ("forecast FILMS --node u1 --kind film", "no node 'u1' of kind 'film'"),
    ],
)  # fmt: skip
def test_errors_are_one_line(cli: Cli, trained: Path, films: Path, tmp_path: Path, line: str, message: str) -> None:
    small_graph().save(tmp_path / "graph")
    (tmp_path / "log.csv").write_text("src,dst,time\na,b,2024-01-01\nb,c,2024-01-20\n")
    Run.start(tmp_path / "fresh", small_graph(), small_model())
    places = {"GRAPH": tmp_path / "graph", "LOG": tmp_path / "log.csv", "FRESH": tmp_path / "fresh"}
    places |= {"RUN": trained, "FILMS": films}
    before = {file: file.stat().st_mtime_ns for place in (tmp_path, trained) for file in place.rglob("*")}
    code, out, err = cli(*(places.get(word, word) for word in line.split()))
    assert (code, out) == (2, "") and err.startswith("dysat: ") and err.count("\n") == 1 and message in err
    assert before == {file: file.stat().st_mtime_ns for place in (tmp_path, trained) for file in place.rglob("*")}


def test_source_name_that_is_not_unicode(cli: Cli) -> None:
    small_graph().save(os.fsdecode(b"\xff"))
    assert cli("fit", os.fsdecode(b"\xff"), *TINY)[0] == 0


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("step", "steps"), [("all", [0, 1, 2, 3, 4]), ("0", [0]), ("-1", [4]), ("−2", [3]), (None, [4])]
)
def test_embed(cli: Cli, trained: Path, suffix: str, step: str | None, steps: list[int]) -> None:
    Path(f"e.{suffix}").write_text("replaced")
    code, out, err = cli("embed", trained, "-o", f"e.{suffix}", *(["--step", step] if step else []))
    model, known = Run.open(trained).model("cpu"), small_graph().known
    rows = sum(known[step] for step in steps)
    assert (code, out, err) == (0, f"{rows} embeddings written to e.{suffix}\n", "") and names(Path()) == {
        f"e.{suffix}"
    }
    if suffix == "parquet":
        table = pl.read_parquet("e.parquet")
        found, nodes = torch.tensor(table["embedding"].to_numpy()), table["node"].to_list()
        at = table["step"].to_list()
    else:
        with open("e.csv", newline="") as file:
            header, *lines = csv.reader(file)
        assert header == ["node", "step", *(f"embedding_{i}" for i in range(8))]
        found = torch.tensor([[float(x) for x in line[2:]] for line in lines])
        nodes, at = [int(line[0]) for line in lines], [int(line[1]) for line in lines]
    assert at == [step for step in steps for _ in range(known[step])]
    assert nodes == [node for step in steps for node in small_graph().nodes[: known[step]].tolist()]
    torch.testing.assert_close(found, torch.cat([model.embed(step) for step in steps]), rtol=0, atol=0)
    facts = json.loads(cli("embed", trained, "-o", f"e.{suffix}", *(["--step", step] if step else []), "--json")[1])
    assert facts == {"out": f"e.{suffix}", "rows": rows, "features": 8}


def test_embed_writes_kinds_and_only_known_steps(cli: Cli, films: Path) -> None:
    graph = Run.open(films).graph()
    assert cli("embed", films, "-o", "e.csv", "--step", "all")[0] == 0 and graph.kinds is not None
    with open("e.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    ids = [i for step in (1, 2, 3) for i in range(graph.known[step])]  # history=3
    expected = [(graph.nodes[i], graph.kind_names[graph.kinds[i]]) for i in ids]
    assert [(row["node"], row["kind"]) for row in rows] == expected
    assert [row["step"] for row in rows] == [str(step) for step in (1, 2, 3) for _ in range(graph.known[step])]


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ([], {}),
        (["--top", 3], {"k": 3}),
        (["--node", 7], {"node": 7}),
        (["--node", 7, "--known", "exclude", "--top", 4], {"node": 7, "known": "exclude", "k": 4}),
        (["--known", "exclude"], {"known": "exclude"}),
    ],
    ids=["all", "top", "node", "node-exclude", "exclude"],
)
def test_forecast(cli: Cli, trained: Path, args: list[object], options: dict[str, Any]) -> None:
    found = Run.open(trained).model("cpu").top_links(**options)
    code, out, err = cli("forecast", trained, *args)
    assert (code, err) == (0, "") and len(found) == options.get("k", 10)
    assert link_lines(out) == [[str(u), str(v), f"{s:.3f}", "yes" if known else "no"] for u, v, s, known in found]
    assert json.loads(cli("forecast", trained, *args, "--json")[1]) == as_table(found)
    assert all(7 in (link.u, link.v) for link in found) or "node" not in options
    assert not any(link.known for link in found) or "known" not in options


@pytest.fixture(scope="module")
def forecast_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the default model without embeddings."""
    folder = tmp_path_factory.mktemp("forecast_only")
    assert Run.start(folder / "run", small_graph(), dysat.DySAT(embeddings=False), backtest=False).train()
    return folder / "run"


def test_forecast_with_reasons(cli: Cli, forecast_only: Path) -> None:
    model = Run.open(forecast_only).model("cpu")
    assert isinstance(model, dysat.DySAT)
    found = model.top_links(3)
    whys = model.why(found)
    code, out, err = cli("forecast", forecast_only, "--top", 3, "--why")
    assert (code, err) == (0, "") and "share: part of all effects on the score" in out
    text = " ".join(out.split())
    for link, why in zip(found, whys, strict=True):
        told = [f"{100 * reason.share:+.0f} % {reason.text}" for reason in why.reasons]
        start = f"{link.u} {link.v} {score_text(link.score)} {'yes' if link.known else 'no'}"
        assert len(told) == 5 and " ".join([start, *told]) in text
    rows = json.loads(cli("forecast", forecast_only, "--top", 3, "--why", "--json")[1])
    assert [row.pop("why") for row in rows] == [[reason._asdict() for reason in why.reasons] for why in whys]
    assert rows == as_table(found)
    code, out, _ = cli("forecast", forecast_only, "--each", "--top", 2, "--why")
    assert code == 0 and out.count(" % ") >= 10 and "the first 10 of" in out


def test_reasons_need_a_pair_score(cli: Cli, trained: Path) -> None:
    code, out, err = cli("forecast", trained, "--why")
    assert (
        (code, out) == (2, "") and err.startswith("dysat: only a pair score can be explained") and err.count("\n") == 1
    )


@pytest.mark.parametrize(("node", "kind"), [("u1", None), ("f1", "film"), ("gandhi", "user"), ("gandhi", "film")])
def test_forecast_of_kinds(cli: Cli, films: Path, node: str, kind: str | None) -> None:
    found = Run.open(films).model("cpu").top_links(20, node=node, kind=kind)
    line = ["forecast", films, "--node", node, "--top", 20, *(["--kind", kind] if kind else []), "--json"]
    assert json.loads(cli(*line)[1]) == as_table(found) and all(link.u == node for link in found)
    others = (
        {"f0", "f1", "f2", "f3", "f4", "gandhi"} if kind in (None, "user") else {"gandhi", *(f"u{i}" for i in range(6))}
    )
    assert {link.v for link in found} == others


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize(
    "args", [["--each", "--top", 2], ["--node", "u1", "--node", "f1"], []], ids=["each", "nodes", "all"]
)
def test_forecasts_are_written(cli: Cli, films: Path, tmp_path: Path, suffix: str, args: list[Any]) -> None:
    options = {"--each": {"k": 2, "each": True}, "--node": {"node": ["u1", "f1"]}}.get(str(args[0]) if args else "", {})
    found = Run.open(films).model("cpu").top_links(**options)
    file = tmp_path / f"forecasts{suffix}"
    code, out, err = cli("forecast", films, *args, "-o", file)
    assert (code, err) == (0, "") and out == f"{found.title()} written to {file}\n"
    table = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".jsonl": pl.read_ndjson}[suffix](file)
    assert [{**row, "score": round(row["score"], 9)} for row in table.to_dicts()] == as_table(found)
    facts = json.loads(cli("forecast", films, *args, "-o", file, "--json")[1])
    assert facts == {"out": str(file), "rows": len(found)}


def test_forecast_of_each_node(cli: Cli, trained: Path) -> None:
    found = Run.open(trained).model("cpu").top_links(3, each=True)
    code, out, err = cli("forecast", trained, "--each", "--top", 3)
    assert (code, err) == (0, "") and len(found) > 20 and len(link_lines(out)) == 10
    assert f"the first 10 of {found.title()}; -o forecasts.parquet writes all\n" in out
    assert json.loads(cli("forecast", trained, "--each", "--top", 3, "--json")[1]) == as_table(found)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--each", "--node", 7], "--each ranks the links of every node; leave out --node"),
        (["-o", "links.xlsx"], "links.xlsx: tables are written as .parquet, .csv or .jsonl"),
        (["--each", "--kind", "film"], "no kind 'film'; nodes have no kinds"),
        (["--why", "-o", "links.csv"], "--why shows reasons on the screen or with --json; leave out -o"),
    ],
)
def test_wrong_forecasts(cli: Cli, trained: Path, args: list[object], message: str) -> None:
    code, out, err = cli("forecast", trained, *args)
    assert (code, out, err) == (2, "", f"dysat: {message}\n")


def wait_in_epoch_two(times: int) -> None:
    """Keep a checkpoint after every epoch, and wait in the second one until this number of interrupts was handled."""
    be_quick()

    def wait() -> str:
        handle, heard = signal.getsignal(signal.SIGINT), list[int]()
        assert callable(handle)
        signal.signal(signal.SIGINT, lambda *signal: heard.append(1) or handle(*signal))  # type: ignore[func-returns-value]
        Path("waiting").touch()
        while len(heard) < times:
            time.sleep(0.01)
        return ""

    watching.QUIET = 0
    watching._state = lambda epoch: wait() if epoch.number == 2 else ""  # type: ignore[assignment]
    Run.train.__kwdefaults__["keep_every"] = 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("times", "kept"), [pytest.param(1, 2, id="once"), pytest.param(2, 1, id="twice", marks=pytest.mark.slow)]
)
def test_ctrl_c(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, kept: int) -> None:
    monkeypatch.chdir(tmp_path)
    run, err = Run.start(tmp_path / "run", small_graph(), small_model()), tmp_path / "err"
    process = start_command(tmp_path, "fit", "--resume", run.folder, prepare=partial(wait_in_epoch_two, times))
    wait_until(process, Path("waiting").exists)
    os.kill(process.pid, signal.SIGINT)
    wait_until(process, lambda: file_contains(err, "stopping after this epoch; Ctrl-C again stops at once\n"))
    if times == 2:
        os.kill(process.pid, signal.SIGINT)
    process.join(GUARD)
    resumable = f"dysat: stopped; progress is saved, dysat fit --resume {run.folder} continues\n"
    assert (process.exitcode, (tmp_path / "out").read_text()) == (130, "")
    assert err.read_text().endswith(resumable if times == 1 else "dysat: stopped\n")
    assert checkpoint_progress(run.folder / CHECKPOINTS[0]) == ("backtest", kept)
    assert not any(name.startswith(".") for name in names(run.folder))
    assert run.train()
    assert_same(run.folder, trained)


def test_ctrl_c_while_loading(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dysat.cli.learn.find_graph", Mock(side_effect=KeyboardInterrupt))
    assert cli("fit", "uci") == (130, "", "dysat: stopped\n") and names(Path()) == set()


@pytest.mark.parametrize(
    ("score", "text"),
    [(0.5, "0.500"), (0.9994, "0.999"), (0.9998, "0.9998"), (0.9999987, "0.999999"), (1 - 1e-12, "1.000000000")],
)
def test_scores_below_one_do_not_read_one(score: float, text: str) -> None:
    assert score_text(score) == text
    assert score_text(1.0) == "1.000"


def test_ctrl_c_during_a_write_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    """The handler runs inside whatever the signal interrupts, such as a write to the stream it wants to use."""
    console = Mock(is_terminal=True, print=Mock(side_effect=RuntimeError("reentrant call inside BufferedWriter")))
    with watching._on_ctrl_c(console, "stopping") as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed() and capfd.readouterr().err == "stopping\n"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


# Forecasts without embeddings, estimates and progress


def test_forecast_only(cli: Cli) -> None:
    small_graph().save("graph")
    code, out, _ = cli("fit", "graph", "--forecast-only", "-o", "run")
    assert code == 0 and names(Path("run")) == RESULTS - {"embeddings.parquet"} | {"report.html"}
    assert "forecast score" in out and "Hits@10" in out and "probe" not in out and "epoch" not in out
    assert "no embeddings were learned (--forecast-only); the forecast score does not depend on them" in out
    run = Run.open("run")
    metrics = run.metrics()
    assert (metrics["epochs"], metrics["device"], metrics["backtest"].get("auc")) == (0, "cpu", None)
    assert metrics["backtest"]["forecast"]["auc"] > 0 and len(link_lines(out)) == 10
    code, out, _ = cli("forecast", "run", "--top", 3, "--json")
    expected = as_rows(run.model().top_links(3))
    assert code == 0 and [{name: row[name] for name in expected[0]} for row in json.loads(out)] == expected
    line = "dysat: this model has no embeddings: it was fitted with --forecast-only; fit again without it\n"
    assert cli("embed", "run", "-o", "e.csv") == (2, "", line) and not Path("e.csv").exists()


def test_output_says_what_embeddings_are_for(cli: Cli) -> None:
    small_graph().save("graph")
    code, out, _ = cli("fit", "graph", *TINY, "--no-backtest")
    assert code == 0 and "the forecast score does not depend on the embeddings" in out
    code, out, _ = cli("fit", "graph", *PAPER, "--preset", "program", "--no-backtest", "-o", "paper")
    assert code == 0 and "does not depend" not in out


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--model", "incsat"], "--forecast-only belongs to --model dysat; incsat has no forecast score of its own"),
        (["--epochs", 3], "--epochs 3 has no effect with --forecast-only"),
        (["--set", "spectrum=3"], "--set spectrum=3 has no effect with --forecast-only"),
        (["--preset", "text"], "--forecast-only and --set pair_score=False: there is nothing to learn"),
        (["--resume", "x"], "no such folder|--resume x continues with the options of the run"),
    ],
)
def test_forecast_only_refuses_what_it_cannot_use(cli: Cli, options: list[str], line: str) -> None:
    small_graph().save("graph")
    code, out, err = cli("fit", "graph", "--forecast-only", *options)
    assert (code, out) == (2, "") and re.search(line, err) and err.count("\n") == 1
    assert names(Path()) == {"graph"}


def test_estimate_writes_nothing(cli: Cli) -> None:
    small_graph().save("graph")
    code, out, _ = cli("fit", "graph", *TINY, "--estimate", "--json")
    facts = json.loads(out)
    assert code == 0 and names(Path()) == {"graph"}
    assert set(facts["phases"]) == {"reading", "pair score", "training", "heuristics", "writing", "ranking"}
    assert all(seconds >= 0 for seconds in facts["phases"].values()) and facts["memory"] > 0
    assert facts["range"][0] < facts["seconds"] < facts["range"][1]
    code, out, _ = cli("fit", "graph", "--estimate", "--forecast-only", "--no-backtest")
    assert code == 0 and names(Path()) == {"graph"} and re.search(r"in total +\d", out)
    assert "training" not in out and "GiB of memory; nothing was written" in out
    line = "dysat: --estimate knows the costs of dysat only, not of svd\n"
    assert cli("fit", "graph", "--estimate", "--model", "svd") == (2, "", line)


def test_seconds_are_wall_time(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """They include reading, which is made to take long here, and what an interrupted run took."""
    from dysat.cli import learn

    small_graph().save("graph")
    find = learn.find_graph
    monkeypatch.setattr("dysat.cli.learn.find_graph", lambda *given: time.sleep(0.7) or find(*given))
    code, out, _ = cli("fit", "graph", *PAPER, "--preset", "program", "--no-backtest")
    metrics = Run.open("run").metrics()
    total = re.search(r"1 epoch on cpu, (\S+) s in total", out)
    assert code == 0 and metrics["seconds"] > 0.7 and total and float(total[1]) > metrics["seconds"] - 0.06


def test_lines_for_work_without_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[str]()
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    lines = watching._Lines(said.append)
    lines.on_stage("heuristics", 0)
    for moment in range(1, 80):
        now[0] = float(moment)
        if moment == 3:
            lines.on_report("svd, heuristic", 1, 4)
        lines.look()
    assert said == [
        "comparing with heuristics: svd, heuristic 2 of 4",
        "comparing with heuristics: svd, heuristic 2 of 4 (32 s so far)",
        "comparing with heuristics: svd, heuristic 2 of 4 (62 s so far)",
    ]


def test_the_last_epoch_does_not_claim_that_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], list[str]()
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])
    lines = watching._Lines(said.append)
    lines.on_stage("backtest", 3)
    for number in (1, 2, 3):
        now[0] += 6
        lines.on_epoch(Epoch(number, 0.5, None, number, 6.0))
        lines.look()
    now[0] += 5
    lines.look()
    assert said == [
        "backtest: epoch 1 of 3, loss 0.5, 12 s of training left",
        "backtest: epoch 2 of 3, loss 0.5, 6 s of training left",
        "backtest: epoch 3 of 3, loss 0.5, 3 epochs in 18.0 s",
        "backtest: after the last epoch (5 s so far)",
    ]
