"""The next snapshots of a run: checked against what was forecast, learned from, and kept, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from dysat.data.continuation import Continuation, Grid, NextSnapshot, continue_snapshots
from dysat.data.events import Events
from dysat.data.graph import DynamicGraph
from dysat.data.windows import Moment, write_moment
from dysat.errors import ModelError, SnapshotsError
from dysat.evaluation.probe import auc
from dysat.models.base.link_model import DIGITS, GRAPH_FOLDER
from dysat.models.dysat import DySAT
from dysat.models.incsat import IncSAT
from dysat.runs.run import Run, Watch
from dysat.runs.stream import Stream, Updated, without_features
from dysat.sampling.pairs import unlinked_between, unlinked_pairs
from dysat.system.locks import lock_folder

LIKELIEST = 100  # forecasts that are looked for among the links that came
SHOWN = 10  # of those that came: a run keeps little of every update, for it may see thousands
PATIENCE = 0.1  # seconds between two looks whether another update has ended


class CameTrue(NamedTuple):
    """A link that was among the likeliest, and came."""

    rank: int  # from 1
    u: Any
    v: Any
    score: float


@dataclass(frozen=True)
class Update:
    """One snapshot that was taken in.

    `auc` is that of the forecast before learning: `forecast_links` links between known nodes against as many other
    pairs; `came_true` are those of its `likeliest` links that came.
    """

    step: int
    start: str
    stop: str
    events: int
    links: int
    nodes: int
    new_nodes: int
    auc: float | None
    forecast_links: int
    likeliest: int
    came_true: tuple[CameTrue, ...] = field(repr=False)
    epochs: int
    loss: float | None
    seconds: float

    def facts(self) -> dict[str, Any]:
        """As plain values: how many of the likeliest links came, and the first of them."""
        first = self.came_true[:SHOWN]
        came = [link._asdict() | {"u": _plain(link.u), "v": _plain(link.v)} for link in first]
        return {**asdict(self), "came": len(self.came_true), "came_true": came}


class StoppedUpdate(ModelError):  # noqa: N818
    """An update was stopped; the run is as it was before it."""


class Updater:
    """A run that takes in snapshots; `updating` makes one, and nobody else may change the run meanwhile."""

    def __init__(self, run: Run, model: Updated, stream: Stream, watch: Watch, made: Mapping[str, Any]) -> None:
        self.run, self.model, self.stream, self.watch = run, model, stream, watch
        self.made = made  # every, count, self_loops: how events become snapshots here

    @property
    def graph(self) -> DynamicGraph:
        return self.model.graph_

    @property
    def last(self) -> int:
        """Where the last window ends."""
        return self.graph.boundaries[-1]

    def plan(
        self,
        events: Events,
        *,
        until: Moment | None = None,
        boundaries: Sequence[Moment] | None = None,
        only_closed: bool = False,
    ) -> Continuation:
        """The next snapshots that events make. `only_closed`: no window that the last of the events lies in."""
        if only_closed and until is None:
            until = int(events.time[-1])
        grid = self.grid() if boundaries is None else None
        loops = self.made.get("self_loops", "drop")
        return continue_snapshots(self.graph, events, grid=grid, boundaries=boundaries, until=until, self_loops=loops)

    def grid(self) -> Grid:
        """How the windows go on that the run was made with."""
        edges = self.graph.boundaries[: len(self.graph) - len(self.stream.updates) + 1]
        return Grid.of(edges, self.graph.clock, every=self.made.get("every"), count=self.made.get("count"))

    def take_in(self, plan: Continuation, files: Sequence[dict[str, Any]] = ()) -> Iterator[Update]:
        """Take in one snapshot after the other; what is given out is on disk, for good."""
        for step in plan.steps:
            yield self._take_in(step, files)

    def _take_in(self, step: NextSnapshot, files: Sequence[dict[str, Any]]) -> Update:
        before = dict(vars(self.model))
        try:
            return self._learn_and_keep(step, files)
        except BaseException:
            vars(self.model).clear()
            vars(self.model).update(before)
            raise

    def _learn_and_keep(self, step: NextSnapshot, files: Sequence[dict[str, Any]]) -> Update:
        begin, model, snapshot = time.monotonic(), self.model, step.snapshot
        window = [write_moment(edge, self.graph.clock) for edge in (snapshot.start, snapshot.stop)]
        self.watch.on_stage(f"{window[0]} … {window[1]}", model.epochs)
        checked = check_forecast(model, step)
        stopped: list[bool] = []

        def stop() -> bool:
            stopped.append(self.watch.stop())
            return stopped[-1]

        if isinstance(model, IncSAT):
            model.partial_fit(snapshot, step.nodes, kinds=step.kinds, on_epoch=self.watch.on_epoch, stop=stop)
        else:  # what looks ahead is learned from all transitions together
            whole = self.graph.extended(snapshot, step.nodes, step.kinds)
            model.fit(whole, on_epoch=self.watch.on_epoch, stop=stop)
        if any(stopped):
            raise StoppedUpdate(f"stopped; {self.run.folder} is as it was before {window[0]} … {window[1]}")
        update = Update(
            step=len(self.graph) - 1,
            start=window[0],
            stop=window[1],
            events=step.events,
            links=snapshot.num_links,
            nodes=snapshot.num_nodes,
            new_nodes=len(step.nodes),
            **checked,
            epochs=len(model.epochs_),
            loss=model.epochs_[-1].loss if model.epochs_ else None,
            seconds=round(time.monotonic() - begin, 3),
        )
        taken = [{**file, "taken": snapshot.stop} for file in files]
        self.stream.commit(model, step.nodes, step.kinds, self._known_files(taken), update.facts())
        return update

    def _known_files(self, files: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        known = {file["sha256"] for file in files}
        return [*(file for file in self.stream.files if file["sha256"] not in known), *files]


@contextmanager
def updating(
    run: Run,
    *,
    made: Mapping[str, Any] | None = None,
    device: str = "auto",
    epochs: int | None = None,
    watch: Watch | None = None,
    wait: bool = False,
) -> Iterator[Updater]:
    """A run to be updated. A second one at the same time waits for the first to end, or is refused.

    `made` says how the graph was cut, where the run does not know it: `every` or `count`, and `self_loops`.
    """
    watch = watch or Watch()
    with lock_folder(run.folder, ModelError, wait=_patiently(run, watch) if wait else None):
        run = Run.open(run.folder)
        if not run.finished:
            raise ModelError(f"{run.folder}: not trained to its end yet; dysat fit --resume {run.folder} goes on")
        stream = Stream.open(run.folder) if Stream.exists(run.folder) else begin_stream(run)
        if stream.facts["graph"] != run.config["graph"]:
            raise ModelError(f"{stream.folder}: made by updates of another run")
        stream.cut_back()
        base = without_features(DynamicGraph.load(run.folder / GRAPH_FOLDER, verify=stream.anew))
        made = run.config.get("events") or _checked(run, base, made or {})
        model = stream.model(base, device, verify=False)
        if epochs is not None:
            model = _with_epochs(model, epochs)
        yield Updater(run, model, stream, watch, made)


def _patiently(run: Run, watch: Watch) -> Callable[[], None]:
    """Wait a moment for another process, say so once, and hear when to stop."""
    told: list[bool] = []

    def wait() -> None:
        if watch.stop():
            raise StoppedUpdate(f"stopped; nothing was taken into {run.folder}")
        if not told:
            watch.on_note(f"waiting for another process to end its work on {run.folder}")
        told.append(True)
        time.sleep(PATIENCE)

    return wait


def _checked(run: Run, base: DynamicGraph, made: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of how a graph was cut must be true of it."""
    windows = {name: value for name, value in made.items() if name in ("every", "count")}
    said = ", ".join(f"{name}={value!r}" for name, value in windows.items())
    if windows:
        grid = Grid.of(base.boundaries, base.clock, **windows)
        if [grid.edge(k) for k in range(len(base) + 1)] != list(base.boundaries):
            raise ModelError(f"{said}, but the windows of {run.folder} {_windows(base)}")
    loops, kept = made.get("self_loops"), None
    if base.report is not None:
        kept = "keep" if base.report.self_loops_kept else "drop"
    if loops and kept and loops != kept:
        raise ModelError(f"self_loops={loops!r}, but {run.folder} was made with self_loops={kept!r}")
    return {**windows, "self_loops": loops or kept or "drop"}


