"""Run folders: train a model on a graph. A killed run resumes and reaches the same result.

    config.toml           method, options and source
    run.json              the seal: what config.toml said when the run was created (see `seal`)
    graph/                the snapshots
    checkpoint*           state of the training; removed when it is finished
    model.safetensors     the trained model
    embeddings.parquet    label, step and embedding of every known node; of the last step alone in very large graphs
    metrics.json          how well the last windows were predicted
    history.csv           one row per epoch (of the last snapshot, if the method learns snapshot by snapshot)
    stream/               what updates have added (see `stream`)
    .lock                 held by the process that writes to the folder

After an update, graph/, model.safetensors, embeddings.parquet and metrics.json are those of the newest state (see
`newest`), and history.csv is that of the fit. `Run.open` reads the newest state at any time.

Training has two stages. In the backtest, models that have not seen the last complete windows predict them, one model
for each window. The best epoch for the newest one sets the number of epochs. The final model then learns from all
snapshots.
"""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

import dysat
from dysat.data.graph import DynamicGraph
from dysat.errors import DysatError, ModelError
from dysat.evaluation.probe import validation_auc
from dysat.evaluation.protocols import LinkSplit, TooFewLinksError, single_step
from dysat.models import MODELS
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.forecasts import Forecasts
from dysat.models.base.link_model import GRAPH_FOLDER, MODEL_FILE, Incremental
from dysat.models.base.option import NONE
from dysat.models.base.stepwise import StepwiseModel
from dysat.models.base.trained import TrainedModel
from dysat.models.incsat import IncSAT
from dysat.nn.device import choose_device
from dysat.runs.backtest import WINDOWS, incomplete, summary, window_facts
from dysat.runs.checkpoints import CHECKPOINTS, Checkpoints, Saved
from dysat.runs.metrics import METRICS, read_metrics
from dysat.runs.newest import EMBEDDINGS, first_folder, newest_metrics, write_embeddings
from dysat.runs.seal import SEALED, check_seal, write_seal
from dysat.runs.stream import Stream, without_features
from dysat.system.locks import lock_folder
from dysat.system.parallel.ranks import alone, ranks, was_restarted
from dysat.system.storage import replace_file, umask
from dysat.system.superseded import CONFIG, STATE, STREAM
from dysat.system.text.csv_text import csv_text
from dysat.system.text.json_text import json_text
from dysat.system.text.printable import printable
from dysat.system.text.toml import as_toml
from dysat.system.writing import check_place, sweep, write_problem, writing_beside
from dysat.training import Epoch, Progress

HISTORY = "history.csv"
KEEP_EVERY = 10.0  # seconds between checkpoints
# The methods a run can train, by name.
LEARNERS: dict[str, type[EmbeddingModel]] = {
    name: kind for name, kind in MODELS.items() if issubclass(kind, EmbeddingModel)
}
Stage = Literal["backtest", "heuristics", "final"]
Read = TypeVar("Read")


@dataclass(frozen=True)
class Watch:
    """Callbacks for progress, and a way to stop."""

    on_stage: Callable[[str, int], None] = lambda stage, epochs: None  # its name, and its most epochs (0: no epochs)
    on_epoch: Callable[[Epoch], None] = lambda epoch: None
    on_note: Callable[[str], None] = lambda note: None
    stop: Callable[[], bool] = lambda: False


