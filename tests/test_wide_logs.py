"""The logs of the wide bench: parsers on small inputs, windows, and the split into halves."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import sys
import tarfile
import zipfile
import zlib
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import dysat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
readers = pytest.importorskip("wide_readers")
generators = pytest.importorskip("wide_generators")
wide_logs = pytest.importorskip("wide_logs")

DAY = datetime(2020, 1, 1)


def tar(files: dict[str, bytes], mode: str = "w:xz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def deb(files: dict[str, bytes]) -> bytes:
    content = b"!<arch>\n"
    for name, part in {"debian-binary": b"2.0", "data.tar.xz": tar({f"./{k}": v for k, v in files.items()})}.items():
        content += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(part):<10}`\n".encode() + part + b"\n" * (len(part) % 2)
        )
    return content


def test_member_of_each_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr("x/y.csv", "wheel")
    (tmp_path / "a.tgz").write_bytes(tar({"x/y.csv": b"npm"}, "w:gz"))
    (tmp_path / "a.deb").write_bytes(deb({"x/y.csv": b"debian"}))
    found = [readers.member(tmp_path / name, "x/y.csv") for name in ("a.whl", "a.tgz", "a.deb")]
    assert found == [b"wheel", b"npm", b"debian"]
    (tmp_path / "b.deb").write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a Debian package"):
        list(readers.deb_members(tmp_path / "b.deb", ".*"))


def test_gnu_changelog() -> None:
    text = "2020-01-02  Ann A.  <a@x.org>\n\n\tFix it.\n\t* lib/a.c, b.h (f): New.\n\tMore.\n\t* NEWS: Say so.\n"
    text += "\nWed Jan  1 1997  Cy  <c@x.org>\n\n\t* d.c: In another style.\n"
    text += "\n2020-13-02  Bob  <b@x.org>\n\n\t* c.c: No such month.\n"
    at = datetime(2020, 1, 2)
    assert list(readers.changelog_rows(text)) == [("Ann A.", "lib/a.c", at), ("Ann A.", "b.h", at)]


def test_changelogs_inside_a_source_archive(tmp_path: Path) -> None:
    entry = b"2020-01-02  Ann  <a@x.org>\n\n\t* a.c: New.\n"
    source = tar({"s-1/ld/ChangeLog": entry, "s-1/ChangeLog.old/ChangeLog.1": entry, "s-1/README": entry})
    (tmp_path / "s.deb").write_bytes(deb({"src.tar.xz": source}))
    found = readers.source_changelogs(tmp_path / "s.deb", "src.tar.xz", r".*/ChangeLog[.\d]*")
    assert found["dst"].to_list() == ["ld/a.c", "a.c"]


def test_debian_changelogs(tmp_path: Path) -> None:
    text = "ruby-x (1-1) unstable; urgency=low\n\n  [ Bob ]\n  * New.\n\n"
    text += " -- Ann <a@x.org>  Thu, 28 Jul 2022 23:44:48 +0200\n"
    path = tmp_path / "ruby-x.deb"
    path.write_bytes(deb({"usr/share/doc/ruby-x/changelog.Debian.gz": gzip.compress(text.encode())}))
    at = datetime(2022, 7, 28, 21, 44, 48)
    assert readers.debian_changelogs([path]).rows() == [("Ann", "ruby-x", at), ("Bob", "ruby-x", at)]


def key_id(body: bytes) -> bytes:
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2) + body).digest()[-8:]


def signature(issuer: bytes, seconds: int, kind: int = 0x10) -> bytes:
    hashed, unhashed = b"\x05\x02" + seconds.to_bytes(4), b"\x09\x10" + issuer
    return bytes([4, kind, 1, 8]) + len(hashed).to_bytes(2) + hashed + len(unhashed).to_bytes(2) + unhashed + b"\0\0"


def test_key_signatures(tmp_path: Path) -> None:
    keys = [b"\x04first key", b"\x04second key"]
    first, second = map(key_id, keys)
    parts = [(6, keys[0]), (13, b"Ann"), (2, signature(first, 0)), (2, signature(second, 90_000))]
    parts += [(2, signature(second, 91_000)), (2, signature(b"\0" * 8, 0)), (2, signature(second, 0, 0x18))]
    parts += [(6, keys[1]), (2, signature(first, 5, 0x13))]
    old = b"".join(bytes([0x80 | tag << 2, len(body)]) + body for tag, body in parts)
    new = b"".join(bytes([0xC0 | tag, len(body)]) + body for tag, body in parts)
    rows = [(first.hex(), second.hex(), datetime(1970, 1, 1)), (second.hex(), first.hex(), datetime(1970, 1, 2))]
    for ring in (old, new):
        (tmp_path / "k.deb").write_bytes(deb({"ring.gpg": ring}))
        assert readers.key_signatures(tmp_path / "k.deb", "ring.gpg").rows() == sorted(rows)


def r_value(value: object, names: list[str] | None = None, dim: list[int] | None = None) -> bytes:
    """A value in R's serialization: text, a list of numbers or texts, bytes of other values, or a named list."""
    pairs = [(k, r_value(v)) for k, v in (("names", names), ("dim", dim)) if v is not None]
    flag = 0x200 if pairs else 0
    if isinstance(value, str):
        return struct.pack(">ii", 9, len(value.encode())) + value.encode()
    assert isinstance(value, list)
    if all(isinstance(v, bytes) for v in value):
        content = struct.pack(">ii", 19 | flag, len(value)) + b"".join(value)
    elif isinstance(value[0], str):
        content = struct.pack(">ii", 16 | flag, len(value)) + b"".join(map(r_value, value))
    else:
        kind, letter = (13, "i") if isinstance(value[0], int) else (14, "d")
        content = struct.pack(f">ii{len(value)}{letter}", kind | flag, len(value), *value)
    for name, attribute in pairs:
        content += struct.pack(">ii", 2 | 0x400, 1) + r_value(name) + attribute
    return content + (struct.pack(">i", 254) if pairs else b"")


