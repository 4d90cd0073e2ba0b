"""Shared fixtures: datasets, a tiny log of events, and the command line."""

from __future__ import annotations

import os

# The processes of pytest-xdist share the cores, and spinning OpenMP threads would block the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dysat
from dysat.cli import main
from dysat.data.datasets import DATASETS
from dysat.system.compiled import native

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_configure(config: pytest.Config) -> None:
    """In `make test`, but not in `make test-all`, try at most 8 examples per property and do not wait for the disk."""
    if config.option.markexpr == "not slow":
        from hypothesis import settings

        os.environ["DYSAT_TESTS_DO_NOT_SYNC"] = "1"
        import no_sync  # noqa: F401

        settings.register_profile("quick", parent=settings.default, max_examples=8)
        settings.load_profile("quick")


@pytest.fixture(params=list(DATASETS))
def dataset(request: pytest.FixtureRequest) -> tuple[str, dysat.DynamicGraph]:
    """Each dataset whose file is on this machine."""
    name = str(request.param)
    for folder in (SHARED / "data", None):
        if DATASETS[name].locate(folder):
            return name, dysat.load_dataset(name, folder)
    pytest.skip(f"{name}: {DATASETS[name].file} is neither in ../shared/data nor in DYSAT_DATA")


@pytest.fixture
def shared_data() -> Path:
    if not (SHARED / "data").is_dir():
        pytest.skip("no ../shared/data on this machine")
    return SHARED / "data"


@pytest.fixture
def mails() -> dysat.Events:
    """Six events among five people over a month; one of them a self-loop."""
    return dysat.read_events(
        (
            ["ann", "bob", "ann", "cy", "cy", "dee"],
            ["bob", "cy", "bob", "cy", "ann", "eve"],
            ["2024-01-01", "2024-01-03", "2024-01-08", "2024-01-09", "2024-01-15", "2024-01-31"],
        )
    )


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> object:
    """Run without compiled functions, as on a machine without a C compiler."""
    monkeypatch.setenv("DYSAT_NATIVE", "0")
    native.cache_clear()
    yield
    native.cache_clear()


@pytest.fixture(params=["native", "torch"])
def each_path(request: pytest.FixtureRequest) -> None:
    """Run a test with and without compiled functions."""
    if request.param == "torch":
        request.getfixturevalue("without_native")
    elif native() is None:
        pytest.skip("no C compiler")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Write a file and return its path."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line; returns exit code, output and errors."""

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dysat", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return run


@pytest.fixture(autouse=True)
def global_random_state_is_untouched() -> object:
    """No test, and no function it calls, may change NumPy's global random state."""
    before = np.random.get_state(legacy=False)  # noqa: NPY002
    yield
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert np.array_equal(before["state"]["key"], after["state"]["key"])


os.environ.setdefault("COLUMNS", "120")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("no permission to mount a small file system")
    yield folder
    while subprocess.run(["umount", str(folder)], check=False, capture_output=True).returncode:
        time.sleep(0.1)
