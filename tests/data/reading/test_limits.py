"""Limits of what is read: each is checked in every format before the work, named in one line, and can be raised."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard

from dysat import EventsError, read_events, read_nodes
from dysat.data.reading.excel import _extent_of_binary, _extent_of_document, _extent_of_xml
from dysat.data.reading.limits import Limits
from dysat.data.reading.packed import gunzip, gunzip_pieces, look_into_zstd
from dysat.system.hardware import free_memory

Write = Callable[[str, str | bytes], Path]
Cli = Callable[..., tuple[int, str, str]]
PACKS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
DAYS = [f"2024-01-{day:02}" for day in range(1, 11)]


def log(kind: str, label: str = "ann", more: int = 0) -> bytes:
    """Ten events of `label` and bob, with `more` unused columns."""
    names = ["src", "dst", "time", *(f"c{i}" for i in range(more))]
    rows = [[label, "bob", day, *["1"] * more] for day in DAYS]
    if kind == "csv":
        return "\n".join(map(",".join, [names, *rows])).encode()
    if kind == "txt":
        return "\n".join(map(" ".join, [names, *rows])).encode()
    records = [dict(zip(names, row, strict=True)) for row in rows]
    if kind == "jsonl":
        return "\n".join(map(json.dumps, records)).encode()
    if kind == "json":
        return json.dumps(records).encode()
    if kind == "mongo":
        return "\n".join(json.dumps(record, indent=1).replace("{", "{\n", 1) for record in records).encode()
    out = io.BytesIO()
    pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row").write_parquet(out)
    return out.getvalue()


def file_of(write: Write, kind: str, pack: str, **content: Any) -> Path:
    return write(f"a.{'json' if kind == 'mongo' else kind}{pack}", PACKS[pack](log(kind, **content)))


TEXTS = [(kind, pack) for kind in ("csv", "txt", "jsonl", "json", "mongo") for pack in PACKS]


@pytest.mark.parametrize(("kind", "pack"), [*TEXTS, ("parquet", "")])
def test_columns(write: Write, kind: str, pack: str) -> None:
    path = file_of(write, kind, pack, more=20)
    with pytest.raises(EventsError, match=r"has \d+ columns, more than 20; limits=\{'columns': \d+\} allows it"):
        read_events(path, "src", "dst", "time", limits={"columns": 20})
    assert len(read_events(path, "src", "dst", "time", limits={"columns": 23})) == 10


@pytest.mark.parametrize(("kind", "pack"), [*TEXTS, ("parquet", "")])
def test_label_length(write: Write, kind: str, pack: str) -> None:
    path = file_of(write, kind, pack, label="ä" * 50)
    message = (
        r"column 'src' has a label of 50 characters, more than 49 \('ä{20}'…\); limits=\{'label_length': 50\} allows"
    )
    with pytest.raises(EventsError, match=message):
        read_events(path, limits={"label_length": 49})
    assert read_events(path, limits={"label_length": 50}).num_nodes == 2


@pytest.mark.parametrize(("kind", "pack"), [(kind, pack) for kind in ("csv", "txt", "jsonl") for pack in ("", ".gz")])
def test_line_length(write: Write, kind: str, pack: str) -> None:
    path = file_of(write, kind, pack)
    longest = max(map(len, log(kind).split(b"\n")))
    assert len(read_events(path, limits={"line_length": longest})) == 10
    with pytest.raises(EventsError, match=r"line 2: is longer than 17 bytes; limits=\{'line_length': 170\} allows it"):
        read_events(write(f"b.csv{pack}", PACKS[pack](log("csv") + b"\n")), limits={"line_length": 17})
    with pytest.raises(EventsError, match=f"longer than {longest - 1:,} bytes"):
        read_events(path, limits={"line_length": longest - 1})


def test_line_length_knows_all_line_ends_and_encodings(write: Write) -> None:
    for end in ("\n", "\r\n", "\r"):
        for encoding in ("utf-8", "utf-16", "cp1252"):
            text = end.join(["src,dst,time", *(f"Zoë,bob,{day}" for day in DAYS)])
            path = write("a.csv", text.encode(encoding))
            assert len(read_events(path, encoding=encoding, limits={"line_length": 21})) == 10
            with pytest.raises(EventsError, match="longer than 15 bytes"):
                read_events(path, encoding=encoding, limits={"line_length": 15})


@pytest.mark.parametrize(("kind", "pack"), [*TEXTS, ("parquet", "")])
def test_memory(write: Write, kind: str, pack: str) -> None:
    path = file_of(write, kind, pack)
    with pytest.raises(
        EventsError, match=r"need about 0.0 GB of memory, but 0.0 GB is allowed; limits=\{'memory': 1\}"
    ):
        read_events(path, limits={"memory": 1e-7})
    assert len(read_events(path, limits={"memory": 0.1})) == 10


def test_nodes_have_the_same_limits(write: Write) -> None:
    path = write("people.csv", "id,team\nann,red\nbob,blue\ncy,red\n")
    for name, value in {"columns": 1, "label_length": 2, "line_length": 4, "memory": 1e-8}.items():
        with pytest.raises(EventsError, match=f"limits={{'{name}': "):
            read_nodes(path, limits={name: value})
    assert len(read_nodes(path, limits={"columns": 2})) == 3


def test_given_limits_are_checked() -> None:
    arrays = (["a", "b"], ["b", "c"], DAYS[:2])
    with pytest.raises(EventsError, match=r"limits: 'column' is not one of columns, .*; did you mean 'columns'"):
        read_events(arrays, limits={"column": 3})
    for value in (0, -1, float("nan"), float("inf"), True, "3"):
        with pytest.raises(EventsError, match="limits: columns must be a number above 0, not"):
            read_events(arrays, limits={"columns": value})  # type: ignore[dict-item]
    assert Limits.parse(["label-length=20000", "memory = 1.5"]) == {"label_length": 20_000, "memory": 1.5}
    with pytest.raises(EventsError, match="--limit memory: expected a name and a number, as label-length=20000"):
        Limits.parse(["memory"])


def test_command_line_names_its_option_and_takes_it(write: Write, cli: Cli) -> None:
    path = write("a.csv", log("csv", more=20))
    code, _, error = cli("snapshots", path, "--every", "1w", "--limit", "columns=20")
    assert code == 2 and error == f"dysat: {path}: has 23 columns, more than 20; --limit columns=23 allows it\n"
    code, _, error = cli("snapshots", path, "--every", "1w", "--limit", "columns=23", "--limit", "label-length=2")
    assert error.endswith("a label of 3 characters, more than 2 ('ann'…); --limit label-length=3 allows it\n")
    assert cli("snapshots", path, "--every", "1w", "--limit", "columns=23")[0] == 0
    assert cli("snapshots", path, "--every", "1w", "--limit", "rows=23")[2].startswith("dysat: limits: 'rows' is not")


READ = """
import resource, sys, polars, dysat
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    dysat.read_events(sys.argv[1], "src", "dst", "time")
except dysat.EventsError as problem:
    print(problem)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("pack", ["gz", pytest.param("zst", marks=pytest.mark.slow)])
