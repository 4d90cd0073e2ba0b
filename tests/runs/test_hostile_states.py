"""Models, checkpoints and stream states with matching checksums but hostile content are refused in one line."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile import (
    Arrays,
    Content,
    Tensors,
    edit_graph,
    edit_record,
    edit_stream,
    edit_tensors,
    read_tensor_file,
    write_tensor_file,
)
from run_folders import quick, small_graph, small_model, stop_after
from small import FORECASTING, meetings
from weekly import copy, fitted, take_in, week, weeks, write_log

import dysat
from dysat.errors import DysatError, ModelError
from dysat.models import MODELS
from dysat.models.base.link_model import LinkModel
from dysat.runs.run import Run
from dysat.runs.stream import STATE

__all__ = ["quick"]

Edit = Callable[[Content, Tensors], Any]
Cli = Callable[..., tuple[int, str, str]]


def refused(work: Callable[[], object], message: str) -> None:
    with pytest.raises(DysatError, match=message) as problem:
        work()
    assert "\n" not in str(problem.value)


# Stream states


@pytest.fixture(scope="module")
def incsat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of IncSAT on three weeks, after two updates."""
    folder = tmp_path_factory.mktemp("incsat")
    run = fitted(folder, weeks(0, 3)).folder
    for number in (3, 4):
        take_in(run, write_log(folder / f"{number}.csv", week(number)))
    return run


