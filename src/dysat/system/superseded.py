"""Refuse files of a run folder that are older than its last update, or missing because of one.

A run keeps its newest state in `stream/`. When its first update takes effect, the files that `fit` wrote move to
`stream/base`. Earlier versions left them where they were, so they can be older than the state.
"""

from __future__ import annotations

from pathlib import Path

from dysat.errors import DysatError
from dysat.system.tensors import read_facts

CONFIG, STREAM, STATE, BASE, GRAPH = "config.toml", "stream", "state.safetensors", "base", "graph"
STATE_VERSION = 1


def is_superseded(run: Path, error: type[DysatError]) -> bool:
    """Whether the files of a run are older than its last update."""
    state = run / STREAM / STATE
    if not state.is_file() or (run / STREAM / BASE).is_dir():
        return False
    return bool(read_facts(state, "stream", STATE_VERSION, error=error).get("updates"))


def check_model_file(folder: Path, file: str, error: type[DysatError]) -> None:
    """Raise if the folder is a run whose model file is missing or older than its last update."""
    if not (folder / CONFIG).is_file():
        return
    if is_superseded(folder, error):
        raise error(f"{folder / file}: older than the last update; use dysat.Run.open({str(folder)!r}).model()")
    if not (folder / file).is_file():
        raise error(f"{folder}: a run folder without {file}; use dysat.Run.open({str(folder)!r}).model()")


def check_graph_folder(folder: Path, error: type[DysatError]) -> None:
    """Raise if the folder is a run, or the graph of a run that is missing or older than its last update."""
    run = folder.parent
    if (folder / CONFIG).is_file() and not (folder / f"{GRAPH}.json").is_file():
        raise error(f"{folder}: a run folder; use dysat.Run.open({str(folder)!r}).graph()")
    if folder.name != GRAPH or not (run / CONFIG).is_file():
        return
    if is_superseded(run, error):
        raise error(f"{folder}: older than the last update; use dysat.Run.open({str(run)!r}).graph()")
    if not folder.exists():
        raise error(f"{folder}: no such folder; use dysat.Run.open({str(run)!r}).graph()")
