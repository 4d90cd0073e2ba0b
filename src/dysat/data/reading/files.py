"""Open files and folders of events. They are recognised by name and content and read by Polars.

Formats: CSV with any separator, with or without a header; whitespace-separated columns (KONECT with its `%` lines,
SNAP with its `#` lines); JSON (`json_records.py`); Excel; Parquet, as one file or a folder of parts. Text may be
compressed with gzip or zstd. Without a header the columns are named 1, 2, 3, …
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from dysat.data.reading.excel import open_excel
from dysat.data.reading.json_records import is_array, open_array, open_jsonl, open_mongo
from dysat.data.reading.limits import Limits, text_memory
from dysat.data.reading.packed import ahead, gunzip_pieces
from dysat.data.reading.sources import Source, explained, in_batches, names_columns, open_frame, stripped
from dysat.data.reading.text import (
    HEAD,
    SEPARATORS,
    EncodingError,
    TextFile,
    lines_of,
    open_text,
    ragged,
    scan_lines,
    sniff_separator,
)
from dysat.data.reading.times import NUMBER
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl

Format = Literal["csv", "tsv", "whitespace", "konect", "snap", "jsonl", "json", "mongo", "parquet", "excel"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[str, Format] = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # first bytes of an .xls file
NOT_IN_BATCHES = " cannot be cut on disk; convert it to Parquet or to CSV in UTF-8, or read it in memory"
# KONECT's names for weights that are counts; ratings and signs are not.
KONECT_WEIGHTS = ("positive", "posweighted")


def open_file(
    path: Path,
    *,
    format: Format | None = None,
    header: bool | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    wanted: Sequence[str] = (),
    limits: Limits | None = None,
    on_disk: bool = False,
    name: str | None = None,
) -> Source:
    """Open a file or a folder of Parquet parts; the `wanted` columns help to recognise a header.

    With `on_disk` it will be read in batches, so it may be larger than memory. Errors call it `name`, or else its path.
    """
    limits = limits or Limits()
    name = name or str(path)
    if format is not None and format not in FORMATS:
        raise EventsError(f"format={format!r} is not one of {', '.join(FORMATS)}")
    if separator is not None and len(separator.encode()) != 1:
        raise EventsError(f"separator={separator!r} must be a single character")
    if not path.exists():
        raise EventsError(f"{name}: no such file")
    if is_parquet(path, format):
        return _open_parquet(_parquet_files(path), name, limits, on_disk=on_disk, several=path.is_dir())
    format = format or _recognise_binary(path, name)
    if format == "excel":
        if on_disk:
            raise EventsError(f"{name}: Excel{NOT_IN_BATCHES}")
        return open_excel(path, name, header, wanted, limits)
    text = open_text(path, name, encoding, limits)
    source = _open_text(text, format or _recognise_text(text, separator), header, separator, wanted, on_disk=on_disk)
    if encoding is None and text.encoding != "utf-8":
        source = replace(source, notes=(*source.notes, f"text read as {text.encoding}; encoding= overrides this"))
    return source


def _open_text(
    text: TextFile,
    format: Format,
    header: bool | None,
    separator: str | None,
    wanted: Sequence[str],
    *,
    on_disk: bool,
) -> Source:
    if on_disk and (format not in ("csv", "tsv") or text.encoding != "utf-8" or text.packed == "zstd"):
        what = "zstd" if text.packed == "zstd" else text.encoding if format in ("csv", "tsv") else format
        raise EventsError(f"{text.name}: {what}{NOT_IN_BATCHES}")
    if not text.head.strip():
        raise EventsError(f"{text.name}: is empty")
    if format == "jsonl":
        return open_jsonl(text, wanted)
    if format == "json":
        return open_array(text)
    if format == "mongo":
        return open_mongo(text)
    text.check_lines(on_disk=on_disk)
    if format in ("csv", "tsv"):
        mark = separator or ("\t" if format == "tsv" else sniff_separator(text.head))
        return _open_csv(text, mark, header, wanted)
    return _open_whitespace(text, format, header, wanted)


def _recognise_binary(path: Path, name: str) -> Format | None:
    """Recognise Parquet and Excel by their first bytes; None for text."""
    with explained(name, "a file"), open(path, "rb") as data:
        first = data.read(8)
    if first.startswith(b"PAR1") or path.suffix.lower() in (".parquet", ".pq"):
        return "parquet"
    if first == OLE:
        return "excel"
    if first.startswith(b"PK\x03\x04"):
        with explained(name, "a zip archive"), zipfile.ZipFile(path) as archive:
            if any(member.startswith("xl/workbook.") or member == "content.xml" for member in archive.namelist()):
                return "excel"
        raise EventsError(f"{name}: is a zip archive; unpack it first")
    return None


def _recognise_text(text: TextFile, separator: str | None) -> Format:
    """Recognise the format of a text file by its name and first line."""
    head, stem = text.head, text.path.name.lower()
    for packed in (".gz", ".gzip", ".zst", ".zstd"):
        stem = stem.removesuffix(packed)
    if Path(stem).suffix in SUFFIXES:
        return SUFFIXES[Path(stem).suffix]
    first = head.lstrip()[:1]
    if separator:
        return "csv"
    if is_array(head):
        return "json"
    if first == "{":
        return "mongo" if re.match(r"\s*\{\s*\n", head) else "jsonl"
    if first == "%":
        return "konect"
    if first == "#" and Path(stem).suffix != ".csv":
        return "snap"
    line = next((line for line in lines_of(head) if line.strip()), "")
    if Path(stem).suffix == ".csv":
        return "csv"
    if all(NUMBER.fullmatch(field) for field in line.split()):
        return "whitespace"
    if set(line) & set(SEPARATORS) == {"\t"} and any(field != field.strip() for field in line.split("\t")):
        return "whitespace"  # tabs and spaces mixed
    if any(mark in line for mark in SEPARATORS):
        return "csv"
    return "whitespace"


def _open_csv(text: TextFile, separator: str, header: bool | None, wanted: Sequence[str]) -> Source:
    import polars as pl

    name, head, unified = text.name, text.head, None
    if re.search(r"\r(?!\n)", re.sub(r'"[^"]*"', "", head[:-1])):  # line ends of old Macs, possibly mixed with others
        unified = io.BytesIO(re.sub(rb'("[^"]*")|\r\n?', lambda match: match[1] or b"\n", text.read_bytes()))
        head = unified.getvalue()[:HEAD].decode("utf-8", "replace")
    records = csv.reader(io.StringIO(head.lstrip("\r\n")), delimiter=separator)
    first = next(records, [])
    if header is None:
        header = names_columns(first, wanted) and not all(map(NUMBER.fullmatch, first))
    names = [str(i + 1) for i in range(len(first))]
    beginning = unified or text.beginning()
    lines = io.BytesIO(head.encode()) if text.packed == "zstd" else beginning
    text.limits.check_columns(name, _width(lines, separator))

    def name_columns(found: list[str]) -> list[str]:
        return stripped(found) if header else names[: len(found)]

    def scan(content: Path | io.BytesIO, begins: bool = True) -> pl.LazyFrame:
        return pl.scan_csv(
            content,
            separator=separator,
            has_header=header or not begins,
            infer_schema=False,
            glob=False,
            raise_if_empty=False,
            with_column_names=name_columns if begins else lambda _: list(columns),
        )

    with explained(name, "CSV"):
        columns = tuple(scan(beginning).collect_schema().names())
    if any("\ufffd" in column for column in columns):
        text.check_utf8()
        raise EncodingError(f"{name}: is not UTF-8 text")

    again = separator.join(map(str, range(len(columns)))) + "\n"  # a header for the next pieces

    def read(wanted: Sequence[str | pl.Expr]) -> pl.DataFrame:
        with located():
            if unified is not None:
                return scan(unified).select(wanted).collect(engine="streaming")
            return text.collect(lambda part, begins: scan(part, begins).select(wanted), quotes=True, header=again)

    def batches(wanted: Sequence[str]) -> Iterator[pl.DataFrame]:
        with located():
            if text.in_pieces:
                pieces = gunzip_pieces(text.path, name, text.limits, quotes=True, header=again.encode())
                for number, piece in enumerate(ahead(pieces)):
                    yield scan(io.BytesIO(piece), number == 0).select(wanted).collect(engine="streaming")
            else:
                yield from in_batches(scan(text.content).select(wanted))

    @contextmanager
    def located() -> Iterator[None]:
        """Say which line is wrong, if the text fits in memory."""
        try:
            yield
        except (pl.exceptions.PolarsError, UnicodeError):
            if 2 * text.path.stat().st_size <= text.limits.bytes():
                text.check_utf8()
                if fault := ragged(text, separator, len(columns)):
                    raise EventsError(f"{name}: {fault}") from None
            raise

    def locate(row: int) -> str:
        plain = text.packed is None and text.encoding == "utf-8"
        content = open(text.path, "rb") if plain else io.BytesIO(text.read_bytes())  # noqa: SIM115
        with io.TextIOWrapper(content, "utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, delimiter=separator)
            try:
                line = next((reader.line_num for i, _ in enumerate(reader) if i == row + bool(header)), None)
            except csv.Error:  # a field beyond the size limit of the csv module
                line = None
        return f"line {line}" if line else f"row {row + 1}"

    second = next(records, []) if header else first
    first_row = dict(zip(columns, second, strict=False))
    many = batches if unified is None and text.packed != "zstd" else None
    rows = text.path.stat().st_size * max(1, head.count("\n")) // len(head) if text.packed is None else None
    return Source(name, columns, read, locate, blank_rows=True, first=first_row, num_rows=rows, batches=many)


def _width(content: Path | io.BytesIO, separator: str) -> int:
    """Number of separators in the first line that is not empty, and one."""
    start = content.open("rb") if isinstance(content, Path) else io.BytesIO(content.getvalue())
    with start as lines:
        first = next((line for line in lines if line.strip()), b"")
    return first.count(separator.encode()) + 1


def _open_whitespace(text: TextFile, format: Format, header: bool | None, wanted: Sequence[str]) -> Source:
    import polars as pl

    name, head = text.name, text.head
    lines = [line.split() for line in lines_of(head) if line.strip() and line.lstrip()[0] not in "%#"]
    if not lines:
        raise EventsError(f"{name}: has no events")
    first = lines[0]
    text.limits.check_columns(name, len(first))
    if header is None:
        header = format == "whitespace" and names_columns(first, wanted) and not any(map(NUMBER.fullmatch, first))
    columns = tuple(first) if header else tuple(str(i + 1) for i in range(len(first)))
    if len(set(columns)) < len(columns):
        raise EventsError(f"{name}: two columns have the same name: {' '.join(columns)}")
    line = pl.col("line").str.strip_chars()

    def scan(content: Path | io.BytesIO, begins: bool = True) -> pl.LazyFrame:
        lines = scan_lines(content).filter((line != "") & ~line.str.contains("^[%#]"))
        return lines.slice(int(header and begins))

    fields = line.str.replace_all(r"\s+", "\t").str.split_exact("\t", len(columns)).struct

    def read(wanted: Sequence[str]) -> pl.DataFrame:
        taken = [fields.field(f"field_{columns.index(column)}").alias(column) for column in wanted]
        last = fields.field(f"field_{len(columns)}").alias("extra")
        table = text.collect(lambda content, begins: scan(content, begins).select(*taken, last))
        extra = table["extra"].is_not_null().arg_max() or 0
        if len(table) and table["extra"][extra] is not None:
            raise EventsError(f"{name}, {locate(extra)}: has more than {len(columns)} fields")
        return table.drop("extra")

    def locate(row: int) -> str:
        return f"line {scan(text.content).select('number').slice(row, 1).collect().item()}"

    roles, notes, bipartite = {}, [], None
    if not header and len(columns) in (2, 3, 4):
        roles = dict(zip(("src", "dst"), columns, strict=False))
        if len(columns) > 2:
            roles["time"] = columns[-1]
    if format == "konect":
        words = lines_of(head.lstrip()[1:])[0].split()
        bipartite = words[:1] == ["bip"]
        kind = words[1] if len(words) > 1 else ""
        if len(columns) == 4 and kind in KONECT_WEIGHTS:
            roles["weight"] = columns[2]
        elif len(columns) == 4:
            notes.append(f"every row counts once: its third column ({kind or 'not explained'}) is not a count")
    return Source(name, columns, read, locate, blank_rows=True, roles=roles, bipartite=bipartite, notes=tuple(notes))


@dataclass(frozen=True)
class Part:
    """Rows [first, stop) of Parquet files as one table, or a whole file of text; errors call it `name`.

    The first file decides the types of all columns, so a part begins with it, and `first` skips its rows.
    """

    name: str
    files: tuple[Path, ...]
    first: int = 0
    stop: int | None = None


def is_parquet(path: Path, format: Format | None = None) -> bool:
    """Whether a file or folder is read as Parquet."""
    return path.is_dir() or (format or _recognise_binary(path, str(path))) == "parquet"


def parquet_parts(paths: Sequence[Path], name: str, number: int, least: int, most: int) -> list[Part]:
    """Divide Parquet files and folders of parts into about `number` parts of `least` to `most` rows."""
    files = [file for path in paths for file in _parquet_files(path)]
    starts = [0]
    for file in files:
        with explained(str(file), "Parquet"):
            starts.append(starts[-1] + _height(file))
    size = min(most, max(least, -(-starts[-1] // number)))
    parts = [] if starts[-1] else [Part(name, tuple(files[:1]), 0, 0)]
    for first in range(0, starts[-1], size):
        stop = min(first + size, starts[-1])
        low, high = bisect_right(starts, first) - 1, bisect_left(starts, stop)
        skipped = starts[low] - (starts[1] if low else 0)
        own = files[low:high] if low == 0 else [files[0], *files[low:high]]
        parts.append(Part(name, tuple(own), first - skipped, stop - skipped))
    return parts


def open_parquet_part(part: Part, limits: Limits, *, several: bool) -> Source:
    """Open a part; `several`: errors say in which file a row is."""
    return _open_parquet(part.files, part.name, limits, on_disk=True, several=several, first=part.first, stop=part.stop)


def _parquet_files(path: Path) -> list[Path]:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        hint = "; it is a graph folder, to be loaded, not read" if (path / "graph.json").exists() else ""
        raise EventsError(f"{path}: is a folder without .parquet files{hint}")
    return files


def _height(file: Path) -> int:
    import polars as pl

    return int(pl.scan_parquet(file, glob=False).select(pl.len()).collect().item())


def _open_parquet(
    files: Sequence[Path],
    name: str,
    limits: Limits,
    *,
    on_disk: bool,
    several: bool,
    first: int = 0,
    stop: int | None = None,
) -> Source:
    import polars as pl

    casts = pl.ScanCastOptions(integer_cast="upcast", float_cast="upcast")
    frame = pl.scan_parquet(
        list(files), glob=False, hive_partitioning=False, extra_columns="ignore", cast_options=casts
    )
    with explained(name, "Parquet"):
        limits.check_columns(name, len(frame.collect_schema()))
        rows = int(frame.select(pl.len()).collect().item()) if stop is None else stop - first
        if not on_disk:
            limits.check_memory(name, text_memory(0, rows), f"{rows:,} rows", in_batches=True)
    if stop is not None:
        frame = frame.slice(first, rows)

    def collect(chosen: pl.LazyFrame) -> pl.DataFrame:
        """Read part by part, because a small file can hold much text."""
        parts, size, there = [chosen.head(0).collect()], 0, limits.bytes()
        for part in chosen.collect_batches(maintain_order=True, engine="streaming"):
            parts.append(part)
            size += sum(int(column.str.len_bytes().sum()) for column in part if column.dtype == pl.String)
            if size > there:
                limits.check_memory(name, size, f"{size / 1e6:,.0f} MB of text or more")
        return pl.concat(parts)

    def locate(row: int) -> str:
        row += first
        for file in files:
            height = _height(file)
            if row < height:
                return f"row {row + 1}" + f" of {file.name}" * several
            row -= height
        return f"row {row + 1}"

    return replace(open_frame(name, frame, locate, collect), num_rows=rows)
