"""Text files: encoding, beginning, lines and their limits, and what is wrong with a file that could not be read."""

from __future__ import annotations

import codecs
import csv
import io
import json
import mmap
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dysat.data.reading.limits import SHORTEST_ROW, Limits, text_memory
from dysat.data.reading.packed import (
    DAMAGED,
    GZIP,
    MOST,
    ZSTD,
    ahead,
    check_lengths,
    count,
    gunzip,
    gunzip_pieces,
    look_into_zstd,
)
from dysat.data.reading.sources import explained
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl

SEPARATORS = ",;\t|"
HEAD = 1 << 16  # bytes read to recognise a file
ZSTD_LINE = 5  # bytes of memory that Polars takes per byte of a line, while it decompresses
NO_SEPARATOR = "\x1f"  # occurs in no line, so that whole lines are read
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
NOT_CP1252 = re.compile(rb"[\x00-\x08\x0e-\x1f\x81\x8d\x8f\x90\x9d]")  # control characters and unassigned bytes
MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")  # of UTF-8

Scan = Callable[[Path | io.BytesIO, bool], "pl.LazyFrame"]


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
    limits: Limits
    packed: Literal["gzip", "zstd"] | None = None

    @cached_property
    def content(self) -> Path | io.BytesIO:
        """What Polars reads: the file itself, or a copy in memory as UTF-8."""
        return self.path if self.encoding == "utf-8" else io.BytesIO(self.read_bytes())

    @property
    def in_pieces(self) -> bool:
        """Whether `collect` reads the text in several pieces."""
        return self.packed == "gzip" and self.encoding == "utf-8"

    def beginning(self) -> Path | io.BytesIO:
        """What Polars looks at for columns: the first lines of a compressed file, or `content`."""
        if not self.in_pieces:
            return self.content
        pieces = gunzip_pieces(self.path, self.name, self.limits, quotes=True, size=HEAD)
        return io.BytesIO(next(pieces, b""))

    def collect(self, scan: Scan, *, quotes: bool = False, header: str = "") -> pl.DataFrame:
        """Read what `scan` makes of the text; its arguments are a content, and whether that begins the file.

        If it does not, it begins with `header`. With `quotes`, lines may end between double quotes.
        """
        import polars as pl

        if not self.in_pieces:
            return scan(self.content, True).collect(engine="streaming")
        tables: list[pl.DataFrame] = []
        size = rows = 0
        pieces = gunzip_pieces(self.path, self.name, self.limits, quotes=quotes, header=header.encode())
        for piece in ahead(pieces):
            tables.append(scan(io.BytesIO(piece), not tables).collect(engine="streaming"))
            size, rows = size + len(piece), rows + len(tables[-1])
            what = f"its first {rows:,} rows ({size / 1e6:,.0f} MB of text)"
            self.limits.check_memory(self.name, text_memory(size, rows), what)
        return pl.concat(tables) if tables else scan(io.BytesIO(b""), True).collect()

    def check_lines(self, *, on_disk: bool = False) -> None:
        """Raise an error if a line is too long, or, unless they stay `on_disk`, if the rows need too much memory.

        Text that is read in pieces is checked while it is decompressed.
        """
        if isinstance(self.content, io.BytesIO):
            check_lengths(self.name, self.content.getvalue(), self.limits)
            _check_rows(self.name, self.content.getvalue(), self.limits)
        elif self.packed == "zstd":
            self._count_zstd()
        elif self.packed is None and self.path.stat().st_size:
            with open(self.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                check_lengths(self.name, data, self.limits)
                if not on_disk:
                    _check_rows(self.name, data, self.limits)

    def _count_zstd(self) -> None:
        """Count the rows, if there may be more than the memory holds."""
        bound = look_into_zstd(self.path, self.name, 0).bound
        if text_memory(bound, bound / SHORTEST_ROW) > self.limits.bytes():
            with explained(self.name, "zstd"):
                rows = scan_lines(self.path).select("number").count().collect(engine="streaming").item()
            what = f"{rows:,} rows in up to {bound / 1e6:,.0f} MB of text"
            self.limits.check_memory(self.name, text_memory(bound, rows), what)

    def read_bytes(self) -> bytes:
        """The whole text as UTF-8, without a byte-order mark."""
        raw = read_bytes(self.path, self.name, self.limits)
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


def open_text(path: Path, name: str, encoding: str | None = None, limits: Limits | None = None) -> TextFile:
    """Read the beginning of a text file, and recognise its encoding if it is not given."""
    limits = limits or Limits()
    if encoding is not None:
        encoding = _known_encoding(encoding)
    with explained(name, "a file"), open(path, "rb") as data:
        raw = data.read(HEAD)
    if raw.startswith(ZSTD):
        if encoding not in (None, "utf-8"):
            raise EventsError(f"{name}: only UTF-8 text can be compressed with zstd; decompress it first")
        return TextFile(path, name, "utf-8", _zstd_head(path, name, limits), limits, "zstd")
    whole, packed = len(raw) < HEAD, raw.startswith(GZIP)
    if packed:
        try:
            raw = zlib.decompressobj(wbits=31).decompress(raw, HEAD)
        except zlib.error as problem:
            raise EventsError(f"{name}: cannot be read as gzip: {problem}") from None
        whole = False
    encoding = encoding or recognise_encoding(raw, whole=whole)
    head = raw.decode(encoding, "replace").removeprefix("\ufeff")
    return TextFile(path, name, encoding, head, limits, "gzip" if packed else None)


def _zstd_head(path: Path, name: str, limits: Limits) -> str:
    """The first lines of a zstd file, whose blocks say how much memory it can take."""
    found = look_into_zstd(path, name, HEAD)
    mb = f"up to {found.bound / 1e6:,.0f} MB of text"
    limits.check_memory(name, found.bound + ZSTD_LINE * min(found.bound, limits.line_length), mb)
    for most in (16 * HEAD, int(2 * limits.line_length)):
        with explained(name, "zstd"):
            start = io.BytesIO(look_into_zstd(path, name, most).beginning)
            lines = scan_lines(start).select("line").head(1000).collect().to_series().fill_null("").to_list()
        if len(lines) > 1:
            break
    limits.check_line(name, 1, max(map(len, lines), default=0))
    return "\n".join(lines)


def _check_rows(name: str, text: mmap.mmap | bytes, limits: Limits) -> None:
    """Count the rows if they may need too much memory."""
    size = len(text)
    if text_memory(size, size / SHORTEST_ROW) > limits.bytes():
        rows = sum(count(text[i : i + MOST], b"\n") for i in range(0, size, MOST))
        what = f"{rows:,} rows in {size / 1e6:,.0f} MB of text"
        limits.check_memory(name, text_memory(size, rows), what, in_batches=True)


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


def read_bytes(path: Path, name: str, limits: Limits) -> bytes:
    """Read a file, decompressed."""
    with open(path, "rb") as file:
        first = file.read(4)
    limits.check_memory(name, 2 * path.stat().st_size, "its bytes")
    if first.startswith(ZSTD):
        lines = scan_lines(path).collect()["line"].fill_null("").to_list()
        return "\n".join(lines).encode()
    return b"".join(_gunzipped(path, name, limits)) if first.startswith(GZIP) else path.read_bytes()


def _gunzipped(path: Path, name: str, limits: Limits) -> Iterator[bytes]:
    """Decompress a gzip file, as long as there is memory for it."""
    size = 0
    try:
        for part in gunzip(path):
            size += len(part)
            limits.check_memory(name, 2 * size, f"{size / 1e6:,.0f} MB of text or more")
            yield part
    except DAMAGED as problem:
        raise EventsError(f"{name}: cannot be read as gzip: {problem}") from None


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
