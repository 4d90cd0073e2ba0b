"""The package as a whole: light to import, and free of printing, pickling and other calls the library must not make."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dysat

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "dysat"


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# One process for all statements about imports: torch alone takes seconds.
FRESH_PROCESS = """
import json, os, sys, torch
sys.modules["polars"] = None  # importing it fails
before = set(sys.modules)
import dysat
dysat.DySAT
imported = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
compiled = os.path.exists(os.environ.pop("XDG_CACHE_HOME"))  # from here on, the usual cache
graph = dysat.DynamicGraph.load(GRAPH)
facts = [graph.fingerprint, graph[:1].num_nodes, graph.aggregate().num_links, len(graph.summary())]
del sys.modules["polars"]
dysat.DySAT(epochs=1, walks_per_node=1, device="cpu").fit(graph)
after_fit = [name for name in ("torch._dynamo", "sklearn", "pandas") if name in sys.modules]
print(json.dumps({"imported": imported, "compiled": compiled, "graph": facts, "after_fit": after_fit}))
"""


@pytest.fixture(scope="module")
def graph() -> dysat.DynamicGraph:
    """Twenty people who write to their neighbours on a ring, for four weeks."""
    rows = [
        (f"p{i}", f"p{(i + step) % 20}", f"2024-01-{1 + 7 * week:02}")
        for week in range(4)
        for i in range(20)
        for step in (1, 2 + week)
    ]
    return dysat.build_snapshots(dysat.read_events(tuple(map(list, zip(*rows, strict=True)))), every="1w")


@pytest.fixture(scope="module")
def fresh_process(graph: dysat.DynamicGraph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process reports that imports dysat, loads a graph without Polars and fits a model."""
    folder = tmp_path_factory.mktemp("package")
    graph.save(folder / "graph")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        output = python(f"GRAPH = {str(folder / 'graph')!r}\n{FRESH_PROCESS}")
    return dict(json.loads(output.splitlines()[-1]))


def test_import_is_light(fresh_process: dict[str, Any]) -> None:
    heavy = {"pandas", "scipy", "matplotlib", "gensim", "optuna", "torch_geometric", "rich", "typer"}
    heavy |= {"networkx_temporal", "ray", "sklearn"}
    assert not heavy & set(fresh_process["imported"])


def test_import_compiles_nothing(fresh_process: dict[str, Any]) -> None:
    assert not fresh_process["compiled"]


def test_import_and_saved_graphs_do_not_need_polars(fresh_process: dict[str, Any], graph: dysat.DynamicGraph) -> None:
    expected = [graph.fingerprint, graph[:1].num_nodes, graph.aggregate().num_links, len(graph.summary())]
    assert fresh_process["graph"] == expected


def test_fit_imports_neither_torchs_compiler_nor_scikit_learn(fresh_process: dict[str, Any]) -> None:
    """Each takes seconds to import, longer than fitting a small graph."""
    assert fresh_process["after_fit"] == []


@pytest.mark.parametrize(("given", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_openmp_waits_passively_by_default(given: str | None, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch reads the variable when it is loaded, so the process stops there and prints what torch would see."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    code = """
import sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            import os
            print(os.environ["OMP_WAIT_POLICY"])
            raise SystemExit
sys.meta_path.insert(0, Stop())
import dysat
"""
    assert python(code).split() == [expected]


LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not LARGE_PAGES.exists() or "[never]" in LARGE_PAGES.read_text(), reason="this system has no large pages"
)
def test_large_tensors_have_large_pages_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is written for the first time is a fault: 65,536 of them in 256 MiB with pages of 4 KB."""
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    code = """
import resource
import dysat, torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(1 << 26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    assert int(python(code)) < 16_384


def test_large_pages_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    assert python("import os, dysat; print(os.environ['THP_MEM_ALLOC_ENABLE'])").split() == ["0"]


def test_public_names_exist_and_are_documented() -> None:
    for name in dysat.__all__:
        assert getattr(dysat, name).__doc__, name


# Each with the folder in which it is allowed; ruff checks neither by folder nor most of these at all.
MODULES = {
    **dict.fromkeys(("pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle"), None),
    **dict.fromkeys(("typer", "click", "rich"), "cli"),
}
CALLS = {
    **dict.fromkeys(("print", "input", "sys.exit", "sys.stdout.write", "sys.stderr.write"), "cli"),
    **dict.fromkeys(("eval", "exec", "torch.load", "torch.save"), None),  # the last two pickle
    **dict.fromkeys(("torch.manual_seed", "torch.cuda.manual_seed", "random.seed", "np.random.seed"), None),
}


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a chain of names, else an empty string."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def offences(tree: ast.Module, room: str) -> Iterator[tuple[int, str]]:
    """Line and description of everything in a module that the library must not do."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").partition(".")[0]]
        else:
            names = []
        yield from ((node.lineno, f"import {name}") for name in names if MODULES.get(name, room) != room)
        if isinstance(node, ast.Call) and CALLS.get(call := dotted(node.func), room) != room:
            yield node.lineno, f"{call}()"
        if isinstance(node, ast.Assert):
            yield node.lineno, "assert"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            yield node.value.lineno, "allow_pickle"


def test_the_library_neither_prints_nor_pickles_nor_asserts() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0]
        found += [
            f"{path.relative_to(ROOT)}:{line}: {what}" for line, what in offences(ast.parse(path.read_text()), room)
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "room", "expected"),
    [
        ("print(1)", "data", ["print()"]),
        ("print(1)", "cli", []),
        ("import rich.table", "models", ["import rich"]),
        ("from typer import Typer", "cli", []),
        ("import pickle, json", "cli", ["import pickle"]),
        ("np.load(f, allow_pickle=True)", "system", ["allow_pickle"]),
        ("np.load(f, allow_pickle=False)", "system", []),
        (
            "torch.manual_seed(0)\nassert x\nsys.stdout.write('')",
            "nn",
            ["torch.manual_seed()", "assert", "sys.stdout.write()"],
        ),
    ],
)
def test_offences_are_found(code: str, room: str, expected: list[str]) -> None:
    assert sorted(what for _, what in offences(ast.parse(code), room)) == sorted(expected)
