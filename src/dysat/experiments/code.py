"""Which code computed something: results are kept by content, and code is part of it."""

from __future__ import annotations

import ast
import hashlib
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path

import dysat
from dysat.data.graph import DynamicGraph
from dysat.experiments.request import Contender, Request
from dysat.models import MODELS

ROOT = Path(dysat.__file__).parent
# What measures every model. The rooms' own lists of names (__init__) decide nothing.
MEASURED_BY = ("dysat.experiments.job", "dysat.evaluation.probe", "dysat.evaluation.protocols")


@cache
def code_version(method: str) -> str:
    """Differs when a file differs that a method, or what measures it, is made of; other methods do not matter."""
    modules = _closure(MODELS[method].__module__) | _closure(MEASURED_BY[1]) | _closure(MEASURED_BY[2])
    files = {_file(name) for name in (*modules, *MEASURED_BY)}
    if ROOT / "compiled.py" in files:
        files.add(ROOT / "native.c")
    digest = hashlib.sha256()
    for file in sorted(file for file in files if file is not None):
        digest.update(f"{file.relative_to(ROOT).as_posix()}\0".encode())
        digest.update(file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()[:12]


def content_key(graph: DynamicGraph, contender: Contender, request: Request) -> str:
    """Of everything a record depends on but the machine: graph, options, request, code."""
    content = [graph.fingerprint, contender.key, asdict(request), code_version(contender.method)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _closure(module: str) -> frozenset[str]:
    """A module and all of dysat that it imports, directly or not, at once or where it is used."""
    found, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name not in found and _file(name) is not None:
            found.add(name)
            waiting += _imports(name)
    return frozenset(found)


@cache
def _imports(module: str) -> tuple[str, ...]:
    names: list[str] = []
    file = _file(module)
    for node in ast.walk(ast.parse(file.read_bytes())) if file else ():
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return tuple(dict.fromkeys(name for name in names if name.startswith("dysat.")))


def _file(module: str) -> Path | None:
    """Of a module of dysat; a package's list of names has none."""
    file = ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return file if file.is_file() and file.stem != "__init__" else None
