"""Update a run: compare each next snapshot with the forecast, learn from it, and store it atomically."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dysat.data.attributes import continued
from dysat.data.continuation import Continuation, Grid, NextSnapshot, continue_snapshots
from dysat.data.events import Events
from dysat.data.graph import DynamicGraph
from dysat.data.windows import Moment, write_moment
from dysat.errors import DysatError, ModelError, SnapshotsError, listed
from dysat.evaluation.probe import auc
from dysat.models.base.forecasts import DIGITS
from dysat.models.dysat import DySAT
from dysat.models.incsat import IncSAT
from dysat.runs.newest import snapshots_shown, write_newest
from dysat.runs.report import write_report
from dysat.runs.run import Run, Watch
from dysat.runs.seal import EVENTS, changed_values, write_seal
from dysat.runs.stream import Stream, Updated, without_features
from dysat.sampling.pairs import unlinked_between, unlinked_pairs
from dysat.system.locks import lock_folder
from dysat.system.superseded import CONFIG

LIKELIEST = 100  # top forecasts compared with the links that came
SHOWN = 10  # of those that came true; a run may see thousands of updates and stores little of each
PATIENCE = 0.1  # seconds between attempts to get the lock
RARELY = 9  # least time between two writings of the files of a run, as a multiple of the time one takes


class CameTrue(NamedTuple):
    """A link among the most likely ones that came true."""

    rank: int  # from 1
    u: Any
    v: Any
    score: float


@dataclass(frozen=True)
class Update:
    """One snapshot that a run has learned from.

    `auc` measures the forecast before learning: `forecast_links` links between known nodes against as many other
    pairs. `came_true` are those of the `likeliest` most likely links that came true.
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
        """Plain values for JSON: the number of forecasts that came true, and the first of them."""
        first = self.came_true[:SHOWN]
        came = [link._asdict() | {"u": _plain(link.u), "v": _plain(link.v)} for link in first]
        return {**asdict(self), "came": len(self.came_true), "came_true": came}


class StoppedUpdate(ModelError):  # noqa: N818
    """An update was stopped; the run is unchanged."""


class Updater:
    """Adds snapshots to a run; created by `updating`, which locks the run."""

    def __init__(
        self, run: Run, model: Updated, stream: Stream, watch: Watch, made: Mapping[str, Any], report: bool = False
    ) -> None:
        self.run, self.model, self.stream, self.watch = run, model, stream, watch
        self.made = made  # every, count, self_loops: how events become snapshots
        self.report = report  # whether to write the page of the run
        self._wrote = (0.0, 0.0)  # when files were written last, and the seconds it took

    @property
    def graph(self) -> DynamicGraph:
        return self.model.graph_

    @property
    def last(self) -> int:
        """The end of the last window."""
        return self.graph.boundaries[-1]

    def plan(
        self, events: Events, *, until: Moment | None = None, boundaries: Sequence[Moment] | None = None
    ) -> Continuation:
        """Cut events into the next snapshots; `until`: only those that end by then."""
        grid = self.grid() if boundaries is None else None
        loops = self.made.get("self_loops", "drop")
        return continue_snapshots(self.graph, events, grid=grid, boundaries=boundaries, until=until, self_loops=loops)

    def grid(self) -> Grid:
        """The grid of windows that continues those of the run."""
        edges = self.graph.boundaries[: len(self.graph) - len(self.stream.updates) + 1]
        return Grid.of(edges, self.graph.clock, every=self.made.get("every"), count=self.made.get("count"))

    def take_in(self, plan: Continuation, files: Sequence[dict[str, Any]] = ()) -> Iterator[Update]:
        """Take in one snapshot after the other; each update is on disk when it is yielded."""
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
        self.watch.on_stage(f"{window[0]} … {window[1]}", model.epochs if model.has_embeddings else 0)
        checked = check_forecast(model, step)
        stopped: list[bool] = []

        def stop() -> bool:
            stopped.append(self.watch.stop())
            return stopped[-1]

        if isinstance(model, IncSAT):
            model.partial_fit(snapshot, step.nodes, kinds=step.kinds, on_epoch=self.watch.on_epoch, stop=stop)
        else:  # a forecast is learned from all transitions together
            if self.graph.feature_names and len(step.nodes):
                self.watch.on_note(f"new nodes without attributes: {len(step.nodes):,}; fit again to add them")
            whole = self.graph.extended(snapshot, step.nodes, step.kinds, new_features(self.graph, snapshot.num_nodes))
            model.fit(whole, on_epoch=self.watch.on_epoch, stop=stop)
        if any(stopped):
            raise StoppedUpdate(f"stopped; {self.run.folder} has not taken in {window[0]} … {window[1]}")
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

    def write_files(self, *, rarely: bool = False) -> None:
        """Write the files of the newest state, unless they exist: those of `write_newest`, and report.html.

        `rarely` skips it if it would take more than about a tenth of the time. If it fails, the updates are complete
        all the same, and the next command that updates the run writes the files.
        """
        ended, took = self._wrote
        begin = time.monotonic()
        if not self.stream.updates or (rarely and begin - ended < RARELY * took):
            return
        if snapshots_shown(self.run.folder) == len(self.graph):
            return
        try:
            write_newest(self.run.folder, self._stored_model(), self.stream.updates)
            if self.report:
                write_report(self.run, self.model)
        except DysatError as problem:
            self.watch.on_note(f"the updates are stored, but {problem}; the next update writes the files of the run")
        self._wrote = (time.monotonic(), time.monotonic() - begin)

    def _stored_model(self) -> Updated:
        """The model with the epochs of the run, not those of this update."""
        epochs = self.stream.facts["options"]["epochs"]
        return self.model if self.model.epochs == epochs else _with_epochs(self.model, epochs)

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
    report: bool = False,
) -> Iterator[Updater]:
    """Lock a run for updates; a second process waits for the first one, or raises.

    `made` says how the graph was cut if the run does not record it: `every` or `count`, `self_loops`, `directed`. After
    all updates, the files of the run are written for the newest state, with its page if `report`.
    """
    watch = watch or Watch()
    with lock_folder(run.folder, ModelError, wait=_waiting(run, watch) if wait else None):
        run = Run.open(run.folder)
        if not run.finished:
            raise ModelError(f"{run.folder}: not fully trained yet; dysat fit --resume {run.folder} continues")
        stream = Stream.open(run.folder) if Stream.exists(run.folder) else begin_stream(run)
        if stream.facts["graph"] != run.config["graph"]:
            raise ModelError(f"{stream.folder}: belongs to another run")
        stream.discard_unfinished()
        base = without_features(run.first_graph(verify=stream.refits))
        recorded = run.config.get("events")
        if recorded:
            check_recorded(run.folder, base, recorded)
        made = recorded or _checked(run, base, made or {})
        model = stream.model(base, device, verify=False)
        if epochs is not None:
            model = _with_epochs(model, epochs)
        updater = Updater(run, model, stream, watch, made, report)
        try:
            yield updater
        except KeyboardInterrupt:  # Ctrl-C, pressed twice, stops at once
            raise
        except BaseException:  # also SystemExit, which Rich raises if the output is closed
            updater.write_files()
            raise
        updater.write_files()