def _windows(base: DynamicGraph) -> str:
    try:
        return f"go on {Grid.of(base.boundaries, base.clock)}"
    except SnapshotsError:
        return "are others"


def begin_stream(run: Run) -> Stream:
    """Lay down what updates start from; a DySAT goes on as an IncSAT, unless it has what no IncSAT has."""
    model = run.model("cpu")
    if not isinstance(model, IncSAT | DySAT):
        raise ModelError(f"{run.folder}: {model.method} cannot take in snapshots; runs of dysat and incsat can")
    if model._needs_features(model.graph_):
        raise ModelError(
            f"{run.folder}: inputs={model.inputs!r}: the model needs features of nodes, which a log of events has not"
        )
    if isinstance(model, DySAT) and not IncSAT.beyond(model):
        model = IncSAT.continuing(model)
    return Stream.prepare(run.folder, model, run.config["graph"])


def check_forecast(model: Updated, step: NextSnapshot) -> dict[str, Any]:
    """How well a model that has not seen a snapshot has forecast its links."""
    known = model.graph_.known[-1]
    u, v, _ = step.snapshot.links()
    links = torch.stack([u, v], 1)[(v < known) & (u != v)].cpu().numpy()
    found: dict[str, Any] = {"auc": None, "forecast_links": len(links), "likeliest": 0, "came_true": ()}
    if known < 2:
        return found
    others = _other_pairs(model.graph_, links, np.random.default_rng(len(model.graph_)))
    if len(links) and len(others):
        pairs = torch.from_numpy(np.concatenate([links, others]))
        found["auc"] = auc(model.pair_scores(pairs), torch.arange(len(pairs)) < len(links))
    pairs, chances = model.top_pairs(LIKELIEST)
    came = np.isin(_keys(pairs.numpy(), known), _keys(links, known))
    names = model.graph_.nodes[pairs.numpy()].tolist()
    true = (
        CameTrue(int(i) + 1, names[i][0], names[i][1], round(float(chances[i]), DIGITS)) for i in np.flatnonzero(came)
    )
    return {**found, "likeliest": len(pairs), "came_true": tuple(true)}


