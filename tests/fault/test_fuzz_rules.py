"""The rules of the fuzzer can fail: each is shown what it must find."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from file_audit import FileAudit
from hostile_values import DAMAGE, change_json
from rules import BrokenRuleError, check_graph, check_output
from run_folders import in_process
from small import meetings

import dysat


def touch_files(folder: Path) -> None:
    """Touch files that a case may touch, and then others."""
    case, originals, outside = (folder / name for name in ("case", "originals", "outside"))
    for place in (case, originals, outside):
        place.mkdir()
        (place / "file").write_text("x")
    (case / "link").symlink_to(outside / "file")
    audit = FileAudit(case, originals)
    audit.active = True
    (case / "file").read_text(), (case / "new").write_text("y"), (originals / "file").read_text()
    (case / "link").read_text(), os.path.exists("/"), open(os.devnull).close(), (case / "link").rename(case / "moved")
    assert audit.found == [], audit.found
    touches: list[Callable[[], object]] = [
        lambda: (outside / "file").read_text(),
        lambda: (originals / "file").write_text("changed"),
        lambda: (case / "moved").write_text("through the link"),
        lambda: os.listdir(outside),  # noqa: PTH208
        lambda: os.rename(case / "new", outside / "new"),  # noqa: PTH104
        lambda: (outside / "new").unlink(),
        lambda: os.system("true"),
    ]
    for touch in touches:
        audit.found.clear()
        touch()
        assert audit.found, touch
    (folder / "all found").touch()
    audit.active = False


def test_the_hook_finds_files_outside(tmp_path: Path) -> None:
    """In a process of its own, since a hook cannot be removed."""
    assert in_process(touch_files, tmp_path) == 0 and (tmp_path / "all found").exists()


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [("neighbours", 0, -7), ("neighbours", 0, 99), ("rows", 0, 5), ("offsets", 1, 0), ("offsets", -1, 1),
     ("weights", 0, float("nan")), ("weights", 0, -1.0)],
)  # fmt: skip
def test_graphs_are_checked(name: str, place: int, value: float) -> None:
    graph = meetings()
    check_graph(graph)
    changed = getattr(graph[1], name).clone()
    changed[place] = value
    wrong = replace(graph, snapshots=(graph[0], replace(graph[1], **{name: changed}), *graph.snapshots[2:]))
    with pytest.raises(BrokenRuleError):
        check_graph(wrong)


def test_output_is_checked() -> None:
    check_output(0, '{"a": 1}\n', "", as_json=True)
    check_output(0, '{"a": 1}\n{"a": 2}\n', "a note\n", as_json=True)
    check_output(2, "", "a note\ndysat: mail.csv: no such file\n", as_json=False)
    for code, out, err in [
        (0, '{"a": NaN}\n', ""),
        (0, '{"a": "\x1b[31m"}\n', ""),
        (0, "{}\n", "Traceback (most recent call last):\n"),
        (0, "{}\n", "thread panicked at src/lib.rs\n"),
        (2, "", ""),
        (1, "", "dysat: mail.csv: no such file\n"),
        (2, "", "dysat: one line\ndysat: another line\n"),
        (2, "", "dysat: a \u202e label is strange\n"),
    ]:
        with pytest.raises(BrokenRuleError):
            check_output(code, out, err, as_json=True)


def test_changes_are_the_same_for_the_same_seed() -> None:
    import numpy as np

    for change in DAMAGE:
        twice = [change(np.random.default_rng(3), b"from,to,sent\na,b,2024-01-01\n") for _ in range(2)]
        assert twice[0] == twice[1]
    trees = [change_json(np.random.default_rng(seed), {"a": [1, 2], "b": {"c": "d"}}) for seed in (1, 1, 2)]
    assert repr(trees[0]) == repr(trees[1]) != repr(trees[2])


def test_a_graph_that_loads_is_what_the_rules_expect(tmp_path: Path) -> None:
    meetings().save(tmp_path / "graph")
    check_graph(dysat.DynamicGraph.load(tmp_path / "graph"))
    assert torch.isfinite(dysat.MODELS["svd"]().fit(meetings()).score_links([(0, 1)])).all()
