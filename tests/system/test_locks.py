"""The lock of a folder: one holder at a time, refusal or waiting, and release however the holder ends."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dysat.errors import ModelError
from dysat.system.locks import LOCK_FILE, lock_folder

# Without torch, which takes seconds to import: `dysat.system.locks` through its file alone, and its one dependency.
HOLDER = """
import runpy, sys, types
from pathlib import Path
sys.modules["dysat"] = types.ModuleType("dysat")
errors = sys.modules["dysat.errors"] = types.ModuleType("dysat.errors")
errors.DysatError = Exception
lock_folder = runpy.run_path(sys.argv[1])["lock_folder"]
with lock_folder(Path(sys.argv[2]), Exception):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Closing its standard input ends it."""
    module = sys.modules[lock_folder.__module__].__file__
    command = [sys.executable, "-c", HOLDER, str(module), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_process_is_refused_or_waits(tmp_path: Path) -> None:
    calls: list[int] = []
    with held_by_another_process(tmp_path) as process:
        with pytest.raises(ModelError) as problem, lock_folder(tmp_path, ModelError):
            pass
        assert str(problem.value) == f"{tmp_path}: another process is at work on it; try again when it has ended"

        def wait() -> None:
            calls.append(1)
            if len(calls) == 3:
                process.communicate("", timeout=60)

        with lock_folder(tmp_path, ModelError, wait=wait):
            assert len(calls) == 3 and process.returncode == 0


def test_a_killed_process_releases_the_lock(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as process:
        process.kill()
        process.wait(60)
        assert (tmp_path / LOCK_FILE).exists()
        with lock_folder(tmp_path, ModelError):
            pass


def test_the_lock_is_free_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock_folder(tmp_path, ModelError):
        1 / 0  # noqa: B018
    with lock_folder(tmp_path, ModelError):
        pass


def test_waiting_can_be_interrupted(tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    first, second = lock_folder(tmp_path, ModelError), lock_folder(tmp_path, ModelError, wait=stop)
    with first, pytest.raises(KeyboardInterrupt), second:
        pass
    with lock_folder(tmp_path, ModelError):
        pass


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("a = 1\n")
    with lock_folder(tmp_path, ModelError):
        pass
    assert {file.name for file in tmp_path.iterdir()} == {"config.toml", LOCK_FILE}
    assert (tmp_path / "config.toml").read_text() == "a = 1\n"


def test_a_missing_folder_is_an_error_and_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere: no such folder$"), lock_folder(tmp_path / "nowhere", ModelError):
        pass
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EROFS])
def test_a_read_only_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    """Simulated: permissions do not stop an administrator, who may well run the tests."""

    def refuse(*args: object, **options: object) -> int:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ModelError) as problem, lock_folder(tmp_path, ModelError):
        pass
    assert str(problem.value) == f"{tmp_path}: cannot be written: {os.strerror(reason)}"
