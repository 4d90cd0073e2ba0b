"""`dysat snapshots` cuts a log on disk if it is told to, or if memory is too small; the result is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import dysat
from dysat.data import on_disk

Cli = Callable[..., tuple[int, str, str]]
ROWS = "".join(f"p{i % 7},p{i * i % 5},2024-01-{1 + i % 28:02},{i % 9 / 10}\n" for i in range(80))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "log.csv"
    file.write_text("src,dst,time,weight\n" + ROWS)
    return file


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The logs that are cut on disk."""
    found: list[str] = []
    cut = on_disk.cut_on_disk

    def watched(source: Path, *args: object, **options: object) -> dysat.DynamicGraph:
        found.append(Path(source).name)
        return cut(source, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(dysat, "cut_on_disk", watched)
    return found


def test_both_ways_write_and_show_the_same(log: Path, tmp_path: Path, cli: Cli, used: list[str]) -> None:
    shown = []
    for name, flag in (("a", "--in-memory"), ("b", "--on-disk")):
        how = ("--weight", "weight", "--every", "1w", "--self-loops", "keep", "--stop", "2024-01-27", "--directed")
        code, text, error = cli("snapshots", log, *how, "-o", tmp_path / name, flag)
        assert code == 0, error
        shown.append(text.replace(str(tmp_path / name), "OUT"))
    assert shown[0] == shown[1] and "of weight 0 were left out" in shown[0] and used == ["log.csv"]
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


def test_a_log_that_is_too_large_for_memory_is_cut_on_disk(
    log: Path, tmp_path: Path, cli: Cli, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_disk, "SMALL", 0)
    half = 80 * on_disk.EVENT / on_disk.SHARE / 1e9  # GB of memory at which 80 events are just few enough
    for number, (memory, where) in enumerate([(1.2 * half, []), (0.8 * half, ["log.csv"])]):
        out = tmp_path / f"g{number}"
        assert cli("snapshots", log, "--every", "1w", "-o", out, "--limit", f"memory={memory}")[0] == 0
        assert used == where
    assert dysat.DynamicGraph.load(tmp_path / "g0").equals(dysat.DynamicGraph.load(tmp_path / "g1"))
    assert cli("snapshots", log, "--every", "1w", "--limit", f"memory={0.8 * half}")[0] == 0  # nowhere to write
    assert used == ["log.csv"]


def test_the_message_of_too_little_memory_names_the_option(log: Path, cli: Cli) -> None:
    code, _, error = cli("snapshots", log, "--every", "1w", "--limit", "memory=1e-6")
    assert code == 2 and error.endswith("--limit memory=1 allows it, and dysat snapshots --on-disk needs less\n")
    assert error.count("\n") == 1


def test_what_cannot_be_cut_on_disk_is_one_line(log: Path, tmp_path: Path, cli: Cli) -> None:
    code, _, error = cli("snapshots", log, "--every", "1w", "--on-disk")
    assert (code, error) == (2, "dysat: --on-disk needs --out, the folder to write the graph to\n")
    out = ("-o", tmp_path / "g", "--on-disk")
    code, _, error = cli("snapshots", log, "--every", "1w", *out, "--nodes", log)
    assert code == 2 and "--nodes cannot be used with --on-disk; give it to dysat fit" in error
    code, _, error = cli("snapshots", log, "--every", "1w", *out, "--split-dst", ";")
    assert code == 2 and "--split-dst cannot be cut on disk; read the log in memory" in error
    (tmp_path / "log.txt").write_text("a b 1\nb c 2\n")
    code, _, error = cli("snapshots", tmp_path / "log.txt", "--time-unit", "step", "--every", "1", *out)
    assert code == 2 and "whitespace cannot be cut on disk; convert it to Parquet or to CSV in UTF-8" in error
    assert not (tmp_path / "g").exists()