def _waiting(run: Run, watch: Watch) -> Callable[[], None]:
    """A function that waits a moment for another process, notes it the first time, and raises when asked to stop."""
    noted = False

    def wait() -> None:
        nonlocal noted
        if watch.stop():
            raise StoppedUpdate(f"stopped; nothing was taken into {run.folder}")
        if not noted:
            watch.on_note(f"waiting for another process to finish with {run.folder}")
        noted = True
        time.sleep(PATIENCE)

    return wait


def _checked(run: Run, base: DynamicGraph, made: Mapping[str, Any]) -> dict[str, Any]:
    """How the graph was cut, as given, checked against the graph."""
    windows = {name: value for name, value in made.items() if name in ("every", "count")}
    given = ", ".join(f"{name}={value!r}" for name, value in windows.items())
    if windows:
        grid = Grid.of(base.boundaries, base.clock, **windows)
        if [grid.edge(k) for k in range(len(base) + 1)] != list(base.boundaries):
            raise ModelError(f"{given} does not match the windows of {run.folder}{_windows(base)}")
    loops, kept = made.get("self_loops"), None
    if base.report is not None:
        kept = "keep" if base.report.self_loops_kept else "drop"
    if loops and kept and loops != kept:
        raise ModelError(f"self_loops={loops!r}, but {run.folder} was made with self_loops={kept!r}")
    if made.get("directed") and not base.directed:
        raise ModelError(f"directed=True, but {run.folder} was made with no directed=")
    return {**windows, "self_loops": loops or kept or "drop"}


def check_recorded(folder: Path, base: DynamicGraph, made: Mapping[str, Any]) -> None:
    """Raise if the values under [events] of config.toml are not those that the graph of the run was made with."""
    where = f"{folder / CONFIG}: [events]"
    for name in ("every", "count"):
        if name in made and not _continues(base, {name: made[name]}, cut="stop" in made):
            raise ModelError(f"{where} {name} = {made[name]!r} does not match the windows of the graph{_windows(base)}")
    if bool(made.get("directed")) != base.directed:
        raise ModelError(f"{where} directed = {bool(made.get('directed'))} does not match the graph")
    kinds = made.get("kinds")
    if kinds is not None and [kind.strip() for kind in str(kinds).split(",")] != list(base.kind_names):
        raise ModelError(
            f"{where} kinds = {kinds!r} does not match the kinds of the graph, {', '.join(base.kind_names)}"
        )
    loops = made.get("self_loops", "drop")
    if loops not in ("keep", "drop") or (base.report and (loops == "keep") != base.report.self_loops_kept):
        raise ModelError(f"{where} self_loops = {loops!r} does not match the graph")


