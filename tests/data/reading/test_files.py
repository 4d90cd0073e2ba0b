"""CSV files: parsing columns while reading gives what a table of texts gives, and errors name the line."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dysat import DysatError, EventsError, read_events

HEADER = ["src", "dst", "note", "time", "amount"]
ODD_CELLS = ["", " ", "0", "007", "+1", "-1", "1.0", "1e3", "12 ", "9" * 17, "2" * 19, "ü", "x y", "a" * 17, "\0"]
ODD_CELLS += ["x,y", "x\ny", "2024-01-31", "2024-01-31 00:00:00", "2024-01-31T00:00:00Z", "1969-12-31T23:59:59"]
ODD_CELLS += ["2100-01-01T00:00:00", "2024-02-30T00:00:00", "2024-01-31T24:00:00", "2024-01-31T23:59:60"]


def outcome(source: Any, **options: Any) -> Any:
    """Everything that was read, or the error without the name of the file and the line."""
    try:
        events = read_events(source, "src", "dst", "time", **options)
    except DysatError as problem:
        return re.sub(r"^.*?(, (line|row) \d+)?: ", "", str(problem))
    parts = (events.src, events.dst, events.time, events.weight, events.labels, events.kinds)
    return [None if p is None else (p.dtype, p.tolist()) for p in parts], events.clock, events.notes


def random_rows(rng: np.random.Generator, kind: str, number: int = 40) -> list[list[str]]:
    """Rows of src, dst, an unused column, time (in one of four forms) and weight."""
    names = [str(n) for n in rng.integers(0, 10 ** rng.integers(1, 16), 12)]
    if kind == "text":
        names = [f"{'user-and-more'[: rng.integers(1, 13)]}{name}" for name in names]
    seconds = rng.integers(0, 130 * 365 * 86_400, number)
    form = rng.choice(["T", " ", "Z", "epoch"])
    times = [str(np.datetime64(int(s), "s")).replace("T", " " if form == " " else "T") for s in seconds]
    if form == "epoch":
        times = [str(1_600_000_000 + int(s) // 10) for s in seconds]
    ends = rng.choice(names, (number, 2)).tolist()
    notes = rng.choice(["", "x y", "1"], number).tolist()
    return [
        [*end, note, time + "Z" * (form == "Z"), str(rng.integers(0, 20))]
        for end, note, time in zip(ends, notes, times, strict=True)
    ]


def write(path: Path, rows: list[list[str]], mark: str = ",", end: str = "\n", header: list[str] = HEADER) -> Path:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=mark, lineterminator=end).writerows([header, *rows])
    path.write_bytes(text.getvalue().encode())
    return path


def table(rows: list[list[str]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict.fromkeys(HEADER, pl.String), orient="row")


@pytest.mark.parametrize("kind", ["text", "number"])
def test_csv_gives_what_a_table_of_texts_gives(kind: str, tmp_path: Path) -> None:
    for seed in range(8):
        rows = random_rows(np.random.default_rng(seed), kind)
        path = write(tmp_path / "a.csv", rows, mark=",;\t|"[seed % 4])
        if seed % 2:
            path.write_bytes(path.read_bytes().rstrip(b"\n"))
        for options in ({}, {"weight": "amount"}, {"kinds": ("a", "b")}, {"timezone": "Europe/Berlin"}):
            found = outcome(path, **options)
            assert found == outcome(table(rows), **options) and not isinstance(found, str)


@pytest.mark.parametrize("kind", ["text", pytest.param("number", marks=pytest.mark.slow)])
def test_one_odd_cell_is_read_or_explained_as_in_a_table(kind: str, tmp_path: Path) -> None:
    """The odd cell comes first or late, so that the form of the column is guessed wrong or right."""
    rng = np.random.default_rng(0)
    for i, cell in enumerate(ODD_CELLS):
        for column in range(5):
            rows = random_rows(rng, kind, 6)
            rows[5 * ((i + column) % 2)][column] = cell
            path = write(tmp_path / "a.csv", rows)
            options = {"weight": "amount"} if column == 4 or i % 2 else {"bad_rows": "skip"}
            assert outcome(path, **options) == outcome(table(rows), **options), (column, cell)


def test_lines_that_are_not_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    good = ["ann,bob,x,2024-01-01,1", "bob,cy,x,2024-01-02,1", "cy,ann,x,2024-01-09,1"]
    expected = outcome(table([row.split(",") for row in good]))
    for text, problem in {
        "": None,
        ",,,,": None,
        "ann,bob,x": "line 3: column 'time' is empty",
        "# note": "line 3: column 'dst' is empty",
        'ann,"bob\ncy",x,soon,1': "line 4: time 'soon' is not a date or a number",
    }.items():
        path.write_text("\n".join([",".join(HEADER), good[0], text, *good[1:]]) + "\n")
        if problem is None:
            assert outcome(path) == expected
            continue
        with pytest.raises(EventsError, match=problem):
            read_events(path, "src", "dst", "time")


@pytest.mark.parametrize(
    "header",
    [f"\ufeff{','.join(HEADER)}", f"\n{','.join(HEADER)}", 'src,dst,"a,b",time,amount', "src,dst,src ,time,amount"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
def test_headers_and_line_ends(header: str, end: str, tmp_path: Path) -> None:
    rows = [["1", "22", "x", "2024-01-01", "1"], ["22", "3", "x", "2024-01-09", "1"]]
    lines = [header.replace("\n", end), *map(",".join, rows)]
    (tmp_path / "a.csv").write_bytes((end.join(lines) + end).encode())
    assert outcome(tmp_path / "a.csv") == outcome(table(rows))


def test_impossible_dates_are_refused_at_their_line(tmp_path: Path) -> None:
    good = [["a", "b", "", f"{year}-{month:02}-28T01:02:03", "1"] for year in (1970, 2099) for month in range(1, 13)]
    assert not isinstance(outcome(write(tmp_path / "a.csv", good)), str)
    for wrong in ("2023-02-29T01:02:03", "2100-02-29T01:02:03", "2024-00-10T01:02:03", "2024-04-31T01:02:03"):
        write(tmp_path / "a.csv", [*good, ["a", "b", "", wrong, "1"]])
        with pytest.raises(EventsError, match=f"a.csv, line 26: time '{wrong}' is not a date or a number"):
            read_events(tmp_path / "a.csv", "src", "dst", "time")
