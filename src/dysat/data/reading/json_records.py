"""JSON: one object per line, an array of objects, or the output of a Mongo shell.

A value inside an object has a dotted path: `user.id` in `{"user": {"id": 7}}`. A path through a list of objects gives a
list. Columns of plain values are read by Polars; paths and lists are read record by record.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dysat.data.reading.limits import PARSED, json_memory
from dysat.data.reading.packed import count
from dysat.data.reading.sources import Source
from dysat.data.reading.text import HEAD, TextFile, lines_of, not_json
from dysat.errors import EventsError, listed

if TYPE_CHECKING:
    import polars as pl

SAMPLE = 1000  # records that are looked at for columns
NOT_AN_OBJECT = 'is not an object like {"from": …}'


def open_jsonl(text: TextFile, wanted: Sequence[str] = ()) -> Source:
    """Open JSON lines; columns are those of the first records, and of all records if a wanted one is not there."""
    import polars as pl

    name, head = text.name, text.head
    if is_array(head):
        return open_array(text)
    lines = lines_of(head)[: SAMPLE if len(head) < HEAD else -1] or [head]
    sample = list(_parsed(lines))
    if len(sample) <= 1 and (whole := _wrapped(text)) is not None:
        return whole
    text.check_lines()
    shape = _checked_shape(text, sample)
    if not shape.columns:
        raise EventsError(f"{name}: cannot be read as JSON lines: the first line {NOT_AN_OBJECT}")
    if not set(wanted) <= {*shape.columns, *shape.paths}:
        shape = _checked_shape(text, _parsed(_whole(text).split(b"\n")))
    with open(text.path, "rb") as data:
        marked = data.read(3) == b"\xef\xbb\xbf"
    unmarked = io.BytesIO(text.read_bytes()) if marked else None
    schema = dict.fromkeys(shape.columns, pl.String)

    def read(wanted: Sequence[str]) -> pl.DataFrame:
        if not set(wanted) <= set(shape.columns):
            return read_records(wanted)
        try:
            if unmarked is not None:
                table = pl.scan_ndjson(unmarked, schema=schema).select(wanted).collect(engine="streaming")
            else:
                table = text.collect(
                    lambda content, _: pl.scan_ndjson(content, schema=schema).select(wanted), quotes=False
                )
        except pl.exceptions.PolarsError:
            text.check_utf8()
            if fault := not_json(text):
                raise EventsError(f"{name}: {fault}") from None
            raise
        return read_records(wanted) if any(map(_holds_nested, table)) else table

    def read_records(wanted: Sequence[str]) -> pl.DataFrame:
        text.check_utf8()
        if fault := not_json(text):
            raise EventsError(f"{name}: {fault}")
        records = (json.loads(line) for line in _whole(text).split(b"\n") if line.strip())
        return table_of(name, records, wanted, locate)

    def locate(row: int) -> str:
        numbers = (n for n, line in enumerate(text.read_bytes().split(b"\n"), 1) if line.strip())
        line = next((n for i, n in enumerate(numbers) if i == row), None)
        return f"line {line}" if line else f"row {row + 1}"

    return Source(name, shape.columns, read, locate, blank_rows=True, paths=shape.paths, nested=shape.nested)


def is_array(head: str) -> bool:
    """Whether a text begins with a JSON array of objects."""
    return re.match(r"\s*\[\s*\{", head) is not None


def open_array(text: TextFile) -> Source:
    """Open one JSON array of objects."""
    text.check_utf8()
    whole = _whole(text).decode()
    try:
        records = json.loads(whole)
    except (ValueError, RecursionError) as problem:
        raise EventsError(f"{text.name}, line {getattr(problem, 'lineno', 1)}: is not JSON") from None
    if not isinstance(records, list):
        raise EventsError(f"{text.name}: is not a JSON array of objects")

    def locate(row: int) -> str:
        return f"line {next(line for i, line in enumerate(_lines_of_items(whole)) if i == row)}"

    for row, record in enumerate(records):
        if not isinstance(record, dict):
            raise EventsError(f"{text.name}, {locate(row)}: {NOT_AN_OBJECT}")
    return _in_memory(text, records, locate)


def open_mongo(text: TextFile) -> Source:
    """Open the output of a Mongo shell: objects over several lines, with values like `ISODate("…")`."""
    text.check_utf8()
    name, whole = text.name, _whole(text).decode()
    wrapped = r'("(?:\\.|[^"\\])*")|\b(?:ObjectId|ISODate|NumberLong|NumberInt)\(\s*"?([^")]*)"?\s*\)'
    whole = re.sub(wrapped, lambda match: match[1] or f'"{match[2]}"', whole)  # but not inside strings
    decoder, records, lines, at, line = json.JSONDecoder(), [], [], 0, 1
    while match := re.compile(r"\s*(?=\S)").match(whole, at):
        line += whole.count("\n", at, match.end())
        try:
            record, end = decoder.raw_decode(whole, match.end())
        except (ValueError, RecursionError) as problem:
            raise EventsError(f"{name}, line {getattr(problem, 'lineno', line)}: is not JSON") from None
        if not isinstance(record, dict):
            raise EventsError(f"{name}, line {line}: {NOT_AN_OBJECT}")
        records.append(record)
        lines.append(line)
        line, at = line + whole.count("\n", match.end(), end), end
    if len(records) == 1 and (inner := _inner_records(text, records[0])) is not None:
        return inner
    return _in_memory(text, records, lambda row: f"line {lines[row]}")


class Shape(NamedTuple):
    """The keys of records, the dotted paths of the values inside their objects, and the keys that hold only objects."""

    columns: tuple[str, ...]
    paths: tuple[str, ...]
    nested: frozenset[str]


def shape_of(records: Iterable[Mapping[str, Any]], check: Callable[[int], None] = lambda number: None) -> Shape:
    """Return the columns and paths of records; `check` is given their number as it grows."""
    keys: dict[str, None] = {}
    leaves: dict[str, None] = {}
    for record in records:
        keys |= dict.fromkeys(record)
        check(len(keys))
        leaves |= dict.fromkeys(_leaves({key: value for key, value in record.items() if value is not None}))
        check(len(leaves))
    paths = tuple(leaf for leaf in leaves if leaf not in keys)
    objects = {path[:dot] for path in paths for dot in _dots(path)}
    return Shape(tuple(keys), paths, frozenset(key for key in keys if key in objects and key not in leaves))


def _checked_shape(text: TextFile, records: Iterable[Mapping[str, Any]]) -> Shape:
    return shape_of(records, lambda number: text.limits.check_columns(text.name, number))


def _dots(path: str) -> list[int]:
    return [match.start() for match in re.finditer(r"\.", path)]


def _leaves(record: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in record.items():
        objects = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
        if not objects:
            yield prefix + key
        for inner in objects:
            yield from _leaves(inner, f"{prefix}{key}.")


def value_at(record: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path; a key that itself contains the dots comes first. None if there is none."""
    if path in record:
        return record[path]
    for dot in _dots(path):
        inner, rest = record.get(path[:dot]), path[dot + 1 :]
        if isinstance(inner, dict):
            value = value_at(inner, rest)
        elif isinstance(inner, list):
            found = [value_at(item, rest) for item in inner if isinstance(item, dict)]
            value = [part for item in found for part in (item if isinstance(item, list) else [item])]
        else:
            continue
        if value is not None:
            return value
    return None