class Run:
    """A run folder, as `dysat fit` writes it. `Run.open(folder)` opens one; its methods read the newest state.

    `start` creates a folder, and `train` trains the model or resumes training. A new folder appears complete or not at
    all, every file is replaced atomically, and updates are atomic. A run can be read while it is trained or updated.

    Attributes:
        folder: path of the folder.
        config: content of config.toml: method, options, source, and how the log was read.

    Example:
        >>> import tempfile, dysat
        >>> graph, model = dysat.load_dataset("uci")[:3], dysat.IncSAT(epochs=1, walks_per_node=1, device="cpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = dysat.Run.start(f"{folder}/run", graph, model, backtest=False).train()
        ...     run = dysat.Run.open(f"{folder}/run")
        ...     print(run.model().embed().shape, len(run.graph()), len(run.forecasts(k=5)), run.metrics()["nodes"])
        torch.Size([1223, 128]) 3 5 1223
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder, self.config = folder, config
        # Checkpoints belong to a graph, a method and its options, on any device.
        options = {key: value for key, value in config["options"].items() if key != "device"}
        identity = [config["graph"], config["method"], config["backtest"], options]
        self.checkpoints = Checkpoints(folder, json.dumps(identity, sort_keys=True))
        self._last: tuple[Any, EmbeddingModel] | None = None  # the model that was last used, and its state
        self._began = time.monotonic()  # when training began, had it never been interrupted
        self._given: DynamicGraph | None = None  # the graph of a rank that does not write

    def __repr__(self) -> str:
        updates = len(self.updates())
        state = f"{updates} update{'s' * (updates != 1)}" if self.finished else "not fully trained"
        return f"Run({str(self.folder)!r}): {printable(self.config['method'])}, {state}"

    @classmethod
    def start(
        cls,
        folder: str | os.PathLike[str],
        graph: DynamicGraph,
        model: EmbeddingModel,
        *,
        backtest: bool | int = WINDOWS,
        include_incomplete: bool = False,
        source: str = "",
        events: Mapping[str, Any] | None = None,
    ) -> Run:
        """Create the folder of a new run; an existing folder is never touched.

        `backtest` is the number of windows that the backtest predicts: the last complete ones, or with
        `include_incomplete` the last ones. 0 or False skips the backtest, and True means the default of three windows.
        `events` stores the columns and windows that made the graph, so that updates read the next log the same way.
        """
        path = Path(os.path.abspath(folder))
        if backtest < 0:
            raise ModelError(f"backtest={backtest} must not be negative")
        if not was_restarted():
            check_new(path)
        model.check_graph(graph)
        text = as_toml(
            {
                "dysat": dysat.__version__,
                SEALED: True,
                "source": source,
                "method": model.method,
                "backtest": WINDOWS if backtest is True else int(backtest),
                **({"include_incomplete": True} if include_incomplete else {}),
                "graph": graph.fingerprint,
                "options": {name: NONE if value is None else value for name, value in model.plain_params().items()},
                **({"events": dict(events)} if events else {}),
            }
        )
        if was_restarted() and (path / CONFIG).exists() and (begun := cls.open(path)).config == tomllib.loads(text):
            return begun  # by this very command, before torchrun restarted it
        check_new(path)
        new: Path | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with writing_beside(path) as new:
                new.mkdir()
                graph.save(new / GRAPH_FOLDER)
                write_text(new / CONFIG, text)
                write_seal(new, tomllib.loads(text))
                new.chmod(0o777 & ~umask())
                check_new(path)  # it may have appeared meanwhile
                new.rename(path)
        except OSError as problem:
            raise ModelError(write_problem(path, problem, None)) from problem
        except DysatError as problem:  # name the folder that was asked for
            raise type(problem)(str(problem).replace(str(new), str(path))) from problem
        return cls.open(path)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, sealed: bool = True) -> Run:
        """Open a run folder.

        Parameters:
            folder: a folder that `dysat fit` or `Run.start` created, of this or an earlier version.
            sealed: raise if config.toml has been changed since the run was created.
        """
        path = Path(folder)
        if not path.is_dir():
            raise ModelError(f"{path}: no such folder")
        if not (path / CONFIG).is_file():
            raise ModelError(f"{path}: not a run folder (it has no {CONFIG})")
        try:
            config = tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
            needed = {"method": str, "backtest": int, "graph": str, "options": dict}
            wrong = [key for key, kind in needed.items() if not isinstance(config.get(key), kind)]
        except (OSError, ValueError, RecursionError) as problem:
            raise ModelError(f"{path / CONFIG}: damaged: {problem}") from None
        if wrong:
            raise ModelError(f"{path / CONFIG}: damaged: no {wrong[0]}")
        if config["method"] not in LEARNERS:
            raise ModelError(f"{path / CONFIG}: no method {config['method']!r}; there are {', '.join(LEARNERS)}")
        if sealed:
            check_seal(path, config)
        _check_values(path / CONFIG, config)
        return cls(path, config)

    @classmethod
    def find(cls, folder: str | os.PathLike[str]) -> Run | None:
        """Open a folder if it is a run; return None if it is something else, and raise if it is a damaged run."""
        path = Path(folder)
        if (path / CONFIG).is_file() and not (path / "graph.json").is_file():
            return cls.open(path)
        if (path / STREAM).is_dir() or (path / METRICS).is_file():
            raise ModelError(f"{path}: a damaged run folder (it has no {CONFIG})")
        return None

    @classmethod
    def shared(cls, run: Run | None, graph: DynamicGraph) -> Run:
        """Return the run of the first rank to all ranks, which train it together; the others have the graph only.

        Raise if they have another graph.
        """
        if ranks().size == 1 and run is not None:
            return run
        facts = {"nodes": f"{graph.num_nodes:,}", "snapshots": len(graph)}
        facts["links"] = f"{sum(snapshot.num_links for snapshot in graph):,}"
        ranks().same("graph", {**facts, "fingerprint": graph.fingerprint})
        folder, config = ranks().from_first(None if run is None else [str(run.folder), run.config])[0]
        if run is None:
            run = cls(Path(folder), config)
            run._given = graph
        return run

    @property
    def finished(self) -> bool:
        """Whether training has ended and its results are written."""
        first = first_folder(self.folder)
        written = first != self.folder or all((first / name).is_file() for name in (MODEL_FILE, METRICS))
        return written and not self.checkpoints.files()

    def graph(self) -> DynamicGraph:
        """Load the snapshots, including those of all updates."""
        return self._of_one_state(self._graph)

    def model(self, device: str = "auto") -> EmbeddingModel:
        """Load the trained model, including all updates; its graph is `model.graph_`.

        Parameters:
            device: "cpu", "cuda", "cuda:1", or "auto", which takes CUDA if available.
        """
        return self._of_one_state(lambda: self._model(device))

    def forecasts(self, k: int = 10, *, device: str = "auto", **options: Any) -> Forecasts:
        """Return the k most likely links of the next snapshot, best first, as `model().top_links` does.

        The model is loaded once, and again after an update.

        Parameters:
            k: number of links.
            device: device of the model.
            options: arguments of `top_links`: `node`, `kind`, `known`.
        """
        return self.model_at_hand(device).top_links(k, **options)

    def model_at_hand(self, device: str = "auto") -> EmbeddingModel:
        """Return the trained model without loading it again: that of the last call, or of `train` before it."""
        state = (self._state(), device)
        if self._last is None or (self._last[0] != state and self._writes):
            self._last = (state, self.model(device))
        return self._last[1]

    def metrics(self) -> dict[str, Any]:
        """Return the figures of the run: its backtest, the newest training, and `updates`, a list of all updates."""

        def read() -> dict[str, Any]:
            return newest_metrics(read_metrics(first_folder(self.folder)), self.updates())

        return self._of_one_state(read)

    def updates(self) -> list[dict[str, Any]]:
        """Return the figures of each update, in order."""
        return Stream.updates_of(self.folder)

    def new_model(self) -> EmbeddingModel:
        """Return a new, unfitted model of the method of the run, with its options."""
        return LEARNERS[self.config["method"]].with_options(self.config["options"])

    def first_graph(self, *, verify: bool = True) -> DynamicGraph:
        """Load the snapshots that the run was started with; raise if they are others."""
        if self._given is not None:
            return self._given
        folder = first_folder(self.folder) / GRAPH_FOLDER
        graph = DynamicGraph._load(folder, verify=verify)
        if verify and graph.fingerprint != self.config["graph"]:
            raise ModelError(f"{folder}: not the graph that the run was started with")
        return graph

    def _graph(self) -> DynamicGraph:
        if not self.updates():
            return self.first_graph()
        return Stream.open(self.folder).graph(without_features(self.first_graph()))

    def _model(self, device: str) -> EmbeddingModel:
        if Stream.exists(self.folder):
            return self._checked(Stream.open(self.folder).model(without_features(self.first_graph()), device))
        first = first_folder(self.folder)
        if not (first / MODEL_FILE).is_file():
            raise ModelError(f"{self.folder}: not trained yet; dysat fit --resume {self.folder} continues")
        return self._checked(LEARNERS[self.config["method"]].load(first, device=device))

    def _checked(self, model: EmbeddingModel) -> EmbeddingModel:
        """Raise if the model was trained with other options than those of config.toml, or on another graph.

        The final training takes its number of epochs from the backtest, and the paper's DySAT continues as an IncSAT.
        """
        theirs = model.plain_params()
        for name, value in self.new_model().plain_params().items():
            same = theirs.get(name, value) == value or name in ("device", "patience")
            if not same and not (name == "epochs" and theirs[name] < value):
                raise ModelError(
                    f"{self.folder / CONFIG}: options.{name} is {value}, but the model was trained with "
                    f"{theirs[name]}; undo the change, or dysat fit makes a new run"
                )
        return model

    def _state(self) -> tuple[Any, ...]:
        """Something that changes whenever an update or a training moves or replaces files."""
        files = (self.folder / STREAM / STATE, self.folder / MODEL_FILE, self.folder / METRICS)
        stats = [file.stat() if file.exists() else None for file in files]
        return first_folder(self.folder), *(s and (s.st_ino, s.st_mtime_ns) for s in stats)

    def _of_one_state(self, read: Callable[[], Read]) -> Read:
        """Read again if another process has updated the run meanwhile and files were moved."""
        while True:
            before = self._state()
            try:
                return read()
            except DysatError:
                if self._state() == before:
                    raise

    def train(
        self,
        watch: Watch | None = None,
        *,
        device: str | None = None,
        keep_every: float = KEEP_EVERY,
        began: float | None = None,
    ) -> bool:
        """Train to the end, from the last checkpoint if there is one; return whether the end was reached.

        The seconds of metrics.json count from `began`, a time of `time.monotonic`, if the work began before this call.
        Those of an interrupted run, up to its last checkpoint, are added.
        """
        if ranks().from_first(ranks().first and self.finished)[0]:
            return True
        watch = watch or Watch()
        with lock_folder(self.folder, ModelError) if self._writes else nullcontext():
            # Load the graph, the options and the last checkpoint.
            kind, graph = LEARNERS[self.config["method"]], self.first_graph()
            options = dict(self.config["options"])
            if device and "device" in options:
                options["device"] = device
            kind.with_options(options).check_graph(graph)
            saved = self._last_checkpoint(watch)
            self._began = (began or time.monotonic()) - (saved.facts.get("seconds", 0.0) if saved else 0.0)
            backtest: dict[str, Any] | None = saved.facts.get("backtest") if saved else None
            history: list[dict[str, Any]] = list(saved.facts.get("earlier", [])) if saved else []

            # Backtest: predict the last windows with models that have not seen them.
            if self.config["backtest"] and backtest is None:
                found = self._backtest(kind, options, graph, saved, watch, keep_every)
                if found is None:
                    return False
                backtest, history = found

            # Train the final model on all snapshots, for as many epochs as were best in the backtest (unless each
            # step starts from the weights of the previous one: then the last step says nothing about the others).
            warm = issubclass(kind, StepwiseModel) and kind.warm
            if backtest is not None and backtest.get("validation_auc") is not None and not warm:
                options |= {"epochs": backtest["best_epoch"], "patience": NONE}
            model = kind.with_options(options)
            before = {"backtest": backtest, "earlier": history}
            done = self._fit("final", model, graph, saved, before, watch, keep_every)

            if self._writes:
                with alone():
                    self._write(model, backtest, history, done, watch)
            if done.finished:
                self._last = ((self._state(), "auto"), model)
            return done.finished

    @property
    def _writes(self) -> bool:
        """Whether this process writes to the folder; of several ranks only the first does."""
        return self._given is None

    def _last_checkpoint(self, watch: Watch) -> Saved | None:
        """The checkpoint to continue from, on all ranks; what a killed write has left is removed."""
        saved = None
        if self._writes:
            for name in (*CHECKPOINTS, MODEL_FILE, CONFIG, METRICS, HISTORY, EMBEDDINGS):
                for file in self.folder.glob(f".{name}.*"):
                    file.unlink(missing_ok=True)
            sweep(self.folder)
            saved = self.checkpoints.last(watch.on_note)
        facts, tensors = ranks().from_first(saved and saved.facts, saved and saved.tensors)
        return None if facts is None else Saved(facts, tensors)

    def _write(
        self,
        model: EmbeddingModel,
        backtest: dict[str, Any] | None,
        history: list[dict[str, Any]],
        done: Progress,
        watch: Watch,
    ) -> None:
        """Write the results. A stopped incremental model has not seen the whole graph, so it is not written."""
        if done.finished or not isinstance(model, Incremental):
            watch.on_stage("writing", 0)
            write_results(self.folder, model, backtest, history, done, self.seconds)
        if done.finished:
            if isinstance(model, IncSAT) and model.inputs == "identity":
                Stream.begin(self.folder, model, self.config["graph"])
            self.checkpoints.remove()

    def _backtest(
        self,
        kind: type[EmbeddingModel],
        options: Mapping[str, Any],
        graph: DynamicGraph,
        saved: Saved | None,
        watch: Watch,
        keep_every: float,
    ) -> tuple[dict[str, Any] | None, list[dict[str, Any]]] | None:
        """Predict the last windows, newest first; return the facts of the backtest and the epochs, or None if stopped.

        Every finished window is kept in a checkpoint. With a pair score, a network is trained for the newest window
        only, because the score does not depend on it.
        """
        number = 1 if self.config["backtest"] is True else self.config["backtest"]  # True: written by version 0.1.0
        skip_last = incomplete(graph) and not self.config.get("include_incomplete")
        facts = saved.facts if saved is not None and saved.facts["stage"] == "backtest" else {}
        found, history = list(facts.get("windows", [])), list(facts.get("earlier", []))
        reason = "the graph has only one snapshot"
        if skip_last and len(graph) > 1:
            reason = "the last window is incomplete, and there is no other one to predict"
        for step in range(found[-1]["step"] - 1 if found else len(graph) - 2 - skip_last, -1, -1):
            if len(found) == number:
                break
            try:
                split = single_step(graph, step, seed=options.get("seed", 0))
            except TooFewLinksError as problem:
                reason = str(problem)
                continue
            model, past, done = kind.with_options(options), graph[: split.target], None
            if not model.has_embeddings or (found and found[0]["by"] == "score"):
                watch.on_stage("backtest", 0)
                forecaster = model.forecaster(past)
                if forecaster is None:
                    reason = "the snapshots before the last ones have no links to learn from"
                    break  # those of earlier windows neither
                model = forecaster
            else:
                before = {"window": split.target, "windows": found, "earlier": history}
                done = self._fit(
                    "backtest", model, past, saved, before, watch, keep_every, validate=_validation(model, split)
                )
                stage = f"backtest {split.target}" if found else "backtest"
                history += [{"stage": stage, **asdict(epoch)} for epoch in done.history]
                if not done.finished:
                    return None
            watch.on_stage("heuristics", 0)
            found.append(window_facts(model, graph, split, done))
            self._keep({"stage": "backtest", "windows": found, "earlier": history, "seconds": self.seconds}, {})
            if ranks().any(watch.stop())[0] and len(found) < number and step:
                return None
        if not found:
            watch.on_note(f"no backtest: {reason}")
            return None, []
        covered = graph.report.covered if graph.report is not None else None
        left_out = {"step": len(graph) - 1, "covered": covered} if skip_last else None
        return summary(found, left_out), history

    def _keep(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint, if this process writes."""
        if self._writes:
            self.checkpoints.write(facts, tensors)

    @property
    def seconds(self) -> float:
        """Wall time of the training so far."""
        return round(time.monotonic() - self._began, 3)

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
        if not isinstance(model, TrainedModel) or not model.has_embeddings:
            watch.on_stage(stage, 0)
            model.fit(graph)
            return Progress(finished=stage == "final" or not ranks().any(watch.stop())[0])
        watch.on_stage(stage, model.epochs * (len(graph) if isinstance(model, Incremental) else 1))
        progress = None
        window = before.get("window", len(graph))  # checkpoints of version 0.1.0 do not name the window
        of_this = saved is not None and saved.facts["stage"] == stage and saved.facts.get("window", window) == window
        if saved is not None and of_this and "progress" in saved.facts:
            progress = Progress.restore(saved.facts["progress"], saved.tensors)
        model.fit(
            graph,
            validate=validate,
            on_epoch=watch.on_epoch,
            stop=watch.stop,
            progress=progress,
            keep=lambda now: self._keep(
                {"stage": stage, "progress": now.facts(), "seconds": self.seconds, **before}, now.tensors
            ),
            keep_every=keep_every,
        )
        return Progress(model.epochs_, {}, model.finished_)


