"""A run: a folder in which a model is trained on a graph, and from which it goes on after a stop of any kind.

    config.toml           what was asked for
    graph/                the snapshots
    checkpoint*           where training stands; gone when it is finished
    model.safetensors     the trained model
    embeddings.parquet    label, step and embedding
    metrics.json          how well the last snapshot was predicted
    history.csv           every epoch (of the last snapshot, where one is taken in after the other)
    stream/               what updates have added since (`stream`)
    .lock                 held by the process that writes to the folder

First comes the backtest: a model that has not seen the last snapshot predicts it, and shows after how many epochs to
stop. Then the model that is kept learns from all snapshots, for so many epochs.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError, ModelError
from dysat.evaluation.probe import validation_auc
from dysat.evaluation.protocols import LinkSplit, single_step
from dysat.models import MODELS
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import GRAPH_FOLDER, MODEL_FILE, Incremental
from dysat.models.base.option import NONE
from dysat.models.base.stepwise import StepwiseModel
from dysat.models.base.trained import TrainedModel
from dysat.models.incsat import IncSAT
from dysat.nn.device import choose_device
from dysat.runs.backtest import backtest_facts
from dysat.runs.checkpoints import CHECKPOINTS, Checkpoints
from dysat.runs.stream import Stream, without_features
from dysat.system.locks import lock_folder
from dysat.system.storage import replace_file, umask
from dysat.system.toml import as_toml
from dysat.training import Epoch, Progress

METRICS, HISTORY, EMBEDDINGS = "metrics.json", "history.csv", "embeddings.parquet"
CONFIG = "config.toml"
KEEP_EVERY = 10.0  # seconds between checkpoints
# What a run can have, by name.
LEARNERS: dict[str, type[EmbeddingModel]] = {
    name: kind for name, kind in MODELS.items() if issubclass(kind, EmbeddingModel)
}
Stage = Literal["backtest", "heuristics", "final"]


def write_results(
    folder: Path,
    model: EmbeddingModel,
    backtest: dict[str, Any] | None,
    history: list[dict[str, Any]],
    done: Progress,
) -> None:
    """The model, its embeddings, and what is known of it; each file whole or not at all."""
    history = history + [{"stage": "final", **asdict(epoch)} for epoch in done.history]
    model.save_weights(folder)
    write_embeddings(model, folder / EMBEDDINGS)
    table = io.StringIO()
    writer = csv.DictWriter(table, ["stage", *(Epoch.__dataclass_fields__)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    write_text(folder / HISTORY, table.getvalue())
    metrics = {
        "backtest": backtest,
        "epochs": len(done.history),
        "loss": done.history[-1].loss if done.history else None,
        "seconds": round(sum(row["seconds"] for row in history), 3),
        "device": str(model.embed().device),
        "nodes": model.graph_.num_nodes,
        "snapshots": len(model.graph_),
    }
    write_text(folder / METRICS, json.dumps(metrics, indent=2) + "\n")


def write_embeddings(model: EmbeddingModel, file: Path, steps: Iterable[int] | None = None) -> int:
    """Label, (kind,) step and embedding of every known node at some steps, as Parquet or CSV; how many rows.

    Without `steps`, at all of them for which nothing must be learned anew.
    """
    from dysat.system.table_files import write_table

    parts = [model.table(step) for step in (model.steps_at_hand() if steps is None else steps)]
    return write_table(parts, file)


def write_text(file: Path, text: str) -> None:
    """A text file, whole or not at all."""
    with replace_file(file, ModelError) as beside:
        beside.write_text(text, encoding="utf-8", newline="")


@dataclass(frozen=True)
class Watch:
    """Who is told what happens, and who may stop it."""

    on_stage: Callable[[str, int], None] = lambda stage, epochs: None  # which, and at most how many epochs, 0 if none
    on_epoch: Callable[[Epoch], None] = lambda epoch: None
    on_note: Callable[[str], None] = lambda note: None
    stop: Callable[[], bool] = lambda: False


class Run:
    """A run folder. `start` makes one, `open` finds one; `train` begins or goes on."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder, self.config = folder, config

    @classmethod
    def start(
        cls,
        folder: str | os.PathLike[str],
        graph: DynamicGraph,
        model: EmbeddingModel,
        *,
        backtest: bool = True,
        source: str = "",
        events: Mapping[str, Any] | None = None,
    ) -> Run:
        """Make the folder, whole or not at all; one that exists is never touched.

        `events` are columns and windows by which a log became the graph: updates read the next one like it.
        """
        path = Path(os.path.abspath(folder))
        check_new(path)
        model.check_graph(graph)
        config = {
            "dysat": dysat.__version__,
            "source": source.encode("utf-8", "replace").decode("utf-8"),
            "method": model.method,
            "backtest": backtest,
            "graph": graph.fingerprint,
            "options": {name: NONE if value is None else value for name, value in model.values().items()},
            **({"events": dict(events)} if events else {}),
        }
        beside: Path | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            graph.save(beside / GRAPH_FOLDER)
            write_text(beside / CONFIG, as_toml(config))
            beside.chmod(0o777 & ~umask())
            check_new(path)
            beside.rename(path)
        except OSError as problem:
            raise ModelError(f"{path}: cannot be written: {problem.strerror or problem}") from problem
        finally:
            if beside is not None:
                shutil.rmtree(beside, ignore_errors=True)
        return cls.open(path)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """A folder that `start` made."""
        path = Path(folder)
        if not path.is_dir():
            raise ModelError(f"{path}: no such folder")
        if not (path / CONFIG).is_file():
            raise ModelError(f"{path}: not a run folder (it has no {CONFIG})")
        try:
            config = tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
            needed = {"method": str, "backtest": bool, "graph": str, "options": dict}
            wrong = [key for key, kind in needed.items() if not isinstance(config.get(key), kind)]
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise ModelError(f"{path / CONFIG}: damaged: {problem}") from None
        if wrong:
            raise ModelError(f"{path / CONFIG}: damaged: no {wrong[0]}")
        if config["method"] not in LEARNERS:
            raise ModelError(f"{path / CONFIG}: no method {config['method']!r}; there are {', '.join(LEARNERS)}")
        return cls(path, config)

    @property
    def finished(self) -> bool:
        written = all((self.folder / name).is_file() for name in (MODEL_FILE, METRICS))
        return written and not self._checkpoints().files()

    def graph(self) -> DynamicGraph:
        """The snapshots of the run, which must be those it was started with."""
        graph = DynamicGraph.load(self.folder / GRAPH_FOLDER)
        if graph.fingerprint != self.config["graph"]:
            raise ModelError(f"{self.folder / GRAPH_FOLDER}: not the graph that {CONFIG} speaks of")
        return graph

    def model(self, device: str = "auto") -> EmbeddingModel:
        """The trained model, as the last update left it."""
        if Stream.exists(self.folder):
            return Stream.open(self.folder).model(without_features(self.graph()), device)
        if not (self.folder / MODEL_FILE).is_file():
            raise ModelError(f"{self.folder}: not trained yet; dysat fit --resume {self.folder} goes on with it")
        return self._kind.load(self.folder, device=device)

    @property
    def _kind(self) -> type[EmbeddingModel]:
        return LEARNERS[self.config["method"]]

    def metrics(self) -> dict[str, Any]:
        """What metrics.json says."""
        try:
            return dict(json.loads((self.folder / METRICS).read_text(encoding="utf-8")))
        except (OSError, ValueError) as problem:
            raise ModelError(f"{self.folder / METRICS}: cannot be read: {problem}") from None

    def train(self, watch: Watch | None = None, *, device: str | None = None, keep_every: float = KEEP_EVERY) -> bool:
        """Train to the end, from wherever the run stands; whether the end was reached."""
        if self.finished:
            return True
        with lock_folder(self.folder, ModelError):
            return self._train(watch or Watch(), device, keep_every)

    def _train(self, watch: Watch, device: str | None, keep_every: float) -> bool:
        graph = self.graph()
        options = dict(self.config["options"])
        if device and "device" in options:
            options["device"] = device
        self._kind.with_options(options).check_graph(graph)
        self._clear_away()
        saved = self._checkpoints().last(watch.on_note)
        facts: dict[str, Any] = dict(saved[0]) if saved else {}
        backtest: dict[str, Any] | None = facts.get("backtest")
        history: list[dict[str, Any]] = list(facts.get("earlier", []))
        split = self._split(graph, watch) if self.config["backtest"] else None

        if split is not None and backtest is None:
            model = self._kind.with_options(options)
            done = self._stage("backtest", model, graph[:-1], split, saved, {}, watch, keep_every)
            history = [{"stage": "backtest", **asdict(epoch)} for epoch in done.history]
            if not done.finished:
                return False
            watch.on_stage("heuristics", 0)
            backtest = backtest_facts(model, graph[:-1], split, done)
            saved = None
        warm = issubclass(self._kind, StepwiseModel) and self._kind.warm
        if backtest is not None and backtest["validation_auc"] is not None and not warm:  # it says when to stop
            options |= {"epochs": backtest["best_epoch"], "patience": NONE}
        model = self._kind.with_options(options)
        before = {"backtest": backtest, "earlier": history}
        done = self._stage("final", model, graph, None, saved, before, watch, keep_every)
        if done.finished or not isinstance(model, Incremental):  # which, stopped early, has not seen the whole graph
            write_results(self.folder, model, backtest, history, done)
        if done.finished:
            if isinstance(model, IncSAT) and model.inputs == "identity":
                Stream.begin(self.folder, model, self.config["graph"])
            self._checkpoints().remove()
        return done.finished

    def _stage(
        self,
        stage: Stage,
        model: EmbeddingModel,
        graph: DynamicGraph,
        split: LinkSplit | None,
        saved: tuple[dict[str, Any], dict[str, Any]] | None,
        before: Mapping[str, Any],
        watch: Watch,
        keep_every: float,
    ) -> Progress:
        """Train one model, from its checkpoint where there is one; a model without epochs has none."""
        if not isinstance(model, TrainedModel):
            watch.on_stage(stage, 0)
            model.fit(graph)
            return Progress(finished=stage == "final" or not watch.stop())
        watch.on_stage(stage, model.values()["epochs"] * (len(graph) if isinstance(model, Incremental) else 1))
        progress = Progress.restore(saved[0]["progress"], saved[1]) if saved and saved[0]["stage"] == stage else None

        def keep(now: Progress) -> None:
            self._checkpoints().write({"stage": stage, "progress": now.facts(), **before}, now.tensors)

        model.fit(
            graph,
            validate=None if split is None else _validation(split.to(choose_device(model.values()["device"]))),
            on_epoch=watch.on_epoch,
            stop=watch.stop,
            progress=progress,
            keep=keep,
            keep_every=keep_every,
        )
        return Progress(model.epochs_, {}, model.finished_)

    def _split(self, graph: DynamicGraph, watch: Watch) -> LinkSplit | None:
        """The links of the last snapshot as examples, if there is something to learn from and to predict."""
        if len(graph) < 2:
            watch.on_note("one snapshot only: nothing to predict it from, so there is no backtest")
            return None
        try:
            return single_step(graph, len(graph) - 2, seed=self.config["options"].get("seed", 0))
        except GraphError as problem:
            watch.on_note(f"no backtest: {problem}")
            return None

    def _checkpoints(self) -> Checkpoints:
        """Those of this run: of its graph, method and options, on whatever device."""
        same = {key: value for key, value in self.config["options"].items() if key != "device"}
        identity = [self.config["graph"], self.config["method"], self.config["backtest"], same]
        return Checkpoints(self.folder, json.dumps(identity, sort_keys=True))

    def _clear_away(self) -> None:
        """Remove what a write that was killed has left."""
        for name in (*CHECKPOINTS, MODEL_FILE, CONFIG, METRICS, HISTORY, EMBEDDINGS):
            for file in self.folder.glob(f".{name}.*"):
                file.unlink(missing_ok=True)


def check_new(folder: Path) -> None:
    """Refuse a folder that exists already."""
    if os.path.lexists(folder):
        hint = f"; dysat fit --resume {folder} goes on with it" if (folder / CONFIG).exists() else ""
        raise ModelError(f"{folder}: exists already, choose another folder{hint}")


def _validation(split: LinkSplit) -> Callable[[EmbeddingModel], float]:
    """A score for the best epoch: how well the validation links are told from other pairs."""
    return lambda model: validation_auc(model.embed(), split, feature=model.pair_feature)