def table_of(
    name: str, records: Iterable[Mapping[str, Any]], wanted: Sequence[str], locate: Callable[[int], str]
) -> pl.DataFrame:
    """Read columns and paths as texts, or as lists of texts; objects are refused."""
    import polars as pl

    columns: dict[str, list[Any]] = {path: [] for path in wanted}
    for row, record in enumerate(records):
        for path, values in columns.items():
            value = value_at(record, path)
            inner = value if isinstance(value, list) else [value]
            if any(isinstance(item, dict | list) for item in inner):
                what = "a list of objects" if isinstance(value, list) else "an object"
                there = [leaf for leaf in dict.fromkeys(_leaves(record)) if leaf.startswith(f"{path}.")]
                advice = f"; there are {listed(there)}" if there else ""
                raise EventsError(f"{name}, {locate(row)}: column {path!r} holds {what}{advice}")
            values.append([_as_text(item) for item in value] if isinstance(value, list) else _as_text(value))
    table = {}
    for path, values in columns.items():
        if any(isinstance(value, list) for value in values):
            lists = [value if value is None or isinstance(value, list) else [value] for value in values]
            table[path] = pl.Series(lists, dtype=pl.List(pl.String))
        else:
            table[path] = pl.Series(values, dtype=pl.String)
    return pl.DataFrame(table)


