"""Results are kept by content: which files make a method's code, and what a key depends on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import dysat
from dysat.experiments import code
from dysat.experiments.code import code_version, content_key
from dysat.experiments.request import Contender, Request
from dysat.models import MODELS


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package's sources, of which versions are told."""
    copy = tmp_path / "dysat"
    shutil.copytree(code.ROOT, copy, ignore=shutil.ignore_patterns("__pycache__", "presets", "*.so"))
    monkeypatch.setattr(code, "ROOT", copy)
    forget()
    yield copy
    forget()


def forget() -> None:
    code_version.cache_clear()
    code._imports.cache_clear()


def versions() -> dict[str, str]:
    forget()
    return {method: code_version(method) for method in MODELS}


def changed_by(file: Path, content: bytes = b"\nMORE = 1\n") -> set[str]:
    """The methods whose version differs when something is added to a file."""
    before = versions()
    file.write_bytes(file.read_bytes() + content)
    after = versions()
    return {method for method in MODELS if before[method] != after[method]}


def test_versions_of_a_copy_are_those_of_the_package(sources: Path) -> None:
    copied = versions()
    code.ROOT = Path(dysat.__file__).parent  # the fixture puts it back
    assert versions() == copied
    assert all(len(version) == 12 for version in copied.values())


MADE_OF = {
    "models/node2vec.py": {"node2vec"},
    "models/svd.py": {"svd"},
    "models/graphsage.py": {"graphsage"},
    "models/dyngem.py": {"dyngem"},
    "nn/triadic.py": {"dynamic-triad"},
    "nn/temporal.py": {"dysat", "incsat"},
    "experiments/reproduce.py": set(),
    "experiments/tables.py": set(),
    "cli/reproduce.py": set(),
    "models/__init__.py": set(),  # a list of names decides nothing
    "evaluation/probe.py": set(MODELS),
    "evaluation/protocols.py": set(MODELS),
    "experiments/job.py": set(MODELS),
    "data/graph.py": set(MODELS),
}


def test_a_file_counts_for_the_methods_that_are_made_of_it(sources: Path) -> None:
    before = versions()
    for name, methods in MADE_OF.items():
        file = sources / name
        file.write_bytes(file.read_bytes() + b"\nMORE = 1\n")
        after = versions()
        assert {method for method in MODELS if before[method] != after[method]} == methods, name
        before = after


def test_a_file_counts_however_far_down_it_is_imported(sources: Path) -> None:
    """DySAT imports its network, which imports the layers, which import the softmax over neighbours."""
    changed = changed_by(sources / "nn/segment.py")
    assert {"dysat", "incsat"} <= changed
    assert "edge-memory" not in changed


def test_c_counts_where_python_calls_it(sources: Path) -> None:
    by_python, by_c = (changed_by(sources / file, b"\n\n") for file in ("compiled.py", "native.c"))
    assert by_c == by_python
    assert "dysat" in by_c
    assert "edgebank" not in by_c


def test_line_endings_do_not_count(sources: Path) -> None:
    before = versions()
    for file in [*sources.rglob("*.py"), sources / "native.c"]:
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert versions() == before


def test_a_module_counts_where_it_is_imported_later(sources: Path) -> None:
    (sources / "nn/late.py").write_text("NUMBER = 1\n")
    svd = sources / "models/svd.py"
    svd.write_text(
        svd.read_text() + "\n\ndef later() -> int:\n    from dysat.nn.late import NUMBER\n    return NUMBER\n"
    )
    assert changed_by(sources / "nn/late.py") == {"svd"}
    svd.write_text(svd.read_text().replace("from dysat.nn.late import NUMBER", "from dysat.nn import late as NUMBER"))
    assert changed_by(sources / "nn/late.py") == {"svd"}


def test_a_new_name_of_a_file_counts(sources: Path) -> None:
    before = versions()["svd"]
    (sources / "models/svd.py").rename(sources / "models/other.py")
    assert versions()["svd"] != before


def graph(last: int = 3) -> dysat.DynamicGraph:
    events = dysat.read_events(([0, 1, 2, 0], [1, 2, 0, last], [0, 0, 1, 1]), time_unit="step")
    return dysat.build_snapshots(events, every=1)


def test_a_key_differs_with_graph_option_request_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, bank, asked = graph(), Contender("edgebank"), Request()
    key = content_key(whole, bank, asked)
    assert key == content_key(graph(), Contender("edgebank"), Request())
    others = [
        content_key(graph(4), bank, asked),
        content_key(whole[:1], bank, asked),
        content_key(whole, Contender("edgebank", options={"window": 2}), asked),
        content_key(whole, Contender("last-snapshot"), asked),
        *(
            content_key(whole, bank, Request(**given))
            for given in (
                {"seed": 1}, {"self_loops": "keep"}, {"protocol": "new-links"}, {"only": (1,)}, {"past_probe": False},
                {"new_ends": "one"}, {"repeats": 3}, {"first": 1}, {"negatives": ("historical",)},
            )
        ),
    ]  # fmt: skip
    monkeypatch.setattr(code, "code_version", lambda method: "other")
    others.append(content_key(whole, bank, asked))
    assert len({key, *others}) == 1 + len(others)


def test_a_key_does_not_differ_with_where_it_is_computed_or_how_options_are_said() -> None:
    whole, asked = graph(), Request()
    plain = content_key(whole, Contender("gcn-ae", "sankar2019_uci"), asked)
    assert plain == content_key(whole, Contender("gcn-ae", "sankar2019_uci", {"device": "cpu"}), asked)
    said = Contender("gcn-ae", options=dict(Contender("gcn-ae", "sankar2019_uci").build().values()))
    assert plain == content_key(whole, said, asked)