def test_a_gigabyte_of_zeros_is_refused_in_one_line_with_little_memory(tmp_path: Path, pack: str) -> None:
    path = tmp_path / f"zeros.csv.{pack}"
    path.write_bytes(PACKS[f".{pack}"](bytes(1 << 24)) * 64)
    assert path.stat().st_size < 6_000_000
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True)
    message, megabytes = done.stdout.splitlines()
    assert message.startswith(f"{path}, line 1: is longer than 10,000,000 bytes; limits={{'line_length': ")
    assert done.stderr == "" and int(megabytes) < 400


def test_gzip_in_pieces_gives_the_same_text(tmp_path: Path) -> None:
    quoted = "".join(f'a{i},"b ""{i}\n\n{i % 7}",2024-01-01\n' + "\n" * (i % 3) for i in range(3000))
    for text in (quoted, quoted.replace("\n", "\r\n"), "x" * 70_000, "\n" * 9_000, ""):
        (tmp_path / "a.gz").write_bytes(
            gzip.compress(text[:1000].encode()) + gzip.compress(text[1000:].encode()) + b"\0\0"
        )
        assert b"".join(gunzip(tmp_path / "a.gz")).decode() == text
        for size in (100, 5_000, 1 << 20):
            pieces = list(gunzip_pieces(tmp_path / "a.gz", "a", Limits(), quotes=True, size=size))
            assert b"".join(pieces).decode() == text
            assert all(piece.count(b'"') % 2 == 0 for piece in pieces)
            assert not any(piece[:1] in b"\r\n" for piece in pieces[1:])


@pytest.mark.slow
def test_large_gzip_is_read_like_plain_text(write: Write) -> None:
    rows = "".join(f'"a\n{i % 97}",b{i % 89},2024-01-{1 + i % 28:02},{"1" * 30}\n' for i in range(90_000))
    text = f"src,dst,time,n\n{rows}"
    plain, packed = (read_events(write(f"a.csv{end}", pack(text.encode()))) for end, pack in list(PACKS.items())[:2])
    assert plain.labels.tolist() == packed.labels.tolist() and (plain.src == packed.src).all()
    assert (plain.time == packed.time).all() and (plain.dst == packed.dst).all()
    with pytest.raises(EventsError, match="line 180002: time 'soon' is not a date"):
        read_events(write("b.csv.gz", gzip.compress(f"{text}a,b,soon,1\n".encode())))
    with pytest.raises(EventsError, match="line 180002 has 5 fields, but there are 4 columns"):
        read_events(write("b.csv.gz", gzip.compress(f"{text}a,b,2024-01-01,1,y\n".encode())), weight="n")
    wider = text.replace('"a\n', "a").replace('",b', ",b").replace("1\n", "1,\n")  # a separator after the last column
    assert len(read_events(write("b.csv.gz", gzip.compress(wider.encode())))) == 90_000


