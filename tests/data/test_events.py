"""Reading events from every format and kind of table, with a one-line error for every mistake."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import zstandard

import dysat

Write = Callable[[str, str | bytes], Path]
ROWS = [
    ("ann", "bob", "2024-01-01T10:00:00", 2.0),
    ("bob", "cy", "2024-01-05T11:30:00", 1.0),
    ("ann", "cy", "2024-01-20T00:00:00", 0.5),
]
DATED = pl.DataFrame({"src": ["a", "b"], "dst": ["b", "c"], "time": [datetime(2024, 1, 1), datetime(2024, 1, 2)]})
CSV = "from,to,sent,n\n" + "".join(f"{a},{b},{t},{n}\n" for a, b, t, n in ROWS)


def facts(events: dysat.Events) -> list[tuple[object, ...]]:
    """Events as rows of labels, times and weights."""
    weights = np.ones(len(events)) if events.weight is None else events.weight
    ends = events.labels[events.src].tolist(), events.labels[events.dst].tolist()
    return list(zip(*ends, events.time.tolist(), weights.tolist(), strict=True))


EXPECTED = facts(dysat.read_events(tuple(zip(*ROWS, strict=True))))


def read(path: Path) -> dysat.Events:
    return dysat.read_events(path, "from", "to", "sent", "n")


# --- formats ----------------------------------------------------------------------------------------------------------


def test_expected_events_are_the_rows() -> None:
    stamps = [int(datetime.fromisoformat(t).replace(tzinfo=UTC).timestamp()) * 10**6 for _, _, t, _ in ROWS]
    assert [(a, b, s, n) for (a, b, _, n), s in zip(ROWS, stamps, strict=True)] == EXPECTED


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV),
        ("a.csv", CSV.replace(",", ";")),
        ("a.csv", CSV.replace(",", "|")),
        ("a.tsv", CSV.replace(",", "\t")),
        ("a.txt", CSV.replace(",", "\t")),
        ("a.txt", CSV.replace(",", "  \t ")),
        ("a.dat", "\n" + CSV.replace(",", " ")),
        ("a.csv", "\ufeff" + CSV),
        ("a.csv", CSV.replace("\n", "\r\n")),
        ("a.csv", CSV.replace("\n", "\r\n", 2)),
        ("a.csv", CSV.replace("\n", "\r")),
        ("a.csv", CSV.replace("\n", "\r", 2)),
        ("a.csv", CSV.replace("\n", "\n\n")),
        ("a.csv", CSV.replace("from,to", " from , to ")),
        ("a.csv", CSV.rstrip("\n")),
        ("a.log", "\n".join(json.dumps(dict(zip(("from", "to", "sent", "n"), row, strict=True))) for row in ROWS)),
        (
            "a.json",
            "".join(json.dumps(dict(zip(("from", "to", "sent", "n"), row, strict=True)), indent=2) for row in ROWS),
        ),
    ],
)
def test_text_formats_and_compressions(write: Write, name: str, content: str) -> None:
    for pack in (bytes, gzip.compress, zstandard.compress):
        assert facts(read(write(name, pack(content.encode())))) == EXPECTED


def test_zstd_in_many_frames_and_gzip_in_many_members(write: Write) -> None:
    half = len(CSV) // 2
    for pack in (gzip.compress, zstandard.compress):
        assert facts(read(write("a.csv.x", pack(CSV[:half].encode()) + pack(CSV[half:].encode())))) == EXPECTED


def test_parquet_file_and_folder(tmp_path: Path) -> None:
    table = pl.DataFrame(ROWS, schema=["from", "to", "sent", "n"], orient="row")
    table.write_parquet(tmp_path / "a.parquet")
    assert facts(read(tmp_path / "a.parquet")) == EXPECTED
    (tmp_path / "parts" / "deep").mkdir(parents=True)
    table[:1].write_parquet(tmp_path / "parts" / "0.parquet")
    table[1:].write_parquet(tmp_path / "parts" / "deep" / "1.parquet")
    (tmp_path / "parts" / "_SUCCESS").touch()
    assert facts(read(tmp_path / "parts")) == EXPECTED


def test_konect(write: Write) -> None:
    events = dysat.read_events(write("out.net", "% sym positive\n% 2 3 3\n1 2 3 1082008561\n2 3 1 1082123439\n"))
    assert [(a, b, w) for a, b, _, w in facts(events)] == [(1, 2, 3.0), (2, 3, 1.0)]
    assert events.notes == ("times read as epoch numbers in s",)


def test_konect_ratings_do_not_count(write: Write) -> None:
    events = dysat.read_events(write("out.net", "% asym weighted\n1 2 -1 1082008561\n2 3 5 1082123439\n"))
    assert events.weight is None and "every row counts once" in events.notes[0]


def test_konect_bipartite_has_two_id_spaces(write: Write) -> None:
    path = write("out.net", "% bip positive\n1 1 1 1082008561\n1 2 1 1082123439\n")
    events = dysat.read_events(path)
    assert events.kind_names == ("left", "right") and events.num_nodes == 3
    assert dysat.read_events(path, kinds=("user", "film")).kind_names == ("user", "film")


def test_snap(write: Write) -> None:
    for comment in ("# FromNodeId ToNodeId Time\n", ""):
        events = dysat.read_events(write("net.txt", comment + "1\t2\t1082008561\n2\t3\t1082123439\n"))
        assert [(a, b) for a, b, _, _ in facts(events)] == [(1, 2), (2, 3)]


def test_files_without_a_header_have_numbered_columns(write: Write) -> None:
    body = CSV.partition("\n")[2]
    assert facts(dysat.read_events(write("a.csv", body), 1, 2, 3, 4)) == EXPECTED
    assert facts(dysat.read_events(write("a.csv", body), "1", "2", "3", "4", header=False)) == EXPECTED
    assert (
        facts(dysat.read_events(write("a.csv", "x;y;z;w\n" + body.replace(",", ";")), "x", "y", "z", "w")) == EXPECTED
    )


def test_a_date_in_the_first_line_is_no_header(write: Write) -> None:
    assert dysat.read_events(write("n.csv", "1,2,2024-01-01\n2,3,2024-02-01\n"), 1, 2, 3).labels.tolist() == [1, 2, 3]
    assert dysat.read_events(write("w.txt", "ann bob 2024-01-01\nbob cy 2024-02-01\n")).num_nodes == 3
    commented = write("c.csv", "#src,dst,time\na,b,2024-01-01\nb,c,2024-02-01\n")
    assert dysat.read_events(commented, "#src", "dst", "time").num_nodes == 3


def test_parquet_parts_may_differ_in_integer_width_and_unused_columns(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    day = {"time": ["2024-01-01", "2024-02-01"]}
    pl.DataFrame({"src": [1, 2], "dst": [2, 3], **day}).write_parquet(tmp_path / "parts" / "0.parquet")
    narrow = {"src": pl.Series([1, 2], dtype=pl.Int32), "dst": [2, 4], **day, "more": [0, 0]}
    pl.DataFrame(narrow).write_parquet(tmp_path / "parts" / "1.parquet")
    assert sorted(dysat.read_events(tmp_path / "parts").labels.tolist()) == [1, 2, 3, 4]


def test_usual_column_names_are_recognised_and_noted(write: Write) -> None:
    events = dysat.read_events(write("a.csv", "Weight,Source,Target,Timestamp\n9,a,b,2024-01-01\n9,b,c,2024-01-02\n"))
    assert events.notes == ("columns recognised: src='Source', dst='Target', time='Timestamp'",)
    assert events.weight is None


def test_two_nodes_in_one_column(write: Write) -> None:
    path = write("a.csv", "pair,time\na_b,2024-01-01\nb_c,2024-01-02\n")
    assert [(a, b) for a, b, _, _ in facts(dysat.read_events(path, "pair", pair_separator="_"))] == [
        ("a", "b"),
        ("b", "c"),
    ]
    for bad in ("ab", "a_b_c", "_b"):
        path = write("bad.csv", f"pair,time\na_b,2024-01-01\n{bad},2024-01-02\n")
        with pytest.raises(dysat.EventsError, match=r"line 3: .*pair"):
            dysat.read_events(path, "pair", pair_separator="_")


# --- tables -----------------------------------------------------------------------------------------------------------


def test_tables_of_every_library() -> None:
    table = pl.DataFrame(ROWS, schema=["from", "to", "sent", "n"], orient="row")
    typed = table.with_columns(pl.col("sent").str.to_datetime("%Y-%m-%dT%H:%M:%S"))
    names = ("from", "to", "sent", "n")
    frame = pd.DataFrame(ROWS, columns=list(names))
    frame["sent"] = pd.to_datetime(frame["sent"])
    zoned = frame.assign(sent=frame["sent"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))
    arrow = pa.table({name: [row[i] for row in ROWS] for i, name in enumerate(names)})
    for source in (table, typed, typed.lazy(), frame, zoned, frame.astype({"from": "category"}), arrow):
        assert facts(dysat.read_events(source, *names)) == EXPECTED


def test_numpy_arrays_of_several_types() -> None:
    for unit in ("s", "ms", "us", "ns", "h"):
        times = np.array(["2024-01-01T00", "2024-01-02T00"], dtype=f"datetime64[{unit}]")
        events = dysat.read_events((np.array(["a", "b"]), np.array(["b", "c"]), times))
        assert facts(events)[0][:3] == ("a", "b", 1704067200 * 10**6)
    assert facts(dysat.read_events(([1, 2], [2, 3], [1704067200, 1704067201])))[1][:2] == (2, 3)


def test_labels_survive() -> None:
    texts = ["007", " blank ", 'quo"te', "ünï\U0001f600", "new\nline", "x" * 10_000, "1e3", "NULL", "comma,"]
    rows = [(a, b, f"2024-01-{i + 1:02d}") for i, (a, b) in enumerate(zip(texts, texts[1:] + texts[:1], strict=True))]
    file = io.StringIO(newline="")
    csv.writer(file).writerows([("src", "dst", "time"), *rows])
    table = pl.DataFrame(rows, schema=["src", "dst", "time"], orient="row")
    events = dysat.read_events(table)
    assert [row[0] for row in facts(events)] == texts


def test_labels_survive_csv(write: Write) -> None:
    texts = ["007", " blank ", 'quo"te', "ünï\U0001f600", "new\nline", "x" * 10_000, "1e3", "NULL", "comma,"]
    file = io.StringIO(newline="")
    csv.writer(file).writerows(
        [("src", "dst", "time"), *[(t, "z", f"2024-01-{i + 1:02d}") for i, t in enumerate(texts)]]
    )
    assert [row[0] for row in facts(dysat.read_events(write("a.csv", file.getvalue())))] == texts


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["1,2,2024-01-01", "2,3,2024-01-02"], [1, 2, 3]),
        (["1,2,2024-01-01", "02,3,2024-01-02"], ["1", "2", "02", "3"]),
        (["1,2,2024-01-01", "x,3,2024-01-02"], ["1", "2", "3", "x"]),
        (["1,2,2024-01-01", "0,-3,2024-01-02T10:00"], [1, 2, -3, 0]),
        (["1,2,2024-01-01", "-0,+3,2024-01-02"], ["1", "2", "+3", "-0"]),
        (["x,2,2024-01-01", "1,3,2024-01-02"], ["2", "x", "1", "3"]),
        (["1,2,2024-01-01", "9223372036854775808,3,2024-01-02"], ["1", "2", "3", "9223372036854775808"]),
    ],
)
def test_types_of_labels_depend_on_all_rows(write: Write, rows: list[str], expected: list[object]) -> None:
    assert dysat.read_events(write("a.csv", "\n".join(["src,dst,time", *rows]))).labels.tolist() == expected


@pytest.mark.parametrize(
    ("src", "dst", "expected"),
    [
        ([1, 2], [2, 3], [1, 2, 3]),
        ([1.0, 2.0], [2, 3], [1, 2, 3]),
        ([1, 2], ["2", "b"], ["1", "2", "b"]),
        ([2**63, 1], [5, 6], ["5", "9223372036854775808", "1", "6"]),
        (["1", "2"], ["2", "3"], [1, 2, 3]),
    ],
)
def test_labels_of_several_types(src: list[object], dst: list[object], expected: list[object]) -> None:
    def column(values: list[object]) -> pl.Series:
        return pl.Series(values, dtype=pl.UInt64 if 2**63 in values else None)

    table = pl.DataFrame({"src": column(src), "dst": column(dst), "time": ["2024-01-01", "2024-01-02"]})
    assert dysat.read_events(table).labels.tolist() == expected


def test_events_are_sorted_by_time() -> None:
    events = dysat.read_events(
        (["c", "a", "b"], ["d", "b", "c"], ["2024-03-01", "2024-01-01", "2024-02-01"], [3, 1, 2])
    )
    assert facts(events) == sorted(facts(events), key=lambda row: row[2])
    assert events.labels.tolist() == ["a", "b", "c", "d"] and [row[3] for row in facts(events)] == [1, 2, 3]


def test_between_is_half_open_and_to_polars_round_trips() -> None:
    events = dysat.read_events(tuple(zip(*ROWS, strict=True)))
    assert facts(events.between("2024-01-01T10:00:00", "2024-01-20")) == EXPECTED[:2]
    assert facts(events.between(stop="2024-01-01")) == []
    assert facts(dysat.read_events(events.to_polars(), weight="weight")) == EXPECTED
    assert "3 among 3 nodes" in repr(events) and repr(events.between(stop="2024-01-01")) == "Events: none"


def test_zero_weights_are_left_out_and_noted() -> None:
    events = dysat.read_events((list("abc"), list("bcd"), ["2024-01-01"] * 3, [1, 0, 2]))
    assert len(events) == 2 and events.notes == ("1 events of weight 0 were left out",)


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "from,to,send,n\na,b,2024-01-01,1\n",
            r"no column 'sent' for time; there are from, to, send, n; did you mean 'send'",
        ),
        ("from,to,sent,n\na,b,2024-01-01,1\na,b,soon,1\n", r"bad.csv, line 3: time 'soon' is not a date or a number"),
        ('from,to,sent,n\n"a\nb",b,2024-01-01,1\na,b,soon,1\n', r"bad.csv, line 4: time 'soon'"),
        ("from,to,sent,n\na,b,2024-01-01,1\n\na,b,,1\n", r"line 4: column 'sent' is empty"),
        ("from,to,sent,n\na,,2024-01-01,1\na,b,2024-01-01,1\n", r"line 2: column 'to' is empty"),
        ('from,to,sent,n\n"",b,2024-01-01,1\na,b,2024-01-01,1\n', r"line 2: column 'from' is empty"),
        ("from,to,sent,n\na,b,2024-01-01,1\na,b,2024-01-01,much\n", r"line 3: weight 'much' is not a number"),
        ("from,to,sent,n\na,b,2024-01-01,1\na,b,2024-01-01,-1\n", r"line 3: weight '-1' is negative"),
        ("from,to,sent,n\na,b,2024-01-01,nan\na,b,2024-01-01,1\n", r"line 2: weight 'nan' is not finite"),
        ("from,to,sent,n\na,b,2024-01-01,inf\na,b,2024-01-01,1\n", r"line 2: weight 'inf' is not finite"),
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("from,to,sent,n\n", "has no events; at least two are needed"),
        ("from,to,sent,n\na,b,2024-01-01,1\n", "has only one event; at least two are needed"),
        ("from,to,sent,n\na,b,2024-01-01,1\na,b,2024-01-01,1,9\n", "line 3 has 5 fields, but there are 4 columns"),
        (b"from,to,sent,n\na,b,2024-01-01,1\nJos\x81,b,2024-01-01,1\n", r"not UTF-8 text \(line 3 has the byte 0x81\)"),
        (b"from,to,sent,n,Stra\x9de\na,b,2024-01-01,1,x\n", r"not UTF-8 text \(line 1 has the byte 0x9d\)"),
        (gzip.compress(CSV.encode(), mtime=0)[:-9], "cannot be read as gzip: unexpected end of file"),
        (zstandard.compress(CSV.encode())[:-9], "cannot be read as zstd: incomplete frame"),
        (b"\x1f\x8b" + b"junk" * 9, "cannot be read as gzip"),
        (b"PAR1" + b"junk" * 9, "cannot be read as Parquet"),
        ('{"from": 1,\n', "cannot be read as JSON lines: the first line"),
        ('{"from": 1, "to": 2, "sent": 3, "n": 4}\n{"from":\n', "line 2 is not JSON"),
        ("[1, 2]\n", "no column"),
        ('{\n"from": 1}\n[2]', r"line 3: is not an object like"),
        (
            "from,to,sent,n\na,b,1082008561000,1\na,b,1082008561,1\n",
            "1082008561 to 1082008561000 is not a time since 1970",
        ),
        ("from,to,sent,n\na,b,1082008561,1\na,b,0x16,1\n", "line 3: time '0x16' is not a date or a number"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isprintable() else "file",
)
def test_bad_files(write: Write, content: str | bytes, message: str) -> None:
    with pytest.raises(dysat.EventsError, match=message) as caught:
        read(
            write(
                "bad.csv" if b"{" not in (content if isinstance(content, bytes) else content.encode()) else "bad",
                content,
            )
        )
    assert "\n" not in str(caught.value)


def test_bad_rows_of_other_formats_are_located(write: Write, tmp_path: Path) -> None:
    konect = write("out.x", "% sym\n% more\n\n1 2 1 1082008561\n\n1 2 1 soon\n")
    with pytest.raises(dysat.EventsError, match="line 6: time 'soon'"):
        dysat.read_events(konect)
    with pytest.raises(dysat.EventsError, match="line 3: has more than 3 fields"):
        dysat.read_events(write("a.txt", "1 2 1082008561\n\n1 2 1082008561 4\n"))
    lines = write(
        "a.jsonl", '{"src":"a","dst":"b","time":"2024-01-01"}\n\n{"src":"a","dst":null,"time":"2024-01-01"}\n'
    )
    with pytest.raises(dysat.EventsError, match="line 3: column 'dst' is empty"):
        dysat.read_events(lines)
    mongo = write(
        "a.json", '{\n"src": "a",\n"dst": "b",\n"time": ISODate("2024-01-01")}\n{"src": 1, "dst": 2, "time": "x"}'
    )
    with pytest.raises(dysat.EventsError, match="line 5: time 'x'"):
        dysat.read_events(mongo)
    for i, dst in enumerate(("b", None)):
        table = pl.DataFrame({"src": ["a", "b"], "dst": ["x", dst], "time": ["2024-01-01"] * 2})
        (tmp_path / "parts").mkdir(exist_ok=True)
        table.write_parquet(tmp_path / "parts" / f"{i}.parquet")
    with pytest.raises(dysat.EventsError, match=r"row 2 of 1.parquet: column 'dst' is empty"):
        dysat.read_events(tmp_path / "parts")
    with pytest.raises(dysat.EventsError, match="table, row 2: column 'src' is empty"):
        dysat.read_events(pd.DataFrame({"src": ["a", None], "dst": ["b", "c"], "time": [1704067200, 1704067201]}))


def test_bad_rows_can_be_skipped_and_are_counted(write: Write) -> None:
    path = write("a.csv", CSV + "x,y,soon,1\n,y,2024-01-01,1\n\na,b,2024-01-01,-1\n")
    events = dysat.read_events(path, "from", "to", "sent", "n", bad_rows="skip")
    assert facts(events) == EXPECTED and events.notes == ("3 of 6 rows could not be read and were skipped",)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dysat.read_events("nowhere.csv"), "nowhere.csv: no such file"),
        (lambda: dysat.read_events(17), "cannot read events from int"),
        (lambda: dysat.read_events(pd.Series([1, 2])), "cannot read events from Series"),
        (lambda: dysat.read_events((list("ab"), ["b", 2.5], ["2024-01-01"] * 2)), "holds 2.5 among texts"),
        (
            lambda: dysat.read_events((list("ab"), list("bc"), [1, 2]), time_unit="sec"),
            "time_unit='sec' is not one of s, ms",
        ),
        (lambda: dysat.read_events((list("ab"), list("bc"), [1, 2]), bad_rows="drop"), "not one of 'raise', 'skip'"),
        (
            lambda: dysat.read_events((list("ab"), list("bc"), ["x", "y"]), time_format="%Y"),
            "does not match time_format='%Y'",
        ),
        (lambda: dysat.read_events((["a"], ["b"], [1, 2])), "different lengths"),
        (lambda: dysat.read_events((np.array([b"a", b"b"]), list("bc"), [1, 2])), "src holds bytes; decode them"),
        (lambda: dysat.read_events((list("ab"), list("bc"), ["2024-01-01"] * 2, [[1], [2]])), "one dimension"),
        (lambda: dysat.read_events(DATED, time_format="%Y"), "holds dates already; leave time_format= and"),
        (lambda: dysat.read_events(DATED, weight="time"), "column 'time' holds Datetime.*, not numbers"),
        (lambda: dysat.read_events(DATED, pair_separator=""), "pair_separator='' cannot separate two labels"),
        (lambda: dysat.read_events(([[1]], [[1]], [[1]])), "expected one dimension"),
        (lambda: dysat.read_events(pl.DataFrame({"a": [1]})), r"which column is src\? Give src=; there are a"),
        (lambda: dysat.read_events(pl.DataFrame({"a": [1], "time": [1]}), "a", "a"), "src and dst are the same column"),
        (
            lambda: dysat.read_events(([1.5, 2], [1, 2], [1704067200, 1704067201])),
            "holds 1.5; labels are texts or whole numbers",
        ),
        (lambda: dysat.read_events(([True, False], [1, 2], [1704067200, 1704067201])), "holds Boolean"),
        (lambda: dysat.read_events(pl.DataFrame({"src": [1]}), format="csv"), "for files, not for tables"),
        (
            lambda: dysat.read_events((list("ab"), list("bc"), ["2024-01-01"] * 2), kinds=("a", "a")),
            "two different names",
        ),
        (lambda: dysat.read_events((list("ab"), list("bc"), ["2024-01-01"] * 2, ["x", "1"])), "row 1: weight 'x'"),
        (
            lambda: dysat.read_events((list("ab"), list("bc"), ["1970-01-13", "1970-01-14"])),
            "seconds read as milliseconds",
        ),
    ],
)
def test_bad_calls(make: Callable[[], dysat.Events], message: str) -> None:
    with pytest.raises(dysat.EventsError, match=message):
        make()


def test_lists_of_numbers_and_texts_become_texts() -> None:
    assert dysat.read_events(([1, "a"], ["b", 2], ["2024-01-01", "2024-01-02"])).labels.tolist() == ["1", "b", "2", "a"]


def test_bad_options_of_files(write: Write, tmp_path: Path) -> None:
    path = write("a.csv", CSV)
    with pytest.raises(dysat.EventsError, match="format='xls' is not one of csv, tsv"):
        dysat.read_events(path, format="xls")  # type: ignore[arg-type]
    with pytest.raises(dysat.EventsError, match="single character"):
        dysat.read_events(path, separator="::")
    with pytest.raises(dysat.EventsError, match=r"folder without \.parquet files"):
        dysat.read_events(tmp_path)
