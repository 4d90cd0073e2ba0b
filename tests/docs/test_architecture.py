"""The architecture page describes the rooms that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "dysat"


def test_table_lists_every_room() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    described = set(re.findall(r"^\| `([a-z/]+)/` \|", page, re.MULTILINE))
    folders = {folder.relative_to(PACKAGE).as_posix() for folder in PACKAGE.rglob("*") if folder.is_dir()}
    rooms = {folder for folder in folders if "__pycache__" not in folder}
    inside = {room for room in rooms if room.startswith("experiments/")}  # described with their parent
    assert described == rooms - inside
    assert all(f"`{room.split('/')[1]}/`" in page for room in inside)


def test_diagram_shows_every_room() -> None:
    drawn = set(re.findall(r'class="room"[^>]*>([a-z]+)<', (ROOT / "docs" / "images" / "rooms.svg").read_text()))
    rooms = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
    assert drawn == rooms | {"training"}
