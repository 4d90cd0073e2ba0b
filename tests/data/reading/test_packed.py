"""Gzip is decompressed alike by zlib-ng and, where that is missing, by Python's zlib."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dysat import EventsError
from dysat.data.reading import packed
from dysat.data.reading.limits import Limits

TEXT = b"".join(b"ann,bob,%d\n" % number for number in range(20_000))


@pytest.fixture(params=["installed", "python"])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is, and as it would be without zlib-ng."""
    if request.param == "installed":
        return packed
    monkeypatch.setitem(sys.modules, "zlib_ng", None)
    spec = importlib.util.find_spec(packed.__name__)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    assert found.zlib.__name__ == "zlib"
    return found


def test_several_members_with_zeros_between(module: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(TEXT[:5]) + bytes(100) + gzip.compress(TEXT[5:]) + bytes(7))
    parts = list(module.gunzip(tmp_path / "a.gz", 1_000))
    assert b"".join(parts) == TEXT and max(map(len, parts)) <= 1_000
    pieces = list(module.gunzip_pieces(tmp_path / "a.gz", "a.gz", Limits(), quotes=True, size=1_000))
    assert b"".join(pieces) == TEXT and all(piece.endswith(b"\n") for piece in pieces)


@pytest.mark.parametrize("damage", ["cut", "bytes", "sum"])
def test_damage_is_one_line(module: ModuleType, tmp_path: Path, damage: str) -> None:
    content = gzip.compress(TEXT)
    middle = len(content) // 2
    changed = {
        "cut": content[:middle],
        "bytes": content[:middle] + bytes(50) + content[middle + 50 :],
        "sum": content[:-8] + bytes(4) + content[-4:],
    }
    (tmp_path / "a.gz").write_bytes(changed[damage])
    with pytest.raises(EventsError, match=r"^a\.gz: cannot be read as gzip: [^\n]+$"):
        list(module.gunzip_pieces(tmp_path / "a.gz", "a.gz", Limits(), quotes=True))
