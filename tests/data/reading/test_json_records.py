"""JSON: nested values have paths, objects are never labels, and arrays are records."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import dysat
from dysat import EventsError, read_events
from dysat.data.reading.json_records import shape_of, value_at

Write = Callable[[str, str | bytes], Path]
MESSAGES: list[dict[str, Any]] = [
    {"user": {"id": "p1", "profile": {"name": "Ann"}}, "channel": {"id": "c1"}, "ts": "2024-01-01", "w": {"n": 2}},
    {"user": {"id": "p2", "profile": {"name": "Bob"}}, "channel": {"id": "c2"}, "ts": "2024-01-02", "w": {"n": 0.5}},
    {"user": {"id": "p1", "profile": {}}, "channel": {"id": "c2"}, "ts": "2024-01-03", "w": {"n": 1}},
]


def lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def ends(events: dysat.Events) -> list[tuple[object, object]]:
    return list(zip(events.labels[events.src].tolist(), events.labels[events.dst].tolist(), strict=True))


EXPECTED = [("p1", "c1"), ("p2", "c2"), ("p1", "c2")]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", lines(MESSAGES)),
        ("a.log", "\ufeff" + lines(MESSAGES)),
        ("a.json", json.dumps(MESSAGES)),
        ("a.json", json.dumps(MESSAGES, indent=2)),
        ("a.jsonl", json.dumps(MESSAGES)),
        ("a.json", json.dumps({"team": "x", "messages": MESSAGES})),
        ("a.json", json.dumps({"team": "x", "messages": MESSAGES}, indent=2)),
        ("a.json", "".join(json.dumps(record, indent=2) for record in MESSAGES)),  # Mongo shell
    ],
)
def test_paths_reach_into_nested_values(write: Write, name: str, text: str, pack: Callable[[bytes], bytes]) -> None:
    events = read_events(write(name, pack(text.encode())), "user.id", "channel.id", "ts", "w.n")
    assert ends(events) == EXPECTED and events.weight is not None and events.weight.tolist() == [2, 0.5, 1]
    assert events.columns == {"src": "user.id", "dst": "channel.id", "time": "ts", "weight": "w.n"}


def test_structs_of_parquet_and_tables_have_paths(tmp_path: Path) -> None:
    table = pl.DataFrame(MESSAGES[:2])
    table.write_parquet(tmp_path / "a.parquet")
    for source in (tmp_path / "a.parquet", table, table.lazy(), table.to_arrow()):
        assert ends(read_events(source, "user.id", "channel.id", "ts")) == EXPECTED[:2]
        with pytest.raises(EventsError, match=r"'user' holds objects; there are user\.id, user\.profile\.name$"):
            read_events(source, "user", "channel.id", "ts")


@pytest.mark.parametrize("text", [lines(MESSAGES), json.dumps(MESSAGES, indent=1)], ids=["lines", "array"])
def test_objects_are_refused_with_the_paths_there_are(write: Write, text: str) -> None:
    path = write("a.json", text)
    with pytest.raises(
        EventsError, match=r"line \d: column 'user' holds an object; there are user\.id, user\.profile\.n"
    ):
        read_events(path, "user", "channel.id", "ts")
    with pytest.raises(EventsError, match=r"column 'user\.profile' holds an object|no column 'user\.profile'"):
        read_events(path, "user.profile", "channel.id", "ts")
    there = r"there are ts, user\.id, user\.profile\.name, channel\.id, w\.n; did you mean 'user\.id'"
    with pytest.raises(EventsError, match=rf"no column 'user\.idd' for src; {there}"):
        read_events(path, "user.idd", "channel.id", "ts")


def test_one_late_object_in_a_column_of_texts_is_found(write: Write) -> None:
    plain = [{"src": "[deleted]", "dst": f"{{{i}", "time": "2024-01-01"} for i in range(30)]
    assert read_events(write("a.jsonl", lines(plain))).num_nodes == 31  # texts that only look nested
    listed = [*plain, {"src": "[1]", "dst": "{}", "time": "2024-01-02"}]
    assert "[1]" in read_events(write("a.jsonl", lines(listed))).labels.tolist()
    with pytest.raises(EventsError, match=r"line 31: column 'src' holds an object; there are src\.id$"):
        read_events(write("a.jsonl", lines([*plain, {"src": {"id": 1}, "dst": "b", "time": "2024-01-02"}])))


def test_a_column_whose_name_has_a_dot_comes_first(write: Write) -> None:
    rows = [{"user.id": f"own{i}", "user": {"id": "inner"}, "to": "x", "time": "2024-01-01"} for i in range(2)]
    path = write("a.jsonl", lines(rows))
    assert [src for src, _ in ends(read_events(path, "user.id"))] == ["own0", "own1"]
    csv = write("a.csv", "user.id,item.id,time\na,b,2024-01-01\nb,c,2024-01-02\n")
    assert ends(read_events(csv, "user.id", "item.id")) == [("a", "b"), ("b", "c")]
    table = pl.DataFrame(rows)
    assert [src for src, _ in ends(read_events(table, "user.id"))] == ["own0", "own1"]


def test_usual_names_are_found_inside_objects_if_only_one_fits(write: Write) -> None:
    rows = [
        {"from": {"id": i, "name": "x"}, "to": {"email": "b@x"}, "meta": {"created_at": "2024-01-01"}} for i in (1, 2)
    ]
    events = read_events(write("a.jsonl", lines(rows)))
    assert events.notes[0] == "columns recognised: src='from.id', dst='to.email', time='meta.created_at'"
    rows = [{"from": {"id": 1}, "user": {"id": 2}, "to": "b", "time": "2024-01-01"}] * 2
    with pytest.raises(EventsError, match=r"which column is src\? Give src=; there are to, time, from\.id, user\.id"):
        read_events(write("a.jsonl", lines(rows)))


def test_lists_are_refused_unless_they_are_split(write: Write, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"src": "a", "dst": ["b", "c"], "time": "2024-01-01"},
        {"src": "b", "dst": "d; e;", "time": "2024-01-02"},
        {"src": "c", "dst": ["f", None], "time": "2024-01-03"},
    ]
    expected = [("a", "b"), ("a", "c"), ("b", "d"), ("b", "e"), ("c", "f")]
    for path in (write("a.jsonl", lines(rows)), write("a.json", json.dumps(rows))):
        with pytest.raises(EventsError, match="column 'dst' holds lists; split_dst=';' makes one event per element"):
            read_events(path)
        assert ends(read_events(path, split_dst=";")) == expected
        with pytest.raises(EventsError, match=r"column 'dst' holds lists$"):
            read_events(path, "dst", "src", split_dst=";")
    table = pl.DataFrame({"src": [1, 2], "dst": [[2, 3], [4]], "time": ["2024-01-01", "2024-01-02"]})
    table.write_parquet(tmp_path / "a.parquet")
    assert ends(read_events(tmp_path / "a.parquet", split_dst=";")) == [(1, 2), (1, 3), (2, 4)]
    nested = [{"src": "a", "to": [{"mail": "b"}, {"mail": "c"}], "time": "2024-01-01"}]
    assert ends(read_events(write("b.jsonl", lines(nested * 2)), dst="to.mail", split_dst=";")) == expected[:2] * 2
    with pytest.raises(EventsError, match=r"column 'to' holds a list of objects; there are to\.mail"):
        read_events(write("b.jsonl", lines(nested * 2)), dst="to", split_dst=";")


def test_a_path_that_only_later_records_have_is_found(write: Write) -> None:
    first = {"user": "none", "to": "x", "time": "2024-01-01", "fill": "y" * 1000}
    rows = [*[first] * 200, *[{"user": {"id": "late"}, "to": "x", "time": "2024-01-02"}] * 2]
    events = read_events(write("a.jsonl", lines(rows)), "user.id", bad_rows="skip")
    assert ends(events) == [("late", "x")] * 2 and "200 of 202 rows could not be read" in events.notes[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"src": 1},\n {"src": }]', "line 2: is not JSON"),
        ('[{"src": 1},\n\n 7]', "line 3: is not an object like"),
        ('[{"src": 1, "dst": 2, "time": "2024-01-01"},\n{"src": 1, "dst": 2, "time": "x"}]', "line 2: time 'x'"),
    ],
)
def test_bad_arrays(write: Write, text: str, message: str) -> None:
    with pytest.raises(EventsError, match=message):
        read_events(write("a.json", text))


KEYS = st.text(st.characters(codec="ascii", categories=("L", "P")), min_size=1, max_size=3)
VALUES = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_every_path_leads_to_a_value(record: dict[str, Any]) -> None:
    columns, paths, _ = shape_of([record])
    assert set(columns) == set(record)
    for path in paths:
        value = value_at(record, path)
        assert value is not None and path not in record
