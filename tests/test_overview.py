"""The README's picture shows the measured results."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "overview.svg"

pytest.importorskip("matplotlib")
sys.path.insert(0, str(ROOT / "benchmarks"))
overview = pytest.importorskip("overview")


def drawn(picture: Path) -> tuple[dict[str, str], list[str]]:
    """The path of every curve by its id, and all texts."""
    svg = picture.read_text()
    curves = re.findall(r'<g id="([a-z0-9-]+-(?:default|boosting|heuristic|published))">\s*<path d="([^"]+)"', svg)
    return dict(curves), re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_committed_picture_is_up_to_date(tmp_path: Path) -> None:
    overview.draw(overview.read_panels(), tmp_path / "overview.svg")
    curves, texts = drawn(tmp_path / "overview.svg")
    assert len(curves) == 4 * len(overview.DATASETS)
    message = "docs/images/overview.svg is out of date: run python benchmarks/overview.py"
    assert drawn(PICTURE) == (curves, texts), message


def test_one_changed_figure_changes_the_picture(tmp_path: Path) -> None:
    panels = overview.read_panels()
    panels["uci"].default[12] -= 0.5
    overview.draw(panels, tmp_path / "overview.svg")
    assert drawn(tmp_path / "overview.svg")[0] != drawn(PICTURE)[0]


def test_means_are_those_of_the_readme() -> None:
    """The labels in the picture and the README's table of quality agree."""
    table = (ROOT / "README.md").read_text()
    _, texts = drawn(PICTURE)
    shown = [text.removeprefix("dysat ") for text in texts if text.startswith("dysat ")]
    assert len(shown) == 4
    row = next(line for line in table.splitlines() if line.startswith("|") and all(f"**{s}**" in line for s in shown))
    assert re.findall(r"\*\*(\d+\.\d)\*\*", row) == shown