def _parsed(lines: Iterable[str | bytes]) -> Iterator[dict[str, Any]]:
    """The objects of lines, up to the first line that is not JSON; `read` reports it."""
    for line in lines:
        try:
            record = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            return
        if isinstance(record, dict):
            yield record


def _whole(text: TextFile) -> bytes:
    """The whole text, if there is memory for the objects that it describes."""
    whole = text.read_bytes()
    if (1 + len(whole)) * max(PARSED.values()) > text.limits.bytes():  # else even a text of nothing but marks fits
        counts = {mark: count(whole, mark) for mark in PARSED}
        what = f"{counts[b'{']:,} objects in {len(whole) / 1e6:,.0f} MB of JSON"
        text.limits.check_memory(text.name, json_memory(counts, len(whole)), what)
    return whole


def _wrapped(text: TextFile) -> Source | None:
    """The records inside one JSON object, if the file holds nothing else."""
    try:
        whole = json.loads(_whole(text))
    except (ValueError, RecursionError):
        return None
    return _inner_records(text, whole) if isinstance(whole, dict) else None


def _inner_records(text: TextFile, whole: Mapping[str, Any]) -> Source | None:
    """The records of an object such as `{"messages": [{…}, {…}]}`, in which one value is a list of objects."""
    keys = [
        key
        for key, value in whole.items()
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
    ]
    if len(keys) != 1:
        return None
    note = f"records read from the list {keys[0]!r}"
    return _in_memory(text, whole[keys[0]], lambda row: f"record {row + 1} of {keys[0]!r}", (note,))


def _in_memory(
    text: TextFile, records: list[dict[str, Any]], locate: Callable[[int], str], notes: tuple[str, ...] = ()
) -> Source:
    name = text.name
    columns, paths, nested = _checked_shape(text, records)

    def read(wanted: Sequence[str]) -> pl.DataFrame:
        return table_of(name, records, wanted, locate)

    return Source(name, columns, read, locate, blank_rows=True, paths=paths, nested=nested, notes=notes)


def _lines_of_items(whole: str) -> Iterator[int]:
    """The line on which each item of a JSON array begins."""
    decoder, line, at = json.JSONDecoder(), 1, 0
    while match := re.compile(r"[\s,\[]*(?=[^\s,\[\]])" if at == 0 else r"[\s,]*(?=[^\s,\]])").match(whole, at):
        line += whole.count("\n", at, match.end())
        yield line
        _, end = decoder.raw_decode(whole, match.end())
        line, at = line + whole.count("\n", match.end(), end), end


def _holds_nested(column: pl.Series) -> bool:
    """Whether a column of texts may hold objects or lists, which Polars writes as JSON."""
    maybe = column.str.starts_with("{") | column.str.starts_with("[")
    for text in column.filter(maybe).unique().to_list() if maybe.any() else ():
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            continue
        return True
    return False


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
