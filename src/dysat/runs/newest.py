"""The files of a run that show its newest state: graph/, model.safetensors, embeddings.parquet and metrics.json.

They are written for other programs. The state itself is in `stream/`, so that an update takes effect with one rename.
When it does, files of the state before are gone: they are moved away first, and the new ones are written afterwards. A
file that exists is therefore never older than the state. What `fit` wrote is kept in `stream/base`, because updates
continue its graph and keep its backtest.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dysat.errors import ModelError
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.link_model import GRAPH_FOLDER, MODEL_FILE
from dysat.runs.metrics import METRICS, read_metrics
from dysat.system.progress import report
from dysat.system.storage import replace_file, umask
from dysat.system.superseded import BASE, STREAM
from dysat.system.text.json_text import json_text
from dysat.system.writing import sweep

EMBEDDINGS = "embeddings.parquet"
REPORT = "report.html"
FILES = (METRICS, REPORT, EMBEDDINGS, MODEL_FILE, GRAPH_FOLDER)  # metrics.json is removed first and written last
UNNEEDED = (REPORT, EMBEDDINGS, MODEL_FILE)  # files of `stream/base` that are of no use after the first update
STALE = ".stale"
MAX_ROWS = 1_000_000  # of embeddings.parquet; a row of the default takes about 500 bytes


def first_folder(run: Path) -> Path:
    """The folder with the files that `fit` wrote."""
    base = run / STREAM / BASE
    return base if base.is_dir() else run


def snapshots_shown(run: Path) -> int | None:
    """The number of snapshots of the state that the files show; None if they are not complete."""
    try:
        facts = json.loads((run / METRICS).read_text(encoding="utf-8"))
        complete = all((run / name).exists() for name in (MODEL_FILE, GRAPH_FOLDER))
        return int(facts["snapshots"]) if complete else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def newest_metrics(first: Mapping[str, Any], updates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The metrics of a run after updates: the backtest of `fit`, the figures of the last update, and all updates."""
    newest = {}
    if updates:
        last = updates[-1]
        newest = {name: last[name] for name in ("epochs", "loss", "seconds", "nodes")} | {"snapshots": last["step"] + 1}
    return {**first, **newest, "updates": [dict(update) for update in updates]}


def write_newest(run: Path, model: EmbeddingModel, updates: Sequence[Mapping[str, Any]]) -> None:
    """Write the files of a model that has learned from these updates; what was there goes first."""
    with files_aside(run):
        pass
    model.graph_.save(run / GRAPH_FOLDER)
    model.save_weights(run)
    if getattr(model, "embeddings", True):
        write_embeddings(model, run / EMBEDDINGS)
    metrics = newest_metrics(read_metrics(first_folder(run)), updates)
    with replace_file(run / METRICS, ModelError) as temporary:
        temporary.write_text(json_text(metrics, indent=2, ascii=True) + "\n", encoding="utf-8", newline="")


def write_embeddings(model: EmbeddingModel, file: Path) -> None:
    """Write the embeddings of all steps to one table; of the last step alone if all have too many rows."""
    from dysat.system.table_files import write_table

    tables, steps = list[dict[str, Any]](), model.steps_at_hand()
    if sum(model.graph_.known[step] for step in steps) > MAX_ROWS:
        steps = steps[-1:]
    for step in steps:
        report("embeddings: step", len(tables), len(steps))
        tables.append(model.table(step))
    write_table(tables, file)


@contextmanager
def files_aside(run: Path) -> Iterator[None]:
    """Move the files of a run away while its next state takes effect; if that fails, they are put back."""
    base, stale = run / STREAM / BASE, run / STREAM / STALE
    first, moved = not base.is_dir(), list[str]()
    try:
        try:
            if first:
                _copy_files(run, base)
            _remove(stale)
            stale.mkdir()
            for name in FILES:
                if (run / name).exists():
                    (run / name).rename(stale / name)
                    moved.append(name)
        except OSError as problem:
            raise ModelError(f"{run}: cannot be written: {problem.strerror or problem}") from problem
        yield
    except BaseException:
        with suppress(OSError):
            for name in reversed(moved):
                (stale / name).rename(run / name)
            if first:
                _remove(base)
            _remove(stale)
        raise
    with suppress(OSError):  # the next update removes what is left
        _remove(stale)
        for name in UNNEEDED:
            (base / name).unlink(missing_ok=True)


def discard_unfinished(run: Path, *, updated: bool) -> None:
    """Remove what a killed update has left; if it was the first one, put the files of `fit` back."""
    base = run / STREAM / BASE
    try:
        if base.is_dir() and not updated:
            for name in FILES:
                if (base / name).exists() and not (run / name).exists():
                    _copy(base / name, run / name)
            _remove(base)
        elif base.is_dir():
            for name in UNNEEDED:
                (base / name).unlink(missing_ok=True)
        for left in [*(run / STREAM).glob(".*"), *(file for name in FILES for file in run.glob(f".{name}.*"))]:
            _remove(left)
        sweep(run)
    except OSError as problem:
        raise ModelError(f"{run}: cannot be written: {problem.strerror or problem}") from problem


def _copy_files(run: Path, folder: Path) -> None:
    """Copy the files of a run to a folder that appears complete or not at all."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name in FILES:
            if (run / name).exists():
                _copy(run / name, temporary / name)
        temporary.chmod(0o777 & ~umask())
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder; a folder appears complete or not at all. Files are linked where that is possible."""
    if source.is_file():
        _link(source, target)
        return
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        shutil.copytree(source, temporary / target.name, copy_function=_link)
        (temporary / target.name).rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _link(source: str | Path, target: str | Path) -> None:
    """Give a file a second name, which is safe because files of a run are replaced, never changed."""
    try:
        os.link(source, target)
    except OSError:  # the file system has no links
        with replace_file(Path(target), ModelError) as temporary:
            shutil.copyfile(source, temporary)


def _remove(path: Path) -> None:
    """Remove a file or a folder; a folder disappears at once."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    if not path.name.startswith("."):
        hidden = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        path.rename(hidden / path.name)
        path = hidden
    shutil.rmtree(path)
