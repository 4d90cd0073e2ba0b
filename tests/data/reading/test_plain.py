"""The reader of plain CSV agrees with the general one, or leaves the file to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dysat import DysatError, read_events
from dysat.data.reading import files, plain
from dysat.data.reading.plain import Fields, UnusualError, pack_texts, parse_integers, parser_of_moments

HOSTILE = [
    "",
    " ",
    "0",
    "007",
    "+1",
    "-1",
    "1.0",
    "1e3",
    "12 ",
    "9" * 17,
    "2" * 19,
    "ü",
    '"x"',
    '"',
    "a" * 17,
    "a\rb",
    "\0",
]
HOSTILE += ["2024-02-30T00:00:00", "2024-01-31T24:00:00", "2024-01-31T23:59:60", "2024-13-01T00:00:00", "2024-01-31"]
HOSTILE += ["1969-12-31T23:59:59", "2100-01-01T00:00:00", "2024-01-31 00:00:00", "2024-01-31T00:00:00Z", "x,y", "x\ny"]


def fields_of(texts: list[str]) -> Fields:
    raw = "\n".join(texts).encode()
    lengths = np.array([len(text.encode()) for text in texts])
    starts = np.cumsum(lengths + 1) - lengths - 1 + plain.PAD
    return Fields(bytearray(bytes(plain.PAD) + raw + bytes(plain.PAD)), starts, lengths)


def outcome(path: Path, **options: Any) -> Any:
    """All of the events, or the error."""
    try:
        events = read_events(path, "src", "dst", "time", **options)
    except DysatError as problem:
        return str(problem)
    parts = (events.src, events.dst, events.time, events.weight, events.labels, events.kinds)
    return [None if p is None else (p.dtype, p.tolist()) for p in parts], events.clock, events.notes


def both(path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Any, bool]:
    """The outcome, the same with the plain reader and without; and whether the plain reader gave it."""
    taken: list[bool] = []

    def spy(*args: Any) -> Any:
        taken.append(False)
        found = plain.read_plain(*args)
        taken[-1] = True
        return found

    def refuse(*args: Any) -> Any:
        raise UnusualError

    monkeypatch.setattr(files, "read_plain", refuse)
    general = outcome(path, **options)
    monkeypatch.setattr(files, "read_plain", spy)
    assert outcome(path, **options) == general
    return general, any(taken)


def rows_of(rng: np.random.Generator, kind: str, number: int = 40) -> list[list[str]]:
    """Rows of src, dst, a column that nobody asks for, time and weight."""
    names = [str(n) for n in rng.integers(0, 10 ** rng.integers(1, 16), 12)]
    if kind == "text":
        names = [f"{'user-and-more'[: rng.integers(1, 13)]}{name}"[:16] for name in names]
    seconds = rng.integers(0, 130 * 365 * 86_400, number)
    times = {"T": "T", " ": " ", "Z": "T"}[mark := str(rng.choice(["T", " ", "Z"]))]
    texts = [str(np.datetime64(int(s), "s")).replace("T", times) + "Z" * (mark == "Z") for s in seconds]
    if rng.random() < 0.3:
        texts = [str(1_600_000_000 + int(s) // 10) for s in seconds]
    ends = rng.choice(names, (number, 2)).tolist()
    return [
        [*e, str(rng.choice(["", "x y", "1"])), t, str(rng.integers(0, 20))] for e, t in zip(ends, texts, strict=True)
    ]


def write(
    path: Path, rows: list[list[str]], mark: str = ",", end: str = "\n", last: str = "\n", header: str = ""
) -> Path:
    lines = [header or mark.join(["src", "dst", "note", "time", "amount"]), *(mark.join(row) for row in rows)]
    path.write_bytes((end.join(lines) + last).encode())
    return path


@pytest.mark.parametrize("kind", ["text", "number"])
@pytest.mark.parametrize("seed", range(10))
def test_plain_files_are_read_as_the_general_reader_reads_them(kind, seed, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(plain, "BLOCK", [1, 50, 200, 1 << 20][seed % 4])
    rng = np.random.default_rng(seed)
    path = write(tmp_path / "a.csv", rows_of(rng, kind), mark=",;\t|"[seed % 4], last="\n" * (seed % 2))
    for options in ({}, {"weight": "amount"}, {"kinds": ("a", "b")}, {"timezone": "Europe/Berlin"}):
        found, taken = both(path, monkeypatch, **options)
        assert taken and not isinstance(found, str)


@pytest.mark.parametrize("kind", ["text", "number"])
@pytest.mark.parametrize("column", [0, 1, 2, 3, 4])
def test_hostile_cells_change_nothing(kind, column, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(plain, "BLOCK", 300)
    rng = np.random.default_rng(column)
    for cell in HOSTILE:
        for row in (0, 1, 39):
            rows = rows_of(rng, kind)
            rows[row][column] = cell
            path = write(tmp_path / "a.csv", rows)
            both(path, monkeypatch, weight="amount")
            both(path, monkeypatch, bad_rows="skip")


def test_hostile_lines_change_nothing(tmp_path, monkeypatch) -> None:
    rows = rows_of(np.random.default_rng(0), "text", 6)
    good = rows[3]
    header = "src,dst,note,time,amount"
    for line in (
        [],
        good[:4],
        good[:3],
        [*good, "1"],
        [*good, ""],
        ["# hm"],
        [""] * 5,
        [*good[:4], "\n", *good[:4], "1"],
    ):
        assert not both(write(tmp_path / "a.csv", [*rows[:3], line, *rows[3:]]), monkeypatch)[1]
    for end, last in (("\r\n", "\r\n"), ("\r", "\r"), ("\n", "\n\n"), ("\n", "\r\n"), ("\n\n", "\n")):
        assert not both(write(tmp_path / "a.csv", rows, end=end, last=last), monkeypatch)[1]
    for odd in (f"\ufeff{header}", f"\n{header}", header.replace("note", '"a,b"'), f"{header},more", header[:-7]):
        assert not both(write(tmp_path / "a.csv", rows, header=odd), monkeypatch)[1]
    assert both(write(tmp_path / "a.csv", rows, header=header.replace("note", "src ")), monkeypatch)[1]
    assert both(write(tmp_path / "a.csv", []), monkeypatch)[0].endswith("has no events; at least two are needed")


def test_damaged_plain_files_change_nothing(tmp_path, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "a.csv"
    for i in range(300):
        monkeypatch.setattr(plain, "BLOCK", [40, 1 << 20][i % 2])
        raw = bytearray(write(path, rows_of(rng, ["text", "number"][i // 2 % 2], 8)).read_bytes())
        at = int(rng.integers(24, len(raw)))
        raw[at : at + int(rng.integers(0, 3))] = rng.choice(list(b',\n\r"0123456789-:TZ a\0\xff'), 1 + i % 2).tobytes()[
            ::8
        ]
        path.write_bytes(raw)
        both(path, monkeypatch)


@pytest.mark.parametrize(("mark", "zone"), [("T", ""), (" ", ""), ("T", "Z")])
def test_moments_are_those_of_polars(mark, zone) -> None:
    rng = np.random.default_rng(2)
    parse = parser_of_moments(f"2024-01-31{mark}12:00:00{zone}")
    assert parse is not None
    seconds = rng.integers(0, 130 * 365 * 86_400, 5000)
    texts = [str(np.datetime64(int(s), "s")).replace("T", mark) + zone for s in seconds]
    assert parse(fields_of(texts)).tolist() == (seconds * 1_000_000).tolist()
    dtype = pl.Datetime("us", "UTC") if zone else pl.Datetime("us")
    for text in texts[:2000]:
        broken = list(text)
        broken[int(rng.integers(0, len(text)))] = str(rng.choice(list("0123456789-:TZ /;@a")))
        wrong = "".join(broken)
        value = pl.Series([wrong]).str.strptime(dtype, f"%Y-%m-%d{mark}%H:%M:%S{zone}", strict=False).to_physical()[0]
        usual = value is not None and 0 <= value < 4_102_444_800_000_000  # 2100
        try:
            assert parse(fields_of([text, wrong, text]))[1] == value
        except UnusualError:
            assert not usual or ":60" in wrong or len(wrong.strip()) < len(text) or " " in wrong


def test_the_calendar_is_checked() -> None:
    parse = parser_of_moments("2024-01-31T12:00:00")
    assert parse is not None
    days = {f"{y}-{m:02}-{d:02}" for y in (1970, 2000, 2023, 2024, 2099) for m in range(14) for d in range(34)}
    for day in days:
        try:
            expected = int(np.datetime64(f"{day}T01:02:03", "us").astype(int))
        except ValueError:
            expected = None
        try:
            found = int(parse(fields_of([f"{day}T01:02:03"]))[0])
        except UnusualError:
            found = None
        assert found == expected, day
    for odd in ("24:00:00", "00:60:00", "00:00:60", "0a:00:00", "00-00:00"):
        with pytest.raises(UnusualError):
            parse(fields_of([f"2024-01-31T{odd}"]))


def test_parts_of_any_length_are_put_end_to_end_in_their_order() -> None:
    parts = [[np.arange(2 * n).reshape(n, 2), np.full(n, n)] for n in (2, 50, 1, 0, 300)]
    joined = plain._Joined(len(parts), None)
    with ThreadPoolExecutor(len(parts)) as pool:
        waiting = [pool.submit(joined.append, n, part) for n, part in reversed(list(enumerate(parts)))]
    assert all(future.result() is None for future in waiting)
    pairs, singles = joined.columns()
    assert pairs.tolist() == np.concatenate([part[0] for part in parts]).tolist()
    assert singles.tolist() == np.concatenate([part[1] for part in parts]).tolist()


def test_a_part_that_fails_ends_the_waiting_of_others() -> None:
    joined = plain._Joined(3, None)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(joined.append, 2, [np.arange(3)])
        with pytest.raises(ZeroDivisionError), joined.failing():
            raise ZeroDivisionError
        with pytest.raises(UnusualError):
            waiting.result()


def test_integers() -> None:
    rng = np.random.default_rng(3)
    numbers = [int(rng.integers(0, 10**n)) for n in range(1, 17) for _ in range(50)] + [0, 9, 10, 10**15, 10**16 - 1]
    assert parse_integers(fields_of([str(n) for n in numbers])).tolist() == numbers
    for odd in (
        "",
        "00",
        "01",
        "007",
        "+1",
        "-1",
        " 1",
        "1 ",
        "1.",
        "1/",
        "1:",
        "12345678a",
        "a2345678",
        "0123456789",
        "1" * 17,
    ):
        with pytest.raises(UnusualError):
            parse_integers(fields_of(["1", odd, "12345678901234"]))


def test_packed_texts_are_the_texts() -> None:
    texts = ["a", "ab", "b", "a" * 8, "a" * 9, "a" * 16, "0123456789abcdef", "x,y"]
    packed = pack_texts(fields_of(texts))
    assert packed.view("S16")[:, 0].tolist() == [text.encode() for text in texts]
    for odd in ("", "a" * 17):
        with pytest.raises(UnusualError):
            pack_texts(fields_of(["a", odd]))
