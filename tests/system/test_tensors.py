"""A file of tensors: what was written is read, all else is refused, and a failed write leaves what was there."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file

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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_and_shape_comes_back(dtype: torch.dtype, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(), (1,), (7,), (3, 5), (0,), (0, 4), (4, 0), (2, 1, 3)]
    tensors = {f"{shape}": torch.randint(0, 100, shape, generator=generator).to(dtype) for shape in shapes}
    facts, found = read(write(tmp_path / "file", tensors))
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == dtype and found[name].shape == tensor.shape and torch.equal(found[name], tensor)
    assert facts == {"format": "dysat-model", "version": 1, **FACTS}


def test_odd_values_and_layouts_come_back(tmp_path: Path) -> None:
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 1e-45])
    whole = torch.arange(12.0).view(3, 4)
    tensors = {"odd": odd, "turned": whole.T, "part": whole[:, 1], "": whole.clone().requires_grad_()}
    _, found = read(
        write(tmp_path / "file", {name: t.clone() if name != "turned" else t for name, t in tensors.items()})
    )
    assert torch.equal(found["odd"].view(torch.int32), odd.view(torch.int32))
    assert torch.equal(found["turned"], whole.T) and torch.equal(found["part"], whole[:, 1])
    assert torch.equal(found[""], whole) and not found[""].requires_grad
    assert read(write(tmp_path / "none", {}))[1] == {}
    found["odd"].zero_()  # it may be written to, and the file stays
    assert torch.equal(read(tmp_path / "file")[1]["odd"].view(torch.int32), odd.view(torch.int32))


def test_the_same_tensor_by_two_names(tmp_path: Path) -> None:
    x = torch.arange(3.0)
    assert torch.equal(read(write(tmp_path / "file", {"now": x, "best": x}))[1]["best"], x)


def test_a_file_that_ends_too_early(tmp_path: Path) -> None:
    data = write(tmp_path / "whole").read_bytes()
    file = tmp_path / "part"
    for length in range(len(data)):
        file.write_bytes(data[:length])
        refused(file)
    for more in (b"\0", b" ", data):
        file.write_bytes(data + more)
        refused(file)


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x20, 0x80, 0xFF])
def test_a_byte_that_is_wrong_anywhere(mask: int, tmp_path: Path) -> None:
    data = write(tmp_path / "whole").read_bytes()
    file = tmp_path / "wrong"
    for at in range(len(data)):
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


def test_two_tensors_exchanged(tmp_path: Path) -> None:
    data = write(tmp_path / "file", {"one": torch.zeros(2), "two": torch.ones(2)}).read_bytes()
    (tmp_path / "file").write_bytes(
        data.replace(b'"one"', b'"six"').replace(b'"two"', b'"one"').replace(b"six", b"two")
    )
    refused(tmp_path / "file", "damaged: its content does not match its checksum$")


def test_files_of_others(tmp_path: Path) -> None:
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


def test_facts_nested_too_deep(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(save({"a": torch.ones(2)}, {"dysat": "[" * 200_000}))
    refused(tmp_path / "file", "not a model of dysat$")


def test_versions(tmp_path: Path) -> None:
    refused(write(tmp_path / "new", version=2), r"newer dysat \(format 2, this one reads up to 1\)$")
    facts, _ = read_tensors(write(tmp_path / "old", version=1), "model", 2, error=ModelError)
    assert facts["version"] == 1
    for version in ('"1"', "null", "1.5"):
        text = f'{{"format": "dysat-model", "version": {version}}}'
        (tmp_path / "odd").write_bytes(save({}, {"dysat": text}))
        refused(tmp_path / "odd")


def test_missing_files_and_the_error_asked_for(tmp_path: Path) -> None:
    refused(tmp_path / "none", "no such file$")
    refused(tmp_path, "no such file$")
    with pytest.raises(GraphError, match="no such file"):
        read_tensors(tmp_path / "none", "model", 1, error=GraphError)


def test_a_write_replaces_whole_and_leaves_nothing_beside(tmp_path: Path) -> None:
    file = tmp_path / "file"
    (tmp_path / "usual").touch()
    write(file)
    write(file, {"other": torch.ones(3)})
    assert list(read(file)[1]) == ["other"]
    assert {f.name for f in tmp_path.iterdir()} == {"file", "usual"}
    assert file.stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_what_was_there(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "file")
    before = file.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(ModelError, match=r"file: cannot be written: No space left on device$"):
        write(file, {"other": torch.ones(3)})
    assert [f.name for f in tmp_path.iterdir()] == ["file"] and file.read_bytes() == before
    with pytest.raises(ModelError, match=r"file: cannot be written: No such file or directory$"):
        write(tmp_path / "missing" / "file")


LIMITED = """
import resource, sys, torch
from pathlib import Path
from dysat.system.tensors import write_tensors
from dysat.errors import ModelError
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write_tensors(Path(sys.argv[1]), "model", 1, {}, {"a": torch.zeros(100_000)}, error=ModelError)
except ModelError as problem:
    sys.exit(f"refused: {problem}")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files")
def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    file = write(tmp_path / "file")
    before = file.read_bytes()
    done = subprocess.run([sys.executable, "-c", LIMITED, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr == f"refused: {file}: cannot be written: File too large\n"
    assert [f.name for f in tmp_path.iterdir()] == ["file"] and file.read_bytes() == before
