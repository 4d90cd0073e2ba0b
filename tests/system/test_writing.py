"""Writes beside a target: leftovers of killed processes, full disks, and names that cannot be written."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_folders import forks, in_process, wait_until

import dysat
from dysat.errors import DysatError, GraphError, ModelError
from dysat.system.journal import Journal
from dysat.system.locks import LOCK_FILE, try_lock
from dysat.system.storage import GrowingArray, read_folder, replace_file, write_folder
from dysat.system.table_files import write_table
from dysat.system.tensors import read_tensors, write_tensors
from dysat.system.writing import PREFIX, check_new_file, check_place, size_text, sweep, sweep_once, writing_beside

ARRAYS = {"x": np.arange(200_000)}


def write_forever(target: Path) -> None:
    with writing_beside(target) as new:
        new.write_text("half")
        (new.parent / "begun").touch()
        time.sleep(600)


def busy(target: Path) -> Any:
    """Start a process that is about to write a target; returns once it has begun."""
    process = forks.Process(target=write_forever, args=(target,))
    process.start()
    wait_until(process, lambda: any(target.parent.glob(f"{PREFIX}*/begun")))
    return process


def kill(process: Any) -> None:
    process.kill()
    process.join()


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(PREFIX)]


def save(folder: Path, *, overwrite: bool = False) -> None:
    write_folder(folder, "graph", 1, {}, ARRAYS, overwrite=overwrite, error=GraphError)


def load(folder: Path) -> dict[str, np.ndarray]:
    return read_folder(folder, "graph", 1, lambda facts, arrays: arrays, verify=True, mmap=False, error=GraphError)


# Leftovers


def test_leftovers_are_removed_once_their_process_has_ended(tmp_path: Path) -> None:
    process = busy(tmp_path / "file.csv")
    try:
        assert len(left(tmp_path)) == 1 and sweep(tmp_path) == []  # it is still writing
    finally:
        kill(process)
    (name,) = left(tmp_path)
    sweep_once.cache_clear()
    with replace_file(tmp_path / "other.csv", ModelError) as temporary:
        temporary.write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == ["other.csv"] and not (tmp_path / name).exists()


def test_only_folders_of_dysat_are_removed(tmp_path: Path) -> None:
    mine = {
        ".dysat-notes": "of somebody",
        ".run.abcdefgh": "of an earlier version, which had no lock",
        ".dysat-ABCDEFGH": "not a name that is given",
        ".dysat-abcdefghi": "too long",
    }
    for name, text in mine.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(text)
    (tmp_path / ".dysat-aaaaaaaa").write_text("a file")
    (tmp_path / ".dysat-bbbbbbbb").mkdir()
    (tmp_path / ".dysat-bbbbbbbb" / "thesis.txt").write_text("no lock in it")
    (tmp_path / ".dysat-cccccccc").symlink_to(tmp_path / ".dysat-notes")
    (tmp_path / ".dysat-dddddddd").mkdir()
    (tmp_path / ".dysat-dddddddd" / LOCK_FILE).symlink_to(tmp_path / ".dysat-notes" / "file")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert sweep(tmp_path) == [] and sorted(path.name for path in tmp_path.rglob("*")) == before
    assert (tmp_path / ".dysat-notes" / "file").read_text() == "of somebody"
    (tmp_path / ".dysat-eeeeeeee").mkdir()  # killed before the lock was made
    assert sweep(tmp_path) == [".dysat-eeeeeeee"] and sweep(tmp_path / "missing") == []


def test_a_folder_that_was_being_replaced_is_put_back(tmp_path: Path) -> None:
    """Killed after the old folder was moved away, and before the new one was in its place."""
    save(tmp_path / "g")
    for present in (False, True):
        folder = tmp_path / ".dysat-abcdefgh"
        (folder / "old").mkdir(parents=True)
        (folder / LOCK_FILE).touch()
        (folder / "new").mkdir()
        if present:
            save(folder / "old" / "g")  # the new one was in its place already
        else:
            (tmp_path / "g").rename(folder / "old" / "g")
        assert sweep(tmp_path) == [folder.name] and [path.name for path in tmp_path.iterdir()] == ["g"]
        assert (load(tmp_path / "g")["x"] == ARRAYS["x"]).all()


def test_a_locked_folder_is_never_removed(tmp_path: Path) -> None:
    with writing_beside(tmp_path / "file") as new:
        assert try_lock(new.parent) is None and sweep(tmp_path) == [] and new.parent.is_dir()
    assert list(tmp_path.iterdir()) == []


def start_or_save(what: str, target: Path) -> None:
    """Start a run, or save a graph."""
    events = dysat.read_events(([0, 1, 2], [1, 2, 0], [0, 1, 1]), time_unit="step")
    graph = dysat.build_snapshots(events, every=1)
    if what == "run":
        dysat.Run.start(target, graph, dysat.DySAT(epochs=0, device="cpu"))
    else:
        graph.save(target)


def write_and_die(what: str, target: Path) -> None:
    """Die after the first sync."""
    real = os.fsync

    def dying(handle: int) -> None:
        real(handle)
        os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = dying  # type: ignore[assignment]
    start_or_save(what, target)


@pytest.mark.parametrize("what", ["run", "graph"])
def test_the_next_start_removes_what_a_kill_left(what: str, tmp_path: Path) -> None:
    assert in_process(write_and_die, what, tmp_path / what) == -signal.SIGKILL
    assert len(left(tmp_path)) == 1 and not (tmp_path / what).exists()
    sweep_once.cache_clear()
    start_or_save(what, tmp_path / what)
    assert [path.name for path in tmp_path.iterdir()] == [what] and left(tmp_path / what) == []


# Full disks


def test_a_full_disk_names_the_file_and_the_sizes(small_disk: Path) -> None:
    wide = {"label": np.arange(20_000), "e": np.random.default_rng(0).random((20_000, 8), dtype=np.float32)}
    journal = Journal(small_disk / "a.bin", [], ModelError)
    cases = {
        "g/x.npy": lambda: save(small_disk / "g"),
        "a.safetensors": lambda: write_tensors(
            small_disk / "a.safetensors", "model", 1, {}, {"w": torch.zeros(400_000)}, error=ModelError
        ),
        "a.csv": lambda: write_table([wide], small_disk / "a.csv"),
        "a.parquet": lambda: write_table([wide], small_disk / "a.parquet"),
        "a.bin": lambda: journal.append({"x": np.arange(200_000)}),
    }
    for name, write in cases.items():
        with pytest.raises(DysatError) as problem:
            write()
        text = str(problem.value)
        assert text.startswith(f"{small_disk / name}: cannot be written: No space left on device ("), text
        assert " needed, " in text and text.endswith("kB free)"), text  # nothing is free if leftovers are counted
        assert [path.name for path in small_disk.iterdir() if path.stat().st_size] == []
    save_small = {"x": np.arange(10)}
    write_folder(small_disk / "g", "graph", 1, {}, save_small, overwrite=False, error=GraphError)
    with pytest.raises(GraphError, match="No space left on device"):
        save(small_disk / "g", overwrite=True)
    assert (load(small_disk / "g")["x"] == save_small["x"]).all()


def test_an_error_without_a_number_is_a_full_disk_if_too_little_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some libraries say only "3952 requested and 2032 written"."""

    def short(*_: object, **__: object) -> None:
        raise OSError("3952 requested and 2032 written")

    monkeypatch.setattr(GrowingArray, "append", short)
    with pytest.raises(GraphError, match=r"x\.npy: cannot be written: 3952 requested and 2032 written$"):
        save(tmp_path / "g")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 2032}))
    with pytest.raises(GraphError, match=r"No space left on device \(1\.6 MB needed, 2,032 bytes free\)$"):
        save(tmp_path / "g")
    assert list(tmp_path.iterdir()) == []


