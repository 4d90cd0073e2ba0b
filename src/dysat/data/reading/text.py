"""Text files as text: how they begin, their lines, and, once reading them has failed, what is wrong with them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from dysat.data.reading.sources import reading
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl

SEPARATORS = ",;\t|"
HEAD = 1 << 16  # bytes looked at to recognise a file
NEVER = "\x1f"  # a separator that no line has, to read whole lines


def read_head(path: Path, name: str) -> str:
    """The beginning of a file as text, decompressed."""
    with reading(name, "a file"), open(path, "rb") as data:
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
        with reading(name, "zstd"):
            lines = scan_lines(path).select("line").head(1000).collect().to_series().fill_null("")
            return "\n".join(lines.to_list())
    return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def lines_of(head: str) -> list[str]:
    """Lines as files end them; `splitlines` would also break at U+2028 and others inside a text."""
    return re.split(r"\r\n|\n|\r", head)


def sniff_separator(head: str) -> str:
    """The separator that the first line has most of."""
    line = re.sub(r'"[^"]*"', "", next((line for line in lines_of(head) if line.strip()), ""))
    return max(SEPARATORS, key=line.count)


def scan_lines(path: Path) -> pl.LazyFrame:
    """The lines of a text file and their numbers."""
    import polars as pl

    lines = pl.scan_csv(
        path, has_header=False, separator=NEVER, quote_char=None, infer_schema=False, glob=False, new_columns=["line"]
    )
    return lines.with_row_index("number", 1)


def read_bytes(path: Path, name: str) -> bytes:
    """A text file, decompressed and without its byte-order mark."""
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
    """Where a file stops being UTF-8, or None."""
    raw = read_bytes(path, name)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        return f"is not UTF-8 text (line {line} has the byte 0x{raw[problem.start]:02x})"
    return None


def ragged(path: Path, name: str, separator: str, width: int) -> str | None:
    """The first line with more fields than there are columns, or None."""
    reader = csv.reader(io.StringIO(read_bytes(path, name).decode("utf-8"), newline=""), delimiter=separator)
    try:
        for fields in reader:
            if len(fields) > width:
                return f"line {reader.line_num} has {len(fields)} fields, but there are {width} columns"
    except csv.Error as problem:
        return f"line {reader.line_num}: {problem}"
    return None


def not_json(path: Path, name: str) -> str | None:
    """The first line that is no JSON object, or None."""
    for number, line in enumerate(read_bytes(path, name).split(b"\n"), 1):
        try:
            if line.strip() and not isinstance(json.loads(line), dict):
                return f'line {number} is no object like {{"from": …}}'
        except (ValueError, RecursionError):
            return f"line {number} is not JSON"
    return None