def test_zstd_blocks_are_added_up(write: Write) -> None:
    text = b"".join(b"%d,%d\n" % (i, i * i) for i in range(100_000))
    frames = zstandard.compress(text) + b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstandard.ZstdCompressor(
        write_checksum=True, write_content_size=False
    ).compress(text)  # fmt: skip
    path = write("a.zst", frames)
    found = look_into_zstd(path, "a", 300_000)
    begin = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(found.beginning), read_across_frames=True).read()
    assert 2 * len(text) <= found.bound < 2 * len(text) + 2**18 and text.startswith(begin) and len(begin) > 250_000
    for damaged in (frames[:1000], frames + b"more"):
        with pytest.raises(EventsError, match="cannot be read as zstd"):
            look_into_zstd(write("b.zst", damaged), "b", 0)


def test_wide_nested_and_odd_json(write: Write) -> None:
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    for text in (
        deep,
        f"[{deep}]",
        "[" * 100_000,
        '{"src": ' + "9" * 5000 + "}\n" * 2,
        '{"src": "' + "x" * 70_000 + '"}',
    ):
        for name in ("a.jsonl", "a.json"):
            with pytest.raises(EventsError):
                read_events(write(name, text), "src", "dst", "time")
    many = [{"user": {f"k{i}": i for i in range(3000)}, "dst": "b", "time": day} for day in DAYS]
    with pytest.raises(EventsError, match="which column is src"):
        read_events(write("a.json", json.dumps(many)))
    odd = (
        '[{"src": "a", "src": "c", "dst": 12345678901234567890123, "time": "2024-01-01", "w": NaN}, '
        + log("json").decode()[1:]
    )
    assert sorted(read_events(write("a.json", odd)).labels.tolist()) == ["12345678901234567890123", "ann", "bob", "c"]


def test_parquet_with_many_rows_in_few_bytes(tmp_path: Path) -> None:
    rows = 3_000_000
    table = pl.DataFrame({"src": pl.repeat(1, rows, eager=True), "dst": 2, "time": 1_700_000_000})
    table.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(EventsError, match=r"3,000,000 rows need about 0.2 GB of memory, but 0.1 GB is allowed"):
        read_events(tmp_path / "a.parquet", limits={"memory": 0.1})
    texts = table.head(1000).with_columns(src=pl.lit("x" * 5000))
    texts.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(EventsError, match=r"5 MB of text or more need about 0.0 GB"):
        read_events(tmp_path / "a.parquet", limits={"memory": 0.001})


SHEET = b'<worksheet><sheetData><row r="1"><c r="A1"><v>1</v></c></row>%s</sheetData></worksheet>'


def workbook(path: Path, sheet: bytes, member: str = "xl/worksheets/sheet1.xml") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("content.xml" if member == "content.xml" else "xl/workbook.xml", b"<workbook/>")
        if member != "content.xml":
            book.writestr(member, sheet)
    return path


def test_workbook_with_one_cell_in_its_last_place(tmp_path: Path) -> None:
    last = SHEET % b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    path = workbook(tmp_path / "a.xlsx", last)
    with pytest.raises(EventsError, match="has 16,384 columns, more than 10,000"):
        read_events(path)
    with pytest.raises(
        EventsError, match=r"1,048,576 rows and 16,384 columns up to its last cell, which need about 1,?099"
    ):
        read_events(path, limits={"columns": 20_000})
    bomb = workbook(tmp_path / "b.xlsx", SHEET % bytes(40_000_000))
    with pytest.raises(EventsError, match=r"40 MB in the workbook need about 0.1 GB of memory, but 0.1 GB is allowed"):
        read_events(bomb, limits={"memory": 0.1})


def test_workbook_that_claims_to_be_smaller(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a.xlsx", SHEET % bytes(1_000_000))
    true, false = ((len(SHEET) - 2 + size).to_bytes(4, "little") for size in (1_000_000, 10))
    raw = path.read_bytes()
    assert raw.count(true) == 2
    path.write_bytes(raw.replace(true, false))
    with pytest.raises(EventsError, match="cannot be read as Excel: Bad CRC-32"):
        read_events(path)


def test_extent_of_sheets() -> None:
    cells = b"<row>" + b"<c><v>1</v></c>" * 30 + b"</row>"
    for size in (7, 1000):
        text = SHEET % (cells * 4 + b"<row r='77'><c r = 'aB77'/></row>")
        parts = iter([text[i : i + size] for i in range(0, len(text), size)])
        assert _extent_of_xml(parts) == (77, 30)
    row = b"<table:table-row table:number-rows-repeated='%d'>%s</table:table-row>"
    full, blank = (
        b'<table:table-cell table:number-columns-repeated="9"><text:p>x</text:p></table:table-cell>',
        b"<table:table-cell/>",
    )
    assert _extent_of_document(row % (5, blank) + row % (3, blank + full) + row % (1_000_000, blank)) == (8, 10)
    record = b"\x00\x04" + (99).to_bytes(4, "little") + b"\x05\x08" + (700).to_bytes(4, "little") + bytes(4)
    assert _extent_of_binary(b"\x81\x01\x00" + record) == (100, 701)


def test_free_memory_is_that_of_the_machine() -> None:
    assert 1e7 < free_memory() < 1e15
