"""The beginning and the lines of text files, and what is wrong with a file that could not be read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from dysat.data.reading.sources import explained
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl

SEPARATORS = ",;\t|"
HEAD = 1 << 16  # bytes read to recognise a file
NO_SEPARATOR = "\x1f"  # occurs in no line, so that whole lines are read


def read_head(path: Path, name: str) -> str:
    """Return the beginning of a file as text, decompressed."""
    with explained(name, "a file"), open(path, "rb") as data:
        raw = data.read(HEAD)
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise EventsError(f"{name}: is UTF-16 text; save it as UTF-8")
    if raw.startswith(b"PAR1"):
        return "PAR1"
    if raw.startswith(b"\x1f\x8b"):
        try:
            raw = zlib.decompressobj(wbits=31).decompress(raw, HEAD)
        except zlib.error as problem:
            raise EventsError(f"{name}: cannot be read as gzip: {problem}") from None
    elif raw.startswith(b"\x28\xb5\x2f\xfd"):
        with explained(name, "zstd"):
            lines = scan_lines(path).select("line").head(1000).collect().to_series().fill_null("")
            return "\n".join(lines.to_list())
    return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def lines_of(head: str) -> list[str]:
    """Split at line ends; `splitlines` would also split at U+2028 and others inside a text."""
    return re.split(r"\r\n|\n|\r", head)


def sniff_separator(head: str) -> str:
    """Return the most frequent separator of the first line."""
    line = re.sub(r'"[^"]*"', "", next((line for line in lines_of(head) if line.strip()), ""))
    return max(SEPARATORS, key=line.count)


def scan_lines(path: Path) -> pl.LazyFrame:
    """Scan the lines of a text file, with their numbers."""
    import polars as pl

    lines = pl.scan_csv(
        path,
        has_header=False,
        separator=NO_SEPARATOR,
        quote_char=None,
        infer_schema=False,
        glob=False,
        new_columns=["line"],
    )
    return lines.with_row_index("number", 1)


def read_bytes(path: Path, name: str) -> bytes:
    """Read a text file, decompressed and without its byte-order mark."""
    raw = path.read_bytes()
    try:
        if raw.startswith(b"\x1f\x8b"):
            raw = gzip.decompress(raw)
        elif raw.startswith(b"\x28\xb5\x2f\xfd"):
            lines = scan_lines(path).collect()["line"].fill_null("").to_list()
            raw = "\n".join(lines).encode()
    except (EOFError, OSError, zlib.error) as problem:
        raise EventsError(f"{name}: cannot be read as gzip: {problem}") from None
    return raw.removeprefix(b"\xef\xbb\xbf")


def not_utf8(path: Path, name: str) -> str | None:
    """Describe the first byte that is not UTF-8, or return None."""
    raw = read_bytes(path, name)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        return f"is not UTF-8 text (line {line} has the byte 0x{raw[problem.start]:02x})"
    return None


def ragged(path: Path, name: str, separator: str, width: int) -> str | None:
    """Describe the first line with more fields than columns, or return None."""
    reader = csv.reader(io.StringIO(read_bytes(path, name).decode("utf-8"), newline=""), delimiter=separator)
    try:
        for fields in reader:
            if len(fields) > width:
                return f"line {reader.line_num} has {len(fields)} fields, but there are {width} columns"
    except csv.Error as problem:
        return f"line {reader.line_num}: {problem}"
    return None


def not_json(path: Path, name: str) -> str | None:
    """Describe the first line that is not a JSON object, or return None."""
    for number, line in enumerate(read_bytes(path, name).split(b"\n"), 1):
        try:
            if line.strip() and not isinstance(json.loads(line), dict):
                return f'line {number} is not an object like {{"from": …}}'
        except (ValueError, RecursionError):
            return f"line {number} is not JSON"
    return None
