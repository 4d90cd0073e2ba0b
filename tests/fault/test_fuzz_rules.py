"""The rules of the fuzzer can fail: each is shown what it must find."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from file_audit import FileAudit
from fuzz_commands import make_command
from fuzz_graphs import change_array_file
from fuzz_runs import CHANGES, _missing_file, write_tensor_file
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


def test_no_command_line_waits_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`update --follow` waits until it is stopped, so it always comes with `--once`."""
    import shutil

    import numpy as np

    for copy in ("copytree", "copyfile"):  # only the words matter
        monkeypatch.setattr(shutil, copy, lambda *_: None)
    lines = [make_command(np.random.default_rng(seed), tmp_path, tmp_path) for seed in range(150)]
    follow = [line for line in lines if "--follow" in line]
    assert len(follow) > 5 and all(line[-1] == "--once" for line in follow)


@pytest.mark.parametrize("header", [b"{'descr': '<i8', 'fortran_ord77", b"{'shape': (18,), }   I \x96 ]9", b"(" * 200])
def test_a_broken_array_is_not_changed_again(tmp_path: Path, header: bytes) -> None:
    """The fuzzer may pick the same file twice; dysat refuses what it leaves."""
    import numpy as np

    meetings().save(tmp_path / "graph")
    file = tmp_path / "graph" / "rows.npy"
    content = file.read_bytes()
    end = 10 + int.from_bytes(content[8:10], "little")  # of the header
    broken = content[:10] + header.ljust(end - 10)[: end - 10] + content[end:]
    file.write_bytes(broken)
    change_array_file(np.random.default_rng(0), file)
    assert file.read_bytes() == broken
    with pytest.raises(dysat.GraphError, match=r"rows\.npy: damaged"):
        dysat.DynamicGraph.load(tmp_path / "graph", verify=False)


def test_a_broken_run_can_be_changed_again(tmp_path: Path) -> None:
    """No config.toml, a JSON file that no parser can read, and a state whose facts are a list."""
    import numpy as np

    (tmp_path / "stream").mkdir()
    for seed in range(30):
        (tmp_path / "metrics.json").write_text("[" * 100_000)
        write_tensor_file(tmp_path / "stream" / "state.safetensors", [], {"a": torch.zeros(3)}, sealed=True)
        for change in set(CHANGES) - {_missing_file}:
            change(np.random.default_rng(seed), tmp_path)
    assert not (tmp_path / "config.toml").exists()


def test_a_graph_that_loads_is_what_the_rules_expect(tmp_path: Path) -> None:
    meetings().save(tmp_path / "graph")
    check_graph(dysat.DynamicGraph.load(tmp_path / "graph"))
    assert torch.isfinite(dysat.MODELS["svd"]().fit(meetings()).score_links([(0, 1)])).all()
