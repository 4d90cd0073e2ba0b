"""Compiling native.c: once, for several processes at once, and never at the cost of doing without."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dysat.system import compiled
from dysat.system.compiled import native

SAY = "from dysat.system.compiled import native; print('yes' if native() else 'no')"


def needs_a_compiler() -> None:
    if compiled._compiler() is None:
        pytest.skip("no C compiler")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """An empty cache, and nothing remembered before or after."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    native.cache_clear()
    yield tmp_path / "cache" / "dysat"
    native.cache_clear()


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_it_compiles_where_there_is_a_compiler() -> None:
    """Else a mistake in native.c would only be slow."""
    needs_a_compiler()
    assert native() is not None


def test_once(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_a_compiler()
    assert native() is not None
    (made,) = fresh.iterdir()
    before = made.stat()
    native.cache_clear()
    assert native() is not None
    assert [*fresh.iterdir()] == [made] and made.stat().st_mtime_ns == before.st_mtime_ns
    native.cache_clear()
    monkeypatch.setattr(compiled, "FLAGS", (*compiled.FLAGS, "-DOTHER"))
    assert native() is not None and len([*fresh.iterdir()]) == 2


def test_what_is_broken_in_the_cache_is_made_anew(fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_a_compiler()
    assert native() is not None
    (made,) = fresh.iterdir()
    broken = tmp_path / "other" / "dysat" / made.name  # not in place of what is loaded
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no library")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    native.cache_clear()
    assert native() is not None and broken.stat().st_size > 1000


@pytest.mark.slow
def test_processes_at_once(fresh: Path) -> None:
    needs_a_compiler()
    started = [
        subprocess.Popen([sys.executable, "-c", SAY], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(3)
    ]
    assert [process.communicate(timeout=300)[0].strip() for process in started] == ["yes"] * 3
    assert len([*fresh.iterdir()]) == 1


def test_not_at_import(fresh: Path) -> None:
    subprocess.run([sys.executable, "-c", "import dysat; dysat.DySAT"], check=True, env=dict(os.environ))
    assert not fresh.exists()


@pytest.mark.parametrize("reason", ["switched off", "no compiler", "not a compiler", "broken", "silent", "nowhere"])
def test_without(reason: str, fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is amiss, there are none, and nothing is raised."""
    if reason == "switched off":
        monkeypatch.setenv("DYSAT_NATIVE", "0")
    elif reason == "no compiler":
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
    elif reason == "not a compiler":
        monkeypatch.setenv("CC", str(tmp_path / "nothing"))
    elif reason == "broken":
        monkeypatch.setenv("CC", str(script(tmp_path / "cc", "exit 1")))
    elif reason == "silent":
        monkeypatch.setenv("CC", str(script(tmp_path / "cc", "exit 0")))
    else:
        (tmp_path / "cache").write_text("a file where a folder should be")
    assert native() is None
    assert reason == "nowhere" or not [*fresh.glob("*.so")]


def test_other_types_are_refused() -> None:
    """A pointer to something else would be read all the same."""
    needs_a_compiler()
    call = native()
    assert call is not None
    x = torch.zeros(4)
    with pytest.raises(TypeError, match=r"elu_backward: torch.float64"):
        call("elu_backward", x.double(), x, x, 4)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has another pool")
def test_torch_and_the_functions_share_their_threads() -> None:
    """Though scikit-learn brings a pool of its own along."""
    needs_a_compiler()
    call = native()
    assert call is not None and not call.single_threaded
