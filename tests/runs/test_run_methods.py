"""Runs of every method that has embeddings: train, stop, resume, command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from run_folders import RESULTS, SMALL, assert_same, names, quick, small_graph

import dysat
from dysat.errors import ModelError
from dysat.models.base.trained import TrainedModel
from dysat.runs.run import LEARNERS, Run, Watch
from dysat.runs.update import begin_stream
from dysat.training import Epoch

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]

# Small and fast options for every method; a new method needs an entry here.
QUICK: dict[str, dict[str, Any]] = {
    "dysat": SMALL | {"epochs": 3},
    "incsat": SMALL | {"epochs": 3},
    "svd": {"features": 4},
    "node2vec": {"features": 8, "walks_per_node": 1, "walk_length": 5},
    "gcn-ae": {"features": (8, 4), "epochs": 3, "device": "cpu"},
    "gat-ae": {"features": (8, 4), "heads": (2, 2), "epochs": 3, "device": "cpu"},
    "graphsage": {"features": (8, 4), "fan_out": (3, 2), "walks_per_node": 2, "epochs": 3, "device": "cpu"},
    "dynamic-triad": {"features": 4, "epochs": 3, "device": "cpu"},
    "dyngem": {"features": 4, "hidden": (8,), "epochs": 2, "device": "cpu"},
    "dynaernn": {"encoder": (8,), "recurrent": (4,), "epochs": 3, "device": "cpu"},
}
QUICK_METHODS = ("dysat", "incsat", "svd", "gcn-ae")  # the others are slow tests
IN_EPOCHS = [method for method, kind in LEARNERS.items() if issubclass(kind, TrainedModel)]


def start(folder: Path, method: str) -> Run:
    return Run.start(folder, small_graph(), LEARNERS[method](**QUICK[method]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """The finished run of a method, trained at its first use."""
    runs: dict[str, Run] = {}

    def get(method: str) -> Run:
        if method not in runs:
            runs[method] = start(tmp_path_factory.mktemp(method) / "run", method)
            assert runs[method].train()
        return runs[method]

    return get


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK_METHODS)) for name in LEARNERS]
)
def test_results_of_every_method(trained: Callable[[str], Run], method: str) -> None:
    run = trained(method)
    assert run.finished and names(run.folder) >= RESULTS
    model = Run.open(run.folder).model("cpu")
    assert type(model) is LEARNERS[method]
    again = LEARNERS[method](**QUICK[method] | facts_of(run)).fit(small_graph())
    assert torch.equal(model.embed(), again.embed())
    table, steps = pl.read_parquet(run.folder / "embeddings.parquet"), model.steps_at_hand()
    assert table["step"].unique().sort().to_list() == list(steps)
    assert len(table) == sum(small_graph().known[step] for step in steps)
    backtest = run.metrics()["backtest"]
    assert 0 < backtest["auc"] < 1 and (backtest["validation_auc"] is not None) is (method in IN_EPOCHS)


def facts_of(run: Run) -> dict[str, Any]:
    """The best epoch of the backtest; unused if every step starts from the weights of the previous one."""
    backtest = run.metrics()["backtest"]
    used = backtest["validation_auc"] is not None and run.config["method"] != "dyngem"
    return {"epochs": backtest["best_epoch"]} if used else {}


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[pytest.mark.slow] * (name != "dysat")) for name in IN_EPOCHS]
)
def test_a_stopped_run_resumes_and_reaches_the_same_result(
    trained: Callable[[str], Run], method: str, tmp_path: Path
) -> None:
    run, stops = start(tmp_path / "run", method), 0
    while not Run.open(run.folder).train(Watch(stop=lambda: True)):  # after every epoch
        stops += 1
        assert stops < 100
    assert stops >= 2
    assert_same(run.folder, trained(method).folder)


@pytest.mark.parametrize("method", [method for method in LEARNERS if method not in IN_EPOCHS])
def test_without_epochs_a_run_stops_after_the_backtest(method: str, tmp_path: Path) -> None:
    run = start(tmp_path / "run", method)
    assert not run.train(Watch(stop=lambda: True)) and not run.finished
    assert run.train() and run.finished


@pytest.mark.parametrize("method", [method for method in LEARNERS if method not in ("dysat", "incsat")])
def test_runs_of_other_methods_cannot_be_updated(trained: Callable[[str], Run], method: str) -> None:
    with pytest.raises(ModelError, match=rf"{method} cannot be updated; runs of dysat and incsat can"):
        begin_stream(trained(method))


def test_fit_and_embed_with_options_of_another_method(cli: Cli, tmp_path: Path) -> None:
    graph = small_graph()
    graph.save(tmp_path / "graph")
    words = ["--set=walks_per_node=1", "--set=walk_length=5", "--set=features=8", "--set=p=0.5"]
    code, out, _ = cli("fit", tmp_path / "graph", "--model", "node2vec", *words, "-o", tmp_path / "run")
    assert code == 0 and "most likely next links" in out and "epoch kept" not in out
    options = Run.open(tmp_path / "run").config["options"]
    assert (options["p"], options["features"]) == (0.5, 8)
    code, out, _ = cli("embed", tmp_path / "run", "-o", tmp_path / "e.csv")
    assert code == 0 and f"{graph.num_nodes:,} embeddings written" in out
    code, out, _ = cli("embed", tmp_path / "run", "--step", "all", "-o", tmp_path / "e.csv")
    assert code == 0 and f"{sum(graph.known):,} embeddings written" in out  # earlier steps are learned again


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model gcn-ae --set p=2", "gcn-ae has no option 'p'"),
        ("--model edgebank", "edgebank has no embeddings, use it with dysat evaluate; fit takes dysat, incsat"),
        ("--model node2vc", "did you mean 'node2vec'?"),
        ("--model svd --preset program", "svd has no preset 'program'"),
        ("--model gcn-ae --set features=8,x", "features=x is not a whole number"),
    ],
)
def test_mistakes_get_one_line(cli: Cli, tmp_path: Path, words: str, message: str) -> None:
    code, _, err = cli("fit", "uci", *words.split(), "-o", tmp_path / "run")
    assert code != 0 and message in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", LEARNERS)
def test_a_graph_whose_first_snapshot_has_no_nodes(method: str) -> None:
    links = [[], [(0, 1), (1, 2)], [(0, 1), (2, 3)]]
    parts = [np.array(pairs, dtype=np.int64).reshape(-1, 2) for pairs in links]
    snapshots = tuple(
        dysat.Snapshot.from_links(*part.T, None, num_nodes=known, start=t, stop=t + 1)
        for t, (part, known) in enumerate(zip(parts, (0, 3, 4), strict=True))
    )
    graph = dysat.DynamicGraph(np.arange(4), snapshots, clock="step")
    lstm = {"aggregator": "lstm"} if method == "graphsage" else {}
    model = LEARNERS[method](**QUICK[method] | lstm).fit(graph)
    assert [len(model.embed(step)) for step in model.steps()] == [0, 3, 4]


@pytest.mark.parametrize("method", IN_EPOCHS)
def test_a_failed_fit_leaves_the_model_unchanged(method: str) -> None:
    model: Any = LEARNERS[method](**QUICK[method])
    seen: list[Epoch] = []

    def fail(epoch: Epoch) -> None:
        seen.append(epoch)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(small_graph(), on_epoch=fail)
    with pytest.raises(ModelError, match="learned nothing yet"):
        model.embed()
    before = model.fit(small_graph()[:3]).embed()
    history = model.epochs_
    with pytest.raises(KeyboardInterrupt):
        model.fit(small_graph(), on_epoch=fail)
    assert len(seen) == 2 and len(model.graph_) == 3 and model.epochs_ is history
    assert torch.equal(model.embed(), before)


@pytest.mark.parametrize(
    ("method", "ability", "able"),
    [
        ("node2vec", "attention", "dysat, incsat"),
        ("graphsage", "partial_fit", "incsat, dyngem"),
        ("dysat", "take_in", "incsat, dyngem"),
        ("edgebank", "embed", ", ".join(LEARNERS)),
    ],
)
def test_a_missing_ability_is_named_in_one_line(method: str, ability: str, able: str) -> None:
    model = dysat.MODELS[method]()
    with pytest.raises(ModelError, match=rf"^{method} has no {ability}; {able} can do that$"):
        getattr(model, ability)
    assert not hasattr(model, ability)
    with pytest.raises(AttributeError, match="no attribute 'attnetion'"):
        getattr(model, "attnetion")  # noqa: B009


@pytest.mark.parametrize("method", ["incsat", "dyngem"])
def test_a_stopped_incremental_model_is_not_saved(method: str, tmp_path: Path) -> None:
    model: Any = LEARNERS[method](**QUICK[method]).fit(small_graph(), stop=lambda: True)  # type: ignore[call-arg]
    with pytest.raises(ModelError, match=r"0 stored steps for 1 snapshots"):
        model.save(tmp_path / "model")