VOTES = [1, 1, 6, 6, 6, 6, 1, 1, 1, 9]  # two votes of five people: 2 to 3, and 3 to 1
HEAD = b"X\n" + struct.pack(">iii", 2, 0, 0)


def test_dissents(tmp_path: Path) -> None:
    sides = struct.pack(">12i", 13 | 0x200, 10, *VOTES)
    people = r_value([r_value(["ann", "bob", "cy", "di", "ed"]), struct.pack(">i", 254)])
    sides += struct.pack(">ii", 2 | 0x400, 1) + r_value("dim") + r_value([5, 2])
    sides += struct.pack(">ii", 2 | 0x400, 1) + r_value("dimnames") + people + struct.pack(">i", 254)
    calls = r_value([sides, r_value([r_value([1.0, 2.0])], names=["date"])], names=["votes", "vote.data"])
    stored = b"\0\0\0\0" + zlib.compress(HEAD + calls)
    index = r_value([r_value([r_value([3, len(stored)])], names=["s1"])], names=["variables"])
    files = {"d/Rdata.rdb": b"..." + stored, "d/Rdata.rdx": gzip.compress(HEAD + index)}
    (tmp_path / "r.deb").write_bytes(deb(files))
    found = readers.r_data(tmp_path / "r.deb", "d", "s1")
    assert found["votes"].values == VOTES
    assert found["vote.data"]["date"].values == [1.0, 2.0]
    assert readers.dissents(tmp_path / "r.deb", "d", "s1").rows() == [("ann", "bob", datetime(1970, 1, 2))]
    assert not len(readers.dissents(tmp_path / "r.deb", "d", "s1", most=1))


def test_roll_calls(tmp_path: Path) -> None:
    """Two votes of four people: 2 to 2, where the first side counts as the smaller one, and 3 to 1."""
    columns = [[1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 9.0, 0.0]]
    content = struct.pack(">ii", 19 | 0x200, 3) + b"".join(map(r_value, columns))
    for name, values in (("names", ["id", "rc1", "rc2"]), ("row.names", ["ann", "bob", "cy", "di"])):
        content += struct.pack(">ii", 2 | 0x400, 1) + r_value(name) + r_value(values)
    content += struct.pack(">i", 254)
    pairs = struct.pack(">ii", 2 | 0x400, 1) + r_value("Senate") + content + struct.pack(">i", 254)
    (tmp_path / "m.deb").write_bytes(deb({"d/votes.rda": gzip.compress(b"RDX2\n" + HEAD + pairs)}))
    found = readers.roll_calls(tmp_path / "m.deb", "d/votes.rda")
    assert found.rows() == [("ann 0", "cy 2", 1)]
    assert not len(readers.roll_calls(tmp_path / "m.deb", "d/votes.rda", most=1))


@pytest.mark.parametrize("content", [b"PK", HEAD + struct.pack(">ii", 3, 0), HEAD + struct.pack(">ii", 4, 0)])
def test_other_r_objects_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="not"):
        readers.RReader(content).read()


def test_browser_features(tmp_path: Path) -> None:
    releases = {
        "1": {"release_date": "2004-11-09", "status": "retired"},
        "2": {"release_date": "2099-01-01", "status": "planned"},
    }
    color = {"support": {"fox": [{"version_added": "1", "flags": []}, {"version_added": "≤1"}]}}
    red = {"support": {"fox": {"version_added": "2"}}}
    css = {"color": {"__compat": color, "red": {"__compat": red}}}
    data = json.dumps({"__meta": {}, "browsers": {"fox": {"releases": releases}}, "css": css})
    (tmp_path / "b.tgz").write_bytes(tar({"package/data.json": data.encode()}, "w:gz"))
    found = readers.browser_features(tmp_path / "b.tgz", "package/data.json").rows()
    assert found == [("fox", "css.color", datetime(2004, 11, 9))]


