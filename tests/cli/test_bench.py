"""dysat bench: all figures are present and plausible, as a table and as JSON."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from run_folders import small_graph

from dysat.errors import GraphError, ModelError
from dysat.experiments import bench
from dysat.experiments.bench import SHALLOW, SNAPSHOTS, Case, Timing, available, measure
from dysat.system.hardware import hardware

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def graphs(tmp_path: Path) -> Path:
    """A folder of two graph folders."""
    small_graph().save(tmp_path / "graphs" / "small")
    small_graph()[:2].save(tmp_path / "graphs" / "smaller")
    return tmp_path / "graphs"


@pytest.mark.slow
def test_figures_of_a_graph_folder(graphs: Path) -> None:
    found, graph = measure(Case("small", "program", "cpu", 16, epochs=3, graph=graphs / "small")), small_graph()
    assert (found.dataset, found.preset, found.device, found.batch_size) == ("small", "program", "cpu", 16)
    assert (found.snapshots, found.nodes, found.links) == (5, 40, sum(s.num_links for s in graph))
    assert found.batches == 3  # 40 nodes, 16 at a time
    assert 0 < found.fastest_epoch_seconds <= found.epoch_seconds < 60 and 0 < found.prepare_seconds < 60
    assert 0.05 < found.peak_gib < 64  # torch alone takes more than 0.05


def test_error_crosses_the_process_boundary(tmp_path: Path) -> None:
    """`measure` returns errors of its process by pickling; starting one here would only cost time."""
    with pytest.raises(GraphError, match="nowhere: no such folder") as problem:
        bench._measure(Case("x", "program", "cpu", 16, graph=tmp_path / "nowhere"))
    copy = pickle.loads(pickle.dumps(problem.value))
    assert type(copy) is GraphError and str(copy) == str(problem.value)


def test_datasets_have_the_snapshots_and_layers_of_the_paper() -> None:
    assert set(SNAPSHOTS) == {"enron", "uci", "yelp", "ml-10m"}
    assert Case("enron", "program", "cpu", 256).model(1).structural_heads == SHALLOW["structural_heads"]
    model = Case("uci", "text", "cpu", 99).model(7)
    assert (model.structural_heads, model.batch_size, model.epochs, model.patience) == ((16, 8), 99, 7, None)
    with pytest.raises(ModelError, match="no preset 'x'"):
        Case("uci", "x", "cpu", 256).model(1)


def test_table_has_a_row_per_combination(cli: Cli, graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Case] = []

    def figures(case: Case) -> Timing:
        measured.append(case)
        return Timing(case.dataset, 5, 40, 400, case.preset, "cpu", case.batch_size, 4, 0.25, 0.5, 0.125, 1.5)

    monkeypatch.setattr("dysat.cli.bench.measure", figures)
    line = [
        "bench",
        "--graph-dir",
        graphs,
        "--batch-size",
        8,
        "--batch-size",
        16,
        "--preset",
        "text",
        "--device",
        "cpu",
    ]
    code, out, err = cli(*line)
    assert (code, err) == (0, "") and hardware()["python"] in out.replace("\n", " ")
    rows = [row.split() for row in out.splitlines() if "text" in row]
    name = ["small", "small", "smaller", "smaller"]
    figure = ["0.5000", "0.1250", "125.00", "0.25", "1.50"]
    assert rows == [[n, "5", "cpu", "text", size, *figure] for n, size in zip(name, ("8", "16") * 2, strict=True)]
    assert [(case.graph, case.epochs) for case in measured] == [(graphs / n, 5) for n in name]
    facts = json.loads(cli(*line, "--json")[1])
    assert facts["timings"] == [asdict(figures(case)) for case in measured[:4]]
    assert facts["epochs"] == 5 and facts["hardware"] == hardware()


def test_bench_of_a_dataset(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"structural_heads": (2,), "structural_features": (8,), "temporal_heads": (2,), "temporal_features": (8,)}
    model = Case.model
    monkeypatch.setattr(Case, "model", lambda case, epochs: model(case, epochs).set_params(**small, walks_per_node=1))
    monkeypatch.setattr("dysat.cli.bench.measure", bench._measure)  # in this process, which is faster
    code, out, _ = cli("bench", "--dataset", "uci", "--epochs", 1, "--json", "--device", "cpu")
    facts = json.loads(out)
    (timing,) = facts["timings"]
    assert code == 0 and set(timing) == set(Timing.__dataclass_fields__) and facts["epochs"] == 1
    assert (timing["dataset"], timing["snapshots"], timing["nodes"], timing["batches"]) == ("uci", 12, 1795, 8)
    assert timing["epoch_seconds"] == timing["fastest_epoch_seconds"] > 0 < timing["prepare_seconds"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--epochs 0", "--epochs 0 must be at least 1"),
        ("--dataset nowhere", "no dataset 'nowhere'; there are enron, uci"),
        ("--dataset uci --batch-size 0", "--batch-size must be at least 1"),
        ("--dataset uci --device nowhere", "--device nowhere does not exist here"),
        ("--dataset uci --preset x", "no preset 'x'"),
        ("--graph-dir nowhere", "nowhere"),
    ],
)
def test_errors_are_one_line(cli: Cli, line: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dysat.cli.bench.measure", bench._measure)  # in this process, which is faster
    code, out, err = cli("bench", *line.split())
    assert (code, out) == (2, "") and err.startswith("dysat: ") and err.count("\n") == 1 and message in err


def test_available_lists_datasets_with_files(tmp_path: Path) -> None:
    assert available(tmp_path) == ["uci"]  # in a package that is installed