def _other_pairs(graph: DynamicGraph, links: Any, rng: np.random.Generator) -> Any:
    """As many pairs without a link as there are links, where nodes have kinds of the same two.  # [≤ B, 2]"""
    kinds = graph.kinds
    if kinds is None or (kinds[links[:, 0]] == kinds[links[:, 1]]).any():
        return unlinked_pairs(graph.known[-1], links, len(links), rng)
    joined, counts = np.unique(np.sort(kinds[links], axis=1), axis=0, return_counts=True)
    parts = [
        unlinked_between(np.flatnonzero(kinds == left), np.flatnonzero(kinds == right), links, int(count), rng)
        for (left, right), count in zip(joined.tolist(), counts, strict=True)
    ]
    return np.concatenate(parts) if parts else links[:0]


def _keys(pairs: Any, size: int) -> Any:
    return pairs.min(1) * size + pairs.max(1) if len(pairs) else np.empty(0, dtype=np.int64)


def _with_epochs(model: Updated, epochs: int) -> Updated:
    """The same model that learns for so many epochs."""
    changed = replace(model, epochs=epochs)
    vars(changed).update({name: value for name, value in vars(model).items() if name.endswith("_")})
    return changed


def _plain(label: Any) -> Any:
    return label if isinstance(label, str) else int(label)
