"""Files of tensors: round trips, refusal of damaged and foreign files, and failed writes that change nothing."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file
from torch.testing import assert_close

from dysat.errors import GraphError, ModelError
from dysat.system import tensors
from dysat.system.tensors import read_tensors, write_tensors

FACTS: dict[str, Any] = {"epoch": 3, "about": "zoë\n", "loss": 0.1, "none": None, "sizes": [1, 2]}
TENSORS = {
    "a": torch.arange(4, dtype=torch.float32) / 3,
    "c": torch.tensor([True, False, True]),  # "a" and "c" differ in one bit
    "adam/step/b": torch.tensor(7.0),
    "bytes": torch.arange(5, dtype=torch.uint8),
}


def write(file: Path, tensors: dict[str, torch.Tensor] = TENSORS, *, name: str = "model", version: int = 1) -> Path:
    write_tensors(file, name, version, FACTS, tensors, error=ModelError)
    return file


def read(file: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    return read_tensors(file, "model", 1, error=ModelError)


def refused(file: Path, match: str | None = None) -> None:
    with pytest.raises(ModelError, match=match) as problem:
        read(file)
    assert str(problem.value).startswith(f"{file}: ") and "\n" not in str(problem.value)


DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16]
DTYPES += [torch.float32, torch.float64]


def test_every_type_and_shape_round_trips(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(), (1,), (7,), (3, 5), (0,), (0, 4), (4, 0), (2, 1, 3)]
    given = {f"{d} {s}": torch.randint(0, 100, s, generator=generator).to(d) for d in DTYPES for s in shapes}
    facts, found = read(write(tmp_path / "file", given))
    assert found.keys() == given.keys()
    for name, tensor in given.items():
        assert_close(found[name], tensor, rtol=0, atol=0)
    assert facts == {"format": "dysat-model", "version": 1, **FACTS}


def test_special_values_and_layouts_round_trip(tmp_path: Path) -> None:
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 1e-45])
    whole = torch.arange(12.0).view(3, 4)
    given = {"odd": odd.clone(), "turned": whole.T, "part": whole[:, 1], "": whole.clone().requires_grad_()}
    _, found = read(write(tmp_path / "file", given))
    assert torch.equal(found["odd"].view(torch.int32), odd.view(torch.int32))
    assert torch.equal(found["turned"], whole.T) and torch.equal(found["part"], whole[:, 1])
    assert torch.equal(found[""], whole) and not found[""].requires_grad
    assert read(write(tmp_path / "none", {}))[1] == {}
    found["odd"].zero_()  # writable, without changing the file
    assert torch.equal(read(tmp_path / "file")[1]["odd"].view(torch.int32), odd.view(torch.int32))


def test_one_tensor_under_two_names(tmp_path: Path) -> None:
    x = torch.arange(3.0)
    assert torch.equal(read(write(tmp_path / "file", {"now": x, "best": x}))[1]["best"], x)


def test_truncated_and_extended_files_are_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "whole").read_bytes()
    file = tmp_path / "part"
    for length in [*range(0, len(data), 3), len(data) - 1]:
        file.write_bytes(data[:length])
        refused(file)
    for more in (b"\0", b" ", data):
        file.write_bytes(data + more)
        refused(file)


def test_any_wrong_byte_is_detected(tmp_path: Path) -> None:
    data = write(tmp_path / "whole").read_bytes()
    file = tmp_path / "wrong"
    for at in range(len(data)):
        mask = (0x01, 0x02, 0x20, 0x80, 0xFF)[at % 5]
        file.write_bytes(data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :])
        refused(file)


def test_a_file_replaced_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, newer = write(tmp_path / "file"), write(tmp_path / "newer", {"other": torch.ones(3)})
    checksum = tensors._checksum

    def replace_then_checksum(*args: Any) -> str:
        if newer.exists():
            newer.replace(file)
            return "mismatch"
        return checksum(*args)

    monkeypatch.setattr(tensors, "_checksum", replace_then_checksum)
    assert list(read(file)[1]) == ["other"]


def test_exchanged_tensors_are_detected(tmp_path: Path) -> None:
    data = write(tmp_path / "file", {"one": torch.zeros(2), "two": torch.ones(2)}).read_bytes()
    (tmp_path / "file").write_bytes(
        data.replace(b'"one"', b'"six"').replace(b'"two"', b'"one"').replace(b"six", b"two")
    )
    refused(tmp_path / "file", "damaged: its content does not match its checksum$")


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    save_file({"a": torch.ones(2)}, file)
    refused(file, "not a model of dysat$")
    for text in ("", "null", "[]", "{", "3", json.dumps({"format": "dysat-graph"}), "[" * 100):
        file.write_bytes(save({"a": torch.ones(2)}, {"dysat": text}))
        refused(file, "not a model of dysat$")
    for content in (
        b"",
        b"PK\x03\x04" + bytes(100),
        b"\xff" * 64,
        b"hello\n" * 50,
        (2**62).to_bytes(8, "little") + b"{}",
    ):
        file.write_bytes(content)
        refused(file, "damaged, or not a file of dysat: ")
    refused(write(file, name="checkpoint"), "not a model of dysat$")


def test_deeply_nested_metadata_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(save({"a": torch.ones(2)}, {"dysat": "[" * 200_000}))
    refused(tmp_path / "file", "not a model of dysat$")


def test_newer_and_invalid_versions_are_refused(tmp_path: Path) -> None:
    refused(write(tmp_path / "new", version=2), r"newer dysat \(format 2, this one reads up to 1\)$")
    facts, _ = read_tensors(write(tmp_path / "old", version=1), "model", 2, error=ModelError)
    assert facts["version"] == 1
    for version in ('"1"', "null", "1.5"):
        text = f'{{"format": "dysat-model", "version": {version}}}'
        (tmp_path / "odd").write_bytes(save({}, {"dysat": text}))
        refused(tmp_path / "odd")


def test_missing_files_raise_the_given_error(tmp_path: Path) -> None:
    refused(tmp_path / "none", "no such file$")
    refused(tmp_path, "no such file$")
    with pytest.raises(GraphError, match="no such file"):
        read_tensors(tmp_path / "none", "model", 1, error=GraphError)


def test_a_write_replaces_the_file_and_leaves_no_other(tmp_path: Path) -> None:
    file = tmp_path / "file"
    (tmp_path / "usual").touch()
    write(file)
    write(file, {"other": torch.ones(3)})
    assert list(read(file)[1]) == ["other"]
    assert {f.name for f in tmp_path.iterdir()} == {"file", "usual"}
    assert file.stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "file")
    before = file.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(
        ModelError, match=r"file: cannot be written: No space left on device \(\d+ bytes needed, .* free\)$"
    ):
        write(file, {"other": torch.ones(3)})
    assert [f.name for f in tmp_path.iterdir()] == ["file"] and file.read_bytes() == before
    with pytest.raises(ModelError, match=r"file: cannot be written: No such file or directory$"):
        write(tmp_path / "missing" / "file")


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A real error in the middle of a write, from a limit on the size of files."""
    import resource

    file = write(tmp_path / "file")
    before, limits = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(ModelError) as problem:
            write(file, {"a": torch.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(problem.value) == f"{file}: cannot be written: File too large"
    assert [f.name for f in tmp_path.iterdir()] == ["file"] and file.read_bytes() == before
