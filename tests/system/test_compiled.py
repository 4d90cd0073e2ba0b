"""Compiling native.c: once per machine, safely in parallel, and never required."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dysat.system import compiled
from dysat.system.compiled import native

REPORT = "from dysat.system.compiled import native; print('yes' if native() else 'no')"
needs_compiler = pytest.mark.skipif(compiled._compiler() is None, reason="no C compiler")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and flags that compile quickly."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    quick = tuple(flag for flag in compiled.FLAGS if flag not in ("-O2", "-ftree-vectorize"))
    monkeypatch.setattr(compiled, "FLAGS", quick)
    native.cache_clear()
    yield tmp_path / "cache" / "dysat"
    native.cache_clear()


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@needs_compiler
def test_native_compiles() -> None:
    """Without this test a mistake in native.c would only make dysat slow."""
    assert native() is not None


@needs_compiler
def test_the_library_is_cached(empty_cache: Path) -> None:
    assert native() is not None
    (library,) = empty_cache.iterdir()
    before = library.stat()
    native.cache_clear()
    assert native() is not None
    assert [*empty_cache.iterdir()] == [library] and library.stat().st_mtime_ns == before.st_mtime_ns


@needs_compiler
def test_the_name_depends_on_source_flags_and_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = compiled._compiler()
    assert compiler is not None
    digests = [compiled._digest(compiler), compiled._digest(compiler), compiled._digest([*compiler, "-DOTHER"])]
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "FLAGS", (*compiled.FLAGS, "-DOTHER=1"))
        digests.append(compiled._digest(compiler))
    (tmp_path / "native.c").write_text(compiled.SOURCE.read_text() + "\n")
    monkeypatch.setattr(compiled, "SOURCE", tmp_path / "native.c")
    digests.append(compiled._digest(compiler))
    assert digests[0] == digests[1] and len(set(digests)) == 4


@needs_compiler
def test_a_broken_library_is_compiled_again(empty_cache: Path) -> None:
    compiler = compiled._compiler()
    assert compiler is not None
    library = empty_cache / f"native-{compiled._digest(compiler)}.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"no library")
    assert native() is not None and library.stat().st_size > 1000


@needs_compiler
@pytest.mark.slow
def test_processes_compile_in_parallel(empty_cache: Path) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", REPORT], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for _ in range(3)
    ]
    assert [process.communicate(timeout=300)[0].strip() for process in started] == ["yes"] * 3
    assert len([*empty_cache.iterdir()]) == 1


@pytest.mark.parametrize(
    "reason", ["switched off", "no compiler", "CC is missing", "CC fails", "CC writes nothing", "no cache folder"]
)
def test_failures_give_none(reason: str, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "switched off":
        monkeypatch.setenv("DYSAT_NATIVE", "0")
    elif reason == "no compiler":
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
    elif reason == "CC is missing":
        monkeypatch.setenv("CC", str(tmp_path / "nothing"))
    elif reason == "CC fails":
        monkeypatch.setenv("CC", str(script(tmp_path / "cc", "exit 1")))
    elif reason == "CC writes nothing":
        monkeypatch.setenv("CC", str(script(tmp_path / "cc", "exit 0")))
    else:
        (tmp_path / "cache").write_text("a file in place of the folder")
    assert native() is None
    assert reason == "no cache folder" or not [*empty_cache.glob("*.so")]


@needs_compiler
def test_tensors_of_another_type_are_refused() -> None:
    """The function would read the memory as the wrong type."""
    call = native()
    assert call is not None
    x = torch.zeros(4)
    with pytest.raises(TypeError, match=r"elu_backward: torch.float64"):
        call("elu_backward", x.double(), x, x, 4)


@needs_compiler
def test_arrays_that_are_too_short_are_refused() -> None:
    """The function would read or write beyond their end."""
    call = native()
    assert call is not None and compiled._SIZES.keys() == compiled.SIGNATURES.keys()
    x, ids = torch.zeros(4), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"elu_backward: array 2 has 4 elements, not 5"):
        call("elu_backward", torch.zeros(5), torch.zeros(5), x, 5)
    with pytest.raises(ValueError, match=r"transpose: array 2 has 4 elements, not 5"):
        call("transpose", ids, ids, ids, ids, ids, ids, 4, 4)
    with pytest.raises(ValueError, match=r"pair_dot: array 4 has 4 elements, not 8"):
        call("pair_dot", torch.zeros(6), torch.zeros(8), ids, ids, x, 3, 2, 1)
    with pytest.raises(ValueError, match="do not follow each other"):
        call(
            "entry_logits",
            torch.zeros(2, 4).T,
            torch.zeros(4, 2),
            x,
            ids.new_zeros(5),
            ids,
            x.repeat(2),
            4,
            2,
            1,
            2,
            0.2,
        )
    with pytest.raises(TypeError, match="is not a number"):
        call("elu_backward", x, x, x, ids)


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="torch uses another OpenMP library on other systems")
def test_native_shares_the_threads_of_torch() -> None:
    """Although scikit-learn brings another OpenMP library."""
    call = native()
    assert call is not None and not call.single_threaded