def seal_run(folder: Path, check: Callable[[Mapping[str, Any]], None]) -> list[str]:
    """Accept an edit of [events] in config.toml if it agrees with the graph; return the changed keys.

    A run of an earlier version gets a seal. `check` raises if a key or a value is not an option of events.
    """
    run = Run.open(folder, sealed=False)
    with lock_folder(run.folder, ModelError):
        changed = list(changed_values(run.folder, run.config))
        others = [key for key in changed if not key.startswith(EVENTS)]
        if others:
            raise ModelError(f"{run.folder / CONFIG}: {listed(others)} cannot be changed; dysat fit makes a new run")
        made = run.config.get("events", {})
        check(made)
        check_recorded(run.folder, run.first_graph(), made)
        if run.finished:
            run.model("cpu")
        write_seal(run.folder, run.config)
    return changed


def _continues(base: DynamicGraph, windows: Mapping[str, Any], *, cut: bool) -> bool:
    """Whether the windows of a graph are on the grid of `every` or `count`; the last may have been cut short."""
    try:
        grid, last = Grid.of(base.boundaries, base.clock, **windows), len(base)
        ends = grid.edge(last)
    except SnapshotsError:
        return False
    if [grid.edge(k) for k in range(last)] != list(base.boundaries[:-1]):
        return False
    end = base.boundaries[-1]
    return end == ends or (cut and end < ends)


def _windows(base: DynamicGraph) -> str:
    try:
        return f" ({Grid.of(base.boundaries, base.clock)})"
    except SnapshotsError:
        return ""


def begin_stream(run: Run) -> Stream:
    """Prepare the first update. A DySAT continues as an IncSAT, unless it has options that IncSAT lacks."""
    model = run.model("cpu")
    if not isinstance(model, IncSAT | DySAT):
        raise ModelError(f"{run.folder}: {model.method} cannot be updated; runs of dysat and incsat can")
    refits = isinstance(model, DySAT) and bool(IncSAT.beyond(model))
    if model._needs_features(model.graph_) and not (refits and model.graph_.feature_names):
        needs = "the model uses" if model.inputs == "identity" else f"inputs={model.inputs!r}: the model needs"
        raise ModelError(f"{run.folder}: {needs} node features, which a log of events does not have")
    if isinstance(model, DySAT) and not IncSAT.beyond(model):
        model = IncSAT.continuing(model)
    if model.graph_.fingerprint != run.config["graph"]:
        raise ModelError(f"{run.folder}: the graph in the folder is not the one in {CONFIG}")
    return Stream.prepare(run.folder, model, run.config["graph"])


def new_features(graph: DynamicGraph, known: int) -> Tensor | None:
    """Features of the next snapshot of a graph with attributes: new nodes have missing values, others keep theirs."""
    if graph.features is None:
        return None
    grown = continued(graph.features, graph.feature_names, [*graph.known, known])
    return grown[graph.num_nodes :] if isinstance(grown, Tensor) else grown[-1]


def check_forecast(model: Updated, step: NextSnapshot) -> dict[str, Any]:
    """How well the model, which has not seen the snapshot, forecast its links."""
    known = model.graph_.known[-1]
    u, v, _ = step.snapshot.pairs()
    links = torch.stack([u, v], 1)[(u < known) & (v < known) & (u != v)].cpu().numpy()
    facts: dict[str, Any] = {"auc": None, "forecast_links": len(links), "likeliest": 0, "came_true": ()}
    if known < 2:
        return facts
    others = _other_pairs(model.graph_, links, np.random.default_rng(len(model.graph_)))
    if len(links) and len(others):
        pairs = torch.from_numpy(np.concatenate([links, others]))
        facts["auc"] = auc(model.pair_scores(pairs), torch.arange(len(pairs)) < len(links))
    pairs, chances = model.top_pairs(LIKELIEST)
    came = torch.isin(model._pair_keys(pairs), model._pair_keys(torch.from_numpy(links))).numpy()
    names = model.graph_.nodes[pairs.numpy()].tolist()
    true = (
        CameTrue(int(i) + 1, names[i][0], names[i][1], round(float(chances[i]), DIGITS)) for i in np.flatnonzero(came)
    )
    return {**facts, "likeliest": len(pairs), "came_true": tuple(true)}


def _other_pairs(graph: DynamicGraph, links: Any, rng: np.random.Generator) -> Any:
    """As many unlinked pairs as links; in bipartite data, of the same kinds as the links.  # [≤ B, 2]"""
    kinds = graph.kinds
    if kinds is None or (kinds[links[:, 0]] == kinds[links[:, 1]]).any():
        return unlinked_pairs(graph.known[-1], links, len(links), rng, directed=graph.directed)
    joined, counts = np.unique(np.sort(kinds[links], axis=1), axis=0, return_counts=True)
    parts = [
        unlinked_between(np.flatnonzero(kinds == left), np.flatnonzero(kinds == right), links, int(count), rng)
        for (left, right), count in zip(joined.tolist(), counts, strict=True)
    ]
    return np.concatenate(parts) if parts else links[:0]


def _with_epochs(model: Updated, epochs: int) -> Updated:
    """The same model with another number of epochs."""
    if not model.has_embeddings:
        raise ModelError(f"epochs={epochs} has no effect with embeddings=False")
    changed = replace(model, epochs=epochs)
    vars(changed).update({name: value for name, value in vars(model).items() if name.endswith("_")})
    return changed


def _plain(label: Any) -> Any:
    return label if isinstance(label, str) else int(label)
