"""Excel files, and what Excel writes as text."""

from __future__ import annotations

import zipfile
from datetime import datetime
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

import dysat
from dysat import EventsError, read_events
from dysat.system import extras

SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
Cell = str | float | datetime | None
ROWS: list[list[Cell]] = [
    ["from", "to", "when", "amount"],
    ["ann", "bob", datetime(2026, 11, 16, 10, 30), 3.5],
    ["bob", "cy", datetime(2026, 11, 17), 2],
    [None, None, None, None],
    ["cy", "ann", datetime(2026, 11, 18), 1],
]


def cell(place: str, value: Cell) -> str:
    if isinstance(value, datetime):
        return f'<c r="{place}" s="1"><v>{(value - datetime(1899, 12, 30)).total_seconds() / 86400!r}</v></c>'
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return "" if value is None else f'<c r="{place}"><v>{value}</v></c>'


def write_workbook(path: Path, rows: list[list[Cell]], sheets: tuple[str, ...] = ("Sheet1",)) -> Path:
    """Write rows to the first sheet of a workbook; the other sheets are empty."""
    body = "".join(
        f'<row r="{i}">{"".join(cell(f"{chr(65 + j)}{i}", value) for j, value in enumerate(row))}</row>'
        for i, row in enumerate(rows, 1)
    )
    listed = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets, 1))
    targets = [("worksheet", f"r{i}", f"worksheets/sheet{i}.xml") for i in range(1, len(sheets) + 1)]
    links = "".join(
        f'<Relationship Id="{id}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for kind, id, target in [*targets, ("styles", "rs", "styles.xml")]
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r" '
        f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{SHEETS}" xmlns:r="{OFFICE}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{links}</Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{SHEETS}"><cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="22"/>'
        "</cellXfs></styleSheet>",
    }
    for i, (_, _, target) in enumerate(targets):
        parts[f"xl/{target}"] = f'<worksheet xmlns="{SHEETS}"><sheetData>{body * (i == 0)}</sheetData></worksheet>'
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return path


def facts(events: dysat.Events) -> list[tuple[object, ...]]:
    names = events.labels[events.src].tolist(), events.labels[events.dst].tolist()
    return list(zip(*names, events.time.tolist(), strict=True))


EXPECTED = facts(read_events(tuple(zip(*[row[:3] for row in ROWS[1:] if row[0]], strict=True))))


def test_workbooks_are_read(tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    path = write_workbook(tmp_path / "pay.xlsx", ROWS, ("Payments", "Notes"))
    events = read_events(path, "from", "to", "when", "amount")
    assert facts(events) == EXPECTED and events.weight is not None and events.weight.tolist() == [3.5, 2, 1]
    assert events.notes == ("sheet 'Payments' read, the first of 2",)
    assert facts(read_events(path.rename(tmp_path / "pay.dat"), time="when")) == EXPECTED  # by content
    bare = write_workbook(tmp_path / "bare.xlsx", ROWS[1:])
    assert facts(read_events(bare, 1, 2, 3)) == EXPECTED
    numbers = write_workbook(tmp_path / "n.xlsx", [["src", "dst", "time"], [1, 2, "2024-01-01"], [2, 30, "2024-01-02"]])
    assert read_events(numbers).labels.tolist() == [1, 2, 30]


def test_bad_workbooks(tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    odd = write_workbook(tmp_path / "a.xlsx", [*ROWS, ["dee", "ann", "soon", 1]])
    with pytest.raises(EventsError, match=r"a\.xlsx, row 6: time 'soon' is not a date"):
        read_events(odd, time="when")
    with pytest.raises(EventsError, match=r"a\.xlsx: sheet 'Sheet1' has no events"):
        read_events(write_workbook(tmp_path / "a.xlsx", []))
    (tmp_path / "old.xls").write_bytes(bytes.fromhex("d0cf11e0a1b11ae1") + b"junk" * 200)
    with pytest.raises(EventsError, match=r"old\.xls: cannot be read as Excel: "):
        read_events(tmp_path / "old.xls")
    with pytest.raises(EventsError, match=r"a\.xlsx: no column 'x' for src; there are from, to, when, amount"):
        read_events(write_workbook(tmp_path / "a.xlsx", ROWS), "x")


def test_without_the_package_a_workbook_is_refused_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(EventsError, match=r"needs fastexcel; .*pip install 'dysat\[excel\]', or save the sheet as CSV"):
        read_events(write_workbook(tmp_path / "a.xlsx", ROWS))


def test_other_archives_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("log.csv", "a,b,c")
    with pytest.raises(EventsError, match=r"logs\.zip: is a zip archive; unpack it first"):
        read_events(tmp_path / "logs.zip")


@pytest.mark.parametrize(("name", "mark", "encoding"), [("a.csv", ";", "cp1252"), ("a.txt", "\t", "utf-16")])
def test_text_that_excel_exports(tmp_path: Path, name: str, mark: str, encoding: str) -> None:
    """Semicolons or tabs, decimal commas and local dates are read with what the error suggests."""
    rows = [["Zahler", "Empfänger", "Datum", "Betrag"]]
    rows += [["K1", "Jürgen", "16.11.2026 10:30", "1.234,50"], ["Jürgen", "K2", "17.11.2026 00:00", "-3,5"]]
    (tmp_path / name).write_bytes("".join(mark.join(row) + "\r\n" for row in rows).encode(encoding))
    columns = tuple(rows[0])
    with pytest.raises(EventsError, match=r"time_format='%d\.%m\.%Y %H:%M' reads it"):
        read_events(tmp_path / name, *columns)
    events = read_events(tmp_path / name, *columns, time_format="%d.%m.%Y %H:%M", negative_weights="abs")
    assert events.weight is not None and events.weight.tolist() == [1234.5, 3.5]
    assert len(events.notes) == 4 and "decimal comma" in events.notes[1]
