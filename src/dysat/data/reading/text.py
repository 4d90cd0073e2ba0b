"""Text files: encoding, beginning and lines, and what is wrong with a file that could not be read."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dysat.data.reading.sources import explained
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl

SEPARATORS = ",;\t|"
HEAD = 1 << 16  # bytes read to recognise a file
NO_SEPARATOR = "\x1f"  # occurs in no line, so that whole lines are read
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
NOT_CP1252 = re.compile(rb"[\x00-\x08\x0e-\x1f\x81\x8d\x8f\x90\x9d]")  # control characters and unassigned bytes
MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")  # of UTF-8


class EncodingError(EventsError):
    """A byte of a text file does not fit its encoding; `fits` is an encoding that all bytes fit, if there is one."""

    def __init__(self, message: str, fits: str | None = None) -> None:
        super().__init__(message)
        self.fits = fits


@dataclass(frozen=True)
class TextFile:
    """A text file, plain or compressed, and its beginning as text."""

    path: Path
    name: str
    encoding: str
    head: str

    @cached_property
    def content(self) -> Path | io.BytesIO:
        """What Polars reads: the file itself, or a copy in memory as UTF-8."""
        return self.path if self.encoding == "utf-8" else io.BytesIO(self.read_bytes())

    def read_bytes(self) -> bytes:
        """The whole text as UTF-8, without a byte-order mark."""
        raw = read_bytes(self.path, self.name)
        if self.encoding == "utf-8":
            return raw.removeprefix(codecs.BOM_UTF8)
        try:
            return raw.decode(self.encoding).removeprefix("\ufeff").encode()
        except UnicodeDecodeError as problem:
            line = raw[: problem.start].decode(self.encoding, "replace").count("\n") + 1
            byte = f"line {line} has the byte 0x{raw[problem.start]:02x}"
            raise EncodingError(f"{self.name}: is not {self.encoding} text ({byte})") from None

    def check_utf8(self) -> None:
        """Raise an error at the first byte that is not UTF-8."""
        raw = self.read_bytes()
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError as problem:
            line = raw.count(b"\n", 0, problem.start) + 1
            byte = f"line {line} has the byte 0x{raw[problem.start]:02x}"
            fits = "cp1252" if is_cp1252(raw) else None
            raise EncodingError(f"{self.name}: is not UTF-8 text ({byte}); state encoding=", fits) from None


def open_text(path: Path, name: str, encoding: str | None = None) -> TextFile:
    """Read the beginning of a text file, and recognise its encoding if it is not given."""
    if encoding is not None:
        encoding = _known_encoding(encoding)
    with explained(name, "a file"), open(path, "rb") as data:
        raw = data.read(HEAD)
    if raw.startswith(ZSTD):
        if encoding not in (None, "utf-8"):
            raise EventsError(f"{name}: only UTF-8 text can be compressed with zstd; decompress it first")
        with explained(name, "zstd"):
            lines = scan_lines(path).select("line").head(1000).collect().to_series().fill_null("")
            return TextFile(path, name, "utf-8", "\n".join(lines.to_list()))
    whole = len(raw) < HEAD
    if raw.startswith(GZIP):
        try:
            raw = zlib.decompressobj(wbits=31).decompress(raw, HEAD)
        except zlib.error as problem:
            raise EventsError(f"{name}: cannot be read as gzip: {problem}") from None
        whole = False
    encoding = encoding or recognise_encoding(raw, whole=whole)
    return TextFile(path, name, encoding, raw.decode(encoding, "replace").removeprefix("\ufeff"))


def recognise_encoding(raw: bytes, *, whole: bool) -> str:
    """The encoding of a text from its beginning: a byte-order mark, zero bytes (UTF-16), UTF-8, or cp1252."""
    for mark, encoding in MARKS.items():
        if raw.startswith(mark):
            return encoding
    even, odd = raw[0::2].count(0), raw[1::2].count(0)
    if max(even, odd) > len(raw) // 4 and min(even, odd) <= len(raw) // 100:
        return "utf-16-be" if even > odd else "utf-16-le"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(raw, final=whole)
    except UnicodeDecodeError:
        return "cp1252" if is_cp1252(raw) else "utf-8"
    return "utf-8"


def is_cp1252(raw: bytes) -> bool:
    """Whether a text that is not UTF-8 is cp1252, and not damaged UTF-8, which has sequences of several bytes."""
    high = len(raw.translate(None, bytes(range(128))))
    sequences = sum(map(len, MULTIBYTE.findall(raw)))
    return NOT_CP1252.search(raw) is None and 10 * sequences <= high


def _known_encoding(name: str) -> str:
    try:
        "".encode(name)  # refuses codecs that are not text, such as hex
        known = codecs.lookup(name).name
    except (LookupError, TypeError, ValueError):
        raise EventsError(f"encoding={name!r} is not an encoding like 'utf-8', 'utf-16' or 'cp1252'") from None
    return "utf-8" if known == "utf-8-sig" else known


def lines_of(head: str) -> list[str]:
    """Split at line ends; `splitlines` would also split at U+2028 and others inside a text."""
    return re.split(r"\r\n|\n|\r", head)


def sniff_separator(head: str) -> str:
    """Return the most frequent separator of the first line."""
    line = re.sub(r'"[^"]*"', "", next((line for line in lines_of(head) if line.strip()), ""))
    return max(SEPARATORS, key=line.count)


def scan_lines(content: Path | io.BytesIO) -> pl.LazyFrame:
    """Scan the lines of a text file, with their numbers."""
    import polars as pl

    lines = pl.scan_csv(
        content,
        has_header=False,
        separator=NO_SEPARATOR,
        quote_char=None,
        infer_schema=False,
        glob=False,
        new_columns=["line"],
    )
    return lines.with_row_index("number", 1)


def read_bytes(path: Path, name: str) -> bytes:
    """Read a file, decompressed."""
    raw = path.read_bytes()
    try:
        if raw.startswith(GZIP):
            raw = gzip.decompress(raw)
        elif raw.startswith(ZSTD):
            lines = scan_lines(path).collect()["line"].fill_null("").to_list()
            raw = "\n".join(lines).encode()
    except (EOFError, OSError, zlib.error) as problem:
        raise EventsError(f"{name}: cannot be read as gzip: {problem}") from None
    return raw


def ragged(text: TextFile, separator: str, width: int) -> str | None:
    """Describe the first line with more fields than columns, or return None."""
    reader = csv.reader(io.StringIO(text.read_bytes().decode("utf-8"), newline=""), delimiter=separator)
    try:
        for fields in reader:
            if len(fields) > width:
                return f"line {reader.line_num} has {len(fields)} fields, but there are {width} columns"
    except csv.Error as problem:
        return f"line {reader.line_num}: {problem}"
    return None


def not_json(text: TextFile) -> str | None:
    """Describe the first line that is not a JSON object, or return None."""
    for number, line in enumerate(text.read_bytes().split(b"\n"), 1):
        try:
            if line.strip() and not isinstance(json.loads(line), dict):
                return f'line {number} is not an object like {{"from": …}}'
        except (ValueError, RecursionError):
            return f"line {number} is not JSON"
    return None
