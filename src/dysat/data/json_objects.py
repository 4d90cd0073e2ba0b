"""Sources from files of JSON objects: one a line, or as a Mongo shell prints them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dysat.data.sources import Source
from dysat.data.text import HEAD, lines_of, not_json, not_utf8, read_bytes
from dysat.errors import EventsError

if TYPE_CHECKING:
    import polars as pl


def open_jsonl(path: Path, name: str, head: str) -> Source:
    """One object a line."""
    import polars as pl

    if head.lstrip().startswith("["):
        raise EventsError(f"{name}: is one JSON array; write one object per line")
    columns: dict[str, None] = {}
    for line in lines_of(head)[: 1000 if len(head) < HEAD else -1] or [head]:
        try:
            record = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            break  # the reader says where
        if isinstance(record, dict):
            columns |= dict.fromkeys(record)
    if not columns:
        raise EventsError(f'{name}: cannot be read as JSON lines: the first line is no object like {{"from": …}}')
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
    """Objects over several lines, one after the other, with `ObjectId("…")` and `ISODate("…")` for values."""
    import polars as pl

    fault = not_utf8(path, name)
    if fault:
        raise EventsError(f"{name}: {fault}")
    text = read_bytes(path, name).decode("utf-8-sig")
    wrapped = r'("(?:\\.|[^"\\])*")|\b(?:ObjectId|ISODate|NumberLong|NumberInt)\(\s*"?([^")]*)"?\s*\)'
    text = re.sub(wrapped, lambda match: match[1] or f'"{match[2]}"', text)  # not inside other texts
    decoder, records, lines, at, line = json.JSONDecoder(), [], [], 0, 1
    while match := re.compile(r"\s*(?=\S)").match(text, at):
        line += text.count("\n", at, match.end())
        try:
            record, end = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError) as problem:
            raise EventsError(f"{name}, line {getattr(problem, 'lineno', line)}: is not JSON") from None
        if not isinstance(record, dict):
            raise EventsError(f'{name}, line {line}: is no object like {{"from": …}}')
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