@pytest.fixture(scope="module")
def refit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the default after one update, which trains from scratch."""
    folder = tmp_path_factory.mktemp("refit")
    run = fitted(folder, weeks(0, 3), "dysat").folder
    take_in(run, write_log(folder / "3.csv", week(3)))
    return run


def fact(*path: Any, value: Any) -> Edit:
    """Set one of the facts, by its path."""

    def edit(facts: Content, tensors: Tensors) -> None:
        at: Any = facts
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return edit


def tensor(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Edit:
    return lambda facts, tensors: tensors.update({name: change(tensors[name])})


def filled(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda given: torch.full_like(given, value)


ROWS = ("snapshots", 0, "arrays", "rows")
STATES: dict[str, tuple[Edit, str]] = {
    **{
        f"{name} is {value!r}": (fact(name, value=value), f"state.safetensors: damaged: {name} cannot be read")
        for name in ("snapshots", "summary", "files", "updates", "options", "graph")
        for value in (None, 3)
    },
    "no updates": (lambda facts, tensors: facts.pop("updates"), "damaged: updates cannot be read"),
    "fewer updates": (lambda facts, tensors: facts["updates"].pop(), "damaged: 2 snapshots of 1 updates"),
    "update of a list": (fact("updates", 0, value=[]), "damaged: updates: start cannot be read"),
    "auc of a text": (fact("updates", 1, "auc", value="high"), "damaged: updates: auc cannot be read"),
    "infinite loss": (fact("updates", 1, "loss", value=math.inf), "damaged: updates: loss cannot be read"),
    "negative step": (fact("updates", 1, "step", value=-1), "damaged: updates: step cannot be read"),
    "file of a text": (fact("files", 0, value="x"), "damaged: files: name cannot be read"),
    "summary of texts": (fact("summary", 0, value="x"), "damaged: summary cannot be read"),
    "fewer steps of summary": (lambda facts, tensors: facts["summary"].pop(), "4 stored steps for 5 snapshots"),
    "missing step of summary": (fact("summary", 2, value=None), "the stored rows of step 2 do not fit"),
    "known of a text": (fact("snapshots", 0, "known", value="9"), "damaged: snapshots: known cannot be read"),
    "known is true": (fact("snapshots", 0, "known", value=True), "damaged: snapshots: known cannot be read"),
    "negative known": (fact("snapshots", 0, "known", value=-1), "damaged: snapshots: known cannot be read"),
    "fewer known": (fact("snapshots", 0, "known", value=1), "damaged: .*not known at its step"),
    "more known": (fact("snapshots", 0, "known", value=10**6), "damaged: 2 labels of object for 999,986 new nodes"),
    "other window": (fact("snapshots", 1, "start", value=7), "damaged: the windows of consecutive snapshots"),
    "window without end": (fact("snapshots", 1, "stop", value=math.inf), "snapshots: stop cannot be read"),
    "offset beyond the file": (fact(*ROWS, 2, value=1 << 40), "snapshots.bin: damaged: record 0: offsets does not"),
    "negative offset": (fact(*ROWS, 2, value=-64), "snapshots.bin: damaged: record 0: rows has type '<i8'"),
    "odd offset": (fact(*ROWS, 2, value=1), "snapshots.bin: damaged: record 0: rows does not follow"),
    "overlap": (fact("snapshots", 1, "arrays", "rows", 2, value=0), "damaged: record 1: rows does not follow"),
    "offset of a text": (fact(*ROWS, 2, value="0"), "snapshots.bin: damaged: record 0: rows has type"),
    "huge shape": (fact(*ROWS, 1, value=[1 << 61]), "snapshots.bin: damaged: record 0: rows does not follow"),
    "negative shape": (fact(*ROWS, 1, value=[-1]), "snapshots.bin: damaged: record 0: rows has type"),
    "shape of a text": (fact(*ROWS, 1, value="ab"), "snapshots.bin: damaged: record 0: rows has type"),
    "shape of a number": (fact(*ROWS, 1, value=3), "snapshots.bin: damaged: TypeError"),
    "objects": (fact(*ROWS, 0, value="|O"), "snapshots.bin: damaged: record 0: rows has type '|O'"),
    "structured": (fact(*ROWS, 0, value="i4,i4"), "snapshots.bin: damaged: record 0: rows has type 'i4,i4'"),
    "other byte order": (fact(*ROWS, 0, value=">i8"), "snapshots.bin: damaged: record 0: rows has type '>i8'"),
    "no type": (fact(*ROWS, 0, value="nonsense"), "snapshots.bin: damaged: TypeError"),
    "two entries": (fact(*ROWS, value=["<i8", [1]]), "snapshots.bin: damaged: ValueError"),
    "arrays of a list": (fact("snapshots", 0, "arrays", value=[]), "snapshots.bin: damaged: AttributeError"),
    "no arrays": (fact("snapshots", 0, "arrays", value={}), "snapshots.bin: damaged: "),
    "end too early": (fact("snapshots", 0, "end", value=0), "damaged: record 0 ends at 0, before its arrays do"),
    "huge end": (fact("snapshots", 1, "end", value=1 << 61), "snapshots.bin: damaged: .* bytes, where"),
    "end of a text": (fact("snapshots", 1, "end", value="x"), "damaged: record 1 ends at 'x'"),
    "checksum of a number": (fact("snapshots", 1, "sha256", value=3), "damaged: record 1 ends"),
    "NaN weights": (tensor("structural.0.weight", filled(math.nan)), "weight has values that are not finite"),
    "infinite scorer": (tensor("scorer/bias", filled(math.inf)), "scorer/bias has values that are not finite"),
    "no scorer": (lambda facts, tensors: tensors.pop("scorer/bias"), "a link score is needed"),
    "scorer of two dimensions": (tensor("scorer/weights", lambda t: t[None]), "a link score is needed"),
    "double weights": (tensor("structural.0.weight", lambda t: t.double()), "holds torch.float64, not torch.float32"),
    "no tensors": (lambda facts, tensors: tensors.clear(), "a link score is needed"),
    "options of texts": (fact("options", "epochs", value={}), "epochs"),
    "unknown option": (fact("options", "sudo", value=1), "incsat has no option 'sudo'"),
}


@pytest.mark.parametrize("name", STATES)
def test_hostile_stream_states_are_named(incsat: Path, tmp_path: Path, name: str) -> None:
    run = copy(incsat, tmp_path / "run")
    edit, message = STATES[name]
    if "weight" in name:
        weights = next(key for key in read_tensor_file(run / "stream" / STATE)[1] if key.startswith("structural"))
        facts, tensors = read_tensor_file(run / "stream" / STATE)
        tensors["structural.0.weight"] = tensors.pop(weights)
        edit(facts, tensors)
        tensors[weights] = tensors.pop("structural.0.weight")
        write_tensor_file(run / "stream" / STATE, facts, tensors)
        message = message.replace("weight has", f"{weights} has")
    else:
        edit_stream(run / "stream", edit)
    refused(lambda: Run.open(run).model("cpu").top_links(3), message)
    log = write_log(tmp_path / "5.csv", week(5))
    refused(lambda: take_in(run, log), ".")


def set_to(name: str, index: int, value: float) -> Callable[[Arrays], None]:
    return lambda arrays: arrays[name].__setitem__(index, value)


RECORDS: dict[str, tuple[str, Callable[[Arrays], Any], str]] = {
    "NaN weight": ("snapshots", set_to("weights", 0, math.nan), "weights has a value that is not finite"),
    "NaN time": ("snapshots", set_to("latest", 0, math.nan), "latest has a value that is not from 0 to 1"),
    "few times": ("snapshots", lambda a: a.update(latest=a["latest"][1:]), "latest has"),
    "neighbour -7": ("snapshots", set_to("neighbours", 0, -7), "neighbours has a node that is not known"),
    "neighbour 10^9": ("snapshots", set_to("neighbours", 0, 10**9), "neighbours has a node that is not known"),
    "offset 10^9": ("snapshots", set_to("offsets", 1, 10**9), "the offsets of a snapshot do not increase"),
    "no weights": ("snapshots", lambda a: a.pop("weights"), "KeyError: 'weights'"),
    "no labels": ("snapshots", lambda a: a.pop("labels/label_text"), "label_text.npy is not in the list"),
    "float rows": ("snapshots", lambda a: a.update(rows=a["rows"] * 1.0), "rows holds float64"),
    "flat weights": ("snapshots", lambda a: a.update(weights=a["weights"][None]), "weights has shape"),
    "label offsets": ("snapshots", set_to("labels/label_offsets", 1, 10**9), "label_offsets do not lead"),
    "labels of bytes": ("snapshots", set_to("labels/label_text", 0, 0xFF), "UnicodeDecodeError"),
    "label of another node": (
        "snapshots",
        lambda a: a.update(
            {"labels/label_text": np.frombuffer(b"p1p2", np.uint8), "labels/label_offsets": np.array([0, 2, 4])}
        ),
        "two nodes have the same label",
    ),
    "labels that are numbers": (
        "snapshots",
        lambda a: a.update(labels=np.array([7, 8])) or a.update({"labels/labels": np.array([7, 8])}),
        "labels of int64 for 2 new nodes, after labels of object",
    ),
    "NaN rows": ("summary", lambda a: a["rows"].fill(math.nan), "the stored rows of step 0 are not finite numbers"),
    "double rows": ("summary", lambda a: a.update(rows=a["rows"].astype(float)), "the stored rows of step 0 do not"),
    "fewer rows": ("summary", lambda a: a.update(rows=a["rows"][:3]), "the stored rows of step 0 do not fit"),
    "narrow rows": ("summary", lambda a: a.update(rows=a["rows"][:, :3]), "the stored rows of step 0 do not fit"),
    "other name": ("summary", lambda a: a.update(other=a.pop("rows")), "KeyError"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_hostile_records_are_named(incsat: Path, tmp_path: Path, name: str) -> None:
    run = copy(incsat, tmp_path / "run")
    journal, edit, message = RECORDS[name]
    edit_record(run / "stream", journal, 0, edit)
    refused(lambda: Run.open(run).model("cpu"), message)
    refused(lambda: take_in(run, write_log(tmp_path / "5.csv", week(5))), message)


def test_edits_that_change_nothing_load(incsat: Path, tmp_path: Path) -> None:
    run = copy(incsat, tmp_path / "run")
    for journal in ("snapshots", "summary"):
        edit_record(run / "stream", journal, 1, lambda arrays: None)
    edit_stream(run / "stream", lambda facts, tensors: None)
    assert torch.equal(Run.open(run).model("cpu").embed(), Run.open(incsat).model("cpu").embed())
    assert len(take_in(run, write_log(tmp_path / "5.csv", week(5)))) == 1


@pytest.mark.parametrize("name", ["snapshots.bin", "summary.bin", STATE])
def test_links_out_of_a_stream_are_neither_read_nor_written(incsat: Path, tmp_path: Path, name: str) -> None:
    run, outside = copy(incsat, tmp_path / "run"), tmp_path / "outside"
    (run / "stream" / name).rename(outside)
    with open(outside, "ab") as file:
        file.write(b"the diary of somebody else")
    before = outside.read_bytes()
    (run / "stream" / name).symlink_to(outside)
    refused(lambda: take_in(run, write_log(tmp_path / "5.csv", week(5))), f"{name}: a link out of ")
    assert outside.read_bytes() == before


def test_the_base_of_an_updated_run_is_checked(incsat: Path, tmp_path: Path) -> None:
    """An update of IncSAT does not compare checksums of the old snapshots, but checks what they hold."""
    run = copy(incsat, tmp_path / "run")
    edit_graph(run / "stream" / "base" / "graph", lambda m, a: a["neighbours"].__setitem__(0, -7))
    refused(lambda: take_in(run, write_log(tmp_path / "5.csv", week(5))), "neighbours has a node that is not known")


REFITS: dict[str, tuple[Edit, str]] = {
    "NaN axes": (tensor("axes", filled(math.nan)), "axes has values that are not finite"),
    "double axes": (tensor("axes", lambda t: t.double()), "axes, 8 wide, are needed"),
    "narrow scorer": (tensor("scorer/weights", lambda t: t[:3]), ""),
    "no bias": (lambda facts, tensors: tensors.pop("pair/bias"), "bias is missing"),
    "NaN means": (tensor("pair/means", filled(math.nan)), "pair/means has values that are not finite"),
    "scales of 0": (tensor("pair/scales", filled(0)), "a scale is not above 0"),
    "float weights": (tensor("pair/weights", lambda t: t.float()), "weights is not finite in float64"),
    "NaN thresholds": (tensor("pair/tree_threshold", filled(math.nan)), "tree_threshold has values"),
    "infinite values": (tensor("pair/tree_value", filled(math.inf)), "tree_value has values that are not finite"),
    "infinite baseline": (tensor("pair/tree_baseline", filled(-math.inf)), "tree_baseline has values"),
    "children far away": (tensor("pair/tree_left", filled(10**9)), "left points before its own node or beyond"),
    "children before": (tensor("pair/tree_right", filled(-1)), "right points before its own node"),
    "negative features": (tensor("pair/tree_feature", filled(-5)), "feature is negative"),
    "far features": (tensor("pair/tree_feature", filled(10**9)), "the trees use feature 1000000000"),
    "trees without nodes": (
        lambda facts, tensors: tensors.update(
            {k: t[:, :0] for k, t in tensors.items() if k.startswith("pair/tree_") and t.dim() == 2}
        ),
        "a tree has no nodes",
    ),
    "far is a number": (tensor("pair/far", lambda t: t.long()), "far is no truth value"),
    "calibration of 1": (tensor("pair/calibration", lambda t: t[:1]), "calibration has shape"),
}


@pytest.mark.parametrize("name", REFITS)
def test_hostile_states_of_the_default(refit: Path, tmp_path: Path, name: str) -> None:
    run = copy(refit, tmp_path / "run")
    edit, message = REFITS[name]
    edit_stream(run / "stream", edit)
    if name == "narrow scorer":  # the pair score ranks, so nothing reads it
        model = Run.open(run).model("cpu")
        assert isinstance(model, dysat.DySAT) and not np.isnan([link.score for link in model.top_links(3)]).any()
        model.pair_score = False
        refused(lambda: model.top_links(3), "3 weights for pairs with 8 features")
        return
    refused(lambda: Run.open(run).model("cpu").top_links(3), message)


def test_finite_weights_whose_scores_are_not_numbers(incsat: Path, tmp_path: Path) -> None:
    run = copy(incsat, tmp_path / "run")
    edit_stream(run / "stream", lambda f, t: t.update({k: torch.full_like(v, 3e38) for k, v in t.items()}))
    refused(lambda: Run.open(run).model("cpu").top_links(3), "the embeddings are not finite numbers")


# Model files


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small model of every method, each in a folder of its own."""
    folder, small = tmp_path_factory.mktemp("models"), {"epochs": 1, "device": "cpu", "walks_per_node": 1, "rounds": 3}
    for name, kind in MODELS.items():
        options = {key: value for key, value in small.items() if key in {option.name for option in kind.options()}}
        options |= FORECASTING | {"epochs": 1} if name == "dysat" else {}
        try:
            kind(**options).fit(meetings()).save(folder / name)
        except DysatError:
            continue  # it needs an optional package
    return folder


