"""Outputs that cannot be written are refused before any work, and an unexpected error is one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from run_folders import quick
from weekly import fitted, weeks, write_log

from dysat.cli import learn, main

__all__ = ["quick"]

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log, a run and a file."""
    folder = tmp_path_factory.mktemp("outputs")
    write_log(folder / "log.csv", weeks(0, 4))
    fitted(folder, weeks(0, 4))
    (folder / "file").write_text("")
    return folder


COMMANDS = {
    "fit": ("fit", "log.csv", "--every", "1w", "--out", "OUT"),
    "snapshots": ("snapshots", "log.csv", "--every", "1w", "--out", "OUT"),
    "forecast": ("forecast", "run", "--out", "OUT.csv"),
    "embed": ("embed", "run", "--out", "OUT.parquet"),
    "evaluate": ("evaluate", "log.csv", "--every", "1w", "--model", "edgebank", "--out", "OUT"),
    "plot": ("evaluate", "log.csv", "--every", "1w", "--model", "edgebank", "--plot", "OUT.png"),
    "tune": ("tune", "log.csv", "--every", "1w", "--model", "dysat", "--out", "OUT"),
    "preset": ("tune", "log.csv", "--every", "1w", "--model", "dysat", "--preset-out", "OUT.toml"),
    "reproduce": ("reproduce", "table2", "--out", "OUT"),
}


@pytest.mark.parametrize("name", ["a\udcff", "x" * 256, "file/x"], ids=["not UTF-8", "too long", "in a file"])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    if command == "snapshots" and not name.isprintable():
        pytest.skip("the files of a graph folder can have any name")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("dysat.read_events", lambda *_, **__: pytest.fail("the log was read"))
    monkeypatch.setattr("dysat.runs.run.Run._model", lambda *_: pytest.fail("the model was loaded"))
    before = sorted(folder.rglob("*"))
    code, out, err = cli(*(word.replace("OUT", name) for word in COMMANDS[command]))
    assert (code, out) == (2, "") and err.startswith("dysat: ") and err.count("\n") == 1, err
    assert "cannot be written: " in err or "no folder file" in err
    assert sorted(folder.rglob("*")) == before


def test_an_unexpected_error_is_one_line_with_a_code_of_its_own(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("two\nlines")

    monkeypatch.delenv("DYSAT_DEBUG", raising=False)
    monkeypatch.setattr(learn.Run, "open", broken)
    code, _, err = cli("forecast", "run")
    assert code == 70 and err.startswith("dysat: internal error: KeyError: ") and err.count("\n") == 1
    assert "this is a bug" in err and "DYSAT_DEBUG=1" in err
    monkeypatch.setenv("DYSAT_DEBUG", "1")
    monkeypatch.setattr("sys.argv", ["dysat", "forecast", "run"])
    with pytest.raises(KeyError):
        main()


@pytest.mark.parametrize(
    "problem", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")]
)
def test_too_little_memory_is_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch, problem: Exception) -> None:
    def broken(*_: object) -> None:
        raise problem

    monkeypatch.setattr(learn.Run, "open", broken)
    code, _, err = cli("forecast", "run")
    assert code == 2 and err.startswith("dysat: not enough memory") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("spectrum=1000000000", "--set spectrum=1000000000 must be at most 65536"),
        ("temporal_features=99999999999999999999", "must be at most 65536"),
        ("structural_heads=" + ",".join("1" * 101), "101 layers, at most 100 are possible"),
        ("epochs=1000000001", "must be at most 1000000000"),
        ("epochs=-1", "must not be negative"),
        ("walk_length=1000000000", "must be at most 100000"),
        ("learning_rate=nan", "must be a finite number"),
        ("agreement=inf", "must be a finite number"),
        ("seed=1" + "0" * 30, "must be below 2^64"),
        ("spectrum=" + "9" * 5000, "--set spectrum='999"),
    ],
)
def test_absurd_options_are_refused_before_any_work(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, setting: str, message: str
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("dysat.read_events", lambda *_, **__: pytest.fail("the log was read"))
    code, out, err = cli("fit", "log.csv", "--every", "1w", "--set", setting, "--out", "new")
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1, err
    assert not (folder / "new").exists()


def test_more_memory_than_is_free_is_refused_before_training(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    large = ("--set", "structural_heads=1", "--set", "structural_features=65536", "--set", "temporal_features=65536")
    code, out, err = cli("fit", "log.csv", "--every", "1w", *large, "--device", "cpu", "--out", "new")
    assert (code, out) == (2, "") and " GiB of memory, and " in err and not (folder / "new").exists(), err
    assert [line.startswith("dysat: ") for line in err.splitlines()].count(True) == 1


def test_a_graph_that_is_too_large_is_refused_before_training(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("dysat.models.base.link_model.LEAST_FREE", 0)
    monkeypatch.setattr("dysat.models.base.link_model.free_memory", lambda: 20_000)
    words = ("fit", "log.csv", "--every", "1w", "--model", "graphsage", "--device", "cpu", "--out", "new")
    code, out, err = cli(*words)
    assert (code, out) == (2, "") and not (folder / "new").exists()
    assert err.splitlines()[-1].startswith("dysat: graphsage on ") and "; at most 9 nodes of such a graph fit" in err
