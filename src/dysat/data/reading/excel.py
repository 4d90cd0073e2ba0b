"""Excel files, and how large they are before they are read.

The reader makes a table of all cells up to the last, empty ones too: a file of a few kilobytes with one value in the
last cell of a sheet would take 500 GB.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dysat.data.reading.limits import Limits
from dysat.data.reading.sources import Source, explained, names_columns, open_frame, stripped
from dysat.data.reading.times import NUMBER
from dysat.errors import EventsError
from dysat.system.extras import MissingPackageError, require

CELL = 64  # bytes of memory per cell of the table
EXPANDED = 3  # bytes of memory per byte of XML: shared texts, and the XML of a sheet
CHUNK = 1 << 20
# The place of a cell or a row in .xlsx, as r="AB12"; in .ods, values and rows that are repeated.
PLACE = re.compile(rb"""\br\s*=\s*["']([A-Za-z]{0,3})(\d{1,7})["']""")
UNPLACED = re.compile(rb"""<(?:\w+:)?c(?=[\s/>])(?![^<>]*\br\s*=)""")
ROW_END = re.compile(rb"</(?:\w+:)?row\s*>")
REPEATED = re.compile(rb"""<table:(table-row|(?:covered-)?table-cell)\b([^<>]*?)(/?)>""")
TIMES = re.compile(rb"""number-(?:rows|columns)-repeated\s*=\s*["'](\d{1,9})["']""")


class Extent(NamedTuple):
    """Rows and columns of the table up to the last cell."""

    rows: int = 0
    columns: int = 0


def open_excel(path: Path, name: str, header: bool | None, wanted: Sequence[str], limits: Limits) -> Source:
    """Open the first sheet of a workbook."""
    import polars as pl

    try:
        require("fastexcel", f"{name}: reading an Excel file")
    except MissingPackageError as problem:
        raise EventsError(f"{problem}, or save the sheet as CSV") from None
    import fastexcel

    with explained(name, "Excel"):
        _check_size(path, name, limits)
    try:
        book = fastexcel.read_excel(path)
        if header is None:
            first = pl.DataFrame(book.load_sheet(0, header_row=None, n_rows=1))
            cells = [str(cell) for cell in first.row(0) if cell is not None] if len(first) else []
            header = names_columns(cells, wanted) and not all(map(NUMBER.fullmatch, cells))
        table = pl.DataFrame(book.load_sheet(0, header_row=0 if header else None, schema_sample_rows=None))
    except (fastexcel.FastExcelError, pl.exceptions.PolarsError) as problem:
        raise EventsError(f"{name}: cannot be read as Excel: {str(problem).partition(chr(10))[0]}") from None
    sheets = book.sheet_names
    if table.is_empty():
        raise EventsError(f"{name}: sheet {sheets[0]!r} has no events")
    names = stripped(table.columns) if header else [str(i + 1) for i in range(table.width)]
    table = table.rename(dict(zip(table.columns, names, strict=True)))
    notes = (f"sheet {sheets[0]!r} read, the first of {len(sheets)}",) if len(sheets) > 1 else ()
    return replace(open_frame(name, table.lazy(), lambda row: f"row {row + 1 + header}"), blank_rows=True, notes=notes)


def _check_size(path: Path, name: str, limits: Limits) -> None:
    """Refuse a workbook whose sheets take too much memory. The old .xls has at most 65,536 rows and 256 columns."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as book:
        size = sum(member.file_size for member in book.infolist())
        limits.check_memory(name, EXPANDED * size, f"{size / 1e6:,.0f} MB in the workbook")
        for member in book.namelist():
            # Reading to the end also compares the size that the archive claims with the real one.
            with book.open(member) as file:
                parts = iter(lambda file=file: file.read(CHUNK), b"")  # type: ignore[misc]
                extent = Extent()
                if member.startswith("xl/worksheets/") and member.endswith(".bin"):
                    extent = _extent_of_binary(b"".join(parts))
                elif member.startswith("xl/worksheets/"):
                    extent = _extent_of_xml(parts)
                elif member == "content.xml":
                    extent = _extent_of_document(b"".join(parts))
                else:
                    for _ in parts:
                        pass
            limits.check_columns(name, extent.columns)
            what = f"the sheet has {extent.rows:,} rows and {extent.columns:,} columns up to its last cell, which"
            limits.check_memory(name, CELL * extent.rows * extent.columns, what)


def _extent_of_xml(parts: Iterator[bytes]) -> Extent:
    """The last row and column of a sheet of .xlsx."""
    last = unnumbered = columns = cells = 0
    letters: set[bytes] = set()
    rest = b""
    for part in parts:
        text = rest + part
        end = text.rfind(b"<")
        text, rest = text[:end], text[end:]
        found = PLACE.findall(text)
        letters.update(place[0] for place in found)
        last = max(last, max((int(place[1]) for place in found), default=0))
        if cells or UNPLACED.search(text):  # cells without a place follow each other
            for i, row in enumerate(ROW_END.split(text)):
                cells = len(UNPLACED.findall(row)) + (0 if i else cells)
                columns, unnumbered = max(columns, cells), unnumbered + bool(i)
    return Extent(max(last, unnumbered), max(columns, max(map(_column_number, letters), default=0)))


def _column_number(letters: bytes) -> int:
    """1 for A, 27 for AA."""
    number = 0
    for letter in letters.upper():
        number = 26 * number + letter - 64
    return number


def _extent_of_binary(data: bytes) -> Extent:
    """The last row and column of a sheet of .xlsb: records of a type (0 is a row, 1 to 11 are cells) and a size."""
    rows = columns = at = 0
    while at < len(data):
        kind, at = _variable(data, at, 2)
        size, at = _variable(data, at, 4)
        if kind == 0:
            rows = max(rows, int.from_bytes(data[at : at + 4], "little") + 1)
        elif kind <= 11:
            columns = max(columns, int.from_bytes(data[at : at + 4], "little") + 1)
        at += size
    return Extent(rows, columns)


def _variable(data: bytes, at: int, most: int) -> tuple[int, int]:
    """A number of up to `most` bytes with 7 bits each, and where it ends."""
    value = 0
    for i, byte in enumerate(data[at : at + most]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, at + i + 1
    return value, at + most


def _extent_of_document(data: bytes) -> Extent:
    """The rows and columns of a sheet of .ods up to the last value; rows and cells may be repeated."""
    rows = waiting = columns = width = times = 0
    for match in REPEATED.finditer(data):
        tag, attributes, empty = match.groups()
        repeated = TIMES.search(attributes)
        number = int(repeated[1]) if repeated else 1
        if tag == b"table-row":
            waiting, width, times = waiting + times, 0, number
            continue
        width += number
        if not empty:
            rows, waiting, times = rows + waiting + times, 0, 0  # with the empty rows before it
            columns = max(columns, width)
    return Extent(rows, columns)
