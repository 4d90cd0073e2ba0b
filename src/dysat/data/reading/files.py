"""Open files and folders of events. They are recognised by name and content and read by Polars.

Formats: CSV with any separator, with or without a header; whitespace-separated columns (KONECT with its `%` lines,
SNAP with its `#` lines); JSON lines; the output of a Mongo shell; Parquet, as one file or a folder of parts. Text may
be compressed with gzip or zstd. Without a header the columns are named 1, 2, 3, …
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dysat.data.reading.sources import Source, explained
from dysat.data.reading.text import (
    HEAD,
    SEPARATORS,
    lines_of,
    not_json,
    not_utf8,
    ragged,
    read_bytes,
    read_head,
    scan_lines,
    sniff_separator,
)
from dysat.data.reading.times import ISO, NUMBER
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl

Format = Literal["csv", "tsv", "whitespace", "konect", "snap", "jsonl", "mongo", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[str, Format] = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
# KONECT's names for weights that are counts; ratings and signs are not.
KONECT_WEIGHTS = ("positive", "posweighted")


def open_jsonl(path: Path, name: str, head: str) -> Source:
    """Open JSON lines: one object per line."""
    import polars as pl

    if head.lstrip().startswith("["):
        raise EventsError(f"{name}: is one JSON array; write one object per line")
    columns: dict[str, None] = {}
    for line in lines_of(head)[: 1000 if len(head) < HEAD else -1] or [head]:
        try:
            record = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            break  # `read` reports the line
        if isinstance(record, dict):
            columns |= dict.fromkeys(record)
    if not columns:
        raise EventsError(f'{name}: cannot be read as JSON lines: the first line is not an object like {{"from": …}}')
    with open(path, "rb") as data:
        marked = data.read(3) == b"\xef\xbb\xbf"
    content = io.BytesIO(read_bytes(path, name)) if marked else path
    frame = pl.scan_ndjson(content, schema=dict.fromkeys(columns, pl.String))

    def read(wanted: Sequence[str]) -> pl.DataFrame:
        try:
            return frame.select(wanted).collect(engine="streaming")
        except pl.exceptions.PolarsError:
            fault = not_utf8(path, name) or not_json(path, name)
            if fault:
                raise EventsError(f"{name}: {fault}") from None
            raise

    def locate(row: int) -> str:
        numbers = (n for n, line in enumerate(read_bytes(path, name).split(b"\n"), 1) if line.strip())
        line = next((n for i, n in enumerate(numbers) if i == row), None)
        return f"line {line}" if line else f"row {row + 1}"

    return Source(name, tuple(columns), read, locate, text=True)


def open_mongo(path: Path, name: str) -> Source:
    """Open the output of a Mongo shell: objects over several lines, with values like `ISODate("…")`."""
    import polars as pl

    fault = not_utf8(path, name)
    if fault:
        raise EventsError(f"{name}: {fault}")
    text = read_bytes(path, name).decode("utf-8-sig")
    wrapped = r'("(?:\\.|[^"\\])*")|\b(?:ObjectId|ISODate|NumberLong|NumberInt)\(\s*"?([^")]*)"?\s*\)'
    text = re.sub(wrapped, lambda match: match[1] or f'"{match[2]}"', text)  # but not inside strings
    decoder, records, lines, at, line = json.JSONDecoder(), [], [], 0, 1
    while match := re.compile(r"\s*(?=\S)").match(text, at):
        line += text.count("\n", at, match.end())
        try:
            record, end = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError) as problem:
            raise EventsError(f"{name}, line {getattr(problem, 'lineno', line)}: is not JSON") from None
        if not isinstance(record, dict):
            raise EventsError(f'{name}, line {line}: is not an object like {{"from": …}}')
        records.append(record)
        lines.append(line)
        line, at = line + text.count("\n", match.end(), end), end
    columns = tuple(dict.fromkeys(key for record in records for key in record))

    def read(wanted: Sequence[str]) -> pl.DataFrame:
        return pl.DataFrame(
            {c: pl.Series([_as_text(record.get(c)) for record in records], dtype=pl.String) for c in wanted}
        )

    return Source(name, columns, read, lambda row: f"line {lines[row]}", text=True)


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def open_file(
    path: Path,
    *,
    format: Format | None = None,
    header: bool | None = None,
    separator: str | None = None,
    wanted: Sequence[str] = (),
) -> Source:
    """Open a file or a folder of Parquet parts; the `wanted` columns help to recognise a header."""
    name = str(path)
    if format is not None and format not in FORMATS:
        raise EventsError(f"format={format!r} is not one of {', '.join(FORMATS)}")
    if separator is not None and len(separator.encode()) != 1:
        raise EventsError(f"separator={separator!r} must be a single character")
    if not path.exists():
        raise EventsError(f"{name}: no such file")
    if path.is_dir():
        return _open_parquet(path, name)
    head = read_head(path, name)
    if format is None:
        format = _recognise(path, head, separator)
    if format == "parquet":
        return _open_parquet(path, name)
    if not head.strip():
        raise EventsError(f"{name}: is empty")
    if format == "jsonl":
        return open_jsonl(path, name, head)
    if format == "mongo":
        return open_mongo(path, name)
    if format in ("csv", "tsv"):
        mark = separator or ("\t" if format == "tsv" else sniff_separator(head))
        return _open_csv(path, name, head, mark, header, wanted)
    return _open_whitespace(path, name, head, format, header, wanted)


def _recognise(path: Path, head: str, separator: str | None) -> Format:
    """Recognise the format of a file by its name and first line."""
    stem = path.name.lower()
    for packed in (".gz", ".gzip", ".zst", ".zstd"):
        stem = stem.removesuffix(packed)
    if head.startswith("PAR1"):
        return "parquet"
    if Path(stem).suffix in SUFFIXES:
        return SUFFIXES[Path(stem).suffix]
    first = head.lstrip()[:1]
    if separator:
        return "csv"
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


def _open_csv(path: Path, name: str, head: str, separator: str, header: bool | None, wanted: Sequence[str]) -> Source:
    import polars as pl

    content: Path | io.BytesIO = path
    if re.search(r"\r(?!\n)", re.sub(r'"[^"]*"', "", head[:-1])):  # line ends of old Macs, possibly mixed with others
        unified = re.sub(rb'("[^"]*")|\r\n?', lambda match: match[1] or b"\n", read_bytes(path, name))
        content, head = io.BytesIO(unified), unified[:HEAD].decode("utf-8", "replace")
    records = csv.reader(io.StringIO(head.lstrip("\r\n")), delimiter=separator)
    first = next(records, [])
    if header is None:
        header = _names_columns(first, wanted) and not all(map(NUMBER.fullmatch, first))
    names = [str(i + 1) for i in range(len(first))]
    frame = pl.scan_csv(
        content,
        separator=separator,
        has_header=header,
        infer_schema=False,
        glob=False,
        raise_if_empty=False,
        with_column_names=_stripped if header else lambda columns: names[: len(columns)],
    )
    with explained(name, "CSV"):
        columns = tuple(frame.collect_schema().names())
    if any("\ufffd" in column for column in columns):
        raise EventsError(f"{name}: {not_utf8(path, name) or 'is not UTF-8 text'}")

    def read(wanted: Sequence[str | pl.Expr]) -> pl.DataFrame:
        try:
            return frame.select(wanted).collect(engine="streaming")
        except (pl.exceptions.PolarsError, UnicodeError):
            fault = not_utf8(path, name) or ragged(path, name, separator, len(columns))
            if fault:
                raise EventsError(f"{name}: {fault}") from None
            raise

    def locate(row: int) -> str:
        reader = csv.reader(
            io.TextIOWrapper(io.BytesIO(read_bytes(path, name)), "utf-8", newline=""), delimiter=separator
        )
        try:
            line = next((reader.line_num for i, _ in enumerate(reader) if i == row + bool(header)), None)
        except csv.Error:  # a field beyond the size limit of the csv module
            line = None
        return f"line {line}" if line else f"row {row + 1}"

    second = next(records, []) if header else first
    first_row = dict(zip(columns, second, strict=False))
    return Source(name, columns, read, locate, text=True, first=first_row)


def _names_columns(first: list[str], wanted: Sequence[str]) -> bool:
    """Whether a first line may be a header: it has no date, and the wanted columns are not all given by number."""
    numbered = bool(wanted) and all(column.isdigit() for column in wanted) and not set(wanted) <= set(first)
    return not numbered and not any(ISO.fullmatch(field.strip()) for field in first)


def _stripped(names: list[str]) -> list[str]:
    bare = [name.strip() for name in names]
    return bare if len(set(bare)) == len(bare) else names


def _open_whitespace(
    path: Path, name: str, head: str, format: Format, header: bool | None, wanted: Sequence[str]
) -> Source:
    import polars as pl

    lines = [line.split() for line in lines_of(head) if line.strip() and line.lstrip()[0] not in "%#"]
    if not lines:
        raise EventsError(f"{name}: has no events")
    first = lines[0]
    if header is None:
        header = format == "whitespace" and _names_columns(first, wanted) and not any(map(NUMBER.fullmatch, first))
    columns = tuple(first) if header else tuple(str(i + 1) for i in range(len(first)))
    if len(set(columns)) < len(columns):
        raise EventsError(f"{name}: two columns have the same name: {' '.join(columns)}")
    line = pl.col("line").str.strip_chars()
    data = scan_lines(path).filter((line != "") & ~line.str.contains("^[%#]")).slice(int(header))
    fields = line.str.replace_all(r"\s+", "\t").str.split_exact("\t", len(columns)).struct

    def read(wanted: Sequence[str]) -> pl.DataFrame:
        taken = [fields.field(f"field_{columns.index(column)}").alias(column) for column in wanted]
        table = data.select(*taken, extra=fields.field(f"field_{len(columns)}")).collect(engine="streaming")
        extra = table["extra"].is_not_null().arg_max() or 0
        if len(table) and table["extra"][extra] is not None:
            raise EventsError(f"{name}, {locate(extra)}: has more than {len(columns)} fields")
        return table.drop("extra")

    def locate(row: int) -> str:
        return f"line {data.select('number').slice(row, 1).collect().item()}"

    roles, notes, bipartite = {}, [], False
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
    return Source(name, columns, read, locate, text=True, roles=roles, bipartite=bipartite, notes=tuple(notes))


def _open_parquet(path: Path, name: str) -> Source:
    import polars as pl

    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        hint = "; it is a graph folder, to be loaded, not read" if (path / "graph.json").exists() else ""
        raise EventsError(f"{name}: is a folder without .parquet files{hint}")
    casts = pl.ScanCastOptions(integer_cast="upcast", float_cast="upcast")
    frame = pl.scan_parquet(files, glob=False, hive_partitioning=False, extra_columns="ignore", cast_options=casts)
    with explained(name, "Parquet"):
        columns = tuple(frame.collect_schema().names())

    def locate(row: int) -> str:
        for file in files:
            height = int(pl.scan_parquet(file, glob=False).select(pl.len()).collect().item())
            if row < height:
                return f"row {row + 1}" + f" of {file.name}" * path.is_dir()
            row -= height
        return f"row {row + 1}"

    return Source(name, columns, lambda wanted: frame.select(wanted).collect(engine="streaming"), locate, text=False)