def write_results(
    folder: Path,
    model: EmbeddingModel,
    backtest: dict[str, Any] | None,
    history: list[dict[str, Any]],
    done: Progress,
    seconds: float,
) -> None:
    """Write the model, its embeddings if it has any, history.csv and metrics.json, each atomically."""
    history = history + [{"stage": "final", **asdict(epoch)} for epoch in done.history]
    model.save_weights(folder)
    if model.has_embeddings:
        write_embeddings(model, folder / EMBEDDINGS)
    columns = ["stage", *(Epoch.__dataclass_fields__)]
    write_text(folder / HISTORY, csv_text(columns, ([row.get(name) for name in columns] for row in history)))
    metrics = {
        "backtest": backtest,
        "epochs": len(done.history),
        "loss": done.history[-1].loss if done.history else None,
        "seconds": seconds,
        "device": str(_device(model)),
        "nodes": model.graph_.num_nodes,
        "snapshots": len(model.graph_),
        "notes": model.graph_.notes,
        "directed": model.graph_.directed,
    }
    write_text(folder / METRICS, json_text(metrics, indent=2, ascii=True) + "\n")


def _validation(model: EmbeddingModel, split: LinkSplit) -> Callable[[EmbeddingModel], float]:
    """Return a function from a model in training to its validation AUC."""
    examples = split.to(_device(model))
    return lambda fitted: validation_auc(fitted.roles(), examples, feature=fitted.pair_feature)


