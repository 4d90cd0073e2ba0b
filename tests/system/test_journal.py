"""The journal: stored records are read back bit for bit, and data without a record is dropped."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_maps import memory_map

from dysat.errors import ModelError
from dysat.system.journal import ALIGN, Journal, Record

ARRAYS: list[dict[str, Any]] = [
    {"a": np.arange(5, dtype=np.int32), "b": np.array([[1.5, np.nan], [-0.0, np.inf]], dtype=np.float32)},
    {"none": np.empty(0, dtype=np.int64), "wide": np.empty((0, 3), dtype=np.float32)},
    {"text": np.frombuffer("é".encode(), dtype=np.uint8), "one": np.array(7)},
    {},
    {"turned": np.arange(12.0).reshape(3, 4).T, "every other": np.arange(9)[::2]},
]


def written(file: Path) -> list[Record]:
    journal = Journal(file, [], ModelError)
    return [journal.append(arrays) for arrays in ARRAYS]


def assert_holds(journal: Journal, arrays: list[dict[str, Any]]) -> None:
    assert len(journal.records) == len(arrays)
    for index, expected in enumerate(arrays):
        found = journal.read(index, verify=True)
        assert list(found) == list(expected)
        for name, array in expected.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array, strict=True)


def test_appended_arrays_are_read_back(tmp_path: Path) -> None:
    records = written(tmp_path / "j")
    assert_holds(Journal(tmp_path / "j", records, ModelError), ARRAYS)
    assert (tmp_path / "j").stat().st_size == records[-1]["end"]
    assert all(at % ALIGN == 0 for record in records for _, _, at in record["arrays"].values())


def test_appending_changes_no_earlier_byte(tmp_path: Path) -> None:
    journal, before = Journal(tmp_path / "j", [], ModelError), b""
    for arrays in ARRAYS:
        journal.append(arrays)
        data = (tmp_path / "j").read_bytes()
        assert data.startswith(before)
        before = data
    assert_holds(journal, ARRAYS)


def test_reading_uses_one_memory_map(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", written(tmp_path / "j"), ModelError)
    a, b = journal.read(0)["a"], journal.read(4)["turned"]
    assert memory_map(a) is memory_map(b) and type(a) is type(b) is np.ndarray  # views of a memmap are slow


def test_writing_to_an_array_does_not_change_the_file(tmp_path: Path) -> None:
    records = written(tmp_path / "j")
    Journal(tmp_path / "j", records, ModelError).read(0)["a"][:] = 9
    assert_holds(Journal(tmp_path / "j", records, ModelError), ARRAYS)


@pytest.mark.parametrize("kept", [0, 2, len(ARRAYS)])
def test_data_without_a_record_is_cut_or_overwritten(tmp_path: Path, kept: int) -> None:
    records = written(tmp_path / "j")[:kept]
    with open(tmp_path / "j", "ab") as file:
        file.write(b"half a record")
    again = Journal(tmp_path / "j", records, ModelError)
    again.append({"a": np.arange(3)})  # without a cut
    assert_holds(again, [*ARRAYS[:kept], {"a": np.arange(3)}])
    clean = Journal(tmp_path / "clean", [], ModelError)
    for arrays in (*ARRAYS[:kept], {"a": np.arange(3)}):
        clean.append(arrays)
    assert (tmp_path / "j").read_bytes() == (tmp_path / "clean").read_bytes()
    again = Journal(tmp_path / "j", records, ModelError)
    again.cut_back()
    assert (tmp_path / "j").stat().st_size == again.size == (records[-1]["end"] if records else 0)
    assert_holds(again, ARRAYS[:kept])


def test_cutting_a_missing_file_creates_none(tmp_path: Path) -> None:
    Journal(tmp_path / "j", [], ModelError).cut_back()
    assert not (tmp_path / "j").exists()


@pytest.mark.parametrize("work", [Journal.cut_back, lambda journal: journal.read(0)], ids=["cut back", "read"])
@pytest.mark.parametrize("left", [None, 0, 100], ids=["gone", "empty", "cut"])
def test_missing_data_is_reported_as_damage(
    tmp_path: Path, left: int | None, work: Callable[[Journal], object]
) -> None:
    records = written(tmp_path / "j")
    if left is None:
        (tmp_path / "j").unlink()
    else:
        os.truncate(tmp_path / "j", left)
    with pytest.raises(ModelError) as problem:
        work(Journal(tmp_path / "j", records, ModelError))
    end = records[-1]["end"]
    assert str(problem.value) == f"{tmp_path / 'j'}: damaged: {left or 0} bytes, where {end:,} were written"


def test_verify_detects_a_flipped_bit(tmp_path: Path) -> None:
    records = written(tmp_path / "j")
    data = bytearray((tmp_path / "j").read_bytes())
    data[3] ^= 1
    (tmp_path / "j").write_bytes(data)
    journal = Journal(tmp_path / "j", records, ModelError)
    journal.read(0)
    with pytest.raises(ModelError, match="j: damaged: record 0 does not match its checksum"):
        journal.read(0, verify=True)
    journal.read(2, verify=True)


def test_a_full_disk_loses_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = written(tmp_path / "j")
    journal = Journal(tmp_path / "j", records, ModelError)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ModelError, match="j: cannot be written: No space left on device"):
            journal.append({"a": np.arange(3)})
    assert_holds(journal, ARRAYS)
    journal.append({"a": np.arange(4)})
    assert_holds(journal, [*ARRAYS, {"a": np.arange(4)}])


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="j: cannot be written: No such file"):
        Journal(tmp_path / "nowhere" / "j", [], ModelError).append(ARRAYS[0])
