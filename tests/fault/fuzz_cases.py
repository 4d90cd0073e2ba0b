"""One case of the fuzzer: hostile files or a hostile command line, something done with them, and the rules checked."""

from __future__ import annotations

import os
import shutil
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from fuzz_commands import QUICK, make_command
from fuzz_graphs import change_graph
from fuzz_logs import LOGS, NODES, change_log, columns_of
from fuzz_runs import change_run
from hostile_values import Rng, chance, pick
from rules import check_graph, check_links, check_output, check_vectors, is_unprintable

import dysat
from dysat.cli import main
from dysat.errors import DysatError
from dysat.runs.run import Run

Outcome = Literal["valid", "refused"]
SMALL = ["--no-backtest", "--model", "incsat", *(word for name in QUICK for word in ("--set", name))]


@dataclass
class Box:
    """The folder of one case, the originals, and the standard output of the worker."""

    folder: Path
    originals: Path
    output: Callable[[], tuple[str, str]]  # what was printed since the last call
    begin: Callable[[], None] = lambda: None  # called when files are made and dysat is about to work

    def command(self, *args: object) -> Outcome:
        """Run a command line in this process, and check what it prints."""
        words = ["dysat", *map(str, args)]
        self.begin()
        self.output()
        sys.argv = words
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        check_output(code, *self.output(), as_json="--json" in words and "--help" not in words)
        return "refused" if code else "valid"

    def library(self, work: Callable[[], Any]) -> Outcome:
        """Call the library, and check the message of an error."""
        self.begin()
        try:
            work()
        except DysatError as problem:
            message = str(problem)
            if not message or any(is_unprintable(c) for c in message):
                raise AssertionError(f"the message {message!r} is not a printable line") from problem
            return "refused"
        return "valid"


def run_case(kind: str, seed: int, index: int, box: Box) -> Outcome:
    """Run one case; its files and options depend on the kind, the seed and the index only."""
    rng = np.random.default_rng([zlib.crc32(kind.encode()), seed, index])
    os.chdir(box.folder)
    return KINDS[kind](rng, box)


def _graph_case(rng: Rng, box: Box) -> Outcome:
    name = pick(rng, ("plain", "directed", "attributes", "sides", "numbers"))
    folder = Path(shutil.copytree(box.originals / "graphs" / name, box.folder / "graph"))
    change_graph(rng, folder)
    action = rng.random()
    if action < 0.6:
        heuristic = pick(rng, ("degree-product", "edgebank", "common-neighbours", "svd"))
        return box.library(lambda: _use_graph(dysat.DynamicGraph.load(folder), heuristic))
    if action < 0.9:
        return box.command("info", "graph", *["--json"] * chance(rng, 0.6))
    return box.command("fit", "graph", "-o", "run", *SMALL, *["--json"] * chance(rng, 0.6))


def _use_graph(graph: dysat.DynamicGraph, heuristic: str) -> None:
    """Use a graph that was loaded without an error, whatever it holds."""
    check_graph(graph)
    graph.summary()
    str(graph.fingerprint + repr(graph) + graph._repr_html_())
    check_links(dysat.MODELS[heuristic]().fit(graph).top_links(5))


def _run_case(rng: Rng, box: Box) -> Outcome:
    name = pick(rng, ("incsat", "program", "default", "stopped"))
    folder = Path(shutil.copytree(box.originals / "runs" / name, box.folder / "run"))
    outside = box.folder.parent / "outside.txt"
    outside.write_text("not part of the run\n")
    change_run(rng, folder, outside)
    action = rng.random()
    as_json = ["--json"] * chance(rng, 0.6)
    if action < 0.1 or (name == "stopped" and action < 0.4):
        return box.command("fit", "--resume", "run", *as_json)
    if action < 0.45:
        return box.library(lambda: _use_run(folder))
    if action < 0.6:
        return box.command("info", "run", *as_json)
    if action < 0.8:
        return box.command("forecast", "run", "--top", 3, *["--each"] * chance(rng, 0.2), *as_json)
    if action < 0.88:
        return box.command("embed", "run", "-o", pick(rng, ("e.csv", "e.jsonl", "e.parquet")), *as_json)
    shutil.copyfile(box.originals / "logs" / "later.csv", box.folder / "later.csv")
    return box.command("update", "run", "later.csv", *as_json)


def _use_run(folder: Path) -> None:
    """Use a run that was opened without an error, whatever it holds."""
    run = Run.open(folder)
    check_graph(run.graph())
    run.metrics()
    repr(run)
    model = run.model("cpu")
    check_graph(model.graph_)
    check_links(model.top_links(3))
    if model.has_embeddings:
        check_vectors(model.embed())


def _log_case(rng: Rng, box: Box) -> Outcome:
    if chance(rng, 0.2):
        return _nodes_case(rng, box)
    name = pick(rng, LOGS)
    file = change_log(rng, box.originals / "logs" / name, box.folder)
    columns = columns_of(rng, name)
    every = pick(rng, ("1w", "1w", "1w", "1mo", "5d", "1y"))
    directed, skip = chance(rng, 0.2), chance(rng, 0.3)
    if chance(rng, 0.6):
        bad_rows: Literal["skip", "raise"] = "skip" if skip else "raise"

        def read() -> None:
            events = dysat.read_events(file, **columns, bad_rows=bad_rows)  # type: ignore[arg-type]
            check_graph(dysat.build_snapshots(events, every=every, directed=directed))

        return box.library(read)
    words = [word for key, column in columns.items() for word in (f"--{key}", column)]
    extra = pick(rng, ([], [], ["--kinds", "a,b"], ["--split-dst", " "], ["--normalise-labels"], ["-o", "graph"],
                       ["--negative-weights", "drop"], ["--self-loops", "keep"], ["--encoding", "utf-16"]))  # fmt: skip
    options = [*["--directed"] * directed, *["--skip-bad-rows"] * skip, *["--json"] * chance(rng, 0.6), *extra]
    return box.command("snapshots", file.name, *words, "--every", every, *options)


def _nodes_case(rng: Rng, box: Box) -> Outcome:
    """A hostile table of node attributes."""
    file = change_log(rng, box.originals / "logs" / pick(rng, NODES), box.folder)
    time = "time" if "timed" in file.name and chance(rng, 0.7) else None
    if chance(rng, 0.5):

        def read() -> None:
            graph = dysat.DynamicGraph.load(box.originals / "graphs" / "plain")
            check_graph(graph.with_attributes(dysat.read_nodes(file, time=time)))

        return box.library(read)
    shutil.copyfile(box.originals / "logs" / "mail.csv", box.folder / "log.csv")
    words = ["--src", "from", "--dst", "to", "--time", "sent", "--every", "1w", "--nodes", file.name]
    return box.command("snapshots", "log.csv", *words, *["--node-time", "time"] * bool(time), "--json")


def _command_case(rng: Rng, box: Box) -> Outcome:
    return box.command(*make_command(rng, box.originals, box.folder))


KINDS: dict[str, Callable[[Rng, Box], Outcome]] = {
    "graph": _graph_case,
    "run": _run_case,
    "log": _log_case,
    "command": _command_case,
}
