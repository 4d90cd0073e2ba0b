"""Damaged files give a one-line error or a valid graph, and nothing else."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
import torch
import zstandard

from dysat import DynamicGraph, DysatError, GraphError, build_snapshots, read_events

LONGEST_MESSAGE = 2_000
SLOWEST = 20  # seconds for a file of a few kilobytes
NAMED = {"src": "from", "dst": "to", "time": "sent"}
NUMBERED = {"src": 1, "dst": 2, "time": 3}
COUNTED = {"src": 1, "dst": 2, "time": 4, "weight": 3}


class TookTooLongError(BaseException):
    """Not an Exception, so that no reader turns it into a message."""


@dataclass(frozen=True)
class Seed:
    """A valid file, and the columns to read."""

    name: str
    content: bytes
    columns: dict[str, str | int]


def seed_rows(number=24):
    """Rows (src, dst, day, seconds, weight) over some months."""
    rng = np.random.default_rng(7)
    names = ["ann", "bob", "cy d", "dö", "eve", "f,g", "ham"]
    rows = []
    for i in range(number):
        u, v = rng.integers(0, len(names), 2)
        day = np.datetime64("2020-01-01") + 4 * i
        seconds = int(day.astype("datetime64[s]").astype(int)) + int(rng.integers(0, 86_400))
        rows.append((names[u], names[v], str(np.datetime64(seconds, "s")), seconds, float(rng.integers(1, 5))))
    return rows, names


def seeds():
    """One small valid file of every format."""
    rows, names = seed_rows()
    ids = {name: i + 1 for i, name in enumerate(names)}

    def separated(mark, quote='"'):
        lines = [mark.join(("from", "to", "sent", "count"))]
        for u, v, at, _, weight in rows:
            fields = [f"{quote}{x}{quote}" if mark in x or " " in x else x for x in (u, v, at, f"{weight:g}")]
            lines.append(mark.join(fields))
        return ("\n".join(lines) + "\n").encode()

    def plain(columns, top=""):
        lines = [" ".join(str(x) for x in columns(ids[u], ids[v], seconds, f"{w:g}")) for u, v, _, seconds, w in rows]
        return (top + "\n".join(lines) + "\n").encode()

    records = [{"from": u, "to": v, "sent": at, "count": w} for u, v, at, _, w in rows]
    mongo = []
    for i, (u, v, at, _, w) in enumerate(rows):
        mongo.append(
            f'{{\n  "_id" : ObjectId("{i:024x}"),\n  "from" : {json.dumps(u)},\n  "to" : {json.dumps(v)},\n'
            f'  "sent" : ISODate("{at}Z"),\n  "count" : NumberLong({int(w)}),\n  "tags" : [ "a", {{ "b" : 1 }} ]\n}}\n'
        )
    named = {**NAMED, "weight": "count"}
    whole = separated(",").replace(b"\n", b"\r\n")
    text = [
        Seed("mail.csv", separated(","), named),
        Seed("windows.csv", b"\xef\xbb\xbf" + whole, named),
        Seed("mail.tsv", separated("\t"), named),
        Seed("half.csv", separated(";"), named),
        Seed("blanks.txt", plain(lambda u, v, s, w: (u, v, s)), NUMBERED),
        Seed("headed.txt", plain(lambda u, v, s, w: (u, v, s, w), "from to sent count\n"), named),
        Seed("out.konect", plain(lambda u, v, s, w: (u, v, w, s), "% bip posweighted\n% 24 7 7\n"), COUNTED),
        Seed("out.plain", plain(lambda u, v, s, w: (u, v, w, s), "% sym unweighted\n"), COUNTED),
        Seed("snap.txt", plain(lambda u, v, s, w: (u, v, s), "# Nodes: 7\n# FromNodeId\tToNodeId\n"), NUMBERED),
        Seed("mail.jsonl", "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records).encode(), named),
        Seed("mail.json", "".join(mongo).encode(), named),
    ]
    return [*text, *parquet_seeds(rows, ids)]


def parquet_seeds(rows, ids):
    named = {**NAMED, "weight": "count"}
    table = pl.DataFrame(rows, schema=["from", "to", "sent", "seconds", "count"], orient="row")
    dated = table.with_columns(pl.col("sent").str.to_datetime())
    numbered = table.with_columns(pl.col("from", "to").replace_strict(ids), sent="seconds").drop("seconds")
    seeds = []
    for name, frame, packed in (
        ("text.parquet", table, "zstd"),
        ("dated.parquet", dated, "uncompressed"),
        ("numbers.parquet", numbered, "snappy"),
    ):
        out = io.BytesIO()
        frame.write_parquet(out, compression=packed)
        seeds.append(Seed(name, out.getvalue(), named))
    return seeds


# --- ways to damage bytes: each takes (content, generator) ---

BITS = (
    *(
        b"\0",
        b'"',
        b"'",
        b'""',
        b"\n",
        b"\n\n\n",
        b"\r",
        b"\r\n",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
    ),
    *(
        b"nan",
        b"inf",
        b"-inf",
        b"-1",
        b"-5.5",
        b"0",
        b"1e400",
        b"1e308",
        b"9" * 25,
        b"-" + b"9" * 25,
        b"1e-400",
        b"0x10",
    ),
    *(
        b",",
        b";",
        b"\t",
        b" ",
        b"|",
        b",,,,",
        b"#",
        b"%",
        b"{",
        b"}",
        b"[",
        b"]",
        b"null",
        b"true",
        b"\\",
        b"\\u0000",
        b"\\ud800",
    ),
    *(
        "\u2028\u0085\u200b".encode(),
        b"\x1f",
        b"\x1c",
        b"\x0b",
        b"2020-02-30",
        b"2020-01-01T25:00:00",
        b"0000-00-00",
        b"soon",
    ),
    *(
        b"9223372036854775807",
        b"9223372036854775808",
        b"1970-01-01",
        b"9999-12-31T23:59:59",
        b"0001-01-01",
        b"12020-01-01",
    ),
    *(b'ISODate("', b'")', b"ObjectId(", b'{"from":1}', b"[1]", b"3\n", b'"x"\n', b"x" * 10_000, b"7" * 10_000),
    *(b"[" * 5_000, b'{"a":' * 3_000, b"[" * 400 + b"]" * 400, b'{"a":' * 150 + b"1" + b"}" * 150, b"(" * 2_000),
)


def spot(content, rng):
    return int(rng.integers(0, len(content) + 1))


def flip(content, rng):
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        if data:
            data[int(rng.integers(0, len(data)))] ^= 1 << int(rng.integers(0, 8))
    return bytes(data)


def overwrite(content, rng):
    at, length = spot(content, rng), int(rng.integers(1, 9))
    return content[:at] + rng.bytes(length) + content[at + length :]


def truncate(content, rng):
    return content[: spot(content, rng)]


def behead(content, rng):
    return content[spot(content, rng) :]


def insert_random(content, rng):
    at = spot(content, rng)
    return content[:at] + rng.bytes(int(rng.integers(1, 12))) + content[at:]


def insert_bit(content, rng):
    at = spot(content, rng)
    return content[:at] + BITS[int(rng.integers(0, len(BITS)))] + content[at:]


def swap_chunks(content, rng):
    a, b, c, d = sorted(spot(content, rng) for _ in range(4))
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def random_line(content, rng):
    lines = content.split(b"\n")
    return lines, int(rng.integers(0, len(lines)))


def drop_line(content, rng):
    lines, i = random_line(content, rng)
    return b"\n".join(lines[:i] + lines[i + 1 :])


def double_line(content, rng):
    lines, i = random_line(content, rng)
    return b"\n".join(lines[: i + 1] * (1 + int(rng.integers(0, 2))) + lines[i:])


def change_line_ends(content, rng):
    return content.replace(b"\n", (b"\r", b"\r\n", b"\n\r", b"\n\n", b" ", b"\0")[int(rng.integers(0, 6))])


def mark_of(content):
    return max((b",", b"\t", b";", b" "), key=content.count)


def change_field(content, rng):
    """Empty or replace one field of one line."""
    lines, i = random_line(content, rng)
    mark = mark_of(content)
    fields = lines[i].split(mark)
    fields[int(rng.integers(0, len(fields)))] = (b"", *BITS)[int(rng.integers(0, len(BITS) + 1))]
    return b"\n".join([*lines[:i], mark.join(fields), *lines[i + 1 :]])


def change_column(content, rng):
    """Drop, double, empty or replace one column in all lines, with or without the header."""
    lines, mark = content.split(b"\n"), mark_of(content)
    column, how, first = int(rng.integers(0, 4)), int(rng.integers(0, 4)), int(rng.integers(0, 2))
    bit = BITS[int(rng.integers(0, len(BITS)))]
    for i in range(first, len(lines)):
        fields = lines[i].split(mark)
        if column < len(fields) and lines[i]:
            fields[column : column + 1] = ([], [fields[column]] * 2, [b""], [bit])[how]
            lines[i] = mark.join(fields)
    return b"\n".join(lines)


def drop_field(content, rng):
    lines, i = random_line(content, rng)
    mark = mark_of(content)
    return b"\n".join([*lines[:i], lines[i].rpartition(mark)[0], *lines[i + 1 :]])


BINARY = (flip, overwrite, truncate, behead, insert_random, insert_bit, swap_chunks)
TEXT = (
    *(flip, overwrite, truncate, behead, insert_random, insert_bit, insert_bit, swap_chunks),
    *(drop_line, double_line, change_line_ends, change_field, change_field, change_column, change_column, drop_field),
)
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda content: content,
    ".gz": lambda content: gzip.compress(content, 1, mtime=0),
    ".zst": lambda content: zstandard.compress(content, 1),
}


def damaged(seed, packed, rng):
    """Damage before packing, after, or both."""
    content = seed.content
    ways = BINARY if seed.name.endswith(".parquet") else TEXT
    if not packed:
        for _ in range(int(rng.integers(1, 3))):
            content = ways[int(rng.integers(0, len(ways)))](content, rng)
        return content
    inside = int(rng.integers(0, 10)) < 7
    if inside:
        content = ways[int(rng.integers(0, len(ways)))](content, rng)
    content = PACKERS[packed](content)
    return content if inside else BINARY[int(rng.integers(0, len(BINARY)))](content, rng)


# --- what must hold ---


@contextmanager
def no_longer_than(seconds):
    def ring(*_):
        raise TookTooLongError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_message(problem):
    text = str(problem)
    assert text.strip(), "an empty message"
    assert len(text.splitlines()) == 1, f"a message of several lines: {text!r}"
    assert text.isprintable(), f"control characters in a message: {text!r}"
    assert len(text) < LONGEST_MESSAGE, f"a message of {len(text)} characters: {text[:200]!r}"


def check_valid(graph):
    assert graph.num_nodes == graph.known[-1] and list(graph.known) == sorted(graph.known)
    assert all(before < after for before, after in zip(graph.boundaries, graph.boundaries[1:], strict=False))
    kinds = [0] * graph.num_nodes if graph.kinds is None else graph.kinds.tolist()
    assert len(set(zip(kinds, graph.nodes.tolist(), strict=True))) == graph.num_nodes
    for s in graph:
        if not len(s.neighbours):
            assert not len(s.rows) and s.offsets.tolist() == [0]
            continue
        receivers, neighbours, weights = s.entries()
        assert (s.rows.diff() > 0).all() and (s.offsets.diff() > 0).all()
        assert s.offsets[0] == 0 and s.offsets[-1] == len(neighbours) == len(weights)
        keys = receivers * graph.num_nodes + neighbours
        assert (keys.diff() > 0).all()
        assert neighbours.min() >= 0 and max(int(neighbours.max()), int(s.rows.max())) < s.num_nodes
        assert torch.isfinite(weights).all() and (weights > 0).all()
        turned = torch.argsort(neighbours * graph.num_nodes + receivers)
        torch.testing.assert_close(receivers[turned], neighbours, rtol=0, atol=0)
        torch.testing.assert_close(weights[turned], weights, rtol=0, atol=0)


class Failures:
    """Failures by kind, the shortest example of each."""

    def __init__(self):
        self.found = {}

    def add(self, problem, label, content):
        own = [frame for frame in traceback.extract_tb(problem.__traceback__) if "dysat" in frame.filename]
        where = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
        kind = (type(problem).__name__, where, str(problem)[:40])
        number, best = self.found.get(kind, (0, None))
        if best is None or len(content) < len(best[2]):
            best = (problem, label, content)
        self.found[kind] = (number + 1, best)

    def report(self):
        texts = []
        for (kind, where, _), (number, (problem, label, content)) in self.found.items():
            shown = repr(content) if len(content) < 5_000 else repr(content[:5_000]) + "…"
            texts.append(f"{number} × {kind} at {where}\n  {str(problem)[:600]}\n  {label}\n  {shown}")
        return "\n".join(texts)


def try_file(path, content, columns):
    """Read and cut one damaged file; return whether a graph came out. Anything raised here is a failure."""
    path.write_bytes(content)
    try:
        with no_longer_than(SLOWEST):
            graph = build_snapshots(read_events(path, **columns), every="10d")
    except DysatError as problem:
        check_message(problem)
        return False
    check_valid(graph)
    return True


SEEDS = seeds()


def files_of(packed):
    """The seeds that are tried with this compression; Parquet compresses by itself."""
    return [seed for seed in SEEDS if not (packed and seed.name.endswith(".parquet"))]


@pytest.mark.parametrize("packed", PACKERS)
def test_seeds_are_valid(tmp_path, packed):
    for seed in files_of(packed):
        for columns in ({}, seed.columns):
            if columns or "from" not in seed.columns.values():
                assert try_file(tmp_path / (seed.name + packed), PACKERS[packed](seed.content), columns), seed.name


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("number", [8, pytest.param(130, marks=pytest.mark.slow)])
def test_damaged_files_are_explained_or_read(tmp_path, number, packed):
    failures, graphs = Failures(), 0
    for seed in files_of(packed):
        path = tmp_path / (seed.name + packed)
        for i in range(number * 2 if seed.name.endswith(".parquet") else number):
            start = [len(seed.name), sum(map(ord, seed.name + packed)), i]
            rng = np.random.default_rng(start)
            content = damaged(seed, packed, rng)
            columns = seed.columns if rng.integers(0, 4) else {}
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    graphs += try_file(path, content, columns)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as problem:  # a panic of Polars is no Exception
                failures.add(problem, f"default_rng({start}), {path.name}, columns {columns}", content)
    if failures.found:
        pytest.fail(failures.report(), pytrace=False)
    assert number < graphs < 11 * number  # some damage is harmless, some is not


HUGE = b"x" * 140_000  # more than Python's csv module takes for a field
BY_HAND = {
    "huge field before a bad row": (
        "a.csv",
        b"src,dst,time\n" + HUGE + b",b,2020-01-01\na,b,2020-01-02\na,b,soon\n",
        {},
    ),
    "huge field in a ragged file": ("a.csv", b"src,dst,time\n" + HUGE + b",b,2020-01-01\na,b,2020-01-02,1,2\n", {}),
    "header with a lone CR": ("a.csv", b"a\rsrc,dst,time\na,b,2020-01-01\na,b,2020-05-02\n", {}),
    "gzip without its end": ("a.csv.gz", gzip.compress(b"src,dst,time\na,b,2020-01-01\n", mtime=0)[:-10], {}),
    "gzip of nothing": ("a.csv.gz", gzip.compress(b"", mtime=0), {}),
    "zstd of nothing": ("a.csv.zst", zstandard.compress(b""), {}),
    "only a mark": ("a.csv", b"\xef\xbb\xbf", {}),
    "only NULs": ("a.txt", b"\0" * 100, {}),
    "a very long name": ("a.csv", b"y" * 50_000 + b",dst,time\na,b,2020-01-01\n", {}),
    "thousands of columns": ("a.csv", b",".join(b"column%d" % i for i in range(5_000)) + b"\n1\n", {}),
    "a name of several lines": ("a.csv", b'"x\ny\r\nz",dst,time\na,b,2020-01-01\n', {}),
    "sums beyond float64": (
        "a.csv",
        b"src,dst,time,w\na,b,2020-01-01,1e308\na,b,2020-01-01,1e308\na,b,2020-05-01,1\n",
        {"weight": "w"},
    ),
    "lone surrogate": ("a.json", b'{\n"src":"1","dst":"\\ud800","time":1577836800}\n{"src":1,"dst":2,"time":3}', {}),
    "lone surrogate in a name": ("a.jsonl", b'{"src":1,"dst":2,"time":3,"\\ud800":4}\n' * 2, {}),
    "deep JSON": ("a.jsonl", b'{"src":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", {}),
    "deep objects": ("a.json", b'{\n"src":' + b'{"a":' * 100_000, {}),
    "other objects than the first": ("a.jsonl", b'{"src":1,"dst":2,"time":"2020-01-01"}\n{"x":[]}\n[]\n3\n', {}),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_files_damaged_by_hand_are_explained(tmp_path, case):
    name, content, columns = BY_HAND[case]
    assert not try_file(tmp_path / name, content, columns)


@pytest.mark.parametrize("good", ["1577836800", "2020-01-01", "20200101"])
def test_the_error_names_the_bad_row(tmp_path, good):
    (tmp_path / "a.csv").write_text(f"src,dst,time\na,b,{good}\nb,c,{good}\nc,d,soon\n")
    with pytest.raises(DysatError, match="line 4: time 'soon'"):
        read_events(tmp_path / "a.csv")


# --- graph folders ---

VALUES = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        7,
        99,
        2**31,
        2**63,
        2**70,
        -(2**70),
        1.5,
        1e300,
        "",
        "x",
        "utc",
        "step",
        "../x",
        "\0",
    ),
    *(
        [],
        {},
        [1],
        [[1]],
        [None],
        ["x"],
        {"a": 1},
        {"bytes": 1},
        [0, 1, 2, 3],
        [2**70],
        [1.5],
        [10**12] * 3,
        "9" * 5_000,
    ),
)


def saved_graph(folder):
    rows, _ = seed_rows()
    src, dst, at, _, weight = zip(*rows, strict=True)
    graph = build_snapshots(read_events((src, dst, at, weight), kinds=("user", "item")), every="30d")
    graph = graph.with_features(np.arange(graph.num_nodes * 2.0).reshape(-1, 2))
    graph.save(folder)
    return graph


def paths_in(value, path=()):
    """The path of every value inside a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths_in(value[key], (*path, key))


