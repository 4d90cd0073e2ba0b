"""The table and the picture of growth with the log show the measured results."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
large_fits = pytest.importorskip("large_fits")
RECORD = json.loads((ROOT / "results" / "scale.json").read_text())


def curves(picture: Path) -> list[str]:
    return re.findall(r'<path d="([^"]+)" clip-path', picture.read_text())


def test_the_table_is_up_to_date() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert large_fits.table(RECORD) in page, "run python benchmarks/large_fits.py"
    assert large_fits.table(RECORD).count("\n| ") == len(RECORD["timings"]) + 1


def test_the_picture_is_up_to_date(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    large_fits.draw(RECORD["timings"], tmp_path / "scale.svg")
    assert curves(ROOT / "docs" / "images" / "scale.svg") == curves(tmp_path / "scale.svg")
    changed = [{**RECORD["timings"][0], "seconds": 1.0}, *RECORD["timings"][1:]]
    large_fits.draw(changed, tmp_path / "other.svg")
    assert curves(tmp_path / "other.svg") != curves(tmp_path / "scale.svg")
