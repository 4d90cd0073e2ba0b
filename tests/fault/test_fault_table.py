"""The table of docs/reliability.md shows what is in results/faults.json, and commands that exist."""

from __future__ import annotations

from record import FAULTS, PAGE, ROOT, table, with_table


def test_the_page_shows_the_stored_figures() -> None:
    page = PAGE.read_text()
    assert table() in page and with_table(page) == page


def test_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for fault in FAULTS.values():
        if fault.command.startswith("make "):
            assert f"\n{fault.command.removeprefix('make ')}:" in makefile
        else:
            assert (ROOT / fault.command.removeprefix("python ")).is_file()
