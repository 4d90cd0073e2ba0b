"""SECURITY.md: every promise names tests that exist, and the tests of promises that have no other place."""

from __future__ import annotations

import json
import pickle
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from fuzz_graphs import make_checksums_match
from run_folders import quick
from small import meetings
from weekly import copy, fitted, weeks

import dysat
from dysat.errors import DysatError, GraphError, ModelError
from dysat.runs.run import Run
from dysat.system.text.toml import as_toml

__all__ = ["quick"]
ROOT = Path(__file__).resolve().parents[2]
PROMISE = re.compile(r"^\d+\. \*\*.+?(?=^\d+\. \*\*|^## )", re.MULTILINE | re.DOTALL)


class Harm:
    """An object that would write a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.file), "w")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted(tmp_path_factory.mktemp("base"), weeks(0, 3)).folder


def test_every_promise_names_its_tests() -> None:
    promises = PROMISE.findall((ROOT / "SECURITY.md").read_text())
    assert len(promises) >= 7
    for promise in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promise.partition("Tests:")[2])
        assert named, promise
        for file, name in named:
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"


def test_nothing_is_unpickled(tmp_path: Path, base: Path) -> None:
    """Arrays of objects and pickled models are refused, and what is in them is not made."""
    harm, found, active = tmp_path / "harm", list[object](), [True]
    sys.addaudithook(lambda event, args: found.append(args) if active and event == "pickle.find_class" else None)
    meetings().save(tmp_path / "graph")
    np.save(tmp_path / "graph" / "weights.npy", np.array([Harm(harm)] * 3, dtype=object), allow_pickle=True)
    make_checksums_match(tmp_path / "graph")
    found.clear()
    with pytest.raises(GraphError, match=r"weights\.npy: damaged"):
        dysat.DynamicGraph.load(tmp_path / "graph")
    for name in ("model.safetensors", "stream/state.safetensors"):
        run = copy(base, tmp_path / name.replace("/", "-"))
        (run / name).write_bytes(pickle.dumps(Harm(harm)))
        with pytest.raises(DysatError):
            Run.open(run).model("cpu")
            dysat.IncSAT.load(run)
    active.clear()  # a hook cannot be removed
    assert not harm.exists() and not found


@pytest.mark.parametrize("key", ["../secret", "/etc/hostname", "sub/secret"])
def test_names_in_a_manifest_are_not_paths(tmp_path: Path, key: str) -> None:
    folder = tmp_path / "graph"
    meetings().save(folder)
    (folder / "sub").mkdir()
    for place in (tmp_path, folder / "sub"):
        np.save(place / "secret.npy", np.arange(3))
    manifest = json.loads((folder / "graph.json").read_text())
    manifest["files"][key] = {"bytes": (tmp_path / "secret.npy").stat().st_size, "sha256": ""}
    (folder / "graph.json").write_text(json.dumps(manifest))
    make_checksums_match(folder)
    with pytest.raises(GraphError, match="damaged"):
        dysat.DynamicGraph.load(folder)


@pytest.mark.parametrize(
    ("key", "value"), [("method", "os.system"), ("options", {"walks": 1}), ("options", {"epochs": "__import__('os')"})]
)
def test_stored_options_are_checked(base: Path, tmp_path: Path, key: str, value: object) -> None:
    run = copy(base, tmp_path / "run")
    config = tomllib.loads((run / "config.toml").read_text())
    config[key] = {**config[key], **value} if isinstance(value, dict) else value
    (run / "config.toml").write_text(as_toml(config))
    with pytest.raises(ModelError):
        Run.open(run).new_model()


def test_other_folders_are_not_overwritten(tmp_path: Path) -> None:
    """Not even if asked to overwrite: a folder that is no graph, or holds anything else, stays."""
    for name in ("mine", "graph"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "diary.txt").write_text("mine\n")
    meetings().save(tmp_path / "other")
    (tmp_path / "other" / "diary.txt").write_text("mine\n")
    for name in ("mine", "graph", "other"):
        with pytest.raises(GraphError, match="not overwritten"):
            meetings().save(tmp_path / name, overwrite=True)
        assert (tmp_path / name / "diary.txt").read_text() == "mine\n"
