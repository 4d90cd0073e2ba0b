"""The package as a whole: light to import, usable without Polars, and no data or pickle in it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dysat

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_brings_in_nothing_heavy() -> None:
    code = "import sys, torch; before = set(sys.modules); import dysat; print(*set(sys.modules) - before)"
    heavy = {
        "polars",
        "pandas",
        "scipy",
        "matplotlib",
        "gensim",
        "optuna",
        "torch_geometric",
        "rich",
        "typer",
        "networkx_temporal",
    }
    assert not heavy & {module.partition(".")[0] for module in python(code).split()}


@pytest.mark.parametrize(("given", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_wait_asleep_unless_told_otherwise(
    given: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    code = """
import sys
class Watch:  # what the environment says when torch is looked for
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            import os
            print(os.environ["OMP_WAIT_POLICY"])
sys.meta_path.insert(0, Watch())
import dysat
"""
    assert python(code).split() == [expected]


def test_a_saved_graph_loads_without_polars(tmp_path: Path) -> None:
    events = dysat.read_events((["a", "b"], ["b", "c"], ["2024-01-01", "2024-01-09"]))
    graph = dysat.build_snapshots(events, every="1w")
    graph.save(tmp_path / "g")
    code = f"""
import sys
sys.modules["polars"] = None  # any import of it fails
import dysat
graph = dysat.DynamicGraph.load({str(tmp_path / "g")!r})
print(graph.fingerprint, graph[:1].num_nodes, graph.aggregate().num_links, len(graph.summary()))
"""
    assert python(code).split() == [graph.fingerprint, "2", "2", "2"]


def test_public_names_exist_and_are_documented() -> None:
    for name in dysat.__all__:
        assert getattr(dysat, name).__doc__, name


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_is_unpickled_and_only_the_cli_prints(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for a in node.names}
    assert not {"pickle", "joblib", "dill"} & (names | imported)
    assert "print" not in names or path.name == "cli.py"
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant) and node.value.value is False