def damaged_json(content, rng):
    """Replace, shift, remove, rename or double one value of the manifest."""
    whole = json.loads(content)
    places = [path for path in paths_in(whole) if path]
    *path, key = places[int(rng.integers(0, len(places)))]
    inner = whole
    for step in path:
        inner = inner[step]
    how = int(rng.integers(0, 10))
    if how < 2 and isinstance(inner[key], int):
        inner[key] += int(rng.choice([-1, 1, 1000]))
    elif how < 7:
        inner[key] = VALUES[int(rng.integers(0, len(VALUES)))]
    elif how == 7:
        del inner[key]
    elif how == 8 and isinstance(inner, dict):
        inner[("", "x", "..", "a/b", "\0", "é" * 300)[int(rng.integers(0, 6))]] = inner.pop(key)
    elif isinstance(inner, list):
        inner.insert(key, inner[key])
    return json.dumps(whole).encode()


def damage_folder(folder, rng):
    """Damage one file of a graph folder; return its name and new content."""
    files = sorted(folder.iterdir())
    manifest = folder / "graph.json"
    file = manifest if rng.integers(0, 2) else files[int(rng.integers(0, len(files)))]
    how = int(rng.integers(0, 10))
    content = file.read_bytes()
    if how == 0:
        file.unlink()
        return f"{file.name} deleted", b""
    if file == manifest and how < 8:
        content = damaged_json(content, rng)
    elif file != manifest and how == 1:
        content = files[int(rng.integers(0, len(files)))].read_bytes()
    elif file != manifest and how < 5:  # the head of an array: its type and shape
        content = BINARY[int(rng.integers(0, 2))](content[:128], rng) + content[128:]
    else:
        content = BINARY[int(rng.integers(0, len(BINARY)))](content, rng)
    file.write_bytes(content)
    return file.name, content


def load_damaged(folder, graph, *, verify, mmap):
    """GraphError or a graph; with `verify` the same graph as before."""
    try:
        with no_longer_than(SLOWEST):
            again = DynamicGraph.load(folder, verify=verify, mmap=mmap)
    except GraphError as problem:
        check_message(problem)
        return
    assert isinstance(again, DynamicGraph)
    if verify:
        assert again.equals(graph), "a changed graph was loaded without an error"


@pytest.mark.parametrize("number", [40, pytest.param(700, marks=pytest.mark.slow)])
def test_damaged_graph_folders_are_explained_or_loaded(tmp_path, number):
    graph, failures = saved_graph(tmp_path / "whole"), Failures()
    for i in range(number):
        rng = np.random.default_rng([13, i])
        shutil.rmtree(tmp_path / "graph", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "graph")
        name, content = damage_folder(tmp_path / "graph", rng)
        for verify, mmap in ((True, True), (False, True), (False, False)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    load_damaged(tmp_path / "graph", graph, verify=verify, mmap=mmap)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as problem:
                failures.add(problem, f"default_rng([13, {i}]), {name}, verify={verify}, mmap={mmap}", content)
    if failures.found:
        pytest.fail(failures.report(), pytrace=False)