def test_sizes() -> None:
    assert [size_text(n) for n in (0, 1, 9_999, 10_000, 123_456_789, 5 * 10**9, 2 * 10**12)] == [
        "0 bytes", "1 byte", "9,999 bytes", "10.0 kB", "123.5 MB", "5.0 GB", "2.0 TB",
    ]  # fmt: skip


# Arrays in parts


@pytest.mark.parametrize("dtype", ["f8", "i8", "u1", "f2", "f4"])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (0,), (0, 2)])
def test_parts_are_written_as_numpy_writes_the_whole(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    whole = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.save(tmp_path / "whole.npy", whole)
    parts = {"x": [whole[:2], whole[2:2], whole[2:]]}
    write_folder(tmp_path / "g", "graph", 1, {}, parts, overwrite=False, error=GraphError)
    assert (tmp_path / "g" / "x.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_parts_of_different_types_are_refused(tmp_path: Path) -> None:
    parts = {"x": [np.arange(2), np.arange(2.0)]}
    with pytest.raises(ValueError, match=r"float64 \(\) after int64 \(\) in x.npy"):
        write_folder(tmp_path / "g", "graph", 1, {}, parts, overwrite=False, error=GraphError)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its memory")
def test_a_file_larger_than_memory_is_mapped(tmp_path: Path) -> None:
    """The file has a hole, so it takes no room. Linux refuses such a mapping unless nothing is reserved for it."""
    facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    memory = sum(int(facts[name].split()[0]) * 1024 for name in ("MemTotal", "SwapTotal"))
    length = 2 * memory // 8
    write_folder(tmp_path / "g", "graph", 1, {}, {"x": np.arange(3)}, overwrite=False, error=GraphError)
    file = tmp_path / "g" / "x.npy"
    with open(file, "wb") as out:
        facts = {"descr": "<i8", "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(out, facts)
        out.truncate(out.tell() + 8 * length)
    manifest = json.loads((tmp_path / "g" / "graph.json").read_text())
    manifest["files"]["x"]["bytes"] = file.stat().st_size
    (tmp_path / "g" / "graph.json").write_text(json.dumps(manifest))
    arrays = read_folder(tmp_path / "g", "graph", 1, lambda _, a: a, verify=False, mmap=True, error=GraphError)
    assert len(arrays["x"]) == length and arrays["x"][-1] == 0
    arrays["x"][-1] = 5  # private
    with open(file, "rb") as data:
        data.seek(-8, os.SEEK_END)
        assert data.read() == bytes(8)


# Names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a\udcff", "not valid UTF-8"),
        ("\udce9/run", "not valid UTF-8"),
        ("a\0b", "NUL"),
        ("a" * 256, "too long"),
        ("new/" + "é" * 128 + "/run", "too long"),
        ("file/run", "file is not a folder"),
        ("file/deep/er", "file is not a folder"),
    ],
)
def test_names_that_cannot_be_written_are_refused_before_any_work(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    graph = dysat.build_snapshots(dysat.read_events(([0, 1], [1, 2], [0, 1]), time_unit="step"), every=1)
    for check in (
        lambda: check_place(tmp_path / name, ModelError),
        lambda: check_new_file(tmp_path / name, ModelError),
        lambda: dysat.Run.start(tmp_path / name, graph, dysat.DySAT(epochs=0, device="cpu")),
        *([] if "UTF-8" in message else [lambda: graph.save(tmp_path / name)]),
    ):
        with pytest.raises(DysatError, match=f"cannot be written: .*{message}") as problem:
            check()
        assert "\n" not in str(problem.value) and str(problem.value).isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    save(tmp_path / ("a" * 255))
    with replace_file(tmp_path / ("b" * 251 + ".csv"), ModelError) as temporary:
        assert temporary.suffix == ".csv"
        temporary.write_text("x")
    assert len(list(tmp_path.iterdir())) == 2


def test_files_need_a_folder_and_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_new_file(tmp_path / "new.csv", ModelError)
    check_place(tmp_path / "new" / "folder", ModelError)
    for path, message in ((tmp_path, "it is a folder"), (tmp_path / "no" / "a.csv", "there is no folder")):
        with pytest.raises(ModelError, match=message):
            check_new_file(path, ModelError)
    monkeypatch.setattr(os, "access", lambda *_: False)  # tests may run as root
    with pytest.raises(ModelError, match=f"no permission to write in {tmp_path}"):
        check_place(tmp_path / "new" / "run", ModelError)


# Equal bytes

EQUAL = """
import sys, torch
from pathlib import Path
from dysat.errors import ModelError
from dysat.system.tensors import write_tensors
tensors = {name: torch.arange(5).to(dtype) for name, dtype in
           (("b", torch.float32), ("a", torch.bool), ("c/d", torch.int64), ("é", torch.bfloat16), ("z", torch.uint8))}
write_tensors(Path(sys.argv[1]), "model", 1, {"options": {"x": 1}, "graph": "g"}, tensors, error=ModelError)
"""


def write_in_a_process(file: Path) -> None:
    subprocess.run([sys.executable, "-c", EQUAL, str(file)], check=True)


def write_here(file: Path) -> None:
    """The library orders names by a hash with a new key for every file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["-c", str(file)])
        exec(EQUAL, {})


@pytest.mark.parametrize("write", [write_here, pytest.param(write_in_a_process, marks=pytest.mark.slow)])
def test_equal_content_gives_equal_bytes_in_every_process(tmp_path: Path, write: Callable[[Path], None]) -> None:
    from safetensors import safe_open

    for name in "abcd":
        write(tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in "abcd"}) == 1
    with safe_open(tmp_path / "a", framework="pt") as file:  # the library's own reader
        assert set(file.keys()) == {"a", "b", "c/d", "z", "é"} and set(file.metadata()) == {"dysat", "checksum"}
        assert torch.equal(file.get_tensor("c/d"), torch.arange(5))
    assert read_tensors(tmp_path / "a", "model", 1, error=ModelError)[0]["graph"] == "g"


def test_an_error_while_writing_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"cannot be written: {os.strerror(errno.EIO)}$"):  # noqa: SIM117
        with replace_file(tmp_path / "file", ModelError):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert list(tmp_path.iterdir()) == []