def _device(model: EmbeddingModel) -> torch.device:
    """The device of the embeddings."""
    return choose_device(getattr(model, "device", "cpu") if model.has_embeddings else "cpu")


def write_text(file: Path, text: str) -> None:
    """Write a text file atomically."""
    data = text.encode()
    with replace_file(file, ModelError, needed=len(data)) as temporary:
        temporary.write_bytes(data)


def _check_values(file: Path, config: Mapping[str, Any]) -> None:
    """Raise if a value of a config is not what a run can use; how the log was read is checked by what reads it."""
    events = config.get("events", {})
    if not isinstance(events, dict) or not all(isinstance(v, str | int) or _is_texts(v) for v in events.values()):
        raise ModelError(f"{file}: damaged: [events] must be a table of texts, whole numbers and lists of texts")
    if not 0 <= config["backtest"] < 2**31 or not isinstance(config.get("include_incomplete", False), bool):
        raise ModelError(f"{file}: damaged: backtest must be a number of windows, and include_incomplete true or false")
    try:
        LEARNERS[config["method"]].with_options(config["options"])
    except ModelError as problem:
        shown = str(problem).replace("=", " = ", 1)  # as in the file, not as on the command line
        raise ModelError(f"{file}: [options] {shown}") from None


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def check_new(folder: Path) -> None:
    """Raise if the folder exists or cannot be created."""
    check_place(folder, ModelError)
    if os.path.lexists(folder):
        hint = f"; dysat fit --resume {folder} continues it" if (folder / CONFIG).exists() else ""
        raise ModelError(f"{folder}: exists already, choose another folder{hint}")