def harmless(model: LinkModel) -> bool:
    """Whether the model still scores all pairs by finite numbers."""
    scores = model.score_links([(0, 1), (2, 5)], ids=True)
    return bool(torch.isfinite(scores).all())


MUTATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "NaN": lambda t: torch.full_like(t, math.nan) if t.is_floating_point() else -t.long() - 1,
    "infinite": lambda t: torch.full_like(t, math.inf) if t.is_floating_point() else t.long() + 10**9,
    "shorter": lambda t: t[:-1] if t.dim() else t[None],
    "without a dimension": lambda t: t.reshape(-1)[:1].squeeze(),
    "one more dimension": lambda t: t[None],
    "integers": lambda t: t.to(torch.int64) if t.is_floating_point() else t.double(),
    "empty": lambda t: t[:0] if t.dim() else t[None][:0],
}


ALL_MUTATIONS = (*MUTATIONS, "missing", "renamed")
# The others are slow tests. A model of dysat has many tensors.
QUICK_MUTATIONS = {
    **dict.fromkeys(("pair-boosting", "dyngem", "svd"), ALL_MUTATIONS),
    "dysat": ("shorter", "missing"),
}


@pytest.mark.parametrize(
    ("method", "mutation"),
    [
        pytest.param(name, mutation, marks=() if mutation in QUICK_MUTATIONS.get(name, ()) else pytest.mark.slow)
        for name in MODELS
        for mutation in ALL_MUTATIONS
    ],
)
def test_hostile_model_files(models: Path, tmp_path: Path, method: str, mutation: str) -> None:
    """Each tensor is mutated in turn: the model is refused in one line, or scores by finite numbers."""
    if not (models / method).exists():
        pytest.skip(f"{method} cannot be fitted here")
    facts, tensors = read_tensor_file(models / method / "model.safetensors")
    shutil.copytree(models / method, tmp_path / "m")
    for name, given in tensors.items():
        changed = dict(tensors)
        value = changed.pop(name)
        if mutation != "missing":
            changed |= {f"{name}x": value} if mutation == "renamed" else {name: MUTATIONS[mutation](given)}
        write_tensor_file(tmp_path / "m" / "model.safetensors", facts, changed)
        try:
            assert harmless(MODELS[method].load(tmp_path / "m")), name
        except DysatError as problem:
            assert "\n" not in str(problem)