def test_co_citations(tmp_path: Path) -> None:
    text = "source,target,time\nz,b,2001\nz,a,2001\nz,c,2001\ny,a,2002\n"
    (tmp_path / "c.tgz").write_bytes(tar({"e.gz": gzip.compress(text.encode())}, "w:gz"))
    found = readers.co_citations(tmp_path / "c.tgz", "e.gz")
    assert found.select("src", "dst").rows() == [("a", "b"), ("a", "c"), ("b", "c")]
    assert set(found["time"]) == {datetime(2001, 12, 31)}


def events(days: int, skip: int = 0) -> dysat.Events:
    """The same hundred links every day, spread over the day; a single link in each of the first `skip` days."""
    rows = [(f"n{k}", f"m{k}", DAY + timedelta(days=d + k / 100)) for d in range(skip, days) for k in range(100)]
    rows += [("n0", "m0", DAY + timedelta(days=d)) for d in range(skip)]
    return dysat.read_events(readers.table(rows), "src", "dst", "time")


@pytest.mark.parametrize(("days", "every", "windows"), [(4, "6h", 16), (20, "12h", 40), (30, "1d", 30)])
def test_shortest_width_with_enough_links(days: int, every: str, windows: int) -> None:
    graph, width = wide_logs.cut(events(days), directed=False)
    assert (width, len(graph)) == (every, windows)


def test_sparse_windows_at_the_start_are_left_out() -> None:
    graph, _ = wide_logs.cut(events(30, skip=10), directed=True)
    assert min(snapshot.num_links for snapshot in graph) >= wide_logs.LEAST
    assert graph.directed


def test_too_short_logs_are_refused() -> None:
    with pytest.raises(ValueError, match="no width"):
        wide_logs.cut(events(1), directed=False)


TEST_HALF = {
    "activity-driven",
    "baseball",
    "binutils",
    "co-citations",
    "college-baseball",
    "daily-contacts",
    "dissents",
    "earthquakes",
    "film-distributors",
    "film-writers",
    "flights",
    "gnulib",
    "key-signatures",
    "moving-blocks",
    "ruby-uploads",
    "shop-clicks",
}


def test_halves_are_fixed() -> None:
    assert {name for name, half in wide_logs.HALVES.items() if half == wide_logs.TEST} == TEST_HALF


def test_halves_are_balanced_and_do_not_depend_on_the_order() -> None:
    domains = {name: log.domain for name, log in wide_logs.LOGS.items()}
    half = wide_logs.halves(domains)
    assert half == wide_logs.halves(dict(reversed(domains.items()))) == wide_logs.HALVES
    assert all(half[name] == wide_logs.DEVELOPMENT for name in wide_logs.USED)
    counts = Counter(half.values())
    assert abs(counts[wide_logs.DEVELOPMENT] - counts[wide_logs.TEST]) <= 1
    fresh = Counter((domains[name], half[name]) for name in domains if name not in wide_logs.USED)
    for domain in set(domains.values()) - {domains[name] for name in wide_logs.USED}:
        assert abs(fresh[domain, wide_logs.DEVELOPMENT] - fresh[domain, wide_logs.TEST]) <= 1


def test_halves_without_used_logs() -> None:
    half = wide_logs.halves({"a": "x", "b": "x", "c": "y", "d": "y", "e": "z"}, used=())
    assert Counter(half[name] for name in "abcd") == {wide_logs.DEVELOPMENT: 2, wide_logs.TEST: 2}
    assert half["a"] != half["b"]
    assert wide_logs.halves({"a": "x", "b": "x"}, used=("a", "b")) == dict.fromkeys("ab", wide_logs.DEVELOPMENT)


def test_bench_is_wide() -> None:
    logs = wide_logs.LOGS
    assert len(logs) >= 20
    assert len({log.domain for log in logs.values()}) >= 6
    assert sum(log.domain == "synthetic" for log in logs.values()) <= 6


SMALL = {
    "activity-driven": {"people": 40, "days": 2},
    "moving-blocks": {"people": 60, "days": 3},
    "ageing-attachment": {"nodes": 60, "days": 3},
    "hawkes-blocks": {"people": 30, "days": 3},
    "fading-papers": {"readers": 20, "papers": 40, "days": 3},
    "daily-contacts": {"people": 48, "days": 1},
}


@pytest.mark.parametrize("name", generators.GENERATORS)
def test_generators_are_deterministic(name: str) -> None:
    make, size = generators.GENERATORS[name], SMALL[name]
    links = make(np.random.default_rng(1), **size)
    assert links == make(np.random.default_rng(1), **size)
    assert links != make(np.random.default_rng(2), **size)
    assert all(u != v and 0 <= at < size["days"] for u, v, at in links)
