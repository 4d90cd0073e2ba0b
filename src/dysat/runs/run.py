"""Run folders: train a model on a graph. A killed run resumes and reaches the same result.

    config.toml           method, options and source
    graph/                the snapshots
    checkpoint*           state of the training; removed when it is finished
    model.safetensors     the trained model
    embeddings.parquet    label, step and embedding of every known node
    metrics.json          how well the last snapshot was predicted
    history.csv           one row per epoch (of the last snapshot, if the method learns snapshot by snapshot)
    stream/               what updates have added (see `stream`)
    .lock                 held by the process that writes to the folder

Training has two stages. In the backtest, a model that has not seen the last snapshot predicts it, and its best epoch
sets the number of epochs. The final model then learns from all snapshots.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import GraphError, ModelError
from dysat.evaluation.probe import validation_auc
from dysat.evaluation.protocols import single_step
from dysat.models import MODELS
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import GRAPH_FOLDER, MODEL_FILE, Incremental
from dysat.models.base.option import NONE
from dysat.models.base.stepwise import StepwiseModel
from dysat.models.base.trained import TrainedModel
from dysat.models.incsat import IncSAT
from dysat.nn.device import choose_device
from dysat.runs.backtest import backtest_facts
from dysat.runs.checkpoints import CHECKPOINTS, Checkpoints, Saved
from dysat.runs.stream import Stream, without_features
from dysat.system.locks import lock_folder
from dysat.system.storage import replace_file, umask
from dysat.system.toml import as_toml
from dysat.training import Epoch, Progress

METRICS, HISTORY, EMBEDDINGS = "metrics.json", "history.csv", "embeddings.parquet"
CONFIG = "config.toml"
KEEP_EVERY = 10.0  # seconds between checkpoints
# The methods a run can train, by name.
LEARNERS: dict[str, type[EmbeddingModel]] = {
    name: kind for name, kind in MODELS.items() if issubclass(kind, EmbeddingModel)
}
Stage = Literal["backtest", "heuristics", "final"]


@dataclass(frozen=True)
class Watch:
    """Callbacks for progress, and a way to stop."""

    on_stage: Callable[[str, int], None] = lambda stage, epochs: None  # its name, and its most epochs (0: no epochs)
    on_epoch: Callable[[Epoch], None] = lambda epoch: None
    on_note: Callable[[str], None] = lambda note: None
    stop: Callable[[], bool] = lambda: False


class Run:
    """A run folder: `start` creates one, `open` opens one, `train` trains it or resumes it.

    A new folder appears complete or not at all, every file is replaced atomically, and updates are atomic.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder, self.config = folder, config
        # Checkpoints belong to a graph, a method and its options, on any device.
        options = {key: value for key, value in config["options"].items() if key != "device"}
        identity = [config["graph"], config["method"], config["backtest"], options]
        self.checkpoints = Checkpoints(folder, json.dumps(identity, sort_keys=True))

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
        """Create the folder of a new run; an existing folder is never touched.

        `events` stores the columns and windows that made the graph, so that updates read the next log the same way.
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
            "options": {name: NONE if value is None else value for name, value in model.plain_params().items()},
            **({"events": dict(events)} if events else {}),
        }
        temporary: Path | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            graph.save(temporary / GRAPH_FOLDER)
            write_text(temporary / CONFIG, as_toml(config))
            temporary.chmod(0o777 & ~umask())
            check_new(path)  # it may have appeared meanwhile
            temporary.rename(path)
        except OSError as problem:
            raise ModelError(f"{path}: cannot be written: {problem.strerror or problem}") from problem
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)
        return cls.open(path)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """Open a folder that `start` created."""
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
        """Whether training has ended and its results are written."""
        written = all((self.folder / name).is_file() for name in (MODEL_FILE, METRICS))
        return written and not self.checkpoints.files()

    def graph(self) -> DynamicGraph:
        """Load the snapshots of the run; raise if they are not those it was started with."""
        graph = DynamicGraph.load(self.folder / GRAPH_FOLDER)
        if graph.fingerprint != self.config["graph"]:
            raise ModelError(f"{self.folder / GRAPH_FOLDER}: not the graph that the run was started with")
        return graph

    def model(self, device: str = "auto") -> EmbeddingModel:
        """Load the trained model, including all updates."""
        if Stream.exists(self.folder):
            return Stream.open(self.folder).model(without_features(self.graph()), device)
        if not (self.folder / MODEL_FILE).is_file():
            raise ModelError(f"{self.folder}: not trained yet; dysat fit --resume {self.folder} continues")
        return LEARNERS[self.config["method"]].load(self.folder, device=device)

    def metrics(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        try:
            return dict(json.loads((self.folder / METRICS).read_text(encoding="utf-8")))
        except (OSError, ValueError) as problem:
            raise ModelError(f"{self.folder / METRICS}: cannot be read: {problem}") from None

    def train(self, watch: Watch | None = None, *, device: str | None = None, keep_every: float = KEEP_EVERY) -> bool:
        """Train to the end, from the last checkpoint if there is one; return whether the end was reached."""
        if self.finished:
            return True
        watch = watch or Watch()
        with lock_folder(self.folder, ModelError):
            # Load the graph, the options and the last checkpoint.
            kind, graph = LEARNERS[self.config["method"]], self.graph()
            options = dict(self.config["options"])
            if device and "device" in options:
                options["device"] = device
            kind.with_options(options).check_graph(graph)
            for name in (*CHECKPOINTS, MODEL_FILE, CONFIG, METRICS, HISTORY, EMBEDDINGS):
                for file in self.folder.glob(f".{name}.*"):  # left by a killed write
                    file.unlink(missing_ok=True)
            saved = self.checkpoints.last(watch.on_note)
            backtest: dict[str, Any] | None = saved.facts.get("backtest") if saved else None
            history: list[dict[str, Any]] = list(saved.facts.get("earlier", [])) if saved else []

            # Backtest: predict the last snapshot with a model that has not seen it.
            split = None
            if self.config["backtest"] and backtest is None:
                try:
                    split = single_step(graph, len(graph) - 2, seed=options.get("seed", 0))
                except GraphError as problem:
                    watch.on_note(f"no backtest: {problem}")
            if split is not None:
                model = kind.with_options(options)
                examples = split.to(choose_device(getattr(model, "device", "cpu")))
                done = self._fit(
                    "backtest", model, graph[:-1], saved, {}, watch, keep_every,
                    validate=lambda fitted: validation_auc(fitted.roles(), examples, feature=fitted.pair_feature),
                )  # fmt: skip
                history = [{"stage": "backtest", **asdict(epoch)} for epoch in done.history]
                if not done.finished:
                    return False
                watch.on_stage("heuristics", 0)
                backtest = backtest_facts(model, graph[:-1], split, done)

            # Train the final model on all snapshots, for as many epochs as were best in the backtest (unless each
            # step starts from the weights of the previous one: then the last step says nothing about the others).
            warm = issubclass(kind, StepwiseModel) and kind.warm
            if backtest is not None and backtest["validation_auc"] is not None and not warm:
                options |= {"epochs": backtest["best_epoch"], "patience": NONE}
            model = kind.with_options(options)
            before = {"backtest": backtest, "earlier": history}
            done = self._fit("final", model, graph, saved, before, watch, keep_every)

            # Write the results. A stopped incremental model has not seen the whole graph, so it is not written.
            if done.finished or not isinstance(model, Incremental):
                write_results(self.folder, model, backtest, history, done)
            if done.finished:
                if isinstance(model, IncSAT) and model.inputs == "identity":
                    Stream.begin(self.folder, model, self.config["graph"])
                self.checkpoints.remove()
            return done.finished

    def _fit(
        self,
        stage: Stage,
        model: EmbeddingModel,
        graph: DynamicGraph,
        saved: Saved | None,
        before: Mapping[str, Any],
        watch: Watch,
        keep_every: float,
        validate: Callable[[EmbeddingModel], float] | None = None,
    ) -> Progress:
        """Train the model of one stage, from its checkpoint if there is one; a model without epochs has none."""
        if not isinstance(model, TrainedModel):
            watch.on_stage(stage, 0)
            model.fit(graph)
            return Progress(finished=stage == "final" or not watch.stop())
        watch.on_stage(stage, model.epochs * (len(graph) if isinstance(model, Incremental) else 1))
        progress = None
        if saved is not None and saved.facts["stage"] == stage:
            progress = Progress.restore(saved.facts["progress"], saved.tensors)
        model.fit(
            graph,
            validate=validate,
            on_epoch=watch.on_epoch,
            stop=watch.stop,
            progress=progress,
            keep=lambda now: self.checkpoints.write({"stage": stage, "progress": now.facts(), **before}, now.tensors),
            keep_every=keep_every,
        )
        return Progress(model.epochs_, {}, model.finished_)


def write_results(
    folder: Path,
    model: EmbeddingModel,
    backtest: dict[str, Any] | None,
    history: list[dict[str, Any]],
    done: Progress,
) -> None:
    """Write the model, its embeddings, history.csv and metrics.json, each atomically."""
    from dysat.system.table_files import write_table

    history = history + [{"stage": "final", **asdict(epoch)} for epoch in done.history]
    model.save_weights(folder)
    write_table([model.table(step) for step in model.steps_at_hand()], folder / EMBEDDINGS)
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
        "directed": model.graph_.directed,
    }
    write_text(folder / METRICS, json.dumps(metrics, indent=2) + "\n")


def write_text(file: Path, text: str) -> None:
    """Write a text file atomically."""
    with replace_file(file, ModelError) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def check_new(folder: Path) -> None:
    """Raise if the folder exists."""
    if os.path.lexists(folder):
        hint = f"; dysat fit --resume {folder} continues it" if (folder / CONFIG).exists() else ""
        raise ModelError(f"{folder}: exists already, choose another folder{hint}")