@pytest.mark.parametrize("options", [None, 3, [], {"epochs": []}, {"sudo": 1}], ids=str)
def test_hostile_options_of_a_model(models: Path, tmp_path: Path, options: Any) -> None:
    shutil.copytree(models / "dysat", tmp_path / "m")
    edit_tensors(tmp_path / "m" / "model.safetensors", fact("options", value=options))
    refused(lambda: dysat.DySAT.load(tmp_path / "m"), ".")


# Checkpoints


CHECKPOINTS: dict[str, Edit] = {
    **{
        f"{name} is {value!r}": fact(name, value=value)
        for name in ("stage", "progress", "seconds", "earlier", "windows", "window", "backtest")
        for value in ("x", [3], {"a": 1})
    },
    "no stage": lambda facts, tensors: facts.pop("stage"),
    "infinite seconds": fact("seconds", value=math.inf),
    "history of numbers": fact("progress", "history", value=[1]),
    "best epoch beyond the end": fact("progress", "history", 0, "best", value=99),
    "negative best epoch": fact("progress", "history", 0, "best", value=-3),
    "epoch of another number": fact("progress", "history", 0, "number", value=7),
    "loss of a text": fact("progress", "history", 0, "loss", value="x"),
    "more in an epoch": fact("progress", "history", 0, "sudo", value=1),
    "no finished": lambda facts, tensors: facts["progress"].pop("finished"),
    "NaN": lambda facts, tensors: tensors.update({k: v * math.nan for k, v in tensors.items() if k != "generator"}),
    "no tensors": lambda facts, tensors: tensors.clear(),
    "no generator": lambda facts, tensors: tensors.pop("generator"),
    "short generator": tensor("generator", lambda t: t[:5]),
    "generator of numbers": tensor("generator", lambda t: t.float()),
    "negative moments": lambda facts, tensors: tensors.update({k: -v - 1 for k, v in tensors.items() if "avg_sq" in k}),
    "moments without steps": lambda facts, tensors: [tensors.pop(k) for k in [*tensors] if "adam/step" in k],
    "shorter": lambda facts, tensors: tensors.update({k: v[:1] for k, v in tensors.items() if k.startswith("now/")}),
    "double": lambda facts, tensors: tensors.update({k: v.double() for k, v in tensors.items() if "adam/" in k}),
}  # fmt: skip


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after two epochs of its final training."""
    run = Run.start(tmp_path_factory.mktemp("stopped") / "run", small_graph(), small_model(), backtest=False)
    stop_after(run, 2)
    (run.folder / "checkpoint-before.safetensors").unlink(missing_ok=True)
    return run.folder


MORE_TYPES = [name for name in CHECKPOINTS if " is [3]" in name or " is {" in name]  # slow tests


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in MORE_TYPES else ()) for name in CHECKPOINTS]
)
def test_hostile_checkpoints_are_skipped_or_named(stopped: Path, tmp_path: Path, name: str) -> None:
    run = Run.open(copy(stopped, tmp_path / "run"))
    edit_tensors(run.folder / "checkpoint.safetensors", CHECKPOINTS[name])
    try:
        run.train()
    except ModelError as problem:
        assert ("\n" not in str(problem) and "checkpoint" in str(problem)) or "resumed" in str(problem)
        return
    loss = json.loads((run.folder / "metrics.json").read_text())["loss"]
    assert run.finished and math.isfinite(loss)
